"""A customer as a process or inside a program: lines in, one sequence out; gaps fetched at doors; what people are told.

As a process a complete customer writes what it gets to a journal of its own. The journal is also its memory: started
again, it goes on with the sequence after the last whole block, and fetches what it missed. A program's seat has no
disk. Its messages go to a sink, which may be full: then the machine is laid to sleep, the sockets are read on and what
they bring is dropped, and when there is room again a new machine goes on with the first message that found none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol, TypeAlias, assert_never

from isocast.hierarchy.archive import CustomerThrottled
from isocast.hierarchy.customer import Customer, CustomerSnapshot
from isocast.hierarchy.customer_settings import (
    SILENT_HEARTBEATS,
    CustomerSettings,
    CustomerState,
    Grade,
    JoinPoint,
    quiet_ring_ns,
)
from isocast.hierarchy.edge import (
    ClaimRefuted,
    ConflictFound,
    CustomerCaughtUp,
    CustomerHostEffect,
    CustomerInput,
    CustomerNotice,
    CustomerSlow,
    Deliver,
    DeliverLatest,
    DeliverSnapshot,
    FetchFailed,
    FetchRange,
    FetchSnapshot,
    ForgeryDropped,
    GapAbandoned,
    GapClosed,
    GapOpened,
    LineBack,
    LineLate,
    LineSilent,
    LineSwitched,
    MarketGoesOn,
    MarketWaits,
    ProofsDiffer,
    ProofStale,
    RangeArrived,
    RangeContinued,
    RepairUnanswered,
    Slowness,
    SnapshotArrived,
    TokensPassed,
    Waiting,
)
from isocast.hierarchy.latest import LatestSnapshot
from isocast.ring.effects import Record
from isocast.runtime.disk.journal import Journal
from isocast.runtime.disk.journal_reader import blocks_of, packets_of
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.hosts.line_following import LineFollowing
from isocast.runtime.hosts.line_keys import node_keys, proof_terms
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.founding import begun
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.net.door import DoorError, Visit
from isocast.runtime.net.door_keys import bought_visitor, door_opener, edge_visitor, guest_visitor
from isocast.runtime.watch.counters import NodeGauges
from isocast.security.subscriptions import BASE, HISTORY, REPAIR
from isocast.terms.errors import ConfigurationError, IsocastError, RemoteProtocolError, UnpaidError
from isocast.terms.ids import NodeId, is_guest
from isocast.terms.instants import MILLISECOND, NEVER, SECOND, second_text
from isocast.terms.quantities import counted
from isocast.wire.door import Block, DoorMessage, End, RangeWanted, Refused, Sealed, Snapshot, SnapshotWanted
from isocast.wire.events import events_view
from isocast.wire.journal_blocks import view_block
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.opaque import count_events
from isocast.wire.packets import ReleasedPacket

__all__ = ["CustomerHost", "Delivery", "EdgeReport", "Fetcher", "Seat", "Sink", "customer_settings", "waiting_text"]


# ---- Ranges and snapshots from other nodes' doors, for whoever follows lines: customers and retransmit servers.
#
# One request at a time for each door, over a connection that is kept. While a door is still busy with an earlier
# request a new one is left alone: the earlier answer is welcome too, and a machine that gets none asks again. Nothing
# here waits for anybody: answers come back to the machine as inputs, and long ones in parts, so that what came is not
# lost with a connection that breaks.


class _TurnedAwayError(DoorError):
    """The door refused one request; the connection is as good as before."""


_SILENCE_S = 5.0
"""A door that says nothing for so long is left; it refuses by itself what it cannot answer within two seconds."""
_PART = 512
"""Messages of an answer that are handed on before the rest has come."""
_BYTES_MAX = 256 << 20
"""Bounds: a range comes in whole blocks, and a receiver's may hold a whole token, 16,384 messages of 8,824 bytes."""


