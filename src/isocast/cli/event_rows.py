"""Market events as rows of text: JSON lines and CSV in, JSON lines and columns out; raw records in.

A row has the names of an event's fields. A price is in units, "12.34"; kinds, sides and flags go by name or number;
a time is in nanoseconds since 1970 or ISO 8601. What a row leaves out is zero, and a time of zero means: now.
Whatever is wrong with a row is a `RowFault` that names its line and its column.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import reduce
from operator import or_

import numpy as np

from isocast.terms.errors import IsocastError, LocalProtocolError
from isocast.terms.instants import read_instant
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side, Symbol, from_ticks, to_ticks
from isocast.terms.quantities import suggestion
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events
from isocast.wire.limits import EVENT_BYTES

__all__ = ["FIELDS", "RowFault", "RowFormat", "RowReader", "fields_of", "guess_format", "read_header"]

FIELDS = ("kind", "side", "flags", "floor", "symbol", "price", "quantity", "reference", "time_ns", "id")
"""Of a row, in the order of an event's record."""

_IGNORED = frozenset(
    {
        "batch",
        "clock_bound_ns",
        "due_ns",
        "epoch",
        "instant_ns",
        "late_ns",
        "number",
        "received_ns",
        "release_ns",
        "released_ns",
        "sequence",
        "source",
        "stripe",
        "token",
    }
)
"""What `isocast listen` and `isocast journal cat` print beside an event: their output can be published again."""
_ALIASES = {"time": "time_ns", "qty": "quantity", "size": "quantity", "ref": "reference"}
_LINE_MAX = 65_536
_SHORT = {"b": Side.BUY, "s": Side.SELL, "": Side.NONE}


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


class _BadField(Exception):  # noqa: N818
    """Inside a row, before its line is known."""

    def __init__(self, column: str, rule: str) -> None:
        super().__init__(rule)
        self.column = column


# ---- one value


def _number(value: object, bits: int) -> int:
    """A whole number that is not negative."""
    text = str(value).strip()
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
        raise ValueError(f"{_shown(value)} is not a whole number from 0 on")
    if int(text) >> bits:
        raise ValueError(f"{text} does not fit {bits} bits")
    return int(text)


def _member(value: object, names: type[IntEnum]) -> int:
    """By name, as people write it, or by number."""
    text = str(value).strip()
    if text.isascii() and text.isdigit() and int(text) in names._value2member_map_:
        return int(text)
    name = text.upper().replace("-", "_").replace(" ", "_")
    if name in names.__members__:
        return int(names[name])
    known = [member.lower() for member in names.__members__]
    raise ValueError(f"{_shown(value)} is not one of {', '.join(known)}{suggestion(text.lower(), known)}")


def _side(value: object) -> int:
    short = _SHORT.get(str(value).strip().lower())
    return int(short) if short is not None else _member(value, Side)


def _flags(value: object) -> int:
    if isinstance(value, list):
        parts = value
    else:
        text = str(value).strip()
        if text.isascii() and text.isdigit():
            if int(text) & ~sum(EventFlag):
                raise ValueError(f"{text} has bits that no flag has")
            return int(text)
        parts = text.replace("|", " ").replace(",", " ").split()
    known = {flag.name.lower(): flag for flag in EventFlag if flag.name}
    for part in parts:
        if str(part).lower() not in known:
            raise ValueError(f"{_shown(part)} is not one of {', '.join(known)}{suggestion(str(part), known)}")
    return int(reduce(or_, [known[str(part).lower()] for part in parts], EventFlag(0)))


def _price(value: object) -> int:
    if isinstance(value, Decimal | int | str) and not isinstance(value, bool):
        return to_ticks(value.strip() if isinstance(value, str) else value)
    raise ValueError(f"{_shown(value)} is not a price")


def _time(value: object) -> int:
    text = str(value).strip()
    if text.isascii() and text.isdigit():
        return _number(text, 63)
    try:
        instant = read_instant(text)
    except ValueError:
        raise ValueError(f"{_shown(value)} is neither nanoseconds since 1970 nor ISO 8601") from None
    if instant < 0:
        raise ValueError(f"{text} is before 1970")
    return _number(instant, 63)


