"""The hash of a set of lines, whose cost is that of the lines that changed.

Each line becomes a number of 4096 bits by SHAKE128; the set's hash is their sum, modulo 2^4096. A line that comes is
added, one that goes is subtracted: the order in which they came does not matter, nor what was there in between, and two
that have the same lines have the same sum. Nothing but the lines counts, so a line must say all that it means: where it
belongs, and its place among others where that matters.

Whoever wants two sets with one sum has to find lines whose numbers cancel out. The lines are chosen by traders, so the
modulus is wide: the best known way, Wagner's generalised birthday, takes 2^(2 √n) steps for n bits, 2^128 here, with
2^64 lines to choose from; with the 2^24 that a floor might have it takes far more. Sums of 256 bits would fall to 2^32
steps, and XOR to linear algebra. Relations with small factors, which lattices find, do not help: a line is there once
or not at all.
"""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import shake_128
from typing import Final

__all__ = ["SUM_BYTES", "SetHash"]

SUM_BYTES: Final = 512
_MASK: Final = (1 << 8 * SUM_BYTES) - 1


class SetHash:
    """Lines by key, and the sum of their numbers."""

    __slots__ = ("_lines", "_sum")

    def __init__(self) -> None:
        """No line."""
        self._lines: dict[Hashable, str] = {}
        self._sum = 0

    def put(self, key: Hashable, line: str | None) -> None:
        """What is known under a key is this line now, or None: nothing."""
        before = self._lines.get(key)
        if before == line:
            return
        if before is not None:
            self._sum -= _number(before)
        if line is None:
            del self._lines[key]
        else:
            self._lines[key] = line
            self._sum += _number(line)
        self._sum &= _MASK

    def __len__(self) -> int:
        return len(self._lines)

    def digest(self) -> bytes:
        """The sum."""
        return self._sum.to_bytes(SUM_BYTES, "little")


def _number(line: str) -> int:
    return int.from_bytes(shake_128(line.encode()).digest(SUM_BYTES), "little")
