"""Time zones: the clock on the wall, and instants since 1970, for whole columns at a time.

A wall time is what a clock at that place shows, in nanoseconds, as if it were UTC: 1970-01-01T00:00 there is 0, and the
time of day is its remainder by a day. Where clocks go forward, some wall times are skipped: no instant has them. Where
clocks go back, some come twice. Everything follows from one table of a zone's changes, so that readers of files,
writers of feeds and Spark give the same answer.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import date, datetime
from functools import cached_property, lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import ConfigurationError

__all__ = ["DAY_NS", "NEW_YORK", "SettledTimes", "Zone", "ZoneTable", "day_number", "zone_of"]

NEW_YORK = "America/New_York"
DAY_NS = 86_400 * 10**9
_SECOND = 10**9
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_STEP_S = 3 * 86_400
"""Between two looks at a zone: no zone has changed its offset twice within a week since 1970."""
_END_S = (1 << 63) // _SECOND
"""2262: more does not fit 64 bits of nanoseconds."""
_LOWEST = -(1 << 62)

Instants = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class SettledTimes(NamedTuple):
    """Instants of wall times, the first of two where clocks go back."""

    instants: Instants
    skipped: Flags
    """No clock showed these; their instants mean nothing."""
    repeated: Flags
    """Clocks showed these twice; the second time was `back_ns` later."""
    back_ns: Instants


class ZoneTable(NamedTuple):
    """A zone's changes for engines that cannot search: one for each period of 2^shift nanoseconds since 1970.

    It is the change within the period, of which there is one at most, or the last one before it.
    """

    shift: int
    change: Instants


class Zone:
    """The offsets of one time zone from 1970 to 2262."""

    def __init__(self, name: str) -> None:
        """ConfigurationError if there is no zone of this name."""
        try:
            rules = ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigurationError("feed", "zone", f"{name!r} is no time zone such as {NEW_YORK}") from None
        self.name = name
        changes, offsets = _changes(rules)
        self.changes: Instants = np.array(changes, np.int64) * _SECOND
        """Instants at which clocks change."""
        self.offsets: Instants = np.array(offsets, np.int64) * _SECOND
        """How far the clock is ahead of UTC before the first change and behind each."""
        before, after = self.offsets[:-1], self.offsets[1:]
        # From here on a wall time is surely behind the change: neither skipped nor of the first of two rounds.
        self._settled = self.changes + np.maximum(before, after)
        self._odd = self.changes + np.minimum(before, after)
        # Python's numbers for one moment: they are faster to search, and may be of any year.
        self._known: tuple[list[int], list[int], list[int]] = (
            self.changes.tolist(),
            self.offsets.tolist(),
            self._settled.tolist(),
        )

    @property
    def is_fixed(self) -> bool:
        """Whether its clocks never change."""
        return not len(self.changes)

    # ---- one moment

    def offset_at(self, instant: int) -> int:
        """How far the clock is ahead of UTC at an instant."""
        changes, offsets, _ = self._known
        return offsets[bisect_right(changes, instant)]

    def wall_at(self, instant: int) -> int:
        """What the clock shows at an instant."""
        return instant + self.offset_at(instant)

    def changed_at(self, instant: int) -> int:
        """When clocks changed last, at the instant or before it; long ago if they never have."""
        changes, _, _ = self._known
        place = bisect_right(changes, instant)
        return changes[place - 1] if place else _LOWEST

    def begins(self, day: date) -> int:
        """The first instant of a day there: midnight, or where clocks skip midnight the moment at which they do."""
        return self.reached(day_number(day) * DAY_NS)

    def reached(self, wall: int) -> int:
        """The first instant at which the clock shows a wall time, or has skipped it."""
        changes, offsets, settled = self._known
        place = bisect_right(settled, wall)
        instant = wall - offsets[place]
        return min(instant, changes[place]) if place < len(changes) else instant

    # ---- columns

    def walls(self, instants: npt.NDArray[np.int64]) -> Instants:
        """What the clock shows at each instant."""
        if not len(instants):
            return instants
        first, last = (int(np.searchsorted(self.changes, end, "right")) for end in (instants.min(), instants.max()))
        if first == last:
            return instants + np.int64(self.offsets[first])
        shown: Instants = instants + self.offsets[np.searchsorted(self.changes, instants, "right")]
        return shown

    def settle(self, walls: npt.NDArray[np.int64]) -> SettledTimes:
        """The instants of wall times."""
        nothing = np.zeros(len(walls), np.bool_)
        if not len(walls):
            return SettledTimes(walls, nothing, nothing, walls)
        low, high = walls.min(), walls.max()
        first, last = (int(np.searchsorted(self._settled, end, "right")) for end in (low, high))
        if first == last and (last == len(self._odd) or high < self._odd[last]):
            return SettledTimes(walls - self.offsets[first], nothing, nothing, np.zeros(len(walls), np.int64))
        place = np.searchsorted(self._settled, walls, "right")
        odd = np.append(self._odd, np.iinfo(np.int64).max)
        turn = np.append(np.diff(self.offsets), 0)
        is_odd = walls >= odd[place]
        skipped, repeated = is_odd & (turn[place] > 0), is_odd & (turn[place] < 0)
        back = np.where(repeated, -turn[place], 0)
        return SettledTimes(walls - self.offsets[place], skipped, repeated, back)

    # ---- a table for other engines

    @cached_property
    def by_period(self) -> ZoneTable:
        """The last change at an instant, by the instant's period."""
        marks = self.changes
        least = int(np.diff(marks).min()) if len(marks) > 1 else 1 << 60
        # A day is spare, so that what lies a day before a period's change is in no other change's period.
        shift = max(least - DAY_NS, 1).bit_length() - 1
        ends = (np.arange(1, 1 << (63 - shift), dtype=np.int64)) << shift
        behind = np.searchsorted(marks, np.append(ends, np.iinfo(np.int64).max), "left")
        return ZoneTable(shift, np.concatenate([[_LOWEST], marks])[behind])


@lru_cache(maxsize=64)
def zone_of(name: str) -> Zone:
    """A zone by its name, made once; ConfigurationError if there is none."""
    return Zone(name)


def day_number(day: date) -> int:
    """Days since 1970."""
    return day.toordinal() - _EPOCH_DAY


def _changes(rules: ZoneInfo) -> tuple[list[int], list[int]]:
    """Seconds at which the offset changes, and the offsets before, between and behind them."""
    changes: list[int] = []
    offsets = [_offset(rules, 0)]
    for step in range(_STEP_S, _END_S, _STEP_S):
        now = _offset(rules, step)
        if now == offsets[-1]:
            continue
        low, high = step - _STEP_S, step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _offset(rules, middle) == offsets[-1] else (low, middle)
        changes.append(high)
        offsets.append(now)
    return changes, offsets


def _offset(rules: ZoneInfo, second: int) -> int:
    shift = datetime.fromtimestamp(second, rules).utcoffset()
    return 0 if shift is None else round(shift.total_seconds())
