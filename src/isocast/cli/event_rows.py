"""Market events as rows of text: JSON lines, CSV and raw records in; `runtime.client.rows` says what a row has.

Whatever is wrong with a row is a `RowFault` that names its line and its column.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum

import numpy as np

from isocast.runtime.client.rows import FIELDS, BadFieldError, Resolve, field_of, insist_on_nanoseconds, read_row
from isocast.terms.errors import IsocastError
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events
from isocast.wire.limits import EVENT_BYTES

__all__ = ["RowFault", "RowFormat", "RowReader", "guess_format", "read_header"]

_LINE_MAX = 65_536
_OTHER_MARKS = ";\t|"
"""What separates columns elsewhere."""


class RowFormat(StrEnum):
    """How events are written."""

    JSON = "json"
    """One object on each line."""
    CSV = "csv"
    """A header with the names of fields, then rows."""
    RAW = "raw"
    """Records of 48 bytes, as they travel."""


class RowFault(IsocastError):  # noqa: N818 - a fault of somebody's file, and the name that the code reads by
    """A row that is no event: where, and what is wrong with it."""

    def __init__(self, line: int, column: str, rule: str) -> None:
        """`line` is a record's number where there are no lines; no `column` where the whole row is wrong."""
        super().__init__(f"line {line}{f', {column}' if column else ''}: {rule}")
        self.line = line
        self.column = column
        self.rule = rule


def guess_format(start: bytes, name: str = "") -> RowFormat:
    """By how it begins, then by its name."""
    head = start.lstrip(b" \t\r\n\xef\xbb\xbf")
    if head[:1] in (b"{", b"["):
        return RowFormat.JSON
    if start[:1] and start[0] in bytes(EventKind) and not name.endswith((".csv", ".json", ".jsonl", ".ndjson")):
        return RowFormat.RAW
    if name.endswith((".json", ".jsonl", ".ndjson")):
        return RowFormat.JSON
    return RowFormat.CSV


def read_header(line: str) -> list[str]:
    """The columns of a CSV file by its first line; "" for those that are not read."""
    try:
        names = next(csv.reader([line], strict=True), [])
        other = next((mark for mark in _OTHER_MARKS if len(names) == 1 and mark in names[0]), None)
        if other is not None:
            raise RowFault(1, "", f"its columns are separated by {other!r}: separate them by commas")
        columns = [field_of(name) for name in names]
    except csv.Error as reason:
        raise RowFault(1, "", f"not CSV: {reason}") from reason
    except BadFieldError as wrong:
        raise RowFault(1, wrong.column, str(wrong)) from wrong
    for name in ("kind", "floor"):
        if name not in columns:
            rule = f"the header must name the columns, with {name}; an event has {', '.join(FIELDS)}"
            raise RowFault(1, "", rule)
    twice = [name for place, name in enumerate(columns) if name and name in columns[:place]]
    if twice:
        raise RowFault(1, twice[0], "occurs twice")
    return columns


class RowReader:
    """Turns a stream of bytes into events. What is left of a line or record waits for the next bytes."""

    def __init__(self, form: RowFormat, resolve: Resolve | None = None) -> None:
        """Nothing was read yet; `resolve` knows the symbols of full names."""
        self._resolve = resolve
        self.line = 0
        """The number of the last line, or record, that was read."""
        self._form = form
        self._rest = b""
        self._columns: list[str] = []
        self._time_column = ""
        """As the header of a CSV file writes it."""

    def events(self, content: bytes) -> Iterator[EventArray]:
        """The events of whole rows; before a RowFault, those of the rows in front of it."""
        whole = self._rest + content
        if self._form is RowFormat.RAW:
            cut = len(whole) - len(whole) % EVENT_BYTES
            self._rest = whole[cut:]
            yield from self._records(whole[:cut])
            return
        *lines, self._rest = whole.split(b"\n")
        yield from self._rows(lines)
        if len(self._rest) > _LINE_MAX:
            raise RowFault(self.line + 1, "", f"a line of more than {_LINE_MAX} bytes")

    def end(self) -> Iterator[EventArray]:
        """Nothing more comes: what is left is a last line without its end, or a fault."""
        rest, self._rest = self._rest, b""
        if not rest.strip() and self._form is not RowFormat.RAW:
            return
        if self._form is RowFormat.RAW:
            if rest:
                raise RowFault(self.line + 1, "", f"{len(rest)} bytes are left over: a record has {EVENT_BYTES}")
            return
        yield from self._rows([rest])

    def _records(self, raw: bytes) -> Iterator[EventArray]:
        if not are_events(raw):
            good = 0
            while are_events(raw[good : good + EVENT_BYTES]):
                good += EVENT_BYTES
            if good:
                yield np.frombuffer(raw[:good], EVENT_DTYPE)
            self.line += good // EVENT_BYTES
            raise RowFault(self.line + 1, "", "this record is no event: is the file really raw? See --format")
        self.line += len(raw) // EVENT_BYTES
        if raw:
            yield np.frombuffer(raw, EVENT_DTYPE)

    def _rows(self, lines: Sequence[bytes]) -> Iterator[EventArray]:
        rows: list[tuple[object, ...]] = []
        try:
            for line in lines:
                self.line += 1
                row = self._row(line)
                if row is not None:
                    rows.append(row)
        except RowFault:
            self.line -= 1
            if rows:
                yield np.array(rows, EVENT_DTYPE)
            raise
        if rows:
            yield np.array(rows, EVENT_DTYPE)

    def _row(self, raw: bytes) -> tuple[object, ...] | None:
        """The event of one line; None for an empty one, and for the header."""
        try:
            text = raw.decode("utf-8-sig" if self.line == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise RowFault(self.line, "", "is not UTF-8 text") from None
        if not text:
            return None
        try:
            named = self._json(text) if self._form is RowFormat.JSON else self._csv(text)
            return None if named is None else read_row(named, self._resolve)
        except BadFieldError as wrong:
            raise RowFault(self.line, wrong.column, str(wrong)) from wrong

    def _json(self, text: str) -> Mapping[str, object] | None:
        # A list with an object on each line, as `isocast journal cat --json` writes it, will do.
        text = text.lstrip("[,").removesuffix("]") if text[0] in "[,]" else text
        if not text:
            return None
        try:
            row = json.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError) as reason:
            raise RowFault(self.line, "", f"not JSON: {reason}") from reason
        if not isinstance(row, dict):
            raise RowFault(self.line, "", "expected one JSON object for each event")
        for name in row:
            if field_of(name) == "time_ns":
                _check_unit(name, row[name])
        return {column: value for name, value in row.items() if (column := field_of(name))}

    def _csv(self, text: str) -> Mapping[str, object] | None:
        if not self._columns:
            if self.line != 1:
                raise RowFault(1, "", "the first line must name the columns")
            self._columns = read_header(text)
            written = dict(zip(self._columns, next(csv.reader([text])), strict=True))
            self._time_column = written.get("time_ns", "")
            return None
        try:
            cells = next(csv.reader([text], strict=True), [])
        except csv.Error as reason:
            raise RowFault(self.line, "", f"not CSV: {reason}") from reason
        if len(cells) != len(self._columns):
            raise RowFault(self.line, "", f"{len(cells)} cells under {len(self._columns)} columns")
        row = {column: cell or None for column, cell in zip(self._columns, cells, strict=True) if column}
        if self._time_column:
            _check_unit(self._time_column, row["time_ns"])
        return row


def _check_unit(name: str, value: object) -> None:
    try:
        insist_on_nanoseconds(name, value)
    except ValueError as wrong:
        raise BadFieldError(name, str(wrong)) from wrong
