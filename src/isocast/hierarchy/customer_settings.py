"""What a customer is told before it starts: its lines, its grade of service, its patience and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from isocast.hierarchy.latest import KEYS_MAX
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NodeId
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import Grade
from isocast.terms.timing import Timing

__all__ = ["CustomerSettings", "CustomerState", "Grade", "JoinPoint", "quiet_ring_ns"]

LEAST_HEARTBEAT_NS = 20 * MILLISECOND
"""Fifty small packets a second on an idle line; quicker than that a loaded machine is heard as a silent one."""
SILENT_HEARTBEATS = 5
"""Heartbeats missed in a row before a line is called silent: at 5 % loss a false alarm every 3 million."""


def quiet_ring_ns(timing: Timing, silent_ns: int) -> int:
    """When a ring counts as being re-formed: two tokens are overdue, and not because heartbeats were lost."""
    return 2 * timing.token_period_ns + timing.late_ns + silent_ns


class JoinPoint(StrEnum):
    """Where a customer that has no position yet begins."""

    NOW = "now"
    """With whatever the lines send next."""
    SEQUENCE = "sequence"
    """With `first_sequence`, fetched if it is past."""
    SNAPSHOT = "snapshot"
    """With a server's snapshot, and the message after it."""


@dataclass(slots=True)
class CustomerState:
    """What a customer remembers from an earlier run: the driver writes down what it delivered."""

    next_sequence: int = 0
    """The first sequence that was not delivered; 0 without an earlier run."""


@dataclass(frozen=True, slots=True)
class CustomerSettings:
    """One customer of one stripe."""

    lines: tuple[NodeId, ...]
    """The receivers whose lines it hears: two or more, so that one may fail."""
    servers: tuple[NodeId, ...] = ()
    """The retransmit servers that it may ask, the nearest first. Their lines, which carry repairs, are heard too.
    A receiver with a door may be a line and a server."""
    grade: Grade = Grade.COMPLETE
    """Everything, or the newest only."""
    last_resorts: tuple[NodeId, ...] = field(default=(), kw_only=True)
    """Receivers at whose doors ranges are fetched when no server gave them in two rounds: one that is down, or stuck,
    must not keep a customer from what others have. What is lost for good, the servers decide."""
    stripe: int = 0
    """Which stripe it follows."""
    join: JoinPoint = JoinPoint.NOW
    """Where it begins."""
    first_sequence: int = 1
    """For a start from a sequence."""
    gap_ns: int = 50 * MILLISECOND
    """How long a gap may last before it is no mere difference between lines."""
    retry_ns: int = 100 * MILLISECOND
    """Between two requests for the same gap."""
    retries_max: int = 4
    """Requests to one server before the next one is asked."""
    by_datagram: bool = True
    """Whether small gaps are asked for by RXREQ; otherwise everything is fetched at doors."""
    heartbeat_ns: int = 100 * MILLISECOND
    """How often an idle line is heard."""
    silent_ns: int = 500 * MILLISECOND
    """When a line counts as silent."""
    late_ns: int = 50 * MILLISECOND
    """How far behind the first copy a line's copies may be."""
    ring_ns: int = 10 * SECOND
    """How long no line may speak of a new token before the ring counts as being re-formed."""
    slow_ns: int = 500 * MILLISECOND
    """How late a customer may read, or wake, before it names itself."""
    hold_max: int = 32_768
    """Sequences that may wait for a gap. Bounds: 32,768 packets of 1,472 bytes are 48 MB, 0.9 s of a million events."""
    recent_max: int = 4_096
    """Messages kept to compare later copies with, a power of two: 0.1 s of a million events a second, 6 MB."""
    gaps_max: int = 4_096
    """Gaps that are told apart. Bounds: with more, the highest takes in whatever follows."""
    ask_max: int = 1_024
    """Messages asked for by RXREQ at one time; who lacks more was away, and fetches."""
    range_max: int = 256
    """Messages in one RXREQ."""
    requests_max: int = 32
    """RXREQ packets at one time."""
    fetch_max: int = 4_096
    """Messages in one fetch at a door: 6 MB."""
    keys_max: int = KEYS_MAX
    """Keys of the table of latest events."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.lines:
            raise LocalProtocolError("a customer needs a line, better two")
        if any(len(nodes) != len(dict.fromkeys(nodes)) for nodes in (self.lines, self.servers, self.last_resorts)):
            raise LocalProtocolError("a line or server is named twice")
        if not self.servers and (self.grade is Grade.COMPLETE or self.join is JoinPoint.SNAPSHOT):
            raise LocalProtocolError("grade complete, and a start from a snapshot, need a retransmit server")
        if self.grade is Grade.LATEST and self.join is JoinPoint.SEQUENCE:
            raise LocalProtocolError("grade latest never asks for the past: start it now or from a snapshot")
        if self.recent_max < 1 or self.recent_max & (self.recent_max - 1):
            raise LocalProtocolError("recent_max must be a power of two")
        spans = (
            self.gap_ns,
            self.retry_ns,
            self.heartbeat_ns,
            self.silent_ns,
            self.late_ns,
            self.ring_ns,
            self.slow_ns,
        )
        counts = (
            self.retries_max,
            self.hold_max,
            self.gaps_max,
            self.ask_max,
            self.range_max,
            self.requests_max,
            self.fetch_max,
            self.keys_max,
            self.first_sequence,
        )
        if min(spans) <= 0 or min(counts) < 1:
            raise LocalProtocolError("every span and every bound of a customer must be positive")

    @classmethod
    def from_timing(
        cls,
        timing: Timing,
        lines: tuple[NodeId, ...],
        servers: tuple[NodeId, ...] = (),
        grade: Grade = Grade.COMPLETE,
        join: JoinPoint | None = None,
        *,
        stripe: int = 0,
        first_sequence: int = 1,
    ) -> CustomerSettings:
        """Spans from the ring's own: a line is at most δ_N behind another, and releases differ by 2ε.

        Without a `join`, grade `latest` begins with a snapshot where there is a server, everybody else now.
        """
        if join is None:
            join = JoinPoint.SNAPSHOT if grade is Grade.LATEST and servers else JoinPoint.NOW
        heartbeat_ns = max(timing.detect_ns, LEAST_HEARTBEAT_NS)
        return cls(
            lines,
            servers,
            grade,
            stripe,
            join,
            first_sequence,
            gap_ns=timing.late_ns,
            retry_ns=timing.retry_ns,
            retries_max=timing.retries_max,
            heartbeat_ns=heartbeat_ns,
            silent_ns=SILENT_HEARTBEATS * heartbeat_ns,
            late_ns=timing.late_ns,
            ring_ns=quiet_ring_ns(timing, SILENT_HEARTBEATS * heartbeat_ns),
            slow_ns=SILENT_HEARTBEATS * heartbeat_ns,
        )
