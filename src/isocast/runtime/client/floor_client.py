"""A trading floor as a function over tables of events: a matching engine for whoever has no market.

Rows have the fields of floor lines (docs/reference/floor-lines.md), with prices and quantities in units, as people
write them. Rows, frames and arrays are read by the same rules as market events: a `RowError` names the row and the
column, and nothing has been applied then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.floor import arrays
from isocast.floor.arrays import EVENT_DTYPE, ArrayKind
from isocast.floor.events import (
    Cancelled,
    Directory,
    Event,
    Expired,
    Forfeited,
    Indicative,
    Phase,
    Refused,
    Replaced,
    Report,
    Schedule,
    Status,
    Trade,
    Unsold,
    Wake,
)
from isocast.floor.fast import AS_IT_IS, FastFloor
from isocast.floor.lines import EVENT_FIELDS, read_event
from isocast.floor.machine import Floor as Machine
from isocast.floor.state import state_hash
from isocast.runtime.client.arrow import import_pandas, import_polars, import_pyarrow
from isocast.runtime.client.rows import BadFieldError, Rows, is_missing, read_time, table_of
from isocast.terms.errors import ConfigurationError, RemoteProtocolError, RowError
from isocast.terms.instruments import PLAIN, Scale, to_whole
from isocast.terms.quantities import counted, suggestion

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["Floor", "FloorBook", "FloorLevel", "FloorResult", "FloorTrade"]

_PRICES = frozenset({"price", "trigger", "ceiling", "reserve", "start", "step", "reference", "tick"})
_TIMES = frozenset({"deadline", "until", "T_close"})
_FLAGS = frozenset({"immediate", "all", "post_only", "day", "open"})
_PLAIN_FIELDS = frozenset(
    {"kind", "id", "account", "owner", "symbol", "side", "quantity", "price", "immediate", "token", "time_ns"}
)
"""A table with these columns only is of orders without conditions, cancels and replaces: it takes the short way."""
_FIELDS = {name.lower(): name for name in (*EVENT_FIELDS, "kind", "token", "time_ns")}
_ALIASES = {"qty": "quantity", "size": "quantity", "time": "time_ns", "closes_at": "t_close", "ioc": "immediate"}
_KINDS = {"order": ArrayKind.ORDER, "cancel": ArrayKind.CANCEL, "replace": ArrayKind.REPLACE}
_SIDES = {"buy": 1, "b": 1, "sell": 2, "s": 2, "1": 1, "2": 2}
_SIDE_NAMES = {1: "buy", 2: "sell"}
_BOOKS: dict[str, Callable[[], Machine]] = {"fast": FastFloor, "readable": Machine}
_TRUE, _FALSE = frozenset({"true", "1", "yes"}), frozenset({"false", "0", "no"})
_TEXTS = frozenset(
    {"kind", "symbol", "market", "price_rule", "own_rule", "share", "phase", "auction", "at", "hash", "nonce"}
)
_WHOLE_MAX = (1 << 63) - 1
_NO_PLACE = (1 << 32) - 1
"""No symbol has this place."""
_NOTHING: Final = object()
"""What stands for a value that may be left out."""
_EXACT_MAX = 1 << 53
"""From here on a float does not tell whole numbers apart."""


class FloorTrade(NamedTuple):
    """Two have traded."""

    number: int
    """From 1, over all symbols of the floor."""
    token: int
    symbol: str
    price: Decimal
    quantity: int | Decimal
    buy: int
    """Id of the order that buys."""
    sell: int
    is_own: bool
    """Both are one owner's."""
    is_auction: bool
    """At the uniform price of an auction."""


class FloorLevel(NamedTuple):
    """The orders of one price; icebergs with what they show."""

    price: Decimal | None
    """None: market orders."""
    quantity: int | Decimal
    orders: int


class FloorBook(NamedTuple):
    """A symbol's book, best prices first."""

    symbol: str
    phase: str
    reference: Decimal | None
    """The last trade; before the first, what the symbol was given."""
    buys: tuple[FloorLevel, ...]
    sells: tuple[FloorLevel, ...]


