"""The edge of a simulated market (Figure 2): lines, archives, customers, and secondary sources.

Every receiver writes a journal and sends on its line as the product's does; archives (retransmit servers) and customers
hear the lines of two receivers each. Lines and requests are datagrams of the world's network, which loses them. Doors
are TCP: what passes at all arrives, what is cut off or down is silent.

A door's visitor has one request under way at each door, and leaves it alone until it is answered or too old. A door has
one request of each visitor under way, its newest, and refuses what waits for too long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from struct import Struct
from typing import Any, TypeAlias, TypeVar

from isocast.checks.facts import Delivered, Entrusted, Given, LatestDelivered, LeftOut, SnapshotTaken
from isocast.hierarchy.archive import (
    Archive,
    ArchiveRead,
    GiveRange,
    GiveSnapshot,
    KeepSnapshot,
    RangeAsked,
    RangeWithdrawn,
    ReadArchive,
    SnapshotAsked,
    TurnAway,
)
from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import CustomerSettings, CustomerState, Grade, JoinPoint
from isocast.hierarchy.edge import (
    Deliver,
    DeliverLatest,
    DeliverSnapshot,
    FetchFailed,
    FetchRange,
    FetchSnapshot,
    GapAbandoned,
    MessagesReleased,
    RangeArrived,
    SendLine,
    SnapshotArrived,
)
from isocast.hierarchy.forwarding import Forward, ForwardAccepted, ForwardFailed, ForwardSettings, SecondarySource
from isocast.hierarchy.line_sender import LineSender
from isocast.hierarchy.proving import LineProver, ProofTerms
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.retransmit_server import ArchiveState, RetransmitServer, RetransmitSettings
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.ring.effects import Persist, PublishAccepted, Release, Unicast
from isocast.ring.inputs import Machine, PublishRequested, TimerFired
from isocast.ring.source import OutboxState
from isocast.simulation.forging import LineForger
from isocast.simulation.host import Ordinary, SimulatedHost
from isocast.simulation.layers import is_narrow
from isocast.simulation.narrow import NarrowWorld
from isocast.simulation.network import stream
from isocast.simulation.signatures import KeyedSigner
from isocast.simulation.world import World
from isocast.terms.ids import NodeId, is_site, is_source
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import EventKind, MarketStatus, Side
from isocast.wire.codec import decode, encode
from isocast.wire.packets import Packet, ReleasedPacket, payload_digest

__all__ = ["EdgeWorld", "event_payload"]

_ANSWER_NS = SECOND
"""A visitor waits so long for an answer."""
_PATIENCE_NS = SECOND // 2
"""A door waits so long for its machine."""
_FORWARD_NS = SECOND // 2
"""A secondary source waits so long for its parent."""
_JOINS = (JoinPoint.SEQUENCE, JoinPoint.NOW, JoinPoint.SNAPSHOT)
"""Where complete customers begin, in turn."""
_BATCH = 4
"""Messages that a secondary source offers at once."""
_STOPPED_NS = 10 * MILLISECOND
"""How often it is looked whether a process that is stopped goes on."""
_TIMER_FIRED = TimerFired()

_Event = TypeVar("_Event")
_Answer: TypeAlias = RangeArrived | SnapshotArrived | FetchFailed

_EVENT = Struct("<BBH4s8sqIIQQ")
_SYMBOLS = (5, 3)
"""How many symbols the first event of a message is of, and the second."""
_STATUS_EVERY = 7
_PRICES = 1_000_000
_FORWARDED = 1 << 32
"""Keys of messages for secondary sources begin here."""
_FORGED = 1 << 33
"""And of those that nobody published."""
_MARKET = bytes(32)
"""As signatures name the only market there is."""


def event_payload(key: int, size: int, *, traded: bool = False) -> bytes:
    """Quotes of a few symbols, whose price is the key: what customers of grade latest can read.

    `traded`: trades instead, and a status now and then, as narrow stripes carry them.
    """
    if traded:
        return b"".join([_traded(key, place) for place in range(size // _EVENT.size)])
    events = []
    for place in range(size // _EVENT.size):
        many = _SYMBOLS[place % len(_SYMBOLS)]
        symbol = f"{'AB'[place % 2]}{key % many}".encode()
        events.append(_EVENT.pack(EventKind.QUOTE, Side.BUY, 0, b"XNYS", symbol, key, 1, 0, key, key))
    return b"".join(events)


def _traded(key: int, place: int) -> bytes:
    symbol = f"{'AB'[place % 2]}{key % _SYMBOLS[place % len(_SYMBOLS)]}".encode()
    if place % 2 and key % _STATUS_EVERY == 0:
        status = key // _STATUS_EVERY % len(MarketStatus) + 1
        return _EVENT.pack(EventKind.STATUS, Side.NONE, 0, b"XNYS", symbol, 0, 0, status, key, key)
    return _EVENT.pack(EventKind.TRADE, Side.NONE, 0, b"XNYS", symbol, key % _PRICES, 1, 0, key, 2 * key + place % 2)


# ---- What nodes keep.


@dataclass(slots=True)
class SimulatedJournal:
    """Released messages on a disk: everything from `low_water` up to the one before `next_sequence`."""

    packets: dict[int, ReleasedPacket] = field(default_factory=dict)
    low_water: int = 1
    next_sequence: int = 1

    def append(self, packets: tuple[ReleasedPacket, ...]) -> None:
        """Add what is new; behind a hole the journal begins again."""
        for packet in packets:
            sequence = packet.sequence
            if sequence < self.next_sequence:
                continue
            if sequence > self.next_sequence:
                self.packets.clear()
                self.low_water = sequence
            self.packets[sequence] = packet
            self.next_sequence = sequence + 1

    def read(self, first: int, last: int) -> tuple[ReleasedPacket, ...]:
        """What there is of a range."""
        end = min(last, self.next_sequence - 1)
        return tuple([self.packets[sequence] for sequence in range(max(first, self.low_water), end + 1)])

    def has(self, first: int, last: int) -> bool:
        """Whether it has anything of a range."""
        return max(first, self.low_water) <= min(last, self.next_sequence - 1)


@dataclass(slots=True)
class _Disk:
    """What an archive or a customer remembers."""

    state: ArchiveState | CustomerState
    journal: SimulatedJournal = field(default_factory=SimulatedJournal)


@dataclass(slots=True, eq=False)
class _Line:
    """A receiver's line: its sending end, in the life of the receiver for which it was made."""

    sender: LineSender
    life: Machine[Ordinary, object] | None


