"""Faults hit whom they name, when they say, and end; the market comes right afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.worlds import facts_of, run

from isocast.checks.facts import (
    ClockStepped,
    Crashed,
    Cut,
    Healed,
    Installed,
    Paused,
    ReceiptSent,
    Restarted,
    Resumed,
    RingFormed,
    Submitted,
)
from isocast.terms.ids import source_id
from isocast.terms.instants import SECOND


def at_seconds(instant: int) -> float:
    return instant / SECOND


def test_a_crash_and_its_end() -> None:
    world, facts = facts_of({"kind": "crash", "at": 0.6, "until": 0.9, "sites": [2]})
    told = [(type(fact), at_seconds(fact.at)) for fact in facts if isinstance(fact, Crashed | Restarted)]
    assert told == [(Crashed, 0.6), (Restarted, 0.9)]
    assert world.violations() == []
    assert world.recorder.last_sequence[2] == 60


def test_a_crashed_owner_is_replaced_by_a_ring_without_it() -> None:
    _, facts = facts_of({"kind": "crash", "at": 0.6, "sites": [2]})
    rings = [fact.ring.ring for fact in facts if isinstance(fact, Installed)]
    assert 2 in rings[0]
    assert sorted(rings[-1]) == [1, 3]


def test_two_crashes_hold_a_site_down_until_the_later_end() -> None:
    _, facts = facts_of(
        {"kind": "crash", "at": 0.5, "until": 0.7, "sites": [2]},
        {"kind": "crash", "at": 0.6, "until": 0.9, "sites": [2]},
    )
    assert [at_seconds(fact.at) for fact in facts if isinstance(fact, Restarted)] == [0.9]


def test_a_restart_brings_back_who_is_down() -> None:
    """`isocast sim keys`: sites that are down come back; sites that are up crash and come back at once."""
    world, facts = facts_of({"kind": "crash", "at": 0.6, "sites": [2]}, {"kind": "restart", "at": 0.9, "sites": [2]})
    assert [at_seconds(fact.at) for fact in facts if isinstance(fact, Restarted)] == [0.9]
    assert world.faults.is_up(2)


def test_a_site_that_lost_its_disk_comes_back_and_is_not_counted_on() -> None:
    world, facts = facts_of({"kind": "crash", "at": 0.6, "until": 0.8, "sites": [2], "disk": "lost"})
    [restarted] = [fact for fact in facts if isinstance(fact, Restarted)]
    assert not restarted.disk_kept
    assert list(world.faults.lost_disks) == [2]
    assert world.violations() == []


def test_a_pause_ends_where_it_was() -> None:
    world, facts = facts_of({"kind": "pause", "at": 0.6, "until": 0.65, "sites": [3]})
    told = [(type(fact), at_seconds(fact.at)) for fact in facts if isinstance(fact, Paused | Resumed)]
    assert told == [(Paused, 0.6), (Resumed, 0.65)]
    assert world.violations() == []


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "partition", "groups": [[1, "source1"], [2, 3, "server1", "source2"]]},
        {"kind": "one-way", "groups": [[1], [2, 3]]},
        {"kind": "isolate", "sites": [1]},
    ],
    ids=lambda fault: str(fault["kind"]),
)
def test_a_cut_heals_and_everybody_meets_again(fault: dict[str, Any]) -> None:
    world, facts = facts_of(fault | {"at": 0.6, "until": 1.2})
    assert [at_seconds(fact.at) for fact in facts if isinstance(fact, Cut | Healed)] == [0.6, 1.2]
    assert world.violations() == []
    assert world.recorder.last_sequence == dict.fromkeys((1, 2, 3), 60)


@pytest.mark.parametrize("step", [-0.3, -0.05, 0.05, 0.3])
def test_a_clock_that_is_set_is_set_back(step: float) -> None:
    world, facts = facts_of({"kind": "clock-step", "at": 0.6, "until": 1.2, "sites": [2], "step": step})
    assert [fact.kept for fact in facts if isinstance(fact, ClockStepped)] == [False, True]
    assert world.violations() == []


def test_a_time_of_heavy_loss_passes() -> None:
    world = run({"kind": "loss", "at": 0.6, "until": 1.0, "loss": 0.6})
    assert world.violations() == []
    assert world.world.network.model.loss == 0


def test_everybody_may_restart() -> None:
    world = run({"kind": "crash", "at": 0.6, "until": 0.7, "sites": [1, 2, 3]})
    assert world.violations() == []
    assert world.recorder.messages == 60


@pytest.mark.parametrize("node", ["server1", "source1"])
def test_servers_and_sources_come_back_with_what_they_owe(node: str) -> None:
    world = run({"kind": "crash", "at": 0.6, "until": 0.9, "sites": [node]})
    assert world.violations() == []
    assert world.recorder.messages == world.recorder.submitted


def test_a_site_that_was_away_for_longer_than_the_journals_reach_does_not_stop_the_others() -> None:
    """Protocol §5: rejoin is CATCHUP, follow passively, and only then a planned ballot."""
    away = {"kind": "crash", "at": 1, "until": 26, "sites": [5]}
    world = run(away, receivers=5, messages=3_000, arrival_rate=100)
    assert world.recorder.rings <= 10


def test_a_server_whose_clock_was_ahead_does_not_stop_the_market() -> None:
    """L1: protocol §5 has T0 ≥ now+τ_t+2ε by the server's clock; its members' clocks could tell that it is absurd."""
    ahead = {"kind": "clock-step", "at": 0.5, "until": 3, "sites": ["server1"], "step": 30}
    world = run(ahead, {"kind": "crash", "at": 1, "until": 1.5, "sites": [2]}, messages=200)
    assert world.violations() == []


def test_a_crash_inside_a_step_leaves_what_was_written_and_sends_nothing_more() -> None:
    """The owner's token is on its disk, nobody was sent it, and it is the token of that number all the same."""
    world, facts = facts_of({"kind": "crash", "at": 0.6, "duration": 0.3, "sites": [2], "inside": 1})
    [crashed] = [fact for fact in facts if isinstance(fact, Crashed)]
    [restarted] = [fact for fact in facts if isinstance(fact, Restarted)]
    assert restarted.at == crashed.at + 3 * SECOND // 10
    said = [fact.held for fact in facts if isinstance(fact, ReceiptSent) and fact.site == 2 and fact.at <= crashed.at]
    assert restarted.held == max(said) + 1
    assert world.violations() == []


