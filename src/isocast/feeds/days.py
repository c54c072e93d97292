"""Which day a feed is of: its name says so, or somebody does; and the clock of that day at its place."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import ConfigurationError
from isocast.terms.zones import DAY_NS, NEW_YORK, Zone, day_number, zone_of

__all__ = ["NEW_YORK", "DayClock", "check_zone", "day_at", "day_clock", "day_in_name", "midnight_ns", "read_day"]

_DASHED = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_YEAR_FIRST = re.compile(r"(?<!\d)((?:19|20)\d{2})(\d{2})(\d{2})(?!\d)")
_MONTH_FIRST = re.compile(r"(?<!\d)(\d{2})(\d{2})((?:19|20)\d{2})(?!\d)")
_SHORT = re.compile(r"S(\d{2})(\d{2})(\d{2})(?!\d)")
_EPOCH = date(1970, 1, 1)


def read_day(text: str, key: str = "--day") -> date:
    """A day as people write it, 2019-01-30."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigurationError("command line", key, f"{text!r} is not a day such as 2019-01-30") from None


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


def check_zone(zone: str) -> Zone:
    """The rules of a time zone by its name; ConfigurationError if there is none."""
    return zone_of(zone)


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
