"""One trader's requests to a gateway's HTTPS service: who he is, and what is sent again after a lost connection.

A request that changes something carries a client id that is chosen once. When no answer comes it is sent again under
that id, for as long as patience lasts: the service does it once.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeAlias

from isocast.runtime.net.service_url import ServiceUrl, believing, plain, read_service_url
from isocast.terms.errors import (
    ConfigurationError,
    IsocastError,
    RemoteProtocolError,
    TraderLostError,
    TraderRefusedError,
    TransportError,
)

__all__ = ["Attempts", "TradingHttp"]

_ASK_S: Final = 40.0
"""For one attempt: longer than a service thinks."""
_HEAD_BYTES_MAX = 16_384
_ANSWER_BYTES_MAX = 4 << 20
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
_MESSAGE_BYTES_MAX = 1 << 16
_BUSY = (HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)


_IDLE_MAX = 4
"""Connections that are kept for the next request."""
_Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Unanswered(Exception):  # noqa: N818 - becomes an error only when patience ends
    """An attempt without an answer, or with one that asks for patience."""


class Attempts:
    """When to try again, and when to give up."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._ends: float | None = None
        self._wait_s = _FIRST_WAIT_S

    def connected(self) -> None:
        """Somebody is there: patience begins anew with the next failure."""
        self._ends = None

    def progressed(self) -> None:
        """Something came of it: the next wait is short again."""
        self._ends, self._wait_s = None, _FIRST_WAIT_S

    async def again(self) -> bool:
        """Wait a little; False when patience has ended."""
        now = asyncio.get_running_loop().time()
        if self._ends is None:
            self._ends = now + self._patience_s
        if now >= self._ends:
            return False
        await asyncio.sleep(min(self._wait_s, self._ends - now))
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
        return True


