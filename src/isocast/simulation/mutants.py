"""The product with one rule switched off, each a mistake that somebody would make.

A mutant is a set of subclasses that override one rule of a machine. Nothing in the product's configuration
reaches them: only a simulated world can be built from them, to show that the checkers would catch us.
"""

from __future__ import annotations

from typing import Any

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.member import Member
from isocast.reformation.reconciliation import Reconciled, Reconciliation
from isocast.reformation.server import ReformationServer
from isocast.ring.answers import holdings
from isocast.ring.effects import RingSuspected
from isocast.ring.entries import LogEntry
from isocast.ring.issuing import Issuer
from isocast.ring.ledger import Ledger
from isocast.ring.receiver import Mode, Receiver
from isocast.ring.recovery import Recovery
from isocast.ring.release import Releaser
from isocast.ring.schedule import Schedule
from isocast.ring.source import PrimarySource
from isocast.simulation.build import Build
from isocast.simulation.change_mutants import CHANGE_MUTANTS
from isocast.simulation.clock_mutants import CLOCK_MUTANTS
from isocast.simulation.layer_mutants import LAYER_MUTANTS
from isocast.simulation.mutant import Mutant
from isocast.simulation.rule_mutants import RULE_MUTANTS
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.packets import Data, Join, Nack, NewRing, Token

__all__ = ["MUTANTS", "Mutant"]


MUTANTS: dict[str, Mutant] = {}


def _site(receiver: type[Receiver] = Receiver, member: type[Member] = Member) -> type[PrimaryReceiver]:
    """A site made of the given halves."""
    return type("MutantReceiver", (PrimaryReceiver,), {"receiver_class": receiver, "member_class": member})


def _mutant(name: str, rule: str, mistake: int = 0, **build: Any) -> None:  # noqa: ANN401 (fields of Build)
    MUTANTS[name] = Mutant(name, rule, mistake, Build(**build))


def _receiver(**classes: type) -> type[PrimaryReceiver]:
    """A site whose receiver uses other parts: ledger_class, issuer_class, releaser_class, recovery_class."""
    return _site(type("MutantParts", (Receiver,), classes))


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


