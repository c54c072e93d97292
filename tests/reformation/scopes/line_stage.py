"""Servers and receivers that agree on plans of lines, on a network that loses, delays and repeats, in virtual time.

Rings are given from outside: here only the plan is at stake.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from ipaddress import IPv4Address
from random import Random

import numpy as np

from isocast.reformation.scopes.line_keeper import (
    KeepLines,
    LineInput,
    LineKeeper,
    LinesSettled,
    LineState,
    PlanFailed,
    PlanMade,
)
from isocast.reformation.scopes.line_planner import LinePlanner
from isocast.reformation.scopes.world import AddressPool, CoverageWorld, Places, ScopeRules, Surface
from isocast.ring.effects import Multicast, Unicast
from isocast.ring.inputs import PacketsArrived, TimerFired
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, is_server, server_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.timing import PROFILES
from isocast.terms.topology import CITIES, City
from isocast.wire.codec import decode, encode
from isocast.wire.packets import NO_DIGEST, NO_NONCE, Lines, NewRing, Packet

__all__ = ["CUSTOMERS", "DRAIN_NS", "PLACES", "SERVERS", "Stage", "new_ring", "world_of"]

DRAIN_NS = 20 * SECOND
TIMING = PROFILES["lan"].timing(8)
PLACES: dict[NodeId, City] = dict(enumerate(CITIES[:8], 1))
CUSTOMERS: tuple[City, ...] = (*CITIES[:8], CITIES[13], CITIES[14], CITIES[18])
SERVERS = (server_id(1), server_id(2), server_id(3))


def _places(places: Iterable[tuple[str, City]]) -> Places:
    rows = list(places)
    return Places(tuple([name for name, _ in rows]), np.array([(place.latitude, place.longitude) for _, place in rows]))


def world_of(sites: tuple[NodeId, ...], *, count: int = 16, first: str = "239.255.80.0") -> CoverageWorld:
    """Eight cities with customers in eleven."""
    return CoverageWorld(
        Surface.EARTH,
        _places([(str(site), PLACES[site]) for site in sorted(sites)]),
        _places([(place.name, place) for place in CUSTOMERS]),
        rules=ScopeRules(delay_max_ns=200 * MILLISECOND),
        pool=AddressPool(IPv4Address(first), count=count, drain_ns=DRAIN_NS),
    )


def new_ring(number: int, decider: NodeId, sites: tuple[NodeId, ...]) -> NewRing:
    """A ring of these sites, of all eight in U."""
    ballot = Epoch(number, decider)
    universe = tuple(PLACES)
    return NewRing(
        0, ballot, decider, ballot, sites, 1, 1, 0, NO_EPOCH, 0, NO_DIGEST, (), (NO_NONCE,) * len(sites), universe, ()
    )


class Stage:
    """Everybody, and the packets on their way."""

    def __init__(self, seed: int = 1, *, loss: float = 0.0, servers: int = 3, count: int = 16) -> None:
        """Nobody knows a ring yet."""
        self.now = 1_000 * SECOND
        self.settled: list[tuple[int, NodeId, Lines]] = []
        """(when, who, what): every plan that a line followed."""
        self.made: list[PlanMade] = []
        self.failed: list[PlanFailed] = []
        self.loss = loss
        self._count = count
        self._random = Random(seed)
        self._names = SERVERS[:servers]
        self.disks: dict[NodeId, LineState] = {}
        self.nodes: dict[NodeId, LinePlanner | LineKeeper] = {}
        self.rings: dict[NodeId, NewRing] = {}
        self._mail: list[tuple[int, int, NodeId, bytes]] = []
        self._sent = 0
        for node in (*self._names, *PLACES):
            self.start(node)

    def start(self, node: NodeId) -> None:
        """Start, or restart from the disk."""
        state = self.disks.get(node)
        if is_server(node):
            self.nodes[node] = LinePlanner(node, self._names, 0, TIMING, self._world, state)
        else:
            self.nodes[node] = LineKeeper(node, 0, TIMING.retry_ns, state)

    def _world(self, sites: tuple[NodeId, ...]) -> CoverageWorld:
        return world_of(sites, count=self._count)

    def stop(self, node: NodeId) -> None:
        """kill -9."""
        del self.nodes[node]

    def keeper(self, site: NodeId) -> LineKeeper:
        """A receiver's part."""
        node = self.nodes[site]
        assert isinstance(node, LineKeeper)
        return node

    def planner(self, server: NodeId) -> LinePlanner:
        """A server's part."""
        node = self.nodes[server]
        assert isinstance(node, LinePlanner)
        return node

    def ring(self, ring: NewRing, nodes: Iterable[NodeId] | None = None) -> None:
        """These learn of a ring: all that run, unless told otherwise."""
        for node in list(self.nodes) if nodes is None else nodes:
            if node in self.nodes and (is_server(node) or node in ring.ring):
                self.rings[node] = ring
                self._step(node, TimerFired())

    def run(self, span_ns: int) -> None:
        """Let so much time pass."""
        end = self.now + span_ns
        while True:
            wake = min([(node.next_deadline(), name) for name, node in self.nodes.items()])
            letter = self._mail[0][0] if self._mail else end + 1
            at = min(wake[0], letter)
            if at > end:
                break
            self.now = max(self.now, at)
            if letter <= wake[0]:
                _, _, to, frame = heappop(self._mail)
                if to in self.nodes:
                    self._step(to, PacketsArrived([decode(frame)]))
            else:
                self._step(wake[1], TimerFired())
        self.now = end

    def _step(self, name: NodeId, event: LineInput) -> None:
        for effect in self.nodes[name].step(event, self.now, self.rings.get(name)):
            match effect:
                case KeepLines(state):
                    self.disks[name] = state
                case Multicast(packet):
                    for to in (*self._names, *PLACES):
                        if to != name:
                            self._send(to, packet)
                case Unicast(to, packet):
                    self._send(to, packet)
                case LinesSettled(lines):
                    self.settled.append((self.now, name, lines))
                case PlanMade():
                    self.made.append(effect)
                case PlanFailed():
                    self.failed.append(effect)

    def _send(self, to: NodeId, packet: Packet) -> None:
        for _ in range(1 + (self._random.random() < self.loss / 2)):
            if self._random.random() >= self.loss:
                self._sent += 1
                delay = self._random.randrange(MILLISECOND, 40 * MILLISECOND)
                heappush(self._mail, (self.now + delay, self._sent, to, encode(packet)))
