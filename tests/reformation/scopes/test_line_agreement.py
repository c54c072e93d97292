"""Servers plan, receivers keep and follow: one plan after the other, whoever fails, and no address before its time."""

from __future__ import annotations

from random import Random

import pytest
from tests.reformation.scopes.line_promises import check_plans
from tests.reformation.scopes.line_stage import CUSTOMERS, DRAIN_NS, PLACES, SERVERS, Stage, new_ring

from isocast.reformation.scopes.line_keeper import (
    LineKeeper,
    hearing,
    reaches,
    scope_of,
    sources,
    speaking,
)
from isocast.reformation.scopes.line_planner import PlanningStage
from isocast.ring.inputs import PacketsArrived
from isocast.terms.ids import Epoch
from isocast.terms.instants import SECOND
from isocast.terms.topology import great_circle_km
from isocast.wire.packets import NO_ADDRESS, NO_VERSION, LineRest, Lines, LineScope, PlanVersion

ALL = tuple(PLACES)
A, B, C = SERVERS


def followed(stage: Stage) -> list[Lines]:
    """The plans that any line ever followed, each once, in their order."""
    return sorted({lines.version: lines for _, _, lines in stage.settled}.values(), key=lambda lines: lines.version)


def version_at(stage: Stage, site: int) -> PlanVersion:
    lines = stage.keeper(site).state.settled
    return NO_VERSION if lines is None else lines.version


def assert_every_promise_is_kept(stage: Stage) -> None:
    check_plans(followed(stage), CUSTOMERS, DRAIN_NS)


def test_the_decider_of_a_ring_plans_and_everybody_follows() -> None:
    stage = Stage()
    stage.ring(new_ring(1, A, ALL))
    stage.run(2 * SECOND)
    (plan,) = followed(stage)
    assert str(plan.version) == "1.1/1"
    assert plan.version.author == A
    assert {site for _, site, _ in stage.settled} == set(ALL)
    assert {stage.planner(server).state.version for server in SERVERS} == {plan.version}
    assert_every_promise_is_kept(stage)


def test_a_lost_site_changes_little_and_its_address_rests() -> None:
    stage = Stage()
    stage.ring(new_ring(1, A, ALL))
    stage.run(2 * SECOND)
    stage.stop(4)
    stage.ring(new_ring(2, A, (1, 2, 3, 5, 6, 7, 8)))
    stage.run(2 * SECOND)
    before, after = followed(stage)
    assert scope_of(after, 4) is None
    assert [rest.site for rest in after.rests if rest.site == 4] == [4]
    assert stage.made[-1].moved <= 1
    assert stage.made[-1].changed <= 4
    assert before.version < after.version
    assert_every_promise_is_kept(stage)


def test_a_server_that_dies_after_deciding_is_followed_by_another_from_the_same_plan() -> None:
    stage = Stage()
    stage.ring(new_ring(1, A, ALL))
    stage.run(2 * SECOND)
    stage.stop(4)
    stage.stop(A)
    stage.ring(new_ring(2, A, (1, 2, 3, 5, 6, 7, 8)))
    stage.run(10 * SECOND)
    _, after = followed(stage)
    assert after.version == PlanVersion(Epoch(2, A), 1, B)
    assert str(after.version) == "2.1/1@2"
    assert stage.planner(C).state.version == after.version
    assert_every_promise_is_kept(stage)


def test_a_plan_that_only_one_receiver_got_is_gone_on_from() -> None:
    """The server that made it died while it told it: nobody followed it, and the next one knows it."""
    stage = Stage()
    stage.ring(new_ring(1, A, ALL))
    stage.run(2 * SECOND)
    ring = new_ring(2, A, (1, 2, 3, 5, 6, 7, 8))
    stage.stop(4)
    stage.ring(ring)
    half = None
    while half is None:
        stage.run(1_000_000)
        half = stage.made[1].lines if len(stage.made) > 1 else None
    stage.stop(A)
    stage._mail.clear()  # noqa: SLF001
    keeper = stage.keeper(8)
    keeper.step(PacketsArrived([half]), stage.now, ring)
    stage.disks[8] = keeper.state
    stage.run(15 * SECOND)
    assert stage.planner(B).state.version >= half.version
    newest = followed(stage)[-1]
    assert newest.version >= half.version
    assert newest.scopes == half.scopes
    assert_every_promise_is_kept(stage)


def test_a_server_without_the_newest_plan_gets_it_before_it_plans() -> None:
    stage = Stage()
    stage.stop(B)
    stage.ring(new_ring(1, A, ALL))
    stage.run(2 * SECOND)
    stage.stop(A)
    stage.start(B)
    stage.stop(4)
    stage.ring(new_ring(2, B, (1, 2, 3, 5, 6, 7, 8)))
    stage.run(5 * SECOND)
    before, after = followed(stage)
    assert after.version.author == B
    assert [rest.site for rest in after.rests if rest.site == 4] == [4]
    kept = [scope for scope in after.scopes if scope == scope_of(before, scope.site)]
    assert len(kept) >= len(after.scopes) - 4
    assert_every_promise_is_kept(stage)


def test_a_receiver_that_was_away_gets_the_plan_when_it_is_back() -> None:
    stage = Stage()
    stage.stop(8)
    stage.ring(new_ring(1, A, ALL))
    stage.run(20 * SECOND)
    stage.start(8)
    stage.ring(new_ring(1, A, ALL), [8])
    stage.run(3 * SECOND)
    assert version_at(stage, 8) == version_at(stage, 1) != NO_VERSION


