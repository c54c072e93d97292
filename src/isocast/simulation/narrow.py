"""Narrow stripes of a simulated market (§4.4): senders beside receivers, and customers who hear two of them.

A sender follows the journal of its receiver, as the product's process does, and answers requests from its archive. Its
archive and its snapshot are on its own disk. Whose journal does not say all that happened goes on where another sender
is. Stripes and requests are datagrams of the world's network, which loses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from typing import NamedTuple, TypeAlias, assert_never

import numpy as np

from isocast.checks.facts import StripeArchived, StripeDatagramSent, StripeDelivered, StripeLeftOut
from isocast.feeds.days import DayClock
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.mold import MoldPacket, parse_packet, session_name
from isocast.feeds.outcomes import FeedLog
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.nodes.stripe_sender import ArchiveStripe, PartReleased, StripeSender, StripeSent
from isocast.ring.effects import Release
from isocast.ring.inputs import Machine, PacketsArrived, TimerFired
from isocast.simulation.forging import StripeForger
from isocast.simulation.host import Ordinary, SimulatedHost
from isocast.simulation.network import PacketBurst
from isocast.simulation.signatures import KeyedSigner
from isocast.simulation.world import World
from isocast.striping.edge import EdgeSettings
from isocast.striping.engine import StripeEngine, StripePacket, read_engine_state
from isocast.striping.pacing import SendStripe
from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.proving import Genuine, StripeProofCheck, StripeProver, stripe_of_session
from isocast.striping.rates import budget_bytes
from isocast.striping.released import ReleasedPart
from isocast.striping.sequencer import Ask, GapRules, NarrowMessage, StripeSequencer
from isocast.striping.sizes import feed_sizes
from isocast.terms.ids import NodeId
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import EventKind, Mic
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.limits import EVENT_BYTES, IP_UDP_BYTES
from isocast.wire.stripe_proofs import STRIPE_PROOF_MAGIC, read_stripe_proof

__all__ = ["NarrowCustomer", "NarrowWorld", "stripe_of_symbols"]

_DELAY_NS = 20 * MILLISECOND
"""Packets leave so long behind their instants: by then every sender has made them."""
_INTRODUCE_NS = 60 * SECOND
_WAIT_NS = 50 * MILLISECOND
"""Skew of two lines, and packets that overtake each other."""
_KEEP_PERIODS = 8
"""Token periods between two snapshots of a sender."""
_NAMED = ("A0", "A1", "A2", "A3", "A4", "B0", "B1")
"""Symbols that the plan names; B2 is on the spare stripe."""
_NO_COUNTS = np.empty(0, np.int64)
_NO_EVENTS = np.empty(0, EVENT_DTYPE)
_EPOCH = date(1970, 1, 1)
_MARKET = bytes(32)
"""As signatures name the only market there is."""
_PROOF_PERIODS = 2
"""Token periods between two proofs."""
_WAIT_PROOFS = 4
"""Proofs that may pass before a packet without one is given up."""


class _Datagram(NamedTuple):
    """Of a stripe's group, or an answer to a request."""

    raw: bytes
    sender: NodeId
    """In whose name it comes."""
    repair: bool = False


@dataclass(frozen=True, slots=True)
class DeliverStripe:
    """Messages of one stripe, in order."""

    stripe: int
    messages: tuple[NarrowMessage, ...]


@dataclass(frozen=True, slots=True)
class PassOver:
    """Messages of a stripe are given up, before a number."""

    stripe: int
    session: bytes
    count: int
    before: int


CustomerEffect: TypeAlias = DeliverStripe | PassOver | Ask


