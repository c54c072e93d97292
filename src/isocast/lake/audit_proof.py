"""Journals against rosters: what a majority of the sites (S17), and each source (S21), signed.

The judge is that of `journal verify --roster`.

A journal is proven from its beginning to its end by one task: what vouches for a token may be kept with a later block,
in another segment. Journals are proven beside each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from isocast.checks.vouchers import VoucherWalk
from isocast.lake.audit_terms import AuditReport, Finding, FindingKind, Note
from isocast.lake.audit_walk import HeldJournal
from isocast.runtime.disk.journal_segments import Segment, segment_files
from isocast.runtime.market.roster_files import read_roster_file
from isocast.security.witness import RosterWitness, resealed
from isocast.terms.errors import ConfigurationError, JournalError, RemoteProtocolError, RosterError
from isocast.terms.ids import describe
from isocast.wire.journal_blocks import BlockView

__all__ = ["ProofResult", "ProofTask", "plan_proofs", "prove", "tell_proofs", "witness_of"]

_BREACHES_MAX = 200


@dataclass(frozen=True, slots=True)
class ProofTask:
    """A journal to prove."""

    stripe: int
    receiver: int
    paths: tuple[str, ...]
    """Its segments, oldest first."""
    rosters: tuple[str, ...]
    """Files, which every executor must see."""

    def to_json(self) -> str:
        """As a row's cell."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ProofTask:
        """Back from a cell."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "paths": tuple(fields["paths"]), "rosters": tuple(fields["rosters"])})


@dataclass(slots=True)
class ProofResult:
    """What a journal could prove; everything in it is JSON."""

    stripe: int
    receiver: int
    proven_tokens: int = 0
    proven_messages: int = 0
    waiting_tokens: int = 0
    reasons: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Why tokens are not proven: how many, and the first sequence."""
    signed_messages: int = 0
    """That their sources signed for."""
    awaited_messages: int = 0
    """At the end of the journal, that their sources have yet to sign for."""
    earlier_messages: int = 0
    """At the beginning of the journal, whose sources signed before it begins."""
    mixed_tokens: int = 0
    """With messages of several sources."""
    shuffled_tokens: int = 0
    """Of these: in the order of the key that two owners' nonces make."""
    keyed_tokens: int = 0
    """Whose shuffle key is the one that the nonces make."""
    unsigned: list[tuple[int, int, int]] = field(default_factory=list)
    """Source, how many messages in its name nothing that it signed covers, and the first sequence."""
    breaches: list[tuple[str, str, int, int, int, str]] = field(default_factory=list)
    """Text, path, offset, first and last sequence, and the property."""
    more: int = 0
    """Further breaches, which are not listed."""

    def to_json(self) -> str:
        """As a row's cell."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ProofResult:
        """Back from a cell."""
        return cls(**json.loads(text))


def plan_proofs(journals: Sequence[HeldJournal], rosters: Sequence[Path]) -> list[ProofTask]:
    """A task for each journal; ConfigurationError for rosters that do not count."""
    if not rosters:
        return []
    names = tuple(str(path.absolute()) for path in rosters)
    witness_of(names)
    return [ProofTask(journal.stripe, journal.receiver, journal.paths, names) for journal in journals]


@lru_cache(maxsize=4)
def witness_of(rosters: tuple[str, ...]) -> RosterWitness:
    """Who may sign, by some files; ConfigurationError for one that does not count."""
    try:
        return RosterWitness([read_roster_file(Path(path)) for path in rosters])
    except RosterError as error:
        raise ConfigurationError(rosters[0] if rosters else "command line", "--roster", str(error)) from None


def prove(task: ProofTask) -> ProofResult:
    """Walk through one journal; damage in it is reported by the reader of its bytes."""
    witness = witness_of(task.rosters)
    walk = VoucherWalk(task.stripe, witness.voters(task.stripe), witness, resealed)
    result = ProofResult(task.stripe, task.receiver)
    for path in task.paths:
        for offset, block in _sound_blocks(path):
            for breach in walk.take(block):
                if len(result.breaches) < _BREACHES_MAX:
                    place = (path, offset, breach.sequence, breach.last_sequence)
                    result.breaches.append((breach.text, *place, breach.law))
                else:
                    result.more += 1
    walk.end()
    report = walk.report
    result.proven_tokens, result.proven_messages = report.proven_tokens, report.proven_messages
    result.waiting_tokens = report.waiting_tokens
    result.mixed_tokens, result.shuffled_tokens = report.mixed_tokens, report.shuffled_tokens
    result.keyed_tokens = report.keyed_tokens
    firsts = {one.reason: one.sequence for one in reversed(report.unproven)}
    result.reasons = {reason: (count, firsts.get(reason, 0)) for reason, count in report.reasons.items()}
    sources = report.sources
    result.signed_messages = sources.signed.total()
    result.awaited_messages, result.earlier_messages = sources.waiting, sources.before
    begins = {run.source: run.sequence for run in reversed(sources.listed)}
    result.unsigned = [(source, count, begins.get(source, 0)) for source, count in sorted(sources.unsigned.items())]
    return result


def _sound_blocks(path: str) -> Iterator[tuple[int, BlockView]]:
    try:
        with Segment(segment_files(Path(path))[0]) as segment:
            for offset, block in segment.blocks():
                try:
                    block.check()
                except RemoteProtocolError:
                    continue
                yield offset, block
    except JournalError:
        return


def tell_proofs(results: Sequence[ProofResult], report: AuditReport) -> None:
    """Add what journals could not prove, and what they proved to be wrong."""
    for result in sorted(results, key=lambda result: (result.stripe, result.receiver)):
        stripe, receiver = result.stripe, result.receiver
        for text, path, offset, first, last, law in result.breaches:
            report.add(Finding(FindingKind.PROOF, stripe, receiver, text, path, offset, first, last, law=law))
        if result.more:
            text = f"{result.more:,} more words of this journal are not what was signed"
            report.add(Finding(FindingKind.PROOF, stripe, receiver, text, count=result.more))
        name = describe(receiver)
        if result.keyed_tokens:
            text = (
                f"shuffle keys of stripe {stripe} at {name} are made again from revealed nonces;"
                f" {result.shuffled_tokens:,} of {result.mixed_tokens:,} tokens with messages of several sources stand"
                " where these keys put them"
            )
            report.notes.append(Note("shuffles", stripe, receiver, result.keyed_tokens, text))
        for reason, (count, first) in result.reasons.items():
            text = f"tokens of stripe {stripe} at {name}, from sequence {first} on, are not proven: {reason}"
            report.leave("S17", count, text, decides=True)
        text = f"tokens at the end of stripe {stripe} at {name} wait for vouchers, which come with the next blocks"
        report.leave("S17", result.waiting_tokens, text)
        for source, count, first in result.unsigned:
            text = (
                f"messages of stripe {stripe} at {name}, from sequence {first} on, are in the name of"
                f" {describe(source)}, and nothing that it signed covers them"
            )
            report.leave("S21", count, text, decides=True)
        text = f"messages at the end of stripe {stripe} at {name} wait for their sources, which sign with a later token"
        report.leave("S21", result.awaited_messages, text)
        text = f"messages at the beginning of stripe {stripe} at {name} were signed for before the journal begins"
        report.leave("S21", result.earlier_messages, text)
