"""Orders by FIX: what traders send becomes requests to the gateway's desk, and its reports become ExecutionReports.

Every session of an account hears all reports of the account, in order, each once: a trading session, and a drop copy,
which is the session of a login that may only read. ExecID is `ACCOUNT-NUMBER` of the report, so that it is the same
however often the message is sent. A trade is reported as it happens (tentative) by ExecType F; that it is final and
settled by ExecType D (Restated), which changes no quantity: leaving it out would hide from FIX alone what every other
way in tells, and a second F would be a second fill. A void one is taken back by ExecType H.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial
from types import MappingProxyType
from typing import Final

from isocast.orders.desk import (
    CLIENT_ID_MAX,
    CancelRequest,
    Desk,
    Lifetime,
    Login,
    NewOrder,
    OrderKind,
    OrderStatus,
    Reason,
    ReplaceRequest,
    ReportKind,
    Scope,
    TakeRequest,
    TradeReport,
    TradingRequest,
    Unchanged,
)
from isocast.orders.needs import Side
from isocast.runtime.accounts.fix.connection import Outgoing
from isocast.runtime.accounts.fix.dictionary import group_entries
from isocast.runtime.accounts.fix.messages import Field, Message, instant_of, sanitized, utc_text
from isocast.runtime.watch.logs import get_log
from isocast.terms.errors import LedgerError, LedgerFault, LocalProtocolError

__all__ = ["CANCEL_REASONS", "EXEC_TYPES", "ORDER_REASONS", "ORDER_STATES", "OrdersDoor", "price_text", "units_of"]

_UNIT: Final = 10_000
"""Price units of a whole."""
_UNIT_DIGITS: Final = 4
_AVERAGE_STEP: Final = Decimal("0.00000001")
_REMEMBERED_MAX: Final = 10_000
"""Trades of one session whose reports are remembered."""
_PAGE: Final = 1_000
_BELIEVED_S: Final = 5.0
"""For which an API token is believed without asking again, as over HTTPS."""
_OFFER_DIGITS_MAX: Final = 20
"""Of an order's id."""

EXEC_TYPES: Final[Mapping[ReportKind, str]] = MappingProxyType(
    {
        ReportKind.ACCEPTED: "A",
        ReportKind.WORKING: "0",
        ReportKind.REFUSED: "8",
        ReportKind.TRADED: "F",
        ReportKind.CONFIRMED: "D",
        ReportKind.BUSTED: "H",
        ReportKind.CORRECTED: "G",
        ReportKind.RESTORED: "D",
        ReportKind.REVEAL_PENDING: "D",
        ReportKind.REVEALED: "D",
        ReportKind.CANCEL_PENDING: "6",
        ReportKind.REPLACE_PENDING: "E",
        ReportKind.CANCELLED: "4",
        ReportKind.REPLACED: "5",
        ReportKind.EXPIRED: "C",
        ReportKind.STATUS: "I",
    }
)
"""ExecType (150) of a report; `CHANGE_REFUSED` is an OrderCancelReject, and a correction to nothing is a H."""
ORDER_STATES: Final[Mapping[OrderStatus, str]] = MappingProxyType(
    {
        OrderStatus.PENDING: "A",
        OrderStatus.WORKING: "0",
        OrderStatus.PART_FILLED: "1",
        OrderStatus.FILLED: "2",
        OrderStatus.CANCELLED: "4",
        OrderStatus.EXPIRED: "C",
        OrderStatus.REFUSED: "8",
    }
)
"""OrdStatus (39)."""
_PENDING_STATES: Final = MappingProxyType({ReportKind.CANCEL_PENDING: "6", ReportKind.REPLACE_PENDING: "E"})
ORDER_REASONS: Final[Mapping[Reason, int]] = MappingProxyType(
    {
        Reason.UNKNOWN_SYMBOL: 1,
        Reason.WRONG_PHASE: 2,
        Reason.VALUE: 3,
        Reason.OPEN_ORDERS: 3,
        Reason.FUNDS: 3,
        Reason.SHARES: 3,
        Reason.TOO_LATE: 4,
        Reason.UNKNOWN_ORDER: 5,
        Reason.CLIENT_ID_USED: 6,
        Reason.DUPLICATE_ID: 6,
        Reason.FLAGS: 11,
        Reason.QUANTITY: 13,
        Reason.LOT: 13,
    }
)
"""OrdRejReason (103); every other reason is 99, and Text says it."""
CANCEL_REASONS: Final[Mapping[Reason, int]] = MappingProxyType(
    {Reason.TOO_LATE: 0, Reason.UNKNOWN_ORDER: 1, Reason.CLIENT_ID_USED: 6, Reason.DUPLICATE_ID: 6}
)
"""CxlRejReason (102); every other reason is 99, and Text says it."""
_OTHER: Final = 99