class NarrowCustomer:
    """A customer's stripes: datagrams in; messages in order, and requests, out."""

    def __init__(
        self,
        stripes: Sequence[int],
        rules: GapRules,
        sequencer: type[StripeSequencer],
        check: StripeProofCheck | None = None,
    ) -> None:
        """Nothing was heard; `check` tells what is genuine, where senders sign."""
        self.rules = rules
        self.check = check
        self.sequencers = {stripe: sequencer(stripe, rules) for stripe in stripes}

    def step(self, event: Ordinary, now: int) -> tuple[CustomerEffect, ...]:
        """Take one input."""
        effects: list[CustomerEffect] = []
        match event:
            case PacketsArrived():
                burst: Sequence[object] = event.packets
                for datagram in burst:
                    if isinstance(datagram, _Datagram):
                        effects += self._hear(datagram, now)
            case TimerFired():
                if self.check is not None:
                    self.check.expire(now)
                for sequencer in self.sequencers.values():
                    effects += self._poll(sequencer, now)
            case _:
                assert_never(event)
        return tuple(effects)

    def next_deadline(self) -> int:
        """When a gap is looked at."""
        return min([sequencer.next_deadline() for sequencer in self.sequencers.values()])

    def next_numbers(self) -> dict[int, int]:
        """Of each stripe, the number that it waits for; 0 where nothing was heard."""
        return {stripe: sequencer.next_number for stripe, sequencer in self.sequencers.items()}

    def _hear(self, datagram: _Datagram, now: int) -> list[CustomerEffect]:
        effects: list[CustomerEffect] = []
        for one in self._genuine(datagram, now):
            sequencer = self.sequencers[stripe_of_session(one.packet.session)]
            sequencer.receive(one.packet, now, repair=one.repair)
            effects += self._taken(sequencer)
        return effects

    def _genuine(self, datagram: _Datagram, now: int) -> list[Genuine]:
        raw, sender, check = datagram.raw, datagram.sender, self.check
        if raw.startswith(STRIPE_PROOF_MAGIC):
            return [] if check is None else check.proof(raw, now, repair=datagram.repair)
        packet = parse_packet(raw)
        if check is None:
            return [Genuine(packet, sender, now, datagram.repair)]
        return check.heard(raw, packet, sender, now, repair=datagram.repair)

    def _poll(self, sequencer: StripeSequencer, now: int) -> list[CustomerEffect]:
        lost = sequencer.counts.lost
        effects: list[CustomerEffect] = list(sequencer.poll(now))
        taken = self._taken(sequencer)
        if sequencer.counts.lost > lost:
            count = sequencer.counts.lost - lost
            messages = [message for one in taken if isinstance(one, DeliverStripe) for message in one.messages]
            before = messages[0].number if messages else sequencer.next_number
            effects.append(PassOver(sequencer.stripe, sequencer.session, count, before))
        return effects + taken

    @staticmethod
    def _taken(sequencer: StripeSequencer) -> list[CustomerEffect]:
        messages = tuple(sequencer.take())
        return [DeliverStripe(sequencer.stripe, messages)] if messages else []


@dataclass(slots=True)
class _StripeDisk:
    """What a sender remembers."""

    state: bytes = b""
    packets: dict[bytes, list[StripePacket]] = field(default_factory=dict)
    """By session, their numbers rising."""

    def newest(self) -> dict[int, tuple[bytes, int]]:
        """Of each stripe the newest session, and its next number."""
        last = [self.packets[session][-1] for session in sorted(self.packets)]
        return {packet.stripe: (packet.session, packet.number + packet.count) for packet in last}

    def find(self, session: bytes, number: int) -> StripePacket | None:
        """The packet with a message."""
        for packet in reversed(self.packets.get(session, [])):
            if packet.number <= number:
                return packet if number < packet.number + packet.count else None
        return None


