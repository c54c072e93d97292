"""What can happen to a machine: one closed union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from isocast.ring.entries import LogEntry
from isocast.terms.ids import NodeId
from isocast.wire.packets import ControlEntry, Packet

__all__ = [
    "ClockJudged",
    "ControlRequested",
    "Input",
    "JournalRead",
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
class JournalRead:
    """The journal's answer to `ReadJournal`: old entries, for `to`."""

    to: NodeId
    entries: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class ClockJudged:
    """Whether this site's clock is known to be outside its bound; a site begins trusted."""

    trusted: bool


Input: TypeAlias = PacketsArrived | TimerFired | PublishRequested | ControlRequested | JournalRead | ClockJudged
