"""A synthetic day of many floors, by one seed: blocks of events in the order of time.

Every floor announces its symbols half an hour before it opens, opens with an auction, trades and quotes in bursts
until it closes with another, corrects and cancels some of its trades, and halts a few symbols for minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from isocast.feeds.days import midnight_ns
from isocast.feeds.outcomes import ListedSymbol
from isocast.terms.errors import ConfigurationError
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Side
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = [
    "HOUR_NS",
    "STEP_TICKS",
    "Prices",
    "SyntheticDay",
    "SyntheticPlan",
    "SyntheticWorld",
    "TradeArrivals",
    "TradingHours",
    "build_world",
    "day_shape",
    "draws",
]


# The world of a synthetic day: floors with their hours, symbols in sectors, and who trades what where.


HOUR_NS = 3_600_000_000_000

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

FLOORS_MAX = 1_000
SYMBOLS_MAX = 60_000
_SECTORS = 11
_KNOWN_FLOORS = (
    ("XTKS", "XHKG", "XSHG", "XSES", "XKRX", "XTAI", "XASX", "XNSE", "XBOM", "XBKK", "XJPX", "XNZE"),
    ("XLON", "XPAR", "XAMS", "XFRA", "XSWX", "XMAD", "XMIL", "XSTO", "XCSE", "XHEL", "XOSL", "XWAR"),
    ("XNYS", "XNAS", "ARCX", "BATS", "EDGX", "XTSE", "IEXG", "MEMX", "XBOS", "BVMF", "XMEX", "XCHI"),
)
"""Some of each region; what is wanted beyond them gets a letter and a number."""
_SHORT = "AEX"
_HOURS = ((0.0, 6.0), (8.0, 16.5), (14.5, 21.0))
"""Asia, Europe, America: hours of trading in UTC, the same for all floors of a region."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class SyntheticPlan:
    """What a day shall be like. The same plan gives the same day."""

    seed: int = 1
    floors: int = 12
    symbols: int = 500
    trades: int = 100_000
    """About so many, over the whole day."""
    quotes_per_trade: float = 2.0
    day: date = field(default_factory=lambda: date(2026, 3, 2))
    listings: int = 4
    """Floors on which a symbol trades, at most."""
    branching: float = 0.6
    """Of Hawkes: how many further trades each one sets off, in the mean."""
    correction_share: float = 0.001
    """Of the trades, corrected later; as many are cancelled."""

    def __post_init__(self) -> None:
        """Say which value makes no day."""
        for key, value, least, most in (
            ("seed", self.seed, 0, 2**63 - 1),
            ("floors", self.floors, 1, FLOORS_MAX),
            ("symbols", self.symbols, 1, SYMBOLS_MAX),
            ("trades", self.trades, 0, 10**10),
            ("quotes_per_trade", self.quotes_per_trade, 0, 1000),
            ("listings", self.listings, 1, FLOORS_MAX),
            ("branching", self.branching, 0, 0.95),
            ("correction_share", self.correction_share, 0, 0.5),
        ):
            if not least <= value <= most:
                raise ConfigurationError("synthetic day", key, f"{value} is not from {least:,} to {most:,}")