class _Told:
    """What came of a token: as an array, until somebody asks for objects."""

    def __init__(self, token: int, array: arrays.Reports | None, names: Sequence[str], reports: list[Report]) -> None:
        self.token = token
        self._array, self._names, self._reports = array, names, reports

    @property
    def reports(self) -> list[Report]:
        """What came of it, in order."""
        if self._array is not None:
            self._reports, self._array = arrays.as_reports(self._array, self._names), None
        return self._reports


class FloorResult:
    """What came of some events: trades, and what else there is to say, in order."""

    def __init__(self, told: Sequence[_Told], scales: Mapping[str, Scale]) -> None:
        self._told = told
        self._scales = scales

    def __repr__(self) -> str:
        other = counted(len(self.reports), "other report")
        return f"<{type(self).__name__} of {counted(len(self.trades), 'trade')}, {other}>"

    @property
    def trades(self) -> list[FloorTrade]:
        """The trades, prices in units."""
        return [
            FloorTrade(
                one.number,
                told.token,
                one.symbol,
                self._scales[one.symbol].to_price(one.price),
                self._scales[one.symbol].to_quantity(one.quantity),
                one.buy,
                one.sell,
                one.is_own,
                one.is_auction,
            )
            for told in self._told
            for one in told.reports
            if isinstance(one, Trade)
        ]

    @property
    def reports(self) -> list[dict[str, Any]]:
        """All other reports: refused (with its reason), cancelled, expired, replaced, unsold, forfeit, indicative.

        Quantities are the floor's whole numbers: in lots' smallest unit.
        """
        return [
            {"report": _NAMES[type(one)], "token": told.token, **one._asdict()}
            for told in self._told
            for one in told.reports
            if not isinstance(one, Trade)
        ]

    def raw_reports(self) -> Iterator[Report]:
        """Trades and all else as the floor's own tuples, in order; prices and quantities are its whole numbers."""
        for told in self._told:
            yield from told.reports

    def rows(self) -> list[dict[str, Any]]:
        """The trades as dicts."""
        return [trade._asdict() for trade in self.trades]

    def to_arrow(self) -> pa.Table:
        """The trades as an Arrow table; prices are decimals in units."""
        arrow = import_pyarrow()
        found = self.trades
        scales = [self._scales[symbol] for symbol in {one.symbol for one in found}] or [PLAIN]
        price, quantity = max(scale.price for scale in scales), max(scale.quantity for scale in scales)
        return arrow.table(
            {
                "number": arrow.array([one.number for one in found], arrow.uint64()),
                "token": arrow.array([one.token for one in found], arrow.uint64()),
                "symbol": arrow.array([one.symbol for one in found], arrow.string()).dictionary_encode(),
                "price": arrow.array([one.price for one in found], arrow.decimal128(38, price)),
                "quantity": arrow.array(
                    [one.quantity for one in found], arrow.decimal128(38, quantity) if quantity else arrow.int64()
                ),
                "buy": arrow.array([one.buy for one in found], arrow.uint64()),
                "sell": arrow.array([one.sell for one in found], arrow.uint64()),
                "is_own": arrow.array([one.is_own for one in found], arrow.bool_()),
                "is_auction": arrow.array([one.is_auction for one in found], arrow.bool_()),
            }
        )

    def to_pandas(self) -> pd.DataFrame:
        """The trades as a DataFrame of pandas; prices are floats in units, the nearest ones."""
        import_pandas()
        frame = self.to_arrow().to_pandas()
        frame["price"] = frame["price"].astype(float)
        return frame

    def to_polars(self) -> pl.DataFrame:
        """The trades as a DataFrame of polars; prices are decimals in units."""
        frame: pl.DataFrame = import_polars().from_arrow(self.to_arrow())
        return frame


