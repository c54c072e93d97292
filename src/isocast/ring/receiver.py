"""A receiver of the timed protocol (§2.1, §5; protocol §3, §4): it orders what arrives, and releases it on time.

The law of this machine, in the order in which things happen to a token t of epoch e:

1. Its owner sends it at T_t, complete up to t-1 and on time, or stays silent and says so.
2. A receiver takes it only in e = e_acc = prom, from its owner, with the scheduled instant and the right chain.
3. h becomes t when t and all its messages are here; then, and only then, a receipt goes out.
4. What is missing at T_t+δ_N+2ε is requested, k_r times; after that the ring is suspected.
5. At T_t+Δ_A it is released if the gate is open, in sequence; else it waits and a fairness fault is counted.
6. It leaves memory when every member is known to hold it, it is released, and the journal has it.

A message that is not acknowledged yet waits; one that is acknowledged already reminds its source. A site that lacks
what everybody else has let go takes a checkpoint over (`rejoin` says why it may).

`reformation.member` decides when to seal and which ring to install; this machine only obeys.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, assert_never

from isocast.ring.answers import Answering, as_packets, holdings
from isocast.ring.court import Court
from isocast.ring.disclosures import DisclosureBook, Fits
from isocast.ring.effects import (
    ChainHeard,
    Collect,
    Diverged,
    EntryAppended,
    EntryCompleted,
    LieProven,
    LogReplaced,
    Multicast,
    OrderMissed,
    Persist,
    PromiseMade,
    ReceiverEffect,
    RingInstalled,
    RingSuspected,
    Unicast,
    UniverseForced,
)
from isocast.ring.inputs import CheckpointFetched, ClockJudged, ControlRequested, DrainRequested, JournalRead
from isocast.ring.issuing import Issuer
from isocast.ring.ledger import Checkpoint, Ledger, LogEntry, Stored, forced_universe
from isocast.ring.membership import Membership, forced_rightly
from isocast.ring.notary import Notary
from isocast.ring.orders import are_ordered
from isocast.ring.recovery import RANGE_TOKENS, AskForRange, AskForToken, GiveUp, Recovery
from isocast.ring.rejoin import Rejoin, continues
from isocast.ring.release import Certificates, GroupReports, Releaser, possession_floor
from isocast.ring.settings import RingSettings, Schedule
from isocast.ring.source_chains import SourceChains
from isocast.ring.storage import SiteState
from isocast.ring.token import PartStore
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, is_source
from isocast.terms.instants import NEVER
from isocast.terms.timing import Gate
from isocast.wire.limits import MAX_NEXT_NUMBERS
from isocast.wire.packets import (
    Data,
    Disclose,
    Nack,
    NewRing,
    NextNumber,
    Packet,
    Range,
    RangeReply,
    RangeRequest,
    Receipt,
    Repair,
    SourceChain,
    Standing,
    Suspicion,
    Token,
    TokenPart,
)
from isocast.wire.token_body import token_digest

__all__ = ["TOKENS_AHEAD", "Mode", "Receiver", "ReceiverInput", "ReceiverSnapshot", "RingPacket", "Testimony"]

DISTRUST_CYCLES = 4
"""Of the ring, for which an owner that lied is not heard: a ballot takes less than one."""
CONTEST_ROUNDS = 2
"""As often as for a missing token, and once more: so long a contested token is held back for an answer."""
PARTS_REMINDED = 8
"""Packets of a token that a source is sent again: some eighty sources' runs and keys."""
TOKENS_AHEAD = 64
"""Tokens kept beyond h: a receiver further behind than two range requests need not store what it cannot use."""

RingPacket: TypeAlias = Data | Token | TokenPart | Receipt | Repair | Nack | RangeRequest | RangeReply | Disclose
"""The packets that are a receiver's own affair; those of ballots and groups go to other machines of its site."""

ReceiverInput: TypeAlias = (
    RingPacket | JournalRead | CheckpointFetched | ClockJudged | DrainRequested | ControlRequested
)


class Mode(StrEnum):
    """What a receiver may do."""

    NORMAL = "normal"
    SEALED = "sealed"
    CATCHUP = "catchup"
    """NORMAL, and fetching whole ranges: the site was away."""


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


