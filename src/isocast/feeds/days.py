"""Which day a feed is of, its wall-clock times as instants, and whether its time steps back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from importlib import import_module
from types import ModuleType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import suggestion
from isocast.terms.zones import DAY_NS, NEW_YORK, SettledTimes, Zone, day_number, zone_of

__all__ = [
    "NEW_YORK",
    "SKIPPED_TIME",
    "ClockWatch",
    "DayClock",
    "WallClock",
    "day_at",
    "day_clock",
    "day_in_name",
    "exchange_calendars",
    "midnight_ns",
    "read_day",
]


_DASHED = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_YEAR_FIRST = re.compile(r"(?<!\d)((?:19|20)\d{2})(\d{2})(\d{2})(?!\d)")
_MONTH_FIRST = re.compile(r"(?<!\d)(\d{2})(\d{2})((?:19|20)\d{2})(?!\d)")
_SHORT = re.compile(r"S(\d{2})(\d{2})(\d{2})(?!\d)")
_EPOCH = date(1970, 1, 1)


def read_day(text: str) -> date:
    """A day as people write it, 2019-01-30."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigurationError("command line", "--day", f"{text!r} is not a day such as 2019-01-30") from None


def day_in_name(name: str) -> date | None:
    """The day in a file's name: 2012-06-21, 20131007, 01302019 or S013019; None if there is none."""
    for pattern, order in (
        (_DASHED, (0, 1, 2)),
        (_YEAR_FIRST, (0, 1, 2)),
        (_MONTH_FIRST, (2, 0, 1)),
        (_SHORT, (2, 0, 1)),
    ):
        for found in pattern.finditer(name):
            year, month, day = (int(found.groups()[place]) for place in order)
            try:
                return date(year + 2000 if year < 100 else year, month, day)  # noqa: PLR2004
            except ValueError:
                continue
    return None


def exchange_calendars(exchange: str, file: str, key: str) -> ModuleType:
    """The package that knows the days of exchanges; ConfigurationError without it, or for an unknown exchange."""
    try:
        found = import_module("exchange_calendars")  # It takes a second, for those who want it.
    except ImportError:
        rule = "needs the Python package exchange-calendars: pip install 'isocast[calendars]'"
        raise ConfigurationError(file, key, rule) from None
    known = found.get_calendar_names()
    if exchange not in known:
        rule = f'"{exchange}" is no exchange that is known, such as XNYS, XLON or XTKS{suggestion(exchange, known)}'
        raise ConfigurationError(file, key, rule)
    return found


def midnight_ns(day: date, zone: str) -> int:
    """When that day began there, in nanoseconds since 1970."""
    return zone_of(zone).begins(day)


def day_at(time_ns: int, zone: str) -> date:
    """The day of an instant at a place."""
    return _EPOCH + timedelta(days=zone_of(zone).wall_at(time_ns) // DAY_NS)


class DayClock:
    """The clock on the wall of one day: what ITCH calls nanoseconds since midnight.

    On a day on which clocks change that is the hour of the day, not the time that has passed since midnight.
    """

    def __init__(self, wall: int, zone: Zone) -> None:
        """`wall` is the wall time of midnight."""
        self.wall = wall
        self.zone = zone
        self._first, self._last = zone.reached(wall), zone.reached(wall + DAY_NS)
        self._is_plain = self._last - self._first == DAY_NS

    @classmethod
    def at(cls, day: date, zone: str) -> Self:
        """Of a day at a place."""
        return cls(day_number(day) * DAY_NS, zone_of(zone))

    def of(self, times: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Nanoseconds since midnight of instants, by the clock; below 0, or a day and more, on other days."""
        instants = times.astype(np.int64)
        if self._is_plain and self._has_all(instants):
            return instants - self._first
        return self.zone.walls(instants) - self.wall

    def told(self, times: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], int]:
        """The hour of the day of instants of any day, and how many of them are of another one."""
        clock = self.of(times)
        if not len(clock) or (clock.min() >= 0 and clock.max() < DAY_NS):
            return clock, 0
        other = (clock < 0) | (clock >= DAY_NS)
        return np.where(other, (clock + self.wall) % DAY_NS, clock), int(np.count_nonzero(other))

    def _has_all(self, instants: npt.NDArray[np.int64]) -> bool:
        return bool(len(instants) and self._first <= instants.min() and instants.max() < self._last)


def day_clock(midnight: int | DayClock) -> DayClock:
    """The clock of a day; of an instant: the time that has passed since it."""
    return midnight if isinstance(midnight, DayClock) else DayClock(midnight, zone_of("UTC"))


# Whether a feed's time steps back.


class ClockWatch:
    """Sees the times of a feed, block after block, and counts those before the latest one."""

    def __init__(self, log: FeedLog) -> None:
        """Nothing was seen."""
        self._log = log
        self._latest = np.uint64(0)

    def see(self, times: npt.NDArray[Any], where: npt.NDArray[np.int64]) -> None:
        """Times in the feed's order, and where in the feed each stands."""
        if not len(times):
            return
        latest = np.maximum.accumulate(np.concatenate([[self._latest], times]))
        back = np.flatnonzero(times < latest[:-1])
        if len(back):
            step = int((latest[back] - times[back]).max())
            self._log.fault(FeedFault.BACKWARD_TIME, int(where[back[0]]), f"time steps back by {step:,} ns", len(back))
        self._latest = latest[-1]


# Times that a feed tells by the clock on the wall, to instants, in the feed's own order.


SKIPPED_TIME = "a time that does not exist: clocks skip it on that day"

Instants = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _RepeatedHour:
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
        self._round: _RepeatedHour | None = None
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

    def _in_order(self, walls: Instants, settled: SettledTimes) -> Instants:
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
            known = _RepeatedHour(begins, length)
        before = walls < begins
        # Runs between times before the round: in each, the latest time until now, and whether times stepped back.
        runs = np.cumsum(before)
        keys = runs * (2 * length) + np.where(own, walls - begins, 0)
        latest = np.maximum(np.maximum.accumulate(keys), known.reached)
        stepped = own & (latest - keys >= length // 2)
        stepped[0] |= known.is_second and not before[0]
        second: Flags = np.maximum.accumulate(np.where(stepped, runs, -1)) == runs
        self._round = _RepeatedHour(begins, length, int(latest[-1] - runs[-1] * 2 * length), bool(second[-1]))
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
