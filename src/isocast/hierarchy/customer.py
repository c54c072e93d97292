"""A customer, R (§4.1; protocol §7): arbitrates its lines, has gaps repaired, and says when it is slow itself.

Everything that a customer keeps is bounded. Whatever happens to it, it asks nobody but retransmit servers, and those
give each customer a bounded share: a slow customer loses what its own sockets drop, notices it by the gap, and fetches
it again without anybody else noticing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from isocast.hierarchy.arbitration import Arbitration, Counters
from isocast.hierarchy.complete import Complete
from isocast.hierarchy.customer_settings import CustomerSettings, CustomerState, Grade, JoinPoint
from isocast.hierarchy.edge import (
    CustomerCaughtUp,
    CustomerEffect,
    CustomerSlow,
    FetchFailed,
    LinesPlanned,
    RangeArrived,
    RangeContinued,
    Slowness,
    SnapshotArrived,
    Waiting,
)
from isocast.hierarchy.joining import Joining
from isocast.hierarchy.line_choice import LineChoice
from isocast.hierarchy.lines import LineView
from isocast.hierarchy.newest import Newest
from isocast.ring.inputs import PacketsArrived, TimerFired
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Released

__all__ = ["Customer", "CustomerSnapshot"]


@dataclass(frozen=True, slots=True)
class CustomerSnapshot:
    """A customer's state for checkers and console."""

    customer: NodeId
    grade: Grade
    joined: bool
    next_sequence: int
    """The first that was not delivered; by grade latest, the first that was not seen."""
    newest: int
    """The highest sequence known."""
    held: int
    gaps: int
    keys: int
    slow: tuple[Slowness, ...]
    counters: Counters
    lines: tuple[LineView, ...]
    followed: NodeId | None = None
    """The line that it follows: the first of its list that speaks."""
    switches: int = 0
    """Times that this was another one than before."""
    waiting: Waiting | None = None
    """Why nothing can come now."""
    waiting_since: int = 0


