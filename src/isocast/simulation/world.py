"""A whole market in virtual time: sites, servers and sources on one network, driven by one seed.

Every packet passes through the codec, once per transmission, so that what runs here is what the real network
carries. What happens is told to a recorder as facts; the world itself judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

from isocast.checks.facts import (
    Collected,
    Completed,
    Disclosed,
    Fact,
    Faulted,
    Freed,
    Installed,
    Invited,
    Promised,
    ReceiptSent,
    Released,
    Replaced,
    RingFormed,
    Sealed,
    SecondaryTokenPassed,
    StabilityClaimed,
    Submitted,
    Suspected,
    TokenMade,
    TokenSent,
    Voted,
)
from isocast.floor.arbiter import Arbiter
from isocast.hierarchy.customer import Customer
from isocast.hierarchy.forwarding import SecondarySource
from isocast.hierarchy.headship import GroupPlan
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.retransmit_server import RetransmitServer
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.nodes.stripe_sender import StripeSender
from isocast.reformation.server import ReformationServer, ServerState
from isocast.ring.effects import (
    BallotChosen,
    ChainHeard,
    Collect,
    EntryAppended,
    EntryCompleted,
    FairnessFaulted,
    FetchCheckpoint,
    LogReplaced,
    Multicast,
    NameForged,
    NumbersForgotten,
    OutboxAppended,
    OutboxFreed,
    Persist,
    PromiseMade,
    PublishAccepted,
    PublishRejected,
    ReadJournal,
    Release,
    RingDecided,
    RingInstalled,
    RingSuspected,
    Unicast,
)
from isocast.ring.inputs import CheckpointFetched, JournalRead, Machine, PublishRequested
from isocast.ring.ledger import Checkpoint
from isocast.ring.notary import Notary
from isocast.ring.settings import OrderRule, RingSettings, StartPolicy
from isocast.ring.source import OutboxState, PrimarySource
from isocast.ring.storage import SiteState
from isocast.security.roster import RosterBook
from isocast.simulation.host import Clock, Ordinary, SimulatedHost
from isocast.simulation.layers import is_edge, is_narrow
from isocast.simulation.network import Agenda, LinkModel, Network, stream
from isocast.simulation.recording import CHANGE_EFFECTS, LAYER_EFFECTS, Recorder, change_fact, layer_fact
from isocast.simulation.reveals import SimulatedSeals
from isocast.simulation.rosters import Rosters
from isocast.simulation.scenario import Scenario
from isocast.simulation.signatures import KeyedSigner, KeyedVerifier
from isocast.simulation.witness import NodeWitness
from isocast.striping.engine import StripeEngine
from isocast.striping.proving import StripeProofCheck
from isocast.striping.sequencer import StripeSequencer
from isocast.terms.ids import FIRST_SERVER, NodeId, is_server, is_site, is_source, server_id, source_id
from isocast.terms.topology import City, delay_ns
from isocast.wire.codec import decode, encode
from isocast.wire.events import EventArray
from isocast.wire.frame import AUDIENCE, Role
from isocast.wire.packets import (
    Data,
    Disclose,
    Invite,
    Join,
    NewRing,
    Packet,
    Receipt,
    SecondaryToken,
    Token,
    TokenPart,
    payload_digest,
    short_digest_of,
)
from isocast.wire.signing import Signer
from isocast.wire.token_body import token_digest

__all__ = [
    "PRODUCT",
    "Build",
    "EdgeOfWorld",
    "FloorOfWorld",
    "World",
    "branch_of",
    "delays",
    "fetch_checkpoint",
    "place_of",
]


# Which machines a world is made of: the product's, or a mutant's.


@dataclass(frozen=True)
class Build:
    """The classes of all roles, and who heads which group."""

    receiver: type[PrimaryReceiver] = PrimaryReceiver
    source: type[PrimarySource] = PrimarySource
    server: type[ReformationServer] = ReformationServer
    secondary: type[SecondaryReceiver] = SecondaryReceiver
    groups: type[GroupPlan] = GroupPlan
    customer: type[Customer] = Customer
    archive: type[RetransmitServer] = RetransmitServer
    forwarder: type[SecondarySource] = SecondarySource
    stripe_sender: type[StripeSender] = StripeSender
    stripe_engine: type[StripeEngine] = StripeEngine
    sequencer: type[StripeSequencer] = StripeSequencer
    book: type[RosterBook] = RosterBook
    arbiter: type[Arbiter] = Arbiter
    stripe_check: type[StripeProofCheck] = StripeProofCheck
    remembers_nothing: bool = False
    """A site that lost its disk comes back as if nothing had happened (a mutant's mistake)."""
    same_chain: bool = False
    """A source that starts again begins its key chain again (a mutant's mistake)."""
    same_incarnation: bool = False
    """A source that lost its outbox goes on under its old id (a mutant's mistake)."""
    floor_unreleased: bool = False
    """A floor applies tokens that are complete, before they are released (a mutant's mistake)."""


PRODUCT = Build()


# A simulated driver's part in rejoining: a checkpoint travels from one site's memory to another, by a call that
# waits.
#
# Whoever is down, stopped or cut off does not answer. What was released meanwhile needs no fetching here: nobody reads
# a simulated journal.


def fetch_checkpoint(world: World, host: SimulatedHost, wish: FetchCheckpoint) -> None:
    """Ask the first that was named; a site that is left without an answer asks another."""
    giver = wish.ask[0]
    delay_ns = world.network.delay_ns(host.node, giver)
    if world.network.reaches(host.node, giver):
        world.agenda.put(world.agenda.now + delay_ns, lambda _: _give(world, host, giver), None)


def _give(world: World, host: SimulatedHost, giver: NodeId) -> None:
    there = world.hosts.get(giver)
    if there is None or not there.running or not world.network.reaches(giver, host.node):
        return
    if isinstance(there.machine, PrimaryReceiver | SecondaryReceiver):
        fetched = CheckpointFetched(there.machine.receiver.ledger.floor.copy(), giver)
        at = world.agenda.now + world.network.delay_ns(giver, host.node)
        world.agenda.put(at, lambda _: host.feed(fetched, PrimaryReceiver, SecondaryReceiver), None)


# Where the nodes of a world are, and how long packets take between them.


def place_of(scenario: Scenario, node: NodeId) -> City | None:
    """The city of a node; None in a world without places.

    Site i is in the i-th city of the ring, a secondary receiver near its primary one. Sources take turns between the
    two traders, or among the ring's cities; servers, archives and customers stand in the ring's cities from the first
    on.
    """
    ring = scenario.ring
    if is_source(node):
        number = (node >> 32) - 1
        if scenario.traders:
            return scenario.traders[number % len(scenario.traders)]
        return ring[number % len(ring)] if ring else None
    if not ring:
        return None
    if is_edge(node) or is_narrow(node):
        return ring[(scenario.edge.number(node) - 1) % len(ring)]
    if is_site(node):
        return ring[(scenario.tree.root(node) - 1) % len(ring)]
    return ring[(node - FIRST_SERVER - 1) % len(ring)] if is_server(node) else None


def delays(scenario: Scenario) -> Callable[[NodeId, NodeId], int]:
    """The one-way delay of a pair: great circle in fibre between places, else the scenario's constant.

    A secondary receiver is reached over its parent's place, each layer adding its own delay.
    """
    tree, step_ns = scenario.tree, scenario.secondary_delay_ns

    def delay(a: NodeId, b: NodeId) -> int:
        if not scenario.secondaries:
            return apart(a, b)
        if is_site(a) and is_site(b):
            steps, over = tree.steps_between(a, b)
            return steps * step_ns + (apart(a, b) if over else 0)
        return apart(a, b) + sum([tree.depth(node) * step_ns for node in (a, b) if is_site(node)])

    def apart(a: NodeId, b: NodeId) -> int:
        place_a, place_b = place_of(scenario, a), place_of(scenario, b)
        if place_a is None or place_b is None:
            return scenario.one_way_delay_ns
        return delay_ns(place_a, place_b)

    return delay


def branch_of(scenario: Scenario) -> Callable[[NodeId], int]:
    """The branch of the multicast tree that feeds a node: sites in contiguous blocks of near equal size.

    A secondary receiver is on its primary one's branch.
    """
    tree = scenario.tree
    branches = {
        site: (tree.root(site) - 1) * scenario.tree_branches // scenario.receivers
        for site in (*range(1, scenario.receivers + 1), *tree.secondary_sites)
    }

    def branch(node: NodeId) -> int:
        return branches.get(node, -node)

    return branch


RETAIN_KEYS = 1_024
"""Client keys that a simulated source remembers: nobody here retries after minutes."""


class _Burst:
    """Packets that a source sends together."""

    def __init__(self) -> None:
        self.packets: list[Data] = []
        self.size = 0
        self.payload = b""
        """What the client hands over at this moment."""

    def add(self, packet: Data) -> None:
        frame = encode(packet)
        self.size += len(frame)
        self.packets.append(decode(frame))  # type: ignore[arg-type]


class EdgeOfWorld(Protocol):
    """What a world asks of its archives, customers and secondary sources."""

    everybody: tuple[NodeId, ...]

    def machine(self, node: NodeId) -> Machine[Ordinary, object]:
        """A machine made from what the node's disk says."""

    def forget(self, node: NodeId) -> None:
        """A node's disk is blank: of a receiver, its journal."""

    def released(self, host: SimulatedHost, effect: Release) -> None:
        """A receiver releases."""

    def replaced(self, site: NodeId, next_sequence: int) -> None:
        """A receiver took a checkpoint over."""

    def begin(self, instant: int) -> None:
        """The first ring is formed."""

    def payload(self, key: int) -> bytes:
        """The message of a key."""

    def settled(self, last_sequence: int) -> bool:
        """Whether everybody who runs has everything up to a sequence."""

    def unforwarded(self) -> int:
        """How many messages have not left their secondary sources yet."""

    def correct(self) -> dict[NodeId, int]:
        """Nodes that run and can go on, and the sequence that each waits for."""


class FloorOfWorld(Protocol):
    """What a world asks of its trading floor."""

    def payload(self, key: int, source: int) -> bytes:
        """The message of a key, for the source of this place: orders."""

    def moved(self, host: SimulatedHost) -> None:
        """A receiver has completed or released something."""

    def cut(self, site: NodeId, keep: int) -> None:
        """A receiver's log was cut behind a token, or replaced by one that begins there."""

    def forget(self, site: NodeId) -> None:
        """A receiver's disk is blank."""

    def settled(self, correct: tuple[NodeId, ...]) -> bool:
        """Whether all trades are confirmed at these sites, and everybody knows."""

    def prints(self, site: NodeId) -> list[EventArray]:
        """Market events of the floor, as a site's journal has them, in order."""

    def standing(self, correct: tuple[NodeId, ...]) -> dict[NodeId, tuple[int, int]]:
        """Of each of these sites, and of a customer as 0: how many trades were made, how many confirmed."""


def _settings(scenario: Scenario) -> RingSettings:
    return RingSettings(
        scenario.timing,
        order=OrderRule(scenario.order_in_token),
        window=scenario.window,
        batch_max=scenario.batch_max,
        release_rate=scenario.release_rate,
        stall_tokens=scenario.stall_tokens,
        policy=StartPolicy(scenario.policy),
        start_wait_ns=scenario.start_wait_ns,
    )


def _links(scenario: Scenario) -> LinkModel:
    return LinkModel(
        scenario.loss,
        scenario.loss_model == "tree",
        scenario.jitter_ns,
        scenario.duplicate,
        scenario.bandwidth_bps,
        scenario.edge_loss,
    )


class World:
    """One market. `agenda.run(until)` lets it live."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        recorder: Recorder,
        build: Build = PRODUCT,
        seals: SimulatedSeals | None = None,
    ) -> None:
        """Everything is up and nothing has happened; `seals`, where sources disclose their keys."""
        self.seals = seals
        self.scenario = scenario
        self.seed = seed
        self.build = build
        self.recorder = recorder
        self.agenda = Agenda()
        self.verifier = KeyedVerifier(seed)
        self.tamper: Callable[[SimulatedHost, Packet, tuple[NodeId, ...]], bool] | None = None
        """Sends something else in the place of a multicast, where a member lies; whether it did."""
        self.settings = _settings(scenario)
        self.network = Network(self.agenda, seed, _links(scenario), delays(scenario), branch_of(scenario))
        self.hosts: dict[NodeId, SimulatedHost] = {}
        self.rosters: Rosters | None = None
        """Where they change; elsewhere there is one, which everybody has."""
        if scenario.has_rosters:
            self.rosters = Rosters(scenario, seed, self.agenda, self.hosts, self.newest, build.book)
        self.disks: dict[NodeId, SiteState | OutboxState | ServerState] = {}
        self.tree = scenario.tree
        backups = {site: self.tree.backup(site) for site in self.tree.secondary_sites}
        self.groups = build.groups.below(self.tree.parents, backups, delays(scenario))
        self.sites = tuple(range(1, scenario.receivers + 1))
        self.all_sites = (*self.sites, *self.tree.secondary_sites)
        """The trusted receivers: those of the ring, and those below them."""
        self.sources: tuple[NodeId, ...] = ()
        self.servers: tuple[NodeId, ...] = ()
        self.rings: list[NewRing] = []
        """Every ring decided, in order."""
        self._audience: dict[type, tuple[NodeId, ...]] = {}
        self._perform_by = self._performers()
        self._passed: dict[tuple[NodeId, NodeId], SecondaryToken] = {}
        self._burst: _Burst | None = None
        self._submitted: dict[NodeId, tuple[int, bytes]] = {}
        for site in self.all_sites:
            self.add(site)
        for number in range(1, scenario.servers + 1):
            self.add(server_id(number))
        for number in range(1, scenario.sources + 1):
            self.add(source_id(number))
        self._present: dict[NodeId, NodeId] = {}
        """Under which id a source runs that lost its outbox."""
        self._taken: list[bytes] = []
        """Keys that a source has accepted of what it is being given."""
        self.edge: EdgeOfWorld | None = None
        """Set by the maker of a world that has one."""
        self.floor: FloorOfWorld | None = None
        """Likewise."""

    def _performers(self) -> dict[type, Callable[[SimulatedHost, Any], None]]:
        """By the type of an effect of a node of the ring: what does it."""
        return {
            Multicast: self._multicast,
            Unicast: self.unicast,
            Persist: self._persist,
            Release: self._release,
            EntryCompleted: self._completed,
            RingSuspected: self._suspected,
            FairnessFaulted: self._faulted,
            Collect: self._collected,
            # Its source takes nothing more; what was lost with its outbox, the checkers see.
            NumbersForgotten: lambda _host, _effect: None,
            NameForged: lambda _host, _effect: None,
            ChainHeard: lambda _host, _effect: None,
            ReadJournal: self._read_journal,
            PublishAccepted: self._accepted,
            PublishRejected: self._rejected,
            FetchCheckpoint: lambda host, wish: fetch_checkpoint(self, host, wish),
            **dict.fromkeys(LAYER_EFFECTS, self._below),
            **dict.fromkeys(CHANGE_EFFECTS, self._changed),
        }

    # Nodes --------------------------------------------------------------------------------------

    def add(self, node: NodeId) -> None:
        """Let a node come to life, with a blank disk."""
        self.disks[node] = self.blank_disk(node)
        host = self.add_host(node, self.machine(node), self._perform)
        if self.scenario.is_witnessed and not is_server(node):
            host.witness = NodeWitness(self.agenda, self.settings, self.recorder.heard)
            host.witness.begins(host)
        if is_source(node):
            self.sources = (*self.sources, node)
        elif is_server(node):
            self.servers = (*self.servers, node)
        roles = {Role.RECEIVER: self.all_sites, Role.SOURCE: self.sources, Role.SERVER: self.servers}
        self._audience = {
            kind: tuple([member for role in audience for member in roles[role]]) for kind, audience in AUDIENCE.items()
        }
        if self.seals is not None:
            self._audience[Receipt] += self.sources
        host.arm()

    def add_host(
        self, node: NodeId, machine: Machine[Ordinary, object], perform: Callable[[SimulatedHost, object], None]
    ) -> SimulatedHost:
        """A host with a clock and a place on the network; its timer is not armed yet."""
        host = SimulatedHost(node, machine, self.agenda, self._clock(node), perform)
        if self.scenario.wake_lateness_ns:
            host.wake_lateness_ns = self.scenario.wake_lateness_ns
            host.wake_random = stream(self.seed, node, "wake")
        self.hosts[node] = host
        self.network.attach(node, host.deliver)
        return host

    def join(self, site: NodeId) -> None:
        """A site that was not there when the market was founded comes to life: it knows of no U, and finds the ring."""
        self.all_sites = (*self.all_sites, site)
        self.add(site)

    def replace_source(self, source: NodeId, incarnation: NodeId) -> None:
        """A source that lost its outbox takes its own place under its next incarnation."""
        before = self.sources
        self._present[source] = incarnation
        self.add(incarnation)
        self.sources = tuple([incarnation if node == source else node for node in before])

    def present(self, node: NodeId) -> NodeId:
        """Under which id a node runs: a source that lost its outbox has another."""
        while node in self._present:
            node = self._present[node]
        return node

    def newest(self) -> PrimaryReceiver | None:
        """The primary receiver that runs and knows most of the log."""
        machines = [self.hosts[site].machine for site in self.all_sites if site in self.hosts]
        found = [machine for machine in machines if isinstance(machine, PrimaryReceiver) and not machine.member.forgot]
        return max(found, key=lambda machine: (machine.receiver.accepted, machine.receiver.held), default=None)

    def universe(self) -> tuple[NodeId, ...]:
        """U as far as it is certified; as configured while nobody runs."""
        newest = self.newest()
        found = newest.receiver.membership.universe() if newest is not None else ()
        return found or self.sites

    def _clock(self, node: NodeId) -> Clock:
        """Within its bound from the start, anywhere on its wave."""
        bound = self.settings.timing.clock_error_ns
        random = stream(self.seed, node, "clock")
        if not bound or not self.scenario.drift_ppm:
            return Clock(bound, 0, random.randint(-bound, bound))
        wave_ns = 4 * bound * 1_000_000 // self.scenario.drift_ppm
        return Clock(bound, self.scenario.drift_ppm, random.randrange(wave_ns))

    def blank_disk(self, node: NodeId) -> SiteState | OutboxState | ServerState:
        """What a node starts with."""
        if is_site(node):
            founder = node <= len(self.sites) + len(self.tree.secondary_sites)
            universe = self.sites if founder else ()
            return SiteState(Checkpoint(universe=universe), retain=self.scenario.retain_tokens)
        return OutboxState(keys_max=RETAIN_KEYS) if is_source(node) else ServerState()

    def machine(self, node: NodeId, *, forgot: bool = False) -> Machine[Ordinary, object]:
        """A machine made from what the node's disk says."""
        disk = self.disks[node]
        match disk:
            case SiteState():
                return self._receiver(node, disk, forgot=forgot)
            case OutboxState():
                chain = None if self.seals is None else self.seals.sealer(node, disk)
                seal = None if chain is None else chain.seal
                return self.build.source(node, self.settings, disk, seal, self.notary(node), chain)
            case ServerState():
                rank = self.servers.index(node) if node in self.servers else len(self.servers)
                # No regions: a scenario gives its ring in the order that it wants.
                servers = tuple(map(server_id, range(1, self.scenario.servers + 1)))
                return self.build.server(node, self.settings, rank, {}, disk, servers, self.notary(node))

    def _receiver(self, node: NodeId, disk: SiteState, *, forgot: bool) -> Machine[Ordinary, object]:
        """A primary or a secondary receiver."""
        tree = self.tree
        fits = None if self.seals is None else self.seals.fits
        secret = short_digest_of(f"{self.seed}/{node}/nonces".encode())
        if not tree.depth(node):
            return self.build.receiver(
                node,
                self.settings,
                secret,
                disk,
                forgot=forgot,
                groups=self.groups,
                notary=self.notary(node),
                fits=fits,
            )
        return self.build.secondary(
            node, self.settings, groups=self.groups, state=disk, secret=secret, notary=self.notary(node), fits=fits
        )

    def notary(self, node: NodeId) -> Notary:
        """Signs as a node, with a key that only this node has; signs nothing in a world without signatures."""
        signatures = self.scenario.signatures
        if signatures == "off":
            return Notary()
        verifier = self.verifier if self.rosters is None else self.rosters.verifier(node)
        return Notary(self.signer(node), verifier, receipts=signatures == "receipts")

    def signer(self, node: NodeId) -> Signer:
        """Signs as a node, or as the operator."""
        return KeyedSigner(self.seed, node) if self.rosters is None else self.rosters.signer(node)

    # Submissions --------------------------------------------------------------------------------

    def submit(self, source: NodeId, payloads: list[tuple[bytes, bytes]]) -> None:
        """A client hands (key, payload) batches to a source; the packets travel as one burst."""
        host = self.hosts[source]
        machine = host.machine
        if not isinstance(machine, PrimarySource):
            return
        burst = self._burst = _Burst()
        for key, payload in payloads:
            if host.machine is not None:
                burst.payload = payload
                host.perform(machine.step(PublishRequested(key, payload), host.local_now()))
        self._burst = None
        if burst.packets:
            self.recorder.sent[Data] += len(burst.packets)
            self.network.multicast(source, self._audience[Data], tuple(burst.packets), burst.size)
        host.arm()

    def forward(self, source: NodeId, batches: list[tuple[bytes, bytes]]) -> bool:
        """A secondary source hands (key, payload) batches to a source; whether that accepted all of them."""
        self._taken = []
        for place, batch in enumerate(batches):
            self.submit(source, [batch])
            if self.hosts[source].machine is None or self._taken != [key for key, _ in batches[: place + 1]]:
                return False
        return True

    # Effects ------------------------------------------------------------------------------------

    def _perform(self, host: SimulatedHost, effect: object) -> None:
        self._perform_by[type(effect)](host, effect)

    def _multicast(self, host: SimulatedHost, effect: Multicast) -> None:
        packet = effect.packet
        kind = type(packet)
        if self._burst is not None and isinstance(packet, Data):
            self._burst.add(packet)
            return
        recorder = self.recorder
        recorder.sent[kind] += 1
        match packet:
            case Receipt():
                recorder.fact(ReceiptSent(self.agenda.now, host.node, packet.epoch, packet.held))
            case Token() | TokenPart(part=0) if packet.sender == host.node:
                self._token_sent(host, packet)
            case Join():
                recorder.fact(Voted(self.agenda.now, host.node, packet.ballot))
            case Disclose():
                recorder.fact(Disclosed(self.agenda.now, host.node, packet.links))
            case Invite():
                recorder.fact(Invited(self.agenda.now, host.node, packet.ballot))
            case NewRing() if is_server(host.node):
                self._formed(host, packet)
            case _:
                pass
        if self.tamper is not None and self.tamper(host, packet, self._audience[kind]):
            return
        frame = encode(packet)
        self.network.multicast(host.node, self._audience[kind], (decode(frame),), len(frame))

    def _token_sent(self, host: SimulatedHost, packet: Packet) -> None:
        """A token of the site's own; of one in parts the first part speaks for all."""
        if isinstance(packet, Token):
            token = packet
        elif isinstance(packet, TokenPart) and isinstance(host.machine, PrimaryReceiver):
            token = host.machine.receiver.ledger.entries[packet.token_number].token
        else:
            return
        self.recorder.fact(
            TokenSent(
                self.agenda.now,
                host.node,
                token.epoch,
                token.token_number,
                token.instant,
                token_digest(token),
                token.count,
            )
        )
        if self.scenario.secondaries:
            number, stable, secstable = token.token_number, token.stable, token.secstable
            self.fact(StabilityClaimed(self.agenda.now, host.node, token.epoch, number, stable, secstable))
        batch = host.witness.batch(host, token) if host.witness is not None else None
        if batch is not None:
            self.recorder.heard(batch)

    def _formed(self, host: SimulatedHost, ring: NewRing) -> None:
        """A server decided: on disk, and then before others, which is no news."""
        if not self.rings or self.rings[-1] != ring:
            self.rings.append(ring)
            self.fact(RingFormed(self.agenda.now, host.node, ring))
            self.recorder.ring_decided(self.agenda.now, ring)

    def unicast(self, host: SimulatedHost, effect: Unicast) -> None:
        """A node sends to one other."""
        packet = effect.packet
        self.recorder.unicast(host.node, packet)
        if isinstance(packet, SecondaryToken) and self._passed.get((host.node, packet.group)) != packet:
            # One for each member of the group, and one fact for all of them.
            self._passed[host.node, packet.group] = packet
            fact = SecondaryTokenPassed(self.agenda.now, host.node, packet.epoch, packet.group, packet.token_number)
            self.fact(fact)
        if effect.to not in self.hosts:
            return
        frame = encode(packet)
        self.network.unicast(host.node, effect.to, (decode(frame),), len(frame))

    def _persist(self, host: SimulatedHost, effect: Persist) -> None:
        record = effect.record
        self.disks[host.node].apply(record)
        match record:
            case EntryAppended(entry) if entry.token.sender == host.node:
                digest = token_digest(entry.token)
                self.recorder.heard(TokenMade(self.agenda.now, host.node, digest, entry.token))
            case PromiseMade(ballot):
                self.recorder.fact(Promised(self.agenda.now, host.node, ballot))
            case RingInstalled(ring, keep, _):
                self.recorder.fact(Installed(self.agenda.now, host.node, ring, keep))
                self._log_changed(host)
                if self.floor is not None:
                    self.floor.cut(host.node, keep)
            case LogReplaced(point, ring, _):
                now, node = self.agenda.now, host.node
                if ring is not None:
                    self.recorder.fact(Installed(now, node, ring, point.token_number))
                number, following = point.token_number, point.next_sequence
                self.recorder.fact(Replaced(now, node, point.epoch, number, point.digest, following))
                if self.edge is not None:
                    self.edge.replaced(node, following)
                self._log_changed(host)
                if self.floor is not None:
                    self.floor.cut(node, number)
            case RingDecided(ring):
                self._formed(host, ring)
            case OutboxAppended(_, number, payload):
                self._submit(host.node, number, payload_digest(payload))
                if self.seals is not None:
                    link = self.seals.link(host.node, number)
                    self.fact(Sealed(self.agenda.now, host.node, number, link))
            case OutboxFreed(base):
                self.fact(Freed(self.agenda.now, host.node, base))
            case EntryAppended() | BallotChosen():
                pass
            case _:
                assert_never(record)

    @staticmethod
    def _log_changed(host: SimulatedHost) -> None:
        if host.witness is not None and isinstance(host.machine, PrimaryReceiver):
            host.witness.log_changed(host.machine.receiver)

    def _submit(self, source: NodeId, number: int, digest: bytes) -> None:
        """A message is in a source's outbox, or its client was told so: whichever comes first."""
        if self._submitted.get(source) != (number, digest):
            self._submitted[source] = (number, digest)
            self.fact(Submitted(self.agenda.now, source, number, digest))

    def _accepted(self, host: SimulatedHost, effect: PublishAccepted) -> None:
        if self.edge is not None:
            self._taken.append(effect.key)
        disk = self.disks[host.node]
        unwritten = isinstance(disk, OutboxState) and effect.label.number >= disk.next_number
        if unwritten and self._burst is not None:
            self._submit(host.node, effect.label.number, payload_digest(self._burst.payload))

    def _rejected(self, _: SimulatedHost, __: PublishRejected) -> None:
        self.recorder.rejected += 1

    def _release(self, host: SimulatedHost, effect: Release) -> None:
        disk = self.disks[host.node]
        if isinstance(disk, SiteState):
            disk.release(effect)
        token = effect.entry.token
        bound = self.settings.timing.clock_error_ns
        now = self.agenda.now
        self.fact(
            Released(
                now,
                host.node,
                effect.epoch,
                token.token_number,
                token.instant,
                effect.first_sequence,
                effect.messages,
                effect.due,
                abs(host.clock.error_ns(now)) <= bound,
                effect.uncertified,
                effect.links,
            )
        )
        if self.edge is not None:
            self.edge.released(host, effect)
        if self.floor is not None:
            self.floor.moved(host)

    def _completed(self, host: SimulatedHost, effect: EntryCompleted) -> None:
        entry = effect.entry
        token = entry.token
        if self.rosters is not None:
            self.rosters.completed(host.node, token)
        self.fact(
            Completed(
                self.agenda.now,
                host.node,
                effect.epoch,
                token.token_number,
                effect.digest,
                token.count,
                len(entry.messages),
                token.control,
            )
        )
        if self.floor is not None:
            self.floor.moved(host)

    def _suspected(self, host: SimulatedHost, effect: RingSuspected) -> None:
        self.fact(Suspected(self.agenda.now, host.node, effect.token_number, effect.suspect, effect.reason))

    def _faulted(self, host: SimulatedHost, effect: FairnessFaulted) -> None:
        self.fact(Faulted(self.agenda.now, host.node, effect.token_number))

    def _changed(self, host: SimulatedHost, effect: object) -> None:
        fact = change_fact(self.agenda.now, host.node, effect)
        if fact is not None:
            self.fact(fact)

    def _below(self, host: SimulatedHost, effect: object) -> None:
        fact = layer_fact(self.agenda.now, host.node, effect)
        if fact is not None:
            self.fact(fact)

    def _collected(self, host: SimulatedHost, effect: Collect) -> None:
        self.fact(Collected(self.agenda.now, host.node, effect.token_number))

    def _read_journal(self, host: SimulatedHost, effect: ReadJournal) -> None:
        disk = self.disks[host.node]
        if isinstance(disk, SiteState):
            found = disk.read(effect.first, effect.last)
            read = JournalRead(effect.to, found, effect.first, disk.checkpoint.token_number + 1)
            self.agenda.put(self.agenda.now, lambda _: host.feed(read, PrimaryReceiver, SecondaryReceiver), None)

    def fact(self, fact: Fact) -> None:
        """Tell what happened."""
        self.recorder.fact(fact)