_NAMES = {
    Refused: "refused",
    Cancelled: "cancelled",
    Expired: "expired",
    Replaced: "replaced",
    Unsold: "unsold",
    Forfeited: "forfeit",
    Indicative: "indicative",
}


class Floor:
    """A matching engine: price-time priority, auctions, stops, icebergs and the rest of the floor's rules, in memory.

    `symbols` gives each symbol its rules, by the names of a `directory` line: tick, lot, market (continuous, batch),
    price_rule (resting, buyer, seller, midpoint), own_rule, share, collar_bp, band_bp, pause_ns, reference, phase. Tick
    and lot also say how many decimals prices and quantities have. A symbol is open unless its phase says otherwise.

    >>> import isocast
    >>> floor = isocast.Floor(symbols={"ISO": {"tick": "0.01"}})
    >>> result = floor.apply([
    ...     {"kind": "order", "id": 1, "symbol": "ISO", "side": "sell", "quantity": 100, "price": "10.02"},
    ...     {"kind": "order", "id": 2, "symbol": "ISO", "side": "sell", "quantity": 50, "price": "10.03"},
    ...     {"kind": "order", "id": 3, "symbol": "ISO", "side": "buy", "quantity": 120, "price": "10.05"},
    ... ])
    >>> [(str(trade.price), trade.quantity, trade.buy, trade.sell) for trade in result.trades]
    [('10.0200', 100, 3, 1), ('10.0300', 20, 3, 2)]
    >>> floor.book("ISO").sells
    (FloorLevel(price=Decimal('10.0300'), quantity=30, orders=1),)
    >>> floor.apply({"kind": "cancel", "id": 9}).reports
    [{'report': 'refused', 'token': 3, 'id': 9, 'reason': <Refusal.UNKNOWN_ORDER: 'unknown order'>}]

    An account is needed only where somebody has more than one order: without one every order is its own account's.
    The same events give the same trades and the same `state_hash()` on every machine.
    """

    EVENTS: Final = EVENT_DTYPE
    """The fields of the events that `run` takes."""
    REPORTS: Final = arrays.REPORT_DTYPE
    """The fields of the reports that it gives."""
    KINDS: Final = tuple([_NAMES.get(kind, "trade") for kind in arrays.REPORT_KINDS])
    """What a report is, by its `kind`."""
    REASONS: Final = tuple(map(str, arrays.REASONS))
    """Why an event was refused, by the `reason` of a report."""

    def __init__(
        self, symbols: Mapping[str, Mapping[str, Any]] | Iterable[str] | str = (), *, book: str = "fast"
    ) -> None:
        """`book` is "fast", or "readable": the same rules in the order of the design, for comparison."""
        if book not in _BOOKS:
            raise ConfigurationError("isocast.Floor", "book", f'"{book}" is not one of {", ".join(_BOOKS)}')
        self._floor = _BOOKS[book]()
        self._scales: dict[str, Scale] = {}
        listed = [symbols] if isinstance(symbols, str) else symbols
        given = listed if isinstance(listed, Mapping) else {symbol: {} for symbol in listed}
        directories = [self._directory(symbol, dict(terms)) for symbol, terms in given.items()]
        if directories:
            self._floor.step(1, 0, directories)

    def __repr__(self) -> str:
        names = ", ".join(self._floor.symbols) or "no symbol"
        return f"<{type(self).__name__} of {names}, token {self.token}>"

    def apply(self, events: Rows, *, time_ns: int | datetime | str | None = None) -> FloorResult:
        """Apply events in their order, and say what came of them.

        `events` are dicts (one or many), a frame of pandas or polars, an Arrow table or a structured numpy array. All
        of a call are one token: what trades in batches trades at its end. A column `token` cuts a table into several;
        their numbers rise. `time_ns`, or a column of that name, is the token's instant; without one it stays, and it
        never goes back.
        """
        count, columns = table_of(events, _field_of)
        if time_ns is not None:
            try:
                time_ns = read_time(time_ns)
            except ValueError as reason:
                raise RowError(0, "time_ns", str(reason)) from None
        tokens = _cut(count, columns, self._floor.token, self._floor.at, time_ns)
        floor, told = self._floor, []
        if isinstance(floor, FastFloor) and count and set(columns) <= _PLAIN_FIELDS:
            rows = self._array(count, columns)
            names = list(floor.symbols)
            for token, instant, start, stop in tokens:
                told.append(_Told(token, self._run(token, instant, rows[start:stop]), names, []))
        else:
            found = self._events(count, columns)
            for token, instant, start, stop in tokens:
                told.append(_Told(token, None, (), floor.step(token, instant, found[start:stop])))
        return FloorResult(told, self._scales)

    def run(self, events: npt.NDArray[Any], *, time_ns: int | None = None) -> npt.NDArray[Any]:
        """Apply an array of orders, cancels and replaces, as one token, and give all reports as an array.

        The quickest way: whole numbers in and out, and no object for any event. `events` is a structured array with the
        fields `kind` and `id`, and as far as they are wanted others of `Floor.EVENTS`; the reports have those of
        `Floor.REPORTS`. Prices and quantities are the floor's whole numbers (`scale` says their decimals),
        a symbol is its place among the floor's symbols, from 0; docs/how-to/matching-engine.md has all columns. Events
        of other kinds, and conditions, are `apply`'s: both may be mixed, call by call.
        """
        floor = self._floor
        _check_array(events)
        return self._run(floor.token + 1, floor.at if time_ns is None else time_ns, events)

    def _run(self, token: int, instant: int, events: npt.NDArray[Any]) -> npt.NDArray[Any]:
        floor, names = self._floor, list(self._floor.symbols)
        begun = arrays.as_array(floor.begin(token, instant), names)
        found = arrays.run(floor, events)
        ended = arrays.as_array(floor.end(), names)
        return np.concatenate([begun, found, ended]) if len(begun) or len(ended) else found

    def scale(self, symbol: str) -> tuple[int, int]:
        """How many decimals the whole numbers of a symbol have: of prices, and of quantities."""
        if symbol not in self._scales:
            raise ConfigurationError("isocast.Floor", "symbol", f'"{symbol}" is not one of its symbols')
        return self._scales[symbol].price, self._scales[symbol].quantity

    def book(self, symbol: str, levels: int | None = None) -> FloorBook:
        """A symbol's book, or its best levels."""
        state = self._floor.symbols.get(symbol)
        if state is None:
            known = ", ".join(self._floor.symbols) or "none"
            raise ConfigurationError("isocast.Floor", "symbol", f'"{symbol}" is not one of its symbols ({known})')
        scale = self._scales[symbol]
        sides = []
        for side in (state.book.buys, state.book.sells):
            found: list[FloorLevel] = []
            for level in side.levels():
                if levels is not None and len(found) == levels:
                    break
                price = None if level[0].is_market and not level[0].price else scale.to_price(level[0].price)
                shown = sum(order.shown for order in level)
                found.append(FloorLevel(price, scale.to_quantity(shown), len(level)))
            sides.append(tuple(found))
        reference = None if state.reference is None else scale.to_price(state.reference)
        return FloorBook(symbol, str(state.phase), reference, *sides)

    def state_hash(self) -> str:
        """A hash of all that the floor is, in hexadecimal: equal wherever the same tokens were applied."""
        return state_hash(self._floor).hex()

    @property
    def token(self) -> int:
        """The number of the last token."""
        return self._floor.token

    # ---- reading

    def _directory(self, symbol: str, terms: dict[str, Any], row: int = 0) -> Directory:
        """A symbol's rules; they say its scale."""
        try:
            tick, lot = Decimal(str(terms.get("tick", "0.0001"))), Decimal(str(terms.get("lot", 1)))
            scale = Scale(max(PLAIN.price, _decimals(tick)), _decimals(lot))
        except (ArithmeticError, TypeError):
            raise RowError(row, "tick", f"tick and lot of {symbol} must be numbers") from None
        fields = {"phase": str(Phase.OPEN), **terms, "kind": "directory", "symbol": symbol, "tick": tick, "lot": lot}
        known = Directory._fields
        for name in fields:
            if name not in {"kind", *known}:
                rule = f"is no rule of a symbol{suggestion(name, known)}: {', '.join(known[1:])}"
                raise RowError(row, name, rule)
        event = _event(row, fields, {}, scale)
        assert isinstance(event, Directory)  # noqa: S101 - as its kind says
        self._scales[symbol] = scale
        return event

    def _scale(self, symbol: object, number: object, symbols: Mapping[object, object]) -> Scale:
        """Of a row's symbol; of a cancel or a replace without one, that of its order."""
        if symbol is None:
            live = self._floor.orders.get(number) if isinstance(number, int) else None
            symbol = symbols.get(number) if live is None else live[0].terms.symbol
        return self._scales.get(str(symbol), PLAIN)

    def _events(self, count: int, columns: Mapping[str, _Column]) -> list[Event]:
        """The events of a table, row by row."""
        written = {field: name for field, (name, _) in columns.items()}
        symbols: dict[object, object] = {}
        found: list[Event] = []
        for row in range(count):
            fields = {field: values[row] for field, (_, values) in columns.items() if not is_missing(values[row])}
            fields.setdefault("kind", "order")
            if fields["kind"] == "directory":
                terms = {name: value for name, value in fields.items() if name not in {"kind", "symbol"}}
                found.append(self._directory(str(fields.get("symbol", "")), terms, row))
                continue
            number = fields.get("id")
            if "symbol" in fields:
                symbols[number] = fields["symbol"] = str(fields["symbol"]).strip()
            found.append(_event(row, fields, written, self._scale(fields.get("symbol"), number, symbols)))
        return found

    def _array(self, count: int, columns: Mapping[str, _Column]) -> npt.NDArray[Any]:
        """The same of a table of plain orders, cancels and replaces, column by column."""
        found = np.zeros(count, EVENT_DTYPE)
        kinds = _each(columns, "kind", count, lambda value: _chosen(value, _KINDS), ArrayKind.ORDER)
        numbers = _each(columns, "id", count, _whole, None)
        accounts = _each(columns, "account", count, _whole, -1)
        names = _each(columns, "symbol", count, lambda value: str(value).strip(), "")
        sides = _each(columns, "side", count, lambda value: _chosen(value, _SIDES), 0)
        scales = self._scales_of(names, numbers)
        quantities = _scaled(columns, "quantity", count, [scale.quantity for scale in scales])
        prices = _scaled(columns, "price", count, [scale.price for scale in scales])
        for row, (kind, side) in enumerate(zip(kinds, sides, strict=True)):
            if kind == ArrayKind.ORDER and not side:
                raise RowError(row, "side", "must be given: buy or sell")
        for name, values in (("quantity", quantities), ("price", prices)):
            if None not in values and AS_IT_IS not in values:
                found[name] = values
                continue
            absent = [AS_IT_IS if kind == ArrayKind.REPLACE else 0 for kind in kinds]
            # Below zero is as wrong as zero.
            found[name] = [absent[row] if value is None else max(value, 0) for row, value in enumerate(values)]
        places = {name: place for place, name in enumerate(self._floor.symbols)}
        found["symbol"] = [places.get(name, _NO_PLACE) for name in names]
        found["kind"], found["side"], found["id"] = kinds, sides, numbers
        found["account"] = [
            number if account < 0 else account for number, account in zip(numbers, accounts, strict=True)
        ]
        found["owner"] = _each(columns, "owner", count, _whole, 0)
        found["immediate"] = _each(columns, "immediate", count, _flag, False)  # noqa: FBT003 - what is not said
        return found

    def _scales_of(self, names: list[str], numbers: list[int]) -> list[Scale]:
        """The scale of each row's symbol."""
        distinct = set(self._scales.values())
        if len(distinct) == 1:
            return [distinct.pop()] * len(names)
        symbols: dict[object, object] = {}
        found = []
        for name, number in zip(names, numbers, strict=True):
            if name:
                symbols[number] = name
            found.append(self._scale(name or None, number, symbols))
        return found


