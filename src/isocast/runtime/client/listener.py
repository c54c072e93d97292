"""Listen to a market from a program: a customer in this event loop for each stripe, merged or each as it comes.

    async with Listener("market.toml") as listener:
        async for batch in listener:
            print(batch.last_sequence, batch.events["price"])

Sockets are read whether or not the program keeps up. What a program does not read waits in a bounded inbox; when that
is full, a complete service rests and fetches the rest later, and the grade latest keeps the newest of each key. Nothing
of this touches anybody else.

Of a market with several stripes all are heard, or those that are asked for. A complete service merges them into one
sequence by (token instant, stripe, sequence), which is the same for everybody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Self, TypeAlias

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from isocast.hierarchy.customer import CustomerSnapshot
from isocast.hierarchy.customer_settings import Grade, JoinPoint
from isocast.hierarchy.edge import ConflictFound
from isocast.runtime.client.received import Inbox, ReceivedBatch, batch_of
from isocast.runtime.hosts.customer import CustomerHost, Seat
from isocast.runtime.hosts.instant_search import first_released_at
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.file import load_market
from isocast.runtime.market.guests import has_room_for_guests, with_guest
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import ClockSource, Market, NodePlan, NodeRole
from isocast.runtime.market.subscription import Subscription
from isocast.runtime.net.clock import SystemClock
from isocast.runtime.watch.counters import NodeCounters
from isocast.runtime.watch.logs import redact
from isocast.runtime.watch.status import Alarms, wrong_key_reason
from isocast.striping.merging import StripeCut, StripeMerge
from isocast.striping.routing import heard_once
from isocast.terms.errors import ConfigurationError, IsocastError, TransportError, UnpaidError
from isocast.terms.instants import SECOND, read_instant
from isocast.terms.quantities import suggestion
from isocast.terms.timing import Timing
from isocast.wire.limits import MAX_NUMBER
from isocast.wire.names import InstrumentNames, are_names

if TYPE_CHECKING:
    from isocast.runtime.client.floor_books import FloorBooks

__all__ = [
    "INBOX_MESSAGES",
    "Conflict",
    "HeardStripes",
    "Listener",
    "Start",
    "StripeSeat",
    "Wish",
    "places_of_customers",
]


# ---- One stripe of a market, heard from a program: a customer that lives in this event loop, and its inbox.
#
# A log of the host is given to whoever listens, line by line, and disturbs no program's own.


_TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two lines carry different contents of one message. The first that came was handed on, and stands."""

    sequence: int
    first_line: str
    other_line: str
    first_digest: str
    other_digest: str

    def __str__(self) -> str:
        """For people."""
        return (
            f"CONFLICT at sequence {self.sequence}: {self.first_line} and {self.other_line} carry different messages"
            f" ({self.first_digest[:16]} and {self.other_digest[:16]}); {self.first_line} came first and is kept"
        )


@dataclass(frozen=True, slots=True)
class Wish:
    """How a program wants to hear a stripe."""

    grade: Grade
    join: JoinPoint | None
    first_sequence: int


