"""The same floor, for speed: the events that most of a stream consists of take a short way.

Those are limit orders without conditions (for immediate execution, for a day, or until cancelled), cancels of a whole
order and replaces, of symbols that trade continuously at the resting price; but for orders that a collar refuses, and
those of which a trade might leave the band. All others go the way of `floor.machine`, over the same book: at any moment
both floors are equal, state hash included, and one suite of tests holds for both.

The law of the short way: an event that enters it cannot be refused for anything but the book. `Checked` says so: of
one event `FastFloor` sees to it, of an array `floor.arrays`, for all its events at once. What they do not vouch for,
and what is met on the way and is not plain, goes the readable way, alone, and the loop goes on behind it. So every
reason to refuse is decided in `floor.machine`, and nothing but the book is left in the loop.
"""

# ruff: noqa: PLW2901 - a cancel and a replace get what their order says in the names of the loop
# mypy: disable-error-code="possibly-undefined"
# The first event of the loop turns to its symbol, and a tuple is unpacked where one is met.

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop
from typing import Any, Final, NamedTuple, TypeAlias

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
from isocast.floor.fast_book import FEW, MEETS, FastBook, LiveOrders, as_order, limit_of_key
from isocast.floor.machine import TOTAL_MAX, Floor, SymbolState
from isocast.floor.rules.continuous import Band
from isocast.terms.market import Side

__all__ = ["AS_IT_IS", "Checked", "FastFloor", "Kind", "Told", "Way", "told_reports"]


class Way:
    """What a checked event is. Those below `CANCEL` enter."""

    REST: Final = 0
    DAY: Final = 1
    """Rests until its symbol closes."""
    IMMEDIATE: Final = 2
    CANCEL: Final = 3
    """Of all that is left."""
    REPLACE: Final = 4
    REOPEN: Final = 5
    """A replace whose quantity is what shall be open, as feeds say it."""
    ASIDE: Final = 6
    """It goes the readable way."""
    USED: Final = 7
    """An order that does, with an id that is used already."""


AS_IT_IS: Final = -1
"""A quantity or a price of a replace that does not change."""

Checked: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""(index, way, id, account, owner, place of the symbol, key, quantity); the key of an order is that of its level, of a
replace its price. An order's id is new and above all of its account, its symbol trades, its lot and tick are whole."""


class Kind:
    """What a report of the loop is."""

    TRADE: Final = 0
    CANCELLED: Final = 1
    REPLACED: Final = 2
    UNKNOWN: Final = 3
    OTHER: Final = 4
    """Told by the readable way: its place among `others`."""


class Told:
    """What came of checked events, as plain numbers."""

    __slots__ = ("first_trade", "lines", "others", "own", "trades")

    def __init__(self) -> None:
        self.lines: list[int] = []
        """Four for each report: index of its event, kind, id (of a trade: of the order that waited), quantity."""
        self.trades: list[int] = []
        """Two more for each trade: the key of the level, and the place of the symbol."""
        self.own: list[int] = []
        """Where in `trades` those of one owner begin."""
        self.others: list[Report] = []
        self.first_trade = 0
        """The number of the first trade, those of `others` included."""


class _Bounds(NamedTuple):
    """What collar and band leave to the loop, while a symbol's reference and phase are as they are."""

    sell: int
    """The least key of a sell that may enter."""
    buy: int
    low: int
    """Prices at which it may trade."""
    high: int


_FAR: Final = 1 << 200
"""Beyond all keys and prices."""
_SHUT: Final = _Bounds(_FAR, _FAR, _FAR, -_FAR)
_BUY, _SELL = Side.BUY, Side.SELL
_OPEN = Phase.OPEN
_DEADLINE = Order._fields.index("deadline") - 7
"""Among what follows an order's owner."""


_COMMON = Order(0, 0, "", Side.BUY, 0)
_WAYS: dict[tuple[Any, ...], int] = {
    _COMMON[7:]: Way.REST,
    _COMMON._replace(is_day=True)[7:]: Way.DAY,
    _COMMON._replace(is_immediate=True)[7:]: Way.IMMEDIATE,
}
"""By what follows its owner, the way of an order that takes the short one; a deadline is none of its conditions."""
_made: Callable[..., Any] = tuple.__new__
"""Makes a named tuple of values in a third of the time that its class needs."""


