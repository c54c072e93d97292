"""Surroundings for a single role in a test: a small market of its own, and whatever the role says of trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.ring.makers import EPOCH, Chain
from tests.runtime.worlds import LAYERED, PATIENCE_S, Nodes, market_file, trades

from isocast.ring.effects import Release
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.file import load_market
from isocast.runtime.market.founding import found_market
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market
from isocast.runtime.net.clock import SystemClock
from isocast.runtime.watch.counters import NodeCounters
from isocast.runtime.watch.logs import get_log
from isocast.terms.ids import Label, source_id
from isocast.terms.instants import MILLISECOND
from isocast.wire.packets import Data

__all__ = ["FLOOR", "Surroundings", "new_market", "release_of", "run", "sealed"]

FLOOR = source_id(1, 77)
"""The market's source in some incarnation."""

ResultT = TypeVar("ResultT")


@dataclass
class Surroundings:
    """What one node is given; `alarms` are its (code, text, remedy)."""

    market: Market
    name: str
    counters: NodeCounters = field(default_factory=NodeCounters)
    alarms: list[tuple[str, str, str]] = field(default_factory=list)

    def context(self) -> Context:
        """To be called in the event loop that the role lives in."""
        plan = self.market.node(self.name)
        return Context(
            self.market,
            plan,
            SystemClock(MILLISECOND, watch_kernel=False),
            load_keys(self.market, plan),
            self.counters,
            asyncio.get_running_loop(),
            lambda *alarm: self.alarms.append(alarm),
            get_log(),
        )

    @property
    def codes(self) -> list[str]:
        return [code for code, _, _ in self.alarms]


def new_market(tmp_path: Path, nodes: Nodes = LAYERED, settings: Mapping[str, Mapping[str, object]] = {}) -> Market:
    """A market that has just been founded."""
    market = load_market(market_file(tmp_path, nodes, settings=settings))
    found_market(market)
    return market


def run(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """In a loop of its own, bounded."""

    async def bounded() -> ResultT:
        return await asyncio.wait_for(work(), 2 * PATIENCE_S)

    return asyncio.run(bounded())


def sealed(market: Market, number: int, payload: bytes | None = None) -> Data:
    """A message of the market's source, sealed by it."""
    floor = market.node("floor")
    sealer = load_keys(market, floor).sealer(floor.number)
    payload = trades(1, first_id=number).tobytes() if payload is None else payload
    return Data(0, EPOCH, FLOOR, number, 1, sealer.seal(0, Label(FLOOR, number), payload))


def release_of(chain: Chain, *messages: Data, due: int = 0) -> Release:
    """The next token with these messages, released whole."""
    entry = chain.add(*messages)
    return Release(EPOCH, entry, entry.token.first_sequence, entry.messages, due)
