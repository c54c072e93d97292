"""One market as values: its nodes, ring, network, times, clocks and journals.

`market.file` reads and checks them; whatever stands here has passed its rules. Every process of a market reads
the same file, so groups, ids and times need no agreement while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Address
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from isocast.ring.settings import OrderRule, RingSettings, StartPolicy
from isocast.runtime.market.floors import FloorTable
from isocast.security.subscriptions import DAY_NS
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.ids import NodeId, is_guest, is_source, operator_id
from isocast.terms.market import Grade
from isocast.terms.timing import Timing, affords_receipts
from isocast.terms.topology import City, delay_ns
from isocast.wire.frame import market_id
from isocast.wire.limits import EVENT_BYTES, SEAL_BYTES, payload_capacity

if TYPE_CHECKING:
    from isocast.floor.rights import SourceRights

__all__ = [
    "PORT_BLOCK",
    "ClockSettings",
    "ClockSource",
    "CoverageTable",
    "DelayModel",
    "Durability",
    "EdgeTable",
    "GuestTable",
    "Impairment",
    "JournalSettings",
    "Market",
    "MeasurementSettings",
    "NetworkMode",
    "NetworkSettings",
    "NodePlan",
    "NodeRole",
    "Reveal",
    "SecuritySettings",
    "SocketFilter",
    "StoreSettings",
    "SubscriptionTable",
    "TlsMode",
    "line_listeners",
    "line_receivers",
]

_LAST_GROUP = int(IPv4Address("239.255.255.255"))
_TTL_MAX = 255
_METRES = 1000


class NetworkMode(StrEnum):
    """How a packet reaches all members of a group."""

    MULTICAST = "multicast"
    FANOUT = "fanout"
    """By unicast to each, for networks without multicast."""


class Durability(StrEnum):
    """What a write survives before the effect that rests on it follows."""

    PROCESS = "process"
    """The end of the process: handed to the kernel."""
    POWER = "power"
    """The end of the power supply: on the disk."""

    @property
    def meaning(self) -> str:
        """In one line what survives under it, and what does not."""
        if self is Durability.POWER:
            return (
                "survives kill -9, and a power cut of any machine or of all: what was accepted, receipted or promised"
                " is on the disk first. Not the loss of a disk"
            )
        return (
            "survives kill -9 of any process, not a power cut or a crash of the kernel: then every receiver and"
            " reformation server of that machine has forgotten what it promised and must come back under a new number,"
            " and what its sources had accepted is in doubt"
        )


class ClockSource(StrEnum):
    """Whose word counts for the clock's error bound."""

    KERNEL = "kernel"
    """The kernel's estimate while it is synchronised; the configured bound while it is not."""
    CONFIGURED = "configured"
    """The configured bound, always."""


class SocketFilter(StrEnum):
    """What the kernel judges of a datagram before a process is woken."""

    ADDRESSES = "addresses"
    """Who sent it, and whether it is a frame of this market and stripe."""
    FRAMES = "frames"
    """Whether it is a frame of this market and stripe: for networks that translate addresses."""
    OFF = "off"


class TlsMode(StrEnum):
    """Which doors and pages speak TLS."""

    AUTO = "auto"
    """Those that are not on loopback."""
    ON = "on"
    OFF = "off"


