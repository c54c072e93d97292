"""The network between trusted receivers: who stands where, below whom, and behind which edges of the tree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from isocast.reformation.scopes.surface import Floats, Ints, Surface
from isocast.studies.planet.draws import lost_places

__all__ = ["CoreNet", "Pairs", "TreeLevel"]

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TreeLevel:
    """Edges of one level of the multicast tree: the edge of each receiver."""

    edge_of: Ints

    @cached_property
    def edges(self) -> int:
        """How many there are."""
        return int(self.edge_of.max()) + 1 if len(self.edge_of) else 0

    @cached_property
    def _members(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.edge_of, kind="stable")
        return order, np.searchsorted(self.edge_of[order], np.arange(self.edges + 1))

    def behind(self, edges: Ints) -> tuple[Ints, Ints]:
        """Everybody behind these edges: for each the place in `edges`, and the receiver."""
        order, starts = self._members
        counts = starts[edges + 1] - starts[edges]
        place = np.repeat(np.arange(len(edges)), counts)
        offset = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        return place, order[starts[edges][place] + offset]


@dataclass(frozen=True, eq=False)
class Pairs:
    """What is missing where: receiver and item, row by row; item 0 is the token itself."""

    receiver: Ints
    item: Ints

    def __len__(self) -> int:
        return len(self.receiver)

    def of(self, chosen: Flags) -> Pairs:
        """Some rows."""
        return Pairs(self.receiver[chosen], self.item[chosen])


@dataclass(frozen=True, eq=False)
class CoreNet:
    """Receivers 0 to n-1 as points of space; the ring names its members by these numbers."""

    points: Floats
    ring: Ints
    parent: Ints
    """The primary receiver that each asks; a primary one is its own."""
    levels: tuple[TreeLevel, ...]
    """From the root of the tree to the leaves, which are no level of their own."""
    ns_per_km: float
    base_ns: float
    """Of any path, however short."""
    below_ns: float = 0.0
    """On top of the way to a receiver below the ring, for worlds whose delays are told and not measured."""

    @property
    def size(self) -> int:
        """N."""
        return len(self.points)

    @cached_property
    def primary(self) -> Flags:
        """Who is on the ring."""
        flags = np.zeros(self.size, dtype=np.bool_)
        flags[self.ring] = True
        return flags

    @cached_property
    def ring_place(self) -> Ints:
        """Of each receiver; -1 below the ring."""
        place = np.full(self.size, -1, dtype=np.int64)
        place[self.ring] = np.arange(len(self.ring))
        return place

    @cached_property
    def parent_ns(self) -> Floats:
        """One way between a receiver and its parent."""
        arc = Surface.EARTH.to_arc(np.linalg.norm(self.points - self.points[self.parent], axis=1))
        return np.where(self.primary, 0.0, arc * self.ns_per_km + (self.below_ns or self.base_ns))

    def delay_ns(self, sender: int) -> Floats:
        """One way from a primary receiver to everybody."""
        arc = Surface.EARTH.to_arc(np.linalg.norm(self.points - self.points[sender], axis=1))
        return arc * self.ns_per_km + self.base_ns + np.where(self.primary, 0.0, self.below_ns)

    # Losses -------------------------------------------------------------------------------------

    def edge_loss(self, loss: float, *, tree: bool) -> float:
        """Of each edge on the way, so that every receiver still loses `loss` in all."""
        return float(1 - (1 - loss) ** (1 / (len(self.levels) + 1))) if tree else loss

    def losses(self, random: np.random.Generator, items: int, loss: float, owner: int, *, tree: bool) -> Pairs:
        """What of a token and its messages does not arrive, each pair once; item 0 is the token itself.

        Messages that the owner lacks are not in its token: what is in it passed every edge that leads to the owner.
        """
        each = self.edge_loss(loss, tree=tree)
        flat = [lost_places(random, items * self.size, each)]
        for level in self.levels if tree else ():
            item, edge = np.divmod(lost_places(random, items * level.edges, each), level.edges)
            possible = (item == 0) | (edge != level.edge_of[owner])
            item, edge = item[possible], edge[possible]
            place, receiver = level.behind(edge)
            flat.append(item[place] * self.size + receiver)
        all_lost = np.unique(np.concatenate(flat)) if len(flat) > 1 else flat[0]
        item, receiver = np.divmod(all_lost, self.size)
        return Pairs(receiver, item).of(receiver != owner)

    def copies_passed(
        self, random: np.random.Generator, receiver: Ints, copy: Ints, copies: int, loss: float, *, tree: bool
    ) -> Flags:
        """Whether each of some multicast copies reaches a receiver; rows of one copy share its edges."""
        each = self.edge_loss(loss, tree=tree)
        passed = random.random(len(receiver)) >= each
        for level in self.levels if tree else ():
            lost = random.random((copies, level.edges)) < each
            passed &= ~lost[copy, level.edge_of[receiver]]
        return passed
