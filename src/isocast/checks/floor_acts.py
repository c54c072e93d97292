"""What was done on a trading floor and what came of it, as plain values: the transcript that T4 and T6 to T8 judge.

A step is one token. In it come, one after the other, what the token's instant made due, its events, and what is due at
its end; each with the reports that it gave. Kinds and fields are named as the floor names those of its events and
reports, sides are 1 (buy) and 2 (sell); nothing of the floor itself is needed to judge it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

__all__ = ["FloorAct", "FloorMoment", "FloorSaid", "FloorTranscript", "FloorWrong"]


class FloorMoment(StrEnum):
    """When in a token."""

    BEGIN = "begin"
    EVENT = "event"
    END = "end"


class FloorSaid(NamedTuple):
    """A report."""

    kind: str
    """trade, refused, cancelled, expired, replaced, unsold, forfeited or indicative."""
    fields: Mapping[str, Any]


class FloorAct(NamedTuple):
    """An event, or the beginning or the end of a token, with what came of it."""

    moment: FloorMoment
    kind: str
    """directory, status, order, cancel, replace, lot, commit, reveal, bid or take; empty for no event."""
    fields: Mapping[str, Any]
    reports: tuple[FloorSaid, ...]
    place: int = 0
    """Of the event among those of its token, in the order of the sequence; acts stand as they entered."""

    @property
    def is_refused(self) -> bool:
        """Whether the event itself was refused."""
        return any(said.kind == "refused" and said.fields["id"] == self.fields.get("id") for said in self.reports)


class FloorTranscript(NamedTuple):
    """One token of a floor."""

    token: int
    instant: int
    """T_t."""
    acts: tuple[FloorAct, ...]
    shuffle_key: bytes = b""
    """Of the token; nothing where it is not known."""


class FloorWrong(NamedTuple):
    """A breach that a transcript shows."""

    property: str
    """T4, T6, T7 or T8."""
    token: int
    text: str
    rule: str = ""
    """Of T4: which rule of trading."""
    trade: int | None = None
    """The number of the trade that should not be."""
