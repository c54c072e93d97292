"""What a plan is worth to those who listen, beside a hash of the symbols; and whether it holds on a day.

Both have as many stripes at the same rate, and symbols that are alone above it are alone in both. Compared is what a
line must take: how near the busiest stripe comes to its rate, and how many stripes somebody joins for the symbols of a
sector, for ten that move together, or for any ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from isocast.striping.history import SLICES, WINDOW, History
from isocast.striping.loads import Load, limits_for
from isocast.striping.making import Kinship
from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.routing import symbol_hash
from isocast.striping.sizes import ITCH_SIZES, PacketSizes
from isocast.terms.instants import SECOND

__all__ = [
    "HashComparison",
    "Judgement",
    "PlanWorth",
    "SectorWorth",
    "StripeLoad",
    "compare_with_hash",
    "hash_plan",
    "judge",
]


# Whether a plan holds on a day: the mean and the peak of every stripe against its rate.


@dataclass(frozen=True, slots=True)
class StripeLoad:
    """One stripe on one history. Rates are bits a second with all headers."""

    stripe: EdgeStripe
    symbols: int
    """Of the history, on this stripe."""
    mean: float
    """While the market was awake."""
    peak: float
    """In the busiest token period, wherever it begins; announcements, which may wait, left out."""
    peak_at: int
    """When that was, in nanoseconds since 1970."""
    over: int
    """Token periods, one after the other, that exceeded the rate."""
    wait: float
    """Token periods that the last of what waits would have to wait at the worst moment, announcements included."""
    holds: bool
    """Whether nothing would be conflated."""

    @property
    def headroom(self) -> float:
        """How much busier the busiest moment could be: 0.5 is half as busy again; below 0 it was too busy."""
        return self.stripe.rate / self.peak - 1 if self.peak else float("inf")


@dataclass(frozen=True, slots=True)
class Judgement:
    """All stripes on one history."""

    loads: tuple[StripeLoad, ...]

    @property
    def failing(self) -> tuple[StripeLoad, ...]:
        """Stripes that would be conflated and were not planned to be."""
        return tuple(load for load in self.loads if not load.holds and not load.stripe.conflated)

    @property
    def holds(self) -> bool:
        """Whether the plan keeps its promise."""
        return not self.failing


def judge(plan: StripePlan, history: History, patience: int = 4, sizes: PacketSizes = ITCH_SIZES) -> Judgement:
    """The plan on a history; symbols that it does not name are on the spare stripe of its first core stripe."""
    load = Load(history)
    numbers = plan.stripes_of(history.names)
    owners = np.repeat(numbers, np.diff(history.begins))
    period = history.token_period_ns
    rows = []
    for stripe in plan.stripes:
        limits = limits_for(stripe.rate, period, 0.0, patience, sizes)
        load.clear()
        members = np.flatnonzero(numbers == stripe.number).tolist()
        for symbol in members:
            load.add(symbol)
        peak = int(load.prices.max())
        total = int(history.totals[members].sum()) + int(history.floor_wide.sum())
        over = np.flatnonzero(load.prices > limits.whole)
        wait = _wait(history, np.flatnonzero(owners == stripe.number), limits.whole)
        rows.append(
            StripeLoad(
                stripe,
                len(members),
                sizes.ip_bytes(total) * 8 * SECOND / max(history.active_ns, period),
                # Bytes of messages to IP bytes as the limit counts them: 100 % of the one is 100 % of the other.
                stripe.rate * peak / limits.whole,
                history.time_of(int(load.prices.argmax()) - WINDOW + 1),
                len(np.unique(over // WINDOW)),
                wait,
                wait <= patience,
            )
        )
    return Judgement(tuple(rows))


def _wait(history: History, rows: npt.NDArray[np.intp], whole: int) -> float:
    """Token periods by which a stripe that carries `whole` bytes in each falls behind at worst.

    A queue that is drained evenly; long silences, which are cut short in a history, help it less than they would.
    """
    arrivals = np.bincount(history.slices[rows], history.everything[rows], history.length)
    np.add.at(arrivals, history.floor_wide_slices, history.floor_wide)
    level = np.cumsum(arrivals - whole / SLICES)
    behind = level - np.minimum(np.minimum.accumulate(level), 0.0)
    # What arrives within one period leaves together at its end.
    return max(0.0, float(behind.max()) / whole - 1)


_PORTFOLIO = 10
_PORTFOLIOS_MAX = 200
"""Of each kind: enough for a mean, and little work beside that of planning."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PlanWorth:
    """One of the two plans."""

    stripes: int
    """Without spare ones."""
    too_busy: int
    """Stripes that exceeded their rate in some token period and were not planned to."""
    highest: float
    """Peak of the busiest of them, as a share of its rate."""
    kin_stripes: float
    """How many a listener joins for ten symbols that move together; a mean."""
    kin_on_one: float
    """Of what these ten send, the share that one stripe carries: all that a modem gets."""
    kin_wanted: float
    """Of what their stripes carry, the share that is theirs."""
    any_stripes: float
    any_on_one: float
    any_wanted: float


