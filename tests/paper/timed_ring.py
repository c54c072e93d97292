"""A timed ring (§5) on a network without chance, for tests that decide themselves who hears what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any, TypeAlias, TypeVar

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.effects import Effect, FairnessFaulted, Multicast, Release, RingSuspected, Unicast
from isocast.ring.inputs import PacketsArrived, PublishRequested, TimerFired
from isocast.ring.ledger import Checkpoint
from isocast.ring.settings import RingSettings
from isocast.ring.source import PrimarySource
from isocast.ring.storage import SiteState
from isocast.terms.ids import Epoch, NodeId, server_id, source_id
from isocast.terms.instants import MILLISECOND, NEVER, SECOND
from isocast.terms.timing import Gate, Timing
from isocast.wire.packets import NO_DIGEST, NO_NONCE, Nack, NewRing, Packet, Repair, Token

__all__ = ["DELAY", "PAPER", "START", "Sent", "TimedRing", "everyone", "first_copy_lost"]

PAPER = Timing(375 * MILLISECOND, process_ns=50 * MILLISECOND, retries_max=3, gate=Gate.TIMED)
"""δ_N = .375, X = 0, P = .05, k_r = 3: τ_r = .8 and τ_t = Δ_A = 2.775."""
DELAY = 50 * MILLISECOND
START = 10 * SECOND
"""T_1."""
EPOCH = Epoch(1, server_id(1))

_P = TypeVar("_P", bound=Packet)


@dataclass(frozen=True)
class Sent:
    """One transmission; `to` is None for a multicast."""

    at: int
    node: NodeId
    to: NodeId | None
    packet: Packet


Hears: TypeAlias = Callable[[Sent, NodeId], bool]
Machine: TypeAlias = PrimaryReceiver | PrimarySource


def everyone(_sent: Sent, _to: NodeId) -> bool:
    """Nothing is lost."""
    return True


def first_copy_lost(kind: type[Packet], *sites: NodeId) -> Hears:
    """The first multicast packet of a kind does not reach these sites."""
    first: list[Packet] = []

    def hears(sent: Sent, to: NodeId) -> bool:
        if isinstance(sent.packet, kind) and sent.to is None:
            if not first:
                first.append(sent.packet)
            return not (sent.packet is first[0] and to in sites)
        return True

    return hears


class TimedRing:
    """Sites 1..m on the ring 1, 2, …, m, whose first token is due at START; `errors` sets clocks wrong."""

    def __init__(
        self,
        size: int,
        timing: Timing = PAPER,
        *,
        hears: Hears = everyone,
        sources: int = 1,
        delay: Callable[[NodeId, NodeId], int] = lambda _a, _b: DELAY,
        errors: dict[NodeId, int] | None = None,
        first_token: int = 1,
    ) -> None:
        """Everything is up, the ring is installed, and nothing has happened."""
        self.now = 0
        self.hears = hears
        derived = timing.release_delay_ns == timing.minimum_release_delay_ns
        self.timing = replace(timing, ring_size=size, release_delay_ns=0 if derived else timing.release_delay_ns)
        self.sites: tuple[NodeId, ...] = tuple(range(1, size + 1))
        self.sent: list[Sent] = []
        self.effects: list[tuple[int, NodeId, Effect]] = []
        self._delay = delay
        self._errors = errors or {}
        self._events: list[tuple[int, int, NodeId, object]] = []
        self._count = 0
        settings = RingSettings(self.timing)
        ring = NewRing(
            0, EPOCH, EPOCH.server, EPOCH, self.sites, first_token, 1, START, Epoch(0, 0), first_token - 1, NO_DIGEST,
            self.sites, (NO_NONCE,) * size, self.sites, (),
        )  # fmt: skip
        self.machines: dict[NodeId, Machine] = {}
        for site in self.sites:
            state = SiteState(Checkpoint(token_number=first_token - 1, universe=self.sites), promised=EPOCH, ring=ring)
            self.machines[site] = PrimaryReceiver(site, settings, bytes(16), replace(state, released=first_token - 1))
        for number in range(1, sources + 1):
            self.machines[source_id(number)] = PrimarySource(source_id(number), settings)

    # What tests ask for

    def submit(self, at: int, source: int = 1) -> None:
        """A client hands a message to a source at an instant."""
        self._count += 1
        self._put(at, source_id(source), PublishRequested(self._count.to_bytes(8), b"order"))

    def run(self, until: int) -> TimedRing:
        """Let everything happen that is due up to an instant."""
        while True:
            node, at = min(((n, self._wakes(n)) for n in self.machines), key=lambda entry: entry[1], default=(0, NEVER))
            packet_at = self._events[0][0] if self._events else NEVER
            if min(at, packet_at) > until:
                self.now = until
                return self
            if packet_at <= at:
                self.now, _, to, event = heappop(self._events)
                self._step(to, event)
            else:
                self.now = max(at, self.now)
                self._step(node, TimerFired())

    def instant(self, token_number: int) -> int:
        """T_t."""
        return START + (token_number - 1) * self.timing.token_period_ns

    def crash(self, site: NodeId) -> None:
        """A site is gone."""
        del self.machines[site]

    def site(self, site: NodeId) -> PrimaryReceiver:
        """A site's machine."""
        machine = self.machines[site]
        assert isinstance(machine, PrimaryReceiver)
        return machine

    def packets(self, kind: type[_P], node: NodeId | None = None) -> list[_P]:
        """What was sent of a kind, in order; by one node if named."""
        return [s.packet for s in self.sent if isinstance(s.packet, kind) and node in (None, s.node)]

    def when(self, kind: type[Packet], node: NodeId | None = None) -> list[int]:
        """The instants at which packets of a kind were sent."""
        return [s.at for s in self.sent if isinstance(s.packet, kind) and node in (None, s.node)]

    def tokens(self) -> list[Token]:
        """Tokens as their owners first sent them."""
        return [s.packet for s in self.sent if isinstance(s.packet, Token) and s.to is None]

    def releases(self) -> list[tuple[int, NodeId, Release]]:
        """Non-empty releases with their true instants."""
        return [(at, n, e) for at, n, e in self.effects if isinstance(e, Release) and e.messages]

    def suspicions(self) -> list[tuple[int, NodeId, RingSuspected]]:
        """Who gave up, and when."""
        return [(at, n, e) for at, n, e in self.effects if isinstance(e, RingSuspected)]

    def faults(self) -> list[NodeId]:
        """Sites that could not release a token in time."""
        return [n for _, n, e in self.effects if isinstance(e, FairnessFaulted)]

    def requests(self) -> list[Nack]:
        """All NACKs."""
        return self.packets(Nack)

    def repairs(self) -> list[Repair]:
        """All repairs."""
        return self.packets(Repair)

    # The driver: step, perform, arm

    def _wakes(self, node: NodeId) -> int:
        deadline = self.machines[node].next_deadline()
        return NEVER if deadline >= NEVER else deadline - self._errors.get(node, 0)

    def _step(self, node: NodeId, event: object) -> None:
        machine: Any = self.machines.get(node)
        if machine is None:
            return
        for effect in machine.step(event, self.now + self._errors.get(node, 0)):
            self.effects.append((self.now, node, effect))
            match effect:
                case Multicast(packet):
                    self._transmit(Sent(self.now, node, None, packet), self._audience(packet))
                case Unicast(to, packet):
                    self._transmit(Sent(self.now, node, to, packet), (to,))
                case _:
                    pass

    def _audience(self, packet: Packet) -> tuple[NodeId, ...]:
        return tuple(self.machines) if isinstance(packet, Token) else self.sites

    def _transmit(self, sent: Sent, audience: tuple[NodeId, ...]) -> None:
        self.sent.append(sent)
        for to in audience:
            if to != sent.node and self.hears(sent, to):
                self._put(self.now + self._delay(sent.node, to), to, PacketsArrived((sent.packet,)))

    def _put(self, at: int, node: NodeId, event: object) -> None:
        self._count += 1
        heappush(self._events, (at, self._count, node, event))
