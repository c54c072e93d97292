"""Small HTTP/1.1 servers, within bounds of size, time and number.

A connection serves one request, or one after the other where the bounds of a server allow that (`idle_seconds`). A
request may be taken over by something that is no HTTP any more, such as a WebSocket.

Status pages and the box office share an event loop with what matters more, so everything about a request is bounded:
its length, its time, and how many there are at once. Whoever dribbles bytes, connects and says nothing, or does not end
TLS gives way to the next one; whoever breaks a bound is counted, answered if that is cheap, and closed. A place is
taken when TCP connects, before TLS begins.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote

from isocast.runtime.net.lobby import Lobby
from isocast.runtime.watch.logs import get_log
from isocast.terms.errors import RemoteProtocolError, TransportError

__all__ = ["HEAD_BYTES_MAX", "Answer", "HttpBounds", "HttpServer", "RefusedRequestError", "Request", "Takeover"]

HEAD_BYTES_MAX = 8_192
"""Line and headers together: ten times what a browser sends here."""
_TARGET_MAX = 1_024
_HEADERS_MAX = 64
_LINGER_SECONDS = 1.0
_LINGER_BYTES_MAX = 65_536
"""What is still read from a client that has its answer."""
_REQUEST_PARTS = 3


@dataclass(frozen=True, slots=True)
class HttpBounds:
    """What one server allows."""

    request_seconds: float
    """To the last byte of a request; TLS has as long before it."""
    answer_seconds: float
    """To take the answer."""
    connections_max: int
    """That have not ended their request; as many again may be answered."""
    per_address_max: int
    """Of one address, whatever they do: it cannot take all places."""
    body_bytes_max: int = 0
    methods: tuple[str, ...] = ("GET",)
    idle_seconds: float = 0.0
    """How long a connection may wait for its next request; 0: it ends with its first. Whoever waits gives way."""


class RefusedRequestError(RemoteProtocolError):
    """A request that is not answered as it wished."""

    def __init__(self, status: HTTPStatus, reason: str, *headers: str) -> None:
        """`reason` is what the client reads; `headers` are further lines of the head."""
        super().__init__(reason)
        self.status = status
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets."""

    body: bytes = field(default=b"", repr=False)
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[str, ...] = ()
    """Further lines of the head."""
    parts: Iterator[bytes] = field(default_factory=lambda: iter(()), repr=False)
    """What follows the body, made part by part: others may run in between."""

    async def encoded(self, *, stays: bool = False) -> bytes:
        """All of it; the connection ends after it, unless it stays for another request."""
        body = self.body + await _joined(self.parts)
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(body)}",
            *self.headers,
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            f"Connection: {'keep-alive' if stays else 'close'}",
        ]
        return "".join(f"{line}\r\n" for line in lines).encode("ascii") + b"\r\n" + body


