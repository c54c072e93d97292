"""From receivers to customers, one server's region at a time: lines, gaps, requests and repairs (protocol §7).

A region is the cells of land that are nearest to one receiver, whose retransmit server its customers ask. All chance of
a region comes from the region's own stream, and everything that couples customers (a repair that one asked for serves
all; a loss on the way to a neighbourhood hits all of it) stays inside: regions can be computed anywhere, in any order.
Customers are taken in blocks, so that memory does not grow with a region.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.surface import Floats, Ints, Surface
from isocast.studies.coverage.land import CELL_DEGREES
from isocast.studies.planet.draws import Purpose, generator, lost_places
from isocast.studies.planet.gap_repair import Gaps, Repairs, repair
from isocast.studies.planet.ground import Ground
from isocast.studies.planet.settings import EdgeSettings
from isocast.studies.planet.tallies import DELAYS, DISTANCES, Column, EdgeTally
from isocast.terms.topology import EARTH_RADIUS_KM

__all__ = ["EdgeWorld", "run_servers"]

_EARTH = Surface.EARTH
_BLOCK = 1 << 14
"""Customers at a time: their arrays stay in the cache, and the calls are few."""
_FAR_BLOCK = 256
"""Customers at a time who are compared with every receiver."""
_MILLION = 1_000_000


@dataclass(frozen=True, eq=False)
class EdgeWorld:
    """All that a region's computation needs."""

    ground: Ground
    settings: EdgeSettings
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


def run_servers(world: EdgeWorld, servers: Ints) -> EdgeTally:
    """The counts of some servers; a function of the world and of who they are."""
    tally = EdgeTally.empty(servers, len(world.ground.points))
    for row, server in enumerate(servers.tolist()):
        _Region(world, server, tally, row).count()
    return tally


class _Region:
    """One server's customers."""

    def __init__(self, world: EdgeWorld, server: int, tally: EdgeTally, row: int) -> None:
        self.world = world
        self.settings = world.settings
        self.server = server
        self.tally = tally
        self.row = tally.table[row]
        self.random = generator(world.run, Purpose.SERVER, server)
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
        gaps: list[list[Gaps]] = [[] for _ in shared]
        for first in range(0, total, _BLOCK):
            block = self._block(np.searchsorted(ends, np.arange(first, min(first + _BLOCK, total)), side="right"))
            self._count_lines(block)
            for message, lost in enumerate(shared):
                gaps[message].append(self._deliver(block, message, lost))
        for found in gaps:
            if found:
                self._count_repairs(Gaps.joined(found))

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
        row[Column.CUSTOMERS] += len(hears)
        row[Column.HEAR_NONE] += int((hears == 0).sum())
        row[Column.HEAR_ONE] += int((hears == 1).sum())
        row[Column.HEAR_TWO] += int((hears > 1).sum())
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

    def _deliver(self, block: _Block, message: int, lost_cells: Ints) -> Gaps:
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
        row[Column.EXPECTED] += int(hears.sum())
        row[Column.LOST_NEAREST] += int((lost[:, 0] & heard[:, 0]).sum())
        there = np.isfinite(got)
        in_time = int((got <= settings.deadline_ns).sum())
        row[Column.IN_TIME] += in_time
        row[Column.IN_TIME_DIRECT] += in_time
        row[Column.EXPECTED_DIRECT] += self._expected_in_time(np.where(heard, way, np.inf))
        self._count_delays(got[there])
        wanting = np.flatnonzero(hears & ~there)
        row[Column.LOST_ALL] += len(wanting)
        # A line whose receiver never released it says nothing of the message; the gap shows all the same, later.
        seen = np.where(np.isfinite(should[wanting]), should[wanting], settings.deadline_ns)
        way_ns = world.base_ns + block.server_km[wanting] * world.ns_per_km
        return Gaps(seen + settings.patience_ns, way_ns, block.cell[wanting])

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
        self.row[Column.DELAY_SUM] += int(whole.sum())
        self.row[Column.DELAY_MAX] = max(int(self.row[Column.DELAY_MAX]), int(whole.max()))

    def _count_repairs(self, gaps: Gaps) -> None:
        settings, row = self.settings, self.row
        done: Repairs = repair(self.random, gaps, settings, self.each, self.cell_count)
        row[Column.REQUESTS] += done.requests
        row[Column.REPAIRS] += done.repairs
        got = done.got_ns[np.isfinite(done.got_ns)]
        row[Column.REPAIRED] += len(got)
        row[Column.NEVER] += len(gaps) - len(got)
        row[Column.IN_TIME] += int((got <= settings.deadline_ns).sum())
        row[Column.WAVE_MAX] = max(int(row[Column.WAVE_MAX]), done.requests)
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
