"""Trading from Python, for programs with an event loop: orders, cancels, replaces, and what becomes of them.

    async with isocast.Trader("https://127.0.0.1:8443", token=token, ca="market-ca.pem") as trader:
        order = await trader.buy("ISO", 100, "10.05")
        await order.filled()

`blocking_trader` has the same for programs without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from secrets import token_hex
from time import time_ns
from typing import Any, Final, NoReturn, Self, TypeAlias
from urllib.parse import quote
from weakref import WeakSet

from isocast.orders.desk import (
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
)
from isocast.orders.json_forms import (
    QUANTITY_MAX,
    check_client_id,
    price_units,
    read_until,
    request_fields,
)
from isocast.orders.needs import Side
from isocast.runtime.client.sealed_bids import KeptBid, kept_bids
from isocast.runtime.client.trading_answers import (
    Balance,
    OpenLot,
    OpenOffer,
    OrderReport,
    ReadingAnswer,
    TradedSymbol,
    read_lot,
    read_offer,
    read_report,
    whole_number,
)
from isocast.runtime.client.trading_http import TradingHttp
from isocast.terms.errors import IsocastError, RemoteProtocolError, TraderRefusedError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import suggestion

__all__ = ["ORDER_TERMS", "PATIENCE_S", "Price", "Trader", "TraderOrder", "order_of"]

PATIENCE_S: Final = 10.0
"""How long a gateway may be away, unless somebody says otherwise."""

Price: TypeAlias = Decimal | str | float
"""An exact price: a Decimal, a text, an int, or a float that is the nearest one to a price of four decimals."""
_TOGETHER: Final = 200
"""Orders of one request: fewer than a gateway takes, of up to 300 bytes each."""
_REVEAL_PAUSE_S: Final = 0.05
"""Before a bid is revealed again that was too early, at first."""


class TraderOrder:
    """An order of one's own, kept up to date while somebody waits for it. `Trader.buy` and `Trader.sell` make it."""

    def __init__(self, trader: Trader, client_id: str, report: OrderReport | None = None) -> None:
        """An order known by its id; `report` is how it was when it was last heard of."""
        self._trader = trader
        self._client_id = client_id
        self._report = report
        self._tentative: dict[int, None] = {}
        """Trades that are not confirmed yet."""
        self._since = 0
        """The report from which on it hears its own."""
        self._is_behind = True
        """Whether the trader has heard reports since then that this order has not."""
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        if self._report is None:
            return f"<TraderOrder {self._client_id}>"
        said = self._report
        return f"<TraderOrder {self._client_id}: {said.side} {said.quantity} {said.symbol}, {said.status}>"

    @property
    def client_id(self) -> str:
        """One's own id of it."""
        return self._client_id

    @property
    def report(self) -> OrderReport:
        """The newest report of it."""
        if self._report is None:
            raise IsocastError(f"order {self._client_id} is not answered yet")
        return self._report

    @property
    def status(self) -> str:
        """Where it is in its life: pending, working, part filled, filled, cancelled, expired or refused."""
        return self.report.status

    async def filled(self, *, timeout_s: float | None = None) -> OrderReport:
        """Wait until all of it has traded; TraderRefusedError if it ends otherwise, with how it ended as its reason.

        The trades may still be tentative: `confirmed` waits until they are final. TimeoutError after `timeout_s`.
        """
        said = await self.ended(timeout_s=timeout_s)
        if said.status != OrderStatus.FILLED:
            what = f"order {self._client_id} was {said.status}, with {said.filled:,} of {said.quantity:,} filled"
            raise TraderRefusedError(said.reason or said.status, f"{what}{f': {said.text}' if said.text else ''}")
        return said

    async def ended(self, *, timeout_s: float | None = None) -> OrderReport:
        """Wait until nothing of it can trade any more: filled, cancelled, expired or refused."""
        await self._until(lambda: self.report.is_final, timeout_s)
        return self.report

    async def confirmed(self, *, timeout_s: float | None = None) -> OrderReport:
        """Wait until it has ended and each of its trades is final, at every receiver."""
        await self._until(lambda: self.report.is_final and not self._tentative, timeout_s)
        return self.report

    async def cancel(self, quantity: int = 0) -> OrderReport:
        """Cancel what is left of it, or so much of it; returns when the cancel is on its way."""
        return await self._trader.cancel(self, quantity)

    async def _until(self, is_so: Callable[[], bool], timeout_s: float | None) -> None:
        async with asyncio.timeout(timeout_s):
            if self._is_behind:
                await self._trader._catch_up(self)  # noqa: SLF001 - one thing in two classes
            while not is_so():
                self._changed.clear()
                self._trader._follow()  # noqa: SLF001
                await self._changed.wait()
                self._trader._raise_trouble()  # noqa: SLF001

    def _hear(self, report: OrderReport) -> None:
        """A report, in order, if it is of this order; one that is older than what is known says nothing new."""
        if not self._is_meant(report):
            return
        if report.number and self._report is not None and report.number <= self._report.number:
            return
        if report.kind == ReportKind.TRADED:
            self._tentative[report.trade] = None
        elif report.kind in (ReportKind.CONFIRMED, ReportKind.BUSTED):
            self._tentative.pop(report.trade, None)
        if report.kind != ReportKind.CHANGE_REFUSED:
            self._report = report
        self._changed.set()

    def _is_meant(self, report: OrderReport) -> bool:
        if report.order and self._report is not None and self._report.order:
            return report.order == self._report.order
        return self._client_id in (report.client_id, report.original_id)


