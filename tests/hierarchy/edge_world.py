"""A small network in virtual time: lines that lose, delay, reorder and repeat, retransmit servers, customers.

Every (line, listener) pair draws from a stream of its own, so one more customer changes nothing for the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any

from tests.hierarchy.edge_makers import FIRE, MS, NOW, X1, quote, release, settings

from isocast.hierarchy.archive import (
    AnswerLimits,
    Archive,
    ArchiveRead,
    GiveRange,
    GiveSnapshot,
    RangeAsked,
    ReadArchive,
    SnapshotAsked,
    TurnAway,
)
from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import CustomerSettings, CustomerState, JoinPoint
from isocast.hierarchy.edge import (
    Deliver,
    FetchFailed,
    FetchRange,
    FetchSnapshot,
    MessagesReleased,
    RangeArrived,
    SendLine,
    SnapshotArrived,
)
from isocast.hierarchy.line_sender import LineSender
from isocast.nodes.retransmit_server import RetransmitServer, RetransmitSettings
from isocast.ring.effects import Unicast
from isocast.ring.inputs import Machine, PacketsArrived
from isocast.simulation.network import stream
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Packet, ReleasedPacket

__all__ = ["Host", "Link", "World", "symbol_of"]


@dataclass(frozen=True)
class Link:
    """How one line, or the way to a server, treats packets."""

    loss: float = 0.0
    delay_ns: int = MS
    jitter_ns: int = 0
    """Uniform, for each packet on its own: packets overtake each other."""
    repeat: float = 0.0
    """How often a packet comes twice."""


@dataclass
class Host:
    """A machine with a timer, and what it did."""

    node: NodeId
    machine: Machine[Any]
    armed: int = NEVER
    paused: deque[Packet] | None = None
    """While it does not run: what its socket holds, as much as fits."""
    told: list[tuple[int, object]] = field(default_factory=list)

    def effects(self, *kinds: type) -> list[object]:
        """What it did, of some kinds."""
        return [effect for _, effect in self.told if isinstance(effect, kinds)]

    def sequences(self) -> list[int]:
        """What it delivered, in order."""
        runs = [effect for _, effect in self.told if isinstance(effect, Deliver)]
        return [packet.sequence for run in runs for packet in run.packets]

    def deliveries(self) -> list[tuple[int, int, bytes]]:
        """When it delivered what."""
        return [
            (at, packet.sequence, packet.payload)
            for at, effect in self.told
            if isinstance(effect, Deliver)
            for packet in effect.packets
        ]


def symbol_of(sequence: int) -> str:
    """Messages are of eleven symbols."""
    return f"S{sequence % 11}"


SOCKET = 64
"""Packets that a paused host's socket holds."""
DOOR_NS = 2 * MS


