"""Every mutant of the reformation rules tells two stories, and the product within the same bounds tells one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isocast.simulation.exploration.market import TransitionSystem
from isocast.simulation.exploration.properties import FOUND_AT, RULES, Bounds
from isocast.simulation.exploration.search import search
from isocast.simulation.exploration.verdict import explore
from isocast.simulation.mutants import MUTANTS

SHORTEST = {
    "paper-literal": 5,
    "epochs-only": 5,
    "release-on-time-alone": 6,
    "half-is-enough": 8,
    "vote-without-disk": 10,
}
"""Steps until two sites have released different messages under one number."""


def test_the_mutants_are_those_of_the_protocol_page() -> None:
    assert set(RULES) == {*SHORTEST, "greatest-held"}
    assert set(FOUND_AT) == set(RULES)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name == "vote-without-disk")) for name in SHORTEST]
)
def test_a_mutant_tells_two_stories(name: str) -> None:
    verdict = explore(FOUND_AT[name], name, stories_only=True)
    assert verdict.found.broken is not None
    assert verdict.found.broken[0] == "agreement"
    assert len(verdict.found.trace) == SHORTEST[name]
    assert len(verdict.trace) == SHORTEST[name] + 1
    assert sum(["RELEASES" in line for line in verdict.trace]) >= 2


@pytest.mark.parametrize(
    "name, bounds, broken",
    [
        ("no-seal", Bounds(servers=1, tokens=1), "agreement"),
        ("receipt-before-disk", Bounds(servers=1, tokens=1, restarts=1), "agreement"),
        ("promise-in-memory", Bounds(servers=1, tokens=1, restarts=1), "promises only rise"),
        pytest.param(
            "install-before-fetching",
            Bounds(tokens=1, more_votes=False),
            "certified is kept",
            marks=pytest.mark.long,
        ),
    ],
)
def test_other_mutants_of_the_swarm_break_a_property_too(name: str, bounds: Bounds, broken: str) -> None:
    found = search(TransitionSystem(bounds, MUTANTS[name].build))
    assert found.broken is not None
    assert found.broken[0] == broken


def test_a_log_that_lost_its_newest_token_votes_it_away() -> None:
    bounds = Bounds(sites=3, servers=1, tokens=1, shorter_logs=1, more_votes=False)
    verdict = explore(bounds, "vote-without-disk")
    assert verdict.found.broken is not None
    assert any("comes back with a log that lost its newest token" in line for line in verdict.trace)


@pytest.mark.long
def test_the_greatest_token_number_forgets_what_a_majority_held() -> None:
    verdict = explore(FOUND_AT["greatest-held"], "greatest-held")
    assert verdict.found.broken is not None
    assert verdict.found.broken[0] == "certified is kept"
    assert len(verdict.found.trace) == 11


@pytest.mark.parametrize("name", [name for name in SHORTEST if name != "vote-without-disk"])
def test_the_product_within_the_same_bounds_tells_one(name: str) -> None:
    verdict = explore(replace(FOUND_AT[name], sites=2))
    assert verdict.found.broken is None
    assert verdict.found.exhausted


def test_a_trace_is_told_in_words() -> None:
    trace = explore(FOUND_AT["release-on-time-alone"], "release-on-time-alone", stories_only=True).trace
    assert trace[0].startswith("all sites are on the ring of epoch 1.1, before token 1; site1 has source1/1, source2/1")
    assert trace[1] == (
        "site1's clock goes on; site1 sends token 1 of epoch 1.1 with source1/1, source2/1;"
        " site1 RELEASES from sequence 1 on: source1/1, source2/1"
    )
    assert trace[4].endswith("it decides the ring site2, site3 of epoch 2.1, after token 0 of epoch 1.1")


def test_a_verdict_is_one_object() -> None:
    verdict = explore(Bounds(sites=2, servers=1, tokens=1)).as_json()
    assert verdict["sites"] == 2
    assert verdict["tokens"] == 1
    assert verdict["exhausted"] is True
    assert verdict["violations"] == []
    assert {"states", "transitions", "depth"} <= set(verdict)
