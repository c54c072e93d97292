"""What happens at the edge of the network, between lines, customers and retransmit servers (§4.1; protocol §7).

Two closed unions, as in the ring: inputs are past tense, effects say what the driver shall do, or what it shall
tell people. A *line* is the multicast group of one receiver or retransmit server; whoever sends on it is its
owner. A *door* is a retransmit server's (or receiver's) TCP port, where ranges and snapshots are fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from isocast.hierarchy.latest import LatestSnapshot
from isocast.ring.effects import Release, Unicast
from isocast.ring.inputs import DriverInput
from isocast.terms.ids import NodeId
from isocast.wire.events import EventArray, events_view
from isocast.wire.packets import Proof, ReleasedPacket

__all__ = [
    "ClaimRefuted",
    "ConflictFound",
    "CustomerCaughtUp",
    "CustomerEffect",
    "CustomerHostEffect",
    "CustomerInput",
    "CustomerNotice",
    "CustomerSlow",
    "Deliver",
    "DeliverLatest",
    "DeliverSnapshot",
    "FetchFailed",
    "FetchRange",
    "FetchSnapshot",
    "ForgeryDropped",
    "GapAbandoned",
    "GapClosed",
    "GapOpened",
    "LineBack",
    "LineLate",
    "LineSilent",
    "LineSwitched",
    "LinesPlanned",
    "MarketGoesOn",
    "MarketWaits",
    "MessagesReleased",
    "ProofStale",
    "ProofsDiffer",
    "RangeArrived",
    "RangeContinued",
    "RepairUnanswered",
    "SendLine",
    "Slowness",
    "SnapshotArrived",
    "TokensPassed",
    "Waiting",
]


@dataclass(frozen=True, slots=True)
class MessagesReleased:
    """A receiver performs `Release`: the same messages with their payloads opened, place by place."""

    release: Release
    payloads: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class RangeArrived:
    """A door's answer to `FetchRange`: what the server has of it, in order, and what it keeps at all.

    `newest` is the last sequence that the server has; `low_water` the first from which on it has everything.
    """

    server: NodeId
    packets: Sequence[ReleasedPacket]
    low_water: int
    newest: int


@dataclass(frozen=True, slots=True)
class RangeContinued:
    """A part of a door's answer to `FetchRange`; it counts even if the rest is lost."""

    server: NodeId
    packets: Sequence[ReleasedPacket]


@dataclass(frozen=True, slots=True)
class SnapshotArrived:
    """A door's answer to `FetchSnapshot`."""

    server: NodeId
    snapshot: LatestSnapshot


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """A door did not answer, or broke off."""

    server: NodeId


@dataclass(frozen=True, slots=True)
class LinesPlanned:
    """From now on the receivers' lines that this customer hears are these, the preferred first (§4.3)."""

    lines: tuple[NodeId, ...]


CustomerInput: TypeAlias = DriverInput | RangeArrived | RangeContinued | SnapshotArrived | FetchFailed | LinesPlanned


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand these messages to the application: consecutive sequences, each of them once, in order."""

    packets: tuple[ReleasedPacket, ...]

    @property
    def first(self) -> int:
        """The first sequence."""
        return self.packets[0].sequence

    @property
    def last(self) -> int:
        """The last sequence."""
        return self.packets[-1].sequence

    def events(self) -> EventArray:
        """All events of the run as one array; RemoteProtocolError when a payload holds something else."""
        return events_view(b"".join([packet.payload for packet in self.packets]))


@dataclass(frozen=True, slots=True)
class DeliverLatest:
    """Hand over the newest event of every key that changed; `newest` is the highest sequence seen."""

    newest: int
    payload: bytes
    sequences: tuple[int, ...] = ()
    """For each event that of the message that brought it; empty: not known."""
    instants: tuple[int, ...] = ()
    """For each event T_t of that message, 0 where only a snapshot told of it; empty: not known."""

    def events(self) -> EventArray:
        """One event for each key, in the order in which they happened."""
        return events_view(self.payload)


@dataclass(frozen=True, slots=True)
class DeliverSnapshot:
    """Hand over the state that what follows continues."""

    snapshot: LatestSnapshot


@dataclass(frozen=True, slots=True)
class TokensPassed:
    """Every message of tokens up to an instant has been delivered, and the next is of a token a period later."""

    instant: int
    next_sequence: int


@dataclass(frozen=True, slots=True)
class SendLine:
    """Send on this node's own line, as one burst; proofs before what they prove."""

    packets: tuple[ReleasedPacket, ...]
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchRange:
    """Ask the server's door for a range; answer with `RangeArrived` or `FetchFailed`. Less than all is welcome."""

    server: NodeId
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """Ask the server's door for a snapshot; answer with `SnapshotArrived` or `FetchFailed`."""

    server: NodeId