@dataclass(frozen=True, slots=True)
class SectorWorth:
    """What a plan costs a customer of one sector, beside a hash."""

    sector: str
    symbols: int
    stripes: int
    """To be joined for all of it."""
    wanted: float
    """Of what they carry, the share that is the sector's."""
    hashed_stripes: int
    hashed_wanted: float


@dataclass(frozen=True, slots=True)
class HashComparison:
    """A plan beside a hash, on one history."""

    planned: PlanWorth
    hashed: PlanWorth
    hashed_judgement: Judgement
    hashed_needs: int | None
    """Stripes that a hash needs until none exceeds its rate; None if eight for each symbol are too few.

    The least of those tried: each try has a sixteenth more.
    """
    sectors: tuple[SectorWorth, ...]


def hash_plan(plan: StripePlan) -> StripePlan:
    """The symbols of a plan on as many stripes, as floors route them where there is no plan."""
    shared = [stripe for stripe in plan.stripes if not stripe.spare and not stripe.conflated]
    names = [symbol for stripe in shared for symbol in stripe.symbols]
    parts: list[list[str]] = [[] for _ in shared]
    for name in names:
        parts[symbol_hash(name.encode("ascii")) % len(shared)].append(name)
    divided = {
        stripe.number: replace(stripe, name=f"hash-{place}", symbols=tuple(part))
        for place, (stripe, part) in enumerate(zip(shared, parts, strict=True))
    }
    return replace(plan, stripes=tuple([divided.get(stripe.number, stripe) for stripe in plan.stripes]))


def compare_with_hash(
    plan: StripePlan,
    own: Judgement,
    history: History,
    sectors: Mapping[str, str],
    *,
    patience: int,
) -> HashComparison:
    """Beside a hash on the same history; `own` is how the plan was judged there."""
    other = hash_plan(plan)
    theirs = judge(other, history, patience)
    sector_of = np.array([sectors.get(name.decode("ascii"), "") for name in history.names.tolist()])
    kin, anybody = _kin(history, sector_of), _anybody(history)
    places = [each.stripes_of(history.names).astype(np.int64) for each in (plan, other)]
    worths = [
        _worth(judgement, history, numbers, kin, anybody)
        for judgement, numbers in zip((own, theirs), places, strict=True)
    ]
    return HashComparison(
        worths[0],
        worths[1],
        theirs,
        _needed(plan, history, patience),
        tuple(_sectors(history, sector_of, places[0], places[1])),
    )


def _worth(
    judgement: Judgement, history: History, numbers: Integers, kin: list[Integers], anybody: list[Integers]
) -> PlanWorth:
    loads = [load for load in judgement.loads if not load.stripe.conflated]
    return PlanWorth(
        sum(not load.stripe.spare for load in judgement.loads),
        sum(load.over > 0 for load in loads),
        max([load.peak / load.stripe.rate for load in loads], default=0.0),
        *_joined(history, numbers, kin),
        *_joined(history, numbers, anybody),
    )


