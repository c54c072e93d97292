"""Where everybody stands: receivers, the ring of some of them, and customers in the cells of the land."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.nearest import nearest
from isocast.reformation.scopes.surface import Floats, Ints, Surface
from isocast.reformation.scopes.world import Paths
from isocast.studies.coverage.land import CELL_DEGREES, land_raster
from isocast.studies.coverage.places import even_on_land
from isocast.studies.planet.core_net import CoreNet, TreeLevel
from isocast.studies.planet.draws import Purpose, generator
from isocast.studies.planet.settings import CustomerPlaces, PlanetWorld
from isocast.terms.instants import MILLISECOND
from isocast.terms.topology import City

__all__ = ["Ground", "core_net", "lay_out"]

_EARTH = Surface.EARTH
_NEIGHBOURS = 24
"""Receivers around a server among which its customers' lines are looked for first."""
_CHOICES = 16
"""Receivers near the ideal place of a primary one: the nearest that is free takes it."""


@dataclass(frozen=True, eq=False)
class Ground:
    """Receivers 0 to n-1, and the cells of land, those of one server together."""

    receivers: Floats
    """Latitude and longitude in degrees."""
    points: Floats
    ring: Ints
    parent: Ints
    neighbours: Ints
    """For each receiver those around it, itself first."""
    neighbour_km: Floats
    """The distance of the farthest of these."""
    cell_corners: Floats
    """South and west of every cell that has customers, in degrees, sorted by server."""
    cell_customers: Ints
    server_cells: Ints
    """Where the cells of each server begin; one more at the end."""

    @property
    def customers_of(self) -> Ints:
        """How many customers each server has."""
        ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.cell_customers)))
        counts: Ints = ends[self.server_cells[1:]] - ends[self.server_cells[:-1]]
        return counts


def lay_out(world: PlanetWorld) -> Ground:
    """All places of a world; a function of its seed and its counts."""
    wanted = world.receivers
    random = generator(world.seed, Purpose.PLACES)
    receivers = even_on_land(random, wanted.count, wanted.south, wanted.north, wanted.relax)
    points = _EARTH.to_space(receivers)
    ideal = even_on_land(random, wanted.primaries, wanted.south, wanted.north, wanted.relax)
    ring = _tour(points, _chosen(points, _EARTH.to_space(ideal)))
    parent = ring[nearest(_EARTH, points[ring], points, 1, np.inf)[0][:, 0]]
    parent[ring] = ring
    around, km = nearest(_EARTH, points, points, min(_NEIGHBOURS, len(points)), np.inf)
    corners, counts, starts = _customers(world.customers, world.seed, points)
    farthest = np.full(len(points), np.inf) if len(points) <= _NEIGHBOURS else km[:, -1]
    return Ground(receivers, points, ring, parent, around, farthest, corners, counts, starts)


def _chosen(points: Floats, ideal: Floats) -> Ints:
    """For each ideal place the nearest receiver that no other has taken."""
    near, _ = nearest(_EARTH, points, ideal, min(_CHOICES, len(points)), np.inf)
    free = np.ones(len(points), dtype=np.bool_)
    chosen = np.empty(len(ideal), dtype=np.int64)
    for place, choices in enumerate(near):
        left = choices[free[choices]]
        if not len(left):
            left = np.flatnonzero(free)
            left = left[[int(np.argmin(np.linalg.norm(points[left] - ideal[place], axis=1)))]]
        chosen[place] = left[0]
        free[left[0]] = False
    return chosen


def _tour(points: Floats, sites: Ints) -> Ints:
    """The ring's order: from each to the nearest that is left, so that neighbours share branches of the tree."""
    left = list(range(1, len(sites)))
    order = [0]
    while left:
        gaps = np.linalg.norm(points[sites[left]] - points[sites[order[-1]]], axis=1)
        order.append(left.pop(int(np.argmin(gaps))))
    return sites[order]


def core_net(ground: Ground, paths: Paths, branches: int) -> CoreNet:
    """The network between receivers: a tree with branches of neighbours on the ring, then the groups below them."""
    size = len(ground.ring)
    place = np.full(len(ground.points), -1, dtype=np.int64)
    place[ground.ring] = np.arange(size)
    group = place[ground.parent]
    levels: tuple[TreeLevel, ...] = (TreeLevel(group * min(branches, size) // size),)
    if size < len(ground.points):  # Without secondary receivers a group is a leaf.
        levels = (*levels, TreeLevel(group))
    ns_per_km = MILLISECOND / paths.km_per_ms + paths.hop_ns / paths.km_per_hop
    return CoreNet(ground.points, ground.ring, ground.parent, levels, ns_per_km, float(paths.hop_ns))


# ---- customers


def _customers(wanted: CustomerPlaces, run: int, points: Floats) -> tuple[Floats, Ints, Ints]:
    """Cells with customers, how many, and where each server's begin: the receiver nearest to a cell serves it."""
    cells = np.argwhere(land_raster())
    north = 90 - cells[:, 0] * CELL_DEGREES
    inside = (north - CELL_DEGREES >= wanted.south) & (north <= wanted.north)
    corners = np.column_stack((north - CELL_DEGREES, cells[:, 1] * CELL_DEGREES - 180))[inside]
    middles = _EARTH.to_space(corners + CELL_DEGREES / 2)
    weights = _weights(wanted, corners, middles)
    counts = generator(run, Purpose.CUSTOMERS).multinomial(wanted.count, weights / weights.sum())
    used = counts > 0
    corners, counts = corners[used], counts[used]
    server = nearest(_EARTH, points, middles[used], 1, np.inf)[0][:, 0]
    order = np.argsort(server, kind="stable")
    starts = np.searchsorted(server[order], np.arange(len(points) + 1))
    return corners[order], counts[order], starts


def _weights(wanted: CustomerPlaces, corners: Floats, middles: Floats) -> Floats:
    """Of each cell: its area, and how near cities are."""
    areas: Floats = np.sin(np.radians(corners[:, 0] + CELL_DEGREES)) - np.sin(np.radians(corners[:, 0]))
    if not wanted.cities:
        return areas
    weights: Floats = wanted.rural * areas / areas.sum()
    for city in wanted.cities:
        near = areas * np.exp(-((_km_from(city, middles) / wanted.spread_km) ** 2) / 2)
        total = near.sum()
        if total > 0:
            weights += (1 - wanted.rural) / len(wanted.cities) * near / total
    return weights


def _km_from(city: City, middles: Floats) -> Floats:
    ((x, y, z),) = _EARTH.to_space(np.array([[city.latitude, city.longitude]])).tolist()
    squares = (middles[:, 0] - x) ** 2 + (middles[:, 1] - y) ** 2 + (middles[:, 2] - z) ** 2
    return _EARTH.to_arc(np.sqrt(squares))