class Customer:
    """The machine of one customer of one stripe."""

    def __init__(self, node: NodeId, settings: CustomerSettings, state: CustomerState | None = None) -> None:
        """Start, or go on where an earlier run stopped."""
        self.node = node
        self.settings = settings
        self._arbitration = Arbitration(node, settings)
        self._choice = LineChoice(settings, self._arbitration.lines.main)
        self._complete = Complete(self._arbitration)
        self._newest = Newest(self._arbitration) if settings.grade is Grade.LATEST else None
        self._joining: Joining | None = None
        self._slow: dict[Slowness, None] = {}
        self._tick_ns = settings.heartbeat_ns
        self._tick_at = 0
        self._deadline = 0
        self._last_now = -NEVER
        self._begin(state.next_sequence if state is not None else 0)

    def _begin(self, next_sequence: int) -> None:
        settings = self.settings
        if self._newest is None and (next_sequence or settings.join is JoinPoint.SEQUENCE):
            self._complete.start(next_sequence or settings.first_sequence, returns=next_sequence > 1)
        else:
            snapshot = self._newest is None and settings.join is JoinPoint.SNAPSHOT
            self._joining = Joining(self._arbitration, snapshot=snapshot)

    # The contract -------------------------------------------------------------------------------

    def step(self, event: object, now: int) -> tuple[CustomerEffect, ...]:
        """Take one input at local time `now`."""
        if now < self._last_now:
            self._set_back(now)
        elif now - self._deadline > self.settings.slow_ns and self._last_now > -NEVER:
            self._name(Slowness.STOPPED, now - self._deadline)
            self._arbitration.lines.slept(now)
            self._choice.slept(now)
        self._last_now = now
        # What it finds missing while it did not read in time, its own sockets have dropped.
        self._complete.alone = Slowness.STOPPED in self._slow or Slowness.LAGGING in self._slow
        service = self._joining or self._newest or self._complete
        match event:
            case PacketsArrived(packets):
                service.take(packets, now)
            case TimerFired():
                pass
            case RangeArrived() if isinstance(service, Complete):
                service.on_range(event, now)
            case RangeContinued() if isinstance(service, Complete):
                service.on_part(event, now)
            case SnapshotArrived():
                self._on_snapshot(event, now)
            case FetchFailed():
                service.on_failed(event, now)
            case LinesPlanned(lines) if lines:
                self._arbitration.lines.plan(lines, now)
            case _:
                pass
        if self._joining is not None:
            self._join(now)
        return self._settle(now)

    def next_deadline(self) -> int:
        """When the machine must be woken."""
        return self._deadline

    def snapshot(self) -> CustomerSnapshot:
        """For whoever watches."""
        complete, newest = self._complete, self._newest
        gaps = complete.gaps if newest is None else newest.gaps
        return CustomerSnapshot(
            self.node,
            self.settings.grade,
            self._joining is None,
            complete.next if newest is None else newest.top + 1,
            complete.claimed if newest is None else newest.top,
            len(self._joining.held) if self._joining is not None else len(complete.held),
            len(gaps),
            0 if newest is None else len(newest.table),
            tuple(self._slow),
            replace(self._arbitration.counters),
            self._arbitration.lines.views(),
            self._choice.followed,
            self._choice.switches,
            self._choice.waiting,
            self._choice.waiting_since,
        )

    def recall(self, first: int, last: int) -> tuple[Released, ...] | None:
        """Delivered messages that are still in memory, if the whole range is."""
        return self._arbitration.recent.recall(first, last) if last < self._complete.next else None

    # Steps --------------------------------------------------------------------------------------

    def _on_snapshot(self, event: SnapshotArrived, now: int) -> None:
        if self._joining is not None and self._newest is None:
            self._joining.on_snapshot(event)
        elif self._joining is None and self._newest is not None:
            self._newest.on_snapshot(event, now)

    def _join(self, now: int) -> None:
        """Begin, if it is known where, with what the lines brought meanwhile."""
        joining = self._joining
        if joining is None:
            return
        joining.poll(now)
        first = joining.first
        if first is None:
            return
        self._joining = None
        if self._newest is not None:
            self._newest.start(first, snapshot=self.settings.join is JoinPoint.SNAPSHOT)
        else:
            self._complete.start(first)
        waited = [joining.held[sequence] for sequence in sorted(joining.held) if sequence >= first]
        (self._newest or self._complete).take(waited, now)

    def _settle(self, now: int) -> tuple[CustomerEffect, ...]:
        """Whatever is due, then the effects and the next deadline."""
        arbitration = self._arbitration
        service = self._joining or self._newest or self._complete
        if service.next_deadline() <= now:
            service.poll(now)
        overflown = self._complete.overflown
        if overflown and arbitration.lines.corroborated(self._complete.claimed):
            self._name(Slowness.OVERFLOW, overflown)
        if now >= self._tick_at:
            self._tick(now)
        self._deadline = min(self._tick_at, service.next_deadline())
        return arbitration.flush() if arbitration.out else ()

    def _tick(self, now: int) -> None:
        """Once for each heartbeat: look at the lines, and at ourselves."""
        if now - self._tick_at <= self.settings.slow_ns:
            self._clear(Slowness.STOPPED)
        self._tick_at = now + self._tick_ns
        arbitration, slow_ns = self._arbitration, self.settings.slow_ns
        arbitration.out.extend(arbitration.lines.tick(now))
        arbitration.out.extend(self._choice.tick(now))
        lag_ns = arbitration.lines.reader_lag_ns()
        lagging = Slowness.LAGGING in self._slow
        if lag_ns > (slow_ns // 2 if lagging else slow_ns):
            self._name(Slowness.LAGGING, lag_ns)
        else:
            self._clear(Slowness.LAGGING)
        if not self._complete.overflown:
            self._clear(Slowness.OVERFLOW)
        if self._joining is not None:
            return
        if self._newest is not None:
            self._newest.tick()
        elif self._choice.waiting is not None:
            self._complete.probe(now)

    def _name(self, reason: Slowness, behind: int) -> None:
        if reason not in self._slow:
            self._slow[reason] = None
            self._arbitration.counters.slow += 1
            self._arbitration.out.append(CustomerSlow(self.node, reason, behind))

    def _clear(self, reason: Slowness) -> None:
        if reason in self._slow:
            del self._slow[reason]
            self._arbitration.out.append(CustomerCaughtUp(self.node, reason))

    def _set_back(self, now: int) -> None:
        """Somebody set the clock back: nothing waits for the difference."""
        self._tick_at = min(self._tick_at, now + self._tick_ns)
        self._arbitration.lines.set_back(now)
        for service in (self._joining, self._newest, self._complete):
            if service is not None:
                service.set_back(now, self.settings.retry_ns)
