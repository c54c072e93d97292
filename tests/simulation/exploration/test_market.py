"""A small market of the product's own machines: the full rules hold, and the reductions hide nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import pytest

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.server import ReformationServer
from isocast.simulation.exploration.market import TransitionSystem
from isocast.simulation.exploration.properties import RULES, Bounds
from isocast.simulation.exploration.search import Found, search
from isocast.simulation.world import PRODUCT, Build

ONE_BALLOT = Bounds(servers=1, tokens=1)
TINY = Bounds(sites=2, servers=1, tokens=1)

Story: TypeAlias = tuple[tuple[tuple[str, ...], ...], ...]


def explored(bounds: Bounds, build: Build = PRODUCT) -> tuple[Found, set[Story], set[Story]]:
    """What was found, and the journals of all states and of those where nothing more can happen."""
    market = TransitionSystem(bounds, build)
    stories: set[Story] = set()
    ends: set[Story] = set()

    def visit(state: int, end: bool) -> None:  # noqa: FBT001
        story = tuple([local.memory.journals for local in market.parts(state)[: bounds.sites]])
        stories.add(story)
        if end:
            ends.add(story)

    return search(market, visit=visit), stories, ends


def unreduced(bounds: Bounds) -> Bounds:
    return replace(bounds, eager=False, gathered_votes=False)


def test_the_full_rules_hold_on_rings_and_tokens_of_both_epochs() -> None:
    """Protocol §5: "With the full rule set it finds none"."""
    market = TransitionSystem(ONE_BALLOT)
    accepted, issued, cuts = set(), set(), set()

    def visit(state: int, _: bool) -> None:  # noqa: FBT001
        for local in market.parts(state):
            cuts.update([(ring[2], len(local.memory.rings)) for ring in local.memory.rings])
            issued.update([(epoch.number, number, local.node) for epoch, number, _ in local.memory.issued])
            if isinstance(local.machine, PrimaryReceiver):
                accepted.add((local.node, local.machine.receiver.accepted.number))

    found = search(market, visit=visit)
    assert found.broken is None
    assert found.exhausted
    assert accepted == {(site, epoch) for site in (1, 2, 3) for epoch in (1, 2)}
    assert {(1, 1, 1), (2, 1, 1), (2, 1, 2)} <= issued
    assert cuts == {(0, 1), (1, 1)}


def test_two_searches_are_one() -> None:
    first, _, _ = explored(TINY)
    second, _, _ = explored(TINY)
    assert first == second


def test_the_nodes_are_the_products() -> None:
    kinds = {type(local.machine) for local in TransitionSystem(TINY).parts(0)}
    assert {PrimaryReceiver, ReformationServer} <= kinds


def test_the_reductions_end_with_the_same_stories() -> None:
    reduced, _, ends = explored(TINY)
    whole, _, all_ends = explored(unreduced(TINY))
    assert reduced.exhausted
    assert whole.exhausted
    assert reduced.states < whole.states
    assert ends == all_ends


@pytest.mark.parametrize(
    "bounds", [TINY, pytest.param(ONE_BALLOT, marks=pytest.mark.long)], ids=["tiny", "three sites"]
)
def test_what_is_told_without_reductions_is_the_beginning_of_what_is_told_with_them(bounds: Bounds) -> None:
    _, few, _ = explored(bounds)
    _, many, _ = explored(unreduced(bounds))
    assert few <= many
    for story in many:
        assert any(
            all(mine[-1] == theirs[-1][: len(mine[-1])] for mine, theirs in zip(story, longer, strict=True))
            for longer in few
        )


@pytest.mark.parametrize("name", ["epochs-only", "release-on-time-alone"])
def test_the_reductions_lose_no_violation(name: str) -> None:
    build = RULES[name].build
    reduced, _, _ = explored(TINY, build)
    whole, _, _ = explored(unreduced(TINY), build)
    assert (reduced.broken is None) == (whole.broken is None)
    assert len(reduced.trace) <= len(whole.trace)


def test_a_restart_is_explored() -> None:
    bounds = replace(TINY, restarts=1)
    market = TransitionSystem(bounds)
    restarted: set[int] = set()

    def visit(state: int, _: bool) -> None:  # noqa: FBT001
        spent = [local.node for local in market.parts(state) if local.memory.restarts]
        assert len(spent) <= 1
        restarted.update(spent)

    found = search(market, visit=visit)
    assert found.broken is None
    assert restarted >= {1, 2}


def test_a_site_without_its_disk_never_votes_again() -> None:
    bounds = replace(TINY, lost_disks=1, shorter_logs=1)
    market = TransitionSystem(bounds)

    def visit(state: int, _: bool) -> None:  # noqa: FBT001
        for local in market.parts(state):
            if local.memory.forgot and isinstance(local.machine, PrimaryReceiver):
                assert local.machine.member.forgot

    found = search(market, visit=visit)
    assert found.broken is None
    assert found.exhausted
