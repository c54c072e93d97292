"""A stripe plan from a history of rates: related stocks together, each stripe under its rate at its peak, few stripes.

Within a sector the busiest symbol that is left begins a stripe; those that move with it most join it, as long as no
token period of the history, with head-room, exceeds the rate. Then whole stripes are put together where that fits, so
that there are few, and symbols settle where their kin is. A symbol that alone exceeds the rate has a
stripe of its own, which is conflated at its peaks; one that alone needs the head-room shares its stripe with those that
do not make its peak higher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from isocast.striping.history import History
from isocast.striping.loads import Load, StripeLimits, limits_for
from isocast.striping.plan import NAME_MAX, EdgeStripe, StripePlan
from isocast.striping.rates import MODEM
from isocast.striping.sizes import ITCH_SIZES, PacketSizes
from isocast.terms.errors import ConfigurationError

__all__ = [
    "DrawnStripe",
    "Kinship",
    "MadePlan",
    "MakingSettings",
    "SymbolMove",
    "adjust_plan",
    "draw_stripes",
    "make_plan",
    "name_stripes",
    "settle",
]


# Which symbols belong together: those of one sector, and those that are busy at the same moments (§4.4).
#
# Activity is compared in frames of the day. What the whole market does, openings and closes, says nothing about kinship
# and is taken off; what is left of two symbols is correlated.


_CELLS = 24_000_000
"""Bounds: 96 MB of activity."""
_FRAMES_MAX, _FRAMES_MIN = 2_048, 32


class Kinship:
    """How alike the activity of symbols is, from -1 to 1."""

    def __init__(self, history: History) -> None:
        """Look at the whole history."""
        count = len(history.names)
        frames = int(np.clip(_CELLS // max(count, 1), _FRAMES_MIN, _FRAMES_MAX))
        owners = np.repeat(np.arange(count), np.diff(history.begins))
        frame = history.slices * frames // history.length
        activity = np.bincount(owners * frames + frame, history.prices, count * frames).reshape(count, frames)
        roots = np.sqrt(activity).astype(np.float32)
        means = roots.mean(axis=1, keepdims=True)
        market = roots.mean(axis=0, keepdims=True)
        # What a symbol would do if it did its share of what everybody does.
        roots -= means * market / max(float(market.mean()), 1e-9)
        norms = np.sqrt(np.einsum("ij,ij->i", roots, roots))
        roots /= np.maximum(norms, 1e-9)[:, None]
        self._activity = roots

    def to(self, symbols: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """How near each of `others` is to the middle of `symbols`."""
        middle = self._activity[symbols].mean(axis=0)
        scores: npt.NDArray[np.float32] = self._activity[others] @ middle
        return scores

    def along(self, symbols: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The same as a correlation, however much the symbols differ among themselves: what many do together counts."""
        middle = self._activity[symbols].mean(axis=0)
        middle /= max(float(np.sqrt(middle @ middle)), 1e-9)
        scores: npt.NDArray[np.float32] = self._activity[others] @ middle
        return scores


# Symbols find their kin: stripes that are full enough exchange symbols until each is where it moves with the
# others.
#
# Filling stripes gives few of them, and the first takes whatever fits. Here nobody joins a stripe that has no room, and
# no stripe is added or emptied: related stocks come together at no cost.


_ROUNDS = 6
_GAIN = 0.01
"""Of a correlation: less is no reason to move."""
_MISSES = 200
"""Symbols in a row that do not fit before a stripe counts as full."""
_SETTLING_CELLS = 20_000_000
"""Bounds: symbols times stripes, 80 MB; larger plans stay as they were filled."""

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


class _Stripe(Protocol):
    symbols: list[int]
    sector: str
    oversized: bool


def settle(
    load: Load, stripes: Sequence[_Stripe], sector_of: Sequence[str], limits: StripeLimits, kinship: Kinship
) -> None:
    """Move symbols of no sector to the stripe with whose middle they move most; a sector binds its own more closely."""
    shared = [stripe for stripe in stripes if not stripe.oversized]
    symbols = np.array(sorted([symbol for stripe in shared for symbol in stripe.symbols]), np.int64)
    if len(shared) < 2 or len(symbols) * len(shared) > _SETTLING_CELLS:  # noqa: PLR2004 (nowhere to go)
        return
    place_of = {symbol: place for place, symbol in enumerate(symbols.tolist())}
    free = np.array([not sector_of[symbol] for symbol in symbols.tolist()])
    if not free.any():
        return
    for _ in range(_ROUNDS):
        at = np.zeros(len(symbols), np.int64)
        for number, stripe in enumerate(shared):
            at[[place_of[symbol] for symbol in stripe.symbols]] = number
        nearness = np.stack([kinship.along(np.array(stripe.symbols), symbols) for stripe in shared], axis=1)
        moved = 0
        for number, stripe in enumerate(shared):
            wanted = _candidates(number, at, nearness, free)
            moved += _take(stripe, shared, load, limits, symbols, wanted, at, number) if len(wanted) else 0
        if not moved:
            break
    for stripe in shared:
        found = {sector_of[symbol] for symbol in stripe.symbols}
        stripe.sector = found.pop() if len(found) == 1 else "mixed"


