"""Where everybody stands."""

from __future__ import annotations

import numpy as np
import pytest
from tests.studies.planet.worlds import small

from isocast.reformation.scopes.world import Floats, Surface
from isocast.studies.coverage.land import CELL_DEGREES, land_area_km2, on_land
from isocast.studies.planet.edge import core_net, lay_out
from isocast.studies.planet.settings import planet_from_mapping
from isocast.terms.topology import CITIES


def arcs(one: Floats, other: Floats) -> Floats:
    gap = Surface.EARTH.to_space(one)[:, None, :] - Surface.EARTH.to_space(other)[None, :, :]
    return Surface.EARTH.to_arc(np.linalg.norm(gap, axis=2))


def test_the_ring_is_some_receivers_and_everybody_stands_below_the_nearest() -> None:
    ground = lay_out(small())
    assert len(ground.receivers) == 60
    assert len(set(ground.ring.tolist())) == 6
    km = arcs(ground.receivers, ground.receivers[ground.ring])
    assert np.array_equal(ground.parent, ground.ring[np.argmin(km, axis=1)])


def test_neighbours_on_the_ring_share_branches_of_the_tree() -> None:
    world = small()
    ground = lay_out(world)
    net = core_net(ground, world.paths, 3)
    branch, group = net.levels
    assert branch.edge_of[ground.ring].tolist() == [0, 0, 1, 1, 2, 2]
    assert group.edges == 6
    assert np.array_equal(branch.edge_of, branch.edge_of[ground.parent])
    assert np.array_equal(group.edge_of, group.edge_of[ground.parent])


def test_a_ring_takes_whatever_receivers_there_are() -> None:
    ground = lay_out(small(receivers={"count": 9, "primaries": 8}))
    below = np.flatnonzero(ground.parent != np.arange(9))
    assert sorted([*ground.ring.tolist(), *below.tolist()]) == list(range(9))


def test_customers_are_on_land_and_belong_to_the_nearest_server() -> None:
    ground = lay_out(small())
    assert int(ground.cell_customers.sum()) == 3_000
    assert int(ground.customers_of.sum()) == 3_000
    middles = ground.cell_corners + CELL_DEGREES / 2
    assert on_land(middles).all()
    server = np.argmin(arcs(middles, ground.receivers), axis=1)
    assert np.array_equal(server, np.repeat(np.arange(60), np.diff(ground.server_cells)))


def test_customers_live_around_cities_and_some_anywhere() -> None:
    def far(rural: float) -> float:
        ground = lay_out(small(customers={"rural": rural, "spread": 100}))
        cities = np.array([(city.latitude, city.longitude) for city in CITIES])
        away = arcs(ground.cell_corners + CELL_DEGREES / 2, cities).min(axis=1) > 500
        return float(ground.cell_customers[away].sum() / 3_000)

    assert far(0.001) < 0.01
    assert 0.4 < far(0.6) < 0.6


def test_on_all_land_alike() -> None:
    places = {"receivers": {"count": 20, "primaries": 4, "relax": 0}, "customers": {"count": 200_000}}
    ground = lay_out(planet_from_mapping(places))
    north = ground.cell_corners[:, 0] >= 0
    share = float(ground.cell_customers[north].sum() / ground.cell_customers.sum())
    assert share == pytest.approx(land_area_km2(0, 90) / land_area_km2(), abs=0.005)


def test_the_same_seed_gives_the_same_places() -> None:
    one, same, other = lay_out(small()), lay_out(small()), lay_out(small(customers={"count": 3_001}))
    assert np.array_equal(one.receivers, same.receivers)
    assert np.array_equal(one.cell_customers, same.cell_customers)
    assert np.array_equal(one.receivers, other.receivers), "more customers do not move the receivers"
