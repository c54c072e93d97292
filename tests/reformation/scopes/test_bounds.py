"""The hexagonal figures: the paper's, the corrected ones, and a plan that meets them exactly."""

from __future__ import annotations

import numpy as np
import pytest
from tests.reformation.scopes.independent import clashes

from isocast.reformation.scopes.adjustment import plan_scopes
from isocast.reformation.scopes.coverage import cover
from isocast.reformation.scopes.plan import KM_PER_MILE, HexagonalBounds
from isocast.reformation.scopes.world import CoverageWorld, Places, ScopeRules, Surface

PAPER = HexagonalBounds(10_000, 57e6 * KM_PER_MILE**2, 2)
"""§4.1: "The land surface of the earth is about 57 x 10^6 square miles. If we place 10,000 receivers uniformly"."""


def grid(spacing: float, across: int, rows: int, shift: float = 0.0) -> list[tuple[float, float]]:
    rise = spacing * np.sqrt(3) / 2
    return [(shift + spacing * (x + row % 2 / 2), shift + rise * row) for row in range(rows) for x in range(across)]


def named(prefix: str, where: list[tuple[float, float]]) -> Places:
    return Places(tuple([f"{prefix}{number}" for number in range(len(where))]), np.array(where))


def test_ten_thousand_receivers_are_nowhere_farther_than_50_miles_and_two_of_them_81() -> None:
    assert PAPER.radius_km(1) / KM_PER_MILE == pytest.approx(46.8, abs=0.05)
    assert PAPER.square_radius_km / KM_PER_MILE == pytest.approx(53.4, abs=0.05)
    assert PAPER.radius_km(2) / KM_PER_MILE == pytest.approx(81.1, abs=0.05)
    assert PAPER.grouped_radius_km / KM_PER_MILE == pytest.approx(66.2, abs=0.05)


def test_more_receivers_make_smaller_regions() -> None:
    radii = [HexagonalBounds(count, PAPER.area_km2, 2).radius_km(2) for count in (100, 1_000, 10_000, 100_000)]
    assert radii == sorted(radii, reverse=True)
    assert radii[0] / radii[2] == pytest.approx(10)


def test_densities_are_those_of_the_lattices() -> None:
    assert PAPER.density == pytest.approx(3.6276, abs=1e-4)
    assert PAPER.grouped_density == pytest.approx(2.4184, abs=1e-4)
    assert PAPER.density == pytest.approx(np.pi * PAPER.radius_km(2) ** 2 * 10_000 / PAPER.area_km2)


@pytest.mark.parametrize("lines", range(1, 9))
def test_the_farthest_kth_receiver_of_a_grid_is_where_the_table_says(lines: int) -> None:
    """Measured over a fine net of places between the receivers of a large grid."""
    receivers = np.array(grid(1.0, 15, 15))
    middle = receivers[7 * 15 + 7]
    steps = np.linspace(0, 1, 49)
    corner = np.array([0.5, 0.5 / np.sqrt(3)])
    places = [middle + a * np.array([0.5, 0.0]) + a * b * (corner - np.array([0.5, 0.0])) for a in steps for b in steps]
    away = np.sort(np.linalg.norm(np.array(places)[:, None] - receivers[None], axis=2), axis=1)[:, lines - 1]
    bound = HexagonalBounds(1, np.sqrt(3) / 2, lines).radius_km(lines)
    assert away.max() <= bound + 1e-9
    assert away.max() == pytest.approx(bound, abs=0.01)


def test_seven_addresses_for_two_sources_and_three_for_one() -> None:
    assert [HexagonalBounds(1, 1.0, lines).addresses for lines in (1, 2, 3, 4, 5)] == [3, 7, 7, 7, 9]


@pytest.mark.parametrize("lines, radius, addresses", [(1, 100 / np.sqrt(3), 3), (2, 100.0, 7)])
def test_a_plan_for_the_grid_has_the_radius_and_the_addresses_of_the_grid(
    lines: int, radius: float, addresses: int
) -> None:
    """Customers at the receivers, in the corners of their regions and between them, away from the edge."""
    receivers = grid(100.0, 12, 12)
    fine = [place for place in grid(100.0 / 6, 72, 72) if 250 < place[0] < 850 and 250 < place[1] < 750]
    corners = [(x + 50.0, y + 50 / np.sqrt(3)) for x, y in receivers if 250 < x < 850 and 250 < y < 750]
    world = CoverageWorld(
        Surface.PLANE, named("r", receivers), named("c", fine + corners), rules=ScopeRules(lines=lines, uniform=True)
    )
    plan = plan_scopes(world)
    assert [scope.radius_km for scope in plan.scopes] == pytest.approx([radius] * 144, abs=0.001)
    assert plan.addresses == addresses
    assert min(cover(world, plan).by_lines()) >= lines
    quick = CoverageWorld(Surface.PLANE, world.receivers, named("c", fine[:1]), rules=world.rules)
    assert clashes(quick, plan) == []


def test_an_inch_less_and_somebody_hears_one_source() -> None:
    receivers = grid(100.0, 12, 12)
    world = CoverageWorld(
        Surface.PLANE,
        named("r", receivers),
        named("c", [receivers[6 * 12 + 6]]),
        rules=ScopeRules(lines=2, radius_max_km=99.99),
    )
    (short,) = cover(world, plan_scopes(world)).short
    assert (short.lines, short.reason.partition(": ")[2]) == (1, "100 km away, 100 km allowed")
