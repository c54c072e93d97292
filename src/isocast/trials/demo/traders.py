"""Traders who trade all the time, each through a gateway, by `isocast.Trader` alone.

A trader hears two things from its gateway: the last price of every symbol, and what became of its orders. Every second
or so it looks, and acts:

    the price moved       mostly it follows the move, or bets against it, by an order that takes what rests there
    the price stands      mostly it quotes: orders a few ticks off the price, which rest
    it traded             the next look comes sooner
    much of it rests      the oldest order is cancelled

How often which of them is drawn from a stream of the trader's own; what comes of it depends on the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Final

from isocast.runtime.client.trader import Trader
from isocast.runtime.client.trading_answers import TradedSymbol
from isocast.terms.errors import IsocastError, TraderRefusedError
from isocast.trials.demo.trading import TraderSeat

__all__ = ["DemoTrader"]

_PAUSE_S: Final = (0.7, 1.3)
"""Between two looks: a machine of two cores shall not notice that somebody trades."""
_AFTER_TRADE_S: Final = 0.25
_RESTING_MAX: Final = 8
"""Orders that a trader leaves in the books."""
_PATIENCE_S: Final = 30.0
"""For a gateway that is started again."""
_TAKES_MOVED, _TAKES = 0.7, 0.45
"""How often an order takes what rests: where the price has moved, and where it stands."""
_PREFERENCE: Final = 1.0
"""The first symbol is traded most, the next less."""
_LOTS: Final = (1, 1, 2, 3, 5, 10)
_TICKS_RESTING: Final = (1, 3)
_TICKS_TAKING: Final = (3, 6)


@dataclass(slots=True)
class DemoTrader:
    """One trader, and what it was told; the summary asks the books instead."""

    seat: TraderSeat
    url: str
    token: Path
    seed: int
    orders: int = 0
    """That its gateway took."""
    trades: int = 0
    confirmed: int = 0
    refused: int = 0
    trouble: str = ""
    """Why it trades no more."""
    _seen: dict[str, Decimal] = field(default_factory=dict)
    """The price of each symbol when it last looked."""
    _resting: deque[str] = field(default_factory=deque)
    """Own orders that rest, by client id, the oldest first."""
    _filled: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, going: asyncio.Event) -> None:
        """Trade while `going` is set; then have the last answer, and end."""
        draw = Random(self._stream())  # noqa: S311 - a play, and the same for the same seed
        try:
            token = (await asyncio.to_thread(self.token.read_text, encoding="ascii")).strip()
            async with Trader(self.url, token=token, patience_s=_PATIENCE_S) as trader:
                hearing = asyncio.create_task(self._hear(trader), name=f"reports to {self.seat.city}")
                try:
                    while going.is_set() and not hearing.done():
                        await self._act(trader, draw)
                        await self._pause(draw)
                    if hearing.done():
                        await hearing
                finally:
                    hearing.cancel()
                    await asyncio.gather(hearing, return_exceptions=True)
        except IsocastError as error:
            self.trouble = str(error)

    def _stream(self) -> int:
        return int.from_bytes(blake2b(f"{self.seed}\x1f{self.seat.city}".encode(), digest_size=8).digest())

    async def _pause(self, draw: Random) -> None:
        """Until the next look: soon after a trade, and not at once, so that trades do not breed trades."""
        self._filled.clear()
        await asyncio.sleep(_AFTER_TRADE_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(draw.uniform(*_PAUSE_S) - _AFTER_TRADE_S):
                await self._filled.wait()

    async def _hear(self, trader: Trader) -> None:
        async with aclosing(trader.reports()) as reports:
            async for report in reports:
                if report.kind == "traded":
                    self.trades += 1
                    self._filled.set()
                elif report.kind == "confirmed":
                    self.confirmed += 1
                if report.is_final and report.client_id in self._resting:
                    self._resting.remove(report.client_id)

    # What it does ---------------------------------------------------------------------------------

    async def _act(self, trader: Trader, draw: Random) -> None:
        """Look at one symbol, and enter an order."""
        symbols = {one.symbol: one for one in await trader.symbols() if one.phase == "open" and one.reference}
        if not symbols:
            return  # The floor is not open yet, or no longer.
        name = list(symbols)[min(int(draw.expovariate(_PREFERENCE)), len(symbols) - 1)]
        move = self._move(symbols[name])
        self._seen[name] = symbols[name].reference or Decimal(0)
        try:
            if draw.random() < (_TAKES_MOVED if move else _TAKES):
                follows = draw.random() < 1 / 2
                await self._take(trader, draw, symbols[name], buys=(move > 0) is follows)
            else:
                await self._quote(trader, draw, symbols[name])
            while len(self._resting) > _RESTING_MAX:
                await trader.cancel(self._resting.popleft())
        except TraderRefusedError:
            self.refused += 1  # The floor has just closed, or the order that is not wanted any more is filled.

    def _move(self, symbol: TradedSymbol) -> Decimal:
        """How far its price went since the trader's last order in it."""
        now = symbol.reference or Decimal(0)
        return now - self._seen.get(symbol.symbol, now)

    async def _take(self, trader: Trader, draw: Random, symbol: TradedSymbol, *, buys: bool) -> None:
        """Trade at once with what rests near the price, or not at all."""
        enter = trader.buy if buys else trader.sell
        price = _off(draw, symbol, _TICKS_TAKING, up=buys)
        await enter(symbol.symbol, self._size(draw, symbol), price, lifetime="ioc")
        self.orders += 1

    async def _quote(self, trader: Trader, draw: Random, symbol: TradedSymbol) -> None:
        """Offer to buy a little below the price, and to sell a little above it."""
        for enter, up in ((trader.buy, False), (trader.sell, True)):
            order = await enter(symbol.symbol, self._size(draw, symbol), _off(draw, symbol, _TICKS_RESTING, up=up))
            self.orders += 1
            self._resting.append(order.client_id)

    @staticmethod
    def _size(draw: Random, symbol: TradedSymbol) -> int:
        return symbol.lot * draw.choice(_LOTS)


def _off(draw: Random, symbol: TradedSymbol, ticks: tuple[int, int], *, up: bool) -> Decimal:
    """A price some ticks above or below the last one."""
    away = symbol.tick * draw.randint(*ticks)
    return (symbol.reference or Decimal(0)) + (away if up else -away)
