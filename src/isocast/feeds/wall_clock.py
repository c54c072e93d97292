"""Times that a feed tells by the clock on the wall, to instants, in the feed's own order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isocast.feeds.outcomes import FeedLog
from isocast.terms.zones import Settled, Zone

__all__ = ["SKIPPED_TIME", "WallClock"]

SKIPPED_TIME = "a time that does not exist: clocks skip it on that day"

Instants = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Round:
    """Wall times that come twice, and how far a feed has come in them."""

    begins: int
    length: int
    reached: int = 0
    """Nanoseconds into the round: the latest time of this pass."""
    is_second: bool = False


class WallClock:
    """Reads the wall times of one feed, block after block.

    A time that clocks skip is no time. One that they show twice, when they go back, is settled by the feed's order: it
    is of the first round, until times step back by half a round or more; from there on it is of the second. Times
    before the round begin anew, as in a file that is sorted by symbols first. The log says how many were of either.
    """

    def __init__(self, zone: Zone, log: FeedLog) -> None:
        """Nothing was read."""
        self.zone = zone
        self._log = log
        self._round: _Round | None = None
        self._counts = [0, 0]
        self._said = ""

    def instants(self, walls: Instants) -> tuple[Instants, Flags]:
        """The instants of wall times, and which of them exist."""
        settled = self.zone.settle(walls)
        if settled.repeated.any():
            return self._in_order(walls, settled), ~settled.skipped
        if self._round is not None and len(walls) and int(walls.min()) < self._round.begins:
            self._round = None
        return settled.instants, ~settled.skipped

    def _in_order(self, walls: Instants, settled: Settled) -> Instants:
        """Each change of clocks for itself: a file seldom has more than one."""
        instants = settled.instants.copy()
        place = np.searchsorted(self.zone.changes, settled.instants, "right")
        for which in np.unique(place[settled.repeated]).tolist():
            own = settled.repeated & (place == which)
            length = int(settled.back_ns[own][0])
            begins = int(self.zone.changes[which] + self.zone.offsets[which]) - length
            second = self._second_pass(walls, own, begins, length)
            instants[second] += length
            self._counts[0] += int(np.count_nonzero(own & ~second))
            self._counts[1] += int(np.count_nonzero(second))
        self._say()
        return instants

    def _second_pass(self, walls: Instants, own: Flags, begins: int, length: int) -> Flags:
        """Which times of one round are of its second pass."""
        known = self._round
        if known is None or known.begins != begins:
            known = _Round(begins, length)
        before = walls < begins
        # Runs between times before the round: in each, the latest time until now, and whether times stepped back.
        runs = np.cumsum(before)
        keys = runs * (2 * length) + np.where(own, walls - begins, 0)
        latest = np.maximum(np.maximum.accumulate(keys), known.reached)
        stepped = own & (latest - keys >= length // 2)
        stepped[0] |= known.is_second and not before[0]
        second: Flags = np.maximum.accumulate(np.where(stepped, runs, -1)) == runs
        self._round = _Round(begins, length, int(latest[-1] - runs[-1] * 2 * length), bool(second[-1]))
        return own & second

    def _say(self) -> None:
        first, second = self._counts
        if self._said in self._log.notes:
            self._log.notes.remove(self._said)
        self._said = (
            f"{first + second:,} times are of an hour that clocks showed twice: by their order {first:,} are of the"
            f" first round and {second:,} of the second"
        )
        self._log.notes.append(self._said)
