"""A world of the original protocol (§2.1), the baseline that the paper compares with, and its checker.

Conventions of the count (protocol §9, §11): one constant delay; loss p for each packet and destination;
DATA and ACK multicast, NACK, REPAIR and TOKACK unicast; Poisson arrivals, each from a source of its own.

A source of its own: a source that was used before, is idle, and whose messages every receiver has placed
behaves exactly as one that nobody has heard of. So sources are used again then, and a long run needs
no more of them, and no more memory, than are busy at one time.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import assert_never, cast

from isocast.ring.inputs import Machine
from isocast.ring.original.packets import (
    Ack,
    AckItem,
    AckOfItem,
    MessageItem,
    MessageSubmitted,
    OriginalAcknowledged,
    OriginalData,
    OriginalMulticast,
    OriginalNack,
    OriginalPacket,
    OriginalPacketsArrived,
    OriginalRepair,
    OriginalRingSuspected,
    OriginalSuspicion,
    OriginalUnicast,
    Placed,
    Timers,
    TokenAck,
)
from isocast.ring.original.receiver import OriginalReceiver, Source, possession_floor
from isocast.simulation.host import Clock, Ordinary, SimulatedHost
from isocast.simulation.network import Agenda, LinkModel, Network, OnArrival, PacketBurst, stream
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Label, NodeId, describe, is_source, source_id
from isocast.terms.instants import SECOND, to_seconds

__all__ = ["EffectWatch", "OriginalParameters", "OriginalResult", "run_original"]


# Watches a world of the original protocol from outside: counts, figures, and what §2.1 promises.
#
# It sees only effects and losses, never the inside of a machine. What every receiver has placed leaves its
# memory, so that a run may be as long as it likes.


_VIOLATIONS_MAX = 20
"""Enough to understand a failure; one broken rule breaks all later positions too."""


class EffectWatch:
    """Checks every effect of every node as it is performed."""

    def __init__(self, sites: tuple[NodeId, ...]) -> None:
        """Nothing submitted, nothing placed."""
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.counting = True
        """Off while a world closes: what that costs is no figure of the protocol."""
        self.assigned = 0
        """The highest position that was ever acknowledged."""
        self.stable = 0
        """Every receiver has placed everything up to here."""
        self.nacks_by_loss: Counter[int] = Counter()
        """How many lost packets cost so many NACKs."""
        self.latency_ns = 0
        """Summed over all messages: from submission to the instant at which a token site acknowledges."""
        self._sites = sites
        self._placed = dict.fromkeys(sites, 0)
        self._acks: dict[int, Ack] = {}
        self._lacking: dict[int, int] = {}
        self._submitted: dict[NodeId, int] = {}
        self._instants: dict[NodeId, deque[int]] = {}
        self._last_acks: dict[NodeId, Ack] = {}
        self._nacks: dict[int | Label, int] = {}
        self._trace = blake2b(digest_size=16)

    @property
    def trace_digest(self) -> str:
        """Over every assignment and every control packet, with their instants."""
        return self._trace.hexdigest()

    def submitted(self, source: NodeId, now: int) -> None:
        """A source takes one more message from its client."""
        self._submitted[source] = self._submitted.get(source, 0) + 1
        self._instants.setdefault(source, deque()).append(now)

    def sent(self, node: NodeId, to: NodeId, packet: OriginalPacket, now: int) -> None:
        """A node sends a packet; `to` is 0 for a multicast."""
        match packet:
            case OriginalData():
                return
            case Ack(number, label):
                self._acknowledged(node, packet)
                self._control("acks", f"{now} {node} {to} ack {number} {label.source} {label.number}\n")
            case TokenAck(number):
                self._control("tokacks", f"{now} {node} {to} tokack {number}\n")
            case OriginalNack(_, item):
                key = self._key(item)
                if key in self._nacks:
                    self._nacks[key] += 1
                self._control("nacks", f"{now} {node} {to} nack {item}\n")
            case OriginalRepair(item):
                if isinstance(item, Ack):
                    self._acknowledged(node, item)
                self._control("repairs", f"{now} {node} {to} repair {item.label}\n")
            case _:
                assert_never(packet)

    def _control(self, kind: str, line: str) -> None:
        if self.counting:
            self.counts[kind] += 1
        self._trace.update(line.encode())

    def placed(self, site: NodeId, number: int, label: Label, now: int) -> Label | None:
        """A receiver fills a position. Says which message every receiver has now, if this was the last."""
        if number != self._placed[site] + 1:
            self._violated(f"{describe(site)} placed {number} after {self._placed[site]}")
        self._placed[site] = number
        if number == self.assigned + 1:
            # The acknowledging site itself places first: what it places is what it will send.
            self._assign(site, number, label, now)
        elif number not in self._lacking:
            self._violated(f"{describe(site)} placed {number}, which nobody acknowledged or everybody had")
            return None
        elif self._acks[number].label != label:
            self._violated(f"{describe(site)} placed {label} at {number}, others {self._acks[number].label}")
        self._lacking[number] -= 1
        if self._lacking[number]:
            return None
        return self._settle(number)

    def lost(self, packet: object) -> None:
        """A multicast packet did not reach some receiver, and not all receivers have what is in it."""
        if isinstance(packet, Ack):
            if packet.token_number > self.stable:
                self._nacks.setdefault(packet.token_number, 0)
        elif isinstance(packet, OriginalData):
            last = self._last_acks.get(packet.label.source)
            if last is None or packet.label.number > last.label.number or last.token_number > self.stable:
                self._nacks.setdefault(packet.label, 0)

    def closed(self) -> None:
        """Nothing is left to happen: everything that was submitted must be everywhere."""
        for source, count in self._submitted.items():
            last = self._last_acks.get(source)
            if last is None or last.label.number < count:
                self._violated(f"{describe(source)} submitted {count}, of which some were never acknowledged")
        for site, number in self._placed.items():
            if number != self.assigned:
                self._violated(f"{describe(site)} ends at {number}, acknowledged were {self.assigned}")

    def nacks_per_loss(self, quantile: float) -> int:
        """The smallest number of NACKs that this share of the lost packets did not exceed."""
        reached, total = 0, self.nacks_by_loss.total()
        for nacks in sorted(self.nacks_by_loss):
            reached += self.nacks_by_loss[nacks]
            if reached >= quantile * total:
                return nacks
        return 0

    def _assign(self, site: NodeId, number: int, label: Label, now: int) -> None:
        last, size = self._last_acks.get(label.source), len(self._sites)
        if site != self._sites[(number - 1) % size]:
            self._violated(f"{describe(site)} acknowledged {number} out of turn")
        if label.number != (1 if last is None else last.label.number + 1):
            self._violated(f"{label} was acknowledged at {number}, after {last}")
        if label.number > self._submitted.get(label.source, 0):
            self._violated(f"{label} was acknowledged at {number}, but never submitted")
        elif self.counting and (instants := self._instants[label.source]):
            self.latency_ns += now - instants.popleft()
        self._acks[number] = self._last_acks[label.source] = Ack(number, label, site, self._sites[number % size])
        self._acks.pop(number - 2 * size, None)
        self._lacking[number] = size
        self.assigned = number
        if possession_floor(number, size) > self.stable:
            self._violated(f"{number} was acknowledged while all have only {self.stable}")

    def _acknowledged(self, node: NodeId, ack: Ack) -> None:
        """The sender of an acknowledgement, first or again, has everything up to it, and all copies agree."""
        number = ack.token_number
        if self._placed[node] < number:
            self._violated(f"{describe(node)} sent acknowledgement {number} with {self._placed[node]} placed")
        known = self._acks.get(number) or self._last_acks[ack.label.source]
        # An older one, whose source has moved on since, is out of memory: everybody has it.
        if known != ack and not (number <= self.stable and ack.label.number < known.label.number):
            self._violated(f"acknowledgement {number} is {ack} and {known}")

    def _settle(self, number: int) -> Label:
        """Everybody has the position: no NACK can name it any more."""
        label = self._acks[number].label
        del self._lacking[number]
        self.stable = number
        for key in (number, label):
            nacks = self._nacks.pop(key, None)
            if nacks is not None:
                self.nacks_by_loss[nacks] += 1
        return label

    def _key(self, item: AckItem | AckOfItem | MessageItem) -> int | Label:
        match item:
            case AckItem(number):
                return number
            case MessageItem(_, label):
                return label
            case AckOfItem(label):
                return next((number for number, ack in self._acks.items() if ack.label == label), 0)

    def _violated(self, text: str) -> None:
        if len(self.violations) < _VIOLATIONS_MAX:
            self.violations.append(text)


_RING_MIN = 2
_PAYLOAD = b""
_PATIENCE = 100
"""So many repetitions without any progress have another cause than losses."""


@dataclass(frozen=True)
class OriginalParameters:
    """Everything that a run is a function of."""

    seed: int
    receivers: int
    """m."""
    messages: int
    loss: float
    """p."""
    tree: bool
    """Losses on the branches of a multicast tree instead of independent ones."""
    one_way_delay_ns: int
    """d."""
    jitter_ns: int
    """Mean of an exponential delay on top of d; reorders packets."""
    arrival_rate: float
    """λ, messages per second."""
    token_ack_ns: int
    """T_a."""
    token_resend_ns: int
    """R_t."""
    source_resend_ns: int
    """R_s."""
    nack_resend_ns: int
    """R_n."""
    retries_max: int
    """k_r."""
    sources: int = 0
    """n sources that take turns, each waiting for its acknowledgement; 0: each message from a source of its own."""
    tree_branches: int = 0
    """Of the multicast tree, each with a stretch of the ring. 0: √m."""
    duplicate: float = 0.0
    """Share of packets that arrive twice."""
    duration_ns: int = 0
    """No message arrives later than this; 0: all of them do."""
    delays_ns: tuple[tuple[int, ...], ...] = ()
    """From each receiver's place (row) to each (column), instead of one delay; sources take turns at the places."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, or would never end."""
        if self.receivers < _RING_MIN:
            raise LocalProtocolError(f"receivers (m) must be at least {_RING_MIN}")
        if self.messages < 1:
            raise LocalProtocolError("messages must be at least 1")
        if not 0 <= self.loss < 1:
            raise LocalProtocolError("loss (p) must be at least 0 and less than 1")
        if not 0 <= self.duplicate <= 1:
            raise LocalProtocolError("duplicate must be from 0 to 1")
        if min(self.one_way_delay_ns, self.jitter_ns, self.sources, self.tree_branches) < 0:
            raise LocalProtocolError("one_way_delay, jitter, sources and tree_branches must not be negative")
        if self.delays_ns and {len(self.delays_ns), *map(len, self.delays_ns)} != {self.receivers}:
            raise LocalProtocolError("delays must have a row and a column for each receiver")
        if not self.arrival_rate > 0:
            raise LocalProtocolError("arrival_rate (λ) must be positive")
        _ = self.timers

    @property
    def timers(self) -> Timers:
        """What the machines need of this."""
        return Timers(
            token_ack_ns=self.token_ack_ns,
            token_resend_ns=self.token_resend_ns,
            source_resend_ns=self.source_resend_ns,
            nack_resend_ns=self.nack_resend_ns,
            retries_max=self.retries_max,
        )


