"""A node's sockets: which groups it hears and speaks to, frames in bursts, and which packets are believed.

What a step sends is gathered and goes out together, control before data, so that packets to one destination share a
system call. What arrives is read control first for the same reason: a token must not queue behind messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from heapq import nlargest
from typing import Protocol

from isocast.runtime.market.core_keys import TurningKeyring
from isocast.runtime.market.model import Market, NodePlan, NodeRole, SocketFilter
from isocast.runtime.net.filters import Filter, FullBuffers, frame_filter
from isocast.runtime.net.impairment import InboundImpairment
from isocast.runtime.net.sockets import (
    Endpoint,
    Inlet,
    open_group_inlet,
    open_group_outlet,
    unicast_inlet,
    unicast_outlet,
)
from isocast.runtime.watch.counters import Channel, NodeCounters, packet_slot
from isocast.runtime.watch.logs import get_log
from isocast.security.line_seals import LineOpener, LineSealer
from isocast.security.sealing import CHANGES_HEARD, CHANGES_REPAIRED
from isocast.terms.errors import AnotherMarketError, ForgeryError, RemoteProtocolError, StrangerError, UnpaidError
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.wire.codec import NO_MARKET, Keys, PacketKind, decode, encode, peek_kind
from isocast.wire.frame import AUDIENCE, KIND_AT, SENDER_AT, Role, check_market
from isocast.wire.packets import Data, Disclose, Packet, Repair, SourceChain

__all__ = ["ADDRESSES_MAX", "LOUD", "ON_A_LINE", "Channels", "LineOutlet", "NodeKeys", "Noise", "Reception"]

# Frames to packets: everything that a socket gives is judged here, and only what is genuine and meant goes on.


class Seals(Protocol):
    """Opens payloads of sources."""

    def knows(self, stripe: int, label: tuple[NodeId, int], sealed: bytes, changes: int) -> bool:
        """Whether a payload is of a generation of seals that is heard here, so many changes later at the most."""


def _is_known(seals: Seals, packet: Packet) -> bool:
    """Whether a message, or one that is sent again, could be opened here once it is due."""
    if type(packet) is Data:
        return seals.knows(packet.stripe, packet.label, packet.payload, CHANGES_HEARD)
    message = packet.item if type(packet) is Repair else packet
    return type(message) is not Data or seals.knows(message.stripe, message.label, message.payload, CHANGES_REPAIRED)


_SEALED = (PacketKind.REL, PacketKind.PROOF)
"""What travels sealed where lines are sold."""


class Reception:
    """The reader of one channel. Hostile bytes are counted and dropped, never raised into the loop."""

    def __init__(
        self,
        channel: Channel,
        stripe: int,
        own: NodeId,
        kinds: Collection[PacketKind],
        keys: Keys,
        counters: NodeCounters,
        market: bytes = NO_MARKET,
        opener: LineOpener | None = None,
    ) -> None:
        """`kinds` are those that this role takes on this channel; `opener` reads what is sealed on a line."""
        self._opener = opener
        self.seals: Seals | None = None
        """Judges payloads of sources, where they are sealed and this role opens them."""
        self._stripe = stripe
        self._market = market
        self._own = own.to_bytes(8, "little")
        self._keys = keys
        self._counters = counters
        self._channel = channel
        self._slots = {int(kind): packet_slot(channel, kind) for kind in kinds}
        self.refused: list[int] = []
        """Of the last burst: the places of those that were not believed."""

    def packets(self, frames: Sequence[bytes]) -> list[Packet]:
        """What may be believed of a burst, in its order."""
        counters, keys, slots, own, stripe = self._counters, self._keys, self._slots, self._own, self._stripe
        received, market, opener, seals = counters.packets_received, self._market, self._opener, self.seals
        taken: list[Packet] = []
        refused = self.refused = []
        size = 0
        for place, frame in enumerate(frames):
            size += len(frame)
            slot = slots.get(frame[KIND_AT]) if len(frame) > KIND_AT else None
            if slot is None:
                self._misdirected(frame)
                refused.append(place)
                continue
            try:
                if opener is not None and frame[KIND_AT] in _SEALED:
                    packet = opener.open(frame, market)
                else:
                    packet = decode(frame, keys, market)
            except RemoteProtocolError as error:
                other = self._besides(frame) if isinstance(error, ForgeryError) else None
                if other is None:
                    self._refused(error)
                    refused.append(place)
                    continue
                packet = other
            if seals is not None and not _is_known(seals, packet):
                counters.authentication_failures += 1
                refused.append(place)
                continue
            if packet.stripe != stripe or frame[SENDER_AT] == own:
                # Another stripe's, or an echo of our own: genuine, and nothing for us.
                counters.unaddressed += 1
                continue
            received[slot] += 1
            taken.append(packet)
        counters.bytes_received[self._channel] += size
        return taken

    def _besides(self, frame: bytes) -> Packet | None:
        """What it says by the core key that is heard besides, while the market changes over to another."""
        keys = self._keys
        others = keys.besides(int.from_bytes(frame[SENDER_AT], "little")) if type(keys) is TurningKeyring else None
        if type(keys) is not TurningKeyring or others is None:
            return None
        try:
            packet = decode(frame, others, self._market)
        except RemoteProtocolError:
            return None
        keys.heard()
        return packet

    def _misdirected(self, frame: bytes) -> None:
        """A kind that is not for this role, or no frame at all. Its tag is not worth a look."""
        try:
            peek_kind(frame)
            check_market(frame, self._market)
        except RemoteProtocolError as error:
            self._refused(error)
        else:
            self._counters.unaddressed += 1

    def _refused(self, error: RemoteProtocolError) -> None:
        counters = self._counters
        match error:
            case ForgeryError():
                counters.authentication_failures += 1
            case StrangerError():
                counters.unknown_senders += 1
            case AnotherMarketError():
                counters.another_market += 1
            case UnpaidError():
                counters.unpaid += 1
            case _:
                counters.malformed += 1


_BUDGET_BYTES = 2 << 20
"""Read from one socket in one go: control is looked at again after this much, in some 20 ms at the most."""
_FLOODED_BYTES = 64 << 10
"""The same of a socket whose datagrams are mostly refused: a millisecond's work, so that a flooded group takes little
from the others."""

_CORE_ROLE = {
    NodeRole.PRIMARY_RECEIVER: Role.RECEIVER,
    NodeRole.SECONDARY_RECEIVER: Role.RECEIVER,
    NodeRole.PRIMARY_SOURCE: Role.SOURCE,
    NodeRole.REFORMATION_SERVER: Role.SERVER,
}

_TO_RECEIVERS = (
    *(
        PacketKind.TOKEN,
        PacketKind.TOKENPART,
        PacketKind.RECEIPT,
        PacketKind.NACK,
        PacketKind.REPAIR,
        PacketKind.PENDING,
        PacketKind.INVITE,
    ),
    *(PacketKind.LINES, PacketKind.LINEASK),
)
_DIRECT: dict[NodeRole, tuple[PacketKind, ...]] = {
    NodeRole.PRIMARY_RECEIVER: (
        *_TO_RECEIVERS,
        PacketKind.NEWRING,
        PacketKind.SECTOKEN,
        PacketKind.RXREQ,
        PacketKind.RXREP,
    ),
    NodeRole.SECONDARY_RECEIVER: (
        *_TO_RECEIVERS,
        PacketKind.NEWRING,
        PacketKind.SECTOKEN,
        PacketKind.RXREQ,
        PacketKind.RXREP,
    ),
    NodeRole.PRIMARY_SOURCE: (
        PacketKind.TOKEN,
        PacketKind.TOKENPART,
        PacketKind.REPAIR,
        PacketKind.STANDING,
        PacketKind.NEWRING,
    ),
    NodeRole.REFORMATION_SERVER: (
        PacketKind.TOKEN,
        PacketKind.SUSPECT,
        PacketKind.INVITE,
        PacketKind.REFUSE,
        PacketKind.JOIN,
        PacketKind.NEWRING,
        PacketKind.LINES,
    ),
    NodeRole.RETRANSMIT_SERVER: (PacketKind.RXREQ,),
    NodeRole.CUSTOMER: (PacketKind.REL, PacketKind.RXREP),
}
"""What a role takes by unicast."""
ON_A_LINE = (PacketKind.REL, PacketKind.PROOF, PacketKind.RXREP)
"""What travels in a line's group."""


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """The keys by which this node reads and writes; None where its role has no business."""

    core: Keys | None = None
    edge: Keys | None = None
    sealer: LineSealer | None = None
    """Of a line that is sold."""
    opener: LineOpener | None = None
    """Of lines that are sold; None where they are not."""
    seals: Seals | None = None
    """Of sources' payloads; None where they are not sealed, or not opened."""


