"""Times of a table's rows, as tables write them, to nanoseconds since 1970.

Whatever tells the hour of the day (a clock, time since midnight, a date and a time without an offset) goes through the
table's zone, so that it is right on days on which clocks change (`feeds.wall_clock`).
"""

from __future__ import annotations

from datetime import date
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from isocast.feeds.cells import Column, Wrong
from isocast.feeds.mappings import TableMapping, TimeForm
from isocast.feeds.outcomes import FeedLog
from isocast.feeds.wall_clock import SKIPPED_TIME, WallClock
from isocast.terms.zones import DAY_NS, day_number, zone_of

__all__ = ["TableClock"]

_DIGITS = {"ns": 0, "us": 3, "ms": 6, "s": 9}
"""Decimals that a unit needs to become nanoseconds."""
_CLOCK_WIDTH = 18
_ISO_WIDTH = 38
_MINUTE_NS = 60 * 10**9
_ZERO = ord("0")
_FIRST_YEAR, _LAST_YEAR = 1970, 2261
"""Those after 2261 do not fit 64 bits of nanoseconds to their end."""

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Characters = npt.NDArray[np.uint8]


class _Rows(Protocol):
    def text(self, name: str, width: int) -> Column: ...

    def decimal(self, name: str, places: int, *, cut: bool = False) -> Column: ...

    def moments(self, name: str) -> tuple[str, Column] | None: ...


class TableClock:
    """Reads the column of times of one table, in its order."""

    def __init__(self, mapping: TableMapping, day: date | None, log: FeedLog) -> None:
        """`day` is that of times since midnight."""
        self._name = mapping.time
        self._form = mapping.time_form
        self._midnight = 0 if day is None else day_number(day) * DAY_NS
        self._wall = WallClock(zone_of(mapping.zone), log)

    def times(self, rows: _Rows) -> Column:
        """The column of times; bad where a row has none."""
        typed = rows.moments(self._name)
        if typed is not None:
            return self._typed(*typed)
        form = self._form
        if form is TimeForm.CLOCK:
            return self._since_midnight(_clock(rows.text(self._name, _CLOCK_WIDTH)))
        if form is TimeForm.ISO:
            return self._iso(rows.text(self._name, _ISO_WIDTH))
        since, _, unit = form.partition("-")
        column = rows.decimal(self._name, _DIGITS[unit], cut=True)
        if since == "epoch":
            return column._replace(good=column.good & (column.values >= 0))
        return self._since_midnight(column)

    def _typed(self, kind: str, column: Column) -> Column:
        """Columns that say themselves what they are: instants, dates and times without a zone, times of day."""
        if kind == "instant" or (kind == "wall" and self._form.startswith("epoch")):
            return column._replace(good=column.good & (column.values >= 0))
        if kind == "wall":
            return self._on_the_wall(column.values, column)
        return self._since_midnight(column)

    def _since_midnight(self, column: Column) -> Column:
        good = column.good & (column.values >= 0) & (column.values < 2 * DAY_NS)
        return self._on_the_wall(np.where(good, column.values, 0) + self._midnight, column._replace(good=good))

    def _on_the_wall(self, walls: Numbers, column: Column) -> Column:
        """Wall times of this table's zone to instants; those of bad rows are not looked at."""
        found = np.flatnonzero(column.good)
        values, good = np.zeros(len(walls), np.int64), column.good.copy()
        instants, exists = self._wall.instants(walls[found])
        values[found] = instants
        good[found] = exists & (instants >= 0)
        if exists.all():
            return Column(values, good, column.wrong)
        skipped = np.zeros(len(walls), np.bool_)
        skipped[found] = ~exists
        return Column(values, good, (*column.wrong, Wrong(skipped, f"{SKIPPED_TIME} in {self._wall.zone.name}")))

    def _iso(self, column: Column) -> Column:
        """2019-01-30T09:30:00.123456789, with a blank or a T; in the table's zone, or with its offset: Z, -04:00."""
        texts, offset, is_exact, sound = _offsets(column.values)
        table = _characters(texts, _ISO_WIDTH)
        walls, good = _date_and_time(table)
        good &= column.good & sound
        local = self._on_the_wall(walls, Column(walls, good & ~is_exact))
        values = np.where(is_exact, walls - offset, local.values)
        return Column(values, good & (local.good | (is_exact & (values >= 0))), local.wrong)


def _clock(column: Column) -> Column:
    """093000123456789, 093000.123456789 or 09:30:00.123456789, the same form in all rows."""
    table = _characters(column.values, _CLOCK_WIDTH)
    values, good = _time_of_day(table, colons=bool(len(table)) and bool(table[0, 2] == ord(":")))
    return Column(values, good & column.good)


def _characters(texts: npt.NDArray[Any], width: int) -> Characters:
    """A row for each text, a column for each character; zeros behind the end."""
    return np.ascontiguousarray(texts).view(np.uint8).reshape(-1, width)


