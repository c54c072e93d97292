"""A synthetic day of many floors, by one seed: blocks of events in the order of time.

Every floor announces its symbols half an hour before it opens, opens with an auction, trades and quotes in bursts
until it closes with another, corrects and cancels some of its trades, and halts a few symbols for minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from isocast.feeds.outcomes import Listing
from isocast.feeds.synthetic_arrivals import Arrivals
from isocast.feeds.synthetic_prices import STEP_TICKS, Prices
from isocast.feeds.synthetic_world import HOUR_NS, Integers, SyntheticPlan, World, build_world, draws
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Side
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["SyntheticDay"]

_BLOCK_EVENTS = 100_000
_SLICE_MAX = 1_440
_SLICE_LEAST = 24
_QUOTE_AFTER_NS = 250_000_000
_LATE_NS = 20_000_000_000
_LATE_MAX_NS = HOUR_NS // 3
"""Corrections come before the floor's last mark, half an hour after its close."""
_HALT_NS = 300_000_000_000
_SYMBOLS_PER_HALT = 400
_ROUND_LOT = 100
_BEFORE_NS = HOUR_NS // 2


class SyntheticDay:
    """One day of a plan. `blocks` may be asked for again and again, and is the same each time."""

    def __init__(self, plan: SyntheticPlan) -> None:
        """Build the world; the day itself is made while it is read."""
        self.plan = plan
        self.world: World = build_world(plan)

    @property
    def directory(self) -> list[Listing]:
        """Every symbol on every floor where it trades."""
        return self.world.listings()

    def blocks(self) -> Iterator[EventArray]:
        """The whole day."""
        run = _Run(self.world)
        events = self.plan.trades * (1 + 2 * self.plan.quotes_per_trade)
        slices = int(np.clip(events / _BLOCK_EVENTS, _SLICE_LEAST, _SLICE_MAX))
        edges = np.linspace(self.world.midnight - HOUR_NS, self.world.midnight + 24 * HOUR_NS, slices + 1)
        for start, end in zip(edges[:-1].astype(np.int64), edges[1:].astype(np.int64), strict=True):
            block = run.slice(int(start), int(end))
            if len(block):
                yield block