class Trader:
    """One trader at a gateway, to be used in an `async with` block.

        async with isocast.Trader("https://127.0.0.1:8443", token=token, ca="market-ca.pem") as trader:
            order = await trader.buy("ISO", 100, "10.05")
            await order.filled()
            async for report in trader.reports():
                print(report.symbol, report.status, report.filled)

    Every request has a client id, chosen once. When a connection is lost the same request is sent again under the same
    id, and the gateway does it once. `TraderRefusedError` says why something was refused, `TraderLostError` that no
    answer came.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        name: str | None = None,
        password: str | None = None,
        ca: str | Path | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Of a gateway's HTTPS service; nothing is sent yet.

        `token` is an API token; or give `name` and `password`, and a session is begun and ended. `ca` is a file with
        the certificate of the market's CA; left out, those that this machine believes. `patience_s` is how long the
        gateway may be away before a call raises an error.
        """
        self._http = TradingHttp(
            url, token=token, name=name, password=password, ca=None if ca is None else Path(ca), patience_s=patience_s
        )
        self._prefix = token_hex(6)
        self._numbers = count(1)
        self._orders: WeakSet[TraderOrder] = WeakSet()
        self._position = 0
        """The last report that was followed."""
        self._following: asyncio.Task[None] | None = None
        self._trouble: Exception | None = None

    def __repr__(self) -> str:
        return f"<Trader at {self._http.place}>"

    def __enter__(self) -> NoReturn:
        raise TypeError("Trader is for programs with an event loop: use `async with`, or isocast.BlockingTrader")

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session, if a password began it; orders stay as they are."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None
        await self._http.log_out()

    # ---- orders

    async def buy(  # noqa: PLR0913 - what an order may say
        self,
        symbol: str,
        quantity: int,
        price: Price | None = None,
        *,
        market: bool = False,
        stop: Price | None = None,
        lifetime: str = "day",
        until: datetime | str | None = None,
        post_only: bool = False,
        show: int = 0,
        owner: int = 0,
        open_offer: bool = False,
        client_id: str | None = None,
    ) -> TraderOrder:
        """Buy so many at a price or better; returns once the order is reserved, durable and on its way.

        A price is a Decimal, a text or an int; a float must be exact. Without one say `market=True`, or give a `stop`:
        the order then waits for a trade at that price, and is a limit order with a `price`, else a market order.
        `lifetime` is day, gtc, ioc, fok, open or close; or give the instant `until` which it lives. `post_only` refuses
        it rather than trade at once, `show` is how much of it others see at a time. `owner` is a broker's customer;
        `open_offer` offers it to all exchanges. With a `client_id` of yours the call may be repeated after any failure.
        """
        return await self._enter(
            Side.BUY, symbol, quantity, price, market=market, stop=stop, lifetime=lifetime, until=until,
            post_only=post_only, show=show, owner=owner, open_offer=open_offer, client_id=client_id,
        )  # fmt: skip

    async def sell(  # noqa: PLR0913 - what an order may say
        self,
        symbol: str,
        quantity: int,
        price: Price | None = None,
        *,
        market: bool = False,
        stop: Price | None = None,
        lifetime: str = "day",
        until: datetime | str | None = None,
        post_only: bool = False,
        show: int = 0,
        owner: int = 0,
        open_offer: bool = False,
        client_id: str | None = None,
    ) -> TraderOrder:
        """Sell so many at a price or better; all else is as with `buy`."""
        return await self._enter(
            Side.SELL, symbol, quantity, price, market=market, stop=stop, lifetime=lifetime, until=until,
            post_only=post_only, show=show, owner=owner, open_offer=open_offer, client_id=client_id,
        )  # fmt: skip

    async def send_many(self, orders: Sequence[Mapping[str, Any]]) -> list[TraderOrder | TraderRefusedError]:
        """Many orders in few requests: each as the arguments of `buy` by name, with its `side`.

            [{"side": "buy", "symbol": "ISO", "quantity": 100, "price": "10.05"}, ...]

        What became of each, in their order: the order, or why this one was refused; the others stand. One that the
        gateway cannot take now is sent again; when patience ends its reason is "unavailable", whether it was done is
        not known, and the message names its client id. With client ids of yours the call may be repeated after any
        failure.
        """
        requests = [order_of(self._own_id, one) for one in orders]
        found: list[TraderOrder | TraderRefusedError] = []
        for start in range(0, len(requests), _TOGETHER):
            found += await self._send_some(requests[start : start + _TOGETHER])
        return found

    async def _send_some(self, requests: Sequence[NewOrder]) -> list[TraderOrder | TraderRefusedError]:
        """What became of each order of one request."""
        found: dict[int, TraderOrder | TraderRefusedError] = {}
        waiting, attempts = list(range(len(requests))), self._http.attempts()
        while True:
            some = [request_fields(requests[place]) for place in waiting]
            said = await self._http.post("/v1/orders/batch", {"orders": some})
            with ReadingAnswer():
                results = {int(one["index"]): one for one in said["results"]}
                found |= {place: self._result(requests[place], results[at]) for at, place in enumerate(waiting)}
            waiting = [place for place in waiting if _is_unavailable(found[place])]
            if not waiting or not await attempts.again():
                return [found[place] for place in range(len(requests))]

    def _result(self, request: NewOrder, said: Mapping[str, Any]) -> TraderOrder | TraderRefusedError:
        if "error" in said:
            error = said["error"]
            reason, text = str(error["reason"]), str(error["message"])
            if reason == Reason.UNAVAILABLE:
                text = f"whether it was done is not known: ask again under the client id {request.client_id}: {text}"
            return TraderRefusedError(reason, text, str(error["field"] or ""))
        return self._known_order(request.client_id, read_report(said["report"]))

    async def cancel(self, order: TraderOrder | str, quantity: int = 0, *, client_id: str | None = None) -> OrderReport:
        """Cancel an order, by itself or by its client id, or so much of it; returns when the cancel is on its way."""
        body = CancelRequest(self._own_id(client_id), _id_of(order), _quantity(quantity, 0, "quantity"))
        return await self._changed("/v1/orders/cancel", body)

    async def replace(
        self,
        order: TraderOrder | str,
        *,
        quantity: int | None = None,
        price: Price | None = None,
        stop: Price | None = None,
        client_id: str | None = None,
    ) -> OrderReport:
        """Give an order another total (what is filled included), price or stop; what is left out stays as it is."""
        body = ReplaceRequest(
            self._own_id(client_id),
            _id_of(order),
            None if quantity is None else _quantity(quantity, 0, "quantity"),
            _priced(price, "price"),
            _priced(stop, "stop"),
        )
        return await self._changed("/v1/orders/replace", body)

    async def cancel_all(self, symbol: str | None = None, *, client_id: str | None = None) -> int:
        """Cancel all live orders of the account, or those of a symbol: how many."""
        body = {"client_id": self._own_id(client_id), **({} if symbol is None else {"symbol": symbol})}
        said = await self._http.post("/v1/orders/cancel-all", body)
        return whole_number(said.get("cancelled"))

    async def order(self, client_id: str) -> TraderOrder:
        """An order that was entered before, by its client id; TraderRefusedError if there is none."""
        said = await self._http.get(f"/v1/orders/{quote(_id_of(client_id), safe='')}")
        found = TraderOrder(self, client_id, read_report(said))
        self._orders.add(found)
        return found

    async def orders(self, *, live: bool = True) -> list[OrderReport]:
        """One's orders as they are now, newest last: those that can still trade, or all."""
        return await self._listed(f"/v1/orders?live={'true' if live else 'false'}", "orders")

    # ---- open offers, lots and bids

    async def offers(self) -> list[OpenOffer]:
        """Open offers that somebody can take, and who took what of them. `buy` and `sell` make one by `open_offer`."""
        said = await self._http.get("/v1/offers")
        with ReadingAnswer():
            return [read_offer(one) for one in said["offers"]]

    async def take(self, offer: OpenOffer | int, quantity: int, *, client_id: str | None = None) -> TraderOrder:
        """Take an open offer, or a part of it, at its price: the first to enter has it."""
        number = offer.offer if isinstance(offer, OpenOffer) else offer
        request = TakeRequest(self._own_id(client_id), number, _quantity(quantity, 1, "quantity"))
        return await self._entered("/v1/offers/take", request)

    async def lots(self) -> list[OpenLot]:
        """Lots that are for sale."""
        said = await self._http.get("/v1/lots")
        with ReadingAnswer():
            return [read_lot(one) for one in said["lots"]]

    async def open_lot(
        self,
        symbol: str,
        quantity: int,
        reserve: Price,
        *,
        closes_at: datetime | str,
        reveal_until: datetime | str,
        forfeit: Price = "0",
        client_id: str | None = None,
    ) -> TraderOrder:
        """Sell a lot as a whole to the highest of sealed bids, at the second price, or at the reserve.

        Bids count until `closes_at`, and are revealed until `reveal_until`; one that is not loses `forfeit` to you.
        """
        closes, until = _instant(closes_at, "closes_at"), _instant(reveal_until, "reveal_until")
        request = LotRequest(
            self._own_id(client_id),
            symbol,
            LotKind.SECOND_PRICE,
            _quantity(quantity, 1, "quantity"),
            _exact(reserve, "reserve"),
            closes,
            until - closes,
            _exact(forfeit, "forfeit"),
        )
        return await self._entered("/v1/lots", request)

    async def open_clock(
        self, symbol: str, quantity: int, reserve: Price, *, start: Price, step: Price, client_id: str | None = None
    ) -> TraderOrder:
        """Sell a lot by a Dutch clock: the price begins at `start` and falls by `step` with every token."""
        request = LotRequest(
            self._own_id(client_id),
            symbol,
            LotKind.DUTCH,
            _quantity(quantity, 1, "quantity"),
            _exact(reserve, "reserve"),
            start=_exact(start, "start"),
            step=_exact(step, "step"),
        )
        return await self._entered("/v1/lots", request)

    async def bid(
        self, lot: OpenLot | int, quantity: int, ceiling: Price, *, client_id: str | None = None
    ) -> TraderOrder:
        """Call at a Dutch clock: so much at its price, if that is not above the ceiling."""
        request = BidRequest(
            self._own_id(client_id), _lot_number(lot), _quantity(quantity, 1, "quantity"), _exact(ceiling, "ceiling")
        )
        return await self._entered("/v1/lots/bid", request)

    async def bid_sealed(
        self, lot: OpenLot | int, price: Price, *, ceiling: Price, keep: str | Path, client_id: str | None = None
    ) -> KeptBid:
        """Bid for a lot without telling the price; the money for the `ceiling` is reserved.

        What is needed to reveal it is in a file in the folder `keep` before anything is sent, and only you can read
        it. Wait with `reveal`, or reveal after another start with `reveal_kept`. A bid that is not revealed forfeits.
        """
        number, units = _lot_number(lot), _exact(price, "price")
        found = next((one for one in await self.lots() if one.lot == number), None)
        if found is None or found.closes_at is None or found.reveal_until is None:
            raise TraderRefusedError(Reason.UNKNOWN_ORDER.value, f"there is no lot {number} with sealed bids", "lot")
        if units > _exact(ceiling, "ceiling"):
            raise _malformed("ceiling", "must not be below the price")
        times = found.closes_at, found.reveal_until
        with ReadingAnswer():
            account = int((await self._http.get("/v1/account"))["account"])
        bid = KeptBid.new(self._own_id(client_id), number, account, units, *times)
        bid = await asyncio.to_thread(bid.keep, Path(keep))
        request = SealedBidRequest(bid.client_id, number, _exact(ceiling, "ceiling"), bid.commitment)
        try:
            await self._http.post("/v1/lots/commit", request_fields(request))
        except TraderRefusedError as refused:
            if refused.reason not in (Reason.UNAVAILABLE.value, Reason.CLIENT_ID_USED.value):
                bid.file_in(Path(keep)).unlink(missing_ok=True)  # Nothing was committed.
            raise
        return bid

    async def reveal(self, bid: KeptBid) -> OrderReport:
        """Wait until the lot of a sealed bid is closed, and open the bid; TraderRefusedError where it does not count.

        Sent too early by a clock that goes fast, it is sent again: the gateway tells nobody of one that is too early.
        """
        pause = _REVEAL_PAUSE_S
        await asyncio.sleep(max(0, bid.closes_at - time_ns()) / SECOND)
        while True:
            try:
                return await self._revealed(RevealRequest(self._own_id(None), bid.client_id, bid.price, bid.nonce))
            except TraderRefusedError as refused:
                if refused.reason != Reason.WRONG_PHASE.value:
                    raise
            await asyncio.sleep(pause)
            pause = min(1.0, 2 * pause)

    async def _revealed(self, request: RevealRequest) -> OrderReport:
        """What the sequence says of a reveal."""
        answer = read_report(await self._http.post("/v1/lots/reveal", request_fields(request)))
        async with aclosing(self.reports(answer.number)) as reports:
            async for report in reports:
                if report.client_id == request.client_id and report.kind == ReportKind.CHANGE_REFUSED:
                    raise TraderRefusedError(report.reason, report.text or report.reason, "price")
                if report.client_id == request.client_id and report.kind == ReportKind.REVEALED:
                    return report
        raise RemoteProtocolError("the gateway ended its reports")

    async def reveal_kept(self, keep: str | Path) -> list[OrderReport]:
        """Reveal every bid that is kept in a folder, when its lot closes; what counts or never will is deleted."""
        found: list[OrderReport] = []
        for file, bid in await asyncio.to_thread(kept_bids, Path(keep)):
            try:
                found.append(await self.reveal(bid))
            except TraderRefusedError as refused:
                if refused.reason == Reason.UNAVAILABLE.value:
                    raise
            file.unlink(missing_ok=True)
        return found

    # ---- reports and what one has

    async def reports(self, after: int = 0) -> AsyncGenerator[OrderReport, None]:
        """All reports after that number, and those to come, for ever: in order and each once.

        After a lost connection it goes on by itself. Keep the `number` of the last one to go on another day.
        """
        async with aclosing(self._http.watch(after)) as stream:
            async for said in stream:
                yield read_report(said)

    async def past_reports(self, after: int = 0, limit: int = 1_000) -> list[OrderReport]:
        """What the account was told after that number, at most `limit` (up to 1,000), without waiting for more."""
        return await self._listed(f"/v1/reports?after={int(after)}&limit={int(limit)}", "reports")

    async def balances(self) -> list[Balance]:
        """What the account has, of each currency and symbol."""
        said = await self._http.get("/v1/balances")
        with ReadingAnswer():
            return [
                Balance(str(one["asset"]), str(one["kind"]), Decimal(one["available"]), Decimal(one["reserved"]))
                for one in said["balances"]
            ]

    async def symbols(self) -> list[TradedSymbol]:
        """What can be traded."""
        said = await self._http.get("/v1/symbols")
        with ReadingAnswer():
            return [
                TradedSymbol(
                    str(one["symbol"]),
                    str(one["currency"]),
                    Decimal(one["tick"]),
                    int(one["lot"]),
                    str(one["phase"]),
                    None if one["reference"] is None else Decimal(one["reference"]),
                )
                for one in said["symbols"]
            ]

    async def _listed(self, path: str, name: str) -> list[OrderReport]:
        said = (await self._http.get(path)).get(name)
        if not isinstance(said, list):
            raise RemoteProtocolError(f"the trading service at {self._http.place} answers in another way")
        return [read_report(one) for one in said]

    # ---- what is sent

    def _own_id(self, given: str | None) -> str:
        if given is None:
            return f"{self._prefix}-{next(self._numbers)}"
        return _id_of(given)

    async def _enter(self, side: Side, symbol: str, quantity: int, price: Price | None, **said: Any) -> TraderOrder:  # noqa: ANN401
        request = _order(self._own_id(said.pop("client_id")), side, symbol, quantity, price, **said)
        return await self._entered("/v1/orders", request)

    async def _entered(self, path: str, request: NewOrder | TakeRequest | LotRequest | BidRequest) -> TraderOrder:
        answer = read_report(await self._http.post(path, request_fields(request)))
        return self._known_order(request.client_id, answer)

    def _known_order(self, client_id: str, answer: OrderReport) -> TraderOrder:
        found = TraderOrder(self, client_id)
        found._hear(answer)  # noqa: SLF001 - one thing in two classes
        found._since = answer.number  # noqa: SLF001
        # Its reports may be quicker than its answer, and those of a repeated request were told long ago.
        found._is_behind = self._position > answer.number  # noqa: SLF001
        self._orders.add(found)
        return found

    async def _changed(self, path: str, request: CancelRequest | ReplaceRequest) -> OrderReport:
        return read_report(await self._http.post(path, request_fields(request)))

    # ---- what becomes of orders

    def _follow(self) -> None:
        """Hear reports for whoever waits for an order, from the oldest one that is waited for."""
        if self._following is not None and not self._following.done():
            return
        self._trouble = None
        known = [order._since for order in self._orders if not order._is_behind]  # noqa: SLF001
        after = min(known, default=self._position)
        self._following = asyncio.create_task(self._listen(max(self._position, after)))

    async def _listen(self, after: int) -> None:
        try:
            async with aclosing(self._http.watch(after)) as stream:
                async for said in stream:
                    report = read_report(said)
                    self._position = report.number
                    for order in list(self._orders):
                        if not order._is_behind:  # noqa: SLF001 - one thing in two classes
                            order._hear(report)  # noqa: SLF001
        except Exception as error:  # noqa: BLE001 - whoever waits hears it
            self._trouble = error
            for order in list(self._orders):
                order._changed.set()  # noqa: SLF001

    async def _catch_up(self, order: TraderOrder) -> None:
        """Tell an order what the trader heard before, so that it can follow from here on."""
        while True:
            page = await self.past_reports(order._since)  # noqa: SLF001
            for report in page:
                order._hear(report)  # noqa: SLF001
                order._since = report.number  # noqa: SLF001
            if not page and order._since >= self._position:  # noqa: SLF001
                order._is_behind = False  # noqa: SLF001
                return

    def _raise_trouble(self) -> None:
        if self._trouble is not None:
            raise self._trouble


