"""The digest of a block of messages: of their canonical content, however a site cut it into tokens and segments.

A block of N messages is a stretch of the sequence that begins at a multiple of N, so that receivers are compared
without any of them knowing the others. Five streams are hashed apart, since a journal keeps events and other payloads
apart: labels (source, number, the ring's digest, the shuffle key), lengths, events, opaque payloads, and the schedule
(epoch, token, T_t). What is a site's own, its release time and clock, is in none of them.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

import numpy as np

from isocast.wire.journal import BLOCK_HEADER_BYTES, DIRECTORY_BYTES
from isocast.wire.journal_blocks import IS_EVENTS, BlockView
from isocast.wire.limits import EVENT_BYTES

__all__ = ["BlockDigest", "StretchDigest"]

_BYTES = 16
_LABEL = slice(0, 32)
"""Columns of a directory's row: source, number, digest."""
_LENGTH = slice(44, 52)
"""Length and flags."""
_SCHEDULE = Struct("<IIQq")


class BlockDigest(NamedTuple):
    """What one receiver holds of one block of messages."""

    block: int
    first_sequence: int
    last_sequence: int
    messages: int
    labels: str
    """Empty where a message's source is not known: lines do not tell it."""
    contents: str
    schedule: str


class StretchDigest:
    """Grows message by message, in the order of the journal."""

    def __init__(self, block: int) -> None:
        """Of an empty block."""
        self.block = block
        self.messages = 0
        self._first = self._last = 0
        self._labelled = True
        self._labels, self._lengths, self._events, self._opaque, self._schedule = (
            blake2b(digest_size=_BYTES) for _ in range(5)
        )

    def add(self, block: BlockView, start: int, stop: int) -> None:
        """Take the messages at some places of a journal's block."""
        header, raw = block.header, block.raw
        rows = block.directory[start:stop]
        count = stop - start
        table = np.frombuffer(raw, np.uint8, header.messages * DIRECTORY_BYTES, BLOCK_HEADER_BYTES)
        table = table.reshape(-1, DIRECTORY_BYTES)[start:stop]
        if self.messages == 0:
            self._first = header.first_sequence + start
        self._last = header.first_sequence + stop - 1
        self.messages += count
        self._labelled = self._labelled and bool(rows["source"].all())
        # One stream has one row for each message: what follows must not depend on where a journal cut its blocks.
        labels = np.empty((count, _LABEL.stop + len(header.shuffle_key)), np.uint8)
        labels[:, _LABEL] = table[:, _LABEL]
        labels[:, _LABEL.stop :] = np.frombuffer(header.shuffle_key, np.uint8)
        self._labels.update(labels.tobytes())
        self._lengths.update(table[:, _LENGTH].tobytes())
        self._schedule.update(
            _SCHEDULE.pack(header.epoch_number, header.epoch_server, header.token_number, header.instant) * count
        )
        payloads = BLOCK_HEADER_BYTES + header.messages * DIRECTORY_BYTES
        first, last = int(rows["first_event"][0]), int(rows["first_event"][-1]) + int(rows["events"][-1])
        self._events.update(raw[payloads + first * EVENT_BYTES : payloads + last * EVENT_BYTES])
        opaque = rows[rows["flags"] != IS_EVENTS]
        if len(opaque):
            begin, end = int(opaque["offset"][0]), int(opaque["offset"][-1]) + int(opaque["length"][-1])
            self._opaque.update(raw[payloads + begin : payloads + end])

    def finish(self) -> BlockDigest:
        """What it came to."""
        contents = blake2b(digest_size=_BYTES)
        for stream in (self._lengths, self._events, self._opaque):
            contents.update(stream.digest())
        return BlockDigest(
            self.block,
            self._first,
            self._last,
            self.messages,
            self._labels.hexdigest() if self._labelled else "",
            contents.hexdigest(),
            self._schedule.hexdigest(),
        )
