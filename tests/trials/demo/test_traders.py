"""A trader of the show, at a gateway that is only played: what it does with what it hears, and when it ends."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from isocast.runtime.client.trading_answers import TradedSymbol
from isocast.terms.errors import TraderRefusedError, TransportError
from isocast.trials.demo import traders
from isocast.trials.demo.trading import TRADERS

ENOUGH = 60
"""Looks at the prices."""


class PlayedGateway:
    """What `isocast.Trader` is to a trader; it clears `going` after enough looks."""

    def __init__(self, going: asyncio.Event, price: Callable[[int], str] = lambda _: "100.00") -> None:
        self.going = going
        self.price = price
        self.looks = 0
        self.entered: list[tuple[str, int, Decimal, str]] = []
        """Side, quantity, price off the last one, lifetime."""
        self.cancelled: list[str] = []
        self.refuses = False
        self.is_lost = False
        self.told: list[SimpleNamespace] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def symbols(self) -> list[TradedSymbol]:
        self.looks += 1
        if self.looks >= ENOUGH:
            self.going.clear()
        if self.is_lost:
            raise TransportError("no answer from the trading service")
        price = Decimal(self.price(self.looks))
        return [TradedSymbol("ISO", "USD", Decimal("0.01"), 10, "open", price)]

    async def _enter(self, side: str, quantity: int, price: Decimal, lifetime: str) -> SimpleNamespace:
        if self.refuses:
            raise TraderRefusedError("funds", "there is no money")
        self.entered.append((side, quantity, price - Decimal(self.price(self.looks)), lifetime))
        return SimpleNamespace(client_id=f"o{len(self.entered)}")

    async def buy(self, _: str, quantity: int, price: Decimal, *, lifetime: str = "day") -> SimpleNamespace:
        return await self._enter("buy", quantity, price, lifetime)

    async def sell(self, _: str, quantity: int, price: Decimal, *, lifetime: str = "day") -> SimpleNamespace:
        return await self._enter("sell", quantity, price, lifetime)

    async def cancel(self, client_id: str) -> None:
        self.cancelled.append(client_id)

    async def reports(self) -> AsyncGenerator[SimpleNamespace, None]:
        for report in self.told:
            yield report
        await asyncio.get_running_loop().create_future()


def played(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    price: Callable[[int], str] = lambda _: "100.00",
    change: Callable[[PlayedGateway], None] = lambda _: None,
) -> tuple[traders.DemoTrader, PlayedGateway]:
    """A trader who traded until it looked often enough."""
    monkeypatch.setattr(traders, "_PAUSE_S", (0.0, 0.0))
    monkeypatch.setattr(traders, "_AFTER_TRADE_S", 0.0)
    (tmp_path / "token").write_text("secret\n", encoding="ascii")

    async def story() -> tuple[traders.DemoTrader, PlayedGateway]:
        going = asyncio.Event()
        going.set()
        gateway = PlayedGateway(going, price)
        change(gateway)
        monkeypatch.setattr(traders, "Trader", lambda *_, **__: gateway)
        trader = traders.DemoTrader(TRADERS[0], "http://127.0.0.1:1", tmp_path / "token", 7)
        async with asyncio.timeout(60):
            await trader.run(going)
        return trader, gateway

    return asyncio.run(story())


def test_quotes_rest_off_the_price_and_takers_reach_beyond_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trader, gateway = played(tmp_path, monkeypatch)
    resting = [off if side == "buy" else -off for side, _, off, lifetime in gateway.entered if lifetime == "day"]
    taking = [off if side == "buy" else -off for side, _, off, lifetime in gateway.entered if lifetime == "ioc"]
    assert resting
    assert taking
    assert max(resting) < 0, "nothing that rests crosses the price"
    assert min(taking) >= -min(resting), "an order that takes reaches everything that rests"
    assert all(quantity % 10 == 0 for _, quantity, _, _ in gateway.entered)
    assert trader.orders == len(gateway.entered)


def test_the_same_seed_does_the_same_to_the_same_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = (played(tmp_path, monkeypatch)[1].entered for _ in range(2))
    assert first == again


def test_what_rests_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, gateway = played(tmp_path, monkeypatch)
    quotes = sum([lifetime == "day" for *_, lifetime in gateway.entered])
    assert quotes - len(gateway.cancelled) == traders._RESTING_MAX  # noqa: SLF001


def test_moving_prices_are_answered_more_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def takes(price: Callable[[int], str]) -> int:
        return sum([lifetime == "ioc" for *_, lifetime in played(tmp_path, monkeypatch, price)[1].entered])

    assert takes(lambda look: f"100.{look % 50:02}") > takes(lambda _: "100.00")


def test_a_refusal_is_counted_and_trading_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trader, gateway = played(tmp_path, monkeypatch, change=lambda gateway: setattr(gateway, "refuses", True))
    assert (trader.refused, trader.orders, trader.trouble) == (ENOUGH, 0, "")
    assert gateway.looks == ENOUGH


def test_a_gateway_that_is_gone_ends_a_trader_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trader, gateway = played(tmp_path, monkeypatch, change=lambda gateway: setattr(gateway, "is_lost", True))
    assert trader.trouble == "no answer from the trading service"
    assert gateway.looks == 1
