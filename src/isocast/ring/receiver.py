"""A receiver of the timed protocol (§5): `ordering.Ordering` in time.

The law of this machine, in the order in which things happen to a token t of epoch e:

1. Its owner sends it at T_t, complete up to t-1 and on time, or stays silent and says so.
2. What is missing at T_t+δ_N+2ε is requested, k_r times; after that the ring is suspected.
3. At T_t+Δ_A it is released if the gate is open, in sequence; else it waits and a fairness fault is counted.
4. It leaves memory when every member is known to hold it, it is released, and the journal has it.

`reformation.member` decides when to seal and which ring to install; this machine only obeys.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.ring.answers import as_packets, holdings
from isocast.ring.effects import (
    Collect,
    Diverged,
    Effect,
    EntryCompleted,
    LogReplaced,
    Multicast,
    Persist,
    PromiseMade,
    RingInstalled,
    RingSuspected,
)
from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.ring.ordering import Mode
from isocast.ring.recovery import AskForRange, AskForToken, GiveUp, Recovery
from isocast.ring.rejoining import Rejoining
from isocast.ring.release import possession_floor
from isocast.ring.settings import RingSettings, Schedule
from isocast.ring.storage import SiteState
from isocast.terms.ids import Epoch, NodeId, is_source
from isocast.terms.instants import NEVER
from isocast.terms.timing import Gate
from isocast.wire.packets import (
    ControlEntry,
    Data,
    Nack,
    NewRing,
    Range,
    RangeRequest,
    Repair,
    Suspicion,
    Token,
    TokenPart,
)
from isocast.wire.token_body import token_digest

__all__ = ["Mode", "Receiver", "ReceiverSnapshot"]


@dataclass(frozen=True, slots=True)
class ReceiverSnapshot:
    """A receiver's state for checkers and console."""

    site: NodeId
    mode: Mode
    promised: Epoch
    accepted: Epoch
    held: int
    digest: bytes
    certified: int
    released: int
    collected: int
    waiting: int
    dropped: int
    next_slot: int | None


