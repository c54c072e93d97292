"""What an audit says: findings, notes, how far each journal reaches, and the verdict over all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from isocast.checks.properties import title
from isocast.terms.quantities import counted

__all__ = ["EVERY_BYTE", "LAWS", "AuditReport", "Cover", "Finding", "FindingKind", "Note", "Unjudged", "Verdict"]


class FindingKind(StrEnum):
    """What can be wrong with the journals of a market."""

    UNREAD = "unread"
    """A part that nobody could read: a torn end, a version that is newer than this program, a file that is refused."""
    DAMAGE = "damage"
    """A checksum is wrong, or a block is no block."""
    GAP = "gap"
    """Sequences are missing."""
    BEHIND = "behind"
    """The journal ends before others do."""
    DUPLICATE = "duplicate"
    """A sequence, or a source's number, occurs twice."""
    SOURCE = "source"
    """A source's message is missing or out of order."""
    ORDER = "order"
    """Tokens, epochs, instants or a clock go back, or a token contradicts itself."""
    EARLY = "early"
    """Released before its instant."""
    DIFFERENT = "different"
    """Other content than the others have at that sequence."""
    FORGED = "forged"
    """Another source, number or digest than the others have there, or a digest that is not the content's."""
    DIVERGED = "diverged"
    """Different where no majority stood behind the release: the policy allows it, and an operator must know."""
    PROOF = "proof"
    """Not what a majority signed, or not signed by whom it names; only where a roster is given."""
    STRANGER = "stranger"
    """Nothing of it agrees with the others: the journal of another market."""


LAWS: Mapping[FindingKind, str] = {
    FindingKind.GAP: "S2",
    FindingKind.DUPLICATE: "S2",
    FindingKind.SOURCE: "S3",
    FindingKind.ORDER: "S11",
    FindingKind.EARLY: "S12",
    FindingKind.DIFFERENT: "S1",
    FindingKind.FORGED: "S4",
    FindingKind.DIVERGED: "S1",
    FindingKind.PROOF: "S17",
    FindingKind.STRANGER: "S1",
}
"""The property of the protocol that a finding breaks, unless it says another."""
EVERY_BYTE = "every byte"
"""The title of the rule that is no property of the protocol."""

_INCOMPLETE = frozenset({FindingKind.UNREAD, FindingKind.BEHIND})
_SHOWN = 1_000


class Verdict(StrEnum):
    """In one word."""

    CLEAN = "clean"
    UNJUDGED = "unjudged"
    """Nothing that could be judged is wrong, and a whole rule could not be judged."""
    INCOMPLETE = "incomplete"
    """What could be read is clean, and something could not be read or is not there yet."""
    FINDINGS = "findings"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, down to the message, the event and the field where that is known."""

    kind: FindingKind
    stripe: int
    receiver: int
    text: str
    file: str = ""
    offset: int | None = None
    sequence: int | None = None
    last_sequence: int | None = None
    index: int | None = None
    """The event's place in its message."""
    field: str = ""
    others: tuple[int, ...] = ()
    """Receivers that agree among themselves and not with this one."""
    count: int = 1
    law: str = ""
    """The property that it breaks, if that is another than what its kind usually breaks."""

    @property
    def broken(self) -> str:
        """The property that it breaks; empty where bytes are damaged or missing."""
        return self.law or LAWS.get(self.kind, "")

    @property
    def place(self) -> str:
        """Stripe, sequences and event, in words."""
        parts = [f"stripe {self.stripe}"]
        if self.sequence is not None and self.last_sequence not in (None, self.sequence):
            parts.append(f"sequences {self.sequence} to {self.last_sequence}")
        elif self.sequence is not None:
            parts.append(f"sequence {self.sequence}")
        if self.index is not None:
            parts.append(f"event {self.index}")
        if self.field:
            parts.append(self.field)
        return ", ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "others": list(self.others), "law": self.broken or None}