class TradingHttp:
    """Asks one service as one trader."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        name: str | None,
        password: str | None,
        ca: Path | None,
        patience_s: float,
    ) -> None:
        """A token, or a name with its password. ConfigurationError for a bad URL, or for both or neither."""
        if (token is None) is (name is None or password is None) or (token is not None and name is not None):
            rule = "give a token, or a name and a password"
            raise ConfigurationError("trader", "token", rule)
        if token is not None and (not token.isascii() or not token.isprintable() or not token or " " in token):
            raise ConfigurationError("trader", "token", "must be printable ASCII without spaces")
        self._where: ServiceUrl = read_service_url(url, "a trading service", "trader")
        self._tls = believing(ca) if self._where.is_tls else None
        self._token = token or ""
        self._credentials = None if name is None else {"name": name, "password": password}
        self._logging_in: asyncio.Lock | None = None
        self._patience_s = patience_s
        self._idle: list[_Connection] = []
        """That served a request, and may serve another."""

    @property
    def place(self) -> str:
        """Where the service is."""
        return self._where.place

    def attempts(self) -> Attempts:
        """At something that may be asked again for as long as patience lasts."""
        return Attempts(self._patience_s)

    # ---- requests

    async def get(self, path: str) -> dict[str, Any]:
        """What is at a path."""
        return await self._asked("GET", path, None, "")

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request with a client id; TraderLostError, which names it, if none comes in time."""
        return await self._asked("POST", path, body, str(body.get("client_id", "")))

    async def log_out(self) -> None:
        """End the session, if there is one, and all connections; what is not answered ends by itself."""
        if self._credentials is not None and self._token:
            token, self._token = self._token, ""
            with suppress(_Unanswered, IsocastError):
                await self._once("POST", "/v1/logout", {}, token)
        self.close()

    async def _asked(self, method: str, path: str, body: Mapping[str, Any] | None, client_id: str) -> dict[str, Any]:
        attempts, renewed = self.attempts(), False
        while True:
            token = ""
            try:
                token = await self._current_token()
                return await self._once(method, path, body, token)
            except _Unanswered as reason:
                trouble = str(reason)
            except TraderRefusedError as refused:
                if refused.reason == "unauthorised" and self._credentials is not None and not renewed and token:
                    renewed = True  # The session ended, or the service was started anew.
                    self._forget(token)
                    continue
                raise
            if not await attempts.again():
                raise self._lost(client_id, trouble)

    def _lost(self, client_id: str, trouble: str) -> TransportError:
        what = f"no answer from the trading service at {self.place}: {trouble}"
        if not client_id:
            return TransportError(what)
        advice = f"whether it was done is not known: ask again under the client id {client_id}, and it is done once"
        return TraderLostError(client_id, f"{what}; {advice}")

    async def _current_token(self) -> str:
        if self._credentials is None or self._token:
            return self._token
        if self._logging_in is None:
            self._logging_in = asyncio.Lock()
        async with self._logging_in:
            if not self._token:
                said = await self._once("POST", "/v1/login", self._credentials, "")
                if not isinstance(said.get("token"), str):
                    raise RemoteProtocolError(f"what answers at {self.place} is no trading service")
                self._token = said["token"]
        return self._token

    def _forget(self, token: str) -> None:
        if self._token == token:
            self._token = ""

    async def _once(self, method: str, path: str, body: Mapping[str, Any] | None, token: str) -> dict[str, Any]:
        """One attempt: its answer, TraderRefusedError, or _Unanswered."""
        try:
            async with asyncio.timeout(_ASK_S):
                status, raw = await self._exchanged(method, path, body, token)
        except ssl.SSLCertVerificationError as error:
            raise TransportError(self._unbelieved(error)) from None
        except asyncio.LimitOverrunError:
            raise RemoteProtocolError(f"what answers at {self.place} is no trading service") from None
        except asyncio.IncompleteReadError:
            raise _Unanswered("the connection ended too early") from None
        except TimeoutError:
            raise _Unanswered("it takes too long") from None
        except OSError as error:
            raise _Unanswered(error.strerror or type(error).__name__) from None
        if status == HTTPStatus.OK:
            return self._object(raw)
        refused = _refusal(raw)
        if status in _BUSY:
            raise _Unanswered(str(refused))
        raise refused

    def _unbelieved(self, error: ssl.SSLCertVerificationError) -> str:
        rule = f"{self.place} has no certificate that is believed ({error.verify_message})"
        return f"{rule}: give the market's CA as `ca`, or by --ca"

    def _object(self, raw: bytes) -> dict[str, Any]:
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise RemoteProtocolError(f"what answers at {self.place} is no trading service")
        return found

    async def _exchanged(self, method: str, path: str, body: Mapping[str, Any] | None, token: str) -> tuple[int, bytes]:
        where, raw = self._where, b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {where.place}", f"Content-Length: {len(raw)}"]
        lines += ["Content-Type: application/json"] if body is not None else []
        lines += [f"Authorization: Bearer {token}"] if token else []
        request = "\r\n".join([*lines, "", ""]).encode("ascii") + raw
        while self._idle:
            connection = self._idle.pop()
            with suppress(OSError, asyncio.IncompleteReadError):  # It ended while nobody used it: take another one.
                return await self._exchanged_on(connection, request)
        connection = await asyncio.open_connection(where.host, where.number, ssl=self._tls, limit=_HEAD_BYTES_MAX)
        return await self._exchanged_on(connection, request)

    async def _exchanged_on(self, connection: _Connection, request: bytes) -> tuple[int, bytes]:
        reader, writer = connection
        stays = False
        try:
            writer.write(request)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            status, size = _head(head, self.place)
            body = await reader.readexactly(size)
            stays = b"\r\nconnection: keep-alive\r\n" in head.lower() and len(self._idle) < _IDLE_MAX
            return status, body
        finally:
            if stays:
                self._idle.append(connection)
            else:
                writer.transport.abort()

    def close(self) -> None:
        """End the connections that wait for another request."""
        while self._idle:
            _, writer = self._idle.pop()
            writer.transport.abort()

    # ---- reports

    async def watch(self, after: int) -> AsyncGenerator[dict[str, Any], None]:
        """Every report after a number, in order, each once; reconnects by itself and goes on where it was."""
        attempts, renewed = self.attempts(), False
        while True:
            token = ""
            try:
                token = await self._current_token()
                async with aclosing(self._stream(after, token, attempts)) as stream:
                    async for said in stream:
                        if self._follows(said, after):
                            after += 1
                            attempts.progressed()
                            renewed = False
                            yield said
                trouble = "the connection ended"
            except _Unanswered as reason:
                trouble = str(reason)
            except TraderRefusedError as refused:
                if refused.reason != "unauthorised" or self._credentials is None or renewed or not token:
                    raise
                renewed, trouble = True, str(refused)
                self._forget(token)
            if not await attempts.again():
                raise self._lost("", trouble)

    def _follows(self, said: Mapping[str, Any], after: int) -> bool:
        """Whether a report is the next one; False for one that was told before."""
        number = said.get("number")
        if not isinstance(number, int) or number > after + 1:
            raise RemoteProtocolError(f"the trading service at {self.place} left out report {after + 1}")
        return number == after + 1

    async def _stream(self, after: int, token: str, attempts: Attempts) -> AsyncGenerator[dict[str, Any], None]:
        """The messages of one connection."""
        try:
            from websockets.asyncio.client import connect  # noqa: PLC0415 - of an extra
            from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException  # noqa: PLC0415
        except ImportError:
            rule = "reports come by WebSocket, which needs an extra: pip install 'isocast[websocket]'"
            raise ConfigurationError("trader", "reports", rule) from None
        scheme = "ws" if self._tls is None else "wss"
        uri = f"{scheme}://{self.place}/v1/watch?after={after}"
        try:
            async with connect(
                uri,
                ssl=self._tls,
                additional_headers={"Authorization": f"Bearer {token}"},
                compression=None,
                proxy=None,
                max_size=_MESSAGE_BYTES_MAX,
                close_timeout=1,
            ) as connection:
                attempts.connected()
                async for message in connection:
                    yield self._object(message.encode() if isinstance(message, str) else message)
        except InvalidStatus as error:
            refused = _refusal(bytes(error.response.body or b""))
            if error.response.status_code in _BUSY:
                raise _Unanswered(str(refused)) from None
            raise refused from None
        except ssl.SSLCertVerificationError as error:
            raise TransportError(self._unbelieved(error)) from None
        except ConnectionClosed as error:
            raise _Unanswered(plain(str(error))) from None
        except (OSError, TimeoutError, WebSocketException) as error:
            raise _Unanswered(getattr(error, "strerror", None) or type(error).__name__) from None


