"""A world of the original, event-driven protocol (§2.1): the baseline that the paper compares with.

Conventions of the count (protocol §9, §11): one constant delay; loss p for each packet and destination;
DATA and ACK multicast, NACK, REPAIR and TOKACK unicast; Poisson arrivals, each from a source of its own.

A source of its own: a source that was used before, is idle, and whose messages every receiver has placed
behaves exactly as one that nobody has heard of. So sources are used again then, and a long run needs
no more of them, and no more memory, than are busy at one time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import cast

from isocast.ring.original.effects import Acknowledged, Multicast, Placed, RingSuspected, Suspicion, Unicast
from isocast.ring.original.inputs import MessageSubmitted, PacketsArrived
from isocast.ring.original.packets import Ack, Packet
from isocast.ring.original.receiver import Receiver
from isocast.ring.original.source import Source
from isocast.ring.original.timers import Timers
from isocast.simulation.agenda import Agenda
from isocast.simulation.clock import Clock
from isocast.simulation.host import Host, Machine
from isocast.simulation.network import Burst, Deliver, LinkModel, Network
from isocast.simulation.original_watch import Watch
from isocast.simulation.randomness import stream
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NodeId, is_source, source_id
from isocast.terms.instants import SECOND, to_seconds

__all__ = ["OriginalParameters", "OriginalResult", "run_original"]

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
    suspicions: dict[Suspicion, int]
    trace_digest: str
    violations: list[str]
    deliveries: int
    """Packets that the network delivered."""
    duration_s: float
    """Virtual seconds."""


@dataclass
class _Pool:
    """All sources, and which of them can be used again."""

    free: dict[NodeId, list[Host]] = field(default_factory=dict)
    """By place, those that no receiver could tell from a new one."""
    stable: set[NodeId] = field(default_factory=set)
    """Sources whose messages every receiver has placed; asked only for membership."""
    hosts: dict[NodeId, Host] = field(default_factory=dict)


class _World:
    """Receivers, sources and the network between them.

    All sources of one place are one node of the network: each packet has its own draw of loss anyway.
    """

    def __init__(self, parameters: OriginalParameters) -> None:
        self.agenda = Agenda()
        self.suspicions: dict[Suspicion, int] = dict.fromkeys(Suspicion, 0)
        self._parameters = parameters
        self._timers = parameters.timers
        self._sites = tuple(range(1, parameters.receivers + 1))
        self._places = tuple(source_id(number, 0) for number in range(1, 1 + max(len(parameters.delays_ns), 1)))
        self._audiences = {place: (*self._sites, place) for place in self._places}
        self._pool = _Pool({place: [] for place in self._places})
        self._arrivals: Random = stream(parameters.seed, "arrivals")
        self.arrived = 0
        self._arriving = True
        self.watch = Watch(self._sites)
        self.network = Network(
            self.agenda,
            parameters.seed,
            LinkModel(parameters.loss, parameters.tree, parameters.jitter_ns, parameters.duplicate),
            self._delay_ns,
            self._branch,
        )
        self.network.lost_hook = self._lost
        for site in self._sites:
            self.network.attach(site, self._ear(self._host(site, Receiver(site, self._sites, self._timers))))
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
        host.feed(MessageSubmitted(_PAYLOAD))

    def _next_source(self) -> Host:
        pool, turns = self._pool, self._parameters.sources
        if turns and len(pool.hosts) == turns:
            return pool.hosts[source_id(1 + self.arrived % turns)]
        free = pool.free[self._places[self.arrived % len(self._places)]]
        if free:
            return free.pop()
        node = source_id(1 + self.arrived)
        host = pool.hosts[node] = self._host(node, Source(node, self._timers))
        return host

    def _source_acknowledged(self, host: Host) -> None:
        if host.node in self._pool.stable:
            self._release(host)

    def _source_stable(self, source: NodeId) -> None:
        host = self._pool.hosts[source]
        if cast("Source", host.machine).idle:
            self._release(host)
        else:
            self._pool.stable.add(source)

    def _release(self, host: Host) -> None:
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

    def _host(self, node: NodeId, machine: Receiver | Source) -> Host:
        return Host(node, cast("Machine", machine), self.agenda, Clock(), self._perform)

    def _ear(self, host: Host) -> Deliver:
        feed = host.feed

        def hear(burst: Burst) -> None:
            feed(PacketsArrived(burst))  # type: ignore[arg-type]  # Only this world's packets travel here.

        return hear

    def _hear_for_source(self, burst: Burst) -> None:
        for packet in burst:
            ack = cast("Ack", packet)
            self._pool.hosts[ack.label.source].feed(PacketsArrived((ack,)))

    def _perform(self, host: Host, effect: object) -> None:
        match effect:
            case Placed():
                stable = self.watch.placed(host.node, effect.token_number, effect.label, self.agenda.now)
                if stable is not None:
                    self._source_stable(stable.source)
            case Multicast():
                self._multicast(host.node, effect.packet)
            case Unicast():
                self.watch.sent(host.node, effect.to, effect.packet, self.agenda.now)
                to = self._place(effect.to) if is_source(effect.to) else effect.to
                self.network.unicast(host.node, to, (effect.packet,))
            case Acknowledged():
                self._source_acknowledged(host)
            case RingSuspected():
                self.suspicions[effect.reason] += self.watch.counting
            case _:
                raise LocalProtocolError(f"no effect of the original protocol: {effect}")

    def _multicast(self, node: NodeId, packet: Packet) -> None:
        self.watch.sent(node, 0, packet, self.agenda.now)
        if isinstance(packet, Ack):
            self.network.multicast(node, self._audiences[self._place(packet.label.source)], (packet,))
        else:
            self.network.multicast(self._place(node), self._sites, (packet,))

    def _lost(self, to: NodeId, burst: Burst) -> None:
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
