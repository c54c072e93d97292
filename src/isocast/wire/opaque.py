"""Opaque messages as bytes: payloads of programs, each with a topic and a key, beside the records of market events.

    0     1         2       4
    | tag | version | count |  count times  | topic n | key n | payload n | sent | topic | key | payload |
                                              1         1       2           8

Little-endian, without padding. A block of events begins with a kind, which is below 0x80; the tag is above, so no
reader takes one for the other, and journals keep these blocks as messages that are no events. A block has at least one
message and nothing behind the last: it has one spelling. `sent` is nanoseconds since 1970 by the sender's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.wire.limits import EVENT_BYTES, MAX_NUMBER

__all__ = [
    "MAX_MESSAGE_KEY",
    "MAX_TOPIC",
    "OpaqueMessage",
    "check_topic",
    "count_events",
    "cut_opaque",
    "is_opaque",
    "read_opaque",
    "read_opaque_or_none",
]

MAX_TOPIC = 64
"""Bounds: a topic is in every message; with a key of the same size a tenth of a standard packet."""
MAX_MESSAGE_KEY = 64
"""Bounds: as a topic."""

_TAG = 0xF0
_VERSION = 1
_HEAD = Struct("<BBH")
_ENTRY = Struct("<BBHQ")
_COUNT_MAX = (1 << 16) - 1
_TAG_BYTE = bytes([_TAG])


class OpaqueMessage(NamedTuple):
    """Bytes that mean something to whoever reads the topic, and nothing to the market."""

    topic: str
    """1 to 64 printable ASCII characters without spaces."""
    payload: bytes
    key: bytes = b""
    """Whose it is, or what it replaces: up to 64 bytes."""
    sent: int = 0
    """When, by the sender's clock, in nanoseconds since 1970."""


def is_opaque(payload: bytes | memoryview) -> bool:
    """Whether a payload says that it is opaque messages; `read_opaque` says whether it is."""
    return payload[:1] == _TAG_BYTE


def count_events(payloads: Iterable[bytes]) -> int:
    """The market events of some payloads, by their lengths."""
    return sum([len(payload) for payload in payloads if payload[:1] != _TAG_BYTE]) // EVENT_BYTES


def check_topic(topic: str) -> str:
    """The topic itself; LocalProtocolError for one that no message may have."""
    if not (0 < len(topic) <= MAX_TOPIC and topic.isascii() and topic.isprintable() and " " not in topic):
        raise LocalProtocolError(f"topic {topic!r}: 1 to {MAX_TOPIC} printable ASCII characters are allowed, no spaces")
    return topic


def _checked(message: OpaqueMessage, most: int) -> int:
    """How many bytes a message takes; LocalProtocolError names the limit that it breaks."""
    check_topic(message.topic)
    if len(message.key) > MAX_MESSAGE_KEY:
        raise LocalProtocolError(f"a key of {len(message.key)} bytes: at most {MAX_MESSAGE_KEY} are allowed")
    if not 0 <= message.sent <= MAX_NUMBER:
        raise LocalProtocolError(f"a message sent at {message.sent}: nanoseconds since 1970 are wanted")
    beside = _ENTRY.size + len(message.topic) + len(message.key)
    room = most - _HEAD.size - beside
    if len(message.payload) > room:
        raise LocalProtocolError(
            f"a payload of {len(message.payload):,} bytes: at most {room:,} fit one message of this market beside topic"
            f" and key; send it in pieces, or where it is kept"
        )
    return beside + len(message.payload)


def cut_opaque(messages: Sequence[OpaqueMessage], most: int) -> list[bytes]:
    """Blocks of at most `most` bytes that carry the messages, in order; each message is in one block.

    LocalProtocolError for the first message that breaks a limit.
    """
    blocks: list[bytes] = []
    waiting: list[OpaqueMessage] = []
    size = _HEAD.size
    for message in messages:
        more = _checked(message, most)
        if waiting and (size + more > most or len(waiting) == _COUNT_MAX):
            blocks.append(_packed(waiting))
            waiting, size = [], _HEAD.size
        waiting.append(message)
        size += more
    return [*blocks, _packed(waiting)] if waiting else blocks


def _packed(messages: Sequence[OpaqueMessage]) -> bytes:
    parts = [_HEAD.pack(_TAG, _VERSION, len(messages))]
    for topic, payload, key, sent in messages:
        parts += (_ENTRY.pack(len(topic), len(key), len(payload), sent), topic.encode("ascii"), key, payload)
    return b"".join(parts)


def read_opaque(payload: bytes) -> tuple[OpaqueMessage, ...]:
    """The messages of a block; RemoteProtocolError for anything that `cut_opaque` would not have made."""
    if len(payload) < _HEAD.size:
        raise RemoteProtocolError(f"{len(payload)} bytes are no block of opaque messages")
    tag, version, count = _HEAD.unpack_from(payload)
    if tag != _TAG or version != _VERSION or not count:
        raise RemoteProtocolError(f"no block of opaque messages: tag {tag}, version {version}, {count} messages")
    at, found = _HEAD.size, []
    for _ in range(count):
        if at + _ENTRY.size > len(payload):
            raise RemoteProtocolError("a block of opaque messages ends too early")
        topic_bytes, key_bytes, payload_bytes, sent = _ENTRY.unpack_from(payload, at)
        topic_at = at + _ENTRY.size
        key_at = topic_at + topic_bytes
        body_at = key_at + key_bytes
        at = body_at + payload_bytes
        if at > len(payload):
            raise RemoteProtocolError("a block of opaque messages ends too early")
        if key_bytes > MAX_MESSAGE_KEY:
            raise RemoteProtocolError(f"an opaque message with a key of {key_bytes} bytes")
        topic = _topic(payload[topic_at:key_at])
        found.append(OpaqueMessage(topic, payload[body_at:at], payload[key_at:body_at], sent))
    if at != len(payload):
        raise RemoteProtocolError(f"{len(payload) - at} bytes behind the last opaque message")
    return tuple(found)


@lru_cache(4_096)
def _topic(raw: bytes) -> str:
    """Of most messages one of a few."""
    try:
        return check_topic(raw.decode("ascii"))
    except (LocalProtocolError, UnicodeDecodeError) as reason:
        raise RemoteProtocolError(f"the topic of an opaque message is {raw!r}") from reason


def read_opaque_or_none(payload: bytes) -> tuple[OpaqueMessage, ...] | None:
    """As `read_opaque`; None for what is no block of opaque messages."""
    try:
        return read_opaque(payload)
    except RemoteProtocolError:
        return None
