"""FIX 4.4 as bytes: a framer for the stream, and a codec for one message.

A message is `8=FIX.4.4|9=LENGTH|35=TYPE|…|10=SUM|`, where | is SOH (0x01). Whatever is not that is *garbled*: it is
dropped without an answer, because nobody can say which message it was. What can be decoded and is wrong is for the
dictionary to find.

>>> sent = encode("0", [(34, "2"), (49, "A"), (56, "B")], [(112, "hello")])
>>> decoded = decode(sent)
>>> decoded.kind, decoded.first[112]
('0', 'hello')
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "BEGIN_STRING",
    "DATA_OF",
    "FIELDS_MAX",
    "MESSAGE_BYTES_MAX",
    "SOH",
    "Field",
    "Framer",
    "Message",
    "decode",
    "encode",
    "instant_of",
    "sanitized",
    "utc_text",
]

SOH: Final = "\x01"
BEGIN_STRING: Final = "FIX.4.4"
MESSAGE_BYTES_MAX: Final = 16_384
"""Of a body. An order has some 250 bytes; with every optional field and ten parties it has 2,000."""
FIELDS_MAX: Final = 512
"""Of a message, entries of groups included."""
Field: TypeAlias = tuple[int, str]

_SOH: Final = b"\x01"
_HEAD_BYTES_MAX: Final = 40
"""Of BeginString and BodyLength together."""
_TRAILER_BYTES: Final = 7
_TRAILER_BYTES_MAX: Final = 32
_TAG_CHARS_MAX: Final = 9
_HEAD: Final = re.compile(rb"8=[^\x01]{1,16}\x019=([0-9]{1,6})\x01")
_TRAILER: Final = re.compile(rb"\x0110=[0-9]{3}\x01\Z")
_TAG: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\Z", re.ASCII)
_CONTROL: Final = re.compile(r"[^\x20-\x7e]")
_NS: Final = 1_000_000_000

DATA_OF: Final = {
    90: 91,
    93: 89,
    95: 96,
    212: 213,
    348: 349,
    350: 351,
    352: 353,
    354: 355,
    356: 357,
    358: 359,
    360: 361,
    362: 363,
    364: 365,
    445: 446,
    618: 619,
    621: 622,
}
"""The field of bytes that follows a field of length: SOH may be among its bytes."""
_LENGTHS: Final = re.compile("\x01(?:" + "|".join(str(tag) for tag in DATA_OF) + ")=")


class Message(NamedTuple):
    """A message whose frame is sound; its fields may be wrong."""

    begin: str
    kind: str
    """MsgType (35)."""
    fields: list[Field]
    """All, in the order in which they came; 8, 9, 35 and 10 included."""
    first: dict[int, str]
    """The first value of each tag."""

    def get(self, tag: int) -> str | None:
        """The first value of a tag."""
        return self.first.get(tag)

    @property
    def number(self) -> int:
        """MsgSeqNum (34); -1 without a sound one."""
        text = self.first.get(34, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= _TAG_CHARS_MAX * 2 else -1

    @property
    def is_possible_duplicate(self) -> bool:
        """PossDupFlag (43)."""
        return self.first.get(43) == "Y"


class Framer:
    """Cuts a stream into frames. What cannot be one comes out as an empty frame, so that it is counted."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def held(self) -> int:
        """Bytes that are not a frame yet: never more than a message, and what came in one piece with it."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that this piece completes."""
        self._buffer += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> bytes | None:
        buffer = self._buffer
        start = buffer.find(b"8=")
        if start:
            dropped = start if start > 0 else len(buffer) - buffer.endswith(b"8")
            del buffer[:dropped]
            return b"" if dropped else None
        # The head is complete when it has two SOH. Every search has an end, so that no bytes make work for many times
        # their number.
        length_at = buffer.find(_SOH, 0, _HEAD_BYTES_MAX) + 1
        if length_at == 0 or buffer.find(_SOH, length_at, _HEAD_BYTES_MAX) < 0:
            return self._drop() if len(buffer) >= _HEAD_BYTES_MAX else None
        head = _HEAD.match(buffer)
        if head is None or (length := int(head[1])) > MESSAGE_BYTES_MAX:
            return self._drop()
        # The checksum is sought only after the body: a length that is too long swallows the message that follows.
        body_end = head.end() + length
        sum_at = buffer.find(b"\x0110=", body_end - 1, body_end + MESSAGE_BYTES_MAX)
        if sum_at < 0:
            return self._drop() if len(buffer) >= body_end + MESSAGE_BYTES_MAX else None
        end = buffer.find(_SOH, sum_at + 4, sum_at + _TRAILER_BYTES_MAX)
        if end < 0:
            return self._drop() if len(buffer) >= sum_at + _TRAILER_BYTES_MAX else None
        frame = bytes(buffer[: end + 1])
        del buffer[: end + 1]
        return frame

    def _drop(self) -> bytes:
        """This is no beginning of a message: the next one may be in what follows."""
        del self._buffer[:2]
        return b""


