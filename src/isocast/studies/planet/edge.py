"""From receivers to customers, one server's region at a time: lines, gaps, requests and repairs (protocol §7).

A region is the cells of land that are nearest to one receiver, whose retransmit server its customers ask. All chance of
a region comes from the region's own stream, and everything that couples customers (a repair that one asked for serves
all; a loss on the way to a neighbourhood hits all of it) stays inside: regions can be computed anywhere, in any order.
Customers are taken in blocks, so that memory does not grow with a region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.nearest import nearest
from isocast.reformation.scopes.world import Floats, Ints, Paths, Surface
from isocast.studies.coverage.land import CELL_DEGREES, land_raster
from isocast.studies.coverage.places import even_on_land
from isocast.studies.planet.core import CoreNet, TreeLevel
from isocast.studies.planet.settings import (
    DELAYS,
    DISTANCES,
    CountColumn,
    CustomerPlaces,
    EdgeTally,
    PlanetEdgeSettings,
    PlanetWorld,
    StreamPurpose,
    generator,
    lost_places,
)
from isocast.terms.instants import MILLISECOND
from isocast.terms.topology import EARTH_RADIUS_KM, City

__all__ = ["CustomerGaps", "EdgeInputs", "Ground", "RepairOutcome", "core_net", "lay_out", "repair", "run_servers"]


# Gaps of one message in one region, and how its retransmit server fills them (§7.1; protocol §7).
#
# Whoever lacks the message asks when its patience is over, and again every retry. The server answers the first request
# that arrives with one multicast for all, and none of the others that come before the next retry. A customer that the
# repair reaches before its own patience is over never asks: that is what keeps a wide loss from becoming a flood.


@dataclass(frozen=True, eq=False)
class CustomerGaps:
    """Customers who lack one message: when each asks first, how far the server is, and where each lives."""

    ask_ns: Floats
    way_ns: Floats
    cell: Ints

    def __len__(self) -> int:
        return len(self.ask_ns)

    @classmethod
    def joined(cls, parts: Sequence[CustomerGaps]) -> CustomerGaps:
        """All of some blocks."""
        return cls(
            np.concatenate([part.ask_ns for part in parts]),
            np.concatenate([part.way_ns for part in parts]),
            np.concatenate([part.cell for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class RepairOutcome:
    """What came of it."""

    requests: int
    repairs: int
    """Multicasts of the server."""
    got_ns: Floats
    """When each customer got the message; infinite for those who did not."""


def repair(
    random: np.random.Generator, gaps: CustomerGaps, settings: PlanetEdgeSettings, each: float, cells: int
) -> RepairOutcome:
    """All rounds; `each` is the loss of an edge, of which there are two to a customer under tree loss."""
    got = np.full(len(gaps), np.inf)
    requests = repairs = 0
    for attempt in range(settings.retries_max):
        lacking = np.flatnonzero(np.isinf(got))
        if not len(lacking):
            break
        ask = gaps.ask_ns[lacking] + attempt * settings.retry_ns
        way = gaps.way_ns[lacking]
        heard = random.random(len(lacking)) >= settings.loss
        reached = np.where(heard, ask + way + _jitter(random, settings, len(lacking)), np.inf)
        first = float(reached.min())
        # The first request that arrives is answered; what it asked for serves whoever else lacks it.
        back = first + way + _jitter(random, settings, len(lacking))
        passed = random.random(len(lacking)) >= each
        if settings.tree:
            passed &= ~(random.random(cells) < each)[gaps.cell[lacking]]
        served = passed & np.isfinite(back)
        requests += int((ask < np.where(served, back, np.inf)).sum())
        repairs += int(np.isfinite(first))
        got[lacking[served]] = back[served]
    return RepairOutcome(requests, repairs, got)


def _jitter(random: np.random.Generator, settings: PlanetEdgeSettings, count: int) -> Floats:
    return random.exponential(settings.jitter_ns, count) if settings.jitter_ns else np.zeros(count)


# Where everybody stands: receivers, the ring of some of them, and customers in the cells of the land.


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
    random = generator(world.seed, StreamPurpose.PLACES)
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


def _customers(wanted: CustomerPlaces, run: int, points: Floats) -> tuple[Floats, Ints, Ints]:
    """Cells with customers, how many, and where each server's begin: the receiver nearest to a cell serves it."""
    cells = np.argwhere(land_raster())
    north = 90 - cells[:, 0] * CELL_DEGREES
    inside = (north - CELL_DEGREES >= wanted.south) & (north <= wanted.north)
    corners = np.column_stack((north - CELL_DEGREES, cells[:, 1] * CELL_DEGREES - 180))[inside]
    middles = _EARTH.to_space(corners + CELL_DEGREES / 2)
    weights = _weights(wanted, corners, middles)
    counts = generator(run, StreamPurpose.CUSTOMERS).multinomial(wanted.count, weights / weights.sum())
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


