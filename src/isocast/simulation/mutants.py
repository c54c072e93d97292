"""The product with one rule switched off, each a mistake that somebody would make.

A mutant is a set of subclasses that override one rule of a machine. Nothing in the product's configuration
reaches them: only a simulated world can be built from them, to show that the checkers would catch us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from isocast.hierarchy.archive import Archive, GiveRange, ServerEffect, ServerInput
from isocast.hierarchy.complete import Complete, Repairs
from isocast.hierarchy.customer import Customer, Newest
from isocast.hierarchy.forwarding import ForwardEffect, SecondarySource, SecondarySourceInput
from isocast.hierarchy.headship import GroupPlan, Headship, Orphans
from isocast.hierarchy.latest import LatestTable, News
from isocast.hierarchy.secondary_ring import SecondaryRing
from isocast.nodes.primary_receiver import PrimaryReceiver, PrimaryReceiverInput
from isocast.nodes.retransmit_server import RetransmitServer
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.nodes.stripe_sender import StripeSender
from isocast.reformation.forming import Ballot, Formation
from isocast.reformation.member import Member
from isocast.reformation.reconciliation import Reconciled, Reconciliation
from isocast.reformation.server import ReformationServer, ReformationServerInput
from isocast.ring.answers import holdings
from isocast.ring.effects import Effect, OutboxFreed, Persist, RingSuspected
from isocast.ring.issuing import Issuer
from isocast.ring.ledger import Ledger, LogEntry
from isocast.ring.membership import Membership
from isocast.ring.receiver import Mode, Receiver
from isocast.ring.recovery import Recovery
from isocast.ring.release import Certificates, Releaser, majority
from isocast.ring.settings import RingSettings, Schedule
from isocast.ring.source import PrimarySource, PrimarySourceInput
from isocast.ring.storage import SiteState
from isocast.ring.token import choose
from isocast.simulation.world import Build
from isocast.striping.edge import EdgeStriper
from isocast.striping.edge_queue import EdgeQueue
from isocast.striping.engine import EngineState, StripeEngine, StripePacket
from isocast.striping.pacing import PacedSender
from isocast.striping.rates import RateGate
from isocast.striping.sequencer import Ask, StripeSequencer
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import MILLISECOND, NEVER
from isocast.wire.packets import (
    NO_LIMIT,
    NO_NONCE,
    Data,
    Join,
    Nack,
    NewRing,
    Packet,
    Receipt,
    ReleasedPacket,
    Standing,
    Token,
    digest_of,
)

__all__ = [
    "CHANGE_MUTANTS",
    "CLOCK_MUTANTS",
    "EDGE_MUTANTS",
    "LAYER_MUTANTS",
    "MUTANTS",
    "RULE_MUTANTS",
    "Mutant",
    "site_of",
]


# ---- What a mutant is: the product with one rule switched off.


@dataclass(frozen=True)
class Mutant:
    """One rule switched off."""

    name: str
    rule: str
    """The rule of the protocol that it breaks."""
    mistake: int
    """Its number among the ten mistakes to expect; 0 for one of ours."""
    build: Build


def site_of(receiver: type[Receiver] = Receiver, member: type[Member] = Member) -> type[PrimaryReceiver]:
    """A site made of the given halves."""
    return type("MutantReceiver", (PrimaryReceiver,), {"receiver_class": receiver, "member_class": member})


# ---- Mutants of the rules of planned changes, and of rings without a majority.


class _HastyMembership(Membership):
    changes_max = 2

    def settled(self, ring: NewRing) -> bool:  # noqa: ARG002
        return True


class _HastyReceiver(Receiver):
    membership_class = _HastyMembership


class _FoundersReceiver(Receiver):
    def __init__(self, site: NodeId, settings: RingSettings, secret: bytes, state: SiteState) -> None:
        self._founders = state.checkpoint.universe
        super().__init__(site, settings, secret, state)

    def _certify(self) -> None:
        if self._founders:
            self.certificates.certify(self._founders, self.held)
        super()._certify()


class _SilentReceiver(Receiver):
    @property
    def may_lose(self) -> bool:
        return False


class _RepeatingReleaser(Releaser):
    def take_over(self, token_number: int, next_sequence: int) -> None:
        self.restore(token_number, 0, next_sequence, next_sequence)


class _RepeatingReceiver(Receiver):
    releaser_class = _RepeatingReleaser


def _mutant(name: str, rule: str, receiver: type[Receiver]) -> Mutant:
    return Mutant(name, rule, 0, Build(receiver=site_of(receiver)))


CHANGE_MUTANTS = (
    _mutant("two-changes-at-once", "a change of U is certified before the next one begins", _HastyReceiver),
    _mutant("founders-only", "U is that of the log: whoever was added counts, whoever was removed does not",
            _FoundersReceiver),
    _mutant("unmarked-releases", "what is released without a majority of U says so", _SilentReceiver),
    _mutant("release-again", "what was released before a log was given up is never released again",
            _RepeatingReceiver),
)  # fmt: skip
"""Each breaks one rule."""


# ---- Mutants of the rules that keep wrong clocks from stopping the market (L7, F3).


class _SelfAssuredServer(ReformationServer):
    def _members_now(self, now: int) -> int:
        return now


class _FirstServer(_SelfAssuredServer):
    # Only rings that begin at a wrong time show who may try again.
    def _turn(self) -> int:
        return self._rank


class _CredulousServer(ReformationServer):
    def _wrong(self, ballot: Ballot, now: int) -> tuple[NodeId, ...]:  # noqa: ARG002
        return ()


class _SkippingIssuer(Issuer):
    def set_back(self) -> None:
        """Go on where a clock that was ahead has left off."""


class _SkippingReceiver(Receiver):
    issuer_class = _SkippingIssuer


CLOCK_MUTANTS = (
    Mutant("start-by-own-clock", "a ring begins by the clocks of its voters, not by its server's alone", 0,
           Build(server=_SelfAssuredServer)),
    Mutant("fruitless-server-first", "a server whose ballots bring no token moves behind the others", 0,
           Build(server=_FirstServer)),
    Mutant("wrong-clocks-on-the-ring", "a voter whose clock is wrong stays off the ring", 0,
           Build(server=_CredulousServer)),
    Mutant("skipped-slots", "an owner takes up the slots that a clock ahead made it skip", 0,
           Build(receiver=site_of(_SkippingReceiver))),
)  # fmt: skip
"""Each breaks one rule."""


# ---- Mutants of what lies below the ring: secondary groups, their heads and orphans, each with one rule switched
# off.


LAYER_MUTANTS: list[Mutant] = []


def _switch_off(name: str, rule: str, **build: Any) -> None:  # noqa: ANN401 (fields of Build)
    LAYER_MUTANTS.append(Mutant(name, rule, 0, Build(**build)))


class _HastyRing(SecondaryRing):
    def infer(self, schedule: Schedule) -> int:
        floor = super().infer(schedule)
        return floor if floor == NO_LIMIT else max([floor, *self.tally.passed.values()])


class _HastyHead(PrimaryReceiver):
    group_class = _HastyRing


_switch_off("infer-the-newest", "a head that hears v knows of v-b+1, not of v", receiver=_HastyHead)


class _BoastingRing(SecondaryRing):
    def due(self, schedule: Schedule, now: int) -> int:
        return schedule.last_due(now - self._delay_ns)


class _BoastingSecondary(SecondaryReceiver):
    group_class = _BoastingRing


_switch_off(
    "pass-without-holding", "a secondary token passes only from a site that holds as much", secondary=_BoastingSecondary
)


class _SelfishHeadship(Headship):
    @property
    def floor(self) -> int:
        own = self.rings.get(self._receiver.site)
        return own.floor if own is not None else NO_LIMIT


class _SelfishHead(PrimaryReceiver):
    headship_class = _SelfishHeadship


_switch_off(
    "own-group-only", "a site reports the least of all groups that it heads, not its own", receiver=_SelfishHead
)


class _HeartlessOrphans(Orphans):
    def settle(self, others: int) -> None:
        super().settle(others)
        self.floor = NO_LIMIT


class _HeartlessHeadship(Headship):
    orphans_class = _HeartlessOrphans


class _HeartlessHead(PrimaryReceiver):
    headship_class = _HeartlessHeadship


_switch_off("orphans-forgotten", "memory waits for an orphan as for any member", receiver=_HeartlessHead)


class _FaithfulPlan(GroupPlan):
    def heads(self, ring: Sequence[NodeId]) -> dict[NodeId, NodeId]:  # noqa: ARG002
        return {group: group for group in self.groups}


_switch_off("heads-for-life", "a group whose head is off the ring gets another", groups=_FaithfulPlan)


class _GrudgingRing(SecondaryRing):
    def _enter(self, schedule: Schedule) -> None:
        stalled = dict(self.tally.stalled)
        super()._enter(schedule)
        self.tally.stalled.update(stalled)


class _GrudgingHeadship(Headship):
    def _assign(self) -> None:
        self.__dict__.setdefault("known", {}).update(self.rings)
        super()._assign()
        for group, ring in self.rings.items():
            ring.tally.stalled.update(self.__dict__["known"].get(group, ring).tally.stalled)


class _GrudgingHead(PrimaryReceiver):
    group_class = _GrudgingRing
    headship_class = _GrudgingHeadship


_switch_off(
    "given-up-for-good",
    "a head that missed an epoch counts everybody anew: another may have counted whom it gave up",
    receiver=_GrudgingHead,
)


class _ShortSightedReceiver(Receiver):
    def _append(self, entry: LogEntry) -> None:
        super()._append(entry)
        self.reports.floor = entry.token.secstable


class _ShortSightedHead(PrimaryReceiver):
    receiver_class = _ShortSightedReceiver


_switch_off(
    "one-group-for-all",
    "memory waits for the group that is furthest behind, not for that of the newest token",
    receiver=_ShortSightedHead,
)


# ---- Mutants of rules whose breach shows only to a sharp eye, or in a rare world, each with one rule switched off.
#
# Whose receipts count, what a source may believe and forget, when a ring may start and what it then releases, who gets
# how much of a token, whether a revealed nonce is the committed one, and that the disk knows before others do.


RULE_MUTANTS: list[Mutant] = []


def _switch_off_rule(name: str, rule: str, **build: Any) -> None:  # noqa: ANN401 (fields of Build)
    RULE_MUTANTS.append(Mutant(name, rule, 0, Build(**build)))


def _parts(**classes: type) -> type[PrimaryReceiver]:
    """A site whose receiver uses other parts: ledger_class, issuer_class, releaser_class, recovery_class, …."""
    return site_of(type("MutantParts", (Receiver,), classes))


# Whose receipts count ----------------------------------------------------------------------------


class _HoardingReceiver(Receiver):
    def _enter(self, ring: NewRing) -> None:
        receipts = self.certificates.receipts
        super()._enter(ring)
        for site, held in receipts.items():
            self.certificates.receive(site, held)


_switch_off_rule("receipts-kept", "a new epoch begins without receipts", receiver=site_of(_HoardingReceiver))


class _CredulousReceiver(Receiver):
    def on_receipt(self, receipt: Receipt, now: int) -> None:
        if receipt.epoch < self.accepted:
            receipt = receipt._replace(epoch=self.accepted)
        super().on_receipt(receipt, now)


_switch_off_rule("old-receipts", "a receipt of an older epoch counts for nothing", receiver=site_of(_CredulousReceiver))


class _CrowdCertificates(Certificates):
    def level(self, universe: tuple[NodeId, ...]) -> int:
        held = sorted(self.receipts.values(), reverse=True)
        need = majority(universe)
        return held[need - 1] if len(held) >= need else 0


_switch_off_rule(
    "strangers-receipts",
    "only receipts of sites of U make a majority",
    receiver=_parts(certificates_class=_CrowdCertificates),
)


# What a source may believe and forget -------------------------------------------------------------


class _ImpatientSource(PrimarySource):
    def free(self, token: Token) -> None:
        before = self._freed
        super().free(token)
        held = self._held.get(self._freed)
        if self._freed > before and held is not None and held.token_number:
            del self._held[self._freed]
            self._freed += 1
            self._out.append(Persist(OutboxFreed(self._freed)))


_switch_off_rule(
    "free-one-early", "a source holds every message until its own token is stable", source=_ImpatientSource
)


class _NostalgicSource(PrimarySource):
    def _on_token(self, token: Token, now: int) -> None:
        super()._on_token(replace(token, epoch=max(token.epoch, self._epoch)), now)

    def _on_packet(self, packet: Packet, now: int) -> None:
        if isinstance(packet, Standing):
            packet = packet._replace(epoch=self._epoch)
        super()._on_packet(packet, now)


_switch_off_rule("old-epochs-heard", "a source believes nothing that an older epoch says", source=_NostalgicSource)


# When a ring starts, and what it releases then -----------------------------------------------------


class _HeadlongReleaser(Releaser):
    def due(self, entry: LogEntry, place: int, schedule: Schedule) -> int:  # noqa: ARG002
        paced = place // self._rate * MILLISECOND if self._rate else 0
        return entry.token.instant + self._delay_ns + paced


_switch_off_rule(
    "backlog-before-start",
    "what an earlier ring left unreleased goes out from the new ring's start on",
    receiver=_parts(releaser_class=_HeadlongReleaser),
)


class _ApologeticReleaser(Releaser):
    def _is_late(self, entry: LogEntry, schedule: Schedule, now: int) -> bool:
        return entry.token.token_number < schedule.first_token or super()._is_late(entry, schedule, now)


_switch_off_rule(
    "all-before-start-is-backlog",
    "what is released at its own instant is no backlog, whichever ring ordered it",
    receiver=_parts(releaser_class=_ApologeticReleaser),
)


class _ForgetfulServer(ReformationServer):
    def _decide(self, ballot: Ballot, formation: Formation, now: int) -> None:
        super()._decide(ballot, replace(formation, best=formation.best._replace(instant=-NEVER)), now)


_switch_off_rule(
    "start-ignores-the-cut", "a ring starts a period after the newest token of its cut", server=_ForgetfulServer
)


# Who gets how much of a token ----------------------------------------------------------------------


class _FirstComeIssuer(Issuer):
    def batch(self) -> list[Data]:
        waiting = self._ledger.waiting
        return choose(waiting, self._ledger.next_number, len(waiting))[: self._settings.batch_max]


_switch_off_rule(
    "first-come-takes-all",
    "a token that is full takes a max-min fair share of every source",
    receiver=_parts(issuer_class=_FirstComeIssuer),
)


class _PartialIssuer(Issuer):
    def batch(self) -> list[Data]:
        return sorted(super().batch(), key=lambda message: message.sender)


_switch_off_rule(
    "favourite-first", "messages stand in the order in which the owner got them",
    receiver=_parts(issuer_class=_PartialIssuer),
)  # fmt: skip


class _CorruptIssuer(Issuer):
    def batch(self) -> list[Data]:
        waiting, most = self._ledger.waiting, self._settings.batch_max
        chosen = choose(waiting, self._ledger.next_number, len(waiting))
        if len(chosen) <= most:
            return chosen
        kept = {message.label for message in sorted(chosen, key=lambda message: message.sender)[:most]}
        return [message for message in chosen if message.label in kept]


_switch_off_rule(
    "favourite-takes-all", "no source has more of a full token than another that wants as much",
    receiver=_parts(issuer_class=_CorruptIssuer),
)  # fmt: skip


class _LazyIssuer(Issuer):
    def batch(self) -> list[Data]:
        chosen = super().batch()
        return chosen[:-1] if len(chosen) > 1 else chosen


_switch_off_rule(
    "token-leaves-some", "a token that is not full takes everything that waits",
    receiver=_parts(issuer_class=_LazyIssuer),
)  # fmt: skip


class _TrustingIssuer(Issuer):
    def honest(self, token: Token) -> bool:  # noqa: ARG002
        return True


_switch_off_rule(
    "reveal-unchecked",
    "an owner reveals the nonce that it committed to a cycle before",
    receiver=_parts(issuer_class=_TrustingIssuer),
)


class _CunningReceiver(Receiver):
    def distrust(self, site: NodeId, now: int) -> None:
        """Let it pass."""


class _CunningMember(Member):
    def _lies(self, ring: NewRing, result: Reconciled, now: int) -> bool:  # noqa: ARG002
        return False


_switch_off_rule(
    "lie-by-reformation",
    "a token that reveals another nonce enters no log by a reformation either",
    receiver=site_of(_CunningReceiver, _CunningMember),
)


class _OneKeyLedger(Ledger):
    def entry(self, token: Token, messages: Mapping[tuple[NodeId, int], Data], previous_reveal: bytes) -> LogEntry:  # noqa: ARG002
        return super().entry(token, messages, NO_NONCE)


_switch_off_rule(
    "key-of-one-owner",
    "the key of a shuffle comes from two owners' nonces, so that none of them chooses it",
    receiver=_parts(ledger_class=_OneKeyLedger),
)


# The disk knows before others do --------------------------------------------------------------------


def _disk_last(effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
    return tuple(sorted(effects, key=lambda effect: isinstance(effect, Persist)))


class _CarelessSite(PrimaryReceiver):
    def step(self, event: PrimaryReceiverInput, now: int) -> tuple[Effect, ...]:
        return _disk_last(super().step(event, now))


class _CarelessSource(PrimarySource):
    def step(self, event: PrimarySourceInput, now: int) -> tuple[Effect, ...]:
        return _disk_last(super().step(event, now))


class _CarelessServer(ReformationServer):
    def step(self, event: ReformationServerInput, now: int) -> tuple[Effect, ...]:
        return _disk_last(super().step(event, now))


_switch_off_rule("site-sends-first", "a site writes before it sends", receiver=_CarelessSite)
_switch_off_rule("source-sends-first", "a source writes a message before it sends it", source=_CarelessSource)
_switch_off_rule("server-sends-first", "a server writes its ballot before it invites", server=_CarelessServer)
_switch_off_rule(
    "outbox-lost-unnoticed", "a source that lost its outbox comes back as a new incarnation", same_incarnation=True
)


MUTANTS: dict[str, Mutant] = {}


def _register(name: str, rule: str, mistake: int = 0, **build: Any) -> None:  # noqa: ANN401 (fields of Build)
    MUTANTS[name] = Mutant(name, rule, mistake, Build(**build))


# 1. Two-phase recovery ---------------------------------------------------------------------------


class _TwoPhaseRecovery(Recovery):
    def token_came(self, number: int, now: int) -> None:
        attempts = self._attempts.get(number)
        if attempts is not None:
            attempts.made, attempts.next_at = 0, now


class _TwoPhaseReceiver(Receiver):
    recovery_class = _TwoPhaseRecovery

    def on_token(self, token: Token, now: int) -> None:
        known = token.token_number in self._tokens
        super().on_token(token, now)
        if not known and isinstance(self._recovery, _TwoPhaseRecovery):
            self._recovery.token_came(token.token_number, now)

    def _ask(self, number: int, to: NodeId) -> None:
        if number in self._tokens:
            super()._ask(number, to)
            return
        everything = [
            (source, expected + ahead)
            for source, expected in self.ledger.next_number.items()
            for ahead in range(self.ledger.window)
        ]
        parts = self._parts.held(number)
        self._send(to, Nack(0, self.accepted, self.site, number, False, parts, holdings(everything)))  # noqa: FBT003


_register(
    "two-phase-recovery",
    "one request recovers the token and its messages together",
    1,
    receiver=site_of(_TwoPhaseReceiver),
)


# 2. A token without its messages -----------------------------------------------------------------


class _HollowReceiver(Receiver):
    def complete(self, token: Token) -> LogEntry | None:
        whole = super().complete(token)
        if whole is not None:
            return whole
        waiting = self.ledger.waiting
        labels = [label for label in self.ledger.labels(token, bytes(16)) if label in waiting]
        return LogEntry(token, tuple([waiting[label] for label in labels]), bytes(16))


_register(
    "token-without-messages",
    "h becomes t only when all messages of t are here",
    2,
    receiver=site_of(_HollowReceiver),
)


# 3. Trusting the greatest h ----------------------------------------------------------------------


class _GreatestHeldServer(ReformationServer):
    @staticmethod
    def cut_key(vote: Join) -> tuple[Any, ...]:
        return (vote.held,)


_register("greatest-held", "the cut is the greatest (e_acc, h), never the greatest h", 3, server=_GreatestHeldServer)


# 4. Releasing on time alone ----------------------------------------------------------------------


class _TimedReceiver(Receiver):
    def may_release(self, token_number: int) -> bool:
        return token_number <= self.held


_register("release-on-time-alone", "a release waits for its gate", 4, receiver=site_of(_TimedReceiver))


# 5. A source that frees at the acknowledgement ---------------------------------------------------


class _HastySource(PrimarySource):
    def free(self, token: Token) -> None:
        self._forget_until(token.token_number)


_register("free-at-acknowledgement", "a source holds a message until it is stable", 5, source=_HastySource)


# 6. The gap inference of stop-and-wait -----------------------------------------------------------


class _StopAndWaitReceiver(Receiver):
    def on_data(self, message: Data, now: int) -> None:
        if message.number <= self.ledger.next_number.get(message.sender, 1):
            super().on_data(message, now)


_register(
    "stop-and-wait-gaps",
    "a number above the next one waits; it proves no missing acknowledgement",
    6,
    receiver=site_of(_StopAndWaitReceiver),
)


# 7. The actual instant ---------------------------------------------------------------------------


class _StampingIssuer(Issuer):
    def stamp(self, slot: int, schedule: Schedule, now: int) -> int:  # noqa: ARG002
        return now


class _StampedReceiver(Receiver):
    issuer_class = _StampingIssuer

    def _scheduled(self, token: Token, schedule: Schedule) -> bool:  # noqa: ARG002
        return True


_register("actual-instant", "T_t is the scheduled instant", 7, receiver=site_of(_StampedReceiver))


# 8. Collecting too early -------------------------------------------------------------------------


class _EagerReceiver(Receiver):
    def stability_floor(self) -> int:
        floor = super().stability_floor()
        return floor + 1 if floor else 0


class _UnforgettingReceiver(Receiver):
    def stability_floor(self) -> int:
        return self.held - self.schedule.size + 1 if self.schedule else 0

    def _enter(self, ring: NewRing) -> None:
        reports = self.reports
        by_head, floor = reports.by_head, reports.floor
        super()._enter(ring)
        reports.by_head, reports.floor = by_head | reports.by_head, floor


_register("collect-one-early", "every member holds t-m+1, not t-m+2", 8, receiver=site_of(_EagerReceiver))
_register(
    "stability-across-epochs", "a new epoch restarts the count of stability", 8, receiver=site_of(_UnforgettingReceiver)
)


# 9. Next numbers that do not roll back -----------------------------------------------------------


class _StubbornLedger(Ledger):
    def truncate(self, keep: int) -> None:
        before = dict(self.next_number)
        super().truncate(keep)
        self.next_number.update(before)

    def follows(self, token: Token) -> bool:
        # The product refuses a token that skips a number; whoever forgets the roll-back forgets that too.
        return token.token_number == self.held + 1 and token.prev_digest == self.digest


_register(
    "no-roll-back",
    "next numbers are a function of the log, and roll back with it",
    9,
    receiver=_parts(ledger_class=_StubbornLedger),
)


# 10. Silent and late owners ----------------------------------------------------------------------


class _ThriftyIssuer(Issuer):
    def due(self, now: int) -> LogEntry | RingSuspected | None:
        slot, schedule = self.slot, self._schedule
        if slot is not None and schedule is not None and now >= schedule.instant(slot) and not self.batch():
            self.slot = schedule.next_slot(self.site, slot + 1)
            return None
        return super().due(now)


class _LateIssuer(Issuer):
    def may_issue(self, slot: int, *, late: bool) -> bool:  # noqa: ARG002
        return self._ledger.held == slot - 1


_register("skip-empty-tokens", "an empty token is sent too", 10, receiver=_parts(issuer_class=_ThriftyIssuer))
_register(
    "late-owner-sends", "an owner past T_t+P suspects itself and stays silent", 10,
    receiver=_parts(issuer_class=_LateIssuer),
)  # fmt: skip


# Our own -----------------------------------------------------------------------------------------


class _UnsealedReceiver(Receiver):
    def accepts(self, epoch: Epoch) -> bool:
        return epoch == self.accepted

    @property
    def mode(self) -> Mode:
        return Mode.NORMAL if self.ring is not None else Mode.SEALED


_register("no-seal", "after a promise no token or receipt of a lower epoch", receiver=site_of(_UnsealedReceiver))


class _ForgetfulReceiver(Receiver):
    def seal(self, ballot: Epoch) -> None:
        self.promised = ballot


_register("promise-in-memory", "a promise is on disk before the vote", receiver=site_of(_ForgetfulReceiver))


class _UnwrittenReceiver(Receiver):
    def persist(self, entry: LogEntry) -> None:
        """Keep it in memory."""


_register("receipt-before-disk", "a receipt is sent for what is on disk", receiver=site_of(_UnwrittenReceiver))


class _MinorityServer(ReformationServer):
    @staticmethod
    def enough(count: int, universe: tuple[NodeId, ...]) -> bool:
        return count >= len(universe) // 2


_register("half-is-enough", "only a majority of U starts an epoch", server=_MinorityServer)

_register("vote-without-disk", "a site that lost its disk never votes under its old id", remembers_nothing=True)


class _EarlyReleaser(Releaser):
    def due(self, entry: LogEntry, place: int, schedule: Schedule) -> int:
        return super().due(entry, place, schedule) - self._delay_ns // 8


_register("release-early", "nothing is released before T_t+Δ_A", receiver=_parts(releaser_class=_EarlyReleaser))


class _NumberReconciliation(Reconciliation):
    def _walk(self) -> None:
        if self._ledger.held >= self.target.cut_token:
            self._keep = self.target.cut_token
            return
        super()._walk()


class _NumberMember(Member):
    reconciliation_class = _NumberReconciliation


_register(
    "truncate-by-number",
    "the common prefix is found by the chained digest: a stale site may hold other tokens below the cut",
    receiver=site_of(member=_NumberMember),
)


class _HalfReconciliation(Reconciliation):
    def result(self) -> Reconciled | None:
        return super().result() or Reconciled(min(self._ledger.held, self.target.cut_token), ())


class _HalfMember(Member):
    reconciliation_class = _HalfReconciliation


_register(
    "install-before-fetching",
    "a ring is installed together with everything up to its cut",
    receiver=site_of(member=_HalfMember),
)


class _UnorderedLedger(Ledger):
    def labels(self, token: Token, key: bytes) -> list[tuple[NodeId, int]]:
        return list(reversed(super().labels(token, key)))


_register("source-order-lost", "each source's order is kept", receiver=_parts(ledger_class=_UnorderedLedger))


# ---- Rules of the edge: customers, archives, secondary sources and their parents (§4.1, §4.2, §7.1).


EDGE_MUTANTS: list[Mutant] = []


def _at_the_edge(name: str, rule: str, **build: Any) -> None:  # noqa: ANN401 (fields of Build)
    EDGE_MUTANTS.append(Mutant(name, rule, 0, Build(**build)))


def _customer(complete: type[Complete] = Complete, newest: type[Newest] = Newest) -> type[Customer]:
    return type("MutantCustomer", (Customer,), {"complete_class": complete, "newest_class": newest})


class _HastyComplete(Complete):
    def take(self, packets: Sequence[Packet], now: int, *, door: bool = False) -> None:
        super().take(packets, now, door=door)
        if self.held:
            run: list[ReleasedPacket] = []
            self._advance(self._drain(min(self.held), run, now), run, now)


_at_the_edge(
    "deliver-over-a-gap",
    "a complete customer delivers nothing before what precedes it",
    customer=_customer(_HastyComplete),
)


class _DoorlessRepairs(Repairs):
    def _go_on(self, following: int, overflown: int, now: int) -> None:  # noqa: ARG002
        self.reconsider(overflown)


class _DoorlessComplete(Complete):
    repairs_class = _DoorlessRepairs


_at_the_edge(
    "repair-asked-once",
    "what requests do not bring is fetched at doors, for ever",
    customer=_customer(_DoorlessComplete),
)


class _ForgetfulCustomer(Customer):
    def _begin(self, next_sequence: int) -> None:  # noqa: ARG002
        super()._begin(0)


_at_the_edge("position-forgotten", "a complete customer goes on where it stopped", customer=_ForgetfulCustomer)


class _CarelessTable(LatestTable):
    def apply(self, sequences: Sequence[int], payloads: Sequence[bytes]) -> News:
        self._sequences[:] = 0
        return super().apply(sequences, payloads)


class _CarelessNewest(Newest):
    table_class = _CarelessTable


_at_the_edge(
    "older-after-newer", "grade latest never gives an older event of a key after a newer one",
    customer=_customer(newest=_CarelessNewest),
)  # fmt: skip


class _WriteBehindArchive(RetransmitServer):
    unwritten: tuple[ServerEffect, ...] = ()

    def step(self, event: ServerInput, now: int) -> tuple[ServerEffect, ...]:
        effects = super().step(event, now)
        self.unwritten += tuple([effect for effect in effects if isinstance(effect, Archive)])
        others = tuple([effect for effect in effects if not isinstance(effect, Archive)])
        if len(self.unwritten) < _BLOCK:
            return others
        written, self.unwritten = self.unwritten, ()
        return (*written, *others)


_BLOCK = 4


_at_the_edge("archive-writes-behind", "an archive answers from what is on its disk alone", archive=_WriteBehindArchive)


class _FrozenArchive(RetransmitServer):
    def _give(self, customer: NodeId, packets: Sequence[ReleasedPacket]) -> None:
        super()._give(customer, packets)
        given = self._out[-1]
        if isinstance(given, GiveRange):
            self._out[-1] = replace(given, packets=given.packets[:1], newest=max(given.low_water, given.newest - 1))


_at_the_edge("archive-denies-the-newest", "an archive says truly how far its messages go", archive=_FrozenArchive)


class _VolatileForwarder(SecondarySource):
    def step(self, event: SecondarySourceInput, now: int) -> tuple[ForwardEffect, ...]:
        return tuple([effect for effect in super().step(event, now) if not isinstance(effect, Persist)])


_at_the_edge("outbox-in-memory", "what a secondary source accepted survives its restart", forwarder=_VolatileForwarder)


class _RenamingForwarder(SecondarySource):
    def _offer(self, now: int) -> None:
        before = self._offered
        super()._offer(now)
        offered = self._offered
        if offered is not None and offered is not before:
            batches = tuple([(digest_of(key, b"%d" % now), payload) for key, payload in offered.batches])
            self._out[-1] = self._offered = replace(offered, batches=batches)


_at_the_edge(
    "forwarded-anew", "a batch is offered to the parent under the same key each time", forwarder=_RenamingForwarder
)


class _KeylessSource(PrimarySource):
    def step(self, event: PrimarySourceInput, now: int) -> tuple[Effect, ...]:
        self._keys.clear()
        return super().step(event, now)


_at_the_edge("parent-repeats", "a source takes a key once, whoever forwards it", source=_KeylessSource)


# Narrow stripes (§4.4) ---------------------------------------------------------------------------


class _ForgetfulSender(StripeSender):
    def is_archived(self, packet: StripePacket) -> bool:  # noqa: ARG002
        return False


_at_the_edge(
    "archived-is-sent-again", "a packet that was archived before a restart is not sent again",
    stripe_sender=_ForgetfulSender,
)  # fmt: skip


class _EagerGate(RateGate):
    def room_at(self, size: int, budget: int, now: int) -> int:  # noqa: ARG002
        return now


class _EagerPacer(PacedSender):
    gate_class = _EagerGate


class _EagerSender(StripeSender):
    pacer_class = _EagerPacer


_at_the_edge(
    "rate-by-schedule-alone", "a stripe's rate holds by what was really sent, in every life of its sender",
    stripe_sender=_EagerSender,
)  # fmt: skip


class _GreedyQueue(EdgeQueue):
    def _conflate(self) -> None:
        keep = min(len(self.events), 2)
        self.events, self.sequences = self.events[-keep:], self.sequences[-keep:]


class _GreedyStriper(EdgeStriper):
    queue_class = _GreedyQueue


class _GreedyEngine(StripeEngine):
    striper_class = _GreedyStriper


_at_the_edge(
    "conflates-anything", "an overfull stripe leaves out older prices, and nothing else", stripe_engine=_GreedyEngine
)


class _AnewEngine(StripeEngine):
    def restore(self, state: EngineState) -> None:
        super().restore(state)
        self._sessions = {stripe: (day, following, following) for stripe, (day, _, following) in self._sessions.items()}


_at_the_edge("numbers-begin-anew", "a sender goes on with the numbers of its snapshot", stripe_engine=_AnewEngine)


class _NeverAsks(StripeSequencer):
    def _poll(self, now: int) -> list[Ask]:
        if super()._poll(now):
            self._pass_over(now)
        return []


_at_the_edge("stripe-gap-given-up", "a customer who wants everything asks for what it lacks", sequencer=_NeverAsks)


# Below the ring, planned changes, wrong clocks, and rules that only a sharp eye sees broken ----------

MUTANTS |= {
    mutant.name: mutant for mutant in (*LAYER_MUTANTS, *CHANGE_MUTANTS, *CLOCK_MUTANTS, *RULE_MUTANTS, *EDGE_MUTANTS)
}
