"""FIX sessions that we begin: one connection to an acceptor, over TCP or TLS, whose numbers outlive it.

Who connects again, and when, is for whoever runs it: `connect` serves one connection and says why it ended.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from isocast.runtime.accounts.fix.connection import (
    READ_BYTES,
    Connection,
    FixBounds,
    LoopTime,
    Stream,
    TimeSource,
    Visitor,
)
from isocast.runtime.accounts.fix.messages import Field, Framer
from isocast.runtime.accounts.fix.session import Session
from isocast.runtime.accounts.fix.store import SessionName, SessionStore
from isocast.runtime.net.tls import is_this_machine, tls_trouble
from isocast.terms.errors import ConfigurationError, TransportError

__all__ = ["Acceptor", "FixInitiator"]

_LINGER_S: Final = 2.0
_LOGOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Acceptor:
    """Whom we connect to, and how."""

    host: str
    port: int
    ours: str
    """SenderCompID of what we send."""
    theirs: str
    tls: ssl.SSLContext | None = None
    heartbeat_s: int = 10
    credentials: Sequence[Field] = field(default=(), repr=False)
    """Further fields of our Logon, such as Username (553) and Password (554)."""

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.theirs} at {self.host}:{self.port}"


class FixInitiator:
    """One session with one acceptor; one connection at a time."""

    def __init__(
        self,
        acceptor: Acceptor,
        visitor: Visitor,
        store: SessionStore,
        takes: frozenset[str],
        *,
        bounds: FixBounds | None = None,
        times: TimeSource | None = None,
    ) -> None:
        """`takes` are the types of messages that the visitor is given. Away from this machine only with TLS."""
        if acceptor.tls is None and not is_this_machine(acceptor.host):
            rule = f"{acceptor.host} is not this machine, and orders and passwords travel there: TLS is needed"
            raise ConfigurationError("fix", "address", rule)
        self._acceptor = acceptor
        self._visitor = visitor
        self._store = store
        self._takes = takes
        self._bounds = bounds or FixBounds()
        self._times = times or LoopTime()
        self._connection: Connection | None = None

    @property
    def is_logged_on(self) -> bool:
        """Whether the acceptor has answered our Logon, and is here."""
        return self._connection is not None and self._connection.is_logged_on

    async def connect(self, *, resets: bool = False) -> str:
        """Serve one connection to its end, and say why it ended; TransportError where nobody takes it.

        With `resets` both sides begin again at 1, and what was kept for resending is forgotten.
        """
        acceptor = self._acceptor
        reader, writer = await self._opened()
        name = SessionName(self._visitor.account, acceptor.theirs, acceptor.ours)
        try:
            kept = await self._store.load(name)
            if kept is None:
                raise TransportError("the store has too many FIX sessions")
            stream = Stream(reader, writer, Framer(), [])
            connection = Connection(name, self._visitor, stream, self._store, self._bounds, self._times, self._takes)
            self._connection = connection
            begin = partial(
                Session.begin,
                heartbeat_s=acceptor.heartbeat_s,
                credentials=tuple(acceptor.credentials),
                resets=resets,
            )
            try:
                await connection.run(begin, kept)
            except asyncio.CancelledError:
                raise
            except (OSError, TimeoutError) as error:
                return str(error) or "timed out"
            return connection.reason or "the connection ended"
        finally:
            if self._connection is not None:
                self._connection.ended.set()
            self._connection = None
            await self._visitor.leave()
            await _closed(writer)

    async def log_out(self, text: str = "") -> None:
        """Say that we leave, if anybody is there; `connect` ends with the answer."""
        if self._connection is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOGOUT_S):
                    await self._connection.log_out(text)
                    await self._connection.ended.wait()

    async def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        acceptor = self._acceptor
        try:
            async with asyncio.timeout(self._bounds.logon_seconds):
                return await asyncio.open_connection(acceptor.host, acceptor.port, ssl=acceptor.tls, limit=READ_BYTES)
        except ssl.SSLError as error:
            raise TransportError(tls_trouble(str(acceptor), error)) from None
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer"
            raise TransportError(f"{acceptor}: {reason}") from None


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            await writer.wait_closed()
    writer.transport.abort()
