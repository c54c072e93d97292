"""An observer beside each simulated node: what the node hears, and what it makes of it.

A fault of knowledge shows late, if ever, in what a node does: it may be right by luck. So it is told as facts what a
site hears of receipts and then counts as certified, what a source takes for acknowledged, and in which order messages
came to the owner that puts them into a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from isocast.checks.facts import Acknowledged, BatchTaken, Certified, ReceiptHeard
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.ring.settings import OrderRule
from isocast.ring.source import PrimarySource
from isocast.ring.token import label_order
from isocast.terms.timing import Gate
from isocast.wire.packets import Data, Receipt, Repair, Token

if TYPE_CHECKING:
    from collections.abc import Callable

    from isocast.checks.facts import Fact
    from isocast.ring.ledger import Ledger
    from isocast.ring.receiver import Receiver
    from isocast.ring.settings import RingSettings
    from isocast.simulation.network import Agenda, PacketBurst
    from isocast.terms.ids import NodeId

__all__ = ["NodeWitness"]

_ARRIVALS_SPARE = 4_096
"""Arrivals remembered beyond those that still wait, before they are looked through."""
_NOT_KNOWN = -1
_RECEIVERS = (PrimaryReceiver, SecondaryReceiver)


class Witnessed(Protocol):
    """A simulated node, as far as a witness looks at it."""

    @property
    def node(self) -> NodeId:
        """Its id."""

    @property
    def machine(self) -> object:
        """What it runs; None while it is down."""


class NodeWitness:
    """Stands beside one node. `tell` takes facts for checkers alone, which no transcript needs."""

    def __init__(self, agenda: Agenda, settings: RingSettings, tell: Callable[[Fact], None]) -> None:
        """Nothing heard yet."""
        self._agenda = agenda
        self._tell = tell
        self.counts_receipts = settings.timing.gate is Gate.MAJORITY
        """Whether receipts certify anything, and `hears` is called."""
        self.by_arrival = settings.order is OrderRule.ARRIVAL
        """Whether messages are taken as they came, and `took` is called."""
        self._certified = 0
        self._acknowledged = 1
        self._arrivals: dict[tuple[NodeId, int], int] = {}
        self._count = 0

    def begins(self, host: Witnessed) -> None:
        """The node starts, or starts again, with what its disk says."""
        machine = host.machine
        self._arrivals.clear()
        if isinstance(machine, _RECEIVERS):
            self._certified = machine.receiver.certificates.certified
        elif isinstance(machine, PrimarySource):
            self._acknowledged = machine.snapshot().acknowledged

    def hears(self, host: Witnessed, burst: PacketBurst) -> None:
        """Before the node takes packets."""
        for packet in burst:
            if type(packet) is Receipt:
                self._tell(ReceiptHeard(self._agenda.now, host.node, packet.sender, packet.epoch, packet.held))

    def took(self, host: Witnessed, burst: PacketBurst) -> None:
        """After the node took packets, and did what followed."""
        machine = host.machine
        if isinstance(machine, PrimaryReceiver):
            self._note_arrivals(machine.receiver.ledger, burst)

    def _note_arrivals(self, ledger: Ledger, burst: PacketBurst) -> None:
        arrivals, waiting = self._arrivals, ledger.waiting
        for packet in burst:
            data = packet.item if type(packet) is Repair else packet
            if type(data) is Data and data.label not in arrivals and data.label in waiting:
                self._count += 1
                arrivals[data.label] = self._count
        if len(arrivals) > 2 * len(waiting) + _ARRIVALS_SPARE:
            self._arrivals = {label: arrivals[label] for label in waiting if label in arrivals}

    def stepped(self, host: Witnessed) -> None:
        """After any step: what the node believes now."""
        machine = host.machine
        if isinstance(machine, _RECEIVERS):
            receiver = machine.receiver
            certified = receiver.certificates.certified
            if certified != self._certified:
                if certified > self._certified and self.counts_receipts:
                    self._tell(Certified(self._agenda.now, host.node, receiver.accepted, certified))
                self._certified = certified
        elif isinstance(machine, PrimarySource):
            state = machine.snapshot()
            if state.acknowledged != self._acknowledged:
                self._acknowledged = state.acknowledged
                self._tell(Acknowledged(self._agenda.now, host.node, state.epoch, state.acknowledged))

    def log_changed(self, receiver: Receiver) -> None:
        """A ring was installed, or a log replaced: messages wait again in an order of their own."""
        self._arrivals = dict.fromkeys(receiver.ledger.waiting, _NOT_KNOWN)

    def batch(self, host: Witnessed, token: Token) -> BatchTaken | None:
        """What the owner of a token took of what waited."""
        if not isinstance(host.machine, PrimaryReceiver):
            return None
        ledger, arrivals = host.machine.receiver.ledger, self._arrivals
        labels = label_order(token, OrderRule.ARRIVAL, b"")
        taken = tuple([(*label, arrivals.get(label, _NOT_KNOWN)) for label in labels])
        return BatchTaken(self._agenda.now, host.node, token.epoch, token.token_number, taken, _left(ledger))


def _left(ledger: Ledger) -> tuple[tuple[NodeId, int], ...]:
    """Of each source, how many messages that wait could be acknowledged next."""
    left = []
    for source in {source: None for source, _ in ledger.waiting}:
        first = number = ledger.next_number.get(source, 1)
        while (source, number) in ledger.waiting:
            number += 1
        if number > first:
            left.append((source, number - first))
    return tuple(left)
