"""Tables of trades, quotes and orders to events, by a mapping: cells, times and whole columns of any file format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from isocast.feeds.cells import TOO_LARGE, Cells, Column, Flags, TableProgress, Wrong, read_cells
from isocast.feeds.days import SKIPPED_TIME, ClockWatch, WallClock
from isocast.feeds.directories import MetSymbols
from isocast.feeds.mappings import ORDER_KINDS, SIDES, TableMapping, TimeForm, clock_ns, column_keys
from isocast.feeds.outcomes import FeedFault, FeedLog, ListedSymbol
from isocast.terms.conditions import LEAN_CONDITIONS, TAPE_CONDITIONS, SaleCondition, conditions_of
from isocast.terms.errors import ConfigurationError, FeedError
from isocast.terms.market import MIC_BYTES, PRICE_DECIMALS, SYMBOL_BYTES, EventFlag, EventKind, Mic, Side, Symbol
from isocast.terms.zones import DAY_NS, day_number, zone_of
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["LARGEST", "ColumnSource", "TableClock", "TableDecoder", "scaled", "times", "within"]


# Products of whole numbers that came from outside: numpy wraps around 64 bits without a word, these do not.


LARGEST = (1 << 63) - 1


def within(values: npt.NDArray[Any], least: int, most: int) -> Flags:
    """Which whole numbers, signed or not, are of a range: bounds are compared as they are, not as the array's type."""
    kind = np.iinfo(values.dtype)
    good = np.ones(len(values), np.bool_)
    if least > kind.min:
        good &= values >= min(least, kind.max) if least <= kind.max else False
    if most < kind.max:
        good &= values <= max(most, kind.min) if most >= kind.min else False
    return good


def times(values: npt.NDArray[Any], factor: int) -> tuple[npt.NDArray[np.int64], Flags]:
    """Each value times a factor above 0, and which products fit 64 bits with a sign; the others are 0."""
    bound = LARGEST // factor
    good = within(values, -bound, bound)
    return np.where(good, values, 0).astype(np.int64) * np.int64(factor), good


# Times of a table's rows, as tables write them, to nanoseconds since 1970.
#
# Whatever tells the hour of the day (a clock, time since midnight, a date and a time without an offset) goes through
# the table's zone, so that it is right on days on which clocks change (`feeds.days`).


_ZERO = ord("0")
_DIGITS = {"ns": 0, "us": 3, "ms": 6, "s": 9}
"""Decimals that a unit needs to become nanoseconds."""
_CLOCK_WIDTH = 18
_ISO_WIDTH = 38
_MINUTE_NS = 60 * 10**9
_FIRST_YEAR, _LAST_YEAR = 1970, 2261
"""Those after 2261 do not fit 64 bits of nanoseconds to their end."""


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
        self._begins = clock_ns(mapping.day_begins, log.file, "day_begins")
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
        walls = np.where(good, column.values, 0) + self._midnight
        if self._begins:
            walls -= np.where(good & (column.values >= self._begins), DAY_NS, 0)
        return self._on_the_wall(walls, column._replace(good=good))

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


_U32 = (1 << 32) - 1
_CODE_WIDTH = 12
_EXAMPLE_WIDTH = 24


class ColumnSource(Protocol):
    """Rows of a table by the names of its columns; `offsets` and `lines` say where in the file each row is."""

    offsets: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """How many rows."""

    def text(self, name: str, width: int) -> Column:
        """Text of at most so many characters."""

    def decimal(self, name: str, places: int, *, cut: bool = False) -> Column:
        """Numbers as integers of 10^-places; with `cut`, finer digits are cut off."""

    def hexadecimal(self, name: str) -> Column:
        """Numbers written in base 16."""

    def empty(self, name: str) -> Flags:
        """Which rows have nothing there."""

    def moments(self, name: str) -> tuple[str, Column] | None:
        """Nanoseconds of a column whose type says that it is times: "instant", "wall" or "clock"; None for others."""