def decode(frame: bytes) -> Message | None:
    """A message; None if it is garbled: wrong length, wrong sum, not 8, 9, 35 first, or a field without a tag."""
    head = _HEAD.match(frame)
    if head is None or _TRAILER.search(frame) is None or frame.count(_SOH) > FIELDS_MAX:
        return None
    if head.end() + int(head[1]) != len(frame) - _TRAILER_BYTES:
        return None
    if sum(frame[:-_TRAILER_BYTES]) & 0xFF != int(frame[-4:-1]):
        return None
    text = frame.decode("latin-1")
    fields = _fields(text) if _LENGTHS.search(text) is None else _fields_with_data(text)
    if fields is None or fields[2][0] != 35:  # noqa: PLR2004 - MsgType is the third
        return None
    return Message(fields[0][1], fields[2][1], fields, dict(reversed(fields)))


def _fields(text: str) -> list[Field] | None:
    fields = []
    for part in text[:-1].split(SOH):
        tag, equals, value = part.partition("=")
        if not equals or not _is_tag(tag):
            return None
        fields.append((int(tag), value))
    return fields


def _fields_with_data(text: str) -> list[Field] | None:
    """The same, where a field of bytes has the length that the field before it says."""
    fields: list[Field] = []
    at, size = 0, 0
    while at < len(text):
        equals = text.find("=", at)
        tag_text = text[at:equals]
        if equals < 0 or not _is_tag(tag_text):
            return None
        tag = int(tag_text)
        is_data = bool(fields) and DATA_OF.get(fields[-1][0]) == tag
        end = equals + 1 + size if is_data else text.find(SOH, equals)
        if not 0 <= end < len(text) or text[end] != SOH:
            return None
        value = text[equals + 1 : end]
        fields.append((tag, value))
        size = int(value) if tag in DATA_OF and value.isascii() and value.isdigit() and len(value) < 7 else 0  # noqa: PLR2004
        at = end + 1
    return fields


@lru_cache(maxsize=2_048)
def _is_tag(text: str) -> bool:
    return len(text) <= _TAG_CHARS_MAX and _TAG.match(text) is not None


def encode(kind: str, header: Iterable[Field], body: Iterable[Field], begin: str = BEGIN_STRING) -> bytes:
    """The bytes of a message: 8, 9 and 35, then the header in the order of its tags, then the body as it is."""
    parts = [f"35={kind}", *(f"{tag}={value}" for tag, value in sorted(header))]
    parts += [f"{tag}={value}" for tag, value in body]
    content = (SOH.join(parts) + SOH).encode("latin-1", "replace")
    framed = f"8={begin}{SOH}9={len(content)}{SOH}".encode() + content
    return framed + f"10={sum(framed) & 0xFF:03}{SOH}".encode()


def sanitized(text: str, most: int = 200) -> str:
    """What may stand in a Text field: printable ASCII, and not too much of it."""
    return _CONTROL.sub("?", text[:most])


@lru_cache(maxsize=64)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y%m%d-%H:%M:%S")


def utc_text(instant: int) -> str:
    """A UTCTimestamp with milliseconds.

    >>> utc_text(1_700_000_000_123_456_789)
    '20231114-22:13:20.123'
    """
    second, rest = divmod(instant, _NS)
    return f"{_second_text(second)}.{rest // 1_000_000:03}"


_TIME: Final = re.compile(r"([0-9]{8}-[0-9]{2}:[0-9]{2}:)([0-9]{2})(?:\.([0-9]{3}|[0-9]{6}|[0-9]{9}))?\Z", re.ASCII)
_LEAP_SECOND: Final = 60


@lru_cache(maxsize=256)
def _minute_of(text: str) -> int | None:
    try:
        return int(datetime.strptime(text, "%Y%m%d-%H:%M:").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def instant_of(text: str) -> int | None:
    """The nanoseconds since 1970 of a UTCTimestamp; None if it is none.

    >>> instant_of("20231114-22:13:20.123")
    1700000000123000000
    """
    found = _TIME.match(text)
    if found is None or (minute := _minute_of(found[1])) is None or (second := int(found[2])) > _LEAP_SECOND:
        return None
    return (minute + second) * _NS + int((found[3] or "").ljust(9, "0"))
