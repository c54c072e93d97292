"""Who stands below whom in a world with secondary receivers (§4.1).

Sites 1 to m are the primary receivers; then come their children, in the order of their parents, then the children of
those. Everybody above the lowest layer has the same number of children.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.terms.ids import NodeId

__all__ = ["Layers"]


@dataclass(frozen=True, slots=True)
class Layers:
    """A tree of receivers: arithmetic on their numbers."""

    receivers: int
    """m, the first layer."""
    secondaries: int = 0
    """Children of each receiver that is not in the lowest layer."""
    layers: int = 1

    @property
    def secondary_sites(self) -> tuple[NodeId, ...]:
        """All secondary receivers."""
        return tuple(range(self.receivers + 1, self._before(self.layers) + 1))

    @property
    def parents(self) -> dict[NodeId, NodeId]:
        """Whom each secondary receiver asks."""
        return {site: self.parent(site) for site in self.secondary_sites}

    def _before(self, layer: int) -> int:
        """How many receivers stand above a layer, counted from 0."""
        return sum([self.receivers * self.secondaries**above for above in range(layer)])

    def depth(self, site: NodeId) -> int:
        """0 for a primary receiver, be it one of those that came later."""
        return next((layer for layer in range(self.layers) if site <= self._before(layer + 1)), 0)

    def parent(self, site: NodeId) -> NodeId:
        """The receiver right above; a primary one is its own."""
        layer = self.depth(site)
        if layer == 0:
            return site
        place = site - 1 - self._before(layer)
        return self._before(layer - 1) + place // self.secondaries + 1

    def children(self, site: NodeId) -> tuple[NodeId, ...]:
        """The receivers right below."""
        layer = self.depth(site)
        if layer == self.layers - 1 or site > self._before(self.layers):
            return ()
        place = site - 1 - self._before(layer)
        first = self._before(layer + 1) + place * self.secondaries + 1
        return tuple(range(first, first + self.secondaries))

    def backup(self, site: NodeId) -> NodeId:
        """The next primary receiver for the second layer, the parent's parent for those below it."""
        parent = self.parent(site)
        return self.parent(parent) if self.depth(parent) else parent % self.receivers + 1

    def root(self, site: NodeId) -> NodeId:
        """The primary receiver at the top."""
        while self.depth(site):
            site = self.parent(site)
        return site

    def steps_between(self, one: NodeId, other: NodeId) -> tuple[int, bool]:
        """Steps up and down the tree between two sites, and whether the way leads over two primary receivers."""
        steps = 0
        while one != other:
            if not self.depth(one) and not self.depth(other):
                return steps, True
            if self.depth(one) >= self.depth(other):
                one = self.parent(one)
            else:
                other = self.parent(other)
            steps += 1
        return steps, False
