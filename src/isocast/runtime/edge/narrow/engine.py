"""Released messages to packets of narrow stripes and back to messages: sessions, numbers, budgets, another's state.

A function of the sequence: whoever was given the same messages and plans makes the same bytes, from a snapshot too. A
session is a stripe on a day, by the instants at which its packets leave.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from isocast.feeds.days import DayClock, day_at, midnight_ns
from isocast.feeds.mold import MoldPacket, packet_of
from isocast.feeds.release_stamps import stamp_milliseconds
from isocast.feeds.stripe_writer import StripeWriter
from isocast.runtime.edge.feed import SessionEnd, session_name
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.net.door import visit
from isocast.runtime.net.door_keys import core_door_key, core_visitor
from isocast.striping.edge import EdgeSettings, EdgeStriper
from isocast.striping.edge_queue import EdgePacket
from isocast.striping.edge_snapshot import read_striper_snapshot, write_striper_snapshot
from isocast.striping.plan import StripePlan
from isocast.striping.rates import budget_bytes
from isocast.striping.released import ReleasedPart
from isocast.terms.errors import IsocastError, LocalProtocolError, RemoteProtocolError
from isocast.terms.instants import NEVER, SECOND
from isocast.wire.door import Snapshot, SnapshotWanted
from isocast.wire.limits import MAX_NUMBER

__all__ = [
    "Ask",
    "EngineState",
    "GapRules",
    "NarrowMessage",
    "RateGate",
    "RateMeter",
    "SequencerCounts",
    "StripeEngine",
    "StripePacket",
    "StripeSequencer",
    "newest_state",
    "read_engine_state",
]


_MAGIC = b"ICEE"
_LENGTH_BYTES = 4


class StripePacket(NamedTuple):
    """A packet of a narrow stripe, as it is sent."""

    stripe: int
    session: bytes
    number: int
    """Of its first message, in its session."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    due: int
    budget: int
    """IP bytes that its stripe may send in any token period."""
    raw: bytes


class EngineState(NamedTuple):
    """A snapshot that somebody wrote, as far as one must know before restoring it."""

    core: int
    plan_digest: bytes
    plan_version: int
    next_sequence: int
    sessions: dict[int, tuple[int, int, int]]
    delay_ns: int
    striper: bytes


class StripeEngine:
    """The narrow stripes of one core stripe."""

    def __init__(
        self, plan: StripePlan, core: int, settings: EdgeSettings, delay_ns: int = 0, first_sequence: int = 1
    ) -> None:
        """At the beginning of the sequence; packets leave `delay_ns` behind the instants that their stripe gives them.

        By then every receiver has made them, so that all send together.
        """
        self.striper = EdgeStriper(plan, core, settings, first_sequence)
        self._settings = settings
        self._delay_ns = delay_ns
        self._writer = StripeWriter(0)
        self._day = date.min
        self._bounds = (0, 0)
        self._sessions: dict[int, tuple[int, int, int]] = {}
        """Of each stripe: the day of its session, and the stripe's own numbers of its first message and its next."""

    @property
    def next_sequence(self) -> int:
        """Of the core."""
        return self.striper.next_sequence

    def step(self, part: ReleasedPart) -> list[StripePacket | SessionEnd]:
        """Messages that were released, in sequence; what is to be sent for them, in the order of time."""
        # Before the step: a plan that it brings into force is in force behind it.
        plan = self.striper.plan
        made: list[StripePacket | SessionEnd] = []
        for packet in self.striper.step(part):
            due = packet.due + self._delay_ns
            made += self._enter_day(due)
            made.append(self._written(packet, due, plan))
        return made

    def _enter_day(self, due: int) -> Iterable[SessionEnd]:
        """With the first packet of a day all sessions of the day before are over: nothing of them comes any more."""
        first, last = self._bounds
        if first <= due < last:
            return []
        self._begin(day_at(due, self._settings.zone))
        over = {stripe: row for stripe, row in self._sessions.items() if row[0] < self._day.toordinal()}
        for stripe in over:
            del self._sessions[stripe]
        return [
            SessionEnd(stripe, session_name(date.fromordinal(day), stripe), following - base + 1)
            for stripe, (day, base, following) in sorted(over.items())
        ]

    def _begin(self, day: date) -> None:
        zone = self._settings.zone
        self._day = day
        self._bounds = midnight_ns(day, zone), midnight_ns(day + timedelta(days=1), zone)
        self._writer = StripeWriter(DayClock.at(day, zone))

    def _written(self, packet: EdgePacket, due: int, plan: StripePlan) -> StripePacket:
        day = self._day.toordinal()
        _, base, _ = self._sessions.get(packet.stripe, (day, packet.number, 0))
        self._sessions[packet.stripe] = day, base, packet.number + packet.count
        number = packet.number - base + 1
        numbers = {} if self.striper.directory is None else self.striper.directory.numbers(packet.stripe)
        framed = stamp_milliseconds(self._writer.messages(packet.events, numbers, plan.version), due)
        session = session_name(self._day, packet.stripe).encode("ascii")
        rate = plan.by_number[packet.stripe].rate if packet.stripe in plan.by_number else 0
        budget = budget_bytes(rate, self._settings.token_period_ns)
        raw = packet_of(session, number, packet.count, framed)
        return StripePacket(packet.stripe, session, number, packet.count, due, budget, raw)

    # ---- state

    def snapshot(self) -> bytes:
        """Everything that the future depends on."""
        sessions = {str(stripe): list(session) for stripe, session in self._sessions.items()}
        head = json.dumps({"delay": self._delay_ns, "sessions": sessions}).encode()
        striper = write_striper_snapshot(self.striper.snapshot())
        return _MAGIC + len(head).to_bytes(_LENGTH_BYTES) + head + striper

    def restore(self, state: EngineState) -> None:
        """Go on where a snapshot was taken; its plan must have been learned."""
        if state.delay_ns != self._delay_ns:
            raise LocalProtocolError(f"a snapshot with a delay of {state.delay_ns} ns, not of {self._delay_ns}")
        self.striper.restore(read_striper_snapshot(state.striper))
        self._sessions = dict(state.sessions)
        self._bounds = (0, 0)
        days = [day for day, _, _ in self._sessions.values()]
        if days:
            self._begin(date.fromordinal(max(days)))


