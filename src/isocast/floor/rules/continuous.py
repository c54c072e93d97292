"""Continuous trading: an order that comes trades with those that wait, the best price first, then the earliest.

It goes on while there is something within its limit. Where the next one is its own owner's, the symbol's rule for own
orders decides; where the next trade would leave the band, nothing more trades.

An iceberg shows a part of itself at a time. When that is filled, the next part goes behind all others of its price.

Example: two sells wait, 100 at 10.02 and 50 at 10.03. A buy of 200, limit 10.03, all or nothing: nothing trades. For
immediate execution: 150, and 50 are cancelled. Without either: 150, and 50 wait at 10.03.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from isocast.floor.book import BookSide, WorkingOrder
from isocast.floor.events import Directory, OwnRule
from isocast.floor.rules.trade_price import trade_price

__all__ = ["Band", "Fill", "Meeting", "fillable", "meet"]

_BASIS = 10_000


class Band(NamedTuple):
    """Prices at which a symbol may trade without a pause."""

    low: int
    high: int

    @classmethod
    def around(cls, reference: int | None, basis_points: int) -> Band | None:
        """So many basis points about a reference, rounded inwards; None: any price."""
        if reference is None or not basis_points:
            return None
        return cls(
            -(-reference * (_BASIS - basis_points) // _BASIS),
            reference * (_BASIS + basis_points) // _BASIS,
        )

    def has(self, price: int) -> bool:
        """Whether a price is inside."""
        return self.low <= price <= self.high


class Fill(NamedTuple):
    """A part of two orders that trades."""

    resting: WorkingOrder
    price: int
    quantity: int
    is_own: bool


@dataclass(slots=True)
class Meeting:
    """What became of an incoming order."""

    fills: list[Fill] = field(default_factory=list)
    removed: list[WorkingOrder] = field(default_factory=list)
    """Waiting orders of the same owner that the rule for own orders cancels."""
    is_stopped: bool = False
    """That rule cancels what is left of the incoming order."""
    leaves_band: bool = False
    """The next trade would have been outside the band."""


def meet(
    incoming: WorkingOrder, facing: BookSide, terms: Directory, band: Band | None, place: Callable[[], int]
) -> Meeting:
    """Trade an order with those that wait; both change. `place` gives what an iceberg's next part gets."""
    meeting = Meeting()
    while incoming.left and (resting := facing.best) is not None and incoming.is_within(resting.price):
        is_own = incoming.is_own(resting)
        if is_own and terms.own_rule is not OwnRule.NONE:
            if terms.own_rule is not OwnRule.CANCEL_NEWEST:
                facing.remove(resting)
                meeting.removed.append(resting)
            if terms.own_rule is not OwnRule.CANCEL_OLDEST:
                meeting.is_stopped = True
                return meeting
            continue
        price = trade_price(terms.price_rule, terms.tick, resting, incoming)
        if band is not None and not band.has(price):
            meeting.leaves_band = True
            return meeting
        quantity = min(incoming.left, resting.shown)
        incoming.filled += quantity
        resting.filled += quantity
        resting.part -= min(quantity, resting.part)
        if not resting.shown:
            facing.remove(resting)
        if resting.left and not resting.shown:
            resting.token, resting.place = incoming.token, place()
            resting.show()
            facing.add(resting)
        meeting.fills.append(Fill(resting, price, quantity, is_own))
    return meeting


def fillable(incoming: WorkingOrder, facing: BookSide, terms: Directory, band: Band | None) -> int:
    """How much of an order would trade at once, at most all of it; nothing changes."""
    found = 0
    for level in facing.levels():
        if found >= incoming.left or not incoming.is_within(level[0].price):
            break
        price = trade_price(terms.price_rule, terms.tick, level[0], incoming)
        leaves_band = band is not None and not band.has(price)
        hidden = 0
        for resting in level:
            if incoming.is_own(resting) and terms.own_rule is not OwnRule.NONE:
                if terms.own_rule is OwnRule.CANCEL_OLDEST:
                    continue
                return min(found, incoming.left)
            if leaves_band:
                return min(found, incoming.left)
            found += resting.shown
            hidden += resting.left - resting.shown
        # What icebergs do not show comes behind all that waits at their price.
        found += hidden
    return min(found, incoming.left)
