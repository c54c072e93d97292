"""Synthetic floors: bursts of trades and quotes, a function of the seed, published at the doors of their sources.

Happenings are a Hawkes process: each makes the next more likely for a moment,

    λ(t) = μ + α·Σ exp(-β·(t-t_i)),   α/β = 0.65,

so that two thirds of them follow from others. A happening is a trade with the new best prices of both sides, or these
alone; often it is in the same symbol as the one before. Prices are random walks in whole steps. Everything is drawn
from two streams of the floor's own, so the events of the first so many seconds are the same however they are asked for.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import exp

import numpy as np

from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.model import Market
from isocast.terms.market import TICKS_PER_UNIT, EventFlag, EventKind, Mic, Side, Symbol
from isocast.wire.events import EVENT_DTYPE, EventArray, MarketEvent, build_events

__all__ = ["FLOORS", "Feed", "FloorPlan", "SyntheticFloor"]


_BRANCHING = 0.65
"""α/β: happenings that each one causes, directly."""
_DECAY_PER_S = 5.0
"""β."""
_HAPPENINGS_PER_S = 34.0
"""μ/(1-α/β): what comes of it in the long run; some 80 events a second."""
_BASE_PER_S = _HAPPENINGS_PER_S * (1 - _BRANCHING)
_TRADES = 0.4
"""Share of happenings in which somebody trades."""
_AGAIN = 0.5
"""How often the next happening is in the same symbol."""
_NO_FLAGS = EventFlag(0)
_LOTS = (1, 1, 1, 2, 2, 3, 5, 10, 25)


@dataclass(frozen=True, slots=True)
class FloorPlan:
    """A floor: who publishes for it, and what is traded there."""

    mic: Mic
    source: str
    """The source of the market at whose door it publishes."""
    symbols: tuple[str, ...]
    """The most traded first."""
    price: int
    """About what one of them costs, in units of the currency."""
    step: int
    """Between two prices, in ticks of 10^-4."""
    lot: int


FLOORS = (
    FloorPlan(
        Mic("XNYS"),
        "new-york-floor",
        ("IBM", "KO", "GE", "JPM", "XOM", "DIS", "BA", "WMT", "PFE", "T", "MCD", "CAT", "MMM", "NKE", "V", "HD"),
        price=120,
        step=100,
        lot=100,
    ),
    FloorPlan(
        Mic("XLON"),
        "london-floor",
        ("SHEL", "AZN", "HSBA", "BP.", "GSK", "RIO", "ULVR", "DGE", "BARC", "VOD", "LLOY", "TSCO", "REL", "NG."),
        price=20,
        step=50,
        lot=50,
    ),
    FloorPlan(
        Mic("XTKS"),
        "tokyo-floor",
        ("7203", "6758", "9984", "8306", "6861", "9432", "7974", "4063", "8035", "6098", "4502", "9433"),
        price=2_500,
        step=5_000,
        lot=100,
    ),
    FloorPlan(
        Mic("XFRA"),
        "frankfurt-broker",
        ("SAP", "SIE", "ALV", "DTE", "BAS", "BMW", "MBG", "DBK"),
        price=80,
        step=200,
        lot=20,
    ),
)
"""Three floors with a primary source each, and one that publishes through a secondary source; fifty symbols."""


class SyntheticFloor:
    """One floor's events, drawn as they are asked for."""

    def __init__(self, plan: FloorPlan, seed: int) -> None:
        """Nothing has happened at second 0."""
        self.plan = plan
        self._instants = _hawkes(_stream(seed, plan.mic, "instants"))
        self._next_s = next(self._instants)
        self._draw = _stream(seed, plan.mic, "events")
        count = len(plan.symbols)
        weights = 1 / np.arange(1, count + 1)
        self._weights = weights / weights.sum()
        self._symbols = [Symbol(text) for text in plan.symbols]
        steps = plan.price * TICKS_PER_UNIT // plan.step
        self._bids = [round(steps * factor) for factor in self._draw.uniform(0.5, 1.5, count)]
        self._at = 0
        self._count = 0

    def until(self, seconds: float) -> EventArray:
        """What happens before that second of the floor's time and was not given yet; `time` is left at 0."""
        rows: list[MarketEvent] = []
        while self._next_s < seconds:
            rows += self._happening()
            self._next_s = next(self._instants)
        return build_events(rows) if rows else np.zeros(0, EVENT_DTYPE)

    def _happening(self) -> Sequence[MarketEvent]:
        draw = self._draw
        if draw.random() >= _AGAIN:
            self._at = int(draw.choice(len(self._symbols), p=self._weights))
        rows = []
        if draw.random() < _TRADES:
            side = Side.BUY if draw.random() < 1 / 2 else Side.SELL
            price = self._bids[self._at] + (side is Side.BUY)
            rows.append(self._event(EventKind.TRADE, side, price))
            if draw.random() < 1 / 2:
                move = 1 if side is Side.BUY else -1
                self._bids[self._at] = max(self._bids[self._at] + move, 1)
        bid = self._bids[self._at]
        rows.append(self._event(EventKind.QUOTE, Side.BUY, bid, EventFlag.LINKED))
        rows.append(self._event(EventKind.QUOTE, Side.SELL, bid + 1))
        return rows

    def _event(self, kind: EventKind, side: Side, price: int, flags: EventFlag = _NO_FLAGS) -> MarketEvent:
        """Numbered from 1 on without a gap, so that a reader of journals sees what is missing."""
        self._count += 1
        plan = self.plan
        return MarketEvent(
            kind,
            plan.mic,
            self._symbols[self._at],
            side,
            price * plan.step,
            plan.lot * _LOTS[int(self._draw.integers(len(_LOTS)))],
            id=self._count,
            flags=flags,
        )


