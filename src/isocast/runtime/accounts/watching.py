"""Reports by WebSocket: each one once and in order, for as long as the reader takes them.

Nothing waits here for a slow reader but what the connection's buffer holds: whoever takes nothing for too long is cut
off, and comes back with the number of the last report that it has. The framing is that of the library `websockets`,
used without its sockets, because the connection is one of the service's own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request as Handshake
from websockets.protocol import State
from websockets.server import ServerProtocol

from isocast.orders.desk import TradeReport
from isocast.orders.json_forms import report_fields
from isocast.runtime.net.http import Request

__all__ = ["PING_S", "TAKE_S", "Watcher"]

PING_S: Final = 20.0
TAKE_S: Final = 20.0
"""For which a reader may take nothing."""
_BUFFER_BYTES: Final = 1 << 16
"""Of reports on the way to a reader: some hundred."""
_SAID_BYTES_MAX: Final = 1_024
"""A reader has nothing to say but pongs and a farewell."""


class Watcher:
    """One reader of one account's reports."""

    def __init__(self, *, ping_s: float = PING_S, take_s: float = TAKE_S) -> None:
        """`ping_s` between two pings; `take_s` for which a reader may take nothing."""
        self.too_slow = False
        """Whether it was cut off for taking nothing."""
        self._ping_s = ping_s
        self._take_s = take_s
        self._protocol = ServerProtocol(max_size=_SAID_BYTES_MAX)
        self._heard = True
        """Since the last ping."""
        self._ending = asyncio.Event()
        self._farewell = CloseCode.GOING_AWAY, "the service ends"

    def accepts(self, request: Request) -> bool:
        """Whether a request is the handshake of a WebSocket, which is then answered first of all."""
        lines = [f"GET {request.path} HTTP/1.1", *[f"{name}: {value}" for name, value in request.headers.items()]]
        self._protocol.receive_data("\r\n".join([*lines, "", ""]).encode("ascii", "replace"))
        asked = [event for event in self._protocol.events_received() if isinstance(event, Handshake)]
        if not asked:
            return False
        response = self._protocol.accept(asked[0])
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            return False
        self._protocol.send_response(response)
        return True

    def end(self, reason: str) -> None:
        """Close it with a reason, once what is under way is written: the login that it has is none any more."""
        self._farewell = CloseCode.POLICY_VIOLATION, reason
        self._ending.set()

    async def attend(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        reports: AsyncIterator[TradeReport],
        may_stay: Callable[[], Awaitable[bool]],
    ) -> None:
        """Tell every report until the reader goes, is too slow, or may not stay any longer."""
        writer.transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        works = [
            asyncio.create_task(work)
            for work in (
                self._hear(reader, writer),
                self._tell(writer, reports),
                self._beat(writer, may_stay),
                self._ending.wait(),
            )
        ]
        try:
            await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for work in works:
                work.cancel()
            ended = await asyncio.gather(*works, return_exceptions=True)
            await self._part(writer)
        for error in ended:
            # Whoever is gone or too slow is no fault of the service; anything else is for its log.
            if isinstance(error, Exception) and not isinstance(error, OSError | TimeoutError):
                raise error

    async def _tell(self, writer: asyncio.StreamWriter, reports: AsyncIterator[TradeReport]) -> None:
        try:
            async for report in reports:
                self._protocol.send_text(json.dumps(report_fields(report)).encode())
                await self._flush(writer)
        finally:
            close = getattr(reports, "aclose", None)
            if close is not None:
                await close()

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while self._protocol.state is State.OPEN:
            data = await reader.read(_SAID_BYTES_MAX)
            if not data:
                return
            self._heard = True
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY):
                    self._farewell = CloseCode.POLICY_VIOLATION, "orders go by POST /v1/orders"
                    return
            await self._flush(writer)  # Pongs: who asks for them must take them.

    async def _beat(self, writer: asyncio.StreamWriter, may_stay: Callable[[], Awaitable[bool]]) -> None:
        while True:
            self._heard = False
            self._protocol.send_ping(b"")
            await self._flush(writer)
            await asyncio.sleep(self._ping_s)
            if not self._heard:
                self.too_slow = True
                return
            if not await may_stay():
                self._farewell = CloseCode.POLICY_VIOLATION, "this session has ended: log in again"
                return

    async def _flush(self, writer: asyncio.StreamWriter) -> None:
        for data in self._protocol.data_to_send():
            if data:
                writer.write(data)
        try:
            async with asyncio.timeout(self._take_s):
                await writer.drain()
        except TimeoutError:
            self.too_slow = True
            raise

    async def _part(self, writer: asyncio.StreamWriter) -> None:
        """Say why, if the reader still takes anything: a farewell would wait behind what it does not take."""
        if self.too_slow or writer.transport.is_closing():
            writer.transport.abort()
            return
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(*self._farewell)
        with suppress(OSError, TimeoutError):
            await self._flush(writer)
            async with asyncio.timeout(1):
                writer.close()
                await writer.wait_closed()