class StripeSeat:
    """A customer's place in one stripe, taken by this process. `open` raises TransportError if another has it."""

    def __init__(
        self,
        market: Market,
        plan: NodePlan,
        wish: Wish,
        inbox: Inbox,
        alarms: Alarms,
        told: Callable[[str], None],
        conflict: Callable[[Conflict], None],
        subscription: Subscription | None = None,
    ) -> None:
        """Take the place; nothing is heard before `start`."""
        self._subscription = subscription
        self.market = market.of_stripe(plan.stripe)
        self.inbox = inbox
        self.counters = NodeCounters()
        self._alarms = alarms
        self.failure: BaseException | None = None
        self._told = told
        self._conflict = conflict
        self._ticking: asyncio.Task[None] | None = None
        self.host = self._seated(plan, wish)

    def _seated(self, plan: NodePlan, wish: Wish) -> CustomerHost:
        market = self.market
        clock = self._clock = SystemClock(
            plan.clock_error_ns or market.clock.bound_ns or None,
            watch_kernel=market.clock.source is ClockSource.KERNEL,
            file=market.file,
        )
        keys = load_keys(market, plan, self._subscription)
        loop, log = asyncio.get_running_loop(), _log(self._told)
        self._context = Context(market, replace(plan, http_port=0), clock, keys, self.counters, loop, self._alarm, log)
        return CustomerHost(self._context, Seat(wish.grade, wish.join, wish.first_sequence, self.inbox))

    @property
    def plan(self) -> NodePlan:
        """Which customer of the market it is."""
        return self.host.plan

    def snapshot(self) -> CustomerSnapshot:
        """The state of its machine: lines, gaps, counts."""
        return self.host.machine.snapshot()

    async def begin_at(self, instant: int) -> None:
        """Before the start: begin with the first message that is released at an instant or later."""
        self.host.begin_with(await first_released_at(self._context, self.host.doors, instant))

    async def start(self) -> None:
        """Begin to hear."""
        self.host.driver.failed = self._fail
        self.host.on_conflict(self._conflict_found)
        await self.host.start()
        self._ticking = asyncio.create_task(self._tick(), name=f"listen as {self.plan.name}")

    async def close(self) -> None:
        """Close every socket and connection."""
        if self._ticking is not None:
            self._ticking.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticking
            self._ticking = None
        await self.host.stop()

    def catch_up(self) -> None:
        """Some of the inbox was read: what found no room is fetched once there is enough."""
        if self.host.is_behind and self.inbox.has_room:
            self.host.catch_up()

    def _alarm(self, code: str, text: str, remedy: str) -> None:
        if self._alarms.raise_alarm(code, text, remedy, self._clock.now()):
            self._told(f"{text} ({remedy})")

    def _conflict_found(self, found: ConflictFound) -> None:
        first, other = self.market.name_of(found.first_line), self.market.name_of(found.other_line)
        self._conflict(Conflict(found.sequence, first, other, found.first_digest.hex(), found.other_digest.hex()))

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.inbox.news.set()

    async def _tick(self) -> None:
        while self.failure is None:
            await asyncio.sleep(_TICK_S)
            try:
                self.host.tick(self.host.driver.clock.now())
                if self.host.unpaid:
                    self._fail(UnpaidError(self.host.unpaid))
            except Exception as error:  # noqa: BLE001 - whoever waits for a batch is told, whatever it is
                self._fail(error)


# ---- a log that disturbs no program


