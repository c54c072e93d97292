"""Opaque messages as programs write and read them: tuples, and objects of JSON.

In JSON, bytes that are UTF-8 are text under `key` and `payload`, others are under `key_base64` and `payload_base64`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TypeAlias

from isocast.terms.errors import LocalProtocolError
from isocast.wire.opaque import OpaqueMessage

__all__ = ["OPAQUE_KIND", "Sendable", "as_bytes", "from_fields", "message_fields", "opaque_of"]

Sendable: TypeAlias = "OpaqueMessage | tuple[str, bytes | str] | tuple[str, bytes | str, bytes | str]"
"""An opaque message: (topic, payload) or (topic, payload, key); text is sent as UTF-8."""

OPAQUE_KIND = "opaque"
"""Where rows of events have their kind."""


def opaque_of(place: int, message: Sendable) -> OpaqueMessage:
    """What a program gave; LocalProtocolError says which one is none, and why."""
    if not isinstance(message, tuple) or not message or not isinstance(message[0], str):
        raise LocalProtocolError(f"message {place}: give (topic, payload), (topic, payload, key) or an OpaqueMessage")
    if isinstance(message, OpaqueMessage):
        return message._replace(payload=as_bytes(message.payload, place), key=as_bytes(message.key, place))
    if len(message) not in {2, 3}:
        raise LocalProtocolError(f"message {place}: has {len(message)} parts: topic, payload and perhaps a key")
    key = message[2] if len(message) > 2 else b""  # noqa: PLR2004 - the third part
    return OpaqueMessage(message[0], as_bytes(message[1], place), as_bytes(key, place))


def as_bytes(value: bytes | str, place: int = 0) -> bytes:
    """Bytes as they are, text as UTF-8."""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise LocalProtocolError(f"message {place}: payload and key are bytes or text, not {type(value).__name__}")
    return bytes(value)


def message_fields(message: OpaqueMessage) -> dict[str, object]:
    """What JSON can carry of a message; `from_fields` reads it."""
    return {
        "kind": OPAQUE_KIND,
        "topic": message.topic,
        "sent_ns": message.sent,
        **_text("key", message.key),
        **_text("payload", message.payload),
    }


def _text(name: str, raw: bytes) -> dict[str, str]:
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(raw).decode("ascii")}


def from_fields(row: Mapping[str, object], topic: str = "") -> OpaqueMessage:
    """The message of an object of JSON, `topic` if it names none; LocalProtocolError names the field that is wrong.

    Fields that a message does not have, such as its sequence, are left alone: what was heard can be sent again.
    """
    subject = row.get("topic", topic)
    if not isinstance(subject, str) or not subject:
        raise LocalProtocolError("topic: must be given")
    sent = row.get("sent_ns", 0)
    if not isinstance(sent, int) or isinstance(sent, bool):
        raise LocalProtocolError("sent_ns: nanoseconds since 1970 are wanted")
    if "payload" not in row and "payload_base64" not in row:
        raise LocalProtocolError("payload: must be given, as payload or payload_base64")
    return OpaqueMessage(subject, _raw(row, "payload"), _raw(row, "key"), sent)


def _raw(row: Mapping[str, object], name: str) -> bytes:
    text, coded = row.get(name), row.get(f"{name}_base64")
    if text is not None and coded is not None:
        raise LocalProtocolError(f"{name}: given twice, as text and as base64")
    given = coded if text is None else text
    if given is None:
        return b""
    if not isinstance(given, str):
        raise LocalProtocolError(f"{name}: a text is wanted, not {type(given).__name__}")
    if coded is None:
        return given.encode()
    try:
        return b64decode(given, validate=True)
    except ValueError as reason:
        raise LocalProtocolError(f"{name}_base64: {reason}") from None
