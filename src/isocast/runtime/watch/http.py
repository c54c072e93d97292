"""The status pages of a node: metrics, health and status.

GET only; no request has a body, and no answer says anything secret. Away from loopback pages speak TLS and ask for a
token (`Authorization: Bearer TOKEN`), which is compared in constant time; whoever has none learns nothing but that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hmac import compare_digest
from html import escape
from http import HTTPStatus
from typing import TypeAlias

from isocast.runtime.net.http import Answer, HttpBounds, HttpServer, RefusedRequestError, Request
from isocast.runtime.net.tls import ServerTls
from isocast.runtime.watch.counters import NodeCounters
from isocast.runtime.watch.metrics import CONTENT_TYPE
from isocast.runtime.watch.status import Monitor

__all__ = ["Pages", "StatusServer", "monitor_pages"]

_REQUEST_SECONDS = 2.0
"""Somebody who dribbles bytes holds a place no longer."""
_ANSWER_SECONDS = 5.0
_CONNECTIONS_MAX = 16
"""At once: some watchers and a scraper."""

Pages: TypeAlias = Mapping[str, Callable[[], Answer]]


def monitor_pages(monitor: Monitor) -> dict[str, Callable[[], Answer]]:
    """What a node serves, by path."""

    def index() -> Answer:
        who = monitor.identity
        links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in pages if path != "/")
        title = escape(f"{who.name}, {who.role.value}")
        body = f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1><ul>{links}</ul>\n"
        return Answer(body.encode(), "text/html; charset=utf-8")

    pages: dict[str, Callable[[], Answer]] = {
        "/": index,
        "/healthz": lambda: _verdict("healthy", monitor.unhealthy()),
        "/readyz": lambda: _verdict("ready", monitor.not_ready()),
        "/statusz": lambda: Answer(_json(monitor.status().as_json()), "application/json"),
        "/metrics": lambda: Answer(content_type=CONTENT_TYPE, parts=monitor.metrics.parts(detailed=False)),
        "/metrics/detail": lambda: Answer(content_type=CONTENT_TYPE, parts=monitor.metrics.parts(detailed=True)),
    }
    return pages


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _verdict(word: str, reasons: tuple[str, ...]) -> Answer:
    if not reasons:
        return Answer(f"{word}\n".encode())
    text = "".join(f"{reason}\n" for reason in reasons)
    return Answer(f"not {word}\n{text}".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)


class StatusServer:
    """Serves pages on one address until it is stopped."""

    def __init__(
        self,
        pages: Pages,
        counters: NodeCounters,
        *,
        request_seconds: float = _REQUEST_SECONDS,
        connections_max: int = _CONNECTIONS_MAX,
        tls: ServerTls | None = None,
        token: str = "",
    ) -> None:
        """`pages` make their answers when they are asked; `counters` are told of requests and refusals.

        With a `token`, only requests that show it are answered.
        """
        self._pages = pages
        self._counters = counters
        self._token = token.encode()
        # All watchers may come from one address.
        bounds = HttpBounds(request_seconds, _ANSWER_SECONDS, connections_max, per_address_max=2 * connections_max)
        context = None if tls is None else tls.context
        self._server = HttpServer(self._respond, bounds, context, counted=self._count, serves="status pages")

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        return self._server.port

    async def start(self, address: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes any that is free."""
        await self._server.start(address, port)

    async def stop(self) -> None:
        """Close everything; requests that are under way are cut off."""
        await self._server.stop()

    def _count(self, answered: bool) -> None:  # noqa: FBT001 - its only argument
        self._counters.http_requests += answered
        self._counters.http_refused += not answered

    async def _respond(self, request: Request) -> Answer:
        if self._token and not _shows(request, self._token):
            raise RefusedRequestError(HTTPStatus.UNAUTHORIZED, "not authorised", "WWW-Authenticate: Bearer")
        page = self._pages.get(request.path)
        if page is None:
            raise RefusedRequestError(HTTPStatus.NOT_FOUND, f"no such page; there are {' '.join(self._pages)}")
        return page()


def _shows(request: Request, token: bytes) -> bool:
    """Whether a request carries the token; how long the comparison takes says nothing about it."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return compare_digest(given.strip().encode() if scheme.lower() == "bearer" else b"", token)
