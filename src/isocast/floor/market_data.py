"""A floor's books and auctions as market events, for people who read tapes and not floors.

Whoever has the sequence from its beginning computes them: nothing of this travels. After each token of the floor

    DIRECTORY   a symbol with its tick and lot, when it is new or its rules change
    STATUS      a symbol's phase: trading, quoting (a call), paused, halted, closed
    EXECUTION   of a shown order, UNPRINTED: the trade itself is printed once it is confirmed (`floor.printing`)
    CANCEL      a shown order goes, or shrinks; LINKED to the ORDER behind it where it lost its place
    ORDER       a shown order; icebergs with what they show
    MARK I      what the auction of a call would do: price, quantity, side of the surplus, and the surplus as its id

A book is shown while its symbol trades; in a call there is the indicative price instead. Orders have numbers of this
feed's own, in the order in which they are shown, so that an order does not say whose it is. A day begins with MARK O
and everything that stands then; which day it is, whoever reads says of a token's instant.

What a token gives is told with the first message of the sequence behind it: nobody knows sooner that it is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from isocast.floor.book import WorkingOrder
from isocast.floor.events import Directory, Indicative, Phase, Report, Trade
from isocast.floor.following import FloorFollower, FloorMessage, FloorStep
from isocast.floor.machine import Floor, SymbolState
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.instruments import Instrument
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Side
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.names import name_events

__all__ = ["DAY_BEGINS", "INDICATIVE", "FloorMarketData"]

INDICATIVE: Final = ord("I")
"""The reference of a mark that says what an auction would do."""
DAY_BEGINS: Final = ord("O")
"""The reference of a mark with which a floor's day begins."""
_QUANTITY_MAX: Final = (1 << 32) - 1
_NUMBER_MAX: Final = (1 << 64) - 1
"""Of what stands as a record's id: orders of some brokers together can have a larger surplus."""
_STATUS: Final = {
    Phase.CLOSED: MarketStatus.CLOSED,
    Phase.PRE_OPEN: MarketStatus.QUOTING,
    Phase.OPEN: MarketStatus.TRADING,
    Phase.CLOSING: MarketStatus.QUOTING,
    Phase.HALTED: MarketStatus.HALTED,
    Phase.PAUSE: MarketStatus.PAUSED,
}
_CALLS: Final = {Phase.PRE_OPEN: EventFlag.OPENING, Phase.CLOSING: EventFlag.CLOSING}
"""Of which auction an indicative price is; without a flag of one behind a pause."""
_NAMES: Final = EVENT_DTYPE.names or ()


class _Shown(NamedTuple):
    """An order as the feed has told it."""

    number: int
    side: Side
    price: int
    quantity: int
    place: int


class _NotingFloor(Floor):
    """Remembers which books a token changed."""

    changed_books: tuple[str, ...] = ()

    def end(self) -> list[Report]:
        before = list(self._changed)
        reports = super().end()
        self.changed_books = tuple(dict.fromkeys([*before, *self._changed]))
        return reports


class _NotingFollower(FloorFollower):
    floor_class = _NotingFloor


