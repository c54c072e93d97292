"""Random worlds whose receivers are a trading floor, under the faults of all others, judged by every checker."""

from __future__ import annotations

from typing import Any

import pytest

from isocast.simulation.swarm import run_seed, world_of

QUICK = 10
"""Seeds that every run of the tests judges."""
LONG = 100
SOAK = 1_000
STRIDE = 10


def failures(seeds: range) -> dict[int, list[str]]:
    results = [run_seed(seed, floor=True) for seed in seeds]
    return {result.seed: result.violations for result in results if result.violations}


@pytest.mark.parametrize("first", range(1, QUICK + 1, STRIDE))
def test_no_floor_breaks_a_promise(first: int) -> None:
    assert failures(range(first, first + STRIDE)) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(QUICK + 1, LONG + 1, STRIDE))
def test_no_floor_of_many_breaks_a_promise(first: int) -> None:
    assert failures(range(first, first + STRIDE)) == {}


@pytest.mark.soak
@pytest.mark.parametrize("first", range(LONG + 1, SOAK + 1, STRIDE))
def test_no_floor_of_thousands_breaks_a_promise(first: int) -> None:
    assert failures(range(first, first + STRIDE)) == {}


def test_floors_meet_crashes_partitions_changes_of_u_and_forced_rings() -> None:
    worlds = [world_of(seed, floor=True) for seed in range(1, SOAK // 4 + 1)]
    assert all(world["floor"] is True for world in worlds)
    faults: list[dict[str, Any]] = [fault for world in worlds for fault in world["faults"]]  # type: ignore[attr-defined]
    kinds = {fault["kind"] for fault in faults}
    assert kinds >= {"crash", "partition", "isolate", "pause", "drain", "add", "remove", "force", "clock-step"}
    assert any("inside" in fault for fault in faults)
    assert any(fault.get("disk") == "lost" for fault in faults)
