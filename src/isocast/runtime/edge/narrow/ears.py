"""Hears many groups with few sockets, with the kernel's time of each datagram; and when messages were released.

Linux lets a socket join twenty groups unless net.ipv4.igmp_max_memberships says otherwise, so each socket takes that
many. All are bound to the port of the groups, and hear only what they joined.
"""

from __future__ import annotations

import socket
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from struct import Struct, error
from time import time_ns
from typing import NamedTuple

from isocast.feeds.mold import MoldPacket
from isocast.feeds.release_stamps import read_milliseconds
from isocast.runtime.net.filters import Filter, FullBuffers, attach
from isocast.runtime.net.sockets import dropped_of
from isocast.striping.merging import StripeCut
from isocast.striping.pacing import LATE_NS
from isocast.striping.sequencer import NarrowMessage
from isocast.terms.errors import LocalProtocolError, TransportError
from isocast.terms.instants import MILLISECOND, SECOND

__all__ = ["BEAT_NS", "MARKS_MAX", "Heard", "StripeEars", "StripeInstants"]


_GROUPS_MAX = 20
_DATAGRAM = 9_216
_AT_ONCE = 512
_BUFFER = 1 << 20
# From linux/in.h and asm-generic/socket.h; the module `socket` of Python 3.11 does not name them.
_IP_MULTICAST_ALL = 49
_SO_TIMESTAMPNS = 35
_TIMESPEC = Struct("@ll")


class Heard(NamedTuple):
    """A datagram."""

    at: int
    """When the kernel got it."""
    sender: str
    raw: bytes


class StripeEars:
    """Joined to groups by the interface with one address; more can be joined, and some left, at any time."""

    def __init__(self, interface: str, port: int) -> None:
        """No group yet."""
        self.unfiltered = ""
        """Why the kernel does not filter, though it was asked to."""
        self.filtered = 0
        """Datagrams that the kernel's filters dropped, up to the last `collect`."""
        self.dropped = 0
        """Datagrams that full buffers dropped."""
        self._guard: Filter | None = None
        self._counted = 0
        self._full_buffers = FullBuffers()
        self._interface = interface
        self._port = port
        self._sockets: list[socket.socket] = []
        self._groups: dict[str, socket.socket] = {}

    @property
    def groups(self) -> frozenset[str]:
        """Those that are joined."""
        return frozenset(self._groups)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """For the event loop."""
        return tuple(self._sockets)

    def guard(self, program: Filter | None) -> None:
        """Let the kernel drop what this program does not let pass, from now on."""
        if program is None or program == self._guard:
            return
        self._guard = program
        for one in self._sockets:
            self.unfiltered = attach(one, program)

    def collect(self) -> None:
        """Bring the counts of what the kernel dropped up to date."""
        total = 0
        for one in self._sockets:
            with suppress(OSError):
                total += dropped_of(one)
        full, filtered = self._full_buffers.split([max(total - self._counted, 0)])
        self._counted = total
        self.dropped += sum(full)
        self.filtered += filtered

    def hear(self, groups: Iterable[str]) -> list[socket.socket]:
        """Be joined to these groups and no others; the sockets that are new."""
        wanted = dict.fromkeys(groups)
        for group in [group for group in self._groups if group not in wanted]:
            with suppress(OSError):
                self._groups.pop(group).setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, self._place(group))
        fresh = []
        for group in [group for group in wanted if group not in self._groups]:
            room = next((one for one in self._sockets if self._joined(one) < _GROUPS_MAX), None)
            if room is None:
                room = self._open(group)
                fresh.append(room)
                self._sockets.append(room)
            self._join(room, group)
        return fresh

    def read(self, one: socket.socket) -> list[Heard]:
        """What has come at a socket."""
        heard: list[Heard] = []
        for _ in range(_AT_ONCE):
            try:
                raw, ancillary, _, sender = one.recvmsg(_DATAGRAM, 64)
            except OSError:
                break
            heard.append(Heard(_instant(ancillary), sender[0], raw))
        return heard

    def close(self) -> None:
        """Hear nothing."""
        for one in self._sockets:
            one.close()
        self._sockets.clear()
        self._groups.clear()

    def _joined(self, one: socket.socket) -> int:
        return sum(1 for joined in self._groups.values() if joined is one)

    def _place(self, group: str) -> bytes:
        return socket.inet_aton(group) + socket.inet_aton(self._interface)

    def _join(self, one: socket.socket, group: str) -> None:
        try:
            one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, self._place(group))
        except OSError as reason:
            raise TransportError(f"cannot join {group} on {self._interface}: {reason.strerror}") from None
        self._groups[group] = one

    def _open(self, group: str) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            made.settimeout(0)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            with suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            with suppress(OSError):
                # Otherwise it hears what other programs of this machine joined.
                made.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
            if self._guard is not None:
                self.unfiltered = attach(made, self._guard)
            made.bind(("", self._port))
        except OSError as reason:
            made.close()
            raise TransportError(f"cannot listen to {group}:{self._port}: {reason.strerror}") from None
        return made


