"""The price of an auction: one for all, at which most trades.

Candidates are the limits in the book and the reference price. With B(p) what buyers would take at p and S(p) what
sellers would give, market orders included as far as their protection prices allow, these decide, in this order:

    1. the largest volume, min(B, S)
    2. the smallest surplus, |B - S|
    3. where all that remain have a surplus of buys the highest, where all have one of sells the lowest
    4. the reference, moved into the range of those that remain; without one the middle of that range, down to a tick

Nothing trades if the volume is 0.

Example: buys of 100 at 10.05, 50 at 10.03, 80 at 10.00; sells of 70 at 9.98, 60 at 10.01, 100 at 10.04.

    price       B       S       volume      surplus
     9.98       230     70      70          160
    10.00       230     70      70          160
    10.01       150     130     130         20
    10.03       150     130     130         20
    10.04       100     230     100         -130
    10.05       100     230     100         -130

10.01 and 10.03 remain, with buys left over at both: the price is 10.03. The buy at 10.05 gets its 100, the one at 10.03
gets 30 of 50.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from isocast.floor.book import Book, BookSide, WorkingOrder

__all__ = ["Auction", "uniform_price"]


class Auction(NamedTuple):
    """What an auction comes to."""

    price: int
    volume: int
    surplus: int
    """Buys that are left over at that price; negative: sells."""


def uniform_price(book: Book, reference: int | None, tick: int) -> Auction | None:
    """The price at which most trades; None: nothing does."""
    best_buy, best_sell = book.buys.best, book.sells.best
    if best_buy is None or best_sell is None or not best_buy.is_within(best_sell.price):
        return None
    # What does not reach the other side's best trades at no price, and the rest of a deep book is not looked at.
    buying, selling = _reaching(book.buys, best_sell), _reaching(book.sells, best_buy)
    limits = {order.price for order in (*buying, *selling) if not order.is_market}
    candidates = sorted(limits if reference is None else limits | {reference})
    if not candidates:
        return None
    buys, sells = _Wanted(buying), _Wanted(selling)
    found = [
        Auction(price, min(bought, sold), bought - sold)
        for price in candidates
        for bought, sold in [(buys.at_least(price), sells.at_most(price))]
    ]
    volume = max(one.volume for one in found)
    if not volume:
        return None
    most = [one for one in found if one.volume == volume]
    surplus = min(abs(one.surplus) for one in most)
    remaining = [one for one in most if abs(one.surplus) == surplus]
    price = _chosen(remaining, reference, tick)
    return Auction(price, volume, buys.at_least(price) - sells.at_most(price))


def _reaching(side: BookSide, best: WorkingOrder) -> list[WorkingOrder]:
    """The orders of a side that the best of the other could trade with."""
    if best.is_market and not best.price:
        return list(side)
    levels = takewhile(lambda level: level[0].is_within(best.price), side.levels())
    return [order for level in levels for order in level]


def _chosen(remaining: list[Auction], reference: int | None, tick: int) -> int:
    lowest, highest = remaining[0].price, remaining[-1].price
    if all(one.surplus > 0 for one in remaining):
        return highest
    if all(one.surplus < 0 for one in remaining):
        return lowest
    if reference is not None:
        return min(max(reference, lowest), highest)
    return max((lowest + highest) // 2 // tick * tick, lowest)


class _Wanted:
    """How much one side would trade at each price."""

    def __init__(self, orders: Sequence[WorkingOrder]) -> None:
        self._anywhere = sum(order.left for order in orders if order.is_market and not order.price)
        limited = sorted((order.price, order.left) for order in orders if order.price or not order.is_market)
        self._prices = [price for price, _ in limited]
        self._sums = [0, *accumulate(left for _, left in limited)]

    def at_least(self, price: int) -> int:
        """Of buys: all whose price is this or higher."""
        return self._anywhere + self._sums[-1] - self._sums[bisect_left(self._prices, price)]

    def at_most(self, price: int) -> int:
        """Of sells: all whose price is this or lower."""
        return self._anywhere + self._sums[bisect_right(self._prices, price)]