def _candidates(number: int, at: Integers, nearness: Floats, free: npt.NDArray[np.bool_]) -> Integers:
    """Who would rather be on a stripe, and may: those who gain most first."""
    gain = nearness[:, number] - nearness[np.arange(len(at)), at]
    wanted = np.flatnonzero((gain > _GAIN) & (at != number) & free)
    return wanted[np.argsort(-gain[wanted], kind="stable")]


def _take(
    stripe: _Stripe,
    shared: Sequence[_Stripe],
    load: Load,
    limits: StripeLimits,
    symbols: Integers,
    wanted: Integers,
    at: Integers,
    number: int,
) -> int:
    """Those for whom there is room; how many there were."""
    load.clear()
    for symbol in stripe.symbols:
        load.add(symbol)
    own = limits.raised(int(load.prices.max()))
    moved = misses = 0
    for place in wanted.tolist():
        symbol, before = int(symbols[place]), shared[int(at[place])]
        if len(before.symbols) == 1:
            continue
        if load.add_if_fits(symbol, own):
            before.symbols.remove(symbol)
            stripe.symbols.append(symbol)
            at[place] = number
            moved, misses = moved + 1, 0
        else:
            misses += 1
            if misses > _MISSES:
                break
    return moved


_MISSES_MAX = 48
"""Symbols in a row that do not fit before a stripe counts as full."""
_CORES_MAX = 4_096


Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class MakingSettings:
    """What a plan is made for."""

    rate: int = MODEM
    """Bits a second of a narrow stripe."""
    headroom: float = 0.5
    """How much busier than the history a day may be: 0.5 is half as busy again."""
    patience: int = 4
    """Token periods that announcements may wait."""
    cores: int = 1
    """Core stripes, numbered from 0."""
    sizes: PacketSizes = ITCH_SIZES

    def __post_init__(self) -> None:
        """Say which value makes no plan."""
        if not 0 <= self.headroom <= 100:  # noqa: PLR2004 - a hundred times as busy
            raise ConfigurationError("command line", "--headroom", f"must be from 0 to 100, not {self.headroom:g}")
        if not 1 <= self.cores <= _CORES_MAX:
            raise ConfigurationError("command line", "--core", f"must be from 1 to {_CORES_MAX:,}, not {self.cores}")


@dataclass(frozen=True, slots=True)
class SymbolMove:
    """A symbol that is on another stripe than before; `before` is None for one that no stripe named."""

    symbol: str
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class MadePlan:
    """A plan and what it took."""

    plan: StripePlan
    moves: tuple[SymbolMove, ...] = ()
    """Against the plan before; empty for a plan from nothing."""
    oversized: tuple[str, ...] = ()
    """Symbols that alone exceed the rate: each has a stripe of its own, conflated at its peaks."""


@dataclass(slots=True)
class DrawnStripe:
    """A stripe that is being made: symbols by their places in the history."""

    core: int
    symbols: list[int]
    sector: str = ""
    oversized: bool = False


def make_plan(
    history: History,
    settings: MakingSettings,
    sectors: Mapping[str, str] | None = None,
    tell: Tell = lambda _: None,
) -> MadePlan:
    """A plan from nothing; `sectors` gives the sector of symbols, `tell` hears how many symbols are placed."""
    limits = limits_for(settings.rate, history.token_period_ns, settings.headroom, settings.patience, settings.sizes)
    sector_of = [(sectors or {}).get(name.decode("ascii"), "") for name in history.names.tolist()]
    everybody = np.arange(len(history.names))
    drawn = draw_stripes(history, everybody, sector_of, limits, settings.cores, Kinship(history), tell)
    names = name_stripes(history, drawn, set())
    stripes = [
        EdgeStripe(number, stripe.core, name, settings.rate, _symbols(history, stripe), conflated=stripe.oversized)
        for number, (stripe, name) in enumerate(zip(drawn, names, strict=True), 1)
    ]
    spares = [
        EdgeStripe(len(stripes) + 1 + core, core, f"spare-{core}", settings.rate, spare=True)
        for core in range(settings.cores)
    ]
    oversized = [symbol for stripe in drawn if stripe.oversized for symbol in _symbols(history, stripe)]
    return MadePlan(StripePlan(1, (*stripes, *spares), history.token_period_ns), (), tuple(oversized))


