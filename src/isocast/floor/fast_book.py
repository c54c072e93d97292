"""The same book, kept for speed: a heap of levels, and in each its orders by id.

A level is known by one whole number, smaller for what fills earlier, so that "does it cross" is one comparison on
either side. A level that runs empty stays until it comes to the top of the heap: most prices are used again at once,
and a cancel then touches nothing but its own level. Empty levels are sorted out when they are as many as the others.

    level           buys                sells
    limit p         1 - 2p              2p + 1
    market, to p    -2p                 2p
    market          below all numbers that a price can give
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from isocast.floor.book import Book, BookSide, WorkingOrder
from isocast.terms.market import Side

__all__ = ["FEW", "DayOrder", "FastBook", "FastSide", "Level", "PlainOrder"]

Level: TypeAlias = dict[int, WorkingOrder]
"""Orders by id, in the order in which they fill: a plain dict, and an OrderedDict from `FEW` orders on, because the
first key of a plain dict is looked for behind all that were removed."""
FEW = 8

_BEFORE_ALL = -(1 << 80)
_EMPTY_MAX = 64
"""So many levels are never looked through for empty ones."""


class PlainOrder(WorkingOrder):
    """A limit order until cancelled, without any condition: they need less room and time."""

    __slots__ = ()
    is_market = False
    is_immediate = False
    is_all = False
    is_post_only = False
    is_day = False
    until = None
    at = None
    display = 0

    def __init__(  # noqa: PLR0913, PLR0917 - keywords take time
        self,
        number: int,
        account: int,
        owner: int,
        side: Side,
        price: int,
        total: int,
        filled: int,
        token: int,
        place: int,
    ) -> None:
        self.id = number
        self.account = account
        self.owner = owner
        self.side = side
        self.price = price
        self.total = total
        self.filled = filled
        self.token = token
        self.place = place
        self.trigger = None
        self.part = 0


class DayOrder(PlainOrder):
    """The same, until its symbol closes."""

    __slots__ = ()
    is_day = True


class FastSide(BookSide):
    """All buys, or all sells."""

    def __init__(self) -> None:
        self.heap: list[int] = []
        """The levels, empty ones among them; each once."""
        self.queues: dict[int, Level] = {}
        self.icebergs = 0
        """How many orders do not show all of themselves."""
        self._compact_at = _EMPTY_MAX

    def __iter__(self) -> Iterator[WorkingOrder]:
        for level in self._in_order():
            yield from level.values()

    def __bool__(self) -> bool:
        return self.best is not None

    @property
    def best(self) -> WorkingOrder | None:
        """The order that fills next."""
        heap, queues = self.heap, self.queues
        while heap:
            level = queues[heap[0]]
            if level:
                return next(iter(level.values()))
            del queues[heappop(heap)]
        return None

    def levels(self) -> Iterator[list[WorkingOrder]]:
        """The levels, best first."""
        for level in self._in_order():
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
        number = _level_number(order)
        level = self.queues.get(number)
        if level is None or len(level) == FEW:
            level = self.open(number)
        level[order.id] = order
        if order.display:
            self.icebergs += 1

    def remove(self, order: WorkingOrder) -> None:
        """An order leaves the book."""
        del self.queues[_level_number(order)][order.id]
        if order.display:
            self.icebergs -= 1

    def open(self, number: int) -> Level:
        """A level that is not there yet, or one that has outgrown a plain dict."""
        few = self.queues.get(number)
        if few is not None:
            many = few if isinstance(few, OrderedDict) else OrderedDict(few)
            self.queues[number] = many
            return many
        if len(self.heap) >= self._compact_at:
            self._compact()
        level: Level = {}
        self.queues[number] = level
        heappush(self.heap, number)
        return level

    def _compact(self) -> None:
        """Forget empty levels."""
        self.queues = {number: level for number, level in self.queues.items() if level}
        self.heap[:] = self.queues
        heapify(self.heap)
        self._compact_at = 2 * len(self.heap) + _EMPTY_MAX


class FastBook(Book):
    """Both sides."""

    buys: FastSide
    sells: FastSide

    def __init__(self) -> None:
        self.buys = FastSide()
        self.sells = FastSide()


def _level_number(order: WorkingOrder) -> int:
    if order.is_market and not order.price:
        return _BEFORE_ALL
    ahead = -2 * order.price if order.side is Side.BUY else 2 * order.price
    return ahead if order.is_market else ahead + 1
