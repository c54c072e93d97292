"""Mutants of rules whose breach shows only to a sharp eye, or in a rare world, each with one rule switched off.

Whose receipts count, what a source may believe and forget, when a ring may start and what it then releases, who gets
how much of a token, whether a revealed nonce is the committed one, and that the disk knows before others do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.ballot import Ballot
from isocast.reformation.forming import Formation
from isocast.reformation.member import Member
from isocast.reformation.reconciliation import Reconciled
from isocast.reformation.server import ReformationServer
from isocast.ring.certificate import Certificates, majority
from isocast.ring.effects import Effect, OutboxFreed, Persist
from isocast.ring.entries import LogEntry
from isocast.ring.issuing import Issuer
from isocast.ring.ledger import Ledger
from isocast.ring.receiver import Receiver
from isocast.ring.release import Releaser
from isocast.ring.schedule import Schedule
from isocast.ring.source import PrimarySource
from isocast.ring.token import choose
from isocast.simulation.build import Build
from isocast.simulation.mutant import Mutant, site_of
from isocast.terms.ids import NodeId
from isocast.terms.instants import MILLISECOND, NEVER
from isocast.wire.packets import NO_NONCE, Data, NewRing, Packet, Receipt, Standing, Token

__all__ = ["RULE_MUTANTS"]

RULE_MUTANTS: list[Mutant] = []


def _switch_off(name: str, rule: str, **build: Any) -> None:  # noqa: ANN401 (fields of Build)
    RULE_MUTANTS.append(Mutant(name, rule, 0, Build(**build)))


def _parts(**classes: type) -> type[PrimaryReceiver]:
    """A site whose receiver uses other parts: issuer_class, releaser_class, certificates_class."""
    return site_of(type("MutantParts", (Receiver,), classes))


# Whose receipts count ----------------------------------------------------------------------------


class _HoardingReceiver(Receiver):
    def _enter(self, ring: NewRing) -> None:
        receipts = self.certificates.receipts
        super()._enter(ring)
        for site, held in receipts.items():
            self.certificates.receive(site, held)


_switch_off("receipts-kept", "a new epoch begins without receipts", receiver=site_of(_HoardingReceiver))


class _CredulousReceiver(Receiver):
    def on_receipt(self, receipt: Receipt, now: int) -> None:
        if receipt.epoch < self.accepted:
            receipt = receipt._replace(epoch=self.accepted)
        super().on_receipt(receipt, now)


_switch_off("old-receipts", "a receipt of an older epoch counts for nothing", receiver=site_of(_CredulousReceiver))


class _CrowdCertificates(Certificates):
    def level(self, universe: tuple[NodeId, ...]) -> int:
        held = sorted(self.receipts.values(), reverse=True)
        need = majority(universe)
        return held[need - 1] if len(held) >= need else 0


_switch_off(
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


_switch_off("free-one-early", "a source holds every message until its own token is stable", source=_ImpatientSource)


class _NostalgicSource(PrimarySource):
    def _on_token(self, token: Token, now: int) -> None:
        super()._on_token(replace(token, epoch=max(token.epoch, self._epoch)), now)

    def _on_packet(self, packet: Packet, now: int) -> None:
        if isinstance(packet, Standing):
            packet = packet._replace(epoch=self._epoch)
        super()._on_packet(packet, now)


_switch_off("old-epochs-heard", "a source believes nothing that an older epoch says", source=_NostalgicSource)


# When a ring starts, and what it releases then -----------------------------------------------------


class _HeadlongReleaser(Releaser):
    def due(self, entry: LogEntry, place: int, schedule: Schedule) -> int:  # noqa: ARG002
        paced = place // self._rate * MILLISECOND if self._rate else 0
        return entry.token.instant + self._delay_ns + paced


_switch_off(
    "backlog-before-start",
    "what an earlier ring left unreleased goes out from the new ring's start on",
    receiver=_parts(releaser_class=_HeadlongReleaser),
)


class _ApologeticReleaser(Releaser):
    def _is_late(self, entry: LogEntry, schedule: Schedule, now: int) -> bool:
        return entry.token.token_number < schedule.first_token or super()._is_late(entry, schedule, now)


_switch_off(
    "all-before-start-is-backlog",
    "what is released at its own instant is no backlog, whichever ring ordered it",
    receiver=_parts(releaser_class=_ApologeticReleaser),
)


class _ForgetfulServer(ReformationServer):
    def _decide(self, ballot: Ballot, formation: Formation, now: int) -> None:
        super()._decide(ballot, replace(formation, best=formation.best._replace(instant=-NEVER)), now)


_switch_off(
    "start-ignores-the-cut", "a ring starts a period after the newest token of its cut", server=_ForgetfulServer
)


# Who gets how much of a token ----------------------------------------------------------------------


class _FirstComeIssuer(Issuer):
    def batch(self, receiver: Receiver) -> list[Data]:
        waiting = receiver.ledger.waiting
        return choose(waiting, receiver.ledger.next_number, len(waiting))[: self._settings.batch_max]


_switch_off(
    "first-come-takes-all",
    "a token that is full takes a max-min fair share of every source",
    receiver=_parts(issuer_class=_FirstComeIssuer),
)


class _PartialIssuer(Issuer):
    def batch(self, receiver: Receiver) -> list[Data]:
        return sorted(super().batch(receiver), key=lambda message: message.sender)


_switch_off(
    "favourite-first", "messages stand in the order in which the owner got them",
    receiver=_parts(issuer_class=_PartialIssuer),
)  # fmt: skip


class _CorruptIssuer(Issuer):
    def batch(self, receiver: Receiver) -> list[Data]:
        waiting, most = receiver.ledger.waiting, self._settings.batch_max
        chosen = choose(waiting, receiver.ledger.next_number, len(waiting))
        if len(chosen) <= most:
            return chosen
        kept = {message.label for message in sorted(chosen, key=lambda message: message.sender)[:most]}
        return [message for message in chosen if message.label in kept]


_switch_off(
    "favourite-takes-all", "no source has more of a full token than another that wants as much",
    receiver=_parts(issuer_class=_CorruptIssuer),
)  # fmt: skip


class _LazyIssuer(Issuer):
    def batch(self, receiver: Receiver) -> list[Data]:
        chosen = super().batch(receiver)
        return chosen[:-1] if len(chosen) > 1 else chosen


_switch_off(
    "token-leaves-some", "a token that is not full takes everything that waits",
    receiver=_parts(issuer_class=_LazyIssuer),
)  # fmt: skip


class _TrustingIssuer(Issuer):
    def honest(self, token: Token) -> bool:  # noqa: ARG002
        return True


_switch_off(
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


_switch_off(
    "lie-by-reformation",
    "a token that reveals another nonce enters no log by a reformation either",
    receiver=site_of(_CunningReceiver, _CunningMember),
)


class _OneKeyLedger(Ledger):
    def entry(self, token: Token, messages: Mapping[tuple[NodeId, int], Data], previous_reveal: bytes) -> LogEntry:  # noqa: ARG002
        return super().entry(token, messages, NO_NONCE)


_switch_off(
    "key-of-one-owner",
    "the key of a shuffle comes from two owners' nonces, so that none of them chooses it",
    receiver=_parts(ledger_class=_OneKeyLedger),
)


# The disk knows before others do --------------------------------------------------------------------


def _disk_last(effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
    return tuple(sorted(effects, key=lambda effect: isinstance(effect, Persist)))


class _CarelessSite(PrimaryReceiver):
    def step(self, event: object, now: int) -> tuple[Effect, ...]:
        return _disk_last(super().step(event, now))


class _CarelessSource(PrimarySource):
    def step(self, event: object, now: int) -> tuple[Effect, ...]:
        return _disk_last(super().step(event, now))


class _CarelessServer(ReformationServer):
    def step(self, event: object, now: int) -> tuple[Effect, ...]:
        return _disk_last(super().step(event, now))


_switch_off("site-sends-first", "a site writes before it sends", receiver=_CarelessSite)
_switch_off("source-sends-first", "a source writes a message before it sends it", source=_CarelessSource)
_switch_off("server-sends-first", "a server writes its ballot before it invites", server=_CarelessServer)
_switch_off(
    "outbox-lost-unnoticed", "a source that lost its outbox comes back as a new incarnation", same_incarnation=True
)
