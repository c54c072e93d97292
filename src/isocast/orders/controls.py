"""Controls before the market: what a gateway refuses before an order can do harm, each with its reason.

They are asked in the order of `Reason`, and the first that fails is named (settlement 26): largest quantity, largest
value, price collar, messages a second, orders open, kill switches. Cancels are asked for none of them (settlement 23):
whoever wants less risk is never stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from isocast.orders.desk import Reason
from isocast.orders.json_forms import price_text
from isocast.orders.needs import Side

__all__ = ["DEFAULT_LIMITS", "Block", "BlockScope", "ControlRefusal", "Limits", "RateLimit", "Wanted", "first_refusal"]

_BASIS: Final = 10_000
_SECOND: Final = 1_000_000_000


class Limits(NamedTuple):
    """What an account may do; 0: no limit."""

    quantity: int = 1_000_000
    """Of one order."""
    value: int = 10_000_000 * 10_000
    """Of one order, in price units."""
    collar_bp: int = 2_000
    """How far a price may be from the reference on its aggressive side, in basis points."""
    rate: int = 100
    """Messages a second, cancels aside; as many more at once after a pause."""
    open_orders: int = 1_000


DEFAULT_LIMITS: Final = Limits()
"""Of an account of which an operator said nothing."""


class BlockScope(StrEnum):
    """Whom a kill switch stops."""

    ACCOUNT = "account"
    """A trader; or a broker with all his customers."""
    CUSTOMER = "customer"
    """One customer of a broker."""
    GATEWAY = "gateway"


class Block(NamedTuple):
    """A kill switch that is on: nothing new, until an operator lifts it."""

    scope: BlockScope
    account: int = 0
    owner: int = 0
    reason: str = ""

    def stops(self, account: int, owner: int) -> bool:
        """Whether it is about an order of this account and this customer."""
        match self.scope:
            case BlockScope.GATEWAY:
                return True
            case BlockScope.ACCOUNT:
                return account == self.account
            case BlockScope.CUSTOMER:
                return (account, owner) == (self.account, self.owner)


class RateLimit:
    """A token bucket for each account: so many a second, and a second's worth at once. Time is passed in."""

    def __init__(self) -> None:
        self._buckets: dict[int, tuple[int, int]] = {}
        """When it was last asked, and what was in it then, in messages · 10⁹."""

    def allows(self, account: int, rate: int, now: int) -> bool:
        """Count a message at `now` (nanoseconds); False where it is one too many."""
        if not rate:
            return True
        full = rate * _SECOND
        at, had = self._buckets.get(account, (now, full))
        has = min(full, had + max(0, now - at) * rate)
        is_allowed = has >= _SECOND
        self._buckets[account] = max(now, at), has - _SECOND * is_allowed
        return is_allowed

    def forget_full(self, now: int) -> None:
        """Forget accounts that have sent nothing for a second: their bucket is full again."""
        for account in [account for account, (at, _) in self._buckets.items() if now - at >= _SECOND]:
            del self._buckets[account]


class Wanted(NamedTuple):
    """What a new order, or a replace, would make of an order."""

    account: int
    owner: int
    side: Side
    quantity: int
    """In all."""
    price: int | None
    """Its limit, or its protection price; None: not known."""
    is_limit: bool
    """Only a limit is asked for the collar: a protection price is made by it."""
    reference: int | None
    """Of a stop its trigger; None: there is none."""
    is_new: bool


class ControlRefusal(NamedTuple):
    """By which control, and what it says."""

    reason: Reason
    text: str


def first_refusal(
    wanted: Wanted, limits: Limits, open_orders: int, blocks: Iterable[Block], has_rate: Callable[[], bool]
) -> ControlRefusal | None:
    """The first control that refuses; None: all agree. `has_rate` is asked once, whatever refuses."""
    is_in_time = has_rate()
    if not 0 < wanted.quantity <= (limits.quantity or wanted.quantity):
        most = f"at most {limits.quantity:,}" if limits.quantity else "above zero"
        return ControlRefusal(Reason.QUANTITY, f"a quantity of {wanted.quantity:,}: {most}")
    value = wanted.quantity * (wanted.price or 0)
    if limits.value and value > limits.value:
        return ControlRefusal(Reason.VALUE, f"a value of {price_text(value)}: at most {price_text(limits.value)}")
    reference = wanted.reference
    if reference is not None and _is_outside(wanted, reference, limits.collar_bp):
        far = f"more than {limits.collar_bp} basis points from {price_text(reference)}"
        return ControlRefusal(Reason.COLLAR, far)
    if not is_in_time:
        return ControlRefusal(Reason.RATE, f"more than {limits.rate:,} messages a second")
    if wanted.is_new and limits.open_orders and open_orders >= limits.open_orders:
        return ControlRefusal(Reason.OPEN_ORDERS, f"{open_orders:,} orders are open: at most {limits.open_orders:,}")
    for block in blocks:
        if block.stops(wanted.account, wanted.owner):
            because = f": {block.reason}" if block.reason else ""
            return ControlRefusal(Reason.BLOCKED, f"the {block.scope} is stopped{because}")
    return None


def _is_outside(wanted: Wanted, reference: int, collar_bp: int) -> bool:
    """Whether a limit is too far on its aggressive side; integers, rounded inwards."""
    if not collar_bp or not wanted.is_limit or wanted.price is None:
        return False
    if wanted.side is Side.BUY:
        return wanted.price * _BASIS > reference * (_BASIS + collar_bp)
    return wanted.price * _BASIS < reference * (_BASIS - collar_bp)
