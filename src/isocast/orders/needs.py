"""What an order binds before it may leave its gateway (§1 of the trading rules, settlements 15 to 18).

A buy of 100 at 10.00 with fees of at most 5 basis points: 1,000.00 and 0.50.

>>> need(Side.BUY, price=100_000, quantity=100, fee_bp=5)
10005000
>>> need(Side.SELL, price=100_000, quantity=100, fee_bp=5)
100
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

__all__ = ["Side", "corrected_fee", "fee", "need", "protection_price"]

_BASIS: Final = 10_000


class Side(StrEnum):
    """Of an order."""

    BUY = "buy"
    SELL = "sell"


def fee(value: int, fee_bp: int) -> int:
    """Rounded down for each trade, so that the fees of all parts never exceed the fee of the whole."""
    return value * fee_bp // _BASIS


def corrected_fee(paid: int, value: int, rates_bp: Iterable[int], corrected_value: int) -> int:
    """The fee of a trade whose value was corrected: by the rate at which it was paid.

    Where two rates give the fee that was paid, the lower; where none does, in proportion.

    >>> corrected_fee(20, 100_000, (1, 2), 50_000)
    10
    """
    rates = [rate for rate in rates_bp if fee(value, rate) == paid]
    if rates:
        return fee(corrected_value, min(rates))
    return corrected_value * paid // value if value else 0


def need(side: Side, *, price: int, quantity: int, fee_bp: int) -> int:
    """Money for a buy, with the largest fee, or shares for a sale.

    `price` is the limit; of a market order, and of a stop that becomes one, its protection price.
    """
    if side is Side.SELL:
        return quantity
    value = price * quantity
    return value + fee(value, fee_bp)


def protection_price(side: Side, reference: int, collar_bp: int, tick: int) -> int:
    """The price beyond which a market order never trades, rounded towards the reference to a whole tick.

    >>> protection_price(Side.BUY, 100_000, 500, 100), protection_price(Side.SELL, 100_000, 500, 100)
    (105000, 95000)
    """
    if side is Side.BUY:
        return reference * (_BASIS + collar_bp) // _BASIS // tick * tick
    return -(-reference * (_BASIS - collar_bp) // (_BASIS * tick)) * tick
