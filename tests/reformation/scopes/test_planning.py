"""Plans from nothing, judged by somebody else."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from tests.reformation.scopes.independent import TOLERANCE_KM, clashes, hears, places, serving
from tests.reformation.scopes.worlds import drawn_worlds

from isocast.reformation.scopes.adjustment import plan_scopes
from isocast.reformation.scopes.coverage import cover
from isocast.reformation.scopes.plan import Plan
from isocast.reformation.scopes.world import AddressPool, CoverageWorld, ScopeRules, Surface
from isocast.terms.errors import ConfigurationError

LAND = CoverageWorld(
    Surface.EARTH,
    places("r", [(52.0, 0.0), (48.8, 2.3), (50.1, 8.6), (41.0, 29.0)]),
    places("c", [(51.0, 1.0), (50.0, 5.0), (47.0, 8.0)]),
)


@settings(max_examples=60, deadline=None)
@given(drawn_worlds())
def test_everybody_hears_k_sources_or_all_that_can_be_heard(world: CoverageWorld) -> None:
    plan = plan_scopes(world)
    for who in world.customers.names:
        possible = sum([serving(world, receiver, who) for receiver in world.receivers.names])
        heard = [
            scope.receiver
            for scope in plan.scopes
            if serving(world, scope.receiver, who, TOLERANCE_KM) and hears(world, scope, who, world.rules.margin_km)
        ]
        assert len(heard) >= min(world.rules.lines, possible), who


@settings(max_examples=60, deadline=None)
@given(drawn_worlds())
def test_no_two_scopes_that_overlap_share_an_address(world: CoverageWorld) -> None:
    assert clashes(world, plan_scopes(world)) == []


@settings(max_examples=40, deadline=None)
@given(drawn_worlds())
def test_no_scope_is_wider_than_the_rules_allow(world: CoverageWorld) -> None:
    limit = min(world.rules.radius_max_km, max(world.paths.km_of_delay(world.rules.delay_max_ns), 0.0))
    for scope in plan_scopes(world).scopes:
        assert scope.radius_km <= limit + 0.002
        assert (scope.address is None) == (scope.radius_km == 0)


@settings(max_examples=30, deadline=None)
@given(drawn_worlds())
def test_the_verdict_agrees_with_an_independent_one(world: CoverageWorld) -> None:
    plan = plan_scopes(world)
    coverage = cover(world, plan)
    for number, who in enumerate(world.customers.names):
        sure = [scope for scope in plan.scopes if hears(world, scope, who) and serving(world, scope.receiver, who)]
        assert coverage.lines_of[number] >= len(sure)
    named = {short.customer for short in coverage.short}
    few = [who for who, lines in zip(world.customers.names, coverage.lines_of, strict=True) if lines < plan.lines]
    assert named == set(few)
    assert all(short.reason for short in coverage.short)
    assert int(coverage.customers_of.sum()) == int(coverage.lines_of.sum())


@settings(max_examples=40, deadline=None)
@given(drawn_worlds())
def test_a_plan_travels_as_json(world: CoverageWorld) -> None:
    plan = plan_scopes(world, now=17)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_the_same_world_gives_the_same_plan() -> None:
    assert plan_scopes(LAND, 5) == plan_scopes(LAND, 5)


def test_a_receiver_that_nobody_needs_is_silent() -> None:
    plan = plan_scopes(LAND)
    assert plan.scopes[3].radius_km == 0
    assert plan.scopes[3].address is None


def test_scopes_give_up_ground_that_nearest_receivers_would_take() -> None:
    """Serving everybody from the two nearest costs more than the plan does."""
    random = np.random.default_rng(3)
    where = [(float(x), float(y)) for x, y in random.random((60, 2)) * 100]
    whom = [(float(x), float(y)) for x, y in random.random((500, 2)) * 100]
    world = CoverageWorld(Surface.PLANE, places("r", where), places("c", whom))
    radii = np.zeros(60)
    for x, y in whom:
        away = np.hypot(*(np.array(where) - np.array([x, y])).T)
        near = np.argsort(away)[:2]
        radii[near] = np.maximum(radii[near], away[near])
    ground = sum([scope.radius_km**2 for scope in plan_scopes(world).scopes])
    assert ground < 0.8 * float((radii**2).sum())


def test_too_few_addresses_are_refused_with_the_number_that_is_needed() -> None:
    crowd = CoverageWorld(
        Surface.EARTH,
        LAND.receivers,
        LAND.customers,
        rules=ScopeRules(lines=3),
        pool=AddressPool(count=2),
        file="world.toml",
    )
    with pytest.raises(ConfigurationError, match=r"world.toml: addresses.count: the plan needs 3 addresses"):
        plan_scopes(crowd)


def test_a_pool_for_stripes_has_fewer_addresses() -> None:
    pool = AddressPool(count=9, stripes=4)
    assert pool.usable == 2
    assert str(pool.group(1)) == "239.192.0.4"