def draws(seed: int, *names: object) -> np.random.Generator:
    """A stream that depends on the seed and the names alone, so that a change of one leaves the others."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return np.random.Generator(np.random.PCG64(int.from_bytes(blake2b(text.encode(), digest_size=16).digest())))


@dataclass(frozen=True, slots=True)
class TradingHours:
    """The hours of one region, in nanoseconds since 1970."""

    opens: int
    closes: int


@dataclass(frozen=True, slots=True)
class SyntheticWorld:
    """Everything that stays the same all day. Symbols and floors are known by their places here."""

    plan: SyntheticPlan
    midnight: int
    sessions: tuple[TradingHours, ...]
    floor_names: npt.NDArray[np.bytes_]
    floor_region: Integers
    symbol_names: npt.NDArray[np.bytes_]
    symbol_region: Integers
    symbol_sector: Integers
    """Sectors of different regions are different sectors."""
    activity: Reals
    """Each symbol's share of its region's trades."""
    venues: Integers
    """The floors of each symbol, its home first; a row for each symbol."""
    venue_chance: Reals
    """Cumulative: where the next trade of a symbol happens."""
    first_price: Reals
    spread: Integers
    """Ticks between bid and offer."""

    @property
    def sectors(self) -> int:
        """How many there are, of all regions."""
        return len(self.sessions) * _SECTORS

    def listings(self) -> list[ListedSymbol]:
        """Every symbol on every floor where it trades."""
        found = []
        for symbol, floors in enumerate(self.venues):
            name = self.symbol_names[symbol].decode("ascii")
            for floor in np.unique(floors).tolist():
                sector = f"sector {int(self.symbol_sector[symbol])}"
                found.append(ListedSymbol(self.floor_names[floor].decode("ascii"), name, symbol + 1, 100, sector))
        return found


def build_world(plan: SyntheticPlan) -> SyntheticWorld:
    """Floors, symbols and listings of a plan."""
    random = draws(plan.seed, "world")
    regions = min(len(_HOURS), plan.floors)
    chosen = range(len(_HOURS) - regions, len(_HOURS))
    midnight = midnight_ns(plan.day, "UTC")
    sessions = tuple(
        TradingHours(midnight + int(_HOURS[region][0] * HOUR_NS), midnight + int(_HOURS[region][1] * HOUR_NS))
        for region in chosen
    )
    floor_region = np.arange(plan.floors) % regions
    floor_names = [_floor_name(chosen[place % regions], place // regions) for place in range(plan.floors)]
    symbol_region = np.arange(plan.symbols) % regions
    rank = random.permutation(plan.symbols) + 1
    activity = rank**-0.9 * random.lognormal(0, 0.3, plan.symbols)
    for region in range(regions):
        mine = symbol_region == region
        activity[mine] /= activity[mine].sum() if mine.any() else 1.0
    venues, chance = _venues(plan, random, floor_region, symbol_region)
    price = np.clip(random.lognormal(3.9, 0.8, plan.symbols), 2.0, 5_000.0)
    return SyntheticWorld(
        plan=plan,
        midnight=midnight,
        sessions=sessions,
        floor_names=np.array(floor_names, "S4"),
        floor_region=floor_region,
        symbol_names=np.array([_symbol_name(place) for place in range(plan.symbols)], "S8"),
        symbol_region=symbol_region,
        symbol_sector=symbol_region * _SECTORS + random.integers(0, _SECTORS, plan.symbols),
        activity=activity,
        venues=venues,
        venue_chance=chance,
        first_price=price,
        spread=random.choice([100, 200, 300, 500], plan.symbols, p=[0.5, 0.25, 0.15, 0.1]),
    )


def _floor_name(region: int, place: int) -> str:
    known = _KNOWN_FLOORS[region]
    return known[place] if place < len(known) else f"{_SHORT[region]}{place:03d}"


def _symbol_name(place: int) -> str:
    """Letters, at least three: AAA, AAB and so on."""
    name = ""
    number = place
    for _ in range(3):
        name = _LETTERS[number % 26] + name
        number //= 26
    while number:
        number -= 1
        name = _LETTERS[number % 26] + name
        number //= 26
    return name


def _venues(
    plan: SyntheticPlan, random: np.random.Generator, floor_region: Integers, symbol_region: Integers
) -> tuple[Integers, Reals]:
    """Half of the trades happen at home, the rest on the other floors of the region that list the symbol."""
    width = plan.listings
    venues = np.zeros((plan.symbols, width), np.int64)
    for region in range(int(floor_region.max()) + 1):
        floors = np.flatnonzero(floor_region == region)
        mine = np.flatnonzero(symbol_region == region)
        if len(mine):
            start = random.integers(0, len(floors), len(mine))
            venues[mine] = floors[(start[:, None] + np.arange(width) % len(floors)) % len(floors)]
    weights = np.full(width, 0.5 / max(width - 1, 1))
    weights[0] = 0.5 if width > 1 else 1.0
    return venues, np.tile(np.cumsum(weights) / weights.sum(), (plan.symbols, 1))


# When things happen on a synthetic day: a Hawkes process over a U-shaped day, as the clusters that it is made
# of.
#
# Trades that nothing set off arrive as a Poisson process, dense at the opening and the close. Some of them are news of
# a whole sector and touch many of its symbols within a second. Every trade sets off further ones of its symbol,
# `branching` in the mean, soon after; those set off others, generation by generation. What falls behind the slice of
# time that is being made waits for its own slice.


_GRID = 2_048
_OPENING, _CLOSING = 6.0, 7.0
"""How many times denser than at noon the first and the last minutes are."""
_OPENING_PART, _CLOSING_PART = 0.04, 0.035
_NEWS_SHARE = 0.08
_NEWS_SYMBOLS = 6.0
_NEWS_NS = 400_000_000
_FAST_NS, _SLOW_NS = 30_000_000, 4_000_000_000
_FAST_SHARE = 0.65


def day_shape(part: Reals) -> Reals:
    """Intensity at a part of the session, 0 to 1: high at both ends, lowest after the middle."""
    opening = _OPENING * np.exp(-part / _OPENING_PART)
    closing = _CLOSING * np.exp(-(1 - part) / _CLOSING_PART)
    return 1.0 + 1.2 * (2 * part - 1.1) ** 2 + opening + closing


class TradeArrivals:
    """Times and symbols of the trades of one day, slice by slice."""

    def __init__(self, world: SyntheticWorld) -> None:
        """Nothing has happened."""
        self._world = world
        self._random = draws(world.plan.seed, "arrivals")
        self._waiting_time: Integers = np.empty(0, np.int64)
        self._waiting_symbol: Integers = np.empty(0, np.int64)
        part = np.linspace(0.0, 1.0, _GRID)
        shape = day_shape(part)
        steps = (shape[1:] + shape[:-1]) / 2
        self._part = part
        self._cumulative = np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
        self._regions = [np.flatnonzero(world.symbol_region == region) for region in range(len(world.sessions))]
        self._choices = [np.cumsum(world.activity[mine]) for mine in self._regions]
        self._sector_members = [np.flatnonzero(world.symbol_sector == sector) for sector in range(world.sectors)]
        plan = world.plan
        seeds = plan.trades * (1 - plan.branching) / (1 - _NEWS_SHARE + _NEWS_SHARE * (1 + _NEWS_SYMBOLS))
        self._seeds_of_region = seeds * np.array([len(mine) for mine in self._regions]) / plan.symbols

    def until(self, start: int, end: int) -> tuple[Integers, Integers]:
        """Times and symbols of all trades from `start` to before `end`, unsorted."""
        due = self._waiting_time < end
        times, symbols = [self._waiting_time[due]], [self._waiting_symbol[due]]
        self._waiting_time, self._waiting_symbol = self._waiting_time[~due], self._waiting_symbol[~due]
        for region in range(len(self._regions)):
            for found_times, found_symbols in self._seeds(region, start, end):
                now_times, now_symbols = self._keep(found_times, found_symbols, end)
                times.append(now_times)
                symbols.append(now_symbols)
        frontier = np.concatenate(times), np.concatenate(symbols)
        all_times, all_symbols = [frontier[0]], [frontier[1]]
        while len(frontier[0]):
            frontier = self._keep(*self._children(*frontier), end)
            all_times.append(frontier[0])
            all_symbols.append(frontier[1])
        return self._in_hours(np.concatenate(all_times), np.concatenate(all_symbols))

    def _keep(self, times: Integers, symbols: Integers, end: int) -> tuple[Integers, Integers]:
        """What is of this slice; the rest waits."""
        later = times >= end
        self._waiting_time = np.concatenate([self._waiting_time, times[later]])
        self._waiting_symbol = np.concatenate([self._waiting_symbol, symbols[later]])
        return times[~later], symbols[~later]

    def _seeds(self, region: int, start: int, end: int) -> list[tuple[Integers, Integers]]:
        """Trades that nothing set off, and those of sector news."""
        session = self._world.sessions[region]
        length = session.closes - session.opens
        parts = np.clip([(start - session.opens) / length, (end - session.opens) / length], 0.0, 1.0)
        low, high = np.interp(parts, self._part, self._cumulative)
        if high <= low or not len(self._regions[region]):
            return []
        random = self._random
        count = int(random.poisson(self._seeds_of_region[region] * (high - low)))
        part = np.interp(random.uniform(low, high, count), self._cumulative, self._part)
        times = (session.opens + part * length).astype(np.int64)
        symbols = self._regions[region][
            np.minimum(np.searchsorted(self._choices[region], random.random(count)), len(self._regions[region]) - 1)
        ]
        news = np.flatnonzero(random.random(count) < _NEWS_SHARE)
        touched = random.poisson(_NEWS_SYMBOLS, len(news))
        about = np.repeat(news, touched)
        after = random.exponential(_NEWS_NS, len(about)).astype(np.int64)
        return [(times, symbols), (times[about] + after, self._neighbours(symbols[about]))]

    def _neighbours(self, symbols: Integers) -> Integers:
        """Other symbols of the same sectors."""
        chosen = symbols.copy()
        chance = self._random.random(len(symbols))
        sectors = self._world.symbol_sector[symbols]
        for sector in np.unique(sectors).tolist():
            members = self._sector_members[sector]
            here = sectors == sector
            chosen[here] = members[(chance[here] * len(members)).astype(np.int64)]
        return chosen

    def _children(self, times: Integers, symbols: Integers) -> tuple[Integers, Integers]:
        """The next generation."""
        random = self._random
        about = np.repeat(np.arange(len(times)), random.poisson(self._world.plan.branching, len(times)))
        scale = np.where(random.random(len(about)) < _FAST_SHARE, _FAST_NS, _SLOW_NS)
        after = (random.exponential(1.0, len(about)) * scale).astype(np.int64) + 1
        return times[about] + after, symbols[about]

    def _in_hours(self, times: Integers, symbols: Integers) -> tuple[Integers, Integers]:
        """Nothing trades after its floor has closed."""
        closes = np.array([session.closes for session in self._world.sessions])
        inside = times < closes[self._world.symbol_region[symbols]]
        return times[inside], symbols[inside]


# Prices of a synthetic day: each follows its region, its sector and itself, so that sectors move together.


STEP_TICKS = 100
_GRID_NS = 5_000_000_000
_DAY_NS = 86_400_000_000_000
_REGION, _SECTOR, _OWN = 0.009, 0.012, 0.010
"""Standard deviations of a day's logarithmic return, by cause."""