def _symbols(history: History, stripe: DrawnStripe) -> tuple[str, ...]:
    return tuple(name.decode("ascii") for name in history.names[np.array(stripe.symbols, np.int64)].tolist())


def draw_stripes(
    history: History,
    symbols: Integers,
    sector_of: list[str],
    limits: StripeLimits,
    cores: int,
    kinship: Kinship,
    tell: Tell,
) -> list[DrawnStripe]:
    """Stripes for some symbols of a history, in the order of core stripe and sector."""
    drawn: list[DrawnStripe] = []
    load = Load(history)
    if not load.fits(limits):
        rule = "what concerns whole floors alone exceeds it; choose a higher rate"
        raise ConfigurationError("command line", "--rate", rule)
    done = 0
    for core, groups in enumerate(_cores(history, symbols, sector_of, cores, kinship)):
        of_core: list[DrawnStripe] = []
        for sector, members in groups:
            for stripe in _fill(history, load, members, limits, kinship):
                stripe.core, stripe.sector = core, sector
                of_core.append(stripe)
                done += len(stripe.symbols)
                tell(done)
        merged = _merged(history, load, of_core, limits)
        settle(load, merged, sector_of, limits, kinship)
        drawn += merged
    return drawn


def _cores(
    history: History, symbols: Integers, sector_of: list[str], cores: int, kinship: Kinship
) -> list[list[tuple[str, Integers]]]:
    """Sectors to core stripes, so that each has about as much to do; a sector that is too large is divided."""
    names = sorted({sector_of[symbol] for symbol in symbols.tolist()})
    place_of = {name: place for place, name in enumerate(names)}
    sectors = np.array([place_of[sector_of[symbol]] for symbol in symbols.tolist()], np.int64)
    groups = [(name, symbols[sectors == place]) for place, name in enumerate(names)]
    share = int(history.totals[symbols].sum()) / cores
    whole: list[tuple[str, Integers]] = []
    while groups:
        name, members = groups.pop()
        weights = history.totals[members]
        if cores == 1 or weights.sum() <= share or len(members) == 1:
            whole.append((name, members))
            continue
        busiest = members[[int(weights.argmax())]]
        order = np.argsort(-kinship.to(busiest, members), kind="stable")
        half = int(np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)) + 1
        half = min(half, len(members) - 1)
        groups += [(name, members[order[:half]]), (name, members[order[half:]])]
    whole.sort(key=lambda group: (-int(history.totals[group[1]].sum()), group[0], int(group[1][0])))
    placed: list[list[tuple[str, Integers]]] = [[] for _ in range(cores)]
    weight = [0] * cores
    for name, members in whole:
        least = weight.index(min(weight))
        placed[least].append((name, members))
        weight[least] += int(history.totals[members].sum())
    return [sorted(groups, key=lambda group: (group[0], int(group[1][0]))) for groups in placed]


def _fill(history: History, load: Load, members: Integers, limits: StripeLimits, kinship: Kinship) -> list[DrawnStripe]:
    """Stripes of one sector."""
    left = members[np.argsort(-history.totals[members], kind="stable")]
    drawn = []
    while len(left):
        seed, left = int(left[0]), left[1:]
        load.clear()
        peak = load.peak_with(seed)
        if not load.add_if_fits(seed, limits.raised(peak)) or peak > limits.whole:
            drawn.append(DrawnStripe(0, [seed], oversized=True))
            continue
        own = limits.raised(peak)
        chosen = [seed]
        order = np.argsort(-kinship.to(np.array([seed]), left), kind="stable")
        stays = np.ones(len(left), np.bool_)
        misses = 0
        for place in order.tolist():
            if load.add_if_fits(int(left[place]), own):
                chosen.append(int(left[place]))
                stays[place] = False
                misses = 0
            else:
                misses += 1
                if misses > _MISSES_MAX:
                    break
        left = left[stays]
        drawn.append(DrawnStripe(0, chosen))
    return drawn