class Fetcher:
    """The visits of one node to the doors of others."""

    def __init__(self, context: Context, feed: Callable[[CustomerInput], None]) -> None:
        """`feed` gives the machine an input."""
        self._context = context
        self._feed = feed
        self._visits: dict[NodeId, Visit] = {}
        self._asking: dict[NodeId, asyncio.Task[None]] = {}
        self.trouble: dict[NodeId, str] = {}
        """Why a door did not answer last."""

    def fetch(self, wanted: FetchRange | FetchSnapshot) -> None:
        """Ask, unless that door is being asked."""
        if wanted.server not in self._asking:
            task = self._context.loop.create_task(self._ask(wanted), name=f"ask {wanted.server}")
            self._asking[wanted.server] = task

    async def close(self) -> None:
        """Leave every door."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking, timeout=_SILENCE_S)
        for here in self._visits.values():
            await here.close()
        self._visits.clear()

    async def _ask(self, wanted: FetchRange | FetchSnapshot) -> None:
        server = wanted.server
        answer: RangeArrived | SnapshotArrived | FetchFailed = FetchFailed(server)
        try:
            answer = await self._answer(wanted)
            self._tell(server, "")
        except _TurnedAwayError as reason:
            self._tell(server, str(reason))
        except (DoorError, RemoteProtocolError, OSError, TimeoutError) as reason:
            self._tell(server, str(reason) or f"no answer within {_SILENCE_S:.0f} s")
            await self._leave(server)
        finally:
            del self._asking[server]
        self._feed(answer)

    def _tell(self, server: NodeId, trouble: str) -> None:
        """Each change is logged: an alarm is, only the first time."""
        if trouble == self.trouble.get(server, ""):
            return
        name, log = self._context.market.name_of(server), self._context.log
        if trouble:
            self.trouble[server] = trouble
            log.info("door does not answer", server=name, why=trouble)
        else:
            del self.trouble[server]
            log.info("door answers again", server=name)

    async def _answer(self, wanted: FetchRange | FetchSnapshot) -> RangeArrived | SnapshotArrived:
        if isinstance(wanted, FetchRange):
            return await self.range_of(wanted)
        here = self._visits.get(wanted.server) or await self._visit(wanted.server)
        await here.send(SnapshotWanted())
        async with asyncio.timeout(_SILENCE_S):
            found = await self._snapshot(here, wanted.server)
        events_view(found.events)
        stripe, following = self._context.stripe, found.next_sequence
        return SnapshotArrived(wanted.server, LatestSnapshot(stripe, following, following, 0, found.events))

    async def range_of(self, wanted: FetchRange) -> RangeArrived:
        """The door's answer, of which parts are fed before; an exception where there is none."""
        here = self._visits.get(wanted.server) or await self._visit(wanted.server)
        await here.send(RangeWanted(wanted.first, wanted.last))
        packets: list[ReleasedPacket] = []
        size = unpaid = 0
        while size <= _BYTES_MAX:
            async with asyncio.timeout(_SILENCE_S):
                message = await here.receive()
            if isinstance(message, Sealed):
                last, message = message.last, self._opened(message, wanted.server)
                if message is None:
                    unpaid = max(unpaid, last)
                    continue
            match message:
                case Block(body):
                    # What a block holds beyond the range is welcome too: it would be asked for next.
                    size += len(body)
                    packets += packets_of([view_block(body)], self._context.stripe, wanted.server, wanted.first)
                    if len(packets) >= _PART:
                        self._feed(RangeContinued(wanted.server, packets))
                        packets = []
                case End(low_water, next_sequence):
                    return RangeArrived(wanted.server, packets, max(low_water, unpaid + 1), next_sequence - 1)
                case Refused(reason):
                    raise _TurnedAwayError(reason)
                case None:
                    raise DoorError("the connection ended")
                case other:
                    raise DoorError(f"unexpected message {type(other).__name__}")
        raise DoorError(f"more than {_BYTES_MAX} bytes for one range")

    def _opened(self, message: Sealed, server: NodeId) -> DoorMessage | None:
        """What a door that sells gave; None for what is older than anything that was bought."""
        context, subscription = self._context, self._context.keys.subscription
        opener = door_opener(context.market, context.keys, context.stripe, server)
        if opener is None or subscription is None:
            raise DoorError(f"{context.market.name_of(server)} sells what it keeps, and there is no package")
        try:
            return opener.open(message)
        except UnpaidError as reason:
            first = subscription.keys.oldest(REPAIR, HISTORY)
            if first is not None and message.period < first.period:
                return None
            raise _TurnedAwayError(f"{reason}: renew the subscription, isocast subscribe does") from None

    async def _snapshot(self, here: Visit, server: NodeId) -> Snapshot:
        message = await here.receive()
        if isinstance(message, Sealed):
            message = self._opened(message, server)
        if isinstance(message, Snapshot):
            return message
        if isinstance(message, Refused):
            raise DoorError(message.reason)
        raise DoorError("the connection ended" if message is None else f"unexpected message {type(message).__name__}")

    def _credentials(self) -> tuple[str, bytes | None]:
        """Name and key at a door."""
        context = self._context
        subscription = context.keys.subscription
        if subscription is not None and context.keys.edge is None:
            return bought_visitor(subscription.keys) or ("", None)
        name = guest_visitor(context.keys) if is_guest(context.plan.node) else edge_visitor(context.plan)
        return name, context.edge_door_key(name)

    async def _visit(self, server: NodeId) -> Visit:
        context = self._context
        there = context.market.find(server)
        name, key = self._credentials()
        if there is None or not there.tcp_port or key is None:
            raise DoorError(f"{context.market.name_of(server)} has no door")
        here = self._visits[server] = await context.visit(there, name, key)
        return here

    async def _leave(self, server: NodeId) -> None:
        here = self._visits.pop(server, None)
        if here is not None:
            await here.close()