def test_a_crash_that_finds_no_step_to_fall_into_never_happens() -> None:
    world, facts = facts_of({"kind": "crash", "at": 0.6, "duration": 0.3, "sites": ["server1"], "inside": 1})
    assert not [fact for fact in facts if isinstance(fact, Crashed)]
    assert world.violations() == []


def test_a_source_without_its_outbox_is_another_incarnation() -> None:
    world, facts = facts_of({"kind": "crash", "at": 0.6, "until": 0.7, "sites": ["source1"], "disk": "lost"})
    assert world.world.sources == (source_id(1, 2), source_id(2))
    first = [fact.number for fact in facts if isinstance(fact, Submitted) and fact.source == source_id(1, 2)]
    assert first[0] == 1
    assert world.violations() == []


def test_a_lie_is_refused_and_the_market_goes_on_without_the_liar() -> None:
    lie = {"kind": "lie", "at": 0.5, "until": 0.9, "sites": [2]}
    world, facts = facts_of(lie, order_in_token="shuffle")  # noqa: S106
    assert world.violations() == []
    rings = [fact.ring.ring for fact in facts if isinstance(fact, RingFormed)]
    assert sorted(rings[1]) == [1, 3]


def test_late_packets_change_nothing_but_the_time() -> None:
    world, _ = facts_of({"kind": "late", "at": 0.3, "until": 0.9, "late": 0.2, "by": 0.5}, messages=40)
    assert world.violations() == []
    assert world.recorder.last_sequence == {1: 40, 2: 40, 3: 40}
