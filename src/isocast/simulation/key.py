"""What a key of a scenario file is: its name, its kind, its bounds, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["MAX_RUN_SECONDS", "MAX_SECONDS", "Key", "Kind"]

MAX_SECONDS = 10_000_000
"""For any one time: some four months."""
MAX_RUN_SECONDS = 1_000_000_000
"""For a whole run: some 31 years. Bounds: a quarter of what an instant of 62 bits can hold."""
_MAX_COUNT = 1_000_000_000


class Kind(StrEnum):
    """What a value is; its name is how a message and the reference page call it."""

    TEXT = "text"
    COUNT = "whole number"
    RATE = "number"
    SECONDS = "seconds"
    SIGNED_SECONDS = "seconds, either sign"
    PROBABILITY = "probability"
    CHOICE = "one of"
    CITY = "city"
    CITIES = "list of cities"
    NODES = "list of nodes"
    GROUPS = "list of lists of nodes"


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what it is called, what it may be, and what happens when it is left out."""

    name: str
    symbol: str
    """In the paper or, after it, in our extension of its notation; empty where there is none."""
    kind: Kind
    default: str
    """For people: a value, or how it is derived."""
    explanation: str
    section: str = ""
    """Where the paper speaks of it."""
    choices: tuple[str, ...] = ()
    minimum: int = 0
    """Of a count; for other numbers 0, or 1 for "more than 0"."""
    maximum: int = _MAX_COUNT
    """Of a number; of seconds it is `MAX_SECONDS`."""

    @property
    def meaning(self) -> str:
        """The explanation with the paper's section."""
        return f"{self.explanation} ({self.section})" if self.section else self.explanation

    @property
    def type_text(self) -> str:
        """The kind, with the choices spelled out."""
        if self.kind is Kind.CHOICE:
            return " | ".join(f'"{choice}"' for choice in self.choices)
        return self.kind.value