def _reference(value: object, kind: int) -> int:
    return _member(value, MarketStatus) if kind == EventKind.STATUS else _number(value, 32)


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}…"  # noqa: PLR2004 - as much as a line of error can bear


_PARSERS: Mapping[str, Callable[[object], object]] = {
    "side": _side,
    "flags": _flags,
    "symbol": lambda value: Symbol(str(value).strip()),
    "price": _price,
    "quantity": lambda value: _number(value, 32),
    "time_ns": _time,
    "id": lambda value: _number(value, 64),
}


def read_row(row: Mapping[str, object]) -> tuple[object, ...]:
    """The values of an event's record, in its order; `row` has only the names of FIELDS."""
    kind = _value(row, "kind", lambda value: _member(value, EventKind), required=True)
    floor = _value(row, "floor", lambda value: Mic(str(value).strip()), required=True)
    found = {name: _value(row, name, parse) for name, parse in _PARSERS.items()}
    reference = _value(row, "reference", lambda value: _reference(value, int(str(kind))))
    symbol = found["symbol"] or ""
    return (
        kind,
        found["side"],
        found["flags"],
        floor,
        symbol,
        found["price"],
        found["quantity"],
        reference,
        found["time_ns"],
        found["id"],
    )


def _value(
    row: Mapping[str, object], name: str, parse: Callable[[object], object], *, required: bool = False
) -> object:
    value = row.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        if required:
            raise _BadField(name, "must be given")
        return 0
    try:
        return parse(value)
    except (ValueError, LocalProtocolError) as reason:
        raise _BadField(name, str(reason)) from reason


def _column(name: str) -> str:
    """The field that a column is, or "" for one of those that our own output has beside them."""
    plain = name.strip().lower()
    plain = _ALIASES.get(plain, plain)
    if plain in FIELDS:
        return plain
    if plain in _IGNORED:
        return ""
    raise _BadField(name, f"unknown column{suggestion(plain, FIELDS)}; an event has {', '.join(FIELDS)}")


# ---- many rows


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
        columns = [_column(name) for name in names]
    except csv.Error as reason:
        raise RowFault(1, "", f"not CSV: {reason}") from reason
    except _BadField as wrong:
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

    def __init__(self, form: RowFormat) -> None:
        """Nothing was read yet."""
        self.line = 0
        """The number of the last line, or record, that was read."""
        self._form = form
        self._rest = b""
        self._columns: list[str] = []

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
            return None if named is None else read_row(named)
        except _BadField as wrong:
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
        return {column: value for name, value in row.items() if (column := _column(name))}

    def _csv(self, text: str) -> Mapping[str, object] | None:
        if not self._columns:
            if self.line != 1:
                raise RowFault(1, "", "the first line must name the columns")
            self._columns = read_header(text)
            return None
        try:
            cells = next(csv.reader([text], strict=True), [])
        except csv.Error as reason:
            raise RowFault(self.line, "", f"not CSV: {reason}") from reason
        if len(cells) != len(self._columns):
            raise RowFault(self.line, "", f"{len(cells)} cells under {len(self._columns)} columns")
        return {column: cell for column, cell in zip(self._columns, cells, strict=True) if column}


# ---- out


def fields_of(event: tuple[int, int, int, bytes, bytes, int, int, int, int, int]) -> dict[str, object]:
    """One event of `events.tolist()` by the names of FIELDS, as programs read it."""
    kind, side, flags, floor, symbol, price, quantity, reference, time, number = event
    status = kind == EventKind.STATUS and reference in MarketStatus._value2member_map_
    return {
        "kind": EventKind(kind).name.lower(),
        "side": Side(side).name.lower(),
        "flags": [flag.name.lower() for flag in EventFlag if flags & flag and flag.name],
        "floor": floor.decode("ascii"),
        "symbol": symbol.decode("ascii"),
        "price": str(from_ticks(price)),
        "quantity": quantity,
        "reference": MarketStatus(reference).name.lower() if status else reference,
        "time_ns": time,
        "id": number,
    }
