"""MoldUDP64: its packets as bytes, and a reader that puts them in sequence, each message once.

    0 session, 10 letters | 10 sequence u64 | 18 count u16 | each message: length u16, bytes

A count of 0 is a heartbeat and of 65,535 the end of the session; both say the next number. A request is the same
twenty bytes and nothing behind: session, first number wanted, how many. Integers are big-endian.

The messages of a packet are framed as in an ITCH file: a file is cut into packets without touching a message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from struct import Struct, error
from typing import NamedTuple, TypeAlias

import numpy as np

from isocast.feeds.itch_layout import LENGTHS, PREFIX_BYTES, Indices
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from isocast.wire.events import EventArray

__all__ = [
    "END_OF_SESSION",
    "HEADER_BYTES",
    "MAX_COUNT",
    "SESSION_BYTES",
    "MoldCounts",
    "MoldPacket",
    "MoldReader",
    "MoldRequest",
    "MoldSession",
    "SessionEnd",
    "end_of_session",
    "heartbeat",
    "message_places",
    "packet_of",
    "packetise",
    "parse_packet",
    "parse_request",
    "request",
    "session_name",
]


_HEADER = Struct(">10sQH")
HEADER_BYTES = _HEADER.size
"""10 + 8 + 2 = 20."""
SESSION_BYTES = 10
END_OF_SESSION = 0xFFFF
MAX_COUNT = END_OF_SESSION - 1
_LENGTH = Struct(">H")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_STRIPE_DIGITS = 4


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
    """A request for messages that a listener lacks."""

    session: bytes
    sequence: int
    count: int


def _session(session: bytes | str) -> bytes:
    raw = session.encode("ascii", "strict") if isinstance(session, str) else session
    if not 0 < len(raw) <= SESSION_BYTES:
        raise LocalProtocolError(f"session {raw!r}: 1 to {SESSION_BYTES} letters are wanted")
    return raw.ljust(SESSION_BYTES)


def session_name(day: date, stripe: int) -> str:
    """Ten letters: the day, and the stripe to the base of 36."""
    text, left = "", stripe
    while left or not text:
        left, digit = divmod(left, len(_DIGITS))
        text = _DIGITS[digit] + text
    if len(text) > _STRIPE_DIGITS:
        rule = f"must be at most {len(_DIGITS) ** _STRIPE_DIGITS - 1:,} to fit the name of its session"
        raise ConfigurationError("stripe plan", f"stripe {stripe}", rule)
    return f"{day:%y%m%d}{text:0>{_STRIPE_DIGITS}}"


class SessionEnd(NamedTuple):
    """Nothing more comes in a session."""

    stripe: int
    session: str
    next_number: int


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
    """The request in a datagram; RemoteProtocolError if it is none."""
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
            raise RemoteProtocolError(f"{len(body)} bytes after a heartbeat or an end of session")
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


# MoldUDP64 packets in whatever order they come, to every message of every session once and in sequence.
#
# Sessions are judged each for itself. Lines A and B of a session come to different groups or ports, repeated and
# overtaking packets are normal: a packet that is ahead waits for those before it, and what was had already is cut off.
# What never came is counted message by message: a packet behind a gap proves it, and so do a heartbeat and the end of
# the session, which say the next number.
#
# A session whose first packet is not number 1 was joined late: that is said, and is no loss.


_WAITING_MAX = 1_024
"""Packets that wait for a gap to fill: some milliseconds of a busy feed."""
_STARTING = 16
"""Packets of a session that was joined late, before its first number is settled: they may overtake each other."""
_KEPT = 1_024
"""Packets that are kept after they were taken, to compare what comes again with them."""
_GAPS_MAX = 1_000
"""Gaps whose bounds are remembered; all are counted."""
_SESSIONS_MAX = 1_000
"""Sessions and lines of one capture: damaged names must not fill the memory."""
_UNNUMBERED = "packets without numbers: taken in the order in which they came"
_LATE = "messages that came after their gap was given up: they are among the missing ones"

LineAddress: TypeAlias = tuple[str, int]
"""Group and port."""


@dataclass(slots=True)
class MoldCounts:
    """What one session sent, and what of it came."""

    session: str
    packets: int = 0
    heartbeats: int = 0
    messages: int = 0
    """Those that were taken, each once."""
    repeated: int = 0
    """Messages that were had already: the other line, or a repair."""
    gaps: int = 0
    missing: int = 0
    """Messages that never came, or too late."""
    first: int = 0
    """The number at which reading began; 0 if the session has no numbers."""
    last: int = 0
    """The highest number that is known to exist."""
    ended: bool = False


class MoldSession:
    """One session. `receive` every packet, `take` the events now and then, `end` at the end."""

    def __init__(self, decoder: ItchDecoder, name: bytes, *, waiting_max: int = _WAITING_MAX) -> None:
        """Begins with the first packet that comes, of any number."""
        self.counts = MoldCounts(name.decode("ascii", "replace").strip(" \0"))
        self.next_sequence = 0
        """The number of the message that comes next; 0 before it is settled."""
        self.gaps: list[tuple[int, int]] = []
        """First and last number of each gap, as many as are remembered."""
        self._decoder = decoder
        self._log: FeedLog = decoder.log
        self._waiting: dict[int, tuple[MoldPacket, int]] = {}
        self._waiting_max = waiting_max
        self._starting: list[int] = []
        """Numbers that were seen before the first one is settled."""
        self._proven = 0, 0
        """The next number by a heartbeat or the end of the session, and where that stands."""
        self._kept: list[MoldPacket] = []
        self._bodies: list[bytes] = []
        self._places: list[Indices] = []
        self._where: list[Indices] = []
        self._held = 0

    def receive(self, packet: MoldPacket, where: int) -> None:
        """One packet of this session; `where` it stands in the capture, or its number on a live line."""
        self.counts.packets += 1
        is_plain = not (packet.is_heartbeat or packet.is_end)
        if is_plain and packet.sequence == 0:  # Numbers begin at 1; somebody blanked the header.
            self._accept_unnumbered(packet, where)
            return
        if not is_plain:
            self.counts.heartbeats += packet.is_heartbeat
            self.counts.ended |= packet.is_end
            self._proven = max(self._proven, (packet.sequence, where))
        if not self.next_sequence:
            if is_plain:
                self._wait(packet, where)
            self._start(packet.sequence)
        elif is_plain and packet.sequence > self.next_sequence:
            self._wait(packet, where)
            if len(self._waiting) > self._waiting_max:
                self._skip_gap()
        elif is_plain:
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
        """Nothing more will come: what waits is taken; its gaps, and a tail that is known to exist, are counted."""
        if not self.next_sequence and self._starting:
            self._settle()
        while self._waiting:
            self._skip_gap()
        proven, where = self._proven
        if self.next_sequence and proven > self.next_sequence:
            by = "the end of the session" if self.counts.ended else "a heartbeat"
            self._give_up(proven, where, f", as {by} says")
        self.counts.last = max(self.counts.last, self.next_sequence - 1, 0)
        return self.take()

    def agrees(self, packet: MoldPacket) -> bool:
        """Whether the packet may be of this session: False if one of its numbers came before with other bytes."""
        return self._repeats(packet) and all(_same(packet, other) for other, _ in self._waiting.values())

    def _repeats(self, packet: MoldPacket) -> bool:
        """Whether what was taken under its numbers, as far as it is kept, is the same."""
        at = max(bisect_right(self._kept, packet.sequence, key=_sequence) - 1, 0)
        while at < len(self._kept) and self._kept[at].sequence < packet.sequence + packet.messages:
            if not _same(packet, self._kept[at]):
                return False
            at += 1
        return True

    # ---- the first number

    def _start(self, sequence: int) -> None:
        """Number 1 begins at once; of a session that was joined late the lowest of its first packets."""
        if sequence:
            self._starting.append(sequence)
        if sequence == 1 or len(self._starting) >= _STARTING:
            self._settle()

    def _settle(self) -> None:
        self.next_sequence = self.counts.first = min(self._starting)
        self._starting = []
        if self.counts.first > 1:
            self._log.notes.append(f"session {self.counts.session} begins at message {self.counts.first:,}")
        self._drain()

    # ---- packets to messages

    def _accept(self, packet: MoldPacket, where: int) -> None:
        """Everything of the packet that is new."""
        had = self.next_sequence - packet.sequence
        if had:
            self._count_again(packet, min(had, packet.count), where)
        if had >= packet.count:
            return
        self._hold(packet, had, where)
        self._kept.append(packet)
        if len(self._kept) > 2 * _KEPT:
            del self._kept[:_KEPT]
        self.next_sequence = packet.sequence + packet.count

    def _hold(self, packet: MoldPacket, had: int, where: int) -> None:
        places = np.array(packet.places[had:], np.int64)
        self._bodies.append(packet.body)
        self._places.append(places + self._held)
        self._where.append(places + where + HEADER_BYTES)
        self._held += len(packet.body)
        self.counts.messages += len(places)

    def _accept_unnumbered(self, packet: MoldPacket, where: int) -> None:
        if _UNNUMBERED not in self._log.notes:
            self._log.notes.append(_UNNUMBERED)
        self._hold(packet, 0, where)

    def _count_again(self, packet: MoldPacket, count: int, where: int) -> None:
        """Messages whose numbers were passed: had already, or given up; and they must be what they were."""
        last = packet.sequence + count - 1
        given_up = [(max(a, packet.sequence), min(b, last)) for a, b in self.gaps]
        late = sum(b - a + 1 for a, b in given_up if a <= b)
        early = max(min(self.counts.first, last + 1) - packet.sequence, 0)
        self._log.skip(_LATE, late)
        self._log.skip("messages from before the first one that was taken", early)
        self.counts.repeated += count - late - early
        if not self._repeats(packet):
            what = f"message {packet.sequence} or a later one came before with other bytes"
            self._log.fault(FeedFault.BAD_PACKET, where, what)

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
        if first > self.next_sequence:
            self._give_up(first, self._waiting[first][1], "")
        self._drain()

    def _give_up(self, upto: int, where: int, evidence: str) -> None:
        """The messages from the next one to before `upto` did not come."""
        first, missing = self.next_sequence, upto - self.next_sequence
        self.counts.gaps += 1
        self.counts.missing += missing
        if len(self.gaps) < _GAPS_MAX:
            self.gaps.append((first, upto - 1))
        self.next_sequence = upto
        which = f"message {first} is" if missing == 1 else f"messages {first} to {upto - 1} are"
        self._log.fault(FeedFault.GAP, where, f"{which} missing{evidence}", missing)

    # ---- messages to events

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
            kind = FeedFault.BAD_LENGTH if letter in LENGTHS or not letter else FeedFault.UNKNOWN_TYPE
            self._log.fault(kind, int(where[place]), f"a message of type {letter!r} has {lengths[place]} bytes")


class MoldReader:
    """All packets of a capture, by session; packets of one session may come on several lines."""

    def __init__(self, make: Callable[[int], ItchDecoder], log: FeedLog, *, waiting_max: int = _WAITING_MAX) -> None:
        """`make` makes the decoder of a session that begins at a time."""
        self._make = make
        self._log = log
        self._waiting_max = waiting_max
        self._sessions: list[tuple[bytes, MoldSession, list[LineAddress]]] = []
        self._of: dict[tuple[LineAddress, bytes], MoldSession] = {}
        self._latest: dict[LineAddress, MoldSession] = {}

    def receive(self, raw: bytes, where: int, line: LineAddress = ("", 0), time: int = 0) -> None:
        """One packet's bytes, where it stands in the capture, on which line and when it came."""
        try:
            packet = parse_packet(raw)
        except RemoteProtocolError as reason:
            self._log.fault(FeedFault.BAD_PACKET, where, str(reason))
            return
        session = self._of.get((line, packet.session))
        if session is None and len(self._of) >= _SESSIONS_MAX:
            self._log.fault(
                FeedFault.BAD_PACKET, where, f"of one more session than the {_SESSIONS_MAX:,} that are followed"
            )
            return
        if session is None:
            session = self._join(packet, where, line, time)
        session.receive(packet, where)

    def take(self) -> list[EventArray]:
        """The events of everything that is in sequence so far, a block for each session that has any."""
        return [block for _, session, _ in self._sessions if len(block := session.take())]

    def end(self) -> list[EventArray]:
        """Nothing more will come."""
        blocks = [block for _, session, _ in self._sessions if len(block := session.end())]
        self._log.skip("messages that came twice", sum(session.counts.repeated for _, session, _ in self._sessions))
        return blocks

    @property
    def streams(self) -> list[tuple[list[LineAddress], MoldSession]]:
        """Every session, with its lines."""
        return [(lines, session) for _, session, lines in self._sessions]

    def _join(self, packet: MoldPacket, where: int, line: LineAddress, time: int) -> MoldSession:
        """A line that shows a session for the first time is its second line, or the first of a new session."""
        before = self._latest.get(line)
        if before is not None and not before.counts.ended:
            begins = packet.session.decode("ascii", "replace").strip()
            what = f"session {before.counts.session} has not ended when session {begins} begins"
            self._log.fault(FeedFault.SESSION_CHANGED, where, what)
        numbered = packet.sequence > 0 and bool(packet.session.strip(b" \0"))
        for name, session, lines in self._sessions:
            if numbered and name == packet.session and session.agrees(packet):
                lines.append(line)
                break
        else:
            session = MoldSession(self._make(time), packet.session, waiting_max=self._waiting_max)
            self._sessions.append((packet.session, session, [line]))
        self._of[line, packet.session] = session
        self._latest[line] = session
        return session


def _sequence(packet: MoldPacket) -> int:
    return packet.sequence


def _same(one: MoldPacket, other: MoldPacket) -> bool:
    """Whether the numbers that both have carry the same bytes."""
    first = max(one.sequence, other.sequence)
    count = min(one.sequence + one.messages, other.sequence + other.messages) - first
    if count <= 0:
        return True
    return _bytes_of(one, first - one.sequence, count) == _bytes_of(other, first - other.sequence, count)


def _bytes_of(packet: MoldPacket, at: int, count: int) -> bytes:
    end = packet.places[at + count] if at + count < packet.messages else len(packet.body)
    return packet.body[packet.places[at] : end]


_LENGTH_OF = np.zeros(256, np.int64)
for _letter, _size in LENGTHS.items():
    _LENGTH_OF[ord(_letter)] = _size
