"""Mutants of the ring and of its reformation: what a mutant is, the mistakes to expect, and rules that hide well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from isocast.nodes.primary_receiver import PrimaryReceiver, PrimaryReceiverInput
from isocast.reformation.forming import Ballot, Formation
from isocast.reformation.member import Member
from isocast.reformation.reconciliation import Reconciled, Reconciliation
from isocast.reformation.server import ReformationServer, ReformationServerEffect, ReformationServerInput
from isocast.ring.answers import holdings
from isocast.ring.effects import OutboxFreed, Persist, ReceiverEffect, RingSuspected, SourceEffect
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
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import MILLISECOND, NEVER
from isocast.wire.packets import (
    NO_NONCE,
    Data,
    Join,
    Nack,
    NewRing,
    Packet,
    Receipt,
    Standing,
    Token,
)

__all__ = [
    "CHANGE_MUTANTS",
    "CLOCK_MUTANTS",
    "MISTAKE_MUTANTS",
    "RULE_MUTANTS",
    "Mutant",
    "switch_off",
]


@dataclass(frozen=True)
class Mutant:
    """One rule switched off."""

    name: str
    rule: str
    """The rule of the protocol that it breaks."""
    mistake: int
    """Its number among the ten mistakes to expect; 0 for one of ours."""
    build: Build


def _site_of(receiver: type[Receiver] = Receiver, member: type[Member] = Member) -> type[PrimaryReceiver]:
    """A site made of the given halves."""
    return type("MutantReceiver", (PrimaryReceiver,), {"receiver_class": receiver, "member_class": member})


def _parts(**classes: type) -> type[PrimaryReceiver]:
    """A site whose receiver uses other parts: ledger_class, issuer_class, releaser_class, recovery_class, …."""
    return _site_of(type("MutantParts", (Receiver,), classes))


def _reconciling(by: type[Reconciliation]) -> type[PrimaryReceiver]:
    """A site that finds what its log has in common with a ring's in another way."""
    return _site_of(member=type("MutantMember", (Member,), {"reconciliation_class": by}))


def switch_off(mutants: list[Mutant], name: str, rule: str, mistake: int = 0, **build: Any) -> None:  # noqa: ANN401
    """Add the mutant whose world is built with these fields of `Build`."""
    mutants.append(Mutant(name, rule, mistake, Build(**build)))


# The ten mistakes to expect, and a few of our own.


MISTAKE_MUTANTS: list[Mutant] = []
_register = partial(switch_off, MISTAKE_MUTANTS)


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
    receiver=_site_of(_TwoPhaseReceiver),
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
    receiver=_site_of(_HollowReceiver),
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


_register("release-on-time-alone", "a release waits for its gate", 4, receiver=_site_of(_TimedReceiver))


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
    receiver=_site_of(_StopAndWaitReceiver),
)


# 7. The actual instant ---------------------------------------------------------------------------


class _StampingIssuer(Issuer):
    def stamp(self, slot: int, schedule: Schedule, now: int) -> int:  # noqa: ARG002
        return now


class _StampedReceiver(Receiver):
    issuer_class = _StampingIssuer

    def _scheduled(self, token: Token, schedule: Schedule) -> bool:  # noqa: ARG002
        return True


_register("actual-instant", "T_t is the scheduled instant", 7, receiver=_site_of(_StampedReceiver))


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