class _Told:
    """Takes rendered lines of warnings and errors."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self.warning = self.error = self.critical = told


def _log(told: Callable[[str], None]) -> FilteringBoundLogger:
    """A log for the host that tells warnings only, whatever the program has set up for itself."""
    log: FilteringBoundLogger = structlog.wrap_logger(
        _Told(told),
        processors=[redact, _in_words],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        context_class=dict,
        cache_logger_on_first_use=False,
    )
    return log


def _in_words(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    name = str(event.pop("event", ""))
    if "what" in event:
        name = f"{name}: {event.pop('what')}"
    return " ".join([name, *_pairs(event.items())])


def _pairs(items: Iterable[tuple[str, object]]) -> Iterator[str]:
    for name, value in items:
        yield f"{name}={value}"


# ---- What a program hears of several stripes: merged into one sequence, or each as it comes.


_PATIENCE_S = 2.0
_PATIENCE_PERIODS = 4
"""A stripe that holds the others back for longer than these is named."""


class HeardStripes:
    """Reads the inboxes of some seats in the order that is wanted."""

    def __init__(
        self, seats: Sequence[StripeSeat], timing: Timing, *, merged: bool, told: Callable[[str], None]
    ) -> None:
        """Merged are complete services of more than one stripe only: the newest price waits for nobody."""
        self._seats = {seat.plan.stripe: seat for seat in seats}
        complete = all(seat.host.grade is Grade.COMPLETE for seat in seats)
        several = len(seats) > 1
        self._merge = StripeMerge(self._seats, timing.token_period_ns) if merged and several and complete else None
        self._delay_ns = timing.release_delay_ns
        self._told = told
        self._patience_s = max(_PATIENCE_S, _PATIENCE_PERIODS * timing.token_period_ns / SECOND)
        self._waits_since: float | None = None
        self._named: tuple[int, ...] = ()
        self._disordered = 0
        self._came = 0
        self._turn = list(self._seats)

    @property
    def is_merged(self) -> bool:
        """Whether all stripes come as one sequence."""
        return self._merge is not None

    @property
    def holds_back(self) -> bool:
        """Whether something of one stripe waits for another."""
        return self._merge is not None and bool(self._merge.awaited)

    def cut(self, instant: int) -> StripeCut | None:
        """What existed at an instant; None while a stripe has not passed it. Only of merged stripes."""
        if self._merge is None:
            raise IsocastError("a time cut needs merged stripes: listen to two or more, with grade complete")
        return self._merge.cut(instant)

    def next(self) -> ReceivedBatch | None:
        """The next batch; None while there is none that may be shown."""
        if self._merge is not None:
            return self._next_merged(self._merge)
        for stripe in self._turn:
            seat = self._seats[stripe]
            if seat.inbox:
                # The others have their turn first the next time.
                self._turn.remove(stripe)
                self._turn.append(stripe)
                batch = seat.inbox.pop()
                seat.catch_up()
                return self._once(batch)
        return None

    def _next_merged(self, merge: StripeMerge) -> ReceivedBatch | None:
        for stripe, seat in self._seats.items():
            while merge.wants(stripe):
                popped = seat.inbox.pop_messages()
                if popped is not None:
                    packets, self._came = popped
                    merge.take(stripe, packets)
                    seat.catch_up()
                elif seat.inbox:
                    return seat.inbox.pop()  # A snapshot, which what follows continues.
                else:
                    passed, seat.inbox.passed = seat.inbox.passed, None
                    if passed is not None:
                        merge.passed(stripe, passed.instant, passed.next_sequence)
                    break
        run = merge.ready()
        if merge.disordered > self._disordered:
            self._disordered = merge.disordered
            self._told("a line announced wrong tokens: the merged sequence may differ from that of other customers")
        if run is None:
            return None
        self._goes_on()
        return self._once(batch_of(run.packets, self._delay_ns, self._came))

    def _once(self, batch: ReceivedBatch) -> ReceivedBatch:
        """Without copies of what another stripe that is heard has too."""
        kept = heard_once(batch.events, batch.stripe, self._seats.keys())
        if kept is None:
            return batch
        return batch.part(kept)

    # A stripe that is late ----------------------------------------------------------------------

    async def wait(self, news: asyncio.Event) -> None:
        """Until something comes; names the stripe for which the others have waited too long."""
        awaited = self._merge.awaited if self._merge is not None else ()
        if not awaited or self._named == awaited:
            await news.wait()
            return
        self._waits_since = monotonic() if self._waits_since is None else self._waits_since
        left = self._waits_since + self._patience_s - monotonic()
        try:
            async with asyncio.timeout(max(left, 0.0)):
                await news.wait()
        except TimeoutError:
            self._named = awaited
            names = ", ".join(map(str, awaited))
            self._told(
                f"stripe {names} is late by {self._patience_s:.1f} s: what the other stripes have waits for it"
                " (listen unmerged to have it as it comes)"
            )

    def _goes_on(self) -> None:
        if self._named:
            names = ", ".join(map(str, self._named))
            self._told(f"stripe {names} is back after {monotonic() - (self._waits_since or monotonic()):.1f} s")
        self._waits_since, self._named = None, ()


Start: TypeAlias = "str | int | datetime | Mapping[int, int]"
"""now, beginning, snapshot, a time, or the first sequence that is wanted: of several stripes one for each."""

INBOX_MESSAGES = 16_384
"""Messages that wait for a program that does not keep up: 22 MB, and four fetches of a customer that is behind."""
_LEAVING_S = 0.5
_POINTS = {"now": JoinPoint.NOW, "beginning": JoinPoint.SEQUENCE, "snapshot": JoinPoint.SNAPSHOT}


class Listener:
    """Batches of a market as they are released, for ever; to be used in an `async with` block.

    Without a name it is a guest: it needs the edge key, and no seat in the market's file. `customer` is a seat in the
    file, which has a share of its own at the doors; where guests are not allowed, or cannot be, it is the first whose
    ports nobody uses. Its grade may be changed by `latest`. `start` is now, beginning, snapshot or a sequence; left
    out, it is now, and for the grade latest a snapshot where a retransmit server gives one. `stripes`, or those of
    `symbols` and `topics`, are heard instead of all; with `merged` false, or the grade latest, each as it comes.
    """

    def __init__(  # noqa: PLR0913 - what, from where, how much, and who hears of trouble
        self,
        market: Market | Path | str,
        customer: str | None = None,
        *,
        latest: bool | None = None,
        start: Start | None = None,
        inbox_messages: int = INBOX_MESSAGES,
        told: Callable[[str], None] | None = None,
        conflict: Callable[[Conflict], None] | None = None,
        stripes: Iterable[int] | None = None,
        symbols: Iterable[str] | None = None,
        topics: Iterable[str] | None = None,
        merged: bool = True,
        names: InstrumentNames | None = None,
        subscription: Subscription | None = None,
    ) -> None:
        """`told` hears of what goes wrong, a line each; left out, the logger `isocast` does.

        `conflict` hears of every message of which two lines carry different contents; of the first of two lines,
        `told` hears too. `names` learn the full names of instruments, whose records are not among the events.
        `subscription` is the package of a listener, in a market that sells its lines.
        """
        self._subscription = subscription
        self.market = market if isinstance(market, Market) else load_market(Path(market))
        self.alarms = Alarms()
        self._names = InstrumentNames() if names is None else names
        self._named = customer is not None
        self._latest = latest
        self._start = start
        self._start_at = _instant_of(start)
        self._room = inbox_messages
        wanted = wanted_stripes(self.market, stripes, symbols, topics)
        self._is_guest = customer is None and has_room_for_guests(self.market)
        self._surroundings = self.market
        if self._is_guest:
            self._surroundings, places = with_guest(self.market, wanted)
            candidates = [places]
        else:
            candidates = places_of_customers(self.market, customer, wanted)
        self._candidates = self._suitable(candidates)
        if topics is not None:
            rule = "grade latest keeps the newest events and no opaque messages: listen with latest=False"
            self._candidates = self._complete(self._candidates, "topics", rule)
        self._told = told or logging.getLogger("isocast").warning
        self._conflict = conflict or (lambda _: None)
        self._merged = merged
        self._news = asyncio.Event()
        self._seats: tuple[StripeSeat, ...] = ()
        self._heard: HeardStripes | None = None
        self._is_open = False
        self._books: FloorBooks | None = None

    def show_books(self, zone: str = "UTC", *, folder: Path | None = None, before: int = 1) -> None:
        """Put the books of the market's own floors among the events; it must hear the sequence from its beginning.

        With a folder it begins where states of these floors were kept there, if all that is wanted is from `before` on.
        """
        if self.market.floors:
            from isocast.runtime.client.floor_books import FloorBooks  # noqa: PLC0415 - most markets have no floor

            codes = [floor.code for floor in self.market.floors]
            delay = self.market.timing.release_delay_ns
            self._books = FloorBooks(codes, delay, zone, folder=folder, before=before)
            if self._books.begins_with > 1:
                self._start = self._books.begins_with

    # What it is ---------------------------------------------------------------------------------

    @property
    def plan(self) -> NodePlan:
        """The customer that it is, of the market's file or as a guest: its place in the first stripe that it hears."""
        return self._running[0].plan

    @property
    def stripes(self) -> tuple[int, ...]:
        """The stripes that it hears."""
        return tuple([seat.plan.stripe for seat in self._running])

    @property
    def grade(self) -> Grade:
        """Its grade of service."""
        return self._running[0].host.grade

    @property
    def is_merged(self) -> bool:
        """Whether several stripes come as one sequence."""
        return self._heard is not None and self._heard.is_merged

    @property
    def counters(self) -> NodeCounters:
        """Of all stripes together."""
        seats = self._seats
        return seats[0].counters if len(seats) == 1 else _sum([seat.counters for seat in seats])

    def snapshot(self) -> CustomerSnapshot:
        """The state of its machine in the first stripe that it hears: lines, gaps, counts."""
        return self._running[0].snapshot()

    def snapshots(self) -> dict[int, CustomerSnapshot]:
        """The same for each stripe."""
        return {seat.plan.stripe: seat.snapshot() for seat in self._running}

    def silence(self) -> str | None:
        """Why nothing is heard, in words that say what to do; None once every stripe hears a line."""
        silent = [seat for seat in self._running if not any(v.heartbeats + v.messages for v in seat.snapshot().lines)]
        if not silent:
            return None
        forged = sum([seat.counters.authentication_failures for seat in silent])
        if forged:
            return f"no valid packets on any line yet: {wrong_key_reason(forged, 'edge.key')}"
        where = f" of stripe {silent[0].plan.stripe}" if len(self._seats) > 1 else ""
        return f"no packets on any line{where} yet: is the market up? `isocast up` starts it, `isocast doctor` checks"

    @property
    def has_all(self) -> bool:
        """Whether everything that was released, as far as its lines tell, was read."""
        views = [seat.snapshot() for seat in self._running]
        is_up_to_date = all(view.joined and view.next_sequence > view.newest for view in views)
        waits = any(seat.inbox for seat in self._seats) or (self._heard is not None and self._heard.holds_back)
        return is_up_to_date and not waits

    def cut(self, instant: int) -> StripeCut | None:
        """What existed at an instant in the merged stripes; None while one of them has not passed it."""
        if self._heard is None:
            raise IsocastError("this listener is not open: use it in an `async with` block")
        return self._heard.cut(instant)

    @property
    def _running(self) -> tuple[StripeSeat, ...]:
        if not self._is_open:
            raise IsocastError("this listener is not open: use it in an `async with` block")
        return self._seats

    # Life ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Take a customer's place in every stripe that is wanted, and begin to hear."""
        self._seats = await self._take_places()
        self._heard = HeardStripes(self._seats, self.market.timing, merged=self._merged, told=self._told)
        self._is_open = True
        for seat in self._seats:
            await seat.start()

    async def _take_places(self) -> tuple[StripeSeat, ...]:
        """Those of the first customer whose ports are free; one that this program has just left is free in a moment."""
        until = asyncio.get_running_loop().time() + _LEAVING_S
        while True:
            busy: TransportError | None = None
            for plans in self._candidates:
                try:
                    return await self._seated(plans)
                except TransportError as reason:
                    busy = reason
            if asyncio.get_running_loop().time() > until:
                raise self._nowhere(busy)
            await asyncio.sleep(_LEAVING_S / 10)

    async def _seated(self, plans: tuple[NodePlan, ...]) -> tuple[StripeSeat, ...]:
        """All of a customer's places, or none."""
        seats = []
        async with AsyncExitStack() as opened:
            for plan in plans:
                join, first = _join_point(self._start, plan.stripe, alone=len(plans) == 1)
                inbox = Inbox(self._room, self.market.timing.release_delay_ns, plan.stripe, self._news)
                wish = Wish(self._grade(plan), join, first)
                seat = StripeSeat(
                    self._surroundings,
                    plan,
                    wish,
                    inbox,
                    self.alarms,
                    self._told,
                    self._conflict,
                    self._subscription,
                )
                opened.push_async_callback(seat.close)
                seats.append(seat)
                if self._start_at is not None:
                    await seat.begin_at(self._start_at)
            opened.pop_all()
        return tuple(seats)

    async def close(self) -> None:
        """Close every socket and connection."""
        self._is_open = False
        for seat in self._seats:
            await seat.close()
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedBatch:
        # However much there is to read, the sockets have their turn.
        await asyncio.sleep(0)
        while True:
            batch = self._heard.next() if self._heard is not None else None
            if batch is not None:
                return self._with_names(batch if self._books is None else self._books.add(batch))
            failure = next((seat.failure for seat in self._seats if seat.failure is not None), None)
            if failure is not None:
                raise IsocastError(f"listening ended: {failure}") from failure
            if self._heard is None or not self._is_open:
                raise StopAsyncIteration
            self._news.clear()
            await self._heard.wait(self._news)

    # Inside -------------------------------------------------------------------------------------

    def _with_names(self, batch: ReceivedBatch) -> ReceivedBatch:
        """The events without the records that spell full names."""
        spelling = are_names(batch.events)
        if spelling.any():
            self._names.take(batch.events[spelling])
            batch = batch.part(~spelling)
        return replace(batch, names=self._names)

    def _grade(self, plan: NodePlan) -> Grade:
        if self._latest is None:
            return plan.grade
        return Grade.LATEST if self._latest else Grade.COMPLETE

    def _suitable(self, candidates: list[tuple[NodePlan, ...]]) -> list[tuple[NodePlan, ...]]:
        """Those that can begin where they are asked to."""
        plans = candidates[0]
        points = {_join_point(self._start, plan.stripe, alone=len(plans) == 1)[0] for plan in plans}
        if points != {JoinPoint.SEQUENCE}:
            return candidates
        return self._complete(candidates, "start", "grade latest never asks for the past: now or snapshot")

    def _complete(self, candidates: list[tuple[NodePlan, ...]], key: str, rule: str) -> list[tuple[NodePlan, ...]]:
        """Those of the grade complete; ConfigurationError if there is none."""
        complete = [plans for plans in candidates if self._grade(plans[0]) is Grade.COMPLETE]
        if not complete:
            raise ConfigurationError("listen", key, rule)
        return complete

    def _nowhere(self, busy: TransportError | None) -> IsocastError:
        if self._is_guest and busy is not None:
            return busy
        if self._named:
            name = self._candidates[0][0].origin
            return TransportError(f"{name} is in use, or this machine does not have its address: {busy}")
        names = ", ".join([plans[0].origin for plans in self._candidates])
        rule = f"every customer is in use ({names}): add one with start = false, for programs that listen"
        return ConfigurationError(self.market.file, "nodes", rule)


