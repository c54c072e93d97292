"""Virtual time and the links between places: agenda, random streams, delay, loss of two kinds, cuts.

Reordering needs no switch of its own: jitter does it. A cut is one-way; a partition is two of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from heapq import heappop, heappush
from math import log, log1p
from random import Random
from typing import TypeAlias, TypeVar

from isocast.simulation.layers import is_edge, is_narrow
from isocast.terms.ids import NodeId
from isocast.wire.packets import Data, Nack, Token, TokenPart

__all__ = [
    "Agenda",
    "LinkModel",
    "LossLedger",
    "LossProcess",
    "Network",
    "OnArrival",
    "PacketBurst",
    "PacketKey",
    "packet_key",
    "stream",
]


# Virtual time: what happens next, in an order that depends on nothing but the instants and the insertions.


class Agenda:
    """Actions by instant. Actions of one instant happen in the order in which they were put down."""

    def __init__(self) -> None:
        """Start at instant zero."""
        self.now = 0
        self._instants: list[int] = []
        self._actions: dict[int, list[tuple[Callable[..., None], object]]] = {}

    def put(self, instant: int, action: Callable[..., None], argument: object) -> None:
        """Call action(argument) at `instant`; an instant already past means now."""
        instant = max(instant, self.now)
        actions = self._actions.get(instant)
        if actions is None:
            self._actions[instant] = [(action, argument)]
            heappush(self._instants, instant)
        else:
            actions.append((action, argument))

    def run(self, until: int) -> None:
        """Let everything happen that is due before or at `until`."""
        instants, waiting = self._instants, self._actions
        while instants and instants[0] <= until:
            self.now = instant = heappop(instants)
            for action, argument in waiting.pop(instant):
                action(argument)
        self.now = max(self.now, until)

    @property
    def next_instant(self) -> int | None:
        """When the next action is due."""
        return self._instants[0] if self._instants else None


# One random stream per (seed, names): adding a node or a link leaves all other draws alone.


T = TypeVar("T")

_NEVER = 1 << 62
_UNDRAWN = Random(0)
"""Stands where nothing is ever drawn: a ring of a hundred has ten thousand links, and a stream of its own for each."""


def stream(seed: int, *names: object) -> Random:
    """A generator that depends on the seed and the names alone, in every process alike."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return Random(int.from_bytes(blake2b(text.encode(), digest_size=16).digest()))


class LossProcess:
    """Independent losses with probability p, drawn as the gaps between them: cheap while nothing is lost."""

    __slots__ = ("_log_keep", "_random", "left")

    def __init__(self, probability: float, random: Random) -> None:
        """Draw the first gap."""
        self._random = random
        self._log_keep = log1p(-probability) if probability < 1 else 0.0
        self.left = self._gap() if probability > 0 else _NEVER

    @classmethod
    def of(cls, probability: float, seed: int, *names: object) -> LossProcess:
        """Losses by the stream of these names; none is made where nothing is ever lost."""
        return cls(probability, stream(seed, *names) if probability > 0 else _UNDRAWN)

    def _gap(self) -> int:
        """Packets that pass before the next loss: geometric."""
        if self._log_keep == 0.0:
            return 0
        return int(log(1.0 - self._random.random()) / self._log_keep)

    def lost(self) -> bool:
        """Whether the next packet is lost."""
        if self.left > 0:
            self.left -= 1
            return False
        self.left = self._gap()
        return True

    def survivors(self, burst: tuple[T, ...]) -> tuple[T, ...]:
        """What of a burst passes; the same tuple when nothing is lost."""
        count = len(burst)
        if self.left >= count:
            self.left -= count
            return burst
        return tuple([packet for packet in burst if not self.lost()])


_COPIES = 0.5
"""Share of late packets that came in time as well."""

PacketBurst: TypeAlias = tuple[object, ...]
OnArrival: TypeAlias = Callable[[PacketBurst], None]


