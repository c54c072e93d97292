"""A trading service on loopback, with TLS and a desk in memory, for tests of every way in."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.runtime.accounts.memory_desk import MemoryDesk
from tests.runtime.box_office.certificates import make_certificates

from isocast.orders.desk import Desk
from isocast.runtime.accounts.web import TradingService, serve_traders

__all__ = ["API_TOKEN", "LIMIT_S", "Stage", "on_stage", "server_context"]

API_TOKEN = "token-Ada"  # noqa: S105 - of a desk in memory
LIMIT_S = 60.0
"""A machine may stall: whatever is waited for is given up after that."""


def server_context(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A CA, and the TLS of a server with a certificate of it."""
    ca, certificate, key = make_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    return ca, context


@dataclass
class Stage:
    """A service that runs, and whoever asks it."""

    desk: Any
    service: TradingService
    ca: Path
    port: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def client_tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    async def exchange(self, raw: bytes) -> bytes:
        """Whatever bytes, over TLS: all that is answered."""
        async with asyncio.timeout(LIMIT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.client_tls)
            try:
                writer.write(raw)
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(int(row[15:]) for row in head.split(b"\r\n") if row.startswith(b"Content-Length:"))
                return head + await reader.readexactly(size)
            finally:
                writer.transport.abort()

    async def ask(self, method: str, path: str, body: object = None, token: str = API_TOKEN) -> tuple[int, Any]:
        """One request: its status, and what is said."""
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(raw)}"]
        lines += [f"Authorization: Bearer {token}"] if token else []
        answer = await self.exchange("\r\n".join([*lines, "", ""]).encode() + raw)
        head, _, said = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), json.loads(said) if b"application/json" in head else said

    async def order(self, client_id: str, token: str = API_TOKEN, **fields: object) -> tuple[int, Any]:
        """An order to buy 100 ISO at 10.05, but for what is given."""
        body = {"client_id": client_id, "symbol": "ISO", "side": "buy", "quantity": 100, "price": "10.05", **fields}
        return await self.ask("POST", "/v1/orders", body, token)


@asynccontextmanager
async def on_stage(
    folder: Path, desk: Desk | None = None, port: int = 0, *, ping_s: float = 20.0, take_s: float = 20.0
) -> AsyncIterator[Stage]:
    """A service that serves while the block lasts."""
    desk = desk or MemoryDesk()
    service = TradingService(desk, ping_s=ping_s, take_s=take_s)
    ca, context = server_context(folder)
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_traders(service, context, "127.0.0.1", port, ready.set_result))
    try:
        serving.add_done_callback(lambda _: ready.done() or ready.cancel())
        async with asyncio.timeout(LIMIT_S):
            found = await ready
        yield Stage(desk, service, ca, found)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
