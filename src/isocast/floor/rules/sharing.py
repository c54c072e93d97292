"""Who fills in an auction, where not everybody can: level by level, and by one of three rules in the last one.

    time        the earliest first
    pro-rata    in proportion, rounded down to whole lots; what is left over goes to the earliest, then to the next
    batch       token by token, the oldest first; in proportion inside the token where it runs out

Example: 100 are to be had at a level where A wants 90 and then B wants 60, lots of 1. By time A gets 90 and B 10; in
proportion A gets 60 and B 40. In a batch, where A came a token before B, A gets 90 and B 10; where both came in one
token, 60 and 40.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

from isocast.floor.book import WorkingOrder

__all__ = ["Portion", "Sharing", "by_batch", "by_proportion", "by_time", "paired", "portions"]


class Portion(NamedTuple):
    """What an order gets."""

    order: WorkingOrder
    quantity: int


Sharing: TypeAlias = Callable[[Sequence[WorkingOrder], int, int], Iterable[Portion]]
"""(orders of a level, by priority; quantity for them, less than they want; lot)."""


def by_time(level: Sequence[WorkingOrder], quantity: int, _: int) -> Iterator[Portion]:
    """The earliest first."""
    for order in level:
        part = min(order.left, quantity)
        yield Portion(order, part)
        quantity -= part


def by_proportion(level: Sequence[WorkingOrder], quantity: int, lot: int) -> Iterator[Portion]:
    """In proportion, rounded down to whole lots; the rest by priority."""
    wanted = sum(order.left for order in level)
    parts = [order.left * quantity // wanted // lot * lot for order in level]
    rest = quantity - sum(parts)
    for order, part in zip(level, parts, strict=True):
        more = min(order.left - part, rest)
        rest -= more
        yield Portion(order, part + more)


def by_batch(level: Sequence[WorkingOrder], quantity: int, lot: int) -> Iterator[Portion]:
    """Orders of one token have equal time: token by token, and in proportion inside the last one."""
    for _, group in groupby(level, lambda order: order.token):
        equals = list(group)
        wanted = sum(order.left for order in equals)
        if wanted <= quantity:
            yield from (Portion(order, order.left) for order in equals)
        elif quantity:
            yield from by_proportion(equals, quantity, lot)
        quantity -= min(wanted, quantity)


def portions(levels: Iterable[Sequence[WorkingOrder]], volume: int, lot: int, sharing: Sharing) -> list[Portion]:
    """Who gets how much of a volume, in the order in which they fill; nobody is listed who gets nothing."""
    found: list[Portion] = []
    for level in levels:
        wanted = sum(order.left for order in level)
        if wanted > volume:
            found += sharing(level, volume, lot)
            break
        found += [Portion(order, order.left) for order in level]
        volume -= wanted
    return [portion for portion in found if portion.quantity]


def paired(buys: list[Portion], sells: list[Portion]) -> Iterator[tuple[WorkingOrder, WorkingOrder, int]]:
    """Buys and sells of equal sums, in their orders, as trades of two."""
    waiting = iter(sells)
    seller, offered = None, 0
    for buyer, wanted in buys:
        missing = wanted
        while missing:
            if seller is None or not offered:
                seller, offered = next(waiting)
            part = min(missing, offered)
            yield buyer, seller, part
            missing -= part
            offered -= part