def _joined(history: History, numbers: Integers, portfolios: Sequence[Integers]) -> tuple[float, float, float]:
    """Means over portfolios: stripes to join, the share of traffic on the best of them, and what is wanted of all."""
    if not portfolios:
        return 0.0, 0.0, 0.0
    carried_by = np.bincount(numbers, history.totals)
    rows = []
    for members in portfolios:
        joined, which = np.unique(numbers[members], return_inverse=True)
        own = np.bincount(which, history.totals[members])
        rows.append((len(joined), own.max() / max(own.sum(), 1), own.sum() / max(carried_by[joined].sum(), 1)))
    stripes, on_one, wanted = np.mean(rows, axis=0).tolist()
    return stripes, on_one, wanted


def _kin(history: History, sector_of: npt.NDArray[np.str_]) -> list[Integers]:
    """A symbol and those nearest to it, of its sector where it has enough of them; for symbols busy and quiet alike."""
    count = len(history.names)
    if count < _PORTFOLIO:
        return []
    kinship, everybody = Kinship(history), np.arange(count)
    by_total = np.argsort(-history.totals, kind="stable")
    chosen = by_total[np.linspace(0, count - 1, min(count, _PORTFOLIOS_MAX)).astype(np.int64)]
    portfolios = []
    for symbol in chosen.tolist():
        related = everybody[(sector_of == sector_of[symbol]) & (everybody != symbol)]
        others = related if len(related) >= _PORTFOLIO - 1 else everybody[everybody != symbol]
        order = np.argsort(-kinship.to(np.array([symbol]), others), kind="stable")
        portfolios.append(np.append(symbol, others[order[: _PORTFOLIO - 1]]))
    return portfolios


def _anybody(history: History) -> list[Integers]:
    """Ten symbols that have nothing in common: neighbours in the order of another hash of their names."""
    names = history.names.tolist()
    if len(names) < _PORTFOLIO:
        return []
    order = np.array(sorted(range(len(names)), key=lambda place: blake2b(names[place], person=b"anybody").digest()))
    groups = order[: len(order) // _PORTFOLIO * _PORTFOLIO].reshape(-1, _PORTFOLIO)
    return list(groups[:_PORTFOLIOS_MAX])


def _sectors(
    history: History, sector_of: npt.NDArray[np.str_], planned: Integers, hashed: Integers
) -> list[SectorWorth]:
    rows = []
    for sector in sorted(set(sector_of.tolist()) - {""}):
        own = np.flatnonzero(sector_of == sector)
        figures: list[tuple[int, float]] = []
        for numbers in (planned, hashed):
            joined = np.unique(numbers[own])
            carried = int(history.totals[np.isin(numbers, joined)].sum())
            figures.append((len(joined), int(history.totals[own].sum()) / max(carried, 1)))
        rows.append(SectorWorth(sector, len(own), *figures[0], *figures[1]))
    return rows


# How many stripes a hash needs


def _needed(plan: StripePlan, history: History, patience: int) -> int | None:
    shared: list[EdgeStripe] = [stripe for stripe in plan.stripes if not stripe.spare and not stripe.conflated]
    if not shared:
        return None
    limits = limits_for(min(stripe.rate for stripe in shared), history.token_period_ns, 0.0, patience, ITCH_SIZES)
    alone = {symbol for stripe in plan.stripes if stripe.conflated for symbol in stripe.symbols}
    names = [name for name in history.names.tolist() if name.decode("ascii") not in alone]
    place_of = {name: place for place, name in enumerate(history.names.tolist())}
    hashes = np.array([symbol_hash(name) for name in names], np.uint64)
    places = np.array([place_of[name] for name in names], np.int64)
    load = Load(history)

    def fits(stripes: int) -> bool:
        part = (hashes % np.uint64(stripes)).astype(np.int64)
        # The fullest first: what does not fit is found at once.
        for number in np.argsort(-np.bincount(part, history.totals[places], stripes), kind="stable").tolist():
            load.clear()
            if not all(load.add_if_fits(symbol, limits) for symbol in places[part == number].tolist()):
                return False
        return True

    tried, apart = len(shared), len(plan.stripes) - len(shared) - len(plan.cores)
    while tried <= 8 * max(len(names), 1):
        if fits(tried):
            return tried + apart
        tried += max(tried // 16, 1)
    return None
