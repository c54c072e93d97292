"""What a site's disk says after any prefix of its records: the same for a simulated disk and a real one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from isocast.ring.effects import (
    BallotChosen,
    EntryAppended,
    LogReplaced,
    OutboxAppended,
    OutboxFreed,
    PromiseMade,
    Record,
    Release,
    RingDecided,
    RingInstalled,
)
from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.terms.ids import NO_EPOCH, Epoch
from isocast.wire.packets import NewRing

__all__ = ["SiteState"]


@dataclass(slots=True)
class SiteState:
    """prom, e_acc with its ring, the log, and how far the site has released."""

    checkpoint: Checkpoint
    """The log's state before the first entry that is kept."""
    retain: int = 1 << 62
    """How many entries to keep; older ones are folded into the checkpoint."""
    promised: Epoch = NO_EPOCH
    ring: NewRing | None = None
    entries: dict[int, LogEntry] = field(default_factory=dict)
    released: int = 0
    offset: int = 0
    next_sequence: int = 1
    """The first sequence that is not released."""
    skip_below: int = 0
    """After the log was replaced: sequences below it are out, whatever token has them now."""

    @property
    def held(self) -> int:
        """The newest token on disk."""
        return self.checkpoint.token_number + len(self.entries)

    def apply(self, record: Record) -> None:
        """Take one record."""
        match record:
            case PromiseMade(ballot):
                self.promised = ballot
            case EntryAppended(entry):
                self._append(entry)
            case RingInstalled(ring, keep, suffix):
                self._cut_back(keep)
                for entry in suffix:
                    self._append(entry)
                self.ring = ring
                self.promised = ring.ballot
            case LogReplaced():
                self._replace(record)
            case OutboxAppended() | OutboxFreed() | BallotChosen() | RingDecided():
                pass  # Of a source's or a server's disk.
            case _:
                assert_never(record)

    def _cut_back(self, keep: int) -> None:
        """Let go of everything behind a token; what was released of it stays released."""
        if keep < self.released or (keep == self.released and self.offset):
            self.released, self.offset = keep, 0
            self.skip_below = self.next_sequence
        for number in range(keep + 1, self.held + 1):
            del self.entries[number]

    def _replace(self, record: LogReplaced) -> None:
        """Begin anew behind a checkpoint; what was released stays released."""
        self.checkpoint = record.checkpoint.copy()
        self.entries.clear()
        self.released, self.offset = self.checkpoint.token_number, 0
        self.next_sequence = self.skip_below = max(self.next_sequence, self.checkpoint.next_sequence)
        for entry in record.suffix:
            self._append(entry)
        if record.ring is not None:
            self.ring = record.ring
            self.promised = record.ring.ballot

    def release(self, effect: Release) -> None:
        """Note what went out: the journal of releases."""
        self.next_sequence = effect.first_sequence + len(effect.messages)
        done = effect.first_sequence + len(effect.messages) - effect.entry.token.first_sequence
        if done == len(effect.entry.messages):
            self.released, self.offset = effect.entry.token.token_number, 0
        else:
            self.released, self.offset = effect.entry.token.token_number - 1, done

    def read(self, first: int, last: int) -> tuple[LogEntry, ...]:
        """The entries of a range that the disk still has."""
        return tuple([self.entries[number] for number in range(first, last + 1) if number in self.entries])

    def _append(self, entry: LogEntry) -> None:
        self.entries[entry.token.token_number] = entry
        if len(self.entries) > self.retain and self.checkpoint.token_number < self.released:
            self.checkpoint.advance(self.entries.pop(self.checkpoint.token_number + 1))
