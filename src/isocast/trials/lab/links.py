"""One direction between two sites: what delay, jitter and loss do to each frame, in order."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from random import Random

__all__ = ["CUT", "LOST", "Impairment", "Link", "random_stream"]

LOST = -1
"""Instead of an instant: chance took the frame."""
CUT = -2
"""Instead of an instant: the link is cut."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """What one direction does to frames."""

    delay_ns: int = 0
    jitter_ns: int = 0
    """Mean of an exponential delay on top."""
    loss: float = 0.0
    """Share of the frames that are lost, each by itself."""


def random_stream(seed: int, *names: object) -> Random:
    """A generator that depends on the seed and the names alone: another link leaves this one's draws as they are."""
    text = "\x1f".join([str(seed), *map(str, names)])
    # Reproducible draws are the point; nothing here is a secret.
    return Random(int.from_bytes(blake2b(text.encode(), digest_size=16).digest()))  # noqa: S311


class Link:
    """One direction: frames leave in the order in which they came, each no sooner than its delay allows.

    A cut or a change counts for frames that enter from now on; what is on its way arrives.
    """

    __slots__ = ("_last_ns", "_random", "cut", "frames_cut", "frames_lost", "frames_taken", "impairment")

    def __init__(self, impairment: Impairment, random: Random) -> None:
        """Open, with nothing on its way."""
        self.impairment = impairment
        self.cut = False
        self.frames_taken = 0
        self.frames_lost = 0
        self.frames_cut = 0
        self._random = random
        self._last_ns = 0

    def take(self, now: int) -> int:
        """The instant at which a frame that enters now leaves again; LOST or CUT instead if it never does."""
        if self.cut:
            self.frames_cut += 1
            return CUT
        impairment = self.impairment
        if impairment.loss and self._random.random() < impairment.loss:
            self.frames_lost += 1
            return LOST
        leaves = now + impairment.delay_ns
        if impairment.jitter_ns:
            leaves += round(self._random.expovariate(1 / impairment.jitter_ns))
        self._last_ns = leaves = max(leaves, self._last_ns)
        self.frames_taken += 1
        return leaves