class Receiver(Rejoining):
    """One trusted receiver of the primary ring; `take` hands over its effects."""

    recovery_class = Recovery

    def __init__(self, site: NodeId, settings: RingSettings, secret: bytes, state: SiteState) -> None:
        """Start, or restart, from what the disk says."""
        super().__init__(site, settings, secret, state)
        self._deadline = NEVER
        self._last_now = -NEVER
        if state.ring is not None:
            self._enter(state.ring)

    # The contract -------------------------------------------------------------------------------

    def next_deadline(self) -> int:
        """When this machine must be woken."""
        return self._deadline

    def take(self, now: int) -> tuple[Effect, ...]:
        """Do what follows from what arrived, and hand over all effects."""
        self._settle(now)
        if not self.out:
            return ()
        effects = tuple(self.out)
        self.out.clear()
        return effects

    def snapshot(self) -> ReceiverSnapshot:
        """For whoever watches."""
        return ReceiverSnapshot(
            self.site,
            self.mode,
            self.promised,
            self.accepted,
            self.held,
            self.ledger.digest,
            self.certificates.certified,
            self.releaser.released,
            self.ledger.collected,
            len(self.ledger.waiting),
            self.ledger.dropped,
            self.issuer.slot,
        )

    # Release and stability ----------------------------------------------------------------------

    def may_release(self, token_number: int) -> bool:
        """The gate (protocol §4): what must be known before a held token goes out."""
        if self.held < self._clock_doubt or not self.clock_trusted:
            return False
        first = self.schedule.first_token if self.schedule is not None else 0
        match self.timing.gate:
            case Gate.TIMED:
                return self.mode is not Mode.SEALED
            case Gate.MAJORITY:
                return token_number <= self.certificates.certified
            case Gate.NEXT:
                return self.held >= max(token_number, first) + self.timing.next_tokens
            case Gate.TOTAL:
                size = self.schedule.size if self.schedule is not None else NEVER
                return self.held >= max(token_number, first) + size - 1

    def judge_clock(self, *, trusted: bool) -> None:
        """Stop releasing, and say so, or go on."""
        if self.clock_trusted and not trusted:
            self.out.append(RingSuspected(self.held, self.site, Suspicion.CLOCK))
        self.clock_trusted = trusted

    def stability_floor(self) -> int:
        """Every member holds everything up to here, as far as this site knows (protocol §6)."""
        if self.schedule is None or self.held < self.schedule.first_token or self.may_lose:
            return 0
        return possession_floor(self.held, self.schedule)

    def _collect(self) -> None:
        """Drop from memory what everybody holds, what is released and in the journal."""
        floor = min(self.stability_floor(), self._secstable, self.releaser.released)
        if floor > self.ledger.collected:
            self.out.append(Collect(floor))
            self.ledger.collect(floor)

    # Requests -----------------------------------------------------------------------------------

    def _ask(self, number: int, to: NodeId) -> None:
        """One aggregated request for a token and its messages."""
        token = self._tokens.get(number)
        labels = self.ledger.missing(token) if token is not None else list(self.ledger.waiting)
        if token is not None and not labels:
            # Nothing of it is missing: it waits for an earlier token.
            return
        nack = Nack(
            self.settings.stripe,
            self.accepted,
            self.site,
            number,
            has_token=token is not None,
            parts_held=self._parts.held(number),
            listed=holdings(labels),
        )
        self._send(to, nack)

    def on_repair(self, repair: Repair, now: int) -> None:
        """What was asked for."""
        match repair.item:
            case Data():
                self.on_data(repair.item, now)
            case Token():
                self.on_token(repair.item, now)
            case TokenPart():
                self.on_part(repair.item, now)

    # Orders from the reformation ----------------------------------------------------------------

    def seal(self, ballot: Epoch) -> None:
        """Promise a ballot: from now on neither send nor accept tokens or receipts below it."""
        self.promised = ballot
        self.out.append(Persist(PromiseMade(ballot)))

    def install(
        self, ring: NewRing, keep: int, suffix: tuple[LogEntry, ...], now: int, checkpoint: Checkpoint | None = None
    ) -> None:
        """Enter a new epoch: the log cut back to `keep`, continued by `suffix`, in one record.

        With `checkpoint`, nothing of the log is kept: it begins anew there, at token `keep`.
        """
        diverged = checkpoint is None and (keep, 0) < (self.releaser.released, self.releaser.offset)
        if checkpoint is not None:
            self.out.append(Persist(LogReplaced(checkpoint, ring, suffix)))
            self._take_over(checkpoint)
        elif not diverged:
            self.out.append(Persist(RingInstalled(ring, keep, suffix)))
        for number in range(keep + 1, self.held + 1):
            token = self.ledger.entries[number].token
            if token.sender == self.site:
                self.membership.cut_back(token)
        if self.may_lose:
            # A majority of that ring vouched for it, not one of U: what is not out yet needs a certificate.
            self.certificates.certified = min(self.certificates.certified, self.releaser.released)
        if diverged:
            self._diverge(ring, keep)
        self.ledger.truncate(keep)
        if diverged:
            # The disk may have let go of what is cut off here: its log begins anew at the cut, as after a checkpoint.
            self.out.append(Persist(LogReplaced(self.ledger.head.copy(), ring, suffix)))
        for entry in suffix:
            self.ledger.append(entry)
        self.promised = ring.ballot
        self._enter(ring)
        for entry in suffix:
            self.out.append(EntryCompleted(self.accepted, entry, token_digest(entry.token)))
        self._receipt(now)

    def _diverge(self, ring: NewRing, keep: int) -> None:
        """What was released here is not what the ring's log says: go on behind it, and say so."""
        first = self.ledger.entries[keep + 1].token.first_sequence
        self.out.append(Diverged(ring.ballot, first, self.releaser.next_sequence))
        self.releaser.take_over(keep, first)
        self.certificates.certified = min(self.certificates.certified, keep)

    def stray(self, ring: NewRing, parted: int) -> None:
        """A checkpoint takes the place of a log that parted from the ring's behind token `parted`."""
        if self.releaser.released <= parted:
            return
        following, mine = self.ledger.entries.get(parted + 1), self.ring
        first = self.ledger.floor.next_sequence if following is None else following.token.first_sequence
        if following is None and mine is not None and mine.uncertified:
            first = min(first, mine.first_sequence)
        self.out.append(Diverged(ring.ballot, first, self.releaser.next_sequence))

    def _enter(self, ring: NewRing) -> None:
        """Begin the epoch of a ring: schedule, receipts, requests and nonces start anew."""
        self.ring = ring
        self.accepted = ring.ballot
        self.schedule = Schedule(ring, self.timing.token_period_ns)
        self.certificates.restart()
        self._tokens.clear()
        self._parts.clear()
        self._missing = set()
        self._told_at.clear()
        self._reminded.clear()
        self._clock_doubt = 0
        self._audited = max(self.held, ring.first_token)
        self._recovery = self.recovery_in(self.schedule)
        self.rejoin.reset()
        self.reports = {}
        self._secstable = 0
        self.releaser.enter(ring.first_token)
        self.issuer.enter(ring, self.schedule, self.held)
        self.membership.enter(self, ring)
        for number in range(ring.first_token, self.held + 1):
            if number in self.ledger.entries:
                token = self.ledger.entries[number].token
                self.issuer.saw(token)
                self.reports[token.sender] = token.secstable
        self._forget_commits(self.schedule)

    def recovery_in(self, schedule: Schedule) -> Recovery:
        """The request timers of an epoch."""
        return self.recovery_class(self.site, schedule, self.timing)

    def request_control(self, entry: ControlEntry) -> None:
        """Put an entry of the network's own into this site's next token."""
        self.membership.request(self, entry)

    def drain(self, *, leaving: bool) -> None:
        """Ask for a ring without this site, or to come back; repeated at every audit."""
        self.membership.leaving = leaving
        if self.schedule is not None and self.mode is not Mode.SEALED:
            self.out.extend(self.membership.complaints(self, self.schedule, self.held))

    # Time ---------------------------------------------------------------------------------------

    def _settle(self, now: int) -> None:
        """Do everything that is due, then say when to wake up."""
        schedule = self.schedule
        self._last_now, before = now, self._last_now
        if schedule is None or self._recovery is None:
            self._deadline = NEVER
            return
        if now < before:
            self._set_back(schedule, before - now)
        normal = self.mode is not Mode.SEALED
        if normal:
            self._settle_slot(now)
            self.rejoin.progressed(self.held)
            if self.rejoin.active:
                self._settle_rejoin(now)
            else:
                self._settle_recovery(now)
            self._settle_audit(schedule, now)
            if now >= self._receipt_at:
                self._receipt(now)
        self.out.extend(self.releaser.poll(schedule, self.accepted, now, uncertified=self.may_lose))
        self._collect()
        deadline = self.releaser.next_deadline(schedule)
        if normal:
            deadline = min(
                deadline,
                self.issuer.next_deadline(self.held, now),
                self.rejoin.next_at if self.rejoin.active else self._recovery.next_deadline(self.held),
                self._receipt_at,
                self._audit_at(schedule),
            )
        self._deadline = max(deadline, now + 1)

    def _set_back(self, schedule: Schedule, span_ns: int) -> None:
        """Somebody set the clock back: instants of the schedule stay, waiting times go with the clock.

        What a clock that was ahead made this site pass over, its own slots and audits, is to come again.
        """
        self.issuer.set_back(self.held)
        self._audited = min(self._audited, max(self.held, schedule.first_token))
        self.releaser.set_back(span_ns)
        self.rejoin.set_back(span_ns)
        if self._recovery is not None:
            self._recovery.restart()
        if self._receipt_at < NEVER:
            self._receipt_at -= span_ns
        self._told_at.clear()
        self.distrusted = {site: until - span_ns for site, until in self.distrusted.items()}

    def _settle_slot(self, now: int) -> None:
        """At T_t the owner sends its token, or says why not."""
        issued = self.issuer.due(self, now)
        if isinstance(issued, RingSuspected):
            self.out.append(issued)
        elif issued is not None:
            self._append(issued)
            self._tokens.pop(issued.token.token_number, None)
            self.out.extend([Multicast(packet) for packet in as_packets(issued.token)])
            self._receipt(now)
            if self.held + 1 in self._tokens:
                self._advance(now)

    def _settle_recovery(self, now: int) -> None:
        if self._recovery is None:
            return
        for action in self._recovery.due(self.held, now):
            match action:
                case AskForToken(number, to):
                    self._ask(number, to)
                case AskForRange(first, last, to):
                    self._send(
                        to, RangeRequest(self.settings.stripe, self.accepted, self.site, Range.TOKENS, first, last)
                    )
                case GiveUp(number, suspect):
                    self.give_up(number, suspect)

    def _audit_at(self, schedule: Schedule) -> int:
        return schedule.instant(self._audited + 1) + self.timing.completion_ns

    def _settle_audit(self, schedule: Schedule, now: int) -> None:
        """Two tokens without a member's receipt raise suspicion; a healthy site asks to come in, or to leave."""
        if now < self._audit_at(schedule):
            return
        number = self._audited = max(self._audited + 1, schedule.last_due(now - self.timing.completion_ns))
        if self.held < number:
            return
        self.out.extend(self.membership.complaints(self, schedule, number))
        if self.settings.sends_receipts and number - 1 >= schedule.first_token:
            receipts = self.certificates.receipts
            for site in schedule.ring:
                if receipts.get(site, 0) < number - 1 and not is_source(site):
                    self.out.append(RingSuspected(number, site, Suspicion.NO_RECEIPTS))
