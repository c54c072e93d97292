"""Order books that follow a feed: the displayed orders of each symbol on each floor, best prices, and depth by price.

    ORDER       enters the book; one at any price, or for immediate execution, is known and not shown
    CANCEL      takes `quantity` away from an order, or all of it
    REPLACE     gives an order another price and quantity
    EXECUTION   takes `quantity` away from an order; where no order was ever published it is a trade, and no more

A LINKED event and the one that follows are one change. Prices are ticks. What a feed says and no book can be is
counted, never raised: a book that has met an unknown order, or more than an order's rest, or a gap in the sequence is
not sound, and says so, until its floor begins another day or the book is cleared by a mark of its symbol.

This follows what a floor publishes. It matches nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.terms.market import EventFlag, EventKind, Side
from isocast.ticker.quotes import CROSSED, LOCKED
from isocast.ticker.records import PRICE_LIMIT, Indices, KeyTable, Records, TapeFault, Words, stable_order
from isocast.wire.events import EventArray

__all__ = [
    "BOOK_DTYPE",
    "BOOK_KINDS",
    "CLEARED",
    "DAY_MARK",
    "ORDER_DTYPE",
    "BookChange",
    "FollowedBook",
    "Level",
    "OrderBooks",
    "begins_day",
    "is_of_books",
]

BOOK_KINDS = (EventKind.ORDER, EventKind.CANCEL, EventKind.REPLACE, EventKind.EXECUTION)
DAY_MARK = ord("O")
"""The code of a floor's mark for the start of messages."""
_DAY_LEAST_NS = 12 * 3_600 * 1_000_000_000
CLEARED = ord("R")
"""The code of a mark that clears the book of its symbol."""

_ORDER, _CANCEL, _REPLACE, _EXECUTION = map(int, BOOK_KINDS)
_TAKING = (_CANCEL, _EXECUTION)
_MARK = int(EventKind.MARK)
_SELL = int(Side.SELL)
_LINKED = int(EventFlag.LINKED)
_NOT_SHOWN = int(EventFlag.MARKET | EventFlag.IMMEDIATE)
_TAKEN = np.zeros(256, np.bool_)
_TAKEN[list(BOOK_KINDS)] = True

BOOK_DTYPE = np.dtype(
    [
        ("symbol", "<u8"),
        ("floor", "<u4"),
        ("market", "u1"),
        ("sound", "u1"),
        ("pending", "u1"),
        ("unused", "V1"),
        ("orders", "<u8"),
    ]
)
"""A book as it is saved; its orders are so many of the next rows of ORDER_DTYPE."""

ORDER_DTYPE = np.dtype(
    [("id", "<u8"), ("price", "<i8"), ("quantity", "<u4"), ("side", "u1"), ("shown", "u1"), ("unused", "V2")]
)

_Row: TypeAlias = tuple[int, int, int, int, int, int, int]
"""Place, kind, side, price, quantity, id, flags."""
_Faults: TypeAlias = dict[TapeFault, list[int]]


class Level(NamedTuple):
    """All orders of a side at one price."""

    price: int
    size: int
    orders: int


class BookChange(NamedTuple):
    """The best levels of a book behind an event that changed them."""

    place: int
    """Of the event, among those that were given."""
    bids: list[int]
    """Prices, the best first."""
    bid_sizes: list[int]
    asks: list[int]
    ask_sizes: list[int]
    market: int
    is_sound: bool


