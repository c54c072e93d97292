"""What a retransmit server is asked and told, and what it asks of its driver (§4.1; protocol §7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from isocast.hierarchy.edge import CustomerEffect, CustomerInput, SendLine
from isocast.hierarchy.latest import LatestSnapshot
from isocast.terms.ids import NodeId
from isocast.wire.packets import Released

__all__ = [
    "Archive",
    "ArchiveRead",
    "ArchiveTrimmed",
    "CustomerThrottled",
    "GiveRange",
    "GiveSnapshot",
    "KeepSnapshot",
    "RangeAsked",
    "RangeWithdrawn",
    "ReadArchive",
    "ServerEffect",
    "ServerInput",
    "SnapshotAsked",
    "TurnAway",
]


# ---- inputs


@dataclass(frozen=True, slots=True)
class RangeAsked:
    """Somebody at the door of a retransmit server wants a range."""

    customer: NodeId
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RangeWithdrawn:
    """Whoever asked for a range has left, or the door lost its patience: nobody waits for it any more."""

    customer: NodeId


@dataclass(frozen=True, slots=True)
class SnapshotAsked:
    """Somebody at the door of a retransmit server wants the latest event of every key."""

    customer: NodeId


@dataclass(frozen=True, slots=True)
class ArchiveRead:
    """The archive's answer to `ReadArchive`, in order."""

    to: NodeId
    first: int
    last: int
    packets: Sequence[Released]


@dataclass(frozen=True, slots=True)
class ArchiveTrimmed:
    """Retention dropped everything below `low_water`."""

    low_water: int


ServerInput: TypeAlias = CustomerInput | RangeAsked | RangeWithdrawn | SnapshotAsked | ArchiveRead | ArchiveTrimmed


# ---- effects


@dataclass(frozen=True, slots=True)
class Archive:
    """Append these to the archive, before what follows: consecutive sequences, after all before."""

    packets: tuple[Released, ...]


@dataclass(frozen=True, slots=True)
class ReadArchive:
    """Read a range of the archive and answer with `ArchiveRead`, its `to` unchanged: who asked, or what for."""

    to: NodeId
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class GiveRange:
    """Answer a range at the door: `RangeArrived` for the customer."""

    customer: NodeId
    packets: tuple[Released, ...]
    low_water: int
    newest: int


@dataclass(frozen=True, slots=True)
class GiveSnapshot:
    """Answer a snapshot at the door: `SnapshotArrived` for the customer."""

    customer: NodeId
    snapshot: LatestSnapshot


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Close the door to a customer: it asks for more than its share, or for what is not ready yet."""

    customer: NodeId


@dataclass(frozen=True, slots=True)
class KeepSnapshot:
    """Write the snapshot beside the archive: after a restart the table of latest events goes on from it."""

    snapshot: LatestSnapshot


@dataclass(frozen=True, slots=True)
class CustomerThrottled:
    """A customer asks for more than its share: messages `asked` and `served`, requests `refused`, since it is known."""

    customer: NodeId
    asked: int
    served: int
    refused: int


ServerEffect: TypeAlias = (
    CustomerEffect
    | Archive
    | ReadArchive
    | KeepSnapshot
    | SendLine
    | GiveRange
    | GiveSnapshot
    | TurnAway
    | CustomerThrottled
)
