"""Pairs of numbers to one number, for whole arrays at once: a hash table with open addressing, in numpy.

The tape finds the line of every event by (symbol, floor), and trades that are referred to by (line, id).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Indices", "KeyTable", "Words", "stable_order"]

Words: TypeAlias = npt.NDArray[np.uint64]
Indices: TypeAlias = npt.NDArray[np.int64]

_FIRST_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SECOND_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)
_LAST_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_LEAST_BITS = 10
_RADIX = 1 << 16


def stable_order(numbers: npt.NDArray[np.integer], below: int) -> Indices:
    """The order of small numbers, all less than `below`; equal ones keep theirs."""
    # numpy sorts 16 bits by their digits, in a tenth of the time that it needs for more.
    if below <= _RADIX:
        return np.argsort(numbers.astype(np.uint16), kind="stable")
    return np.argsort(numbers, kind="stable")


class KeyTable:
    """A number from 0 on for each pair that was put in."""

    def __init__(self) -> None:
        """Nothing is in it."""
        self._count = 0
        self._allocate(_LEAST_BITS)

    def _allocate(self, bits: int) -> None:
        self._bits = bits
        self._mask = (1 << bits) - 1
        self._first = np.zeros(1 << bits, np.uint64)
        self._second = np.zeros(1 << bits, np.uint64)
        self._values = np.full(1 << bits, -1, np.int64)

    def __len__(self) -> int:
        """How many pairs there are."""
        return self._count

    def find(self, first: Words, second: Words) -> Indices:
        """The number of each pair; -1 where there is none."""
        slots = self._slots(first, second)
        values = self._values[slots]
        same = (self._first[slots] == first) & (self._second[slots] == second)
        found = np.where(same, values, -1)
        left = np.flatnonzero(~same & (values >= 0))
        while len(left):
            at = slots[left] = (slots[left] + 1) & self._mask
            values = self._values[at]
            same = (self._first[at] == first[left]) & (self._second[at] == second[left])
            found[left[same]] = values[same]
            left = left[~same & (values >= 0)]
        return found

    def put(self, first: Words, second: Words, values: Indices) -> None:
        """Give pairs their numbers, instead of older ones; in one call no pair and no number comes twice."""
        while 2 * (self._count + len(first)) > len(self._values):
            self._grow()
        slots = self._slots(first, second)
        left = np.arange(len(first))
        while len(left):
            at = slots[left]
            is_free = self._values[at] < 0
            same = ~is_free & (self._first[at] == first[left]) & (self._second[at] == second[left])
            self._values[at[same]] = values[left[same]]
            claim, place = left[is_free], at[is_free]
            self._values[place] = values[claim]
            # Several may claim one place: whoever reads its own number there has it.
            has_won = self._values[place] == values[claim]
            self._first[place[has_won]] = first[claim[has_won]]
            self._second[place[has_won]] = second[claim[has_won]]
            self._count += int(has_won.sum())
            is_done = same
            is_done[np.flatnonzero(is_free)[has_won]] = True
            left = left[~is_done]
            slots[left] = (slots[left] + 1) & self._mask

    def _grow(self) -> None:
        used = np.flatnonzero(self._values >= 0)
        first, second, values = self._first[used], self._second[used], self._values[used]
        self._allocate(self._bits + 1)
        self._count = 0
        self.put(first, second, values)

    def _slots(self, first: Words, second: Words) -> Indices:
        mixed = first * _FIRST_FACTOR + second * _SECOND_FACTOR
        mixed ^= mixed >> _HALF
        mixed *= _LAST_FACTOR
        mixed >>= np.uint64(64 - self._bits)
        return mixed.view(np.int64)
