"""One narrow stripe at a customer: packets of several lines and repairs to each message once, in order.

The first copy of a number wins. A gap that outlives the lines' skew is passed over by who wants what is newest, who
never asks; and asked for by who wants everything, again and again until it is there or nobody has it. Midnight does
not end that: what the new session has waits until the old one is whole, or its gaps are given up. Pure: the caller
says what time it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from isocast.feeds.mold import MoldPacket
from isocast.terms.instants import NEVER, SECOND

__all__ = ["Ask", "GapRules", "NarrowMessage", "SequencerCounts", "StripeSequencer"]

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