# ---- What follows lines tells people: counts, alarms that name a line, a server or a slow customer, lines in the
# log.


_SLOW_REMEDY = {
    Slowness.STOPPED: "it did not get to run: look at the machine's load; what it missed is fetched",
    Slowness.LAGGING: "it reads slower than the lines send: give it a faster machine, or the grade latest",
    Slowness.OVERFLOW: "it was away or is too slow; what it missed is fetched in ranges",
}


def waiting_text(reason: Waiting, since: int) -> str:
    """In words, with the instant in UTC."""
    what = "ring is reforming" if reason is Waiting.REFORMING else "no line is heard"
    return f"{what} since {datetime.fromtimestamp(since // SECOND, UTC):%H:%M:%S} UTC" if since else f"{what} yet"


class EdgeReport:
    """Turns the effects that only tell something into counts, alarms and log lines."""

    def __init__(self, context: Context, fetcher: Fetcher, grade: Grade) -> None:
        """`fetcher` knows why a door did not answer."""
        self._context = context
        self._fetcher = fetcher
        self._grade = grade
        self._duplicates_before = self._conflicts_before = 0
        self._proofs_before: tuple[int, ...] = (0, 0, 0, 0)
        self.conflict_found: Callable[[ConflictFound], None] = lambda _: None
        """Told of every conflict, not of the first only."""
        self.has_position = True
        """Whether sequences from the very first on are owed; what is gone before a first start is nobody's loss."""

    def tell(self, effect: CustomerNotice | CustomerThrottled) -> None:
        """Report one effect that only tells something."""
        match effect:
            case GapOpened() | GapClosed() | GapAbandoned():
                self._gap(effect)
            case LineSilent() | LineLate() | LineBack() | LineSwitched():
                self._line(effect)
            case MarketWaits() | MarketGoesOn():
                self._market(effect)
            case ConflictFound() | ClaimRefuted():
                self._liar(effect)
            case ForgeryDropped() | ProofsDiffer() | ProofStale():
                self._forger(effect)
            case CustomerSlow() | CustomerCaughtUp() | CustomerThrottled():
                self._customer(effect)
            case RepairUnanswered(first, last, rounds):
                what = "a snapshot" if not last else f"sequences {first} to {last}"
                self._context.alarm(
                    "unanswered",
                    f"no server gave {what} in {rounds} rounds{self._reasons()}",
                    "are the retransmit servers up? asking goes on",
                )
            case _:
                assert_never(effect)

    def _reasons(self) -> str:
        names = [f"{self._name(server)}: {text}" for server, text in self._fetcher.trouble.items()]
        return f" ({'; '.join(names)})" if names else ": they answer, but do not have them yet"

    def _name(self, node: NodeId) -> str:
        return self._context.market.name_of(node)

    def _gap(self, effect: GapOpened | GapClosed | GapAbandoned) -> None:
        counters, log = self._context.counters, self._context.log
        match effect:
            case GapOpened(first, last, missing):
                counters.gaps_seen += 1
                log.debug("gap", first=first, last=last, missing=missing)
            case GapClosed(first, last, after_ns):
                counters.gaps_repaired += 1
                log.debug("gap closed", first=first, last=last, after_ms=after_ns // MILLISECOND)
            case GapAbandoned(first, last, missing) if not self.has_position and first == 1:
                log.info("begins with the oldest that is kept", sequence=last + 1)
            case GapAbandoned(first, last, missing):
                counters.messages_skipped += missing
                if self._grade is Grade.COMPLETE:
                    why = "no server keeps them any more"
                    if self._context.keys.subscription is not None:
                        why += ", or they were not bought"
                    self._context.alarm(
                        "lost",
                        f"sequences {first} to {last} are lost: {why}",
                        "fill in from another site's journal; keep more of the past ([journal] of the market file)",
                    )

    def _line(self, effect: LineSilent | LineLate | LineBack | LineSwitched) -> None:
        name = self._name(effect.line)
        match effect:
            case LineSilent(_, silent_ns):
                self._context.alarm(
                    f"silent-{name}",
                    f"the line of {name} is silent for {silent_ns // MILLISECOND} ms",
                    "look at that node and at the network between; other lines go on",
                )
            case LineLate(_, lag_ns):
                self._context.alarm(
                    f"late-{name}",
                    f"the line of {name} is {lag_ns // MILLISECOND} ms behind another",
                    "look at that node and at the network between; other lines go on",
                )
            case LineBack():
                self._context.log.info("line is back", line=name)
            case LineSwitched(_, before) if before is not None:
                self._context.counters.line_switches += 1
                self._context.log.warning("line switched", line=name, before=self._name(before))
            case LineSwitched():
                self._context.log.info("follows a line", line=name)

    def _market(self, effect: MarketWaits | MarketGoesOn) -> None:
        match effect:
            case MarketWaits(reason, since):
                self._context.log.warning("waiting", what=waiting_text(reason, since))
            case MarketGoesOn(_, after_ns):
                self._context.log.warning("goes on", after_ms=after_ns // MILLISECOND)

    def _liar(self, effect: ConflictFound | ClaimRefuted) -> None:
        match effect:
            case ConflictFound(sequence, first_line, other_line):
                first, other = self._name(first_line), self._name(other_line)
                self._context.counters.conflicts += 1
                self.conflict_found(effect)
                self._context.alarm(
                    f"conflict-{first}-{other}",
                    f"{first} and {other} carry different messages as sequence {sequence}; that of {first} is kept",
                    "compare their journals: isocast journal verify; one of them lies or is damaged",
                )
            case ClaimRefuted(line, sequence, newest):
                name = self._name(line)
                self._context.alarm(
                    f"refuted-{name}",
                    f"{name} announces sequence {sequence}, but the newest is {newest}",
                    "look at that node; it is not believed for a while",
                )

    def _forger(self, effect: ForgeryDropped | ProofsDiffer | ProofStale) -> None:
        match effect:
            case ForgeryDropped(line, sequence):
                name, what = self._name(line), f"sequence {sequence}" if sequence else "a heartbeat"
                self._context.alarm(
                    f"forged-{name}",
                    f"somebody sent {what} in the name of {name}, which {name} did not sign; it was dropped",
                    "whoever listens can send; the genuine packets are taken. Look who else sends into this group",
                )
            case ProofsDiffer(token_number, sequence, first_line, other_line, first_digest, other_digest):
                first, other = self._name(first_line), self._name(other_line)
                self._context.alarm(
                    f"proofs-{first}-{other}",
                    f"{first} and {other} signed different messages as sequence {sequence} of token {token_number}"
                    f" ({first_digest.hex()} and {other_digest.hex()}): one of them lies",
                    "compare their journals: isocast journal verify; take the liar off the roster",
                )
            case ProofStale(line, age_ns):
                self._context.alarm(
                    f"stale-{self._name(line)}",
                    f"what {self._name(line)} signed is {abs(age_ns) // SECOND} s from this machine's clock",
                    "is the clock right? If it is, somebody plays back a recording, which is not believed",
                )

    def _customer(self, effect: CustomerSlow | CustomerCaughtUp | CustomerThrottled) -> None:
        name = self._name(effect.customer)
        match effect:
            case CustomerSlow(_, reason, behind):
                unit = "messages" if reason is Slowness.OVERFLOW else "ms"
                amount = behind if reason is Slowness.OVERFLOW else behind // MILLISECOND
                self._context.alarm(
                    f"slow-{reason}", f"{name} is slow ({reason}): {amount} {unit} behind", _SLOW_REMEDY[reason]
                )
            case CustomerCaughtUp(_, reason):
                self._context.log.info("caught up", customer=name, reason=reason.value)
            case CustomerThrottled(_, asked, served, refused):
                self._context.alarm(
                    f"throttled-{name}",
                    f"{name} used up its share: {counted(asked, 'message')} asked, {served} served, {refused} refused",
                    "it is far behind and catches up slowly, or it is hostile; other customers are not affected",
                )

    # For whoever watches ------------------------------------------------------------------------

    def collect(self, snapshot: CustomerSnapshot, *, ends: bool = False) -> None:
        """Bring counts up to date that the machine keeps; `ends` before another machine takes its place."""
        duplicates = self._duplicates_before + sum([line.duplicates for line in snapshot.lines])
        conflicts = self._conflicts_before + snapshot.counters.conflicts
        self._context.counters.duplicates = duplicates
        # Each is counted as it is told; where there are more in one burst than are told, the machine knows.
        self._context.counters.conflicts = max(self._context.counters.conflicts, conflicts)
        seen, counters = snapshot.counters, self._context.counters
        told = (seen.forged, seen.differing, seen.unproven, seen.unverified)
        sums = tuple([before + now for before, now in zip(self._proofs_before, told, strict=True)])
        counters.forged, counters.proofs_differing, counters.unproven, counters.unverified = sums
        if ends:
            self._duplicates_before, self._conflicts_before, self._proofs_before = duplicates, conflicts, sums

    def gauges(self, snapshot: CustomerSnapshot) -> NodeGauges:
        """The state of a follower of lines."""
        main = [line for line in snapshot.lines if not line.repairs and not line.left]
        gauges = NodeGauges(
            next_sequence=snapshot.next_sequence if snapshot.joined else None,
            sequence_gaps=snapshot.gaps,
            lines_heard=len([line for line in main if line.messages + line.heartbeats and not line.silent]),
            lines_configured=len(main),
            line_followed=self._name(snapshot.followed) if snapshot.followed is not None else None,
            waiting=waiting_text(snapshot.waiting, snapshot.waiting_since) if snapshot.waiting else None,
        )
        gauges.read_clock(self._context.clock.status)
        return gauges


# ---- What the machines of the edge are told before they start, from the market's file.


_GUEST_PATIENCE_NS = 3 * SECOND
"""A door lets a guest wait for its share for two seconds; to leave it before is to wait again, elsewhere."""
_LAST_RESORTS_MAX = 8
"""Doors: among eight receivers one that lives and is not behind is all but certain."""


def customer_settings(
    context: Context, grade: Grade, join: JoinPoint | None = None, *, first_sequence: int = 1
) -> CustomerSettings:
    """For a customer of this grade, or with grade complete for a retransmit server.

    Who wants everything and has no retransmit server, or none that gives anything, fetches at the doors of the
    receivers whose lines it hears, and then at those of others: whoever it hears may be dead, and its archive behind.
    Receivers take no requests by datagram, and keep no snapshots. A guest sends no datagrams: nobody knows its id.
    """
    market, plan = context.market, _without_repairs(context, grade)
    servers = _doors_of(market, plan.retransmit)
    by_datagram = bool(servers) and not is_guest(plan.node)
    key = f"nodes.{plan.name}.retransmit"
    if join is JoinPoint.SNAPSHOT and not servers:
        rule = "a start from a snapshot needs a retransmit server with a door; there is none"
        raise ConfigurationError(market.file, key, rule)
    if grade is Grade.COMPLETE and not servers:
        servers = _doors_of(market, plan.lines)
        if not servers:
            rule = "no server that it may ask has a door: set tcp_port of a retransmit server or of one of its lines"
            raise ConfigurationError(market.file, key, rule)
    settings = CustomerSettings.from_timing(
        market.timing,
        tuple([market.node(name).node for name in plan.lines]),
        servers,
        grade,
        join,
        stripe=context.stripe,
        first_sequence=first_sequence,
    )
    # Lines beat as often as the market's receivers make them, whatever the machine would assume.
    silent_ns = SILENT_HEARTBEATS * context.heartbeat_ns
    patience = -(-_GUEST_PATIENCE_NS // settings.retry_ns) if is_guest(plan.node) else 0
    return replace(
        settings,
        by_datagram=by_datagram,
        retries_max=max(settings.retries_max, patience),
        last_resorts=_last_resorts(context) if grade is Grade.COMPLETE else (),
        heartbeat_ns=context.heartbeat_ns,
        silent_ns=silent_ns,
        ring_ns=quiet_ring_ns(market.timing, silent_ns),
        slow_ns=silent_ns,
    )


def _without_repairs(context: Context, grade: Grade) -> NodePlan:
    """The node, without servers if it bought no repairs; who wants everything needs some."""
    plan, subscription = context.plan, context.keys.subscription
    if subscription is None or subscription.keys.has(REPAIR) or subscription.keys.has(HISTORY):
        return plan
    if grade is Grade.COMPLETE:
        rule = "has no repairs, and every message is wanted: buy repair, or listen with the grade latest"
        raise ConfigurationError(str(subscription.path), "package", rule)
    return replace(plan, retransmit=())


def _last_resorts(context: Context) -> tuple[NodeId, ...]:
    """The doors of the receivers that it hears, then a few of others: not the same few for everybody."""
    market, plan = context.market, context.plan
    roles = (NodeRole.PRIMARY_RECEIVER, NodeRole.SECONDARY_RECEIVER)
    others = [other.name for role in roles for other in market.by_role(role) if other.stripe == plan.stripe]
    start = plan.node % len(others) if others else 0
    names = dict.fromkeys([*plan.lines, *others[start:], *others[:start]])
    return _doors_of(market, tuple(names))[: max(_LAST_RESORTS_MAX, len(plan.lines))]


def _doors_of(market: Market, names: tuple[str, ...]) -> tuple[NodeId, ...]:
    """Those of the nodes that have a door."""
    return tuple([market.node(name).node for name in names if market.node(name).tcp_port])


Delivery: TypeAlias = Deliver | DeliverLatest | DeliverSnapshot | TokensPassed


class Sink(Protocol):
    """Where a program gets its messages from."""

    def take(self, delivery: Delivery, now: int) -> bool:
        """Keep it; False when there is no room, which only a complete service may be told."""


@dataclass(frozen=True, slots=True)
class Seat:
    """How a program in this process listens: it overrides what the market's file says of the node."""

    grade: Grade
    join: JoinPoint | None
    first_sequence: int
    sink: Sink


class _Asleep:
    """The machine of a seat whose sink is full."""

    def step(self, event: object, now: int) -> tuple[()]:  # noqa: ARG002
        """Drop the event: what it brought is fetched again later."""
        return ()

    def next_deadline(self) -> int:
        """Nothing is waited for."""
        return NEVER


_ASLEEP = _Asleep()


_OVER_NS = SECOND
"""How long after the last instant that was paid for it is said to be over: what was released before has come."""


class CustomerHost:
    """What surrounds the machine of one customer."""

    def __init__(self, context: Context, seat: Seat | None = None) -> None:
        """Open journal and sockets; without a seat the node is what the market's file says."""
        self._context = context
        self._seat = seat
        self._counters = context.counters
        self._clock = context.clock
        plan = context.plan
        self.grade = plan.grade if seat is None else seat.grade
        self._settings = self._customer_settings()
        self.journal: Journal | None = None
        state = CustomerState()
        if seat is None and self.grade is Grade.COMPLETE:
            self.journal = Journal.open(
                context.directory / "journal", context.stripe, plan.node, context.market.journal
            )
            if self.journal.position.token_number:
                state.next_sequence = self.journal.position.next_sequence
        try:
            self._channels = context.channels(plan.node, node_keys(context))
        except BaseException:
            self._close_journal()
            raise
        self._proofs = proof_terms(context)
        self.machine = Customer(plan.node, self._settings, state, self._proofs)
        self.driver: Driver[CustomerInput, CustomerHostEffect] = context.driver(self.machine, self, self._channels)
        self._following = LineFollowing(context, self._channels, self.driver, self._lines_planned, keeps=seat is None)
        self._fetcher = Fetcher(context, self._feed)
        self._report = EdgeReport(context, self._fetcher, self.grade)
        self._report.has_position = state.next_sequence > 0
        self._behind_from = 0
        self._stopped = False
        self._renewing: asyncio.Future[None] | None = None
        self.unpaid = ""
        """Why nothing can be read any more; empty while everything is paid for."""

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

    def perform(self, effect: CustomerHostEffect, now: int) -> None:
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

    def _feed(self, event: CustomerInput) -> None:
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
        self._counters.events_received += count_events([packet.payload for packet in packets])

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
            self.begin_with(self._behind_from)
            self._behind_from = 0
            self.driver.rearm()

    def begin_with(self, sequence: int) -> None:
        """Take a machine that begins there."""
        plan, state = self._context.plan, CustomerState(sequence)
        self.machine = self.driver.machine = Customer(plan.node, self._settings, state, self._proofs)

    @property
    def doors(self) -> tuple[NodeId, ...]:
        """Where it asks for what is past, the last resorts behind the others."""
        return *self._settings.servers, *self._settings.last_resorts

    # Life ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin."""
        if self._seat is None:
            begun(self._context.directory)
        self.driver.start()
        self._following.start()

    def _watch_subscription(self, now: int) -> None:
        """Read a package that was renewed; say when what was paid for is over."""
        context, subscription = self._context, self._context.keys.subscription
        if subscription is None:
            return
        if subscription.is_replaced and self._renewing is None:
            self._renewing = context.loop.run_in_executor(None, subscription.refresh)
            self._renewing.add_done_callback(self._renewed)
        # What comes now was ordered some time ago, when this package may not have begun yet.
        ordered = max(now - context.market.timing.release_delay_ns - _OVER_NS, 0)
        if subscription.keys.ends(BASE, ordered) or subscription.keys.ends(BASE, now):
            self.unpaid = ""
            return
        if not self.unpaid:
            last = subscription.keys.newest(BASE)
            until = "" if last is None else f" until {second_text(last.ends)}"
            self.unpaid = f"the subscription of {subscription.buyer or 'this package'} was paid{until}: renew it"
            context.alarm("unpaid", self.unpaid, "isocast subscribe renews; nothing after it can be read")

    def _renewed(self, done: asyncio.Future[None]) -> None:
        self._renewing = None
        reason = None if done.cancelled() else done.exception()
        if isinstance(reason, IsocastError | OSError):
            self._context.alarm("package", str(reason), "what was bought before still counts")

    def tick(self, now: int) -> None:
        """Bring counts up to date, trim the past."""
        self._clock.check()
        self._watch_subscription(now)
        self._channels.collect()
        self._following.tick(now)
        if not self._behind_from:
            snapshot = self.machine.snapshot()
            self._report.collect(snapshot)
            if self.grade is Grade.LATEST:
                self._counters.messages_received = snapshot.counters.delivered
        if self.journal is not None:
            self._context.maintain_journal(self.journal, now)

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
