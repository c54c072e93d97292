"""MoldUDP64 packets in whatever order they come, to every message once and in sequence.

Lines A and B, repeated and overtaking packets are normal: a packet that is ahead waits for those before it, and
what was had already is cut off. A gap that nothing fills is a fault, and reading goes on behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from isocast.feeds.itch_decoder import ItchDecoder
from isocast.feeds.itch_layout import LENGTHS, PREFIX_BYTES, Indices
from isocast.feeds.mold import HEADER_BYTES, MoldPacket, parse_packet
from isocast.feeds.outcomes import Fault, FeedLog
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.events import EventArray

__all__ = ["MoldCounts", "MoldReader"]

_WAITING_MAX = 1_024
"""Packets that wait for a gap to fill: some milliseconds of a busy feed."""
_UNNUMBERED = "packets without numbers: taken in the order in which they came"


@dataclass(slots=True)
class MoldCounts:
    """What one session sent."""

    packets: int = 0
    heartbeats: int = 0
    repeated: int = 0
    """Messages that were had already: the other line, or a repair."""
    missing: int = 0
    """Messages that never came."""
    sessions: list[str] = field(default_factory=list)
    ended: bool = False


class MoldReader:
    """One stream of packets. `receive` every packet, `take` the events now and then, `end` at the end."""

    def __init__(self, decoder: ItchDecoder, *, waiting_max: int = _WAITING_MAX) -> None:
        """Begins with the first packet that comes, whatever its number."""
        self.counts = MoldCounts()
        self.next_sequence = 0
        """The number of the message that comes next; 0 before the first packet."""
        self._decoder = decoder
        self._log: FeedLog = decoder.log
        self._session = b""
        self._waiting: dict[int, tuple[MoldPacket, int]] = {}
        self._waiting_max = waiting_max
        self._bodies: list[bytes] = []
        self._places: list[Indices] = []
        self._where: list[Indices] = []
        self._held = 0

    def receive(self, raw: bytes, where: int) -> None:
        """One packet's bytes; `where` it stands in the capture, or its number on a live line."""
        try:
            packet = parse_packet(raw)
        except RemoteProtocolError as reason:
            self._log.fault(Fault.BAD_PACKET, where, str(reason))
            return
        self.counts.packets += 1
        if packet.session != self._session:
            self._change_session(packet, where)
        if packet.is_heartbeat or packet.is_end:
            self.counts.heartbeats += packet.is_heartbeat
            self.counts.ended |= packet.is_end
            return
        if packet.sequence == 0:  # Numbers begin at 1; somebody blanked the header.
            self._accept_unnumbered(packet, where)
            return
        if packet.sequence > self.next_sequence:
            self._wait(packet, where)
            if len(self._waiting) > self._waiting_max:
                self._skip_gap()
            return
        self._accept(packet, where)
        self._drain()

    def take(self) -> EventArray:
        """The events of everything that is in sequence so far."""
        bodies, places, where = self._bodies, self._places, self._where
        self._bodies, self._places, self._where, self._held = [], [], [], 0
        if not bodies:
            return self._decoder.decode(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
        raw = np.frombuffer(b"".join(bodies), np.uint8)
        return self._decode(raw, np.concatenate(places), np.concatenate(where))

    def end(self) -> EventArray:
        """Nothing more will come: what waits is taken, its gaps are counted."""
        while self._waiting:
            self._skip_gap()
        return self.take()

    def _change_session(self, packet: MoldPacket, where: int) -> None:
        if self._session:
            before, now = (name.decode("ascii", "replace").strip() for name in (self._session, packet.session))
            while self._waiting:
                self._skip_gap()
            self._log.fault(Fault.SESSION_CHANGED, where, f"session {before} becomes {now}")
        self._session = packet.session
        self.counts.sessions.append(packet.session.decode("ascii", "replace").strip())
        self.counts.ended = False
        self.next_sequence = packet.sequence

    def _accept(self, packet: MoldPacket, where: int) -> None:
        """Everything of the packet that is new."""
        had = self.next_sequence - packet.sequence
        self.counts.repeated += min(had, packet.count)
        if had >= packet.count:
            return
        places = np.array(packet.places[had:], np.int64)
        self._bodies.append(packet.body)
        self._places.append(places + self._held)
        self._where.append(places + where + HEADER_BYTES)
        self._held += len(packet.body)
        self.next_sequence = packet.sequence + packet.count

    def _accept_unnumbered(self, packet: MoldPacket, where: int) -> None:
        if _UNNUMBERED not in self._log.notes:
            self._log.notes.append(_UNNUMBERED)
        self.next_sequence = 0
        self._accept(packet, where)
        self.next_sequence = 0

    def _wait(self, packet: MoldPacket, where: int) -> None:
        """Of two packets that begin alike the longer one waits."""
        other = self._waiting.get(packet.sequence)
        if other is not None:
            self.counts.repeated += min(packet.count, other[0].count)
        if other is None or other[0].count < packet.count:
            self._waiting[packet.sequence] = packet, where

    def _drain(self) -> None:
        """What waited and is next now, or was had meanwhile."""
        while self._waiting:
            first = min(self._waiting) if self.next_sequence not in self._waiting else self.next_sequence
            if first > self.next_sequence:
                return
            packet, where = self._waiting.pop(first)
            self._accept(packet, where)

    def _skip_gap(self) -> None:
        """Give up what is missing before the first packet that waits."""
        first = min(self._waiting)
        _, where = self._waiting[first]
        missing = first - self.next_sequence
        if missing > 0:
            self.counts.missing += missing
            what = f"messages {self.next_sequence} to {first - 1} are missing"
            self.next_sequence = first
            self._log.fault(Fault.GAP, where, what)
        self._drain()

    def _decode(self, raw: np.ndarray[tuple[int], np.dtype[np.uint8]], places: Indices, where: Indices) -> EventArray:
        """Messages have right bounds here; their types and lengths are still to be judged."""
        lengths = np.ndarray((len(raw) - 1,), ">u2", raw, strides=(1,))[places].astype(np.int64)
        empty = lengths == 0
        types = raw[np.minimum(places + PREFIX_BYTES, len(raw) - 1)]
        known = _LENGTH_OF[types] == lengths
        known &= ~empty
        if not known.all():
            self._refuse(types, lengths, where, ~known)
            places, where = places[known], where[known]
        return self._decoder.decode(raw, places, where)

    def _refuse(
        self,
        types: np.ndarray[tuple[int], np.dtype[np.uint8]],
        lengths: Indices,
        where: Indices,
        bad: np.ndarray[tuple[int], np.dtype[np.bool_]],
    ) -> None:
        for place in np.flatnonzero(bad).tolist():
            letter = chr(types[place]) if lengths[place] else ""
            kind = Fault.BAD_LENGTH if letter in LENGTHS or not letter else Fault.UNKNOWN_TYPE
            self._log.fault(kind, int(where[place]), f"a message of type {letter!r} has {lengths[place]} bytes")


_LENGTH_OF = np.zeros(256, np.int64)
for _letter, _size in LENGTHS.items():
    _LENGTH_OF[ord(_letter)] = _size
