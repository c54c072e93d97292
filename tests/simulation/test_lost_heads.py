"""Worlds that lose the heads of their secondary groups (§4.3): others take them over, and the ring is left in peace."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.worlds import facts_of, run

from isocast.checks.facts import (
    Collected,
    Fact,
    Faulted,
    GroupHeaded,
    HandedBack,
    HeadChanged,
    Installed,
    Promised,
    Released,
    Returned,
    StabilityClaimed,
    Stalled,
    Suspected,
)
from isocast.simulation.mutants import MUTANTS
from isocast.terms.instants import SECOND

TWO: dict[str, Any] = {
    "receivers": 4,
    "secondaries": 2,
    "secondary_delay": 0.001,
    "secondary_detect": 0.01,
    "stall_tokens": 12,
    "messages": 400,
    "arrival_rate": 50,
}
"""Sites 5 and 6 below 1, 7 and 8 below 2, and so on; their backup is the next site."""
THREE = TWO | {"layers": 3}
"""And 13 and 14 below 5, 15 and 16 below 6, and so on; their backup is the site above their head."""


def crash(*sites: int, at: float = 1.0, until: float = 5.0) -> dict[str, Any]:
    return {"kind": "crash", "at": at, "until": until, "sites": list(sites)}


def moves(facts: list[Fact], *sites: int) -> list[tuple[int, int, bool]]:
    """(site, head, silent) of each change, in order."""
    return [(f.site, f.head, f.silent) for f in facts if isinstance(f, HeadChanged) and f.site in sites]


def heads_of(facts: list[Fact], group: int) -> list[int]:
    """Who headed a group, epoch after epoch; each once in a row."""
    found: list[int] = []
    for fact in facts:
        if isinstance(fact, GroupHeaded) and fact.group == group and found[-1:] != [fact.site]:
            found.append(fact.site)
    return found


# Heads on the ring


def test_the_group_of_a_lost_head_follows_its_backup_and_returns_with_it() -> None:
    world, facts = facts_of(crash(1), **TWO)
    assert heads_of(facts, 1) == [1, 2, 1]
    assert moves(facts, 5, 6) == [(5, 2, False), (6, 2, False), (5, 1, False), (6, 1, False)]
    assert [f for f in facts if isinstance(f, Stalled) and f.member in (5, 6)] == [], "nobody lost sight of them"
    assert world.violations() == []
    assert set(world.recorder.last_sequence.values()) == {400}


def test_memory_waits_for_a_group_under_its_new_head() -> None:
    """Site 5 dies while site 2 heads its group: what it lacks stays in memory until it is given up, and is named."""
    world, facts = facts_of(crash(1, until=7.0), crash(5, at=2.5, until=6.0), **TWO)
    [given_up] = [f for f in facts if isinstance(f, Stalled) and f.member == 5]
    assert given_up.site == 2
    held = [
        f.secstable
        for f in facts
        if isinstance(f, StabilityClaimed) and f.site == 2 and 2.6 * SECOND < f.at < given_up.at
    ]
    assert max(held) <= given_up.token_number
    assert [f.site for f in facts if isinstance(f, Returned) and f.member == 5] == [2]
    assert world.violations() == []


def test_head_and_backup_lost_together_leave_the_group_to_a_third() -> None:
    world, facts = facts_of(crash(1, 2), **TWO | {"receivers": 5})
    third = heads_of(facts, 1)[1]
    assert third in (3, 4, 5)
    assert heads_of(facts, 1)[-1] == heads_of(facts, 2)[-1] - 1 == 1
    assert heads_of(facts, 2)[1] == 3, "its backup is on the ring"
    assert third != 3, "one site does not adopt everything"
    assert world.violations() == []


def test_every_group_has_one_head_in_each_epoch() -> None:
    _, facts = facts_of(crash(1), crash(2, at=3.0, until=6.0), **TWO)
    headed: dict[object, set[int]] = {}
    for fact in facts:
        if isinstance(fact, GroupHeaded):
            headed.setdefault((fact.epoch, fact.group), set()).add(fact.site)
    assert {len(sites) for sites in headed.values()} == {1}


def test_a_message_is_released_once_below_through_changes_of_heads() -> None:
    """Every sequence once, and in order, at every secondary receiver; the changes cost them nothing of it."""
    world, facts = facts_of(crash(1), crash(2, at=6.0, until=8.0), **TWO, loss=0.02)
    for site in range(5, 13):
        released = [f for f in facts if isinstance(f, Released) and f.site == site]
        sequences = [f.first_sequence + place for f in released for place in range(len(f.messages))]
        assert sequences == list(range(1, 401)), site
    assert world.violations() == []


# Heads below the ring


def test_the_group_of_a_lost_secondary_head_is_counted_by_the_head_above() -> None:
    world, facts = facts_of(crash(5, until=6.0), **THREE)
    assert moves(facts, 13, 14) == [(13, 1, True), (14, 1, True), (13, 5, False), (14, 5, False)]
    adopted = [f for f in facts if isinstance(f, Returned) and f.member in (13, 14) and f.site == 1]
    back = [f for f in facts if isinstance(f, HandedBack)]
    assert {f.member for f in adopted} == {f.member for f in back} == {13, 14}
    [given_up] = [f for f in facts if isinstance(f, Stalled) and f.member == 5]
    assert max(f.at for f in adopted) < given_up.at, "somebody counts them all the time"
    assert [f for f in facts if isinstance(f, Promised) and f.at > SECOND] == [], "and no ring is formed for it"
    assert world.violations() == []


def test_memory_waits_for_orphans() -> None:
    """Their head is dead and given up; one of them dies too: it holds memory up until it is given up itself."""
    world, facts = facts_of(crash(5, until=9.0), crash(13, at=4.5, until=8.0), **THREE)
    [given_up] = [f for f in facts if isinstance(f, Stalled) and f.member == 13 and f.site == 1]
    meanwhile = [f for f in facts if isinstance(f, Collected) and 4.6 * SECOND < f.at < given_up.at]
    assert meanwhile
    assert max(f.token_number for f in meanwhile) <= given_up.token_number
    assert world.violations() == []


def test_orphans_move_on_when_the_head_above_is_lost_too() -> None:
    world, facts = facts_of(crash(5, until=9.0), crash(1, at=4.0, until=7.0), **THREE)
    assert [head for _, head, _ in moves(facts, 13)] == [1, 2, 1, 5]
    assert world.violations() == []


def test_one_whose_head_is_up_and_silent_to_it_is_counted_by_another() -> None:
    """A cut between two layers: site 1 stays on the ring, and is told nothing by its group."""
    cut = {"kind": "partition", "at": 1.0, "until": 7.0, "groups": [[1], [5, 6]]}
    world, facts = facts_of(cut, **TWO)
    assert moves(facts, 5) == [(5, 2, True), (5, 1, False)]
    assert {f.member for f in facts if isinstance(f, Returned) and f.site == 2} == {5, 6}
    assert {f.site for f in facts if isinstance(f, Stalled)} == {1}
    assert {f.member for f in facts if isinstance(f, HandedBack)} == {5, 6}
    assert [f for f in facts if isinstance(f, Promised) and f.at > SECOND] == []
    assert world.violations() == []


# The ring is left in peace


@pytest.mark.parametrize(
    "sites",
    [
        pytest.param((5, 6), marks=pytest.mark.long),
        pytest.param((13,), marks=pytest.mark.long),
        tuple(range(5, 13)),
    ],
)
def test_killing_secondary_receivers_costs_the_ring_nothing(sites: tuple[int, ...]) -> None:
    """No ballot, no suspicion, no fairness fault; and every primary receiver releases as if nothing had happened."""
    keys = THREE | {"messages": 150}
    _, quiet = facts_of(**keys)
    world, facts = facts_of(crash(*sites, until=2.5), **keys)
    assert [f for f in facts if isinstance(f, Promised | Installed | Suspected) and f.at > SECOND and f.site <= 4] == []
    assert [f for f in facts if isinstance(f, Faulted) and f.site <= 4] == []
    assert released_on(facts) == released_on(quiet)
    assert world.violations() == []


def released_on(facts: list[Fact]) -> list[tuple[int, int, int]]:
    """(instant, site, sequence) of all releases on the ring."""
    return sorted([(f.at, f.site, f.first_sequence) for f in facts if isinstance(f, Released) and f.site <= 4])


def test_a_group_goes_on_at_full_speed_without_its_dead() -> None:
    """What is stable lags a round of those who are left, not of the group that was."""
    keys = TWO | {"receivers": 3, "secondaries": 4, "messages": 250}
    _, quiet = facts_of(**keys)
    _, facts = facts_of({"kind": "crash", "at": 1.0, "sites": [5, 6, 7]}, **keys)
    [*_, last] = [f.at for f in facts if isinstance(f, Stalled)]
    assert lag(facts, last) < lag(quiet, last)


def lag(facts: list[Fact], since: int) -> float:
    """How many tokens what site 1 says of its group is behind its token, on average."""
    claims = [f for f in facts if isinstance(f, StabilityClaimed) and f.site == 1 and f.at > since and f.stable]
    return sum([f.token_number - f.secstable for f in claims]) / len(claims)


# Rules that are switched off


def cut(one: list[int], other: list[int], at: float, until: float) -> dict[str, Any]:
    return {"kind": "partition", "at": at, "until": until, "groups": [one, other]}


STORIES: dict[str, tuple[dict[str, Any], ...]] = {
    # Site 2 has a group of its own, and heads that of site 1 when site 5 dies.
    "own-group-only": (crash(1, until=7.0), crash(5, at=2.5, until=6.0)),
    "heads-for-life": (crash(1, until=7.0), crash(5, at=2.5, until=6.0)),
    # Site 1 gives 5 up, is off the ring while site 2 counts 5, and comes back without having been down; 5 dies then.
    "given-up-for-good": (
        cut([1], [5], 1.0, 4.0),
        {"kind": "isolate", "at": 3.5, "until": 7.0, "sites": [1]},
        crash(5, at=6.8, until=12.0),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_finds_the_rule_that_is_missing(name: str) -> None:
    assert run(*STORIES[name], **TWO).violations() == []
    broken = run(*STORIES[name], build=MUTANTS[name].build, **TWO).violations()
    assert broken, MUTANTS[name].rule
    assert broken[0][:2] == "S8", "what a token says is the first to be wrong"


def test_a_story_finds_that_orphans_are_forgotten() -> None:
    """Site 13 belongs to site 1 since its head died; it dies, and site 1 says that everybody below it holds more."""
    story = (crash(5, until=9.0), crash(13, at=4.5, until=8.0))
    assert run(*story, build=MUTANTS["orphans-forgotten"].build, **THREE).violations()[0][:2] == "S8"