@dataclass(frozen=True, slots=True)
class Testimony:
    """What a site's vote for a ballot says of its log (protocol §5)."""

    lineage: Epoch
    head: Checkpoint
    commit: bytes
    """To the nonce of its first token in the ballot's ring."""
    next_numbers: tuple[NextNumber, ...]
    """Of sources, where the log may be cut back."""
    leaving: bool
    distrusted: tuple[NodeId, ...]
    """Owners that lied: they do not count as heard."""


class Receiver:
    """One trusted receiver of the primary ring.

    `on_event` takes what happens, once or many times; `take` does what follows from it and hands over all effects.
    """

    certificates_class = Certificates
    disclosures_class = DisclosureBook
    issuer_class = Issuer
    ledger_class = Ledger
    membership_class = Membership
    recovery_class = Recovery
    releaser_class = Releaser

    def __init__(
        self,
        site: NodeId,
        settings: RingSettings,
        secret: bytes,
        state: SiteState,
        notary: Notary | None = None,
        fits: Fits | None = None,
    ) -> None:
        """Start, or restart, from what the disk says; `secret` makes this site's nonces, `notary` its signatures.

        `fits` judges the keys that sources disclose, where they do.
        """
        self.site = site
        self.notary = notary or Notary()
        self.court = Court(self.notary)
        self.settings = settings
        self.timing = settings.timing
        self.promised = state.promised
        self.accepted = NO_EPOCH
        self.ring: NewRing | None = None
        self.schedule: Schedule | None = None
        self.out: list[ReceiverEffect] = []
        """Effects to hand over, in the order in which they came about."""
        self.ledger = self.ledger_class(settings.order, settings.window, state.checkpoint)
        for number in sorted(state.entries):
            self.ledger.append(state.entries[number])
        self.certificates = self.certificates_class()
        # What was released had passed its gate: nobody needs to certify it again.
        self.certificates.certified = state.released
        self.reports = GroupReports()
        self.membership = self.membership_class(
            site, self.ledger, self.certificates, self.out, self.notary, settings.stripe
        )
        tokens = self.timing.reveal_tokens
        self.disclosures = None if fits is None else self.disclosures_class(self.ledger, tokens, fits)
        self.issuer = self.issuer_class(
            site, settings, secret, self.ledger, self.membership, self.reports, self.notary, self.disclosures
        )
        self.answering = Answering(site, settings, self.ledger, self.certificates, self.out)
        self.releaser = self.releaser_class(
            settings,
            lambda: self.ledger.entries,
            self.may_release,
            None if self.disclosures is None else self.disclosures.links_of,
        )
        self.releaser.restore(state.released, state.offset, state.next_sequence, state.skip_below)
        self.rejoin = Rejoin(self.timing)
        self.conflicts = 0
        """Receipts and tokens that contradict this site's log: an alarm."""
        self.distrusted: dict[NodeId, int] = {}
        """Owners that lied, and until when they are not believed."""
        self.clock_trusted = True
        """False while the driver knows that this site's own clock is out of its bound."""
        self._clock_doubt = 0
        self._tokens: dict[int, Token] = {}
        self._parts = PartStore()
        self._missing: set[tuple[NodeId, int]] = set()
        self._proof = PartStore()
        self._recovery: Recovery | None = None
        self._receipt_at = NEVER
        self._audited = 0
        self._told_at: dict[NodeId, int] = {}
        self._reminded: dict[NodeId, int] = {}
        self._told: dict[NodeId, Receipt] = {}
        """The newest signed receipt of each site."""
        self._chains = SourceChains(self.notary, self.timing.token_period_ns)
        self._contested: dict[int, int] = {}
        """Tokens of which others hold another content, and until when an answer is waited for."""
        self._deadline = NEVER
        self._last_now = -NEVER
        if state.ring is not None:
            self._enter(state.ring)

    # The contract ---------------------------------------------------------------------------------

    def on_event(self, event: ReceiverInput, now: int) -> None:
        """Take one input at local time `now`."""
        match event:
            case Data():
                self.on_data(event, now)
            case Token():
                self.on_token(event, now)
            case Receipt():
                self.on_receipt(event, now)
            case Repair():
                self.on_event(event.item, now)
            case Nack():
                self.on_nack(event, now)
            case TokenPart():
                self.on_part(event, now)
            case RangeRequest():
                self.answering.on_range_request(event, now)
            case RangeReply():
                self.on_range_reply(event, now)
            case Disclose():
                self.on_disclosed(event, now)
            case JournalRead():
                self.answering.on_journal(event)
            case CheckpointFetched():
                self.on_checkpoint(event, now)
            case ClockJudged(trusted):
                self.judge_clock(trusted=trusted)
            case DrainRequested(leaving):
                self.drain(leaving=leaving)
            case ControlRequested(entry):
                self.membership.request(entry, self.ring)
            case _:
                assert_never(event)

    def take(self, now: int) -> tuple[ReceiverEffect, ...]:
        """Do what follows from what arrived, and hand over all effects."""
        self._settle(now)
        return self.flush()

    def emit(self, *effects: ReceiverEffect) -> None:
        """Effects of the site's other machines leave with this one's, in the order in which they came about."""
        self.out.extend(effects)

    def flush(self) -> tuple[ReceiverEffect, ...]:
        """Hand over all effects, without looking at what is due."""
        if not self.out:
            return ()
        effects = tuple(self.out)
        self.out.clear()
        return effects

    def next_deadline(self) -> int:
        """When this machine must be woken."""
        return self._deadline

    def snapshot(self) -> ReceiverSnapshot:
        """The state, for checkers and console."""
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

    # State ----------------------------------------------------------------------------------------

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

    def accepts(self, epoch: Epoch) -> bool:
        """E = e_acc = prom: tokens and receipts of any other epoch are fenced off."""
        return epoch == self.accepted == self.promised

    # Messages -------------------------------------------------------------------------------------

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
            case Stored.BEHIND:
                if self._recovery is not None:
                    self._recovery.behind = True
            case Stored.KEPT | Stored.OUTSIDE_WINDOW:
                pass
            case other:
                assert_never(other)

    def on_chain(self, said: SourceChain, now: int) -> None:
        """Hand on what a source signed, once."""
        if self._chains.is_news(said, now):
            self.out.append(ChainHeard(said))

    def _remind(self, message: Data) -> None:
        """A source that repeats an acknowledged message missed the token: the newest token's owner sends it again."""
        schedule, source = self.schedule, message.sender
        if schedule is None or self.mode is Mode.SEALED or self.held < schedule.first_token:
            return
        if schedule.owner(self.held) != self.site or self._reminded.get(source) == self.held:
            return
        self._reminded[source] = self.held
        token = self.ledger.acknowledging(source, message.number)
        if self.disclosures is not None and token is not None:
            # Receipts are about the newest token: what lies between lets them count for the one that it missed.
            for number in range(max(token.token_number, self.held - self.timing.reveal_tokens), self.held + 1):
                packets = as_packets(self.ledger.entries[number].token)
                if len(packets) <= PARTS_REMINDED:
                    self.out += [Unicast(source, packet) for packet in packets]
            token = None
        if token is not None and token.epoch == self.accepted and len(as_packets(token)) == 1:
            self._send(source, token)
            return
        expected = self.ledger.next_number.get(source, 1)
        self._send(source, Standing(self.settings.stripe, self.accepted, self.site, source, expected, self.held))

    def on_disclosed(self, packet: Disclose, now: int) -> None:
        """A source shows keys; one that is in an earlier epoch is told of the ring."""
        if self.disclosures is None:
            return
        if packet.epoch < self.accepted:
            self.on_other_epoch(packet.epoch, packet.sender, now)
        if packet.links:
            self.disclosures.hear(packet)

    # Tokens ---------------------------------------------------------------------------------------

    def on_token(self, token: Token, now: int) -> None:
        """Take a token of the present epoch from its owner (§5; protocol §3)."""
        checkpoint, schedule = self.rejoin.checkpoint, self.schedule
        if checkpoint is not None:
            self._prove(checkpoint, token, now)
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
                self._weigh(known.token, token)
            return
        if number > self.held + TOKENS_AHEAD or number in self._tokens:
            self._compare(token)
            return
        if token.sender != schedule.owner(number) or not self._scheduled(token, schedule) or not self._forces(token):
            self.conflicts += 1
            return
        if not self.notary.is_genuine(token):
            return
        if now < token.instant - 2 * self.timing.clock_error_ns:
            self._doubt_clock(token, schedule)
        self._tokens[number] = token
        if number == self.held + 1:
            self._advance(now)

    def _compare(self, token: Token) -> None:
        """A second token of a number that waits already: a copy, or a lie of its owner's."""
        waiting = self._tokens.get(token.token_number)
        if waiting is not None and self.notary.verifies and token_digest(waiting) != token_digest(token):
            self.conflicts += 1
            self._weigh(waiting, token)

    def _weigh(self, first: Token | Receipt, second: Token | Receipt) -> None:
        """Convict the author of two signed packets that contradict each other, and multicast both."""
        evidence = self.court.weigh(first, second)
        if evidence is None:
            return
        self.out.append(LieProven(evidence))
        self.convict(evidence.author)
        for token in (evidence.first, evidence.second):
            if isinstance(token, Token):
                self.out.extend([Multicast(packet) for packet in as_packets(token)])

    def convict(self, site: NodeId) -> None:
        """From now on a site counts in no majority, and this site's votes do not name it among those it hears."""
        self.court.convicted[site] = None
        self.distrusted[site] = NEVER
        self.certificates.excluded[site] = None
        # What is not out yet needs a certificate without it.
        self.certificates.certified = min(self.certificates.certified, self.releaser.released)
        self._certify()

    def on_part(self, part: TokenPart, now: int) -> None:
        """Collect the fragments of a large token; one that proves a checkpoint lies too far ahead to be kept here."""
        number, checkpoint = part.token_number, self.rejoin.checkpoint
        if checkpoint is not None and number == checkpoint.token_number + 1 and self.accepts(part.epoch):
            token = self._proof.add(part)
            if token is not None:
                self._prove(checkpoint, token, now)
        if part.epoch != self.accepted:
            self.on_other_epoch(part.epoch, part.sender, now)
        elif self.held < number <= self.held + TOKENS_AHEAD and number not in self._tokens:
            token = self._parts.add(part)
            if token is not None:
                self.on_token(token, now)

    def _scheduled(self, token: Token, schedule: Schedule) -> bool:
        """T_t is the scheduled instant, never the actual one."""
        return token.instant == schedule.instant(token.token_number)

    def _forces(self, token: Token) -> bool:
        """U is forced by the first token of a forced ring, as the ring says, and by no other."""
        return self.ring is not None and forced_rightly(token, self.ring)

    def _doubt_clock(self, token: Token, schedule: Schedule) -> None:
        """A token before its instant proves that a clock is out of its bound: release nothing for a cycle.

        A member says so of each such token: its word counts, and may be lost. Others say it once.
        """
        if self._clock_doubt < token.token_number or self.site in schedule.ring:
            self.out.append(RingSuspected(token.token_number, token.sender, Suspicion.CLOCK))
        self._clock_doubt = max(self._clock_doubt, token.token_number + schedule.size)

    def is_ordered(self, token: Token) -> bool:
        """Whether an operator ordered what the next token says of the market."""
        return are_ordered(token, self.ledger.head.order, self.notary)

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
            follows = self.ledger.follows(token)
            ordered = not follows or self.is_ordered(token)
            honest = self.issuer.honest(token) and ordered
            if not follows or not honest:
                self.conflicts += 1
                del self._tokens[token.token_number]
                if not ordered:
                    self.out.append(OrderMissed(token.sender, token.token_number))
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
        if self.schedule is not None:
            self.reports.heard(token, self.schedule)
        self.out.append(EntryCompleted(self.accepted, entry, self.ledger.digest))
        if token.control and (universe := forced_universe(token)) is not None:
            left_out = tuple([site for site in universe_before if site not in universe])
            self.out.append(UniverseForced(self.accepted, token.token_number, universe, left_out))

    def persist(self, entry: LogEntry) -> None:
        """A receipt may go out only for what the disk has."""
        self.out.append(Persist(EntryAppended(entry)))

    def distrust(self, site: NodeId, now: int) -> None:
        """An owner lied about its nonce: for a few cycles this site's votes do not name it among those it hears.

        Its log has a token that no honest log takes. A ring whose members do not hear it begins without both; where
        there is no majority without it, the market goes on with the lie after that time, and `conflicts` tells.
        """
        size = self.schedule.size if self.schedule is not None else 1
        self.distrusted[site] = now + DISTRUST_CYCLES * size * self.timing.token_period_ns

    # Receipts and certificates --------------------------------------------------------------------

    def _receipt(self, now: int) -> None:
        """Say how far we hold the log; repeated until Δ_A after the token's instant."""
        self.certificates.receive(self.site, self.held)
        self._count_comparable(now)
        self._certify()
        if not self.settings.sends_receipts or self.mode is Mode.SEALED:
            return
        receipt = Receipt(self.settings.stripe, self.accepted, self.site, self.held, self.ledger.digest)
        self.out.append(Multicast(self.notary.sign(receipt) if self.notary.receipts else receipt))
        last = self.ledger.head.instant + self.timing.release_delay_ns
        following = now + self.timing.retry_ns
        self._receipt_at = following if following <= last else NEVER

    def on_receipt(self, receipt: Receipt, now: int) -> None:
        """Count another site's receipt, once it is seen to be about the same log."""
        if not self.accepts(receipt.epoch):
            self.on_other_epoch(receipt.epoch, receipt.sender, now)
            return
        if self.notary.receipts and self._contradicts_itself(receipt):
            return
        if receipt.held > self.held:
            self._keep(receipt)
        elif self._disagrees(receipt, now) or not self._vouched(receipt):
            return
        elif self.certificates.receive(receipt.sender, receipt.held):
            self._certify()

    def _keep(self, receipt: Receipt) -> None:
        """A receipt for a token that is not here yet waits for it.

        It says that its site holds everything before, too: perhaps another content of what is here, if an owner lied.
        """
        known = self.schedule is not None and receipt.sender in (*self.ledger.universe, *self.schedule.ring)
        if known and not self.certificates.is_waiting(receipt) and self._vouched(receipt):
            self.certificates.wait(receipt)

    def _count_comparable(self, now: int) -> None:
        """Count what waited for the tokens that are held now."""
        for receipt in self.certificates.comparable(self.held):
            if not self._disagrees(receipt, now):
                self.certificates.receive(receipt.sender, receipt.held)

    def _disagrees(self, receipt: Receipt, now: int) -> bool:
        """Whether a receipt is about another log than this site's; its sender is asked for the token."""
        ours = self.ledger.digest_at(receipt.held)
        if ours is None or ours == receipt.digest:
            return False
        self.conflicts += 1
        self._question(receipt, now)
        return True

    def _contradicts_itself(self, receipt: Receipt) -> bool:
        """Whether a site receipts another log than it did before, under the same number and epoch."""
        before = self._told.get(receipt.sender)
        if before is None or (before.epoch, before.held) != (receipt.epoch, receipt.held):
            return False
        if before.digest == receipt.digest:
            return False
        self.conflicts += 1
        self._weigh(before, receipt)
        return True

    def _question(self, receipt: Receipt, now: int) -> None:
        """Ask for a token whose receipt contradicts this site's log; meanwhile neither content is released.

        The owner's two signatures, once both are here, convict it.
        """
        if not self.notary.verifies or receipt.sender in self.court.convicted:
            return
        if self.notary.receipts and not self.notary.is_genuine(receipt):
            return  # Otherwise a holder of the group's key could hold back every release by receipts in others' names.
        until = now + CONTEST_ROUNDS * self.timing.retries_max * self.timing.retry_ns
        if now >= self._contested.setdefault(receipt.held, until):
            return
        stripe, epoch, number = self.settings.stripe, self.accepted, receipt.held
        nack = Nack(stripe, epoch, self.site, number, has_token=False, parts_held=0, listed=())
        self._send(receipt.sender, nack)

    def _vouched(self, receipt: Receipt) -> bool:
        """Whether a receipt is its sender's, where receipts are signed; one that says nothing new is not looked at."""
        if not self.notary.receipts:
            return True
        if receipt.held <= self.certificates.receipts.get(receipt.sender, 0) or not self.notary.is_genuine(receipt):
            return False
        self._told[receipt.sender] = receipt
        return True

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
        self.membership.certified()

    # Requests -------------------------------------------------------------------------------------

    def on_nack(self, nack: Nack, now: int) -> None:
        """Answer from the present epoch's log; a stale epoch gets the ring."""
        if nack.epoch == self.accepted:
            self.answering.on_nack(nack, now)
        else:
            self.on_other_epoch(nack.epoch, nack.sender, now)

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

    def give_up(self, number: int, suspect: NodeId) -> None:
        """k_r requests for a token were in vain (§5.1)."""
        self.out.append(RingSuspected(number, suspect, Suspicion.UNRECOVERED))

    def _send(self, to: NodeId, packet: Packet) -> None:
        self.out.append(Unicast(to, packet))

    # Release and stability ------------------------------------------------------------------------

    @property
    def _releases(self) -> bool:
        """Whether this site's clock lets it release anything."""
        return self.clock_trusted and self.held >= self._clock_doubt

    @property
    def announced(self) -> int:
        """The newest token that customers may expect from this site: none new while its clock keeps it silent.

        They would take it for a quiet market otherwise, and ask nobody else.
        """
        return self.held if self._releases else self.releaser.released

    def may_release(self, token_number: int) -> bool:
        """The gate (protocol §4): what must be known before a held token goes out."""
        if not self._releases:
            return False
        first = self.schedule.first_token if self.schedule is not None else 0
        match self.timing.gate:
            case Gate.TIMED:
                return self.mode is not Mode.SEALED
            case Gate.MAJORITY:
                # What opens a message, or makes it void, must be certified too.
                last = token_number + self.timing.reveal_tokens
                return last <= self.certificates.certified and not self._is_contested(last)
            case Gate.NEXT:
                return self.held >= max(token_number, first) + self.timing.next_tokens
            case Gate.TOTAL:
                size = self.schedule.size if self.schedule is not None else NEVER
                return self.held >= max(token_number, first) + size - 1

    def _is_contested(self, token_number: int) -> bool:
        """Whether it is not known yet which content of this token, or of one before it, is the ring's."""
        return any(number <= token_number and self._last_now < until for number, until in self._contested.items())

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
        floor = min(self.stability_floor(), self.reports.floor, self.releaser.released)
        if floor > self.ledger.collected:
            self.out.append(Collect(floor))
            self.ledger.collect(floor)

    # Checkpoints: what everybody else has let go --------------------------------------------------

    def on_range_reply(self, reply: RangeReply, now: int) -> None:
        """A site no longer keeps what this one lacks; when none keeps it, this site fetches a checkpoint."""
        if self.mode is not Mode.SEALED:
            self.rejoin.gone(reply, self.held + 1, self.asked(), now)

    def asked(self) -> tuple[NodeId, ...]:
        """Whom this site asks for what it lacks."""
        ring = self.schedule.ring if self.schedule is not None else ()
        return tuple([site for site in ring if site != self.site])

    def givers(self) -> tuple[NodeId, ...]:
        """Who may have a checkpoint of this epoch's log."""
        return self.asked()

    def on_checkpoint(self, fetched: CheckpointFetched, now: int) -> None:
        """Consider a checkpoint of this epoch that is ahead of this site; its journal has everything before it."""
        checkpoint = fetched.checkpoint
        if self.mode is not Mode.SEALED and checkpoint.epoch == self.accepted and checkpoint.token_number > self.held:
            self._proof.clear()
            self.rejoin.consider(checkpoint.copy(), fetched.giver, now)
        elif self.rejoin.wanting:
            self.rejoin.refuse(now)

    def _prove(self, checkpoint: Checkpoint, token: Token, now: int) -> None:
        """Take the checkpoint over if this is the token that follows it, of its owner's, and continues it."""
        schedule, number = self.schedule, token.token_number
        if schedule is None or number != checkpoint.token_number + 1 or not self.accepts(token.epoch):
            return
        if token.sender != schedule.owner(number) or not self.notary.is_genuine(token):
            return
        if not continues(token, checkpoint):
            self.rejoin.refuse(now)
            return
        self.out.append(Persist(LogReplaced(checkpoint)))
        self._take_over(checkpoint)
        self._parts.forget(self.held)
        self._tokens = {number: kept for number, kept in self._tokens.items() if number > self.held}
        self._missing = set()
        self._audited = max(self._audited, self.held)
        self.issuer.take_over()
        self._receipt(now)
        # What came meanwhile may continue it already.
        self._advance(now)

    def _take_over(self, checkpoint: Checkpoint) -> None:
        """The log is what it is behind the checkpoint: certified, since its giver had released it."""
        self.rejoin.reset()
        self.ledger.replace(checkpoint)
        self.certificates.certified = checkpoint.token_number
        self.releaser.take_over(checkpoint.token_number, checkpoint.next_sequence)

    def _settle_rejoin(self, now: int) -> None:
        """Wish for a checkpoint, or ask for the token that proves one.

        F2: a site that searches holds no token, and says so at every step of the search: a checkpoint that waits
        in vain for its proof takes longer than a token may be missing without a word.
        """
        rejoin = self.rejoin
        refused = rejoin.refused
        unproved = rejoin.checkpoint if rejoin.ask_for_proof(now) else None
        if unproved is not None:
            # The token that proves it, and what follows that one.
            first = unproved.token_number + 1
            stripe, epoch, site = self.settings.stripe, self.accepted, self.site
            last = first + RANGE_TOKENS - 1
            self._send(rejoin.giver, RangeRequest(stripe, epoch, site, Range.TOKENS, first, last))
        wish = rejoin.due(self.givers(), self.held, now)
        if wish is not None:
            self.out.append(wish)
        schedule, lacking = self.schedule, self.held + 1
        stepped = unproved is not None or wish is not None or rejoin.refused > refused
        if stepped and schedule is not None and lacking >= schedule.first_token:
            self.still_lacks(lacking, schedule.owner(lacking))

    def still_lacks(self, number: int, owner: NodeId) -> None:
        """One more step of a search for a checkpoint, without the token."""
        self.give_up(number, owner)

    # Orders from the reformation and from operators -----------------------------------------------

    def testify(self, ballot: Epoch, now: int) -> Testimony:
        """What this site's vote for a ballot says."""
        return Testimony(
            self.lineage,
            self.ledger.head,
            self.issuer.commit_for(ballot),
            self.ledger.unstable_next_numbers(MAX_NEXT_NUMBERS),
            self.membership.leaving,
            tuple([site for site, until in self.distrusted.items() if until > now]),
        )

    def catch_liar(self, entries: tuple[LogEntry, ...]) -> NodeId | None:
        """Who is known to lie in what is to continue this site's log; a lie is a conflict."""
        liar = self.issuer.liar([entry.token for entry in entries], self.accepted)
        self.conflicts += liar is not None
        return liar

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
        self._told.clear()
        self._contested.clear()
        self._clock_doubt = 0
        self._audited = max(self.held, ring.first_token)
        self._recovery = self.recovery_in(self.schedule)
        self.rejoin.reset()
        self.reports.restart()
        self.releaser.enter(ring.first_token)
        self.answering.enter(ring.ballot)
        self.issuer.enter(ring, self.schedule)
        self.membership.enter(ring)
        for number in range(ring.first_token, self.held + 1):
            if number in self.ledger.entries:
                token = self.ledger.entries[number].token
                self.issuer.saw(token)
                self.reports.by_head[token.sender] = token.secstable
        self.issuer.forget_unseen()

    def recovery_in(self, schedule: Schedule) -> Recovery:
        """The request timers of an epoch."""
        return self.recovery_class(self.site, schedule, self.timing)

    def drain(self, *, leaving: bool) -> None:
        """Ask for a ring without this site, or to come back; repeated at every audit."""
        self.membership.leaving = leaving
        if self.schedule is not None and self.mode is not Mode.SEALED:
            self.out.extend(self.membership.complaints(self.schedule, self.held))

    # Time -----------------------------------------------------------------------------------------

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
                self.issuer.next_deadline(now),
                self.rejoin.next_at if self.rejoin.active else self._recovery.next_deadline(self.held),
                self._receipt_at,
                self._audit_at(schedule),
            )
        self._deadline = max(deadline, now + 1)

    def _set_back(self, schedule: Schedule, span_ns: int) -> None:
        """The clock was set back: instants of the schedule stay, waiting times move with the clock.

        Slots and audits that this site skipped because its clock was ahead are due again.
        """
        self.issuer.set_back()
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
        issued = self.issuer.due(now)
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
        self.out.extend(self.membership.complaints(schedule, number))
        if self.settings.sends_receipts and number - 1 >= schedule.first_token:
            for site in schedule.ring:
                if self.certificates.said(site) < number - 1 and not is_source(site):
                    self.out.append(RingSuspected(number, site, Suspicion.NO_RECEIPTS))