class FastFloor(Floor):
    """A trading floor as a function of its tokens; in everything but time the same as `Floor`."""

    orders: LiveOrders

    def __init__(self) -> None:
        super().__init__(lambda: FastBook(self.orders))
        self.orders = LiveOrders()
        self._one = Told()
        """Nothing: for the next event that comes alone."""
        self.plain: dict[str, SymbolState] = {}
        """Symbols whose rules are the common ones."""
        self._bounded: dict[int, None] = {}
        """Of them those with a collar or a band, by their places."""

    def peek(self, number: int) -> tuple[SymbolState, WorkingOrder] | None:
        """An order that works or waits, with its symbol, to be read."""
        return self.orders.peek(number)

    def apply(self, event: Event) -> list[Report]:
        """The next event of this token, and all that it wakes."""
        checked = self._checked(event)
        if checked is None:
            return super().apply(event)
        told = self._one
        self.match((checked,), (event,).__getitem__, told)
        reports: list[Report] = []
        if told.lines:
            reports = told_reports(told, (checked[2],), self.orders.states)
            for each in (told.lines, told.trades, told.own, told.others):
                each.clear()
        if len(self.touched) > self._touched_most:
            self.tell()
        return reports

    def _checked(self, event: Event) -> Checked | None:
        """An event that takes the short way; None: it does not."""
        if isinstance(event, Cancel):
            return None if event.quantity else (0, Way.CANCEL, event.id, event.account, 0, 0, 0, 0)
        if isinstance(event, Replace):
            number, account, quantity, price, trigger = event
            if trigger is not None or (quantity is not None and quantity <= 0) or (price is not None and price <= 0):
                return None
            price, quantity = AS_IT_IS if price is None else price, AS_IT_IS if quantity is None else quantity
            return (0, Way.REPLACE, number, account, 0, 0, price, quantity)
        if not isinstance(event, Order):
            return None
        number, account, symbol, side, quantity, price, owner = event[:7]
        conditions: tuple[Any, ...] = event[7:]
        deadline = event.deadline
        if deadline is not None:
            if self.at > deadline:
                return None
            conditions = (*conditions[:_DEADLINE], None, *conditions[_DEADLINE + 1 :])
        state, way = self.plain.get(symbol), _WAYS.get(conditions)
        if state is None or way is None or state.phase is not _OPEN:
            return None
        terms, highest = state.terms, self.highest
        if (
            number <= highest.get(account, -1)
            or number in self.orders.rows
            or number in self.orders.objects
            or number in self.offers
            or number in self.lots
            or number in self.bids
            or quantity <= 0
            or price <= 0
            or quantity % terms.lot
            or price % terms.tick
        ):
            return None
        if side is _BUY:
            key = 1 - 2 * price
        elif side is _SELL:
            key = 2 * price + 1
        else:
            return None
        highest[account] = number
        self.touched[number] = self.touched_accounts[account] = None
        return (0, way, number, account, owner, state.place, key, quantity)

    # Which symbols -----------------------------------------------------------------------------------------------

    def take_over(self, state: SymbolState) -> None:
        """A symbol joins, with all orders that it has."""
        super().take_over(state)
        self.orders.join(state)
        self._sort(state.terms)

    def _list(self, terms: Directory) -> None:
        super()._list(terms)
        self._sort(terms)

    def _sort(self, terms: Directory) -> None:
        """Which way a symbol's events go."""
        state = self.symbols[terms.symbol]
        self.plain.pop(terms.symbol, None)
        self._bounded.pop(state.place, None)
        if terms.market is MarketKind.CONTINUOUS and terms.price_rule is PriceRule.RESTING:
            self.plain[terms.symbol] = state
            if terms.collar_bp or terms.band_bp:
                self._bounded[state.place] = None

    @staticmethod
    def _bounds(state: SymbolState) -> _Bounds:
        if state.phase is not _OPEN:
            return _SHUT
        collar = Band.around(state.reference, state.terms.collar_bp) or (-_FAR, _FAR)
        band = Band.around(state.reference, state.terms.band_bp) or (-_FAR, _FAR)
        return _Bounds(2 * collar[0] + 1, 1 - 2 * collar[1], *band)

    # The short way -----------------------------------------------------------------------------------------------

    def match(  # noqa: C901, PLR0912, PLR0915 - one loop: calls would cost more than what they do
        self, events: Iterable[Checked], event_of: Callable[[int], Event], told: Told
    ) -> None:
        """Checked events of this token, in their order: what `Floor.apply` does with each. Ids are used already.

        `event_of` gives an event by its index, where it goes the readable way; what came of all joins `told`.
        """
        live, objects, parts, token = self.orders.rows, self.orders.objects, self.orders.parts, self.token
        find: Callable[[int], Any] = live.get
        bounded, offers, lots = self._bounded, self.offers, self.lots
        # Local names are the fastest.
        on_cancel, on_replace, aside, immediate = Way.CANCEL, Way.REPLACE, Way.ASIDE, Way.IMMEDIATE
        traded, cancelled = Kind.TRADE, Kind.CANCELLED
        lines, trades, own, others = told.lines, told.trades, told.own, told.others
        told.first_trade, place, current = self.next_trade, self.places, -1
        for index, way, number, account, owner, symbol, key, quantity in events:
            if way >= on_cancel:
                found: Any = find(number) if way < aside else None
                if found is None or found[4] != account:
                    if way < aside and number not in objects and not offers and not lots:
                        lines += (index, Kind.UNKNOWN, number, 0)
                        continue
                    current, self.places = -1, place
                    self._readably(event_of(index), is_used=way == Way.USED)
                    self._collect(index, lines, others)
                    place = self.places
                    continue
                symbol = found[0]
            if symbol != current:
                current = symbol
                state, queues, buys, sells, buy_heap, sell_heap = parts[symbol]
                bounds = self._bounds(state) if symbol in bounded else None
                if bounds is None and way < on_replace and not state.has_changed:
                    self._touch(state)
            if bounds is not None and way < on_replace:
                if way < on_cancel and key < (bounds.sell if key > 0 else bounds.buy):
                    current, self.places = -1, place
                    self._readably(event_of(index), is_used=True)
                    self._collect(index, lines, others)
                    place = self.places
                    continue
                if not state.has_changed:
                    self._touch(state)
            if way == on_cancel:
                del live[number], queues[found[1]][number]
                lines += (index, cancelled, number, found[2] - found[3])
                continue

            # It enters: with its place, or after a replace with a new one.
            if way < on_replace:
                filled, is_day = 0, way == Way.DAY
            else:
                _, old, total, filled, _, owner, since, before, is_day = found
                if way != on_replace:
                    quantity += filled
                elif quantity == AS_IT_IS:
                    quantity = total
                price = limit_of_key(old) if key == AS_IT_IS else key
                key = 2 * price + 1 if old > 0 else 1 - 2 * price
                terms = state.terms
                is_plain = state.phase is _OPEN and terms.symbol in self.plain
                if bounds is not None and key != old:
                    is_plain &= key >= (bounds.sell if key > 0 else bounds.buy)
                if not is_plain or not filled < quantity <= TOTAL_MAX or quantity % terms.lot or price % terms.tick:
                    current, self.places = -1, place
                    self._readably(event_of(index))
                    self._collect(index, lines, others)
                    place = self.places
                    continue
                lines += (index, Kind.REPLACED, number, quantity)
                if key == old and quantity <= total:
                    if quantity != total:
                        self._touch(state)
                        row = (symbol, old, quantity, filled, account, owner, since, before, is_day)
                        live[number] = queues[old][number] = row
                    elif not state.has_changed:
                        current = -1
                    continue
                if not state.has_changed:
                    self._touch(state)
                del live[number], queues[old][number]
            place += 1

            # It trades with what waits within its limit, as `rules.continuous.meet` does.
            heap = buy_heap if key > 0 else sell_heap
            if heap and heap[0] + key <= MEETS:
                is_readable = bool((buys if key > 0 else sells).icebergs)
                if bounds is not None:
                    current = -1  # A trade moves the reference, and with it the bounds.
                    prices = limit_of_key(key), limit_of_key(heap[0])
                    is_readable |= min(prices) < bounds.low or max(prices) > bounds.high
                if is_readable:
                    self.places = place
                    row = (symbol, key, quantity, filled, account, owner, token, place, is_day)
                    order = as_order(number, row)
                    order.is_immediate = way == immediate
                    self._arrive(state, order)
                    self._collect(index, lines, others)
                    place = self.places
                    continue
                terms = state.terms
                own_rule = terms.own_rule
                left, is_stopped = quantity - filled, False
                begun, dropped = len(trades), len(lines)
                while left and heap and (best := heap[0]) + key <= MEETS:
                    level = queues[best]
                    if not level:
                        del queues[heappop(heap)]
                    while left and level:
                        for other in level:  # noqa: B007 - the quickest way to the first
                            break
                        waiting = level[other]
                        if type(waiting) is tuple:
                            known = live
                            _, _, its_total, its_filled, holder, its_owner, since, before, its_day = waiting
                        else:
                            known = objects
                            its_total, its_filled = waiting.total, waiting.filled
                            holder, its_owner = waiting.account, waiting.owner
                        part = its_total - its_filled
                        if holder == account and its_owner == owner:
                            if own_rule is OwnRule.NONE:
                                own.append(len(trades))
                            else:
                                if own_rule is not OwnRule.CANCEL_NEWEST:
                                    lines[dropped:dropped] = (index, cancelled, other, part)
                                    dropped += 4
                                    del known[other], level[other]
                                if own_rule is not OwnRule.CANCEL_OLDEST:
                                    is_stopped = True
                                    break
                                continue
                        if part <= left:
                            del known[other], level[other]
                        else:
                            part = left
                            if known is live:
                                its_filled += part
                                row = (symbol, best, its_total, its_filled, holder, its_owner, since, before, its_day)
                                live[other] = level[other] = row
                            else:
                                waiting.filled += part
                        left -= part
                        lines += (index, traded, other, part)
                        trades += (best, symbol)
                    if is_stopped:
                        break
                if len(trades) > begun:
                    self.next_trade += (len(trades) - begun) >> 1
                    if state.stops:
                        self._note_prices(state, [limit_of_key(one) for one in trades[begun::2]])
                    else:
                        state.reference = limit_of_key(trades[-2])
                        self.touched_symbols[terms.symbol] = None
                filled = quantity - left
                if left and (is_stopped or way == immediate):
                    lines += (index, cancelled, number, left)
                elif left:
                    joined = queues.get(key)
                    if joined is None or len(joined) == FEW:
                        joined = (sells if key > 0 else buys).open(key)
                    live[number] = joined[number] = (
                        symbol,
                        key,
                        quantity,
                        filled,
                        account,
                        owner,
                        token,
                        place,
                        is_day,
                    )
                if self._woken:
                    self.places = place
                    self._collect(index, lines, others)
                    place = self.places
                continue

            # It rests.
            if way == immediate:
                lines += (index, cancelled, number, quantity)
                continue
            joined = queues.get(key)
            if joined is None or len(joined) == FEW:
                joined = (sells if key > 0 else buys).open(key)
            live[number] = joined[number] = (symbol, key, quantity, filled, account, owner, token, place, is_day)
        self.places = place
        if self.hashed is not None:
            for number in lines[2::4]:
                self.touched[number] = None

    def tell(self) -> None:
        """A run of checked events is over."""
        self._told()

    def _readably(self, event: Event, *, is_used: bool = False) -> None:
        if isinstance(event, Order) and is_used:
            highest = self.highest[event.account]
            self.highest[event.account] = event.id - 1  # Of the others that are used already, all follow.
            self._order(event)
            self.highest[event.account] = highest
        elif isinstance(event, Order):
            self._order(event)
        elif isinstance(event, Cancel):
            self._cancel(event)
        elif isinstance(event, Replace):
            self._replace(event)

    def _collect(self, index: int, lines: list[int], others: list[Report]) -> None:
        """What the readable way says, and what it has woken, joins what the loop has said."""
        self._wake()
        for report in self._reports:
            lines += (index, Kind.OTHER, len(others), 0)
            others.append(report)
        self._reports = []


def told_reports(told: Told, ids: Sequence[int], states: Sequence[SymbolState]) -> list[Report]:
    """What came of events with these ids, as objects; `states` are the symbols in the order of their directory."""
    found: list[Report] = []
    trade, at, own = told.first_trade, 0, frozenset(told.own)
    lines = iter(told.lines)
    for index, kind, number, quantity in zip(lines, lines, lines, lines, strict=True):
        if kind == Kind.CANCELLED:
            found.append(_made(Cancelled, (number, quantity)))
        elif kind == Kind.TRADE:
            key, symbol = told.trades[at : at + 2]
            buy, sell = (ids[index], number) if key > 0 else (number, ids[index])
            name, is_own = states[symbol].terms.symbol, at in own
            found.append(_made(Trade, (trade, name, limit_of_key(key), quantity, buy, sell, is_own, False, False)))
            trade, at = trade + 1, at + 2
        elif kind == Kind.REPLACED:
            found.append(_made(Replaced, (number, quantity)))
        elif kind == Kind.UNKNOWN:
            found.append(Refused(number, Refusal.UNKNOWN_ORDER))
        else:
            found.append(told.others[number])
            trade += isinstance(found[-1], Trade)
    return found
