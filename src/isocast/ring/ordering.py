"""How what arrives becomes the log (§2.1 and §5; protocol §3): messages wait, tokens order them, receipts say so.

The rules, for a token t of epoch e:

1. A receiver takes it only in e = e_acc = prom, from its owner, with the scheduled instant and the right chain.
2. h becomes t when t and all its messages are here; then, and only then, a receipt goes out.
3. A message that is not acknowledged yet waits; one that is acknowledged already reminds its source.

`receiver.Receiver` adds time: sending, asking, releasing.
"""

from __future__ import annotations

from enum import StrEnum

from isocast.ring.answers import Answered, as_packets
from isocast.ring.effects import (
    Effect,
    EntryAppended,
    EntryCompleted,
    Multicast,
    Persist,
    RingSuspected,
    Unicast,
    UniverseForced,
)
from isocast.ring.issuing import Issuer
from isocast.ring.ledger import Ledger, LogEntry, Stored, forced_universe
from isocast.ring.membership import Membership, forced_rightly
from isocast.ring.recovery import Recovery
from isocast.ring.release import Certificates, groups_floor, possession_floor
from isocast.ring.settings import RingSettings, Schedule
from isocast.ring.storage import SiteState
from isocast.ring.token import PartStore
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import NO_LIMIT, Data, Nack, NewRing, Packet, Receipt, Standing, Suspicion, Token, TokenPart
from isocast.wire.token_body import token_digest

__all__ = ["TOKENS_AHEAD", "Mode", "Ordering"]

DISTRUST_CYCLES = 4
"""Of the ring, for which an owner that lied is not heard: a ballot takes less than one."""
TOKENS_AHEAD = 64
"""Tokens kept beyond h: a receiver further behind than two range requests need not store what it cannot use."""


class Mode(StrEnum):
    """What a receiver may do."""

    NORMAL = "normal"
    SEALED = "sealed"
    CATCHUP = "catchup"
    """NORMAL, and fetching whole ranges: the site was away."""


