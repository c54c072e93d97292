"""Why a customer hears too little, and what measured links change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.reformation.scopes.independent import places

from isocast.reformation.scopes.adjustment import plan_scopes
from isocast.reformation.scopes.coverage import cover
from isocast.reformation.scopes.world import CoverageWorld, MeasuredPath, Paths, ScopeRules, Surface
from isocast.terms.instants import MILLISECOND

WORLD = CoverageWorld(Surface.PLANE, places("r", [(0.0, 0.0), (1000.0, 0.0)]), places("c", [(10.0, 0.0)]))


def reason(world: CoverageWorld) -> tuple[int, str]:
    (short,) = cover(world, plan_scopes(world)).short
    return short.lines, short.reason


def test_delay_loss_and_distance_are_each_named() -> None:
    near = replace(WORLD, rules=ScopeRules(radius_max_km=500))
    assert reason(near) == (1, "r1: 990 km away, 500 km allowed")
    fast = replace(WORLD, rules=ScopeRules(delay_max_ns=2 * MILLISECOND))
    assert reason(fast) == (1, "r1: 5.2 ms away, 2 ms allowed")
    lossy = replace(WORLD, paths=Paths(loss=0.01, loss_per_1000_km=0.05))
    assert reason(lossy) == (1, "r1: 5.90% lost on the way, 2.00% allowed")


def test_one_receiver_is_not_two() -> None:
    assert reason(WORLD.without(("r1",))) == (1, "there is only 1 receiver")


def test_a_link_that_is_cut_or_bad_is_not_relied_on() -> None:
    assert reason(replace(WORLD, links=(MeasuredPath("r1", "c0", cut=True),))) == (1, "r1: the link is cut")
    assert reason(replace(WORLD, links=(MeasuredPath("r1", "c0", loss=0.2),))) == (
        1,
        "r1: 20.00% lost on the way, 2.00% allowed",
    )
    slow = replace(WORLD, links=(MeasuredPath("r1", "c0", delay_ns=80 * MILLISECOND),))
    assert reason(slow) == (1, "r1: 80.0 ms away, 20 ms allowed")


def test_a_link_that_is_faster_than_its_distance_makes_a_scope_small() -> None:
    plan = plan_scopes(replace(WORLD, links=(MeasuredPath("r1", "c0", delay_ns=1 * MILLISECOND),)))
    assert plan.scopes[1].radius_km == pytest.approx(WORLD.paths.km_of_delay(1 * MILLISECOND), abs=0.001)


def test_scopes_that_meet_only_by_a_link_do_not_share_an_address() -> None:
    """Their discs are 600 km apart; the customer hears both."""
    plan = plan_scopes(replace(WORLD, links=(MeasuredPath("r1", "c0", delay_ns=1 * MILLISECOND),)))
    assert plan.scopes[0].radius_km + plan.scopes[1].radius_km < 400
    assert plan.scopes[0].address != plan.scopes[1].address


def test_delay_and_loss_by_distance_can_be_turned_round() -> None:
    paths = Paths(loss=0.01, loss_per_1000_km=0.02)
    assert paths.km_of_delay(paths.delay_ns(1234.5)) == pytest.approx(1234.5)
    assert paths.km_of_loss(paths.loss_at(1234.5)) == pytest.approx(1234.5)
    assert paths.km_of_loss(0.001) < 0
    assert Paths(km_per_hop=250).hops(0) == 1
    assert Paths(km_per_hop=250).hops(500.1) == 4
    assert Paths(hop_ns=0).delay_ns(200.0) == MILLISECOND


def test_rules_that_nobody_can_keep_leave_everybody_silent() -> None:
    world = replace(WORLD, rules=ScopeRules(delay_max_ns=0))
    plan = plan_scopes(world)
    assert [scope.address for scope in plan.scopes] == [None, None]
    assert cover(world, plan).by_lines() == {0: 1}


def test_a_plan_of_other_receivers_is_refused() -> None:
    with pytest.raises(ValueError, match="other receivers"):
        cover(WORLD.without(("r1",)), plan_scopes(WORLD))
