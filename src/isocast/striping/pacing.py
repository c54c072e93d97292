"""Packets of narrow stripes at their instants, and never more than a stripe's rate in any token period.

Instants are scheduled so that the rate holds. A process that came late to some of them would send closer than they were
scheduled; so the rate is kept a second time, by what was really sent: a packet counts from the moment at which its
sending was over, and the next may leave a token period after that at the earliest if both do not fit one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from isocast.feeds.mold import HEADER_BYTES, SessionEnd, end_of_session, heartbeat
from isocast.striping.engine import StripePacket
from isocast.striping.rates import RateGate
from isocast.terms.instants import NEVER, SECOND
from isocast.wire.limits import IP_UDP_BYTES

__all__ = ["END_TIMES", "HEARTBEAT_NS", "LATE_NS", "PacedSender", "SendStripe", "SenderCounts"]

HEARTBEAT_NS = SECOND
END_TIMES = 30
"""How often the end of a session is said, a second apart."""
LATE_NS = 10 * SECOND
"""What was due longer ago is not sent any more: customers that lack it ask for repairs."""
_PROOFS_MAX = 64
"""Bounds: proofs of one stripe that wait for room; the oldest give way, and customers ask for what they lack."""


@dataclass(frozen=True, slots=True)
class SendStripe:
    """Give a datagram to the group of a stripe, and say when that is over."""

    stripe: int
    raw: bytes
    proof: bool = False
    """Whether it is a PROOF, for the group beside the stripe's."""
    instant: int = 0
    """When it was due, or the first packet of a PROOF; of a heartbeat and an end, now."""


@dataclass(slots=True)
class SenderCounts:
    """What happened so far."""

    packets: int = 0
    messages: int = 0
    ip_bytes: int = 0
    heartbeats: int = 0
    ends: int = 0
    proofs: int = 0
    not_sent: int = 0
    """Packets that were due too long ago, or that the network did not take: customers that lack them ask."""
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


@dataclass(frozen=True, slots=True)
class _Flight:
    """A datagram that is being sent."""

    size: int
    begun: int
    packet: StripePacket | None = None
    """None for a heartbeat, a PROOF, and the end of a session."""
    proof: bool = False


@dataclass(slots=True)
class _PacedStripe:
    """One narrow stripe's line."""

    budget: int
    session: bytes
    next_number: int
    sent_at: int
    """When something was last sent."""
    gate: RateGate
    proofs: deque[tuple[bytes, int]] = field(default_factory=lambda: deque(maxlen=_PROOFS_MAX))
    """With the instants that decide who paid for them."""
    waiting: deque[StripePacket] = field(default_factory=deque)
    ending: deque[_Ending] = field(default_factory=deque)
    retired: bool = False
    flight: _Flight | None = None

    def ended(self) -> list[_Ending]:
        """Sessions that are over, and everything of them was sent."""
        if not self.ending:
            return []
        unsent = {packet.session for packet in self.waiting}
        return [ending for ending in self.ending if ending.session not in unsent]


