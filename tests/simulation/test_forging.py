"""Customers that forge lines: with signatures nobody takes anything of it, and each rule that sees to it is needed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.worlds import run, scenario

from isocast.hierarchy.customer import Customer
from isocast.hierarchy.proving import ProofCheck
from isocast.simulation.timed import TimedRun
from isocast.simulation.world import Build
from isocast.terms.errors import ConfigurationError
from isocast.wire.packets import Packet, Proof, ReleasedPacket

EDGE: dict[str, Any] = {"archives": 1, "customers": 3, "latest_customers": 1, "messages": 60}
LIES: dict[str, Any] = {**EDGE, "forgers": 1}


def violated(world: TimedRun) -> set[str]:
    return {text.split(":")[0] for text in world.violations()}


def customers_of(world: TimedRun) -> list[Customer]:
    hosts = world.world.hosts
    machines = [hosts[node].machine for node in world.world.scenario.edge.customer_nodes]
    return [machine for machine in machines if isinstance(machine, Customer)]


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_with_signatures_forgeries_are_dropped_and_everybody_gets_everything(loss: float) -> None:
    world = run(**LIES, signatures="on", loss=loss)
    assert world.violations() == []
    assert sum(machine.snapshot().counters.forged for machine in customers_of(world)) > 10


def test_without_signatures_a_customer_takes_a_forgery() -> None:
    assert violated(run(**LIES)) & {"S1", "S15", "S2"}


def test_with_signatures_and_no_forger_nobody_is_suspected() -> None:
    world = run(**EDGE, signatures="on", loss=0.05)
    assert world.violations() == []
    for machine in customers_of(world):
        counters = machine.snapshot().counters
        assert (counters.forged, counters.differing, counters.stale) == (0, 0, 0)


class _Unchecked(ProofCheck):
    """Messages pass whatever was signed."""

    def admit(self, packets: Any, now: int) -> list[Packet]:  # noqa: ANN401
        messages = [packet for packet in packets if type(packet) is ReleasedPacket and packet.count]
        others = [packet for packet in packets if not (type(packet) is ReleasedPacket and packet.count)]
        return [*messages, *super().admit(others, now)]


class _AnySignature(ProofCheck):
    """Whatever is called a proof is one."""

    def _is_signed(self, packet: Any, line: Any, now: int) -> bool:  # noqa: ANN401
        return type(packet) is Proof or super()._is_signed(packet, line, now)


def mutant(check: type[ProofCheck]) -> Build:
    return Build(customer=type("MutantCustomer", (Customer,), {"proof_check_class": check}))


@pytest.mark.parametrize("check", [_Unchecked, _AnySignature])
def test_a_customer_that_leaves_a_rule_out_takes_a_forgery(check: type[ProofCheck]) -> None:
    found: set[str] = set()
    for seed in range(1, 6):
        found |= violated(run(**LIES, signatures="on", seed=seed, build=mutant(check)))
    assert found & {"S1", "S15"}


def test_forgers_are_customers() -> None:
    with pytest.raises(ConfigurationError, match="forgers are customers"):
        scenario(**{**EDGE, "forgers": 9})