def _head(head: bytes, place: str) -> tuple[int, int]:
    """The status of an answer, and the length of its body."""
    first, *rows = head[:-4].split(b"\r\n")
    parts = first.split(b" ", 2)
    sizes = [row.partition(b":")[2].strip() for row in rows if row.lower().startswith(b"content-length:")]
    sound = len(parts) > 1 and first.startswith(b"HTTP/1.") and parts[1].isdigit() and len(parts[1]) == 3  # noqa: PLR2004
    if not sound or len(sizes) != 1 or not sizes[0].isdigit() or len(sizes[0]) > 9:  # noqa: PLR2004 - digits
        raise RemoteProtocolError(f"what answers at {place} is no trading service")
    size = int(sizes[0])
    if size > _ANSWER_BYTES_MAX:
        raise RemoteProtocolError(f"the answer of {place} is too long")
    return int(parts[1]), size


def _refusal(raw: bytes) -> TraderRefusedError:
    try:
        said = json.loads(raw)["error"]
        return TraderRefusedError(plain(str(said["reason"])), plain(str(said["message"])), plain(said["field"] or ""))
    except (ValueError, KeyError, TypeError, RecursionError):
        text = plain(raw[:200].decode(errors="replace").strip()) or "refused without a word"
        return TraderRefusedError("refused", text)
