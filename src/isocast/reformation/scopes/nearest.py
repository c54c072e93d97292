"""The nearest few, for a hundred thousand places in a moment, in cities and deserts alike: a tree of boxes.

Each box is halved across its longest side until few points are left. Every query first looks into the box that it
would belong to; then all queries walk through the tree together, and leave a branch that has nothing nearer for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.surface import Floats, Ints, Surface

__all__ = ["nearest"]

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