def _merged(history: History, load: Load, stripes: list[DrawnStripe], limits: StripeLimits) -> list[DrawnStripe]:
    """Whole stripes put together where they fit, so that what is related stays together; those of one sector first."""
    ordered = [stripe for stripe in stripes if not stripe.oversized]
    ordered.sort(key=lambda stripe: -int(history.totals[stripe.symbols].sum()))
    for place, stripe in enumerate(ordered):
        if not stripe.symbols:
            continue
        load.clear()
        for symbol in stripe.symbols:
            load.add(symbol)
        own = limits.raised(int(load.prices.max()))
        misses = 0
        sector = stripe.sector
        others = [other for other in ordered[place + 1 :] if other.symbols]
        for other in sorted(others, key=lambda other: other.sector != sector):
            if load.add_all_if_fit(other.symbols, own):
                stripe.symbols, other.symbols = stripe.symbols + other.symbols, []
                stripe.sector = stripe.sector if stripe.sector == other.sector else "mixed"
                continue
            misses += 1
            if misses > _MISSES_MAX:
                break
    return [stripe for stripe in stripes if stripe.symbols]


def name_stripes(history: History, stripes: list[DrawnStripe], taken: set[str]) -> list[str]:
    """By the sector, or by the busiest symbol where no sector is known; none of those that are taken."""
    names: list[str] = []
    for stripe in stripes:
        lead = history.names[max(stripe.symbols, key=lambda symbol: int(history.totals[symbol]))].decode("ascii")
        base = (_plain(stripe.sector) or f"with-{lead}")[: NAME_MAX - 7]
        number = 1
        name = f"{base}-{number}" if stripe.sector else base
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        names.append(name)
    return names


def _plain(text: str) -> str:
    """A sector as part of a name: small letters and hyphens."""
    words = "".join([letter if letter.isascii() and letter.isalnum() else " " for letter in text.lower()]).split()
    return "-".join(words)


# A plan adjusted to a new history: symbols stay where they are unless a stripe has become too busy (§4.4).


_TRIES = 4
"""Stripes that a symbol without a place is offered to before it gets a new one."""


def adjust_plan(
    before: StripePlan,
    history: History,
    settings: MakingSettings,
    sectors: Mapping[str, str] | None = None,
    tell: Tell = lambda _: None,
) -> MadePlan:
    """The next version of a plan, with few moves.

    A stripe keeps its number, name and rate. It gives symbols away when its peak leaves less than half the head-room,
    and takes new ones while all of the head-room is left. A symbol never leaves its core stripe: its events would lose
    their order.
    """
    return _Adjustment(before, history, settings, sectors or {}).made(tell)


