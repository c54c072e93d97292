"""Whether a plan holds on a day: the mean and the peak of every stripe against its rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isocast.striping.history import SLICES, WINDOW, History
from isocast.striping.loads import Load, limits_for
from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.sizes import ITCH_SIZES, PacketSizes
from isocast.terms.instants import SECOND

__all__ = ["Judgement", "StripeLoad", "judge"]


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
