"""What a retransmit server, R_x, is asked and what it answers (§4.1; §7.1: by multicast; protocol §7).

A range is answered once, on the server's line, for all who lost it: whoever asks for the same within `quiet_ns` is
served by the same packets. Everybody has a share, and shares are taken in turn, `quantum` messages at a time, so a
customer that asks for too much waits for itself alone, and is named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from isocast.hierarchy.edge import (
    CustomerInput,
    CustomerNotice,
    DeliverLatest,
    FetchRange,
    FetchSnapshot,
    SendLine,
    TokensPassed,
)
from isocast.hierarchy.gaps import missing_runs
from isocast.hierarchy.latest import LatestSnapshot
from isocast.ring.effects import Unicast
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NodeId
from isocast.terms.instants import MILLISECOND, NEVER, SECOND
from isocast.wire.packets import ReleasedPacket

__all__ = [
    "AnswerLimits",
    "Answers",
    "Archive",
    "ArchiveRead",
    "ArchiveTrimmed",
    "Bucket",
    "CustomerShare",
    "CustomerThrottled",
    "GiveRange",
    "GiveSnapshot",
    "KeepSnapshot",
    "RangeAsked",
    "RangePiece",
    "RangeWithdrawn",
    "ReadArchive",
    "ServerEffect",
    "ServerHostEffect",
    "ServerInput",
    "SnapshotAsked",
    "TurnAway",
]


# What a retransmit server is asked and told, and what it asks of its driver (§4.1; protocol §7).


@dataclass(frozen=True, slots=True)
class RangeAsked:
    """A customer at the door of a retransmit server asks for a range."""

    customer: NodeId
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RangeWithdrawn:
    """The customer that asked for a range has left, or the door gave up: no answer is wanted any more."""

    customer: NodeId


@dataclass(frozen=True, slots=True)
class SnapshotAsked:
    """A customer at the door of a retransmit server asks for the latest event of every key."""

    customer: NodeId


@dataclass(frozen=True, slots=True)
class ArchiveRead:
    """The archive's answer to `ReadArchive`, in order."""

    to: NodeId
    first: int
    last: int
    packets: Sequence[ReleasedPacket]


@dataclass(frozen=True, slots=True)
class ArchiveTrimmed:
    """Retention dropped everything below `low_water`."""

    low_water: int


ServerInput: TypeAlias = CustomerInput | RangeAsked | RangeWithdrawn | SnapshotAsked | ArchiveRead | ArchiveTrimmed


@dataclass(frozen=True, slots=True)
class Archive:
    """Append these to the archive, before what follows: consecutive sequences, after all before."""

    packets: tuple[ReleasedPacket, ...]


@dataclass(frozen=True, slots=True)
class ReadArchive:
    """Read a range of the archive and answer with `ArchiveRead`, its `to` unchanged: who asked, or what for."""

    to: NodeId
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class GiveRange:
    """Answer a range at the door: `RangeArrived` for the customer."""

    customer: NodeId
    packets: tuple[ReleasedPacket, ...]
    low_water: int
    newest: int