def _stream(seed: int, mic: Mic, purpose: str) -> np.random.Generator:
    text = f"{seed}\x1f{mic}\x1f{purpose}"
    return np.random.default_rng(int.from_bytes(blake2b(text.encode(), digest_size=16).digest()))


def _hawkes(draw: np.random.Generator) -> Iterator[float]:
    """The instants of happenings, in seconds, by thinning: draw at the highest rate, keep what the true one allows."""
    now, excited = 0.0, 0.0
    while True:
        highest = _BASE_PER_S + excited
        wait = float(draw.exponential(1 / highest))
        now += wait
        excited *= exp(-_DECAY_PER_S * wait)
        if draw.random() * highest < _BASE_PER_S + excited:
            yield now
            excited += _BRANCHING * _DECAY_PER_S


# A floor that publishes: its events, in small batches, at the door of its source.


_STEP_S = 0.1
"""Between two batches: seven or eight to a token, so that they fall anywhere between two of them."""
_KEY = "demo"
_RATE_STEPS = 50
"""Batches over which the rate is taken: five seconds."""


@dataclass(slots=True)
class Feed:
    """One floor, and what it was promised."""

    plan: FloorPlan
    seed: int
    events: int = 0
    """In the source's outbox, on its disk: numbers 1 to this."""
    messages: int = 0
    _recent: deque[int] = field(default_factory=lambda: deque(maxlen=_RATE_STEPS))

    @property
    def rate(self) -> float:
        """Events a second, lately."""
        return sum(self._recent) / (len(self._recent) * _STEP_S) if self._recent else 0.0

    async def run(self, market: Market, going: asyncio.Event, offset_s: float) -> None:
        """Publish in step with the clock while `going` is set; then have the last answer, and end."""
        floor = SyntheticFloor(self.plan, self.seed)
        async with Publisher(market, self.plan.source) as publisher:
            began = time.monotonic() + offset_s
            step = 0
            while going.is_set():
                step += 1
                await asyncio.sleep(max(began + step * _STEP_S - time.monotonic(), 0))
                batch = floor.until(step * _STEP_S)
                self._recent.append(len(batch))
                if not len(batch) or not going.is_set():
                    continue
                batch["time"] = time.time_ns()
                labels = await publisher.publish(batch, f"{_KEY}/{step}".encode())
                self.events += len(batch)
                self.messages += len(labels)