class _Adjustment:
    """One run."""

    def __init__(
        self, before: StripePlan, history: History, settings: MakingSettings, sectors: Mapping[str, str]
    ) -> None:
        self._before, self._history, self._settings, self._sectors = before, history, settings, sectors
        self._names = [name.decode("ascii") for name in history.names.tolist()]
        self._place_of = {name: place for place, name in enumerate(self._names)}
        self._load = Load(history)
        self._kinship = Kinship(history)
        self._symbols: dict[int, set[str]] = {stripe.number: set(stripe.symbols) for stripe in before.stripes}
        self._conflated: set[int] = set()
        self._core_of = {symbol: stripe.core for stripe in before.stripes for symbol in stripe.symbols}

    def made(self, tell: Tell) -> MadePlan:
        before = self._before
        home = {symbol: stripe.number for stripe in before.stripes for symbol in stripe.symbols}
        homeless = [place for name, place in self._place_of.items() if name not in home]
        for stripe in before.stripes:
            if not stripe.spare:
                homeless += self._evict(stripe)
        tell(len(self._names) - len(homeless))
        homeless = self._settle(sorted(homeless))
        new = self._new_stripes(homeless, tell)
        kept = [
            replace(stripe, symbols=tuple(self._symbols[stripe.number]), conflated=stripe.number in self._conflated)
            for stripe in before.stripes
        ]
        plan = StripePlan(before.version + 1, (*kept, *new), self._history.token_period_ns)
        moves = [
            SymbolMove(symbol, home.get(symbol), stripe.number)
            for stripe in plan.stripes
            for symbol in stripe.symbols
            if home.get(symbol) != stripe.number
        ]
        oversized = [symbol for stripe in plan.stripes if stripe.conflated for symbol in stripe.symbols]
        return MadePlan(plan, tuple(sorted(moves, key=lambda move: move.symbol)), tuple(oversized))

    def _limits(self, rate: int, headroom: float) -> StripeLimits:
        settings = self._settings
        return limits_for(rate, self._history.token_period_ns, headroom, settings.patience, settings.sizes)

    def _fill(self, stripe: EdgeStripe) -> list[int]:
        """Load what a stripe carries of the history."""
        self._load.clear()
        names = sorted(self._symbols[stripe.number])
        places = [self._place_of[name] for name in names if name in self._place_of]
        for place in places:
            self._load.add(place)
        return places

    def _evict(self, stripe: EdgeStripe) -> list[int]:
        """Symbols that must leave: at the worst moment the busiest first, so that few move."""
        places = self._fill(stripe)
        limits = self._limits(stripe.rate, self._settings.headroom / 2)
        leaving = []
        while len(places) > 1 and not self._load.fits(self._own_limits(places, limits)):
            window = self._load.worst(limits)
            shares = [self._load.share_in(place, window) for place in places]
            place = places.pop(shares.index(max(shares)))
            self._load.remove(place)
            self._symbols[stripe.number].discard(self._names[place])
            leaving.append(place)
        if len(places) == 1 and not self._load.fits(limits.raised(limits.whole)):
            self._conflated.add(stripe.number)
        return leaving

    def _own_limits(self, places: list[int], limits: StripeLimits) -> StripeLimits:
        """A symbol that alone needs the head-room is no reason to move."""
        window = int(self._load.prices.argmax())
        return limits.raised(max(self._load.share_in(place, window) for place in places))

    def _settle(self, homeless: list[int]) -> list[int]:
        """Offer each symbol to the stripes whose symbols are nearest to it; what nobody can take is returned."""
        stripes = [stripe for stripe in self._before.stripes if not stripe.spare]
        stripes = [stripe for stripe in stripes if stripe.number not in self._conflated]
        if not homeless or not stripes:
            return homeless
        wanted = np.array(homeless)
        scores = np.full((len(stripes), len(homeless)), -1.0, np.float32)
        for row, stripe in enumerate(stripes):
            members = [self._place_of[name] for name in stripe.symbols if name in self._place_of]
            if members:
                scores[row] = self._kinship.to(np.array(members), wanted)
                sectors = {self._sectors.get(name) for name in stripe.symbols}
                # A sector that is shared outweighs any correlation.
                scores[row] += [2.0 * (self._sectors.get(self._names[place], "") in sectors) for place in homeless]
        ranked = np.argsort(-scores, axis=0, kind="stable")[:_TRIES]
        placed: set[int] = set()
        for row, stripe in enumerate(stripes):
            offered = [homeless[column] for column in np.flatnonzero((ranked == row).any(axis=0)).tolist()]
            offered = [place for place in offered if place not in placed]
            # A symbol does not go back to where there was no room for it, nor to another core stripe.
            offered = [place for place in offered if self._names[place] not in stripe.symbols]
            offered = [place for place in offered if self._core_of.get(self._names[place], stripe.core) == stripe.core]
            if offered:
                self._fill(stripe)
                limits = self._limits(stripe.rate, self._settings.headroom)
                for place in offered:
                    if self._load.add_if_fits(place, limits):
                        self._symbols[stripe.number].add(self._names[place])
                        placed.add(place)
        return [place for place in homeless if place not in placed]

    def _new_stripes(self, homeless: list[int], tell: Tell) -> list[EdgeStripe]:
        """Stripes for what found no place; strangers come to the core stripe that has least."""
        before, history, settings = self._before, self._history, self._settings
        sector_of = [self._sectors.get(name, "") for name in self._names]
        limits = self._limits(settings.rate, settings.headroom)
        weights = {core: sum(len(s.symbols) for s in before.of_core(core)) for core in before.cores}
        least = min(weights, key=lambda core: (weights[core], core))
        drawn: list[DrawnStripe] = []
        for core in before.cores:
            own = [place for place in homeless if self._core_of.get(self._names[place], least) == core]
            if own:
                found = draw_stripes(history, np.array(own), sector_of, limits, 1, self._kinship, lambda _: None)
                for stripe in found:
                    stripe.core = core
                drawn += found
        tell(len(self._names))
        names = name_stripes(history, drawn, {stripe.name for stripe in before.stripes})
        first = max(stripe.number for stripe in before.stripes) + 1
        return [
            EdgeStripe(
                number,
                stripe.core,
                name,
                settings.rate,
                tuple(self._names[place] for place in stripe.symbols),
                conflated=stripe.oversized,
            )
            for number, (stripe, name) in enumerate(zip(drawn, names, strict=True), first)
        ]
