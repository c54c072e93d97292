"""The receiving end of a customer's lines: the first copy of a sequence wins; who is late, who is silent (protocol §7).

Statistics are kept by bursts, not by packets: a socket belongs to one line, so a burst has one owner.

Two clocks need not agree for a customer to see that it reads late. A heartbeat says when it was sent; the least
difference between that and the moment of reading, over the last minutes, is the journey and the clocks' offset; what
comes on top is time spent in a queue. If that holds on one line, the line is congested. If it holds on all of
them, the reader is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isocast.hierarchy.customer_settings import CustomerSettings
from isocast.hierarchy.edge import ClaimRefuted, ConflictFound, CustomerEffect, LineBack, LineLate, LineSilent
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.terms.instants import NEVER, SECOND
from isocast.wire.packets import ReleasedPacket, short_digest_of

__all__ = ["Arbitration", "Counters", "CustomerLines", "Line", "LineView", "Recent"]


_SMOOTHING = 4
"""A burst moves a line's lag by 1/16 of the difference."""
_BASELINE_NS = 60 * SECOND
"""The least delay is that of the last one to two minutes: by then a drifting clock, 50 ppm, is off by 6 ms."""
_DISTRUST_RETRIES = 16
"""Retry intervals for which a line whose claim was refuted is not believed about far sequences."""


class Recent:
    """The last messages that were taken, to compare later copies with; one slot for each sequence modulo the size.

    Payloads are compared as they are: that costs less than any digest of them, and says more.
    """

    def __init__(self, size: int) -> None:
        """Nothing was taken yet; `size` is a power of two."""
        self.mask = size - 1
        self.packets: list[ReleasedPacket | None] = [None] * size
        self.came: list[int] = [0] * size
        """When the packet in the same slot came."""

    def find(self, sequence: int) -> ReleasedPacket | None:
        """The message of that sequence, if it is still here."""
        kept = self.packets[sequence & self.mask]
        return kept if kept is not None and kept.sequence == sequence else None

    def recall(self, first: int, last: int) -> tuple[ReleasedPacket, ...] | None:
        """A whole range, if all of it is still here."""
        if not 0 <= last - first <= self.mask:
            return None
        found = []
        for sequence in range(first, last + 1):
            kept = self.find(sequence)
            if kept is None:
                return None
            found.append(kept)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class LineView:
    """One line's statistics for checkers and console."""

    line: NodeId
    repairs: bool
    messages: int
    wins: int
    duplicates: int
    heartbeats: int
    conflicts: int
    beyond: int
    lag_ns: int
    lag_max_ns: int
    queued_ns: int
    newest: int
    silent: bool
    late: bool
    left: bool = False
    """A receiver's that is heard no longer: the plan of lines says so."""
    forged: int = 0
    """Packets in its owner's name that its owner did not sign."""


@dataclass(slots=True)
class Line:
    """One line as this customer hears it."""

    owner: NodeId
    repairs: bool
    """Whether it is a retransmit server's."""
    wins: int = 0
    """First copies."""
    duplicates: int = 0
    """Copies that another line, or this one, had brought."""
    heartbeats: int = 0
    conflicts: int = 0
    beyond: int = 0
    """Packets further ahead than the customer's buffer reaches."""
    lag_ns: int = 0
    """Smoothed: how long after the first copy this line's copy comes."""
    lag_max_ns: int = 0
    heard_at: int = -NEVER
    newest: int = 0
    """The last sequence that the line is known to have sent."""
    held: tuple[Epoch, int] = (NO_EPOCH, 0)
    """The newest token that its owner says it holds, and the epoch in which it does."""
    distrusted_until: int = -NEVER
    silent: bool = False
    late: bool = False
    left: bool = False
    forged: int = 0
    """Packets in its owner's name that were none of its owner's."""
    since: int = -NEVER
    """When it became one of the customer's lines: it was not silent before."""
    queued_ns: int = 0
    """By the last heartbeat: time spent waiting on the way, beyond the least."""
    _least_ns: int = NEVER
    _least_before_ns: int = NEVER
    _least_since: int = -NEVER

    def burst(self, wins: int, duplicates: int, lag_ns: int, now: int) -> None:
        """A burst is over; `lag_ns` is that of its last duplicate, 0 when it was first with anything."""
        self.heard_at = now
        self.wins += wins
        self.duplicates += duplicates
        if wins:
            lag_ns = 0
        if wins or duplicates:
            self.lag_ns += (lag_ns - self.lag_ns) >> _SMOOTHING
            self.lag_max_ns = max(self.lag_max_ns, lag_ns)

    def heartbeat(self, packet: ReleasedPacket, now: int) -> None:
        """The line says where it stands, and when it said so."""
        self.heartbeats += 1
        self.heard_at = now
        self.newest = max(self.newest, packet.sequence - 1)
        self.held = max(self.held, (packet.epoch, packet.token_number))
        delay_ns = now - packet.instant
        if now - self._least_since >= _BASELINE_NS or now < self._least_since:
            self._least_before_ns, self._least_ns, self._least_since = self._least_ns, NEVER, now
        self._least_ns = min(self._least_ns, delay_ns)
        self.queued_ns = delay_ns - min(self._least_ns, self._least_before_ns)

    def view(self) -> LineView:
        """The state, for checkers and status pages."""
        return LineView(
            self.owner,
            self.repairs,
            self.wins + self.duplicates,
            self.wins,
            self.duplicates,
            self.heartbeats,
            self.conflicts,
            self.beyond,
            self.lag_ns,
            self.lag_max_ns,
            self.queued_ns,
            self.newest,
            self.silent,
            self.late,
            self.left,
            self.forged,
        )