class _Run:
    """The state of a day that is being made."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._arrivals = Arrivals(world)
        self._prices = Prices(world)
        self._random = draws(world.plan.seed, "events")
        self._next_id = np.ones(len(world.floor_names), np.int64)
        self._halted = _halts(world)
        self._later = _by_time(np.concatenate([_announcements(world), _halt_events(world, self._halted)]))
        """Events that are made already and whose time has not come."""
        self._quote_time: Integers = np.empty(0, np.int64)
        self._quote_symbol: Integers = np.empty(0, np.int64)

    def slice(self, start: int, end: int) -> EventArray:
        """All events from `start` to before `end`."""
        self._prices.advance(start, end)
        times, symbols = self._without_halted(*self._arrivals.until(start, end))
        trades = self._trades(times, symbols)
        auctions = self._auctions(start, end)
        quotes = self._quotes(times, symbols, end)
        due = int(np.searchsorted(self._later["time"], end))
        ready, self._later = self._later[:due], self._later[due:]
        rows = _by_time(np.concatenate([ready, auctions, trades, quotes]))
        self._number(rows)
        late = self._corrections(rows)
        now = late["time"] < end
        self._later = _by_time(np.concatenate([self._later, late[~now]]))
        if now.any():
            rows = _by_time(np.concatenate([rows, late[now]]))
        return _both_sides(rows, self._world)

    def _without_halted(self, times: Integers, symbols: Integers) -> tuple[Integers, Integers]:
        begins = self._halted[symbols]
        free = (begins == 0) | (times < begins) | (times >= begins + _HALT_NS)
        return times[free], symbols[free]

    def _place(self, rows: EventArray, times: Integers, symbols: Integers) -> None:
        """Time, symbol and the floor that chance chooses."""
        world = self._world
        chance = self._random.random(len(symbols))
        chosen = (chance[:, None] > world.venue_chance[symbols]).sum(axis=1)
        floors = world.venues[symbols, np.minimum(chosen, world.venues.shape[1] - 1)]
        rows["time"] = times
        rows["symbol"] = world.symbol_names[symbols]
        rows["floor"] = world.floor_names[floors]
        # Places travel in fields that are filled later.
        rows["id"] = floors
        rows["reference"] = symbols

    def _trades(self, times: Integers, symbols: Integers) -> EventArray:
        rows = np.zeros(len(times), EVENT_DTYPE)
        self._place(rows, times, symbols)
        bought = self._random.random(len(times)) < 0.5  # noqa: PLR2004 - a fair coin
        middle, spread = self._prices.middle(times, symbols), self._world.spread[symbols]
        rows["kind"] = EventKind.TRADE
        rows["side"] = np.where(bought, int(Side.BUY), int(Side.SELL))
        rows["price"] = _on_grid(middle + np.where(bought, spread, -spread) // 2)
        lots = self._random.geometric(0.35, len(times)) * _ROUND_LOT
        odd = self._random.integers(1, _ROUND_LOT, len(times))
        rows["quantity"] = np.where(self._random.random(len(times)) < 0.3, odd, lots)  # noqa: PLR2004 - odd lots
        return rows

    def _auctions(self, start: int, end: int) -> EventArray:
        """Openings and closes of the regions that have them in this slice, at each symbol's home."""
        made = [np.zeros(0, EVENT_DTYPE)]
        for region, session in enumerate(self._world.sessions):
            mine = np.flatnonzero(self._world.symbol_region == region)
            for moment, letter in ((session.opens, "O"), (session.closes, "C")):
                if start <= moment < end:
                    rows = np.zeros(len(mine), EVENT_DTYPE)
                    times = np.full(len(mine), moment)
                    rows["time"] = times
                    rows["symbol"] = self._world.symbol_names[mine]
                    rows["id"] = self._world.venues[mine, 0]
                    rows["floor"] = self._world.floor_names[self._world.venues[mine, 0]]
                    rows["kind"] = EventKind.TRADE
                    rows["flags"] = EventFlag.AUCTION
                    rows["reference"] = ord(letter)
                    rows["price"] = self._prices.middle(times, mine)
                    rows["quantity"] = self._random.geometric(0.02, len(mine)) * _ROUND_LOT
                    made.append(rows)
        return np.concatenate(made)

    def _quotes(self, times: Integers, symbols: Integers, end: int) -> EventArray:
        """Trades move quotes: some follow each, soon after; one row stands for both sides until the end."""
        about = np.repeat(np.arange(len(times)), self._random.poisson(self._world.plan.quotes_per_trade, len(times)))
        after = self._random.exponential(_QUOTE_AFTER_NS, len(about)).astype(np.int64)
        quote_time = np.concatenate([self._quote_time, times[about] + after])
        quote_symbol = np.concatenate([self._quote_symbol, symbols[about]])
        now = quote_time < end
        self._quote_time, self._quote_symbol = quote_time[~now], quote_symbol[~now]
        quote_time, quote_symbol = self._without_halted(quote_time[now], quote_symbol[now])
        rows = np.zeros(len(quote_time), EVENT_DTYPE)
        self._place(rows, quote_time, quote_symbol)
        rows["kind"] = EventKind.QUOTE
        rows["price"] = self._prices.middle(quote_time, quote_symbol)
        rows["quantity"] = self._random.geometric(0.2, len(rows)) * _ROUND_LOT
        return rows

    def _number(self, rows: EventArray) -> None:
        """Trades of each floor are numbered from 1 on, in their order."""
        at = np.flatnonzero(rows["kind"] == EventKind.TRADE)
        floors = rows["id"][at].astype(np.int64)
        order = np.argsort(floors, kind="stable")
        counts = np.bincount(floors, minlength=len(self._next_id))
        begins = np.cumsum(counts) - counts
        numbers = np.empty(len(at), np.int64)
        numbers[order] = np.arange(len(at)) - begins[floors[order]] + self._next_id[floors[order]]
        rows["id"][at] = numbers
        continuous = at[(rows["flags"][at] & int(EventFlag.AUCTION)) == 0]
        rows["reference"][continuous] = 0
        self._next_id += counts

    def _corrections(self, rows: EventArray) -> EventArray:
        """Some trades turn out wrong, and some never to have been."""
        share = self._world.plan.correction_share
        trades = np.flatnonzero(rows["kind"] == EventKind.TRADE)
        chance = self._random.random(len(trades))
        wrong, broken = rows[trades[chance < share]], rows[trades[(chance >= share) & (chance < 2 * share)]]
        wrong["kind"], broken["kind"] = EventKind.CORRECTION, EventKind.TRADE_CANCEL
        wrong["price"] += STEP_TICKS
        for field in ("price", "quantity", "side", "flags", "reference"):
            broken[field] = 0
        for field in ("flags", "reference", "side"):
            wrong[field] = 0
        late = np.concatenate([wrong, broken])
        after = np.minimum(self._random.exponential(_LATE_NS, len(late)), _LATE_MAX_NS)
        late["time"] += after.astype(np.uint64) + np.uint64(1)
        return late