_SIDES: Final = MappingProxyType({"1": Side.BUY, "2": Side.SELL})
_KINDS: Final = MappingProxyType(
    {"1": OrderKind.MARKET, "2": OrderKind.LIMIT, "3": OrderKind.STOP, "4": OrderKind.STOP_LIMIT}
)
_LIFETIMES: Final = MappingProxyType(
    {
        "0": Lifetime.DAY,
        "1": Lifetime.UNTIL_CANCELLED,
        "2": Lifetime.OPENING,
        "3": Lifetime.IMMEDIATE,
        "4": Lifetime.ALL_OR_NOTHING,
        "6": Lifetime.UNTIL_DATE,
        "7": Lifetime.CLOSING,
    }
)
_SIDE_CODES: Final = {side: code for code, side in _SIDES.items()}
_TAKEN: Final = "D"
"""OrdType of a TAKE, "previously quoted": QuoteID (117) is the offer."""
_KIND_CODES: Final = {
    **dict.fromkeys(OrderKind, "2"),
    **{kind: code for code, kind in _KINDS.items()},
    OrderKind.TAKE: _TAKEN,
}
"""OrdType (40); offers, lots and bids are limit orders to FIX."""
_NO_SYMBOL: Final = "[N/A]"
"""FIX's word where there is none: of a refused TAKE of an offer that nobody knows."""
_OFF_EXCHANGE: Final = "XOFF"
"""ExDestination (100) of an open offer, which is in no book: ISO 10383's code for trades off the exchanges."""
_LIFETIME_CODES: Final = {lifetime: code for code, lifetime in _LIFETIMES.items()}

_USED: Final = frozenset((1, 11, 18, 38, 40, 41, 44, 54, 55, 59, 60, 99, 111, 126))
_PARTY_TAGS: Final = frozenset((447, 448, 452, 453, 523, 802, 803))
_HARMLESS: Final = frozenset(
    (8, 9, 10, 15, 21, 34, 35, 37, 43, 49, 50, 52, 56, 57, 58, 97, 114, 122, 142, 143, 336)
) | (
    frozenset((22, 48, 65, 100, 106, 107, 115, 116, 128, 129, 144, 145, 167, 207, 347, 354, 355, 369, 386, 526, 528))
    | frozenset((529, 581, 582, 583, 625, 660, 847))
)
"""What does not change the meaning of an order. Any other tag does, so that an order which has it is refused."""


class _RefusedError(Exception):
    """A message that does not become a request."""

    def __init__(self, text: str, reason: int = _OTHER, *, is_missing: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.is_missing = is_missing
        """A field that this kind of order needs is missing: a BusinessMessageReject."""


def units_of(text: str, name: str) -> int:
    """A price as whole price units, exactly.

    >>> units_of("10.05", "Price (44)")
    100500
    """
    units = Decimal(text).scaleb(_UNIT_DIGITS)
    if units != units.to_integral_value():
        raise _RefusedError(f"{name} {text} is finer than 0.0001")
    return int(units)


def price_text(units: int) -> str:
    """Price units as a decimal, exactly.

    >>> price_text(100_500), price_text(100_000), price_text(-5)
    ('10.05', '10', '-0.0005')
    """
    whole, rest = divmod(abs(units), _UNIT)
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}.{rest:04}".rstrip("0").rstrip(".")


