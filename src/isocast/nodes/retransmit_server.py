"""A retransmit server, R_x (§4.1; protocol §7): a complete customer that archives what it gets and gives it again.

It hears the lines of two or more receivers, fetches what it lacks at their doors, and answers customers: a few
messages by multicast on a line of its own, many of them, and snapshots, at its door. It archives only what was
released, because that is all it ever sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from isocast.hierarchy.archive import (
    AnswerLimits,
    Answers,
    Archive,
    ArchiveRead,
    ArchiveTrimmed,
    GiveRange,
    GiveSnapshot,
    KeepSnapshot,
    RangeAsked,
    RangeWithdrawn,
    ReadArchive,
    ServerEffect,
    ServerInput,
    SnapshotAsked,
    TurnAway,
)
from isocast.hierarchy.customer import Customer, CustomerSnapshot
from isocast.hierarchy.customer_settings import CustomerSettings, CustomerState, Grade
from isocast.hierarchy.edge import (
    CustomerEffect,
    Deliver,
    DeliverSnapshot,
    FetchFailed,
    GapAbandoned,
    LinesPlanned,
    RangeArrived,
    RangeContinued,
    SendLine,
    SnapshotArrived,
)
from isocast.hierarchy.latest import LatestSnapshot, LatestTable
from isocast.hierarchy.line_sender import Heartbeat
from isocast.hierarchy.proving import LineProver, ProofTerms
from isocast.ring.effects import Unicast
from isocast.ring.inputs import ClockJudged, PacketsArrived, TimerFired
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.terms.instants import MILLISECOND, NEVER
from isocast.wire.events import EVENTS_PER_PAYLOAD
from isocast.wire.packets import Packet, Range, RangeReply, RangeRequest, ReleasedPacket

__all__ = ["ArchiveState", "RetransmitServer", "RetransmitServerSnapshot", "RetransmitSettings"]

_LINE: NodeId = 0
"""`to` of what is read for the server's line: no node has this id."""
_TABLE: NodeId = -1
"""`to` of what is read to bring the table of latest events up to date after a restart."""
_TABLE_CHUNK = 1_024


@dataclass(frozen=True, slots=True)
class RetransmitSettings:
    """One retransmit server of one stripe."""

    customer: CustomerSettings
    """The receivers' lines that it hears, and as `servers` the receivers at whose doors it fills its gaps."""
    line: AnswerLimits | None = None
    """Repairs by multicast; None: the usual, silent about a repeated range for half a retry interval."""
    door: AnswerLimits = field(default_factory=AnswerLimits.at_door)
    """Ranges and snapshots over TCP."""
    snapshot_age_ns: int = 500 * MILLISECOND
    """For how long a snapshot is given again before a new one is made: what it lacks, the lines bring."""
    snapshot_every: int = 65_536
    """Messages after which a snapshot is written beside the archive."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.customer.grade is not Grade.COMPLETE or self.customer.by_datagram:
            raise LocalProtocolError("a retransmit server needs everything, and fetches what it lacks at doors")
        if self.line is not None and self.line.quiet_ns >= self.customer.retry_ns:
            raise LocalProtocolError("quiet_ns must be less than retry_ns: who lost a repair asks again")
        if self.snapshot_every < 1 or self.snapshot_age_ns < 0:
            raise LocalProtocolError("snapshot_every must be positive and snapshot_age_ns not negative")

    @property
    def repairs(self) -> AnswerLimits:
        """What is answered on the line."""
        return self.line or AnswerLimits(quiet_ns=self.customer.retry_ns // 2)


@dataclass(slots=True)
class ArchiveState:
    """What a server's disk says."""

    low_water: int = 0
    """The first sequence from which on the archive has everything; 0 while it is empty."""
    next_sequence: int = 0
    """The first sequence that it does not have; 0 while it is empty."""
    snapshot: LatestSnapshot | None = None
    """The last that was kept."""


@dataclass(frozen=True, slots=True)
class RetransmitServerSnapshot:
    """A server's state for checkers and console."""

    server: NodeId
    low_water: int
    next_sequence: int
    keys: int
    accounts: int
    requests: int
    answered: int
    spared: int
    refused: int
    customer: CustomerSnapshot


