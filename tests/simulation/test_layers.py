"""Worlds with secondary receivers (§4.1): who stands where, what a file may say of them, and that they live."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.worlds import facts_of, run, scenario

from isocast.checks.facts import (
    Completed,
    Fact,
    Faulted,
    Installed,
    ReceiptSent,
    Released,
    Returned,
    SecondaryTokenPassed,
    StabilityClaimed,
    Stalled,
    Suspected,
    TokenSent,
    Unanswered,
)
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.simulation.layers import Layers
from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.world import branch_of, delays, place_of
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import server_id, source_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.wire.packets import NO_LIMIT, Nack, SecondaryToken

TWO: dict[str, Any] = {"secondaries": 2, "secondary_delay": 0.001, "secondary_detect": 0.01}
"""Sites 4 and 5 below 1, 6 and 7 below 2, 8 and 9 below 3."""
THREE = TWO | {"layers": 3}
"""And 10 and 11 below 4, and so on."""

# Who stands where


def test_numbers_go_from_layer_to_layer_in_the_order_of_the_parents() -> None:
    tree = Layers(3, 2, 3)
    assert tree.secondary_sites == tuple(range(4, 22))
    assert [tree.children(site) for site in (1, 3, 4, 9, 10)] == [(4, 5), (8, 9), (10, 11), (20, 21), ()]
    assert [tree.parent(site) for site in (1, 4, 5, 9, 10, 21)] == [1, 1, 1, 3, 4, 9]
    assert [tree.depth(site) for site in (1, 3, 4, 9, 10, 21)] == [0, 0, 1, 1, 2, 2]
    assert [tree.root(site) for site in (2, 7, 16)] == [2, 2, 2]


def test_parents_and_children_agree() -> None:
    tree = Layers(4, 3, 3)
    for site, parent in tree.parents.items():
        assert site in tree.children(parent)


def test_a_backup_is_the_next_primary_receiver_or_the_parents_parent() -> None:
    tree = Layers(3, 2, 3)
    assert [tree.backup(site) for site in (4, 9, 10, 21)] == [2, 1, 1, 3]


def test_without_secondaries_there_is_one_layer() -> None:
    tree = Layers(5)
    assert (tree.secondary_sites, tree.parents, tree.children(5), tree.root(5)) == ((), {}, (), 5)


def test_a_secondary_receiver_is_reached_over_its_parents_place() -> None:
    world = scenario(**THREE, one_way_delay=0.05)
    delay = delays(world)
    ms = MILLISECOND
    assert (delay(1, 4), delay(4, 5), delay(1, 10), delay(10, 11), delay(10, 12)) == (
        ms,
        2 * ms,
        2 * ms,
        2 * ms,
        4 * ms,
    )
    assert (delay(1, 2), delay(4, 2), delay(10, 16)) == (50 * ms, 51 * ms, 54 * ms)
    assert (delay(source_id(1), 10), delay(4, server_id(1))) == (52 * ms, 51 * ms)


def test_it_stands_near_its_primary_receivers_city_and_on_its_branch() -> None:
    world = scenario_from_mapping({"ring": ["London", "Tokyo", "Sydney", "Mumbai"], "secondaries": 2})
    place = place_of(world, 7)
    assert place is not None
    assert place.name == "Tokyo"
    assert branch_of(world)(7) == branch_of(world)(2) != branch_of(world)(3)


# What a file may say


def test_the_layers_share_is_part_of_the_one_release_delay() -> None:
    """Protocol §1: with secondary receivers add δ_S+k_r·τ_{r,S}; one common Δ_A."""
    without, two, three = scenario().timing, scenario(**TWO).timing, scenario(**THREE).timing
    share = (10 + 2 * 24) * MILLISECOND
    assert two.release_delay_ns == without.release_delay_ns + share
    assert three.release_delay_ns == without.release_delay_ns + 2 * share
    assert two.token_period_ns == without.token_period_ns


def test_by_default_a_layer_takes_as_long_as_the_ring() -> None:
    timing = scenario(secondaries=1).timing
    assert (timing.secondary_detect_ns, timing.secondary_retry_ns) == (timing.detect_ns, timing.minimum_retry_ns)


def refused(**keys: Any) -> ConfigurationError:  # noqa: ANN401 (values of a scenario file)
    with pytest.raises(ConfigurationError) as caught:
        scenario_from_mapping(keys, "test.toml")
    return caught.value


@pytest.mark.parametrize(
    "keys, key, rule",
    [
        ({"layers": 2}, "layers", "means nothing without secondaries"),
        ({"stall_tokens": 2}, "stall_tokens", "means nothing without secondaries"),
        ({"secondaries": 2, "layers": 4}, "layers", "must be from 2 to 3, not 4"),
        (
            {"secondaries": 200, "layers": 3},
            "secondaries",
            "makes 402,010 receivers in all; there are numbers for 65,535",
        ),
        (
            {"secondaries": 2, "secondary_retry": 0.1, "process": 0.05, "secondary_detect": 0.1},
            "secondary_retry",
            "τ_{r,S} must be at least 2δ_S+X+P = 0.25 s, and more than 0, not 0.1 s",
        ),
        (
            {"secondaries": 2, "secondary_detect": 0.0, "process": 0.0},
            "secondary_retry",
            "τ_{r,S} must be at least 2δ_S+X+P = 0 s, and more than 0, not 0 s",
        ),
        (
            {"secondaries": 1, "exchange": "London", "traders": ["London", "Sydney"]},
            "secondaries",
            "a central exchange has no receivers below it: leave it out",
        ),
        (
            {"secondaries": 1, "protocol": "original"},
            "secondaries",
            "the original protocol is simulated without it: leave it out",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(keys: dict[str, Any], key: str, rule: str) -> None:
    error = refused(**keys)
    assert (error.key, error.rule) == (key, rule)


def test_a_release_delay_without_the_layers_share_is_too_short() -> None:
    error = refused(secondaries=1, release_delay=3.0)
    assert error.rule.startswith("Δ_A must be at least δ_N+2ε+k_r·τ_r+δ_S+k_r·τ_{r,S} = ")


RING = {"ring": ["London", "Tokyo", "Sydney"], "secondaries": 2}


@pytest.mark.parametrize("name, site", [("Tokyo/1", 6), ("LDN/2", 5), (9, 9), ("site8", 8), ("Sydney", 3)])
def test_a_fault_names_a_secondary_receiver_by_its_city_or_number(name: object, site: int) -> None:
    world = scenario_from_mapping(RING | {"faults": [{"kind": "crash", "at": 1, "sites": [name]}]})
    assert world.faults[0].sites == (site,)


@pytest.mark.parametrize(
    "name, rule",
    [
        ("Tokyo/3", 'unknown secondary "3" of Tokyo: it has secondaries 1 to 2'),
        ("Tokyo/x", 'unknown secondary "x" of Tokyo: it has secondaries 1 to 2'),
        (10, "unknown site 10: sites are 1 to 9"),
        ("site10", "unknown site 10: sites are 1 to 9"),
    ],
)
def test_a_secondary_receiver_that_is_not_there_is_refused(name: object, rule: str) -> None:
    assert refused(**RING, faults=[{"kind": "crash", "at": 1, "sites": [name]}]).rule == rule


def test_a_city_without_secondaries_has_none() -> None:
    faults = [{"kind": "crash", "at": 1, "sites": ["Tokyo/1"]}]
    rule = 'unknown secondary "1" of Tokyo: this scenario has no secondaries'
    assert refused(ring=RING["ring"], faults=faults).rule == rule


def test_a_secondary_receiver_cannot_lose_its_disk() -> None:
    error = refused(**RING, faults=[{"kind": "crash", "at": 1, "sites": ["Tokyo/1"], "disk": "lost"}])
    assert (error.key, "forgot what it released" in error.rule) == ("faults[1].disk", True)


# That they live


def below(facts: list[Fact], kind: type[Fact], primary: int = 3) -> list[Fact]:
    return [fact for fact in facts if isinstance(fact, kind) and fact.site > primary]  # type: ignore[union-attr]


@pytest.mark.parametrize("keys, sites", [(TWO, 9), (THREE, 21)])
def test_a_quiet_world_releases_everything_everywhere_at_one_instant(keys: dict[str, Any], sites: int) -> None:
    world, facts = facts_of(**keys)
    released = [fact for fact in facts if isinstance(fact, Released)]
    assert sum(len(fact.messages) for fact in released) == sites * 60
    assert {fact.at - fact.due for fact in released} == {0}
    assert world.skew_ns() == 0
    assert world.violations() == []


def test_secondary_receivers_send_nothing_that_counts() -> None:
    _, facts = facts_of(**TWO)
    assert below(facts, ReceiptSent) == below(facts, TokenSent) == below(facts, Suspected) == []
    assert below(facts, SecondaryTokenPassed) != []


def test_losses_cost_requests_to_parents_and_nothing_else() -> None:
    world = run(**TWO, loss=0.1, messages=200, retries_max=4)
    assert world.recorder.sent[Nack] > 0
    assert world.violations() == []
    assert set(world.recorder.last_sequence.values()) == {200}
    assert len(world.recorder.last_sequence) == 9


def test_memory_waits_for_all_layers_and_stays_bounded() -> None:
    world = run(**THREE, messages=600, arrival_rate=200).world
    for site in world.all_sites:
        machine = world.hosts[site].machine
        assert machine is not None
        held = machine.snapshot().receiver  # type: ignore[attr-defined]
        assert 3 < held.held - held.collected <= 16


def test_one_secondary_token_passes_for_each_group_and_token() -> None:
    """§4.1: "The secondary tokens are numbered to correspond with the primary tokens"."""
    world, facts = facts_of(**TWO)
    passed = [fact for fact in facts if isinstance(fact, SecondaryTokenPassed) and fact.group == 2]
    numbers = [fact.token_number for fact in passed]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [fact.site for fact in passed] == [(2, 6, 7)[number % 3] for number in numbers]
    assert world.recorder.sent[SecondaryToken] == 2 * len([f for f in facts if isinstance(f, SecondaryTokenPassed)])


def test_a_stalled_member_is_named_leaves_the_minimum_and_catches_up_from_the_journal() -> None:
    crash = {"kind": "crash", "at": 1.0, "until": 5.0, "sites": [4]}
    world, facts = facts_of(crash, **TWO, stall_tokens=4, messages=400, arrival_rate=50)
    assert [(fact.site, fact.member) for fact in facts if isinstance(fact, Stalled)] == [(1, 4)]
    assert [(fact.site, fact.member) for fact in facts if isinstance(fact, Returned)] == [(1, 4)]
    [stalled] = [fact.at for fact in facts if isinstance(fact, Stalled)]
    held = max(
        fact.token_number for fact in facts if isinstance(fact, Completed) and fact.site == 4 and fact.at < stalled
    )
    claims = [fact for fact in facts if isinstance(fact, StabilityClaimed) and fact.site == 1 and fact.at < 5 * SECOND]
    assert max(fact.secstable for fact in claims if fact.at < stalled) <= held
    assert max(fact.stable for fact in claims) > held
    assert world.violations() == []
    assert world.recorder.last_sequence[4] == 400


def test_a_group_that_is_gone_sets_no_limit() -> None:
    crash = {"kind": "crash", "at": 1.0, "until": 6.0, "sites": [4, 5]}
    world, facts = facts_of(crash, **TWO, stall_tokens=4, messages=400, arrival_rate=50)
    assert NO_LIMIT in [fact.secstable for fact in facts if isinstance(fact, StabilityClaimed) and fact.site == 1]
    assert world.violations() == []
    assert set(world.recorder.last_sequence.values()) == {400}


def test_a_secondary_receiver_whose_parent_died_uses_its_backup() -> None:
    """Its group has no head then, and nobody waits for it; what it lacks comes from the backup."""
    crash = {"kind": "crash", "at": 1.0, "until": 6.0, "sites": [1]}
    world, facts = facts_of(crash, **TWO, loss=0.05, messages=300, arrival_rate=50)
    silent = [(fact.site, fact.asked) for fact in facts if isinstance(fact, Unanswered) and fact.at > SECOND]
    assert {asked for site, asked in silent if site in (4, 5)} >= {1}
    meanwhile = [fact for fact in below(facts, Released) if 3 * SECOND < fact.at < 6 * SECOND]
    assert {fact.site for fact in meanwhile} >= {4, 5}  # type: ignore[union-attr]
    assert world.violations() == []


def test_every_secondary_receiver_follows_the_ring_through_a_reformation() -> None:
    crash = {"kind": "crash", "at": 1.0, "sites": [2]}
    world, facts = facts_of(crash, **THREE)
    last = max(fact.ring.ballot for fact in facts if isinstance(fact, Installed))
    entered = {fact.site for fact in facts if isinstance(fact, Installed) and fact.ring.ballot == last}
    assert entered == set(world.world.all_sites) - {2}
    assert world.violations() == []


def test_one_that_is_cut_off_from_all_but_its_parent_lives_from_it() -> None:
    """What is multicast never reaches site 4: every token and message comes from its parent."""
    cut = {"kind": "partition", "at": 0.0, "until": 3.0, "groups": [[4], [2, 3, 5, 6, 7, 8, 9, "source1", "source2"]]}
    world, facts = facts_of(cut, **TWO, gate="timed")
    assert len([fact for fact in below(facts, Completed) if fact.site == 4 and fact.at < 3 * SECOND]) > 5  # type: ignore[union-attr]
    assert world.recorder.last_sequence[4] == 60
    assert [fact for fact in below(facts, Faulted) if fact.at < 3 * SECOND and fact.site == 4] == []  # type: ignore[union-attr]


def test_a_restarted_head_begins_anew_and_stays_honest() -> None:
    _, quiet = facts_of(**TWO, messages=200)
    at = [fact.instant for fact in quiet if isinstance(fact, TokenSent) and fact.site == 1][4] - 5 * MILLISECOND
    world, facts = facts_of({"kind": "restart", "at": at / SECOND, "sites": [1]}, **TWO, messages=200)
    said = [fact for fact in facts if isinstance(fact, StabilityClaimed) and fact.site == 1]
    before = [fact.secstable for fact in said if fact.at < at]
    after = [fact.secstable for fact in said if fact.at > at]
    assert (before[-1] > 0, after[0]) == (True, 0)
    assert max(after) > before[-1]
    assert world.violations() == []


def test_the_report_counts_what_happened_below() -> None:
    crash = {"kind": "crash", "at": 1.0, "until": 5.0, "sites": [4]}
    world = run(crash, **TWO, stall_tokens=4, messages=400, arrival_rate=50)
    assert world.recorder.stalled == 1
    machine = world.world.hosts[1].machine
    assert isinstance(machine, PrimaryReceiver)
    [group] = machine.snapshot().groups
    assert group.stalled == ()
