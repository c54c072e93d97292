"""Packets of narrow stripes on disk, by session and number, and the socket where requests for them come in.

A day is one file, however many stripes there are: each packet with a header of 32 bytes before it. A record that a
crash cut is cut off when the file is opened; records are found by an index in memory, which the file gives.
"""

from __future__ import annotations

import fcntl
import os
import socket
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from struct import Struct
from time import monotonic
from typing import NamedTuple, Protocol

from isocast.feeds.mold import HEADER_BYTES, SESSION_BYTES, MoldRequest, packet_of, parse_packet, parse_request, request
from isocast.runtime.net.sockets import Endpoint
from isocast.terms.errors import RemoteProtocolError, TransportError

__all__ = [
    "ANSWERS_A_SECOND",
    "ROOM",
    "DeskCounts",
    "RequestDesk",
    "StripeArchive",
    "proof_request",
    "read_proof_request",
]


_HEADER = Struct("<4sIqQHH4x")
"""marker 4, length 4, due 8, first number 8, count 2, zero 2 and 4: 32."""
_MARKER = b"ICEP"
_SUFFIX = ".stripes"
_READ_BYTES = 1 << 20


class _Place(NamedTuple):
    """Where a packet is; sorts by its number."""

    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    at: int
    length: int


class _Day:
    """One file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            # Opening cuts off an unfinished record: while another process writes, that would be the newest one.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise TransportError(f"{path}: another process writes it: end that one first") from None
        self._size = 0
        self.sessions: dict[bytes, list[_Place]] = {}
        for place, raw in self._scan():
            self._index(raw[:SESSION_BYTES], place)
            self._size = place.at + place.length
        os.ftruncate(self._fd, self._size)

    def _scan(self) -> Iterator[tuple[_Place, bytes]]:
        """Every whole record up to the first that is not."""
        at, buffer, start = 0, b"", 0
        end = os.fstat(self._fd).st_size
        while at + _HEADER.size < end:
            if at + _HEADER.size + SESSION_BYTES > start + len(buffer):
                buffer, start = os.pread(self._fd, _READ_BYTES, at), at
            marker, length, _, first, count, _ = _HEADER.unpack_from(buffer, at - start)
            begin = at + _HEADER.size
            if marker != _MARKER or begin + length > end:
                return
            yield _Place(first, count, begin, length), buffer[begin - start : begin - start + SESSION_BYTES]
            at = begin + length

    def _index(self, session: bytes, place: _Place) -> None:
        places = self.sessions.setdefault(session, [])
        if not places or places[-1].first < place.first:
            places.append(place)
        else:
            insort(places, place)

    def append(self, session: bytes, first: int, count: int, due: int, raw: bytes) -> None:
        record = _HEADER.pack(_MARKER, len(raw), due, first, count, 0) + raw
        done = 0
        while done < len(record):
            done += os.pwrite(self._fd, record[done:], self._size + done)
        self._index(session, _Place(first, count, self._size + _HEADER.size, len(raw)))
        self._size += len(record)

    def find(self, session: bytes, number: int) -> bytes:
        places = self.sessions.get(session, [])
        at = bisect_right(places, number, key=lambda place: place.first) - 1
        if at < 0 or places[at].first + places[at].count <= number:
            return b""
        return os.pread(self._fd, places[at].length, places[at].at)

    def due(self, session: bytes, number: int) -> int:
        places = self.sessions.get(session, [])
        at = bisect_right(places, number, key=lambda place: place.first) - 1
        if at < 0:
            return 0
        return int(_HEADER.unpack(os.pread(self._fd, _HEADER.size, places[at].at - _HEADER.size))[2])

    def packets(self) -> Iterator[tuple[int, bytes]]:
        """(due, packet) in the order in which they were appended."""
        places = sorted([place for places in self.sessions.values() for place in places], key=lambda place: place.at)
        for place in places:
            head = os.pread(self._fd, _HEADER.size, place.at - _HEADER.size)
            yield _HEADER.unpack(head)[2], os.pread(self._fd, place.length, place.at)

    def close(self) -> None:
        os.close(self._fd)


class StripeArchive:
    """The days of one node."""

    def __init__(self, directory: Path, keep_days: int) -> None:
        """Open what is there."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._directory = directory
        self._keep = timedelta(days=keep_days)
        self._days: dict[bytes, _Day] = {}
        for path in sorted(directory.glob(f"*{_SUFFIX}")):
            day = _day_of(path.stem)
            if day is not None:
                self._days[path.stem.encode()] = _Day(path)

    def has(self, session: bytes, number: int) -> bool:
        """Whether a message is here."""
        places = self._places(session)
        at = bisect_right(places, number, key=lambda place: place.first) - 1
        return at >= 0 and number < places[at].first + places[at].count

    def next_number(self, session: bytes) -> int:
        """Behind the last message of a session."""
        places = self._places(session)
        return places[-1].first + places[-1].count if places else 1

    def newest(self) -> dict[int, tuple[bytes, int]]:
        """Of each stripe the newest session and its next number."""
        found: dict[int, tuple[bytes, int]] = {}
        for prefix in sorted(self._days):
            for session in self._days[prefix].sessions:
                found[_stripe_of(session)] = session, self.next_number(session)
        return found

    def append(self, session: bytes, first: int, count: int, due: int, raw: bytes) -> None:
        """One packet; it survives the end of the process when this returns."""
        self._day(session).append(session, first, count, due, raw)

    def find(self, session: bytes, number: int) -> bytes:
        """The packet with a message, as it was sent; empty if it is not here."""
        day = self._days.get(session[:6])
        return b"" if day is None else day.find(session, number)

    def take(self, session: bytes, number: int, most: int, room: int) -> tuple[int, bytes]:
        """(count, messages) from a number on, as many as one packet has, of at most `room` bytes; (0, b"") for none."""
        raw = self.find(session, number)
        if not raw:
            return 0, b""
        try:
            packet = parse_packet(raw)
        except RemoteProtocolError:
            return 0, b""
        places = [*packet.places, len(packet.body)]
        skip = number - packet.sequence
        if not 0 <= skip < packet.count:
            return 0, b""
        last = min(skip + most, packet.count)
        while last > skip + 1 and places[last] - places[skip] > room:
            last -= 1
        return last - skip, packet.body[places[skip] : places[last]]

    def answer(self, request: MoldRequest) -> bytes:
        """A packet with what was asked for, as much as one packet has; empty if it is not here."""
        count, framed = self.take(request.session, request.sequence, request.count, ROOM)
        return packet_of(request.session, request.sequence, count, framed) if count else b""

    def due(self, session: bytes, number: int) -> int:
        """When the packet with a message was due; 0 if it is not here."""
        day = self._days.get(session[:6])
        return 0 if day is None else day.due(session, number)

    def run(self, session: bytes, number: int, count: int, most: int) -> list[bytes]:
        """The packets with `count` messages from a number on, as they were packed; at most so many, up to a hole."""
        found: list[bytes] = []
        following = number
        while len(found) < most and following < number + count and (raw := self.find(session, following)):
            found.append(raw)
            packet = parse_packet(raw)
            following = packet.sequence + packet.count
        return found

    def packets(self) -> Iterator[tuple[int, bytes]]:
        """(due, packet) of every day, in the order in which they were appended."""
        for prefix in sorted(self._days):
            yield from self._days[prefix].packets()

    def missing(self, session: bytes, upto: int, most: int) -> list[tuple[int, int]]:
        """(first, count) of holes before a number, at most so many."""
        holes: list[tuple[int, int]] = []
        following = 1
        for place in self._places(session):
            if place.first > following:
                holes.append((following, min(place.first, upto) - following))
            following = max(following, place.first + place.count)
            if following >= upto or len(holes) >= most:
                return [hole for hole in holes if hole[1] > 0]
        if following < upto:
            holes.append((following, upto - following))
        return holes[:most]

    def close(self) -> None:
        """Give the files back."""
        for day in self._days.values():
            day.close()
        self._days.clear()

    def _places(self, session: bytes) -> list[_Place]:
        day = self._days.get(session[:6])
        return [] if day is None else day.sessions.get(session, [])

    def _day(self, session: bytes) -> _Day:
        prefix = session[:6]
        if prefix not in self._days:
            self._forget_before(prefix)
            self._days[prefix] = _Day(self._directory / f"{prefix.decode('ascii')}{_SUFFIX}")
        return self._days[prefix]

    def _forget_before(self, newest: bytes) -> None:
        today = _day_of(newest.decode("ascii"))
        if today is None:
            return
        for prefix in list(self._days):
            day = _day_of(prefix.decode("ascii"))
            if day is not None and day < today - self._keep:
                self._days.pop(prefix).close()
                with suppress(OSError):
                    (self._directory / f"{prefix.decode('ascii')}{_SUFFIX}").unlink()


