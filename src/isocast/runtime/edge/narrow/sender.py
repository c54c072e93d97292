"""Sends packets of narrow stripes at their instants, and never more than a stripe's rate in any token period.

Instants are scheduled so that the rate holds. A process that came late to some of them would send closer than they were
scheduled; so the rate is kept a second time, by what was really sent: a packet counts from the moment at which its
sending was over, and the next may leave a token period after that at the earliest if both do not fit one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from isocast.feeds.mold import HEADER_BYTES, end_of_session, heartbeat
from isocast.runtime.edge.feed import SessionEnd
from isocast.runtime.edge.narrow.engine import RateGate, StripePacket
from isocast.runtime.edge.narrow.places import IP_UDP
from isocast.terms.instants import NEVER, SECOND

__all__ = ["END_TIMES", "HEARTBEAT_NS", "LATE_NS", "PacedSender", "SenderCounts"]

HEARTBEAT_NS = SECOND
END_TIMES = 30
"""How often the end of a session is said, a second apart."""
LATE_NS = 10 * SECOND
"""What was due longer ago is not sent any more: whoever lacks it asks."""
_HEARTBEAT_BYTES = IP_UDP + HEADER_BYTES


@dataclass(slots=True)
class SenderCounts:
    """What happened so far."""

    packets: int = 0
    messages: int = 0
    ip_bytes: int = 0
    heartbeats: int = 0
    ends: int = 0
    not_sent: int = 0
    """Packets that were due too long ago, or that the network did not take: whoever lacks them asks."""
    not_sent_messages: int = 0
    """Their messages."""
    held: int = 0
    """Packets that left later than they were due, because the rate was used up by others that had been late."""
    late_ns: int = 0
    """How long packets left behind their instants, all together."""
    latest_ns: int = 0
    """The longest that a packet left behind its instant."""


@dataclass(slots=True)
class _Ending:
    """A session that is over."""

    session: bytes
    next_number: int
    following: bytes
    """The session after it."""
    at: int
    """When its end is said next."""
    left: int = END_TIMES


@dataclass(slots=True)
class _PacedStripe:
    """One narrow stripe's line."""

    budget: int
    session: bytes
    next_number: int
    sent_at: int
    """When something was last sent."""
    gate: RateGate
    waiting: deque[StripePacket] = field(default_factory=deque)
    ending: deque[_Ending] = field(default_factory=deque)
    retired: bool = False

    def ended(self) -> list[_Ending]:
        """Sessions that are over, and everything of them was sent."""
        if not self.ending:
            return []
        unsent = {packet.session for packet in self.waiting}
        return [ending for ending in self.ending if ending.session not in unsent]


