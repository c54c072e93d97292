"""What a request that enters the floor becomes: an order, an open offer, a TAKE, a lot, a bid.

All of them are orders to the books: reserved at the most that a unit can cost, or in shares; sent; refused, filled,
cancelled or expired by the sequence; settled when they are confirmed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias, assert_never

from isocast.floor.events import Bid, Commit, Event, Lot, Order, Take
from isocast.floor.rules.dutch_clock import DutchLot
from isocast.floor.rules.second_price import SealedLot
from isocast.orders.controls import Wanted
from isocast.orders.desk import (
    BidRequest,
    Lifetime,
    LotKind,
    LotRequest,
    NewOrder,
    OrderKind,
    Reason,
    SealedBidRequest,
    TakeRequest,
)
from isocast.orders.needs import Side
from isocast.runtime.accounts.floor_view import FloorView
from isocast.runtime.accounts.order_store import OpenOrder
from isocast.runtime.accounts.requests import RefusedError, floor_side, lot_event, order_event, worst_price
from isocast.terms.market import Side as MarketSide

__all__ = ["EnteringEvent", "EnteringRequest", "EntryPlan", "is_sent", "plan_entry"]

EnteringRequest: TypeAlias = NewOrder | TakeRequest | LotRequest | SealedBidRequest | BidRequest
EnteringEvent: TypeAlias = Order | Take | Lot | Commit | Bid


class EntryPlan(NamedTuple):
    """An order that is to be."""

    symbol: str
    side: Side
    quantity: int
    bound_price: int | None
    """What a unit costs at most; None: nobody knows."""
    kind: OrderKind
    lifetime: Lifetime
    price: int | None
    event: Callable[[int], Event]
    """As the floor hears it, under its id."""
    trigger: int | None = None
    owner: int = 0
    target: int = 0
    """The offer that it takes, or the lot that it bids for."""
    is_limit: bool = False
    """Whether its price is asked for the collar."""
    reference: int | None = None

    def wanted(self, account: int) -> Wanted:
        """As the controls look at it."""
        return Wanted(
            account,
            self.owner,
            self.side,
            self.quantity,
            self.bound_price,
            self.is_limit,
            self.reference,
            is_new=True,
        )


def plan_entry(
    view: FloorView, account: int, request: EnteringRequest, collar_bp: int, deadline: int | None, now: int
) -> EntryPlan:
    """What a request becomes on the floor as it is; RefusedError where it cannot."""
    if isinstance(request, NewOrder):  # The usual one first.
        return _order(view, account, request, collar_bp, deadline)
    match request:
        case TakeRequest():
            return _take(view, account, request)
        case LotRequest():
            return _lot(view, account, request, now)
        case SealedBidRequest():
            return _sealed_bid(view, account, request, now)
        case BidRequest():
            return _bid(view, account, request)
        case _:
            assert_never(request)


def _order(view: FloorView, account: int, request: NewOrder, collar_bp: int, deadline: int | None) -> EntryPlan:
    state = view.symbol(request.symbol)
    if state is None:
        raise RefusedError(Reason.UNKNOWN_SYMBOL, "there is no such symbol on this floor")
    price = worst_price(request, state.reference, state.terms.collar_bp or collar_bp, state.terms.tick)
    is_offer = request.is_open_offer
    return EntryPlan(
        request.symbol,
        request.side,
        request.quantity,
        price,
        OrderKind.OFFER if is_offer else request.kind,
        Lifetime.UNTIL_CANCELLED if is_offer else request.lifetime,
        request.price,
        lambda number: order_event(number, account, request, price or 0, deadline),
        request.trigger,
        request.owner,
        is_limit=request.price is not None,
        reference=state.reference if request.trigger is None else request.trigger,
    )


def _take(view: FloorView, account: int, request: TakeRequest) -> EntryPlan:
    offer = view.floor.offers.get(request.offer)
    if offer is None:
        raise RefusedError(Reason.UNKNOWN_ORDER, "there is no such offer: it may be taken or withdrawn")
    if offer.account == account:
        raise RefusedError(Reason.OWN, "nobody takes an offer of his own: cancel it instead")
    symbol, side = view.floor.offered[request.offer], Side.SELL if offer.side is MarketSide.BUY else Side.BUY
    if request.unchanged is not None and request.unchanged[:2] != (symbol, side):
        raise RefusedError(Reason.MALFORMED, f"symbol, side: who takes this offer makes a {side} of {symbol}")
    return EntryPlan(
        symbol,
        side,
        request.quantity,
        offer.price,
        OrderKind.TAKE,
        Lifetime.IMMEDIATE,
        offer.price,
        lambda number: Take(number, account, request.offer, request.quantity),
        target=request.offer,
    )


def _lot(view: FloorView, account: int, request: LotRequest, now: int) -> EntryPlan:
    if view.symbol(request.symbol) is None:
        raise RefusedError(Reason.UNKNOWN_SYMBOL, "there is no such symbol on this floor")
    if request.auction is LotKind.SECOND_PRICE and request.closes_at <= now:
        raise RefusedError(Reason.TOO_LATE, "closes_at: bids would end before the lot is open")
    return EntryPlan(
        request.symbol,
        Side.SELL,
        request.quantity,
        request.reserve,
        OrderKind.LOT,
        Lifetime.UNTIL_CANCELLED,
        request.reserve,
        lambda number: lot_event(number, account, request),
    )


def _lot_of(view: FloorView, account: int, number: int) -> SealedLot | DutchLot:
    lot = view.floor.lots.get(number)
    if lot is None:
        raise RefusedError(Reason.UNKNOWN_ORDER, "there is no such lot: it may be sold, or not open yet")
    if lot.lot.account == account:
        raise RefusedError(Reason.OWN, "nobody bids for a lot of his own")
    return lot


def _sealed_bid(view: FloorView, account: int, request: SealedBidRequest, now: int) -> EntryPlan:
    lot = _lot_of(view, account, request.lot)
    if isinstance(lot, DutchLot):
        raise RefusedError(Reason.MALFORMED, "lot: this one is sold by a Dutch clock, which takes no sealed bids")
    if max(now, view.floor.at) >= lot.lot.closes_at:
        raise RefusedError(Reason.TOO_LATE, "bids for this lot have ended")
    digest = bytes.fromhex(request.commitment)
    return EntryPlan(
        lot.lot.symbol,
        Side.BUY,
        lot.lot.quantity,
        request.ceiling,
        OrderKind.SEALED_BID,
        Lifetime.UNTIL_CANCELLED,
        request.ceiling,
        lambda number: Commit(number, account, request.lot, request.ceiling, digest),
        target=request.lot,
    )


def _bid(view: FloorView, account: int, request: BidRequest) -> EntryPlan:
    lot = _lot_of(view, account, request.lot)
    if isinstance(lot, SealedLot):
        raise RefusedError(Reason.MALFORMED, "lot: this one takes sealed bids")
    return EntryPlan(
        lot.lot.symbol,
        Side.BUY,
        request.quantity,
        request.ceiling,
        OrderKind.BID,
        Lifetime.IMMEDIATE,
        request.ceiling,
        lambda number: Bid(number, account, request.lot, request.quantity, request.ceiling),
        target=request.lot,
    )


def is_sent(order: OpenOrder, event: EnteringEvent) -> bool:
    """Whether an event of the sequence is what this gateway has sent."""
    life = order.life
    about = event.account, order.target, life.total, life.bound_price
    match event:
        case Order():
            sent = life.symbol, floor_side(life.side), life.total, life.bound_price, order.owner
            return (event.symbol, event.side, event.quantity, event.price, event.owner) == sent
        case Take():
            return about[:3] == (life.account, event.offer, event.quantity)
        case Bid():
            return about == (life.account, event.lot, event.quantity, event.ceiling)
        case Commit():
            return (*about[:2], life.bound_price) == (life.account, event.lot, event.ceiling)
        case Lot():
            mine = life.account, life.symbol, life.total, life.bound_price
            return (event.account, event.symbol, event.quantity, event.reserve) == mine
