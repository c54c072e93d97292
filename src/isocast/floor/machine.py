"""The floor: one token after the other, and the same reports wherever it runs.

In a token, in this order: orders whose date is over; phases that its instant makes due, in the order of the symbols'
directory; sealed lots that are due; the events, in their order; the auctions of symbols that trade in batches; Dutch
lots that end.

An order that a trade wakes enters after the event that woke it, as an event of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import takewhile
from typing import Final, assert_never

from isocast.floor.book import Book, BookSide, WorkingOrder
from isocast.floor.events import (
    AuctionKind,
    Bid,
    Cancel,
    Cancelled,
    Commit,
    Crossing,
    Directory,
    Event,
    Expired,
    Forfeited,
    Indicative,
    Lot,
    MarketKind,
    Order,
    Phase,
    Refusal,
    Refused,
    Replace,
    Replaced,
    Report,
    Reveal,
    Schedule,
    Share,
    Status,
    Take,
    Trade,
    Unsold,
    Wake,
)
from isocast.floor.rules.continuous import Band, fillable, meet
from isocast.floor.rules.dutch_clock import DutchLot
from isocast.floor.rules.second_price import SealedBid, SealedLot
from isocast.floor.rules.sharing import Sharing, by_batch, by_proportion, by_time, paired, portions
from isocast.floor.rules.uniform_price import uniform_price
from isocast.floor.set_hash import SetHash
from isocast.terms.market import Side

__all__ = ["PARTS_MAX", "TOTAL_MAX", "Floor", "SymbolState"]

TOTAL_MAX: Final = (1 << 63) - 1
"""Of an order: what a record has room for."""
PARTS_MAX: Final = 10_000
"""Of an iceberg: each is a trade, and two icebergs that met would otherwise keep every site at work for minutes."""
_SIDES = (Side.BUY, Side.SELL)
_STALE_MAX = 64
"""Triggers of stops that have gone may be as many as those that wait, and so many: then they are sorted out."""
_TOUCHED_MAX = 10_000
"""What is touched between two hashes may be half of all orders, and so many: then the next hash begins anew."""


@dataclass(slots=True, eq=False)
class SymbolState:
    """One symbol: its rules, its phase, its orders."""

    terms: Directory
    phase: Phase
    reference: int | None
    """The last trade of its book; before the first, what its directory says."""
    reopens_at: int | None = None
    """When a pause ends."""
    book: Book = field(default_factory=Book)
    stops: dict[int, WorkingOrder] = field(default_factory=dict)
    """Those that wait, by id, in the order of their sequence."""
    for_close: dict[int, WorkingOrder] = field(default_factory=dict)
    """Orders that wait for the closing call, by id, in the order in which they will enter it."""
    passing: dict[int, WorkingOrder] = field(default_factory=dict)
    """Orders that live for one auction, by id. Some have gone."""
    place: int = 0
    """Among the symbols of the floor, in the order of their directory."""
    has_changed: bool = False
    """Its book, in this token."""
    buy_triggers: list[tuple[int, int, int]] = field(default_factory=list)
    """Of stops, as (trigger, place, id): a heap. Some wait no longer."""
    sell_triggers: list[tuple[int, int, int]] = field(default_factory=list)
    """The same, with the triggers negated."""


class Floor:
    """A trading floor as a function of its tokens."""

    def __init__(self, book: Callable[[], Book] = Book) -> None:
        self.new_book = book
        self.token = 0
        self.at = 0
        """T_t of this token."""
        self.symbols: dict[str, SymbolState] = {}
        """In the order of their directory."""
        self.orders: MutableMapping[int, tuple[SymbolState, WorkingOrder]] = {}
        """All that work or wait, by id."""
        self.offers: dict[int, WorkingOrder] = {}
        self.offered: dict[int, str] = {}
        """The symbols of open offers."""
        self.lots: dict[int, SealedLot | DutchLot] = {}
        self.highest: dict[int, int] = {}
        """The highest id of each account, accepted or not."""
        self.next_trade = 1
        self.schedule: tuple[tuple[int, Phase], ...] = ()
        """Changes of phase that are not due yet."""
        self._changed: dict[str, SymbolState] = {}
        """Symbols whose books have changed since the last token ended."""
        self._paused: list[SymbolState] = []
        self.bids: dict[int, SealedLot] = {}
        """The lots of sealed bids, by id of the bid."""
        self.dated: list[tuple[int, int, int]] = []
        """Orders that end at an instant, as (instant, place, id): a heap. Some have ended before."""
        self.places = 0
        """How many places in time have been given out."""
        self.hashed: SetHash | None = None
        """The state as it was hashed last; None: not yet, or too much has changed since."""
        self.touched: dict[int, None] = {}
        """What may have changed since: ids of orders, offers and lots."""
        self.touched_accounts: dict[int, None] = {}
        """Accounts whose highest id may have changed."""
        self.touched_bids: dict[tuple[int, int], None] = {}
        """By account and id."""
        self.touched_symbols: dict[str, None] = {}
        self._touched_most = 0
        self._reports: list[Report] = []
        self._woken: deque[tuple[SymbolState, WorkingOrder]] = deque()
        self.woke: list[int] = []
        """Stops of this token that a trade woke, in the order in which they entered."""

    # One token -------------------------------------------------------------------------------------------------

    def step(self, token: int, at: int, events: Iterable[Event]) -> list[Report]:
        """Apply a whole token; all that came of it, in order."""
        reports = self.begin(token, at)
        for event in events:
            reports += self.apply(event)
        return reports + self.end()

    def begin(self, token: int, at: int) -> list[Report]:
        """A token begins: what its instant makes due."""
        self.token, self.at, self.woke = token, at, []
        if self.hashed is None:
            self.remember(None)
        for state in self._changed.values():
            state.has_changed = False
        self._expire_dated()
        self._keep_schedule()
        if self._paused:
            for state in sorted(self._paused, key=_by_directory):
                if state.reopens_at is not None and at >= state.reopens_at:
                    self._enter(state, Phase.OPEN)
            self._paused = [state for state in self._paused if state.reopens_at is not None]
        for lot in list(self.lots.values()):
            if isinstance(lot, SealedLot) and at >= lot.decided_at:
                self._decide(lot)
        return self._told()

    def apply(self, event: Event) -> list[Report]:
        """The next event of this token, and all that it wakes."""
        match event:
            case Directory():
                self._list(event)
            case Status():
                self._change(event)
            case Schedule():
                self.schedule = event.changes
                self._keep_schedule()
            case Wake():
                pass
            case Order():
                self._order(event)
            case Cancel():
                self._cancel(event)
            case Replace():
                self._replace(event)
            case Lot():
                self._open_lot(event)
            case Commit():
                self._commit(event)
            case Reveal():
                self._reveal(event)
            case Bid():
                self._bid(event)
            case Take():
                self._take(event)
            case _:
                assert_never(event)
        self._wake()
        return self._told()

    def end(self) -> list[Report]:
        """The token ends: auctions of batches, Dutch lots, and what auctions to come would do."""
        changed = sorted(self._changed.values(), key=_by_directory)
        self._changed = {}
        calls = [state for state in changed if state.has_changed and state.phase.is_call]
        for state in changed:
            state.has_changed = False
            # A book that has not changed since its last auction has nothing to trade.
            if state.phase is Phase.OPEN and state.terms.market is MarketKind.BATCH:
                self._uncross(state, by_batch)
                self._wake()
        for lot in list(self.lots.values()):
            if isinstance(lot, DutchLot) and lot.has_ended(self.token):
                self._end_lot(lot)
        for state in calls:
            self._indicate(state)
        return self._told()

    def _touch(self, state: SymbolState) -> None:
        """A symbol's book changes: its auction, or its indicative price, is due at the end of the token."""
        if not state.has_changed:
            state.has_changed = True
            self._changed[state.terms.symbol] = state

    def peek(self, number: int) -> tuple[SymbolState, WorkingOrder] | None:
        """An order that works or waits, with its symbol, to be read."""
        return self.orders.get(number)

    def _told(self) -> list[Report]:
        if len(self.touched) > self._touched_most:
            self.hashed, self._touched_most = None, 0
            self.touched.clear()
            self.touched_accounts.clear()
        reports, self._reports = self._reports, []
        return reports

    def remember(self, hashed: SetHash | None) -> None:
        """The state is hashed: what is touched from here on is what can have changed."""
        self.hashed = hashed
        self._touched_most = 0 if hashed is None else len(self.orders) // 2 + _TOUCHED_MAX
        self.touched.clear()
        self.touched_accounts.clear()
        self.touched_bids.clear()
        self.touched_symbols.clear()

    def _place(self) -> int:
        self.places += 1
        return self.places

    # What it goes on from --------------------------------------------------------------------------------------

    def take_over(self, state: SymbolState) -> None:
        """A symbol joins, with all orders that it has."""
        state.place = len(self.symbols)
        self.symbols[state.terms.symbol] = state
        for order in (*state.book, *state.stops.values(), *state.for_close.values()):
            self.orders[order.id] = (state, order)
        state.passing = {order.id: order for order in state.book if order.is_passing}
        for stop in state.stops.values():
            self._watch(state, stop)
        if state.reopens_at is not None:
            self._paused.append(state)
        self._changed[state.terms.symbol] = state
        self.touched_symbols[state.terms.symbol] = None

    def take_over_lot(self, lot: SealedLot | DutchLot) -> None:
        """A lot joins, with all bids that it has."""
        self.lots[lot.lot.id] = lot
        if isinstance(lot, SealedLot):
            self.bids.update({bid.id: lot for bid in lot.bids.values()})

    # Phases ----------------------------------------------------------------------------------------------------

    def _list(self, terms: Directory) -> None:
        state = self.symbols.get(terms.symbol)
        if state is None:
            self.take_over(SymbolState(terms, terms.phase, terms.reference, book=self.new_book()))
            return
        if state.phase is Phase.OPEN and state.terms.market is MarketKind.BATCH is not terms.market:
            # Otherwise a crossed book, and market orders, would be left to continuous trading.
            self._uncross(state, by_batch)
        state.terms = terms
        if state.reference is None:
            state.reference = terms.reference
        self._changed[terms.symbol] = state  # It may trade in batches from now on.
        self.touched_symbols[terms.symbol] = None

    def _change(self, status: Status) -> None:
        named = self.symbols if status.symbol is None else [name for name in (status.symbol,) if name in self.symbols]
        for name in named:
            self._enter(self.symbols[name], status.phase)

    def _keep_schedule(self) -> None:
        """All changes that are due, each for all symbols."""
        while self.schedule and self.schedule[0][0] <= self.at:
            (_, phase), *later = self.schedule
            self.schedule = tuple(later)
            for state in self.symbols.values():
                if state.phase is not Phase.HALTED:
                    self._enter(state, phase)

    @property
    def next_due(self) -> int | None:
        """From which T_t on a token would change something by itself: a phase, a date, a pause, a sealed lot."""
        instants = [at for at, _ in self.schedule[:1]] + [at for at, _, _ in self.dated[:1]]
        instants += [state.reopens_at for state in self._paused if state.reopens_at is not None]
        instants += [lot.decided_at for lot in self.lots.values() if isinstance(lot, SealedLot)]
        return min(instants, default=None)

    def _enter(self, state: SymbolState, phase: Phase) -> None:
        """Change a symbol's phase; trading, and the end of a closing call, begin with an auction."""
        before = state.phase
        if before is phase:
            return
        state.reopens_at = None
        self.touched_symbols[state.terms.symbol] = None
        if before is Phase.CLOSING and phase is not Phase.CLOSED:
            self._put_off_close(state)
        if phase is Phase.OPEN or (before is Phase.CLOSING and phase is Phase.CLOSED):
            self._uncross(state, by_proportion if state.terms.share is Share.PRO_RATA else by_time)
        state.phase = phase
        if phase in (Phase.OPEN, Phase.CLOSING, Phase.CLOSED):
            self._expire(state, [order for order in state.book if order.at is Crossing.OPEN])
        self._wake()
        if phase is Phase.CLOSING:
            self._call_for_close(state)
        elif phase is Phase.CLOSED:
            orders = [*state.book, *state.stops.values(), *state.for_close.values()]
            self._expire(state, [order for order in orders if order.is_day or order.at is Crossing.CLOSE])

    def _expire(self, state: SymbolState, orders: Iterable[WorkingOrder]) -> None:
        for order in orders:
            self._reports.append(Expired(order.id, order.left))
            self._forget(state, order)

    def _expire_dated(self) -> None:
        while self.dated and self.dated[0][0] <= self.at:
            _, _, number = heappop(self.dated)
            state, order = self.orders.get(number, (None, None))
            if state is not None and order is not None and order.until is not None:
                self._expire(state, [order])

    def _call_for_close(self, state: SymbolState) -> None:
        """The closing call begins: what waited for it enters, behind what rests already."""
        waiting, state.for_close = state.for_close, {}
        for order in waiting.values():
            order.token, order.place = self.token, self._place()
            self._rest(state, order)

    def _put_off_close(self, state: SymbolState) -> None:
        """A closing call ends without its auction: what was for the close waits again."""
        for order in [order for order in state.book if order.at is Crossing.CLOSE]:
            state.book.side(order.side).remove(order)
            order.place = self._place()
            state.for_close[order.id] = order
            self.touched[order.id] = None

    def _pause(self, state: SymbolState) -> None:
        state.phase = Phase.PAUSE
        state.reopens_at = self.at + state.terms.pause_ns
        self.touched_symbols[state.terms.symbol] = None
        if state not in self._paused:
            self._paused.append(state)

    # Orders ----------------------------------------------------------------------------------------------------

    def _order(self, order: Order) -> None:
        reason = self._refusal(order)
        self._use(order.account, order.id)
        if reason is not None:
            self._refuse(order.id, reason)
            return
        state = self.symbols[order.symbol]
        working = WorkingOrder(
            id=order.id,
            account=order.account,
            owner=order.owner,
            side=order.side,
            price=order.price,
            total=order.quantity,
            filled=0,
            token=self.token,
            place=self._place(),
            is_market=order.is_market,
            is_immediate=order.is_immediate,
            is_all=order.is_all,
            is_post_only=order.is_post_only,
            is_day=order.is_day,
            trigger=order.trigger,
            until=order.until,
            at=order.at,
            display=order.display if order.display < order.quantity else 0,
        )
        if order.until is not None:
            heappush(self.dated, (order.until, working.place, working.id))
        if order.is_offer:
            self.offers[order.id] = working
            self.offered[order.id] = order.symbol
        elif order.is_stop:
            self._wait(state, working)
        else:
            self._arrive(state, working)

    def _refusal(self, order: Order) -> Refusal | None:
        """The first reason to refuse an order, in the order of `Refusal`."""
        state = self.symbols.get(order.symbol)
        if state is None:
            return Refusal.UNKNOWN_SYMBOL
        if not self._is_new(order.account, order.id):
            return Refusal.DUPLICATE_ID
        if not _flags_agree(order):
            return Refusal.FLAGS
        if not order.is_offer and not _fits_phase(order, state):
            return Refusal.WRONG_PHASE
        if self._is_too_late(order):
            return Refusal.TOO_LATE
        if order.quantity <= 0 or order.quantity % state.terms.lot or order.display % state.terms.lot:
            return Refusal.LOT
        if not _on_tick(order, state.terms.tick):
            return Refusal.TICK
        if not order.is_market and self._is_outside_collar(state, order.side, order.price, order.trigger):
            return Refusal.COLLAR
        if order.is_post_only and self._would_trade(state, order.side, order.price):
            return Refusal.WOULD_TRADE
        return None

    def _is_too_late(self, order: Order) -> bool:
        """Whether an order may not enter any more, or would end at once."""
        return (order.deadline is not None and self.at > order.deadline) or (
            order.until is not None and self.at >= order.until
        )

    def _is_outside_collar(self, state: SymbolState, side: Side, price: int, trigger: int | None) -> bool:
        """Whether a limit is too far on its aggressive side: of the reference, or of a stop's trigger."""
        band = Band.around(state.reference if trigger is None else trigger, state.terms.collar_bp)
        if band is None:
            return False
        return price > band.high if side is Side.BUY else price < band.low

    def _would_trade(self, state: SymbolState, side: Side, price: int) -> bool:
        best = state.book.facing(side).best
        return best is not None and (best.price <= price if side is Side.BUY else best.price >= price)

    def _arrive(self, state: SymbolState, order: WorkingOrder) -> None:
        """An order enters the book, and trades first where the phase trades at once."""
        self.touched[order.id] = None
        if order.at is Crossing.CLOSE and state.phase is not Phase.CLOSING:
            state.for_close[order.id] = order
            self.orders[order.id] = (state, order)
            return
        self._touch(state)
        if state.phase is not Phase.OPEN or state.terms.market is MarketKind.BATCH:
            self._rest(state, order)
            return
        band = Band.around(state.reference, state.terms.band_bp)
        facing = state.book.facing(order.side)
        if order.is_all and fillable(order, facing, state.terms, band) < order.left:
            self._drop(order)
            return
        meeting = meet(order, facing, state.terms, band, self._place)
        for resting in meeting.removed:
            self._drop(resting)
        for fill in meeting.fills:
            self._trade(state, order, fill.resting, fill.price, fill.quantity, is_own=fill.is_own)
        self._note_prices(state, [fill.price for fill in meeting.fills])
        if meeting.leaves_band:
            self._pause(state)
        if not order.left:
            self.orders.pop(order.id, None)
        elif meeting.is_stopped or order.is_immediate or order.is_market:
            self._drop(order)
        else:
            self._rest(state, order)

    def _rest(self, state: SymbolState, order: WorkingOrder) -> None:
        self._touch(state)
        self.touched[order.id] = None
        order.show()
        state.book.side(order.side).add(order)
        self.orders[order.id] = (state, order)
        if order.is_passing:
            state.passing[order.id] = order

    def _drop(self, order: WorkingOrder) -> None:
        """What is left of an order that is in no book (any longer) is cancelled."""
        self._reports.append(Cancelled(order.id, order.left))
        self.touched[order.id] = None
        self.orders.pop(order.id, None)

    def _forget(self, state: SymbolState, order: WorkingOrder) -> None:
        """An order that rests or waits goes, without a word."""
        self._touch(state)
        self.touched[order.id] = None
        del self.orders[order.id]
        if order.id in state.for_close:
            del state.for_close[order.id]
        elif order.trigger is None:
            state.book.side(order.side).remove(order)
        else:
            del state.stops[order.id]

    def _trade(
        self,
        state: SymbolState,
        one: WorkingOrder,
        other: WorkingOrder,
        price: int,
        quantity: int,
        *,
        is_own: bool,
        is_auction: bool = False,
    ) -> None:
        """Report a trade, and forget a resting order that is filled."""
        buy, sell = (one, other) if one.side is Side.BUY else (other, one)
        self._report_trade(state.terms.symbol, price, quantity, buy.id, sell.id, is_own=is_own, is_auction=is_auction)
        for order in (one, other):
            self.touched[order.id] = None
            if not order.left:
                self.orders.pop(order.id, None)

    def _report_trade(
        self,
        symbol: str,
        price: int,
        quantity: int,
        buy: int,
        sell: int,
        *,
        is_own: bool = False,
        is_auction: bool = False,
        is_off_book: bool = False,
    ) -> None:
        trade = Trade(self.next_trade, symbol, price, quantity, buy, sell, is_own, is_auction, is_off_book)
        self._reports.append(trade)
        self.next_trade += 1

    # Stops -----------------------------------------------------------------------------------------------------

    def _wait(self, state: SymbolState, stop: WorkingOrder) -> None:
        """A stop waits, or enters at once where trading has reached its trigger already."""
        if state.phase is Phase.OPEN and _is_woken(stop, state.reference):
            stop.trigger = None
            self._arrive(state, stop)
            return
        self.touched[stop.id] = None
        state.stops[stop.id] = stop
        self.orders[stop.id] = (state, stop)
        self._watch(state, stop)

    def _watch(self, state: SymbolState, stop: WorkingOrder) -> None:
        """Let a price wake a stop."""
        is_buy = stop.side is Side.BUY
        triggers = state.buy_triggers if is_buy else state.sell_triggers
        heappush(triggers, _watched(stop))
        if len(triggers) > 2 * len(state.stops) + _STALE_MAX:
            triggers[:] = sorted(_watched(one) for one in state.stops.values() if (one.side is Side.BUY) == is_buy)

    def _note_prices(self, state: SymbolState, prices: list[int]) -> None:
        """Trades of one event in the book of a symbol: the reference moves, and stops wake."""
        if not prices:
            return
        state.reference = prices[-1]
        self.touched_symbols[state.terms.symbol] = None
        if not state.stops:
            return
        reached = [*_reached(state.buy_triggers, max(prices)), *_reached(state.sell_triggers, -min(prices))]
        for place, number in sorted(reached):
            stop = state.stops.get(number)
            if stop is not None and stop.place == place:
                del state.stops[number]
                self._woken.append((state, stop))

    def _wake(self) -> None:
        """Woken stops enter, one after the other, as plain orders with the time of their waking."""
        while self._woken:
            state, stop = self._woken.popleft()
            stop.trigger = None
            stop.token, stop.place = self.token, self._place()
            self.woke.append(stop.id)
            self._arrive(state, stop)

    # Cancel and replace ----------------------------------------------------------------------------------------

    def _cancel(self, cancel: Cancel) -> None:
        if cancel.id in self.lots:
            self._cancel_lot(cancel, self.lots[cancel.id])
            return
        if (bid := self.bid_of(cancel.id, cancel.account)) is not None:
            self._withdraw(cancel, *bid)
            return
        order = self._own(cancel.id, cancel.account)
        if order is None:
            self._refuse(cancel.id, Refusal.UNKNOWN_ORDER)
            return
        state = self.symbols[self.offered[order.id]] if order.id in self.offers else self.orders[order.id][0]
        if cancel.quantity < 0 or cancel.quantity % state.terms.lot:
            self._refuse(cancel.id, Refusal.LOT)
            return
        self.touched[order.id] = None
        part = min(cancel.quantity or order.left, order.left)
        self._reports.append(Cancelled(order.id, part))
        if part < order.left:
            self._touch(state)
            order.total -= part
        elif order.id in self.offers:
            del self.offers[order.id], self.offered[order.id]
        else:
            self._forget(state, order)

    def _own(self, number: int, account: int) -> WorkingOrder | None:
        """An account's order or offer of this id; somebody else's is unknown."""
        order = self.offers.get(number) or self.orders.get(number, (None, None))[1]
        return order if order is not None and order.account == account else None

    def _replace(self, replace: Replace) -> None:
        order = self._own(replace.id, replace.account)
        if order is None or order.id in self.offers:
            self._refuse(replace.id, Refusal.UNKNOWN_ORDER)
            return
        state = self.orders[order.id][0]
        total = order.total if replace.quantity is None else replace.quantity
        price = order.price if replace.price is None else replace.price
        trigger = order.trigger if replace.trigger is None else replace.trigger
        reason = self._replace_refusal(state, order, total, price, trigger)
        if reason is not None:
            self._refuse(replace.id, reason)
            return
        self.touched[order.id] = None
        self._reports.append(Replaced(order.id, max(total, order.filled)))
        if total <= order.filled:
            order.total = order.filled
            self._forget(state, order)
        elif (price, trigger) == (order.price, order.trigger) and total <= order.total:
            if total != order.total:
                self._touch(state)
            order.total = total
        else:
            self._forget(state, order)
            order.total, order.price, order.trigger = total, price, trigger
            order.token, order.place = self.token, self._place()
            (self._arrive if trigger is None else self._wait)(state, order)

    def _replace_refusal(
        self, state: SymbolState, order: WorkingOrder, total: int, price: int, trigger: int | None
    ) -> Refusal | None:
        tick, lot = state.terms.tick, state.terms.lot
        if trigger is not None and order.trigger is None:
            return Refusal.FLAGS  # It is no stop, or no longer one.
        if _has_many_parts(order.display, total):
            return Refusal.FLAGS
        if not state.phase.takes_orders:
            return Refusal.WRONG_PHASE
        if not 0 < total <= TOTAL_MAX or total % lot:
            return Refusal.LOT
        if price % tick or price < 0 or (not price and not order.is_market):
            return Refusal.TICK
        if trigger is not None and (trigger <= 0 or trigger % tick):
            return Refusal.TICK
        has_moved = (price, trigger) != (order.price, order.trigger)
        if has_moved and not order.is_market and self._is_outside_collar(state, order.side, price, trigger):
            return Refusal.COLLAR
        may_trade = state.phase is Phase.OPEN and total > order.filled
        if order.is_post_only and may_trade and self._would_trade(state, order.side, price):
            return Refusal.WOULD_TRADE
        return None

    def _refuse(self, number: int, reason: Refusal) -> None:
        self._reports.append(Refused(number, reason))

    def _is_new(self, account: int, number: int) -> bool:
        """Whether an id is above all of its account, and nothing that lives has it."""
        if any(number in known for known in (self.orders, self.offers, self.lots, self.bids)):
            return False
        return number > self.highest.get(account, -1)

    def _use(self, account: int, number: int) -> None:
        """An id is used up, whatever becomes of it."""
        self.touched[number] = self.touched_accounts[account] = None
        self.highest[account] = max(number, self.highest.get(account, -1))

    # Auctions --------------------------------------------------------------------------------------------------

    def _uncross(self, state: SymbolState, sharing: Sharing) -> None:
        """One auction: all trade at one price; market orders and those for immediate execution end with it."""
        auction = uniform_price(state.book, state.reference, state.terms.tick)
        if auction is not None:
            buys, sells = (
                portions(
                    _within(side, auction.price),
                    auction.volume,
                    state.terms.lot,
                    sharing,
                )
                for side in (state.book.buys, state.book.sells)
            )
            for buy, sell, quantity in list(paired(buys, sells)):
                for order in (buy, sell):
                    order.filled += quantity
                    if not order.left:
                        state.book.side(order.side).remove(order)
                is_own = buy.is_own(sell)
                self._trade(state, buy, sell, auction.price, quantity, is_own=is_own, is_auction=True)
            self._touch(state)
            self._note_prices(state, [auction.price])
        passing, state.passing = state.passing, {}
        for order in sorted(passing.values(), key=lambda order: (order.side, order.rank, order.place)):
            if self.orders.get(order.id, (None, None))[1] is order:
                self._forget(state, order)
                self._drop(order)

    def _indicate(self, state: SymbolState) -> None:
        auction = uniform_price(state.book, state.reference, state.terms.tick)
        symbol = state.terms.symbol
        self._reports.append(Indicative(symbol, None, 0, 0) if auction is None else Indicative(symbol, *auction))

    # Open offers -----------------------------------------------------------------------------------------------

    def _take(self, take: Take) -> None:
        is_new = self._is_new(take.account, take.id)
        self._use(take.account, take.id)
        offer = self.offers.get(take.offer)
        if offer is None:
            self._refuse(take.id, Refusal.UNKNOWN_ORDER)
            return
        state = self.symbols[self.offered[take.offer]]
        if not is_new:
            self._refuse(take.id, Refusal.DUPLICATE_ID)
        elif take.quantity <= 0 or take.quantity % state.terms.lot:
            self._refuse(take.id, Refusal.LOT)
        elif take.account == offer.account:
            self._refuse(take.id, Refusal.OWN)
        else:
            self._sell_offer(state.terms.symbol, offer, take)

    def _sell_offer(self, symbol: str, offer: WorkingOrder, take: Take) -> None:
        quantity = min(take.quantity, offer.left)
        offer.filled += quantity
        self.touched[offer.id] = None
        buy, sell = (offer.id, take.id) if offer.side is Side.BUY else (take.id, offer.id)
        self._report_trade(symbol, offer.price, quantity, buy, sell, is_off_book=True)
        if take.quantity > quantity:
            self._reports.append(Cancelled(take.id, take.quantity - quantity))
        if not offer.left:
            del self.offers[offer.id], self.offered[offer.id]

    # Lots ------------------------------------------------------------------------------------------------------

    def _open_lot(self, lot: Lot) -> None:
        reason = self._lot_refusal(lot)
        self._use(lot.account, lot.id)
        if reason is not None:
            self._refuse(lot.id, reason)
        elif lot.auction is AuctionKind.DUTCH:
            self.take_over_lot(DutchLot(lot, self.token, lot.quantity, self._place()))
        else:
            self.take_over_lot(SealedLot(lot, self._place()))

    def _lot_refusal(self, lot: Lot) -> Refusal | None:
        state = self.symbols.get(lot.symbol)
        if state is None:
            return Refusal.UNKNOWN_SYMBOL
        if not self._is_new(lot.account, lot.id):
            return Refusal.DUPLICATE_ID
        is_dutch = lot.auction is AuctionKind.DUTCH
        if not is_dutch and lot.closes_at <= self.at:
            return Refusal.WRONG_PHASE
        if lot.quantity <= 0 or lot.quantity % state.terms.lot:
            return Refusal.LOT
        prices = (lot.reserve, lot.start, lot.step) if is_dutch else (lot.reserve,)
        is_falling = not is_dutch or (lot.start >= lot.reserve and lot.step > 0)
        if min(prices) < 0 or any(price % state.terms.tick for price in prices) or not is_falling:
            return Refusal.TICK
        return None

    def _bid_refusal(self, account: int, number: int, lot: SealedLot | DutchLot | None) -> Refusal | None:
        """Why a bid for a lot is refused whatever its price; its id is used up."""
        is_new = self._is_new(account, number)
        self._use(account, number)
        if lot is None:
            return Refusal.UNKNOWN_ORDER
        if not is_new:
            return Refusal.DUPLICATE_ID
        return Refusal.OWN if lot.lot.account == account else None

    def _commit(self, commit: Commit) -> None:
        lot = self.lots.get(commit.lot)
        sealed = lot if isinstance(lot, SealedLot) else None
        reason = self._bid_refusal(commit.account, commit.id, sealed)
        if reason is None and sealed is not None:
            if self.at >= sealed.lot.closes_at:
                reason = Refusal.WRONG_PHASE
            elif commit.ceiling <= 0:
                reason = Refusal.TICK
            else:
                earlier = sealed.bids.get(commit.account)
                if earlier is not None:
                    self._forget_bid(earlier)
                self.bids[commit.id] = sealed
                self.touched_bids[commit.account, commit.id] = None
                bid = SealedBid(commit.id, commit.account, commit.ceiling, commit.digest, self._place())
                sealed.commit(bid)
        if reason is not None:
            self._refuse(commit.id, reason)

    def _forget_bid(self, bid: SealedBid) -> None:
        del self.bids[bid.id]
        self.touched_bids[bid.account, bid.id] = None

    def bid_of(self, number: int, account: int) -> tuple[SealedLot, SealedBid] | None:
        """An account's sealed bid of this id, with its lot."""
        lot = self.bids.get(number)
        bid = None if lot is None else lot.bids.get(account)
        return None if lot is None or bid is None or bid.id != number else (lot, bid)

    def _reveal(self, reveal: Reveal) -> None:
        found = self.bid_of(reveal.id, reveal.account)
        if found is None:
            self._refuse(reveal.id, Refusal.UNKNOWN_ORDER)
        elif self.at < found[0].lot.closes_at:
            self._refuse(reveal.id, Refusal.WRONG_PHASE)
        elif not found[0].reveal(reveal.account, reveal.price, reveal.nonce):
            self._refuse(reveal.id, Refusal.COMMITMENT)
        else:
            self.touched_bids[reveal.account, reveal.id] = None

    def _withdraw(self, cancel: Cancel, lot: SealedLot, bid: SealedBid) -> None:
        if self.at >= lot.lot.closes_at:
            self._refuse(cancel.id, Refusal.WRONG_PHASE)
            return
        del lot.bids[bid.account]
        self._forget_bid(bid)
        self._reports.append(Cancelled(bid.id, lot.lot.quantity))

    def _cancel_lot(self, cancel: Cancel, lot: SealedLot | DutchLot) -> None:
        """A seller takes back what nobody has a claim on."""
        if lot.lot.account != cancel.account:
            self._refuse(cancel.id, Refusal.UNKNOWN_ORDER)
        elif isinstance(lot, SealedLot) and lot.bids:
            self._refuse(cancel.id, Refusal.WRONG_PHASE)
        else:
            self._forget_lot(lot.lot)
            self._reports.append(Cancelled(cancel.id, lot.left if isinstance(lot, DutchLot) else lot.lot.quantity))

    def _forget_lot(self, lot: Lot) -> None:
        del self.lots[lot.id]
        self.touched[lot.id] = None

    def _decide(self, sealed: SealedLot) -> None:
        """The window is over: the lot is sold or not, and what was not revealed forfeits."""
        lot = sealed.lot
        self._forget_lot(lot)
        for bid in sealed.bids.values():
            self._forget_bid(bid)
        sold = sealed.decide()
        if sold is None:
            self._reports.append(Unsold(lot.id, lot.quantity))
        else:
            self._report_trade(lot.symbol, sold.price, lot.quantity, sold.bid.id, lot.id, is_off_book=True)
        self._reports += [Forfeited(bid.id, money) for bid, money in sealed.forfeits()]

    def _bid(self, bid: Bid) -> None:
        lot = self.lots.get(bid.lot)
        dutch = lot if isinstance(lot, DutchLot) else None
        reason = self._bid_refusal(bid.account, bid.id, dutch)
        if reason is None and dutch is not None:
            if bid.quantity <= 0 or bid.quantity % self.symbols[dutch.lot.symbol].terms.lot:
                reason = Refusal.LOT
            elif dutch.price(self.token) > bid.ceiling:
                reason = Refusal.PRICE
            else:
                self._sell_lot(dutch, bid)
        if reason is not None:
            self._refuse(bid.id, reason)

    def _sell_lot(self, dutch: DutchLot, bid: Bid) -> None:
        quantity = min(bid.quantity, dutch.left)
        dutch.left -= quantity
        self.touched[dutch.lot.id] = None
        price = dutch.price(self.token)
        self._report_trade(dutch.lot.symbol, price, quantity, bid.id, dutch.lot.id, is_off_book=True)
        if bid.quantity > quantity:
            self._reports.append(Cancelled(bid.id, bid.quantity - quantity))
        if not dutch.left:
            self._forget_lot(dutch.lot)

    def _end_lot(self, dutch: DutchLot) -> None:
        self._forget_lot(dutch.lot)
        self._reports.append(Unsold(dutch.lot.id, dutch.left))


