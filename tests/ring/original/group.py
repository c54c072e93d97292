"""Receivers and sources of §2.1 joined without delay, for tests that decide themselves who hears what."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from isocast.ring.original.packets import (
    Ack,
    MessageSubmitted,
    OriginalData,
    OriginalEffect,
    OriginalMulticast,
    OriginalPacket,
    OriginalPacketsArrived,
    OriginalUnicast,
    Placed,
    TimerFired,
    Timers,
)
from isocast.ring.original.receiver import OriginalReceiver, Source
from isocast.terms.ids import Label, NodeId, is_source, source_id
from isocast.terms.instants import MILLISECOND, NEVER, SECOND

__all__ = ["RING", "SOURCE", "TIMERS", "T_A", "Group", "R_n", "R_s", "R_t", "ack", "arrive", "data", "receiver"]

T_A = SECOND
R_t = 1_200 * MILLISECOND
R_s = SECOND
R_n = 250 * MILLISECOND
TIMERS = Timers(token_ack_ns=T_A, token_resend_ns=R_t, source_resend_ns=R_s, nack_resend_ns=R_n, retries_max=3)

RING: tuple[NodeId, ...] = (1, 2, 3)
SOURCE = source_id(1)

Hears: TypeAlias = Callable[[OriginalPacket, NodeId], bool]


def data(number: int, source: NodeId = SOURCE) -> OriginalData:
    """Message `number` of a source."""
    return OriginalData(Label(source, number), b"")


def ack(token_number: int, message: OriginalData, ring: tuple[NodeId, ...] = RING) -> Ack:
    """Acknowledgement t of a message, from the site whose turn it is."""
    return Ack(token_number, message.label, ring[(token_number - 1) % len(ring)], ring[token_number % len(ring)])


def arrive(*packets: OriginalPacket) -> OriginalPacketsArrived:
    """A burst of packets."""
    return OriginalPacketsArrived(packets)


def receiver(site: NodeId, *heard: OriginalPacket, ring: tuple[NodeId, ...] = RING, now: int = 0) -> OriginalReceiver:
    """A receiver that has heard some packets already."""
    machine = OriginalReceiver(site, ring, TIMERS)
    machine.step(OriginalPacketsArrived(heard), now)
    return machine


def everyone_hears(_packet: OriginalPacket, _to: NodeId) -> bool:
    """No multicast is lost."""
    return True


class Group:
    """m receivers; a multicast reaches those that `hears` names, a unicast always arrives."""

    def __init__(self, size: int, hears: Hears = everyone_hears) -> None:
        """A ring in which site 1 has the token."""
        self.ring: tuple[NodeId, ...] = tuple(range(1, size + 1))
        self.hears = hears
        self.now = 0
        self.receivers = {site: OriginalReceiver(site, self.ring, TIMERS) for site in self.ring}
        self.sources: dict[NodeId, Source] = {}
        self.sent: list[tuple[NodeId, OriginalMulticast | OriginalUnicast]] = []
        self.effects: list[tuple[NodeId, OriginalEffect]] = []
        self.placed: dict[NodeId, list[Label]] = {site: [] for site in self.ring}
        self.when_sent: Callable[[NodeId, OriginalPacket], None] | None = None
        """Called with every packet when it is sent, before anybody hears it."""
        self._under_way: deque[tuple[NodeId, OriginalPacket]] = deque()

    def submit(self, number: int = 1) -> None:
        """A message from source `number`, and all that follows from it without waiting."""
        node = source_id(number)
        machine = self.sources.setdefault(node, Source(node, TIMERS))
        self._perform(node, machine.step(MessageSubmitted(b""), self.now))
        self._deliver()

    def wait(self, span_ns: int) -> None:
        """Let time pass."""
        until = self.now + span_ns
        while True:
            machines: dict[NodeId, OriginalReceiver | Source] = {**self.receivers, **self.sources}
            due = min((machine.next_deadline() for machine in machines.values()), default=NEVER)
            if due > until:
                break
            self.now = due
            for node, machine in machines.items():
                if machine.next_deadline() <= due:
                    self._perform(node, machine.step(TimerFired(), due))
            self._deliver()
        self.now = until

    def packets(self, kind: type[OriginalPacket]) -> list[OriginalPacket]:
        """Everything of one kind that was sent."""
        return [effect.packet for _, effect in self.sent if isinstance(effect.packet, kind)]

    def acknowledgers(self) -> list[NodeId]:
        """Who acknowledged, position after position."""
        firsts: dict[int, NodeId] = {}
        for node, effect in self.sent:
            if isinstance(effect, OriginalMulticast) and isinstance(effect.packet, Ack):
                firsts.setdefault(effect.packet.token_number, node)
        return [firsts[number] for number in sorted(firsts)]

    def _perform(self, node: NodeId, effects: Iterable[OriginalEffect]) -> None:
        for effect in effects:
            self.effects.append((node, effect))
            if isinstance(effect, Placed):
                self.placed[node].append(effect.label)
            if not isinstance(effect, OriginalMulticast | OriginalUnicast):
                continue
            self.sent.append((node, effect))
            if self.when_sent is not None:
                self.when_sent(node, effect.packet)
            if isinstance(effect, OriginalUnicast):
                self._under_way.append((effect.to, effect.packet))
                continue
            audience = [site for site in self.ring if site != node]
            if isinstance(effect.packet, Ack):
                audience.append(effect.packet.label.source)
            self._under_way += [(to, effect.packet) for to in audience if self.hears(effect.packet, to)]

    def _deliver(self) -> None:
        while self._under_way:
            to, packet = self._under_way.popleft()
            machine = self.sources[to] if is_source(to) else self.receivers[to]
            self._perform(to, machine.step(OriginalPacketsArrived((packet,)), self.now))