def wanted_stripes(
    market: Market,
    stripes: Iterable[int] | None,
    symbols: Iterable[str] | None,
    topics: Iterable[str] | None = None,
) -> tuple[int, ...] | None:
    """Which stripes are asked for, by number, by symbol or by topic; None: all that a customer has."""
    wanted = set(stripes) if stripes is not None else set()
    strange = sorted(wanted - set(market.stripes))
    if strange:
        listed = ", ".join(map(str, market.stripes))
        raise ConfigurationError("listen", "stripes", f"{market.name} has no stripe {strange[0]}; there are {listed}")
    if symbols is not None or topics is not None:
        from isocast.runtime.market.routes import core_routes  # noqa: PLC0415 - most listeners need no plan

        routes = core_routes(market)
        wanted |= {routes.stripe_of(symbol) for symbol in symbols or ()}
        wanted |= {routes.stripe_of_topic(topic) for topic in topics or ()}
    return tuple(sorted(wanted)) or None


def places_of_customers(
    market: Market, name: str | None, wanted: tuple[int, ...] | None = None
) -> list[tuple[NodePlan, ...]]:
    """The places of the customer of that name, or of each: first those that no `isocast up` starts."""
    customers = market.by_role(NodeRole.CUSTOMER)
    names = list(dict.fromkeys([plan.origin for plan in customers]))
    if name is not None:
        plan = market.by_name.get(name)
        if plan is not None and plan.role is NodeRole.CUSTOMER and plan.table:
            wanted, names = (plan.stripe,), [plan.origin]  # The name of one stripe's place.
        elif name in names:
            names = [name]
        else:
            rule = f"is not a customer{suggestion(name, names)}; there are {', '.join(names) or 'none'}"
            raise ConfigurationError(market.file, f"nodes.{name}", rule)
    if not names:
        raise ConfigurationError(market.file, "nodes", 'there is no customer: add a table with role = "customer"')
    places = [market.processes_of(origin) for origin in names]
    if wanted is not None:
        places = [tuple([plan for plan in plans if plan.stripe in wanted]) for plans in places]
        places = [plans for plans in places if len(plans) == len(wanted)]
    if not places:
        listed = ", ".join(map(str, wanted or ()))
        raise ConfigurationError(
            market.file, f"nodes.{names[0]}.stripes", f"this customer does not hear stripe {listed}"
        )
    return sorted(places, key=lambda plans: plans[0].start)


