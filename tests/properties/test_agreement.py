"""Hypothesis plays the network: it chooses what arrives, what is lost or doubled, who sleeps and who restarts.

Three sites, two sources and a reformation server, all of them the pure machines, on the stage of the transcripts.
Whatever it does, every site releases a prefix of one sequence, contiguous, each message once and each source's in
order; and when it lets go, everything that was accepted is released everywhere.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.scenarios.stage import TIMING, Stage

from isocast.ring.effects import PublishAccepted, Release
from isocast.terms.ids import Label, NodeId, server_id, source_id
from isocast.terms.instants import MILLISECOND

SITES: tuple[NodeId, ...] = (1, 2, 3)
SOURCES: tuple[NodeId, ...] = (source_id(1), source_id(2))
SERVER = server_id(1)
PERIOD = TIMING.token_period_ns


class Watched(Stage):
    """A stage that remembers what was accepted and what each site released, over all its restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.released: dict[NodeId, list[tuple[int, NodeId, int, bytes]]] = {site: [] for site in SITES}
        self.accepted: dict[Label, None] = {}

    def _perform(self, node: NodeId, effect: object) -> None:
        match effect:
            case Release():
                for place, held in enumerate(effect.messages):
                    self.released[node].append((effect.first_sequence + place, held.sender, held.number, held.payload))
            case PublishAccepted(_, label):
                self.accepted[label] = None
            case _:
                pass
        super()._perform(node, effect)
        self.told.clear()


class Network(RuleBasedStateMachine):
    """Every rule is something that a network, a clock or a power supply may do."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Watched()

    @initialize()
    def begin(self) -> None:
        self.stage.command("sites 3")

    # What Hypothesis may do ---------------------------------------------------------------------

    @rule(source=st.sampled_from(SOURCES), count=st.integers(1, 3))
    def publish(self, source: NodeId, count: int) -> None:
        for _ in range(count):
            self.stage.publish(source)

    @rule(periods=st.integers(1, 3))
    def run(self, periods: int) -> None:
        """A good time: everything arrives at once."""
        self.stage.pass_time(self.stage.now + periods * PERIOD, deliver=True)

    @rule(span=st.integers(1, 200))
    def wake(self, span: int) -> None:
        """Time passes and timers fire; packets stay under way."""
        self.stage.pass_time(self.stage.now + span * MILLISECOND)

    @rule(span=st.integers(1, 150))
    def sleep(self, span: int) -> None:
        """Time passes and nobody is woken, as when all processes stand still."""
        self.stage.now += span * MILLISECOND

    @precondition(lambda self: bool(self.stage.under_way))
    @rule(place=st.integers(0, 999), count=st.integers(1, 8))
    def deliver(self, place: int, count: int) -> None:
        """Some packets arrive, in any order."""
        for _ in range(count):
            if self.stage.under_way:
                self.stage.deliver(*self.stage.under_way.pop(place % len(self.stage.under_way)))

    @precondition(lambda self: bool(self.stage.under_way))
    @rule(place=st.integers(0, 999))
    def double(self, place: int) -> None:
        copy = self.stage.under_way[place % len(self.stage.under_way)]
        self.stage.deliver(*copy)

    @precondition(lambda self: bool(self.stage.under_way))
    @rule(to=st.sampled_from([*SITES, *SOURCES, SERVER]))
    def lose(self, to: NodeId) -> None:
        """Everything that is under way to one node is lost."""
        self.stage.under_way = [copy for copy in self.stage.under_way if copy[0] != to]

    @rule(node=st.sampled_from(SITES))
    def cut(self, node: NodeId) -> None:
        if node not in self.stage.cut_off:
            self.stage.command(f"cut r{node}")

    @rule()
    def heal(self) -> None:
        self.stage.cut_off.clear()

    @rule(node=st.sampled_from([*SITES, *SOURCES, SERVER]))
    def restart(self, node: NodeId) -> None:
        """Everything volatile is lost; back with what the disk kept."""
        self.stage.machines.pop(node, None)
        self.stage.boot(node)

    @rule(node=st.sampled_from(SITES))
    def crash(self, node: NodeId) -> None:
        if len([site for site in SITES if site in self.stage.machines]) > 2:
            del self.stage.machines[node]

    # What must hold -----------------------------------------------------------------------------

    @invariant()
    def every_site_releases_a_prefix_of_one_sequence(self) -> None:
        """S1, S2."""
        longest = max(self.stage.released.values(), key=len)
        for released in self.stage.released.values():
            assert released == longest[: len(released)]
        assert [sequence for sequence, *_ in longest] == list(range(1, len(longest) + 1))

    @invariant()
    def each_message_once_in_its_sources_order_and_as_it_was_accepted(self) -> None:
        """S2, S3, S4."""
        longest = max(self.stage.released.values(), key=len)
        for source in SOURCES:
            own = [number for _, sender, number, _ in longest if sender == source]
            assert own == list(range(1, len(own) + 1))
            assert all(Label(source, number) in self.stage.accepted for number in own)

    def teardown(self) -> None:
        """L1, L2: once the network is well, all that was accepted is released everywhere."""
        stage = self.stage
        if not stage.disks:
            return
        stage.cut_off.clear()
        for node in [node for node in stage.disks if node not in stage.machines]:
            stage.boot(node)
        for _ in range(60):
            stage.pass_time(stage.now + PERIOD, deliver=True)
            if all(len(released) == len(stage.accepted) for released in stage.released.values()):
                break
        self.every_site_releases_a_prefix_of_one_sequence()
        assert {len(released) for released in stage.released.values()} == {len(stage.accepted)}


EFFORT = settings(
    max_examples=60, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestNetwork = Network.TestCase
TestNetwork.settings = EFFORT


@pytest.mark.long
def test_a_longer_game() -> None:
    run_state_machine_as_test(Network, settings=settings(EFFORT, max_examples=500))
