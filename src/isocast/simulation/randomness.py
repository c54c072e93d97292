"""One random stream per (seed, names): adding a node or a link leaves all other draws alone."""

from __future__ import annotations

from hashlib import blake2b
from math import log, log1p
from random import Random
from typing import TypeVar

__all__ = ["LossProcess", "stream"]

T = TypeVar("T")

_NEVER = 1 << 62


def stream(seed: int, *names: object) -> Random:
    """A generator that depends on the seed and the names alone, in every process alike."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return Random(int.from_bytes(blake2b(text.encode(), digest_size=16).digest()))


class LossProcess:
    """Independent losses with probability p, drawn as the gaps between them: cheap while nothing is lost."""

    __slots__ = ("_log_keep", "_random", "left")

    def __init__(self, probability: float, random: Random) -> None:
        """Draw the first gap."""
        self._random = random
        self._log_keep = log1p(-probability) if probability < 1 else 0.0
        self.left = self._gap() if probability > 0 else _NEVER

    def _gap(self) -> int:
        """Packets that pass before the next loss: geometric."""
        if self._log_keep == 0.0:
            return 0
        return int(log(1.0 - self._random.random()) / self._log_keep)

    def lost(self) -> bool:
        """Whether the next packet is lost."""
        if self.left > 0:
            self.left -= 1
            return False
        self.left = self._gap()
        return True

    def survivors(self, burst: tuple[T, ...]) -> tuple[T, ...]:
        """What of a burst passes; the same tuple when nothing is lost."""
        count = len(burst)
        if self.left >= count:
            self.left -= count
            return burst
        return tuple([packet for packet in burst if not self.lost()])