def read_engine_state(raw: bytes) -> EngineState:
    """What a snapshot is of; RemoteProtocolError for anything else."""
    at = len(_MAGIC) + _LENGTH_BYTES
    if not raw.startswith(_MAGIC) or len(raw) < at:
        raise RemoteProtocolError("not a snapshot of the narrow stripes")
    end = at + int.from_bytes(raw[len(_MAGIC) : at])
    striper = read_striper_snapshot(raw[end:])
    try:
        head = json.loads(raw[at:end])
        rows, delay_ns = head["sessions"], int(head["delay"])
        sessions = {int(stripe): _session(*row) for stripe, row in rows.items()}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as reason:
        raise RemoteProtocolError("sessions of a snapshot of the narrow stripes that make no sense") from reason
    return EngineState(
        striper.core, striper.plan_digest, striper.plan_version, striper.next_sequence, sessions, delay_ns, raw[end:]
    )


def _session(day: object, base: object, following: object) -> tuple[int, int, int]:
    """A day that has a next one, and numbers that a packet can have; an error for others."""
    if not (isinstance(day, int) and isinstance(base, int) and isinstance(following, int)):
        raise TypeError("not numbers")
    if not 1 <= base <= following <= MAX_NUMBER:
        raise ValueError("numbers out of order")
    date.fromordinal(day + 1)
    date.fromordinal(day)
    return day, base, following


# ---- Bytes in any span of one length, wherever it begins: kept below a budget, or measured.


class RateGate:
    """Lets at most a budget leave in any span. What left is noted when its sending is over."""

    def __init__(self, span_ns: int, begun: int) -> None:
        """Nothing leaves for a span after `begun`: who has just started does not know what left before."""
        self._span_ns = span_ns
        self._first = begun + span_ns
        self._recent: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def room_at(self, size: int, budget: int, now: int) -> int:
        """When so many bytes may leave: now, or some time before it, if at once."""
        while self._recent and self._recent[0][0] + self._span_ns <= now:
            self._bytes -= self._recent.popleft()[1]
        at, left = self._first, self._bytes
        for sent_at, sent in self._recent:
            if left + size <= budget:
                break
            at = max(at, sent_at + self._span_ns)
            left -= sent
        return at

    def note(self, over: int, size: int) -> None:
        """So many bytes left, and the call that sent them returned at this instant."""
        self._recent.append((over, size))
        self._bytes += size


class RateMeter:
    """The most bytes that came in any span. What came is told in any order, as several sockets are read in turn."""

    def __init__(self, span_ns: int, slack_ns: int = 2 * SECOND) -> None:
        """Nothing came; `slack_ns` is how late something may be told of."""
        self.total = 0
        self._span_ns = span_ns
        self._slack_ns = slack_ns
        self._untold: list[tuple[int, int]] = []
        self._newest = 0
        self._recent: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._peak = 0

    def note(self, at: int, size: int) -> None:
        """So many bytes came at an instant."""
        self.total += size
        self._newest = max(self._newest, at)
        heappush(self._untold, (at, size))
        while self._untold[0][0] <= self._newest - self._slack_ns:
            self._count(*heappop(self._untold))

    @property
    def peak(self) -> int:
        """Up to now."""
        copy = RateMeter(self._span_ns)
        copy._recent, copy._bytes, copy._peak = deque(self._recent), self._bytes, self._peak
        for at, size in sorted(self._untold):
            copy._count(at, size)
        return copy._peak

    def _count(self, at: int, size: int) -> None:
        while self._recent and self._recent[0][0] + self._span_ns <= at:
            self._bytes -= self._recent.popleft()[1]
        self._recent.append((at, size))
        self._bytes += size
        self._peak = max(self._peak, self._bytes)