async def _joined(parts: Iterator[bytes]) -> bytes:
    """Everything, with a chance for others after each part."""
    made = []
    for part in parts:
        made.append(part)
        await asyncio.sleep(0)
    return b"".join(made)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, whole."""

    method: str
    path: str
    """Percent signs are decoded."""
    query: str
    headers: Mapping[str, str] = field(repr=False)
    """By name in small letters."""
    body: bytes = field(repr=False)
    address: str
    """Whose; proved by the handshake of TCP."""
    may_stay: bool = False
    """Whether the client would send another one on the same connection."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """Instead of an answer: the connection goes on as something else, such as a WebSocket."""

    attend: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    """Has the connection until it returns, and bounds what it does there itself."""


class _Reply(NamedTuple):
    """What a connection does next."""

    what: bytes | Takeover
    stays: bool = False


def _as_text(refused: RefusedRequestError) -> Answer:
    return Answer(f"{refused}\n".encode(), status=refused.status, headers=refused.headers)


class HttpServer:
    """Serves requests on one address until it is stopped."""

    def __init__(
        self,
        respond: Callable[[Request], Awaitable[Answer | Takeover]],
        bounds: HttpBounds,
        tls: ssl.SSLContext | None = None,
        *,
        counted: Callable[[bool], None] = lambda _: None,
        refuse: Callable[[RefusedRequestError], Answer] = _as_text,
        serves: str = "requests",
    ) -> None:
        """`respond` answers what was read; `counted` is told of each request whether it was answered.

        `refuse` words what is answered to a request that cannot be read; `serves` is what an error calls it.
        """
        self.port = 0
        """Where it listens, once it does."""
        self._respond = respond
        self._bounds = bounds
        self._tls = tls
        self._counted = counted
        self._refuse = refuse
        self._serves = serves
        self._lobby = Lobby(bounds.connections_max)
        self._answered = Lobby(2 * bounds.connections_max)
        """Connections that have all that they asked for, or could have."""
        self._open: dict[asyncio.Task[None], str] = {}
        """With the address that each one serves."""
        self._taken: dict[asyncio.Task[None], None] = {}
        """Connections that were taken over: they have no place among the requests."""
        self._server: asyncio.Server | None = None
        self._is_stopped = False

    @property
    def open(self) -> int:
        """Connections at this moment."""
        return len(self._open)

    async def start(self, address: str, port: int) -> None:
        """Listen; port 0 takes any that is free. TransportError where the machine refuses."""
        backlog = 2 * self._bounds.connections_max
        self._is_stopped = False
        try:
            self._server = await asyncio.start_server(
                self._accept, address, port, limit=HEAD_BYTES_MAX, backlog=backlog
            )
        except OSError as error:
            trouble = error.strerror or str(error)
            raise TransportError(f"cannot serve {self._serves} on {address}:{port}: {trouble}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything; requests that are under way, or come in at this moment, are cut off."""
        self._is_stopped = True
        if self._server is not None:
            self._server.close()
        tasks = [*self._open, *self._taken]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, peer = asyncio.current_task(), writer.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        if task is None or self._is_stopped or not address or self._is_crowded(address):
            self._counted(False)  # noqa: FBT003 - its only argument
            writer.transport.abort()
            return
        self._open[task] = address
        self._enter(task, address)
        try:
            # An ssl.SSLError is an OSError; whoever cancels needs the place, or waits for the end.
            with suppress(OSError, TimeoutError, asyncio.CancelledError):
                await self._start_tls(writer)
                reply = await self._answer(reader, address)
                while reply.stays and isinstance(reply.what, bytes):
                    self._answered.enter(task, address)
                    await self._write(reply.what, writer)
                    self._answered.leave(task)
                    self._enter(task, address)
                    begun = await self._begun(reader)
                    if not begun:
                        return
                    reply = await self._answer(reader, address, begun)
                self._lobby.leave(task)
                if isinstance(reply.what, Takeover):
                    self._open.pop(task, None)
                    self._taken[task] = None
                    await reply.what.attend(reader, writer)
                else:
                    self._answered.enter(task, address)
                    await self._send(reply.what, reader, writer)
        finally:
            self._open.pop(task, None)
            self._taken.pop(task, None)
            self._lobby.leave(task)
            self._answered.leave(task)
            writer.transport.abort()

    def _is_crowded(self, address: str) -> bool:
        if Counter(self._open.values())[address] >= self._bounds.per_address_max:
            return True
        if len(self._open) < 2 * self._bounds.connections_max:
            return False
        # Whoever asks, and takes no answer, holds a place as well as whoever asks nothing.
        return not self._gave_way(self._answered.end_one())

    def _enter(self, task: asyncio.Task[None], address: str) -> None:
        """Admit a connection; one without a complete request may have to give way to it."""
        if self._gave_way(self._lobby.enter(task, address)):
            self._counted(False)  # noqa: FBT003

    def _gave_way(self, ended: asyncio.Task[None] | None) -> bool:
        """Whether there was one: its place is free at once, though it has yet to unwind."""
        address = "" if ended is None else self._open.pop(ended, "")
        if ended is not None:
            get_log().warning("a connection gave way to another", address=address)
        return ended is not None

    async def _start_tls(self, writer: asyncio.StreamWriter) -> None:
        if self._tls is None:
            return
        try:
            async with asyncio.timeout(self._bounds.request_seconds):
                await writer.start_tls(self._tls, ssl_handshake_timeout=self._bounds.request_seconds)
        except (OSError, TimeoutError):
            self._counted(False)  # noqa: FBT003
            raise  # No TLS, or none that ended in time.

    async def _begun(self, reader: asyncio.StreamReader) -> bytes:
        """The first byte of the next request on a connection that stays; nothing if it ends, or waits too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._bounds.idle_seconds):
                return await reader.read(1)
        return b""

    async def _answer(self, reader: asyncio.StreamReader, address: str, begun: bytes = b"") -> _Reply:
        """What a request gets, counted as answered or refused; `begun` is what was read of it already."""
        try:
            reply = await self._wanted(reader, address, begun)
        except RefusedRequestError as refused:
            self._counted(False)  # noqa: FBT003
            return _Reply(await self._refuse(refused).encoded())
        except (OSError, TimeoutError):
            self._counted(False)  # noqa: FBT003
            raise
        self._counted(True)  # noqa: FBT003
        return reply

    async def _wanted(self, reader: asyncio.StreamReader, address: str, begun: bytes) -> _Reply:
        try:
            async with asyncio.timeout(self._bounds.request_seconds):
                request = await _read(reader, address, self._bounds, begun)
        except TimeoutError:
            raise RefusedRequestError(HTTPStatus.REQUEST_TIMEOUT, "the request took too long") from None
        task = asyncio.current_task()
        if task is not None:
            self._lobby.leave(task)  # It has said all that it wants.
        stays = request.may_stay and self._bounds.idle_seconds > 0
        try:
            answer = await self._respond(request)
            return _Reply(answer) if isinstance(answer, Takeover) else _Reply(await answer.encoded(stays=stays), stays)
        except RefusedRequestError:
            raise
        except Exception as error:  # Whatever is wrong with an answer must not end the service.
            get_log().error("a request failed", exc_info=error)
            raise RefusedRequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "this failed; the log says why") from error

    async def _write(self, answer: bytes, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._bounds.answer_seconds):
            writer.write(answer)
            await writer.drain()

    async def _send(self, answer: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send all of it, and close when the client has read it."""
        async with asyncio.timeout(self._bounds.answer_seconds):
            writer.write(answer)
            await writer.drain()
            if writer.can_write_eof():  # TLS has no end of one direction.
                writer.write_eof()
        # Closing while bytes of the client wait here would reset the connection and lose our answer.
        with suppress(asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                await reader.readexactly(_LINGER_BYTES_MAX)
        async with asyncio.timeout(_LINGER_SECONDS):
            writer.close()
            await writer.wait_closed()


async def _read(reader: asyncio.StreamReader, address: str, bounds: HttpBounds, begun: bytes) -> Request:
    try:
        head = begun + await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise RefusedRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long") from None
    except (asyncio.IncompleteReadError, OSError):
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the request ends before its headers do") from None
    method, path, query, headers = _parsed(head, bounds.methods)
    may_stay = b" HTTP/1.1\r\n" in head and headers.get("connection", "").lower() != "close"
    size = _body_size(method, headers, bounds.body_bytes_max)
    try:
        body = await reader.readexactly(size)
    except (asyncio.IncompleteReadError, OSError):
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the request ends before its body does") from None
    return Request(method, path, query, headers, body, address, may_stay)


def _parsed(head: bytes, methods: tuple[str, ...]) -> tuple[str, str, str, dict[str, str]]:
    first, *rows = head[:-4].split(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != _REQUEST_PARTS or not head.isascii() or parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1")
    method, target = parts[0].decode(), parts[1].decode()
    if method not in methods:
        allow = f"Allow: {', '.join(methods)}"
        raise RefusedRequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"only {' and '.join(methods)}", allow)
    if len(target) > _TARGET_MAX:
        raise RefusedRequestError(HTTPStatus.REQUEST_URI_TOO_LONG, "the address is too long")
    if not target.startswith("/"):
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the address is no path")
    path, _, query = target.partition("?")
    try:
        path = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the address is no text") from None
    if not path.isprintable() or not query.isprintable():
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the address has a control character: leave it out")
    return method, path, query, _headers(rows)


def _headers(rows: list[bytes]) -> dict[str, str]:
    if len(rows) > _HEADERS_MAX:
        raise RefusedRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "there are too many headers")
    headers: dict[str, str] = {}
    for row in rows:
        name, colon, value = row.decode().partition(":")
        lower = name.lower()
        if not colon or not name or name != name.strip() or lower in headers:
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "a header is malformed, or there twice")
        headers[lower] = value.strip(" \t")
        # No service behind this meets a NUL, which a database does not take, or an escape, which a terminal obeys.
        if not (lower + headers[lower].replace("\t", " ")).isprintable():
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "a header has a control character: send printable ASCII")
    return headers


def _body_size(method: str, headers: Mapping[str, str], most: int) -> int:
    if "transfer-encoding" in headers:
        raise RefusedRequestError(HTTPStatus.LENGTH_REQUIRED, "say the length of the body")
    text = headers.get("content-length", "0")
    if not text.isascii() or not text.isdigit():
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the length of the body is no number")
    size = int(text) if len(text) < 10 else HEAD_BYTES_MAX**2  # noqa: PLR2004 - no huge number is even read
    if method == "GET" and size:
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "a GET here has no body")
    if size > most:
        raise RefusedRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {most} bytes")
    return size
