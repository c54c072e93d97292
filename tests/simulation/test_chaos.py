"""Random worlds: lawful scenarios, of every kind, whose faults end, or stay within what the rest must bear."""

from __future__ import annotations

from typing import Any

import pytest

from isocast.simulation.chaos import chaos, liars
from isocast.simulation.fault_plan import ATTACKS, BYZANTINE, ROSTER_FAULTS
from isocast.simulation.layers import Layers
from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.scenario_keys import FAULT_KINDS

CHANGES = ("drain", "add", "remove", "force")
EVERYTHING: list[dict[str, Any]] = [chaos(seed) for seed in range(1, 301)]


def at_the_edge(fault: dict[str, Any]) -> bool:
    """Whether a fault hits an archive or a customer."""
    named = [*fault.get("sites", ()), *[node for group in fault.get("groups", ()) for node in group]]
    return any(str(node).startswith(("archive", "customer")) for node in named)


WORLDS = [world | {"faults": [fault for fault in world["faults"] if not at_the_edge(fault)]} for world in EVERYTHING]
"""Without the faults of the edge, which concern nobody else: those may stay for ever."""


def test_a_world_is_a_function_of_its_seed() -> None:
    assert chaos(7) == chaos(7) != chaos(8)


def test_every_world_is_a_scenario_that_the_loader_takes() -> None:
    for world in EVERYTHING:
        scenario_from_mapping(world, "chaos")


def test_every_kind_of_fault_occurs_but_restart_which_is_a_crash_of_no_length() -> None:
    lying: list[dict[str, Any]] = [liars(seed) for seed in range(1, 51)]
    kinds = {fault["kind"] for world in (*WORLDS, *lying) for fault in world["faults"]}
    assert kinds == set(FAULT_KINDS) - {"restart"}


@pytest.mark.parametrize(
    "key, values",
    [
        ("gate", {"majority", "total", "next", "timed"}),
        ("order_in_token", {"arrival", "shuffle"}),
        ("loss_model", {"independent", "tree"}),
        ("servers", {1, 2, 3}),
        ("receivers", {3, 4, 5, 6, 7}),
    ],
)
def test_every_variety_occurs(key: str, values: set[object]) -> None:
    assert {world[key] for world in WORLDS} >= values


def test_the_edges_of_what_is_allowed_occur() -> None:
    worlds: list[dict[str, Any]] = [chaos(seed) for seed in range(1, 601)]
    sizes = {world["receivers"] for world in worlds}
    assert min(sizes) == 2
    assert max(sizes) >= 18
    windows = {world["window"] for world in worlds}
    assert {1, 64, 4096} <= windows
    assert [world for world in worlds if world["sources"] >= 40], "tokens in parts"
    assert [world for world in worlds if world["burst"] >= 700], "floods"
    full = [world for world in worlds if world.get("batch_max", 1 << 16) <= world["messages_per_token"]]
    assert len(full) > 100, "tokens with no room for everything"
    assert sum([world["receivers"] > 7 for world in worlds]) < 0.1 * len(worlds), "large rings are slow"


def test_crashes_inside_steps_hit_sites_sources_and_servers() -> None:
    torn = [fault for world in WORLDS for fault in world["faults"] if "inside" in fault]
    assert {str(fault["sites"][0]).strip("0123456789") for fault in torn} == {"", "source", "server"}
    assert {fault["inside"] for fault in torn} == {1, 2, 3, 4}
    assert len([world for world in WORLDS if any("inside" in fault for fault in world["faults"])]) > 60


def test_packets_are_late_by_several_periods_and_outboxes_get_lost() -> None:
    late = [fault for world in WORLDS for fault in world["faults"] if fault["kind"] == "late"]
    assert max(fault["by"] for fault in late) > 1
    lost = [fault for world in WORLDS for fault in world["faults"] if fault.get("disk") == "lost"]
    assert [fault for fault in lost if str(fault["sites"][0]).startswith("source")]


def test_owners_lie_where_it_would_gain_them_something() -> None:
    lying = [world for world in WORLDS if any(fault["kind"] == "lie" for fault in world["faults"])]
    assert {world["order_in_token"] for world in lying} == {"shuffle"}
    assert [world for world in lying if all(fault["kind"] == "lie" for fault in world["faults"])], "alone"


