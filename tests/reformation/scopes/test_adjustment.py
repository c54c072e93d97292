"""Plans adjusted at reformation: few changes, and no address used again before it has drained."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reformation.scopes.independent import (
    TOLERANCE_KM,
    clashes,
    hears,
    left_behind,
    places,
    serving,
    shared_while_draining,
)
from tests.reformation.scopes.worlds import DRAIN_NS, drawn_worlds

from isocast.reformation.scopes.adjustment import adjust, plan_scopes
from isocast.reformation.scopes.coverage import cover
from isocast.reformation.scopes.plan import Draining, Plan, What, changes
from isocast.reformation.scopes.world import AddressPool, CoverageWorld, Surface
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND

STEPS = st.lists(st.tuples(st.integers(0, 2**12 - 1), st.integers(0, 40)), min_size=1, max_size=5)


def plane(seed: int = 1, receivers: int = 80, customers: int = 600) -> CoverageWorld:
    random = np.random.default_rng(seed)
    return CoverageWorld(
        Surface.PLANE,
        places("r", [(x, y) for x, y in (random.random((receivers, 2)) * 1000).tolist()]),
        places("c", [(x, y) for x, y in (random.random((customers, 2)) * 1000).tolist()]),
        pool=AddressPool(drain_ns=DRAIN_NS),
    )


def alive(world: CoverageWorld, mask: int) -> CoverageWorld:
    """The world with the receivers of a mask away, but never all."""
    gone = tuple([name for place, name in enumerate(world.receivers.names) if mask >> place & 1])
    return world.without(gone[: len(world.receivers) - 1])


@settings(max_examples=50, deadline=None)
@given(drawn_worlds(receivers_min=2), STEPS)
def test_through_any_failures_and_returns_a_plan_keeps_every_promise(
    world: CoverageWorld, steps: list[tuple[int, int]]
) -> None:
    now = 1_000 * SECOND
    plan = plan_scopes(world, now)
    resting: list[Draining] = []
    for mask, seconds in steps:
        now += seconds * SECOND
        there = alive(world, mask)
        after = adjust(plan, there, now)
        resting = [rest for rest in resting if rest.free_at_ns > now]
        resting += left_behind(plan, after, now + DRAIN_NS)
        assert tuple([scope.receiver for scope in after.scopes]) == there.receivers.names
        assert clashes(there, after) == []
        assert shared_while_draining(after, resting) == []
        for who in there.customers.names:
            possible = sum([serving(there, receiver, who) for receiver in there.receivers.names])
            heard = [
                scope
                for scope in after.scopes
                if serving(there, scope.receiver, who, TOLERANCE_KM) and hears(there, scope, who, there.rules.margin_km)
            ]
            assert len(heard) >= min(there.rules.lines, possible), who
        assert adjust(after, there, now).scopes == after.scopes, "nothing is left to do"
        plan = after


@settings(max_examples=25, deadline=None)
@given(drawn_worlds(receivers_min=2), STEPS)
def test_an_address_that_rests_everywhere_is_given_to_nobody(
    world: CoverageWorld, steps: list[tuple[int, int]]
) -> None:
    world = replace(world, pool=replace(world.pool, drain_everywhere=True))
    now = 1_000 * SECOND
    plan = plan_scopes(world, now)
    resting: list[Draining] = []
    for mask, seconds in steps:
        now += seconds * SECOND
        after = adjust(plan, alive(world, mask), now)
        resting = [rest for rest in resting if rest.free_at_ns > now]
        had = {(scope.receiver, scope.address) for scope in plan.scopes}
        for scope in after.scopes:
            own = {rest.address for rest in resting if rest.receiver == scope.receiver}  # It may return to these.
            if scope.address not in own and (scope.receiver, scope.address) not in had:
                assert scope.address not in {rest.address for rest in resting}
        resting += left_behind(plan, after, now + DRAIN_NS)
        plan = after


@settings(max_examples=25, deadline=None)
@given(drawn_worlds())
def test_a_world_that_did_not_change_keeps_its_plan(world: CoverageWorld) -> None:
    plan = plan_scopes(world, 7)
    again = adjust(plan, world, 9)
    assert again.scopes == plan.scopes
    assert again.draining == ()


def test_when_one_fails_only_neighbours_change() -> None:
    world = plane()
    plan = plan_scopes(world, 0)
    widest = max(plan.scopes, key=lambda scope: scope.radius_km)
    after = adjust(plan, world.without((widest.receiver,)), SECOND)
    counts = Counter([change.what for change in changes(plan, after)])
    assert counts[What.LOST] == 1
    assert counts[What.KEPT] + counts[What.SILENT] >= len(plan.scopes) - 8
    assert cover(world.without((widest.receiver,)), after).short == ()
    for change in changes(plan, after):
        if change.after is not None and change.what not in (What.KEPT, What.SILENT):
            away = np.hypot(change.after.place[0] - widest.place[0], change.after.place[1] - widest.place[1])
            assert away < 4 * widest.radius_km


def test_a_fresh_plan_would_change_far_more() -> None:
    world = plane()
    plan = plan_scopes(world, 0)
    there = world.without(("r3", "r17", "r40"))
    same = (What.KEPT, What.SILENT)
    adjusted = [change for change in changes(plan, adjust(plan, there, SECOND)) if change.what not in same]
    anew = [change for change in changes(plan, plan_scopes(there, SECOND)) if change.what not in same]
    assert 2 * len(adjusted) < len(anew)


def test_who_returns_within_the_drain_time_gets_back_what_it_had_and_so_do_its_neighbours() -> None:
    world = plane()
    plan = plan_scopes(world, 0)
    lost = max(plan.scopes, key=lambda scope: scope.radius_km)
    without = adjust(plan, world.without((lost.receiver,)), SECOND)
    assert [scope.radius_km for scope in without.scopes] != [scope.radius_km for scope in plan.scopes]
    back = adjust(without, world, 2 * SECOND)
    number = world.receivers.names.index(lost.receiver)
    assert back.scopes[number] == lost
    assert [scope.radius_km for scope in back.scopes] == [scope.radius_km for scope in plan.scopes]


def test_what_drains_is_forgotten_when_its_time_has_come() -> None:
    world = plane()
    plan = plan_scopes(world, 0)
    lost = max(plan.scopes, key=lambda scope: scope.radius_km)
    there = world.without((lost.receiver,))
    after = adjust(plan, there, SECOND)
    rest = [entry for entry in after.draining if entry.receiver == lost.receiver]
    assert [(entry.address, entry.free_at_ns) for entry in rest] == [(lost.address, SECOND + DRAIN_NS)]
    assert adjust(after, there, SECOND + DRAIN_NS - 1).draining == after.draining
    assert adjust(after, there, SECOND + DRAIN_NS).draining == ()


def test_a_receiver_elsewhere_under_an_old_name_is_a_new_one() -> None:
    world = plane(receivers=12, customers=100)
    plan = plan_scopes(world, 0)
    where = world.receivers.where.copy()
    speaking = next(number for number, scope in enumerate(plan.scopes) if scope.address is not None)
    where[speaking] += 400
    moved = replace(world, receivers=replace(world.receivers, where=where))
    after = adjust(plan, moved, SECOND)
    assert [rest.receiver for rest in after.draining].count(plan.scopes[speaking].receiver) == 1
    assert cover(moved, after).short == ()
    assert clashes(moved, after) == []


def test_plan_and_world_must_go_together() -> None:
    world = plane(receivers=4, customers=5)
    plan = plan_scopes(world)
    other = replace(world, pool=AddressPool(first=IPv4Address("239.1.0.0")))
    with pytest.raises(ConfigurationError, match=r"addresses.first: the plan in force counts from 239.192.0.0"):
        adjust(plan, other, 0)
    with pytest.raises(ConfigurationError, match=r"surface: the plan in force is for the earth"):
        adjust(replace(plan, surface=Surface.EARTH), world, 0)


def test_every_kind_of_change_has_its_name() -> None:
    world = plane(receivers=3, customers=0)
    base = plan_scopes(world).scopes[0]
    assert base.address is None
    speaks = replace(base, radius_km=5.0, settled_km=5.0, address=0)

    def what(before: object, after: object) -> What:
        def plan(scope: object) -> Plan:
            scopes = () if scope is None else (scope,)
            return Plan(Surface.PLANE, 2, 0, IPv4Address("239.0.0.0"), 1, scopes)  # type: ignore[arg-type]

        (change,) = changes(plan(before), plan(after))
        return change.what

    assert what(speaks, speaks) is What.KEPT
    assert what(speaks, replace(speaks, radius_km=6.0)) is What.WIDENED
    assert what(speaks, replace(speaks, radius_km=4.0)) is What.NARROWED
    assert what(speaks, replace(speaks, radius_km=6.0, address=1)) is What.MOVED
    assert what(None, speaks) is What.NEW
    assert what(base, speaks) is What.NEW
    assert what(speaks, None) is What.LOST
    assert what(speaks, base) is What.LOST
    assert what(base, base) is What.SILENT