class PacedSender:
    """All narrow stripes that one process sends.

    `send` gives one datagram to the group of a stripe, and says whether the network took it.
    """

    def __init__(
        self, period_ns: int, send: Callable[[int, bytes], bool], now: Callable[[], int], made_to: int = NEVER
    ) -> None:
        """Who was started a moment ago does not know what was sent before: it waits for a token period first.

        `made_to`: as of `made`, which moves it; NEVER where packets are always given in time.
        """
        self._made_to = made_to
        self.counts = SenderCounts()
        self._period_ns = period_ns
        self._send = send
        self._now = now
        self._stripes: dict[int, _PacedStripe] = {}
        self._begun = now()

    def follow(self, stripes: Iterable[tuple[int, int, bytes, int]]) -> None:
        """(stripe, budget, session, next number) of the stripes that there are; others fall silent."""
        wanted = {stripe: (budget, session, number) for stripe, budget, session, number in stripes}
        for number, line in self._stripes.items():
            line.retired = number not in wanted
        for number, (budget, session, following) in wanted.items():
            known = self._stripes.get(number)
            if known is None:
                self._stripes[number] = _PacedStripe(
                    budget, session, following, self._now(), RateGate(self._period_ns, self._begun)
                )
            else:
                known.budget = budget
                if known.next_number == 1 and not known.waiting:
                    known.session = session  # It has said nothing yet, and a day may have ended meanwhile.

    def take(self, packet: StripePacket) -> None:
        """A packet that is due some time."""
        self._stripes[packet.stripe].waiting.append(packet)

    def made(self, before: int) -> None:
        """Every packet that is due before this was given. Who is too far behind is silent: its beats would be wrong."""
        self._made_to = max(self._made_to, before)

    def end(self, end: SessionEnd, following: bytes) -> None:
        """A session is over once everything of it was sent; `following` is the one after it."""
        line = self._stripes.get(end.stripe)
        if line is not None:
            line.ending.append(_Ending(end.session.encode("ascii"), end.next_number, following, self._now()))

    # ---- time

    def next_deadline(self) -> int:
        """When `poll` has something to do."""
        deadline = NEVER
        for line in self._stripes.values():
            if line.waiting:
                packet = line.waiting[0]
                deadline = min(deadline, max(packet.due, self._room_at(line, _size(packet.raw), packet.budget)))
            if not line.retired:
                beat = line.sent_at + HEARTBEAT_NS if self._may_beat(self._now()) else NEVER
                at = min([beat, *[ending.at for ending in line.ended()]])
                deadline = min(deadline, max(at, self._room_at(line, _HEARTBEAT_BYTES, line.budget)))
        return deadline

    def poll(self) -> None:
        """Send what is due and fits."""
        for number, line in self._stripes.items():
            self._poll_one(number, line)

    def _poll_one(self, number: int, line: _PacedStripe) -> None:
        while line.waiting:
            packet, now = line.waiting[0], self._now()
            size = _size(packet.raw)
            if now < packet.due:
                break
            if now - packet.due > LATE_NS:
                line.waiting.popleft()
                self._keep_back(packet)
                line.session, line.next_number = packet.session, packet.number + packet.count
                continue
            if self._room_at(line, size, packet.budget) > now:
                break
            line.waiting.popleft()
            if self._put(number, line, packet.raw, size):
                self._count(packet, size, now)
            else:
                self._keep_back(packet)
            line.session, line.next_number = packet.session, packet.number + packet.count
        if not line.retired:
            self._beat(number, line)

    def _keep_back(self, packet: StripePacket) -> None:
        """Archived and not sent: the next number shows the gap."""
        self.counts.not_sent += 1
        self.counts.not_sent_messages += packet.count

    def _count(self, packet: StripePacket, size: int, now: int) -> None:
        counts = self.counts
        counts.packets += 1
        counts.messages += packet.count
        counts.ip_bytes += size
        late = now - packet.due
        counts.held += late > self._period_ns
        counts.late_ns += late
        counts.latest_ns = max(counts.latest_ns, late)

    def _beat(self, number: int, line: _PacedStripe) -> None:
        """Say of sessions that ended that they did; and the next number, where nothing was said for a while."""
        now = self._now()
        for ending in [one for one in line.ended() if one.at <= now]:
            if self._room_at(line, _HEARTBEAT_BYTES, line.budget) > now:
                return
            if line.session == ending.session:
                line.session, line.next_number = ending.following, 1
            self.counts.ends += 1
            self._put(number, line, end_of_session(ending.session, ending.next_number), _HEARTBEAT_BYTES)
            ending.at, ending.left = now + HEARTBEAT_NS, ending.left - 1
            if not ending.left:
                line.ending.remove(ending)
        now = self._now()
        if (
            not self._may_beat(now)
            or now < line.sent_at + HEARTBEAT_NS
            or self._room_at(line, _HEARTBEAT_BYTES, line.budget) > now
        ):
            return
        self.counts.heartbeats += 1
        self._put(number, line, heartbeat(line.session, line.next_number), _HEARTBEAT_BYTES)

    def _may_beat(self, now: int) -> bool:
        """A beat says that nothing older than `LATE_NS` comes behind what was sent."""
        return self._made_to >= now - LATE_NS

    def _put(self, number: int, line: _PacedStripe, raw: bytes, size: int) -> bool:
        taken = self._send(number, raw)
        over = self._now()
        line.sent_at = over
        line.gate.note(over, size)
        return taken

    def _room_at(self, line: _PacedStripe, size: int, budget: int) -> int:
        return line.gate.room_at(size, budget, self._now())

    # ---- what can be asked

    @property
    def waiting(self) -> int:
        """Packets that are not sent yet."""
        return sum(len(line.waiting) for line in self._stripes.values())

    @property
    def lines(self) -> dict[int, tuple[bytes, int]]:
        """Of each stripe its session, and the number that comes next."""
        return {number: (line.session, line.next_number) for number, line in self._stripes.items() if not line.retired}


def _size(raw: bytes) -> int:
    return IP_UDP + len(raw)
