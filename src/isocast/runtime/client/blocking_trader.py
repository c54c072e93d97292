"""Trading from Python, for programs without an event loop: everything waits until it is done.

    with isocast.BlockingTrader("https://127.0.0.1:8443", token=token, ca="market-ca.pem") as trader:
        order = trader.buy("ISO", 100, "10.05")
        order.filled()

`trader` does the work, in an event loop of its own, in a thread that ends with the `with` block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from isocast.runtime.client.loop_thread import LoopThread
from isocast.runtime.client.sealed_bids import KeptBid
from isocast.runtime.client.trader import PATIENCE_S, Price, Trader, TraderOrder
from isocast.runtime.client.trading_answers import Balance, OpenLot, OpenOffer, OrderReport, TradedSymbol
from isocast.terms.errors import TraderRefusedError

__all__ = ["BlockingOrder", "BlockingTrader"]


class BlockingOrder:
    """An order of one's own. `BlockingTrader.buy` and `BlockingTrader.sell` make it."""

    def __init__(self, loop: LoopThread, order: TraderOrder) -> None:
        """`order` does the work, in a thread."""
        self._loop = loop
        self._async = order

    def __repr__(self) -> str:
        return repr(self._async).replace("Trader", "Blocking", 1)

    @property
    def client_id(self) -> str:
        """One's own id of it."""
        return self._async.client_id

    @property
    def report(self) -> OrderReport:
        """The newest report of it."""
        return self._async.report

    @property
    def status(self) -> str:
        """Where it is in its life: pending, working, part filled, filled, cancelled, expired or refused."""
        return self._async.status

    def filled(self, *, timeout_s: float | None = None) -> OrderReport:
        """Wait until all of it has traded; TraderRefusedError if it ends otherwise, with how it ended as its reason.

        The trades may still be tentative: `confirmed` waits until they are final. TimeoutError after `timeout_s`.
        """
        return self._loop.wait_for(self._async.filled(timeout_s=timeout_s))

    def ended(self, *, timeout_s: float | None = None) -> OrderReport:
        """Wait until nothing of it can trade any more: filled, cancelled, expired or refused."""
        return self._loop.wait_for(self._async.ended(timeout_s=timeout_s))

    def confirmed(self, *, timeout_s: float | None = None) -> OrderReport:
        """Wait until it has ended and each of its trades is final, at every receiver."""
        return self._loop.wait_for(self._async.confirmed(timeout_s=timeout_s))

    def cancel(self, quantity: int = 0) -> OrderReport:
        """Cancel what is left of it, or so much of it; returns when the cancel is on its way."""
        return self._loop.wait_for(self._async.cancel(quantity))


