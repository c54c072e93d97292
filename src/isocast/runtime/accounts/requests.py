"""What traders ask: checks of its form, the floor's words for it, and refusals."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from json.encoder import encode_basestring_ascii as quoted
from typing import Final, NamedTuple

from isocast.floor.codec import DIGEST_BYTES, NONCE_BYTES, SYMBOL_MAX
from isocast.floor.events import AuctionKind, Crossing, Lot, Order, Refusal
from isocast.floor.machine import PARTS_MAX
from isocast.orders.accounts import AMOUNT_MAX
from isocast.orders.desk import (
    CLIENT_ID_MAX,
    BidRequest,
    CancelRequest,
    Lifetime,
    LotKind,
    LotRequest,
    NewOrder,
    OrderKind,
    OrderStatus,
    Reason,
    ReplaceRequest,
    ReportKind,
    RevealRequest,
    SealedBidRequest,
    TakeRequest,
    TradeReport,
    TradingRequest,
)
from isocast.orders.life import OrderLife
from isocast.orders.needs import Side, protection_price
from isocast.terms.market import Side as MarketSide

__all__ = [
    "REASONS",
    "Answered",
    "Asked",
    "RefusedError",
    "check_form",
    "content_digest",
    "floor_side",
    "is_client_id",
    "lot_event",
    "order_event",
    "refused",
    "worst_price",
]

REASONS: Final = {
    Refusal.UNKNOWN_SYMBOL: Reason.UNKNOWN_SYMBOL,
    Refusal.DUPLICATE_ID: Reason.DUPLICATE_ID,
    Refusal.FLAGS: Reason.FLAGS,
    Refusal.WRONG_PHASE: Reason.WRONG_PHASE,
    Refusal.LOT: Reason.LOT,
    Refusal.TICK: Reason.TICK,
    Refusal.COLLAR: Reason.COLLAR,
    Refusal.WOULD_TRADE: Reason.WOULD_TRADE,
    Refusal.UNKNOWN_ORDER: Reason.UNKNOWN_ORDER,
    Refusal.OWN: Reason.OWN,
    Refusal.TOO_LATE: Reason.TOO_LATE,
    Refusal.PRICE: Reason.PRICE,
    Refusal.COMMITMENT: Reason.MALFORMED,
}
_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode
_NULL, _WORDS = "null", ("false", "true")
_OWNERS: Final = 1 << 32
_IDS: Final = 1 << 64
_KINDS: Final = {
    OrderKind.LIMIT: (True, False),
    OrderKind.MARKET: (False, False),
    OrderKind.STOP: (False, True),
    OrderKind.STOP_LIMIT: (True, True),
}
"""Whether it has a price, and a trigger."""


class Asked(NamedTuple):
    """A request, and who makes it."""

    account: int
    session: str
    request: TradingRequest
    digest: str = ""
    """Of what it contains; computed once."""


class Answered(NamedTuple):
    """The answer, to be told once its batch is published; 0: at once."""

    report: TradeReport
    batch: int


def is_client_id(text: str) -> bool:
    """Whether a trader may call something so."""
    return 0 < len(text) <= CLIENT_ID_MAX and text.isascii() and text.isprintable()


def _malformed(request: TradingRequest) -> str | None:
    """The first thing that is wrong with the form of a request; None: nothing is. Sizes are left to the controls."""
    if isinstance(request, NewOrder):  # The usual one first.
        return _malformed_order(request)
    match request:
        case CancelRequest():
            return None if 0 <= request.quantity < AMOUNT_MAX else "quantity: from 0 (all of it) to below 2^62"
        case ReplaceRequest():
            if request.quantity is None and request.price is None and request.trigger is None:
                return "a replace changes quantity, price or trigger: give one of them"
            return _malformed_price(request.price, "price") or _malformed_price(request.trigger, "trigger")
        case LotRequest():
            return _malformed_lot(request)
        case TakeRequest() | BidRequest() | SealedBidRequest() | RevealRequest():
            return _malformed_bid(request)


def _malformed_lot(request: LotRequest) -> str | None:
    prices = request.reserve, request.closes_at, request.window_ns, request.forfeit, request.start, request.step
    if not all(0 <= value < AMOUNT_MAX for value in prices) or not request.reserve:
        return "reserve: above zero, and everything from 0 to below 2^62"
    sealed = request.closes_at, request.window_ns
    if request.auction is LotKind.DUTCH:
        if any((*sealed, request.forfeit)):
            return "closes_at, window, forfeit: belong to a sale at the second price"
        is_falling = request.start >= request.reserve and request.step
        return None if is_falling else "start, step: a Dutch clock starts at the reserve or above, and falls"
    if request.start or request.step:
        return "start, step: belong to a Dutch clock"
    return None if all(sealed) else "closes_at, window: when bids end, and how long they may be revealed"


def _malformed_bid(request: TakeRequest | BidRequest | SealedBidRequest | RevealRequest) -> str | None:
    match request:
        case TakeRequest():
            return None if 0 < request.offer < _IDS else "offer: an order's id in the sequence"
        case RevealRequest():
            is_nonce = _is_hex(request.nonce, NONCE_BYTES)
            return _malformed_price(request.price, "price") or (None if is_nonce else f"nonce: {NONCE_BYTES} bytes")
        case SealedBidRequest() if not _is_hex(request.commitment, DIGEST_BYTES):
            return f"commitment: {DIGEST_BYTES} bytes in hexadecimal"
    is_lot = 0 < request.lot < _IDS
    return _malformed_price(request.ceiling, "ceiling") or (None if is_lot else "lot: its id in the sequence")


def _is_hex(text: str, size: int) -> bool:
    return re.fullmatch(f"[0-9a-f]{{{2 * size}}}", text) is not None


def _malformed_order(request: NewOrder) -> str | None:
    if request.kind not in _KINDS:
        return f"kind: a {request.kind} is asked for by a request of its own"
    if request.is_open_offer and (
        request.kind is not OrderKind.LIMIT
        or request.lifetime not in (Lifetime.DAY, Lifetime.UNTIL_CANCELLED)
        or request.is_post_only
        or request.display
    ):
        return "open_offer: a plain limit order, until it is cancelled"
    has_price, has_trigger = _KINDS[request.kind]
    if (request.price is not None) != has_price:
        return f"price: a {request.kind} order {'has' if has_price else 'has no'} price"
    if (request.trigger is not None) != has_trigger:
        return f"trigger: a {request.kind} order {'has' if has_trigger else 'has no'} trigger"
    if (request.until is not None) != (request.lifetime is Lifetime.UNTIL_DATE):
        return "until: goes with the lifetime gtd, and with no other"
    if not 0 <= (request.until or 0) < AMOUNT_MAX or not 0 <= request.display < AMOUNT_MAX:
        return "until, display: from 0 to below 2^62"
    if 0 < request.display * PARTS_MAX < request.quantity:
        return f"display: an iceberg has at most {PARTS_MAX:,} parts, so show more at a time"
    if not 0 <= request.owner < _OWNERS:
        return f"owner: from 0 to below {_OWNERS:,}"
    return _malformed_price(request.price, "price") or _malformed_price(request.trigger, "trigger")


def _malformed_price(price: int | None, name: str) -> str | None:
    return None if price is None or 0 < price < AMOUNT_MAX else f"{name}: above zero and below 2^62"


def content_digest(request: TradingRequest) -> str:
    """Of what the trader set, his id aside."""
    if isinstance(request, CancelRequest | ReplaceRequest | TakeRequest):
        content = _ENCODE([type(request).__name__, *request[1:-1]])  # What it says of the order changes nothing.
    else:
        content = _content(request) if type(request) is NewOrder else _ENCODE([type(request).__name__, *request[1:]])
    return blake2b(content.encode(), digest_size=16).hexdigest()


def _content(order: NewOrder) -> str:
    """The same JSON, several times as fast."""
    _, symbol, side, quantity, kind, price, trigger, lifetime, until, post_only, display, offer, owner = order
    return (
        f'["NewOrder",{quoted(symbol)},"{side}",{quantity},"{kind}",{_NULL if price is None else price},'
        f'{_NULL if trigger is None else trigger},"{lifetime}",{_NULL if until is None else until},'
        f"{_WORDS[post_only]},{display},{_WORDS[offer]},{owner}]"
    )


def worst_price(request: NewOrder, reference: int | None, collar_bp: int, tick: int) -> int | None:
    """What a unit costs at most: the limit, or the protection price; None: no reference to take it from.

    A stop's is taken around its trigger (settlement 16).
    """
    if request.price is not None:
        return request.price
    around = reference if request.trigger is None else request.trigger
    return None if around is None else max(tick, protection_price(request.side, around, collar_bp, tick))


def floor_side(side: Side) -> MarketSide:
    """As the floor writes it."""
    return MarketSide.BUY if side is Side.BUY else MarketSide.SELL


def order_event(number: int, account: int, request: NewOrder, price: int, deadline: int | None) -> Order:
    """A new order as the floor hears it; `price` is its limit or protection price."""
    lifetime = request.lifetime
    return Order(  # By place: there is one for every order.
        number,
        account,
        request.symbol,
        MarketSide.BUY if request.side is Side.BUY else MarketSide.SELL,
        request.quantity,
        price,
        request.owner,
        request.price is None,
        lifetime in _AT_ONCE,
        lifetime is Lifetime.ALL_OR_NOTHING,
        request.is_post_only,
        lifetime is Lifetime.DAY and not request.is_open_offer,
        request.is_open_offer,
        request.trigger,
        deadline,
        request.until,
        _AUCTIONS.get(lifetime),
        request.display,
    )


def lot_event(number: int, account: int, request: LotRequest) -> Lot:
    """A lot as the floor hears it."""
    return Lot(
        number,
        account,
        request.symbol,
        AuctionKind(request.auction.value),
        request.quantity,
        request.reserve,
        request.closes_at,
        request.window_ns,
        request.forfeit,
        request.start,
        request.step,
    )


_AT_ONCE: Final = (Lifetime.IMMEDIATE, Lifetime.ALL_OR_NOTHING)
_AUCTIONS: Final = {Lifetime.OPENING: Crossing.OPEN, Lifetime.CLOSING: Crossing.CLOSE}


# Refusals -----------------------------------------------------------------------------------------------------------


class RefusedError(Exception):
    """A request is refused; nothing of it stays but its client id."""

    def __init__(self, reason: Reason, text: str, order: OrderLife | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.order = order
        """That a change was about."""


def check_form(request: TradingRequest) -> None:
    """RefusedError for a request with a form that cannot be."""
    if (fault := _malformed(request)) is not None:
        raise RefusedError(Reason.MALFORMED, fault)


_ASKED_KINDS: Final = {
    TakeRequest: OrderKind.TAKE,
    BidRequest: OrderKind.BID,
    SealedBidRequest: OrderKind.SEALED_BID,
}


def refused(asked: Asked, reason: Reason, text: str, now: int, order: OrderLife | None = None) -> TradeReport:
    """A refusal by the gateway itself."""
    request = asked.request
    kind, original, new = ReportKind.REFUSED, "", NewOrder("", "", Side.BUY, getattr(request, "quantity", 0) or 0)
    if isinstance(request, NewOrder):
        new = request
    elif isinstance(request, CancelRequest | ReplaceRequest | RevealRequest):
        kind, original = ReportKind.CHANGE_REFUSED, request.original_id[:CLIENT_ID_MAX]
    elif isinstance(request, LotRequest):
        new = new._replace(symbol=request.symbol, side=Side.SELL, kind=OrderKind.LOT)
    else:
        new = new._replace(kind=_ASKED_KINDS[type(request)])
        if isinstance(request, TakeRequest) and request.unchanged is not None:
            new = new._replace(symbol=request.unchanged.symbol, side=request.unchanged.side)
    if order is not None:
        report = order.report(kind, now)
    else:
        report = TradeReport(
            number=0,
            account=asked.account,
            kind=kind,
            status=OrderStatus.REFUSED,
            client_id="",
            original_id="",
            order=0,
            symbol=new.symbol[:SYMBOL_MAX],
            side=new.side,
            kind_of_order=new.kind,
            lifetime=new.lifetime,
            quantity=new.quantity,
            filled=0,
            filled_value=0,
            left=0,
            price=new.price,
            trigger=new.trigger,
            at=now,
        )
    client_id = request.client_id[:CLIENT_ID_MAX]
    return report._replace(client_id=client_id, original_id=original, reason=reason, text=text)