@dataclass(frozen=True, slots=True)
class GapOpened:
    """Sequences that no line brought in time: `missing` of those from `first` to `last`."""

    first: int
    last: int
    missing: int


@dataclass(frozen=True, slots=True)
class GapClosed:
    """An opened gap is no more, `after_ns` after it was seen: repaired, or a server knows that nothing was there."""

    first: int
    last: int
    after_ns: int


@dataclass(frozen=True, slots=True)
class GapAbandoned:
    """Sequences that will not be delivered: skipped by grade `latest`, or kept by no server any more."""

    first: int
    last: int
    missing: int


@dataclass(frozen=True, slots=True)
class RepairUnanswered:
    """Every server was asked in vain; asking goes on."""

    first: int
    last: int
    rounds: int


@dataclass(frozen=True, slots=True)
class LineLate:
    """A line brings its copies later than another, by more than its setting allows."""

    line: NodeId
    lag_ns: int


@dataclass(frozen=True, slots=True)
class LineSilent:
    """A line brings nothing, not even heartbeats."""

    line: NodeId
    silent_ns: int


@dataclass(frozen=True, slots=True)
class LineBack:
    """A line that was late or silent is neither."""

    line: NodeId


@dataclass(frozen=True, slots=True)
class LineSwitched:
    """The customer follows another line than before, or its first one: the first of its list that speaks in time."""

    line: NodeId
    before: NodeId | None


class Waiting(StrEnum):
    """Why no message can arrive at present."""

    REFORMING = "reforming"
    """Lines speak, and say that no token comes: the ring is being re-formed."""
    SILENT = "silent"
    """No line speaks: its receivers are down, or nothing arrives here."""


@dataclass(frozen=True, slots=True)
class MarketWaits:
    """Nothing can come since an instant; 0 if nothing ever came."""

    reason: Waiting
    since: int


@dataclass(frozen=True, slots=True)
class MarketGoesOn:
    """What the customer waited for has come, `after_ns` after it was seen last; 0 if it had never been."""

    reason: Waiting
    after_ns: int


@dataclass(frozen=True, slots=True)
class ConflictFound:
    """Two lines carry different content for one sequence: an alarm. The first copy stands."""

    sequence: int
    first_line: NodeId
    other_line: NodeId
    first_digest: bytes
    other_digest: bytes


@dataclass(frozen=True, slots=True)
class ClaimRefuted:
    """A line spoke of sequences far beyond what a retransmit server knows; it is not believed for a while."""

    line: NodeId
    sequence: int
    newest: int


@dataclass(frozen=True, slots=True)
class ForgeryDropped:
    """A packet of a line was dropped, as its owner did not sign it: an alarm. `sequence` 0: a heartbeat."""

    line: NodeId
    sequence: int


@dataclass(frozen=True, slots=True)
class ProofsDiffer:
    """Two nodes signed different messages for one sequence: an alarm, and one of them lies."""

    token_number: int
    sequence: int
    first_line: NodeId
    other_line: NodeId
    first_digest: bytes
    other_digest: bytes


@dataclass(frozen=True, slots=True)
class ProofStale:
    """What a line signed is too old, by this customer's clock, to begin with: a recording, or its clock is wrong."""

    line: NodeId
    age_ns: int


class Slowness(StrEnum):
    """How a customer notices that it is slow."""

    STOPPED = "stopped"
    """Its own timer came late: the process did not run."""
    LAGGING = "lagging"
    """Heartbeats of every line wait in its sockets before it reads them."""
    OVERFLOW = "overflow"
    """The lines are further ahead than its buffer reaches."""


@dataclass(frozen=True, slots=True)
class CustomerSlow:
    """This customer names itself: `behind` is in nanoseconds, for OVERFLOW in sequences."""

    customer: NodeId
    reason: Slowness
    behind: int


@dataclass(frozen=True, slots=True)
class CustomerCaughtUp:
    """What the customer named itself for is over."""

    customer: NodeId
    reason: Slowness


CustomerNotice: TypeAlias = (
    GapOpened
    | GapClosed
    | GapAbandoned
    | RepairUnanswered
    | LineLate
    | LineSilent
    | LineBack
    | LineSwitched
    | MarketWaits
    | MarketGoesOn
    | ConflictFound
    | ClaimRefuted
    | ForgeryDropped
    | ProofsDiffer
    | ProofStale
    | CustomerSlow
    | CustomerCaughtUp
)
"""Effects that only tell something."""
CustomerHostEffect: TypeAlias = (
    Deliver | DeliverLatest | DeliverSnapshot | TokensPassed | FetchRange | FetchSnapshot | CustomerNotice
)
CustomerEffect: TypeAlias = Unicast | CustomerHostEffect
