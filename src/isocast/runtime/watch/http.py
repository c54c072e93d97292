"""The small HTTP server of a node: metrics, health and status, for one request on each connection.

It shares the event loop with the protocol, so everything about a request is bounded: its length, its time, and how many
there are at once. Whoever breaks a bound is counted, answered if that is cheap, and closed. GET only; no request has a
body, and no answer says anything secret.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import TypeAlias

from isocast.runtime.watch.counters import NodeCounters
from isocast.runtime.watch.logs import get_log
from isocast.runtime.watch.metrics import CONTENT_TYPE
from isocast.runtime.watch.status import Monitor
from isocast.terms.errors import RemoteProtocolError, TransportError

__all__ = ["REQUEST_BYTES_MAX", "Reply", "StatusServer", "monitor_pages"]

REQUEST_BYTES_MAX = 8_192
"""Line and headers together: ten times what a browser sends here."""
_REQUEST_SECONDS = 2.0
"""From the connection to its last header; somebody who dribbles bytes holds a place no longer."""
_ANSWER_SECONDS = 5.0
"""To take the answer."""
_LINGER_SECONDS = 1.0
_LINGER_BYTES_MAX = 65_536
"""What is still read from a client that has its answer."""
_CONNECTIONS_MAX = 16
"""At once: some watchers and a scraper. The next one is closed unheard."""
_TARGET_MAX = 256

_TEXT = "text/plain; charset=utf-8"
_REQUEST_PARTS = 3


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer before it is bytes; its body at once, or in parts between which others may run."""

    body: bytes | Iterator[bytes]
    content_type: str = _TEXT
    status: HTTPStatus = HTTPStatus.OK

    async def encoded(self) -> bytes:
        """The whole answer; the connection ends after it."""
        body = self.body if isinstance(self.body, bytes) else await _joined(self.body)
        allow = "Allow: GET\r\n" if self.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"{allow}"
            "Cache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode("ascii") + body


async def _joined(parts: Iterator[bytes]) -> bytes:
    """Everything, with a chance for the protocol after each part."""
    made = []
    for part in parts:
        made.append(part)
        await asyncio.sleep(0)
    return b"".join(made)


Pages: TypeAlias = Mapping[str, Callable[[], Reply]]


class _RefusedError(RemoteProtocolError):
    """A request that is not answered as it wished."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def monitor_pages(monitor: Monitor) -> dict[str, Callable[[], Reply]]:
    """What a node serves, by path."""

    def index() -> Reply:
        who = monitor.identity
        links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in pages if path != "/")
        title = escape(f"{who.name}, {who.role.value}")
        body = f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1><ul>{links}</ul>\n"
        return Reply(body.encode(), "text/html; charset=utf-8")

    pages: dict[str, Callable[[], Reply]] = {
        "/": index,
        "/healthz": lambda: _verdict("healthy", monitor.unhealthy()),
        "/readyz": lambda: _verdict("ready", monitor.not_ready()),
        "/statusz": lambda: Reply(_json(monitor.status().as_json()), "application/json"),
        "/metrics": lambda: Reply(monitor.metrics.parts(detailed=False), CONTENT_TYPE),
        "/metrics/detail": lambda: Reply(monitor.metrics.parts(detailed=True), CONTENT_TYPE),
    }
    return pages


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _verdict(word: str, reasons: tuple[str, ...]) -> Reply:
    if not reasons:
        return Reply(f"{word}\n".encode())
    text = "".join(f"{reason}\n" for reason in reasons)
    return Reply(f"not {word}\n{text}".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)


class StatusServer:
    """Serves pages on one address until it is stopped."""

    def __init__(
        self,
        pages: Pages,
        counters: NodeCounters,
        *,
        request_seconds: float = _REQUEST_SECONDS,
        connections_max: int = _CONNECTIONS_MAX,
    ) -> None:
        """`pages` make their answers when they are asked; `counters` are told of requests and refusals."""
        self.port = 0
        """Where it listens, once it does."""
        self._pages = pages
        self._counters = counters
        self._request_seconds = request_seconds
        self._connections_max = connections_max
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, address: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes any that is free."""
        try:
            self._server = await asyncio.start_server(
                self._accept, address, port, limit=REQUEST_BYTES_MAX, backlog=2 * self._connections_max
            )
        except OSError as error:
            trouble = error.strerror or str(error)
            raise TransportError(f"cannot serve status pages on {address}:{port}: {trouble}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything; requests that are under way are cut off."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._open) >= self._connections_max:
            self._counters.http_refused += 1
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            answer = await self._answer(reader)
            with suppress(OSError, TimeoutError):  # Whoever does not want his answer is counted already.
                await _send(answer, reader, writer)
        finally:
            self._open.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        """What a request gets, counted as answered or refused."""
        try:
            answer = await self._wanted(reader)
        except _RefusedError as refused:
            self._counters.http_refused += 1
            return await Reply(f"{refused}\n".encode(), status=refused.status).encoded()
        self._counters.http_requests += 1
        return answer

    async def _wanted(self, reader: asyncio.StreamReader) -> bytes:
        try:
            async with asyncio.timeout(self._request_seconds):
                request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long") from None
        except TimeoutError:
            raise _RefusedError(HTTPStatus.REQUEST_TIMEOUT, "the request took too long") from None
        except (asyncio.IncompleteReadError, OSError):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "the request ends before its headers do") from None
        page = self._pages.get(_path_of(request))
        if page is None:
            raise _RefusedError(HTTPStatus.NOT_FOUND, f"no such page; there are {' '.join(self._pages)}")
        try:
            return await page().encoded()
        except Exception as error:  # Whatever is wrong with a page must not reach the protocol.
            get_log().error("status page failed", exc_info=error)
            raise _RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, "the page failed; the log says why") from error


async def _send(answer: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send all of it, and close when the client has read it."""
    async with asyncio.timeout(_ANSWER_SECONDS):
        writer.write(answer)
        await writer.drain()
        writer.write_eof()
    # Closing while bytes of the client wait here would reset the connection and lose our answer.
    with suppress(asyncio.IncompleteReadError):
        async with asyncio.timeout(_LINGER_SECONDS):
            await reader.readexactly(_LINGER_BYTES_MAX)


def _path_of(request: bytes) -> str:
    """The path of a GET without a body; everything else is refused."""
    head, *fields = request[:-4].split(b"\r\n")
    parts = head.split(b" ")
    if len(parts) != _REQUEST_PARTS or not head.isascii() or parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1")
    method, target, _ = parts
    if method != b"GET":
        raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET")
    if len(target) > _TARGET_MAX:
        raise _RefusedError(HTTPStatus.REQUEST_URI_TOO_LONG, "the address is too long")
    for field in fields:
        name, colon, value = field.partition(b":")
        if not colon or not name or name != name.strip():
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "a header is malformed")
        lower = name.lower()
        if lower == b"transfer-encoding" or (lower == b"content-length" and value.strip() != b"0"):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "a request here has no body")
    return target.partition(b"?")[0].decode("ascii")
