"""Tables of text as columns, without a Python object for each cell.

All separators of a block are found at once; where every line has as many cells as the table has columns, they are a
matrix of bounds. A column is then read by its digits: first digit of all rows, second digit of all rows, and so on.
Lines with another number of cells are bad rows, named by their byte. Quotes are rare in ticks: a block that has any
is rewritten without them first.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from isocast.feeds.outcomes import FeedFault, FeedLog

__all__ = ["BOM", "TOO_LARGE", "Cells", "Column", "Flags", "TableProgress", "Wrong", "read_cells"]


BOM = b"\xef\xbb\xbf"
"""The mark that some programs put before text in UTF-8."""

_NEWLINE, _RETURN, _BLANK, _QUOTE = 10, 13, 32, 34
_SAFE = "\x1f"
"""Separates cells that were in quotes: no text has it."""
_LINE_MAX = 1 << 16
_SHOWN = 40
"""Characters of a cell that a message quotes."""
_DIGITS_MAX = 19
"""As many as a 64-bit integer can have. Not all of those fit: above 2^63 they wrap to below zero, and are seen."""
TOO_LARGE = "is beyond what a record holds"
_ZERO, _MINUS, _PLUS, _POINT = (ord(sign) for sign in "0-+.")

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Wrong(NamedTuple):
    """Some rows of a column that are bad, and why."""

    rows: Flags
    what: str
    example: str = ""
    """What stands in the first of them, if the reason is not the same for all."""


class Column(NamedTuple):
    """Values and which of them are good; where one is not, the value means nothing, and `wrong` may say why."""

    values: npt.NDArray[Any]
    good: Flags
    wrong: tuple[Wrong, ...] = ()


@dataclass(slots=True)
class TableProgress:
    """How far a table was read."""

    offset: int = 0
    """Bytes."""
    lines: int = 0
    rows: int = 0
    """Lines that are not empty, good or bad; a header is none."""


class Cells:
    """Whole rows of a block: bounds of every cell, and where each row begins in the file, by byte and by line."""

    def __init__(self, raw: npt.NDArray[np.uint8], starts: Rows, ends: Rows, offsets: Rows, lines: Rows) -> None:
        """`starts` and `ends` have a row for each line and a column for each cell."""
        self.offsets = offsets
        self.lines = lines
        self._raw = np.concatenate([raw, np.zeros(1, np.uint8)])
        self._starts, self._ends = _trimmed(self._raw, starts, ends)

    def __len__(self) -> int:
        return len(self.offsets)

    def only(self, rows: Flags) -> Cells:
        """Some of the rows."""
        chosen = object.__new__(Cells)
        chosen.offsets, chosen.lines = self.offsets[rows], self.lines[rows]
        chosen._raw = self._raw
        chosen._starts, chosen._ends = self._starts[rows], self._ends[rows]
        return chosen

    def empty(self, place: int) -> Flags:
        """Which cells of a column have nothing in them."""
        return self._ends[:, place] <= self._starts[:, place]

    def text(self, place: int, width: int) -> Column:
        """ASCII text of at most so many characters; bad where it is longer."""
        start, length = self._starts[:, place], self._ends[:, place] - self._starts[:, place]
        table = np.zeros((len(start), width), np.uint8)
        for at in range(min(width, int(length.max(initial=0)))):
            table[:, at] = np.where(at < length, self._at(start + at), 0)
        good = (length >= 0) & (length <= width) & ((table == 0) | ((table >= _BLANK) & (table < 0x7F))).all(axis=1)  # noqa: PLR2004
        return Column(table.reshape(-1).view(f"S{width}"), good)

    def integer(self, place: int) -> Column:
        """Whole numbers; a fraction of zeros, as some tables write them, will do."""
        return self.decimal(place, 0)

    def decimal(self, place: int, places: int, *, cut: bool = False) -> Column:
        """Decimal numbers as integers of 10^-places; bad where one is too large, no number, or finer than that.

        With `cut` finer digits are cut off: times that somebody kept as floating point have such noise.
        """
        start, end = self._starts[:, place], self._ends[:, place]
        sign = self._at(start)
        negative = (sign == _MINUS) & (end > start)
        start = start + (negative | ((sign == _PLUS) & (end > start)))
        values = np.zeros(len(start), np.int64)
        whole = np.zeros(len(start), np.int64)
        fraction = np.full(len(start), -1, np.int64)
        """Digits behind the point so far; -1 before it."""
        good = end > start
        for at in range(int((end - start).max(initial=0))):
            here = start + at < end
            character = self._at(start + at).astype(np.int64)
            digit = character - _ZERO
            is_digit = (digit >= 0) & (digit <= 9) & here  # noqa: PLR2004
            point = (character == _POINT) & here & (fraction < 0)
            good &= is_digit | point | ~here
            kept = is_digit & (fraction < places)
            if not cut:
                good &= kept | ~is_digit | (digit == 0)
            values = np.where(kept, values * 10 + digit, values)
            whole += kept
            fraction = np.where(point, 0, fraction + (is_digit & (fraction >= 0)))
        digits = np.clip(fraction, 0, places)
        good &= whole > 0
        fits = whole + places - digits <= _DIGITS_MAX
        values = values * np.power(np.int64(10), np.minimum(places - digits, _DIGITS_MAX - 1))
        fits &= values >= 0
        large = good & ~fits
        wrong = (Wrong(large, TOO_LARGE, self._shown(place, large)),) if large.any() else ()
        return Column(np.where(negative, -values, values), good & fits, wrong)

    def _shown(self, place: int, rows: Flags) -> str:
        """The first of some cells, as it stands there."""
        row = int(np.flatnonzero(rows)[0])
        raw = self._raw[self._starts[row, place] : self._ends[row, place]].tobytes()
        return raw[:_SHOWN].decode("ascii", "replace") + ("…" if len(raw) > _SHOWN else "")

    def hexadecimal(self, place: int) -> Column:
        """Numbers of at most 15 hexadecimal digits."""
        start, end = self._starts[:, place], self._ends[:, place]
        values = np.zeros(len(start), np.int64)
        good = (end > start) & (end - start <= 15)  # noqa: PLR2004
        for at in range(min(int((end - start).max(initial=0)), 15)):
            here = start + at < end
            digit = _HEX[self._at(start + at)].astype(np.int64)
            good &= (digit < 16) | ~here  # noqa: PLR2004
            values = np.where(here, values * 16 + digit, values)
        return Column(values, good)

    def _at(self, places: Rows) -> npt.NDArray[np.uint8]:
        return self._raw[np.minimum(places, len(self._raw) - 1)]


_HEX = np.full(256, 16, np.uint8)
for _value, _letter in enumerate("0123456789abcdef"):
    _HEX[ord(_letter)] = _HEX[ord(_letter.upper())] = _value


def _trimmed(raw: npt.NDArray[np.uint8], starts: Rows, ends: Rows) -> tuple[Rows, Rows]:
    """Cells without the blanks around them; most tables have none."""
    while True:
        before = (raw[np.minimum(starts, len(raw) - 1)] == _BLANK) & (starts < ends)
        after = (raw[np.maximum(ends - 1, 0)] == _BLANK) & (starts < ends)
        if not before.any() and not after.any():
            return starts, ends
        starts, ends = starts + before, np.maximum(ends - after, starts + before)


def read_cells(
    chunks: Iterable[bytes],
    log: FeedLog,
    columns: int,
    delimiter: bytes,
    tally: TableProgress | None = None,
    trailer: Callable[[bytes, TableProgress], bytes] | None = None,
) -> Iterator[Cells]:
    """The whole rows of each chunk; what is left of a line waits for the next. Empty lines are nothing.

    `tally` says where the chunks begin, and counts on. `trailer` may cut off the end of what it is shown.
    """
    at = tally or TableProgress()
    rest = b""
    for chunk in chunks:
        log.bytes_read += len(chunk)
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            rest += chunk
            if len(rest) > _LINE_MAX:
                log.fault(FeedFault.BAD_ROW, at.offset, f"a line of more than {_LINE_MAX} bytes", row=at.lines + 1)
                at.offset, rest = at.offset + len(rest), b""
            continue
        whole = rest + chunk[:cut]
        rest = chunk[cut:]
        yield from _rows_of(whole, log, columns, delimiter, at, trailer)
    if rest.strip():
        yield from _rows_of(rest + b"\n", log, columns, delimiter, at, trailer)


def _rows_of(
    whole: bytes,
    log: FeedLog,
    columns: int,
    delimiter: bytes,
    at: TableProgress,
    trailer: Callable[[bytes, TableProgress], bytes] | None,
) -> Iterator[Cells]:
    if not at.offset and whole.startswith(BOM):
        whole, at.offset = whole[len(BOM) :], len(BOM)
    kept = whole if trailer is None else trailer(whole, at)
    if kept:
        yield _split(kept, log, columns, delimiter, at)
    at.offset += len(whole)
    at.lines += whole.count(b"\n")


def _split(whole: bytes, log: FeedLog, columns: int, delimiter: bytes, at: TableProgress) -> Cells:
    if b'"' in whole:
        whole, delimiter, lines_at = _unquoted(whole, delimiter)
    else:
        lines_at = None
    raw = np.frombuffer(whole, np.uint8)
    ends = np.flatnonzero(raw == _NEWLINE)
    begins = np.concatenate([[0], ends[:-1] + 1])
    stops = ends - ((ends > begins) & (raw[np.maximum(ends - 1, 0)] == _RETURN))
    commas = np.flatnonzero(raw == ord(delimiter))
    first = np.searchsorted(commas, begins)
    count = np.searchsorted(commas, stops) - first + 1
    filled = stops > begins
    right = filled & (count == columns)
    at.rows += int(np.count_nonzero(filled))
    places = at.offset + (begins if lines_at is None else lines_at)
    lines = at.lines + 1 + np.arange(len(ends))
    wrong = np.flatnonzero(filled & ~right)
    for cells in dict.fromkeys(count[wrong].tolist()):
        those = wrong[count[wrong] == cells]
        what = f"a row of {cells} cells where {columns} are wanted"
        log.fault(FeedFault.BAD_ROW, int(places[those[0]]), what, len(those), row=int(lines[those[0]]))
    chosen = np.flatnonzero(right)
    inner = commas[first[chosen][:, None] + np.arange(columns - 1)] if columns > 1 else np.empty((len(chosen), 0), int)
    starts = np.concatenate([begins[chosen][:, None], inner + 1], axis=1)
    stop = np.concatenate([inner, stops[chosen][:, None]], axis=1)
    bounds = starts.astype(np.int64), stop.astype(np.int64)
    return Cells(raw, *bounds, places[chosen].astype(np.int64), lines[chosen].astype(np.int64))


def _unquoted(whole: bytes, delimiter: bytes) -> tuple[bytes, bytes, Rows]:
    """The block with its cells out of their quotes, and where each line began."""
    lines = whole.split(b"\n")[:-1]
    sizes = np.array([len(line) + 1 for line in lines], np.int64)
    rows = []
    for line in lines:
        if b'"' in line:
            text = line.decode("latin-1").rstrip("\r")
            try:
                cells = next(csv.reader([text], delimiter=delimiter.decode("ascii"), strict=True), [])
            except csv.Error:
                cells = [text, "", ""] * 100  # No table is that wide: the row is bad.
            rows.append(_SAFE.join(cell.replace("\n", " ") for cell in cells).encode("latin-1"))
        else:
            rows.append(line.replace(delimiter, _SAFE.encode("ascii")))
    return b"\n".join(rows) + b"\n", _SAFE.encode("ascii"), np.cumsum(sizes) - sizes