@dataclass(frozen=True)
class OriginalResult:
    """What a run showed. Figures stop when the last arrival's traffic has ended; the checks go on to the end."""

    messages: int
    """Acknowledged, each with a position of its own."""
    acks: int
    """Sent, the repeated ones too."""
    tokacks: int
    nacks: int
    repairs: int
    control_per_message: float
    """(ACKs+TOKACKs+NACKs+repairs) per message."""
    nacks_per_ack: float
    """Per position acknowledged."""
    repairs_per_ack: float
    """Per position acknowledged."""
    nacks_per_loss_p99: float
    """NACKs of all receivers for a message or an acknowledgement that some receiver lost when it was multicast."""
    latency_s_mean: float
    """From submission to the instant at which a token site acknowledges."""
    false_suspicions: int
    """Nobody ever fails here, so that every suspicion is a false one."""
    suspicions: dict[OriginalSuspicion, int]
    trace_digest: str
    violations: list[str]
    deliveries: int
    """Packets that the network delivered."""
    duration_s: float
    """Virtual seconds."""


@dataclass
class _Pool:
    """All sources, and which of them can be used again."""

    free: dict[NodeId, list[SimulatedHost]] = field(default_factory=dict)
    """By place, those that no receiver could tell from a new one."""
    stable: set[NodeId] = field(default_factory=set)
    """Sources whose messages every receiver has placed; asked only for membership."""
    hosts: dict[NodeId, SimulatedHost] = field(default_factory=dict)