class FollowedBook:
    """The orders of one symbol on one floor."""

    __slots__ = ("_keys", "_levels", "floor", "is_pending", "is_sound", "market", "orders", "symbol")

    def __init__(self, symbol: int, floor: int, *, is_sound: bool = True) -> None:
        """No order is known. Symbol and floor are the words of their bytes."""
        self.symbol = symbol
        self.floor = floor
        self.is_sound = is_sound
        """Whether nothing was missed since the book began."""
        self.market = 0
        """LOCKED, CROSSED, or 0."""
        self.is_pending = False
        """Whether the change of a LINKED event waits for the event that follows."""
        self.orders: dict[int, tuple[int, int | None, int]] = {}
        """By id: which side (0 buys), the key of its price or None if it is not shown, and the quantity left."""
        # Keys sort from the best price on: a price of sells, and its negative of buys.
        self._levels: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
        self._keys: tuple[list[int], list[int]] = ([], [])

    def clear(self, *, is_sound: bool = True) -> None:
        """Begin anew."""
        self.orders.clear()
        for levels, keys in zip(self._levels, self._keys, strict=True):
            levels.clear()
            keys.clear()
        self.market, self.is_pending, self.is_sound = 0, False, is_sound

    @property
    def bids(self) -> tuple[Level, ...]:
        """Every price with an order to buy, the best first."""
        return self.depth(Side.BUY)

    @property
    def asks(self) -> tuple[Level, ...]:
        """Every price with an order to sell, the best first."""
        return self.depth(Side.SELL)

    def depth(self, side: Side, levels: int | None = None) -> tuple[Level, ...]:
        """The best prices of one side, at most so many."""
        way, sign = (0, -1) if side == Side.BUY else (1, 1)
        own = self._levels[way]
        return tuple(Level(sign * key, *own[key]) for key in self._keys[way][:levels])

    # ---- orders

    def enter(self, number: int, way: int, key: int | None, quantity: int) -> None:
        """An order comes; its id is not in the book."""
        self.orders[number] = way, key, quantity
        if key is None:
            return
        levels = self._levels[way]
        level = levels.get(key)
        if level is None:
            levels[key] = [quantity, 1]
            insort(self._keys[way], key)
        else:
            level[0] += quantity
            level[1] += 1

    def _shrink(self, number: int, way: int, key: int | None, rest: int, gone: int) -> None:
        """An order loses so much, which is at most its rest."""
        if gone < rest:
            self.orders[number] = way, key, rest - gone
        else:
            del self.orders[number]
        if key is None:
            return
        levels = self._levels[way]
        level = levels[key]
        level[0] -= gone
        if gone < rest:
            return
        level[1] -= 1
        if not level[1]:
            del levels[key]
            keys = self._keys[way]
            del keys[bisect_left(keys, key)]

    # ---- events

    def follow(self, rows: Iterable[_Row], faults: _Faults, changes: list[BookChange] | None, depth: int) -> None:
        """Events of this book in their order; `changes` gets the best `depth` levels whenever one of them changes."""
        orders, (buys, sells) = self.orders, self._keys
        for row in rows:
            place, kind, side, price, quantity, number, flags = row
            found = orders.get(number)
            if kind == _ORDER and found is None:
                way, key = side - 1, None if flags & _NOT_SHOWN else price if side == _SELL else -price
                self.enter(number, way, key, quantity)
            elif found is not None and kind in _TAKING:
                way, key, rest = found
                gone = quantity or (rest if kind == _CANCEL else 0)
                if gone > rest:
                    self._doubt(faults, TapeFault.BEYOND_REST, place)
                    gone = rest
                self._shrink(number, way, key, rest, gone)
            else:
                self._put(row, found, faults, changes, depth)
                way, key = 0, None
            if changes is not None and key is not None and not self.is_pending:
                self._touch(way, key, depth)
            if not flags & _LINKED:
                if self.market or (buys and sells and sells[0] + buys[0] <= 0):
                    self._judge(place, faults)
                if self.is_pending and changes is not None:
                    self._tell(place, changes, depth)

    def _put(
        self,
        row: _Row,
        found: tuple[int, int | None, int] | None,
        faults: _Faults,
        changes: list[BookChange] | None,
        depth: int,
    ) -> None:
        """A replacement; or an event that contradicts the book."""
        place, kind, side, price, quantity, number, flags = row
        way = side - 1
        if found is None:
            self._doubt(faults, TapeFault.UNKNOWN_ORDER, place)
            # A replacement says all that an order has, if it has a side.
            if kind != _REPLACE or way < 0:
                return
        else:
            if kind == _ORDER:
                self._doubt(faults, TapeFault.REUSED_ORDER, place)
            else:
                way = found[0]
            self._shrink(number, *found, found[2])
            if changes is not None and found[1] is not None:
                self._touch(found[0], found[1], depth)
        if quantity:
            key = None if flags & _NOT_SHOWN else price if way else -price
            self.enter(number, way, key, quantity)
            if changes is not None and key is not None:
                self._touch(way, key, depth)

    def _doubt(self, faults: _Faults, fault: TapeFault, place: int) -> None:
        self.is_sound = False
        faults.setdefault(fault, []).append(place)

    def _touch(self, way: int, key: int, depth: int) -> None:
        """Something changed at a price; behind the change it shows whether that is, or was, one of the best levels."""
        keys = self._keys[way]
        if len(keys) < depth or key <= keys[depth - 1]:
            self.is_pending = True

    def _judge(self, place: int, faults: _Faults) -> None:
        """Behind a whole change: note whether the book is locked or crossed."""
        buys, sells = self._keys
        gap = sells[0] + buys[0] if buys and sells else 1
        market = CROSSED if gap < 0 else LOCKED if gap == 0 else 0
        if market and market != self.market:
            fault = TapeFault.LOCKED_BOOK if market == LOCKED else TapeFault.CROSSED_BOOK
            faults.setdefault(fault, []).append(place)
        self.market = market

    def _tell(self, place: int, changes: list[BookChange], depth: int) -> None:
        self.is_pending = False
        (buying, selling), (buys, sells) = self._levels, self._keys
        bids, asks = buys[:depth], sells[:depth]
        bid_sizes, ask_sizes = [buying[key][0] for key in bids], [selling[key][0] for key in asks]
        bids = [-key for key in bids]
        changes.append(BookChange(place, bids, bid_sizes, asks, ask_sizes, self.market, self.is_sound))


