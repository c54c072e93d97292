"""Small worlds for tests of the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar

from isocast.checks.facts import Delivered, Fact, Released
from isocast.hierarchy.customer import Customer, CustomerSnapshot
from isocast.hierarchy.customer_settings import CustomerSettings, CustomerState
from isocast.hierarchy.proving import LineProver, ProofTerms
from isocast.nodes.retransmit_server import ArchiveState, RetransmitServer, RetransmitSettings
from isocast.simulation.host import SimulatedHost
from isocast.simulation.scenario import Scenario, scenario_from_mapping
from isocast.simulation.timed import TimedRun
from isocast.simulation.world import PRODUCT, Build
from isocast.terms.ids import NodeId
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.wire.packets import Packet

__all__ = ["EdgeRun", "facts_of", "first_breach", "run", "scenario"]

EffectT = TypeVar("EffectT")

SMALL: dict[str, Any] = {
    "receivers": 3,
    "messages": 60,
    "detect": 0.02,
    "process": 0.004,
    "one_way_delay": 0.002,
    "retries_max": 2,
    "gate": "majority",
    "arrival_rate": 50,
    "servers": 1,
    "sources": 2,
}


def scenario(*faults: dict[str, Any], **keys: Any) -> Scenario:  # noqa: ANN401 (values of a scenario file)
    """A world of three sites, changed by some keys; one that is None is left out."""
    given = {name: value for name, value in (SMALL | keys).items() if value is not None}
    return scenario_from_mapping(given | {"faults": list(faults)}, "test")


def run(*faults: dict[str, Any], seed: int = 1, build: Build = PRODUCT, **keys: Any) -> TimedRun:  # noqa: ANN401
    """Run it to its verdict."""
    found = TimedRun(scenario(*faults, **keys), seed, build)
    found.run()
    return found


def facts_of(*faults: dict[str, Any], seed: int = 1, **keys: Any) -> tuple[TimedRun, list[Fact]]:  # noqa: ANN401
    """Run it, and tell everything that happened."""
    facts: list[Fact] = []
    found = TimedRun(scenario(*faults, **keys), seed, transcript=facts.append)
    found.run()
    return found, facts


class _BrokenError(Exception):
    """A checker has told."""


def first_breach(world: Mapping[str, object], seed: int, build: Build) -> str:
    """What the first checker tells of a world, which ends then; empty where all promises are kept."""

    def look(_: Fact) -> None:
        if judged.suite.violations:
            raise _BrokenError

    judged = TimedRun(scenario_from_mapping(world, f"seed {seed}"), seed, build, transcript=look)
    try:
        judged.run()
    except _BrokenError:
        pass
    except Exception as error:  # noqa: BLE001 (a machine that raises has failed, whatever it raises)
        return f"crash: {error!r}"
    return next(iter(judged.violations()), "")


class EdgeRun:
    """A world with customers and archives, whose effects are noted; with settings of their own where a test says so."""

    def __init__(
        self,
        *faults: dict[str, Any],
        seed: int = 1,
        customer: dict[str, Any] | None = None,
        archive: dict[str, Any] | None = None,
        limits: dict[str, Any] | None = None,
        **keys: Any,  # noqa: ANN401 (values of a scenario file)
    ) -> None:
        """`customer`, `archive` change what they are told of lines and doors, `limits` what archives answer."""
        self.facts: list[Fact] = []
        self.told: dict[NodeId, list[tuple[int, object]]] = {}
        build = Build(customer=_tuned_customer(customer or {}), archive=_tuned_archive(archive or {}, limits or {}))
        self.timed = TimedRun(scenario(*faults, **keys), seed, build, transcript=self.facts.append)
        self.world = self.timed.world
        assert self.world.edge is not None
        for node in self.world.edge.everybody:
            self._note(self.world.hosts[node])

    def _note(self, host: SimulatedHost) -> None:
        perform, told = host._perform, self.told.setdefault(host.node, [])  # noqa: SLF001

        def note(host: SimulatedHost, effect: object) -> None:
            told.append((self.world.agenda.now, effect))
            perform(host, effect)

        host._perform = note  # noqa: SLF001

    def until(self, seconds: float) -> Self:
        """Let it live up to an instant."""
        while self.world.agenda.now < seconds * SECOND:
            self.timed.advance(10 * MILLISECOND)
        return self

    def run(self) -> Self:
        """Let it live to its verdict, which must be clean."""
        self.timed.run()
        assert self.timed.violations() == []
        return self

    def hears(self, node: NodeId, at: float, *packets: Packet) -> None:
        """Packets of strangers arrive at a node."""
        host = self.world.hosts[node]
        self.world.agenda.put(round(at * SECOND), lambda _: host.deliver(packets), None)

    def effects(self, node: NodeId, *kinds: type[EffectT]) -> list[EffectT]:
        """What a node did, of some kinds."""
        return [effect for _, effect in self.told[node] if isinstance(effect, kinds)]

    def deliveries(self, node: NodeId) -> list[tuple[int, int]]:
        """When a customer or an archive got which sequence."""
        runs = [fact for fact in self.facts if isinstance(fact, Delivered) and fact.node == node]
        return [(fact.at, packet.sequence) for fact in runs for packet in fact.packets]

    def sequences(self, node: NodeId) -> list[int]:
        """What it got, in order."""
        return [sequence for _, sequence in self.deliveries(node)]

    def released(self, site: NodeId) -> list[tuple[int, int, bytes]]:
        """When a site released which sequence, and the payload."""
        runs = [fact for fact in self.facts if isinstance(fact, Released) and fact.site == site]
        return [
            (fact.at, sequence, message.payload)
            for fact in runs
            for sequence, message in enumerate(fact.messages, fact.first_sequence)
        ]

    def view(self, node: NodeId) -> CustomerSnapshot:
        """A customer's state."""
        machine = self.world.hosts[node].machine
        assert isinstance(machine, Customer)
        return machine.snapshot()


def _tuned_customer(changes: dict[str, Any]) -> type[Customer]:
    class Tuned(Customer):
        def __init__(
            self,
            node: NodeId,
            settings: CustomerSettings,
            state: CustomerState | None = None,
            proofs: ProofTerms | None = None,
        ) -> None:
            super().__init__(node, replace(settings, **changes), state, proofs)

    return Tuned


def _tuned_archive(changes: dict[str, Any], limits: dict[str, Any]) -> type[RetransmitServer]:
    class Tuned(RetransmitServer):
        def __init__(
            self,
            node: NodeId,
            settings: RetransmitSettings,
            state: ArchiveState | None = None,
            proofs: ProofTerms | None = None,
            prover: LineProver | None = None,
        ) -> None:
            own = replace(settings, customer=replace(settings.customer, **changes), **limits)
            super().__init__(node, own, state, proofs, prover)

    return Tuned
