"""The packets of §2.1, as values without bytes: this protocol never leaves the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from isocast.terms.ids import Label, NodeId

__all__ = [
    "Ack",
    "AckItem",
    "AckOfItem",
    "Data",
    "Item",
    "MessageItem",
    "Nack",
    "Packet",
    "Repair",
    "TokenAck",
]


@dataclass(frozen=True, slots=True)
class Data:
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
class Nack:
    """NACK(item): `receiver` asks for one missing item (§2.1)."""

    receiver: NodeId
    item: Item


@dataclass(frozen=True, slots=True)
class Repair:
    """REPAIR: the acknowledgement or the message that a NACK asked for (§2.1)."""

    item: Ack | Data


Packet: TypeAlias = Data | Ack | TokenAck | Nack | Repair