def _instant(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            with suppress(error):
                seconds, rest = _TIMESPEC.unpack_from(data)
                return int(seconds * SECOND + rest)
    return time_ns()


# When the messages of narrow stripes were released, as a customer knows it: for time cuts across stripes.
#
# Every message tells the millisecond of its release modulo 65 s; which 65 s, the moment says at which the line first
# told that the message exists. Instants never decrease on a stripe, so whoever has a later message has passed T. A
# silent stripe beats, and an edge beats only while it is less than `LATE_NS` behind: what a beat does not count is
# younger.


_SKEW_NS = 2 * SECOND
"""Of the clocks of a customer and an edge, with the way of a datagram between them."""
BEAT_NS = LATE_NS + _SKEW_NS
"""A beat that comes so long behind T shows that its stripe has passed T."""
MARKS_MAX = 1 << 18
"""Bounds: milliseconds with messages that are remembered for each stripe and day."""
_SEEN_MAX = 65_536
_DAYS_MAX = 2
_DAY = 6
"""Characters of a session that are its day."""


@dataclass(slots=True)
class _SessionMarks:
    """The milliseconds of one session, with the last number of each."""

    base: int
    """The last number before them."""
    instants: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    unsure: set[int] = field(default_factory=set)
    """Those before which numbers were lost, so that nobody knows their instants."""

    @property
    def last(self) -> int:
        return self.numbers[-1] if self.numbers else self.base


@dataclass(slots=True)
class _HeardStripe:
    since: int
    """What was before this millisecond is not known."""
    seen: deque[tuple[bytes, int, int]] = field(default_factory=lambda: deque(maxlen=_SEEN_MAX))
    """(session, behind which number, when): what was first told to exist when."""
    days: dict[bytes, _SessionMarks] = field(default_factory=dict)
    passed: int = -1
    newest: int = -1
    """The millisecond of the last message."""
    estimated: bool = False
    """Whether the last mark is of lost messages, and later than they were."""


class StripeInstants:
    """The releases of some narrow stripes. Pure: the caller says when something was heard."""

    def __init__(self, marks_max: int = MARKS_MAX) -> None:
        """Nothing is known."""
        self.disordered = 0
        """Messages that were released before what their line had passed: an edge, or a clock, is wrong."""
        self._stripes: dict[int, _HeardStripe] = {}
        self._marks_max = marks_max

    def heard(self, stripe: int, packet: MoldPacket, at: int) -> None:
        """A packet of a line, before its messages are taken: its numbers exist."""
        known = self._stripes.get(stripe)
        if known is None:
            known = self._stripes[stripe] = _HeardStripe((at + _SKEW_NS) // MILLISECOND)
            known.days[packet.session] = _SessionMarks(packet.sequence - 1)
        top = packet.session, packet.sequence + packet.messages
        if not known.seen or top > known.seen[-1][:2]:
            known.seen.append((*top, at))

    def take(self, stripe: int, messages: Iterable[NarrowMessage]) -> None:
        """Messages in order; a number that is left out is lost."""
        known = self._stripes.get(stripe)
        if known is None:
            return
        for message in messages:
            while known.seen and known.seen[0][:2] <= (message.session, message.number):
                known.seen.popleft()
            marks = self._marks(known, message.session)
            if known.seen and message.number > marks.base:
                self._note(known, marks, message.number, read_milliseconds(message.framed, known.seen[0][2]))

    def beat(self, stripe: int, session: bytes, next_number: int, at: int) -> None:
        """A stripe said that nothing is behind what was taken; up to `next_number` all is there, or lost."""
        known = self._stripes[stripe]
        marks = self._marks(known, session)
        if next_number - 1 > marks.last:
            self._note(known, marks, next_number - 1, (at + _SKEW_NS) // MILLISECOND, lost=True)
        known.passed = max(known.passed, (at - BEAT_NS) // MILLISECOND)

    def at(self, instant: int, day: bytes, stripes: Iterable[int]) -> StripeCut | None:
        """The last number of each stripe in the session of a day at an instant, whose whole millisecond counts.

        None while a stripe has not passed it; LocalProtocolError where it cannot be known.
        """
        wanted, rows = instant // MILLISECOND, []
        for stripe in sorted(stripes):
            known = self._stripes.get(stripe)
            if known is None or max(known.passed, known.newest - 1) < wanted:
                return None
            if wanted < known.since:
                raise LocalProtocolError(f"stripe {stripe}: nothing is known from before {known.since * MILLISECOND}")
            marks = next((one for session, one in known.days.items() if session[:_DAY] == day), _SessionMarks(0))
            place = bisect_right(marks.instants, wanted)
            if place < len(marks.instants) and marks.instants[place] in marks.unsure:
                raise LocalProtocolError(f"stripe {stripe}: messages that were released about {instant} were lost")
            rows.append((stripe, marks.numbers[place - 1] if place else marks.base))
        return StripeCut(instant, tuple(rows))

    def _marks(self, known: _HeardStripe, session: bytes) -> _SessionMarks:
        marks = known.days.get(session)
        if marks is None:
            marks = known.days[session] = _SessionMarks(0)
            if len(known.days) > _DAYS_MAX:
                del known.days[min(known.days)]
                first = known.days[min(known.days)]
                known.since = max([known.since, *first.instants[:1]])
        return marks

    def _note(
        self, known: _HeardStripe, marks: _SessionMarks, number: int, instant: int, *, lost: bool = False
    ) -> None:
        unsure = lost or number != marks.last + 1
        if known.estimated and marks.instants:
            # What was lost is not younger than what follows it.
            marks.unsure.discard(marks.instants.pop())
            marks.numbers.pop()
            unsure = True
        elif not lost:
            self.disordered += instant < max(known.newest, known.passed + 1)
        known.estimated = lost
        if marks.instants and instant <= marks.instants[-1]:
            marks.numbers[-1] = number
        else:
            marks.instants.append(instant)
            marks.numbers.append(number)
            if unsure:
                marks.unsure.add(instant)
        known.newest = known.newest if lost else max(known.newest, instant)
        if len(marks.instants) > self._marks_max:
            half = len(marks.instants) // 2
            marks.unsure.difference_update(marks.instants[:half])
            marks.base = marks.numbers[half - 1]
            del marks.instants[:half], marks.numbers[:half]
            known.since = max(known.since, marks.instants[0])
