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
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Final

from isocast.floor.events import Phase
from isocast.runtime.client.trader import Trader
from isocast.runtime.client.trading_answers import TradedSymbol
from isocast.runtime.market.model import Market
from isocast.runtime.operate.floor_change import opening, phase_change, publish_events
from isocast.terms.errors import IsocastError, TraderRefusedError
from isocast.trials.demo.cast import Tone
from isocast.trials.demo.floor_record import FloorRecord
from isocast.trials.demo.staging import DemoStage
from isocast.trials.demo.trading import GATEWAYS, TRADERS, TraderSeat, gateway_url, token_file

__all__ = ["DemoTrader", "TradingSession"]

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


# ---- a session of theirs


_LOOK_S: Final = 0.25


class TradingSession:
    """One session of the market's only floor."""

    def __init__(self, market: Market, seed: int, note: Callable[[Tone, str], None]) -> None:
        """Nobody trades yet."""
        self._market = market
        self._table = market.floors[0]
        self._note = note
        self.traders = [
            DemoTrader(seat, gateway_url(market, seat.gateway), token_file(market, seat), seed) for seat in TRADERS
        ]

    async def run(self, stage: DemoStage, going: asyncio.Event) -> None:
        """Open the floor, trade while `going` is set, and close it again."""
        table = self._table
        await publish_events(self._market, table, opening(table))
        if await self._gateways_came(stage, going):
            cities = ", ".join([trader.seat.city for trader in self.traders])
            self._note(Tone.RING, f"Two gateways take orders for the floor {table.code}; {cities} trade")
            async with asyncio.TaskGroup() as group:
                for trader in self.traders:
                    group.create_task(self._trade(trader, going))
        await publish_events(self._market, table, phase_change(table, Phase.CLOSED))

    async def settle(self, stage: DemoStage, floor: FloorRecord) -> None:
        """Wait until nothing of any order is to come, and let the gateways go."""
        while not await self._is_settled(floor):  # noqa: ASYNC110 - journals and books do not signal
            await asyncio.sleep(_LOOK_S)
        if floor.trades:
            self._note(Tone.RING, f"Every trade of {self._table.code} is final, and settled at both gateways")
        await stage.stop_gateways()

    async def _gateways_came(self, stage: DemoStage, going: asyncio.Event) -> bool:
        """Whether they came before the end."""
        coming = asyncio.create_task(stage.gateways_ready())
        try:
            while going.is_set() and not coming.done():
                await asyncio.wait([coming], timeout=_LOOK_S)
            if coming.done():
                await coming
            return coming.done()
        finally:
            coming.cancel()

    async def _trade(self, trader: DemoTrader, going: asyncio.Event) -> None:
        await trader.run(going)
        if trader.trouble:
            self._note(Tone.TROUBLE, f"{trader.seat.city} trades no more: {trader.trouble}")

    async def _is_settled(self, floor: FloorRecord) -> bool:
        if floor.is_open or not floor.symbols or floor.confirmed < len(floor.trades):
            return False
        from isocast.trials.demo.books import has_settled  # noqa: PLC0415 - its packages belong to an extra

        files = [gateway.database(self._market) for gateway in GATEWAYS]
        return all([await asyncio.to_thread(has_settled, file) for file in files])
