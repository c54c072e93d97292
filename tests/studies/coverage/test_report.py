"""Judging a plan from the outside, small and at the size of a planet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.reformation.scopes.independent import places

from isocast.reformation.scopes.adjustment import adjust, plan_scopes
from isocast.reformation.scopes.world import CoverageWorld, Surface
from isocast.studies.coverage.report import change_counts, report
from isocast.studies.coverage.world_file import world_from_mapping
from isocast.terms.instants import SECOND

SMALL = CoverageWorld(
    Surface.PLANE,
    places("r", [(0.0, 0.0), (10.0, 0.0), (5.0, 5.0)]),
    places("c", [(1.0, 0.0), (9.0, 0.0)]),
    area_km2=150.0,
)


def planet(receivers: int, customers: int) -> CoverageWorld:
    return world_from_mapping(
        {
            "seed": 11,
            "scopes": {"delay_max": "200ms"},
            "receivers": {"count": receivers},
            "customers": {"count": customers},
        }
    ).world


def check_planet(world: CoverageWorld) -> None:
    """A plan, then one in a hundred fails: everybody hears two, nobody clashes, few change."""
    plan = plan_scopes(world)
    judged = report(world, plan)
    assert (judged.coverage.short, judged.clashes) == ((), 0)
    assert judged.clique <= plan.addresses <= judged.clique + 2
    assert plan.addresses <= 12
    ratios = {part.figure: part.ratio for part in judged.comparisons()}
    assert ratios["the same, without the widest 1 %"] < 1, "points need less than all the ground"
    gone = world.receivers.names[::100]
    there = world.without(gone)
    after = adjust(plan, there, SECOND)
    judged = report(there, after)
    assert (judged.coverage.short, judged.clashes) == ((), 0)
    counts = change_counts(plan, after)
    disturbed = counts["widened"] + counts["narrowed"] + counts["moved"] + counts["new"]
    assert disturbed < 3 * len(gone)


def test_two_thousand_receivers_on_land() -> None:
    check_planet(planet(2_000, 20_000))


@pytest.mark.long
def test_ten_thousand_receivers_on_land() -> None:
    check_planet(planet(10_000, 100_000))


def test_a_clash_and_a_customer_left_out_are_seen() -> None:
    plan = plan_scopes(SMALL)
    assert report(SMALL, plan).clashes == 0
    same = replace(plan, scopes=tuple([replace(scope, address=0, radius_km=9.5) for scope in plan.scopes]))
    assert report(SMALL, same).clashes == 3
    silent = replace(plan, scopes=tuple([replace(scope, address=None, radius_km=0.0) for scope in plan.scopes]))
    assert [short.lines for short in report(SMALL, silent).coverage.short] == [0, 0]
    assert report(SMALL, silent).comparisons() == ()


def test_the_ground_is_the_sum_of_the_scopes() -> None:
    judged = report(SMALL, plan_scopes(SMALL))
    assert judged.ground_km2 == pytest.approx(np.pi * sum([radius**2 for radius in judged.radii_km]))
    value = judged.as_json()
    assert value["clashes"] == 0
    assert value["customers"] == 2
    by_name = {part.figure: part for part in judged.comparisons()}
    assert by_name["ground of all scopes / ground"].achieved == pytest.approx(judged.ground_km2 / 150)
    assert by_name["addresses"].bound == 7


def test_where_the_ground_is_not_known_there_is_nothing_to_compare_with() -> None:
    judged = report(replace(SMALL, area_km2=0.0), plan_scopes(SMALL))
    assert judged.comparisons() == ()
    assert judged.as_json()["bounds"] is None