# ---- One narrow stripe at a customer: packets of several lines and repairs to each message once, in order.
#
# The first copy of a number wins. A gap that outlives the lines' skew is passed over by who wants what is newest, who
# never asks; and asked for by who wants everything, again and again until it is there or nobody has it. Midnight does
# not end that: what the new session has waits until the old one is whole, or its gaps are given up. Pure: the caller
# says what time it is.


_WAITING_MAX = 65_536
"""Bounds: messages that wait for one that is missing."""
_RANGES_MAX = 8
"""Holes that are asked for at once."""
_COUNT_MAX = 1_000
_END_NS = 3 * SECOND
"""How long the end of a session is waited for when the next one has begun: it is said every second."""


class NarrowMessage(NamedTuple):
    """A message of a stripe."""

    session: bytes
    number: int
    framed: bytes
    """With its length before it."""


class Ask(NamedTuple):
    """What a retransmit server should be asked for."""

    session: bytes
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls


@dataclass(frozen=True, slots=True)
class GapRules:
    """What a customer does about gaps."""

    complete: bool
    wait_ns: int
    """Before a gap counts: the skew of lines."""
    retry_ns: int
    retries_max: int = 20
    from_first: bool = False
    """Whether a session is wanted from its first message on, however late one joins."""


@dataclass(slots=True)
class SequencerCounts:
    """What happened so far."""

    messages: int = 0
    repeated: int = 0
    """Copies of what was had: the other line, or a repair that somebody else asked for."""
    repaired: int = 0
    lost: int = 0
    gaps: int = 0
    asked: int = 0
    """Requests, each for a hole."""