def _day_of(name: str) -> date | None:
    """The day of YYMMDD."""
    try:
        return date(2000 + int(name[:2]), int(name[2:4]), int(name[4:6])) if len(name) == 6 else None  # noqa: PLR2004
    except ValueError:
        return None


def _stripe_of(session: bytes) -> int:
    try:
        return int(session[6:10], 36)
    except ValueError:
        return 0


# Where requests for lost messages come in: MoldUDP64's own, from anybody, each answered with one packet.
#
# A request has 48 bytes on the line and an answer up to 1,500, and a sender's address can be forged. So strangers are
# answered on loopback, and elsewhere only where the market's file says so; nobody, known or not, gets more than his
# share of answers a second, and all together no more than `ANSWERS_A_SECOND`.


ANSWERS_A_SECOND = 20_000
ROOM = 1_400
"""Bytes of messages in an answer."""
_AT_ONCE = 256
_ASKERS_MAX = 4_096
"""Bounds: addresses whose shares are remembered."""
_DATAGRAM = 2_048
_PROOF_REQUEST = b"ICSQ"


@dataclass(slots=True)
class DeskCounts:
    """What happened so far."""

    requests: int = 0
    answered: int = 0
    unknown: int = 0
    """For what is not here."""
    refused: int = 0
    """No requests, beyond a share, or from strangers that are not answered."""