def _average_text(value: int, quantity: int) -> str:
    if not quantity:
        return "0"
    average = (Decimal(value) / Decimal(quantity * _UNIT)).quantize(_AVERAGE_STEP, ROUND_HALF_EVEN)
    return f"{average:f}".rstrip("0").rstrip(".")


def _whole(text: str, name: str) -> int:
    number = Decimal(text)
    if number != number.to_integral_value():
        raise _RefusedError(f"{name} {text} is not a whole number", 13)
    return int(number)


class OrdersDoor:
    """Admits traders to the desk."""

    def __init__(
        self,
        desk: Desk,
        now: Callable[[], int],
        cancels_on_disconnect: Callable[[Login, str], bool] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`cancels_on_disconnect(login, CompID)` says whether the orders of a session end with its connection."""
        self._desk = desk
        self._now = now
        self._sleep = sleep
        self._cancels = cancels_on_disconnect or (lambda _login, _comp_id: False)

    async def admit(self, logon: Message, address: str, *, is_private: bool) -> OrdersVisitor | None:
        """Whoever has a name (553) and a password or API token (554) that the desk knows, where nobody else reads them.

        A token says what its session may do: a drop copy is the session of one that may only read.
        """
        name, secret = logon.get(553), logon.get(554)
        if name is None or secret is None or not is_private:
            return None
        try:
            login = await self._desk.log_in_by_token(secret, address)
            # The token of a session is no API token: whoever leaves here would end that session, too.
            is_token = login is not None and login.session != secret and name in (login.name, str(login.account))
            if not is_token:
                login = await self._desk.log_in(name, secret, address)
        except LedgerError as error:
            get_log().warning("nobody can log on now", reason=str(error))
            return None
        if login is None or Scope.READ not in login.scopes:
            return None
        ended = partial(self._until_disbelieved, secret, address) if is_token else asyncio.Event().wait
        cancels = self._cancels(login, logon.first[49])
        return OrdersVisitor(self._desk, login, self._now, ended, cancels=cancels)

    async def _until_disbelieved(self, token: str, address: str) -> None:
        """Until an API token has expired, or was revoked."""
        is_good = True
        while is_good:
            await self._sleep(_BELIEVED_S)
            with suppress(LedgerError):  # Nobody can say now.
                login = await self._desk.log_in_by_token(token, address)
                is_good = login is not None and Scope.READ in login.scopes


class OrdersVisitor:
    """One session of a trader."""

    def __init__(
        self,
        desk: Desk,
        login: Login,
        now: Callable[[], int],
        until_disbelieved: Callable[[], Awaitable[object]],
        *,
        cancels: bool,
    ) -> None:
        self._until_disbelieved = until_disbelieved
        self._desk = desk
        self._login = login
        self._now = now
        self._is_cancelling = cancels
        self._told = 0
        """The last report that was given out."""
        self._answers = 0
        self._trades: OrderedDict[tuple[int, int], int] = OrderedDict()
        """The report of a trade, by trade and order."""

    @property
    def account(self) -> int:
        """Whose session it is."""
        return self._login.account

    async def newest_report(self) -> int:
        """The number of the last report that the account was told."""
        return await self._desk.newest_report(self._login)

    async def until_ended(self) -> str:
        """Why the session must end, once it must."""
        await self._until_disbelieved()
        return "the API token of this session has expired, or was revoked"

    async def leave(self) -> None:
        """The connection ended; by the session's choice its orders do, too."""
        await self._desk.log_out(self._login, cancels=self._is_cancelling)

    # ---- what traders send

    async def handle(self, message: Message) -> Sequence[Outgoing]:
        """The answers that no report gives."""
        try:
            return await self._handle(message)
        except LedgerError as error:
            if error.fault is not LedgerFault.UNAVAILABLE:
                raise
            return [self._business_reject(message, 4, "the gateway cannot do this now: send the same again")]

    async def _handle(self, message: Message) -> Sequence[Outgoing]:
        told = self._told
        if message.kind == "H":
            return await self._status(message)
        if Scope.TRADE not in self._login.scopes:
            return [self._business_reject(message, 6, "this login may only read: a drop copy does not trade")]
        if message.kind == "q":
            return await self._cancel_all(message)
        try:
            request = self._request(message)
        except _RefusedError as refusal:
            return [await self._refusal(message, refusal)]
        answer = await self._desk.submit(self._login, request)
        if answer.reason is Reason.UNAVAILABLE:
            return [self._business_reject(message, 4, answer.text or "not now: send it again")]
        if not answer.number:
            return [await self._outgoing(answer, is_replace=message.kind == "G")]
        if answer.number > told:
            return []
        # It is the same request again: its report was told already.
        if answer.kind in (ReportKind.REFUSED, ReportKind.CHANGE_REFUSED):
            return [(await self._outgoing(answer))._replace(report=0, is_again=True)]
        return await self._status(message)

    def _request(self, message: Message) -> TradingRequest:
        """What a message asks for. Nothing is awaited: requests reach the desk in the order of their messages."""
        first = message.first
        if len(first[11]) > CLIENT_ID_MAX:  # A report has room for no more of it: it would be of another id.
            raise _RefusedError(f"ClOrdID (11) has more than {CLIENT_ID_MAX} characters")
        self._check_account(first.get(1))
        if message.kind == "F":
            side = _SIDES.get(first[54])
            if side is None:
                raise _RefusedError(f"tag 54 = {first[54]} is not supported here", 11)
            return CancelRequest(first[11], first[41], unchanged=Unchanged(first[55], side))
        if message.kind == "D":
            return self._take(message) if first[40] == _TAKEN else self._new_order(message)
        self._check_tags(message)
        kind, side, lifetime = _terms(message)
        return ReplaceRequest(
            first[11],
            first[41],
            _whole(first[38], "OrderQty (38)") if 38 in first else None,  # noqa: PLR2004
            units_of(first[44], "Price (44)") if 44 in first else None,  # noqa: PLR2004
            units_of(first[99], "StopPx (99)") if 99 in first else None,  # noqa: PLR2004
            Unchanged(first[55], side, kind, lifetime if 59 in first else None),  # noqa: PLR2004
        )

    def _take(self, message: Message) -> TakeRequest:
        """Of an open offer, which says the price and which side is taken."""
        first = message.first
        self._check_tags(message, frozenset((117,)))
        for tag, name in ((38, "OrderQty"), (117, "QuoteID")):
            if tag not in first:
                raise _RefusedError(f"{name} ({tag}) is needed for this order", is_missing=True)
        for tag in (18, 44, 99, 111, 126):
            if tag in first:
                raise _RefusedError(f"tag {tag} contradicts OrdType (40) = D: the offer says all of it", 11)
        side, offer = _SIDES.get(first[54]), first[117]
        if side is None or first.get(59, "3") != "3":
            raise _RefusedError("OrdType (40) = D needs Side (54) 1 or 2, and TimeInForce (59) 3 if any", 11)
        if not offer.isdecimal() or len(offer) > _OFFER_DIGITS_MAX:
            raise _RefusedError("QuoteID (117) is the OrderID (37) of the offer: a number")
        said = Unchanged(first[55], side, OrderKind.TAKE)
        return TakeRequest(first[11], int(offer), _whole(first[38], "OrderQty (38)"), said)

    def _new_order(self, message: Message) -> NewOrder:
        first = message.first
        self._check_tags(message)
        kind, side, lifetime = _terms(message)
        if first.get(18, "6") != "6":
            raise _RefusedError(f"ExecInst (18) = {first[18]} is not supported here: only 6, post only", 11)
        needed = {38: "OrderQty"}
        if kind in (OrderKind.LIMIT, OrderKind.STOP_LIMIT):
            needed[44] = "Price"
        if kind in (OrderKind.STOP, OrderKind.STOP_LIMIT):
            needed[99] = "StopPx"
        if lifetime is Lifetime.UNTIL_DATE:
            needed[126] = "ExpireTime"
        for tag, name in needed.items():
            if tag not in first:
                raise _RefusedError(f"{name} ({tag}) is needed for this order", is_missing=True)
        for tag, name in ((44, "Price"), (99, "StopPx"), (126, "ExpireTime")):
            if tag in first and tag not in needed:
                raise _RefusedError(f"{name} ({tag}) contradicts OrdType (40) or TimeInForce (59)", 11)
        return NewOrder(
            first[11],
            first[55],
            side,
            _whole(first[38], "OrderQty (38)"),
            kind,
            units_of(first[44], "Price (44)") if 44 in first else None,  # noqa: PLR2004
            units_of(first[99], "StopPx (99)") if 99 in first else None,  # noqa: PLR2004
            lifetime,
            instant_of(first[126]) if 126 in first else None,  # noqa: PLR2004
            is_post_only=18 in first,  # noqa: PLR2004
            display=_display(first.get(111)),
            is_open_offer=first.get(100) == _OFF_EXCHANGE,
            owner=_owner(message),
        )

    def _check_account(self, account: str | None) -> None:
        if account is not None and account not in (self._login.name, str(self._login.account)):
            raise _RefusedError("Account (1) is not the one that is logged on", 15)

    def _check_tags(self, message: Message, also: frozenset[int] = frozenset()) -> None:
        for tag, _ in message.fields:
            if tag not in _USED and tag not in also and tag not in _HARMLESS and tag not in _PARTY_TAGS:
                raise _RefusedError(f"tag {tag} is not supported here: an order without it may mean something else", 11)

    async def _status(self, message: Message) -> Sequence[Outgoing]:
        first = message.first
        now = await self._desk.order(self._login, first[11])
        if now is None and 41 in first:  # noqa: PLR2004 - a cancel or a replace, which came again: its order.
            now = await self._desk.order(self._login, first[41])
        asked: list[Field] = [(790, first[790])] if 790 in first else []  # noqa: PLR2004
        if now is not None:
            return [Outgoing("8", _sorted(self._execution(now._replace(kind=ReportKind.STATUS, number=0)) + asked))]
        body = [
            (6, "0"),
            (11, first[11]),
            (14, "0"),
            (17, "0"),
            (37, first.get(37, "NONE")),
            (39, "8"),
            (54, first[54]),
            (55, first[55]),
            (58, "unknown order"),
            (60, utc_text(self._now())),
            (103, "5"),
            (150, "I"),
            (151, "0"),
            *asked,
        ]
        return [Outgoing("8", body)]

    async def _cancel_all(self, message: Message) -> Sequence[Outgoing]:
        first = message.first
        body: list[Field] = [(11, first[11]), (37, first[11]), (60, utc_text(self._now())), (530, first[530])]
        symbol = first.get(55)
        is_by_symbol = first[530] == "1"
        if first[530] not in ("1", "7") or 54 in first or is_by_symbol != (symbol is not None):  # noqa: PLR2004
            text = "only MassCancelRequestType (530) = 7, all, or 1 with a Symbol (55), and no Side (54)"
            return [Outgoing("r", _sorted([*body, (58, text), (531, "0"), (532, "0")]))]
        try:
            count = await self._desk.cancel_all(self._login, first[11], symbol)
        except LocalProtocolError as error:  # Its id is no id, or was used for something else.
            return [Outgoing("r", _sorted([*body, (58, sanitized(str(error))), (531, "0"), (532, str(_OTHER))]))]
        affected = [(531, first[530]), (533, str(count))]
        return [Outgoing("r", _sorted([*body, *affected, *([(55, symbol)] if symbol is not None else [])]))]

    # ---- refusals of our own

    def _business_reject(self, message: Message, reason: int, text: str) -> Outgoing:
        body = [(45, message.first[34]), (58, sanitized(text)), (372, message.kind)]
        return Outgoing("j", [*body, (379, message.first[11]), (380, str(reason))])

    async def _refusal(self, message: Message, refusal: _RefusedError) -> Outgoing:
        if refusal.is_missing:
            return self._business_reject(message, 5, str(refusal))
        first = message.first
        text, now = sanitized(str(refusal)), utc_text(self._now())
        if message.kind != "D":
            answers_to = "1" if message.kind == "F" else "2"
            number, status = await self._standing(first[41])
            body = [(11, first[11]), (37, number), (39, status), (41, first[41]), (58, text), (60, now)]
            return Outgoing("9", [*body, (102, str(_OTHER)), (434, answers_to)])
        body = [
            (6, "0"),
            (11, first[11]),
            (14, "0"),
            (17, self._answer_id()),
            (37, "NONE"),
            (39, "8"),
            (54, first[54]),
            (55, first[55]),
            (58, text),
            (60, now),
            (103, str(refusal.reason)),
            (150, "8"),
            (151, "0"),
        ]
        return Outgoing("8", body)

    def _answer_id(self) -> str:
        """An ExecID for what is no report: unique, and kept with the message."""
        self._answers += 1
        return f"{self._login.account}-R{self._now()}-{self._answers}"

    # ---- what traders hear

    def reports(self, after: int) -> AsyncGenerator[Outgoing, None]:
        """The account's reports as messages."""
        self._told = max(self._told, after)
        return self._reports(after)

    async def _reports(self, after: int) -> AsyncGenerator[Outgoing, None]:
        watching = self._desk.watch(self._login, after)
        try:
            async for report in watching:
                made = await self._outgoing(report)
                self._told = max(self._told, report.number)
                yield made
        finally:
            if isinstance(watching, AsyncGenerator):
                await watching.aclose()  # The desk stops to keep what nobody reads.

    async def _outgoing(self, report: TradeReport, *, is_replace: bool | None = None) -> Outgoing:
        """A report as a message; `is_replace` says whose refusal it is, where that is known."""
        if report.kind is ReportKind.CHANGE_REFUSED:
            if is_replace is None:
                is_replace = await self._desk.is_replace(self._login, report.client_id)
            return Outgoing("9", await self._cancel_reject(report, is_replace=is_replace), report.number)
        if report.kind is ReportKind.TRADED:
            self._trades[report.trade, report.order] = report.number
            if len(self._trades) > _REMEMBERED_MAX:
                self._trades.popitem(last=False)
        body = self._execution(report)
        if report.kind in (ReportKind.CONFIRMED, ReportKind.BUSTED, ReportKind.CORRECTED):
            trade = await self._trade_report(report)
            body += [(19, self._exec_id(trade))] if trade else []
        return Outgoing("8", _sorted(body), report.number)

    def _execution(self, report: TradeReport) -> list[Field]:
        """An ExecutionReport, in no order yet."""
        status = _PENDING_STATES.get(report.kind) or ORDER_STATES[report.status]
        exec_type = EXEC_TYPES[report.kind]
        if report.kind is ReportKind.CANCELLED and not report.status.is_final:
            exec_type = "5"  # A part of it went: FIX calls that replaced.
        elif report.kind is ReportKind.CORRECTED and not report.last_quantity:
            exec_type = "H"
        is_trade = report.kind in (ReportKind.TRADED, ReportKind.BUSTED) or exec_type == "G"
        body: list[Field] = [
            (1, str(report.account)),
            (6, _average_text(report.filled_value, report.filled)),
            (11, report.client_id),
            (14, str(report.filled)),
            (17, self._exec_id(report.number) if report.number else self._zero_id(report)),
            (37, str(report.order) if report.order else "NONE"),
            (38, str(report.quantity)),
            (39, status),
            (40, _KIND_CODES[report.kind_of_order]),
            (54, _SIDE_CODES[report.side]),
            (55, report.symbol or _NO_SYMBOL),
            (59, _LIFETIME_CODES[report.lifetime]),
            (60, utc_text(report.at)),
            (150, exec_type),
            (151, "0" if report.status.is_final else str(report.left)),
        ]
        body += [(41, report.original_id)] if report.original_id else []
        body += [(44, price_text(report.price))] if report.price is not None else []
        body += [(99, price_text(report.trigger))] if report.trigger is not None else []
        body += [(31, price_text(report.last_price)), (32, str(report.last_quantity))] if is_trade else []
        body += [(527, str(report.trade))] if report.trade else []
        body += [(378, str(_OTHER))] if exec_type == "D" else []
        if report.kind is ReportKind.REFUSED and report.reason is not None:
            body.append((103, str(ORDER_REASONS.get(report.reason, _OTHER))))
        text = _text(report)
        return [*body, (58, text)] if text else body

    async def _cancel_reject(self, report: TradeReport, *, is_replace: bool) -> list[Field]:
        reason = _OTHER if report.reason is None else CANCEL_REASONS.get(report.reason, _OTHER)
        number, status = str(report.order), ORDER_STATES[report.status]
        if not report.order:
            number, status = await self._standing(report.original_id)
        body = [
            (11, report.client_id),
            (37, number),
            (39, status),
            (41, report.original_id or "NONE"),
            (58, _text(report)),
            (60, utc_text(report.at)),
            (102, str(reason)),
            (434, "2" if is_replace else "1"),
        ]
        return [field for field in body if field[1]]

    async def _standing(self, client_id: str) -> tuple[str, str]:
        """OrderID and OrdStatus of an order whose change is refused: 8, rejected, is for one that does not exist."""
        order = await self._desk.order(self._login, client_id) if client_id else None
        return ("NONE", "8") if order is None else (str(order.order), ORDER_STATES[order.status])

    def _exec_id(self, number: int) -> str:
        return f"{self._login.account}-{number}"

    def _zero_id(self, report: TradeReport) -> str:
        """FIX 4.4: the ExecID of a status is 0."""
        return "0" if report.kind is ReportKind.STATUS else self._answer_id()

    async def _trade_report(self, report: TradeReport) -> int:
        """The number of the report that told of this trade. A void trade must name it; a confirmed one may."""
        number = self._trades.get((report.trade, report.order), 0)
        if number or report.kind is ReportKind.CONFIRMED:
            return number
        key = (ReportKind.TRADED, report.trade, report.order)
        trade = await self._found(
            lambda told: (told.kind, told.trade, told.order) == key and told.number < report.number
        )
        return 0 if trade is None else trade.number

    async def _found(self, wanted: Callable[[TradeReport], bool]) -> TradeReport | None:
        """The last report of some kind from before this session, by reading all: for what is rare."""
        after, found = 0, None
        while page := await self._desk.reports(self._login, after, _PAGE):
            for report in page:
                found = report if wanted(report) else found
            after = page[-1].number
        return found


def _terms(message: Message) -> tuple[OrderKind, Side, Lifetime]:
    """OrdType, Side and TimeInForce of an order or a replace."""
    first = message.first
    kind, side, lifetime = _KINDS.get(first[40]), _SIDES.get(first[54]), _LIFETIMES.get(first.get(59, "0"))
    if kind is None or side is None or lifetime is None:
        tag = 40 if kind is None else 54 if side is None else 59
        raise _RefusedError(f"tag {tag} = {first[tag]} is not supported here", 11)
    return kind, side, lifetime


def _display(text: str | None) -> int:
    """MaxFloor: 0 would show nothing, and here something always shows."""
    shown = _whole(text, "MaxFloor (111)") if text is not None else 0
    if text is not None and shown <= 0:
        raise _RefusedError(f"MaxFloor (111) {text} shows nothing: leave it out to show all", 11)
    return shown


def _owner(message: Message) -> int:
    """A broker's customer: the party with the role of a client (452 = 3)."""
    clients = [entry.get(448, "") for entry in group_entries(message, 453) if entry.get(452) == "3"]
    if not clients:
        return 0
    if len(clients) > 1 or not clients[0].isdecimal() or len(clients[0]) > 9:  # noqa: PLR2004
        raise _RefusedError("the party with PartyRole (452) = 3 is one customer, by a number")
    return int(clients[0])


def _text(report: TradeReport) -> str:
    words = report.text or (report.reason.value if report.reason is not None else "")
    if report.kind is ReportKind.CONFIRMED:
        words = words or f"trade {report.trade} is confirmed and settled"
    elif report.kind is ReportKind.RESTORED:
        words = words or "the sequence lost what it had decided: the order is as before"
    return sanitized(words)


def _sorted(body: list[Field]) -> list[Field]:
    return sorted(body)
