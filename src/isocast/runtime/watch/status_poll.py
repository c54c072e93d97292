"""Asking nodes for their status, all at once; whatever comes back is checked before it is shown."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from isocast.runtime.watch.status import NodeStatus
from isocast.terms.errors import RemoteProtocolError

__all__ = ["Answer", "Target", "poll", "status_from_json"]

_ANSWER_BYTES_MAX = 1 << 20
"""A status has some tens of kilobytes."""
_TEXT_MAX = 400
_ITEMS_MAX = 4_096
_NUMBER_MAX = 1 << 64
_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Target:
    """A node to ask: where it answers, and what the market's file says of it if there is one."""

    host: str
    port: int
    name: str = ""
    role: str = ""
    city: str = ""
    may_be_away: bool = False
    """A place that is kept for a program: nobody need be there, and a program that listens serves no status."""

    @property
    def title(self) -> str:
        """How to call it before it has spoken."""
        return self.name or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node said, or why it did not."""

    target: Target
    status: NodeStatus | None
    trouble: str = ""


async def poll(targets: Sequence[Target], *, seconds: float = _SECONDS) -> list[Answer]:
    """Ask everybody at once; whoever is not done after `seconds` is unreachable."""
    return list(await asyncio.gather(*[_ask(target, seconds) for target in targets]))


async def _ask(target: Target, seconds: float) -> Answer:
    try:
        async with asyncio.timeout(seconds):
            body = await _get(target)
        return Answer(target, status_from_json(json.loads(body)))
    except TimeoutError:
        return Answer(target, None, f"no answer within {seconds:g} s")
    except OSError as error:
        code = error.errno or 0
        # The event loop puts the address into its words, which the reader has already; a resolver has words of its own.
        return Answer(target, None, os.strerror(code) if code > 0 else _plain(error.strerror or str(error)))
    except (RemoteProtocolError, ValueError, RecursionError) as error:
        return Answer(target, None, f"not a status: {_plain(str(error))}")


async def _get(target: Target) -> bytes:
    """The body of /statusz."""
    reader, writer = await asyncio.open_connection(target.host, target.port)
    try:
        writer.write(f"GET /statusz HTTP/1.1\r\nHost: {target.host}\r\nConnection: close\r\n\r\n".encode("ascii"))
        chunks: list[bytes] = []
        size = 0
        while chunk := await reader.read(65_536):
            size += len(chunk)
            if size > _ANSWER_BYTES_MAX:
                raise RemoteProtocolError("the answer is too long")
            chunks.append(chunk)
    finally:
        writer.transport.abort()
    head, end, body = b"".join(chunks).partition(b"\r\n\r\n")
    if not end or not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 ")):
        line = head.partition(b"\r\n")[0].decode("ascii", "replace")
        raise RemoteProtocolError(line or "the connection was closed")
    return body


# From JSON ----------------------------------------------------------------------------------------


def status_from_json(value: object) -> NodeStatus:
    """A status of any near version: unknown keys are passed over, those with a default may be missing."""
    status = _decoded(NodeStatus, value, "status")
    if not isinstance(status, NodeStatus):
        raise RemoteProtocolError("status: is not an object")
    return status


@lru_cache
def _hints(shape: type) -> Mapping[str, Any]:
    return get_type_hints(shape)


def _decoded(hint: Any, value: object, where: str) -> object:  # noqa: ANN401  # A type as annotations write it.
    """`value` as `hint` wants it, or a RemoteProtocolError that says where it is not."""
    if get_origin(hint) is UnionType:
        if value is None and NoneType in get_args(hint):
            return None
        return _decoded(next(part for part in get_args(hint) if part is not NoneType), value, where)
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return _object(hint, value, where)
    if get_origin(hint) is tuple and isinstance(value, list) and len(value) <= _ITEMS_MAX:
        item = get_args(hint)[0]
        return tuple([_decoded(item, part, f"{where}[{place}]") for place, part in enumerate(value)])
    if get_origin(hint) is dict and isinstance(value, dict) and len(value) <= _ITEMS_MAX:
        item = get_args(hint)[1]
        return {_plain(str(name)): _decoded(item, part, f"{where}.{name}") for name, part in value.items()}
    if hint is str and isinstance(value, str):
        return _plain(value)
    if hint is bool and isinstance(value, bool):
        return value
    if hint is int and isinstance(value, int) and not isinstance(value, bool) and abs(value) < _NUMBER_MAX:
        return value
    # The comparison is False for "not a number", too.
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _NUMBER_MAX:
        return float(value)
    raise RemoteProtocolError(f"{where}: a value of the wrong kind")


def _object(shape: type, value: Mapping[str, object], where: str) -> object:
    hints = _hints(shape)
    given: dict[str, object] = {}
    for field in fields(shape):
        if field.name in value:
            given[field.name] = _decoded(hints[field.name], value[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise RemoteProtocolError(f"{where}.{field.name}: is missing")
    return shape(**given)


def _plain(text: str) -> str:
    """Printable and short: a terminal obeys what it is shown."""
    return "".join([letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:_TEXT_MAX]])
