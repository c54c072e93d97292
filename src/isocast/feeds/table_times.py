"""Times of a table's rows, as tables write them, to nanoseconds since 1970."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from isocast.feeds.cells import Column
from isocast.feeds.days import midnight_ns
from isocast.feeds.mappings import TableMapping, TimeForm

__all__ = ["times_of"]

_DIGITS = {"ns": 0, "us": 3, "ms": 6, "s": 9}
"""Decimals that a unit needs to become nanoseconds."""
_DAY_NS = 86_400_000_000_000
_CLOCK_WIDTH = 18
_ISO_WIDTH = 30
_ZERO = ord("0")


Flags = npt.NDArray[np.bool_]


class _Rows(Protocol):
    def text(self, name: str, width: int) -> Column: ...

    def decimal(self, name: str, places: int, *, cut: bool = False) -> Column: ...


def times_of(rows: _Rows, mapping: TableMapping, midnight: int) -> Column:
    """The column of times; bad where a row has none."""
    form = mapping.time_form
    if form is TimeForm.CLOCK:
        column = _clock(rows.text(mapping.time, _CLOCK_WIDTH))
        return Column(column.values + midnight, column.good)
    if form is TimeForm.ISO:
        return _iso(rows.text(mapping.time, _ISO_WIDTH), mapping.zone)
    since, _, unit = form.partition("-")
    column = rows.decimal(mapping.time, _DIGITS[unit], cut=True)
    if since == "epoch":
        return Column(column.values, column.good & (column.values >= 0))
    good = column.good & (column.values >= 0) & (column.values < 2 * _DAY_NS)
    return Column(np.where(good, column.values, 0) + midnight, good)


def _clock(column: Column) -> Column:
    """093000123456789, 093000.123456789 or 09:30:00.123456789, the same form in all rows."""
    table = _characters(column.values, _CLOCK_WIDTH)
    values, good = _time_of_day(table, colons=bool(len(table)) and bool(table[0, 2] == ord(":")))
    return Column(values, good & column.good)


def _characters(texts: npt.NDArray[Any], width: int) -> npt.NDArray[np.uint8]:
    """A row for each text, a column for each character; zeros behind the end."""
    return np.ascontiguousarray(texts).view(np.uint8).reshape(-1, width)


def _pairs(table: npt.NDArray[np.uint8], places: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], Flags]:
    """Numbers of two digits that begin at these columns; good where all of them are digits."""
    first = table[:, places].astype(np.int64) - _ZERO
    second = table[:, [place + 1 for place in places]].astype(np.int64) - _ZERO
    good = np.logical_and.reduce((first >= 0) & (first <= 9) & (second >= 0) & (second <= 9), axis=1)  # noqa: PLR2004
    return first * 10 + second, good


def _time_of_day(table: npt.NDArray[np.uint8], *, colons: bool) -> tuple[npt.NDArray[np.int64], Flags]:
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
    values = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction
    return np.where(good, values, 0), good


def _iso(column: Column, zone: str) -> Column:
    """2019-01-30T09:30:00.123456789, with a blank or a T, and a Z for UTC; midnights are looked up in the zone."""
    universal = np.char.endswith(column.values, b"Z")
    table = _characters(np.char.rstrip(column.values, b"Z").astype(f"S{_ISO_WIDTH}"), _ISO_WIDTH)
    numbers, good = _pairs(table, (0, 2, 5, 8))
    good &= column.good & (table[:, 4] == ord("-")) & (table[:, 7] == ord("-"))
    good &= (table[:, 10] == ord("T")) | (table[:, 10] == ord(" "))
    years = numbers[:, 0] * 100 + numbers[:, 1]
    months, days = numbers[:, 2], numbers[:, 3]
    good &= (years >= 1970) & (years < 2262) & (months >= 1) & (months <= 12) & (days >= 1)  # noqa: PLR2004
    begins = np.where(good, (years - 1970) * 12 + months - 1, 0).astype("datetime64[M]")
    dates = begins.astype("datetime64[D]") + np.where(good, days - 1, 0)
    good &= dates.astype("datetime64[M]") == begins
    since, sound = _time_of_day(table[:, 11:], colons=True)
    good &= sound
    dates = np.where(good, dates, np.datetime64(0, "D"))
    found, which = np.unique(dates, return_inverse=True)
    local = np.array([midnight_ns(day, zone) for day in found.tolist()], np.int64)
    midnights = np.where(universal, dates.astype("datetime64[ns]").astype(np.int64), local[which])
    values = midnights + since
    good &= values >= 0
    return Column(np.where(good, values, 0), good)
