"""Requests to an exchange as FIX 4.4, and its reports as the sequence carries them.

ClOrdID is the place of the request in the sequence: the same however often it is sent, so that an exchange recognizes
what it has. OrigClOrdID is the place of the order, or of its last replace. SecondaryClOrdID (526) is the order's id.

A market order has a protection price, beyond which it must never trade: it is sent as a limit order at that price, for
immediate execution.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Final

from isocast.floor.events import Cancel, Crossing, Order
from isocast.orders.delivery import Place
from isocast.orders.desk import OrderStatus, ReportKind
from isocast.orders.exchange import ExchangeAnswer
from isocast.runtime.accounts.fix.connection import Outgoing
from isocast.runtime.accounts.fix.messages import Field, Message, sanitized, utc_text
from isocast.runtime.accounts.fix.orders_door import EXEC_TYPES, ORDER_STATES, price_text
from isocast.runtime.exchange.directing import Directed, replaced
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import Side

__all__ = ["TAKES", "answer_of", "outgoing", "refusal_of"]

TAKES: Final = frozenset("389j")
"""What an exchange sends: session rejects, executions, cancel rejects, business rejects."""
_SIDES: Final = {Side.BUY: "1", Side.SELL: "2"}
_UNIT_DIGITS: Final = 4
_KINDS: Final[Mapping[str, ReportKind]] = MappingProxyType(
    {code: kind for kind, code in EXEC_TYPES.items()}
    # Suspended, stopped, done for the day, calculated, restated and the like are no step of an order's life.
    | dict.fromkeys("379BDG", ReportKind.STATUS)
)
_STATES: Final[Mapping[str, OrderStatus]] = MappingProxyType(
    {code: status for status, code in ORDER_STATES.items()}
    | {"6": OrderStatus.WORKING, "E": OrderStatus.WORKING, "9": OrderStatus.WORKING, "7": OrderStatus.WORKING}
    | {"3": OrderStatus.WORKING, "5": OrderStatus.WORKING, "D": OrderStatus.WORKING, "B": OrderStatus.WORKING}
)


# What is sent -------------------------------------------------------------------------------------------------------


def outgoing(directed: Directed, instant: int, code: str, *, is_again: bool = False) -> Outgoing:
    """The message of a request; `report` is its place, so that the session keeps how far it has come."""
    place, request, entered = directed
    about: list[Field] = [(11, str(place)), (60, utc_text(instant)), (526, str(request.id))]
    if isinstance(request, Order):
        kind, body = "D", [*about, (21, "1"), (100, code), *_terms(request)]
    elif isinstance(request, Cancel):
        order = entered.order
        kind = "F"
        body = [*about, (41, str(entered.latest)), (38, str(order.quantity)), (54, _SIDES[order.side])]
        body += [(1, str(order.account)), (55, order.symbol)]
    else:
        changed = replaced(entered, place, request).order
        kind, body = "G", [*about, (21, "1"), (41, str(entered.latest)), (100, code), *_terms(changed)]
    parties = [field for field in body if field[0] in _PARTIES]
    plain = sorted(field for field in body if field[0] not in _PARTIES)
    return Outgoing(kind, [*plain, *parties], 0 if is_again else place.number, is_again)


_PARTIES: Final = (453, 448, 447, 452)


def _terms(order: Order) -> list[Field]:
    """Everything that a trader has set."""
    is_stop = order.trigger is not None
    is_priced = not order.is_market or order.price > 0
    kinds = {(True, False): "2", (False, False): "1", (True, True): "4", (False, True): "3"}
    body: list[Field] = [
        (1, str(order.account)),
        (38, str(order.quantity)),
        (40, kinds[is_priced, is_stop]),
        (54, _SIDES[order.side]),
        (55, order.symbol),
        (59, _lifetime(order)),
    ]
    body += [(44, price_text(order.price))] if is_priced else []
    body += [(99, price_text(order.trigger))] if order.trigger is not None else []
    body += [(18, "6")] if order.is_post_only else []
    body += [(111, str(order.display))] if order.display else []
    body += [(126, utc_text(order.until))] if order.until is not None else []
    if order.owner:
        body += [(453, "1"), (448, str(order.owner)), (447, "D"), (452, "3")]
    return body


def _lifetime(order: Order) -> str:
    """TimeInForce (59)."""
    if order.is_immediate:
        return "4" if order.is_all else "3"
    if order.is_market and not order.is_stop and order.at is None:
        return "3"
    if order.at is not None:
        return "2" if order.at is Crossing.OPEN else "7"
    if order.until is not None:
        return "6"
    return "0" if order.is_day else "1"


# What is heard ------------------------------------------------------------------------------------------------------


def answer_of(message: Message) -> ExchangeAnswer:
    """An ExecutionReport (8) or an OrderCancelReject (9); RemoteProtocolError for one that names no place."""
    first = message.first
    order = Place.parse(first.get(11, ""))
    if order is None:
        raise RemoteProtocolError(f"ClOrdID (11) {sanitized(first.get(11, ''), 40)!r} is no place in the sequence")
    original = Place.parse(first.get(41, ""))
    status = _STATES.get(first.get(39, ""))
    if message.kind == "9":
        text = sanitized(first.get(58, "") or "refused")
        return ExchangeAnswer(order, ReportKind.CHANGE_REFUSED, status or OrderStatus.WORKING, original, text=text)
    kind = _KINDS.get(first.get(150, ""))
    if kind is None or status is None:
        raise RemoteProtocolError("ExecType (150) or OrdStatus (39) is missing, or none of FIX 4.4")
    is_trade = kind in (ReportKind.TRADED, ReportKind.BUSTED)
    return ExchangeAnswer(
        order,
        kind,
        status,
        original,
        _whole(first, 14),
        _whole(first, 151),
        _whole(first, 32) if is_trade else 0,
        _units(first, 31) if is_trade else 0,
        sanitized(first.get(17, "")),
        sanitized(first.get(58, "")),
    )


def refusal_of(message: Message, sent: Message) -> ExchangeAnswer:
    """A reject of the session (3) or the application (j) that refers to a message of ours: the request is refused."""
    order = Place.parse(sent.first.get(11, ""))
    if order is None:
        raise RemoteProtocolError("a reject of what is no request")
    text = sanitized(message.first.get(58, "") or f"rejected by a message of type {message.kind}")
    if sent.kind == "D":
        return ExchangeAnswer(order, ReportKind.REFUSED, OrderStatus.REFUSED, text=text)
    original = Place.parse(sent.first.get(41, ""))
    return ExchangeAnswer(order, ReportKind.CHANGE_REFUSED, OrderStatus.WORKING, original, text=text)


def _number(first: Mapping[int, str], tag: int) -> Decimal:
    try:
        number = Decimal(first.get(tag) or "0")
    except InvalidOperation:
        number = Decimal(-1)
    if not number.is_finite() or not 0 <= number < 1 << 62:
        raise RemoteProtocolError(f"tag {tag} is no number that a report may have")
    return number


def _whole(first: Mapping[int, str], tag: int) -> int:
    number = _number(first, tag)
    if number != number.to_integral_value():
        raise RemoteProtocolError(f"tag {tag} is not whole")
    return int(number)


def _units(first: Mapping[int, str], tag: int) -> int:
    units = _number(first, tag).scaleb(_UNIT_DIGITS)
    if units != units.to_integral_value() or units >= 1 << 63:
        raise RemoteProtocolError(f"tag {tag} is finer than 0.0001")
    return int(units)