LAYERED = [world for world in WORLDS if "secondaries" in world]


def test_a_quarter_of_the_worlds_has_secondary_receivers() -> None:
    assert 0.15 < len(LAYERED) / len(WORLDS) < 0.35
    assert {world["layers"] for world in LAYERED} == {2, 3}
    assert {world["secondaries"] for world in LAYERED} == {1, 2, 3}


def test_faults_hit_secondary_receivers_too() -> None:
    hit = {
        fault["kind"]
        for world in LAYERED
        for fault in world["faults"]
        for site in [*fault.get("sites", ()), *[site for group in fault.get("groups", ()) for site in group]]
        if isinstance(site, int) and site > world["receivers"]
    }
    # Sites that are added later have higher numbers too.
    assert hit - {"add"} == {"crash", "pause", "isolate", "one-way", "partition", "clock-step"}


def test_faults_hit_the_edge_too() -> None:
    hit = {fault["kind"] for world in EVERYTHING for fault in world["faults"] if at_the_edge(fault)}
    assert hit == {"crash", "pause", "isolate", "one-way", "partition", "clock-step"}


def test_a_calm_world_stays_calm_with_secondary_receivers() -> None:
    assert [world for world in LAYERED if not world["faults"]]


def test_some_worlds_are_calm() -> None:
    calm = [world for world in WORLDS if not world["faults"]]
    assert 0.05 < len(calm) / len(WORLDS) < 0.3


def lasting(world: dict[str, Any]) -> list[dict[str, Any]]:
    """Faults that stay for ever, where no operator takes anybody out."""
    if {fault["kind"] for fault in world["faults"]} & set(CHANGES):
        return []
    kinds = ("crash", "clock-step", "clock-drift")
    ends = ("until", "duration")
    return [fault for fault in world["faults"] if fault["kind"] in kinds and not any(end in fault for end in ends)]


def test_every_fault_ends_so_that_all_must_come_right() -> None:
    """Whoever is down for good is taken out of U, by an operator or by force; whoever drains for good restarts."""
    for world in [world for world in WORLDS if not lasting(world)]:
        faults = world["faults"]
        removed = {site for fault in faults if fault["kind"] == "remove" for site in fault["sites"]}
        forced = [set(fault["sites"]) for fault in faults if fault["kind"] == "force"]
        crashed = {site for fault in faults if fault["kind"] == "crash" for site in fault["sites"]}
        for fault in faults:
            hit = set(fault.get("sites", ()))
            ends = "until" in fault or "inside" in fault or fault["kind"] in ("add", "remove", "force")
            gone = fault["kind"] == "crash" and (hit <= removed or any(not hit & left for left in forced))
            heard_less = "narrow" in str(fault.get("groups"))  # A customer hears others, or is not judged.
            assert ends or gone or heard_less or (fault["kind"] == "drain" and hit <= crashed)


CHANGED = [world for world in WORLDS if {fault["kind"] for fault in world["faults"]} & set(CHANGES)]
AVAILABLE = [world for world in WORLDS if world.get("policy") == "availability"]


def test_a_quarter_of_the_worlds_has_an_operator_and_some_go_on_without_a_majority() -> None:
    assert 0.2 < len(CHANGED) / len(WORLDS) < 0.4
    assert 0.02 < len(AVAILABLE) / len(WORLDS) < 0.1
    assert [world for world in AVAILABLE if world in CHANGED]


def test_planned_changes_meet_all_other_faults() -> None:
    kinds = {fault["kind"] for world in CHANGED for fault in world["faults"]}
    assert kinds == set(FAULT_KINDS) - {"restart", *BYZANTINE, *ATTACKS, *ROSTER_FAULTS}


def test_where_a_member_lies_nothing_else_goes_wrong_but_a_crash() -> None:
    """With a partition as well a liar could show each side another sequence."""
    lying = [world for world in WORLDS if {fault["kind"] for fault in world["faults"]} & set(BYZANTINE)]
    assert {fault["kind"] for world in lying for fault in world["faults"]} == {*BYZANTINE, "crash"}
    assert {world["signatures"] for world in lying} == {"on", "receipts"}
    assert {world["gate"] for world in lying} == {"majority"}


