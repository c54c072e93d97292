"""Hostile bytes for both ends of the box office's HTTP: heads of requests, and what an office answers to a customer."""

from __future__ import annotations

from collections.abc import Callable

from isocast.runtime.box_office import client
from isocast.runtime.box_office.running import BOUNDS
from isocast.runtime.net import http

__all__ = ["REQUEST_WAYS", "request_seeds"]


def _head(data: bytes) -> None:
    """RefusedRequestError is a RemoteProtocolError."""
    method, path, _, headers = http._parsed(data + b"\r\n\r\n", BOUNDS.methods)  # noqa: SLF001
    assert method in BOUNDS.methods
    assert path.startswith("/")
    assert all(name == name.lower().strip() for name in headers)
    assert 0 <= http._body_size(method, headers, BOUNDS.body_bytes_max) <= BOUNDS.body_bytes_max  # noqa: SLF001


def _refusal(data: bytes) -> None:
    """Whatever an office says, a customer's terminal shows it and does not obey it."""
    assert str(client._refusal(data)).isprintable()  # noqa: SLF001


REQUEST_WAYS: tuple[Callable[[bytes], None], ...] = (_head, _refusal)


def request_seeds() -> list[tuple[Callable[[bytes], None], bytes]]:
    """Inputs that are accepted."""
    head = b"POST /v1/orders?x=%41 HTTP/1.1\r\nHost: office.example\r\nContent-Length: 12\r\nIdempotency-Key: k1"
    return [(_head, head), (_refusal, b'{"error": "declined", "message": "no"}'), (_refusal, b"\x1b[2J no JSON")]
