"""Market events as rows and columns that people write: dicts, dataclasses, pandas, polars, Arrow and numpy; and back.

A row has the names of an event's fields. Kinds, sides and flags go by name or number, a price is in units ("12.34",
`Decimal`, or a float that is a whole number of ticks), a time is ISO 8601, a `datetime` or nanoseconds since 1970.
What a row leaves out is zero, and a time of zero means: now. In a column of prices or quantities a trade may not be
empty. Every form is read as columns by the same rules, so equal data gives equal records. A `RowError` names the row
and the column, and nothing is returned then.

None of the libraries is imported here: whoever hands over a table has imported its library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import IntEnum
from functools import reduce
from math import isfinite, isnan
from operator import or_
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.runtime.client.arrow import import_pyarrow
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError, RowError
from isocast.terms.instants import read_instant
from isocast.terms.instruments import PLAIN, Scale, scale_of, to_whole
from isocast.terms.market import (
    MAX_TICKS,
    PRICE_DECIMALS,
    SYMBOL_BYTES,
    TICKS_PER_UNIT,
    EventFlag,
    EventKind,
    MarketStatus,
    Mic,
    Side,
    Symbol,
    from_ticks,
    to_ticks,
)
from isocast.terms.quantities import suggestion
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events, events_view
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.names import InstrumentNames, are_coded

__all__ = [
    "FIELDS",
    "BadFieldError",
    "NameField",
    "Resolve",
    "Rows",
    "events_of",
    "field_of",
    "fields_of",
    "flag_names",
    "insist_on_nanoseconds",
    "is_missing",
    "read_row",
    "read_time",
    "table_of",
]

Rows: TypeAlias = Any
"""Dicts or dataclasses, one or many; a frame of pandas or polars; an Arrow table or batch; a structured numpy array."""

FIELDS = ("kind", "side", "flags", "floor", "symbol", "price", "quantity", "reference", "time_ns", "id")
"""Of a row, in the order of an event's record."""

