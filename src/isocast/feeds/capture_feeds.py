"""Which feed each datagram of a capture is of: MoldUDP64 with ITCH, the consolidated tapes, NYSE's integrated feed.

A datagram shows what it is: the size that it says of itself, or the first message in it. A capture may mix them.
"""

from __future__ import annotations

from collections.abc import Callable

from isocast.feeds.captures import Datagram
from isocast.feeds.consolidated import TapeReader, is_cta_block, is_utp_message
from isocast.feeds.itch_layout import PREFIX_BYTES
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.mold import HEADER_BYTES, MoldReader, MoldSession, parse_packet
from isocast.feeds.outcomes import FeedFault, FeedLog, ListedSymbol
from isocast.feeds.packet_lines import Line
from isocast.feeds.pillar import PillarReader, is_pillar_packet
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.events import EventArray

__all__ = ["CaptureFeed"]


class CaptureFeed:
    """All datagrams of a capture. `receive` each, `take` the events now and then, `end` at the end."""

    def __init__(self, make: Callable[[int], ItchDecoder], log: FeedLog) -> None:
        """`make` makes the decoder of an ITCH session that begins at a time."""
        self._log = log
        self._mold = MoldReader(make, log)
        self._tape = TapeReader(log)
        self._pillar = PillarReader(log)
        self._utp: set[Line] = set()
        """Lines on which messages of the UTP came: their heartbeats are no session of ITCH."""

    @property
    def directory(self) -> list[ListedSymbol]:
        """Every symbol of the feeds that are not ITCH; ITCH decoders have their own."""
        return self._tape.directory + self._pillar.directory

    @property
    def streams(self) -> list[tuple[list[Line], MoldSession]]:
        """Every session of ITCH, with its lines."""
        return self._mold.streams

    def receive(self, datagram: Datagram) -> None:
        """One datagram of any feed."""
        raw, where, line = datagram.payload, datagram.offset, (datagram.target, datagram.port)
        if is_cta_block(raw):
            self._tape.receive_block(raw, where, line)
        elif is_pillar_packet(raw):
            self._pillar.receive(raw, where, line)
        elif is_utp_message(raw[HEADER_BYTES + PREFIX_BYTES :]) or (len(raw) == HEADER_BYTES and line in self._utp):
            self._receive_utp(raw, where, line)
        else:
            self._mold.receive(raw, where, line, datagram.time)

    def _receive_utp(self, raw: bytes, where: int, line: Line) -> None:
        self._utp.add(line)
        try:
            packet = parse_packet(raw)
        except RemoteProtocolError as reason:
            self._log.fault(FeedFault.BAD_PACKET, where, str(reason))
            return
        ends = [*packet.places[1:], len(packet.body)] if packet.places else []
        messages = [packet.body[at + PREFIX_BYTES : end] for at, end in zip(packet.places, ends, strict=True)]
        self._tape.receive_packet(messages, raw, packet.sequence, where, line)

    def take(self) -> list[EventArray]:
        """The events so far, a block for each feed that has any."""
        return [block for block in (*self._mold.take(), self._tape.take(), self._pillar.take()) if len(block)]

    def end(self) -> list[EventArray]:
        """Nothing more will come."""
        return [block for block in (*self._mold.end(), self._tape.end(), self._pillar.end()) if len(block)]
