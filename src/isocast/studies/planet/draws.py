"""Chance by counter: every token and every server draws from a stream of its own.

A stream is Philox with the key [what and which, run]. It depends on nothing else: not on how work is cut into parts,
nor on who does which part, nor on what was drawn before.
"""

from __future__ import annotations

from enum import IntEnum
from math import sqrt

import numpy as np

from isocast.reformation.scopes.surface import Ints

__all__ = ["Purpose", "generator", "lost_places"]

_NUMBER_BITS = 48


class Purpose(IntEnum):
    """What a stream is for."""

    PLACES = 1
    CUSTOMERS = 2
    TOKEN = 3
    SERVER = 4


def generator(run: int, purpose: Purpose, number: int = 0) -> np.random.Generator:
    """The stream of one token, or of one server, in one run."""
    return np.random.Generator(np.random.Philox(key=np.array([purpose << _NUMBER_BITS | number, run], dtype=np.uint64)))


def lost_places(random: np.random.Generator, total: int, loss: float) -> Ints:
    """Which of `total` packets are lost, each alone with this probability: ascending.

    The gaps between losses are drawn, not the packets: cheap where little is lost.
    """
    if loss <= 0 or total <= 0:
        return np.zeros(0, dtype=np.int64)
    if loss >= 1:
        return np.arange(total, dtype=np.int64)
    expected = total * loss
    batch = int(expected + 4 * sqrt(expected)) + 8
    parts, last = [], -1
    while last < total:
        # A gap beyond the end is as good as one right there, and sums of such cannot overflow.
        gaps = np.minimum(random.geometric(loss, batch), total + 1)
        places = last + np.cumsum(gaps)
        parts.append(places)
        last = int(places[-1])
    found = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return found[: int(np.searchsorted(found, total))]
