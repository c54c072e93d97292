"""The world of a synthetic day: floors with their hours, symbols in sectors, and who trades what where."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from isocast.feeds.days import midnight_ns
from isocast.feeds.outcomes import Listing
from isocast.terms.errors import ConfigurationError

__all__ = ["HOUR_NS", "Session", "SyntheticPlan", "World", "build_world", "draws"]

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
class Session:
    """The hours of one region, in nanoseconds since 1970."""

    opens: int
    closes: int


@dataclass(frozen=True, slots=True)
class World:
    """Everything that stays the same all day. Symbols and floors are known by their places here."""

    plan: SyntheticPlan
    midnight: int
    sessions: tuple[Session, ...]
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

    def listings(self) -> list[Listing]:
        """Every symbol on every floor where it trades."""
        found = []
        for symbol, floors in enumerate(self.venues):
            name = self.symbol_names[symbol].decode("ascii")
            for floor in np.unique(floors).tolist():
                sector = f"sector {int(self.symbol_sector[symbol])}"
                found.append(Listing(self.floor_names[floor].decode("ascii"), name, symbol + 1, 100, sector))
        return found


def build_world(plan: SyntheticPlan) -> World:
    """Floors, symbols and listings of a plan."""
    random = draws(plan.seed, "world")
    regions = min(len(_HOURS), plan.floors)
    chosen = range(len(_HOURS) - regions, len(_HOURS))
    midnight = midnight_ns(plan.day, "UTC")
    sessions = tuple(
        Session(midnight + int(_HOURS[region][0] * HOUR_NS), midnight + int(_HOURS[region][1] * HOUR_NS))
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
    return World(
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
