"""Nearest places, discs and overlaps, against looking at every pair: poles, the date line and crowds included."""

from __future__ import annotations

import numpy as np
import pytest
from tests.reformation.scopes.independent import apart

from isocast.reformation.scopes.nearest import nearest, overlapping, within
from isocast.reformation.scopes.world import Floats, Surface

EARTH = Surface.EARTH


def scattered(seed: int, count: int) -> Floats:
    """All over the globe, around both poles, on both sides of the date line, and many in one town."""
    random = np.random.default_rng(seed)
    part = count // 4
    globe = np.column_stack((np.degrees(np.arcsin(random.uniform(-1, 1, part))), random.uniform(-180, 180, part)))
    poles = np.column_stack((np.where(random.random(part) < 0.5, 89.0, -89.0), random.uniform(-180, 180, part)))
    line = np.column_stack(
        (random.uniform(-5, 5, part), random.choice([-1.0, 1.0], part) * random.uniform(179, 180, part))
    )
    town = np.column_stack((48 + random.normal(0, 0.01, part), 2 + random.normal(0, 0.01, part)))
    return np.vstack((globe, poles, line, town))


def table(a: Floats, b: Floats) -> Floats:
    return np.array([[apart(EARTH, (p[0], p[1]), (q[0], q[1])) for q in b.tolist()] for p in a.tolist()])


def test_the_nearest_are_the_nearest() -> None:
    points, queries = scattered(1, 120), scattered(2, 80)
    found, km = nearest(EARTH, EARTH.to_space(points), EARTH.to_space(queries), 5, np.inf)
    every = table(queries, points)
    assert km == pytest.approx(np.sort(every, axis=1)[:, :5], abs=1e-6)
    assert np.take_along_axis(every, found, axis=1) == pytest.approx(km, abs=1e-6)


def test_beyond_reach_there_is_nobody() -> None:
    points, queries = scattered(1, 120), scattered(2, 80)
    found, km = nearest(EARTH, EARTH.to_space(points), EARTH.to_space(queries), 200, 500.0)
    every = table(queries, points)
    assert (found >= 0).sum(axis=1).tolist() == (every <= 500.0).sum(axis=1).tolist()
    assert np.isinf(km[found < 0]).all()
    none, _ = nearest(EARTH, np.zeros((0, 3)), EARTH.to_space(queries), 2, np.inf)
    assert (none == -1).all()


def test_discs_hold_what_is_in_them_and_nothing_else() -> None:
    points, queries = scattered(3, 60), scattered(4, 120)
    radii = np.random.default_rng(5).choice([0.0, 0.5, 40.0, 900.0, 19_000.0], 60)
    disc, place, _ = within(EARTH, EARTH.to_space(points), radii, EARTH.to_space(queries))
    expected = np.argwhere((table(points, queries) <= radii[:, None]) & (radii[:, None] > 0))
    assert sorted(zip(disc.tolist(), place.tolist(), strict=True)) == [(a, b) for a, b in expected.tolist()]


def test_discs_that_share_ground_are_found_whatever_their_sizes() -> None:
    points = scattered(6, 160)
    radii = np.random.default_rng(7).choice([0.0, 0.01, 3.0, 200.0, 5_000.0], 160, p=[0.2, 0.3, 0.3, 0.15, 0.05])
    first, second = overlapping(EARTH, EARTH.to_space(points), radii)
    meet = (table(points, points) <= radii[:, None] + radii) & (radii[:, None] > 0) & (radii > 0)
    expected = np.argwhere(np.triu(meet, 1))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(a, b) for a, b in expected.tolist()]


def test_a_disc_over_the_date_line_or_a_pole_is_one_disc() -> None:
    centres = EARTH.to_space(np.array([[0.0, 179.9], [89.9, 10.0]]))
    places = EARTH.to_space(np.array([[0.0, -179.9], [89.9, -170.0], [0.0, 0.0]]))
    disc, place, km = within(EARTH, centres, np.array([50.0, 50.0]), places)
    assert sorted(zip(disc.tolist(), place.tolist(), strict=True)) == [(0, 0), (1, 1)]
    assert km == pytest.approx([22.24, 22.24], abs=0.01)


def test_space_and_places_are_each_others_inverse() -> None:
    places = scattered(8, 40)
    assert EARTH.from_space(EARTH.to_space(places)) == pytest.approx(places, abs=1e-9)
    assert EARTH.to_arc(EARTH.to_chord(np.array([0.0, 1.0, 20_000.0]))) == pytest.approx([0.0, 1.0, 20_000.0])


def test_the_area_of_everything_is_the_earths() -> None:
    assert EARTH.area(np.array([20_015.2]))[0] == pytest.approx(510_065_000, rel=1e-4)
    assert Surface.PLANE.area(np.array([2.0]))[0] == pytest.approx(4 * np.pi)