@dataclass(slots=True)
class _Ear:
    """One socket that is listened to, and what becomes of its frames."""

    channel: Channel
    inlet: Inlet
    reception: Reception
    impairment: InboundImpairment | None
    only: frozenset[bytes] | None = None
    """The senders that are within reach, as frames spell them; None: all that are heard."""
    budget: int = _BUDGET_BYTES
    """Bytes to read in one go."""

    def judge(self, frames: int, refused: int) -> None:
        """Read less at a time while most of it is refused, and more again when it is not."""
        if 2 * refused > frames:
            self.budget = max(self.budget // 4, _FLOODED_BYTES)
        elif self.budget < _BUDGET_BYTES:
            self.budget = min(2 * self.budget, _BUDGET_BYTES)


class LineOutlet(Protocol):
    """Where a line's frames go: one group, or several while it moves."""

    @property
    def unsent(self) -> int:
        """Datagrams that were given up."""

    def send(self, frames: Sequence[bytes]) -> None:
        """Each frame as one datagram, in order."""


class Channels:
    """Opens everything at once, or nothing."""

    def __init__(
        self,
        market: Market,
        plan: NodePlan,
        own: NodeId,
        keys: NodeKeys,
        counters: NodeCounters,
        impairment: Callable[[str], InboundImpairment] | None = None,
    ) -> None:
        """`own` is the id that this process sends as; `impairment` makes one for each socket of a demo."""
        self._market = market
        self._plan = plan
        self._own = own
        self._stripe = plan.stripes[0]
        self._keys = keys
        self._counters = counters
        self._impairment = impairment
        self._ears: list[_Ear] = []
        self._group_outlets: dict[Channel, LineOutlet] = {}
        self.tap: Callable[[list[Packet]], list[Packet]] | None = None
        """Takes what is not for the machine out of a burst."""
        self._queued: dict[Channel, list[bytes]] = {Channel.CONTROL: [], Channel.DATA: [], Channel.LINE: []}
        self._direct_queue: dict[Endpoint, list[bytes]] = {}
        self._endpoints: dict[NodeId, Endpoint] = {}
        self._nobodys = 0
        self.noise = Noise()
        self._full_buffers = FullBuffers()
        self._dropped = [0] * len(Channel)
        """Of sockets that are closed: what the kernel had dropped."""
        self._counted = [0] * len(Channel)
        """What the kernel had dropped, for any reason, when it was last looked at."""
        self._alone = not any(node.address == plan.address for node in market.nodes if node.name != plan.name)
        self.closing = ExitStack()
        with ExitStack() as opened:
            self._opened = opened
            self._open()
            self.closing = opened.pop_all()
        refusals = sorted({ear.inlet.unfiltered for ear in self._ears if ear.inlet.unfiltered})
        if refusals:
            get_log().info("no kernel filter", node=plan.name, what="; ".join(refusals))

    # Opening ------------------------------------------------------------------------------------

    def _open(self) -> None:
        plan, market = self._plan, self._market
        core_role = _CORE_ROLE.get(plan.role)
        if core_role is not None:
            kinds = [
                _kind(packet) for packet, roles in AUDIENCE.items() if core_role in roles and packet not in _OF_SOURCES
            ]
            if core_role is Role.SOURCE and market.timing.reveal_tokens:
                kinds.append(PacketKind.RECEIPT)  # They say when it may disclose its keys.
            members = market.control_members(self._stripe)
            group = market.control_group(self._stripe)
            self._hear(Channel.CONTROL, group, market.control_senders(self._stripe), kinds, plan.control_port)
            if core_role is not Role.SOURCE:
                self._speak(Channel.CONTROL, group, members)
        self._open_direct()
        if core_role is Role.RECEIVER:
            group = market.data_group(self._stripe)
            kinds = [_kind(packet) for packet in _OF_SOURCES if packet is not Disclose or market.timing.reveal_tokens]
            self._hear(Channel.DATA, group, market.data_senders(self._stripe), kinds, plan.data_port)
        elif core_role is Role.SOURCE:
            self._speak(Channel.DATA, market.data_group(self._stripe), market.data_members(self._stripe))
        self._open_lines()

    def _open_direct(self) -> None:
        plan = self._plan
        guard = self._guard(self._market.nodes)
        inlet = unicast_inlet(plan.address, plan.port, buffer_bytes=self._market.network.receive_buffer, guard=guard)
        self._opened.callback(inlet.close)
        self._direct = unicast_outlet(plan.address)
        self._opened.callback(self._direct.close)
        keys = self._keys.core if plan.role in _CORE_ROLE else self._keys.edge
        self._listen(Channel.DIRECT, inlet, _DIRECT.get(plan.role, ()), keys)

    def _open_lines(self) -> None:
        plan, market = self._plan, self._market
        heard = dict.fromkeys((*plan.lines, *plan.retransmit))
        if market.network.mode == "fanout" and heard:
            # Senders that a plan of lines brings within reach send to the same port.
            planned = market.coverage.enabled and plan.lines
            senders = [plan for plan in market.receivers if plan.line] if planned else []
            senders += [market.node(name) for name in heard if market.node(name) not in senders]
            kinds = (*ON_A_LINE, PacketKind.LINES) if planned else ON_A_LINE
            self._hear(Channel.LINE, "", senders, kinds, plan.line_port)
        else:
            for name in heard:
                self._hear(Channel.LINE, market.line_group(name), [market.node(name)], ON_A_LINE, plan.line_port)
        if plan.line:
            self._speak(Channel.LINE, market.line_group(plan.name), market.line_listeners(plan.name))

    def _hear(
        self, channel: Channel, group: str, senders: Iterable[NodePlan], kinds: Sequence[PacketKind], port: int
    ) -> _Ear:
        network = self._market.network
        senders = list(senders)
        sources = [node.address for node in senders] if network.source_specific else []
        # A plan of lines may give a group to any receiver that has a line.
        moving = self._market.coverage.enabled and channel is Channel.LINE
        speakers = [*senders, *[node for node in self._market.receivers if node.line]] if moving else senders
        inlet = open_group_inlet(
            network.mode,
            group,
            network.port,
            interface=self._plan.address,
            sources=tuple(dict.fromkeys(sources)),
            own=Endpoint(self._plan.address, port),
            alone=self._alone,
            buffer_bytes=network.receive_buffer,
            guard=self._guard(speakers),
        )
        self._opened.callback(inlet.close)
        return self._listen(channel, inlet, kinds, self._keys.edge if channel is Channel.LINE else self._keys.core)

    def _guard(self, senders: Iterable[NodePlan]) -> Filter | None:
        """What the kernel lets through to a socket on which these nodes speak."""
        match self._market.network.filter:
            case SocketFilter.ADDRESSES:
                return frame_filter(self._market.id, self._stripe, [node.address for node in senders])
            case SocketFilter.FRAMES:
                return frame_filter(self._market.id, self._stripe)
            case SocketFilter.OFF:
                return None

    def _listen(self, channel: Channel, inlet: Inlet, kinds: Sequence[PacketKind], keys: Keys | None) -> _Ear:
        opener = self._keys.opener if channel in (Channel.LINE, Channel.DIRECT) else None
        reception = Reception(
            channel, self._stripe, self._own, kinds, keys or {}, self._counters, self._market.id, opener
        )
        reception.seals = self._keys.seals
        impairment = self._impairment(f"{channel.name}{len(self._ears)}") if self._impairment is not None else None
        self._ears.append(_Ear(channel, inlet, reception, impairment))
        return self._ears[-1]

    def _speak(self, channel: Channel, group: str, members: Iterable[NodePlan]) -> None:
        network, own = self._market.network, self._plan.name
        outlet = open_group_outlet(
            network.mode,
            group,
            network.port,
            interface=self._plan.address,
            members=[Endpoint(node.address, node.port + channel) for node in members if node.name != own],
            alone=self._alone,
            ttl=network.ttl,
        )
        self._opened.callback(outlet.close)
        self._group_outlets[channel] = outlet

    # A plan of lines ----------------------------------------------------------------------------

    def hear_line(self, group: str, owners: Sequence[NodePlan], kinds: Sequence[PacketKind] = ON_A_LINE) -> object:
        """Join a group, and hear in it only those who are within reach; what comes back is for `leave` and `reach`."""
        self._opened = self.closing
        ear = self._hear(Channel.LINE, group, owners, kinds, self._plan.line_port)
        self.reach(ear, owners)
        return ear

    def reach(self, ear: object, owners: Sequence[NodePlan]) -> None:
        """Others are within reach in this group from now on."""
        if isinstance(ear, _Ear):
            ear.only = frozenset([node.node.to_bytes(8, "little") for node in owners])

    def leave(self, ear: object) -> None:
        """Hear this group no more."""
        if isinstance(ear, _Ear):
            self._ears.remove(ear)
            ear.inlet.close()
            self._dropped[ear.channel] += ear.inlet.drops

    @property
    def line_outlet(self) -> LineOutlet | None:
        """Where our own line goes."""
        return self._group_outlets.get(Channel.LINE)

    def speak_line(self, outlet: LineOutlet) -> None:
        """Our own line goes there from now on; the former outlet is closed by its owner."""
        self._group_outlets[Channel.LINE] = outlet

    # Hearing ------------------------------------------------------------------------------------

    def filenos(self) -> list[int]:
        """The sockets to watch."""
        return [ear.inlet.fileno() for ear in self._ears]

    def receive(self, now: int) -> list[Packet]:
        """What has come, control first; what a demo delays waits for `due`."""
        packets: list[Packet] = []
        for ear in self._ears:
            frames = arrived = ear.inlet.read(ear.budget)
            if not frames:
                continue
            if ear.only is not None:
                frames = self._within_reach(frames, ear.only)
            if ear.impairment is not None:
                ear.impairment.admit(frames, now)
                frames = ear.impairment.due(now)
            packets += ear.reception.packets(frames)
            refused = ear.reception.refused
            ear.judge(len(frames), len(refused))
            if refused and frames is arrived:
                self.noise.note(ear.inlet.origins, refused)
        return packets if self.tap is None else self.tap(packets)

    def _within_reach(self, frames: list[bytes], only: frozenset[bytes]) -> list[bytes]:
        """Without those whose scope does not come here, though this network carries them."""
        near = [frame for frame in frames if frame[SENDER_AT] in only]
        self._counters.out_of_reach += len(frames) - len(near)
        return near

    def due(self, now: int) -> list[Packet]:
        """What a demo delayed until now."""
        packets: list[Packet] = []
        for ear in self._ears:
            if ear.impairment is not None and ear.impairment.next_deadline() <= now:
                packets += ear.reception.packets(ear.impairment.due(now))
        return packets if self.tap is None else self.tap(packets)

    def next_deadline(self) -> int:
        """When `due` has something next."""
        return min([ear.impairment.next_deadline() for ear in self._ears if ear.impairment is not None], default=NEVER)

    # Speaking -----------------------------------------------------------------------------------

    def multicast(self, packet: Packet) -> None:
        """Queue a packet for its group."""
        keys = self._keys.core
        channel = Channel.DATA if type(packet) in _OF_SOURCES else Channel.CONTROL
        self._queued[channel].append(encode(packet, keys or {}, self._market.id))

    def to_line(self, packets: Sequence[Packet]) -> None:
        """Queue packets for our own line; a node without one has no customers."""
        if Channel.LINE in self._group_outlets:
            keys, market, sealer = self._keys.edge or {}, self._market.id, self._keys.sealer
            frames = self._queued[Channel.LINE]
            if sealer is None:
                frames += [encode(packet, keys, market) for packet in packets]
            else:
                frames += sealer.seal_all(packets, market)

    def unicast(self, to: NodeId, packet: Packet) -> None:
        """Queue a packet for one node; a node that the market does not know is nobody."""
        endpoint = self._endpoints.get(to)
        if endpoint is None:
            plan = self._market.find(to)
            if plan is None:
                self._nobodys += 1
                return
            endpoint = self._endpoints[to] = Endpoint(plan.address, plan.port)
        keys = self._keys.core if self._plan.role in _CORE_ROLE else self._keys.edge
        self._direct_queue.setdefault(endpoint, []).append(encode(packet, keys or {}, self._market.id))

    def flush(self) -> None:
        """Send everything that is queued: control, direct, data, line."""
        for channel in (Channel.CONTROL, Channel.DIRECT, Channel.DATA, Channel.LINE):
            if channel is Channel.DIRECT:
                if self._direct_queue:
                    queue, self._direct_queue = self._direct_queue, {}
                    for endpoint, frames in queue.items():
                        self._direct.send_to(endpoint, frames)
                        self._count(channel, frames)
                continue
            frames = self._queued[channel]
            if frames:
                self._queued[channel] = []
                self._group_outlets[channel].send(frames)
                self._count(channel, frames)

    def _count(self, channel: Channel, frames: list[bytes]) -> None:
        counters = self._counters
        counters.bytes_sent[channel] += sum(map(len, frames))
        for frame in frames:
            counters.packets_sent[channel << 5 | frame[KIND_AT]] += 1

    def collect(self) -> None:
        """Bring the sockets' own counts up to date: once a second is enough."""
        counters = self._counters
        drops = list(self._dropped)
        for ear in self._ears:
            drops[ear.channel] += ear.inlet.drops
        grown = [now - before for now, before in zip(drops, self._counted, strict=True)]
        self._counted = drops
        full, filtered = self._full_buffers.split(grown)
        counters.kernel_drops[:] = [count + more for count, more in zip(counters.kernel_drops, full, strict=True)]
        counters.filtered += filtered
        counters.refused_by_address = {(address,): count for address, count in self.noise.loudest().items()}
        unsent = sum([outlet.unsent for outlet in self._group_outlets.values()]) + self._direct.unsent
        counters.unsent = unsent + self._nobodys
        counters.injected_losses = sum([ear.impairment.lost for ear in self._ears if ear.impairment is not None])

    def close(self) -> None:
        """Close every socket."""
        self.closing.close()


def _kind(packet: type[Packet]) -> PacketKind:
    return PacketKind[_KIND_NAMES.get(packet.__name__, packet.__name__.upper())]


_KIND_NAMES = {
    "RangeReply": "RXREP",
    "RangeRequest": "RXREQ",
    "ReleasedPacket": "REL",
    "SecondaryToken": "SECTOKEN",
    "SourceChain": "SRCCHAIN",
}
_OF_SOURCES: tuple[type[Packet], ...] = (Data, Disclose, SourceChain)
"""What sources send, in a group of its own."""


# ---- who sends what is refused


ADDRESSES_MAX = 256
"""Addresses that are remembered at once, some 50 kB."""
NAMED_MAX = 8
"""Addresses that status and metrics name."""
LOUD = 1_000
"""Refused datagrams in a second for which an address is worth an alarm; mistakes and restarts make a few."""


class Noise:
    """The refused datagrams of one node, by the address that they came from."""

    def __init__(self) -> None:
        """Nobody was refused yet."""
        self._counts: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def note(self, origins: Sequence[tuple[str, int]], refused: Sequence[int]) -> None:
        """Of a burst, what came from where, as (address, how many) in order; and which of it was refused, by place."""
        counts = self._counts
        at, end = -1, 0
        address = ""
        for place in refused:
            while place >= end and at + 1 < len(origins):
                at += 1
                address, count = origins[at]
                end += count
            counts[address] = counts.get(address, 0) + 1
        while len(counts) > ADDRESSES_MAX:
            del counts[min(counts, key=counts.__getitem__)]

    def loudest(self) -> dict[str, int]:
        """The noisiest addresses, with all that was refused of them."""
        return dict(nlargest(NAMED_MAX, self._counts.items(), key=lambda entry: entry[1]))

    def fresh(self) -> dict[str, int]:
        """Addresses of which many datagrams were refused since this was last asked; once a second is meant."""
        grown = {address: count - self._told.get(address, 0) for address, count in self._counts.items()}
        self._told = dict(self._counts)
        return {address: count for address, count in grown.items() if count >= LOUD}
