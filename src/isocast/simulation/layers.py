"""Who stands below whom in a world with secondary receivers, customers and secondary sources (§4.1, §4.2).

Sites 1 to m are the primary receivers; then come their children, in the order of their parents, then the children of
those. Everybody above the lowest layer has the same number of children. Archives (retransmit servers) and customers
are at the edge of the network; secondary sources are numbered after the primary ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.terms.ids import NodeId, other_id, source_id

__all__ = [
    "NO_EDGE",
    "Edge",
    "Layers",
    "archive_id",
    "customer_id",
    "is_edge",
    "is_narrow",
    "narrow_id",
    "stripe_sender_id",
]

_FIRST_CUSTOMER = 1_000
_FIRST_STRIPE_SENDER = 2_000
_FIRST_NARROW = 3_000
_NUMBERS = 1_000
_EDGE_IDS = range(other_id(1), other_id(_FIRST_CUSTOMER + _NUMBERS + 1))
_NARROW_IDS = range(other_id(_FIRST_STRIPE_SENDER + 1), other_id(_FIRST_NARROW + _NUMBERS + 1))


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


def archive_id(number: int) -> NodeId:
    """The node id of archive `number`, from 1."""
    return other_id(number)


def customer_id(number: int) -> NodeId:
    """The node id of customer `number`, from 1."""
    return other_id(_FIRST_CUSTOMER + number)


def stripe_sender_id(number: int) -> NodeId:
    """The node id of sender `number` of narrow stripes, from 1."""
    return other_id(_FIRST_STRIPE_SENDER + number)


def narrow_id(number: int) -> NodeId:
    """The node id of customer `number` of narrow stripes, from 1."""
    return other_id(_FIRST_NARROW + number)


def is_edge(node: NodeId) -> bool:
    """Whether the id is that of an archive or a customer."""
    return node in _EDGE_IDS


def is_narrow(node: NodeId) -> bool:
    """Whether the id is that of a sender or a customer of narrow stripes."""
    return node in _NARROW_IDS


@dataclass(frozen=True, slots=True)
class Edge:
    """How many nodes there are at the edge, and whom each of them hears or asks."""

    archives: int = 0
    customers: int = 0
    """Of grade complete."""
    latest_customers: int = 0
    """Of grade latest; they are numbered after the complete ones."""
    secondary_sources: int = 0
    stripe_senders: int = 0
    """Of narrow stripes; the first follows the journal of site 1, and so on."""
    narrow_customers: int = 0
    narrow_stripes: int = 3
    """Of which the last is the spare one."""
    stripe_bytes: int = 400
    """IP bytes of a narrow stripe in any token period."""
    forgers: int = 0
    """Of the customers, the first so many send in the names of the lines that they hear."""
    narrow_forgers: int = 0
    """Of the customers of narrow stripes, the last so many send in the names of the senders that they hear."""

    def __bool__(self) -> bool:
        """Whether there is anybody."""
        return bool(
            self.archives
            or self.customers
            or self.latest_customers
            or self.secondary_sources
            or self.stripe_senders
            or self.narrow_customers
        )

    @property
    def archive_nodes(self) -> tuple[NodeId, ...]:
        """All retransmit servers."""
        return tuple(map(archive_id, range(1, self.archives + 1)))

    @property
    def customer_nodes(self) -> tuple[NodeId, ...]:
        """All customers, the complete ones first."""
        return tuple(map(customer_id, range(1, self.customers + self.latest_customers + 1)))

    @property
    def complete_nodes(self) -> tuple[NodeId, ...]:
        """Customers of grade complete."""
        return self.customer_nodes[: self.customers]

    @property
    def latest_nodes(self) -> tuple[NodeId, ...]:
        """Customers of grade latest."""
        return self.customer_nodes[self.customers :]

    def secondary_source_nodes(self, sources: int) -> tuple[NodeId, ...]:
        """All secondary sources, `sources` primary ones being there."""
        return tuple(map(source_id, range(sources + 1, sources + self.secondary_sources + 1)))

    @property
    def stripe_sender_nodes(self) -> tuple[NodeId, ...]:
        """All senders of narrow stripes."""
        return tuple(map(stripe_sender_id, range(1, self.stripe_senders + 1)))

    @property
    def narrow_nodes(self) -> tuple[NodeId, ...]:
        """All customers of narrow stripes."""
        return tuple(map(narrow_id, range(1, self.narrow_customers + 1)))

    def number(self, node: NodeId) -> int:
        """Of an archive, a customer or a sender, from 1."""
        number = node - other_id(0)
        for first in (_FIRST_NARROW, _FIRST_STRIPE_SENDER, _FIRST_CUSTOMER):
            if number > first:
                return number - first
        return number

    def stripe_lines(self, node: NodeId) -> tuple[NodeId, ...]:
        """The senders, two if there are, whose narrow stripes a customer hears."""
        place, nodes = self.number(node) - 1, self.stripe_sender_nodes
        return tuple(dict.fromkeys([nodes[(place + following) % len(nodes)] for following in (0, 1)]))

    def wants_everything(self, node: NodeId) -> bool:
        """Whether a customer of narrow stripes asks for what it lacks: every other one, from the first on."""
        return self.number(node) % 2 == 1

    def lines(self, node: NodeId, sites: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """The two receivers whose lines a node hears: archive 1 those of the first sites, customer 1 of the last."""
        place = self.number(node) - 1
        ordered = sites if node in self.archive_nodes else sites[::-1]
        return tuple([ordered[(2 * place + next_) % len(sites)] for next_ in (0, 1)])

    def servers(self, node: NodeId) -> tuple[NodeId, ...]:
        """The archives that a customer asks, in its own order."""
        nodes = self.archive_nodes
        turn = self.number(node) % len(nodes) if nodes else 0
        return nodes[turn:] + nodes[:turn]

    @staticmethod
    def parent(place: int, sources: int) -> int:
        """The number of the primary source to which the secondary source at a place, from 0, forwards."""
        return place % sources + 1


NO_EDGE = Edge()
"""Nobody beyond the receivers."""