class RetransmitServer:
    """The machine of one server of one stripe."""

    customer_class: type[Customer] = Customer

    def __init__(
        self,
        node: NodeId,
        settings: RetransmitSettings,
        state: ArchiveState | None = None,
        proofs: ProofTerms | None = None,
        prover: LineProver | None = None,
    ) -> None:
        """Start, or go on where the archive ends; `proofs` judge what it hears, `prover` vouches for what it sends."""
        state = state or ArchiveState()
        stripe = settings.customer.stripe
        self.node = node
        self.customer = self.customer_class(node, settings.customer, CustomerState(state.next_sequence), proofs)
        self.low_water = state.low_water
        self.next_sequence = state.next_sequence
        self.line = Answers(settings.repairs)
        self.door = Answers(settings.door)
        self._settings = settings
        self._stripe = stripe
        self._prover = prover
        self._heartbeat = Heartbeat(node, stripe, settings.customer.heartbeat_ns, prover)
        self._table = LatestTable(stripe, settings.customer.keys_max)
        self._reading = False
        self._kept_at = state.snapshot.next_sequence if state.snapshot else state.low_water
        self._snapshot: LatestSnapshot | None = None
        self._snapshot_at = -NEVER
        self._last_now = -NEVER
        self._out: list[ServerEffect] = []
        if state.snapshot is not None:
            self._table.restore(state.snapshot)
        self._table.next_sequence = max(self._table.next_sequence, state.low_water)

    # The contract -------------------------------------------------------------------------------

    def step(self, event: ServerInput, now: int) -> tuple[ServerEffect, ...]:
        """Take one input at local time `now`."""
        if now < self._last_now:
            for answers in (self.line, self.door):
                answers.set_back(self._last_now - now)
            self._heartbeat.set_back(now)
            self._snapshot_at = -NEVER
        self._last_now = now
        match event:
            case PacketsArrived(packets):
                self._on_packets(packets, now)
            case RangeAsked():
                self._on_range_asked(event, now)
            case RangeWithdrawn(customer):
                self.door.withdraw(customer)
            case SnapshotAsked(customer):
                self._on_snapshot_asked(customer, now)
            case ArchiveRead():
                self._on_read(event)
            case ArchiveTrimmed(low_water):
                self.low_water = max(self.low_water, low_water)
            case (
                TimerFired() | ClockJudged() | RangeArrived() | RangeContinued() | SnapshotArrived() | FetchFailed()
                | LinesPlanned()
            ):  # fmt: skip
                self._follow(self.customer.step(event, now), now)
            case _:
                assert_never(event)
        self._serve(now)
        self._read_for_table()
        if now >= self._heartbeat.due and self.next_sequence:
            self._out.append(SendLine((self._heartbeat.beat(self.next_sequence, now),)))
        effects = tuple(self._out)
        self._out.clear()
        return effects

    def next_deadline(self) -> int:
        """When the machine must be woken."""
        heartbeat_at = self._heartbeat.due if self.next_sequence else NEVER
        return min(self.customer.next_deadline(), heartbeat_at, self.line.wake_at, self.door.wake_at)

    def snapshot(self) -> RetransmitServerSnapshot:
        """The state, for checkers and status pages."""
        line, door = self.line, self.door
        return RetransmitServerSnapshot(
            self.node,
            self.low_water,
            self.next_sequence,
            len(self._table),
            len(line.accounts) + len(door.accounts),
            line.requests + door.requests,
            line.served + door.served,
            line.spared,
            line.refused + door.refused,
            self.customer.snapshot(),
        )

    # What it gets -------------------------------------------------------------------------------

    def _on_packets(self, packets: Sequence[Packet], now: int) -> None:
        requests = [packet for packet in packets if type(packet) is RangeRequest]
        if requests:
            for request in requests:
                self._on_request(request, now)
            packets = [packet for packet in packets if type(packet) is not RangeRequest]
        self._follow(self.customer.step(PacketsArrived(packets), now), now)

    def _follow(self, effects: Sequence[CustomerEffect], now: int) -> None:
        """What its own customer wants: deliveries go to the archive, all else is told as it is."""
        for effect in effects:
            match effect:
                case Deliver(packets):
                    self._archive(packets, now)
                case DeliverSnapshot(snapshot):
                    self._table.restore(snapshot)
                    self.low_water = self.next_sequence = snapshot.next_sequence
                    self._out.append(KeepSnapshot(snapshot))
                case GapAbandoned(_, last, _):
                    # Nobody has it any more. Below it the archive is not whole.
                    self.low_water = self.next_sequence = last + 1
                    self._out.append(effect)
                case _:
                    self._out.append(effect)

    def _archive(self, packets: tuple[ReleasedPacket, ...], now: int) -> None:
        first, last = packets[0].sequence, packets[-1].sequence
        self._out.append(Archive(packets))
        self.low_water = self.low_water or first
        self.next_sequence = last + 1
        self._heartbeat.epoch, self._heartbeat.token_number = packets[-1].epoch, packets[-1].token_number
        self._table.next_sequence = max(self._table.next_sequence, self.low_water)
        if first <= self._table.next_sequence:
            self._apply(packets)
        if self.next_sequence - self._kept_at >= self._settings.snapshot_every and self._up_to_date:
            self._kept_at = self.next_sequence
            self._out.append(KeepSnapshot(self._make_snapshot(now)))

    # The table of latest events -----------------------------------------------------------------

    @property
    def _up_to_date(self) -> bool:
        return self._table.next_sequence >= self.next_sequence

    def _apply(self, packets: Sequence[ReleasedPacket]) -> None:
        self._table.apply_readable([packet.sequence for packet in packets], [packet.payload for packet in packets])

    def _read_for_table(self) -> None:
        """After a restart the table is behind the archive: read on until it is not."""
        if self._reading or self._up_to_date:
            return
        first = self._table.next_sequence = max(self._table.next_sequence, self.low_water)
        last = min(first + _TABLE_CHUNK, self.next_sequence) - 1
        if first <= last:
            self._reading = True
            self._out.append(ReadArchive(_TABLE, first, last))

    def _make_snapshot(self, now: int) -> LatestSnapshot:
        if self._snapshot is None or now - self._snapshot_at > self._settings.snapshot_age_ns:
            self._snapshot, self._snapshot_at = self._table.snapshot(), now
        return self._snapshot

    # What it answers ----------------------------------------------------------------------------

    def _on_request(self, request: RangeRequest, now: int) -> None:
        """RXREQ: queue what is kept, and say from where on it is."""
        if request.kind is not Range.SEQUENCES or request.stripe != self._stripe:
            return
        first, last = request.first, min(request.last, self.next_sequence - 1)
        if first < self.low_water:
            if self.line.charge(request.sender, 1, now):
                self._out.append(Unicast(request.sender, self._reply()))
            first = self.low_water
        if first <= last:
            self._out.extend(self.line.ask(request.sender, first, last, now))

    def _reply(self) -> RangeReply:
        newest = self.next_sequence - 1
        return RangeReply(self._stripe, NO_EPOCH, self.node, Range.SEQUENCES, self.low_water, newest, self.low_water)

    def _on_range_asked(self, event: RangeAsked, now: int) -> None:
        first, last = event.first, min(event.last, self.next_sequence - 1)
        if first < self.low_water or first > last:
            if self.door.charge(event.customer, 1, now):
                self._give(event.customer, ())
                return
            self._out.extend([*self.door.refuse(event.customer, now), TurnAway(event.customer)])
            return
        refused = self.door.refused
        self._out.extend(self.door.ask(event.customer, first, last, now))
        if self.door.refused > refused:
            self._out.append(TurnAway(event.customer))

    def _on_snapshot_asked(self, customer: NodeId, now: int) -> None:
        if not self._up_to_date:
            self._out.append(TurnAway(customer))
        elif self.door.charge(customer, 1 + len(self._table) // EVENTS_PER_PAYLOAD, now):
            self._out.append(GiveSnapshot(customer, self._make_snapshot(now)))
        else:
            self._out.extend([*self.door.refuse(customer, now), TurnAway(customer)])

    def _serve(self, now: int) -> None:
        """Answer what may be answered now: from memory where it is still there, else from the archive."""
        for answers in (self.line, self.door):
            pieces, named = answers.serve(now)
            self._out.extend(named)
            for piece in pieces:
                to = _LINE if answers is self.line else piece.customer
                packets = self.customer.recall(piece.first, piece.last)
                if packets is None:
                    self._out.append(ReadArchive(to, piece.first, piece.last))
                else:
                    self._answer(to, packets)
        self._out.extend([TurnAway(customer) for customer in self.door.lapsed])
        self.door.lapsed.clear()
        self.line.lapsed.clear()

    def _on_read(self, event: ArchiveRead) -> None:
        if event.to != _TABLE:
            self._answer(event.to, event.packets)
            return
        self._reading = False
        self._apply(event.packets)
        self._table.next_sequence = max(self._table.next_sequence, event.last + 1)

    def _answer(self, to: NodeId, packets: Sequence[ReleasedPacket]) -> None:
        if to != _LINE:
            self._give(to, packets)
        elif packets:
            again = tuple([packet._replace(sender=self.node) for packet in packets])
            proofs = () if self._prover is None else self._prover.prove(again)
            self._out.append(SendLine(again, proofs))

    def _give(self, customer: NodeId, packets: Sequence[ReleasedPacket]) -> None:
        again = tuple([packet._replace(sender=self.node) for packet in packets])
        self._out.append(GiveRange(customer, again, max(self.low_water, 1), max(self.next_sequence - 1, 0)))
