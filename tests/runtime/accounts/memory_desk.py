"""A desk in memory for tests of the ways in: it reserves nothing, and matches buys and sells of a symbol at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest

from isocast.orders.desk import (
    BalanceLine,
    CancelRequest,
    GatewayStatus,
    Lifetime,
    Login,
    LotLine,
    NewOrder,
    OfferLine,
    OrderKind,
    OrderStatus,
    Reason,
    ReplaceRequest,
    ReportKind,
    Scope,
    SymbolTerms,
    TradeReport,
    TradingRequest,
)
from isocast.orders.needs import Side

__all__ = ["ADA", "ALL_SCOPES", "BOB", "START", "MemoryDesk"]

START = 1_700_000_000_000_000_000
ADA, BOB = 1_048_592, 1_048_593
ALL_SCOPES = frozenset(Scope)
_TERMS = {
    "ISO": SymbolTerms("ISO", "USD", 100, 1, "open", 100_000),
    "VOD": SymbolTerms("VOD", "EUR", 1, 10, "open", None),
}


@dataclass(eq=False)
class _Order:
    account: int
    id: int
    request: NewOrder
    session: str
    quantity: int
    price: int | None
    status: OrderStatus = OrderStatus.PENDING
    filled: int = 0
    value: int = 0
    ids: list[str] = field(default_factory=list)

    @property
    def left(self) -> int:
        return 0 if self.status.is_final else self.quantity - self.filled


class MemoryDesk:
    """One gateway with two traders, Ada and Bob, whose passwords are "pw Ada" and "pw Bob"."""

    def __init__(self) -> None:
        self.passwords = {"Ada": ("pw Ada", ADA), "Bob": ("pw Bob", BOB)}
        self.tokens: dict[str, tuple[int, str, frozenset[Scope]]] = {
            "token-Ada": (ADA, "Ada", ALL_SCOPES),
            "reads-Ada": (ADA, "Ada", frozenset({Scope.READ})),
            "trades-Ada": (ADA, "Ada", frozenset({Scope.TRADE})),
            "token-Bob": (BOB, "Bob", ALL_SCOPES),
        }
        self.sessions: dict[str, Login] = {}
        """Begun by a password: their names are tokens."""
        self.submitted: list[TradingRequest] = []
        """Everything that was asked for, repeats too."""
        self.entered: list[_Order] = []
        """What became an order, once each."""
        self.logged_out: list[tuple[str, bool]] = []
        self.asked_tokens = 0
        self.gate = asyncio.Event()
        """While it is not set, nothing is answered."""
        self.gate.set()
        self.confirms = True
        """Whether a trade is final at once."""
        self.watching = 0
        self.watched = 0
        """Reports that watchers took."""
        self._tentative: list[tuple[_Order, _Order, int, int, int]] = []
        self._answers: dict[tuple[int, str], tuple[TradingRequest, TradeReport]] = {}
        self._told: dict[int, list[TradeReport]] = defaultdict(list)
        self._news = asyncio.Condition()
        self._clock = START
        self._sessions = 0
        self._trades = 0

    # ---- who comes in

    async def log_in(self, name: str, password: str, address: str) -> Login | None:
        assert address
        known, account = self.passwords.get(name, ("", 0))
        if not account or not compare_digest(known.encode(), password.encode()):
            return None
        login = Login(account, name, ALL_SCOPES, self._session())
        self.sessions[login.session] = login
        return login

    async def log_in_by_token(self, token: str, address: str) -> Login | None:
        assert address
        self.asked_tokens += 1
        if token in self.sessions:
            return self.sessions[token]
        if token not in self.tokens:
            return None
        account, name, scopes = self.tokens[token]
        return Login(account, name, scopes, self._session())

    def _session(self) -> str:
        self._sessions += 1
        return f"session {self._sessions}"

    async def log_out(self, login: Login, *, cancels: bool) -> None:
        self.logged_out.append((login.session, cancels))
        self.sessions.pop(login.session, None)
        if cancels:
            for order in [one for one in self.entered if one.session == login.session and not one.status.is_final]:
                self._end(order, OrderStatus.CANCELLED, ReportKind.CANCELLED)
            await self._wake()

    # ---- requests

    async def submit(self, login: Login, request: TradingRequest) -> TradeReport:
        await self.gate.wait()
        self.submitted.append(request)
        key = login.account, request.client_id
        if key in self._answers:
            before, answer = self._answers[key]
            if before == request:
                return answer
            return self._refused(login, request, Reason.CLIENT_ID_USED, "the same id was used for something else")
        match request:
            case NewOrder():
                answer = self._enter(login, request)
            case CancelRequest():
                answer = self._cancel(login, request)
            case ReplaceRequest():
                answer = self._replace(login, request)
            case _:
                return self._refused(login, request, Reason.UNAVAILABLE, "there are no lots and offers here")
        self._answers[key] = request, answer
        await self._wake()
        return answer

    async def submit_many(self, login: Login, requests: Sequence[TradingRequest]) -> list[TradeReport]:
        return [await self.submit(login, request) for request in requests]

    def _enter(self, login: Login, request: NewOrder) -> TradeReport:
        if request.symbol not in _TERMS:
            return self._refused(login, request, Reason.UNKNOWN_SYMBOL, f"symbol: there is no {request.symbol}")
        if (request.price is None) is (request.kind in (OrderKind.LIMIT, OrderKind.STOP_LIMIT)):
            return self._refused(login, request, Reason.MALFORMED, "price: a limit has one, and nothing else does")
        if request.quantity > 1_000_000:
            return self._refused(login, request, Reason.QUANTITY, "quantity: at most 1,000,000 in one order")
        number = login.account << 32 | len(self.entered) + 1
        order = _Order(login.account, number, request, login.session, request.quantity, request.price)
        order.ids.append(request.client_id)
        self.entered.append(order)
        answer = self._tell(order, ReportKind.ACCEPTED)
        order.status = OrderStatus.WORKING
        self._tell(order, ReportKind.WORKING)
        if request.trigger is None:
            self._match(order)
        return answer

    def _match(self, taker: _Order) -> None:
        if not taker.request.is_post_only:
            for maker in self._facing(taker):
                quantity = min(taker.left, maker.left)
                if quantity and maker.price is not None:
                    self._trade(taker, maker, quantity, maker.price)
        now = taker.request.lifetime in (Lifetime.IMMEDIATE, Lifetime.ALL_OR_NOTHING)
        if taker.left and (now or taker.request.kind is OrderKind.MARKET):
            self._end(taker, OrderStatus.CANCELLED, ReportKind.CANCELLED)

    def _facing(self, taker: _Order) -> list[_Order]:
        buys = taker.request.side is Side.BUY
        found = [
            one
            for one in self.entered
            if one.request.symbol == taker.request.symbol
            and one.request.side is not taker.request.side
            and one.left
            and one.price is not None
            and one.request.trigger is None
            and (taker.price is None or (one.price <= taker.price if buys else one.price >= taker.price))
        ]
        return sorted(found, key=lambda one: (one.price or 0) if buys else -(one.price or 0))

    def _trade(self, taker: _Order, maker: _Order, quantity: int, price: int) -> None:
        self._trades += 1
        for order in (taker, maker):
            order.filled += quantity
            order.value += quantity * price
            order.status = OrderStatus.FILLED if order.filled == order.quantity else OrderStatus.PART_FILLED
            self._tell(order, ReportKind.TRADED, trade=self._trades, last_quantity=quantity, last_price=price)
        self._tentative.append((taker, maker, self._trades, quantity, price))
        if self.confirms:
            self._confirm()

    def _confirm(self) -> None:
        for taker, maker, trade, quantity, price in self._tentative:
            for order in (taker, maker):
                self._tell(order, ReportKind.CONFIRMED, trade=trade, last_quantity=quantity, last_price=price)
        self._tentative.clear()

    async def confirm(self) -> None:
        """Every trade is final."""
        self._confirm()
        await self._wake()

    def _cancel(self, login: Login, request: CancelRequest) -> TradeReport:
        order = self._of(login, request.original_id)
        if order is None or order.status.is_final:
            return self._refused(login, request, Reason.UNKNOWN_ORDER, f"there is no live {request.original_id}")
        answer = self._tell(order, ReportKind.CANCEL_PENDING, request)
        if request.quantity and request.quantity < order.left:
            order.quantity -= request.quantity
            self._tell(order, ReportKind.REPLACED, request)
        else:
            self._end(order, OrderStatus.CANCELLED, ReportKind.CANCELLED, request)
        return answer

    def _replace(self, login: Login, request: ReplaceRequest) -> TradeReport:
        order = self._of(login, request.original_id)
        if order is None or order.status.is_final:
            return self._refused(login, request, Reason.UNKNOWN_ORDER, f"there is no live {request.original_id}")
        answer = self._tell(order, ReportKind.REPLACE_PENDING, request)
        order.quantity = order.quantity if request.quantity is None else request.quantity
        order.price = order.price if request.price is None else request.price
        order.ids.append(request.client_id)
        self._tell(order, ReportKind.REPLACED, request)
        self._match(order)
        return answer

    async def cancel_all(self, login: Login, client_id: str, symbol: str | None = None) -> int:
        assert client_id
        live = [
            one
            for one in self.entered
            if one.account == login.account and one.left and symbol in (None, one.request.symbol)
        ]
        for order in live:
            self._end(order, OrderStatus.CANCELLED, ReportKind.CANCELLED)
        await self._wake()
        return len(live)

    def _end(self, order: _Order, status: OrderStatus, kind: ReportKind, request: CancelRequest | None = None) -> None:
        order.status = status
        self._tell(order, kind, request)

    def _of(self, login: Login, client_id: str) -> _Order | None:
        own = [one for one in self.entered if one.account == login.account and client_id in one.ids]
        return own[0] if own else None

    # ---- reports

    def _tell(
        self,
        order: _Order,
        kind: ReportKind,
        request: CancelRequest | ReplaceRequest | None = None,
        *,
        trade: int = 0,
        last_quantity: int = 0,
        last_price: int = 0,
    ) -> TradeReport:
        told = self._told[order.account]
        self._clock += 1
        report = self._report(order, kind, len(told) + 1)._replace(
            trade=trade, last_quantity=last_quantity, last_price=last_price, sequence=trade
        )
        if request is not None:
            report = report._replace(client_id=request.client_id, original_id=request.original_id)
        told.append(report)
        return report

    def _report(self, order: _Order, kind: ReportKind, number: int) -> TradeReport:
        request = order.request
        return TradeReport(
            number, order.account, kind, order.status, request.client_id, "", order.id, request.symbol, request.side,
            request.kind, request.lifetime, order.quantity, order.filled, order.value, order.left, order.price,
            request.trigger, self._clock,
        )  # fmt: skip

    def _refused(self, login: Login, request: TradingRequest, reason: Reason, text: str) -> TradeReport:
        is_new = isinstance(request, NewOrder)
        return TradeReport(
            0, login.account, ReportKind.REFUSED if is_new else ReportKind.CHANGE_REFUSED, OrderStatus.REFUSED,
            request.client_id, getattr(request, "original_id", ""), 0,
            request.symbol if isinstance(request, NewOrder) else "", Side.BUY, OrderKind.LIMIT, Lifetime.DAY,
            getattr(request, "quantity", 0) or 0, 0, 0, 0, None, None, self._clock, reason=reason, text=text,
        )  # fmt: skip

    async def _wake(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def order(self, login: Login, client_id: str) -> TradeReport | None:
        found = self._of(login, client_id)
        return None if found is None else self._report(found, ReportKind.STATUS, 0)

    async def is_replace(self, login: Login, client_id: str) -> bool:
        asked, _ = self._answers.get((login.account, client_id), (None, None))
        return isinstance(asked, ReplaceRequest)

    async def orders(self, login: Login, *, live: bool = True, limit: int = 1000) -> Sequence[TradeReport]:
        own = [one for one in self.entered if one.account == login.account and (one.left or not live)]
        return [self._report(one, ReportKind.STATUS, 0) for one in own[-limit:]]

    async def reports(self, login: Login, after: int, limit: int = 1000) -> Sequence[TradeReport]:
        return self._told[login.account][after : after + limit]

    async def newest_report(self, login: Login) -> int:
        return len(await self.reports(login, 0, 1_000_000))

    async def watch(self, login: Login, after: int) -> AsyncIterator[TradeReport]:
        told = self._told[login.account]
        self.watching += 1
        try:
            while True:
                async with self._news:
                    while len(told) <= after:
                        await self._news.wait()
                for report in told[after:]:
                    self.watched += 1
                    yield report
                    after = report.number
        finally:
            self.watching -= 1

    async def balances(self, login: Login) -> Sequence[BalanceLine]:
        return [BalanceLine("cash:USD", 12_505_000 + login.account - ADA, -0), BalanceLine("shares:ISO", 300, 100)]

    async def offers(self) -> Sequence[OfferLine]:
        return []

    async def lots(self) -> Sequence[LotLine]:
        return []

    async def status(self) -> GatewayStatus:
        return GatewayStatus("XISO", 7, 3, 1, ("trades that became void: 1",))

    async def symbols(self) -> Sequence[SymbolTerms]:
        return list(_TERMS.values())

    async def tell_many(self, account: int, count: int) -> None:
        """So many further reports of one account, for slow readers."""
        login = Login(account, "", ALL_SCOPES, "")
        last = self._told[account][-1]
        for _ in range(count):
            self._told[account].append(last._replace(number=len(self._told[login.account]) + 1))
        await self._wake()
