"""Customers that forge narrow stripes: with signatures nobody takes anything of it, and each rule for it is needed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.worlds import run, scenario

from isocast.feeds.mold import MoldPacket, parse_packet
from isocast.simulation.narrow import NarrowCustomer
from isocast.simulation.timed import TimedRun
from isocast.simulation.world import Build
from isocast.striping.proving import Genuine, StripeProofCheck
from isocast.terms.errors import ConfigurationError
from isocast.wire.stripe_proofs import StripeProof

NARROW: dict[str, Any] = {"stripe_senders": 2, "narrow_customers": 4, "messages": 60}
LIES: dict[str, Any] = {**NARROW, "narrow_forgers": 1}


def violated(world: TimedRun) -> set[str]:
    return {text.split(":")[0] for text in world.violations()}


def customers_of(world: TimedRun) -> list[NarrowCustomer]:
    hosts = world.world.hosts
    machines = [hosts[node].machine for node in world.world.scenario.edge.narrow_nodes]
    return [machine for machine in machines if isinstance(machine, NarrowCustomer)]


def checks_of(world: TimedRun) -> list[StripeProofCheck]:
    return [machine.check for machine in customers_of(world) if machine.check is not None]


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_with_signatures_forgeries_are_dropped_and_everybody_gets_everything(loss: float) -> None:
    world = run(**LIES, signatures="on", loss=loss)
    assert world.violations() == []
    assert sum(check.counts.forged for check in checks_of(world)) > 10


def test_without_signatures_a_customer_takes_a_forgery() -> None:
    assert violated(run(**LIES)) & {"S1", "S4"}


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_with_signatures_and_no_forger_nobody_is_suspected(loss: float) -> None:
    world = run(**NARROW, signatures="on", loss=loss)
    assert world.violations() == []
    checks = checks_of(world)
    assert len(checks) == 4
    for check in checks:
        counts = check.counts
        assert counts.proofs > 10
        assert counts.verified < counts.proofs, "one signature is for all stripes"
        assert (counts.forged, counts.differing, counts.stale, counts.strange) == (0, 0, 0, 0)


class _UnprovenBeats(StripeProofCheck):
    """Heartbeats and ends of sessions act without a proof."""

    def heard(self, raw: bytes, packet: MoldPacket, sender: int, at: int, *, repair: bool = False) -> list[Genuine]:
        found = super().heard(raw, packet, sender, at, repair=repair)
        return found if packet.messages else [Genuine(packet, sender, at)]


class _NoPath(StripeProofCheck):
    """A signature that was seen is believed, wherever the path leads."""

    def is_signed(self, proof: StripeProof, core: int, now: int) -> bool:
        known = any((signer, instant) == (proof.signer, proof.instant) for signer, _, instant, _ in self._roots)
        return known or super().is_signed(proof, core, now)


class _AnyStripe(StripeProofCheck):
    """What was signed of one stripe is believed of another."""

    def _sessions(self, session: bytes) -> list[bytes]:
        return [session[:6] + f"{stripe:04}".encode() for stripe in self.cores]

    def is_signed(self, proof: StripeProof, core: int, now: int) -> bool:
        others = self._sessions(proof.session)
        return any(super(_AnyStripe, self).is_signed(proof._replace(session=other), core, now) for other in others)

    def _judged(self, one: Any, known: Any) -> list[Genuine]:  # noqa: ANN401
        for other in self._sessions(one.packet.session):
            raw = other + one.raw[10:]
            if super()._judged(one._replace(raw=raw), known):
                return [Genuine(parse_packet(one.raw), one.sender, one.at, one.repair)]
        return []


class _Unchecked(StripeProofCheck):
    """Packets pass before they are proven."""

    def heard(self, raw: bytes, packet: MoldPacket, sender: int, at: int, *, repair: bool = False) -> list[Genuine]:
        if packet.messages:
            return [Genuine(packet, sender, at, repair)]
        return super().heard(raw, packet, sender, at, repair=repair)


class _AnySignature(StripeProofCheck):
    """Whatever is called a proof is one."""

    def is_signed(self, proof: StripeProof, core: int, now: int) -> bool:  # noqa: ARG002
        return True


@pytest.mark.parametrize("check", [_UnprovenBeats, _NoPath, _AnyStripe, _Unchecked, _AnySignature])
def test_a_customer_that_leaves_a_rule_out_takes_a_forgery(check: type[StripeProofCheck]) -> None:
    found: set[str] = set()
    for seed in range(1, 6):
        found |= violated(run(**LIES, signatures="on", seed=seed, build=Build(stripe_check=check)))
        if found & {"S1", "S4"}:
            return
    pytest.fail(f"{check.__name__} was not caught: {found}")


def test_narrow_forgers_are_narrow_customers() -> None:
    with pytest.raises(ConfigurationError, match="give as many narrow_customers"):
        scenario(**{**NARROW, "narrow_forgers": 9})