def _pairs(table: Characters, places: tuple[int, ...]) -> tuple[Numbers, Flags]:
    """Numbers of two digits that begin at these columns; good where all of them are digits."""
    first = table[:, places].astype(np.int64) - _ZERO
    second = table[:, [place + 1 for place in places]].astype(np.int64) - _ZERO
    good = np.logical_and.reduce((first >= 0) & (first <= 9) & (second >= 0) & (second <= 9), axis=1)  # noqa: PLR2004
    return first * 10 + second, good


def _time_of_day(table: Characters, *, colons: bool) -> tuple[Numbers, Flags]:
    """Nanoseconds since midnight."""
    numbers, good = _pairs(table, (0, 3, 6) if colons else (0, 2, 4))
    hours, minutes, seconds = numbers[:, 0], numbers[:, 1], numbers[:, 2]
    good &= (hours < 24) & (minutes < 60) & (seconds < 61)  # noqa: PLR2004
    if colons:
        good &= (table[:, 2] == ord(":")) & (table[:, 5] == ord(":"))
    after = 8 if colons else 6
    fraction = np.zeros(len(table), np.int64)
    ended = np.zeros(len(table), np.bool_)
    rows = np.arange(len(table))
    start = after + (table[:, after] == ord("."))
    for place in range(9):
        at = start + place
        character = np.where(at < table.shape[1], table[rows, np.minimum(at, table.shape[1] - 1)], 0).astype(np.int64)
        ended |= character == 0
        digit = character - _ZERO
        good &= ended | ((digit >= 0) & (digit <= 9))  # noqa: PLR2004
        fraction = fraction * 10 + np.where(ended, 0, digit)
    finer = (np.arange(table.shape[1]) >= start[:, None] + 9) & (table != 0)
    good &= ~(finer & ((table < _ZERO) | (table > _ZERO + 9))).any(axis=1)
    values = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction
    return np.where(good, values, 0), good


def _date_and_time(table: Characters) -> tuple[Numbers, Flags]:
    """The wall times of texts without their offsets."""
    numbers, good = _pairs(table, (0, 2, 5, 8))
    good &= (table[:, 4] == ord("-")) & (table[:, 7] == ord("-"))
    good &= (table[:, 10] == ord("T")) | (table[:, 10] == ord(" "))
    years = numbers[:, 0] * 100 + numbers[:, 1]
    months, days = numbers[:, 2], numbers[:, 3]
    good &= (years >= _FIRST_YEAR) & (years <= _LAST_YEAR) & (months >= 1) & (months <= 12) & (days >= 1)  # noqa: PLR2004
    begins = np.where(good, (years - _FIRST_YEAR) * 12 + months - 1, 0).astype("datetime64[M]")
    dates = begins.astype("datetime64[D]") + np.where(good, days - 1, 0)
    good &= dates.astype("datetime64[M]") == begins
    since, sound = _time_of_day(table[:, 11:], colons=True)
    good &= sound
    return np.where(good, dates.astype("datetime64[D]").astype(np.int64) * DAY_NS + since, 0), good


def _offsets(texts: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Numbers, Flags, Flags]:
    """Texts without the offset at their end; the offsets, which texts have one, and which are sound.

    Z, +hh:mm, +hhmm and +hh are offsets.
    """
    table = _characters(texts, _ISO_WIDTH).copy()
    length = np.char.str_len(texts)
    rows = np.arange(len(table))
    offset, is_exact = np.zeros(len(table), np.int64), np.zeros(len(table), np.bool_)
    sound = np.ones(len(table), np.bool_)
    cut = length.copy()
    last = table[rows, np.maximum(length - 1, 0)]
    universal = (last == ord("Z")) | (last == ord("z"))
    is_exact |= universal
    cut -= universal
    for size, minutes_at in ((6, 4), (5, 3), (3, 0)):
        at = length - size
        sign = table[rows, np.maximum(at, 0)]
        own = ~is_exact & (at > 10) & ((sign == ord("+")) | (sign == ord("-")))  # noqa: PLR2004 - behind the date
        found = np.flatnonzero(own)
        if not len(found):
            continue
        tail = table[found[:, None], at[found][:, None] + np.arange(size)]
        numbers, good = _pairs(tail, (1, minutes_at) if minutes_at else (1,))
        hours, minutes = numbers[:, 0], numbers[:, 1] if minutes_at else 0
        good &= (hours < 24) & (minutes < 60)  # noqa: PLR2004
        if size == 6:  # noqa: PLR2004
            good &= tail[:, 3] == ord(":")
        offset[found] = (hours * 60 + minutes) * _MINUTE_NS * np.where(tail[:, 0] == ord("-"), -1, 1)
        sound[found] = good
        is_exact |= own
        cut = np.where(own, at, cut)
    table[np.arange(_ISO_WIDTH) >= cut[:, None]] = 0
    return table.reshape(-1).view(f"S{_ISO_WIDTH}"), offset, is_exact, sound