def _by_directory(state: SymbolState) -> int:
    return state.place


def _within(side: BookSide, price: int) -> Iterator[list[WorkingOrder]]:
    """The levels of a side that may trade at a price, best first."""
    return takewhile(lambda level: level[0].is_within(price), side.levels())


def _watched(stop: WorkingOrder) -> tuple[int, int, int]:
    trigger = stop.trigger or 0
    return (trigger if stop.side is Side.BUY else -trigger, stop.place, stop.id)


def _is_woken(stop: WorkingOrder, reference: int | None) -> bool:
    """Whether trading has reached a stop's trigger."""
    if stop.trigger is None or reference is None:
        return False
    return stop.trigger <= reference if stop.side is Side.BUY else stop.trigger >= reference


def _reached(triggers: list[tuple[int, int, int]], price: int) -> Iterator[tuple[int, int]]:
    """Take the stops from a heap that a price has reached, as (place, id)."""
    while triggers and triggers[0][0] <= price:
        yield heappop(triggers)[1:]


def _flags_agree(order: Order) -> bool:
    """Which flags exclude each other."""
    is_bounded = order.is_market or order.is_immediate or order.is_stop
    is_timed = order.until is not None or order.at is not None
    if order.side not in _SIDES or (order.is_all and not order.is_immediate) or (order.is_stop and order.is_immediate):
        return False
    if order.is_post_only and is_bounded:
        return False
    if order.is_offer and (is_bounded or order.is_all or order.is_post_only or order.is_day or is_timed):
        return False
    if is_timed and (order.is_day or order.is_immediate):
        return False
    if order.at is not None and (order.until is not None or order.is_post_only or order.is_stop or order.display):
        return False
    if not order.display:
        return True
    return not (is_bounded or order.is_offer or order.display < 0 or _has_many_parts(order.display, order.quantity))


def _has_many_parts(display: int, total: int) -> bool:
    """Whether an iceberg shows too little of itself at a time; 0 is no iceberg."""
    return 0 < display * PARTS_MAX < total


def _fits_phase(order: Order, state: SymbolState) -> bool:
    """Whether a symbol's phase takes an order of this kind."""
    if not state.phase.takes_orders:
        return False
    if order.at is Crossing.OPEN and state.phase is not Phase.PRE_OPEN:
        return False
    if state.phase.is_call:
        return not (order.is_immediate or order.is_post_only)
    return state.terms.market is MarketKind.CONTINUOUS or not (order.is_all or order.is_post_only)


def _on_tick(order: Order, tick: int) -> bool:
    """Whether limit, protection price and trigger are whole ticks above zero."""
    has_price = order.price > 0 or (order.is_market and order.price == 0)
    has_trigger = order.trigger is None or order.trigger > 0
    return has_price and has_trigger and not order.price % tick and not (order.trigger or 0) % tick
