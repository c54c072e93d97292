"""Hash tables of 64-bit keys that take and answer whole arrays of them at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Integers", "Lookup", "Seen", "Words", "mixed"]

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]

_SLOTS = 1 << 12
_FULL = 0.7
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def mixed(words: Words) -> Words:
    """A permutation of the 64-bit numbers in which every bit depends on every bit."""
    words = words ^ words >> _SHIFTS[0]
    words *= _MULTIPLIERS[0]
    words ^= words >> _SHIFTS[1]
    words *= _MULTIPLIERS[1]
    words ^= words >> _SHIFTS[2]
    return words


class Seen:
    """A set of keys other than 0, open addressing, a key next to where it belongs."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self._slots = np.zeros(_SLOTS, np.uint64)
        self.count = 0

    def add(self, keys: Words) -> Integers:
        """Where in `keys` those stand that are new, each once, at its first place."""
        fresh = np.flatnonzero(~self._holds(keys))
        if not fresh.size:
            return fresh
        _, first = np.unique(keys[fresh], return_index=True)
        fresh = fresh[np.sort(first)]
        while self.count + fresh.size > _FULL * self._slots.size:
            self._grow()
        self._insert(keys[fresh])
        self.count += fresh.size
        return fresh

    def _mask(self) -> np.uint64:
        return np.uint64(self._slots.size - 1)

    def _holds(self, keys: Words) -> NDArray[np.bool_]:
        found = np.zeros(keys.size, np.bool_)
        places, rest = keys & self._mask(), np.arange(keys.size)
        while rest.size:
            there = self._slots[places]
            same = there == keys[rest]
            found[rest[same]] = True
            on = (there != 0) & ~same
            rest, places = rest[on], places[on] + np.uint64(1) & self._mask()
        return found

    def _insert(self, keys: Words) -> None:
        """Keys that are new and differ: whoever loses a free slot to another goes on to the next."""
        places = keys & self._mask()
        while keys.size:
            free = self._slots[places] == 0
            self._slots[places[free]] = keys[free]
            on = self._slots[places] != keys
            keys, places = keys[on], places[on] + np.uint64(1) & self._mask()

    def _grow(self) -> None:
        old = self._slots
        self._slots = np.zeros(2 * old.size, np.uint64)
        step = 1 << 20
        for first in range(0, old.size, step):
            part = old[first : first + step]
            self._insert(part[part != 0])


class Lookup:
    """Numbers by key; a key is below 2^63."""

    def __init__(self) -> None:
        """Empty."""
        self._keys = np.zeros(_SLOTS, np.uint64)
        self._values = np.zeros(_SLOTS, np.int32)
        self._count = 0

    def get(self, keys: Words) -> NDArray[np.int32]:
        """The number of each key; -1 where there is none."""
        marked = keys + np.uint64(1)
        values = np.full(keys.size, -1, np.int32)
        mask = np.uint64(self._keys.size - 1)
        places = mixed(marked) & mask
        there = self._keys[places]
        same = there == marked
        values[same] = self._values[places[same]]
        rest = np.flatnonzero(~same & (there != 0))
        places = places[rest] + np.uint64(1) & mask
        while rest.size:
            there = self._keys[places]
            same = there == marked[rest]
            values[rest[same]] = self._values[places[same]]
            on = (there != 0) & ~same
            rest, places = rest[on], places[on] + np.uint64(1) & mask
        return values

    def put(self, keys: Words, values: NDArray[np.int32]) -> None:
        """Keys that differ and are not there yet."""
        while self._count + keys.size > _FULL * self._keys.size:
            self._grow()
        self._count += keys.size
        self._insert(keys + np.uint64(1), values)

    def _insert(self, marked: Words, values: NDArray[np.int32]) -> None:
        mask = np.uint64(self._keys.size - 1)
        places = mixed(marked) & mask
        while marked.size:
            free = self._keys[places] == 0
            self._keys[places[free]] = marked[free]
            mine = self._keys[places] == marked
            self._values[places[mine]] = values[mine]
            on = ~mine
            marked, values, places = marked[on], values[on], places[on] + np.uint64(1) & mask

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._keys = np.zeros(2 * keys.size, np.uint64)
        self._values = np.zeros(2 * keys.size, np.int32)
        there = keys != 0
        self._insert(keys[there], values[there])
