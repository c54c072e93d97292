"""The packets of §2.1, as values without bytes: this protocol never leaves the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from isocast.ring.inputs import TimerFired
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Label, NodeId

__all__ = [
    "Ack",
    "AckItem",
    "AckOfItem",
    "Item",
    "MessageItem",
    "MessageSubmitted",
    "OriginalAcknowledged",
    "OriginalData",
    "OriginalEffect",
    "OriginalMulticast",
    "OriginalNack",
    "OriginalPacket",
    "OriginalPacketsArrived",
    "OriginalReceiverInput",
    "OriginalRepair",
    "OriginalRingSuspected",
    "OriginalSuspicion",
    "OriginalUnicast",
    "Placed",
    "SourceInput",
    "TimerFired",
    "Timers",
    "TokenAck",
]


@dataclass(frozen=True, slots=True)
class OriginalData:
    """DATA(s, M): the label "signif[ies] that it is the M_s-th message from source s" (§2.1)."""

    label: Label
    payload: bytes


@dataclass(frozen=True, slots=True)
class Ack:
    """ACK(t, s, M, r, next): orders one message, confirms the previous pass and passes the token on (§2.1)."""

    token_number: int
    label: Label
    receiver: NodeId
    next: NodeId


@dataclass(frozen=True, slots=True)
class TokenAck:
    """TOKACK(t): the token that acknowledgement t passed was accepted, but there is nothing to acknowledge (§2.1)."""

    token_number: int


@dataclass(frozen=True, slots=True)
class AckItem:
    """Acknowledgement t is missing."""

    token_number: int


@dataclass(frozen=True, slots=True)
class AckOfItem:
    """The acknowledgement of a message is missing; its number is not known."""

    label: Label


@dataclass(frozen=True, slots=True)
class MessageItem:
    """The message that acknowledgement t names is missing."""

    token_number: int
    label: Label


Item: TypeAlias = AckItem | AckOfItem | MessageItem


@dataclass(frozen=True, slots=True)
class OriginalNack:
    """NACK(item): `receiver` asks for one missing item (§2.1)."""

    receiver: NodeId
    item: Item


@dataclass(frozen=True, slots=True)
class OriginalRepair:
    """REPAIR: the acknowledgement or the message that a NACK asked for (§2.1)."""

    item: Ack | OriginalData


OriginalPacket: TypeAlias = OriginalData | Ack | TokenAck | OriginalNack | OriginalRepair


# What a machine of the original protocol asks of its driver, performed in order; also the trace.


class OriginalSuspicion(StrEnum):
    """Why a machine would initiate a reformation (§2.1)."""

    PASS = "the successor never confirmed the token"  # noqa: S105  (a token that is passed, not a secret)
    REQUEST = "the retransmit server never answered"
    SOURCE = "no token site acknowledged the message"


@dataclass(frozen=True, slots=True)
class OriginalMulticast:
    """Send DATA to all receivers; ACK to them and to the source of its message."""

    packet: OriginalPacket


@dataclass(frozen=True, slots=True)
class OriginalUnicast:
    """Send to one node."""

    to: NodeId
    packet: OriginalPacket


@dataclass(frozen=True, slots=True)
class Placed:
    """The message is in position t of the receive list, and every position before is filled (§2.1)."""

    token_number: int
    label: Label


@dataclass(frozen=True, slots=True)
class OriginalAcknowledged:
    """The source knows the position of its message (§2.1)."""

    token_number: int
    label: Label


@dataclass(frozen=True, slots=True)
class OriginalRingSuspected:
    """The machine gave up on something; §2.1 would initiate a reformation."""

    reason: OriginalSuspicion


OriginalEffect: TypeAlias = OriginalMulticast | OriginalUnicast | Placed | OriginalAcknowledged | OriginalRingSuspected


# What can happen to a machine of the original protocol. A timer is that of every ring.


@dataclass(slots=True)
class OriginalPacketsArrived:
    """A burst of packets, in the order in which they came."""

    packets: Sequence[OriginalPacket]


@dataclass(frozen=True, slots=True)
class MessageSubmitted:
    """A client hands a message to its source."""

    payload: bytes


OriginalReceiverInput: TypeAlias = OriginalPacketsArrived | TimerFired
SourceInput: TypeAlias = OriginalPacketsArrived | TimerFired | MessageSubmitted


# The four timers of the event-driven protocol, symbol beside name (protocol §9).
#
# T_a  token_ack_ns      a token site that has been idle for this long confirms the token by itself
# R_t  token_resend_ns   between two copies of an acknowledgement whose pass is not confirmed
# R_s  source_resend_ns  between two copies of a message that is not acknowledged
# R_n  nack_resend_ns    between two requests for a missing item
# k_r  retries_max       attempts, of any kind, before the ring is suspected


@dataclass(frozen=True, slots=True)
class Timers:
    """The times of one ring, in nanoseconds."""

    token_ack_ns: int
    """T_a."""
    token_resend_ns: int
    """R_t: an idle successor must have had time to confirm, hence T_a < R_t (and T_a+2d, when d is known)."""
    source_resend_ns: int
    """R_s."""
    nack_resend_ns: int
    """R_n."""
    retries_max: int
    """k_r."""

    def __post_init__(self) -> None:
        """Refuse what §2.1 cannot work with."""
        if self.token_ack_ns <= 0:
            raise LocalProtocolError("token_ack (T_a) must be positive")
        if self.token_resend_ns <= self.token_ack_ns:
            raise LocalProtocolError("token_resend (R_t) must be longer than token_ack (T_a)")
        if self.source_resend_ns <= 0:
            raise LocalProtocolError("source_resend (R_s) must be positive")
        if self.nack_resend_ns <= 0:
            raise LocalProtocolError("nack_resend (R_n) must be positive")
        if self.retries_max < 1:
            raise LocalProtocolError("retries_max (k_r) must be at least 1")
