"""What a drill showed: figures for programs, and the releases of every site as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from isocast.terms.instants import SECOND
from isocast.trials.drill.safety import Safety

__all__ = ["Outcome", "Picture"]


@dataclass(frozen=True, slots=True)
class Picture:
    """Releases over time, in equal parts."""

    start: int
    part_ns: int
    rows: dict[str, list[int]] = field(default_factory=dict)
    """By site and customer: messages released, or got, in each part."""
    fault_at: int = 0
    whole_at: int = 0
    """When everybody was there again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One drill; times in nanoseconds, None where there is none."""

    drill: str
    recovered: bool
    is_excused: bool
    """Whether the policy promises nothing about order."""
    safety: Safety
    messages: int
    victims: int
    """Nodes that the fault touched."""
    detected_ns: int | None
    outage_ns: int | None
    ballot_to_token_ns: int | None
    bound_ns: int
    bound: str
    """In symbols."""
    ballots_ns: Sequence[int]
    """From ballot to first token, of every ring since the fault."""
    why: str
    picture: Picture

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong with the sequence, and the market is whole again."""
        return self.recovered and (self.safety.is_sound or self.is_excused)

    @property
    def within_bound(self) -> bool | None:
        """Whether the new token came in time; None where there was no ballot."""
        return None if self.ballot_to_token_ns is None else self.ballot_to_token_ns <= self.bound_ns

    def as_json(self) -> dict[str, object]:
        """For programs; times in seconds."""
        safety = self.safety
        return {
            "drill": self.drill,
            "passed": self.passed,
            "detected_in": _seconds(self.detected_ns),
            "outage": _seconds(self.outage_ns),
            "lost": safety.lost,
            "repeated": safety.repeated,
            "divergent": safety.divergent,
            "ballot_to_token": _seconds(self.ballot_to_token_ns),
            "bound": _seconds(self.bound_ns),
            "within_bound": self.within_bound,
            "bound_formula": self.bound,
            "gaps": safety.gaps,
            "early": safety.early,
            "messages": self.messages,
            "recovered": self.recovered,
            "ballots": [_seconds(span) for span in self.ballots_ns],
            "why": self.why,
        }


def _seconds(span_ns: int | None) -> float | None:
    return None if span_ns is None else round(span_ns / SECOND, 6)
