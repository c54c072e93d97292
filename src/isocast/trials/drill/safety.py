"""What the journals prove after a fault: what is lost, repeated, different, missing or early; and the drill's report.

Nothing is taken from what a process says of itself. A message was promised when a source took it; it is in the sequence
if the longest journal of a site has it; two journals differ where they have another content under one sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.model import Market
from isocast.terms.errors import JournalError
from isocast.terms.instants import SECOND
from isocast.trials.drill.trial import Accepted
from isocast.trials.evidence import Record, early_releases, is_follower, journal_of, record_of
from isocast.wire.journal_blocks import BlockView

__all__ = ["Journals", "Outcome", "Picture", "Safety", "judge", "read_journals"]


@dataclass(frozen=True, slots=True)
class Journals:
    """Everything that the nodes of a market wrote down."""

    sites: Mapping[str, Record]
    followers: Mapping[str, Record]
    """Retransmit servers and complete customers: they know no labels."""
    damaged: Mapping[str, str]
    """By node: where its journal cannot be read, and why; its record ends before that."""


@dataclass(frozen=True, slots=True)
class Safety:
    """Counts of messages, each of which must be zero under the policy of the majority."""

    lost: int
    """Promised, and not in the final sequence."""
    repeated: int
    """More than once in a journal, by label, by sequence or by content."""
    divergent: int
    """Sequences under which two journals have different contents."""
    gaps: int
    """Sequences that a journal skips, or lacks at its end though its node was there to get them."""
    early: int
    """Out before their instant."""
    unserved: int = 0
    """Of those lost, those that were promised once the market was whole again: then it does not work."""

    @property
    def is_sound(self) -> bool:
        """Whether all are zero."""
        return not (self.lost or self.repeated or self.divergent or self.gaps or self.early)


def read_journals(market: Market) -> Journals:
    """From the disk, checksums included."""
    damaged: dict[str, str] = {}

    def read(name: str) -> Record:
        return record_of(name, _readable(name, journal_of(market, name), damaged))

    sites = {plan.name: read(plan.name) for plan in market.receivers}
    followers = {plan.name: read(plan.name) for plan in market.nodes if is_follower(plan)}
    return Journals(sites, followers, damaged)


def _readable(name: str, where: Path, damaged: dict[str, str]) -> Iterator[BlockView]:
    """What of a journal can be believed."""
    if not where.is_dir():
        return
    try:
        yield from read_blocks(where)
    except JournalError as reason:
        damaged[name] = str(reason)


def judge(
    journals: Journals,
    promised: Sequence[Accepted],
    release_delay_ns: int,
    absent: Iterable[str] = (),
    whole_at: int | None = None,
) -> Safety:
    """Compare everything with everything; `absent` nodes need not have come to the end.

    `whole_at` is when the market was whole again, if it was.
    """
    records = [*journals.sites.values(), *journals.followers.values()]
    final = max(journals.sites.values(), key=lambda record: record.last_sequence, default=None)
    there = set() if final is None else set(_messages(final))
    lost = [one for one in promised if (one.source, one.number, one.digest) not in there]
    unserved = [one for one in lost if whole_at is not None and one.at >= whole_at]
    excused = {*absent, *journals.damaged}
    end = 0 if final is None else final.last_sequence
    gaps = sum([_gaps(record, 0 if record.name in excused else end) for record in records])
    early = early_releases({record.name: record for record in records}, release_delay_ns)
    return Safety(len(lost), _repeated(journals), len(_divergent(journals)), gaps, early, len(unserved))


def _messages(record: Record) -> Iterator[tuple[int, int, bytes]]:
    """Source, number and digest of each."""
    contents = record.contents
    columns = contents["source"].tolist(), contents["number"].tolist(), contents["digest"].tolist()
    return zip(*columns, strict=True)


def _repeated(journals: Journals) -> int:
    """Different messages that some journal has twice."""
    again: set[bytes] = set()
    for record in (*journals.sites.values(), *journals.followers.values()):
        messages = list(_messages(record))
        again |= _twice([digest for _, _, digest in messages], messages)
        again |= _twice(record.sequences.tolist(), messages)
    for record in journals.sites.values():
        messages = list(_messages(record))
        known = [message for message in messages if message[0]]
        again |= _twice([message[:2] for message in known], known)
    return len(again)


def _twice(keys: Sequence[object], messages: Sequence[tuple[int, int, bytes]]) -> set[bytes]:
    """The contents of messages whose key occurs more than once."""
    counts = Counter(keys)
    if len(counts) == len(keys):
        return set()
    return {message[2] for key, message in zip(keys, messages, strict=True) if counts[key] > 1}


def _divergent(journals: Journals) -> set[int]:
    """Sequences that two journals have with different contents; sites must agree on labels too."""
    contents: dict[int, bytes] = {}
    labels: dict[int, tuple[int, int]] = {}
    differing: set[int] = set()
    for record in (*journals.sites.values(), *journals.followers.values()):
        is_site = record.name in journals.sites
        for sequence, (source, number, digest) in zip(record.sequences.tolist(), _messages(record), strict=True):
            same = contents.setdefault(sequence, digest) == digest
            if is_site and source:  # A journal that was filled again from a retransmit server knows no labels.
                same &= labels.setdefault(sequence, (source, number)) == (source, number)
            if not same:
                differing.add(sequence)
    return differing


def _gaps(record: Record, end: int) -> int:
    """Sequences from 1 on that are not there, up to `end` or to the last that is."""
    have: set[int] = set(record.sequences.tolist())
    return max([end, *have]) - len(have)


# ---- What a drill showed: figures for programs, and the releases of every site as a picture.


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
