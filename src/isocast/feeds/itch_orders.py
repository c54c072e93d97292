"""The orders that stand, by number: a hash table in numpy arrays, asked and changed for a whole block at once.

An execution of ITCH names an order and no price, a replacement no side: both stand in the message that entered the
order, perhaps hours before. Numbers are never used twice in a day, so that within a block no order of the steps
matters: everything is entered, everything is looked up, and what has gone is dropped at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["STANDING", "OrderTable", "Standing"]

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: neighbouring numbers land far apart."""
_LEAST_BITS = 12
_EMPTY, _STANDS, _GONE = 0, 1, 2

STANDING = np.dtype([("number", "<u8"), ("shares", "<i8"), ("price", "<u4"), ("owner", "<u4"), ("side", "u1")])
"""One order that stands."""

Standing = npt.NDArray[np.void]
Numbers = npt.NDArray[np.uint64]
Slots = npt.NDArray[np.int64]


class OrderTable:
    """Open addressing with linear probing, never more than half full."""

    def __init__(self) -> None:
        """No order stands."""
        self.count = 0
        """Slots in use, by orders that stand or that have gone."""
        self._make(_LEAST_BITS)

    def _make(self, bits: int) -> None:
        self._bits = bits
        self._shift = np.uint64(64 - bits)
        size = 1 << bits
        self._numbers = np.zeros(size, np.uint64)
        self._state = np.zeros(size, np.uint8)
        self.price = np.zeros(size, np.uint32)
        self.owner = np.zeros(size, np.uint32)
        self.side = np.zeros(size, np.uint8)
        self._shares = np.zeros(size, np.int64)
        self.count = 0

    def find(self, numbers: npt.NDArray[Any]) -> Slots:
        """The slot of each order that stands, or -1."""
        found = np.full(len(numbers), -1, np.int64)
        waiting = np.arange(len(numbers))
        wanted = numbers.astype(np.uint64)
        slots = ((wanted * _SPREAD) >> self._shift).astype(np.int64)
        mask = (1 << self._bits) - 1
        while len(waiting):
            state = self._state[slots]
            here = (self._numbers[slots] == wanted) & (state != _EMPTY)
            found[waiting[here]] = np.where(state[here] == _STANDS, slots[here], -1)
            on = np.flatnonzero(~here & (state != _EMPTY))
            waiting, wanted = waiting[on], wanted[on]
            slots = (slots[on] + 1) & mask
        return found

    def enter(
        self,
        numbers: npt.NDArray[Any],
        price: npt.NDArray[Any],
        side: npt.NDArray[Any],
        owner: npt.NDArray[Any],
        shares: npt.NDArray[Any],
    ) -> npt.NDArray[np.bool_]:
        """Orders are entered; says which of them stood already. Of equal numbers the last one counts."""
        if not len(numbers):
            return np.zeros(0, np.bool_)
        self._reserve(len(numbers))
        slots, stood = self._claim(numbers.astype(np.uint64))
        self._state[slots] = _STANDS
        self.price[slots] = price
        self.side[slots] = side
        self.owner[slots] = owner
        self._shares[slots] = shares
        return stood

    def shrink(self, slots: Slots, shares: npt.NDArray[Any]) -> None:
        """Orders lose shares; those with none left go."""
        np.subtract.at(self._shares, slots, shares.astype(np.int64))
        self._state[slots[self._shares[slots] <= 0]] = _GONE

    def drop(self, slots: Slots) -> None:
        """Orders go."""
        self._state[slots] = _GONE

    def _claim(self, wanted: Numbers) -> tuple[Slots, npt.NDArray[np.bool_]]:
        """A slot for each number: its own, or the next that is empty."""
        taken = np.empty(len(wanted), np.int64)
        stood = np.zeros(len(wanted), np.bool_)
        waiting = np.arange(len(wanted))
        slots = ((wanted * _SPREAD) >> self._shift).astype(np.int64)
        mask = (1 << self._bits) - 1
        while len(waiting):
            state = self._state[slots]
            empty = state == _EMPTY
            free = slots[empty]
            # Of several that meet in one empty slot the last writer has it; the others see that and go on.
            self._numbers[free] = wanted[empty]
            self._state[free] = _GONE
            here = self._numbers[slots] == wanted
            stood[waiting[here]] = state[here] == _STANDS
            taken[waiting[here]] = slots[here]
            self.count += int(np.count_nonzero(here & empty))
            on = np.flatnonzero(~here)
            waiting, wanted = waiting[on], wanted[on]
            slots = (slots[on] + 1) & mask
        return taken, stood

    def standing(self) -> Standing:
        """A row for each order that stands: all that matters of the table."""
        kept = np.flatnonzero(self._state == _STANDS)
        rows = np.zeros(len(kept), STANDING)
        rows["number"], rows["shares"] = self._numbers[kept], self._shares[kept]
        rows["price"], rows["owner"], rows["side"] = self.price[kept], self.owner[kept], self.side[kept]
        return rows

    def restore(self, rows: Standing, more: int = 0) -> None:
        """Begin with these orders, and room for so many more."""
        bits = _LEAST_BITS
        while 1 << bits < 4 * (len(rows) + more):
            bits += 1
        self._make(bits)
        slots, _ = self._claim(rows["number"].astype(np.uint64))
        self._state[slots] = _STANDS
        self.price[slots], self.owner[slots] = rows["price"], rows["owner"]
        self.side[slots], self._shares[slots] = rows["side"], rows["shares"]

    def _reserve(self, more: int) -> None:
        """Room for so many more: rebuild with what stands when half would be passed."""
        if 2 * (self.count + more) > 1 << self._bits:
            self.restore(self.standing(), more)