class BlockingTrader:
    """One trader at a gateway, to be used in a `with` block; the same as `Trader`, without an event loop.

    with isocast.BlockingTrader("https://127.0.0.1:8443", token=token, ca="market-ca.pem") as trader:
        order = trader.buy("ISO", 100, "10.05")
        print(order.filled().average_price)
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
        """The arguments are those of `Trader`."""
        self._async = Trader(url, token=token, name=name, password=password, ca=ca, patience_s=patience_s)
        self._loop = LoopThread()

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._async).removeprefix('<')}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session, if a password began it, and the thread; orders stay as they are."""
        self._loop.end(self._async.close)
        self._loop.close()

    def buy(  # noqa: PLR0913 - what an order may say
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
    ) -> BlockingOrder:
        """Buy so many at a price or better; returns once the order is reserved, durable and on its way.

        A price is a Decimal, a text or an int; a float must be exact. Without one say `market=True`, or give a `stop`:
        the order then waits for a trade at that price, and is a limit order with a `price`, else a market order.
        `lifetime` is day, gtc, ioc, fok, open or close; or give the instant `until` which it lives. `post_only` refuses
        it rather than trade at once, `show` is how much of it others see at a time. `owner` is a broker's customer;
        `open_offer` offers it to all exchanges. With a `client_id` of yours the call may be repeated after any failure.
        """
        return self._order(
            self._loop.wait_for(
                self._async.buy(
                    symbol,
                    quantity,
                    price,
                    market=market,
                    stop=stop,
                    lifetime=lifetime,
                    until=until,
                    post_only=post_only,
                    show=show,
                    owner=owner,
                    open_offer=open_offer,
                    client_id=client_id,
                )
            )
        )

    def sell(  # noqa: PLR0913 - what an order may say
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
    ) -> BlockingOrder:
        """Sell so many at a price or better; all else is as with `buy`."""
        return self._order(
            self._loop.wait_for(
                self._async.sell(
                    symbol,
                    quantity,
                    price,
                    market=market,
                    stop=stop,
                    lifetime=lifetime,
                    until=until,
                    post_only=post_only,
                    show=show,
                    owner=owner,
                    open_offer=open_offer,
                    client_id=client_id,
                )
            )
        )

    def send_many(self, orders: Sequence[Mapping[str, Any]]) -> list[BlockingOrder | TraderRefusedError]:
        """Many orders in few requests: each as the arguments of `buy` by name, with its `side`.

            [{"side": "buy", "symbol": "ISO", "quantity": 100, "price": "10.05"}, ...]

        What became of each, in their order: the order, or why this one was refused; the others stand. With client ids
        of yours the call may be repeated after any failure.
        """
        found = self._loop.wait_for(self._async.send_many(orders))
        return [one if isinstance(one, TraderRefusedError) else self._order(one) for one in found]

    def cancel(self, order: BlockingOrder | str, quantity: int = 0, *, client_id: str | None = None) -> OrderReport:
        """Cancel an order, by itself or by its client id, or so much of it; returns when the cancel is on its way."""
        return self._loop.wait_for(self._async.cancel(_id_of(order), quantity, client_id=client_id))

    def replace(
        self,
        order: BlockingOrder | str,
        *,
        quantity: int | None = None,
        price: Price | None = None,
        stop: Price | None = None,
        client_id: str | None = None,
    ) -> OrderReport:
        """Give an order another total (what is filled included), price or stop; what is left out stays as it is."""
        return self._loop.wait_for(
            self._async.replace(_id_of(order), quantity=quantity, price=price, stop=stop, client_id=client_id)
        )

    def cancel_all(self, symbol: str | None = None, *, client_id: str | None = None) -> int:
        """Cancel all live orders of the account, or those of a symbol: how many."""
        return self._loop.wait_for(self._async.cancel_all(symbol, client_id=client_id))

    def order(self, client_id: str) -> BlockingOrder:
        """An order that was entered before, by its client id; TraderRefusedError if there is none."""
        return self._order(self._loop.wait_for(self._async.order(client_id)))

    def orders(self, *, live: bool = True) -> list[OrderReport]:
        """One's orders as they are now, newest last: those that can still trade, or all."""
        return self._loop.wait_for(self._async.orders(live=live))

    def offers(self) -> list[OpenOffer]:
        """Open offers that somebody can take, and who took what of them. `buy` and `sell` make one by `open_offer`."""
        return self._loop.wait_for(self._async.offers())

    def take(self, offer: OpenOffer | int, quantity: int, *, client_id: str | None = None) -> BlockingOrder:
        """Take an open offer, or a part of it, at its price: the first to enter has it."""
        return self._order(self._loop.wait_for(self._async.take(offer, quantity, client_id=client_id)))

    def lots(self) -> list[OpenLot]:
        """Lots that are for sale."""
        return self._loop.wait_for(self._async.lots())

    def open_lot(
        self,
        symbol: str,
        quantity: int,
        reserve: Price,
        *,
        closes_at: datetime | str,
        reveal_until: datetime | str,
        forfeit: Price = "0",
        client_id: str | None = None,
    ) -> BlockingOrder:
        """Sell a lot as a whole to the highest of sealed bids, at the second price, or at the reserve.

        Bids count until `closes_at`, and are revealed until `reveal_until`; one that is not loses `forfeit` to you.
        """
        opening = self._async.open_lot(
            symbol, quantity, reserve,
            closes_at=closes_at, reveal_until=reveal_until, forfeit=forfeit, client_id=client_id,
        )  # fmt: skip
        return self._order(self._loop.wait_for(opening))

    def open_clock(
        self, symbol: str, quantity: int, reserve: Price, *, start: Price, step: Price, client_id: str | None = None
    ) -> BlockingOrder:
        """Sell a lot by a Dutch clock: the price begins at `start` and falls by `step` with every token."""
        opening = self._async.open_clock(symbol, quantity, reserve, start=start, step=step, client_id=client_id)
        return self._order(self._loop.wait_for(opening))

    def bid(self, lot: OpenLot | int, quantity: int, ceiling: Price, *, client_id: str | None = None) -> BlockingOrder:
        """Call at a Dutch clock: so much at its price, if that is not above the ceiling."""
        return self._order(self._loop.wait_for(self._async.bid(lot, quantity, ceiling, client_id=client_id)))

    def bid_sealed(
        self, lot: OpenLot | int, price: Price, *, ceiling: Price, keep: str | Path, client_id: str | None = None
    ) -> KeptBid:
        """Bid for a lot without telling the price; the money for the `ceiling` is reserved.

        What is needed to reveal it is in a file in the folder `keep` before anything is sent, and only you can read
        it. Wait with `reveal`, or reveal after another start with `reveal_kept`. A bid that is not revealed forfeits.
        """
        return self._loop.wait_for(self._async.bid_sealed(lot, price, ceiling=ceiling, keep=keep, client_id=client_id))

    def reveal(self, bid: KeptBid) -> OrderReport:
        """Wait until the lot of a sealed bid is closed, and open it; TraderRefusedError where it does not count."""
        return self._loop.wait_for(self._async.reveal(bid))

    def reveal_kept(self, keep: str | Path) -> list[OrderReport]:
        """Reveal every bid that is kept in a folder, when its lot closes; what counts or never will is deleted."""
        return self._loop.wait_for(self._async.reveal_kept(keep))

    def reports(self, after: int = 0) -> Iterator[OrderReport]:
        """All reports after that number, and those to come, for ever: in order and each once.

        After a lost connection it goes on by itself. Keep the `number` of the last one to go on another day.
        """
        stream = self._async.reports(after)
        try:
            while True:
                try:
                    yield self._loop.next_of(stream)
                except StopIteration:
                    return
        finally:
            self._loop.end(stream.aclose)

    def past_reports(self, after: int = 0, limit: int = 1_000) -> list[OrderReport]:
        """What the account was told after that number, at most `limit` (up to 1,000), without waiting for more."""
        return self._loop.wait_for(self._async.past_reports(after, limit))

    def balances(self) -> list[Balance]:
        """What the account has, of each currency and symbol."""
        return self._loop.wait_for(self._async.balances())

    def symbols(self) -> list[TradedSymbol]:
        """What can be traded."""
        return self._loop.wait_for(self._async.symbols())

    def _order(self, order: TraderOrder) -> BlockingOrder:
        return BlockingOrder(self._loop, order)


def _id_of(order: BlockingOrder | str) -> str:
    return order.client_id if isinstance(order, BlockingOrder) else order
