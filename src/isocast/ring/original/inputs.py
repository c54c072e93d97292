"""What can happen to a machine of the original protocol. A timer is that of every ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from isocast.ring.inputs import TimerFired
from isocast.ring.original.packets import Packet

__all__ = ["MessageSubmitted", "PacketsArrived", "ReceiverInput", "SourceInput", "TimerFired"]


@dataclass(slots=True)
class PacketsArrived:
    """A burst of packets, in the order in which they came."""

    packets: Sequence[Packet]


@dataclass(frozen=True, slots=True)
class MessageSubmitted:
    """A client hands a message to its source."""

    payload: bytes


ReceiverInput: TypeAlias = PacketsArrived | TimerFired
SourceInput: TypeAlias = PacketsArrived | TimerFired | MessageSubmitted
