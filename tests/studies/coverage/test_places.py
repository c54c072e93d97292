"""Places that are drawn: evenly on land, around cities, and in grids."""

from __future__ import annotations

import numpy as np
import pytest

from isocast.reformation.scopes.nearest import nearest
from isocast.reformation.scopes.world import Floats, Surface
from isocast.studies.coverage.land import on_land, random_places
from isocast.studies.coverage.places import around_cities, even_on_land, hexagonal, random_on_plane, square
from isocast.terms.topology import city

EARTH = Surface.EARTH


def random(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def farthest(places: Floats) -> float:
    """From land to the nearest place, for all but the remotest hundredth."""
    probes = EARTH.to_space(random_places(random(9), 5_000))
    return float(np.quantile(nearest(EARTH, EARTH.to_space(places), probes, 1, np.inf)[1], 0.99))


@pytest.mark.parametrize("count", [1, 7, 500])
def test_even_places_are_as_many_as_asked_for_and_on_land(count: int) -> None:
    places = even_on_land(random(), count, -90, 90, 0)
    assert places.shape == (count, 2)
    assert on_land(places).all()
    assert on_land(even_on_land(random(), count, -90, 90, 2)).all()


def test_even_beats_random_and_moving_to_the_middle_beats_both() -> None:
    drawn = farthest(random_places(random(), 600))
    even = farthest(even_on_land(random(), 600, -90, 90, 0))
    relaxed = farthest(even_on_land(random(), 600, -90, 90, 5))
    assert relaxed < even < drawn


def test_around_a_city_means_near_it_and_on_land() -> None:
    london = city("London")
    assert london is not None
    places = around_cities(random(), 400, [london], 100.0)
    assert on_land(places).all()
    centre = EARTH.to_space(np.array([[london.latitude, london.longitude]]))
    km = nearest(EARTH, centre, EARTH.to_space(places), 1, np.inf)[1]
    assert np.median(km) == pytest.approx(110, abs=30)
    assert km.max() < 500


def test_a_hexagonal_grid_has_six_neighbours_at_its_spacing() -> None:
    points = Surface.PLANE.to_space(hexagonal(10.0, (0.0, 0.0, 100.0, 100.0)))
    middle = np.argmin(np.linalg.norm(points[:, :2] - 50, axis=1))
    _, km = nearest(Surface.PLANE, points, points[[middle]], 8, np.inf)
    assert km[0, 1:7] == pytest.approx([10.0] * 6)
    assert km[0, 7] > 17


def test_a_finer_grid_contains_the_coarser_one() -> None:
    coarse, fine = hexagonal(60.0, (0, 0, 600, 600)), hexagonal(10.0, (0, 0, 600, 600))
    _, km = nearest(Surface.PLANE, Surface.PLANE.to_space(fine), Surface.PLANE.to_space(coarse), 1, np.inf)
    assert km.max() < 1e-9


def test_squares_and_random_places_keep_within_their_bounds() -> None:
    for places in (square(10.0, (5.0, 5.0, 45.0, 25.0)), random_on_plane(random(), 100, (5.0, 5.0, 45.0, 25.0))):
        assert (places.min(axis=0) >= [5, 5]).all()
        assert (places.max(axis=0) <= [45, 25]).all()
    assert len(square(10.0, (5.0, 5.0, 45.0, 25.0))) == 8