_mutant(
    "two-phase-recovery",
    "one request recovers the token and its messages together",
    1,
    receiver=_site(_TwoPhaseReceiver),
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


_mutant(
    "token-without-messages",
    "h becomes t only when all messages of t are here",
    2,
    receiver=_site(_HollowReceiver),
)


# 3. Trusting the greatest h ----------------------------------------------------------------------


class _GreatestHeldServer(ReformationServer):
    @staticmethod
    def cut_key(vote: Join) -> tuple[Any, ...]:
        return (vote.held,)


_mutant("greatest-held", "the cut is the greatest (e_acc, h), never the greatest h", 3, server=_GreatestHeldServer)


# 4. Releasing on time alone ----------------------------------------------------------------------


class _TimedReceiver(Receiver):
    def may_release(self, token_number: int) -> bool:
        return token_number <= self.held


_mutant("release-on-time-alone", "a release waits for its gate", 4, receiver=_site(_TimedReceiver))


# 5. A source that frees at the acknowledgement ---------------------------------------------------


class _HastySource(PrimarySource):
    def free(self, token: Token) -> None:
        self._forget_until(token.token_number)


_mutant("free-at-acknowledgement", "a source holds a message until it is stable", 5, source=_HastySource)


# 6. The gap inference of stop-and-wait -----------------------------------------------------------


class _StopAndWaitReceiver(Receiver):
    def on_data(self, message: Data, now: int) -> None:
        if message.number <= self.ledger.next_number.get(message.sender, 1):
            super().on_data(message, now)


_mutant(
    "stop-and-wait-gaps",
    "a number above the next one waits; it proves no missing acknowledgement",
    6,
    receiver=_site(_StopAndWaitReceiver),
)


# 7. The actual instant ---------------------------------------------------------------------------


class _StampingIssuer(Issuer):
    def stamp(self, slot: int, schedule: Schedule, now: int) -> int:  # noqa: ARG002
        return now


class _StampedReceiver(Receiver):
    issuer_class = _StampingIssuer

    def _scheduled(self, token: Token, schedule: Schedule) -> bool:  # noqa: ARG002
        return True


_mutant("actual-instant", "T_t is the scheduled instant", 7, receiver=_site(_StampedReceiver))


# 8. Collecting too early -------------------------------------------------------------------------


class _EagerReceiver(Receiver):
    def stability_floor(self) -> int:
        floor = super().stability_floor()
        return floor + 1 if floor else 0


class _UnforgettingReceiver(Receiver):
    def stability_floor(self) -> int:
        return self.held - self.schedule.size + 1 if self.schedule else 0

    def _enter(self, ring: NewRing) -> None:
        reports, secstable = self.reports, self._secstable
        super()._enter(ring)
        self.reports, self._secstable = reports | self.reports, secstable


_mutant("collect-one-early", "every member holds t-m+1, not t-m+2", 8, receiver=_site(_EagerReceiver))
_mutant(
    "stability-across-epochs", "a new epoch restarts the count of stability", 8, receiver=_site(_UnforgettingReceiver)
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


_mutant(
    "no-roll-back",
    "next numbers are a function of the log, and roll back with it",
    9,
    receiver=_receiver(ledger_class=_StubbornLedger),
)


# 10. Silent and late owners ----------------------------------------------------------------------


class _ThriftyIssuer(Issuer):
    def due(self, receiver: Receiver, now: int) -> LogEntry | RingSuspected | None:
        slot, schedule = self.slot, self._schedule
        if slot is not None and schedule is not None and now >= schedule.instant(slot) and not self.batch(receiver):
            self.slot = schedule.next_slot(self.site, slot + 1)
            return None
        return super().due(receiver, now)


class _LateIssuer(Issuer):
    def may_issue(self, receiver: Receiver, slot: int, *, late: bool) -> bool:  # noqa: ARG002
        return receiver.held == slot - 1


_mutant("skip-empty-tokens", "an empty token is sent too", 10, receiver=_receiver(issuer_class=_ThriftyIssuer))
_mutant(
    "late-owner-sends", "an owner past T_t+P suspects itself and stays silent", 10,
    receiver=_receiver(issuer_class=_LateIssuer),
)  # fmt: skip


# Our own -----------------------------------------------------------------------------------------


class _UnsealedReceiver(Receiver):
    def accepts(self, epoch: Epoch) -> bool:
        return epoch == self.accepted

    @property
    def mode(self) -> Mode:
        return Mode.NORMAL if self.ring is not None else Mode.SEALED


_mutant("no-seal", "after a promise no token or receipt of a lower epoch", receiver=_site(_UnsealedReceiver))


class _ForgetfulReceiver(Receiver):
    def seal(self, ballot: Epoch) -> None:
        self.promised = ballot


_mutant("promise-in-memory", "a promise is on disk before the vote", receiver=_site(_ForgetfulReceiver))


class _UnwrittenReceiver(Receiver):
    def persist(self, entry: LogEntry) -> None:
        """Keep it in memory."""


_mutant("receipt-before-disk", "a receipt is sent for what is on disk", receiver=_site(_UnwrittenReceiver))


class _MinorityServer(ReformationServer):
    @staticmethod
    def enough(count: int, universe: tuple[NodeId, ...]) -> bool:
        return count >= len(universe) // 2


_mutant("half-is-enough", "only a majority of U starts an epoch", server=_MinorityServer)

_mutant("vote-without-disk", "a site that lost its disk never votes under its old id", remembers_nothing=True)


class _EarlyReleaser(Releaser):
    def due(self, entry: LogEntry, place: int, schedule: Schedule) -> int:
        return super().due(entry, place, schedule) - self._delay_ns // 8


_mutant("release-early", "nothing is released before T_t+Δ_A", receiver=_receiver(releaser_class=_EarlyReleaser))


class _NumberReconciliation(Reconciliation):
    def _walk(self) -> None:
        if self._ledger.held >= self.target.cut_token:
            self._keep = self.target.cut_token
            return
        super()._walk()


class _NumberMember(Member):
    reconciliation_class = _NumberReconciliation


_mutant(
    "truncate-by-number",
    "the common prefix is found by the chained digest: a stale site may hold other tokens below the cut",
    receiver=_site(member=_NumberMember),
)


class _HalfReconciliation(Reconciliation):
    def result(self) -> Reconciled | None:
        return super().result() or Reconciled(min(self._ledger.held, self.target.cut_token), ())


class _HalfMember(Member):
    reconciliation_class = _HalfReconciliation


_mutant(
    "install-before-fetching",
    "a ring is installed together with everything up to its cut",
    receiver=_site(member=_HalfMember),
)


class _UnorderedLedger(Ledger):
    def labels(self, token: Token, key: bytes) -> list[tuple[NodeId, int]]:
        return list(reversed(super().labels(token, key)))


_mutant("source-order-lost", "each source's order is kept", receiver=_receiver(ledger_class=_UnorderedLedger))


# Below the ring, planned changes, wrong clocks, and rules that only a sharp eye sees broken ----------

MUTANTS |= {mutant.name: mutant for mutant in (*LAYER_MUTANTS, *CHANGE_MUTANTS, *CLOCK_MUTANTS, *RULE_MUTANTS)}
