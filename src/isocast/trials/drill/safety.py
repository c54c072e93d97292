"""What the journals prove after a fault: what is lost, repeated, different, missing or early; and the drill's report.

Nothing is taken from what a process says of itself. A message was promised when a source took it; it is in the sequence
if the longest journal of a site has it; two journals differ where they have another content under one sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from isocast.checks.journals import differences, lost, repeated
from isocast.terms.instants import SECOND
from isocast.trials.drill.trial import AcceptedMessage
from isocast.trials.evidence import Journals

__all__ = ["Outcome", "Picture", "Safety", "judge"]


@dataclass(frozen=True, slots=True)
class Safety:
    """Counts of messages, each of which must be zero under the policy of the majority."""

    lost: int
    """Promised, and not in the final sequence (L1)."""
    repeated: int
    """More than once in a journal, by label, by sequence or by content (S2)."""
    divergent: int
    """Sequences under which two journals have different contents (S1)."""
    gaps: int
    """Sequences that a journal skips, or lacks at its end though its node was there to get them (S2, L1, L5)."""
    early: int
    """Out before their instant (S12)."""
    unserved: int = 0
    """Of those lost, those that were promised once the market was whole again: then it does not work."""

    @property
    def is_sound(self) -> bool:
        """Whether all are zero."""
        return not (self.lost or self.repeated or self.divergent or self.gaps or self.early)


def judge(
    journals: Journals,
    promised: Sequence[AcceptedMessage],
    release_delay_ns: int,
    absent: Iterable[str] = (),
    whole_at: int | None = None,
) -> Safety:
    """Compare everything with everything; `absent` nodes need not have come to the end.

    `whole_at` is when the market was whole again, if it was.
    """
    final = max(journals.sites.values(), key=lambda copy: copy.last_sequence)
    gone = set(lost([final], [(one.source, one.number, one.digest) for one in promised]))
    missed = [one for one in promised if (one.source, one.number, one.digest) in gone]
    excused, copies = {*absent, *journals.damaged}, journals.copies.values()
    differing = differences(list(journals.sites.values()), list(journals.followers.values()))
    return Safety(
        lost=len(missed),
        repeated=len(set().union(*[repeated(copy, by_content=True) for copy in copies])),
        divergent=len(set().union(*[one.sequences for one in differing])),
        gaps=sum([copy.missing(0 if copy.name in excused else final.last_sequence) for copy in copies]),
        early=sum([copy.early(release_delay_ns) for copy in copies]),
        unserved=len([one for one in missed if whole_at is not None and one.at >= whole_at]),
    )


# What a drill showed: figures for programs, and the releases of every site as a picture.


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
