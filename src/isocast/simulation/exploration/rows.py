"""What follows from what, as arrays: computed once for each key, and looked up for a million keys at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocast.simulation.exploration.lookup import Integers, Lookup, Words

__all__ = ["Grown", "Numbers", "Rows", "Targets", "pair"]

Targets = NDArray[np.int32]

_HALF = np.uint64(32)
_FIRST_SIZE = 1 << 10


def pair(first: NDArray[Any], second: NDArray[Any]) -> Words:
    """One key for two numbers below 2^31."""
    return first.astype(np.uint64) << _HALF | second.astype(np.uint64)


def _missing(keys: Words, found: Targets) -> Words:
    return np.unique(keys[found < 0])


class Grown:
    """An array that follows a list which only grows."""

    def __init__(self, number: Callable[[int], int], length: Callable[[], int]) -> None:
        """`number` of each place, of which there are `length`."""
        self._number = number
        self._length = length
        self._values = np.zeros(_FIRST_SIZE, np.int32)
        self._count = 0

    def __call__(self, places: Targets) -> Targets:
        """The numbers of these places."""
        if self._count < self._length():
            self._follow(self._length())
        return self._values[places]

    def _follow(self, count: int) -> None:
        while count > self._values.size:
            self._values = np.concatenate([self._values, np.zeros_like(self._values)])
        self._values[self._count : count] = [self._number(place) for place in range(self._count, count)]
        self._count = count


class Numbers:
    """One number for each key."""

    def __init__(self, compute: Callable[[int, int], int]) -> None:
        """`compute` says it, from both halves of a key."""
        self._compute = compute
        self._known = Lookup()

    def __call__(self, keys: Words) -> Targets:
        """The numbers of these keys."""
        found = self._known.get(keys)
        if found.size and found.min() < 0:
            missing = _missing(keys, found)
            made = [self._compute(key >> 32, key & 0xFFFFFFFF) for key in missing.tolist()]
            self._known.put(missing, np.array(made, np.int32))
            found = self._known.get(keys)
        return found


class Rows:
    """Several numbers for each key."""

    def __init__(self, compute: Callable[[int, int], Sequence[int]]) -> None:
        """`compute` says them, from both halves of a key."""
        self._numbers = Numbers(self._row)
        self._compute = compute
        self._starts: list[int] = [0]
        self._targets: list[int] = []
        self._arrays = (np.zeros(1, np.int64), np.zeros(0, np.int32))
        self._ids: dict[tuple[int, ...], int] = {}

    def _row(self, first: int, second: int) -> int:
        """The number of a row; equal rows are one."""
        row = tuple(self._compute(first, second))
        known = self._ids.get(row)
        if known is None:
            known = self._ids[row] = len(self._ids)
            self._targets.extend(row)
            self._starts.append(len(self._targets))
        return known

    def __call__(self, keys: Words) -> tuple[Integers, Targets]:
        """(which of the keys, a number of it) for all numbers of all keys, in the order of the keys."""
        ids = self._numbers(keys)
        if self._arrays[0].size < len(self._starts):
            self._arrays = (np.array(self._starts, np.int64), np.array(self._targets, np.int32))
        starts, targets = self._arrays
        begin = starts[ids]
        counts = starts[ids + 1] - begin
        origins = np.repeat(np.arange(keys.size), counts)
        ends = np.cumsum(counts)
        within = np.arange(origins.size) - np.repeat(ends - counts, counts)
        return origins, targets[begin[origins] + within]