@dataclass(frozen=True, slots=True)
class GiveSnapshot:
    """Answer a snapshot at the door: `SnapshotArrived` for the customer."""

    customer: NodeId
    snapshot: LatestSnapshot


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Close the door to a customer: it asks for more than its share, or for what is not ready yet."""

    customer: NodeId


@dataclass(frozen=True, slots=True)
class KeepSnapshot:
    """Write the snapshot beside the archive: after a restart the table of latest events goes on from it."""

    snapshot: LatestSnapshot


@dataclass(frozen=True, slots=True)
class CustomerThrottled:
    """A customer asks for more than its share: messages `asked` and `served`, requests `refused`, since it is known."""

    customer: NodeId
    asked: int
    served: int
    refused: int


ServerHostEffect: TypeAlias = (
    Archive
    | ReadArchive
    | KeepSnapshot
    | SendLine
    | GiveRange
    | GiveSnapshot
    | TurnAway
    | CustomerThrottled
    | DeliverLatest
    | TokensPassed
    | FetchRange
    | FetchSnapshot
    | CustomerNotice
)
ServerEffect: TypeAlias = Unicast | ServerHostEffect
"""Of a retransmit server; what its own customer delivers is archived."""


_NAMED_NS = SECOND
"""A customer is named at most once in this time."""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """How much a server answers, counted in messages."""

    rate: int = 20_000
    """Messages a second for all customers together: 28 MB/s of 1,400 bytes."""
    burst: int = 4_096
    """Messages at once for all: 6 MB, about what a receive buffer holds."""
    customer_rate: int = 4_000
    """Messages a second for one customer: a fifth of all, 10 % of a stripe at a million events a second."""
    customer_burst: int = 2_048
    """Messages at once for one customer: twice what it may ask for at a time."""
    pending_max: int = 64
    """Ranges of one customer that wait. Bounds: twice the requests that an honest one sends at a time."""
    range_max: int = 1_024
    """Messages of one request that are looked at; an honest customer asks for 256."""
    customers_max: int = 4_096
    """Accounts. Bounds: the one that asked longest ago is forgotten for a new one."""
    quantum: int = 64
    """Messages of one turn: 90 kB."""
    quiet_ns: int = 50 * MILLISECOND
    """For how long a range that was answered on the line is not answered again; 0 where each is answered alone."""
    stale_ns: int = SECOND
    """A request that waited so long was repeated or given up."""
    keeps_rest: bool = True
    """Whether what there was no room for stays queued; at a door the customer asks again."""
    newest_counts: bool = False
    """Whether a request takes the place of the one that waits: at a door, a customer that asks again has given up the
    visit before, or was born anew, and must not pay for it."""

    @classmethod
    def at_door(cls) -> AnswerLimits:
        """Ranges of thousands, for one customer each; counted apart, so that they never delay repairs."""
        return cls(
            rate=40_000,
            burst=16_384,
            customer_rate=20_000,
            customer_burst=8_192,
            pending_max=1,
            range_max=4_096,
            quantum=4_096,
            quiet_ns=0,
            keeps_rest=False,
            newest_counts=True,
        )

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        counts = (
            self.rate,
            self.burst,
            self.customer_rate,
            self.customer_burst,
            self.pending_max,
            self.range_max,
            self.customers_max,
            self.quantum,
            self.stale_ns,
        )
        if min(counts) < 1 or self.quiet_ns < 0 or max(self.rate, self.customer_rate) > SECOND:
            raise LocalProtocolError("every rate and bound of a server must be positive, and a rate at most 10^9")


class Bucket:
    """So many a second, so many at once. Counts in whole nanoseconds: full when `due` lies in the past."""

    def __init__(self, rate: int, burst: int) -> None:
        """Full."""
        self._cost_ns = SECOND // rate
        self._burst_ns = burst * self._cost_ns
        self._due = -NEVER

    def room(self, now: int) -> int:
        """How many may go now."""
        return max((now + self._burst_ns - max(self._due, now)) // self._cost_ns, 0)

    def take(self, count: int, now: int) -> None:
        """So many went, be it more than there was room for."""
        self._due = max(self._due, now) + count * self._cost_ns

    def ready_at(self, count: int) -> int:
        """When there will be room for so many, or for a full burst if that is less."""
        return self._due - self._burst_ns + min(count * self._cost_ns, self._burst_ns)

    def set_back(self, span_ns: int) -> None:
        """The clock was set back."""
        self._due -= span_ns


@dataclass(slots=True)
class CustomerShare:
    """One customer's share."""

    bucket: Bucket
    pending: deque[tuple[int, int, int]] = field(default_factory=deque)
    """Ranges that wait: first, last, and since when."""
    asked: int = 0
    """Messages."""
    served: int = 0
    """Messages; what others had asked for already costs nothing and is not counted."""
    refused: int = 0
    """Requests."""
    named_at: int = -NEVER


@dataclass(frozen=True, slots=True)
class RangePiece:
    """A range to be answered now."""

    customer: NodeId
    first: int
    last: int


