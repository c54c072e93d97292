"""How traders come in at a gateway that runs: HTTPS with WebSockets, and FIX."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from isocast.orders.desk import Desk
from isocast.runtime.accounts.fix.connection import LoopTime
from isocast.runtime.accounts.fix.orders_door import OrdersDoor
from isocast.runtime.accounts.fix.server import FixServer
from isocast.runtime.accounts.fix.store import SessionStore
from isocast.runtime.accounts.serving import WayIn
from isocast.runtime.accounts.web import TradingService, serve_traders
from isocast.terms.errors import ConfigurationError

__all__ = ["COMP_ID", "Place", "fix_way", "https_way", "place_of"]

COMP_ID: Final = "ISOCAST"
_STORE: Final = "fix.db"
_MARK: Final = "fix.made"
_PORT_MAX: Final = 65_535


class Place(NamedTuple):
    """Where a server listens."""

    address: str
    port: int

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.address}:{self.port}"


def place_of(text: str, option: str) -> Place:
    """`127.0.0.1:8444`; ConfigurationError for anything else."""
    address, colon, port = text.rpartition(":")
    if not colon or not address or not port.isdecimal() or int(port) > _PORT_MAX:
        raise ConfigurationError("command line", option, f"must be ADDRESS:PORT, such as 127.0.0.1:8444, not {text!r}")
    return Place(address, int(port))


def https_way(place: Place, tls: ssl.SSLContext | None, ready: Callable[[Place], None]) -> WayIn:
    """JSON orders, reports by WebSocket, and a page that describes them."""

    async def serve(desk: Desk) -> None:
        service = TradingService(desk)
        await serve_traders(service, tls, *place, ready=lambda port: ready(place._replace(port=port)))

    return serve


def fix_way(
    place: Place,
    tls: ssl.SSLContext | None,
    folder: Path,
    ready: Callable[[Place], None],
    *,
    comp_id: str = COMP_ID,
    cancels: bool = False,
) -> WayIn:
    """FIX 4.4; the numbers of its sessions are kept in a folder. `cancels`: orders end with their connection."""

    async def serve(desk: Desk) -> None:
        store = await asyncio.to_thread(_store, folder)
        door = OrdersDoor(desk, LoopTime().now, lambda _login, _comp_id: cancels)
        server = FixServer(comp_id, door, store, tls=tls)
        try:
            await server.start(*place)
            ready(place._replace(port=server.port))
            await asyncio.get_running_loop().create_future()
        finally:
            await server.stop()
            await store.close()

    return serve


def _store(folder: Path) -> SessionStore:
    """The file of all sessions. It is made once: made up again, it would begin everybody's numbers at 1."""
    mark = folder / _MARK
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = SessionStore(folder / _STORE, is_new=not mark.exists())
        mark.touch(mode=0o600)
    except OSError as error:
        raise ConfigurationError(str(folder), "fix", f"cannot be written: {error.strerror}") from None
    return store
