"""The small network with doors as processes have them, and with deaths: visits, patience, restarts from the disk.

    a visitor       has one request under way at each door, and leaves it alone until it is answered or too old
    a door          has one request of each visitor under way, its newest; it refuses what waits for too long
    a dead server   breaks its visits off and forgets every request; its archive stays
    a dead customer goes on after the last message that it delivered; its server does not notice

This is `runtime/hosts/customer.py` and `retransmit_door.py` without sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.hierarchy.edge_makers import MS, quote, release
from tests.hierarchy.edge_world import DOOR_NS, Host, World, symbol_of

from isocast.hierarchy.archive import (
    ArchiveRead,
    GiveRange,
    GiveSnapshot,
    RangeAsked,
    RangeWithdrawn,
    ReadArchive,
    SnapshotAsked,
    TurnAway,
)
from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import CustomerState
from isocast.hierarchy.edge import FetchFailed, MessagesReleased, RangeArrived, SnapshotArrived
from isocast.hierarchy.line_sender import LineSender
from isocast.nodes.retransmit_server import ArchiveState, RetransmitServer, RetransmitSettings
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER, SECOND

__all__ = ["ANSWER_NS", "PATIENCE_NS", "DoorWorld"]

ANSWER_NS = 5 * SECOND
"""A visitor waits so long for an answer."""
PATIENCE_NS = 2 * SECOND
"""A door waits so long for its machine."""


@dataclass
class _Visit:
    """A request under way, as both ends see it."""

    customer: NodeId
    server: NodeId
    is_asked: bool = True
    """Whether the visitor still waits."""
    is_waiting: bool = True
    """Whether the door still waits for its machine."""


@dataclass
class _Lives:
    """Who is dead, and how often everybody was born."""

    dead: set[NodeId] = field(default_factory=set)
    births: dict[NodeId, int] = field(default_factory=dict)


class DoorWorld(World):
    """Lines, servers and customers; servers and customers can die."""

    def __init__(self, *args: object, **given: object) -> None:
        """Nobody is asked yet."""
        super().__init__(*args, **given)  # type: ignore[arg-type]
        self._asking: dict[tuple[NodeId, NodeId], _Visit] = {}
        self._waiting: dict[tuple[NodeId, NodeId], _Visit] = {}
        self._lives = _Lives()
        self.rules: dict[NodeId, RetransmitSettings] = {}
        """What servers are told when they start."""
        self.refusals = 0
        self.kept = dict.fromkeys(
            [node for node, host in self.hosts.items() if isinstance(host.machine, LineSender)], 0
        )
        """How far each receiver's journal goes."""
        self.mute: set[NodeId] = set()
        """Receivers that die between their journal and their line."""

    # Deaths -------------------------------------------------------------------------------------

    def kill(self, node: NodeId, back_after: int) -> None:
        """As by SIGKILL; the next life begins some nanoseconds later."""
        lives, host = self._lives, self.hosts[node]
        if node in lives.dead:
            return
        lives.dead.add(node)
        lives.births[node] = lives.births.get(node, 0) + 1
        host.armed = NEVER
        for visit in [visit for visit in self._asking.values() if visit.server == node]:
            self._later(visit.customer, DOOR_NS, lambda visit=visit: self._answered(visit, FetchFailed(node)))  # type: ignore[misc]
        self._waiting = {key: visit for key, visit in self._waiting.items() if visit.server != node}
        self._asking = {key: visit for key, visit in self._asking.items() if visit.customer != node}
        self.at(self.now + back_after, lambda: self._revive(host))

    def _revive(self, host: Host) -> None:
        node, machine = host.node, host.machine
        self._lives.dead.discard(node)
        if isinstance(machine, LineSender):
            self.mute.discard(node)
            host.machine = LineSender(node, 0, 100 * MS, self.kept[node] + 1)
            self._later(node, 40 * MS, lambda: self._catch_up(host))
        elif isinstance(machine, RetransmitServer):
            kept = self.archives[node]
            state = ArchiveState(min(kept), max(kept) + 1) if kept else ArchiveState()
            host.machine = RetransmitServer(node, self.rules[node], state)
        elif isinstance(machine, Customer):
            got = host.sequences()
            host.machine = Customer(node, machine.settings, CustomerState(got[-1] + 1 if got else 0))
        self._arm(host)

    # Receivers ----------------------------------------------------------------------------------

    def _release(self, count: int) -> None:
        """Whoever lives, and is not behind, releases at once; nothing is published while nobody does."""
        ready = [node for node, kept in self.kept.items() if node not in self._lives.dead and kept == self.sent]
        if ready:
            first = self.sent + 1
            self.journal += [quote(place, symbol=symbol_of(place)) for place in range(first, first + count)]
            self.sent += count
            for node in ready:
                self._catch_up(self.hosts[node])

    def _catch_up(self, host: Host) -> None:
        """A receiver releases what it has not released: to its journal, then to its line."""
        first = self.kept[host.node] + 1
        payloads = tuple(self.journal[first - 1 :])
        self.kept[host.node] = self.sent
        if payloads and host.node not in self.mute:
            self.step(host, MessagesReleased(release(first, payloads, instant=self.now), payloads))

    def _journal_range(self, server: NodeId, event: RangeAsked) -> RangeArrived:
        kept = self.kept[server]
        found = super()._journal_range(server, RangeAsked(event.customer, event.first, min(event.last, kept)))
        return RangeArrived(server, found.packets, 1, kept)

    def add_server_with(self, node: NodeId, rules: RetransmitSettings) -> Host:
        """A server with limits of its own."""
        self.rules[node] = rules
        self.archives[node] = {}
        self.listeners.append(node)
        return self._add(node, RetransmitServer(node, rules))

    def _later(self, node: NodeId, after: int, action: Callable[[], None]) -> None:
        """In this life of a node or never."""
        births = self._lives.births.get(node, 0)

        def act() -> None:
            if self._lives.births.get(node, 0) == births:
                action()

        self.at(self.now + after, act)

    def step(self, host: Host, event: object) -> None:
        """The dead hear nothing."""
        if host.node not in self._lives.dead:
            super().step(host, event)

    def _perform(self, host: Host, effect: object) -> None:
        if isinstance(effect, ReadArchive):
            kept = self.archives[host.node]
            found = [kept[place] for place in range(effect.first, effect.last + 1)]
            read = ArchiveRead(effect.to, effect.first, effect.last, found)
            self._later(host.node, MS, lambda: self.step(host, read))
        elif isinstance(effect, GiveRange):
            self._give_at(
                host.node, effect.customer, RangeArrived(host.node, effect.packets, effect.low_water, effect.newest)
            )
        elif isinstance(effect, GiveSnapshot):
            self._give_at(host.node, effect.customer, SnapshotArrived(host.node, effect.snapshot))
        elif isinstance(effect, TurnAway):
            self._give_at(host.node, effect.customer, None)
        else:
            super()._perform(host, effect)

    # Visits -------------------------------------------------------------------------------------

    def drop_visits(self, server: NodeId) -> None:
        """Connections break; the door's machine goes on with what it was asked for."""
        for visit in [visit for visit in self._asking.values() if visit.server == server]:
            self._answered(visit, FetchFailed(server))

    def _knock(self, host: Host, server: NodeId, event: RangeAsked | SnapshotAsked) -> None:
        key = host.node, server
        if key in self._asking:
            return  # Left alone until it is answered.
        visit = self._asking[key] = _Visit(host.node, server)
        self._later(host.node, ANSWER_NS, lambda: self._answered(visit, FetchFailed(server)))
        if server in self.closed or server in self._lives.dead:
            self._later(host.node, DOOR_NS, lambda: self._answered(visit, FetchFailed(server)))
        elif isinstance(self.hosts[server].machine, LineSender):
            assert isinstance(event, RangeAsked)
            answer = self._journal_range(server, event)
            self._later(host.node, DOOR_NS, lambda: self._answered(visit, answer))
        else:
            self._later(server, DOOR_NS, lambda: self._enter(visit, event))

    def _enter(self, visit: _Visit, event: RangeAsked | SnapshotAsked) -> None:
        key = visit.customer, visit.server
        earlier = self._waiting.get(key)
        if earlier is not None:
            self._refuse(earlier)
        self._waiting[key] = visit
        self._later(visit.server, PATIENCE_NS, lambda: self._lapse(visit))
        self.step(self.hosts[visit.server], event)

    def _lapse(self, visit: _Visit) -> None:
        if visit.is_waiting:
            self.step(self.hosts[visit.server], RangeWithdrawn(visit.customer))
            self._refuse(visit)

    def _refuse(self, visit: _Visit) -> None:
        self.refusals += 1
        self._close(visit)
        self._later(visit.customer, DOOR_NS, lambda: self._answered(visit, FetchFailed(visit.server)))

    def _close(self, visit: _Visit) -> None:
        visit.is_waiting = False
        key = visit.customer, visit.server
        if self._waiting.get(key) is visit:
            del self._waiting[key]

    def _give_at(self, server: NodeId, customer: NodeId, answer: object) -> None:
        visit = self._waiting.get((customer, server))
        if visit is None:
            return
        if answer is None:
            self._refuse(visit)
            return
        self._close(visit)
        self._later(visit.customer, DOOR_NS, lambda: self._answered(visit, answer))

    def _answered(self, visit: _Visit, answer: object) -> None:
        key = visit.customer, visit.server
        if self._asking.get(key) is visit:
            del self._asking[key]
            self.step(self.hosts[visit.customer], answer)
