"""Small edges for tests: plans, markets, tokens in a journal, and what comes out of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tests.runtime.market.markets import changed

from isocast.runtime.disk.journal import Journal
from isocast.runtime.edge.narrow.service import edge_settings
from isocast.runtime.market.file import market_from_mapping
from isocast.runtime.market.model import Market
from isocast.striping.edge import EdgeSettings
from isocast.striping.engine import StripePacket
from isocast.striping.plan import EdgeStripe, StripePlan, plan_text
from isocast.terms.ids import Epoch
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.journal_blocks import ReleasedBlock

__all__ = ["NOON", "PERIOD", "PLAN", "PLAN_2", "block", "edge_market", "settings_of", "trades_of", "write_journal"]

NOON = 20_000 * 86_400 * SECOND + 43_200 * SECOND
PERIOD = 100 * MILLISECOND
RATE = 56_000


def plan_of(version: int, *groups: tuple[str, ...]) -> StripePlan:
    stripes = [EdgeStripe(number, 0, f"s{number}", RATE, symbols) for number, symbols in enumerate(groups, 1)]
    return StripePlan(version, (*stripes, EdgeStripe(9, 0, "spare", RATE, spare=True)), PERIOD)


PLAN = plan_of(1, ("A", "B"), ("C",))
PLAN_2 = plan_of(2, ("A",), ("C", "B"))


def edge_market(folder: Path, changes: dict[str, Any] | None = None, plan: StripePlan = PLAN) -> Market:
    """A market with narrow stripes, whose files are in a folder."""
    (folder / "stripes.toml").write_text(plan_text(plan), encoding="utf-8")
    timing = {"profile": "ci", "token_period": "1s", "release_delay": "2s"}
    own = {"timing": timing, "edge": {"plan": "stripes.toml"}, "security": {"signatures": False}}
    mapping = changed({**own, **(changes or {})})
    reading = market_from_mapping(mapping, str(folder / "market.toml"))
    assert reading.market is not None, [str(fault) for fault in reading.faults]
    return reading.market


def settings_of(market: Market) -> EdgeSettings:
    return edge_settings(market)


def trades_of(symbols: Iterable[str], first_id: int = 1, time: int = NOON) -> EventArray:
    names = list(symbols)
    events = np.zeros(len(names), EVENT_DTYPE)
    events["kind"], events["floor"], events["symbol"] = EventKind.TRADE, b"XNYS", names
    events["id"] = np.arange(first_id, first_id + len(names))
    events["price"], events["quantity"], events["time"] = 10_000 + events["id"], 100, time
    return events


def block(token: int, sequence: int, events: EventArray, instant: int, *, fetched: bool = False) -> ReleasedBlock:
    """A token of one message, all of it."""
    return ReleasedBlock(
        epoch=Epoch(1, 65_537),
        token_number=token,
        token_count=1,
        place=0,
        first_sequence=sequence,
        instant=instant,
        due=instant,
        released_at=instant,
        clock_bound_ns=0,
        shuffle_key=bytes(16),
        messages=[(1 << 32, sequence, bytes(32), events.tobytes())],
        fetched=fetched,
    )


def write_journal(directory: Path, blocks: Iterable[ReleasedBlock]) -> None:
    with Journal.open(directory / "journal", 0, 1) as journal:
        for one in blocks:
            journal.append(one)


def numbers_of(packets: Iterable[StripePacket]) -> dict[bytes, list[int]]:
    """By session, the numbers in the order in which they were made."""
    found: dict[bytes, list[int]] = {}
    for packet in packets:
        found.setdefault(packet.session, []).extend(range(packet.number, packet.number + packet.count))
    return found
