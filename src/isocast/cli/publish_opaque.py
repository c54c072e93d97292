"""The input of `isocast publish --topic`: each line a payload, each line an object of JSON, or the whole a payload."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from hashlib import blake2b

from isocast.cli.event_rows import RowFault
from isocast.runtime.client.message_rows import from_fields
from isocast.terms.errors import LocalProtocolError
from isocast.wire.opaque import OpaqueMessage, cut_opaque

__all__ = ["KeyedBlocks", "MessageReader", "PayloadForm"]

_DIGEST_BYTES = 16


class PayloadForm(StrEnum):
    """How payloads are written."""

    LINES = "lines"
    """Each line is the payload of one message, without its end of line."""
    JSON = "json"
    """Each line is an object with payload or payload_base64, and perhaps topic and key or key_base64."""
    RAW = "raw"
    """The whole input is the payload of one message."""


class MessageReader:
    """Opaque messages out of bytes as they come; RowFault names the line of one that cannot be sent."""

    def __init__(self, form: PayloadForm, topic: str, key: bytes, most: int) -> None:
        """`topic` and `key` are those of messages that name none; a message has at most `most` bytes with both."""
        self.line = 0
        """Lines that were read."""
        self._form = form
        self._topic = topic
        self._key = key
        self._most = most
        self._rest = b""

    def messages(self, content: bytes) -> Iterator[OpaqueMessage]:
        """Those that are complete."""
        whole = self._rest + content
        if self._form is PayloadForm.RAW:
            self._rest = whole
            if len(whole) > self._most:
                self.line = 1
                self._checked(OpaqueMessage(self._topic, whole, self._key))
            return
        *lines, self._rest = whole.split(b"\n")
        for text in lines:
            yield from self._message(text.removesuffix(b"\r"))

    def end(self) -> Iterator[OpaqueMessage]:
        """Nothing follows: a last line without an end counts too."""
        if self._rest or (self._form is PayloadForm.RAW and not self.line):
            rest, self._rest = self._rest, b""
            yield from self._message(rest)

    def _message(self, text: bytes) -> Iterator[OpaqueMessage]:
        self.line += 1
        if self._form is not PayloadForm.JSON:
            yield self._checked(OpaqueMessage(self._topic, text, self._key))
        elif text.strip():
            yield self._checked(self._read(text))

    def _read(self, text: bytes) -> OpaqueMessage:
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            raise RowFault(self.line, "", "is not JSON") from None
        if not isinstance(row, dict):
            raise RowFault(self.line, "", "is no object of JSON")
        try:
            message = from_fields(row, self._topic)
        except LocalProtocolError as reason:
            column, _, rule = str(reason).partition(": ")
            raise RowFault(self.line, column, rule) from None
        return message if message.key else message._replace(key=self._key)

    def _checked(self, message: OpaqueMessage) -> OpaqueMessage:
        try:
            cut_opaque([message], self._most)
        except LocalProtocolError as reason:
            raise RowFault(self.line, "", str(reason)) from None
        return message


class KeyedBlocks:
    """Blocks of messages with keys that make a repeat harmless: by the place in the input, and by what is in them."""

    def __init__(self, prefix: bytes, most: int, *, repeatable: bool) -> None:
        """What may be repeated has each message by itself: how the input came in pieces must make no difference."""
        self._prefix = prefix
        self._most = most
        self._repeatable = repeatable
        self._place = 0

    def cut(self, messages: Sequence[OpaqueMessage], now: Callable[[], int]) -> list[tuple[bytes, bytes]]:
        """(key, block) of each; a message without a time was sent now, which is no part of its key."""
        runs = [[message] for message in messages] if self._repeatable else [list(messages)]
        found = []
        for run in runs:
            plain = cut_opaque(run, self._most)
            moment = now()
            stamped = cut_opaque([one if one.sent else one._replace(sent=moment) for one in run], self._most)
            for block, timed in zip(plain, stamped, strict=True):
                digest = blake2b(block, digest_size=_DIGEST_BYTES).digest()
                found.append((self._prefix + self._place.to_bytes(8) + digest, timed))
                self._place += 1
        return found