@dataclass(frozen=True, slots=True)
class LinkModel:
    """How all links of a world behave; the delay of a pair is given by `Network.delay_ns`."""

    loss: float = 0.0
    tree: bool = False
    """Losses of multicast packets happen on the branches of a tree and hit everybody behind."""
    jitter_ns: int = 0
    """Mean of an exponential delay on top of the pair's own."""
    duplicate: float = 0.0
    bandwidth_bps: int = 0
    """Of a node's uplink; 0 means without limit."""
    edge_loss: float = 0.0
    """Of links to and from archives, customers and senders of narrow stripes, where it is more than `loss`."""

    def loss_to(self, *ends: NodeId) -> float:
        """The loss of a link, or of a branch, that ends at some nodes."""
        more = self.edge_loss > self.loss and any(map(_kind, ends))
        return self.edge_loss if more else self.loss


class _Link:
    """One direction between two nodes."""

    __slots__ = ("delay_ns", "duplicates", "jitter", "losses", "to")

    def __init__(self, seed: int, ends: tuple[NodeId, NodeId], model: LinkModel, delay_ns: int) -> None:
        self.to = ends[1]
        self.delay_ns = delay_ns
        self.losses = LossProcess.of(model.loss_to(*ends), seed, *ends, "loss")
        self.jitter = stream(seed, *ends, "jitter") if model.jitter_ns else None
        self.duplicates = LossProcess.of(model.duplicate, seed, *ends, "duplicate") if model.duplicate else None


class _Lateness:
    """Some packets are late, far beyond all jitter: a while ago they were lost, and now they are here."""

    def __init__(self, share: float, by_ns: int, random: Random) -> None:
        self._process = LossProcess(share, random)
        self._by_ns = by_ns
        self._random = random

    def draw(self) -> tuple[int, bool]:
        """How late the next packet is, 0 for most, and whether only a copy of it is."""
        if not self._process.lost():
            return 0, False
        return self._random.randint(1, self._by_ns), self._random.random() < _COPIES