_BLOCK = 1 << 14
"""Customers at a time: their arrays stay in the cache, and the calls are few."""
_FAR_BLOCK = 256
"""Customers at a time who are compared with every receiver."""
_MILLION = 1_000_000


@dataclass(frozen=True, eq=False)
class EdgeInputs:
    """All that a region's computation needs."""

    ground: Ground
    settings: PlanetEdgeSettings
    run: int
    releases_ns: Floats
    """For each message and receiver, the release after the common instant; infinite where there is none."""
    ns_per_km: float
    base_ns: float


@dataclass(frozen=True, eq=False)
class _Block:
    """Some customers: where they live, and what they hear."""

    cell: Ints
    """Among the server's."""
    line: Ints
    """Receivers, nearest first, a column for each line."""
    km: Floats
    heard: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    server_km: Floats


def run_servers(world: EdgeInputs, servers: Ints) -> EdgeTally:
    """The counts of some servers; a function of the world and of who they are."""
    tally = EdgeTally.empty(servers, len(world.ground.points))
    for row, server in enumerate(servers.tolist()):
        _Region(world, server, tally, row).count()
    return tally


class _Region:
    """One server's customers."""

    def __init__(self, world: EdgeInputs, server: int, tally: EdgeTally, row: int) -> None:
        self.world = world
        self.settings = world.settings
        self.server = server
        self.tally = tally
        self.row = tally.table[row]
        self.random = generator(world.run, StreamPurpose.SERVER, server)
        ground = world.ground
        self.cells = slice(int(ground.server_cells[server]), int(ground.server_cells[server + 1]))
        self.cell_count = self.cells.stop - self.cells.start
        loss = self.settings.loss
        self.each = float(1 - (1 - loss) ** 0.5) if self.settings.tree else loss
        """On each edge, so that a customer loses `loss` in all."""

    def count(self) -> None:
        counts = self.world.ground.cell_customers[self.cells]
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        # The same for all blocks: a neighbourhood loses together, whichever block its people are in.
        shared = [self._neighbourhoods_lost() for _ in range(self.settings.messages)]
        gaps: list[list[CustomerGaps]] = [[] for _ in shared]
        for first in range(0, total, _BLOCK):
            block = self._block(np.searchsorted(ends, np.arange(first, min(first + _BLOCK, total)), side="right"))
            self._count_lines(block)
            for message, lost in enumerate(shared):
                gaps[message].append(self._deliver(block, message, lost))
        for found in gaps:
            if found:
                self._count_repairs(CustomerGaps.joined(found))

    # Places -------------------------------------------------------------------------------------

    def _block(self, cell: Ints) -> _Block:
        ground = self.world.ground
        corners = ground.cell_corners[self.cells][cell]
        low, high = np.sin(np.radians(corners[:, 0])), np.sin(np.radians(corners[:, 0] + CELL_DEGREES))
        sine = low + (high - low) * self.random.random(len(cell))
        flat = np.sqrt(np.maximum(1 - sine**2, 0.0))
        longitude = np.radians(corners[:, 1] + CELL_DEGREES * self.random.random(len(cell)))
        points = EARTH_RADIUS_KM * np.column_stack((flat * np.cos(longitude), flat * np.sin(longitude), sine))
        line, km, server_km = self._nearest(points)
        return _Block(cell, line, km, km <= self.settings.reach_km, server_km)

    def _nearest(self, points: Floats) -> tuple[Ints, Floats, Floats]:
        """The nearest receivers of each customer; exact, though only those around the server are looked at first."""
        ground = self.world.ground
        around = ground.neighbours[self.server]
        wanted = max(self.settings.lines, 2)
        arcs = _arcs(points, ground.points[around])
        place, km = _least(arcs, wanted)
        line, server_km = around[place], arcs[:, 0]
        # Whoever is nearer than the last one found is within this of the server.
        unsure = np.flatnonzero(server_km + km[:, -1] > ground.neighbour_km[self.server])
        for first in range(0, len(unsure), _FAR_BLOCK):
            rows = unsure[first : first + _FAR_BLOCK]
            line[rows], km[rows] = _least(_arcs(points[rows], ground.points), wanted)
        return line, km, server_km

    def _count_lines(self, block: _Block) -> None:
        row, hears = self.row, block.heard[:, : self.settings.lines].sum(axis=1)
        row[CountColumn.CUSTOMERS] += len(hears)
        row[CountColumn.HEAR_NONE] += int((hears == 0).sum())
        row[CountColumn.HEAR_ONE] += int((hears == 1).sum())
        row[CountColumn.HEAR_TWO] += int((hears > 1).sum())
        heard = block.heard[:, : self.settings.lines]
        lines = block.line[:, : self.settings.lines][heard]
        self.tally.listeners += np.bincount(lines, minlength=len(self.tally.listeners))
        self.tally.nearest += DISTANCES.tally(block.km[:, 0])
        if block.km.shape[1] > 1:
            self.tally.second += DISTANCES.tally(block.km[:, 1])

    # Delivery -----------------------------------------------------------------------------------

    def _neighbourhoods_lost(self) -> Ints:
        """Under tree loss: the (line, cell) pairs that one message does not reach, lines by their place around us."""
        if not self.settings.tree:
            return np.zeros(0, dtype=np.int64)
        return lost_places(self.random, len(self.world.ground.neighbours[self.server]) * self.cell_count, self.each)

    def _deliver(self, block: _Block, message: int, lost_cells: Ints) -> CustomerGaps:
        """One message to all customers of a block by their lines; returns whom no line brought it."""
        settings, world = self.settings, self.world
        line, heard = block.line[:, : settings.lines], block.heard[:, : settings.lines]
        release = world.releases_ns[message][line]
        way = release + world.base_ns + block.km[:, : settings.lines] * world.ns_per_km
        arrival = np.where(heard, way, np.inf)
        if settings.jitter_ns:
            arrival += self.random.exponential(settings.jitter_ns, arrival.shape)
        should = arrival.min(axis=1)
        lost = self._lost(line, block.cell, lost_cells)
        arrival[lost] = np.inf
        got = arrival.min(axis=1)
        hears, row = heard.any(axis=1), self.row
        row[CountColumn.EXPECTED] += int(hears.sum())
        row[CountColumn.LOST_NEAREST] += int((lost[:, 0] & heard[:, 0]).sum())
        there = np.isfinite(got)
        in_time = int((got <= settings.deadline_ns).sum())
        row[CountColumn.IN_TIME] += in_time
        row[CountColumn.IN_TIME_DIRECT] += in_time
        row[CountColumn.EXPECTED_DIRECT] += self._expected_in_time(np.where(heard, way, np.inf))
        self._count_delays(got[there])
        wanting = np.flatnonzero(hears & ~there)
        row[CountColumn.LOST_ALL] += len(wanting)
        # A line whose receiver never released it says nothing of the message; the gap shows all the same, later.
        seen = np.where(np.isfinite(should[wanting]), should[wanting], settings.deadline_ns)
        way_ns = world.base_ns + block.server_km[wanting] * world.ns_per_km
        return CustomerGaps(seen + settings.patience_ns, way_ns, block.cell[wanting])

    def _lost(self, line: Ints, cell: Ints, lost_cells: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        lost = np.zeros(line.shape, dtype=np.bool_)
        lost.ravel()[lost_places(self.random, line.size, self.each)] = True
        if len(lost_cells):
            around = self.world.ground.neighbours[self.server]
            order = np.argsort(around)
            place = order[np.searchsorted(around[order], line).clip(max=len(around) - 1)]
            edges = np.zeros(len(around) * self.cell_count, dtype=np.bool_)
            edges[lost_cells] = True
            # A line from beyond those around us has no neighbourhood here, and loses by itself alone.
            lost |= edges[place * self.cell_count + cell[:, None]] & (around[place] == line)
        return lost

    def _expected_in_time(self, way: Floats) -> int:
        """P(a copy comes by the deadline), summed over customers, in millionths: each line by itself."""
        settings = self.settings
        left = settings.deadline_ns - way
        share = -np.expm1(-np.maximum(left, 0.0) / settings.jitter_ns) if settings.jitter_ns else left >= 0
        missed = np.prod(1 - (1 - settings.loss) * share, axis=1)
        return int(np.rint((1 - missed) * _MILLION).astype(np.int64).sum())

    def _count_delays(self, got: Floats) -> None:
        if not len(got):
            return
        self.tally.delays += DELAYS.tally(got)
        whole = np.rint(got).astype(np.int64)
        self.row[CountColumn.DELAY_SUM] += int(whole.sum())
        self.row[CountColumn.DELAY_MAX] = max(int(self.row[CountColumn.DELAY_MAX]), int(whole.max()))

    def _count_repairs(self, gaps: CustomerGaps) -> None:
        settings, row = self.settings, self.row
        done: RepairOutcome = repair(self.random, gaps, settings, self.each, self.cell_count)
        row[CountColumn.REQUESTS] += done.requests
        row[CountColumn.REPAIRS] += done.repairs
        got = done.got_ns[np.isfinite(done.got_ns)]
        row[CountColumn.REPAIRED] += len(got)
        row[CountColumn.NEVER] += len(gaps) - len(got)
        row[CountColumn.IN_TIME] += int((got <= settings.deadline_ns).sum())
        row[CountColumn.WAVE_MAX] = max(int(row[CountColumn.WAVE_MAX]), done.requests)
        self._count_delays(got)


def _arcs(points: Floats, others: Floats) -> Floats:
    """Distances in km between all of one and all of the other."""
    # Axis by axis, not by a matrix product, whose last bits depend on shapes and threads.
    squares = np.zeros((len(points), len(others)))
    for axis in range(3):
        gap = points[:, axis, None] - others[None, :, axis]
        squares += gap * gap
    return _EARTH.to_arc(np.sqrt(squares))


def _least(arcs: Floats, count: int) -> tuple[Ints, Floats]:
    """The columns of the least few of each row, least first; infinite where there are not so many."""
    have = min(count, arcs.shape[1])
    place = np.argpartition(arcs, have - 1, axis=1)[:, :have] if have < arcs.shape[1] else _all_columns(arcs)
    km = np.take_along_axis(arcs, place, axis=1)
    order = np.argsort(km, axis=1, kind="stable")
    place, km = np.take_along_axis(place, order, axis=1), np.take_along_axis(km, order, axis=1)
    if have < count:
        place = np.concatenate((place, np.zeros((len(arcs), count - have), dtype=np.int64)), axis=1)
        km = np.concatenate((km, np.full((len(arcs), count - have), np.inf)), axis=1)
    return place, km


def _all_columns(arcs: Floats) -> Ints:
    return np.broadcast_to(np.arange(arcs.shape[1]), arcs.shape)
