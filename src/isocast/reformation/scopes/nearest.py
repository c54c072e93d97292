"""The nearest few, and all within a distance, for a hundred thousand places at once: boxes and buckets of space.

Each box is halved across its longest side until few points are left. Every query first looks into the box that it
would belong to; then all queries walk through the tree together, and leave a branch that has nothing nearer for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.world import Floats, Ints, Surface

__all__ = ["nearest", "overlapping", "within"]


_LEAF = 16
"""Points that are compared without asking further: about as many as a step of the tree costs."""


@dataclass(frozen=True, eq=False)
class _Box:
    """Points, and the corners of the least box around them; halves, unless they are few."""

    points: Ints
    low: Floats
    high: Floats
    axis: int = 0
    border: float = 0.0
    halves: tuple[_Box, _Box] | None = None


def nearest(surface: Surface, points: Floats, queries: Floats, count: int, reach: float) -> tuple[Ints, Floats]:
    """For each query its `count` nearest points within `reach` km: their numbers and distances, nearest first.

    Points and queries are of space. Both arrays have a row for each query; where there are fewer points, -1 and
    infinity stand.
    """
    search = _Search(points, queries, count)
    if len(points) and len(queries):
        everybody = np.arange(len(queries))
        tree = _tree(points, np.arange(len(points)))
        search.home(tree, everybody)
        search.walk(tree, everybody)
    order = np.argsort(search.squares, axis=1, kind="stable")
    squares = np.take_along_axis(search.squares, order, axis=1)
    found = np.take_along_axis(search.found, order, axis=1)
    there = np.isfinite(squares)
    km = surface.to_arc(np.sqrt(np.where(there, squares, 0.0)))
    there &= km <= reach
    return np.where(there, found, -1), np.where(there, km, np.inf)


def _tree(points: Floats, chosen: Ints) -> _Box:
    part = points[chosen]
    low, high = part.min(axis=0), part.max(axis=0)
    if len(chosen) <= _LEAF:
        return _Box(chosen, low, high)
    axis = int(np.argmax(high - low))
    middle = len(chosen) // 2
    order = np.argpartition(part[:, axis], middle)
    border = float(part[order[middle], axis])
    halves = (_tree(points, chosen[order[:middle]]), _tree(points, chosen[order[middle:]]))
    return _Box(chosen, low, high, axis, border, halves)


class _Search:
    """The best that every query has found so far, in no order."""

    def __init__(self, points: Floats, queries: Floats, count: int) -> None:
        self._points = points
        self._queries = queries
        self.found = np.full((len(queries), count), -1, dtype=np.int64)
        self.squares = np.full((len(queries), count), np.inf)
        self._worst = np.full(len(queries), np.inf)
        self._home = np.full(len(queries), -1, dtype=np.int64)

    def home(self, box: _Box, asking: Ints) -> None:
        """Look into the box that each query would belong to."""
        if box.halves is None:
            self._home[asking] = box.points[0]
            self._compare(box, asking)
            return
        below = self._queries[asking, box.axis] < box.border
        for half, side in zip(box.halves, (below, ~below), strict=True):
            if side.any():
                self.home(half, asking[side])

    def walk(self, box: _Box, asking: Ints) -> None:
        """Go on for those to whom something in the box may be nearer than what they have."""
        place = self._queries[asking]
        gap = np.maximum(np.maximum(box.low - place, place - box.high), 0.0)
        asking = asking[np.einsum("ij,ij->i", gap, gap) < self._worst[asking]]
        if box.halves is None:
            asking = asking[self._home[asking] != box.points[0]]
        if not len(asking):
            return
        if box.halves is None:
            self._compare(box, asking)
            return
        for half in box.halves:
            self.walk(half, asking)

    def _compare(self, box: _Box, asking: Ints) -> None:
        count = self.found.shape[1]
        gap = self._queries[asking][:, None, :] - self._points[box.points][None, :, :]
        squares = np.concatenate((self.squares[asking], np.einsum("ijk,ijk->ij", gap, gap)), axis=1)
        numbers = np.concatenate(
            (self.found[asking], np.broadcast_to(box.points, (len(asking), len(box.points)))), axis=1
        )
        best = np.argpartition(squares, count - 1, axis=1)[:, :count]
        self.squares[asking] = np.take_along_axis(squares, best, axis=1)
        self.found[asking] = np.take_along_axis(numbers, best, axis=1)
        self._worst[asking] = self.squares[asking].max(axis=1)


# Who is within how many km of whom: points of space in buckets, whole arrays at a time.
#
# A bucket is a cube of space. Whatever is nearer than the side of a cube lies in the same cube or in one of the 26
# around it, and three cubes in a column are one run of the sorted keys.


_CHUNK = 1 << 21
"""Pairs looked at in one go: some 100 MB."""
_CUBES_MAX = 1 << 20
"""Along an axis, so that a key fits 63 bits."""
_SLACK = 1e-9
"""Of a km: the rounding of a chord must not lose a place on the very edge."""


class _Buckets:
    """Points, sorted by their cube."""

    def __init__(self, points: Floats, side: float) -> None:
        self.points = points
        self._low = points.min(axis=0)
        extent = float((points.max(axis=0) - self._low).max())
        self.side = max(side, extent / _CUBES_MAX, 1e-6)
        cubes = self._cubes(points)
        # Two empty cubes on either side: neighbours of a border are no others' cubes.
        self._shape = cubes.max(axis=0) + 3
        keys = self._keys(cubes)
        self.order = np.argsort(keys, kind="stable")
        self._sorted = keys[self.order]

    def _cubes(self, points: Floats) -> Ints:
        cubes: Ints = np.floor((points - self._low) / self.side).astype(np.int64) + 2
        return cubes

    def _keys(self, cubes: Ints) -> Ints:
        keys: Ints = (cubes[:, 0] * self._shape[1] + cubes[:, 1]) * self._shape[2] + cubes[:, 2]
        return keys

    def pairs(self, queries: Floats) -> Iterator[tuple[Ints, Ints, Floats]]:
        """(query, point, chord) of all that may be nearer than the side, in chunks of whole queries."""
        cubes = np.clip(self._cubes(queries), 1, self._shape - 2)
        columns = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)]
        first = np.empty((len(queries), len(columns)), dtype=np.int64)
        counts = np.empty_like(first)
        for place, (x, y) in enumerate(columns):
            keys = self._keys(cubes + np.array([x, y, -1]))
            first[:, place] = np.searchsorted(self._sorted, keys, side="left")
            counts[:, place] = np.searchsorted(self._sorted, keys + 2, side="right") - first[:, place]
        ends = np.cumsum(counts.sum(axis=1))
        start = 0
        while start < len(queries):
            done = ends[start - 1] if start else 0
            stop = max(int(np.searchsorted(ends, done + _CHUNK, side="right")), start + 1)
            yield self._chunk(queries, np.arange(start, stop), first[start:stop], counts[start:stop])
            start = stop

    def _chunk(self, queries: Floats, chosen: Ints, first: Ints, counts: Ints) -> tuple[Ints, Ints, Floats]:
        flat = counts.ravel()
        total = int(flat.sum())
        offsets = np.repeat(first.ravel() - (np.cumsum(flat) - flat), flat)
        point = self.order[np.arange(total) + offsets]
        query = np.repeat(chosen, counts.sum(axis=1))
        gap = self.points[point] - queries[query]
        return query, point, np.sqrt(np.einsum("ij,ij->i", gap, gap))


def _classes(radii: Floats) -> Iterator[tuple[float, Ints]]:
    """Discs of like size, smallest first: a bound of their radii, and their numbers."""
    used = np.flatnonzero(radii > 0)
    level = np.ceil(np.log2(np.maximum(radii[used], 1e-3))).astype(np.int64)
    for value in np.unique(level):
        yield float(2.0**value), used[level == value]


def within(surface: Surface, centres: Floats, radii: Floats, places: Floats) -> tuple[Ints, Ints, Floats]:
    """All (disc, place, distance) with the place in the disc, edge included; a disc of radius 0 is none."""
    parts: list[tuple[Ints, Ints, Floats]] = []
    if len(places):
        for bound, discs in _classes(radii):
            chord_max = float(surface.to_chord(np.array(bound)))
            for disc, place, chord in _Buckets(places, chord_max * (1 + 1e-9) + _SLACK).pairs(centres[discs]):
                arc = surface.to_arc(chord)
                inside = arc <= radii[discs[disc]] + _SLACK
                parts.append((discs[disc[inside]], place[inside], arc[inside]))
    return _joined(parts)


def overlapping(surface: Surface, centres: Floats, radii: Floats) -> tuple[Ints, Ints]:
    """All pairs of discs that have a point in common, touching included: the lower number first."""
    parts: list[tuple[Ints, Ints, Floats]] = []
    smaller = np.zeros(0, dtype=np.int64)
    for bound, discs in _classes(radii):
        smaller = np.concatenate((smaller, discs))
        chord_max = float(surface.to_chord(np.array(2 * bound)))
        index = _Buckets(centres[smaller], chord_max * (1 + 1e-9) + _SLACK)
        for disc, other, chord in index.pairs(centres[discs]):
            a, b, arc = discs[disc], smaller[other], surface.to_arc(chord)
            meet = (arc <= radii[a] + radii[b] + _SLACK) & (a != b)
            parts.append((np.minimum(a[meet], b[meet]), np.maximum(a[meet], b[meet]), arc[meet]))
    first, second, _ = _joined(parts)
    both = np.unique(first * len(centres) + second)
    return both // max(len(centres), 1), both % max(len(centres), 1)


def _joined(parts: list[tuple[Ints, Ints, Floats]]) -> tuple[Ints, Ints, Floats]:
    if not parts:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    return (
        np.concatenate([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
        np.concatenate([part[2] for part in parts]),
    )