class Ordering:
    """The log of one receiver, and everything that makes it grow. Effects gather in `out`."""

    certificates_class = Certificates
    issuer_class = Issuer
    ledger_class = Ledger
    membership_class = Membership

    def __init__(self, site: NodeId, settings: RingSettings, secret: bytes, state: SiteState) -> None:
        """Start, or restart, from what the disk says; `secret` makes this site's nonces."""
        self.site = site
        self.settings = settings
        self.timing = settings.timing
        self.promised = state.promised
        self.accepted = NO_EPOCH
        self.ring: NewRing | None = None
        self.schedule: Schedule | None = None
        self.ledger = self.ledger_class(settings.order, settings.window, state.checkpoint)
        for number in sorted(state.entries):
            self.ledger.append(state.entries[number])
        self.certificates = self.certificates_class()
        # What was released had passed its gate: nobody needs to certify it again.
        self.certificates.certified = state.released
        self.issuer = self.issuer_class(site, settings, secret)
        self.membership = self.membership_class(site)
        self.out: list[Effect] = []
        self.conflicts = 0
        """Receipts and tokens that contradict this site's log: an alarm."""
        self.distrusted: dict[NodeId, int] = {}
        """Owners that lied, and until when they are not believed."""
        self.group_floor = NO_LIMIT
        """What this site's own secondary group holds, for its next token; no limit without one."""
        self.reports: dict[NodeId, int] = {}
        """What each head said of its group in its latest token of this epoch."""
        self._tokens: dict[int, Token] = {}
        self._parts = PartStore()
        self._missing: set[tuple[NodeId, int]] = set()
        self._recovery: Recovery | None = None
        self._secstable = 0
        self._clock_doubt = 0
        self.clock_trusted = True
        """False while the driver knows that this site's own clock is out of its bound."""
        self._receipt_at = NEVER
        self._answered = Answered(min(self.timing.retry_ns, self.timing.secondary_retry_ns or NEVER))
        self._told_at: dict[NodeId, int] = {}
        self._reminded: dict[NodeId, int] = {}

    @property
    def mode(self) -> Mode:
        """SEALED from a promise until the ring of that ballot, or a higher one, is installed."""
        if self.promised != self.accepted or self._recovery is None:
            return Mode.SEALED
        return Mode.CATCHUP if self._recovery.catching_up else Mode.NORMAL

    @property
    def may_lose(self) -> bool:
        """Whether this epoch's log may lose to another's: nothing of it is stable, and releases are marked."""
        return self.ring is not None and self.ring.uncertified

    @property
    def lineage(self) -> Epoch:
        """The epoch that a vote names: e_acc; in a ring without a majority of U, the last one before it that had one.

        So a log that a majority stands behind is never cut back for one that grew elsewhere without.
        """
        return self.ring.cut_epoch if self.ring is not None and self.ring.uncertified else self.accepted

    @property
    def held(self) -> int:
        """The newest token that is here with everything before it: h."""
        return self.ledger.held

    # Messages -----------------------------------------------------------------------------------

    def on_data(self, message: Data, now: int) -> None:
        """Store a message until a token acknowledges it; the work per DATA packet is this dictionary step."""
        ledger = self.ledger
        source, number = message.sender, message.number
        expected = ledger.next_number.get(source, 1)
        if expected <= number < expected + ledger.window and message.base <= expected:
            label = message.label
            waiting = ledger.waiting
            if label not in waiting:
                waiting[label] = message
                if self._missing and label in self._missing:
                    self._missing.discard(label)
                    if not self._missing:
                        self._advance(now)
            return
        match ledger.store(message):
            case Stored.DUPLICATE:
                self._remind(message)
            case Stored.BEHIND if self._recovery is not None:
                self._recovery.behind = True
            case _:
                pass

    def _remind(self, message: Data) -> None:
        """A source that repeats an acknowledged message missed the token: the newest token's owner sends it again."""
        schedule, source = self.schedule, message.sender
        if schedule is None or self.mode is Mode.SEALED or self.held < schedule.first_token:
            return
        if schedule.owner(self.held) != self.site or self._reminded.get(source) == self.held:
            return
        self._reminded[source] = self.held
        token = self.ledger.acknowledging(source, message.number)
        if token is not None and token.epoch == self.accepted and len(as_packets(token)) == 1:
            self._send(source, token)
            return
        expected = self.ledger.next_number.get(source, 1)
        self._send(source, Standing(self.settings.stripe, self.accepted, self.site, source, expected, self.held))

    # Tokens -------------------------------------------------------------------------------------

    def on_token(self, token: Token, now: int) -> None:
        """Take a token of the present epoch from its owner (§5; protocol §3)."""
        schedule = self.schedule
        if schedule is None or not self.accepts(token.epoch):
            self.on_other_epoch(token.epoch, token.sender, now)
            return
        number = token.token_number
        if number <= self.held:
            known = self.ledger.entries.get(number)
            if (
                known is not None
                and known.token.epoch == token.epoch
                and token_digest(known.token) != token_digest(token)
            ):
                self.conflicts += 1
            return
        if number > self.held + TOKENS_AHEAD or number in self._tokens:
            return
        if token.sender != schedule.owner(number) or not self._scheduled(token, schedule) or not self._forces(token):
            self.conflicts += 1
            return
        if now < token.instant - 2 * self.timing.clock_error_ns:
            self._doubt_clock(token)
        self._tokens[number] = token
        if number == self.held + 1:
            self._advance(now)

    def on_part(self, part: TokenPart, now: int) -> None:
        """Collect the fragments of a large token."""
        if part.epoch != self.accepted:
            self.on_other_epoch(part.epoch, part.sender, now)
        elif self.held < part.token_number <= self.held + TOKENS_AHEAD and part.token_number not in self._tokens:
            token = self._parts.add(part)
            if token is not None:
                self.on_token(token, now)

    def accepts(self, epoch: Epoch) -> bool:
        """E = e_acc = prom: tokens and receipts of any other epoch are fenced off."""
        return epoch == self.accepted == self.promised

    def _scheduled(self, token: Token, schedule: Schedule) -> bool:
        """T_t is the scheduled instant, never the actual one."""
        return token.instant == schedule.instant(token.token_number)

    def _forces(self, token: Token) -> bool:
        """U is forced by the first token of a forced ring, as the ring says, and by no other."""
        return self.ring is not None and forced_rightly(token, self.ring)

    def _doubt_clock(self, token: Token) -> None:
        """A token before its instant proves that a clock is out of its bound: release nothing for a cycle."""
        schedule = self.schedule
        size = schedule.size if schedule else 1
        if self._clock_doubt < token.token_number:
            self.out.append(RingSuspected(token.token_number, token.sender, Suspicion.CLOCK))
        self._clock_doubt = max(self._clock_doubt, token.token_number + size)

    def complete(self, token: Token) -> LogEntry | None:
        """The token with all its messages, or None while something is missing."""
        return self.ledger.gather(token)

    def _advance(self, now: int) -> None:
        """While the next token and all its messages are here: h += 1."""
        if not self.accepts(self.accepted):
            # Sealed: the log that a vote reported must not grow, however late a message comes.
            return
        before = self.held
        self._missing = set()
        while (token := self._tokens.get(self.held + 1)) is not None:
            honest = self.issuer.honest(token)
            if not self.ledger.follows(token) or not honest:
                self.conflicts += 1
                del self._tokens[token.token_number]
                if not honest:
                    self.distrust(token.sender, now)
                break
            entry = self.complete(token)
            if entry is None:
                self._missing = set(self.ledger.missing(token))
                break
            del self._tokens[token.token_number]
            self._append(entry)
        if self.held > before:
            self._parts.forget(self.held)
            self._receipt(now)
            if self._recovery is not None:
                self._recovery.progressed(self.held, now)

    def _append(self, entry: LogEntry) -> None:
        """Make an entry part of the log, on disk first."""
        self.persist(entry)
        universe_before = self.ledger.universe
        self.ledger.append(entry)
        token = entry.token
        self.issuer.saw(token)
        self.reports[token.sender] = token.secstable
        if self.schedule is not None and not self._secstable == token.secstable == NO_LIMIT:
            self._secstable = groups_floor(self.reports, self.schedule)
        self.out.append(EntryCompleted(self.accepted, entry, self.ledger.digest))
        if token.control and (universe := forced_universe(token)) is not None:
            left_out = tuple([site for site in universe_before if site not in universe])
            self.out.append(UniverseForced(self.accepted, token.token_number, universe, left_out))

    def distrust(self, site: NodeId, now: int) -> None:
        """An owner lied about its nonce: for a few cycles this site's votes do not name it among those it hears.

        Its log has a token that no honest log takes. A ring whose members do not hear it begins without both; where
        there is no majority without it, the market goes on with the lie after that time, and `conflicts` tells.
        """
        size = self.schedule.size if self.schedule is not None else 1
        self.distrusted[site] = now + DISTRUST_CYCLES * size * self.timing.token_period_ns

    def persist(self, entry: LogEntry) -> None:
        """A receipt may go out only for what the disk has."""
        self.out.append(Persist(EntryAppended(entry)))

    def on_other_epoch(self, epoch: Epoch, sender: NodeId, now: int) -> None:
        """A sender behind us gets our ring; one ahead of us is asked for its ring, by a request it finds stale."""
        told_at = self._told_at.get(sender, -NEVER)
        if told_at <= now < told_at + self.timing.retry_ns:
            return
        if epoch < self.accepted and self.ring is not None:
            self._told_at[sender] = now
            self._send(sender, self.ring)
        elif epoch > self.accepted:
            self._told_at[sender] = now
            nack = Nack(
                self.settings.stripe, self.accepted, self.site, self.held + 1, has_token=False, parts_held=0, listed=()
            )
            self._send(sender, nack)

    # Receipts -----------------------------------------------------------------------------------

    def _receipt(self, now: int) -> None:
        """Say how far we hold the log; repeated until Δ_A after the token's instant."""
        self.certificates.receive(self.site, self.held)
        self._certify()
        if not self.settings.sends_receipts or self.mode is Mode.SEALED:
            return
        self.out.append(
            Multicast(Receipt(self.settings.stripe, self.accepted, self.site, self.held, self.ledger.digest))
        )
        last = self.ledger.head.instant + self.timing.release_delay_ns
        following = now + self.timing.retry_ns
        self._receipt_at = following if following <= last else NEVER

    def on_receipt(self, receipt: Receipt, now: int) -> None:
        """Count another site's receipt, if it is about the same log."""
        if not self.accepts(receipt.epoch):
            self.on_other_epoch(receipt.epoch, receipt.sender, now)
            return
        ours = self.ledger.digest_at(receipt.held)
        if ours is not None and ours != receipt.digest:
            self.conflicts += 1
        elif self.certificates.receive(receipt.sender, receipt.held):
            self._certify()

    def owes(self, site: NodeId, kind: int, first: int, last: int, now: int) -> bool:
        """Whether a request for tokens deserves an answer: not what its sender has receipted, and not a copy.

        Nobody asks in an epoch for what it receipted there: a receipt says that it is on the disk. Whoever does was
        recorded and is repeated by somebody else.
        """
        if last <= self.certificates.receipts.get(site, 0):
            return False
        return self._answered.admits(site, (kind, first, last), now)

    def _certify(self) -> None:
        """Raise `certified`: a change of U counts for what follows, once the U before it or after it has certified it.

        Any two majorities of the two share a site, so either will do; and a site that comes later may find no majority
        of the one before. Of several changes in its log, all but the newest were certified before the next was issued.

        In a ring that was started without a majority of U, a majority of the ring stands for it, and releases say so.
        """
        certificates, ring = self.certificates, self.ring
        if not self.settings.sends_receipts and self.schedule is not None:
            # No receipts: what this token proves that every member holds, every member has as good as receipted.
            floor = possession_floor(self.held, self.schedule)
            certificates.receive_from_all(self.schedule.ring, floor)
        if ring is not None and ring.uncertified:
            certificates.certify(ring.ring, self.held)
            return
        certificates.certified = max(certificates.certified, self.ledger.settled_change)
        changed_at, before = self.ledger.uncertified_change(certificates.certified)
        if changed_at:
            certificates.certify(before, changed_at)
            certificates.certify(self.ledger.universe, changed_at)
        if certificates.certified >= changed_at:
            certificates.certify(self.ledger.universe, self.held)
        self.membership.certified(self)

    def give_up(self, number: int, suspect: NodeId) -> None:
        """k_r requests for a token were in vain (§5.1)."""
        self.out.append(RingSuspected(number, suspect, Suspicion.UNRECOVERED))

    def _send(self, to: NodeId, packet: Packet) -> None:
        self.out.append(Unicast(to, packet))
