"""The same book, kept for speed: a heap of levels, and in each its orders by id.

A level is known by one whole number, its key, smaller for what fills earlier; buys and sells have other keys, and an
order reaches a level of the other side exactly if both keys together are 2 at most. A level that runs empty stays until
it comes to the top of the heap: most prices are used again at once, and a cancel then touches nothing but its own
level. Empty levels are sorted out when they are as many as the others.

    level           buys                sells
    limit p         1 - 2p              2p + 1
    market, to p    -2p                 2p
    market          below all numbers that a price can give

An order without conditions waits as a `Resting`, a tuple of plain values: it costs no object, and the garbage collector
soon forgets it. Whoever asks the book or the floor for such an order gets it as an object, and it stays one: nobody
holds a tuple that is not the order any more. Who iterates over a book gets what is to be read only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from isocast.floor.book import Book, BookSide, WorkingOrder
from isocast.terms.market import Side

if TYPE_CHECKING:
    from isocast.floor.machine import SymbolState

__all__ = [
    "FEW",
    "MEETS",
    "FastBook",
    "FastSide",
    "Level",
    "LiveOrders",
    "Resting",
    "as_order",
    "limit_of_key",
]

Level: TypeAlias = dict[int, Any]
"""Orders by id, each a `Resting` or a `WorkingOrder`, in the order in which they fill: a plain dict, and an OrderedDict
from `FEW` orders on, because the first key of a plain dict is looked for behind all that were removed."""
FEW = 8
MEETS = 2
"""At most so much are the keys of two levels together whose orders trade."""

_BEFORE_ALL = {Side.BUY: -(1 << 80), Side.SELL: -(1 << 80) - 1}
_EMPTY_MAX = 64
"""So many levels are never looked through for empty ones."""


class Resting(NamedTuple):
    """A limit order that waits, without conditions but that of the day; `floor.fast` makes them as plain tuples."""

    symbol: int
    """Its place in the directory."""
    key: int
    """Of its level: side and price."""
    total: int
    filled: int
    account: int
    owner: int
    token: int
    place: int
    is_day: bool

    @classmethod
    def of(cls, symbol: int, order: WorkingOrder) -> Resting | None:
        """An order that waits in a book; None: it has conditions."""
        if order.is_market or order.is_immediate or order.is_all or order.is_post_only or order.display:
            return None
        if order.trigger is not None or order.until is not None or order.at is not None:
            return None
        return cls(
            symbol,
            _level_key(order),
            order.total,
            order.filled,
            order.account,
            order.owner,
            order.token,
            order.place,
            order.is_day,
        )


def as_order(number: int, resting: Iterable[Any]) -> WorkingOrder:
    """The same as an object."""
    _, key, total, filled, account, owner, token, place, is_day = resting
    side = Side.SELL if key > 0 else Side.BUY
    return WorkingOrder(number, account, owner, side, limit_of_key(key), total, filled, token, place, is_day=is_day)


def limit_of_key(key: int) -> int:
    """The price of a level of limit orders."""
    return key >> 1 if key > 0 else (1 - key) >> 1


class LiveOrders(MutableMapping[int, "tuple[SymbolState, WorkingOrder]"]):
    """All that work or wait on a floor, by id, each with its symbol. Whoever asks for one may change it."""

    def __init__(self) -> None:
        self.rows: dict[int, Any] = {}
        """Those that are a `Resting`."""
        self.objects: dict[int, tuple[SymbolState, WorkingOrder]] = {}
        """All others."""
        self.states: list[SymbolState] = []
        """The symbols, in the order of their directory."""
        self.parts: list[tuple[SymbolState, dict[int, Level], FastSide, FastSide, list[int], list[int]]] = []
        """The same with what their books consist of, which is the same for good: levels, buys, sells, their heaps."""

    def __len__(self) -> int:
        return len(self.rows) + len(self.objects)

    def __iter__(self) -> Iterator[int]:
        return iter([*self.rows, *self.objects])  # Whoever asks for one on the way changes both.

    def __contains__(self, number: object) -> bool:
        return number in self.rows or number in self.objects

    def __getitem__(self, number: int) -> tuple[SymbolState, WorkingOrder]:
        resting = self.rows.pop(number, None)
        if resting is None:
            return self.objects[number]
        state, order = self.states[resting[0]], as_order(number, resting)
        state.book.queues[resting[1]][number] = order
        found = self.objects[number] = state, order
        return found

    def __setitem__(self, number: int, order: tuple[SymbolState, WorkingOrder]) -> None:
        self.objects[number] = order

    def __delitem__(self, number: int) -> None:
        if self.rows.pop(number, None) is None:
            del self.objects[number]

    def get(self, number: int, default: Any = None) -> Any:  # noqa: ANN401 - as of any mapping
        """An order with its symbol."""
        return self[number] if number in self.rows else self.objects.get(number, default)

    def peek(self, number: int) -> tuple[SymbolState, WorkingOrder] | None:
        """The same, to be read."""
        resting = self.rows.get(number)
        if resting is None:
            return self.objects.get(number)
        return self.states[resting[0]], as_order(number, resting)

    def join(self, state: SymbolState) -> None:
        """A symbol joins; the orders of its book become tuples, as far as they have no conditions."""
        self.states.append(state)
        book: FastBook = state.book  # type: ignore[assignment]
        self.parts.append((state, book.queues, book.buys, book.sells, book.buys.heap, book.sells.heap))
        for level in book.queues.values():
            for number, order in list(level.items()):
                resting = Resting.of(state.place, order)
                if resting is not None:
                    self.rows[number] = level[number] = tuple(resting)
                    del self.objects[number]


class FastSide(BookSide):
    """All buys, or all sells."""

    def __init__(self, orders: LiveOrders | None = None, queues: dict[int, Level] | None = None) -> None:
        self.heap: list[int] = []
        """The keys of its levels, empty ones among them; each once."""
        self.queues: dict[int, Level] = {} if queues is None else queues
        """Levels by key, those of the other side too."""
        self._orders = LiveOrders() if orders is None else orders
        self.icebergs = 0
        """How many orders do not show all of themselves."""
        self._compact_at = _EMPTY_MAX

    def __iter__(self) -> Iterator[WorkingOrder]:
        for level in self._in_order():
            for number, order in level.items():
                yield as_order(number, order) if type(order) is tuple else order

    def __bool__(self) -> bool:
        return self.best is not None

    @property
    def best(self) -> WorkingOrder | None:
        """The order that fills next."""
        heap, queues = self.heap, self.queues
        while heap:
            level = queues[heap[0]]
            if level:
                number, order = next(iter(level.items()))
                return self._orders[number][1] if type(order) is tuple else order
            del queues[heappop(heap)]
        return None

    def levels(self) -> Iterator[list[WorkingOrder]]:
        """The levels, best first."""
        for level in self._in_order():
            for number, order in level.items():
                if type(order) is tuple:
                    self._orders.get(number)
            yield list(level.values())

    def _in_order(self) -> Iterator[Level]:
        """Walk the heap from its top, so that whoever stops early has looked at little of it."""
        heap, queues = self.heap, self.queues
        reached = [(heap[0], 0)] if heap else []
        while reached:
            number, index = heappop(reached)
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(heap):
                    heappush(reached, (heap[child], child))
            if level := queues[number]:
                yield level

    def add(self, order: WorkingOrder) -> None:
        """An order goes behind all others of its level."""
        key = _level_key(order)
        level = self.queues.get(key)
        if level is None or len(level) == FEW:
            level = self.open(key)
        level[order.id] = order
        if order.display:
            self.icebergs += 1

    def remove(self, order: WorkingOrder) -> None:
        """An order leaves the book."""
        del self.queues[_level_key(order)][order.id]
        if order.display:
            self.icebergs -= 1

    def open(self, key: int) -> Level:
        """A level that is not there yet, or one that has outgrown a plain dict."""
        few = self.queues.get(key)
        if few is not None:
            many = few if isinstance(few, OrderedDict) else OrderedDict(few)
            self.queues[key] = many
            return many
        if len(self.heap) >= self._compact_at:
            self._compact()
        level: Level = {}
        self.queues[key] = level
        heappush(self.heap, key)
        return level

    def _compact(self) -> None:
        """Forget empty levels."""
        for key in [key for key in self.heap if not self.queues[key]]:
            del self.queues[key]
        self.heap[:] = [key for key in self.heap if key in self.queues]
        heapify(self.heap)
        self._compact_at = 2 * len(self.heap) + _EMPTY_MAX


class FastBook(Book):
    """Both sides."""

    buys: FastSide
    sells: FastSide

    def __init__(self, orders: LiveOrders | None = None) -> None:
        self.queues: dict[int, Level] = {}
        """The levels of both sides, by key."""
        self.buys = FastSide(orders, self.queues)
        self.sells = FastSide(orders, self.queues)


def _level_key(order: WorkingOrder) -> int:
    if order.is_market and not order.price:
        return _BEFORE_ALL[order.side]
    ahead = -2 * order.price if order.side is Side.BUY else 2 * order.price
    return ahead if order.is_market else ahead + 1
