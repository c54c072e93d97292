"""A failing world made small."""

from __future__ import annotations

from typing import Any

from isocast.simulation.chaos import chaos
from isocast.simulation.mutants import MUTANTS
from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.swarm import LINES_MAX, run_seed, shrink
from isocast.simulation.timed import TimedRun
from isocast.simulation.world import PRODUCT

MUTANT, SEED = "founders-only", 2
"""Seven of eight faults, and all but ten messages, are not needed; each try is a fifth of a second."""


def weight(world: dict[str, Any]) -> tuple[int, int]:
    return len(world["faults"]), world["messages"]


def test_the_smaller_world_breaks_the_same_property_and_is_told_on_one_screen() -> None:
    build = MUTANTS[MUTANT].build
    broken = run_seed(SEED, MUTANT).violations[0].partition(":")[0]
    small = shrink(SEED, chaos(SEED), build)
    assert weight(small.scenario) < weight(chaos(SEED))
    again = TimedRun(scenario_from_mapping(small.scenario, "small"), SEED, build)
    again.run()
    assert again.violations() == small.violations
    assert broken in {violation.partition(":")[0] for violation in small.violations}
    assert 3 < len(small.transcript) <= LINES_MAX + 3
    assert "violated" in small.transcript[-1]
    assert "violated" not in small.transcript[0]


def test_a_world_that_does_not_fail_stays_as_it_is() -> None:
    world = chaos(SEED) | {"faults": []}
    small = shrink(SEED, world, PRODUCT)
    assert (small.scenario, small.violations) == (world, [])
