"""Whose price a trade of continuous trading gets.

    resting     the price of the order that waited
    buyer       the buyer's limit
    seller      the seller's limit
    midpoint    halfway, rounded to a whole tick towards the price of the order that waited

Where the side whose price it would be is a market order, the trade gets the resting price; so does a midpoint with one.

Example: two sells wait, 100 at 10.02 and 50 at 10.03, and a buy of 120 comes with the limit 10.05.

    rule        100 at      20 at
    resting     10.02       10.03
    buyer       10.05       10.05
    seller      10.02       10.03
    midpoint    10.03       10.04       (10.035 goes towards 10.02)
"""

from __future__ import annotations

from isocast.floor.book import WorkingOrder
from isocast.floor.events import PriceRule
from isocast.terms.market import Side

__all__ = ["trade_price"]


def trade_price(rule: PriceRule, tick: int, resting: WorkingOrder, incoming: WorkingOrder) -> int:
    """The price at which two orders trade that meet."""
    if rule is PriceRule.RESTING or incoming.is_market:
        return resting.price
    if rule is PriceRule.MIDPOINT:
        return _midpoint(tick, resting.price, incoming.price)
    payer = Side.BUY if rule is PriceRule.BUYER else Side.SELL
    return incoming.price if incoming.side is payer else resting.price


def _midpoint(tick: int, resting: int, incoming: int) -> int:
    """Halfway, on a whole tick towards the resting price, and never beyond it.

    An order from before a change of the tick may wait between two ticks.
    """
    twice = resting + incoming
    if incoming > resting:
        return max(twice // (2 * tick) * tick, resting)
    return min(-(-twice // (2 * tick)) * tick, resting)