class _World:
    """Receivers, sources and the network between them.

    All sources of one place are one node of the network: each packet has its own draw of loss anyway.
    """

    def __init__(self, parameters: OriginalParameters) -> None:
        self.agenda = Agenda()
        self.suspicions: dict[OriginalSuspicion, int] = dict.fromkeys(OriginalSuspicion, 0)
        self._parameters = parameters
        self._timers = parameters.timers
        self._sites = tuple(range(1, parameters.receivers + 1))
        self._places = tuple(source_id(number, 0) for number in range(1, 1 + max(len(parameters.delays_ns), 1)))
        self._audiences = {place: (*self._sites, place) for place in self._places}
        self._pool = _Pool({place: [] for place in self._places})
        self._arrivals: Random = stream(parameters.seed, "arrivals")
        self.arrived = 0
        self._arriving = True
        self.watch = EffectWatch(self._sites)
        self.network = Network(
            self.agenda,
            parameters.seed,
            LinkModel(parameters.loss, parameters.tree, parameters.jitter_ns, parameters.duplicate),
            self._delay_ns,
            self._branch,
        )
        self.network.lost_hook = self._lost
        for site in self._sites:
            self.network.attach(site, self._ear(self._host(site, OriginalReceiver(site, self._sites, self._timers))))
        for place in self._places:
            self.network.attach(place, self._hear_for_source)

    def run(self) -> None:
        """All arrivals, until nothing is left to happen; then close, and see that everything is everywhere."""
        self._plan_arrival()
        while self._arriving:
            self.agenda.run(self.agenda.next_instant or 0)
        self._settle()
        # "receivers that missed the last source messages or acknowledgements do not detect their loss" (§2.1):
        # one more message, without losses, shows it to them.
        self.watch.counting = False
        self.network.set_loss(0.0)
        self._submit()
        self._settle()
        if not self.watch.violations:
            self.watch.closed()

    def _settle(self) -> None:
        """Let everything happen that must, but not for ever: a ring that never rests is a violation."""
        timers, loss = self._timers, self._parameters.loss
        slowest = max(timers.token_resend_ns, timers.source_resend_ns, timers.nack_resend_ns)
        patience = round(_PATIENCE * (slowest + self._parameters.one_way_delay_ns) / (1 - loss) ** 2)
        stable, limit = self.watch.stable, self.agenda.now + patience
        while (instant := self.agenda.next_instant) is not None and not self.watch.violations:
            if self.watch.stable > stable:
                stable, limit = self.watch.stable, instant + patience
            if instant > limit:
                self.watch.violations.append(f"the ring does not come to rest after {self.watch.stable}")
            self.agenda.run(instant)

    # ---- arrivals

    def _plan_arrival(self) -> None:
        wait = round(self._arrivals.expovariate(self._parameters.arrival_rate) * SECOND)
        at, duration = self.agenda.now + wait, self._parameters.duration_ns
        self._arriving = self.arrived < self._parameters.messages and not 0 < duration < at
        if self._arriving:
            self.agenda.put(at, self._arrive, None)

    def _arrive(self, _: object) -> None:
        self._submit()
        self.arrived += 1
        self._plan_arrival()

    def _submit(self) -> None:
        host = self._next_source()
        self.watch.submitted(host.node, self.agenda.now)
        host.feed(MessageSubmitted(_PAYLOAD), Source)

    def _next_source(self) -> SimulatedHost:
        pool, turns = self._pool, self._parameters.sources
        if turns and len(pool.hosts) == turns:
            return pool.hosts[source_id(1 + self.arrived % turns)]
        free = pool.free[self._places[self.arrived % len(self._places)]]
        if free:
            return free.pop()
        node = source_id(1 + self.arrived)
        host = pool.hosts[node] = self._host(node, Source(node, self._timers))
        return host

    def _source_acknowledged(self, host: SimulatedHost) -> None:
        if host.node in self._pool.stable:
            self._release(host)

    def _source_stable(self, source: NodeId) -> None:
        host = self._pool.hosts[source]
        if cast("Source", host.machine).idle:
            self._release(host)
        else:
            self._pool.stable.add(source)

    def _release(self, host: SimulatedHost) -> None:
        self._pool.stable.discard(host.node)
        if not self._parameters.sources:
            self._pool.free[self._place(host.node)].append(host)

    # ---- places

    def _place(self, source: NodeId) -> NodeId:
        return self._places[((source >> 32) - 1) % len(self._places)]

    def _delay_ns(self, a: NodeId, b: NodeId) -> int:
        delays = self._parameters.delays_ns
        if not delays:
            return self._parameters.one_way_delay_ns
        row, column = (node >> 32 if is_source(node) else node for node in (a, b))
        return delays[row - 1][column - 1]

    def _branch(self, node: NodeId) -> int:
        receivers = self._parameters.receivers
        branches = self._parameters.tree_branches or max(round(receivers**0.5), 1)
        return -node if is_source(node) else (node - 1) * branches // receivers

    # ---- the driver

    def _host(self, node: NodeId, machine: OriginalReceiver | Source) -> SimulatedHost:
        return SimulatedHost(node, cast("Machine[Ordinary, object]", machine), self.agenda, Clock(), self._perform)

    def _ear(self, host: SimulatedHost) -> OnArrival:
        feed = host.feed

        def hear(burst: PacketBurst) -> None:
            feed(OriginalPacketsArrived(burst), OriginalReceiver)  # type: ignore[arg-type]  # Only this world's packets travel here.

        return hear

    def _hear_for_source(self, burst: PacketBurst) -> None:
        for packet in burst:
            ack = cast("Ack", packet)
            self._pool.hosts[ack.label.source].feed(OriginalPacketsArrived((ack,)), Source)

    def _perform(self, host: SimulatedHost, effect: object) -> None:
        match effect:
            case Placed():
                stable = self.watch.placed(host.node, effect.token_number, effect.label, self.agenda.now)
                if stable is not None:
                    self._source_stable(stable.source)
            case OriginalMulticast():
                self._multicast(host.node, effect.packet)
            case OriginalUnicast():
                self.watch.sent(host.node, effect.to, effect.packet, self.agenda.now)
                to = self._place(effect.to) if is_source(effect.to) else effect.to
                self.network.unicast(host.node, to, (effect.packet,))
            case OriginalAcknowledged():
                self._source_acknowledged(host)
            case OriginalRingSuspected():
                self.suspicions[effect.reason] += self.watch.counting
            case _:
                raise LocalProtocolError(f"no effect of the original protocol: {effect}")

    def _multicast(self, node: NodeId, packet: OriginalPacket) -> None:
        self.watch.sent(node, 0, packet, self.agenda.now)
        if isinstance(packet, Ack):
            self.network.multicast(node, self._audiences[self._place(packet.label.source)], (packet,))
        else:
            self.network.multicast(self._place(node), self._sites, (packet,))

    def _lost(self, to: NodeId, burst: PacketBurst) -> None:
        if not is_source(to):
            for packet in burst:
                self.watch.lost(packet)


def run_original(parameters: OriginalParameters) -> OriginalResult:
    """Run one world to its end."""
    world = _World(parameters)
    world.run()
    watch, messages = world.watch, max(world.arrived, 1)
    counts = watch.counts
    return OriginalResult(
        messages=watch.assigned - 1,
        acks=counts["acks"],
        tokacks=counts["tokacks"],
        nacks=counts["nacks"],
        repairs=counts["repairs"],
        control_per_message=counts.total() / messages,
        nacks_per_ack=counts["nacks"] / messages,
        repairs_per_ack=counts["repairs"] / messages,
        nacks_per_loss_p99=float(watch.nacks_per_loss(0.99)),
        latency_s_mean=to_seconds(watch.latency_ns) / messages,
        false_suspicions=sum(world.suspicions.values()),
        suspicions=world.suspicions,
        trace_digest=watch.trace_digest,
        violations=watch.violations,
        deliveries=world.network.deliveries,
        duration_s=to_seconds(world.agenda.now),
    )
