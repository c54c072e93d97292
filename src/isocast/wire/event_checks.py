"""Whether bytes are market events, for many thousands at once: `events.events_view` without its explanations.

The first sixteen bytes of a record decide: kind, side, flags and floor, then the symbol. They are looked at as two
64-bit words of eight lanes. While a lane is below 0x80, adding 0x80-m sets its top bit exactly when the lane is at
least m, and taking it from 0x80+m when it is at most m; no lane carries into the next. A lane that is not below 0x80
is wrong anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from isocast.terms.market import MIC_BYTES, SYMBOL_BYTES, EventFlag, EventKind, Side
from isocast.wire.limits import EVENT_BYTES

__all__ = ["are_events"]

_WORD = np.dtype("<u8")
_WORDS = EVENT_BYTES // _WORD.itemsize
_TOP = int.from_bytes(b"\x80" * _WORD.itemsize, "little")
_ANY = 0x7F


def _lanes(head: Sequence[int], symbol: int) -> npt.NDArray[np.uint64]:
    """A constant for each of the two words: kind, side and two bytes of flags, four times the floor; the symbol."""
    *parts, floor = head
    lanes = bytes([*parts, *[floor] * MIC_BYTES]), bytes([symbol] * SYMBOL_BYTES)
    return np.array([[int.from_bytes(word, "little")] for word in lanes], _WORD)


def _at_least(head: Sequence[int], symbol: int) -> npt.NDArray[np.uint64]:
    return _lanes([0x80 - value for value in head], 0x80 - symbol)


def _at_most(head: Sequence[int], symbol: int) -> npt.NDArray[np.uint64]:
    return _lanes([0x80 + value for value in head], 0x80 + symbol)


_LEAST = _at_least((min(EventKind), min(Side), 0, 0, ord("0")), 0)
_MOST = _at_most((max(EventKind), max(Side), *sum(EventFlag).to_bytes(2, "little"), ord("Z")), ord("~"))
# Between the two characters that are named here nothing is allowed: floors lack ":" to "@", symbols have no blanks.
_BEFORE_GAP = _at_most((_ANY, _ANY, _ANY, _ANY, ord("9")), 0)
_AFTER_GAP = _at_least((_ANY, _ANY, _ANY, _ANY, ord("A")), ord("!"))


def are_events(raw: bytes | memoryview) -> bool:
    """Whether `events_view` would accept the bytes; several times as fast, and silent about the reason."""
    if len(raw) % EVENT_BYTES:
        return False
    words = np.frombuffer(raw, _WORD).reshape(-1, _WORDS)[:, :2].T.copy()
    good = words + _LEAST
    good &= _MOST - words
    good &= (_BEFORE_GAP - words) | (words + _AFTER_GAP)
    every = int(np.bitwise_and.reduce(good, axis=None))
    some = int(np.bitwise_or.reduce(words, axis=None))
    return every & ~some & _TOP == _TOP