def begins_day(opened: int, moment: int) -> bool:
    """Whether a floor's mark for the start of messages begins a day, if the last one did at `opened` (0: none)."""
    return not opened or moment >= opened + _DAY_LEAST_NS


def is_of_books(events: EventArray) -> npt.NDArray[np.bool_]:
    """Which events a book takes: those of orders, and marks that clear one."""
    kinds = events["kind"]
    found: npt.NDArray[np.bool_] = _TAKEN[kinds] | ((kinds == _MARK) & (events["reference"] == CLEARED))
    return found


class OrderBooks:
    """The books of all symbols on all floors, a function of the events that they were given."""

    def __init__(self) -> None:
        """Nothing was published yet."""
        self.books: list[FollowedBook] = []
        """In the order in which they began."""
        self._keys = KeyTable()
        self._by_symbol: dict[int, list[FollowedBook]] = {}
        self._opened: dict[int, int] = {}
        """When the day of each floor began, by its marks."""
        self._whole_floors: set[int] | None = None
        """Behind a gap: the floors that began another day since. None before any gap."""

    def of(self, symbol: int, floor: int) -> FollowedBook | None:
        """The book of a symbol on a floor, if it has one."""
        number = int(self._keys.find(np.array([symbol], np.uint64), np.array([floor], np.uint64))[0])
        return self.books[number] if number >= 0 else None

    def of_symbol(self, symbol: int) -> list[FollowedBook]:
        """The books of a symbol."""
        return self._by_symbol.get(symbol, [])

    def follow(self, events: EventArray, changes: list[BookChange] | None = None, depth: int = 1) -> _Faults:
        """As `take`; besides, marks of floors begin their days, as on a tape."""
        faults: _Faults = {}
        marks = np.flatnonzero((events["kind"] == _MARK) & (events["reference"] == DAY_MARK))
        start = 0
        for stop in [*marks.tolist(), len(events)]:
            found: list[BookChange] | None = None if changes is None else []
            for fault, places in self.take(events[start:stop], found, depth).items():
                faults.setdefault(fault, []).extend(place + start for place in places)
            if changes is not None and found:
                changes += [change._replace(place=change.place + start) for change in found]
            start = stop
            if stop < len(events):
                floor, moment = int.from_bytes(events["floor"][stop], "little"), int(events["time"][stop])
                if begins_day(self._opened.get(floor, 0), moment):
                    self._opened[floor] = moment
                    self.begin_day(floor)
        return faults

    def take(self, events: EventArray, changes: list[BookChange] | None = None, depth: int = 1) -> _Faults:
        """Some events more, of which others than those of orders are left alone; what was wrong, by their places.

        `changes` gets the best `depth` levels of a book whenever one of them changes: in the order of events within a
        book, book after book.
        """
        faults: _Faults = {}
        places = _believed(events, faults)
        if not len(places):
            return faults
        chosen, known = events[places], len(self.books)
        words = chosen.view(np.uint64).reshape(len(chosen), -1)
        begins = chosen["kind"] != _EXECUTION
        numbers = self._numbers(np.ascontiguousarray(words[:, 1]), words[:, 0] >> np.uint64(32), begins)
        order = stable_order(numbers + 1, len(self.books) + 1)
        order = order[np.searchsorted(numbers[order], 0) :]
        if not len(order):
            return faults
        own = numbers[order]
        starts = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]])).tolist()
        events, places = chosen[order], places[order]
        columns = (events[name].tolist() for name in ("kind", "side", "price", "quantity", "id", "flags"))
        rows: list[_Row] = list(zip(places.tolist(), *columns, strict=True))
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
            number, begin = int(own[start]), start
            if number >= known:
                # Executions before the first order of a new book are trades of a floor that shows no orders.
                begin += next(place for place, row in enumerate(rows[start:stop]) if row[1] != _EXECUTION)
            book = self.books[number]
            for part in _between_marks(rows[begin:stop], book):
                book.follow(part, faults, changes, depth)
        return {fault: sorted(found) for fault, found in faults.items()}

    def gap(self) -> None:
        """Events are missing: no book is sound, nor one that begins now, before its floor begins another day."""
        self._whole_floors = set()
        for book in self.books:
            book.is_sound = False

    def begin_day(self, floor: int) -> None:
        """A floor begins: its books are empty, and sound."""
        if self._whole_floors is not None:
            self._whole_floors.add(floor)
        for book in self.books:
            if book.floor == floor:
                book.clear()

    def _numbers(self, symbols: Words, floors: Words, begins: npt.NDArray[np.bool_]) -> Indices:
        """The book of each event, -1 where there is none; events that begin one make it, in their order."""
        found = self._keys.find(symbols, floors)
        missing = np.flatnonzero((found < 0) & begins)
        if len(missing):
            pairs = np.stack([symbols[missing], floors[missing]], axis=1)
            new = pairs[np.sort(np.unique(pairs, axis=0, return_index=True)[1])]
            self._add(new[:, 0], new[:, 1])
            found = self._keys.find(symbols, floors)
        return found

    def _add(self, symbols: Words, floors: Words) -> None:
        first = len(self.books)
        for symbol, floor in zip(symbols.tolist(), floors.tolist(), strict=True):
            is_whole = self._whole_floors is None or floor in self._whole_floors
            book = FollowedBook(symbol, floor, is_sound=is_whole)
            self.books.append(book)
            self._by_symbol.setdefault(symbol, []).append(book)
        self._keys.put(symbols.copy(), floors.copy(), np.arange(first, len(self.books)))

    # ---- as tables, for snapshots

    @property
    def whole_floors(self) -> list[int] | None:
        """Behind a gap: the floors whose books are sound if they begin now; None if all are."""
        return None if self._whole_floors is None else sorted(self._whole_floors)

    def tables(self) -> tuple[Records, Records]:
        """All books, and their orders book after book."""
        books = np.zeros(len(self.books), BOOK_DTYPE)
        for row, book in zip(books, self.books, strict=True):
            row["symbol"], row["floor"], row["market"] = book.symbol, book.floor, book.market
            row["sound"], row["pending"], row["orders"] = book.is_sound, book.is_pending, len(book.orders)
        orders = [
            (number, 0 if key is None else key if way else -key, quantity, way + 1, key is not None, b"")
            for book in self.books
            for number, (way, key, quantity) in book.orders.items()
        ]
        return books, np.array(orders, ORDER_DTYPE)

    def restore(self, books: Records, orders: Records, whole_floors: Iterable[int] | None) -> None:
        """As `tables` gave them."""
        self._whole_floors = None if whole_floors is None else set(whole_floors)
        self._add(books["symbol"], books["floor"].astype(np.uint64))
        rows = iter(orders.tolist())
        for book, row in zip(self.books, books, strict=True):
            book.market, book.is_sound, book.is_pending = int(row["market"]), bool(row["sound"]), bool(row["pending"])
            for _ in range(int(row["orders"])):
                number, price, quantity, side, is_shown, _ = next(rows)
                book.enter(number, side - 1, (price if side == _SELL else -price) if is_shown else None, quantity)


