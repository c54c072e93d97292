"""A history of rates: bytes of each symbol in slices much shorter than a token period; from tables of text too.

Nobody knows where in a slice of history a token will fall, so a plan must hold for every token period, wherever it
begins. History is kept in slices of an eighth of a token period. Any token period lies within nine of them, and what
nine hold is never less than what it held; in a steady flow it is an eighth more.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property

import numpy as np
import numpy.typing as npt

from isocast.striping.sizes import ITCH_SIZES, PacketSizes
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.instants import SECOND, read_instant
from isocast.terms.market import SYMBOL_BYTES, EventKind, Symbol
from isocast.terms.quantities import suggestion
from isocast.wire.events import EventArray
from isocast.wire.limits import EVENT_BYTES

__all__ = [
    "COUNT_COLUMNS",
    "MESSAGE_BYTES",
    "PATIENT",
    "SIZE_COLUMNS",
    "SLICES",
    "WINDOW",
    "History",
    "HistoryMaker",
    "add_count_rows",
    "is_count_header",
    "make_history",
    "read_sectors",
]


SLICES = 8
"""In a token period."""
WINDOW = SLICES + 1
"""Slices that surely hold any token period."""
_BYTES_MAX = float(1 << 62)
"""Sums of them are kept in 64 bits."""
_COMPACT = 4_000_000
"""Rows that are added up at once."""
PATIENT = (EventKind.DIRECTORY, EventKind.STATUS, EventKind.MARK)
"""Announcements come all at once, at openings and closes, and may wait for some token periods."""

Integers = npt.NDArray[np.int64]
Names = npt.NDArray[np.bytes_]


@dataclass(frozen=True, eq=False)
class History:
    """Rows, ordered by symbol and slice: bytes of messages, prices apart from announcements."""

    token_period_ns: int
    names: Names
    """Symbols in the order of their codes; without the empty one."""
    begins: Integers
    """For each symbol its first row; and one more, where the last one's end."""
    slices: Integers
    """For each row its slice; long silences are cut short, so that days lie close together."""
    starts: Integers
    """The slices that occur, ascending."""
    start_times: Integers
    """When each of these began, in nanoseconds since 1970."""
    prices: Integers
    """Bytes of everything that may not wait."""
    everything: Integers
    floor_wide_slices: Integers
    floor_wide: Integers
    """Bytes of what concerns whole floors, and therefore every stripe."""
    length: int
    """Slices, and room for a window behind the last."""
    active_ns: int
    """Time in which there was something, at least now and then."""

    @cached_property
    def totals(self) -> Integers:
        """Bytes of each symbol in all."""
        sums = np.concatenate([[0], np.cumsum(self.everything)])
        totals: Integers = sums[self.begins[1:]] - sums[self.begins[:-1]]
        return totals

    def rows_of(self, symbol: int) -> slice:
        """Where the rows of a symbol are."""
        return slice(int(self.begins[symbol]), int(self.begins[symbol + 1]))

    def time_of(self, position: int) -> int:
        """When the slice at a position began, in nanoseconds since 1970."""
        place = max(int(np.searchsorted(self.starts, position, side="right")) - 1, 0)
        return int(self.start_times[place])