class _NamedCells:
    """Cells of a table of text by name."""

    def __init__(self, cells: Cells, places: dict[str, int]) -> None:
        self.offsets, self.lines = cells.offsets, cells.lines
        self._cells = cells
        self._places = places

    def __len__(self) -> int:
        return len(self._cells)

    def text(self, name: str, width: int) -> Column:
        return self._cells.text(self._places[name], width)

    def decimal(self, name: str, places: int, *, cut: bool = False) -> Column:
        return self._cells.decimal(self._places[name], places, cut=cut)

    def hexadecimal(self, name: str) -> Column:
        return self._cells.hexadecimal(self._places[name])

    def empty(self, name: str) -> Flags:
        return self._cells.empty(self._places[name])

    def moments(self, name: str) -> None:
        """Text says nothing of its type."""


class _Trailer:
    """The last line of a table, which says how many rows there are: TAQ's is END, the day and their number."""

    def __init__(self, word: str, delimiter: bytes, log: FeedLog) -> None:
        self._start = word.encode("ascii") + delimiter
        self._delimiter = delimiter
        self._log = log
        self._line = b""
        self._offset = 0

    def cut(self, whole: bytes, at: TableProgress) -> bytes:
        """The lines before it; lines behind it are bad."""
        if self._line:
            self._refuse(whole, at.offset, at.lines)
            return b""
        place = 0 if whole.startswith(self._start) else whole.find(b"\n" + self._start) + 1
        if not place and not whole.startswith(self._start):
            return whole
        self._line, _, behind = whole[place:].partition(b"\n")
        self._offset = at.offset + place
        self._refuse(behind, self._offset + len(self._line) + 1, at.lines + whole.count(b"\n", 0, place) + 1)
        return whole[:place]

    def _refuse(self, behind: bytes, offset: int, lines: int) -> None:
        count = sum(1 for line in behind.split(b"\n") if line.strip())
        self._log.fault(FeedFault.BAD_ROW, offset, "a row after the line that ends the table", count, row=lines + 1)

    def check(self, at: TableProgress) -> None:
        """Its number of rows must be that of the rows that were there."""
        if not self._line:
            return
        cells = self._line.strip().split(self._delimiter)
        number = cells[2].strip() if len(cells) > 2 else b""  # noqa: PLR2004 - the word, the day, the number
        if not number.isdigit():
            self._log.fault(FeedFault.ROW_COUNT, self._offset, "the last line says no number of rows")
        elif int(number) != at.rows:
            what = f"the last line says {int(number):,} rows, there are {at.rows:,}"
            self._log.fault(FeedFault.ROW_COUNT, self._offset, what, abs(int(number) - at.rows))