def _malformed(field: str, rule: str) -> TraderRefusedError:
    return TraderRefusedError(Reason.MALFORMED.value, f"{field}: {rule}", field)


def _order(  # noqa: PLR0913 - what an order may say
    client_id: str,
    side: Side,
    symbol: str,
    quantity: int,
    price: Price | None,
    *,
    market: bool,
    stop: Price | None,
    lifetime: str,
    until: datetime | str | None,
    post_only: bool,
    show: int,
    owner: int,
    open_offer: bool,
) -> NewOrder:
    """What is sent; TraderRefusedError, and nothing was sent, for what contradicts itself."""
    if price is None and stop is None and not market:
        raise _malformed("price", "give a price, or say market=True")
    if price is not None and market:
        raise _malformed("price", "a market order has none: leave one of both out")
    names = [one.value for one in Lifetime]
    if lifetime not in names:
        raise _malformed("lifetime", f"{lifetime!r} is not one of {', '.join(names)}{suggestion(str(lifetime), names)}")
    if until is not None and lifetime not in ("day", "gtd"):
        raise _malformed("until", f"an order that lives {lifetime} has none")
    if stop is not None:
        kind = OrderKind.STOP if price is None else OrderKind.STOP_LIMIT
    else:
        kind = OrderKind.MARKET if market else OrderKind.LIMIT
    return NewOrder(
        client_id=client_id,
        symbol=symbol,
        side=side,
        quantity=_quantity(quantity, 1, "quantity"),
        kind=kind,
        price=_priced(price, "price"),
        trigger=_priced(stop, "stop"),
        lifetime=Lifetime(lifetime) if until is None else Lifetime.UNTIL_DATE,
        until=None if until is None else _instant(until),
        is_post_only=post_only,
        display=_quantity(show, 0, "show"),
        is_open_offer=open_offer,
        owner=_quantity(owner, 0, "owner"),
    )


