"""Figure 2: the roles that simulator and real network drive alike."""

from __future__ import annotations

import pytest
from tests.ring.makers import S1, SERVER, blank, secret, settings

from isocast.hierarchy.headship import GroupPlan
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.reformation.server import ReformationServer, ServerState
from isocast.ring.inputs import Machine, TimerFired
from isocast.ring.source import OutboxState, PrimarySource
from isocast.simulation.host import Ordinary

GROUPS = GroupPlan.below({4: 1, 5: 1, 6: 4}, {4: 2, 5: 2, 6: 1})
"""Three layers below site 1."""


def machines() -> list[Machine[Ordinary, object]]:
    rules = settings()
    return [
        PrimaryReceiver(1, rules, secret(1), blank()),
        PrimarySource(S1, rules, OutboxState()),
        ReformationServer(SERVER, rules, 0, {}, ServerState()),
        PrimaryReceiver(1, rules, secret(1), blank(), groups=GROUPS),
        SecondaryReceiver(4, rules, groups=GROUPS, state=blank(), secret=secret(4)),
    ]


@pytest.mark.parametrize("place", range(5))
def test_every_role_keeps_the_contract_of_a_machine(place: int) -> None:
    """step(event, now) -> effects; next_deadline(); a frozen snapshot()."""
    machine = machines()[place]
    assert isinstance(machine.step(TimerFired(), 0), tuple)
    assert isinstance(machine.next_deadline(), int)
    snapshot = machine.snapshot()  # type: ignore[attr-defined]
    assert type(snapshot).__dataclass_params__.frozen


@pytest.mark.parametrize("place", range(5))
def test_the_same_inputs_give_the_same_effects(place: int) -> None:
    one, other = machines()[place], machines()[place]
    for now in (0, 5, 10**9):
        assert one.step(TimerFired(), now) == other.step(TimerFired(), now)
        assert one.next_deadline() == other.next_deadline()