class NarrowWorld:
    """Senders and customers of narrow stripes, in one world."""

    def __init__(self, world: World) -> None:
        """Everybody is up and nothing has happened."""
        self.world = world
        edge, timing = world.scenario.edge, world.settings.timing
        self.senders = edge.stripe_sender_nodes
        self.customers = edge.narrow_nodes
        self.everybody = (*self.senders, *self.customers)
        self.signed = world.scenario.signatures != "off"
        self.settings = EdgeSettings(
            timing.token_period_ns,
            timing.release_delay_ns,
            world.settings.release_rate,
            sizes=feed_sizes(proven=self.signed),
            introduce_ns=_INTRODUCE_NS,
            proof_ns=_PROOF_PERIODS * timing.token_period_ns * self.signed,
        )
        proofs = self.settings.proof_bytes(edge.narrow_stripes) if self.signed else 0
        self.plan = _plan(edge.narrow_stripes, edge.stripe_bytes + proofs, timing.token_period_ns)
        self._forgers = self._liars()
        self._retry_ns = max(2 * timing.token_period_ns, 200 * MILLISECOND)
        self._sites = dict(zip(self.senders, world.all_sites, strict=False))
        """Whose journal each sender follows."""
        self._parts: dict[NodeId, list[ReleasedPart]] = {site: [] for site in self._sites.values()}
        self._disks = {node: _StripeDisk() for node in self.senders}
        self._turns = dict.fromkeys(self.customers, 0)
        self._taking_over: dict[NodeId, Machine[Ordinary, object]] = {}
        self._reading: dict[int, tuple[bytes, int, ItchDecoder]] = {}
        """Of each stripe: its session, the number that nobody has made yet, and who reads it."""
        self._hears = {
            sender: tuple([node for node in self.customers if sender in edge.stripe_lines(node)])
            for sender in self.senders
        }
        for node in self.everybody:
            host = world.add_host(node, self.machine(node), self._perform)
            host.arm()
        for node in self.senders:
            world.network.attach(node, lambda burst, node=node: self._asked(node, burst))  # type: ignore[misc]
            world.agenda.put(world.agenda.now, self._look, node)
            world.agenda.put(world.agenda.now + _KEEP_PERIODS * timing.token_period_ns, self._keep, node)

    # Nodes --------------------------------------------------------------------------------------

    def machine(self, node: NodeId) -> Machine[Ordinary, object]:
        """A machine made from what the node's disk says; customers remember nothing."""
        build = self.world.build
        if node in self._hears:
            disk, host = self._disks[node], self.world.hosts.get(node)
            engine = self._engine(disk.state)
            now = max(host.local_now(), 0) if host is not None else 0
            return build.stripe_sender(engine, disk.newest(), now, self._prover(node))
        complete = self.world.scenario.edge.wants_everything(node)
        rules = GapRules(complete, _WAIT_NS, self._retry_ns, from_first=complete)
        stripes = [stripe.number for stripe in self.plan.stripes]
        return NarrowCustomer(stripes, rules, build.sequencer, self._check(stripes))

    # Signatures ---------------------------------------------------------------------------------

    def _prover(self, node: NodeId) -> StripeProver | None:
        """Of a sender; None in a world without signatures."""
        if not self.signed:
            return None
        return StripeProver(KeyedSigner(self.world.seed, node), node, _MARKET, 0, node.to_bytes(16))

    def _check(self, stripes: Sequence[int]) -> StripeProofCheck | None:
        """By what a customer judges stripes; None in a world without signatures."""
        if not self.signed:
            return None
        wait_ns = _WAIT_PROOFS * self.settings.proof_ns
        check = self.world.build.stripe_check(_MARKET, self.world.verifier, dict.fromkeys(stripes, 0), wait_ns)
        check.signers = frozenset(self.senders)
        return check

    def _liars(self) -> tuple[StripeForger, ...]:
        edge, seed = self.world.scenario.edge, self.world.seed
        ends = tuple([session_name(_EPOCH, stripe.number).encode("ascii")[6:] for stripe in self.plan.stripes])
        nodes = self.customers[len(self.customers) - edge.narrow_forgers :]
        return tuple([StripeForger(seed, node, KeyedSigner(seed, node), _MARKET, ends) for node in nodes])

    def _forge(self, host: SimulatedHost, raw: bytes) -> None:
        """Who forges has heard a datagram, and sends in the name of its sender."""
        world, owner = self.world, host.node
        for liar in self._forgers:
            own = world.hosts[liar.node]
            forged = liar.hear(raw, owner, max(own.local_now(), 0)) if own.running else ()
            if forged:
                audience = tuple([node for node in self._hears[owner] if node != liar.node])
                world.network.multicast(liar.node, audience, tuple([_Datagram(one, owner) for one in forged]))

    def _engine(self, state: bytes) -> StripeEngine:
        engine = self.world.build.stripe_engine(self.plan, 0, self.settings, _DELAY_NS)
        if state:
            engine.restore(read_engine_state(state))
        return engine

    def forget(self, node: NodeId) -> None:
        """A sender's disk is blank, or a receiver's journal."""
        if node in self._parts:
            self._parts[node].clear()
        elif node in self._disks:
            self._disks[node] = _StripeDisk()

    # What senders are given ---------------------------------------------------------------------

    def released(self, site: NodeId, effect: Release) -> None:
        """A receiver releases: to its journal, and its sender is told."""
        parts = self._parts.get(site)
        if parts is None:
            return
        token = effect.entry.token
        payloads = [message.payload for message in effect.messages]
        counts = np.array([len(payload) // EVENT_BYTES for payload in payloads], np.int64)
        place = effect.first_sequence - token.first_sequence
        events = np.frombuffer(b"".join(payloads), EVENT_DTYPE)
        parts.append(
            ReleasedPart(token.token_number, token.instant, token.count, place, effect.first_sequence, events, counts)
        )
        for node in [node for node, own in self._sites.items() if own == site]:
            self._advance(node)

    def _look(self, node: NodeId) -> None:
        """Once in a token period: take what the journal has, and see whether an empty token went out."""
        agenda = self.world.agenda
        agenda.put(agenda.now + self.settings.token_period_ns, self._look, node)
        host, site = self.world.hosts[node], self.world.hosts[self._sites[node]]
        if not host.running or not isinstance(host.machine, StripeSender):
            return
        if not host.machine.engine.striper.token_number:
            # Somebody else may know more than the journal does: how the market's first day began, for one.
            self._take_over(host)
        self._advance(node)
        if site.running and isinstance(site.machine, PrimaryReceiver | SecondaryReceiver):
            releaser, striper = site.machine.receiver.releaser, host.machine.engine.striper
            news = releaser.released > striper.token_number and not releaser.offset and releaser.passed
            if news and releaser.next_sequence == striper.next_sequence:
                empty = ReleasedPart(
                    releaser.released, releaser.passed, 0, 0, striper.next_sequence, _NO_EVENTS, _NO_COUNTS
                )
                host.feed(PartReleased(empty), StripeSender)

    def _advance(self, node: NodeId) -> None:
        """Give a sender what its receiver's journal has; one whose journal has a hole asks the others."""
        host = self.world.hosts[node]
        for part in self._parts[self._sites[node]]:
            if not host.running or not isinstance(host.machine, StripeSender):
                return
            following = host.machine.engine.next_sequence
            if part.first_sequence > following:
                self._take_over(host)
                return
            skip = following - part.first_sequence
            if skip < len(part.counts):
                host.feed(PartReleased(part.behind(skip) if skip else part), StripeSender)

    def _take_over(self, host: SimulatedHost) -> None:
        """Go on where the newest of the other senders is."""
        machine = host.machine
        if machine is None or self._taking_over.get(host.node) is machine:
            return
        self._taking_over[host.node] = machine
        world = self.world
        delay_ns = max([world.network.delay_ns(host.node, other) for other in self.senders if other != host.node] + [1])
        world.agenda.put(world.agenda.now + 2 * delay_ns, lambda _: self._taken_over(host, machine), None)

    def _taken_over(self, host: SimulatedHost, machine: Machine[Ordinary, object]) -> None:
        if self._taking_over.get(host.node) is machine:
            del self._taking_over[host.node]
        if host.machine is not machine or not host.running or not isinstance(machine, StripeSender):
            return
        others = [self.world.hosts[node].machine for node in self._reachable(host.node, self.senders)]
        engines = [other.engine for other in others if isinstance(other, StripeSender)]
        newest = max(engines, key=lambda engine: engine.next_sequence, default=machine.engine)
        if newest.next_sequence > machine.engine.next_sequence:
            machine.take_over(self._engine(newest.snapshot()), host.local_now())
            self._advance(host.node)

    def _reachable(self, node: NodeId, others: tuple[NodeId, ...]) -> list[NodeId]:
        """Customers that run, hear a node and are heard by it."""
        network, hosts = self.world.network, self.world.hosts
        return [
            other
            for other in others
            if other != node and hosts[other].running and network.reaches(node, other) and network.reaches(other, node)
        ]

    def _keep(self, node: NodeId) -> None:
        """A sender's snapshot goes to its disk now and then."""
        agenda, host = self.world.agenda, self.world.hosts[node]
        agenda.put(agenda.now + _KEEP_PERIODS * self.settings.token_period_ns, self._keep, node)
        if host.running and isinstance(host.machine, StripeSender):
            self._disks[node].state = host.machine.engine.snapshot()

    # Effects ------------------------------------------------------------------------------------

    def _perform(self, host: SimulatedHost, effect: object) -> None:
        match effect:
            case ArchiveStripe(packet):
                self._archived(host, packet)
            case SendStripe():
                self._sent(host, effect)
            case DeliverStripe(stripe, messages):
                self._delivered(host, stripe, messages)
            case PassOver():
                self._passed_over(host, effect)
            case Ask():
                self._ask(host, effect)
            case _:
                raise AssertionError(effect)

    def _archived(self, host: SimulatedHost, packet: StripePacket) -> None:
        self._disks[host.node].packets.setdefault(packet.session, []).append(packet)
        parsed = parse_packet(packet.raw)
        events = self._read(packet, parsed)
        self.world.fact(
            StripeArchived(
                self.world.agenda.now,
                host.node,
                packet.stripe,
                packet.session,
                packet.number,
                _messages(parsed),
                None if events is None else events.tobytes(),
            )
        )

    def _read(self, packet: StripePacket, parsed: MoldPacket) -> EventArray | None:
        """The events of a packet that nobody made before, without introductions."""
        session, following, decoder = self._reading.get(packet.stripe, (b"", 1, None))
        if decoder is None or packet.session > session:
            clock = DayClock.at(_EPOCH, self.settings.zone)
            session, following, decoder = packet.session, 1, ItchDecoder(Mic("XXXX"), clock, FeedLog("simulated"))
        if packet.session != session or packet.number != following:
            return None
        self._reading[packet.stripe] = session, packet.number + packet.count, decoder
        places = np.array(parsed.places, np.int64)
        events: EventArray = decoder.decode(np.frombuffer(parsed.body, np.uint8), places, places)
        carried: EventArray = events[events["kind"] != EventKind.DIRECTORY]
        return carried

    def _sent(self, host: SimulatedHost, effect: SendStripe) -> None:
        world, stripe, raw = self.world, effect.stripe, effect.raw
        parsed = MoldPacket(read_stripe_proof(raw).session, 0, 0) if effect.proof else parse_packet(raw)
        rate = self.plan.by_number[stripe].rate
        world.fact(
            StripeDatagramSent(
                world.agenda.now,
                host.node,
                host.local_now(),
                stripe,
                parsed.session,
                parsed.sequence,
                parsed.messages,
                IP_UDP_BYTES + len(raw),
                budget_bytes(rate, self.settings.token_period_ns),
            )
        )
        burst = (_Datagram(raw, host.node),)
        world.network.multicast(host.node, self._hears[host.node], burst, IP_UDP_BYTES + len(raw))
        self._forge(host, raw)
        machine = host.machine
        world.agenda.put(world.agenda.now, lambda _: self._is_sent(host, machine, stripe), None)

    @staticmethod
    def _is_sent(host: SimulatedHost, machine: Machine[Ordinary, object] | None, stripe: int) -> None:
        if isinstance(machine, StripeSender) and host.machine is machine:
            # Of a process that is stopped, too: the datagram had left.
            host.perform(machine.step(StripeSent(stripe), host.local_now()))
            host.arm()

    def _delivered(self, host: SimulatedHost, stripe: int, messages: tuple[NarrowMessage, ...]) -> None:
        framed = tuple([message.framed for message in messages])
        first = messages[0]
        self.world.fact(StripeDelivered(self.world.agenda.now, host.node, stripe, first.session, first.number, framed))

    def _passed_over(self, host: SimulatedHost, effect: PassOver) -> None:
        """Told with whether a sender that it can ask has one of them."""
        first = effect.before - effect.count
        machine = host.machine
        asks = isinstance(machine, NarrowCustomer) and machine.rules.complete
        others = self._reachable(host.node, self.senders) if asks else []
        numbers = range(first, effect.before)
        kept = any(self._disks[other].find(effect.session, number) for other in others for number in numbers)
        self.world.fact(
            StripeLeftOut(
                self.world.agenda.now, host.node, effect.stripe, effect.session, first, effect.before - 1, kept
            )
        )

    def _ask(self, host: SimulatedHost, ask: Ask) -> None:
        """One sender after the other, the lines of the customer first."""
        edge = self.world.scenario.edge
        lines = edge.stripe_lines(host.node)
        servers = (*lines, *[sender for sender in self.senders if sender not in lines])
        server = servers[self._turns[host.node] % len(servers)]
        self._turns[host.node] += 1
        self.world.network.unicast(host.node, server, ((host.node, ask),))

    def _asked(self, node: NodeId, burst: PacketBurst) -> None:
        """A request arrives at a sender: it answers from its archive, with as much as one packet has."""
        host = self.world.hosts[node]
        if not host.running:
            return
        prover = host.machine.prover if isinstance(host.machine, StripeSender) else None
        for request in burst:
            customer, ask = request  # type: ignore[misc]
            found = self._disks[node].find(ask.session, ask.first)  # type: ignore[has-type]
            if found is not None:
                answer = [found.raw]
                if prover is not None:
                    answer.insert(0, prover.prove_packets([found.raw], max(host.local_now(), 0)))
                burst = tuple([_Datagram(raw, node, repair=True) for raw in answer])
                self.world.network.unicast(node, customer, burst)  # type: ignore[has-type]

    # For the verdict ----------------------------------------------------------------------------

    def correct(self) -> dict[NodeId, int]:
        """Senders that run and whose receiver has everything, and customers that hear one of them and may ask."""
        last = max(self.world.recorder.last_sequence.values(), default=0) + 1
        found = {node: last for node in self.senders if self._has_everything(node, last)}
        for node in self.customers:
            lines = [line for line in self.world.scenario.edge.stripe_lines(node) if line in found]
            if self.world.hosts[node].running and self._reachable(node, tuple(lines)):
                found[node] = last
        return found

    def _has_everything(self, node: NodeId, last: int) -> bool:
        host, site = self.world.hosts[node], self._sites[node]
        if not host.running or not self.world.hosts[site].running or not isinstance(host.machine, StripeSender):
            return False
        following = host.machine.engine.next_sequence
        for part in self._parts[site]:
            if part.first_sequence <= following:
                following = max(following, part.first_sequence + len(part.counts))
        return following >= last

    def settled(self) -> bool:
        """Whether every correct sender has sent everything, and every correct customer has what was made."""
        tops = {stripe: following for stripe, (_, following, _) in self._reading.items()}
        for node, last in self.correct().items():
            match self.world.hosts[node].machine:
                case StripeSender() as sender:
                    striper = sender.engine.striper
                    if striper.next_sequence < last or striper.waiting or sender.pacer.waiting:
                        return False
                case NarrowCustomer() as customer:
                    numbers = customer.next_numbers()
                    if any(numbers[stripe] < following for stripe, following in tops.items()):
                        return False
                case _:
                    pass
        return True


def _messages(packet: MoldPacket) -> tuple[bytes, ...]:
    bounds = (*packet.places, len(packet.body))
    return tuple([packet.body[start:stop] for start, stop in pairwise(bounds)])


def stripe_of_symbols(stripes: int) -> dict[bytes, int]:
    """The stripe of each symbol that the plan names, as events have it; of all others, that of the empty one."""
    named = {symbol.encode().ljust(8, b"\0"): place % (stripes - 1) + 1 for place, symbol in enumerate(_NAMED)}
    return named | {b"": stripes}


def _plan(stripes: int, size: int, period_ns: int) -> StripePlan:
    """So many stripes, the spare one included, of so many IP bytes in a token period."""
    rate = -(-size * 8 * SECOND // period_ns)
    named = [
        EdgeStripe(number, 0, f"stripe {number}", rate, _NAMED[number - 1 :: stripes - 1])
        for number in range(1, stripes)
    ]
    return StripePlan(1, (*named, EdgeStripe(stripes, 0, "spare", rate, spare=True)), period_ns)