class Network:
    """Carries bursts from node to node over the agenda.

    `delay_ns(a, b)` is the one-way delay of a pair. `branch(node)` names the branch of the multicast tree
    that feeds a node: under tree loss a packet passes the sender's edge to the branch and the branch's edge
    to the node, each losing with 1-√(1-p), so that every receiver still loses with probability p.
    """

    def __init__(
        self,
        agenda: Agenda,
        seed: int,
        model: LinkModel,
        delay_ns: Callable[[NodeId, NodeId], int],
        branch: Callable[[NodeId], int] = lambda _: 0,
    ) -> None:
        """An empty network; nodes are attached one by one."""
        self.model = model
        self.lost_hook: Callable[[NodeId, PacketBurst], None] | None = None
        """Told of every multicast packet that one destination does not get."""
        self.deliveries = 0
        self._agenda = agenda
        self._seed = seed
        self._delay_ns = delay_ns
        self._branch = branch
        self._deliver: dict[NodeId, OnArrival] = {}
        self._links: dict[tuple[NodeId, NodeId], _Link] = {}
        self._fans: dict[tuple[NodeId, tuple[NodeId, ...]], list[_Link]] = {}
        self._edges: dict[tuple[NodeId, int, NodeId], LossProcess] = {}
        self._cuts: dict[tuple[NodeId, NodeId], int] = {}
        self._uplink_free: dict[NodeId, int] = {}
        self._lateness: list[_Lateness] = []
        """Of the core, of the edge, of narrow stripes: what is drawn for one says nothing of the others."""

    def attach(self, node: NodeId, deliver: OnArrival) -> None:
        """Let a node hear."""
        self._deliver[node] = deliver

    def cut(self, pairs: Sequence[tuple[NodeId, NodeId]]) -> None:
        """Let nothing pass from the first to the second of each pair; cuts are counted."""
        for pair in pairs:
            self._cuts[pair] = self._cuts.get(pair, 0) + 1

    def heal(self, pairs: Sequence[tuple[NodeId, NodeId]]) -> None:
        """Take back one cut of each pair."""
        for pair in pairs:
            left = self._cuts.get(pair, 0) - 1
            if left > 0:
                self._cuts[pair] = left
            else:
                self._cuts.pop(pair, None)

    def reaches(self, a: NodeId, b: NodeId) -> bool:
        """Whether anything passes from one node to another."""
        return (a, b) not in self._cuts

    def delay_ns(self, a: NodeId, b: NodeId) -> int:
        """One way."""
        return self._delay_ns(a, b)

    def set_loss(self, loss: float, *, at_the_edge: bool = False) -> None:
        """Change the loss of all links from now on; at the edge, where more is lost, only if told."""
        model = self.model
        self.model = replace(model, loss=loss, edge_loss=0.0 if at_the_edge else model.edge_loss)
        for (a, b), link in self._links.items():
            link.losses = LossProcess.of(self.model.loss_to(a, b), self._seed, a, b, "loss", self._agenda.now)
        self._edges.clear()

    def set_late(self, share: float, by_ns: int) -> None:
        """Let a share of all packets be late by up to `by_ns` from now on; 0 for none."""
        self._lateness = []
        if share:
            names = ("late", "late edge", "late stripes")
            randoms = [stream(self._seed, name, self._agenda.now) for name in names]
            self._lateness = [_Lateness(share, by_ns, random) for random in randoms]

    def unicast(self, sender: NodeId, to: NodeId, burst: PacketBurst, size: int = 0) -> None:
        """Send to one node."""
        link = self._link(sender, to)
        passed = link.losses.survivors(burst)
        self._pass(link, sender, passed, passed, self._departure(sender, size))

    def multicast(self, sender: NodeId, audience: tuple[NodeId, ...], burst: PacketBurst, size: int = 0) -> None:
        """Send to all of `audience` but the sender itself."""
        fan = self._fans.get((sender, audience))
        if fan is None:
            fan = self._fans[sender, audience] = [self._link(sender, node) for node in audience if node != sender]
        departure = self._departure(sender, size)
        if self.model.tree and (self.model.loss > 0 or self.model.edge_loss > 0):
            self._multicast_by_tree(sender, fan, burst, departure)
            return
        for link in fan:
            losses = link.losses
            if losses.left >= len(burst):
                losses.left -= len(burst)
                self._pass(link, sender, burst, burst, departure)
            else:
                self._pass(link, sender, losses.survivors(burst), burst, departure)

    def _multicast_by_tree(self, sender: NodeId, fan: list[_Link], burst: PacketBurst, departure: int) -> None:
        behind: dict[int, PacketBurst] = {}
        for link in fan:
            branch = self._branch(link.to)
            if branch not in behind:
                behind[branch] = self._edge(sender, branch, 0).survivors(burst)
            self._pass(link, sender, self._edge(sender, branch, link.to).survivors(behind[branch]), burst, departure)

    def _edge(self, sender: NodeId, branch: int, leaf: NodeId) -> LossProcess:
        edge = self._edges.get((sender, branch, leaf))
        if edge is None:
            each = 1 - (1 - self.model.loss_to(sender, max(leaf, -branch, 0))) ** 0.5
            edge = self._edges[sender, branch, leaf] = LossProcess.of(each, self._seed, sender, branch, leaf, "edge")
        return edge

    def _link(self, a: NodeId, b: NodeId) -> _Link:
        link = self._links.get((a, b))
        if link is None:
            link = self._links[a, b] = _Link(self._seed, (a, b), self.model, self._delay_ns(a, b))
        return link

    def _departure(self, sender: NodeId, size: int) -> int:
        now = self._agenda.now
        if not self.model.bandwidth_bps:
            return now
        free = max(now, self._uplink_free.get(sender, 0)) + size * 8_000_000_000 // self.model.bandwidth_bps
        self._uplink_free[sender] = free
        return free

    def _pass(self, link: _Link, sender: NodeId, passed: PacketBurst, sent: PacketBurst, departure: int) -> None:
        """Put what survived on the agenda, and say what of a multicast did not."""
        if self._cuts and (sender, link.to) in self._cuts:
            passed = ()
        if passed is not sent and self.lost_hook is not None:
            self.lost_hook(link.to, _difference(sent, passed))
        if not passed:
            return
        arrival = departure + link.delay_ns
        model = self.model
        if link.jitter is not None:
            arrival += round(link.jitter.expovariate(1 / model.jitter_ns))
        self.deliveries += len(passed)
        deliver = self._deliver[link.to]
        if self._lateness:
            late, copied = self._lateness[max(_kind(sender), _kind(link.to))].draw()
            if copied:
                self._agenda.put(arrival + late, deliver, passed)
            else:
                arrival += late
        self._agenda.put(arrival, deliver, passed)
        if link.duplicates is not None and link.duplicates.lost():
            self._agenda.put(arrival + link.delay_ns + 1, deliver, passed)