def _join_point(start: Start | None, stripe: int, *, alone: bool) -> tuple[JoinPoint | None, int]:
    """Where to begin in a stripe, and with which sequence if that matters."""
    if start is None:
        return None, 1
    if isinstance(start, Mapping):
        first = start.get(stripe, 1)
        if isinstance(first, int) and 1 <= first <= MAX_NUMBER:
            return JoinPoint.SEQUENCE, first
        raise ConfigurationError("listen", "start", f"{first!r} is not a sequence number of 1 or more")
    if isinstance(start, str) and start in _POINTS:
        return _POINTS[start], 1
    if _instant_of(start) is not None:
        return JoinPoint.SEQUENCE, 1
    if isinstance(start, int) and 1 <= start <= MAX_NUMBER:
        if not alone:
            rule = f"{start} is a sequence of one stripe: choose a stripe, or give one for each, such as 0:{start},1:1"
            raise ConfigurationError("listen", "start", rule)
        return JoinPoint.SEQUENCE, start
    rule = f"{start!r} is neither {', '.join(_POINTS)} nor a sequence from 1 on nor a time such as 2026-03-02T14:30:00Z"
    raise ConfigurationError("listen", "start", rule)


def _instant_of(start: Start | None) -> int | None:
    """The time at which to begin, in UTC if it names no zone; None for anything else."""
    if not isinstance(start, str | datetime) or start in _POINTS:
        return None
    try:
        instant = read_instant(start if isinstance(start, str) else start.isoformat())
    except ValueError:
        return None
    if instant > time_ns():
        raise ConfigurationError("listen", "start", f"{start} is in the future: nothing has been released up to then")
    return instant


def _sum(some: Iterable[NodeCounters]) -> NodeCounters:
    """Counts of several stripes as one's; what is no number stays empty."""
    total = NodeCounters()
    for counters in some:
        for name in NodeCounters.__dataclass_fields__:
            value = getattr(counters, name)
            if isinstance(value, int):
                setattr(total, name, getattr(total, name) + value)
    return total