@dataclass(slots=True, eq=False)
class _Visit:
    """A request under way at a door."""

    host: SimulatedHost
    life: Machine[Ordinary, object] | None
    server: NodeId


class EdgeWorld:
    """Everything beyond the ring and its layers, in one world."""

    def __init__(self, world: World) -> None:
        """Everybody is up and nothing has happened."""
        self.world = world
        self.plan = world.scenario.edge
        self.archives = self.plan.archive_nodes
        self.customers = self.plan.customer_nodes
        self.secondary_sources = self.plan.secondary_source_nodes(world.scenario.sources)
        self._own = (*self.archives, *self.customers, *self.secondary_sources)
        self.narrow = NarrowWorld(world) if self.plan.stripe_senders else None
        self.everybody = self._own if self.narrow is None else (*self._own, *self.narrow.everybody)
        self.parents = {
            node: world.sources[self.plan.parent(place, world.scenario.sources) - 1]
            for place, node in enumerate(self.secondary_sources)
        }
        """Of each secondary source: the primary source that trusts it, under its first id."""
        self.journals: dict[NodeId, SimulatedJournal] = {}
        self.left = self._messages()
        self._settings = self._all_settings()
        self._heartbeat_ns = CustomerSettings.from_timing(world.settings.timing, (1,), (1,)).heartbeat_ns
        self._disks: dict[NodeId, _Disk] = {}
        self._outboxes: dict[NodeId, OutboxState] = {}
        self._lines: dict[NodeId, _Line] = {}
        self._proofs = self._proof_terms()
        self._forgers = self._liars()
        self._listeners = self._audiences()
        self._asking: dict[tuple[NodeId, NodeId], _Visit] = {}
        self._waiting: dict[tuple[NodeId, NodeId], _Visit] = {}
        self._key = _FORWARDED
        for node in self._own:
            self.forget(node)
            host = world.add_host(node, self.machine(node), self.perform)
            host.arm()
        for site in world.all_sites:
            self._begin_line(site)
        self._perform_by = self._performers()

    # Signatures ---------------------------------------------------------------------------------

    def _proof_terms(self) -> ProofTerms | None:
        """By what customers judge lines; None in a world without signatures."""
        return None if self.world.scenario.signatures == "off" else ProofTerms(_MARKET, self.world.verifier)

    def _prover(self, node: NodeId) -> LineProver | None:
        """Of the owner of a line."""
        if self._proofs is None:
            return None
        return LineProver(KeyedSigner(self.world.seed, node), _MARKET, node.to_bytes(16))

    def _liars(self) -> tuple[LineForger, ...]:
        size, traded = self.world.scenario.payload_bytes, self.narrow is not None
        return tuple(
            [
                LineForger(
                    self.world.seed,
                    node,
                    KeyedSigner(self.world.seed, node),
                    _MARKET,
                    lambda number: event_payload(_FORGED + number, size, traded=traded),
                )
                for node in self.customers[: self.plan.forgers]
            ]
        )

    def _forge(self, owner: NodeId, audience: tuple[NodeId, ...], packets: tuple[ReleasedPacket, ...]) -> None:
        """Who forges has heard a burst, and answers it in its owner's name."""
        for liar in self._forgers:
            forged = liar.hear(packets)
            if liar.node != owner and forged and self.world.hosts[liar.node].running:
                self.world.network.multicast(liar.node, audience, forged)

    # Who hears whom -----------------------------------------------------------------------------

    def _all_settings(self) -> dict[NodeId, CustomerSettings]:
        plan, world = self.plan, self.world
        timing, sites = world.settings.timing, world.all_sites
        found: dict[NodeId, CustomerSettings] = {}
        for node in (*self.archives, *self.customers):
            lines = plan.lines(node, sites)
            if node in self.archives:
                own = CustomerSettings.from_timing(timing, lines, lines, join=JoinPoint.SEQUENCE)
                found[node] = replace(own, by_datagram=False, last_resorts=sites)
            elif node in plan.latest_nodes:
                found[node] = CustomerSettings.from_timing(timing, lines, plan.servers(node), Grade.LATEST)
            else:
                join = _JOINS[(plan.number(node) - 1) % len(_JOINS)]
                own = CustomerSettings.from_timing(timing, lines, plan.servers(node), join=join)
                found[node] = replace(own, last_resorts=sites)
        return found

    def _audiences(self) -> dict[NodeId, tuple[NodeId, ...]]:
        """Who hears the line of a node."""
        found: dict[NodeId, list[NodeId]] = {}
        for node, settings in self._settings.items():
            heard = settings.lines if node in self.archives else (*settings.lines, *settings.servers)
            for owner in heard:
                found.setdefault(owner, []).append(node)
        return {owner: tuple(nodes) for owner, nodes in found.items()}

    def machine(self, node: NodeId) -> Machine[Ordinary, object]:
        """A machine made from what the node's disk says."""
        build = self.world.build
        if self.narrow is not None and node in self.narrow.everybody:
            return self.narrow.machine(node)
        if is_source(node):
            own = ForwardSettings(self.world.scenario.payload_bytes, batch_max=_BATCH)
            return build.forwarder(node, own, self._outboxes[node])
        state, settings = self._disks[node].state, self._settings[node]
        if isinstance(state, ArchiveState):
            own_prover = self._prover(node)
            return build.archive(node, RetransmitSettings(settings), replace(state), self._proofs, own_prover)
        return build.customer(node, settings, replace(state), self._proofs)

    def forget(self, node: NodeId) -> None:
        """A node's disk is blank: of a receiver, its journal."""
        if self.narrow is not None:
            self.narrow.forget(node)
        if is_narrow(node):
            return
        if is_site(node):
            self.journals[node] = SimulatedJournal()
        elif is_source(node):
            self._outboxes[node] = OutboxState()
        else:
            self._disks[node] = _Disk(ArchiveState() if node in self.archives else CustomerState())

    # Receivers' lines and journals --------------------------------------------------------------

    def _begin_line(self, site: NodeId) -> None:
        self.journals.setdefault(site, SimulatedJournal())
        self._line(site)
        if site in self._listeners:
            self.world.agenda.put(self.world.agenda.now, self._beat, site)

    def _line(self, site: NodeId) -> _Line:
        """The line in the present life of its receiver."""
        host, line = self.world.hosts[site], self._lines.get(site)
        if line is None or line.life is not host.machine:
            following = self.journals[site].next_sequence
            sender = LineSender(site, 0, self._heartbeat_ns, following, self._prover(site))
            line = self._lines[site] = _Line(sender, host.machine)
        return line

    def _beat(self, site: NodeId) -> None:
        """A heartbeat is due, or was."""
        agenda, host = self.world.agenda, self.world.hosts[site]
        machine = host.machine
        wait_ns = self._heartbeat_ns
        if host.running and isinstance(machine, PrimaryReceiver | SecondaryReceiver):
            sender = self._line(site).sender
            sender.hold(machine.receiver.accepted, machine.receiver.announced)
            now = host.local_now()
            for effect in sender.step(_TIMER_FIRED, now):
                self._send(host, effect)
            wait_ns = max(min(sender.next_deadline() - now, wait_ns), 1)
        agenda.put(agenda.now + wait_ns, self._beat, site)

    def released(self, host: SimulatedHost, effect: Release) -> None:
        """A receiver releases: to its journal, then to its line."""
        if host.node not in self.journals:
            self._begin_line(host.node)
        payloads = tuple([message.payload for message in effect.messages])
        for sent in self._line(host.node).sender.step(MessagesReleased(effect, payloads), host.local_now()):
            self.journals[host.node].append(sent.packets)
            self._send(host, sent)
        if self.narrow is not None:
            self.narrow.released(host.node, effect)

    def replaced(self, site: NodeId, next_sequence: int) -> None:
        """A receiver took a checkpoint over: what it skips comes into its journal from others'."""
        journal = self.journals.setdefault(site, SimulatedJournal())
        for other in [other for node, other in self.journals.items() if node != site]:
            journal_next = journal.next_sequence
            if other.has(journal_next, next_sequence - 1) and other.low_water <= journal_next:
                journal.append(other.read(journal_next, next_sequence - 1))
        line = self._lines.get(site)
        if line is not None:
            line.sender.next_sequence = max(line.sender.next_sequence, journal.next_sequence)

    def _send(self, host: SimulatedHost, effect: SendLine) -> None:
        audience = self._listeners.get(host.node)
        if audience is not None:
            sent: list[Packet] = [*effect.proofs, *effect.packets]
            frames = [encode(packet) for packet in sent]
            burst = tuple([decode(frame) for frame in frames])
            self.world.recorder.sent[ReleasedPacket] += len(frames)
            self.world.network.multicast(host.node, audience, burst, sum(map(len, frames)))
            if self._forgers:
                self._forge(host.node, audience, effect.packets)

    # Effects ------------------------------------------------------------------------------------

    def _performers(self) -> dict[type, Callable[[SimulatedHost, Any], None]]:
        return {
            SendLine: self._send_repairs,
            Unicast: self.world.unicast,
            Deliver: self._delivered,
            DeliverLatest: self._latest,
            DeliverSnapshot: self._snapshot_taken,
            GapAbandoned: self._left_out,
            Archive: self._archived,
            KeepSnapshot: self._snapshot_kept,
            ReadArchive: self._read,
            FetchRange: lambda host, wish: self._knock(host, wish.server, RangeAsked(host.node, wish.first, wish.last)),
            FetchSnapshot: lambda host, wish: self._knock(host, wish.server, SnapshotAsked(host.node)),
            GiveRange: self._range_given,
            GiveSnapshot: lambda host, given: self._give(
                host.node, given.customer, SnapshotArrived(host.node, given.snapshot)
            ),
            TurnAway: lambda host, given: self._give(host.node, given.customer, FetchFailed(host.node)),
            Persist: lambda host, effect: self._outboxes[host.node].apply(effect.record),
            PublishAccepted: self._entrusted,
            Forward: self._forward,
        }

    def perform(self, host: SimulatedHost, effect: object) -> None:
        """Do one effect; those that are not named are only for the trace."""
        performer = self._perform_by.get(type(effect))
        if performer is not None:
            performer(host, effect)

    def _delivered(self, host: SimulatedHost, effect: Deliver) -> None:
        self.world.fact(Delivered(self.world.agenda.now, host.node, effect.packets))
        self._disks[host.node].state.next_sequence = effect.last + 1

    def _archived(self, host: SimulatedHost, effect: Archive) -> None:
        self.world.fact(Delivered(self.world.agenda.now, host.node, effect.packets))
        disk = self._disks[host.node]
        disk.journal.append(effect.packets)
        if isinstance(disk.state, ArchiveState):
            disk.state.low_water, disk.state.next_sequence = disk.journal.low_water, disk.journal.next_sequence

    def _latest(self, host: SimulatedHost, effect: DeliverLatest) -> None:
        told = LatestDelivered(self.world.agenda.now, host.node, effect.newest, effect.payload, effect.sequences)
        self.world.fact(told)

    def _snapshot_taken(self, host: SimulatedHost, effect: DeliverSnapshot) -> None:
        snapshot = effect.snapshot
        self.world.fact(SnapshotTaken(self.world.agenda.now, host.node, snapshot.next_sequence, snapshot.payload))

    def _left_out(self, host: SimulatedHost, effect: GapAbandoned) -> None:
        """Told with whether one of those who decide what is lost still has it."""
        kept = any(self._door_journal(server).has(effect.first, effect.last) for server in self._decide(host.node))
        self.world.fact(LeftOut(self.world.agenda.now, host.node, effect.first, effect.last, kept))
        if host.node not in self.plan.latest_nodes:
            self._disks[host.node].state.next_sequence = effect.last + 1

    def _decide(self, node: NodeId) -> tuple[NodeId, ...]:
        return self._settings[node].servers

    def _snapshot_kept(self, host: SimulatedHost, effect: KeepSnapshot) -> None:
        state = self._disks[host.node].state
        if isinstance(state, ArchiveState):
            state.snapshot = effect.snapshot

    def _read(self, host: SimulatedHost, effect: ReadArchive) -> None:
        found = self._disks[host.node].journal.read(effect.first, effect.last)
        event, life = ArchiveRead(effect.to, effect.first, effect.last, found), host.machine
        self._after(1, lambda: self._feed(host, life, event, RetransmitServer))

    def _send_repairs(self, host: SimulatedHost, effect: SendLine) -> None:
        packets = tuple([packet for packet in effect.packets if packet.count])
        if packets:
            self._tell_given(host, packets)
        self._send(host, effect)

    def _range_given(self, host: SimulatedHost, effect: GiveRange) -> None:
        self._tell_given(host, effect.packets, effect.newest)
        answer = RangeArrived(host.node, effect.packets, effect.low_water, effect.newest)
        self._give(host.node, effect.customer, answer)

    def _tell_given(self, host: SimulatedHost, packets: tuple[ReleasedPacket, ...], newest: int | None = None) -> None:
        kept = self._disks[host.node].journal.next_sequence - 1
        self.world.fact(Given(self.world.agenda.now, host.node, packets, kept if newest is None else newest))

    # Doors --------------------------------------------------------------------------------------

    def _feed(
        self,
        host: SimulatedHost,
        life: Machine[Ordinary, object] | None,
        event: _Event,
        *roles: type[Machine[_Event, object]],
    ) -> None:
        """In this life of a node or never; what arrives at a process that is stopped waits until it goes on."""
        if life is None or host.machine is not life:
            return
        if host.running:
            host.feed(event, *roles)
        else:
            self._after(_STOPPED_NS, lambda: self._feed(host, life, event, *roles))

    def _door_journal(self, server: NodeId) -> SimulatedJournal:
        return self.journals[server] if is_site(server) else self._disks[server].journal

    def _knock(self, host: SimulatedHost, server: NodeId, event: RangeAsked | SnapshotAsked) -> None:
        key = host.node, server
        under_way = self._asking.get(key)
        if under_way is not None and under_way.life is host.machine:
            return  # Left alone until it is answered.
        world = self.world
        visit = self._asking[key] = _Visit(host, host.machine, server)
        self._after(_ANSWER_NS, lambda: self._answered(visit, FetchFailed(server)))
        if world.network.reaches(host.node, server):
            self._after(world.network.delay_ns(host.node, server), lambda: self._enter(visit, event))

    def _after(self, span_ns: int, action: Callable[[], None]) -> None:
        agenda = self.world.agenda
        agenda.put(agenda.now + span_ns, lambda _: action(), None)

    def _enter(self, visit: _Visit, event: RangeAsked | SnapshotAsked) -> None:
        """A request arrives at a door."""
        server = self.world.hosts[visit.server]
        if server.machine is None:
            self._return(visit, FetchFailed(visit.server))
        elif not server.running:
            return
        elif is_site(visit.server):
            self._return(visit, self._site_answers(visit.server, event))
        else:
            key = visit.host.node, visit.server
            earlier = self._waiting.pop(key, None)
            if earlier is not None:
                self._return(earlier, FetchFailed(visit.server))
            self._waiting[key] = visit
            self._after(_PATIENCE_NS, lambda: self._lapse(visit))
            server.feed(event, RetransmitServer)

    def _site_answers(self, site: NodeId, event: RangeAsked | SnapshotAsked) -> RangeArrived | FetchFailed:
        if isinstance(event, SnapshotAsked):
            return FetchFailed(site)
        journal = self.journals[site]
        found = [packet._replace(sender=site) for packet in journal.read(event.first, event.last)]
        return RangeArrived(site, found, journal.low_water, journal.next_sequence - 1)

    def _lapse(self, visit: _Visit) -> None:
        key = visit.host.node, visit.server
        if self._waiting.get(key) is visit:
            del self._waiting[key]
            self.world.hosts[visit.server].feed(RangeWithdrawn(visit.host.node), RetransmitServer)
            self._return(visit, FetchFailed(visit.server))

    def _give(self, server: NodeId, customer: NodeId, answer: _Answer) -> None:
        visit = self._waiting.pop((customer, server), None)
        if visit is not None:
            self._return(visit, answer)

    def _return(self, visit: _Visit, answer: _Answer) -> None:
        network, to = self.world.network, visit.host.node
        if network.reaches(visit.server, to):
            self._after(network.delay_ns(visit.server, to), lambda: self._answered(visit, answer))

    def _answered(self, visit: _Visit, answer: _Answer) -> None:
        key = visit.host.node, visit.server
        if self._asking.get(key) is visit:
            del self._asking[key]
            self._feed(visit.host, visit.life, answer, Customer, RetransmitServer)

    # Secondary sources --------------------------------------------------------------------------

    def _messages(self) -> int:
        """How many messages secondary sources get: about a tenth of all."""
        return len(self.secondary_sources) * max(self.world.scenario.messages // 10, 1)

    def payload(self, key: int) -> bytes:
        """The message of a key."""
        return event_payload(key, self.world.scenario.payload_bytes, traded=self.narrow is not None)

    def begin(self, instant: int) -> None:
        """The first ring is formed: clients come from now on."""
        if self.left:
            self.world.agenda.put(instant, self._submit, stream(self.world.seed, "secondary arrivals"))

    def _submit(self, random: Random) -> None:
        """A client of one secondary source hands a few messages over."""
        world, sources = self.world, self.secondary_sources
        count = min(random.choice((1, 1, 2, 6)), self.left)
        host = world.hosts[random.choice(sources)]
        for _ in range(count):
            self._key += 1
            payload = self.payload(self._key)
            host.feed(PublishRequested(self._key.to_bytes(8), payload), SecondarySource)
        self.left -= count
        if self.left:
            # Their last comes before that of the primary sources, most times.
            mean_ns = 16 * SECOND / world.scenario.arrival_rate / len(sources)
            gap_ns = round(random.expovariate(1 / mean_ns))
            world.agenda.put(world.agenda.now + gap_ns, self._submit, random)

    def _entrusted(self, host: SimulatedHost, effect: PublishAccepted) -> None:
        """A client was told that its message will be in the sequence."""
        payload = self.payload(int.from_bytes(effect.key))
        number = effect.label.number
        self.world.fact(Entrusted(self.world.agenda.now, host.node, number, payload_digest(payload)))

    def _forward(self, host: SimulatedHost, effect: Forward) -> None:
        """A visit to the parent's door."""
        world, life = self.world, host.machine
        parent = world.present(self.parents[host.node])
        done: list[None] = []

        def answer(event: ForwardAccepted | ForwardFailed) -> None:
            if not done:
                done.append(None)
                self._feed(host, life, event, SecondarySource)

        def arrive() -> None:
            taken = world.hosts[parent].running and world.forward(parent, list(effect.batches))
            if world.network.reaches(parent, host.node):
                event = ForwardAccepted(effect.last) if taken else ForwardFailed("refused")
                self._after(world.network.delay_ns(parent, host.node), lambda: answer(event))

        if world.network.reaches(host.node, parent):
            self._after(world.network.delay_ns(host.node, parent), arrive)
        self._after(_FORWARD_NS, lambda: answer(ForwardFailed("no answer in time")))

    # For the verdict ----------------------------------------------------------------------------

    def correct(self) -> dict[NodeId, int]:
        """Customers that run and can go on, and the sequence that each waits for."""
        found: dict[NodeId, int] = {} if self.narrow is None else self.narrow.correct()
        for node in self._own:
            host = self.world.hosts[node]
            match host.machine:
                case Customer() as customer if host.running and self._can_follow(node, customer):
                    found[node] = customer.snapshot().next_sequence
                case RetransmitServer() as archive if host.running and self._can_follow(node, archive.customer):
                    found[node] = max(archive.next_sequence, 1)
                case SecondarySource() if host.running:
                    found[node] = 0
                case _:
                    pass
        return found

    def _can_follow(self, node: NodeId, customer: Customer) -> bool:
        """Whether a node that has everything serves this customer; grade latest asks for nothing that is past."""
        settings, told = customer.settings, customer.snapshot()
        newest = max([journal.next_sequence for journal in self.journals.values()])
        if settings.grade is not Grade.LATEST and not told.joined:
            return self._is_served(node, settings.servers if settings.join is JoinPoint.SNAPSHOT else settings.lines)
        whole = [site for site, journal in self.journals.items() if journal.next_sequence == newest]
        if settings.grade is Grade.LATEST:
            return self._is_served(node, tuple([line for line in settings.lines if line in whole]))
        able = [site for site in whole if self.journals[site].low_water <= told.next_sequence]
        doors = (*settings.lines, *settings.servers, *settings.last_resorts)
        others = [other for other in doors if other in able or not is_site(other)]
        return self._is_served(node, tuple(others))

    def _is_served(self, node: NodeId, others: tuple[NodeId, ...]) -> bool:
        world = self.world
        return any(world.hosts[other].running and world.network.reaches(other, node) for other in others)

    def settled(self, last_sequence: int) -> bool:
        """Whether everybody who runs has everything up to a sequence, and nothing waits to be forwarded."""
        if self.left or (self.narrow is not None and not self.narrow.settled()):
            return False
        return all(self._is_settled(node, self.world.hosts[node].machine, last_sequence) for node in self.correct())

    def unforwarded(self) -> int:
        """How many messages have not left their secondary sources yet."""
        machines = [self.world.hosts[node].machine for node in self.correct()]
        return self.left + sum([one.snapshot().held for one in machines if isinstance(one, SecondarySource)])

    def _is_settled(self, node: NodeId, machine: Machine[Ordinary, object] | None, last_sequence: int) -> bool:
        match machine:
            case SecondarySource():
                return machine.snapshot().held == 0
            case RetransmitServer():
                return machine.next_sequence > last_sequence
            case Customer():
                told = machine.snapshot()
                has_all = told.joined and told.next_sequence > last_sequence and not told.gaps
                # A server that is behind the lines gives a snapshot with a hole before it gives a whole one.
                return has_all and not (told.wants_snapshot and self._is_served(node, machine.settings.servers))
            case _:
                return True
