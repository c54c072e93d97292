"""Frames to packets: everything that a socket gives is judged here, and only what is genuine and meant goes on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from isocast.runtime.watch.counters import Channel, NodeCounters, packet_slot
from isocast.terms.errors import ForgeryError, RemoteProtocolError, StrangerError
from isocast.terms.ids import NodeId
from isocast.wire.codec import Keys, Kind, decode, peek_kind
from isocast.wire.packets import Packet

__all__ = ["Reception"]

_KIND_AT = 3
_SENDER = slice(16, 24)


class Reception:
    """The reader of one channel. Hostile bytes are counted and dropped, never raised into the loop."""

    def __init__(
        self, channel: Channel, stripe: int, own: NodeId, kinds: Collection[Kind], keys: Keys, counters: NodeCounters
    ) -> None:
        """`kinds` are those that this role takes on this channel."""
        self._stripe = stripe
        self._own = own.to_bytes(8, "little")
        self._keys = keys
        self._counters = counters
        self._channel = channel
        self._slots = {int(kind): packet_slot(channel, kind) for kind in kinds}

    def packets(self, frames: Sequence[bytes]) -> list[Packet]:
        """What may be believed of a burst, in its order."""
        counters, keys, slots, own, stripe = self._counters, self._keys, self._slots, self._own, self._stripe
        received = counters.packets_received
        taken: list[Packet] = []
        size = 0
        for frame in frames:
            size += len(frame)
            slot = slots.get(frame[_KIND_AT]) if len(frame) > _KIND_AT else None
            if slot is None:
                self._misdirected(frame)
                continue
            try:
                packet = decode(frame, keys)
            except RemoteProtocolError as error:
                self._refused(error)
                continue
            if packet.stripe != stripe or frame[_SENDER] == own:
                # Another stripe's, or an echo of our own: genuine, and nothing for us.
                counters.unaddressed += 1
                continue
            received[slot] += 1
            taken.append(packet)
        counters.bytes_received[self._channel] += size
        return taken

    def _misdirected(self, frame: bytes) -> None:
        """A kind that is not for this role, or no frame at all. Its tag is not worth a look."""
        try:
            peek_kind(frame)
        except RemoteProtocolError:
            self._counters.malformed += 1
        else:
            self._counters.unaddressed += 1

    def _refused(self, error: RemoteProtocolError) -> None:
        counters = self._counters
        match error:
            case ForgeryError():
                counters.authentication_failures += 1
            case StrangerError():
                counters.unknown_senders += 1
            case _:
                counters.malformed += 1
