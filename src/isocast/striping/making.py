"""A stripe plan from a history of rates: related stocks together, each stripe under its rate at its peak, few stripes.

Within a sector the busiest symbol that is left begins a stripe; those that move with it most join it, as long as no
token period of the history, with head-room, exceeds the rate. Then whole stripes are put together where that fits, so
that there are few, and symbols settle where their kin is (`settling`). A symbol that alone exceeds the rate has a
stripe of its own, which is conflated at its peaks; one that alone needs the head-room shares its stripe with those that
do not make its peak higher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isocast.striping.history import History
from isocast.striping.kinship import Kinship
from isocast.striping.loads import Limits, Load, limits_for
from isocast.striping.plan import NAME_MAX, EdgeStripe, StripePlan
from isocast.striping.rates import MODEM
from isocast.striping.settling import settle
from isocast.striping.sizes import ITCH_SIZES, PacketSizes
from isocast.terms.errors import ConfigurationError

__all__ = ["DrawnStripe", "MadePlan", "MakingSettings", "Move", "draw_stripes", "make_plan", "name_stripes"]

_MISSES = 48
"""Symbols in a row that do not fit before a stripe counts as full."""
_CORES_MAX = 4_096

Integers = npt.NDArray[np.int64]
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
class Move:
    """A symbol that is on another stripe than before; `before` is None for one that no stripe named."""

    symbol: str
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class MadePlan:
    """A plan and what it took."""

    plan: StripePlan
    moves: tuple[Move, ...] = ()
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
    limits: Limits,
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


def _fill(history: History, load: Load, members: Integers, limits: Limits, kinship: Kinship) -> list[DrawnStripe]:
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
                if misses > _MISSES:
                    break
        left = left[stays]
        drawn.append(DrawnStripe(0, chosen))
    return drawn


def _merged(history: History, load: Load, stripes: list[DrawnStripe], limits: Limits) -> list[DrawnStripe]:
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
            if misses > _MISSES:
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
