"""What an event costs on a narrow stripe, in IP bytes: headers of a packet, and a length and a message for each event.

A packet is IP 20 + UDP 8 + MoldUDP64 20 = 48 bytes and its messages, 2 + length each. The table by kind is that of ITCH
5.0, the longest message of each kind; quotes, which ITCH does not have, travel as our own records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from isocast.feeds.stripe_writer import KIND_MESSAGES
from isocast.terms.errors import LocalProtocolError
from isocast.terms.market import EventKind
from isocast.wire.limits import EVENT_BYTES, JUMBO_MTU, STANDARD_MTU
from isocast.wire.stripe_proofs import BLOCK_BYTES

__all__ = ["FEED_SIZES", "ITCH_SIZES", "PACKET_BYTES", "PacketSizes", "feed_sizes"]

PACKET_BYTES = 20 + 8 + 20
"""IP + UDP + MoldUDP64, around the messages of a packet."""
_PREFIX = 2
_KINDS = max(EventKind) + 1

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PacketSizes:
    """Bytes and numbers of each kind. All receivers of a market use the same."""

    kind_bytes: tuple[int, ...]
    """By the number of the kind: prefix and message together; 0 for a kind that stripes do not carry."""
    kind_numbers: tuple[int, ...]
    """By the number of the kind: how many numbers of its stripe an event takes, one for each message."""
    packet_bytes: int = PACKET_BYTES
    """Around the messages: headers, and whatever stands behind the last message."""
    mtu: int = STANDARD_MTU

    def __post_init__(self) -> None:
        """Refuse a table that no packet can keep."""
        if len(self.kind_bytes) != _KINDS or len(self.kind_numbers) != _KINDS:
            raise LocalProtocolError(f"sizes of {len(self.kind_bytes)} kinds, not of {_KINDS}")
        if not self.packet_bytes + self.largest <= self.mtu <= JUMBO_MTU:
            raise LocalProtocolError(f"an MTU of {self.mtu} bytes for packets of {self.packet_bytes} and a message")
        if any((size > 0) != (count > 0) for size, count in zip(self.kind_bytes, self.kind_numbers, strict=True)):
            raise LocalProtocolError("a kind that is carried takes bytes and numbers")

    @cached_property
    def bytes_table(self) -> Integers:
        """`kind_bytes` as an array."""
        return np.array(self.kind_bytes, np.int64)

    @cached_property
    def numbers_table(self) -> Integers:
        """`kind_numbers` as an array."""
        return np.array(self.kind_numbers, np.int64)

    @property
    def largest(self) -> int:
        """Bytes of the longest event."""
        return max(self.kind_bytes)

    @property
    def least_budget(self) -> int:
        """Less than one packet with the longest event is no stripe."""
        return self.packet_bytes + self.largest

    def body_room(self, budget: int) -> int:
        """Bytes of messages that surely fit `budget` bytes of packets, however they are cut into packets."""
        whole = min(self.mtu, budget) - self.packet_bytes
        if whole < self.largest:
            return 0
        # What fits one packet fits; of several, each but the last is so full that the longest event found no room.
        least_full = whole - self.largest + 1
        packets, rest = divmod(budget, self.packet_bytes + least_full)
        return max(whole, packets * least_full + max(0, rest - self.packet_bytes))

    def ip_bytes(self, body: float) -> float:
        """About how many IP bytes so many bytes of messages are, in packets as full as they get."""
        if body <= 0:
            return 0.0
        full = self.mtu - self.packet_bytes - self.largest / 2
        return body + self.packet_bytes * max(1.0, body / full)


def _sizes(messages: dict[EventKind, tuple[int, ...]]) -> PacketSizes:
    lengths = [messages.get(EventKind(kind), ()) if kind else () for kind in range(_KINDS)]
    return PacketSizes(
        tuple(sum(_PREFIX + length for length in row) for row in lengths), tuple(len(row) for row in lengths)
    )


ITCH_SIZES = _sizes(
    {
        EventKind.TRADE: (44,),
        EventKind.QUOTE: (EVENT_BYTES,),
        EventKind.ORDER: (40,),
        EventKind.CANCEL: (23,),
        EventKind.REPLACE: (35,),
        EventKind.EXECUTION: (36,),
        EventKind.CORRECTION: (19, 44),
        EventKind.TRADE_CANCEL: (19,),
        EventKind.STATUS: (25,),
        EventKind.DIRECTORY: (39,),
        EventKind.MARK: (12,),
    }
)
"""ITCH 5.0: a correction is a broken trade and a new one."""
FEED_SIZES = _sizes(KIND_MESSAGES)
"""The clear feed of the narrow stripes, as `StripeWriter` writes it: quotes and replaced orders are not carried."""
_ROOM = 64
"""What a repair has around a packet that it repeats whole."""


def feed_sizes(*, proven: bool = False, seal_bytes: int = 0) -> PacketSizes:
    """The same, where a PROOF says something of each packet, and where each is sealed."""
    around = PACKET_BYTES + seal_bytes + (BLOCK_BYTES if proven else 0)
    return replace(FEED_SIZES, packet_bytes=around, mtu=STANDARD_MTU - (_ROOM if proven else 0))
