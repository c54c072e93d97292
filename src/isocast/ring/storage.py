"""What a site's disk says after any prefix of its records: the same for a simulated disk and a real one."""

from __future__ import annotations

from dataclasses import dataclass, field

from isocast.ring.effects import EntryAppended, PromiseMade, Record, Release, RingInstalled
from isocast.ring.entries import LogEntry
from isocast.ring.ledger import Checkpoint
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
                for number in range(keep + 1, self.held + 1):
                    del self.entries[number]
                for entry in suffix:
                    self._append(entry)
                self.ring = ring
                self.promised = ring.ballot
            case _:
                pass

    def release(self, effect: Release) -> None:
        """Note what went out: the journal of releases."""
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