class CustomerLines:
    """All lines of one customer."""

    def __init__(self, settings: CustomerSettings) -> None:
        """Nobody was heard yet."""
        self.by_owner: dict[NodeId, Line] = {
            **{owner: Line(owner, repairs=True) for owner in settings.servers},
            **{owner: Line(owner, repairs=False) for owner in settings.lines},
        }
        self.door = Line(0, repairs=True)
        """What is fetched says nothing about anybody's line."""
        self.main = [self.by_owner[owner] for owner in settings.lines]
        """Those of receivers, in the customer's own order."""
        self._reach = settings.hold_max
        self._late_ns = settings.late_ns
        self._silent_ns = settings.silent_ns
        self._distrust_ns = _DISTRUST_RETRIES * settings.retry_ns
        self._since: int | None = None

    def tick(self, now: int) -> list[CustomerEffect]:
        """Which lines fell silent or late, and which are back. Servers' lines may be silent: they only repair."""
        if self._since is None or now < self._since:
            self._since = now
        told: list[CustomerEffect] = []
        for line in self.main:
            troubled = line.silent or line.late
            heard_at = max(min(line.heard_at, now), self._since, min(line.since, now))
            silent = now - heard_at > self._silent_ns
            late = line.lag_ns > (self._late_ns // 2 if line.late else self._late_ns)
            if silent and not line.silent:
                told.append(LineSilent(line.owner, now - heard_at))
            if late and not line.late:
                told.append(LineLate(line.owner, line.lag_ns))
            line.silent, line.late = silent, late
            if troubled and not (silent or late):
                told.append(LineBack(line.owner))
        return told

    def plan(self, owners: Sequence[NodeId], now: int) -> None:
        """Other lines from now on. What still comes of one that was left counts, and nobody waits for it."""
        for owner in owners:
            line = self.by_owner.setdefault(owner, Line(owner, repairs=False, left=True))
            if line.left:
                line.since, line.silent, line.late = now, False, False
        for line in self.main:
            line.left = True
        # In place: the choice among lines reads the same list.
        self.main[:] = [self.by_owner[owner] for owner in owners]
        for line in self.main:
            line.left = False

    def slept(self, now: int) -> None:
        """The reader did not run until now: what the lines sent meanwhile waits to be read, so none was silent."""
        self._since = now

    def reader_lag_ns(self) -> int:
        """How long packets wait before they are read, on the line where they wait least."""
        queued = [line.queued_ns for line in self.main if line.heartbeats and not line.silent]
        return min(queued, default=0)

    def know_less(self, following: int) -> bool:
        """Whether all that speak know less than what is here: what they do not tell of may exist all the same."""
        speaking = [line for line in self.main if line.heartbeats and not line.silent]
        return bool(speaking) and all(line.newest + 1 < following for line in speaking)

    def corroborated(self, sequence: int) -> bool:
        """Whether one line's word about a far sequence can be believed: another says so, or no other speaks."""
        speaking = [line for line in self.main if line.heard_at > -NEVER and not line.silent]
        near = [line for line in speaking if line.newest >= sequence - self._reach]
        return len(near) > 1 or len(speaking) <= 1

    def refute(self, newest: int, now: int) -> Sequence[ClaimRefuted]:
        """A server knows nothing beyond `newest`: lines that, alone, claimed far more are not believed for a while.

        What two lines say stands: then it is the server that is behind.
        """
        told = []
        for line in self.by_owner.values():
            if line.newest > newest + self._reach and not self.corroborated(line.newest):
                told.append(ClaimRefuted(line.owner, line.newest, newest))
                line.newest = newest
                line.distrusted_until = now + self._distrust_ns
        return told

    def set_back(self, now: int) -> None:
        """The clock was set back: nobody is distrusted for longer than ever."""
        for line in self.by_owner.values():
            line.distrusted_until = min(line.distrusted_until, now + self._distrust_ns)

    def views(self) -> tuple[LineView, ...]:
        """The state, for checkers and status pages."""
        return tuple([line.view() for line in self.by_owner.values()])


# What both grades of service share: the first copy of a sequence wins, later copies are compared with it.


_CONFLICTS_TOLD = 16
"""Conflicts told in one step; all are counted. A line that lies about everything must not flood the log."""


@dataclass(slots=True)
class Counters:
    """What a customer counts, since it started."""

    delivered: int = 0
    """Messages handed on; by grade latest, messages looked at."""
    events: int = 0
    """Events handed on by grade latest."""
    strange: int = 0
    """Packets of unknown lines, other stripes, or that carry neither one message nor a heartbeat."""
    unreadable: int = 0
    """Messages that are no market events, where grade latest must look inside."""
    old: int = 0
    """Copies that came too late to be compared."""
    beyond: int = 0
    """Packets further ahead than the buffer reaches, dropped."""
    conflicts: int = 0
    """Copies with other content."""
    gaps: int = 0
    """Gaps that outlived the lines' difference."""
    requests: int = 0
    """RXREQ packets sent."""
    asked: int = 0
    """Messages asked for by them."""
    fetches: int = 0
    """Ranges and snapshots fetched at doors."""
    repaired: int = 0
    """Messages whose first copy came from a retransmit server."""
    abandoned: int = 0
    """Messages that were never delivered."""
    slow: int = 0
    """Times that this customer named itself slow."""
    forged: int = 0
    """Packets that nobody whose line it is had signed."""
    differing: int = 0
    """Tokens for which two lines signed different messages."""
    unproven: int = 0
    """Messages that waited for a proof in vain."""
    unverified: int = 0
    """Proofs and heartbeats that were not looked at, because their line had more than its share."""
    stale: int = 0
    """Proofs and heartbeats that were too old to be believed."""


class Arbitration:
    """One customer's lines, its memory of recent messages, its counters, and its effects so far."""

    def __init__(self, node: NodeId, settings: CustomerSettings) -> None:
        """Nothing was heard yet."""
        self.node = node
        self.settings = settings
        self.lines = CustomerLines(settings)
        self.recent = Recent(settings.recent_max)
        self.counters = Counters()
        self.out: list[CustomerEffect] = []
        self._told = 0

    def flush(self) -> tuple[CustomerEffect, ...]:
        """The effects of one step."""
        effects = tuple(self.out)
        self.out.clear()
        self._told = 0
        return effects

    def conflict(self, kept: ReleasedPacket, other: ReleasedPacket, line: Line) -> None:
        """Two contents for one sequence: the first copy stands, and people must know."""
        self.counters.conflicts += 1
        line.conflicts += 1
        if self._told < _CONFLICTS_TOLD:
            self._told += 1
            both = (kept, other)
            if kept.payload != other.payload:
                digests = [short_digest_of(one.payload) for one in both]
            else:
                digests = [short_digest_of(one.payload, one.shuffle_key) for one in both]
            self.out.append(ConflictFound(kept.sequence, kept.sender, other.sender, *digests))

    def burst_over(self, line: Line, wins: int, duplicates: int, duplicate: int, now: int) -> None:
        """Account for a burst of one line; `duplicate` is the sequence of its last duplicate, or not positive."""
        recent, lag_ns = self.recent, 0
        if duplicate > 0 and recent.find(duplicate) is not None:
            lag_ns = max(now - recent.came[duplicate & recent.mask], 0)
        line.burst(wins, duplicates, lag_ns, now)
        if line.repairs:
            self.counters.repaired += wins