def _check_array(events: npt.NDArray[Any]) -> None:
    """RowError for what `run` cannot take."""
    names = events.dtype.names
    if names is None or events.ndim != 1 or not {"kind", "id"} <= set(names):
        raise RowError(0, "kind", "run takes a structured array of one dimension with the fields kind and id")
    for name in names:
        kind = events.dtype[name].kind
        if name not in EVENT_DTYPE.fields:  # type: ignore[operator]
            raise RowError(0, name, f"is no field{suggestion(name, EVENT_DTYPE.names or ())}: {EVENT_DTYPE.names}")
        if kind not in "iub" or (kind == "b") != (EVENT_DTYPE[name].kind == "b"):
            raise RowError(0, name, f"must be {EVENT_DTYPE[name]}, a whole number or a flag as it is there")
        if EVENT_DTYPE[name].kind == "b":
            continue
        most, least = np.iinfo(EVENT_DTYPE[name]).max, np.iinfo(EVENT_DTYPE[name]).min
        wrong = np.flatnonzero((events[name] > most) | (events[name] < least))
        if len(wrong):
            raise RowError(int(wrong[0]), name, f"{events[name][wrong[0]]} does not fit into {EVENT_DTYPE[name]}")
    wrong = np.flatnonzero(events["kind"] > ArrayKind.REOPEN)
    if len(wrong):
        raise RowError(int(wrong[0]), "kind", "must be 0 order, 1 cancel, 2 replace or 3 replace of what is open")