def _by_time(rows: EventArray) -> EventArray:
    return rows[np.argsort(rows["time"], kind="stable")]


def _on_grid(price: Integers) -> Integers:
    return np.maximum(price // STEP_TICKS, 1) * STEP_TICKS


def _both_sides(rows: EventArray, world: World) -> EventArray:
    """Each quote becomes a bid and, linked to it, an offer."""
    quote = rows["kind"] == EventKind.QUOTE
    each = np.where(quote, 2, 1)
    events = np.repeat(rows, each)
    first = (np.cumsum(each) - each)[quote]
    half = world.spread[rows["reference"][quote].astype(np.int64)] // 2
    for place, side, sign in ((first, Side.BUY, -1), (first + 1, Side.SELL, 1)):
        events["side"][place] = side
        events["price"][place] = _on_grid(events["price"][place] + sign * half)
        events["id"][place] = 0
        events["reference"][place] = 0
    equal = events["price"][first + 1] <= events["price"][first]
    events["price"][first + 1] += np.where(equal, STEP_TICKS, 0)
    events["flags"][first] = EventFlag.LINKED
    return events


def _halts(world: World) -> Integers:
    """When each symbol is halted, or 0."""
    random = draws(world.plan.seed, "halts")
    symbols = world.plan.symbols
    begins = np.zeros(symbols, np.int64)
    chosen = random.choice(symbols, -(-symbols // _SYMBOLS_PER_HALT), replace=False)
    for symbol in chosen.tolist():
        session = world.sessions[int(world.symbol_region[symbol])]
        begins[symbol] = session.opens + int(random.uniform(0.2, 0.8) * (session.closes - session.opens))
    return begins


def _halt_events(world: World, halted: Integers) -> EventArray:
    made = [np.zeros(0, EVENT_DTYPE)]
    for symbol in np.flatnonzero(halted).tolist():
        floors = np.unique(world.venues[symbol])
        for moment, status in (
            (halted[symbol], MarketStatus.HALTED),
            (halted[symbol] + _HALT_NS, MarketStatus.TRADING),
        ):
            rows = np.zeros(len(floors), EVENT_DTYPE)
            rows["kind"], rows["time"], rows["reference"] = EventKind.STATUS, moment, int(status)
            rows["symbol"], rows["floor"] = world.symbol_names[symbol], world.floor_names[floors]
            made.append(rows)
    return np.concatenate(made)


def _announcements(world: World) -> EventArray:
    """Directories and marks of every floor, and when its symbols trade."""
    symbols, places = np.nonzero(_first_places(world.venues))
    floors = world.venues[symbols, places]
    sessions = world.sessions
    opens = np.array([session.opens for session in sessions])[world.symbol_region[symbols]]
    closes = np.array([session.closes for session in sessions])[world.symbol_region[symbols]]
    made = []
    for kind, moment, status in (
        (EventKind.DIRECTORY, opens - _BEFORE_NS + 1, 0),
        (EventKind.STATUS, opens, MarketStatus.TRADING),
        (EventKind.STATUS, closes + 1, MarketStatus.CLOSED),
    ):
        rows = np.zeros(len(symbols), EVENT_DTYPE)
        rows["kind"], rows["time"], rows["reference"] = kind, moment, int(status)
        rows["symbol"], rows["floor"] = world.symbol_names[symbols], world.floor_names[floors]
        if kind == EventKind.DIRECTORY:
            rows["price"], rows["quantity"], rows["id"] = STEP_TICKS, _ROUND_LOT, symbols + 1
        made.append(rows)
    floor_opens = np.array([session.opens for session in sessions])[world.floor_region]
    floor_closes = np.array([session.closes for session in sessions])[world.floor_region]
    for letter, moment in (
        ("O", floor_opens - _BEFORE_NS),
        ("Q", floor_opens),
        ("M", floor_closes + 2),
        ("C", floor_closes + _BEFORE_NS),
    ):
        rows = np.zeros(len(world.floor_names), EVENT_DTYPE)
        rows["kind"], rows["time"], rows["reference"] = EventKind.MARK, moment, ord(letter)
        rows["floor"] = world.floor_names
        made.append(rows)
    return np.concatenate(made)


def _first_places(venues: Integers) -> npt.NDArray[np.bool_]:
    """Where a floor stands in a row for the first time: few floors repeat within a wide row."""
    first = np.ones(venues.shape, np.bool_)
    for place in range(1, venues.shape[1]):
        first[:, place] = ~(venues[:, :place] == venues[:, place : place + 1]).any(axis=1)
    return first
