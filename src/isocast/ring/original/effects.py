"""What a machine of the original protocol asks of its driver, performed in order; also the trace."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from isocast.ring.original.packets import Packet
from isocast.terms.ids import Label, NodeId

__all__ = ["Acknowledged", "Effect", "Multicast", "Placed", "RingSuspected", "Suspicion", "Unicast"]


class Suspicion(StrEnum):
    """Why a machine would initiate a reformation (§2.1)."""

    PASS = "the successor never confirmed the token"  # noqa: S105  (a token that is passed, not a secret)
    REQUEST = "the retransmit server never answered"
    SOURCE = "no token site acknowledged the message"


@dataclass(frozen=True, slots=True)
class Multicast:
    """Send DATA to all receivers; ACK to them and to the source of its message."""

    packet: Packet


@dataclass(frozen=True, slots=True)
class Unicast:
    """Send to one node."""

    to: NodeId
    packet: Packet


@dataclass(frozen=True, slots=True)
class Placed:
    """The message is in position t of the receive list, and every position before is filled (§2.1)."""

    token_number: int
    label: Label


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The source knows the position of its message (§2.1)."""

    token_number: int
    label: Label


@dataclass(frozen=True, slots=True)
class RingSuspected:
    """The machine gave up on something; §2.1 would initiate a reformation."""

    reason: Suspicion


Effect: TypeAlias = Multicast | Unicast | Placed | Acknowledged | RingSuspected