_Column: TypeAlias = tuple[str, Sequence[object]]
"""What a column is called, and its values."""


def _field_of(name: object) -> str:
    """The field that a column is."""
    plain = str(name).strip().lower()
    field = _FIELDS.get(_ALIASES.get(plain, plain))
    if field is None:
        raise BadFieldError(str(name), f"unknown column{suggestion(plain, _FIELDS)}; an event has {', '.join(_FIELDS)}")
    return field


def _cut(
    count: int, columns: dict[str, _Column], token: int, instant: int, time_ns: int | None
) -> list[tuple[int, int, int, int]]:
    """The tokens of a table, as (number, instant, first row, row after the last); both columns are taken out."""
    is_cut = "token" in columns
    name = columns.get("token", ("token",))[0]
    numbers = _each(columns, "token", count, _whole, 0)
    times = _each(columns, "time_ns", count, read_time, -1)
    columns.pop("token", None)
    columns.pop("time_ns", None)
    if time_ns is not None:
        if time_ns < instant:
            raise RowError(0, "time_ns", f"{time_ns} is before the token in front of it, at {instant}")
        instant = time_ns
    found: list[tuple[int, int, int, int]] = []
    for number, rows in groupby(range(count), key=numbers.__getitem__):
        places = list(rows)
        if is_cut and number <= token:
            raise RowError(places[0], name, f"{number} does not rise: the floor is at token {token}")
        token = number if is_cut else token + 1
        before, instant = instant, times[places[0]] if times[places[0]] >= 0 else instant
        if instant < before:
            raise RowError(places[0], "time_ns", f"{instant} is before the token in front of it, at {before}")
        found.append((token, instant, places[0], places[-1] + 1))
    return found or [(token + 1, instant, 0, 0)]


