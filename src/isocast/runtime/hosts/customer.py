"""A customer as a process, or inside a program that listens: lines in, one sequence out.

As a process a complete customer writes what it gets to a journal of its own. The journal is also its memory: started
again, it goes on with the sequence after the last whole block, and fetches what it missed. A program's seat has no
disk. Its messages go to a sink, which may be full: then the machine is laid to sleep, the sockets are read on and what
they bring is dropped, and when there is room again a new machine goes on with the first message that found none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import CustomerSettings, CustomerState, Grade, JoinPoint
from isocast.hierarchy.edge import (
    ConflictFound,
    Deliver,
    DeliverLatest,
    DeliverSnapshot,
    FetchRange,
    FetchSnapshot,
    TokensPassed,
)
from isocast.ring.effects import Record
from isocast.runtime.disk.journal import Journal
from isocast.runtime.disk.released_blocks import blocks_of
from isocast.runtime.hosts.context import Context
from isocast.runtime.hosts.edge_report import EdgeReport
from isocast.runtime.hosts.edge_settings import customer_settings
from isocast.runtime.hosts.fetching import Fetcher
from isocast.runtime.hosts.line_following import LineFollowing
from isocast.runtime.market.founding import begun
from isocast.runtime.market.model import NodePlan
from isocast.runtime.net.channels import NodeKeys
from isocast.runtime.watch.counters import NodeGauges
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.wire.limits import EVENT_BYTES

__all__ = ["CustomerHost", "Delivery", "Seat", "Sink"]

Delivery: TypeAlias = Deliver | DeliverLatest | DeliverSnapshot | TokensPassed


class Sink(Protocol):
    """Where a program gets its messages from."""

    def take(self, delivery: Delivery, now: int) -> bool:
        """Keep it; False when there is no room, which only a complete service may be told."""


@dataclass(frozen=True, slots=True)
class Seat:
    """How a program in this process listens, whatever the market's file says of the node."""

    grade: Grade
    join: JoinPoint | None
    first_sequence: int
    sink: Sink


class _Asleep:
    """The machine of a seat whose sink is full."""

    def step(self, event: object, now: int) -> tuple[()]:  # noqa: ARG002
        """Whatever it is, it is fetched again."""
        return ()

    def next_deadline(self) -> int:
        """Nothing is waited for."""
        return NEVER


_ASLEEP = _Asleep()


