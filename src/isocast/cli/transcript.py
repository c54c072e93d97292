"""A run for people: one line for each fact that an observer saw.

12.345000  token sent    site3  epoch 1.1  token number 5  instant 12.345000  digest 1f0a93c2  count 30
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Protocol

from isocast.terms.ids import Epoch, describe
from isocast.terms.instants import to_seconds

__all__ = ["Seen", "fact_line"]

_NODES = frozenset({"node", "server", "sender", "site", "source", "suspect"})
_INSTANTS = frozenset({"due", "instant", "start"})
_DIGEST_DIGITS = 8


class Seen(Protocol):
    """Any fact: a named tuple with the instant first."""

    @property
    def at(self) -> int:
        """When, in nanoseconds."""

    def _asdict(self) -> dict[str, object]: ...


def fact_line(fact: Seen) -> str:
    """Instant, what happened, and to whom; names as in the fact's own definition."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", " ", type(fact).__name__).lower()
    parts = [_part(name, value) for name, value in fact._asdict().items() if name != "at"]
    return f"{to_seconds(fact.at):14.6f}  {kind:<13} " + "  ".join(part for part in parts if part)


def _part(name: str, value: object) -> str:
    words = name.replace("_", " ")
    match value:
        case bool():
            return words if value else f"not {words}"
        case int() if name in _NODES:
            return describe(value) if value else ""
        case int() if name in _INSTANTS:
            return f"{words} {to_seconds(value):.6f}"
        case Epoch():
            return f"{words} {value}"
        case bytes():
            return f"{words} {value.hex()[:_DIGEST_DIGITS]}"
        case Enum():
            return f"{words} {value.value}"
        case tuple() if hasattr(value, "ballot"):
            members = ", ".join(map(describe, getattr(value, "ring", ())))
            return f"{words} {value.ballot} of {members}"
        case tuple():
            return f"{len(value)} {words}"
        case _:
            return f"{words} {value}"