class World:
    """Lines 1 and 2, servers, customers; one agenda."""

    def __init__(self, seed: int, link: Link, lines: tuple[NodeId, ...] = (1, 2)) -> None:
        """A network without listeners."""
        self.now = NOW
        self.seed = seed
        self.link = link
        self.links: dict[tuple[NodeId, NodeId], Link] = {}
        """Exceptions."""
        self.closed: set[NodeId] = set()
        """Doors that do not answer."""
        self.sent = 0
        """Messages that were released."""
        self.journal: list[bytes] = []
        self.archives: dict[NodeId, dict[int, ReleasedPacket]] = {}
        self.hosts: dict[NodeId, Host] = {}
        self.listeners: list[NodeId] = []
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._random: dict[tuple[NodeId, NodeId], Random] = {}
        for line in lines:
            self._add(line, LineSender(line, 0, 100 * MS))

    # Who takes part -----------------------------------------------------------------------------

    def _add(self, node: NodeId, machine: Machine[Any]) -> Host:
        host = self.hosts[node] = Host(node, machine)
        self._arm(host)
        return host

    def add_server(self, node: NodeId = X1, limits: AnswerLimits | None = None) -> Host:
        """A retransmit server of lines 1 and 2, which fills its gaps at their doors."""
        own = settings(servers=(1, 2), by_datagram=False, join=JoinPoint.SEQUENCE)
        self.archives[node] = {}
        self.listeners.append(node)
        rules = RetransmitSettings(own, limits or AnswerLimits(quiet_ns=10 * MS))
        return self._add(node, RetransmitServer(node, rules))

    def add_customer(self, node: NodeId, own: CustomerSettings, next_sequence: int = 0) -> Host:
        """A customer."""
        self.listeners.append(node)
        return self._add(node, Customer(node, own, CustomerState(next_sequence)))

    # What happens -------------------------------------------------------------------------------

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Do something at an instant, in the order of asking."""
        self._count += 1
        heappush(self._agenda, (when, self._count, action))

    def publish(self, at: int, count: int) -> None:
        """Both receivers release so many messages at an instant."""
        self.at(at, lambda: self._release(count))

    def _release(self, count: int) -> None:
        first = self.sent + 1
        payloads = tuple([quote(place, symbol=symbol_of(place)) for place in range(first, first + count)])
        self.sent += count
        self.journal.extend(payloads)
        for host in [host for host in self.hosts.values() if isinstance(host.machine, LineSender)]:
            self.step(host, MessagesReleased(release(first, payloads, instant=self.now), payloads))

    def pause(self, node: NodeId) -> None:
        """As by SIGSTOP."""
        host = self.hosts[node]
        host.paused, host.armed = deque(), NEVER

    def resume(self, node: NodeId) -> None:
        """Go on: the timer first, then what the socket kept."""
        host = self.hosts[node]
        kept, host.paused = host.paused, None
        self.step(host, FIRE)
        if kept:
            self.step(host, PacketsArrived(list(kept)))

    def run(self, until: int) -> None:
        """Let everything happen up to an instant."""
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, action = heappop(self._agenda)
            action()
        self.now = until

    # The network --------------------------------------------------------------------------------

    def step(self, host: Host, event: object) -> None:
        """Something happens to a host."""
        if host.paused is not None:
            if isinstance(event, PacketsArrived):
                host.paused.extend(list(event.packets)[: SOCKET - len(host.paused)])
            return
        for effect in host.machine.step(event, self.now):
            self._perform(host, effect)
        self._arm(host)

    def _arm(self, host: Host) -> None:
        deadline = max(host.machine.next_deadline(), self.now)
        if deadline < host.armed:
            host.armed = deadline
            if deadline < NEVER:
                self.at(deadline, lambda: self._wake(host, deadline))

    def _wake(self, host: Host, deadline: int) -> None:
        if host.armed == deadline and host.paused is None:
            host.armed = NEVER
            self.step(host, FIRE)

    def _perform(self, host: Host, effect: object) -> None:
        match effect:
            case SendLine(packets):
                for listener in self.listeners:
                    if listener != host.node:
                        self._travel(host.node, listener, packets)
            case Unicast(to, packet):
                self._travel(host.node, to, (packet,))
            case Archive(packets):
                self.archives[host.node].update({packet.sequence: packet for packet in packets})
            case ReadArchive(to, first, last):
                kept = self.archives[host.node]
                found = [kept[place] for place in range(first, last + 1)]
                self.at(self.now + MS, lambda: self.step(host, ArchiveRead(to, first, last, found)))
            case FetchRange(server, first, last):
                self._knock(host, server, RangeAsked(host.node, first, last))
            case FetchSnapshot(server):
                self._knock(host, server, SnapshotAsked(host.node))
            case GiveRange(customer, packets, low_water, newest):
                self._give(customer, RangeArrived(host.node, packets, low_water, newest))
            case GiveSnapshot(customer, snapshot):
                self._give(customer, SnapshotArrived(host.node, snapshot))
            case TurnAway(customer):
                self._give(customer, FetchFailed(host.node))
            case _:
                pass
        if not isinstance(effect, SendLine | Archive | ReadArchive | GiveRange | GiveSnapshot | Unicast):
            host.told.append((self.now, effect))

    def _travel(self, sender: NodeId, to: NodeId, packets: tuple[Packet, ...]) -> None:
        link = self.links.get((sender, to), self.link)
        random = self._random.get((sender, to))
        if random is None:
            random = self._random[sender, to] = stream(self.seed, sender, to)
        arrivals: dict[int, list[Packet]] = {}
        for packet in packets:
            copies = 1 + (random.random() < link.repeat)
            for _ in range(copies):
                late = random.randrange(link.jitter_ns + 1)
                if random.random() >= link.loss:
                    arrivals.setdefault(self.now + link.delay_ns + late, []).append(packet)
        host = self.hosts[to]
        for when, burst in arrivals.items():
            self.at(when, lambda burst=burst: self.step(host, PacketsArrived(burst)))  # type: ignore[misc]

    def _knock(self, host: Host, server: NodeId, event: RangeAsked | SnapshotAsked) -> None:
        """A receiver's door reads its journal; a server's is its machine's business."""
        other = self.hosts[server]
        if server in self.closed:
            self.at(self.now + DOOR_NS, lambda: self.step(host, FetchFailed(server)))
        elif isinstance(other.machine, LineSender) and isinstance(event, RangeAsked):
            answer = self._journal_range(server, event)
            self.at(self.now + DOOR_NS, lambda: self.step(host, answer))
        else:
            self.at(self.now + DOOR_NS, lambda: self.step(other, event))

    def _journal_range(self, server: NodeId, event: RangeAsked) -> RangeArrived:
        """What a receiver's journal holds of a range."""
        journal = [
            ReleasedPacket(0, (1, 65_537), server, 7, place, NOW, 0, place, 1, self.journal[place - 1], b"")  # type: ignore[arg-type]
            for place in range(event.first, min(event.last, self.sent) + 1)
        ]
        return RangeArrived(server, journal, 1, self.sent)

    def _give(self, customer: NodeId, event: object) -> None:
        self.at(self.now + DOOR_NS, lambda: self.step(self.hosts[customer], event))