def _between_marks(rows: list[_Row], book: FollowedBook) -> Iterator[list[_Row]]:
    """The events of a book, cut at marks that clear it."""
    marks = [place for place, row in enumerate(rows) if row[1] == _MARK]
    start = 0
    for mark in marks:
        yield rows[start:mark]
        book.clear()
        start = mark + 1
    yield rows[start:] if start else rows


def _believed(events: EventArray, faults: _Faults) -> Indices:
    """Places of events that a book can take: with a symbol, and orders with a side, a price and a quantity."""
    places = np.flatnonzero(is_of_books(events) & (events["symbol"] != b""))
    chosen = events[places]
    is_order, is_priced = chosen["kind"] == _ORDER, chosen["kind"] != _MARK
    is_priced &= (is_order & ((chosen["flags"] & _NOT_SHOWN) == 0)) | (chosen["kind"] == _REPLACE)
    price = chosen["price"]
    good = np.ones(len(places), np.bool_)
    for fault, wrong in (
        (TapeFault.NO_SIDE, is_order & (chosen["side"] == Side.NONE)),
        (TapeFault.NO_PRICE, is_priced & (price == 0)),
        (TapeFault.WILD_PRICE, is_priced & ((price > PRICE_LIMIT) | (price < -PRICE_LIMIT))),
        (TapeFault.NO_QUANTITY, is_order & (chosen["quantity"] == 0)),
    ):
        found = places[wrong & good]
        if len(found):
            faults.setdefault(fault, []).extend(found.tolist())
            good &= ~wrong
    return places[good]
