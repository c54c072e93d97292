"""What a receiver gives to those who lack something (§2.1; protocol §3): from memory, or from its log on disk.

What neither has any more is not passed over in silence: whoever asks is told the oldest token that there is.
"""

from __future__ import annotations

from isocast.ring.answers import ANSWERS_MAX, answers_to, as_packets
from isocast.ring.effects import Multicast, ReadJournal
from isocast.ring.inputs import JournalRead
from isocast.ring.ledger import LogEntry
from isocast.ring.ordering import Ordering
from isocast.terms.ids import NodeId
from isocast.wire.packets import Nack, Pending, Range, RangeReply, RangeRequest, Repair, Repairable

__all__ = ["Serving"]


class Serving(Ordering):
    """As `Ordering`, and answers requests."""

    def on_nack(self, nack: Nack, now: int) -> None:
        """Answer from the present epoch's log; a stale epoch gets the ring; what is lacking is pending."""
        if nack.epoch != self.accepted:
            self.on_other_epoch(nack.epoch, nack.sender, now)
            return
        number = nack.token_number
        if not self.owes(nack.sender, 0, number, number, now):
            return
        entry = self.ledger.entries.get(number)
        if entry is not None:
            for item in answers_to(nack, entry):
                self.repair(nack.sender, item)
        elif number <= self.held:
            self.out.append(ReadJournal(nack.sender, number, number))
        else:
            self._send(nack.sender, Pending(self.settings.stripe, self.accepted, self.site, number))

    def repair(self, to: NodeId, item: Repairable) -> None:
        """Send a packet again: to one site, or to all when primary receivers take turns in asking (§5.2)."""
        self._answered.count(to, 1)
        packet = Repair(self.settings.stripe, self.accepted, self.site, item)
        if self.timing.nack_sets > 1 and to in self.ledger.universe:
            self.out.append(Multicast(packet))
        else:
            self._send(to, packet)

    def on_range_request(self, request: RangeRequest, now: int) -> None:
        """Send tokens of a range with their messages; what left memory comes from the journal."""
        if not self.owes(request.sender, request.kind, request.first, request.last, now):
            return
        last = min(request.last, self.held)
        if request.kind is Range.SEQUENCES or request.first > last:
            self._tell_oldest(request.sender, request.kind, request.first, self.ledger.collected + 1)
            return
        old = min(last, self.ledger.collected)
        if request.first <= old:
            self.out.append(ReadJournal(request.sender, request.first, old))
        entries = [self.ledger.entries[number] for number in range(max(request.first, old + 1), last + 1)]
        self._send_entries(request.sender, entries, heads_only=request.kind is Range.HEADS)

    def on_journal(self, read: JournalRead) -> None:
        """The log's part of a range; who asked for more than it has is told so."""
        first = read.entries[0].token.token_number if read.entries else self.ledger.collected + 1
        if read.first < first and read.first:
            self._tell_oldest(read.to, Range.TOKENS, read.first, read.oldest or first)
        self._send_entries(read.to, read.entries)

    def _tell_oldest(self, to: NodeId, kind: Range, first: int, low_water: int) -> None:
        stripe, epoch, held = self.settings.stripe, self.accepted, self.held
        self._send(to, RangeReply(stripe, epoch, self.site, kind, first, held, low_water))

    def _send_entries(
        self, to: NodeId, entries: list[LogEntry] | tuple[LogEntry, ...], *, heads_only: bool = False
    ) -> None:
        sent = 0
        for entry in entries:
            items: list[Repairable] = list(as_packets(entry.token))
            if not heads_only:
                items.extend(entry.messages)
            sent += len(items)
            if sent > ANSWERS_MAX and sent > len(items):
                return
            self._answered.count(to, len(items))
            for item in items:
                self._send(to, Repair(self.settings.stripe, self.accepted, self.site, item))