class FloorMarketData:
    """The market data of one floor, from the sequence."""

    def __init__(self, code: str, day_of: Callable[[int], object]) -> None:
        """A floor of which nothing was heard; `day_of` says the day of a token's instant."""
        self.follower: FloorFollower = _NotingFollower(code)
        self._code = code
        self._day_of = day_of
        self._day: object = _NotingFloor
        """Of the newest token; at first no day at all."""
        self._terms: dict[str, Directory] = {}
        self._phases: dict[str, Phase] = {}
        self._shown: dict[str, dict[int, _Shown]] = {}
        """By symbol and id on the floor, what the feed has told and not taken back."""
        self._numbers = 0
        self.is_reported = False
        """Whether a report is due of the token that is over."""
        self._rows: list[tuple[Any, ...]] = []
        self._instant = 0

    def hear(self, token: int, instant: int, message: FloorMessage) -> EventArray:
        """The next message of the sequence, of whatever topic; what the token before gives, if this is behind it."""
        return self._told(self.follower.hear(token, instant, message))

    def finish(self) -> EventArray:
        """The token that has begun is over."""
        return self._told(self.follower.finish())

    # Restart ---------------------------------------------------------------------------------------------------

    def rows(self) -> dict[str, Any]:
        """All that it goes on from, between two tokens."""
        shown = {symbol: [[number, one.number] for number, one in told.items()] for symbol, told in self._shown.items()}
        return {"follower": self.follower.rows(), "numbers": self._numbers, "shown": shown}

    @classmethod
    def from_rows(cls, rows: dict[str, Any], day_of: Callable[[int], object]) -> FloorMarketData:
        """As it was; RemoteProtocolError for rows that are none."""
        try:
            follower = _NotingFollower.from_rows(rows["follower"])
            data = cls(follower.code, day_of)
            data.follower, floor = follower, follower.floor
            data._numbers, data._day = rows["numbers"], day_of(floor.at)
            for symbol, state in floor.symbols.items():
                data._terms[symbol], data._phases[symbol] = state.terms, state.phase
                orders = {order.id: order for order in state.book}
                told = rows["shown"].get(symbol, ())
                data._shown[symbol] = {number: _shown(place, orders[number]) for number, place in told}
        except (KeyError, TypeError, ValueError, AttributeError) as reason:
            raise RemoteProtocolError("market data of a floor with rows of another version") from reason
        return data

    # A token ---------------------------------------------------------------------------------------------------

    def _told(self, step: FloorStep | None) -> EventArray:
        if step is None:
            return np.empty(0, EVENT_DTYPE)
        floor, self.is_reported = self.follower.floor, step.is_reported
        self._rows, self._instant = [], step.instant
        touched = dict.fromkeys(getattr(floor, "changed_books", ()))
        day = self._day_of(step.instant)
        if day != self._day:
            self._day = day
            self._begin_day()
            touched = dict.fromkeys(floor.symbols)
        for symbol, state in floor.symbols.items():
            if self._rules(symbol, state) or self._phases.get(symbol) is not state.phase:
                touched[symbol] = None
        for trade in step.trades:
            self._execute(trade)
        for symbol in [name for name in floor.symbols if name in touched]:
            self._show(symbol, floor.symbols[symbol])
        for told in step.reports:
            if isinstance(told.report, Indicative):
                self._indicate(told.report)
        names = name_events([one for one in map(self._instrument, touched) if one.symbol != one.name])
        names["time"] = step.instant
        return np.concatenate([names, np.array(self._rows, EVENT_DTYPE)]) if self._rows else names

    def _begin_day(self) -> None:
        """All that was told is over; what stands is told anew."""
        self._terms, self._phases, self._shown = {}, {}, {}
        self._say(EventKind.MARK, reference=DAY_BEGINS)

    def _rules(self, symbol: str, state: SymbolState) -> bool:
        """Tell a symbol whose rules are new; whether it was."""
        if self._terms.get(symbol) == state.terms:
            return False
        self._terms[symbol] = state.terms
        lot = min(state.terms.lot, _QUANTITY_MAX)
        self._say(EventKind.DIRECTORY, symbol, price=state.terms.tick, quantity=lot)
        return True

    def _execute(self, trade: Trade) -> None:
        """Shown orders trade; those of auctions and lots are not shown, and those that have just come are not yet."""
        shown = self._shown.get(trade.symbol, {})
        for number in () if trade.is_auction or trade.is_off_book else (trade.buy, trade.sell):
            order = shown.get(number)
            if order is None:
                continue
            quantity = min(trade.quantity, order.quantity)
            flags = EventFlag.UNPRINTED
            self._say(EventKind.EXECUTION, trade.symbol, order.side, trade.price, quantity, order.number, flags)
            if quantity < order.quantity:
                shown[number] = order._replace(quantity=order.quantity - quantity)
            else:
                del shown[number]

    # A book ----------------------------------------------------------------------------------------------------

    def _show(self, symbol: str, state: SymbolState) -> None:
        """Tell what a symbol's phase and book are now, as far as that is not what was told."""
        if self._phases.get(symbol) is not state.phase:
            self._phases[symbol] = state.phase
            self._say(EventKind.STATUS, symbol, reference=_STATUS[state.phase])
        told = self._shown.setdefault(symbol, {})
        orders = {order.id: order for order in state.book} if state.phase is Phase.OPEN else {}
        for number in [number for number in told if number not in orders]:
            gone = told.pop(number)
            self._say(EventKind.CANCEL, symbol, gone.side, number=gone.number)
        for order in sorted(orders.values(), key=_by_place):
            self._renew(symbol, told, order)

    def _renew(self, symbol: str, told: dict[int, _Shown], order: WorkingOrder) -> None:
        known, quantity = told.get(order.id), _quantity(order)
        if known is not None:
            keeps = (known.side, known.price, known.place) == (order.side, order.price, order.place)
            if keeps and quantity == known.quantity:
                return
            if keeps and quantity < known.quantity:
                less = known.quantity - quantity
                self._say(EventKind.CANCEL, symbol, known.side, quantity=less, number=known.number)
                told[order.id] = known._replace(quantity=quantity)
                return
            self._say(EventKind.CANCEL, symbol, known.side, number=known.number, flags=EventFlag.LINKED)
        self._numbers += 1
        told[order.id] = _shown(self._numbers, order)
        self._say(EventKind.ORDER, symbol, order.side, order.price, quantity, self._numbers)

    def _indicate(self, told: Indicative) -> None:
        side = Side.NONE if not told.surplus else Side.BUY if told.surplus > 0 else Side.SELL
        quantity = min(told.volume, _QUANTITY_MAX)
        price, surplus = told.price or 0, min(abs(told.surplus), _NUMBER_MAX)
        flags = _CALLS.get(self.follower.floor.symbols[told.symbol].phase, 0)
        self._say(EventKind.MARK, told.symbol, side, price, quantity, surplus, flags, INDICATIVE)

    # Records ---------------------------------------------------------------------------------------------------

    def _instrument(self, symbol: str) -> Instrument:
        return Instrument(self._code, symbol)

    def _say(
        self,
        kind: EventKind,
        symbol: str = "",
        side: Side = Side.NONE,
        price: int = 0,
        quantity: int = 0,
        number: int = 0,
        flags: int = 0,
        reference: int = 0,
    ) -> None:
        name = self._instrument(symbol).symbol.encode("ascii") if symbol else b""
        row = {
            "kind": kind,
            "side": side,
            "flags": flags,
            "floor": self._code.encode("ascii"),
            "symbol": name,
            "price": price,
            "quantity": quantity,
            "reference": reference,
            "time": self._instant,
            "id": number,
        }
        self._rows.append(tuple([row[field] for field in _NAMES]))


def _shown(number: int, order: WorkingOrder) -> _Shown:
    return _Shown(number, order.side, order.price, _quantity(order), order.place)


def _quantity(order: WorkingOrder) -> int:
    return min(order.shown, _QUANTITY_MAX)


def _by_place(order: WorkingOrder) -> int:
    return order.place
