"""A trading session of the show: the floor opens through the sequence, traders trade, it closes, everything settles.

An operator's words travel in the sequence, too: what trades, that it is open, that it is closed. Closing expires every
order that rests, so that at the end nothing is reserved but for trades that are not final.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from isocast.floor.events import Phase
from isocast.runtime.market.model import Market
from isocast.runtime.operate.floor_change import opening, phase_change, publish_events
from isocast.trials.demo.cast import Tone
from isocast.trials.demo.floor_record import FloorRecord
from isocast.trials.demo.staging import DemoStage
from isocast.trials.demo.traders import DemoTrader
from isocast.trials.demo.trading import GATEWAYS, TRADERS, gateway_url, token_file

__all__ = ["TradingSession"]

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
