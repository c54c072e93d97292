"""Who is within how many km of whom: points of space in buckets, whole arrays at a time.

A bucket is a cube of space. Whatever is nearer than the side of a cube lies in the same cube or in one of the 26
around it, and three cubes in a column are one run of the sorted keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from isocast.reformation.scopes.surface import Floats, Ints, Surface

__all__ = ["overlapping", "within"]

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