class CustomerHost:
    """What surrounds the machine of one customer."""

    def __init__(self, context: Context, seat: Seat | None = None) -> None:
        """Open journal and sockets; without a seat the node is what the market's file says."""
        self._context = context
        self._seat = seat
        self._counters = context.counters
        self._clock = context.clock
        plan = context.plan
        self.grade = Grade(plan.grade.value) if seat is None else seat.grade
        self._settings = self._customer_settings()
        self.journal: Journal | None = None
        state = CustomerState()
        if seat is None and self.grade is Grade.COMPLETE:
            self.journal = Journal.open(
                context.directory / "journal", context.stripe, plan.node, context.journal_settings()
            )
            if self.journal.position.token_number:
                state.next_sequence = self.journal.position.next_sequence
        try:
            self._channels = context.channels(plan.node, NodeKeys(edge=context.keys.edge_ring()))
        except BaseException:
            self._close_journal()
            raise
        self.machine = Customer(plan.node, self._settings, state)
        self.driver = context.driver(self.machine, self, self._channels)
        self._following = LineFollowing(context, self._channels, self.driver, self._lines_planned, keeps=seat is None)
        self._fetcher = Fetcher(context, self._feed)
        self._report = EdgeReport(context, self._fetcher, self.grade)
        self._report.has_position = state.next_sequence > 0
        self._behind_from = 0
        self._stopped = False

    def _customer_settings(self) -> CustomerSettings:
        context, seat = self._context, self._seat
        if seat is not None:
            return customer_settings(context, seat.grade, seat.join, first_sequence=seat.first_sequence)
        # A node that is to have every message begins with the first that anybody keeps.
        join = JoinPoint.SEQUENCE if self.grade is Grade.COMPLETE else None
        return customer_settings(context, self.grade, join)

    def _lines_planned(self, lines: tuple[NodeId, ...]) -> None:
        """A machine that begins later begins with these."""
        self._settings = replace(self._settings, lines=lines)

    # The driver's side --------------------------------------------------------------------------

    def persist(self, records: list[Record]) -> None:
        """A customer has no records: its journal is written as messages are delivered."""

    def perform(self, effect: object, now: int) -> None:
        """Do one effect of a customer."""
        match effect:
            case Deliver():
                self._deliver(effect, now)
            case DeliverLatest():
                self._deliver_latest(effect, now)
            case DeliverSnapshot(snapshot):
                self._report.has_position = True
                self._hand_over(effect, now)
                self._context.log.info("begins with a snapshot", next_sequence=snapshot.next_sequence)
            case TokensPassed():
                if not self._behind_from:
                    self._hand_over(effect, now)
            case FetchRange() | FetchSnapshot():
                self._fetcher.fetch(effect)
            case _:
                self._report.tell(effect)

    def next_deadline(self) -> int:
        """None of its own."""
        return NEVER

    def wake(self, now: int) -> None:
        """Nothing to do."""

    def _feed(self, event: object) -> None:
        if not self._stopped:
            self.driver.feed(event)

    def on_conflict(self, told: Callable[[ConflictFound], None]) -> None:
        """Tell of every copy that differs from the first."""
        self._report.conflict_found = told

    @property
    def plan(self) -> NodePlan:
        """Which customer of the market it is."""
        return self._context.plan

    # Deliveries ---------------------------------------------------------------------------------

    def _deliver(self, effect: Deliver, now: int) -> None:
        if self._behind_from:
            return
        self._report.has_position = True
        journal, packets = self.journal, effect.packets
        if journal is not None:
            bound_ns = self._clock.status.bound_ns or 0
            delay_ns = self._context.market.timing.release_delay_ns
            for block in blocks_of(packets, journal.position, now, delay_ns, bound_ns):
                journal.append(block)
        if not self._hand_over(effect, now):
            self._fall_behind(effect.first)
            return
        self._counters.messages_received += len(packets)
        self._counters.events_received += sum([len(packet.payload) for packet in packets]) // EVENT_BYTES

    def _deliver_latest(self, effect: DeliverLatest, now: int) -> None:
        self._hand_over(effect, now)
        self._counters.events_received += len(effect.payload) // EVENT_BYTES

    def _hand_over(self, delivery: Delivery, now: int) -> bool:
        return self._seat is None or self._seat.sink.take(delivery, now)

    # A sink that was full -----------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether messages found no room; `catch_up` once there is some."""
        return self._behind_from > 0

    def _fall_behind(self, sequence: int) -> None:
        self._behind_from = sequence
        self._report.collect(self.machine.snapshot(), ends=True)
        self.driver.machine = _ASLEEP
        self._context.alarm(
            "slow-reader",
            f"the program that listens as {self._context.plan.name} does not keep up: it rests at sequence {sequence}",
            "read faster, or listen with the grade latest; nothing is lost, it is fetched once there is room",
        )

    def catch_up(self) -> None:
        """There is room: go on with the first message that found none."""
        if self._behind_from and not self._stopped:
            state = CustomerState(self._behind_from)
            self._behind_from = 0
            self.machine = self.driver.machine = Customer(self._context.plan.node, self._settings, state)
            self.driver.rearm()

    # Life ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin."""
        if self._seat is None:
            begun(self._context.directory)
        self.driver.start()
        self._following.start()

    def tick(self, now: int) -> None:
        """Bring counts up to date, trim the past."""
        self._clock.check()
        self._channels.collect()
        self._following.tick(now)
        if not self._behind_from:
            snapshot = self.machine.snapshot()
            self._report.collect(snapshot)
            if self.grade is Grade.LATEST:
                self._counters.messages_received = snapshot.counters.delivered
        if self.journal is not None:
            self._counters.journal_bytes = self.journal.counters.bytes
            self.journal.check()
            self.journal.sync()
            self.journal.prune(now)

    def gauges(self) -> NodeGauges:
        """The machine's state, and what only the host knows."""
        gauges = self._report.gauges(self.machine.snapshot())
        self._following.fill(gauges)
        return gauges

    async def stop(self) -> None:
        """Stop hearing, leave doors, close what is open."""
        self._stopped = True
        self.driver.stop()
        self._channels.close()
        self._close_journal()
        await self._fetcher.close()

    def _close_journal(self) -> None:
        if self.journal is not None:
            self.journal.close()