class DelayModel(StrEnum):
    """The delay that a demo puts between two nodes."""

    CITIES = "cities"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """How packets travel."""

    mode: NetworkMode
    groups: str
    """Data of stripe i is this + 2i, control this + 2i + 1."""
    lines: str
    """The line of site n is this + n, and `stripe_groups` further for each stripe."""
    repairs: str
    """The line of retransmit server n is this + n."""
    slot: int
    """Which of the markets of a machine this is."""
    port: int
    """UDP port of every group."""
    ttl: int
    source_specific: bool
    filter: SocketFilter
    tls: TlsMode
    mtu: int
    stripe_ports: int
    """Ports of a node's process in stripe i are this · i further, where it has no address of its own."""
    stripe_groups: int
    """Lines of stripe i are this · i further."""
    receive_buffer: int
    """Bytes that a socket asks the kernel for."""


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """What is known of the clocks."""

    bound_ns: int
    """ε: no clock of the market is further from true time."""
    source: ClockSource
    realtime: bool
    """Ask for a real-time priority (SCHED_FIFO) where the machine allows it."""


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How a journal is kept."""

    segment_bytes: int = 64 << 20
    """A new segment begins when a block would make the present one longer."""
    durability: Durability = Durability.PROCESS
    """`process`: written before anything is sent; `power`: and fdatasync for each block."""
    keep_bytes: int = 0
    """Oldest segments go while all together are longer; 0 keeps everything."""
    keep_seconds: int = 0
    """Segments go when their newest block is older; 0 keeps everything."""
    release_delay_ns: int = 0
    """Δ_A, which the journal's record keeps for audits; 0: nothing is said."""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.segment_bytes < 1 or self.keep_bytes < 0 or self.keep_seconds < 0:
            raise LocalProtocolError("a journal's segments have at least a byte, and its limits are not negative")
        if self.durability not in tuple(Durability):
            raise LocalProtocolError(f"durability {self.durability!r}: process or power")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How a store writes, and how much of the past it keeps."""

    durability: Durability = Durability.PROCESS
    segment_bytes: int = 64 << 20
    """A new segment begins once one is as long."""
    keep_bytes: int = 512 << 20
    """How much of a site's log is kept, for peers that were away, beyond what it needs itself."""

    @property
    def keep_segments(self) -> int:
        """`keep_bytes` in segments, the one that grows included."""
        return max(1, self.keep_bytes // self.segment_bytes)


@dataclass(frozen=True, slots=True)
class MeasurementSettings:
    """What a node writes down of its network, second by second."""

    keep_bytes: int
    """0: nothing."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """Loss and delay that a demo injects on loopback; `enabled` is never true anywhere else."""

    enabled: bool = False
    loss: float = 0.0
    """Share of packets lost, for each destination alone."""
    jitter_ns: int = 0
    """Mean of an exponential delay on top."""
    delay: DelayModel = DelayModel.CITIES
    seed: int = 1


@dataclass(frozen=True, slots=True)
class EdgeTable:
    """What all processes of the edge agree on."""

    plan: Path
    """The stripe plan to begin with."""
    plans: Path
    """Directory of later ones."""
    groups: str
    proofs: str
    repairs: str
    span: int
    port: int
    request_port: int
    requests: bool
    """Whether strangers off loopback are answered."""
    request_rate: int
    repair_share: float
    repair_window_ns: int
    patience: int
    delay_ns: int
    introduce_ns: int
    zone: str
    keep_days: int
    prove_every_ns: int
    seal: str
    """`sold` or `never`."""

    def group(self, site: int, stripe: int) -> str:
        """The group of a narrow stripe, as one receiver sends it."""
        return _edge_group(self.groups, site, stripe, self.span)

    def proof_group(self, site: int, stripe: int) -> str:
        """The group of its proofs, beside it."""
        return _edge_group(self.proofs, site, stripe, self.span)

    def repair_group(self, server: int, stripe: int) -> str:
        """The group of its repairs, as one retransmit server sends them."""
        return _edge_group(self.repairs, server, stripe, self.span)


def _edge_group(base: str, node: int, stripe: int, span: int) -> str:
    if not 0 < stripe < span:
        rule = f"is {span:,}, but there is a stripe {stripe:,}: raise it in the market file of every machine"
        raise ConfigurationError("market", "edge.span", rule)
    number = int(IPv4Address(base)) + node * span + stripe
    if number > _LAST_GROUP:
        rule = f"{base} has no room for stripe {stripe} of number {node}: choose a lower address, or a smaller span"
        raise ConfigurationError("market", "edge.groups", rule)
    return str(IPv4Address(number))


@dataclass(frozen=True, slots=True)
class CoverageTable:
    """What servers, receivers and customers agree on."""

    enabled: bool
    lines: int
    delay_max_ns: int
    groups: str
    addresses: int
    drain_ns: int
    drain_everywhere: bool
    notices: str
    km_per_hop: int

    def first_group(self, stripe: int) -> IPv4Address:
        """Where the pool of a stripe begins."""
        return IPv4Address(self.groups) + stripe * self.addresses

    def notice_group(self, stripe: int) -> str:
        """Where a stripe's receivers say where the lines are."""
        return str(IPv4Address(self.notices) + stripe)

    def ttl(self, radius_m: int) -> int:
        """Of a scope: its routers, and one more."""
        return min(1 + ceil(radius_m / _METRES / self.km_per_hop), _TTL_MAX)


@dataclass(frozen=True, slots=True)
class GuestTable:
    """What a door gives to listeners that have no seat in the file."""

    allowed: bool = True
    share: int = 4_000
    """Messages a second for one address and key: a tenth of what a retransmit server's door gives to all."""
    total: int = 20_000
    """Messages a second for all guests of a door: half of what it gives, the rest is for those who have a seat."""
    most: int = 192
    """Connections at one door: three quarters of those that it takes."""


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """What nodes demand of each other."""

    signatures: bool = True
    """Whether they sign, and need identities and a roster."""
    receipts: str = "auto"
    """Whether receipts are signed too: auto, while that costs a member little; always; or never."""
    doors: str = "identity"
    """What both sides of a door prove: their identities besides its key, or the key alone."""


@dataclass(frozen=True, slots=True)
class SubscriptionTable:
    """Whether what the lines carry is sold, and for how long at a time."""

    enabled: bool = False
    period_ns: int = DAY_NS
    """Period n covers n·P to (n+1)·P of the tokens' instants."""


PORT_BLOCK = 4
"""UDP ports of a node: direct, then control, data and line of the fan-out mode."""


class Reveal(StrEnum):
    """Who opens sealed payloads."""

    SEAL = "seal"
    """Receivers, at the release."""
    CHAIN = "chain"
    """Nobody before their source discloses the keys."""


class NodeRole(StrEnum):
    """The roles of Figure 2."""

    PRIMARY_RECEIVER = "primary-receiver"
    SECONDARY_RECEIVER = "secondary-receiver"
    PRIMARY_SOURCE = "primary-source"
    SECONDARY_SOURCE = "secondary-source"
    RETRANSMIT_SERVER = "retransmit-server"
    REFORMATION_SERVER = "reformation-server"
    CUSTOMER = "customer"

    @property
    def is_receiver(self) -> bool:
        """Whether it is a trusted receiver: R_P or R_S."""
        return self in (NodeRole.PRIMARY_RECEIVER, NodeRole.SECONDARY_RECEIVER)

    @property
    def is_source(self) -> bool:
        """Whether it is S_P or S_S."""
        return self in (NodeRole.PRIMARY_SOURCE, NodeRole.SECONDARY_SOURCE)

    @property
    def has_door(self) -> bool:
        """Whether others come in by TCP: to publish at a source, for ranges at a receiver or retransmit server."""
        return self not in (NodeRole.REFORMATION_SERVER, NodeRole.CUSTOMER)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One process of the market."""

    name: str
    role: NodeRole
    node: NodeId
    """Its id on the wire; for a source with incarnation 0, which `terms.ids.source_id` replaces when it starts."""
    number: int
    """Its number among its kind: sites, servers, sources, others."""
    address: str
    """IPv4, dotted; also the interface for multicast."""
    port: int
    """The first of PORT_BLOCK UDP ports."""
    http_port: int = 0
    """Metrics and health; 0: none."""
    tcp_port: int = 0
    """The door for publishers, or for ranges; 0: none."""
    place: City | None = None
    parent: str = ""
    """A secondary receiver's receiver; a secondary source's primary source."""
    backup: str = ""
    """A secondary receiver's second receiver, for when its parent fails."""
    layer: int = 1
    """Of a receiver: 1 primary, 2 or 3 below it. Of a secondary source 2."""
    line: bool = False
    """Whether it multicasts REL to customers."""
    lines: tuple[str, ...] = ()
    """Whose lines it hears."""
    retransmit: tuple[str, ...] = ()
    """Which retransmit servers it asks."""
    grade: Grade = Grade.COMPLETE
    start: bool = True
    """Whether `isocast up` starts it; not so a customer's seat that is kept for programs that listen."""
    stripes: tuple[int, ...] = (0,)
    """The one stripe of the core that it serves."""
    clock_error_ns: int = 0
    """The bound of this node's own clock, at most the market's."""
    table: str = ""
    """The table of the file that it comes from, where that is not its name: one table is a process in each stripe."""

    @property
    def stripe(self) -> int:
        """The stripe of the core that it serves."""
        return self.stripes[0]

    @property
    def origin(self) -> str:
        """Its name in the file: the same for its processes of all stripes."""
        return self.table or self.name

    @property
    def control_port(self) -> int:
        """In fan-out mode: TOKEN, RECEIPT, ballots."""
        return self.port + 1

    @property
    def data_port(self) -> int:
        """In fan-out mode: DATA."""
        return self.port + 2

    @property
    def line_port(self) -> int:
        """In fan-out mode: REL."""
        return self.port + 3


def _nth(base: str, place: int) -> str:
    """The address so many after another."""
    return str(IPv4Address(base) + place)


@dataclass(frozen=True)
class Market:
    """Everything that the processes of one market agree on."""

    name: str
    file: str
    """Where it was read, for messages."""
    nodes: tuple[NodePlan, ...]
    """One for each process: stripe by stripe, in the order of the file."""
    timing: Timing
    data_directory: Path
    keys_directory: Path
    profile: str
    """The timing profile that `timing` came from."""
    seal: bool
    reveal: Reveal
    """Who opens what is sealed."""
    durability: Durability
    stripes: tuple[int, ...]
    order: OrderRule
    window: int
    batch_max: int
    release_rate: int
    """Packets per millisecond; 0: a token at one instant."""
    policy: StartPolicy
    """Whose votes start a ring."""
    start_wait_ns: int
    """How long `availability` waits for a majority."""
    network: NetworkSettings
    clock: ClockSettings
    journal: JournalSettings
    log: StoreSettings
    measurements: MeasurementSettings
    impairment: Impairment
    coverage: CoverageTable
    dumpable: bool = False
    """Whether debuggers and core dumps may see the memory of its processes."""
    stripe_plan: Path | None = None
    """The file of the plan that says which symbol travels in which stripe of the core."""
    edge: EdgeTable | None = None
    """The narrow stripes; None: there are none."""
    guests: GuestTable = field(default_factory=GuestTable)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    subscriptions: SubscriptionTable = field(default_factory=SubscriptionTable)
    floors: tuple[FloorTable, ...] = ()
    """Those that the primary receivers run."""
    whole: Market | None = None
    """Of one stripe's share: the market that it is a part of."""

    @cached_property
    def id(self) -> bytes:
        """What every packet of this market carries."""
        return market_id(self.name)

    @property
    def seals_stripes(self) -> bool:
        """Whether narrow stripes are sealed, each for its buyers."""
        return self.edge is not None and self.edge.seal == "sold" and self.subscriptions.enabled

    # ---- stripes

    def of_stripe(self, stripe: int) -> Market:
        """One stripe's share: the market as its ring and its processes see it, with ids that are one node's alone."""
        if self.stripes == (stripe,):
            return self
        found = self._shares.get(stripe)
        if found is None:
            nodes = tuple([plan for plan in self.nodes if plan.stripe == stripe])
            found = self._shares[stripe] = replace(self, nodes=nodes, stripes=(stripe,), whole=self)
        return found

    @cached_property
    def _shares(self) -> dict[int, Market]:
        return {}

    @property
    def all_stripes(self) -> tuple[int, ...]:
        """Those of the whole market, of which this may be a share."""
        return (self.whole or self).stripes

    def processes_of(self, origin: str) -> tuple[NodePlan, ...]:
        """The processes of one table of the file, by stripe; none for a stranger."""
        return self._by_origin.get(origin, ())

    @cached_property
    def _by_origin(self) -> Mapping[str, tuple[NodePlan, ...]]:
        found: dict[str, tuple[NodePlan, ...]] = {}
        for plan in self.nodes:
            found[plan.origin] = (*found.get(plan.origin, ()), plan)
        return found

    # ---- nodes

    @cached_property
    def by_name(self) -> Mapping[str, NodePlan]:
        """Every node by its name."""
        return {plan.name: plan for plan in self.nodes}

    @cached_property
    def _by_id(self) -> Mapping[NodeId, NodePlan]:
        # Stripes share their numbers: a market that is no stripe's share knows those of its first.
        return {plan.node: plan for plan in reversed(self.nodes)}

    def node(self, name: str) -> NodePlan:
        """The node of that name; KeyError for a stranger."""
        return self.by_name[name]

    def find(self, node: NodeId) -> NodePlan | None:
        """The node of that id, a source's in any incarnation; None for a stranger."""
        return self._by_id.get(node >> 32 << 32 if is_source(node) else node)

    def name_of(self, node: NodeId) -> str:
        """The name of an id; its number where nobody has it."""
        plan = self.find(node)
        if plan is None:
            return "a guest" if is_guest(node) else str(node)
        return plan.name

    @cached_property
    def source_rights(self) -> SourceRights | None:
        """What each source may send to the market's floors, and for them; None: the market has none."""
        if not self.floors:
            return None
        # Most markets have no floor, and do without what it takes.
        from isocast.floor.rights import FloorRights, SourceRights  # noqa: PLC0415

        ids = {plan.name: plan.node for plan in self.by_role(NodeRole.PRIMARY_SOURCE)}
        return SourceRights(
            [
                FloorRights(
                    floor.code,
                    frozenset([ids[name] for name in floor.sources]),
                    frozenset([ids[name] for name in floor.operators]),
                    {ids[name]: number for name, number in floor.gateways},
                    frozenset(map(operator_id, floor.correctors)),
                )
                for floor in self.floors
            ]
        )

    def by_role(self, *roles: NodeRole) -> tuple[NodePlan, ...]:
        """All nodes of these roles, in the order of the file."""
        return tuple(plan for plan in self.nodes if plan.role in roles)

    @cached_property
    def receivers(self) -> tuple[NodePlan, ...]:
        """All trusted receivers, primary and secondary."""
        return tuple(plan for plan in self.nodes if plan.role.is_receiver)

    @cached_property
    def universe(self) -> tuple[NodeId, ...]:
        """U: the ids of the primary receivers, whose majority counts."""
        return tuple(dict.fromkeys(plan.node for plan in self.by_role(NodeRole.PRIMARY_RECEIVER)))

    @cached_property
    def servers(self) -> tuple[NodeId, ...]:
        """The ids of the reformation servers."""
        return tuple(dict.fromkeys(plan.node for plan in self.by_role(NodeRole.REFORMATION_SERVER)))

    def children(self, name: str) -> tuple[NodePlan, ...]:
        """The secondary receivers or sources right below a node: with it, a receiver's secondary ring (§4.1)."""
        return tuple(plan for plan in self.nodes if plan.parent == name)

    @cached_property
    def layers(self) -> int:
        """Layers of receivers: 1 to 3."""
        return max((plan.layer for plan in self.receivers), default=1)

    def directory_of(self, name: str) -> Path:
        """Where a node keeps what must survive it."""
        return self.data_directory / name

    @cached_property
    def on_loopback(self) -> bool:
        """Whether all of it is one machine talking to itself."""
        return all(IPv4Address(plan.address).is_loopback for plan in self.nodes)

    def uses_tls(self, address: str) -> bool:
        """Whether doors and pages at an address speak TLS."""
        mode = self.network.tls
        return mode is TlsMode.ON or (mode is TlsMode.AUTO and not IPv4Address(address).is_loopback)

    @property
    def doors_identify(self) -> bool:
        """Whether both sides of a door prove their identities."""
        return self.security.signatures and self.security.doors == "identity"

    # ---- the ring

    def ring_settings(self, stripe: int = 0) -> RingSettings:
        """What the machines of one stripe agree on."""
        return RingSettings(
            timing=self.timing,
            stripe=stripe,
            order=self.order,
            window=self.window,
            batch_max=self.batch_max,
            release_rate=self.release_rate,
            payload_max=self.payload_bytes,
            policy=self.policy,
            start_wait_ns=self.start_wait_ns,
        )

    def signs_receipts(self, stripe: int) -> bool:
        """Whether receipts of a stripe are signed: by default while verifying them costs a member little.

        They always are where sources disclose their keys: who forges receipts would see the keys early.
        """
        if self.security.signatures and self.reveal is Reveal.CHAIN:
            return True
        if not self.security.signatures or self.security.receipts != "auto":
            return self.security.signatures and self.security.receipts == "always"
        members = [plan for plan in self.by_role(NodeRole.PRIMARY_RECEIVER) if stripe in plan.stripes]
        return affords_receipts(len(members), self.timing.token_period_ns)

    @property
    def payload_bytes(self) -> int:
        """Bytes of one message, its seal included."""
        return payload_capacity(self.network.mtu)

    @property
    def events_per_payload(self) -> int:
        """Market events that fit one message beside its seal."""
        return (self.payload_bytes - SEAL_BYTES) // EVENT_BYTES

    # ---- groups

    def data_group(self, stripe: int = 0) -> str:
        """DATA of a stripe."""
        return _nth(self.network.groups, 2 * stripe)

    def control_group(self, stripe: int = 0) -> str:
        """All other multicast packets of a stripe's core."""
        return _nth(self.network.groups, 2 * stripe + 1)

    def line_group(self, name: str) -> str:
        """REL of one receiver, or the repairs of one retransmit server."""
        plan = self.by_name[name]
        base = self.network.lines if plan.role.is_receiver else self.network.repairs
        return _nth(base, plan.number + self.network.stripe_groups * plan.stripe)

    def data_members(self, stripe: int = 0) -> tuple[NodePlan, ...]:
        """Who listens to DATA."""
        return tuple(plan for plan in self.receivers if stripe in plan.stripes)

    def data_senders(self, stripe: int = 0) -> tuple[NodePlan, ...]:
        """Who sends DATA."""
        return tuple(plan for plan in self.by_role(NodeRole.PRIMARY_SOURCE) if stripe in plan.stripes)

    def control_members(self, stripe: int = 0) -> tuple[NodePlan, ...]:
        """Who listens to the control group: receivers, reformation servers and the stripe's primary sources."""
        others = (NodeRole.PRIMARY_SOURCE, NodeRole.REFORMATION_SERVER)
        return tuple(
            plan for plan in self.nodes if stripe in plan.stripes and (plan.role.is_receiver or plan.role in others)
        )

    def control_senders(self, stripe: int = 0) -> tuple[NodePlan, ...]:
        """Who sends to the control group: receivers and reformation servers."""
        return tuple(plan for plan in self.control_members(stripe) if not plan.role.is_source)

    def line_listeners(self, name: str) -> tuple[NodePlan, ...]:
        """The nodes that hear a node's line: those that list it, and for a retransmit server those that ask it."""
        return tuple(plan for plan in self.nodes if name in plan.lines or name in plan.retransmit)

    # ---- places

    def delay_ns(self, a: str, b: str) -> int:
        """One-way delay of light in fibre between two nodes; 0 where a place is unknown."""
        known = self._delays.get((a, b))
        if known is None:
            here, there = self.by_name[a].place, self.by_name[b].place
            known = self._delays[a, b] = 0 if here is None or there is None else delay_ns(here, there)
        return known

    @cached_property
    def _delays(self) -> dict[tuple[str, str], int]:
        return {}


def line_receivers(market: Market) -> tuple[NodePlan, ...]:
    """Those who remulticast."""
    return tuple([plan for plan in market.receivers if plan.line])


def line_listeners(market: Market) -> tuple[NodePlan, ...]:
    """Those who must hear enough of them: customers and retransmit servers."""
    return tuple([plan for plan in market.nodes if plan.lines])
