"""A piece of the sequence as the parts of a tape see it."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.ticker.keys import Indices, Words
from isocast.wire.events import EventArray

__all__ = ["PRICE_LIMIT", "Piece"]

PRICE_LIMIT = 1 << 44
"""1.7 thousand million units a share: half a million trades at this price, of 2^32 shares each, still sum exactly."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive events; each part of the tape takes those of its kinds, by their places."""

    events: EventArray
    sequences: Words
    lines: Indices
    """The line of each event, -1 where it has no symbol."""
    first_event: int
    """How many events came before."""
