"""A desk in memory, for tests of the ways in: it keeps accounts, orders and reports, and trades when a test says so.

    desk = FakeDesk({"anna": ("secret", 7)})
    login = await desk.log_in("anna", "secret", "127.0.0.1")
    await desk.submit(login, NewOrder("o1", "XISO", Side.BUY, 100, price=100_500))   # accepted, then working
    desk.trade("o1", 40, 100_400)                                                    # part filled

Requests are answered at once, in their order; `is_auto` = False keeps orders pending until a test calls `work`. Nothing
waits for a clock, and what a test does is told to every watcher in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from isocast.orders.desk import (
    BalanceLine,
    CancelRequest,
    GatewayStatus,
    Login,
    LotLine,
    NewOrder,
    OfferLine,
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

TRADER = frozenset((Scope.READ, Scope.TRADE))
READER = frozenset((Scope.READ,))
START_NS = 1_700_000_000_000_000_000


@dataclass
class FakeOrder:
    request: NewOrder
    account: int
    id: int
    quantity: int
    price: int | None
    trigger: int | None
    status: OrderStatus = OrderStatus.PENDING
    filled: int = 0
    value: int = 0
    session: str = ""
    names: list[str] = field(default_factory=list)

    @property
    def left(self) -> int:
        return 0 if self.status.is_final else self.quantity - self.filled


class FakeDesk:
    """`users` are names with password and account; names in `readers` may only read."""

    def __init__(
        self,
        users: Mapping[str, tuple[str, int]],
        *,
        readers: Sequence[str] = (),
        symbols: Sequence[str] = ("XISO",),
        now: Callable[[], int] = lambda: START_NS,
    ) -> None:
        self.users = dict(users)
        self.readers = set(readers)
        self.tokens: dict[str, Login] = {}
        self.listed = list(symbols)
        self.now = now
        self.is_auto = True
        self.is_available = True
        self.is_broken = False
        """It tells what there is, and no more."""
        self.trouble: Exception | None = None
        """What the next submit raises."""
        self.submitted: list[tuple[Login, TradingRequest]] = []
        self.left: list[tuple[Login, bool]] = []
        """Who logged out, and whether orders were cancelled."""
        self.tries: list[tuple[str, str]] = []
        self.told: dict[int, list[TradeReport]] = {}
        self._orders: dict[tuple[int, str], FakeOrder] = {}
        self._first_answers: dict[tuple[int, str], tuple[TradingRequest, TradeReport]] = {}
        self._news: dict[int, asyncio.Event] = {}
        self._next_order: dict[int, int] = {}
        self._next_trade = 1
        self._sessions = 0

    # ---- the desk

    async def log_in(self, name: str, password: str, address: str) -> Login | None:
        self.tries.append((name, address))
        known = self.users.get(name)
        if known is None or known[0] != password:
            return None
        self._sessions += 1
        return Login(known[1], name, READER if name in self.readers else TRADER, f"s{self._sessions}")

    async def log_in_by_token(self, token: str, address: str) -> Login | None:
        assert address
        return self.tokens.get(token)

    async def log_out(self, login: Login, *, cancels: bool) -> None:
        self.left.append((login, cancels))
        if cancels:
            for order in self._live(login.account):
                if order.session == login.session:
                    self._cancel(order, order.names[-1], "")

    async def submit(self, login: Login, request: TradingRequest) -> TradeReport:
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble
        self.submitted.append((login, request))
        key = (login.account, request.client_id)
        if key in self._first_answers:
            before, answer = self._first_answers[key]
            return answer if before == request else self._refused(login, request, Reason.CLIENT_ID_USED, is_told=False)
        if not self.is_available:
            return self._refused(login, request, Reason.UNAVAILABLE, is_told=False)
        if isinstance(request, NewOrder):
            answer = self._enter(login, request)
        elif isinstance(request, CancelRequest | ReplaceRequest):
            is_cancel = isinstance(request, CancelRequest)
            answer = self._change(
                login, request, ReportKind.CANCEL_PENDING if is_cancel else ReportKind.REPLACE_PENDING
            )
        else:
            raise NotImplementedError
        self._first_answers[key] = (request, answer)
        return answer

    async def submit_many(self, login: Login, requests: Sequence[TradingRequest]) -> list[TradeReport]:
        return [await self.submit(login, request) for request in requests]

    async def cancel_all(self, login: Login, client_id: str, symbol: str | None = None) -> int:
        live = [order for order in self._live(login.account) if symbol in (None, order.request.symbol)]
        for order in live:
            self._cancel(order, client_id, order.names[-1])
        return len(live)

    async def order(self, login: Login, client_id: str) -> TradeReport | None:
        order = self._orders.get((login.account, client_id))
        return None if order is None else self._report(order, ReportKind.STATUS, client_id)

    async def is_replace(self, login: Login, client_id: str) -> bool:
        asked, _ = self._first_answers.get((login.account, client_id), (None, None))
        return isinstance(asked, ReplaceRequest)

    async def orders(self, login: Login, *, live: bool = True, limit: int = 1000) -> Sequence[TradeReport]:
        mine = {order.id: order for (account, _), order in self._orders.items() if account == login.account}
        wanted = [order for order in mine.values() if not (live and order.status.is_final)]
        return [self._report(order, ReportKind.STATUS, order.names[-1]) for order in wanted[-limit:]]

    async def reports(self, login: Login, after: int, limit: int = 1000) -> Sequence[TradeReport]:
        return self.told.get(login.account, [])[after : after + limit]

    async def newest_report(self, login: Login) -> int:
        return len(await self.reports(login, 0, 1_000_000))

    async def watch(self, login: Login, after: int) -> AsyncIterator[TradeReport]:
        while True:
            news = self._news.setdefault(login.account, asyncio.Event())
            told = self.told.get(login.account, [])
            if len(told) <= after and self.is_broken:
                return
            if len(told) <= after:
                news.clear()
                await news.wait()
            while after < len(told):
                after += 1
                yield told[after - 1]

    async def balances(self, login: Login) -> Sequence[BalanceLine]:
        return [BalanceLine("EUR", 1_000_000, login.account)]

    async def offers(self) -> Sequence[OfferLine]:
        return []

    async def lots(self) -> Sequence[LotLine]:
        return []

    async def status(self) -> GatewayStatus:
        return GatewayStatus("XISO", 7, 3, 1, ("trades that became void: 1",))

    async def symbols(self) -> Sequence[SymbolTerms]:
        return [SymbolTerms(symbol, "EUR", 100, 1, "open", 100_000) for symbol in self.listed]

    # ---- what a test makes happen

    def work(self, client_id: str, account: int = 7) -> TradeReport:
        order = self._orders[account, client_id]
        order.status = OrderStatus.WORKING
        return self._tell(self._report(order, ReportKind.WORKING, order.names[-1]))

    def trade(self, client_id: str, quantity: int, price: int, account: int = 7) -> TradeReport:
        order = self._orders[account, client_id]
        order.filled += quantity
        order.value += quantity * price
        order.status = OrderStatus.FILLED if order.filled >= order.quantity else OrderStatus.PART_FILLED
        made = self._report(order, ReportKind.TRADED, order.names[-1])
        made = made._replace(trade=self._next_trade, last_quantity=quantity, last_price=price)
        self._next_trade += 1
        return self._tell(made)

    def settle(self, kind: ReportKind, trade: TradeReport) -> TradeReport:
        """A trade is `CONFIRMED` or `BUSTED`."""
        order = self._orders[trade.account, trade.client_id]
        if kind is ReportKind.BUSTED:
            order.filled -= trade.last_quantity
            order.value -= trade.last_quantity * trade.last_price
            order.status = OrderStatus.PART_FILLED if order.filled else OrderStatus.WORKING
        made = self._report(order, kind, order.names[-1])
        return self._tell(
            made._replace(trade=trade.trade, last_quantity=trade.last_quantity, last_price=trade.last_price)
        )

    def end(self, client_id: str, kind: ReportKind, reason: Reason | None = None, account: int = 7) -> TradeReport:
        """An order is `EXPIRED`, `CANCELLED` or `REFUSED` by the floor."""
        order = self._orders[account, client_id]
        order.status = OrderStatus(kind.value)
        return self._tell(self._report(order, kind, order.names[-1])._replace(reason=reason))

    # ---- inside

    def _live(self, account: int) -> list[FakeOrder]:
        found = {order.id: order for (whose, _), order in self._orders.items() if whose == account}
        return [order for order in found.values() if not order.status.is_final]

    def _enter(self, login: Login, request: NewOrder) -> TradeReport:
        if request.symbol not in self.listed:
            return self._refused(login, request, Reason.UNKNOWN_SYMBOL)
        if request.quantity <= 0:
            return self._refused(login, request, Reason.QUANTITY)
        number = self._next_order.get(login.account, 1)
        self._next_order[login.account] = number + 1
        identity = login.account << 32 | number
        made = FakeOrder(request, login.account, identity, request.quantity, request.price, request.trigger)
        made.session, made.names = login.session, [request.client_id]
        self._orders[login.account, request.client_id] = made
        accepted = self._tell(self._report(made, ReportKind.ACCEPTED, request.client_id))
        if self.is_auto:
            self.work(request.client_id, login.account)
        return accepted

    def _change(self, login: Login, request: CancelRequest | ReplaceRequest, pending: ReportKind) -> TradeReport:
        order = self._orders.get((login.account, request.original_id))
        if order is None or order.status.is_final:
            return self._unchanged(login, request, order)
        told = self._tell(self._report(order, pending, request.client_id, request.original_id))
        if isinstance(request, CancelRequest):
            self._cancel(order, request.client_id, request.original_id)
            return told
        order.quantity = order.quantity if request.quantity is None else max(request.quantity, order.filled)
        order.price = order.price if request.price is None else request.price
        order.trigger = order.trigger if request.trigger is None else request.trigger
        if order.filled >= order.quantity:
            order.status = OrderStatus.FILLED
        order.names.append(request.client_id)
        self._orders[login.account, request.client_id] = order
        self._tell(self._report(order, ReportKind.REPLACED, request.client_id, request.original_id))
        return told

    def _unchanged(self, login: Login, request: CancelRequest | ReplaceRequest, order: FakeOrder | None) -> TradeReport:
        if order is None:
            blank = NewOrder(request.original_id, "", Side.BUY, 0)
            order = FakeOrder(blank, login.account, 0, 0, None, None, OrderStatus.REFUSED)
        report = self._report(order, ReportKind.CHANGE_REFUSED, request.client_id, request.original_id)
        return self._tell(report._replace(reason=Reason.UNKNOWN_ORDER, text="there is no such order, or it has ended"))

    def _cancel(self, order: FakeOrder, client_id: str, original_id: str) -> None:
        order.status = OrderStatus.CANCELLED
        self._tell(self._report(order, ReportKind.CANCELLED, client_id, original_id))

    def _refused(self, login: Login, request: TradingRequest, reason: Reason, *, is_told: bool = True) -> TradeReport:
        new = request if isinstance(request, NewOrder) else NewOrder(request.client_id, "", Side.BUY, 0)
        order = FakeOrder(new, login.account, 0, new.quantity, new.price, new.trigger, OrderStatus.REFUSED)
        kind = ReportKind.REFUSED if isinstance(request, NewOrder) else ReportKind.CHANGE_REFUSED
        original = getattr(request, "original_id", "")
        report = self._report(order, kind, request.client_id, original)._replace(
            reason=reason, text=f"refused: {reason}"
        )
        return self._tell(report) if is_told else report

    def _report(self, order: FakeOrder, kind: ReportKind, client_id: str, original_id: str = "") -> TradeReport:
        request = order.request
        return TradeReport(
            0,
            order.account,
            kind,
            order.status,
            client_id,
            original_id,
            order.id,
            request.symbol,
            request.side,
            request.kind,
            request.lifetime,
            order.quantity,
            order.filled,
            order.value,
            order.left,
            order.price,
            order.trigger,
            self.now(),
        )

    def _tell(self, report: TradeReport) -> TradeReport:
        told = self.told.setdefault(report.account, [])
        told.append(report._replace(number=len(told) + 1))
        self._news.setdefault(report.account, asyncio.Event()).set()
        return told[-1]