class _Shares:
    """Leaky buckets by address."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left: dict[str, tuple[float, float]] = {}
        self._all = (float(ANSWERS_A_SECOND), monotonic())

    def take(self, address: str) -> bool:
        """Whether this address may have one more answer now."""
        now = monotonic()
        left, at = self._left.pop(address, (float(self._rate), now))
        left = min(left + (now - at) * self._rate, self._rate)
        total = min(self._all[0] + (now - self._all[1]) * ANSWERS_A_SECOND, ANSWERS_A_SECOND)
        granted = left >= 1 and total >= 1
        self._all = (total - granted, now)
        self._left[address] = left - granted, now
        while len(self._left) > _ASKERS_MAX:
            del self._left[next(iter(self._left))]
        return granted


class AnswersRequests(Protocol):
    """An archive of messages by session and number."""

    def answer(self, request: MoldRequest) -> bytes:
        """A packet with what was asked for; empty if it is not here."""


def proof_request(session: bytes, first: int, count: int) -> bytes:
    """Ask a sender to sign the packets with some messages anew: a request of MoldUDP64 behind four letters."""
    return _PROOF_REQUEST + request(session, first, count)


def read_proof_request(raw: bytes) -> MoldRequest:
    """The same, read; RemoteProtocolError for anything else."""
    if not raw.startswith(_PROOF_REQUEST):
        raise RemoteProtocolError(f"{len(raw)} bytes that are no request for a PROOF")
    return parse_request(raw[len(_PROOF_REQUEST) :])


class RequestDesk:
    """A socket at an own address. `other` is given what is no request of MoldUDP64: (datagram, sender)."""

    def __init__(
        self,
        where: Endpoint,
        archive: AnswersRequests,
        *,
        strangers: bool,
        known: Collection[str] = (),
        rate: int,
        other: Callable[[bytes, tuple[str, int]], bool] = lambda _raw, _sender: False,
        sealed: Callable[[MoldRequest, bytes], bytes] = lambda _request, raw: raw,
        counts: DeskCounts | None = None,
    ) -> None:
        """Off loopback, `strangers` says whether addresses that are not `known` are answered.

        `sealed`: how the answer to a request travels.
        """
        self.counts = DeskCounts() if counts is None else counts
        self._archive = archive
        self._strangers = strangers or IPv4Address(where.address).is_loopback
        self._known = frozenset(known)
        self._shares = _Shares(rate)
        self._other = other
        self._sealed = sealed
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.settimeout(0)
            self._socket.bind((where.address, where.port))
        except OSError as reason:
            self._socket.close()
            raise TransportError(f"cannot hear requests at {where}: {reason.strerror}") from None
        self.where = Endpoint(*self._socket.getsockname())

    def fileno(self) -> int:
        """For the event loop."""
        return self._socket.fileno()

    def close(self) -> None:
        """Hear nobody."""
        self._socket.close()

    def read(self) -> None:
        """Answer what has come."""
        for _ in range(_AT_ONCE):
            try:
                raw, sender = self._socket.recvfrom(_DATAGRAM)
            except OSError:
                return
            self.counts.requests += 1
            if len(raw) != HEADER_BYTES:
                self.counts.refused += not self._other(raw, sender)
            elif not self.grant(sender):
                self.counts.refused += 1
            else:
                self._answer(raw, sender)

    def grant(self, sender: tuple[str, int]) -> bool:
        """Whether a request from this address is answered now."""
        return (self._strangers or sender[0] in self._known) and self._shares.take(sender[0])

    def reply(self, raw: bytes, sender: tuple[str, int]) -> None:
        """Send an answer."""
        with suppress(OSError):
            self._socket.sendto(raw, sender)
            self.counts.answered += 1

    def _answer(self, raw: bytes, sender: tuple[str, int]) -> None:
        try:
            wanted = parse_request(raw)
            packet = self._archive.answer(wanted)
        except RemoteProtocolError:
            self.counts.refused += 1
            return
        if not packet:
            self.counts.unknown += 1
            return
        self.reply(self._sealed(wanted, packet), sender)