_IGNORED = frozenset(
    {
        "batch",
        "clock_bound_ns",
        "due_ns",
        "epoch",
        "instant",
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
"""What batches, `isocast listen` and `isocast journal cat` have beside an event: it can be published again."""
_ALIASES = {"time": "time_ns", "qty": "quantity", "size": "quantity", "ref": "reference"}
_SHORT = {"b": Side.BUY, "s": Side.SELL, "": Side.NONE}
_FLAGS = {flag.name.lower(): int(flag) for flag in EventFlag if flag.name}
_KIND_NAMES = {int(kind): kind.name.lower() for kind in EventKind}
_SIDE_NAMES = {int(side): side.name.lower() for side in Side}
_STATUS_NAMES = {int(status): status.name.lower() for status in MarketStatus}
_STATUS = int(EventKind.STATUS)
_SHOWN_MAX = 40
"""Characters of a wrong value: as much as a line of error can bear."""
_EXACT_MAX = 1 << 53
"""From here on a float does not tell whole numbers apart."""
_TIME_BITS = 63
_COARSE_TIMES = range(10**9, 10**17)
"""Numbers that are seconds, milliseconds or microseconds since 1970 of our days; as nanoseconds, times before 1974."""
_BITS = {"quantity": 32, "reference": 32, "id": 64, "time_ns": _TIME_BITS}


_Parser: TypeAlias = Callable[[object], Any]

NameField: TypeAlias = Callable[[object], str]
"""The field that a column is by its name; "" for one to leave alone; BadFieldError for an unknown one."""


class BadFieldError(Exception):
    """A value that its field cannot have, before it is known in which row it stands."""

    def __init__(self, column: str, rule: str) -> None:
        """`column` is as the user wrote it."""
        super().__init__(rule)
        self.column = column


# ---- one value


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii", "replace").strip()
    return str(value).strip()


def _number(value: object, bits: int = 32) -> int:
    """A whole number that is not negative."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_MAX:
        value = int(value)  # As pandas has whole numbers in a column with gaps.
    elif isinstance(value, Decimal) and value.is_finite() and abs(value) < 1 << 64 and value == int(value):
        value = int(value)  # As Arrow has them beside fractions.
    text = _text(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
        raise ValueError(f"{_shown(value)} is not a whole number from 0 on")
    if int(text) >> bits:
        raise ValueError(f"{text} does not fit {bits} bits")
    return int(text)


def _member(value: object, names: type[IntEnum]) -> int:
    """By name, as people write it, or by number."""
    text = _text(value)
    if text.isascii() and text.isdigit() and int(text) in names._value2member_map_:
        return int(text)
    name = text.upper().replace("-", "_").replace(" ", "_")
    if name in names.__members__:
        return int(names[name])
    known = [member.lower() for member in names.__members__]
    raise ValueError(f"{_shown(value)} is not one of {', '.join(known)}{suggestion(text.lower(), known)}")


def _kind(value: object) -> int:
    return _member(value, EventKind)


def _side(value: object) -> int:
    short = _SHORT.get(_text(value).lower())
    return int(short) if short is not None else _member(value, Side)


def _flags(value: object) -> int:
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        parts = list(value)
    else:
        text = _text(value)
        if text.isascii() and text.isdigit():
            if int(text) & ~sum(EventFlag):
                raise ValueError(f"{text} has bits that no flag has")
            return int(text)
        parts = text.replace("|", " ").replace(",", " ").split()
    words = [str(part).lower() for part in parts]
    for word in words:
        if word not in _FLAGS:
            raise ValueError(f"{_shown(word)} is not one of {', '.join(_FLAGS)}{suggestion(word, _FLAGS)}")
    return reduce(or_, [_FLAGS[word] for word in words], 0)


def _price(value: object) -> int:
    if isinstance(value, float):
        return _float_ticks(value)
    if isinstance(value, Decimal | int | str) and not isinstance(value, bool):
        return to_ticks(value.strip() if isinstance(value, str) else value)
    raise ValueError(f"{_shown(value)} is not a price")


def _float_ticks(value: float) -> int:
    """Ticks of a float that is the nearest to a price; one that only lies near it was computed, and is not guessed."""
    ticks = round(value * TICKS_PER_UNIT) if isfinite(value) else _EXACT_MAX
    if abs(ticks) >= _EXACT_MAX:
        raise ValueError(f"{value!r} is not exact as a float: give a Decimal")
    if ticks / TICKS_PER_UNIT != value:
        tick = from_ticks(1)
        rule = f"is not a whole number of ticks of {tick}: give a Decimal, or round it to {PRICE_DECIMALS} places"
        raise ValueError(f"{value!r} {rule}")
    return ticks


def _by_scale(name: str, scale: Scale) -> _Parser:
    """How a price or quantity of an instrument with a scale of its own is read."""
    decimals, most = (scale.price, MAX_TICKS) if name == "price" else (scale.quantity, _QUANTITY_MAX)

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, Decimal | int | str | float):
            raise ValueError(f"{_shown(value)} is not a number")  # noqa: TRY004 - as every parser here does
        # The shortest digits that mean a float are those that somebody wrote.
        given = repr(value) if isinstance(value, float) else value.strip() if isinstance(value, str) else value
        whole = to_whole(given, decimals, most)
        if whole < 0 and name == "quantity":
            raise ValueError(f"{given} is negative")
        return whole

    return read


def read_time(value: object) -> int:
    """Nanoseconds since 1970 of a time as people write it; ValueError if it is none."""
    if isinstance(value, np.datetime64):
        fine = value.astype("datetime64[ns]")
        if fine.astype(value.dtype) != value:  # numpy wraps around 64 bits, and cuts off what is finer.
            raise ValueError(f"{value} does not fit nanoseconds since 1970 in {_TIME_BITS} bits")
        return _number(int(fine.astype(np.int64)), _TIME_BITS)
    # A timestamp of pandas is a datetime that knows nanoseconds, and writes them.
    text = value.isoformat() if isinstance(value, datetime | date) else _text(value)
    if text.isascii() and text.isdigit():
        return _number(text, _TIME_BITS)
    try:
        instant = read_instant(text)
    except ValueError:
        raise ValueError(f"{_shown(value)} is neither nanoseconds since 1970 nor ISO 8601") from None
    if instant < 0:
        raise ValueError(f"{text} is before 1970")
    return _number(instant, _TIME_BITS)


def insist_on_nanoseconds(name: object, value: object) -> None:
    """Refuse a number of seconds, milliseconds or microseconds in a column `time`; ValueError says what to do.

    `time_ns` says its unit: there any number is taken for what it is called.
    """
    if str(name).strip().lower() != "time" or isinstance(value, datetime | date | np.datetime64):
        return
    text = _text(int(value) if isinstance(value, float) and value.is_integer() else value)
    if text.isascii() and text.isdigit() and int(text) in _COARSE_TIMES:
        moment = np.datetime64(int(text), "ns").astype("datetime64[ms]")
        rule = f"{text} ns since 1970 is {moment}: give a datetime or ISO 8601, or nanoseconds in a column time_ns"
        raise ValueError(rule)


def _reference(value: object, kind: int) -> int:
    return _member(value, MarketStatus) if kind == EventKind.STATUS else _number(value)


_PARSERS: Mapping[str, _Parser] = {
    "kind": _kind,
    "side": _side,
    "flags": _flags,
    "floor": lambda value: Mic(_text(value)),
    "symbol": lambda value: Symbol(_text(value)),
    "price": _price,
    "quantity": _number,
    "time_ns": read_time,
    "id": lambda value: _number(value, 64),
}
"""All but a reference, whose meaning its kind decides."""
_SCALED = ("price", "quantity")
_QUANTITY_MAX = (1 << 32) - 1
_REQUIRED = ("kind", "floor")
_NO_GAP = {
    "symbol": "is empty in a trade: name what was traded",
    **dict.fromkeys(_SCALED, "is empty in a trade: give it a number, 0 if it is none"),
}
"""A gap in a table of trades would be trades of nothing, or for nothing, in everybody's sequence for ever."""


def is_missing(value: object) -> bool:
    """Whether nothing is said: None, an empty text, and what pandas and numpy put into a gap."""
    if value is None:
        return True
    if isinstance(value, str | bytes):
        return not value.strip()
    if isinstance(value, float):
        return isnan(value)
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return type(value).__name__ in {"NAType", "NaTType"}


def _parsed(name: str, value: object, parse: _Parser) -> Any:  # noqa: ANN401 - a number or a text, as the field has it
    try:
        return parse(value)
    except (ValueError, LocalProtocolError) as reason:
        raise BadFieldError(name, str(reason)) from reason


Resolve: TypeAlias = Callable[[str, str], str | None]
"""The symbol of an instrument by its floor and its full name; None if there is none."""


def read_row(row: Mapping[str, object], resolve: Resolve | None = None) -> tuple[object, ...]:
    """The values of an event's record, in its order; `row` has only the names of FIELDS. BadFieldError if it cannot.

    `resolve` is asked for the symbol of what is too long to be one.
    """
    found: dict[str, object] = {}
    scale = PLAIN
    for name in FIELDS:
        value = row.get(name)
        if is_missing(value):
            if name in _REQUIRED:
                raise BadFieldError(name, "must be given")
            if name in row and _is_gap(name, value) and found["kind"] == EventKind.TRADE:
                raise BadFieldError(name, _NO_GAP[name])
            found[name] = "" if name == "symbol" else 0
        elif name == "reference":
            kind = int(str(found["kind"]))
            found[name] = _parsed(name, value, lambda given: _reference(given, kind))  # noqa: B023 - called at once
        elif name in _SCALED and scale != PLAIN:
            found[name] = _parsed(name, value, _by_scale(name, scale))
        else:
            code = (
                resolve(str(found["floor"]), _text(value)) if name == "symbol" and resolve and _is_long(value) else None
            )
            found[name] = code or _parsed(name, value, _PARSERS[name])
            scale = scale_of(str(found[name])) if name == "symbol" else scale
    return tuple(found.values())


def _is_gap(name: str, missing: object) -> bool:
    """Whether a trade must not go without; a symbol may be an empty text, as batches of events without one give it."""
    return name in _SCALED or (name == "symbol" and missing != "")


def _is_long(value: object) -> bool:
    """Whether a symbol can only be the full name of an instrument."""
    text = _text(value)
    return len(text) > SYMBOL_BYTES or not text.isascii()


def field_of(name: object) -> str:
    """The field that a column is, or "" for one of those that our own output has beside them."""
    plain = str(name).strip().lower()
    plain = _ALIASES.get(plain, plain)
    if plain in FIELDS:
        return plain
    if plain in _IGNORED:
        return ""
    raise BadFieldError(str(name), f"unknown column{suggestion(plain, FIELDS)}; an event has {', '.join(FIELDS)}")


# ---- columns


@dataclass(frozen=True, slots=True)
class _Coded:
    """A column with few distinct values, as categories of pandas and dictionaries of Arrow are."""

    codes: npt.NDArray[np.integer[Any]]
    """The place of each row's value; negative: nothing is said."""
    values: Sequence[object]


@dataclass(frozen=True, slots=True)
class _Ticks:
    """Decimals that are whole numbers of ticks."""

    values: npt.NDArray[np.int64]

    def tolist(self) -> list[object]:
        """As decimals again, for a column that is no price."""
        return [from_ticks(ticks) for ticks in self.values.tolist()]


_Column: TypeAlias = "npt.NDArray[Any] | Sequence[object] | _Coded | _Ticks"


class _BadRowError(Exception):
    """A value of a column that its field cannot have: which, and why."""

    def __init__(self, row: int, rule: str) -> None:
        super().__init__(rule)
        self.row = row


def events_of(
    rows: Rows,
    *,
    kind: str | None = None,
    floor: str | None = None,
    symbol: str | None = None,
    names: InstrumentNames | None = None,
) -> EventArray:
    """The records of rows in any form; `kind`, `floor` and `symbol` are for rows that do not say.

    `names` are the instruments that rows may call by their full names. A price and a quantity have the scale of the
    instrument.

    RowError names the first row that is no event, and its column. An array of EVENT_DTYPE is taken as it is, with its
    prices in ticks: these are the records as they travel.
    """
    if isinstance(rows, np.ndarray) and rows.dtype == EVENT_DTYPE and not isinstance(rows, np.ma.MaskedArray):
        return _checked(np.ascontiguousarray(rows.reshape(-1)))
    count, columns = _columns(rows)
    events = np.zeros(count, EVENT_DTYPE)
    faults = list(_ticks_for_units(columns))
    defaults = {"kind": kind, "floor": floor, "symbol": symbol}
    for name in FIELDS:
        written, column = columns.get(name, (name, None))
        if name == "reference" and any(fault.column == columns.get("kind", ("kind",))[0] for fault in faults):
            continue  # What it means nobody knows.
        try:
            values: npt.NDArray[Any] | int | str
            if name == "symbol" and names:
                values = _symbols(column, symbol, events["floor"], names)
            elif name in _SCALED and are_coded(events["symbol"]).any():
                values = _scaled_values(name, column, events["symbol"])
            else:
                values = _read(name, column, defaults.get(name), count, events["kind"])
        except _BadRowError as wrong:
            faults.append(RowError(wrong.row, str(written), str(wrong)))
        else:
            events["time" if name == "time_ns" else name] = values
    if not faults:
        faults = [*_gaps(events, columns), *_coarse_times(events, columns)]
    if faults:
        raise min(faults, key=lambda fault: fault.row)
    return events


def _gaps(events: EventArray, columns: Mapping[str, tuple[object, _Column]]) -> Iterator[RowError]:
    """The first trade whose symbol, price or quantity is empty in a column of that name."""
    for name, rule in _NO_GAP.items():
        nothing = b"" if name == "symbol" else 0
        doubtful = np.flatnonzero((events["kind"] == EventKind.TRADE) & (events[name] == nothing)).tolist()
        if doubtful and name in columns:
            written, column = columns[name]
            values = _listed(column, len(events))
            row = next((row for row in doubtful if is_missing(values[row]) and _is_gap(name, values[row])), None)
            if row is not None:
                yield RowError(row, str(written), rule)


def _ticks_for_units(columns: Mapping[str, tuple[object, _Column]]) -> Iterator[RowError]:
    """A fault of a table that is records, or a file of a feed: taken for units, its prices would be 10^4 as high."""
    if {"kind", "price"} <= columns.keys():
        written, prices = columns["price"]
        if all(isinstance(column, np.ndarray) and column.dtype.kind in "iu" for column in (columns["kind"][1], prices)):
            rule = f"whole numbers, beside kinds by number, are ticks of {from_ticks(1)}: give units"
            yield RowError(0, str(written), f"{rule}, which are price / {TICKS_PER_UNIT}")


def _coarse_times(events: EventArray, columns: Mapping[str, tuple[object, _Column]]) -> Iterator[RowError]:
    """The first row whose time is a number of another unit."""
    written, column = columns.get("time_ns", ("", None))
    times = events["time"]
    doubtful = np.flatnonzero((times >= _COARSE_TIMES.start) & (times < _COARSE_TIMES.stop))
    if len(doubtful):
        values = _listed(column, len(events))
        row = int(doubtful[0])
        is_moment = isinstance(column, np.ndarray) and column.dtype.kind == "M"
        try:
            insist_on_nanoseconds("" if is_moment else written, values[row])
        except ValueError as wrong:
            yield RowError(row, str(written), str(wrong))


def _symbols(
    column: _Column | None, default: str | None, floors: npt.NDArray[np.bytes_], names: InstrumentNames
) -> npt.NDArray[Any]:
    """Symbols, or full names of instruments of their floors."""
    known: dict[tuple[bytes, object], str] = {}
    found = []
    values = _listed(column, len(floors))
    for row, (floor, value) in enumerate(zip(floors.tolist(), values, strict=True)):
        given = default if is_missing(value) else value
        if (floor, given) not in known:
            name = "" if given is None else _text(given)
            code = names.symbol_of(floor.decode("ascii"), name)
            known[floor, given] = _one(row, name, _PARSERS["symbol"], "") if code is None else code
        found.append(known[floor, given])
    return np.array(found, "S8")


def _scaled_values(name: str, column: _Column | None, symbols: npt.NDArray[np.bytes_]) -> npt.NDArray[Any]:
    """Prices or quantities, each by the scale of its symbol."""
    parsers: dict[bytes, _Parser] = {}
    found = []
    for row, (symbol, value) in enumerate(zip(symbols.tolist(), _listed(column, len(symbols)), strict=True)):
        if symbol not in parsers:
            scale = scale_of(symbol.decode("ascii"))
            parsers[symbol] = _PARSERS[name] if scale == PLAIN else _by_scale(name, scale)
        found.append(_one(row, value, parsers[symbol], 0))
    return np.array(found, np.int64)


def _listed(column: _Column | None, count: int) -> Sequence[object]:
    """The values of a column one by one."""
    if column is None:
        return [None] * count
    if isinstance(column, _Coded):
        return [None if code < 0 else column.values[code] for code in column.codes.tolist()]
    return column.tolist() if isinstance(column, np.ndarray | _Ticks) else column


def _checked(events: EventArray) -> EventArray:
    """Records that somebody made; RowError for the first that no reader would accept."""
    raw = events.tobytes()
    if not are_events(raw):
        for row in range(len(events)):
            try:
                events_view(raw[row * EVENT_BYTES : (row + 1) * EVENT_BYTES])
            except RemoteProtocolError as reason:
                column = next((name for name in FIELDS if name in str(reason)), "")
                raise RowError(row, column, str(reason)) from reason
    return events


def _read(
    name: str, column: _Column | None, default: object, count: int, kinds: npt.NDArray[Any]
) -> npt.NDArray[Any] | int | str:
    """A field's values; _BadRowError for the first that is wrong."""
    parse = _PARSERS.get(name, _number)
    absent: Any = "" if name == "symbol" else 0
    if default is not None:
        try:
            absent = parse(default)
        except (ValueError, LocalProtocolError) as reason:
            raise _BadRowError(0, str(reason)) from reason
    is_needed = name in _REQUIRED and default is None
    if column is None:
        if is_needed and count:
            raise _BadRowError(0, "must be given")
        return absent  # type: ignore[no-any-return]
    if isinstance(column, _Coded) and name == "reference":
        column = _listed(column, count)
    if isinstance(column, _Coded):
        return _coded(column, parse, None if is_needed else absent)
    if isinstance(column, _Ticks):
        if name == "price":
            return column.values
        column = column.tolist()
    array = _as_array(name, column)
    if array is not None and name == "reference" and (kinds == EventKind.STATUS).any():
        array = None
    if array is not None:
        return _vector(name, array)
    values = column.tolist() if isinstance(column, np.ndarray) else column
    if name == "reference":
        return np.array([_one(row, value, _by_kind(kinds[row]), 0) for row, value in enumerate(values)], np.int64)
    return _each(values, parse, None if is_needed else absent)


def _by_kind(kind: int) -> _Parser:
    return lambda value: _reference(value, kind)


def _one(row: int, value: object, parse: _Parser, absent: object) -> Any:  # noqa: ANN401
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
        value = value.item()
    if is_missing(value):
        if absent is None:
            raise _BadRowError(row, "must be given")
        return absent
    try:
        return parse(value)
    except (ValueError, LocalProtocolError) as reason:
        raise _BadRowError(row, str(reason)) from reason


def _each(values: Sequence[object], parse: _Parser, absent: object) -> npt.NDArray[Any]:
    """Value by value; texts that occur again are read once."""
    known: dict[str, Any] = {}
    found = []
    for row, value in enumerate(values):
        if type(value) is str:
            if value not in known:
                known[value] = _one(row, value, parse, absent)
            found.append(known[value])
        else:
            found.append(_one(row, value, parse, absent))
    is_text = bool(found) and isinstance(found[0], str)
    if is_text:
        return np.array(found, "S8")
    largest = max(found, default=0)
    return np.array(found, np.uint64 if largest > MAX_TICKS else np.int64)


def _coded(column: _Coded, parse: _Parser, absent: object) -> npt.NDArray[Any]:
    """Each distinct value is read once."""
    used = np.unique(column.codes).tolist()
    known: dict[int, Any] = {}
    faults: list[_BadRowError] = []
    for code in used:
        row = int(np.argmax(column.codes == code))
        try:
            known[code] = _one(row, None if code < 0 else column.values[code], parse, absent)
        except _BadRowError as wrong:
            faults.append(wrong)
    if faults:
        raise min(faults, key=lambda wrong: wrong.row)
    found = [known[code] for code in used]
    numbers = np.uint64 if max((one for one in found if isinstance(one, int)), default=0) > MAX_TICKS else np.int64
    table = np.array(found, "S8" if found and isinstance(found[0], str) else numbers)
    return table[np.searchsorted(used, column.codes)]


# ---- whole columns at once. What is wrong is found here, and said by the parser of one value.


def _as_array(name: str, column: npt.NDArray[Any] | Sequence[object]) -> npt.NDArray[Any] | None:
    """Numbers and times that can be read at once; None for what must be looked at one by one."""
    if name not in _BITS and name != "price":
        return None
    if not isinstance(column, np.ndarray):
        types = set(map(type, column))
        if types not in ({int}, {float}):
            return None
        try:
            column = np.array(column, np.float64 if types == {float} else np.int64)
        except OverflowError:
            return None
    if column.dtype.kind in "iuf" or (name == "time_ns" and column.dtype.kind == "M"):
        return column
    return None


def _vector(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if values.dtype.kind == "M":
        found, bad = _times(values)
    elif name == "price":
        found, bad = _ticks(values)
    else:
        found, bad = _whole_numbers(values, _BITS[name])
    if bad.any():
        row = int(bad.argmax())
        value = values[row] if values.dtype.kind == "M" else values[row].item()
        if values.dtype == np.float32 and name == "price" and isfinite(value):
            rule = "is a float of 32 bits, which holds some 7 digits: make the column float64 and round it"
            raise _BadRowError(row, f"{values[row]!s} {rule} to {PRICE_DECIMALS} places")
        _one(row, value, _PARSERS.get(name, _number), 0)
        raise _BadRowError(row, f"{value} does not fit")
    return found


def _times(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    fine = values.astype("datetime64[ns]")
    is_there = ~np.isnat(values)
    found = np.where(is_there, fine.astype(np.int64), 0)
    return found, is_there & ((found < 0) | (fine.astype(values.dtype) != values))


def _ticks(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    if values.dtype.kind == "f":
        units = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        ticks = np.rint(units * TICKS_PER_UNIT)
        bad = ~(np.abs(ticks) < _EXACT_MAX)
        ticks[bad] = 0
        return ticks.astype(np.int64), bad | (ticks / TICKS_PER_UNIT != units)
    most = MAX_TICKS // TICKS_PER_UNIT
    bad = (values > most) | (values < -most) if values.dtype.kind == "i" else values > most
    return np.where(bad, 0, values).astype(np.int64) * TICKS_PER_UNIT, bad


def _whole_numbers(values: npt.NDArray[Any], bits: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    if values.dtype.kind == "f":
        values = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        bad = ~((values >= 0) & (values < min(1 << bits, _EXACT_MAX)) & (np.rint(values) == values))
    else:
        largest = np.iinfo(values.dtype).max
        bad = (values < 0) | (values > min((1 << bits) - 1, largest))
    return np.where(bad, 0, values).astype(np.uint64), bad


# ---- forms


def table_of(rows: Rows, name_field: NameField) -> tuple[int, dict[str, tuple[str, Sequence[object]]]]:
    """How many rows a table of any form has, and by field the name of its column and its values, one by one.

    For tables of other things than market events: `name_field` says which field a column is, as `field_of` does.
    """
    count, columns = _columns(rows, name_field)
    return count, {field: (str(name), _listed(column, count)) for field, (name, column) in columns.items()}


def _columns(rows: Rows, name_field: NameField = field_of) -> tuple[int, dict[str, tuple[object, _Column]]]:
    """How many rows there are, and by field what its column is called and has."""
    library = type(rows).__module__.partition(".")[0]
    if library == "pandas":
        return _named(*_of_pandas(rows, name_field), name_field)
    if library == "polars":
        return _named(*_of_polars(rows), name_field)
    if library == "pyarrow":
        return _named(*_of_arrow(rows), name_field)
    if hasattr(rows, "__arrow_c_stream__"):
        return _named(*_of_arrow(import_pyarrow().table(rows)), name_field)
    if isinstance(rows, np.ndarray):
        if rows.dtype.names is None:
            rule = f"an array of {rows.dtype} has no columns: give a structured array, such as one of EVENT_DTYPE"
            raise RowError(0, "", rule)
        if isinstance(rows, np.ma.MaskedArray):
            raise RowError(0, "", "a masked array has rows without values: give filled() or compressed() of it")
        flat = rows.reshape(-1)
        for name in rows.dtype.names:
            if flat[name].ndim != 1:
                raise RowError(0, name, f"has {flat[name].shape[1:]} values in each row: give one")
        return _named(len(flat), [(name, flat[name]) for name in rows.dtype.names], name_field)
    if isinstance(rows, Mapping) and rows and all(map(_is_column, rows.values())):
        raise RowError(0, "", "a dict of columns is not a row: give pandas.DataFrame or pyarrow.table of it")
    if isinstance(rows, Mapping) or (is_dataclass(rows) and not isinstance(rows, type)):
        rows = [rows]
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        forms = "dicts, dataclasses, a pandas or polars frame, an Arrow table or a structured numpy array"
        files = "; `replay` publishes files of feeds, `isocast publish` any" if isinstance(rows, str) else ""
        raise RowError(0, "", f"{type(rows).__name__} is not a table of rows: give {forms}{files}")
    return _of_mappings([_mapping(row, value) for row, value in enumerate(rows)], name_field)


def _is_column(value: object) -> bool:
    return isinstance(value, list | tuple | np.ndarray) or hasattr(value, "__arrow_c_stream__")


def _named(
    count: int, columns: Iterable[tuple[object, _Column]], name_field: NameField
) -> tuple[int, dict[str, tuple[object, _Column]]]:
    """The columns of a table by field."""
    found: dict[str, tuple[object, _Column]] = {}
    for name, column in columns:
        try:
            field = name_field(name)
        except BadFieldError as wrong:
            raise RowError(0, wrong.column, str(wrong)) from wrong
        if field in found:
            raise RowError(0, str(name), f"says the same as column {found[field][0]}: keep one of them")
        if field:
            found[field] = name, column
    return count, found


def _mapping(row: int, value: object) -> Mapping[object, object]:
    if isinstance(value, Mapping):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise RowError(row, "", f"{type(value).__name__} is no row: give a dict or a dataclass")


def _of_mappings(
    rows: Sequence[Mapping[object, object]], name_field: NameField
) -> tuple[int, dict[str, tuple[object, _Column]]]:
    """Rows that may each have other columns."""
    names: dict[object, str] = {}
    found: dict[str, tuple[object, list[object]]] = {}
    for row, values in enumerate(rows):
        for name, value in values.items():
            if name not in names:
                try:
                    names[name] = name_field(name)
                except BadFieldError as wrong:
                    raise RowError(row, wrong.column, str(wrong)) from wrong
            field = names[name]
            if not field:
                continue
            if field not in found:
                found[field] = name, [None] * len(rows)
            if found[field][1][row] is not None:
                raise RowError(row, str(name), f"says the same as {found[field][0]}: keep one of them")
            found[field][1][row] = value
    return len(rows), {field: (name, column) for field, (name, column) in found.items()}


_Named: TypeAlias = "tuple[int, list[tuple[object, _Column]]]"


def _of_pandas(frame: Any, name_field: NameField) -> _Named:  # noqa: ANN401 - known while running only
    if not hasattr(frame, "columns"):
        raise RowError(0, "", f"a {type(frame).__name__} of pandas is no table: give a DataFrame")
    found: list[tuple[object, _Column]] = []
    names = {str(name).strip().lower() for name in frame.columns}
    for level, name in enumerate(frame.index.names):
        values = frame.index.get_level_values(level)
        is_time = values.dtype.kind == "M" and name_field is field_of and not names & {"time", "time_ns"}
        if is_time or (isinstance(name, str) and name.lower() in {*FIELDS, *_ALIASES} and name.lower() not in names):
            found.append(("time" if is_time else name, _of_series(values.to_series())))  # Times often are the index.
    found += [(name, _of_series(frame.iloc[:, place])) for place, name in enumerate(frame.columns)]
    return len(frame), found


def _of_series(series: Any) -> _Column:  # noqa: ANN401 - a column of pandas
    if hasattr(series, "cat"):
        return _Coded(series.cat.codes.to_numpy(), series.cat.categories.tolist())
    if getattr(series.dtype, "tz", None) is not None:
        return np.asarray(series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iufM":
        return np.asarray(series.to_numpy())
    return list(series.astype(object).where(series.notna(), None).tolist())


def _of_polars(frame: Any) -> _Named:  # noqa: ANN401
    if hasattr(frame, "collect"):
        frame = frame.collect()  # It was lazy until now.
    if not hasattr(frame, "get_columns"):
        raise RowError(0, "", f"a {type(frame).__name__} of polars is no table: give a DataFrame")
    pa = import_pyarrow()  # Which polars needs for this, and would miss with less words.
    try:
        return _of_arrow(frame.to_arrow())
    except pa.ArrowInvalid as reason:
        raise RowError(0, "", f"this frame has a column that Arrow cannot carry: {reason}") from reason


def _of_arrow(table: Any) -> _Named:  # noqa: ANN401
    if not hasattr(table, "schema") or not hasattr(table, "num_rows"):
        raise RowError(0, "", f"a {type(table).__name__} of pyarrow is no table: give a Table or a RecordBatch")
    return table.num_rows, [(name, _plain(table.column(place))) for place, name in enumerate(table.schema.names)]


def _plain(column: Any) -> _Column:  # noqa: ANN401 - a column of Arrow
    """What a column has, for whoever does not know Arrow."""
    pa = import_pyarrow()
    kind = column.type
    whole = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) and column.num_chunks else column
    if len(column) and (pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        coded = whole if pa.types.is_dictionary(kind) else whole.dictionary_encode()
        places = coded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return _Coded(places, coded.dictionary.to_pylist())
    if pa.types.is_timestamp(kind):
        try:
            moments = whole.cast(pa.timestamp("ns", kind.tz)).cast(pa.int64()).fill_null(0)
        except pa.ArrowInvalid:  # One is before 1677 or after 2262: it is found by its value.
            return np.asarray(whole.cast(pa.timestamp(kind.unit)).to_numpy(zero_copy_only=False))
        return np.asarray(moments.to_numpy(zero_copy_only=False)).view("datetime64[ns]")
    if pa.types.is_decimal(kind) and len(column) and not column.null_count:
        return _of_decimals(pa, whole)
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and len(column) and not column.null_count:
        return np.asarray(whole.to_numpy(zero_copy_only=False))
    return list(column.to_pylist())


def _of_decimals(pa: Any, column: Any) -> _Column:  # noqa: ANN401
    """Decimals as ticks, if all of them are; one that is not is found by its value."""
    try:
        words = column.cast(pa.decimal128(38, PRICE_DECIMALS)).buffers()[1]
    except pa.ArrowInvalid:
        return list(column.to_pylist())
    low, high = np.frombuffer(words, np.int64).reshape(-1, 2)[: len(column)].T
    return _Ticks(low) if (high == low >> 63).all() else list(column.to_pylist())


# ---- out


def flag_names(flags: int) -> list[str]:
    """The flags of an event by name."""
    return [name for name, flag in _FLAGS.items() if flags & flag] if flags else []


def fields_of(
    event: tuple[int, int, int, bytes, bytes, int, int, int, int, int], names: InstrumentNames | None = None
) -> dict[str, object]:
    """One event of `events.tolist()` by the names of FIELDS, as programs read it; `names` are full names.

    Of an instrument with decimals of the quantity, that is text, as a price is.
    """
    kind, side, flags, floor, symbol, price, quantity, reference, time, number = event
    code = symbol.decode("ascii")
    scale = scale_of(code)
    units = scale.to_quantity(quantity)
    return {
        "kind": _KIND_NAMES[kind],
        "side": _SIDE_NAMES[side],
        "flags": flag_names(flags),
        "floor": floor.decode("ascii"),
        "symbol": code if names is None else names.name_of(floor.decode("ascii"), code),
        "price": f"{scale.to_price(price):f}",
        "quantity": units if isinstance(units, int) else f"{units:f}",
        "reference": _STATUS_NAMES.get(reference, reference) if kind == _STATUS else reference,
        "time_ns": time,
        "id": number,
    }
