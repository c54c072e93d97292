"""Random worlds: lawful scenarios, of every kind, whose faults end."""

from __future__ import annotations

from typing import Any

import pytest

from isocast.simulation.chaos import chaos
from isocast.simulation.fault_keys import FAULT_KINDS
from isocast.simulation.scenario import scenario_from_mapping

WORLDS: list[dict[str, Any]] = [chaos(seed) for seed in range(1, 301)]


def test_a_world_is_a_function_of_its_seed() -> None:
    assert chaos(7) == chaos(7) != chaos(8)


def test_every_world_is_a_scenario_that_the_loader_takes() -> None:
    for world in WORLDS:
        scenario_from_mapping(world, "chaos")


def test_every_kind_of_fault_occurs_but_restart_which_is_a_crash_of_no_length() -> None:
    kinds = {fault["kind"] for world in WORLDS for fault in world["faults"]}
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
    assert hit == {"crash", "pause", "isolate", "one-way", "partition", "clock-step"}


def test_a_calm_world_stays_calm_with_secondary_receivers() -> None:
    assert [world for world in LAYERED if not world["faults"]]


def test_some_worlds_are_calm() -> None:
    calm = [world for world in WORLDS if not world["faults"]]
    assert 0.05 < len(calm) / len(WORLDS) < 0.3


def test_every_fault_ends_so_that_all_must_come_right() -> None:
    for world in WORLDS:
        assert all("until" in fault for fault in world["faults"])


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
