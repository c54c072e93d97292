"""The search of many states at a time finds what the plain one finds; what it takes for one state is one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isocast.simulation.exploration.driver import Event
from isocast.simulation.exploration.freezing import Freezer
from isocast.simulation.exploration.mail import numbers_in
from isocast.simulation.exploration.market import NodeStates, TransitionSystem
from isocast.simulation.exploration.properties import RULES, Bounds
from isocast.simulation.exploration.search import Found, search
from isocast.simulation.exploration.sweep import sweep
from isocast.simulation.world import PRODUCT, Build

TINY = Bounds(sites=2, servers=1, tokens=1)
RACE = Bounds(sites=2, servers=2, tokens=1)
RESTARTS = replace(TINY, restarts=1, shorter_logs=1, lost_disks=1)


def swept(bounds: Bounds, build: Build = PRODUCT) -> Found:
    return sweep(TransitionSystem(bounds, build))


def classes(bounds: Bounds) -> int:
    """How many classes of states the plain search visits: alike but for votes that nobody will count."""
    market = TransitionSystem(bounds)
    found = set()

    def visit(state: int, _: bool) -> None:  # noqa: FBT001
        places, dead = market.unpacked(state), 0
        for node in market.servers:
            if market.places[node].closed(places[node]):
                dead |= market.mail.addressed[node] & market.mail.votes
        found.add(tuple([table.but(place, dead) for table, place in zip(market.places, places, strict=True)]))

    assert search(market, visit=visit).exhausted
    return len(found)


@pytest.mark.parametrize(
    "bounds",
    [
        TINY,
        pytest.param(RACE, marks=pytest.mark.long),
        pytest.param(RESTARTS, marks=pytest.mark.long),
        replace(TINY, eager=False, gathered_votes=False),
        replace(TINY, tokens=2, requests=True),
    ],
    ids=["tiny", "race", "restarts", "unreduced", "requests"],
)
def test_both_searches_visit_the_same(bounds: Bounds) -> None:
    apart = replace(bounds, dead_votes=False)
    assert swept(apart) == search(TransitionSystem(apart))


@pytest.mark.parametrize(
    "bounds",
    [
        TINY,
        pytest.param(RACE, marks=pytest.mark.long),
        RESTARTS,
        pytest.param(replace(TINY, ballots=2), marks=pytest.mark.long),
        pytest.param(replace(RACE, restarts=1), marks=pytest.mark.long),
    ],
    ids=["tiny", "race", "restarts", "two ballots", "race and restart"],
)
def test_one_state_of_every_class_is_visited(bounds: Bounds) -> None:
    found = swept(bounds)
    assert found.exhausted
    assert found.states == classes(bounds)


@pytest.mark.long
def test_one_state_of_every_class_is_fewer_states() -> None:
    three = Bounds(servers=1, tokens=1)
    assert swept(three).states == classes(three) < swept(replace(three, dead_votes=False)).states


@pytest.mark.parametrize("name", ["epochs-only", "release-on-time-alone", "half-is-enough"])
def test_a_mutant_is_found_in_as_many_steps(name: str) -> None:
    bounds, build = Bounds(servers=1, tokens=1), RULES[name].build
    plain, many = search(TransitionSystem(bounds, build)), swept(bounds, build)
    assert plain.broken is not None
    assert many.broken is not None
    assert len(many.trace) == len(plain.trace) == many.depth


def test_a_trace_leads_to_the_violation() -> None:
    market = TransitionSystem(RACE, RULES["epochs-only"].build, stories_only=True)
    found = sweep(market)
    state = market.start()
    for move in found.trace:
        assert market.broken(state) is None
        state = dict(market.moves(state))[move]
    assert market.broken(state) == found.broken


def test_a_server_that_counts_votes_after_all_stops_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeStates, "closed", lambda *_: True)
    with pytest.raises(RuntimeError, match="the reduction is wrong"):
        swept(TINY)


def test_a_limit_ends_the_search_and_says_so() -> None:
    found = sweep(TransitionSystem(RACE), states_max=100)
    assert found.states >= 100
    assert not found.exhausted


def test_an_event_does_the_same_to_all_places_of_a_body() -> None:
    market = TransitionSystem(replace(TINY, restarts=1))
    search(market)
    freezer = Freezer()
    for node in market.sites:
        table = market.places[node]
        for place in range(0, len(table), 3):
            for number in numbers_in(market.mail.addressed[node]):
                event = Event.LETTER + number
                local, after = market.driver.after(table.states[place], event), table.after(place, event)
                assert local is not None
                assert after is not None
                assert local.sent == table.sent[after]
                assert local.digest(freezer) == table.states[after].digest(freezer)


def test_a_server_may_decide_both_its_ballots() -> None:
    market = TransitionSystem(replace(TINY, ballots=2))
    decided = set()

    def visit(state: int, _: bool) -> None:  # noqa: FBT001
        decided.update([len(market.parts(state)[node].memory.rings) for node in market.servers])

    assert search(market, visit=visit).broken is None
    assert decided == {0, 1, 2}