@dataclass(slots=True)
class StripeSequencer:
    """Follows one stripe from the first packet that it hears."""

    stripe: int
    rules: GapRules
    counts: SequencerCounts = field(default_factory=SequencerCounts)
    session: bytes = b""
    next_number: int = 0
    """0: nothing was heard."""
    ended: bool = False
    _top: int = 0
    """Behind the highest number that is known to exist."""
    _waiting: dict[int, bytes] = field(default_factory=dict)
    _ready: list[NarrowMessage] = field(default_factory=list)
    _gap_since: int = NEVER
    _asked_at: int = 0
    _retries: int = 0
    _entered_at: int = 0
    """When the session followed the one before."""
    _old: StripeSequencer | None = None
    """The session before, while something of it may be missing."""

    def receive(self, packet: MoldPacket, now: int, *, repair: bool = False) -> None:
        """A packet of a line, or of a server."""
        if self._old is not None and packet.session == self._old.session:
            self._old.receive(packet, now, repair=repair)
            self._close_old(now)
            return
        if packet.session != self.session and not self._enter(packet, now, repair=repair):
            return
        self.ended |= packet.is_end
        self._top = max(self._top, packet.sequence + packet.messages)
        bounds = (*packet.places, len(packet.body))
        for offset, (start, stop) in enumerate(pairwise(bounds)):
            number = packet.sequence + offset
            if number < self.next_number or number in self._waiting:
                self.counts.repeated += 1
            elif number == self.next_number or len(self._waiting) < _WAITING_MAX:
                self._waiting[number] = packet.body[start:stop]
                self.counts.repaired += repair
        self._drain(now)
        self._close_old(now)

    def poll(self, now: int) -> list[Ask]:
        """What is to be asked for now; who never asks gives up what is missing."""
        if self._old is None:
            return self._poll(now)
        asks = self._old.poll(now) + self._poll(now)
        self._close_old(now)
        return asks

    def _poll(self, now: int) -> list[Ask]:
        if self._gap_since == NEVER or now < self._deadline():
            return []
        if not self.rules.complete or self._retries >= self.rules.retries_max:
            self._pass_over(now)
            return []
        self._asked_at, self._retries = now, self._retries + 1
        asks = [Ask(self.session, first, count) for first, count in self._holes()]
        self.counts.asked += len(asks)
        return asks

    def next_deadline(self) -> int:
        """When `poll` has something to do."""
        own = NEVER if self._gap_since == NEVER else self._deadline()
        if self._old is None:
            return own
        gap = self._old.next_deadline()
        return min(own, gap if gap != NEVER else self._entered_at + _END_NS)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing of what is known to exist."""
        return bool(self.session) and self._gap_since == NEVER and self._old is None

    def take(self) -> list[NarrowMessage]:
        """Messages in order, each once."""
        if self._old is not None:
            return self._old.take()
        ready, self._ready = self._ready, []
        return ready

    def _deadline(self) -> int:
        return self._asked_at + self.rules.retry_ns if self._retries else self._gap_since + self.rules.wait_ns

    def _enter(self, packet: MoldPacket, now: int, *, repair: bool) -> bool:
        """A new session begins with 1. One from before those that are followed is none of ours."""
        if packet.session < self.session or (repair and packet.session != self.session):
            return False
        known = bool(self.session)
        if known:
            self._leave(now)
        self.session, self.ended = packet.session, False
        self.next_number = self._top = 1 if known or self.rules.from_first else packet.sequence
        self._settle()
        return True

    def _leave(self, now: int) -> None:
        """What is missing of the session is still asked for by who wants everything, and lost for all others."""
        if self._old is not None:
            self._give_up_old(self._old)
        if not self.rules.complete or (self.ended and self.next_number >= self._top):
            self._abandon()
            return
        self._old = StripeSequencer(**{name: getattr(self, name) for name in StripeSequencer.__slots__})
        self._waiting, self._ready, self._entered_at = {}, [], now

    def _abandon(self) -> None:
        """Nothing more comes: what is missing is lost."""
        self.counts.lost += self._top - self.next_number - len(self._waiting)
        self.counts.messages += len(self._waiting)
        self._ready += [NarrowMessage(self.session, number, self._waiting[number]) for number in sorted(self._waiting)]
        self._waiting = {}

    def _close_old(self, now: int) -> None:
        """Go on with the new session, once the old one is whole; or when too much waits for it."""
        old = self._old
        if old is None:
            return
        over = old.is_whole and (old.ended or now >= self._entered_at + _END_NS)
        if over or len(self._ready) > _WAITING_MAX:
            self._give_up_old(old)

    def _give_up_old(self, old: StripeSequencer) -> None:
        old._abandon()
        self._ready = old.take() + self._ready
        self._old = None

    def _drain(self, now: int) -> None:
        before = self.next_number
        while (framed := self._waiting.pop(self.next_number, None)) is not None:
            self._ready.append(NarrowMessage(self.session, self.next_number, framed))
            self.counts.messages += 1
            self.next_number += 1
        if self.next_number >= self._top:
            self._settle()
        elif self._gap_since == NEVER or self.next_number != before:
            self.counts.gaps += 1
            self._gap_since, self._retries = now, 0

    def _settle(self) -> None:
        self._gap_since, self._retries = NEVER, 0

    def _pass_over(self, now: int) -> None:
        """Go on behind the first hole."""
        following = min(self._waiting, default=self._top)
        self.counts.lost += following - self.next_number
        self.next_number = following
        self._settle()
        self._drain(now)

    def _holes(self) -> list[tuple[int, int]]:
        holes: list[tuple[int, int]] = []
        number = self.next_number
        for have in [*sorted(self._waiting), self._top]:
            if have > number:
                holes.append((number, min(have - number, _COUNT_MAX)))
            if len(holes) >= _RANGES_MAX:
                break
            number = have + 1
        return holes


# ---- The state of another receiver's narrow stripes, for one whose journal does not say all that happened.
#
# A receiver that was away long enough fills its journal from others, and what it gets so does not say which plans were
# announced meanwhile. Any other edge of the same stripe knows the next numbers, what waits and what was introduced.


_SILENCE_S = 5.0


async def newest_state(market: Market, plan: NodePlan, above: int) -> tuple[str, EngineState] | None:
    """Whose state is newest, and it; None where nobody has one that begins behind a sequence."""
    others = [one for one in market.receivers if one.line and one.tcp_port and one is not plan]
    others = [one for one in others if one.stripe == plan.stripe]
    found = await asyncio.gather(*[_state_of(market, plan, other) for other in others])
    states = [(other.name, state) for other, state in zip(others, found, strict=True) if state is not None]
    states = [(name, state) for name, state in states if state.next_sequence > above and state.core == plan.stripe]
    return max(states, key=lambda one: one[1].next_sequence, default=None)


async def _state_of(market: Market, plan: NodePlan, other: NodePlan) -> EngineState | None:
    name = core_visitor(plan)
    try:
        key = core_door_key(market, load_keys(market, plan), name)
        if key is None:
            return None
        here = await visit(other.address, other.tcp_port, name, key)
        try:
            await here.send(SnapshotWanted())
            async with asyncio.timeout(_SILENCE_S):
                return read_engine_state((await here.expect(Snapshot)).events)
        finally:
            await here.close()
    except (IsocastError, OSError, TimeoutError, ValueError):
        return None
