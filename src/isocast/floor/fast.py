"""The same floor, for speed: the events that most of a stream consists of take a short way.

Those are limit orders without conditions (for immediate execution, for a day, or until cancelled), cancels of a whole
order and replaces, of symbols that trade continuously at the resting price, without collar and band. All others go the
way of `floor.machine`, over the same book: at any moment both floors are equal, state hash included, and one suite of
tests holds for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop
from typing import Any, TypeAlias

from isocast.floor.book import WorkingOrder
from isocast.floor.events import (
    Cancel,
    Cancelled,
    Directory,
    Event,
    MarketKind,
    Order,
    OwnRule,
    Phase,
    PriceRule,
    Refusal,
    Refused,
    Replace,
    Replaced,
    Report,
    Trade,
)
from isocast.floor.fast_book import FEW, DayOrder, FastBook, FastSide, PlainOrder
from isocast.floor.machine import Floor, SymbolState
from isocast.terms.market import Side

__all__ = ["FastFloor", "Row", "RowKind"]

Row: TypeAlias = tuple[int, int, int, str, int, Any, Any, int, bool]
"""(kind, id, account, symbol, side, quantity, price, owner, is_immediate): an event as numbers. A cancel uses its id,
account and quantity only, a replace those and its price; quantity or price None of a replace: as it is."""


class RowKind:
    """What a row is."""

    ORDER = 0
    CANCEL = 1
    REPLACE = 2


_BUY, _SELL = Side.BUY, Side.SELL
_SIDES = {1: _BUY, 2: _SELL}
_OPEN = Phase.OPEN
_DEADLINE = Order._fields.index("deadline")


def _conditions(order: Order) -> tuple[Any, ...]:
    """All that follows the owner, but for the deadline."""
    return order[7:_DEADLINE] + order[_DEADLINE + 1 :]


_COMMON = Order(0, 0, "", Side.BUY, 0)
_SHORT: dict[tuple[Any, ...], type[PlainOrder] | None] = {
    _conditions(_COMMON): PlainOrder,
    _conditions(_COMMON._replace(is_day=True)): DayOrder,
    _conditions(_COMMON._replace(is_immediate=True)): None,
}
"""By its conditions, as what an order that takes the short way rests; None: it does not."""
_PLAINS = frozenset({PlainOrder, DayOrder})
_made: Callable[..., Any] = tuple.__new__
"""Makes a named tuple of values in a third of the time that its class needs."""


class FastFloor(Floor):
    """A trading floor as a function of its tokens; in everything but time the same as `Floor`."""

    def __init__(self) -> None:
        super().__init__(FastBook)
        self._plain: dict[str, SymbolState] = {}
        """Symbols whose rules are the common ones."""

    def apply(self, event: Event) -> list[Report]:
        """The next event of this token, and all that it wakes."""
        if isinstance(event, Order):
            self._order(event)
        elif isinstance(event, Cancel):
            self._cancel(event)
        elif isinstance(event, Replace):
            self._replace(event)
        else:
            return super().apply(event)
        if self._woken:
            self._wake()
        return self._told()

    def apply_rows(self, rows: Iterable[Row]) -> list[Report]:
        """Events of this token as numbers, so that no object is made for each; what came of all of them."""
        plain, woken, enter = self._plain, self._woken, self._enter_plain
        cancel, replace = self._cancel_number, self._replace_number
        for kind, number, account, symbol, side, quantity, price, owner, is_immediate in rows:
            if kind == RowKind.ORDER:
                state = plain.get(symbol)
                known = _SIDES.get(side)
                if state is not None and state.phase is _OPEN and known is not None:
                    enter(state, number, account, owner, known, quantity, price, None if is_immediate else PlainOrder)
                else:
                    order = Order(number, account, symbol, Side(side), quantity, price, owner)
                    super()._order(order._replace(is_immediate=is_immediate))
            elif kind == RowKind.CANCEL:
                cancel(number, account, quantity)
            else:
                replace(number, account, quantity, price)
            if woken:
                self._wake()
        return self._told()

    def _list(self, terms: Directory) -> None:
        super()._list(terms)
        self._sort(terms)

    def take_over(self, state: SymbolState) -> None:
        """A symbol joins, with all orders that it has."""
        super().take_over(state)
        self._sort(state.terms)

    def _sort(self, terms: Directory) -> None:
        """Which way a symbol's events go."""
        is_plain = (
            terms.market is MarketKind.CONTINUOUS
            and terms.price_rule is PriceRule.RESTING
            and not terms.collar_bp
            and not terms.band_bp
        )
        if is_plain:
            self._plain[terms.symbol] = self.symbols[terms.symbol]
        else:
            self._plain.pop(terms.symbol, None)

    # The short way ---------------------------------------------------------------------------------------------

    def _order(self, order: Order) -> None:
        state = self._plain.get(order.symbol)
        if state is not None and state.phase is _OPEN:
            conditions, deadline, side = _conditions(order), order.deadline, order.side
            is_in_time = deadline is None or self.at <= deadline
            if conditions in _SHORT and is_in_time and (side is _BUY or side is _SELL):
                number, account, _, _, quantity, price, owner = order[:7]
                self._enter_plain(state, number, account, owner, side, quantity, price, _SHORT[conditions])
                return
        super()._order(order)

    def _enter_plain(
        self,
        state: SymbolState,
        number: int,
        account: int,
        owner: int,
        side: Side,
        quantity: int,
        price: int,
        rests_as: type[PlainOrder] | None,
    ) -> None:
        """A limit order without conditions, of a symbol that trades: what `Floor._order` does with it.

        `rests_as` None: it is for immediate execution.
        """
        highest = self.highest
        self.touched[number] = account
        is_above = number > highest.get(account, -1)
        if is_above:
            highest[account] = number
        terms = state.terms
        if not is_above or number in self.orders or number in self.offers or number in self.lots:
            self._reports.append(Refused(number, Refusal.DUPLICATE_ID))
            return
        if quantity <= 0 or quantity % terms.lot:
            self._reports.append(Refused(number, Refusal.LOT))
            return
        if price <= 0 or price % terms.tick:
            self._reports.append(Refused(number, Refusal.TICK))
            return
        self.places = place = self.places + 1
        if not state.has_changed:
            self._touch(state)
        book: FastBook = state.book  # type: ignore[assignment]
        if side is _BUY:
            facing, own, bound, level_number = book.sells, book.buys, 2 * price + 1, 1 - 2 * price
        else:
            facing, own, bound, level_number = book.buys, book.sells, 1 - 2 * price, 2 * price + 1
        heap = facing.heap
        left = quantity
        if heap and heap[0] <= bound:
            if facing.icebergs:
                order = WorkingOrder(number, account, owner, side, price, quantity, 0, self.token, place)
                order.is_immediate, order.is_day = rests_as is None, rests_as is DayOrder
                self._arrive(state, order)
                return
            left = self._sweep(state, number, account, owner, side, quantity, bound)
        if rests_as is None:
            if left:
                self._reports.append(_made(Cancelled, (number, left)))
        elif left:
            resting = rests_as(number, account, owner, side, price, quantity, quantity - left, self.token, place)
            level = own.queues.get(level_number)
            if level is None or len(level) == FEW:
                level = own.open(level_number)
            level[number] = resting
            self.orders[number] = (state, resting)

    def _sweep(
        self, state: SymbolState, number: int, account: int, owner: int, side: Side, left: int, bound: int
    ) -> int:
        """Trade an order with what waits within its limit, as `rules.continuous.meet` does; what is left of it."""
        facing: FastSide = state.book.facing(side)  # type: ignore[assignment]
        heap, queues, orders, touched = facing.heap, facing.queues, self.orders, self.touched
        symbol, own_rule = state.terms.symbol, state.terms.own_rule
        trades: list[Report] = []
        is_stopped = False
        while left and heap and heap[0] <= bound and not is_stopped:
            level = queues[heap[0]]
            if not level:
                del queues[heappop(heap)]
            while left and level:
                other, resting = next(iter(level.items()))
                touched[other] = resting.account
                is_own = resting.account == account and resting.owner == owner
                if is_own and own_rule is not OwnRule.NONE:
                    if own_rule is not OwnRule.CANCEL_NEWEST:
                        self._reports.append(Cancelled(other, resting.total - resting.filled))
                        del level[other], orders[other]
                    if own_rule is not OwnRule.CANCEL_OLDEST:
                        is_stopped = True
                        break
                    continue
                part = resting.total - resting.filled
                if part > left:
                    part = left
                    resting.filled += part
                else:
                    resting.filled = resting.total
                    del level[other], orders[other]
                left -= part
                buy, sell = (number, other) if side is _BUY else (other, number)
                fields = self.next_trade, symbol, resting.price, part, buy, sell, is_own, False, False
                trades.append(_made(Trade, fields))
                self.next_trade += 1
        self._reports += trades
        if trades:
            self._note_prices(state, [trade[2] for trade in trades])  # type: ignore[misc]
        if is_stopped:
            self._reports.append(Cancelled(number, left))
            return 0
        return left

    def _cancel(self, cancel: Cancel) -> None:
        self._cancel_number(*cancel)

    def _cancel_number(self, number: int, account: int, quantity: int) -> None:
        found = self.orders.get(number)
        if found is None or quantity:
            super()._cancel(Cancel(number, account, quantity))
            return
        state, order = found
        if type(order) not in _PLAINS or order.account != account:
            super()._cancel(Cancel(number, account, quantity))
            return
        if not state.has_changed:
            self._touch(state)
        self._reports.append(_made(Cancelled, (number, order.total - order.filled)))
        self.touched[number] = account
        del self.orders[number]
        book: FastBook = state.book  # type: ignore[assignment]
        if order.side is _BUY:
            del book.buys.queues[1 - 2 * order.price][number]
        else:
            del book.sells.queues[2 * order.price + 1][number]

    def _replace(self, replace: Replace) -> None:
        self._replace_number(*replace)

    def _replace_number(
        self, number: int, account: int, quantity: int | None, price: int | None, trigger: int | None = None
    ) -> None:
        found = self.orders.get(number)
        if found is None or trigger is not None:
            super()._replace(Replace(number, account, quantity, price, trigger))
            return
        state, order = found
        terms = state.terms
        is_plain = type(order) in _PLAINS and order.account == account and state.phase is _OPEN
        if not is_plain or terms.symbol not in self._plain:
            super()._replace(Replace(number, account, quantity, price, trigger))
            return
        total = order.total if quantity is None else quantity
        limit = order.price if price is None else price
        if total <= 0 or total % terms.lot:
            self._reports.append(Refused(number, Refusal.LOT))
        elif limit <= 0 or limit % terms.tick:
            self._reports.append(Refused(number, Refusal.TICK))
        elif limit == order.price and order.filled < total <= order.total:
            self._reports.append(_made(Replaced, (number, total)))
            if total != order.total:
                self._touch(state)
                self.touched[number] = account
                order.total = total
        else:
            self._move(state, order, total, limit)

    def _move(self, state: SymbolState, order: WorkingOrder, total: int, price: int) -> None:
        """An order gets another price, or more: it leaves, and comes again behind the others; or it is done."""
        filled = order.filled
        self.touched[order.id] = order.account
        self._reports.append(_made(Replaced, (order.id, max(total, filled))))
        if not state.has_changed:
            self._touch(state)
        book: FastBook = state.book  # type: ignore[assignment]
        is_buy = order.side is _BUY
        own, facing, sign = (book.buys, book.sells, -1) if is_buy else (book.sells, book.buys, 1)
        del own.queues[sign * 2 * order.price + 1][order.id], self.orders[order.id]
        if total <= filled:
            order.total = filled
            return
        order.total, order.price = total, price
        self.places += 1
        order.token, order.place = self.token, self.places
        bound = 1 - sign * 2 * price
        if facing.heap and facing.heap[0] <= bound:
            if facing.icebergs:
                self._arrive(state, order)
                return
            left = self._sweep(state, order.id, order.account, order.owner, order.side, total - filled, bound)
            order.filled = total - left
            if not left:
                return
        level_number = sign * 2 * price + 1
        level = own.queues.get(level_number)
        if level is None or len(level) == FEW:
            level = own.open(level_number)
        level[order.id] = order
        self.orders[order.id] = (state, order)
