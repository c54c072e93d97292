"""Markets with narrow stripes for tests: a ring whose receivers send them, and customers that hear them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import SystemRandom
from shutil import copy
from tempfile import TemporaryDirectory
from time import monotonic, time_ns
from typing import Any

import numpy as np
from tests.runtime.worlds import PATIENCE_S, SMALL, World, market_file

from isocast.feeds.mold import MoldPacket, parse_packet
from isocast.runtime.edge.narrow.archive import StripeArchive
from isocast.runtime.edge.narrow.ears import Heard
from isocast.runtime.edge.narrow.listener import StripeBatch, StripeListener
from isocast.runtime.edge.narrow.plan_change import PlanChange
from isocast.runtime.market.model import Market
from isocast.striping.plan import EdgeStripe, StripePlan, plan_text
from isocast.striping.rates import RateMeter
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = [
    "MODEM",
    "OURS",
    "RECEIVERS",
    "Customer",
    "archived",
    "narrow_market",
    "peak_by_due",
    "plan_of",
    "start",
    "tape",
    "until_edges",
]

OURS = (b"ICRP", b"ICSV", b"ICSS")
"""Repairs, proofs and sealed packets: what is no MoldUDP64."""
MODEM = 56_000
RECEIVERS = ("a", "b", "c")
SEAT = {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False}
NODES = {
    **{name: SMALL[name] for name in ("a", "b", "c", "x", "archive", "floor")},
    **dict.fromkeys(("modem", "trunk", "desk"), SEAT),
}


def plan_of(version: int, groups: Mapping[int, tuple[str, ...]], period_ns: int = 10**9) -> StripePlan:
    """A stripe of a modem's rate for each group, and a spare one with the number 99."""
    stripes = [EdgeStripe(number, 0, f"s{number}", MODEM, symbols) for number, symbols in groups.items()]
    return StripePlan(version, (*stripes, EdgeStripe(99, 0, "spare", MODEM, spare=True)), period_ns)


def narrow_market(
    folder: Path, plan: StripePlan, settings: Mapping[str, Mapping[str, object]] | None = None, **edge: object
) -> Path:
    """The file of a market whose receivers send narrow stripes, to groups that nobody else has.

    `settings` of other tables than that of the edge.
    """
    (folder / "stripes.toml").write_text(plan_text(plan), encoding="utf-8")
    draw = SystemRandom()
    base = draw.randrange(192, 232) & ~7
    table = {
        "plan": "stripes.toml",
        "span": 128,
        "groups": f"239.{base}.{draw.randrange(200)}.0",
        "repairs": f"239.{base + 1}.{draw.randrange(200)}.0",
        "proofs": f"239.{base + 2}.{draw.randrange(200)}.0",
        "port": draw.randrange(32_000, 36_000),
        "request_port": draw.randrange(36_000, 40_000),
        **edge,
    }
    return market_file(folder, NODES, settings={"edge": table, **(settings or {})})


def tape(symbols: list[str], count: int, first_id: int) -> EventArray:
    """Trades of symbols in turn."""
    events = np.zeros(count, EVENT_DTYPE)
    events["kind"], events["floor"] = EventKind.TRADE, b"XNYS"
    events["symbol"] = np.resize(np.array(symbols, "S8"), count)
    events["id"] = np.arange(first_id, first_id + count)
    events["price"], events["quantity"], events["time"] = 10_000 + events["id"], 100, time_ns()
    return events


async def start(world: World) -> None:
    """Receivers as processes of their own, everybody else here; ready when every edge says so."""
    for name in RECEIVERS:
        await world.start_apart(name)
    await world.start("x", "archive", "floor")
    await until_edges(world, blocked="")


async def until_edges(world: World, **wanted: object) -> dict[str, dict[str, Any]]:
    """Every receiver's edge runs, and says this of itself."""
    change = PlanChange(world.market)
    until = monotonic() + PATIENCE_S
    while True:
        views = await change.views()
        if len(views) == len(RECEIVERS) and all(wanted.items() <= view.items() for view in views.values()):
            return views
        assert monotonic() < until, views
        await asyncio.sleep(0.05)


class Customer:
    """Hears stripes, and keeps everything."""

    def __init__(self, listener: StripeListener) -> None:
        self.listener = listener
        self.batches: list[StripeBatch] = []
        self.heard: list[Heard] = []
        self.losing: set[int] = set()
        """Places among the clear packets that it does not get."""
        self._clear = 0
        listener._drop = self._lose  # noqa: SLF001 - a network that loses is not part of it

    def _lose(self, heard: Heard) -> bool:
        if not heard.raw.startswith(OURS) and parse_packet(heard.raw).messages:
            self._clear += 1
            if self._clear in self.losing:
                return True
        self.heard.append(heard)
        return False

    @property
    def trades(self) -> list[int]:
        """Ids of all trades, in the order of coming."""
        return [int(n) for b in self.batches for n in b.events["id"][b.events["kind"] == EventKind.TRADE]]

    @property
    def packets(self) -> list[MoldPacket]:
        """Clear ones with messages."""
        parsed = [parse_packet(heard.raw) for heard in self.heard if not heard.raw.startswith(OURS)]
        return [packet for packet in parsed if packet.messages]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Customer]:
        async def collect() -> None:
            async for batch in self.listener:
                self.batches.append(batch)

        async with self.listener:
            task = asyncio.create_task(collect())
            try:
                yield self
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def archived(market: Market, name: str) -> dict[bytes, list[tuple[int, bytes]]]:
    """By session, (due, packet) of everything that a receiver's edge made, in the order of numbers."""
    found: dict[bytes, list[tuple[int, bytes]]] = {}
    with TemporaryDirectory() as place:
        # A copy: whoever opens an archive writes it, and cuts off what is not whole.
        for file in sorted((market.directory_of(name) / "edge").glob("*.stripes")):
            copy(file, place)
        archive = StripeArchive(Path(place), 7)
        for due, raw in archive.packets():
            found.setdefault(raw[:10], []).append((due, raw))
        archive.close()
    return found


def peak_by_due(rows: list[tuple[int, bytes]], span_ns: int) -> int:
    """The most IP bytes in any span, by the instants at which packets were to leave."""
    meter = RateMeter(span_ns)
    for due, raw in sorted(rows):
        meter.note(due, 28 + len(raw))
    return meter.peak
