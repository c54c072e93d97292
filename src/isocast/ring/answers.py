"""One aggregated request, and what answers it (§2.1; protocol §2 and §3): from memory, or from the log on disk.

A site that has the token names the messages it lacks. A site without the token cannot know what it lacks: it
names what it holds, and whoever has the token sends the difference. Either way one request and its answers
recover both. What neither memory nor disk has any more is not passed over in silence: whoever asks is told the oldest
token that there is.

A request is small and its answer may be megabytes, so a request that somebody recorded and repeats must not be
answered again and again: `Answered` bounds what anybody gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from isocast.ring.effects import Multicast, ReadJournal, ReceiverEffect, Unicast
from isocast.ring.inputs import JournalRead
from isocast.ring.ledger import Ledger, LogEntry
from isocast.ring.release import Certificates
from isocast.ring.settings import RingSettings
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.limits import HOLDING_BYTES, MAX_HOLDING_BITS, MAX_UDP, MAX_WHOLE_TOKEN
from isocast.wire.packets import (
    Holding,
    Nack,
    Packet,
    Pending,
    Range,
    RangeReply,
    RangeRequest,
    Repair,
    Repairable,
    Token,
    TokenPart,
)
from isocast.wire.token_body import split_token, token_bytes

__all__ = ["ANSWERS_MAX", "Answering", "AnswersGiven", "answers_to", "as_packets", "holdings"]

ANSWERS_MAX = 4_096
"""Repairs for one request: 4,096 of 1,472 bytes are 6 MB, half a second of 100 Mb/s; the next request goes on."""
_BITMAP_BYTES = MAX_UDP - 1_024
"""For all holdings of one NACK; the rest is frame, fixed fields and the map of parts."""


class AnswersGiven:
    """What was answered in the present half of a retry interval, and with how many packets.

    A site asks for the same again after a whole interval, so it is never one that waits in vain.
    """

    def __init__(self, retry_ns: int) -> None:
        """`retry_ns`: between two requests of one site for the same."""
        self._span_ns = max(retry_ns // 2, 1)
        self._span = 0
        self._requests: set[tuple[int, ...]] = set()
        self._packets: dict[NodeId, int] = {}

    def admits(self, site: NodeId, request: tuple[int, ...], now: int) -> bool:
        """Whether to answer: not the same twice, and nobody without end."""
        span = now // self._span_ns
        if span != self._span:
            self._span = span
            self._requests.clear()
            self._packets.clear()
        asked = (site, *request)
        if asked in self._requests or self._packets.get(site, 0) >= ANSWERS_MAX:
            return False
        self._requests.add(asked)
        return True

    def count(self, site: NodeId, packets: int) -> None:
        """So many packets went to a site."""
        self._packets[site] = self._packets.get(site, 0) + packets


def holdings(labels: Iterable[tuple[NodeId, int]]) -> tuple[Holding, ...]:
    """Labels as bitmaps per source, as many as fit one NACK; the next attempt names the rest."""
    numbers: dict[NodeId, list[int]] = {}
    for source, number in labels:
        numbers.setdefault(source, []).append(number)
    named: list[Holding] = []
    budget = _BITMAP_BYTES
    for source, unsorted in numbers.items():
        for holding in _bitmaps(source, sorted(unsorted)):
            budget -= HOLDING_BYTES + (holding.bitmap.bit_length() + 7) // 8
            if budget < 0:
                return tuple(named)
            named.append(holding)
    return tuple(named)


def _bitmaps(source: NodeId, numbers: list[int]) -> list[Holding]:
    """Ascending numbers of one source, in as few bitmaps as their length allows."""
    found: list[Holding] = []
    first, bitmap = numbers[0], 0
    for number in numbers:
        if number - first >= MAX_HOLDING_BITS:
            found.append(Holding(source, first, bitmap))
            first, bitmap = number, 0
        bitmap |= 1 << (number - first)
    found.append(Holding(source, first, bitmap))
    return found


def _named(listed: tuple[Holding, ...]) -> Mapping[tuple[NodeId, int], None]:
    return {
        (holding.source, holding.first + bit): None
        for holding in listed
        for bit in range(holding.bitmap.bit_length())
        if holding.bitmap >> bit & 1
    }


def as_packets(token: Token) -> tuple[Token | TokenPart, ...]:
    """A token as it travels: whole, or in parts when it is too large for a datagram."""
    return (token,) if len(token_bytes(token)) <= MAX_WHOLE_TOKEN else split_token(token)


def answers_to(nack: Nack, entry: LogEntry) -> list[Repairable]:
    """What the asking site lacks of a token, one packet each."""
    named = _named(nack.listed)
    answers: list[Repairable] = []
    if nack.has_token:
        answers.extend([m for m in entry.messages if (m.sender, m.number) in named])
        return answers[:ANSWERS_MAX]
    parts = enumerate(as_packets(entry.token))
    answers.extend([packet for place, packet in parts if not nack.parts_held >> place & 1])
    answers.extend([m for m in entry.messages if (m.sender, m.number) not in named])
    return answers[:ANSWERS_MAX]


class Answering:
    """What a receiver gives to those who lack something of the present epoch's log."""

    def __init__(
        self,
        site: NodeId,
        settings: RingSettings,
        ledger: Ledger,
        certificates: Certificates,
        out: list[ReceiverEffect],
    ) -> None:
        """Outside any ring. Answers gather in `out`."""
        self._site = site
        self._stripe = settings.stripe
        self._timing = timing = settings.timing
        self._ledger = ledger
        self._certificates = certificates
        self._out = out
        self._epoch = NO_EPOCH
        self._answered = AnswersGiven(min(timing.retry_ns, timing.secondary_retry_ns or NEVER))

    def enter(self, epoch: Epoch) -> None:
        """A new epoch: answers say so."""
        self._epoch = epoch

    def on_nack(self, nack: Nack, now: int) -> None:
        """Send what is lacking of one token; what this site lacks too is pending."""
        number = nack.token_number
        if not self._owes(nack.sender, 0, number, number, now):
            return
        entry = self._ledger.entries.get(number)
        if entry is not None:
            for item in answers_to(nack, entry):
                self._repair(nack.sender, item)
        elif number <= self._ledger.held:
            self._out.append(ReadJournal(nack.sender, number, number))
        else:
            self._send(nack.sender, Pending(self._stripe, self._epoch, self._site, number))

    def on_range_request(self, request: RangeRequest, now: int) -> None:
        """Send tokens of a range with their messages; what left memory comes from the journal."""
        if not self._owes(request.sender, request.kind, request.first, request.last, now):
            return
        last = min(request.last, self._ledger.held)
        if request.kind is Range.SEQUENCES or request.first > last:
            self._tell_oldest(request.sender, request.kind, request.first, self._ledger.collected + 1)
            return
        old = min(last, self._ledger.collected)
        if request.first <= old:
            self._out.append(ReadJournal(request.sender, request.first, old))
        entries = [self._ledger.entries[number] for number in range(max(request.first, old + 1), last + 1)]
        self._send_entries(request.sender, entries, heads_only=request.kind is Range.HEADS)

    def on_journal(self, read: JournalRead) -> None:
        """The log's part of a range; who asked for more than it has is told so."""
        first = read.entries[0].token.token_number if read.entries else self._ledger.collected + 1
        if read.first < first and read.first:
            self._tell_oldest(read.to, Range.TOKENS, read.first, read.oldest or first)
        self._send_entries(read.to, read.entries)

    def _owes(self, site: NodeId, kind: int, first: int, last: int, now: int) -> bool:
        """Whether a request for tokens deserves an answer: not what its sender has receipted, and not a copy.

        Nobody asks in an epoch for what it receipted there: a receipt says that it is on the disk. Such a request is
        a replay.
        """
        if last <= self._certificates.said(site):
            return False
        return self._answered.admits(site, (kind, first, last), now)

    def _repair(self, to: NodeId, item: Repairable) -> None:
        """Send a packet again: to one site, or to all when primary receivers take turns in asking (§5.2)."""
        self._answered.count(to, 1)
        packet = Repair(self._stripe, self._epoch, self._site, item)
        if self._timing.nack_sets > 1 and to in self._ledger.universe:
            self._out.append(Multicast(packet))
        else:
            self._send(to, packet)

    def _tell_oldest(self, to: NodeId, kind: Range, first: int, low_water: int) -> None:
        stripe, epoch, held = self._stripe, self._epoch, self._ledger.held
        self._send(to, RangeReply(stripe, epoch, self._site, kind, first, held, low_water))

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
                self._send(to, Repair(self._stripe, self._epoch, self._site, item))

    def _send(self, to: NodeId, packet: Packet) -> None:
        self._out.append(Unicast(to, packet))