_register("collect-one-early", "every member holds t-m+1, not t-m+2", 8, receiver=_site_of(_EagerReceiver))
_register(
    "stability-across-epochs",
    "a new epoch restarts the count of stability",
    8,
    receiver=_site_of(_UnforgettingReceiver),
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


_register("no-seal", "after a promise no token or receipt of a lower epoch", receiver=_site_of(_UnsealedReceiver))


class _ForgetfulReceiver(Receiver):
    def seal(self, ballot: Epoch) -> None:
        self.promised = ballot


_register("promise-in-memory", "a promise is on disk before the vote", receiver=_site_of(_ForgetfulReceiver))


class _UnwrittenReceiver(Receiver):
    def persist(self, entry: LogEntry) -> None:
        """Keep it in memory."""


_register("receipt-before-disk", "a receipt is sent for what is on disk", receiver=_site_of(_UnwrittenReceiver))


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


_register(
    "truncate-by-number",
    "the common prefix is found by the chained digest: a stale site may hold other tokens below the cut",
    receiver=_reconciling(_NumberReconciliation),
)


class _HalfReconciliation(Reconciliation):
    def result(self) -> Reconciled | None:
        return super().result() or Reconciled(min(self._ledger.held, self.target.cut_token), ())


_register(
    "install-before-fetching",
    "a ring is installed together with everything up to its cut",
    receiver=_reconciling(_HalfReconciliation),
)


class _UnorderedLedger(Ledger):
    def labels(self, token: Token, key: bytes) -> list[tuple[NodeId, int]]:
        return list(reversed(super().labels(token, key)))


_register("source-order-lost", "each source's order is kept", receiver=_parts(ledger_class=_UnorderedLedger))


# Mutants of the rules of planned changes, and of rings without a majority.


class _HastyMembership(Membership):
    changes_max = 2

    def settled(self, ring: NewRing) -> bool:  # noqa: ARG002
        return True


class _HastyReceiver(Receiver):
    membership_class = _HastyMembership


class _FoundersReceiver(Receiver):
    def __init__(self, site: NodeId, settings: RingSettings, secret: bytes, state: SiteState, *more: Any) -> None:  # noqa: ANN401
        self._founders = state.checkpoint.universe
        super().__init__(site, settings, secret, state, *more)

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
    return Mutant(name, rule, 0, Build(receiver=_site_of(receiver)))


CHANGE_MUTANTS = (
    _mutant("two-changes-at-once", "a change of U is certified before the next one begins", _HastyReceiver),
    _mutant("founders-only", "U is that of the log: whoever was added counts, whoever was removed does not",
            _FoundersReceiver),
    _mutant("unmarked-releases", "what is released without a majority of U says so", _SilentReceiver),
    _mutant("release-again", "what was released before a log was given up is never released again",
            _RepeatingReceiver),
)  # fmt: skip
"""Each breaks one rule."""


# Mutants of the rules that keep wrong clocks from stopping the market (L7, F3).


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
           Build(receiver=_site_of(_SkippingReceiver))),
)  # fmt: skip
"""Each breaks one rule."""


# Mutants of rules whose breach shows only to a sharp eye, or in a rare world, each with one rule switched off.
#
# Whose receipts count, what a source may believe and forget, when a ring may start and what it then releases, who gets
# how much of a token, whether a revealed nonce is the committed one, and that the disk knows before others do.


RULE_MUTANTS: list[Mutant] = []
_switch_off_rule = partial(switch_off, RULE_MUTANTS)


# Whose receipts count ----------------------------------------------------------------------------


class _HoardingReceiver(Receiver):
    def _enter(self, ring: NewRing) -> None:
        receipts = self.certificates.receipts
        super()._enter(ring)
        for site, held in receipts.items():
            self.certificates.receive(site, held)


_switch_off_rule("receipts-kept", "a new epoch begins without receipts", receiver=_site_of(_HoardingReceiver))


class _CredulousReceiver(Receiver):
    def on_receipt(self, receipt: Receipt, now: int) -> None:
        if receipt.epoch < self.accepted:
            receipt = receipt._replace(epoch=self.accepted)
        super().on_receipt(receipt, now)


_switch_off_rule(
    "old-receipts", "a receipt of an older epoch counts for nothing", receiver=_site_of(_CredulousReceiver)
)


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
    receiver=_site_of(_CunningReceiver, _CunningMember),
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


_EffectT = TypeVar("_EffectT")


def _disk_last(effects: tuple[_EffectT, ...]) -> tuple[_EffectT, ...]:
    return tuple(sorted(effects, key=lambda effect: isinstance(effect, Persist)))


class _CarelessSite(PrimaryReceiver):
    def step(self, event: PrimaryReceiverInput, now: int) -> tuple[ReceiverEffect, ...]:
        return _disk_last(super().step(event, now))


class _CarelessSource(PrimarySource):
    def step(self, event: PrimarySourceInput, now: int) -> tuple[SourceEffect, ...]:
        return _disk_last(super().step(event, now))


class _CarelessServer(ReformationServer):
    def step(self, event: ReformationServerInput, now: int) -> tuple[ReformationServerEffect, ...]:
        return _disk_last(super().step(event, now))


_switch_off_rule("site-sends-first", "a site writes before it sends", receiver=_CarelessSite)
_switch_off_rule("source-sends-first", "a source writes a message before it sends it", source=_CarelessSource)
_switch_off_rule("server-sends-first", "a server writes its ballot before it invites", server=_CarelessServer)
_switch_off_rule(
    "outbox-lost-unnoticed", "a source that lost its outbox comes back as a new incarnation", same_incarnation=True
)
