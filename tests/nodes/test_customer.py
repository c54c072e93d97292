"""A customer, R (§4.1), as a role: the contract of a machine, and the whole way as bytes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.hierarchy.edge_makers import FIRE, GAP, MS, NOW, X1, C, quote, release, settings

from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import Grade, JoinPoint
from isocast.hierarchy.edge import Deliver, MessagesReleased, SendLine
from isocast.hierarchy.line_sender import LineSender
from isocast.nodes.retransmit_server import RetransmitServer, RetransmitSettings
from isocast.ring.effects import Unicast
from isocast.ring.inputs import Machine, PacketsArrived, TimerFired
from isocast.terms.instants import SECOND
from isocast.wire.codec import decode, encode
from isocast.wire.packets import Packet


def machines() -> list[Machine[TimerFired, object]]:
    own = settings(servers=(1, 2), by_datagram=False)
    return [
        Customer(C, settings()),
        Customer(C, settings(Grade.LATEST, join=JoinPoint.SNAPSHOT)),
        RetransmitServer(X1, RetransmitSettings(own)),
        LineSender(1, 0, SECOND),
    ]


@pytest.mark.parametrize("place", range(4))
def test_every_role_keeps_the_contract_of_a_machine(place: int) -> None:
    """step(event, now) -> effects; next_deadline(); a frozen snapshot()."""
    machine = machines()[place]
    assert machine.next_deadline() <= NOW
    assert isinstance(machine.step(FIRE, NOW), tuple)
    assert machine.next_deadline() > NOW
    snapshot = machine.snapshot()  # type: ignore[attr-defined]
    assert type(snapshot).__dataclass_params__.frozen


def as_bytes(packets: Sequence[Packet]) -> PacketsArrived:
    """What arrives on the other side."""
    return PacketsArrived([decode(encode(packet)) for packet in packets])


def test_a_message_lost_on_every_line_is_asked_for_and_repaired_over_the_wire() -> None:
    """§4.1: "when an R detects a missing sequence number, it can request the message from R_x"."""
    line = LineSender(1, 0, SECOND)
    server = RetransmitServer(X1, RetransmitSettings(settings(servers=(1, 2), by_datagram=False, lines=(1,))))
    customer = Customer(C, settings(servers=(X1,), join=JoinPoint.SEQUENCE))
    payloads = tuple([quote(sequence) for sequence in range(1, 6)])
    [burst] = line.step(MessagesReleased(release(1, payloads), payloads), NOW)
    server.step(as_bytes(burst.packets), NOW + MS)
    got = list(customer.step(as_bytes([packet for packet in burst.packets if packet.sequence != 3]), NOW + MS))
    asked = customer.step(FIRE, NOW + MS + GAP)
    [request] = [effect for effect in asked if isinstance(effect, Unicast)]
    assert request.to == X1
    answers = server.step(as_bytes([request.packet]), NOW + 20 * MS)
    [repair] = [effect for effect in answers if isinstance(effect, SendLine)]
    got += customer.step(as_bytes(repair.packets), NOW + 21 * MS)
    runs = [effect for effect in got if isinstance(effect, Deliver)]
    assert [price for run in runs for price in run.events()["price"].tolist()] == [1, 2, 3, 4, 5]