class HistoryMaker:
    """Adds up blocks of events, of any number of files; the order makes no difference."""

    def __init__(self, token_period_ns: int = SECOND, sizes: PacketSizes = ITCH_SIZES) -> None:
        """Nothing was added."""
        if token_period_ns < SLICES:
            raise ConfigurationError("history", "token_period", f"must be at least {SLICES} ns")
        self.events = 0
        self._period_ns = token_period_ns
        self._slice_ns = token_period_ns // SLICES
        self._sizes = sizes
        self._parts: list[tuple[npt.NDArray[np.uint64], Integers, Integers, Integers]] = []
        self._rows = 0
        self._bytes = 0.0

    def add(self, events: EventArray) -> None:
        """Events with the times at which they happened."""
        kinds = events["kind"]
        size = self._sizes.bytes_table[kinds]
        patient = np.isin(kinds, [int(kind) for kind in PATIENT])
        symbols = np.ascontiguousarray(events["symbol"]).view("<u8")
        self._add(symbols, events["time"].astype(np.int64), np.where(patient, 0, size), size)
        self.events += len(events)

    def add_counts(self, symbols: Names, times: Integers, counts: Integers, message_bytes: int) -> None:
        """Counts of messages by symbol and time, where nothing else is known; each has `message_bytes`."""
        size = counts.astype(np.int64) * message_bytes
        self._add(np.ascontiguousarray(symbols, f"S{SYMBOL_BYTES}").view("<u8"), times, size, size)
        self.events += int(counts.sum())

    def add_sizes(
        self, symbols: Names, times: Integers, counts: Integers, prices: Integers, everything: Integers
    ) -> None:
        """Sums that were made elsewhere: how many messages, bytes of what may not wait, bytes of all."""
        names = np.ascontiguousarray(symbols, f"S{SYMBOL_BYTES}").view("<u8")
        self._add(names, times, prices.astype(np.int64), everything.astype(np.int64))
        self.events += int(counts.sum())

    def _add(self, symbols: npt.NDArray[np.uint64], times: Integers, prices: Integers, everything: Integers) -> None:
        if len(symbols):
            self._bytes += float(everything.sum(dtype=np.float64))
            if self._bytes >= _BYTES_MAX:
                raise ConfigurationError("history", "bytes", "more than 2^62 are counted: no plan can be made of that")
            self._parts.append(_added(symbols, times // self._slice_ns, prices, everything))
            self._rows += len(self._parts[-1][0])
            if len(self._parts) > 1 and self._rows > _COMPACT:
                self._compact()

    def _compact(self) -> None:
        columns = [np.concatenate([part[place] for part in self._parts]) for place in range(4)]
        self._parts = [_added(*columns)]
        self._rows = 0

    def make(self) -> History:
        """The history of everything that was added; ConfigurationError if that is nothing."""
        if not self._parts:
            raise ConfigurationError("history", "events", "there is nothing in it")
        self._compact()
        symbols, slices, prices, everything = self._parts[0]
        positions, starts, start_slices = _squeezed(slices)
        floor_wide = symbols == 0
        own = ~floor_wide
        codes, first = np.unique(symbols[own], return_index=True)
        return History(
            token_period_ns=self._period_ns,
            names=codes.astype("<u8").view(f"S{SYMBOL_BYTES}"),
            begins=np.append(first, np.count_nonzero(own)).astype(np.int64),
            slices=positions[own],
            starts=starts,
            start_times=start_slices * self._slice_ns,
            prices=prices[own],
            everything=everything[own],
            floor_wide_slices=positions[floor_wide],
            floor_wide=everything[floor_wide],
            length=int(positions.max()) + WINDOW + 1,
            active_ns=_active(start_slices, self._slice_ns),
        )


def make_history(
    blocks: Iterable[EventArray], token_period_ns: int = SECOND, sizes: PacketSizes = ITCH_SIZES
) -> History:
    """The history of some blocks of events."""
    maker = HistoryMaker(token_period_ns, sizes)
    for block in blocks:
        maker.add(block)
    return maker.make()


def _added(
    symbols: npt.NDArray[np.uint64], slices: Integers, prices: Integers, everything: Integers
) -> tuple[npt.NDArray[np.uint64], Integers, Integers, Integers]:
    """One row for each symbol and slice, ordered by both."""
    order = np.lexsort((slices, symbols))
    symbols, slices = symbols[order], slices[order]
    begins = np.flatnonzero(np.append(np.True_, (symbols[1:] != symbols[:-1]) | (slices[1:] != slices[:-1])))
    return (
        symbols[begins],
        slices[begins],
        np.add.reduceat(prices[order], begins),
        np.add.reduceat(everything[order], begins),
    )


def _squeezed(slices: Integers) -> tuple[Integers, Integers, Integers]:
    """Positions of slices in which no silence is longer than a window; and which slice each position stands for."""
    unique, which = np.unique(slices, return_inverse=True)
    steps = np.minimum(np.diff(unique, prepend=unique[:1]), WINDOW)
    positions = np.cumsum(steps)
    return positions[which.ravel()], positions, unique


_PAUSE_NS = 60 * SECOND


def _active(slices: Integers, slice_ns: int) -> int:
    """Time without the pauses that are longer than a minute."""
    steps = np.diff(slices) * slice_ns
    return int(steps[steps <= _PAUSE_NS].sum()) + slice_ns


# Tables of text for a plan: counts of messages by symbol and time, and the sectors of symbols.


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
                f'"{text}" is not a time: seconds or nanoseconds since 1970, or 2026-03-02T14:30:00Z'
            ) from None
    if not value.is_finite() or not 0 <= value < 1 << 63:
        raise ValueError(f'"{text}" is not a time since 1970')
    nanoseconds = int(value) if value >= _NANOSECONDS_FROM else int(value * SECOND)
    if nanoseconds >= 1 << 63:
        raise ValueError(f'"{text}" is not a time since 1970')
    return nanoseconds


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _COUNT_MAX:
        raise ValueError(f'"{text}" is not a count of messages')
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
