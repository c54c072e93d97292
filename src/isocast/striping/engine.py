"""Released messages to packets of narrow stripes: sessions, numbers, budgets, and the state to go on from.

A function of the sequence: whoever was given the same messages and plans makes the same bytes, from a snapshot too. A
session is a stripe on a day, by the instants at which its packets leave.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, timedelta
from typing import NamedTuple

from isocast.feeds.days import DayClock, day_at, midnight_ns
from isocast.feeds.mold import SessionEnd, packet_of, session_name
from isocast.feeds.release_stamps import stamp_milliseconds
from isocast.feeds.stripe_writer import StripeWriter
from isocast.striping.edge import EdgeSettings, EdgeStriper
from isocast.striping.edge_queue import EdgePacket
from isocast.striping.edge_snapshot import read_striper_snapshot, write_striper_snapshot
from isocast.striping.plan import StripePlan
from isocast.striping.rates import budget_bytes
from isocast.striping.released import ReleasedPart
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.wire.limits import MAX_NUMBER

__all__ = ["EngineState", "StripeEngine", "StripePacket", "read_engine_state"]

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
    """The head of a snapshot: what a reader must know before restoring it."""

    core: int
    plan_digest: bytes
    plan_version: int
    next_sequence: int
    sessions: dict[int, tuple[int, int, int]]
    delay_ns: int
    striper: bytes


class StripeEngine:
    """The narrow stripes of one core stripe."""

    striper_class: type[EdgeStriper] = EdgeStriper

    def __init__(self, plan: StripePlan, core: int, settings: EdgeSettings, delay_ns: int = 0) -> None:
        """At the beginning of the sequence; packets leave `delay_ns` behind the instants that their stripe gives them.

        By then every receiver has made them, so that all send together.
        """
        self.striper = self.striper_class(plan, core, settings)
        self.settings = settings
        self.delay_ns = delay_ns
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
            due = packet.due + self.delay_ns
            made += self._enter_day(due)
            made.append(self._written(packet, due, plan))
        return made

    def _enter_day(self, due: int) -> Iterable[SessionEnd]:
        """With the first packet of a day all sessions of the day before are over: nothing of them comes any more."""
        first, last = self._bounds
        if first <= due < last:
            return []
        self._begin(day_at(due, self.settings.zone))
        over = {stripe: row for stripe, row in self._sessions.items() if row[0] < self._day.toordinal()}
        for stripe in over:
            del self._sessions[stripe]
        return [
            SessionEnd(stripe, session_name(date.fromordinal(day), stripe), following - base + 1)
            for stripe, (day, base, following) in sorted(over.items())
        ]

    def _begin(self, day: date) -> None:
        zone = self.settings.zone
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
        budget = budget_bytes(rate, self.settings.token_period_ns)
        raw = packet_of(session, number, packet.count, framed)
        return StripePacket(packet.stripe, session, number, packet.count, due, budget, raw)

    # ---- state

    def snapshot(self) -> bytes:
        """Everything that the future depends on."""
        sessions = {str(stripe): list(session) for stripe, session in self._sessions.items()}
        head = json.dumps({"delay": self.delay_ns, "sessions": sessions}).encode()
        striper = write_striper_snapshot(self.striper.snapshot())
        return _MAGIC + len(head).to_bytes(_LENGTH_BYTES) + head + striper

    def restore(self, state: EngineState) -> None:
        """Go on where a snapshot was taken; its plan must have been learned."""
        if state.delay_ns != self.delay_ns:
            raise LocalProtocolError(f"a snapshot with a delay of {state.delay_ns} ns, not of {self.delay_ns}")
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