def test_a_site_that_is_added_has_a_number_that_nobody_had() -> None:
    for world in CHANGED:
        tree = Layers(world["receivers"], world.get("secondaries", 0), world.get("layers", 1))
        added = [site for fault in world["faults"] if fault["kind"] == "add" for site in fault["sites"]]
        assert len(set(added)) == len(added)
        assert all(site > tree.receivers + len(tree.secondary_sites) for site in added)


def test_at_least_a_majority_is_left_of_whom_nobody_takes_out() -> None:
    for world in CHANGED:
        out = {site for fault in world["faults"] if fault["kind"] == "remove" for site in fault["sites"]}
        disks = [fault["sites"] for fault in world["faults"] if fault.get("disk") == "lost"]
        lost = {site for sites in disks for site in sites if isinstance(site, int)}
        assert len(out | lost) <= (world["receivers"] - 1) // 2


def test_never_so_many_disks_are_lost_that_no_majority_remembers() -> None:
    for world in WORLDS:
        lost = {
            site
            for fault in world["faults"]
            if fault.get("disk") == "lost"
            for site in fault["sites"]
            if isinstance(site, int)
        }
        assert len(lost) <= (world["receivers"] - 1) // 2


# L7: what stays for ever

STUCK = [world for world in WORLDS if lasting(world)]


def test_in_a_sixth_of_the_worlds_wrong_clocks_and_dead_nodes_stay_for_ever() -> None:
    assert 0.1 < len(STUCK) / len(WORLDS) < 0.3
    assert {fault["kind"] for world in STUCK for fault in lasting(world)} == {"crash", "clock-step", "clock-drift"}


def test_a_majority_of_sound_receivers_and_a_server_are_left() -> None:
    """L7: their clocks right, and their disks; of the server only that it is up."""
    for world in STUCK:
        gone = {fault["sites"][0] for fault in [*lasting(world), *world["faults"]] if fault.get("disk") == "lost"}
        gone |= {fault["sites"][0] for fault in lasting(world)}
        sound = [site for site in range(1, world["receivers"] + 1) if site not in gone]
        assert len(sound) > world["receivers"] / 2
        dead = {site for fault in lasting(world) if fault["kind"] == "crash" for site in fault["sites"]}
        assert [number for number in range(1, world["servers"] + 1) if f"server{number}" not in dead]


def test_servers_clocks_are_wrong_both_ways_from_milliseconds_to_an_hour() -> None:
    steps = {
        fault["step"]
        for world in WORLDS
        for fault in world["faults"]
        if fault["kind"] == "clock-step" and str(fault["sites"][0]).startswith("server")
    }
    assert {sign * size for sign in (-1, 1) for size in (0.03, 0.2, 3.0, 3_600.0)} <= steps


def test_sometimes_every_server_that_is_left_has_a_wrong_clock() -> None:
    def right(world: dict[str, Any]) -> bool:
        gone = {site for fault in lasting(world) for site in fault["sites"]}
        return any(f"server{number}" not in gone for number in range(1, world["servers"] + 1))

    assert {right(world) for world in STUCK} == {True, False}


def crashed_together(world: dict[str, Any]) -> list[set[int]]:
    return [set(fault["sites"]) for fault in world["faults"] if fault["kind"] == "crash"]


def test_heads_are_lost_alone_with_their_backups_and_below_the_ring() -> None:
    heads = backups = below = cut_off = 0
    for world in LAYERED:
        tree = Layers(world["receivers"], world["secondaries"], world["layers"])
        for parent, child in {(tree.parent(site), site) for site in tree.secondary_sites}:
            together = crashed_together(world)
            heads += {parent} in together
            backups += {parent, tree.backup(child)} in together
            below += {parent} in together and tree.depth(parent) > 0
            cut_off += any(fault.get("groups", [[]])[0] == [parent] for fault in world["faults"])
    assert min(heads, backups, below, cut_off) > 0
