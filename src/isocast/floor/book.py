"""The orders of one symbol, in the order in which they fill: by price, then by time.

A level is the orders of one price; market orders of one protection price are a level of their own, which stands before
the limits there, and without a protection price before all. In continuous trading no market order ever rests: such
levels exist in calls, and live for one auction.

This is the readable book: a sorted list of levels, and in each its orders by id, in the order of their entry, so that
one in the middle leaves as fast as the first. `floor.fast_book` keeps the same orders for speed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from isocast.floor.events import Crossing
from isocast.terms.market import Side

__all__ = ["Book", "BookSide", "Rank", "WorkingOrder"]

Rank: TypeAlias = tuple[int, int, int]
"""Sorts levels: the smallest fills first."""


@dataclass(slots=True, eq=False)
class WorkingOrder:
    """An order that has entered: in a book, or a stop that waits outside it."""

    id: int
    account: int
    owner: int
    side: Side
    price: int
    """The limit; of a market order its protection price, 0: none."""
    total: int
    filled: int
    token: int
    """In which it got its place."""
    place: int
    """Its priority among all orders of the floor: the smaller, the earlier."""
    is_market: bool = False
    is_immediate: bool = False
    is_all: bool = False
    is_post_only: bool = False
    is_day: bool = False
    trigger: int | None = None
    """Of a stop that still waits."""
    until: int | None = None
    at: Crossing | None = None
    display: int = 0
    """What an iceberg shows at a time; 0: all."""
    part: int = 0
    """What is left of the part that an iceberg shows, before what was cancelled of it."""

    @property
    def shown(self) -> int:
        """What can trade before others of its price come first."""
        return min(self.part, self.left) if self.display else self.left

    def show(self) -> None:
        """Show the next part of an iceberg."""
        self.part = min(self.display, self.left)

    @property
    def is_passing(self) -> bool:
        """Whether it lives for one auction, if it rests at all."""
        return (self.is_market or self.is_immediate) and self.at is None

    @property
    def left(self) -> int:
        """What can still trade."""
        return self.total - self.filled

    @property
    def rank(self) -> Rank:
        """Which level it belongs to."""
        if self.is_market and not self.price:
            return (0, 0, 0)
        ahead = -self.price if self.side is Side.BUY else self.price
        return (1, ahead, 0 if self.is_market else 1)

    def is_within(self, price: int) -> bool:
        """Whether it may trade at this price."""
        if self.is_market and not self.price:
            return True
        return price <= self.price if self.side is Side.BUY else price >= self.price

    def is_own(self, other: WorkingOrder) -> bool:
        """Whether both are one owner's."""
        return (self.account, self.owner) == (other.account, other.owner)


class BookSide:
    """All buys, or all sells."""

    def __init__(self) -> None:
        self._ranks: list[Rank] = []
        self._levels: dict[Rank, OrderedDict[int, WorkingOrder]] = {}

    def __iter__(self) -> Iterator[WorkingOrder]:
        """All orders, in the order in which they fill."""
        for rank in self._ranks:
            yield from self._levels[rank].values()

    def __bool__(self) -> bool:
        return bool(self._ranks)

    @property
    def best(self) -> WorkingOrder | None:
        """The order that fills next."""
        return next(iter(self._levels[self._ranks[0]].values())) if self._ranks else None

    def levels(self) -> Iterator[list[WorkingOrder]]:
        """The levels, best first."""
        for rank in self._ranks:
            yield list(self._levels[rank].values())

    def add(self, order: WorkingOrder) -> None:
        """An order goes behind all others of its level."""
        rank = order.rank
        level = self._levels.get(rank)
        if level is None:
            insort(self._ranks, rank)
            level = self._levels[rank] = OrderedDict()
        level[order.id] = order

    def remove(self, order: WorkingOrder) -> None:
        """An order leaves the book."""
        rank = order.rank
        level = self._levels[rank]
        del level[order.id]
        if not level:
            del self._levels[rank]
            del self._ranks[bisect_left(self._ranks, rank)]


class Book:
    """Both sides."""

    def __init__(self) -> None:
        self.buys = BookSide()
        self.sells = BookSide()

    def side(self, side: Side) -> BookSide:
        """The orders of one side."""
        return self.buys if side is Side.BUY else self.sells

    def facing(self, side: Side) -> BookSide:
        """The orders that this side trades with."""
        return self.sells if side is Side.BUY else self.buys

    def __iter__(self) -> Iterator[WorkingOrder]:
        """All orders: buys, then sells."""
        yield from self.buys
        yield from self.sells
