"""Order books in the lake: the best levels of each symbol on each floor, one row whenever one of them changes.

The rules are the ticker's (`isocast.ticker.books`), and so are the answers. A function per symbol on a floor takes its
events in their order, with the orders that stood before them; orders that stand behind them are what the next batch
begins with. A floor's mark begins its day: its books are empty then, and a row says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isocast.terms.market import EventKind
from isocast.ticker.books import BOOK_DTYPE, BOOK_KINDS, CLEARED, DAY_MARK, ORDER_DTYPE, BookChange, OrderBooks
from isocast.ticker.books import begins_day as day_begins
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = [
    "BOOK_STATE_SCHEMA",
    "DAY_COLUMNS",
    "BookDays",
    "DayBegin",
    "book_changes",
    "book_columns",
    "followed_books",
    "is_of_a_book",
    "level_columns",
]

_PLACE = ("stripe", "sequence", "index", "floor", "symbol", "event_ns", "due_ns")
_SIDES = ("bid", "bid_size", "ask", "ask_size")


def level_columns(level: int) -> tuple[str, ...]:
    """Prices and sizes of a level; the best one is the first: bid, bid_size, ask, ask_size, then bid_2 and so on."""
    return tuple(name if level == 1 else f"{name}_{level}" for name in _SIDES)


def book_columns(depth: int) -> tuple[str, ...]:
    """The book behind an event: its best levels, and whether it can be believed."""
    levels = [name for level in range(1, depth + 1) for name in level_columns(level)]
    return (*_PLACE, *levels, "market", "sound")


BOOK_STATE_SCHEMA = pa.schema(
    [
        pa.field("stripe", pa.int32()),
        pa.field("floor", pa.string()),
        pa.field("symbol", pa.string()),
        pa.field("note", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("side", pa.int32()),
        pa.field("price", pa.int64()),
        pa.field("quantity", pa.int64()),
        pa.field("flags", pa.int32()),
    ]
)
"""What stands: a row of each book (`note` is book: quantity orders, and flags) and each of its orders (order)."""

_BOOK, _ORDER = "book", "order"
_SOUND, _PENDING, _MARKET_AT = 1, 2, 2
_NOTED = ("note", "id", "side", "price", "quantity", "flags")
_EVENTS = ("sequence", "index", "kind", "side", "flags", "price", "quantity", "id", "reference", "event_ns", "due_ns")
_MARKETS = ("normal", "locked", "crossed")
_TYPES = {
    **dict.fromkeys(("stripe", "index", "side", "flags"), ("INT", pa.int32())),
    **dict.fromkeys(("floor", "symbol", "market", "note"), ("STRING", pa.string())),
    "sound": ("BOOLEAN", pa.bool_()),
}
_NUMBER = "BIGINT", pa.int64()


class DayBegin(NamedTuple):
    """A mark with which a floor began a day."""

    sequence: int
    at: int
    """Its index in the message."""
    event_ns: int
    due_ns: int


DAY_COLUMNS = ("stripe", "floor", "sequence", "index", "event_ns", "due_ns")
"""Of marks that may begin a day."""


@dataclass
class BookDays:
    """Where days of floors begin, and which stripes were joined after their beginning."""

    opened: dict[tuple[int, str], int] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)

    def begins(self, marks: Iterable[tuple[Any, ...]]) -> dict[tuple[int, str], list[DayBegin]]:
        """Those of (stripe, floor, sequence, index, event_ns, due_ns) that begin a day, by floor."""
        found: dict[tuple[int, str], list[DayBegin]] = {}
        for stripe, floor, *place in sorted(tuple(mark) for mark in marks):
            begin = DayBegin(*place)
            if day_begins(self.opened.get((stripe, floor), 0), begin.event_ns):
                self.opened[stripe, floor] = begin.event_ns
                found.setdefault((stripe, floor), []).append(begin)
        return found

    def as_json(self) -> dict[str, object]:
        """For a file."""
        return {"opened": [[*key, moment] for key, moment in sorted(self.opened.items())], "late": sorted(self.late)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> BookDays:
        """As they were."""
        opened = {(stripe, floor): moment for stripe, floor, moment in found.get("opened", ())}
        return cls(opened, set(found.get("late", ())))


def is_of_a_book() -> Column:
    """Which rows of `released` a book takes."""
    clears = (F.col("kind") == int(EventKind.MARK)) & (F.col("reference") == CLEARED)
    return (F.col("kind").isin([int(kind) for kind in BOOK_KINDS]) | clears) & (F.col("symbol") != "")


def book_changes(released: DataFrame, depth: int = 1) -> DataFrame:
    """The books of a whole frame: a row for each change of the best `depth` levels, in any order."""
    rule = (F.col("kind") == int(EventKind.MARK)) & (F.col("reference") == DAY_MARK)
    marks = released.where(rule).select(*DAY_COLUMNS).collect()
    made = followed_books(released, None, BookDays(), marks, depth)
    return made.where("note IS NULL").select(*book_columns(depth))


def followed_books(
    released: DataFrame, standing: DataFrame | None, days: BookDays, marks: Iterable[tuple[Any, ...]], depth: int
) -> DataFrame:
    """Changes of books, and what stands behind them: rows with a `note` of book, order, or the name of a fault.

    `standing` is what stood before, of BOOK_STATE_SCHEMA; `days` go on with `marks` of floors.
    """
    known_floors = set(days.opened)
    begins = days.begins(marks)
    is_whole = _soundness(days.late, known_floors)
    place = ("stripe", "floor", "symbol")
    events = released.where(is_of_a_book()).select(*place, *_EVENTS, F.lit(None).cast("string").alias("note"))
    if standing is not None:
        events = events.unionByName(standing, allowMissingColumns=True)
    ddl = ", ".join(f"{name} {_TYPES.get(name, _NUMBER)[0]}" for name in (*book_columns(depth), *_NOTED))
    return events.groupBy(*place).applyInArrow(_follower(begins, is_whole, depth), ddl)


def _soundness(late: set[int], floors: set[tuple[int, str]]) -> Callable[[int, str], bool]:
    """Whether a book that begins now has missed nothing."""
    joined, known = frozenset(late), frozenset(floors)
    return lambda stripe, floor: stripe not in joined or (stripe, floor) in known


def _follower(
    begins: Mapping[tuple[int, str], Sequence[DayBegin]], is_whole: Callable[[int, str], bool], depth: int
) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    """What a worker does with one symbol on one floor."""

    def follow(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        stripe, floor, symbol = (part.as_py() for part in key)
        is_state = table["note"].is_valid()
        books = _restored(table.filter(is_state), floor, symbol)
        if not books.books and not is_whole(stripe, floor):
            books.gap()
        rows = table.filter(pa.compute.invert(is_state)).sort_by([("sequence", "ascending"), ("index", "ascending")])
        events = _events_of(rows, floor, symbol)
        out = _Rows(stripe, floor, symbol, depth)
        start = 0
        for begin in begins.get((stripe, floor), ()):
            stop = _place_of(rows, begin)
            _take(books, events[start:stop], rows.slice(start, stop - start), depth, out)
            start = stop
            if any(book.orders for book in books.books):
                out.empty(begin)
            for book in books.books:
                books.begin_day(book.floor)
            if not books.books:
                books = OrderBooks()
        _take(books, events[start:], rows.slice(start), depth, out)
        out.state(books)
        return out.table()

    return follow


def _take(books: OrderBooks, events: EventArray, rows: pa.Table, depth: int, out: _Rows) -> None:
    changes: list[BookChange] = []
    for fault, places in books.take(events, changes, depth).items():
        out.note(fault.value, quantity=len(places))
    out.changes(changes, rows)


def _place_of(rows: pa.Table, begin: DayBegin) -> int:
    """How many rows come before a mark."""
    sequence, index = rows["sequence"].to_numpy(), rows["index"].to_numpy()
    return int(np.count_nonzero((sequence < begin.sequence) | ((sequence == begin.sequence) & (index < begin.at))))


def _events_of(rows: pa.Table, floor: str, symbol: str) -> EventArray:
    events = np.zeros(len(rows), EVENT_DTYPE)
    events["floor"], events["symbol"] = floor, symbol
    for name in ("kind", "side", "flags", "price", "quantity", "reference"):
        events[name] = rows[name].to_numpy()
    events["id"] = rows["id"].to_numpy().astype(np.int64).view(np.uint64)
    events["time"] = rows["event_ns"].to_numpy().astype(np.int64).view(np.uint64)
    return events


def _restored(state: pa.Table, floor: str, symbol: str) -> OrderBooks:
    """The book with the orders that stood."""
    books = OrderBooks()
    rows = state.select(_NOTED).to_pylist()
    heads = [row for row in rows if row["note"] == _BOOK]
    if not heads:
        return books
    own = sorted((row for row in rows if row["note"] == _ORDER), key=lambda row: row["id"] % (1 << 64))
    orders = np.array(
        [(row["id"] % (1 << 64), row["price"], row["quantity"], row["side"], row["flags"], b"") for row in own],
        ORDER_DTYPE,
    )
    flags, word = heads[0]["flags"], int.from_bytes(symbol.encode("ascii"), "little")
    book = np.zeros(1, BOOK_DTYPE)
    book["symbol"], book["floor"], book["orders"] = word, int.from_bytes(floor.encode("ascii"), "little"), len(own)
    book["market"], book["sound"], book["pending"] = flags >> _MARKET_AT, flags & _SOUND, (flags & _PENDING) > 0
    books.restore(book, orders, None)
    return books


class _Rows:
    """What a worker says of one symbol on one floor."""

    def __init__(self, stripe: int, floor: str, symbol: str, depth: int) -> None:
        self._place = {"stripe": stripe, "floor": floor, "symbol": symbol}
        self._depth = depth
        self._names = (*book_columns(depth), *_NOTED)
        self._columns: dict[str, list[Any]] = {name: [] for name in self._names if name not in self._place}

    def _add(self, **values: object) -> None:
        for name, column in self._columns.items():
            column.append(values.get(name))

    def note(self, note: str, **values: object) -> None:
        self._add(note=note, **values)

    def empty(self, begin: DayBegin) -> None:
        """The book of a day that is over."""
        place = dict(zip(DAY_COLUMNS[2:], begin, strict=True))
        self._add(**place, market=_MARKETS[0], sound=True)

    def changes(self, changes: Sequence[BookChange], rows: pa.Table) -> None:
        """The best levels behind each change."""
        if not changes:
            return
        places = [change.place for change in changes]
        columns = {name: rows[name].take(places).to_pylist() for name in DAY_COLUMNS[2:]}
        for name, own in columns.items():
            self._columns[name] += own
        for level in range(self._depth):
            sides = ("bids", "bid_sizes", "asks", "ask_sizes")
            for name, side in zip(level_columns(level + 1), sides, strict=True):
                values = [getattr(change, side) for change in changes]
                self._columns[name] += [own[level] if level < len(own) else None for own in values]
        self._columns["market"] += [_MARKETS[change.market] for change in changes]
        self._columns["sound"] += [change.is_sound for change in changes]
        for name in _NOTED:
            self._columns[name] += [None] * len(changes)

    def state(self, books: OrderBooks) -> None:
        """The orders that stand, for the next batch."""
        for book in books.books:
            flags = book.is_sound * _SOUND + book.is_pending * _PENDING + (book.market << _MARKET_AT)
            self.note(_BOOK, quantity=len(book.orders), flags=flags)
        for number, price, quantity, side, is_shown, _ in books.tables()[1].tolist():
            signed = number - (1 << 64) if number >= 1 << 63 else number
            self.note(_ORDER, id=signed, price=price, quantity=quantity, side=side, flags=is_shown)

    def table(self) -> pa.Table:
        count = len(self._columns["note"])
        arrays = [
            pa.array([self._place[name]] * count if name in self._place else self._columns[name], _type_of(name))
            for name in self._names
        ]
        return pa.Table.from_arrays(arrays, list(self._names))


def _type_of(name: str) -> pa.DataType:
    return _TYPES.get(name, _NUMBER)[1]
