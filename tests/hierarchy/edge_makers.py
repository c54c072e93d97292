"""Packets at the edge of the network, and customers with round numbers, for tests of single machines.

Two lines (sites 1 and 2), two retransmit servers (X1, X2), one customer (C). A gap may last 10 ms, requests are
20 ms apart, two to each server; heartbeats come every 100 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import CustomerSettings, CustomerState, Grade, JoinPoint
from isocast.ring.effects import Release, Unicast
from isocast.ring.inputs import PacketsArrived, TimerFired
from isocast.ring.ledger import LogEntry
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, server_id, source_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import EventKind, Mic, Side, Symbol
from isocast.wire.events import MarketEvent, build_events
from isocast.wire.packets import NO_DIGEST, NO_LIMIT, NO_NONCE, Data, Packet, Range, RangeRequest, ReleasedPacket, Token

__all__ = [
    "EPOCH",
    "FIRE",
    "GAP",
    "MS",
    "NOW",
    "RETRY",
    "X1",
    "X2",
    "C",
    "arrive",
    "asked",
    "beat",
    "customer",
    "following",
    "of",
    "quote",
    "rel",
    "release",
    "rels",
    "settings",
]

MS = MILLISECOND
EPOCH = Epoch(1, server_id(1))
X1, X2 = 131_072 + 1, 131_072 + 2
C = 131_072 + 100
GAP = 10 * MS
RETRY = 20 * MS
NOW = 1_000 * SECOND
FIRE = TimerFired()

EffectT = TypeVar("EffectT")


KEY = bytes(range(16))
"""Of every token's shuffle."""


def quote(sequence: int, *, symbol: str = "IBM", side: Side = Side.BUY, kind: EventKind = EventKind.QUOTE) -> bytes:
    """One event, whose price says which message it is of."""
    event = MarketEvent(kind, Mic("XNYS"), Symbol(symbol), side, price=sequence, quantity=1, time=sequence, id=sequence)
    return build_events([event]).tobytes()


def rel(sequence: int, line: NodeId = 1, payload: bytes | None = None, *, epoch: Epoch = EPOCH) -> ReleasedPacket:
    """A message on a line."""
    content = quote(sequence) if payload is None else payload
    return ReleasedPacket(0, epoch, line, 1 + sequence // 10, sequence, NOW, 0, sequence, 1, content, b"")


def rels(first: int, last: int, line: NodeId = 1) -> list[ReleasedPacket]:
    """Messages one after the other."""
    return [rel(sequence, line) for sequence in range(first, last + 1)]


def beat(following: int, line: NodeId = 1, sent_at: int = NOW) -> ReleasedPacket:
    """A heartbeat of a line that will send `following` next."""
    return ReleasedPacket(0, EPOCH, line, 0, following, sent_at, 0, following, 0, b"", b"")


def arrive(*packets: Packet) -> PacketsArrived:
    """A burst."""
    return PacketsArrived(packets)


def settings(grade: Grade = Grade.COMPLETE, **changes: Any) -> CustomerSettings:  # noqa: ANN401 (any field)
    """The customer's settings, some of them changed."""
    given: dict[str, Any] = {
        "lines": (1, 2),
        "servers": (X1, X2),
        "grade": grade,
        "gap_ns": GAP,
        "retry_ns": RETRY,
        "retries_max": 2,
        "heartbeat_ns": 100 * MS,
        "silent_ns": 500 * MS,
        "late_ns": 10 * MS,
        "slow_ns": 300 * MS,
    }
    return CustomerSettings(**(given | changes))


def customer(next_sequence: int = 1, **changes: Any) -> Customer:  # noqa: ANN401 (any field)
    """A customer of grade complete that expects a sequence, its first tick done."""
    machine = Customer(C, settings(**changes), CustomerState(next_sequence))
    machine.step(FIRE, NOW)
    return machine


def following(first: int = 1, join: JoinPoint = JoinPoint.NOW, **changes: Any) -> Customer:  # noqa: ANN401 (any field)
    """A customer of grade latest that both lines told where they are."""
    machine = Customer(C, settings(Grade.LATEST, join=join, **changes))
    machine.step(arrive(beat(first), beat(first, 2)), NOW)
    return machine


def of(effects: Iterable[object], kind: type[EffectT]) -> list[EffectT]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def asked(effects: Iterable[object]) -> list[tuple[NodeId, int, int]]:
    """The ranges requested: of whom, first, last."""
    packets = [(effect.to, effect.packet) for effect in of(effects, Unicast)]
    ranges = [(to, packet) for to, packet in packets if isinstance(packet, RangeRequest)]
    assert all(packet.kind is Range.SEQUENCES and packet.sender == C for _, packet in ranges)
    return [(to, packet.first, packet.last) for to, packet in ranges]


def release(first: int, payloads: Sequence[bytes], token_number: int = 7, instant: int = NOW) -> Release:
    """What a receiver's ring asks it to do: hand on these messages."""
    messages = tuple([Data(0, EPOCH, source_id(1), number, 1, raw) for number, raw in enumerate(payloads, first)])
    token = Token(
        0, EPOCH, 1, token_number, instant, first, (), (), (), NO_NONCE, NO_NONCE, 0, NO_LIMIT, (), NO_DIGEST
    )  # fmt: skip
    return Release(NO_EPOCH, LogEntry(token, messages, KEY), first, messages, instant)
