"""The narrow stripes of a retransmit server, beside its archive of the core: kept, and repaired for who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from isocast.runtime.edge.narrow.repairer import Repairer
from isocast.runtime.hosts.context import Context
from isocast.runtime.market.key_files import load_repair_key

__all__ = ["StripeRepairs", "stripe_repairs"]

_PAUSE_S = 1.0


def stripe_repairs(context: Context) -> StripeRepairs | None:
    """In a market with narrow stripes; None in any other."""
    return None if context.market.edge is None else StripeRepairs(context)


class StripeRepairs:
    """Runs a repairer in the event loop of its server; what goes wrong with it never ends the archive."""

    def __init__(self, context: Context) -> None:
        """Opens disk and sockets."""
        self._context = context
        self.repairer = self._made()
        self._running: asyncio.Task[None] | None = None
        context.operations["edge"] = self._tell

    def _made(self) -> Repairer:
        context = self._context
        secret = load_repair_key(context.market)
        return Repairer(context.market, context.plan, secret, context.clock.now, context.alarm)

    def start(self) -> None:
        """Begin to hear."""
        self._running = self._context.loop.create_task(self._run(), name="stripe repairs")

    async def stop(self) -> None:
        """Give everything back."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        self.repairer.close()

    async def _run(self) -> None:
        while True:
            try:
                await self.repairer.run()
            except Exception as reason:  # noqa: BLE001 - the archive of the core must not end with it
                self._context.alarm("stripe-repairs", f"{type(reason).__name__}: {reason}", "it goes on by itself")
                await asyncio.sleep(_PAUSE_S)

    async def _tell(self, _: Mapping[str, Any]) -> Mapping[str, object]:
        return {"repairs": asdict(self.repairer.counts), "requests": asdict(self.repairer.desk.counts)}