class TableDecoder:
    """Reads one table. Rows are numbered from 1 on, and a row that is no event is a named fault."""

    def __init__(
        self,
        mapping: TableMapping,
        log: FeedLog,
        *,
        day: date | None = None,
        symbol: Symbol | None = None,
        floor: Mic | None = None,
    ) -> None:
        """`symbol` and `floor` stand for columns that the table lacks; `day` for times since midnight."""
        self.log = log
        self._mapping = mapping
        self._symbol = symbol
        self._floor = floor
        self._rows = 0
        self._has_conditions = bool(mapping.conditions)
        self._clock = ClockWatch(log)
        self._met = MetSymbols()
        needs_day = mapping.time_form is TimeForm.CLOCK or mapping.time_form.startswith("midnight")
        if needs_day and day is None:
            raise ConfigurationError(
                log.file, "day", "its name does not contain a day; give one, such as --day 2019-01-30"
            )
        if not mapping.symbol and symbol is None:
            raise ConfigurationError(log.file, "symbol", "it has no column of symbols; give --symbol")
        if not mapping.floor and floor is None:
            raise ConfigurationError(log.file, "floor", "it has no column of venues; give --as")
        self._times = TableClock(mapping, day, log)

    @property
    def directory(self) -> list[ListedSymbol]:
        """Every floor and symbol that was met, in the order of meeting."""
        return self._met.directory

    def blocks(self, chunks: Iterable[bytes]) -> Iterator[EventArray]:
        """The events of a table of text, a block for each chunk."""
        names: Sequence[str] = self._mapping.columns
        tally = TableProgress()
        if not names:
            chunks, names, tally.offset = self._header(chunks)
            tally.lines = 1
        places = {name: place for place, name in enumerate(names)}
        delimiter = self._mapping.delimiter.encode("ascii")
        trailer = _Trailer(self._mapping.trailer, delimiter, self.log) if self._mapping.trailer else None
        cut = None if trailer is None else trailer.cut
        for cells in read_cells(chunks, self.log, len(names), delimiter, tally, cut):
            events = self.decode(_NamedCells(cells, places))
            if len(events):
                yield events
        if trailer is not None:
            trailer.check(tally)

    def _header(self, chunks: Iterable[bytes]) -> tuple[Iterable[bytes], list[str], int]:
        """The names in the first line, and everything behind it."""
        source = iter(chunks)
        start = b""
        while b"\n" not in start:
            more = next(source, b"")
            if not more:
                break
            start += more
        line, _, rest = start.partition(b"\n")
        text = line.decode("utf-8-sig", "replace").strip("\r")
        names = [name.strip().strip('"') for name in text.split(self._mapping.delimiter)]
        self.check_columns(names)
        self.log.bytes_read += len(line) + 1
        return chain([rest], source), names, len(line) + 1

    def check_columns(self, names: Sequence[str]) -> None:
        """FeedError if a column that the mapping wants is not there."""
        for key in column_keys(self._mapping):
            name = getattr(self._mapping, key)
            if name not in names:
                rule = f'there is no column "{name}" for {key}; the table has {", ".join(names[:20])}'
                raise FeedError(self.log.file, rule, 0)
        wanted = self._mapping.conditions
        if wanted and wanted not in names:
            self._has_conditions = False
            self.log.notes.append(f'there is no column "{wanted}": all trades are taken as regular ones')

    # ---- rows to events

    def decode(self, rows: ColumnSource) -> EventArray:
        """The events of these rows."""
        if not len(rows):
            return np.empty(0, EVENT_DTYPE)
        mapping = self._mapping
        base = np.zeros(len(rows), EVENT_DTYPE)
        good = np.ones(len(rows), np.bool_)
        number = np.arange(self._rows + 1, self._rows + len(rows) + 1, dtype=np.uint64)
        self._rows += len(rows)
        self._put(base, "time", self._times.times(rows), good, rows, mapping.time)
        self._floors(base, good, rows)
        self._symbols(base, good, rows)
        if mapping.reference:
            hexadecimal = mapping.reference_base == 16  # noqa: PLR2004
            column = rows.hexadecimal(mapping.reference) if hexadecimal else rows.decimal(mapping.reference, 0)
            self._put(base, "reference", _within(column, _U32), good, rows, mapping.reference)
        base["id"] = number
        if mapping.id:
            self._put(base, "id", _within(rows.decimal(mapping.id, 0), (1 << 63) - 1), good, rows, mapping.id)
        fill = {"trade": self._trades, "quote": self._quotes, "order": self._orders}[mapping.kind]
        events = fill(base, good, rows)
        self._met.meet(events)
        return events

    def _put(
        self,
        base: EventArray,
        field: str,
        column: Column,
        good: npt.NDArray[np.bool_],
        rows: ColumnSource,
        name: str,
    ) -> None:
        """A column into its field; rows where it is bad are named, once each."""
        for wrong in column.wrong:
            own = np.flatnonzero(good & wrong.rows)
            if len(own):
                row = int(rows.lines[own[0]])
                what, offset = f"{name}: {wrong.what}", int(rows.offsets[own[0]])
                self.log.fault(FeedFault.BAD_ROW, offset, what, len(own), row=row, example=wrong.example)
                good &= ~wrong.rows
        bad = np.flatnonzero(good & ~column.good)
        if len(bad):
            what = f"{name}: not what the mapping says it is"
            first = bad[0]
            example = rows.text(name, _EXAMPLE_WIDTH).values[first].decode("ascii", "replace")
            row = int(rows.lines[first])
            self.log.fault(FeedFault.BAD_ROW, int(rows.offsets[first]), what, len(bad), row=row, example=example)
            good &= column.good
        base[field] = np.where(column.good, column.values, np.zeros(1, column.values.dtype))

    def _floors(self, base: EventArray, good: npt.NDArray[np.bool_], rows: ColumnSource) -> None:
        mapping = self._mapping
        if not mapping.floor:
            base["floor"] = (self._floor or Mic("XXXX")).fixed
            return
        column = rows.text(mapping.floor, _CODE_WIDTH)
        texts, which = np.unique(column.values, return_inverse=True)
        codes = [mapping.codes.get(text.decode("ascii", "replace"), "") for text in texts.tolist()]
        for place, (text, code) in enumerate(zip(texts.tolist(), codes, strict=True)):
            if not code and len(text) == MIC_BYTES and text.isalnum() and text.isascii() and text.upper() == text:
                codes[place] = text.decode("ascii")
        found = np.array(codes, f"S{MIC_BYTES}")[which]
        self._put(base, "floor", Column(found, column.good & (found != b"")), good, rows, mapping.floor)

    def _symbols(self, base: EventArray, good: npt.NDArray[np.bool_], rows: ColumnSource) -> None:
        mapping = self._mapping
        if not mapping.symbol:
            base["symbol"] = "" if self._symbol is None else self._symbol
            return
        column = rows.text(mapping.symbol, SYMBOL_BYTES)
        names = column.values
        blanks = np.char.find(names, b" ") >= 0
        if blanks.any():  # Root and suffix: "BRK A" is one symbol.
            names = np.where(blanks, np.char.replace(names, b" ", b"."), names).astype(f"S{SYMBOL_BYTES}")
        self._put(base, "symbol", Column(names, column.good & (names != b"")), good, rows, mapping.symbol)

    def _price(self, rows: ColumnSource, name: str) -> Column:
        decimals = self._mapping.price_decimals
        if decimals < 0 or decimals == PRICE_DECIMALS:
            return rows.decimal(name, PRICE_DECIMALS if decimals < 0 else 0)
        if decimals < PRICE_DECIMALS:
            return scaled(rows.decimal(name, 0), 10 ** (PRICE_DECIMALS - decimals))
        column = rows.decimal(name, 0)
        finer = 10 ** (decimals - PRICE_DECIMALS)
        return column._replace(values=column.values // finer, good=column.good & (column.values % finer == 0))

    def _quantity(self, rows: ColumnSource, name: str) -> Column:
        return _within(scaled(rows.decimal(name, 0), self._mapping.lot), _U32)

    def _trades(self, base: EventArray, good: npt.NDArray[np.bool_], rows: ColumnSource) -> EventArray:
        mapping = self._mapping
        self._put(base, "price", self._price(rows, mapping.price), good, rows, mapping.price)
        self._put(base, "quantity", self._quantity(rows, mapping.quantity), good, rows, mapping.quantity)
        base["kind"] = EventKind.TRADE
        if self._has_conditions:
            self._conditions(base, good, rows)
        if mapping.kinds:
            texts = rows.text(mapping.kinds, _CODE_WIDTH).values
            for text, kind in mapping.kind_codes.items():
                base["kind"][texts == text.encode("ascii", "replace")] = EventKind[kind.upper()]
        kept = base[good]
        for kind in np.unique(kept["kind"]).tolist():
            self.log.took(EventKind(kind).name.lower(), int(np.count_nonzero(kept["kind"] == kind)))
        self._clock.see(kept["time"], rows.offsets[good])
        return kept

    def _conditions(self, base: EventArray, good: npt.NDArray[np.bool_], rows: ColumnSource) -> None:
        """Flags by the sale conditions; each condition is counted, and one that nobody knows takes nothing away."""
        name = self._mapping.conditions
        if self._mapping.condition_form == "lean":
            is_read = self._mapping.reference == name and self._mapping.reference_base == 16  # noqa: PLR2004
            column: Column = Column(base["reference"], good) if is_read else rows.hexadecimal(name)
            read: Callable[[Any], list[SaleCondition]] = _lean_conditions
        else:
            column, read = rows.text(name, _CODE_WIDTH), _letter_conditions
        values, which = np.unique(column.values, return_inverse=True)
        found = [read(value) for value in values.tolist()]
        flags = [reduce(or_, (condition.flags for condition in each), EventFlag(0)) for each in found]
        base["flags"] |= np.where(column.good, np.array(flags, np.uint16)[which], 0).astype(np.uint16)
        counts = np.bincount(which[good], minlength=len(values))
        for conditions, count in zip(found, counts.tolist(), strict=True):
            for each in dict.fromkeys(condition.name for condition in conditions):
                if count:
                    self.log.conditions[each] = self.log.conditions.get(each, 0) + count

    def _orders(self, base: EventArray, good: npt.NDArray[np.bool_], rows: ColumnSource) -> EventArray:
        """One event for each row; two for a replacement with a new number: a LINKED CANCEL, and the ORDER."""
        mapping = self._mapping
        kinds = self._coded(rows, mapping.kinds, _kind_codes(mapping))
        self._put(base, "kind", kinds, good, rows, mapping.kinds)
        kind = base["kind"]
        cancels, executions = np.isin(kind, _CANCELS), kind == EventKind.EXECUTION
        sides = self._coded(rows, mapping.side, _side_codes(mapping))
        # A cancel has no side, and an execution or a trade may hide it.
        may_lack = cancels | (rows.empty(mapping.side) & ~np.isin(kind, _SIDED))
        self._put(base, "side", _where_wanted(sides, ~may_lack), good, rows, mapping.side)
        own = mapping.execution_price
        at_own = executions & ~rows.empty(own) if own else np.zeros(len(rows), np.bool_)
        price = _where_wanted(self._price(rows, mapping.price), ~cancels & ~at_own)
        self._put(base, "price", price, good, rows, mapping.price)
        if own:
            executed = _where_wanted(self._price(rows, own), at_own)
            limits = base["price"].copy()
            self._put(base, "price", executed, good, rows, own)
            base["price"] = np.where(at_own, base["price"], limits)
        quantity = self._quantity(rows, mapping.quantity)
        nothing = ~cancels & quantity.good & (quantity.values == 0)
        if nothing.any():
            quantity = quantity._replace(wrong=(*quantity.wrong, Wrong(nothing, "must be more than 0", "0")))
        all_of_it = cancels & rows.empty(mapping.quantity)
        self._put(base, "quantity", _where_wanted(quantity, ~all_of_it), good, rows, mapping.quantity)
        events, places = self._renumbered(base, good, rows)
        for code in np.unique(kind[good]).tolist():
            self.log.took(EventKind(code).name.lower(), int(np.count_nonzero(kind[good] == code)))
        self._clock.see(events["time"], rows.offsets[places])
        return events

    def _renumbered(
        self, base: EventArray, good: npt.NDArray[np.bool_], rows: ColumnSource
    ) -> tuple[EventArray, npt.NDArray[np.int64]]:
        """The events of good rows, and the row of each: replacements with a new number are two."""
        name = self._mapping.new_id
        if not name:
            return base[good], np.flatnonzero(good)
        given = (base["kind"] == EventKind.REPLACE) & ~rows.empty(name)
        numbers = np.zeros(len(base), EVENT_DTYPE)
        column = _where_wanted(_within(rows.decimal(name, 0), (1 << 63) - 1), given)
        self._put(numbers, "id", column, good, rows, name)
        split = given & (numbers["id"] != base["id"])
        places = np.repeat(np.flatnonzero(good), 1 + split[good])
        events = base[places]
        first, second = np.zeros((2, len(places)), np.bool_)
        first[:-1] = second[1:] = places[1:] == places[:-1]
        events["kind"][first], events["flags"][first] = EventKind.CANCEL, EventFlag.LINKED
        for field in ("side", "price", "quantity"):
            events[field][first] = 0
        events["kind"][second], events["id"][second] = EventKind.ORDER, numbers["id"][places[second]]
        return events, places

    @staticmethod
    def _coded(rows: ColumnSource, name: str, codes: Mapping[str, int]) -> Column:
        """Texts of a column by a table; bad where the table has not got one."""
        column = rows.text(name, _CODE_WIDTH)
        texts, which = np.unique(column.values, return_inverse=True)
        found = np.array([codes.get(text.decode("ascii", "replace"), 0) for text in texts.tolist()], np.uint8)[which]
        return Column(found, column.good & (found > 0))

    def _quotes(self, base: EventArray, good: npt.NDArray[np.bool_], rows: ColumnSource) -> EventArray:
        """Two events for each row, the first LINKED; one where a side is absent."""
        mapping = self._mapping
        base["kind"] = EventKind.QUOTE
        both = np.repeat(base, 2)
        for place, side, price, quantity in (
            (0, Side.BUY, mapping.bid, mapping.bid_quantity),
            (1, Side.SELL, mapping.ask, mapping.ask_quantity),
        ):
            self._put(both[place::2], "price", self._price(rows, price), good, rows, price)
            self._put(both[place::2], "quantity", self._quantity(rows, quantity), good, rows, quantity)
            both["side"][place::2] = side
        kept = np.repeat(good, 2)
        self.log.took("quote", int(np.count_nonzero(good)))
        if mapping.zero_side == "absent":
            kept &= both["price"] != 0
            self.log.skip(
                "quotes without a price on either side", int(np.count_nonzero(good & ~(kept[::2] | kept[1::2])))
            )
        both["flags"][::2] = np.where(kept[1::2], int(EventFlag.LINKED), 0)
        self._clock.see(base["time"][good], rows.offsets[good])
        return both[kept]


_CANCELS = (EventKind.CANCEL, EventKind.TRADE_CANCEL)
_SIDED = (EventKind.ORDER, EventKind.REPLACE)


def _kind_codes(mapping: TableMapping) -> dict[str, int]:
    if mapping.kind_codes:
        return {text: EventKind[kind.upper()] for text, kind in mapping.kind_codes.items()}
    return {name: EventKind[kind.upper()] for kind in ORDER_KINDS for name in (kind, kind.upper())}


def _side_codes(mapping: TableMapping) -> dict[str, int]:
    return {text: Side[side.upper()] for text, side in (mapping.side_codes or SIDES).items()}


def _where_wanted(column: Column, wanted: Flags) -> Column:
    """A column whose values count only in some rows: elsewhere 0, and never a fault."""
    wrong = tuple(each._replace(rows=each.rows & wanted) for each in column.wrong)
    return Column(np.where(wanted, column.values, np.zeros(1, column.values.dtype)), column.good | ~wanted, wrong)


def scaled(column: Column, factor: int) -> Column:
    """Whole numbers times a factor; bad, and said so, where the product has no room in 64 bits."""
    products, fits = times(column.values, factor)
    large = column.good & ~fits
    if not large.any():
        return column._replace(values=products)
    what = TOO_LARGE if factor == 1 else f"times {factor:,}, it {TOO_LARGE}"
    example = str(int(column.values[np.flatnonzero(large)[0]]))
    return Column(products, column.good & fits, (*column.wrong, Wrong(large, what, example)))


def _letter_conditions(text: bytes) -> list[SaleCondition]:
    return conditions_of(text.decode("ascii", "replace"))


def _lean_conditions(number: int) -> list[SaleCondition]:
    bits = [1 << place for place in range(int(number).bit_length()) if int(number) >> place & 1]
    return [LEAN_CONDITIONS.get(bit) or SaleCondition(f"unknown bit {bit:x}") for bit in bits] or [TAPE_CONDITIONS["@"]]


def _within(column: Column, most: int) -> Column:
    """Whole numbers from 0 on; bad, and said so, above what their field holds."""
    good = column.good & (column.values >= 0) & (column.values <= most)
    large = column.good & (column.values > most)
    wrong = column.wrong
    if large.any():
        wrong = (*wrong, Wrong(large, TOO_LARGE, str(column.values[np.flatnonzero(large)[0]])))
    return Column(np.where(good, column.values, 0), good, wrong)