def test_nobody_moves_while_less_than_a_majority_holds_a_plan() -> None:
    stage = Stage()
    for site in (1, 2, 3, 4):
        stage.stop(site)
    stage.ring(new_ring(1, A, ALL))
    stage.run(20 * SECOND)
    assert stage.settled == []
    stage.start(1)
    stage.ring(new_ring(1, A, ALL), [1])
    stage.run(20 * SECOND)
    assert {site for _, site, _ in stage.settled} == {1, 5, 6, 7, 8}


def test_a_plan_of_an_older_ring_is_refused() -> None:
    stage = Stage()
    stage.ring(new_ring(1, A, ALL))
    stage.run(2 * SECOND)
    (old,) = followed(stage)
    keeper = LineKeeper(5, 0, 1)
    keeper.step(PacketsArrived([old]), stage.now, new_ring(2, A, ALL))
    assert keeper.state.version == NO_VERSION
    keeper.step(PacketsArrived([old]), stage.now, new_ring(1, A, ALL))
    # The ring does not go back, so this is a restart from an older disk.
    fresh = LineKeeper(5, 0, 1)
    fresh.step(PacketsArrived([old]), stage.now, new_ring(1, A, ALL))
    assert fresh.state.version == old.version


def test_a_pool_that_is_too_small_is_told_and_lines_stay_as_they_are() -> None:
    stage = Stage(count=1)
    stage.ring(new_ring(1, A, ALL))
    stage.run(2 * SECOND)
    assert "addresses.count" in stage.failed[0].rule
    assert stage.settled == []
    assert stage.planner(A).stage is PlanningStage.RESTING


def test_a_restarted_server_makes_no_new_plan_where_nothing_changed() -> None:
    stage = Stage()
    stage.ring(new_ring(1, A, ALL))
    stage.run(2 * SECOND)
    for server in SERVERS:
        stage.stop(server)
        stage.start(server)
    stage.ring(new_ring(1, A, ALL), SERVERS)
    stage.run(30 * SECOND)
    assert len(followed(stage)) == 1
    assert len(stage.made) == 1


def _chaos(seed: int) -> Stage:
    random = Random(seed)
    stage = Stage(seed, loss=random.choice([0.0, 0.1, 0.3]))
    number = 0
    away: list[int] = []
    for _ in range(random.randrange(3, 8)):
        number += 1
        for node in [*away]:
            if random.random() < 0.6:
                away.remove(node)
                stage.start(node)
        for node in random.sample([*ALL, *SERVERS], random.randrange(0, 4)):
            alive = [one for one in ALL if one in stage.nodes]
            if node in stage.nodes and (node in SERVERS or len(alive) > 5):
                stage.stop(node)
                away.append(node)
        members = tuple([site for site in ALL if site in stage.nodes])
        stage.ring(new_ring(number, random.choice(SERVERS), members))
        stage.run(random.randrange(10_000_000, 6 * SECOND))
    stage.loss = 0.0
    for node in away:
        stage.start(node)
    stage.ring(new_ring(number + 1, random.choice(SERVERS), ALL))
    stage.run(30 * SECOND)
    return stage


@pytest.mark.parametrize("seed", range(12))
def test_whoever_fails_when_there_is_one_plan_in_the_end_and_every_promise_was_kept(seed: int) -> None:
    stage = _chaos(seed)
    assert_every_promise_is_kept(stage)
    (plan,) = {version_at(stage, site) for site in ALL}
    assert plan == followed(stage)[-1].version
    assert {stage.planner(server).state.version for server in SERVERS} == {plan}


# ---- what a plan means for one node


def _moved(now: int) -> Lines:
    london, tokyo = PLACES[3], PLACES[5]
    return Lines(
        0,
        Epoch(2, A),
        A,
        PlanVersion(Epoch(2, A), 1, A),
        now,
        0xEFFF5000,
        1,
        (
            LineScope(3, london.latitude, london.longitude, 700_000, 700_000, 4),
            LineScope(5, tokyo.latitude, tokyo.longitude, 2_000_000, 2_000_000, 4),
        ),
        (LineRest(3, london.latitude, london.longitude, 700_000, 700_000, 1, now + DRAIN_NS),),
    )


def test_who_moves_speaks_at_both_addresses_for_half_the_drain_time() -> None:
    now = 1_000 * SECOND
    lines = _moved(now)
    half = now + DRAIN_NS // 2
    assert speaking(lines, 3, now, DRAIN_NS) == {"239.255.80.4": 700_000, "239.255.80.1": 700_000}
    assert speaking(lines, 3, half, DRAIN_NS) == {"239.255.80.4": 700_000}
    assert speaking(lines, 9, now, DRAIN_NS) == {}


def test_a_listener_joins_the_groups_in_reach_and_means_their_owners() -> None:
    now = 1_000 * SECOND
    lines = _moved(now)
    paris = next(place for place in CUSTOMERS if place.name == "Paris")
    assert hearing(lines, paris, now, DRAIN_NS) == {"239.255.80.4": (3,), "239.255.80.1": (3,)}
    assert hearing(lines, paris, now + DRAIN_NS // 2, DRAIN_NS) == {"239.255.80.4": (3,)}
    assert sources(lines, paris) == (3,)
    assert hearing(lines, PLACES[5], now, DRAIN_NS) == {"239.255.80.4": (5,)}


def test_who_stands_exactly_at_the_rim_hears() -> None:
    london, paris = PLACES[3], next(place for place in CUSTOMERS if place.name == "Paris")
    away_m = int(great_circle_km(london, paris) * 1000)
    assert reaches(LineScope(3, london.latitude, london.longitude, away_m + 1, 0, 0), paris)
    assert not reaches(LineScope(3, london.latitude, london.longitude, away_m - 2, 0, 0), paris)
    assert not reaches(LineScope(3, london.latitude, london.longitude, 0, 0, NO_ADDRESS), london)
