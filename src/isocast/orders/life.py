"""An order's life at its gateway: what the sequence says, step by step, and what the order binds meanwhile.

    pending → working → part filled → filled
       |         |            |
    refused   cancelled, expired

An order binds what it needs in the worst case: at its limit (or protection price), with replaces that are under way
taken or refused, and as much filled before each of them as can be. What a step no longer needs is what the step
returns: the gateway frees it, or settles a trade from it, once that step is stable.

>>> order = OrderLife(1, 1, "a", "IBM", Side.BUY, total=100, bound_price=10)
>>> order.bound
1000
>>> order.begin_change(Change("b", ChangeKind.REPLACE, 120, 9))
180
>>> order.bound
1180
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from isocast.orders.desk import Lifetime, OrderKind, OrderStatus, ReportKind, TradeReport
from isocast.orders.needs import Side, fee, need
from isocast.terms.errors import LocalProtocolError

__all__ = ["CHANGES_MAX", "Change", "ChangeKind", "OrderLife"]

CHANGES_MAX: Final = 4
"""Replaces of one order that are under way: the worst case looks at four ends for each."""


class ChangeKind(StrEnum):
    """What a trader asked of an order that lives."""

    CANCEL = "cancel"
    REPLACE = "replace"
    REVEAL = "reveal"


class Change(NamedTuple):
    """A cancel or a replace on its way through the sequence."""

    client_id: str
    kind: ChangeKind
    quantity: int | None = None
    """Of a replace the new total; of a cancel how much goes, None: all."""
    bound_price: int | None = None
    """Of a replace: what a unit may cost then; None: as before."""
    price: int | None = None
    trigger: int | None = None


@dataclass(slots=True)
class OrderLife:
    """One order. A step that cannot follow raises LocalProtocolError and changes nothing."""

    id: int
    account: int
    client_id: str
    symbol: str
    side: Side
    total: int
    bound_price: int
    """What a unit costs at most: the limit, or the protection price."""
    kind: OrderKind = OrderKind.LIMIT
    lifetime: Lifetime = Lifetime.DAY
    price: int | None = None
    """As the trader gave it."""
    trigger: int | None = None
    fee_bp: int = 0
    """The larger of what makers and takers pay."""
    status: OrderStatus = OrderStatus.PENDING
    filled: int = 0
    filled_value: int = 0
    changes: tuple[Change, ...] = ()
    """Under way, in the order in which they were sent."""
    bound: int = field(default=-1)
    """Reserved for what is left, without trades and frees that are not stable."""

    def __post_init__(self) -> None:
        """Bind what it needs, unless that is known."""
        if self.bound < 0:
            self.bound = self.need()

    @property
    def left(self) -> int:
        """What can still trade."""
        return 0 if self.status.is_final else self.total - self.filled

    @property
    def is_live(self) -> bool:
        """Whether something can still happen to it."""
        return not self.status.is_final

    # What it needs ----------------------------------------------------------------------------------------------

    def need(self, *further: Change) -> int:
        """What must be bound for what is left: money with the largest fee, or shares."""
        if self.status.is_final:
            return 0
        if not self.changes and not further:
            left = max(0, self.total - self.filled)
            return need(self.side, price=self.bound_price, quantity=left, fee_bp=self.fee_bp)
        changes = [one for one in (*self.changes, *further) if one.kind is ChangeKind.REPLACE]
        if self.side is Side.SELL:
            totals = [one.quantity for one in changes if one.quantity is not None]
            return max(self.total, *totals, self.filled) - self.filled if totals else self.total - self.filled
        value = _worst(self.total, self.bound_price, self.filled, changes)
        return value + fee(value, self.fee_bp)

    def _rebound(self) -> int:
        """Bind what is needed now; what is no longer needed."""
        before, self.bound = self.bound, self.need()
        return before - self.bound

    # What happens to it -----------------------------------------------------------------------------------------

    def begin_change(self, change: Change) -> int:
        """A cancel or a replace is sent: what must be bound beyond what is bound."""
        self._must_live("changed")
        replaces = sum(one.kind is ChangeKind.REPLACE for one in self.changes)
        if change.kind is ChangeKind.REPLACE and replaces >= CHANGES_MAX:
            raise LocalProtocolError(f"order {self.id} has {replaces} replaces under way: wait for their answers")
        self.changes = (*self.changes, change)
        return -self._rebound()

    def work(self) -> None:
        """The floor took it."""
        self._must_be(OrderStatus.PENDING, "taken")
        self.status = OrderStatus.WORKING

    def refuse(self) -> int:
        """The floor refused it: what is no longer needed."""
        self._must_be(OrderStatus.PENDING, "refused")
        self.status = OrderStatus.REFUSED
        return self._rebound()

    def trade(self, quantity: int, price: int) -> int:
        """So much of it is filled: what was bound for that, which is at least what it costs.

        A trade that fills it all ends replaces under way: what was bound for those comes with it.
        """
        self._must_work("traded")
        if not 0 < quantity <= self.left:
            raise LocalProtocolError(f"order {self.id} has {self.left} left and trades {quantity}")
        if self.side is Side.BUY and price > self.bound_price:
            raise LocalProtocolError(f"order {self.id} trades at {price}, beyond {self.bound_price}")
        self.filled += quantity
        self.filled_value += quantity * price
        self._restate()
        return self._rebound()

    def cancel(self, quantity: int) -> int:
        """So much goes without a trade: what is no longer needed."""
        self._must_work("cancelled")
        if not 0 < quantity <= self.left:
            raise LocalProtocolError(f"order {self.id} has {self.left} left and loses {quantity}")
        if quantity == self.left:
            self.status = OrderStatus.CANCELLED
        else:
            self.total -= quantity
        return self._rebound()

    def expire(self) -> int:
        """Its time is over: what is no longer needed."""
        self._must_work("expired")
        self.status = OrderStatus.EXPIRED
        return self._rebound()

    def end_change(self, change: Change, *, is_taken: bool) -> int:
        """The floor answers a change: what is no longer needed. A cancel that is taken comes as `cancel`."""
        left = list(self.changes)
        if change not in left:
            raise LocalProtocolError(f"order {self.id} has no such change under way")
        left.remove(change)
        if is_taken and change.kind is ChangeKind.REPLACE:
            self._must_work("replaced")
            self._replace(change)
        self.changes = tuple(left)
        return self._rebound()

    def _replace(self, change: Change) -> None:
        total = self.total if change.quantity is None else change.quantity
        self.total = max(total, self.filled)
        self.bound_price = self.bound_price if change.bound_price is None else change.bound_price
        self.price = self.price if change.price is None else change.price
        self.trigger = self.trigger if change.trigger is None else change.trigger
        self.client_id = change.client_id
        self._restate()

    def _restate(self) -> None:
        if self.filled >= self.total:
            self.status = OrderStatus.FILLED
        else:
            self.status = OrderStatus.PART_FILLED if self.filled else OrderStatus.WORKING

    def put_back(self, before: OrderLife, changes: tuple[Change, ...]) -> None:
        """What some tokens did to it is void: it is as before them, with every change under way that was sent since."""
        for name in _DECIDED:
            setattr(self, name, getattr(before, name))
        self.changes = changes
        self.bound = self.need()

    def _must_be(self, status: OrderStatus, done: str) -> None:
        if self.status is not status:
            raise LocalProtocolError(f"order {self.id} is {self.status} and cannot be {done}")

    def _must_work(self, done: str) -> None:
        if self.status not in (OrderStatus.WORKING, OrderStatus.PART_FILLED):
            raise LocalProtocolError(f"order {self.id} is {self.status} and cannot be {done}")

    def _must_live(self, done: str) -> None:
        if not self.is_live:
            raise LocalProtocolError(f"order {self.id} is {self.status} and cannot be {done}")

    # What its trader hears --------------------------------------------------------------------------------------

    def report(
        self, kind: ReportKind, at: int, number: int = 0, sequence: int = 0, trade: tuple[int, int, int] = (0, 0, 0)
    ) -> TradeReport:
        """It, as it is after a step; `trade`: its number, quantity and price."""
        return TradeReport(  # By place: there is one for every step of every order.
            number,
            self.account,
            kind,
            self.status,
            self.client_id,
            "",
            self.id,
            self.symbol,
            self.side,
            self.kind,
            self.lifetime,
            self.total,
            self.filled,
            self.filled_value,
            self.left,
            self.price,
            self.trigger,
            at,
            sequence,
            *trade,
        )

    def copy(self) -> OrderLife:
        """To be changed; several times as fast as `dataclasses.replace`."""
        return OrderLife(
            self.id,
            self.account,
            self.client_id,
            self.symbol,
            self.side,
            self.total,
            self.bound_price,
            self.kind,
            self.lifetime,
            self.price,
            self.trigger,
            self.fee_bp,
            self.status,
            self.filled,
            self.filled_value,
            self.changes,
            self.bound,
        )


def _worst(total: int, price: int, filled: int, changes: list[Change]) -> int:
    """The largest sum that an order can cost from here, whatever is filled before each change, taken or refused.

    What is filled before a change enters linearly, so its two ends are enough.
    """
    left = max(0, total - filled)
    if not changes:
        return left * price
    change, rest = changes[0], changes[1:]
    new_total = total if change.quantity is None else change.quantity
    new_price = price if change.bound_price is None else change.bound_price
    return max(
        before * price
        + max(_worst(total, price, filled + before, rest), _worst(new_total, new_price, filled + before, rest))
        for before in (0, left)
    )


_DECIDED: Final = ("client_id", "total", "bound_price", "price", "trigger", "status", "filled", "filled_value")
"""What the sequence changes of an order."""
