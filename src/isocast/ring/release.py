"""Hold until the token's instant + Δ_A and the gate, then release in order, paced (§5; protocol §4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter

from isocast.ring.effects import FairnessFaulted, ReceiverEffect, Release
from isocast.ring.ledger import LogEntry
from isocast.ring.settings import RingSettings, Schedule
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import MILLISECOND, NEVER
from isocast.wire.packets import NO_LIMIT, Data, Receipt, Token

__all__ = [
    "RECEIPTS_AHEAD",
    "Certificates",
    "GroupReports",
    "Releaser",
    "groups_floor",
    "majority",
    "possession_floor",
]

RECEIPTS_AHEAD = 64
"""Receipts of one site that wait to be compared: as many as a receiver keeps tokens beyond its own."""


class Releaser:
    """The queue between what is held and what customers may see."""

    def __init__(
        self,
        settings: RingSettings,
        entries: Callable[[], Mapping[int, LogEntry]],
        gate: Callable[[int], bool],
        links: Callable[[LogEntry, tuple[Data, ...]], tuple[bytes, ...]] | None = None,
    ) -> None:
        """`entries` gives what is held, `gate` says whether a token may be released as far as knowledge goes.

        `links` gives what opens messages, where keys are disclosed.
        """
        self._links = links
        self.released = 0
        """Everything up to this token is out."""
        self.offset = 0
        """Messages of the next token that are out."""
        self.next_sequence = 1
        """The first sequence that is not out."""
        self.passed = 0
        """The instant of the newest token that went out whole since the start; 0: none has."""
        self._skip_below = 0
        """Sequences that are out already, whatever token of a log taken over has them."""
        self._rate = settings.release_rate
        self._delay_ns = settings.timing.release_delay_ns
        self._process_ns = settings.timing.process_ns
        self._entries = entries
        self._gate = gate
        self._faulted = 0
        self._uncertified = False
        self._not_before = 0
        """While the site is late, the next step's instant."""

    def restore(self, released: int, offset: int, next_sequence: int = 1, skip_below: int = 0) -> None:
        """Go on where a restart left off."""
        self.released, self.offset, self._faulted = released, offset, released
        self.next_sequence, self._skip_below = next_sequence, skip_below

    def take_over(self, token_number: int, next_sequence: int) -> None:
        """Go on behind another site's checkpoint. What is out stays out: no sequence goes out twice."""
        self.next_sequence = max(self.next_sequence, next_sequence)
        self.restore(token_number, 0, self.next_sequence, self.next_sequence)

    def enter(self, first_token: int) -> None:
        """A new ring issues its tokens anew: a fault of an old token of that number was another's."""
        self._faulted = min(self._faulted, first_token - 1)

    def set_back(self, span_ns: int) -> None:
        """The clock was set back: the next step does not wait for the difference."""
        self._not_before = max(self._not_before - span_ns, 0)

    def due(self, entry: LogEntry, place: int, schedule: Schedule) -> int:
        """The instant, shared by all sites, of the message at `place` of a token.

        T_t+Δ_A plus the place over the stripe's release rate, in steps of a millisecond. What was ordered
        before the present ring and is still unreleased goes out from the ring's start on.
        """
        instant = entry.token.instant + self._delay_ns
        if entry.token.token_number < schedule.first_token:
            instant = max(instant, schedule.start)
        return instant + (place // self._rate * MILLISECOND if self._rate else 0)

    def next_deadline(self, schedule: Schedule) -> int:
        """When the next release, or the next fairness fault, is due."""
        number = self.released + 1
        entry = self._entries().get(number)
        if entry is None:
            at = schedule.instant(number) + self._delay_ns
            return NEVER if self._faulted >= number or number < schedule.first_token else at
        if self._faulted >= number and not self._gate(number):
            return NEVER
        due = self.due(entry, self.offset, schedule)
        return due if self._faulted < number else max(due, self._not_before)

    def poll(self, schedule: Schedule, epoch: Epoch, now: int, *, uncertified: bool = False) -> list[ReceiverEffect]:
        """Everything that may go out at `now`, marked if no majority stands behind it; the faults of what may not."""
        self._uncertified = uncertified
        effects: list[ReceiverEffect] = []
        while True:
            number = self.released + 1
            entry = self._entries().get(number)
            if entry is None:
                missed = number >= schedule.first_token and now >= schedule.instant(number) + self._delay_ns
                if missed:
                    self._fault(number, effects)
                return effects
            if now < self.due(entry, self.offset, schedule):
                return effects
            if now < self._not_before or not self._gate(number):
                self._fault(number, effects)
                return effects
            if self._is_late(entry, schedule, now):
                self._fault(number, effects)
            if not self._release(entry, schedule, epoch, now, effects):
                return effects

    def _is_late(self, entry: LogEntry, schedule: Schedule, now: int) -> bool:
        """Backlog of an earlier ring, or a site that was down or stopped when its instant came."""
        return self._is_backlog(entry, schedule) or now > self.due(entry, self.offset, schedule) + self._process_ns

    def _is_backlog(self, entry: LogEntry, schedule: Schedule) -> bool:
        """Whether a token's own instant of release lies before the start of the present ring."""
        return self.due(entry, 0, schedule) > entry.token.instant + self._delay_ns

    def _release(
        self, entry: LogEntry, schedule: Schedule, epoch: Epoch, now: int, effects: list[ReceiverEffect]
    ) -> bool:
        """Release what is due of one token; whether all of it is out."""
        total = len(entry.messages)
        if entry.token.first_sequence + self.offset < self._skip_below:
            self.offset = min(self._skip_below - entry.token.first_sequence, total)
        while self.offset < total:
            due = self.due(entry, self.offset, schedule)
            if now < max(due, self._not_before):
                return False
            step = min(self._rate or total, total - self.offset)
            first = entry.token.first_sequence + self.offset
            messages = entry.messages[self.offset : self.offset + step]
            opened = () if self._links is None else self._links(entry, messages)
            effects.append(Release(epoch, entry, first, messages, due, self._uncertified, opened))
            self.offset += step
            self.next_sequence = first + step
            # What is owed, from an earlier ring or by a site that is late, goes out step after step from now on.
            owed = now > due + self._process_ns or self._is_backlog(entry, schedule)
            self._not_before = now + MILLISECOND if owed and self._rate else 0
        self.released, self.offset = entry.token.token_number, 0
        self.passed = entry.token.instant
        return True

    def _fault(self, number: int, effects: list[ReceiverEffect]) -> None:
        if self._faulted < number:
            self._faulted = number
            effects.append(FairnessFaulted(number))


# Receipts, and what a majority of them certifies (protocol §4).


def majority(universe: tuple[NodeId, ...]) -> int:
    """More than half of U."""
    return len(universe) // 2 + 1


class Certificates:
    """How far each site has said that it holds the log in the present epoch."""

    def __init__(self) -> None:
        """Nobody has said anything."""
        self.receipts: dict[NodeId, int] = {}
        self.ahead: dict[NodeId, dict[int, Receipt]] = {}
        """Receipts for tokens that are not held here yet, each counted when its digest can be compared."""
        self.excluded: dict[NodeId, None] = {}
        """Whose receipts count in no majority."""
        self.certified = 0
        """A majority of U held everything up to here, in one epoch. Never goes back."""

    def restart(self) -> None:
        """A new epoch: receipts of an old one say nothing about it."""
        self.receipts = {}
        self.ahead = {}

    def receive(self, site: NodeId, held: int) -> bool:
        """Note a receipt; whether it says something new."""
        if held <= self.receipts.get(site, -1):
            return False
        self.receipts[site] = held
        return True

    def wait(self, receipt: Receipt) -> None:
        """Keep a receipt for a token that is not held yet, a bounded number of each site."""
        waiting = self.ahead.setdefault(receipt.sender, {})
        if len(waiting) < RECEIPTS_AHEAD:
            waiting[receipt.held] = receipt

    def is_waiting(self, receipt: Receipt) -> bool:
        """Whether a site's receipt for this token is kept already."""
        return receipt.held in self.ahead.get(receipt.sender, ())

    def comparable(self, held: int) -> list[Receipt]:
        """Take out what waited and is held now, older ones first."""
        ready = [receipt for waiting in self.ahead.values() for receipt in waiting.values() if receipt.held <= held]
        for receipt in ready:
            del self.ahead[receipt.sender][receipt.held]
        return sorted(ready, key=attrgetter("held"))

    def said(self, site: NodeId) -> int:
        """How far a site says that it holds the log, compared or not."""
        return max(self.receipts.get(site, 0), *self.ahead.get(site, ()), 0)

    def receive_from_all(self, sites: tuple[NodeId, ...], held: int) -> None:
        """Note what each of these sites is known to hold."""
        receipts = self.receipts
        for site in sites:
            if receipts.get(site, -1) < held:
                receipts[site] = held

    def level(self, universe: tuple[NodeId, ...]) -> int:
        """The newest token that a majority of this universe holds."""
        need = majority(universe)
        told = [self.receipts.get(site, 0) for site in universe if site not in self.excluded]
        held = sorted(told, reverse=True)
        return held[need - 1] if len(held) >= need else 0

    def certify(self, universe: tuple[NodeId, ...], limit: int) -> None:
        """Raise `certified` to what a majority of this universe holds, at most to `limit`."""
        self.certified = max(self.certified, min(self.level(universe), limit))


# What everyone is known to hold (§2.1, corrected; protocol §6).


def possession_floor(token_number: int, schedule: Schedule) -> int:
    """When t is sent, every member holds everything up to t-m+1: its last m senders each had all before.

    0 while the epoch has not seen a whole cycle: what another ring's members held says nothing about this one's.
    """
    floor = token_number - schedule.size + 1
    return floor if floor >= schedule.first_token else 0


def groups_floor(reports: Mapping[NodeId, int], schedule: Schedule) -> int:
    """Every secondary group holds everything up to here: the least of what each head said in its latest token.

    0 until every member has spoken in this epoch: a head that is silent may have the group that is furthest behind.
    """
    return min([reports.get(head, 0) for head in schedule.ring])


class GroupReports:
    """What heads of secondary groups say that their groups hold, in this epoch (protocol §6, §7)."""

    def __init__(self) -> None:
        """Nobody has said anything."""
        self.own = NO_LIMIT
        """What this site's own groups hold, for its next token; no limit without one."""
        self.by_head: dict[NodeId, int] = {}
        """What each head said of its groups in its latest token."""
        self.floor = 0
        """Every group holds everything up to here."""

    def restart(self) -> None:
        """A new epoch: what heads said in the old one says nothing about it."""
        self.by_head = {}
        self.floor = 0

    def heard(self, token: Token, schedule: Schedule) -> None:
        """A head's latest token became part of the log."""
        self.by_head[token.sender] = token.secstable
        if not self.floor == token.secstable == NO_LIMIT:
            self.floor = groups_floor(self.by_head, schedule)

    def floor_with_own(self, site: NodeId, schedule: Schedule) -> int:
        """What every group holds, as this site's next token will tell."""
        return groups_floor({**self.by_head, site: self.own}, schedule)