@dataclass(frozen=True, slots=True)
class Note:
    """Something that is no fault and worth knowing."""

    code: str
    stripe: int
    receiver: int
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Unjudged:
    """What a rule could not be held to, for want of something."""

    rule: str
    law: str
    count: int
    text: str
    """Behind the count: of what, why, and what to do."""
    decides: bool = False
    """Whether the audit is not clean for it: a rule was not judged at all where it had to be."""

    @property
    def sentence(self) -> str:
        """In words."""
        return f"{self.rule} ({self.law}): {self.count:,} {self.text}" if self.law else f"{self.rule}: {self.text}"


@dataclass(frozen=True, slots=True)
class Cover:
    """How far one receiver's journal of one stripe reaches, and what was read of it."""

    stripe: int
    receiver: int
    name: str
    directory: str
    segments: int
    bytes: int
    unread_bytes: int
    blocks: int
    messages: int
    events: int
    opaque: int
    floors: tuple[str, ...]
    """Codes of trading floors among them."""
    """Messages that are no events."""
    fetched: int
    uncertified: int
    first_sequence: int | None
    last_sequence: int | None
    digest: str
    """Over the digests of all its blocks: equal where two receivers hold the same, from the same sequence on."""


@dataclass(slots=True)
class AuditReport:
    """Everything that an audit found."""

    path: str
    block_messages: int
    covers: list[Cover] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    unjudged: list[Unjudged] = field(default_factory=list)
    blocks_compared: int = 0
    blocks_different: int = 0
    messages_compared: int = 0
    messages_alone: int = 0
    """Held by one receiver only: nobody to compare them with."""
    alone: Counter[int] = field(default_factory=Counter)
    """The same by stripe."""
    counts: Counter[FindingKind] = field(default_factory=Counter)

    def leave(self, law: str, count: int, text: str, *, decides: bool = False) -> None:
        """Say what was not judged, if it is anything; no `law`: that bytes were read."""
        if count:
            self.unjudged.append(Unjudged(title(law) if law else EVERY_BYTE, law, count, text, decides))

    def add(self, finding: Finding) -> None:
        """Count it, and keep it while there is room."""
        self.counts[finding.kind] += finding.count
        if len(self.findings) < _SHOWN:
            self.findings.append(finding)

    @property
    def verdict(self) -> Verdict:
        """Clean only if everything was read and nothing is wrong."""
        if not self.counts:
            return Verdict.UNJUDGED if any(each.decides for each in self.unjudged) else Verdict.CLEAN
        return Verdict.INCOMPLETE if set(self.counts) <= _INCOMPLETE else Verdict.FINDINGS

    @property
    def sentence(self) -> str:
        """The verdict for people."""
        receivers = len({cover.receiver for cover in self.covers})
        stripes = len({cover.stripe for cover in self.covers})
        held = f"{receivers} journal keepers, {stripes} stripe{'s' * (stripes != 1)}"
        compared = f"{counted(self.messages_compared, 'message')} compared in {self.blocks_compared:,} "
        compared += "block" if self.blocks_compared == 1 else "blocks"
        alone = f", {self.messages_alone:,} held by one alone" if self.messages_alone else ""
        match self.verdict:
            case Verdict.CLEAN:
                return f"CLEAN: {held}; {compared}{alone}: all hold the same sequence, and nothing was early."
            case Verdict.UNJUDGED:
                what = "; ".join(each.sentence for each in self.unjudged if each.decides)
                return f"UNJUDGED: nothing that was judged is wrong; not judged: {what}; {held}; {compared}{alone}."
            case Verdict.INCOMPLETE:
                what = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
                return f"INCOMPLETE ({what}): what was read is clean; {held}; {compared}{alone}."
            case Verdict.FINDINGS:
                what = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
                return f"FINDINGS: {what}; {held}; {compared}{alone}."

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "path": self.path,
            "block_messages": self.block_messages,
            "blocks_compared": self.blocks_compared,
            "blocks_different": self.blocks_different,
            "messages_compared": self.messages_compared,
            "messages_alone": self.messages_alone,
            "counts": {kind.value: self.counts[kind] for kind in FindingKind if self.counts[kind]},
            "findings": [finding.as_json() for finding in self.findings],
            "notes": [asdict(note) for note in self.notes],
            "not_judged": [asdict(each) for each in self.unjudged],
            "journals": [asdict(cover) for cover in self.covers],
        }