def _kind(node: NodeId) -> int:
    return 2 if is_narrow(node) else int(is_edge(node))


def _difference(sent: PacketBurst, passed: PacketBurst) -> PacketBurst:
    """The packets of `sent` that are not in `passed`, which is `sent` with some left out."""
    lost, place = [], 0
    for packet in sent:
        if place < len(passed) and passed[place] is packet:
            place += 1
        else:
            lost.append(packet)
    return tuple(lost)


# How many requests one lost packet causes: the NACK implosion that §5.2 is about.


PacketKey: TypeAlias = tuple[NodeId, int] | tuple[str, int]

SETTLE_NS = 120_000_000_000
"""A lost packet's requests are over after two minutes of virtual time; then only its count is kept."""


class LossLedger:
    """Lost multicast packets, and the requests of all receivers that name each of them."""

    def __init__(self) -> None:
        """Nothing is lost."""
        self.histogram: Counter[int] = Counter()
        """How many lost packets caused so many NACKs."""
        self._asked: dict[PacketKey, int] = {}
        self._since: dict[PacketKey, int] = {}
        self._lacking: dict[NodeId, dict[PacketKey, None]] = {}
        self.now = 0

    def lost(self, to: NodeId, burst: tuple[object, ...]) -> None:
        """One destination does not get these packets."""
        for packet in burst:
            key = packet_key(packet)
            if key is not None:
                if key not in self._asked:
                    self._asked[key] = 0
                    self._since[key] = self.now
                self._lacking.setdefault(to, {})[key] = None

    def asked(self, node: NodeId, nack: Nack) -> None:
        """A receiver requests; without the token it asks for everything that it lacks."""
        lacking = self._lacking.get(node)
        if not lacking:
            return
        if nack.has_token:
            named: list[PacketKey] = [
                (holding.source, holding.first + bit)
                for holding in nack.listed
                for bit in range(holding.bitmap.bit_length())
                if holding.bitmap >> bit & 1
            ]
        else:
            named = list(lacking)
        for key in named:
            if key in lacking and key in self._asked:
                self._asked[key] += 1

    def completed(self, node: NodeId, now: int) -> None:
        """A receiver completed a token: what it lacked before is repaired, or belongs to the next."""
        self.now = now
        self._lacking.pop(node, None)
        while self._since:
            key = next(iter(self._since))
            if self._since[key] > now - SETTLE_NS:
                return
            self._settle(key)

    def _settle(self, key: PacketKey) -> None:
        del self._since[key]
        self.histogram[self._asked.pop(key)] += 1

    def quantile(self, share: float) -> int:
        """NACKs per lost multicast packet that `share` of them do not exceed."""
        for key in list(self._since):
            self._settle(key)
        total = sum(self.histogram.values())
        seen = 0
        for count in sorted(self.histogram):
            seen += self.histogram[count]
            if seen >= share * total:
                return count
        return 0


def packet_key(packet: object) -> PacketKey | None:
    """What a packet brings that a site can lack: a message, a token or a part of one."""
    match packet:
        case Data():
            return (packet.sender, packet.number)
        case Token():
            return ("token", packet.token_number)
        case TokenPart():
            return (f"part {packet.part}", packet.token_number)
        case _:
            return None