# ---- one value: ValueError for what it cannot be


def _decimals(step: Decimal) -> int:
    exponent = step.normalize().as_tuple().exponent
    return max(0, -int(exponent))


def _whole(value: object) -> int:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float | Decimal) and number == int(number):
        number = int(number)
    if isinstance(number, str) and number.strip().isdecimal():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 64:
        raise ValueError(f"{value!r} is not a whole number from 0 on, of at most 64 bits")
    return number


def _flag(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise ValueError(f"{value!r} is neither true nor false")
    return text in _TRUE


def _chosen(value: object, names: Mapping[str, int]) -> int:
    text = str(value).strip().lower()
    if text not in names:
        raise ValueError(f"{value!r} is not one of {', '.join(names)}{suggestion(text, names)}")
    return names[text]


def _in_units(value: object, decimals: int) -> int:
    """A number in units as the floor's whole number."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, bool) or not isinstance(number, Decimal | int | str | float):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 - as every reader here does
    # The shortest digits that mean a float are those that somebody wrote.
    return to_whole(repr(number) if isinstance(number, float) else number, decimals, _WHOLE_MAX)


def _event(row: int, fields: dict[str, Any], written: Mapping[str, str], scale: Scale) -> Event:
    """The event of a row's fields, in units."""
    converted: dict[str, Any] = {}
    kind = converted["kind"] = str(fields["kind"]).strip().lower()
    for name, value in fields.items():
        try:
            if name in _PRICES:
                converted[name] = _in_units(value, scale.price)
            elif name in {"quantity", "display"} or (name == "lot" and kind == "directory"):
                converted[name] = _in_units(value, scale.quantity)
            elif name in _TIMES:
                converted[name] = read_time(value)
            elif name in _FLAGS or (name == "market" and kind == "order"):
                converted[name] = _flag(value)
            elif name == "side":
                converted[name] = _SIDE_NAMES[_chosen(value, _SIDES)]
            elif name in _TEXTS:
                converted[name] = str(value).strip()
            else:
                converted[name] = _whole(value)
        except ValueError as reason:
            raise RowError(row, written.get(name, name), str(reason)) from reason
    converted.setdefault("account", 0)
    try:
        event = read_event(converted)
    except RemoteProtocolError as reason:
        name = str(reason).partition(" ")[0]
        raise RowError(row, written.get(name, name), str(reason)) from reason
    if "account" in fields or isinstance(event, Directory | Status | Schedule | Wake):
        return event
    return event._replace(account=event.id)


# ---- columns


def _each(
    columns: Mapping[str, _Column], name: str, count: int, read: Callable[[object], Any], absent: object
) -> list[Any]:
    """The values of a column, equal ones read once; RowError for the first that is wrong, or missing if it may not."""
    if name not in columns:
        if absent is None and count:
            raise RowError(0, name, "must be given")
        return [absent] * count
    written, values = columns[name]
    if read is _whole and set(map(type, values)) == {int}:
        whole = np.array(values, object)
        if whole.min() >= 0 and whole.max() < 1 << 64:
            return list(values)
    known: dict[object, Any] = {}
    found = []
    for row, value in enumerate(values):
        if value in known:
            found.append(known[value])
            continue
        if is_missing(value):
            if absent is None:
                raise RowError(row, written, "must be given")
            found.append(None if absent is _NOTHING else absent)
            continue
        try:
            known[value] = read(value)
        except (ValueError, TypeError) as reason:
            raise RowError(row, written, str(reason)) from reason
        found.append(known[value])
    return found


def _scaled(columns: Mapping[str, _Column], name: str, count: int, decimals: list[int]) -> list[int | None]:
    """Prices or quantities in units, as the floor's whole numbers; None where nothing is said."""
    if len(set(decimals)) <= 1:
        places = decimals[0] if decimals else 0
        values = columns[name][1] if name in columns else ()
        if set(map(type, values)) == {float}:
            units = np.array(values)
            whole = np.rint(units * 10.0**places)
            if (np.abs(whole) < _EXACT_MAX).all() and (whole / 10.0**places == units).all():
                return list(whole.astype(np.int64).tolist())
        if name in columns:
            return _each(columns, name, count, lambda value: _in_units(value, places), _NOTHING)
    if name not in columns:
        return [None] * count
    written, values = columns[name]
    found = []
    for row, (value, places) in enumerate(zip(values, decimals, strict=True)):
        try:
            found.append(None if is_missing(value) else _in_units(value, places))
        except ValueError as reason:
            raise RowError(row, written, str(reason)) from reason
    return found