class Answers:
    """Requests, shares and turns. Knows nothing of packets: it says which ranges go out when."""

    def __init__(self, limits: AnswerLimits) -> None:
        """Nobody has asked yet."""
        self.limits = limits
        self.wake_at = NEVER
        """When something that waits may go."""
        self.accounts: dict[NodeId, CustomerShare] = {}
        self.requests = 0
        self.refused = 0
        self.served = 0
        """Messages that were answered."""
        self.spared = 0
        """Messages that were not, because they had just been."""
        self.forgotten = 0
        """Accounts that had to go."""
        self.lapsed: list[NodeId] = []
        """Whose requests waited for too long since this was read last."""
        self._total = Bucket(limits.rate, limits.burst)
        self._turns: deque[NodeId] = deque()
        self._sent: dict[int, None] = {}
        """Sequences that went out within `quiet_ns`."""
        self._answered: deque[tuple[int, int, int]] = deque()
        """The same as ranges, with their instants."""

    def ask(self, customer: NodeId, first: int, last: int, now: int) -> list[CustomerThrottled]:
        """Queue a request, or refuse it and name who asked."""
        self.requests += 1
        account = self._account(customer)
        last = min(last, first + self.limits.range_max - 1)
        account.asked += last - first + 1
        if self.limits.newest_counts:
            self.withdraw(customer)
        if len(account.pending) >= self.limits.pending_max:
            return self.refuse(customer, now)
        if not account.pending:
            self._turns.append(customer)
        account.pending.append((first, last, now))
        return []

    def withdraw(self, customer: NodeId) -> None:
        """Nobody waits for what this customer asked for: it is not answered, and costs nothing."""
        account = self.accounts.get(customer)
        if account is not None and account.pending:
            account.pending.clear()
            self._turns.remove(customer)

    def refuse(self, customer: NodeId, now: int) -> list[CustomerThrottled]:
        """Count a request that is not answered."""
        account = self._account(customer)
        self.refused += 1
        account.refused += 1
        return self._name(customer, account, now)

    def charge(self, customer: NodeId, count: int, now: int) -> bool:
        """Take something else out of a share, if there is any left: a reply, a snapshot."""
        account = self._account(customer)
        if account.bucket.room(now) < 1 or self._total.room(now) < 1:
            return False
        account.bucket.take(count, now)
        self._total.take(count, now)
        return True

    def serve(self, now: int) -> tuple[list[RangePiece], list[CustomerThrottled]]:
        """What may go now, everybody in turn; those whose share is used up wait, and are named."""
        pieces: list[RangePiece] = []
        named: list[CustomerThrottled] = []
        waiting: deque[NodeId] = deque()
        self.wake_at = NEVER
        while self._turns:
            total = self._total.room(now)
            if total < 1:
                self.wake_at = min(self.wake_at, self._total.ready_at(self.limits.quantum))
                break
            customer = self._turns.popleft()
            account = self.accounts[customer]
            room = account.bucket.room(now)
            if room < 1:
                waiting.append(customer)
                self.wake_at = min(self.wake_at, account.bucket.ready_at(self.limits.quantum))
                named.extend(self._name(customer, account, now))
                continue
            turn = self._turn(customer, account, min(total, room, self.limits.quantum), now)
            pieces.extend(turn)
            if sum([piece.last - piece.first + 1 for piece in turn]) == room:
                # Its share is used up: a customer that asks again at once is given little at a time.
                named.extend(self._name(customer, account, now))
            if account.pending:
                self._turns.append(customer)
        self._turns.extend(waiting)
        return pieces, named

    def _turn(self, customer: NodeId, account: CustomerShare, room: int, now: int) -> list[RangePiece]:
        """At most `room` messages of one customer's oldest requests."""
        pieces: list[RangePiece] = []
        while account.pending and room > 0:
            first, last, since = account.pending.popleft()
            if now - since > self.limits.stale_ns:
                account.refused += 1
                self.refused += 1
                self.lapsed.append(customer)
                continue
            wanted = self._not_sent(first, last, now)
            self.spared += last - first + 1 - sum([end - start + 1 for start, end in wanted])
            while wanted and room > 0:
                start, end = wanted.pop(0)
                stop = min(end, start + room - 1)
                pieces.append(RangePiece(customer, start, stop))
                room -= stop - start + 1
                self._serve(account, start, stop, now)
                if stop < end:
                    wanted.insert(0, (stop + 1, end))
            if self.limits.keeps_rest:
                account.pending.extendleft([(*left, since) for left in reversed(wanted)])
        return pieces

    def _serve(self, account: CustomerShare, first: int, last: int, now: int) -> None:
        count = last - first + 1
        account.bucket.take(count, now)
        account.served += count
        self._total.take(count, now)
        self.served += count
        if self.limits.quiet_ns:
            self._answered.append((first, last, now))
            self._sent.update(dict.fromkeys(range(first, last + 1)))

    def _not_sent(self, first: int, last: int, now: int) -> list[tuple[int, int]]:
        """What of a range was not sent a moment ago."""
        answered = self._answered
        while answered and now - answered[0][2] >= self.limits.quiet_ns:
            start, end, _ = answered.popleft()
            for sequence in range(start, end + 1):
                del self._sent[sequence]
        return missing_runs(first, last, self._sent) if answered else [(first, last)]

    def _account(self, customer: NodeId) -> CustomerShare:
        """The customer's account, the most recently used last."""
        account = self.accounts.pop(customer, None)
        if account is None:
            if len(self.accounts) >= self.limits.customers_max:
                self._forget()
            account = CustomerShare(Bucket(self.limits.customer_rate, self.limits.customer_burst))
        self.accounts[customer] = account
        return account

    def _forget(self) -> None:
        """Evict the account that asked longest ago, with its pending requests."""
        oldest = next(iter(self.accounts))
        if self.accounts.pop(oldest).pending:
            self._turns.remove(oldest)
        self.forgotten += 1

    def _name(self, customer: NodeId, account: CustomerShare, now: int) -> list[CustomerThrottled]:
        if now - account.named_at < _NAMED_NS:
            return []
        account.named_at = now
        return [CustomerThrottled(customer, account.asked, account.served, account.refused)]

    def set_back(self, span_ns: int) -> None:
        """The clock was set back: everything that waits goes with it."""
        self._total.set_back(span_ns)
        self._answered.clear()
        self._sent.clear()
        if self.wake_at < NEVER:
            self.wake_at -= span_ns
        for account in self.accounts.values():
            account.bucket.set_back(span_ns)
            account.named_at -= span_ns
            account.pending = deque([(first, last, since - span_ns) for first, last, since in account.pending])
