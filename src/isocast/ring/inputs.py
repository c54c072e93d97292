"""What can happen to a machine. Each machine names those that reach it in a closed union of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.terms.ids import NodeId
from isocast.wire.orders import NO_ORDER
from isocast.wire.packets import ControlEntry, Packet

__all__ = [
    "CheckpointFetched",
    "ClockJudged",
    "ControlRequested",
    "DrainRequested",
    "DriverInput",
    "Effect_co",
    "Event_contra",
    "ForceRequested",
    "JournalRead",
    "Machine",
    "PacketsArrived",
    "PublishRequested",
    "TimerFired",
]


@dataclass(slots=True)
class PacketsArrived:
    """A burst of decoded, authenticated packets, in the order in which they came."""

    packets: Sequence[Packet]


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The machine's deadline has come, or the clock was set past it."""


@dataclass(frozen=True, slots=True)
class PublishRequested:
    """A client hands a batch to its source; the same key twice is one batch."""

    key: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class ControlRequested:
    """An operator wants an entry of the network's own in the sequence."""

    entry: ControlEntry


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """An operator wants this site off the ring, or back on it. A restarted site wants back."""

    leaving: bool


@dataclass(frozen=True, slots=True)
class ForceRequested:
    """An operator tells a server that these sites are U from now on: the others will never come back."""

    universe: tuple[NodeId, ...]
    order: bytes = NO_ORDER
    """The operator's signed word for it."""


@dataclass(frozen=True, slots=True)
class JournalRead:
    """The journal's answer to `ReadJournal`: old entries, for `to`."""

    to: NodeId
    entries: tuple[LogEntry, ...]
    first: int = 0
    """The first token that was to be read; if `entries` begin later, it is gone, and `to` is told."""
    oldest: int = 0
    """The oldest token that the log still has."""


@dataclass(frozen=True, slots=True)
class CheckpointFetched:
    """The driver's answer to `FetchCheckpoint`: `giver`'s log at a token that is stable, released and journalled."""

    checkpoint: Checkpoint
    giver: NodeId


@dataclass(frozen=True, slots=True)
class ClockJudged:
    """Whether this site's clock is known to be outside its bound; a site begins trusted."""

    trusted: bool


DriverInput: TypeAlias = PacketsArrived | TimerFired | ClockJudged
"""What a driver gives to any machine; all else comes from the machine's own host."""

Event_contra = TypeVar("Event_contra", contravariant=True)
Effect_co = TypeVar("Effect_co", covariant=True)


class Machine(Protocol[Event_contra, Effect_co]):
    """What simulator and real network drive alike."""

    def step(self, event: Event_contra, now: int, /) -> Sequence[Effect_co]:
        """Take one input at local time `now`; return the effects, in the order to perform them."""

    def next_deadline(self) -> int:
        """The local instant at which the machine wants `TimerFired`, or NEVER."""