class PacedSender:
    """All narrow stripes that one process sends; of each stripe one datagram after the other."""

    gate_class: type[RateGate] = RateGate

    def __init__(self, period_ns: int, now: int, made_to: int = NEVER, overhead: int = 0) -> None:
        """Who was started a moment ago does not know what was sent before: it waits for a token period first.

        `made_to`: as of `made`, which moves it; NEVER where packets are always given in time. `overhead`: bytes around
        each datagram, where stripes are sealed.
        """
        self._made_to = made_to
        self._headers = IP_UDP_BYTES + overhead
        self.counts = SenderCounts()
        self._period_ns = period_ns
        self._stripes: dict[int, _PacedStripe] = {}
        self._begun = self._now = now

    def follow(self, stripes: Iterable[tuple[int, int, bytes, int]], now: int) -> None:
        """(stripe, budget, session, next number) of the stripes that there are; others fall silent."""
        wanted = {stripe: (budget, session, number) for stripe, budget, session, number in stripes}
        for number, line in self._stripes.items():
            line.retired = number not in wanted
        for number, (budget, session, following) in wanted.items():
            known = self._stripes.get(number)
            if known is None:
                gate = self.gate_class(self._period_ns, self._begun)
                self._stripes[number] = _PacedStripe(budget, session, following, now, gate)
            else:
                known.budget = budget
                if known.next_number == 1 and not known.waiting and known.flight is None:
                    known.session = session  # It has said nothing yet, and a day may have ended meanwhile.

    def take(self, packet: StripePacket) -> None:
        """A packet that is due some time."""
        self._stripes[packet.stripe].waiting.append(packet)

    def made(self, before: int) -> None:
        """Every packet that is due before this was given. Who is too far behind is silent: its beats would be wrong."""
        self._made_to = max(self._made_to, before)

    def end(self, end: SessionEnd, following: bytes, now: int) -> None:
        """A session is over once everything of it was sent; `following` is the one after it."""
        line = self._stripes.get(end.stripe)
        if line is not None:
            line.ending.append(_Ending(end.session.encode("ascii"), end.next_number, following, now))

    def prove(self, stripe: int, raw: bytes, instant: int) -> None:
        """A PROOF of what is due at an instant.

        It leaves before everything else of its stripe that has not left, as soon as there is room.
        """
        line = self._stripes.get(stripe)
        if line is not None:
            line.proofs.append((raw, instant))

    def room(self, stripe: int) -> int:
        """Bytes that a datagram of a stripe may have."""
        line = self._stripes.get(stripe)
        return 0 if line is None else line.budget - self._headers

    # ---- time

    def next_deadline(self) -> int:
        """When `poll` has something to do."""
        deadline = NEVER
        for line in self._stripes.values():
            if line.flight is not None:
                continue
            if line.proofs:
                deadline = min(deadline, self._room_at(line, self._size(line.proofs[0][0]), line.budget))
                continue
            if line.waiting:
                packet = line.waiting[0]
                deadline = min(deadline, max(packet.due, self._room_at(line, self._size(packet.raw), packet.budget)))
            if not line.retired:
                beat = line.sent_at + HEARTBEAT_NS if self.may_beat else NEVER
                at = min([beat, *[ending.at for ending in line.ended()]])
                deadline = min(deadline, max(at, self._room_at(line, self._beat_bytes, line.budget)))
        return deadline

    def poll(self, now: int) -> tuple[SendStripe, ...]:
        """What is due and fits: of each stripe the next datagram."""
        self._now = now
        found = [self._next(number, line) for number, line in self._stripes.items() if line.flight is None]
        return tuple([effect for effect in found if effect is not None])

    def sent(self, stripe: int, now: int, *, taken: bool) -> tuple[SendStripe, ...]:
        """The sending of a datagram is over, and the network took it or did not; what of its stripe follows."""
        line = self._stripes[stripe]
        flight, line.flight, self._now = line.flight, None, now
        if flight is None:
            return ()
        line.gate.note(now, flight.size)
        if flight.proof:
            self.counts.proofs += taken
        else:
            line.sent_at = now
        packet = flight.packet
        if packet is not None and taken:
            self._count(packet, flight)
        elif packet is not None:
            self._keep_back(packet)
        following = self._next(stripe, line)
        return () if following is None else (following,)

    def _next(self, number: int, line: _PacedStripe) -> SendStripe | None:
        now = self._now
        if line.proofs:
            raw, instant = line.proofs[0]
            size = self._size(raw)
            if self._room_at(line, size, line.budget) > now:
                return None
            line.proofs.popleft()
            line.flight = _Flight(size, now, proof=True)
            return SendStripe(number, raw, proof=True, instant=instant)
        while line.waiting:
            packet = line.waiting[0]
            size = self._size(packet.raw)
            late = now - packet.due > LATE_NS
            if now < packet.due or (not late and self._room_at(line, size, packet.budget) > now):
                break
            line.waiting.popleft()
            line.session, line.next_number = packet.session, packet.number + packet.count
            if not late:
                line.flight = _Flight(size, now, packet)
                return SendStripe(number, packet.raw, instant=packet.due)
            self._keep_back(packet)
        return None if line.retired else self._beat(number, line)

    def _keep_back(self, packet: StripePacket) -> None:
        """Archived and not sent: the next number shows the gap."""
        self.counts.not_sent += 1
        self.counts.not_sent_messages += packet.count

    def _count(self, packet: StripePacket, flight: _Flight) -> None:
        counts = self.counts
        counts.packets += 1
        counts.messages += packet.count
        counts.ip_bytes += flight.size
        late = flight.begun - packet.due
        counts.held += late > self._period_ns
        counts.late_ns += late
        counts.latest_ns = max(counts.latest_ns, late)

    def _beat(self, number: int, line: _PacedStripe) -> SendStripe | None:
        """Of a session that ended, that it did; or the next number, where nothing was said for a while."""
        now = self._now
        ending = next((one for one in line.ended() if one.at <= now), None)
        silent = self.may_beat and now >= line.sent_at + HEARTBEAT_NS
        if (ending is None and not silent) or self._room_at(line, self._beat_bytes, line.budget) > now:
            return None
        line.flight = _Flight(self._beat_bytes, now)
        if ending is None:
            self.counts.heartbeats += 1
            return SendStripe(number, heartbeat(line.session, line.next_number), instant=now)
        if line.session == ending.session:
            line.session, line.next_number = ending.following, 1
        self.counts.ends += 1
        ending.at, ending.left = now + HEARTBEAT_NS, ending.left - 1
        if not ending.left:
            line.ending.remove(ending)
        return SendStripe(number, end_of_session(ending.session, ending.next_number), instant=now)

    @property
    def may_beat(self) -> bool:
        """A beat says that nothing older than `LATE_NS` comes behind what was sent."""
        return self._made_to >= self._now - LATE_NS

    def _room_at(self, line: _PacedStripe, size: int, budget: int) -> int:
        return line.gate.room_at(size, budget, self._now)

    # ---- what can be asked

    @property
    def waiting(self) -> int:
        """Packets that are not sent yet."""
        return sum(len(line.waiting) for line in self._stripes.values())

    @property
    def lines(self) -> dict[int, tuple[bytes, int]]:
        """Of each stripe its session, and the number that comes next."""
        return {number: (line.session, line.next_number) for number, line in self._stripes.items() if not line.retired}

    @property
    def ending(self) -> list[tuple[int, bytes, int]]:
        """(stripe, session, next number) of sessions that are over, and everything of them was sent."""
        return [
            (number, ending.session, ending.next_number)
            for number, line in self._stripes.items()
            for ending in line.ended()
        ]

    @property
    def _beat_bytes(self) -> int:
        return self._headers + HEADER_BYTES

    def _size(self, raw: bytes) -> int:
        return self._headers + len(raw)
