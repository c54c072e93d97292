"""MoldUDP64: packets with a session, the number of their first message, and messages with their lengths.

    0 session, 10 letters | 10 sequence u64 | 18 count u16 | each message: length u16, bytes

A count of 0 is a heartbeat and of 65,535 the end of the session; both say the next number. A request is the same
twenty bytes and nothing behind: session, first number wanted, how many. Integers are big-endian.

The messages of a packet are framed as in an ITCH file: a file is cut into packets without touching a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, error

import numpy as np

from isocast.feeds.itch_layout import PREFIX_BYTES, Indices
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError

__all__ = [
    "END_OF_SESSION",
    "HEADER_BYTES",
    "MAX_COUNT",
    "SESSION_BYTES",
    "MoldPacket",
    "MoldRequest",
    "end_of_session",
    "heartbeat",
    "message_places",
    "packet_of",
    "packetise",
    "parse_packet",
    "parse_request",
    "request",
]

_HEADER = Struct(">10sQH")
HEADER_BYTES = _HEADER.size
"""10 + 8 + 2 = 20."""
SESSION_BYTES = 10
END_OF_SESSION = 0xFFFF
MAX_COUNT = END_OF_SESSION - 1
_LENGTH = Struct(">H")


@dataclass(frozen=True, slots=True)
class MoldPacket:
    """A downstream packet: `places` are those of the length prefixes in `body`."""

    session: bytes
    sequence: int
    count: int
    body: bytes = b""
    places: tuple[int, ...] = ()

    @property
    def is_heartbeat(self) -> bool:
        """Whether it only says which number comes next."""
        return self.count == 0

    @property
    def is_end(self) -> bool:
        """Whether the session is over; requests may still be answered."""
        return self.count == END_OF_SESSION

    @property
    def messages(self) -> int:
        """How many it carries."""
        return len(self.places)


@dataclass(frozen=True, slots=True)
class MoldRequest:
    """Somebody lacks messages."""

    session: bytes
    sequence: int
    count: int


def _session(session: bytes | str) -> bytes:
    raw = session.encode("ascii", "strict") if isinstance(session, str) else session
    if not 0 < len(raw) <= SESSION_BYTES:
        raise LocalProtocolError(f"session {raw!r}: 1 to {SESSION_BYTES} letters are wanted")
    return raw.ljust(SESSION_BYTES)


def packet_of(session: bytes | str, first_sequence: int, count: int, framed: bytes) -> bytes:
    """One packet with length-prefixed messages, which are `count`."""
    if not 0 < count <= MAX_COUNT:
        raise LocalProtocolError(f"{count} messages: a packet has 1 to {MAX_COUNT}")
    return _HEADER.pack(_session(session), first_sequence, count) + framed


def heartbeat(session: bytes | str, next_sequence: int) -> bytes:
    """Nothing to send, and this number will come next."""
    return _HEADER.pack(_session(session), next_sequence, 0)


def end_of_session(session: bytes | str, next_sequence: int) -> bytes:
    """Nothing more will come in this session."""
    return _HEADER.pack(_session(session), next_sequence, END_OF_SESSION)


def request(session: bytes | str, first: int, count: int) -> bytes:
    """Ask a re-request server for messages, at most as many as one packet can have."""
    if not 0 < count <= MAX_COUNT:
        raise LocalProtocolError(f"{count} messages: 1 to {MAX_COUNT} can be asked for at once")
    return _HEADER.pack(_session(session), first, count)


def parse_request(raw: bytes) -> MoldRequest:
    """A request that somebody sent; RemoteProtocolError if it is none."""
    if len(raw) != HEADER_BYTES:
        raise RemoteProtocolError(f"a request of {len(raw)} bytes, not {HEADER_BYTES}")
    session, first, count = _HEADER.unpack(raw)
    if not 0 < count <= MAX_COUNT:
        raise RemoteProtocolError(f"a request for {count} messages")
    return MoldRequest(session, first, count)


def parse_packet(raw: bytes) -> MoldPacket:
    """A downstream packet; RemoteProtocolError if its lengths do not fill it exactly."""
    if len(raw) < HEADER_BYTES:
        raise RemoteProtocolError(f"{len(raw)} bytes are too short for a MoldUDP64 header")
    session, sequence, count = _HEADER.unpack_from(raw)
    body = raw[HEADER_BYTES:]
    if count in (0, END_OF_SESSION):
        if body:
            raise RemoteProtocolError(f"{len(body)} bytes behind a heartbeat or an end of session")
        return MoldPacket(session, sequence, count)
    places = []
    at = 0
    try:
        for _ in range(count):
            places.append(at)
            at += PREFIX_BYTES + _LENGTH.unpack_from(body, at)[0]
    except error:
        raise RemoteProtocolError(f"its lengths pass its end at message {len(places)} of {count}") from None
    if at != len(body):
        raise RemoteProtocolError(f"{count} messages of {at} bytes in a body of {len(body)}")
    if sequence + count >= 1 << 64:
        raise RemoteProtocolError(f"sequence {sequence} passes 64 bits")
    return MoldPacket(session, sequence, count, body, tuple(places))


def message_places(framed: bytes) -> Indices:
    """Where each of our own length-prefixed messages begins, and where the last one ends."""
    places = [0]
    at = 0
    while at < len(framed):
        at += PREFIX_BYTES + _LENGTH.unpack_from(framed, at)[0]
        places.append(at)
    if at != len(framed):
        raise LocalProtocolError("the last message is cut")
    return np.array(places, np.int64)


def packetise(session: bytes | str, first_sequence: int, framed: bytes, *, room: int = 1_400) -> Iterator[bytes]:
    """Packets of at most `room` bytes with these length-prefixed messages, as many in each as fit."""
    name = _session(session)
    ends = message_places(framed)
    place = 0
    while place < len(ends) - 1:
        most = int(ends[place]) + room - HEADER_BYTES
        upto = min(int(np.searchsorted(ends, most, side="right")) - 1, place + MAX_COUNT)
        if upto == place:
            raise LocalProtocolError(f"a message of {ends[place + 1] - ends[place]} bytes does not fit {room}")
        header = _HEADER.pack(name, first_sequence + place, upto - place)
        yield header + framed[int(ends[place]) : int(ends[upto])]
        place = upto
