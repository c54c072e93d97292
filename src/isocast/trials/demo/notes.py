"""What happens in a show, in words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["Note", "Tone"]


class Tone(Enum):
    """What a line of the log is about."""

    TOKEN = auto()
    REPAIR = auto()
    TROUBLE = auto()
    RING = auto()


@dataclass(frozen=True, slots=True)
class Note:
    """One line of the log."""

    at: int
    """Nanoseconds since the show began."""
    tone: Tone
    text: str
