"""A whole market in virtual time: sites, servers and sources on one network, driven by one seed.

Every packet passes through the codec, once per transmission, so that what runs here is what the real network
carries. What happens is told to a recorder as facts; the world itself judges nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocast.checks.facts import (
    Collected,
    Completed,
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
    SecondaryTokenPassed,
    StabilityClaimed,
    Submitted,
    Suspected,
    TokenMade,
    TokenSent,
    Voted,
)
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.server import ServerState
from isocast.ring.effects import (
    CheckpointWanted,
    Collect,
    EntryAppended,
    EntryCompleted,
    FairnessFaulted,
    LogReplaced,
    Multicast,
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
from isocast.ring.inputs import JournalRead, PublishRequested
from isocast.ring.ledger import Checkpoint
from isocast.ring.settings import OrderRule, RingSettings, StartPolicy
from isocast.ring.source import OutboxState
from isocast.ring.storage import SiteState
from isocast.simulation.agenda import Agenda
from isocast.simulation.build import PRODUCT, Build
from isocast.simulation.change_facts import CHANGE_EFFECTS, change_fact
from isocast.simulation.checkpoints import fetch_checkpoint
from isocast.simulation.clock import Clock
from isocast.simulation.geography import branch_of, delays
from isocast.simulation.host import Host, Machine
from isocast.simulation.layer_facts import LAYER_EFFECTS, layer_fact
from isocast.simulation.network import LinkModel, Network
from isocast.simulation.randomness import stream
from isocast.simulation.witness import Witness
from isocast.terms.ids import NodeId, is_server, is_site, is_source, server_id, source_id
from isocast.wire.audience import AUDIENCE, Role
from isocast.wire.codec import decode, encode
from isocast.wire.packets import (
    Data,
    Invite,
    Join,
    NewRing,
    Packet,
    Receipt,
    SecondaryToken,
    Token,
    TokenPart,
    digest_of,
    payload_digest,
)
from isocast.wire.token_body import token_digest

if TYPE_CHECKING:
    from isocast.simulation.recorder import Recorder
    from isocast.simulation.scenario import Scenario

__all__ = ["World"]

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


class World:
    """One market. `agenda.run(until)` lets it live."""

    def __init__(self, scenario: Scenario, seed: int, recorder: Recorder, build: Build = PRODUCT) -> None:
        """Everything is up and nothing has happened."""
        self.scenario = scenario
        self.seed = seed
        self.build = build
        self.recorder = recorder
        self.agenda = Agenda()
        self.settings = RingSettings(
            scenario.timing,
            order=OrderRule(scenario.order_in_token),
            window=scenario.window,
            batch_max=scenario.batch_max,
            release_rate=scenario.release_rate,
            stall_tokens=scenario.stall_tokens,
            policy=StartPolicy(scenario.policy),
            start_wait_ns=scenario.start_wait_ns,
        )
        model = LinkModel(
            scenario.loss,
            scenario.loss_model == "tree",
            scenario.jitter_ns,
            scenario.duplicate,
            scenario.bandwidth_bps,
        )
        self.network = Network(self.agenda, seed, model, delays(scenario), branch_of(scenario))
        self.hosts: dict[NodeId, Host] = {}
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
        self._performers = {
            Multicast: self._multicast,
            Unicast: self._unicast,
            Persist: self._persist,
            Release: self._release,
            EntryCompleted: self._completed,
            RingSuspected: self._suspected,
            FairnessFaulted: self._faulted,
            Collect: self._collected,
            # Its source takes nothing more; what was lost with its outbox, the checkers see.
            NumbersForgotten: lambda _host, _effect: None,
            ReadJournal: self._read_journal,
            PublishAccepted: self._accepted,
            PublishRejected: self._rejected,
            CheckpointWanted: lambda host, wish: fetch_checkpoint(self, host, wish),
            **dict.fromkeys(LAYER_EFFECTS, self._below),
            **dict.fromkeys(CHANGE_EFFECTS, self._changed),
        }
        self._passed: dict[tuple[NodeId, NodeId], SecondaryToken] = {}
        self._burst: _Burst | None = None
        self._submitted: dict[NodeId, tuple[int, bytes]] = {}
        for site in self.all_sites:
            self.add(site)
        for number in range(1, scenario.servers + 1):
            self.add(server_id(number))
        for number in range(1, scenario.sources + 1):
            self.add(source_id(number))

    # Nodes --------------------------------------------------------------------------------------

    def add(self, node: NodeId) -> None:
        """Let a node come to life, with a blank disk."""
        clock = self._clock(node)
        self.disks[node] = self.blank_disk(node)
        host = Host(node, self.machine(node), self.agenda, clock, self._perform)
        if self.scenario.wake_lateness_ns:
            host.wake_lateness_ns = self.scenario.wake_lateness_ns
            host.wake_random = stream(self.seed, node, "wake")
        if self.scenario.is_witnessed and not is_server(node):
            host.witness = Witness(self.agenda, self.settings, self.recorder.heard)
            host.witness.begins(host)
        self.hosts[node] = host
        self.network.attach(node, host.deliver)
        if is_source(node):
            self.sources = (*self.sources, node)
        elif is_server(node):
            self.servers = (*self.servers, node)
        roles = {Role.RECEIVER: self.all_sites, Role.SOURCE: self.sources, Role.SERVER: self.servers}
        self._audience = {
            kind: tuple([member for role in audience for member in roles[role]]) for kind, audience in AUDIENCE.items()
        }
        host.arm()

    def join(self, site: NodeId) -> None:
        """A site that was not there when the market was founded comes to life: it knows of no U, and finds the ring."""
        self.all_sites = (*self.all_sites, site)
        self.add(site)

    def replace_source(self, source: NodeId, incarnation: NodeId) -> None:
        """A source that lost its outbox takes its own place under its next incarnation."""
        before = self.sources
        self.add(incarnation)
        self.sources = tuple([incarnation if node == source else node for node in before])

    def newest(self) -> PrimaryReceiver | None:
        """The primary receiver that runs and knows most of the log."""
        machines = [self.hosts[site].machine for site in self.all_sites if site in self.hosts]
        found = [machine for machine in machines if isinstance(machine, PrimaryReceiver) and not machine.member.forgot]
        return max(found, key=lambda machine: (machine.receiver.accepted, machine.receiver.held), default=None)

    def universe(self) -> tuple[NodeId, ...]:
        """U as far as it is certified; as configured while nobody runs."""
        newest = self.newest()
        found = newest.receiver.membership.universe(newest.receiver) if newest is not None else ()
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

    def machine(self, node: NodeId, *, forgot: bool = False) -> Machine:
        """A machine made from what the node's disk says."""
        disk = self.disks[node]
        match disk:
            case SiteState():
                return self._receiver(node, disk, forgot=forgot)
            case OutboxState():
                return self.build.source(node, self.settings, disk)
            case ServerState():
                rank = self.servers.index(node) if node in self.servers else len(self.servers)
                # No regions: a scenario gives its ring in the order that it wants.
                servers = tuple(map(server_id, range(1, self.scenario.servers + 1)))
                return self.build.server(node, self.settings, rank, {}, disk, servers)

    def _receiver(self, node: NodeId, disk: SiteState, *, forgot: bool) -> Machine:
        """A primary or a secondary receiver."""
        tree = self.tree
        secret = digest_of(f"{self.seed}/{node}/nonces".encode())
        if not tree.depth(node):
            return self.build.receiver(node, self.settings, secret, disk, forgot=forgot, groups=self.groups)
        return self.build.secondary(node, self.settings, groups=self.groups, state=disk, secret=secret)

    # Submissions --------------------------------------------------------------------------------

    def submit(self, source: NodeId, payloads: list[tuple[bytes, bytes]]) -> None:
        """A client hands (key, payload) batches to a source; the packets travel as one burst."""
        host = self.hosts[source]
        machine = host.machine
        if machine is None:
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

    # Effects ------------------------------------------------------------------------------------

    def _perform(self, host: Host, effect: object) -> None:
        self._performers[type(effect)](host, effect)  # type: ignore[operator]

    def _multicast(self, host: Host, effect: Multicast) -> None:
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
            case Token() | TokenPart(part=0):
                self._token_sent(host, packet)
            case Join():
                recorder.fact(Voted(self.agenda.now, host.node, packet.ballot))
            case Invite():
                recorder.fact(Invited(self.agenda.now, host.node, packet.ballot))
            case NewRing() if is_server(host.node):
                self._formed(host, packet)
            case _:
                pass
        frame = encode(packet)
        self.network.multicast(host.node, self._audience[kind], (decode(frame),), len(frame))

    def _token_sent(self, host: Host, packet: Packet) -> None:
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

    def _formed(self, host: Host, ring: NewRing) -> None:
        """A server decided: on disk, and then before others, which is no news."""
        if not self.rings or self.rings[-1] != ring:
            self.rings.append(ring)
            self.fact(RingFormed(self.agenda.now, host.node, ring))
            self.recorder.ring_decided(self.agenda.now, ring)

    def _unicast(self, host: Host, effect: Unicast) -> None:
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

    def _persist(self, host: Host, effect: Persist) -> None:
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
            case LogReplaced(point, ring, _):
                now, node = self.agenda.now, host.node
                if ring is not None:
                    self.recorder.fact(Installed(now, node, ring, point.token_number))
                number, following = point.token_number, point.next_sequence
                self.recorder.fact(Replaced(now, node, point.epoch, number, point.digest, following))
                self._log_changed(host)
            case RingDecided(ring):
                self._formed(host, ring)
            case OutboxAppended(_, number, payload):
                self._submit(host.node, number, payload_digest(payload))
            case OutboxFreed(base):
                self.fact(Freed(self.agenda.now, host.node, base))
            case _:
                pass

    @staticmethod
    def _log_changed(host: Host) -> None:
        if host.witness is not None and isinstance(host.machine, PrimaryReceiver):
            host.witness.log_changed(host.machine.receiver)

    def _submit(self, source: NodeId, number: int, digest: bytes) -> None:
        """A message is in a source's outbox, or its client was told so: whichever comes first."""
        if self._submitted.get(source) != (number, digest):
            self._submitted[source] = (number, digest)
            self.fact(Submitted(self.agenda.now, source, number, digest))

    def _accepted(self, host: Host, effect: PublishAccepted) -> None:
        disk = self.disks[host.node]
        unwritten = isinstance(disk, OutboxState) and effect.label.number >= disk.next_number
        if unwritten and self._burst is not None:
            self._submit(host.node, effect.label.number, payload_digest(self._burst.payload))

    def _rejected(self, _: Host, __: PublishRejected) -> None:
        self.recorder.rejected += 1

    def _release(self, host: Host, effect: Release) -> None:
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
            )
        )

    def _completed(self, host: Host, effect: EntryCompleted) -> None:
        entry = effect.entry
        token = entry.token
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

    def _suspected(self, host: Host, effect: RingSuspected) -> None:
        self.fact(Suspected(self.agenda.now, host.node, effect.token_number, effect.suspect, effect.reason))

    def _faulted(self, host: Host, effect: FairnessFaulted) -> None:
        self.fact(Faulted(self.agenda.now, host.node, effect.token_number))

    def _changed(self, host: Host, effect: object) -> None:
        fact = change_fact(self.agenda.now, host.node, effect)
        if fact is not None:
            self.fact(fact)

    def _below(self, host: Host, effect: object) -> None:
        fact = layer_fact(self.agenda.now, host.node, effect)
        if fact is not None:
            self.fact(fact)

    def _collected(self, host: Host, effect: Collect) -> None:
        self.fact(Collected(self.agenda.now, host.node, effect.token_number))

    def _read_journal(self, host: Host, effect: ReadJournal) -> None:
        disk = self.disks[host.node]
        if isinstance(disk, SiteState):
            found = disk.read(effect.first, effect.last)
            read = JournalRead(effect.to, found, effect.first, disk.checkpoint.token_number + 1)
            self.agenda.put(self.agenda.now, host.feed, read)

    def fact(self, fact: Fact) -> None:
        """Tell what happened."""
        self.recorder.fact(fact)
