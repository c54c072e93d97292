"""FIX sessions over TCP or TLS: who may connect, one live connection for each session, durable before sent.

A stranger gets no byte: a first message that is no good Logon, an unknown name, a wrong password and a session that is
live already all end in a closed connection, and our log alone says why. What is behind a session is an `Application`:
it admits whoever logs on, answers messages, and tells reports.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from isocast.runtime.accounts.fix.connection import (
    ENDING_S,
    READ_BYTES,
    Connection,
    FixBounds,
    LoopTime,
    SessionState,
    Stream,
    TimeSource,
    Visitor,
)
from isocast.runtime.accounts.fix.messages import Framer, Message, decode
from isocast.runtime.accounts.fix.session import Session, logon_fault
from isocast.runtime.accounts.fix.store import SessionName, SessionStore
from isocast.runtime.net.lobby import Lobby
from isocast.runtime.net.tls import is_this_machine
from isocast.runtime.watch.logs import get_log
from isocast.terms.errors import ConfigurationError, IsocastError, TransportError

__all__ = ["Application", "FixServer", "Guest"]

_LINGER_S: Final = 2.0


class Guest(Visitor, Protocol):
    """Whoever was admitted."""

    async def newest_report(self) -> int:
        """Of the account: a session under a new CompID hears what comes after it."""

    async def until_ended(self) -> str:
        """Why the session must end, once it must: whatever let it in does so no more."""


class Application(Protocol):
    """Who is behind the server."""

    async def admit(self, logon: Message, address: str, *, is_private: bool) -> Guest | None:
        """Whoever logs on; None, late and without a reason, if not. `is_private`: nobody else reads the password."""


class FixServer:
    """Listens on one address."""

    def __init__(
        self,
        comp_id: str,
        application: Application,
        store: SessionStore,
        *,
        tls: ssl.SSLContext | None = None,
        bounds: FixBounds | None = None,
        times: TimeSource | None = None,
    ) -> None:
        """`comp_id` is ours, as others write it into TargetCompID."""
        self.port = 0
        self.refused = 0
        self._comp_id = comp_id
        self._application = application
        self._store = store
        self._tls = tls
        self.bounds = bounds or FixBounds()
        self._times = times or LoopTime()
        self._lobby = Lobby(self.bounds.half_open_max)
        self._open: dict[asyncio.Task[None], str] = {}
        self._live: dict[SessionName, Connection] = {}
        self._server: asyncio.Server | None = None
        self._is_stopped = False

    @property
    def live(self) -> int:
        """Sessions that are logged on."""
        return len(self._live)

    @property
    def open(self) -> int:
        """Connections at this moment."""
        return len(self._open)

    def sessions(self) -> list[SessionState]:
        """Where each session that is logged on stands."""
        return [connection.state for connection in self._live.values()]

    async def start(self, address: str, port: int) -> None:
        """Listen; port 0 takes any that is free. Away from loopback only with TLS, because passwords travel here."""
        if self._tls is None and not is_this_machine(address):
            rule = f"{address} is not loopback, and a Logon has a password in it: give it a certificate"
            raise ConfigurationError("fix", "address", rule)
        self._is_stopped = False
        try:
            self._server = await asyncio.start_server(self._enter, address, port, limit=READ_BYTES)
        except OSError as error:
            trouble = error.strerror or str(error)
            raise TransportError(f"cannot serve FIX on {address}:{port}: {trouble}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self, text: str = "the gateway stops") -> None:
        """Log everybody out, wait for their answers a moment, and close."""
        self._is_stopped = True
        if self._server is not None:
            self._server.close()
        live = list(self._live.values())
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                await asyncio.gather(*(connection.log_out(text) for connection in live))
                await asyncio.gather(*(connection.ended.wait() for connection in live))
        await self.cut()

    async def cut(self) -> None:
        """Close all connections without a word."""
        self._is_stopped = True
        if self._server is not None:
            self._server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, peer = asyncio.current_task(), writer.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        if task is None or self._is_stopped or not address or self._is_crowded(address):
            self.refused += 1
            writer.transport.abort()
            return
        self._open[task] = address
        ended = self._lobby.enter(task, address)
        if ended is not None:
            theirs = self._open.pop(ended, "")  # Its place is free at once, though it has yet to unwind.
            self.refused += 1
            get_log().warning("a FIX connection gave way to another", address=theirs)
        try:
            # Whoever cancels needs the place, or waits for the end.
            with suppress(asyncio.CancelledError):
                await self._serve(reader, writer, address, task)
        except (IsocastError, OSError, TimeoutError) as error:
            get_log().warning("a FIX connection ended", address=address, reason=str(error) or "timed out")
        except Exception as error:  # noqa: BLE001 - one connection that fails is not the service's end.
            get_log().error("a FIX connection failed", address=address, exc_info=error)
        finally:
            self._open.pop(task, None)
            self._lobby.leave(task)
            await _closed(writer)

    def _is_crowded(self, address: str) -> bool:
        places = self.bounds.sessions_max + self.bounds.half_open_max
        return len(self._open) >= places or Counter(self._open.values())[address] >= self.bounds.per_address_max

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, task: asyncio.Task[None]
    ) -> None:
        framer = Framer()
        async with asyncio.timeout(self.bounds.logon_seconds):
            if self._tls is not None:
                await writer.start_tls(self._tls, ssl_handshake_timeout=self.bounds.logon_seconds)
            frames = await self._first_frames(reader, framer)
            logon = decode(frames[0]) if frames else None
            trouble = logon_fault(logon, self._comp_id, self._times.now()) if frames else "no Logon"
        visitor = None
        if logon is not None and trouble is None:
            is_private = self._tls is not None or is_this_machine(address)
            async with asyncio.timeout(self.bounds.admit_seconds):
                visitor = await self._application.admit(logon, address, is_private=is_private)
        if logon is None or visitor is None:
            self.refused += 1
            get_log().warning("a FIX Logon was refused", address=address, reason=trouble or "not admitted")
            return
        self._lobby.leave(task)
        await self._run(logon, visitor, Stream(reader, writer, framer, frames[1:]))

    async def _first_frames(self, reader: asyncio.StreamReader, framer: Framer) -> list[bytes]:
        read = 0
        while read < self.bounds.logon_bytes_max:
            data = await reader.read(self.bounds.logon_bytes_max - read)
            if not data:
                break
            read += len(data)
            if frames := framer.feed(data):
                return frames
        return []

    async def _run(self, logon: Message, visitor: Guest, stream: Stream) -> None:
        """One connection of a session, from its Logon to its end."""
        connection: Connection | None = None
        name = SessionName(visitor.account, logon.first[49], self._comp_id)
        try:
            await self._ended(name)
            if name in self._live or len(self._live) >= self.bounds.sessions_max or self._is_stopped:
                self.refused += 1
                get_log().warning("a FIX session is live already", theirs=name.theirs)
                return
            connection = self._live[name] = Connection(name, visitor, stream, self._store, self.bounds, self._times)
            kept = await self._store.load(name, await visitor.newest_report())
            if kept is None:
                get_log().warning("an account has too many FIX sessions", account=name.account)
                return
            ending = asyncio.create_task(_logged_out(visitor, connection))
            try:
                await connection.run(partial(Session.log_on, message=logon), kept)
            finally:
                ending.cancel()
        finally:
            try:
                await visitor.leave()
            finally:
                if connection is not None:
                    self._live.pop(name, None)
                    connection.ended.set()

    async def _ended(self, name: SessionName) -> None:
        """A connection that is about to end makes room for the next."""
        before = self._live.get(name)
        if before is not None and before.is_ending:
            with suppress(TimeoutError):
                async with asyncio.timeout(ENDING_S):
                    await before.ended.wait()


async def _logged_out(visitor: Guest, connection: Connection) -> None:
    reason = await visitor.until_ended()
    get_log().warning("a FIX session must end", theirs=connection.state.name.theirs, reason=reason)
    await connection.log_out(reason)


async def _closed(writer: asyncio.StreamWriter) -> None:
    """The other side may take what was sent last; not for ever."""
    writer.close()
    with suppress(OSError, TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(_LINGER_S):
            await writer.wait_closed()
    writer.transport.abort()