class Prices:
    """Middles between bid and offer at any time, asked for slice by slice in order."""

    def __init__(self, world: SyntheticWorld) -> None:
        """Every symbol at its first price."""
        self._world = world
        self._random = draws(world.plan.seed, "prices")
        steps = _DAY_NS // _GRID_NS + 1
        scale = np.sqrt(_GRID_NS / _DAY_NS)
        shared = draws(world.plan.seed, "factors")
        regions = np.cumsum(shared.normal(0, _REGION * scale, (len(world.sessions), steps)), axis=1)
        sectors = np.cumsum(shared.normal(0, _SECTOR * scale, (world.sectors, steps)), axis=1)
        self._factors = sectors + np.repeat(regions, world.sectors // len(world.sessions), axis=0)
        self._log_first = np.log(world.first_price)
        self._own: Reals = np.zeros(world.plan.symbols)
        self._own_before: Reals = self._own
        self._start, self._end = world.midnight, world.midnight

    def advance(self, start: int, end: int) -> None:
        """The next slice of time."""
        self._start, self._end = start, end
        self._own_before = self._own
        scale = _OWN * np.sqrt((end - start) / _DAY_NS)
        self._own = self._own + self._random.normal(0, scale, len(self._own))

    def middle(self, times: Integers, symbols: Integers) -> Integers:
        """In ticks, a multiple of the smallest step."""
        since = np.clip((times - self._world.midnight) / _GRID_NS, 0, self._factors.shape[1] - 1.001)
        grid = since.astype(np.int64)
        part = since - grid
        sector = self._world.symbol_sector[symbols]
        shared = self._factors[sector, grid] * (1 - part) + self._factors[sector, grid + 1] * part
        here = (times - self._start) / max(self._end - self._start, 1)
        own = self._own_before[symbols] * (1 - here) + self._own[symbols] * here
        price = np.exp(self._log_first[symbols] + shared + own) * 10_000
        return np.maximum(np.rint(price / STEP_TICKS).astype(np.int64), 2) * STEP_TICKS


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
        self.world: SyntheticWorld = build_world(plan)

    @property
    def directory(self) -> list[ListedSymbol]:
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

    def __init__(self, world: SyntheticWorld) -> None:
        self._world = world
        self._arrivals = TradeArrivals(world)
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
        for name in ("price", "quantity", "side", "flags", "reference"):
            broken[name] = 0
        for name in ("flags", "reference", "side"):
            wrong[name] = 0
        late = np.concatenate([wrong, broken])
        after = np.minimum(self._random.exponential(_LATE_NS, len(late)), _LATE_MAX_NS)
        late["time"] += after.astype(np.uint64) + np.uint64(1)
        return late


def _by_time(rows: EventArray) -> EventArray:
    return rows[np.argsort(rows["time"], kind="stable")]


def _on_grid(price: Integers) -> Integers:
    return np.maximum(price // STEP_TICKS, 1) * STEP_TICKS


def _both_sides(rows: EventArray, world: SyntheticWorld) -> EventArray:
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


def _halts(world: SyntheticWorld) -> Integers:
    """When each symbol is halted, or 0."""
    random = draws(world.plan.seed, "halts")
    symbols = world.plan.symbols
    begins = np.zeros(symbols, np.int64)
    chosen = random.choice(symbols, -(-symbols // _SYMBOLS_PER_HALT), replace=False)
    for symbol in chosen.tolist():
        session = world.sessions[int(world.symbol_region[symbol])]
        begins[symbol] = session.opens + int(random.uniform(0.2, 0.8) * (session.closes - session.opens))
    return begins


def _halt_events(world: SyntheticWorld, halted: Integers) -> EventArray:
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


def _announcements(world: SyntheticWorld) -> EventArray:
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
