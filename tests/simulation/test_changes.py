"""Planned, forced and uncertified changes in simulated worlds: the whole path, from an operator's word to the ring."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.worlds import facts_of, run, scenario

from isocast.checks.facts import Fact, Forced, Replaced, Settled, Strayed, Suspected
from isocast.simulation.timed import TimedRun
from isocast.terms.errors import ConfigurationError
from isocast.wire.packets import Suspicion

LONG: dict[str, Any] = {"messages": 240, "arrival_rate": 60}


def last_ring(found: TimedRun) -> list[int]:
    return sorted(found.world.rings[-1].ring)


def of(facts: list[Fact], kind: type) -> list[Any]:
    return [fact for fact in facts if isinstance(fact, kind)]


# Drain


def test_a_drained_site_leaves_the_ring_and_goes_on_releasing() -> None:
    found, facts = facts_of({"kind": "drain", "at": 1.0, "sites": [2]}, **LONG)
    assert found.violations() == []
    assert last_ring(found) == [1, 3]
    assert found.recorder.last_sequence[2] == found.recorder.submitted
    reasons = {fact.reason for fact in of(facts, Suspected)}
    assert reasons <= {Suspicion.LOST, Suspicion.LEAVING}


def test_it_comes_back_when_it_is_told_to() -> None:
    found = run({"kind": "drain", "at": 1.0, "until": 2.5, "sites": [2]}, **LONG)
    assert found.violations() == []
    assert [sorted(ring.ring) for ring in found.world.rings] == [[1, 2, 3], [1, 3], [1, 2, 3]]


def test_a_restarted_site_wants_back() -> None:
    faults = [{"kind": "drain", "at": 1.0, "sites": [2]}, {"kind": "restart", "at": 2.5, "sites": [2]}]
    found = run(*faults, **LONG)
    assert found.violations() == []
    assert last_ring(found) == [1, 2, 3]


def test_a_site_that_cannot_be_spared_stays_and_the_market_goes_on() -> None:
    faults = [{"kind": "crash", "at": 0.5, "sites": [3]}, {"kind": "drain", "at": 2.0, "sites": [2]}]
    found = run(*faults, **LONG)
    assert found.violations() == []
    assert last_ring(found) == [1, 2]


# U


def test_a_new_site_finds_the_ring_takes_a_checkpoint_over_is_added_and_comes_in() -> None:
    found, facts = facts_of({"kind": "add", "at": 1.0, "sites": [4]}, **LONG)
    assert found.violations() == []
    assert (found.world.universe(), last_ring(found)) == ((1, 2, 3, 4), [1, 2, 3, 4])
    assert [fact.outcome for fact in of(facts, Settled)] == ["done"]
    assert [fact.site for fact in of(facts, Replaced)] == [4]


def test_a_site_that_joins_founds_no_market() -> None:
    """Two of three founders are down from the start, and two blank sites are there: that makes no majority."""
    faults = [
        {"kind": "crash", "at": 0.0, "sites": [2, 3]},
        {"kind": "add", "at": 0.0, "sites": [4, 5]},
    ]
    found = TimedRun(scenario(*faults), 1)
    found.world.agenda.run(20_000_000_000)
    assert found.world.rings == []


@pytest.mark.parametrize("down", [False, True], ids=["alive", "dead"])
def test_a_site_is_removed_and_leaves_the_ring(down: bool) -> None:  # noqa: FBT001
    crash = [{"kind": "crash", "at": 0.9, "sites": [3]}] if down else []
    found, facts = facts_of(*crash, {"kind": "remove", "at": 1.5, "sites": [3]}, receivers=4, **LONG)
    assert found.violations() == []
    assert (found.world.universe(), last_ring(found)) == ((1, 2, 4), [1, 2, 4])
    assert any(fact.reason is Suspicion.LEAVING for fact in of(facts, Suspected)) == (not down)


@pytest.mark.parametrize("at", [1.02, 1.06, 1.1, 1.14, 1.18])
def test_whoever_owns_the_next_token_can_be_removed(at: float) -> None:
    found = run({"kind": "remove", "at": at, "sites": [3]}, receivers=4, **LONG)
    assert found.violations() == []
    assert last_ring(found) == [1, 2, 4]


def test_two_changes_at_once_happen_one_after_the_other() -> None:
    faults = [{"kind": "add", "at": 1.0, "sites": [5]}, {"kind": "remove", "at": 1.0, "sites": [2]}]
    found, facts = facts_of(*faults, receivers=4, **LONG)
    assert found.violations() == []
    assert found.world.universe() == (1, 3, 4, 5)
    assert sorted(fact.outcome for fact in of(facts, Settled)) == ["done", "done"]


def test_a_lost_disk_comes_back_under_a_new_number() -> None:
    faults = [
        {"kind": "crash", "at": 1.0, "until": 1.5, "sites": [3], "disk": "lost"},
        {"kind": "remove", "at": 2.0, "sites": [3]},
        {"kind": "add", "at": 2.0, "sites": [6]},
    ]
    found = run(*faults, receivers=5, **LONG)
    assert found.violations() == []
    assert (found.world.universe(), last_ring(found)) == ((1, 2, 4, 5, 6), [1, 2, 4, 5, 6])


# Force


def test_survivors_go_on_when_a_majority_never_comes_back() -> None:
    faults = [{"kind": "crash", "at": 1.0, "sites": [1, 2, 3]}, {"kind": "force", "at": 3.0, "sites": [4, 5]}]
    found, facts = facts_of(*faults, receivers=5, **LONG)
    assert found.violations() == []
    assert (found.world.universe(), last_ring(found)) == ((4, 5), [4, 5])
    told = {fact.node for fact in of(facts, Forced)}
    assert told >= {4, 5}
    assert len(told) == 3  # the server that decided it, and both survivors


def test_without_force_they_wait_for_ever() -> None:
    found = run({"kind": "crash", "at": 1.0, "sites": [1, 2, 3]}, receivers=5, **LONG)
    assert {violation.partition(":")[0] for violation in found.violations()} >= {"L1", "L2"}


# Availability

PARTED = {
    "kind": "partition",
    "at": 1.0,
    "until": 3.5,
    "groups": [[1, 2, "server1", "source1"], [3, 4, 5, "server2", "source2"]],
}


def test_under_majority_a_partition_never_diverges() -> None:
    found, facts = facts_of(PARTED, receivers=5, servers=2, **LONG)
    assert (found.violations(), of(facts, Strayed), found.suite.divergent) == ([], [], 0)


def test_under_availability_both_sides_go_on_and_the_majority_wins() -> None:
    found, facts = facts_of(PARTED, receivers=5, servers=2, policy="availability", start_wait=0.3, **LONG)
    assert found.violations() == []
    assert found.suite.divergent > 0
    assert sorted({fact.site for fact in of(facts, Strayed)}) == [1, 2]
    assert any(ring.uncertified for ring in found.world.rings)
    assert (last_ring(found), found.world.rings[-1].uncertified) == ([1, 2, 3, 4, 5], False)


def test_availability_outlives_a_majority_and_becomes_certified_when_it_returns() -> None:
    crash = {"kind": "crash", "at": 1.0, "until": 3.0, "sites": [1, 2]}
    found = run(crash, policy="availability", start_wait=0.3, **LONG)
    assert (found.violations(), found.suite.divergent) == ([], 0)
    assert [ring.uncertified for ring in found.world.rings][-1:] == [False]
    assert any(ring.uncertified and ring.ring == (3,) for ring in found.world.rings)


# What a scenario file may say


@pytest.mark.parametrize(
    "fault, keys, rule",
    [
        ({"kind": "add", "at": 1.0, "sites": [3]}, {}, "4 or more"),
        ({"kind": "remove", "at": 1.0, "sites": ["server1"]}, {}, "primary receivers"),
        ({"kind": "force", "at": 1.0, "sites": [3]}, {}, "at least 2"),
        ({"kind": "drain", "at": 1.0, "sites": [9]}, {}, "unknown site 9"),
        ({"kind": "drain", "at": 1.0, "sites": [1]}, {"start_wait": 1.0}, "means nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(fault: dict[str, Any], keys: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        run(fault, **keys)


def test_a_site_that_comes_later_can_be_hit_by_later_faults() -> None:
    faults = [
        {"kind": "add", "at": 1.0, "sites": [4]},
        {"kind": "crash", "at": 2.5, "until": 3.0, "sites": [4]},
    ]
    found = run(*faults, **LONG)
    assert found.violations() == []
    assert found.world.universe() == (1, 2, 3, 4)
