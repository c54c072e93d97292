"""Where the messages of a block begin, without walking from one to the next.

A length prefix says where the next message begins, which is a walk. Instead every byte is asked at once whether a
message could begin there: a zero, the length of a type, that type. Almost all such places are true; the rest lie
inside messages. A chain from the first byte through places that follow each other exactly is then found by looking
only at the breaks. What is no known message is judged one by one: see `_Walk._judge`.
"""

from __future__ import annotations

import numpy as np

from isocast.feeds.itch_layout import HEADER_BYTES, LENGTH_OF_TYPE, LENGTHS, PREFIX_BYTES, Bytes, Indices
from isocast.feeds.outcomes import Fault, FeedLog

__all__ = ["find_messages"]

_UNKNOWN = 0xFF
_HEAD = PREFIX_BYTES + 1
_SCAN = 1 << 16
"""Bytes that are looked at in one step: few enough to stay in the processor's cache."""
_LENGTHS = np.frombuffer(LENGTH_OF_TYPE, np.uint8)
_SHORTEST, _LONGEST = np.uint8(min(LENGTHS.values())), np.uint8(max(LENGTHS.values()))
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RESUME = 128
"""Bytes at the end of garbage that are looked at again with the next block: more than two messages."""


def find_messages(block: Bytes, log: FeedLog, offset: int, *, last: bool) -> tuple[Indices, int]:
    """The places of all whole known messages, and how many bytes are done with.

    A place is that of the length prefix. The rest of the block belongs before the next one; with `last` there is no
    next one, and a rest is a fault. `offset` is where in the feed the block begins.
    """
    walk = _Walk(block, log, offset, last=last)
    walk.run()
    return walk.places(), walk.at


def _candidates(block: Bytes) -> Indices:
    """Where a message could begin."""
    found = [np.empty(0, np.int64)]
    for start in range(0, len(block) - PREFIX_BYTES, _SCAN):
        piece = block[start : start + _SCAN + PREFIX_BYTES]
        could = piece[1:-1] - _SHORTEST <= _LONGEST - _SHORTEST  # Wraps below the shortest, and is too large then.
        could &= piece[:-2] == 0
        places = np.flatnonzero(could)
        found.append(places[_LENGTHS[piece[places + 2]] == piece[places + 1]] + start)
    return np.concatenate(found)


class _Walk:
    """One pass over one block."""

    def __init__(self, block: Bytes, log: FeedLog, offset: int, *, last: bool) -> None:
        self.at = 0
        """Everything before is done with."""
        self._block = block
        self._log = log
        self._offset = offset
        self._last = last
        self._places = _candidates(block)
        self._after = self._places + PREFIX_BYTES + block[self._places + 1]
        follows = self._after[:-1] == self._places[1:]
        self._breaks = np.flatnonzero(~follows).tolist()
        self._solid = self._places[np.flatnonzero(follows[:-1] & follows[1:])]
        """Places that are the first of three in a row."""
        self._runs: list[Indices] = []

    def run(self) -> None:
        """Go from break to break."""
        places, after, block_end = self._places, self._after, len(self._block)
        here = nearest = 0
        while self.at < block_end:
            while here < len(places) and places[here] < self.at:
                here += 1
            if here < len(places) and places[here] == self.at:
                while nearest < len(self._breaks) and self._breaks[nearest] < here:
                    nearest += 1
                end = self._breaks[nearest] if nearest < len(self._breaks) else len(places) - 1
                if after[end] > block_end:  # The last one is not whole.
                    self._runs.append(places[here:end])
                    self.at = int(places[end])
                    self._unfinished()
                    return
                self._runs.append(places[here : end + 1])
                self.at = int(after[end])
                here = end + 1
            elif not self._judge():
                return

    def places(self) -> Indices:
        """All of them, in order."""
        return np.concatenate(self._runs) if self._runs else np.empty(0, np.int64)

    # ---- what is no known message

    def _judge(self) -> bool:
        """One place where the chain broke: step over it; False when the block ends here."""
        block, at, size = self._block, self.at, len(self._block)
        if at + _HEAD > size:
            return self._unfinished()
        length = int(block[at]) << 8 | int(block[at + 1])
        code = int(block[at + 2])
        known = LENGTH_OF_TYPE[code]
        by_length, by_type = at + PREFIX_BYTES + length, at + PREFIX_BYTES + known
        if not self._last and max(by_length, by_type) + _HEAD > size:
            return False  # Judged when the next bytes are there.
        if length == 0 and known != _UNKNOWN and self._zero_or_sound(by_type):
            self._fault(Fault.MISSING_LENGTH, f"a message of type {_shown(code)} has length 0")
            self._runs.append(np.array([at], np.int64))
            self.at = by_type
            return True
        if length and self._sound(by_length):
            kind = Fault.UNKNOWN_TYPE if known == _UNKNOWN else Fault.BAD_LENGTH
            expected = "" if known == _UNKNOWN else f", not {known}"
            self._fault(kind, f"a message of type {_shown(code)} has {length} bytes{expected}")
            self.at = by_length
            return True
        if known != _UNKNOWN and self._sound(by_type):
            self._fault(Fault.BAD_LENGTH, f"a message of type {_shown(code)} has {length} bytes, not {known}")
            self.at = by_type
            return True
        return self._resume(length, code)

    def _sound(self, place: int) -> bool:
        """Whether a message may begin there, of a type that is not known as well; or the feed ends."""
        size = len(self._block)
        if place + _HEAD > size:
            return self._last and place == size
        if self._block[place]:
            return False
        code = int(self._block[place + 2])
        length = int(self._block[place + 1])
        known = LENGTH_OF_TYPE[code]
        return length == known or (known == _UNKNOWN and length >= HEADER_BYTES and code in _LETTERS)

    def _zero_or_sound(self, place: int) -> bool:
        size = len(self._block)
        if place + _HEAD > size:
            return self._last and place == size
        zero = not self._block[place] and not self._block[place + 1]
        return (zero and LENGTH_OF_TYPE[int(self._block[place + 2])] != _UNKNOWN) or self._sound(place)

    def _resume(self, length: int, code: int) -> bool:
        """Go on where three messages follow each other exactly."""
        began = self.at
        nearest = int(np.searchsorted(self._solid, began, side="right"))
        if nearest < len(self._solid):
            self.at = int(self._solid[nearest])
        elif not self._last:
            self.at = max(began + 1, len(self._block) - _RESUME)
        elif began + PREFIX_BYTES + length > len(self._block) and not self._block[began] and code in _LETTERS:
            return self._unfinished()
        else:
            self.at = len(self._block)
        self._fault(Fault.GARBAGE, f"{self.at - began} bytes that are no messages", began)
        return True

    def _unfinished(self) -> bool:
        """What is left of the block is the beginning of a message."""
        if self._last:
            left = len(self._block) - self.at
            self._fault(Fault.TRUNCATED, f"the feed ends {left} bytes into a message")
            self.at = len(self._block)
        return False

    def _fault(self, kind: Fault, what: str, place: int | None = None) -> None:
        self._log.fault(kind, self._offset + (self.at if place is None else place), what)


def _shown(code: int) -> str:
    return repr(chr(code)) if 0x20 < code < 0x7F else f"0x{code:02x}"  # noqa: PLR2004