def order_of(own_id: Callable[[str | None], str], said: Mapping[str, Any]) -> NewOrder:
    """One of many: what `buy` would send; TraderRefusedError, and nothing was sent, for what is not known there."""
    terms = {**ORDER_TERMS, **said}
    side, symbol, quantity = terms.pop("side", None), terms.pop("symbol", None), terms.pop("quantity", None)
    if side not in ("buy", "sell") or not isinstance(symbol, str) or quantity is None:
        raise _malformed("side, symbol, quantity", "each order has them; a side is buy or sell")
    for name in terms:
        if name not in ORDER_TERMS:
            raise _malformed(
                name, f"is not known here: there are {', '.join(ORDER_TERMS)}{suggestion(name, ORDER_TERMS)}"
            )
    client_id, price = own_id(terms.pop("client_id")), terms.pop("price")
    return _order(client_id, Side(side), symbol, quantity, price, **terms)


ORDER_TERMS: Final[Mapping[str, Any]] = {
    "price": None,
    "market": False,
    "stop": None,
    "lifetime": "day",
    "until": None,
    "post_only": False,
    "show": 0,
    "owner": 0,
    "open_offer": False,
    "client_id": None,
}
"""What an order may say beside side, symbol and quantity, and what it says where it does not."""


def _priced(price: Price | None, field: str) -> int | None:
    return None if price is None else _exact(price, field)


def _quantity(value: int, least: int, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= QUANTITY_MAX:
        raise _malformed(field, f"must be a whole number from {least}, not {value!r}")
    return value


def _exact(price: Price, field: str) -> int:
    try:
        return price_units(price)
    except ValueError as reason:
        raise _malformed(field, str(reason)) from None


def _instant(until: datetime | str, field: str = "until") -> int:
    try:
        return read_until(until.isoformat() if isinstance(until, datetime) else until)
    except ValueError as reason:
        raise _malformed(field, str(reason)) from None


def _lot_number(lot: OpenLot | int) -> int:
    return lot.lot if isinstance(lot, OpenLot) else lot


def _is_unavailable(became: TraderOrder | TraderRefusedError) -> bool:
    return isinstance(became, TraderRefusedError) and became.reason == Reason.UNAVAILABLE


def _id_of(order: TraderOrder | str) -> str:
    try:
        return order.client_id if isinstance(order, TraderOrder) else check_client_id(order)
    except ValueError as reason:
        raise _malformed("client_id", str(reason)) from None
