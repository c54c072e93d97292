"""Tables of text for a plan: counts of messages by symbol and time, and the sectors of symbols."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation

import numpy as np

from isocast.striping.history import HistoryMaker
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.instants import SECOND, read_instant
from isocast.terms.market import SYMBOL_BYTES, Symbol
from isocast.terms.suggestion import suggestion
from isocast.wire.limits import EVENT_BYTES

__all__ = ["COUNT_COLUMNS", "MESSAGE_BYTES", "SIZE_COLUMNS", "add_count_rows", "is_count_header", "read_sectors"]

COUNT_COLUMNS = ("symbol", "time", "count")
SIZE_COLUMNS = ("prices", "everything")
"""A table may have these besides: bytes of messages that may not wait, and of all. Without, each has MESSAGE_BYTES."""
MESSAGE_BYTES = 2 + EVENT_BYTES
"""Of a message whose kind is not known: the longest but for corrections."""
_CHUNK = 100_000
_NANOSECONDS_FROM = 10**14
"""A whole number from here on is nanoseconds: as seconds it would be three million years."""
_COUNT_MAX = 10**12


def is_count_header(line: str) -> bool:
    """Whether a table with this first line has counts."""
    return set(COUNT_COLUMNS) <= {cell.strip().lower() for cell in line.split(",")}


def add_count_rows(maker: HistoryMaker, lines: Iterable[str], file: str) -> int:
    """Add every row of a table; how many there were. ConfigurationError names the line that is wrong."""
    rows = _cells(lines, file, COUNT_COLUMNS, SIZE_COLUMNS)
    total = 0
    names: list[str] = []
    numbers: list[list[int]] = []
    for number, (symbol, time, *counts) in rows:
        total += 1
        try:
            names.append(Symbol(symbol) if symbol else "")
            numbers.append([_time(time), *map(_count, counts)])
        except (LocalProtocolError, ValueError) as reason:
            raise ConfigurationError(file, f"line {number}", str(reason)) from None
        if len(names) == _CHUNK:
            _add(maker, names, numbers)
            names, numbers = [], []
    _add(maker, names, numbers)
    return total


def _add(maker: HistoryMaker, names: list[str], numbers: list[list[int]]) -> None:
    if not names:
        return
    symbols = np.array(names, f"S{SYMBOL_BYTES}")
    times, counts, *sizes = np.array(numbers, np.int64).T
    if sizes:
        maker.add_sizes(symbols, times, counts, *sizes)
    else:
        maker.add_counts(symbols, times, counts, MESSAGE_BYTES)


def _time(text: str) -> int:
    """Nanoseconds or seconds since 1970, or a date and a time."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        try:
            value = Decimal(read_instant(text)) / SECOND
        except ValueError:
            raise ValueError(
                f'"{text}" is no time: seconds or nanoseconds since 1970, or 2026-03-02T14:30:00Z'
            ) from None
    if not value.is_finite() or not 0 <= value < 1 << 63:
        raise ValueError(f'"{text}" is no time since 1970')
    nanoseconds = int(value) if value >= _NANOSECONDS_FROM else int(value * SECOND)
    if nanoseconds >= 1 << 63:
        raise ValueError(f'"{text}" is no time since 1970')
    return nanoseconds


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _COUNT_MAX:
        raise ValueError(f'"{text}" is no count of messages')
    return int(text)


def read_sectors(lines: Iterable[str], file: str) -> dict[str, str]:
    """The sector of each symbol, from a table with the columns symbol and sector; what is no symbol is left out."""
    sectors = {}
    for _, (symbol, sector) in _cells(lines, file, ("symbol", "sector")):
        if 0 < len(symbol) <= SYMBOL_BYTES and symbol.isascii():
            sectors[symbol] = sector
    return sectors


def _cells(
    lines: Iterable[str], file: str, columns: tuple[str, ...], more: tuple[str, ...] = ()
) -> Iterator[tuple[int, list[str]]]:
    """The wanted cells of each row, with the row's line; and those of `more` columns if the table has them all."""
    reader = csv.reader(lines)
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        for column in columns:
            if column not in header:
                rule = f"has no column {column}{suggestion(column, header)}; wanted are {', '.join(columns)}"
                raise ConfigurationError(file, "header", rule)
        found = (*columns, *more) if set(more) <= set(header) else columns
        places = [header.index(column) for column in found]
        for row in reader:
            if row:
                if len(row) <= max(places):
                    raise ConfigurationError(file, f"line {reader.line_num}", f"has only {len(row)} cells")
                yield reader.line_num, [row[place].strip() for place in places]
    except csv.Error as reason:
        raise ConfigurationError(file, f"line {reader.line_num}", str(reason)) from None
