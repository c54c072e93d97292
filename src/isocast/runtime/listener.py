"""Listen to a market from a program: a customer that lives in this event loop and hands its batches over.

    async for batch in isocast.listen("market.toml"):
        print(batch.last_sequence, batch.events["price"])

Sockets are read whether or not the program keeps up. What a program does not read waits in a bounded inbox; when that
is full, a complete service rests and fetches the rest later, and the grade latest keeps the newest of each key. Nothing
of this touches anybody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from isocast.hierarchy.edge import ConflictFound
from isocast.nodes.customer import CustomerSnapshot, Grade, JoinPoint
from isocast.runtime.clock import SystemClock
from isocast.runtime.counters import NodeCounters
from isocast.runtime.key_files import load_keys
from isocast.runtime.logs import redact
from isocast.runtime.market import ClockSource, Market, NodePlan, NodeRole
from isocast.runtime.market_file import load_market
from isocast.runtime.received import Inbox, ReceivedBatch
from isocast.runtime.roles.context import Context
from isocast.runtime.roles.customer import CustomerHost, Seat
from isocast.runtime.status import Alarms
from isocast.terms.errors import ConfigurationError, IsocastError, TransportError
from isocast.terms.suggestion import suggestion
from isocast.wire.limits import MAX_NUMBER

__all__ = ["INBOX_MESSAGES", "Conflict", "Listener", "Start", "listen"]

Start: TypeAlias = str | int
"""now, beginning, snapshot, or the first sequence that is wanted."""

INBOX_MESSAGES = 16_384
"""Messages that wait for a program that does not keep up: 22 MB, and four fetches of a customer that is behind."""
_TICK_S = 1.0
_LEAVING_S = 0.5
_POINTS = {"now": JoinPoint.NOW, "beginning": JoinPoint.SEQUENCE, "snapshot": JoinPoint.SNAPSHOT}


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
            f" ({self.first_digest[:16]} and {self.other_digest[:16]}); that of {self.first_line} came first and stands"
        )


def listen(
    market: Market | Path | str,
    customer: str | None = None,
    *,
    latest: bool | None = None,
    start: Start | None = None,
    inbox_messages: int = INBOX_MESSAGES,
) -> AsyncGenerator[ReceivedBatch]:
    """Batches of a market as they are released, for ever; leaving the loop closes everything.

    `customer` is a customer of the market's file: without a name the first whose ports nobody uses. Its grade may be
    changed by `latest`. `start` is now, beginning, snapshot or a sequence; left out, it is now, and for the grade
    latest a snapshot where a retransmit server gives one.
    """
    return _batches(Listener(market, customer, latest=latest, start=start, inbox_messages=inbox_messages))


async def _batches(listener: Listener) -> AsyncGenerator[ReceivedBatch]:
    async with listener:
        async for batch in listener:
            yield batch


class Listener:
    """The same as an object, to be used in an `async with` block: for whoever wants counters and alarms too."""

    def __init__(
        self,
        market: Market | Path | str,
        customer: str | None = None,
        *,
        latest: bool | None = None,
        start: Start | None = None,
        inbox_messages: int = INBOX_MESSAGES,
        told: Callable[[str], None] | None = None,
        conflict: Callable[[Conflict], None] | None = None,
    ) -> None:
        """`told` hears of what goes wrong, a line each; left out, the logger `isocast` does.

        `conflict` hears of every message of which two lines carry different contents; of the first of two lines,
        `told` hears too.
        """
        self.market = market if isinstance(market, Market) else load_market(Path(market))
        self.counters = NodeCounters()
        self.alarms = Alarms()
        self._named = customer is not None
        self._latest = latest
        self._join, self._first = _join_point(start)
        self._candidates = self._suitable(_candidates(self.market, customer))
        self._inbox = Inbox(inbox_messages, self.market.timing.release_delay_ns)
        self._told = told or logging.getLogger("isocast").warning
        self._conflict = conflict or (lambda _: None)
        self._host: CustomerHost | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    # What it is ---------------------------------------------------------------------------------

    @property
    def plan(self) -> NodePlan:
        """The customer of the market's file that it is."""
        return self._running.plan

    @property
    def grade(self) -> Grade:
        """Its grade of service."""
        return self._running.grade

    def snapshot(self) -> CustomerSnapshot:
        """The state of its machine: lines, gaps, counts."""
        return self._running.machine.snapshot()

    @property
    def _running(self) -> CustomerHost:
        if self._host is None:
            raise IsocastError("this listener is not open: use it in an `async with` block")
        return self._host

    # Life ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Take a customer's place and begin to hear."""
        host = self._host = await self._take_place()
        host.driver.failed = self._fail
        host.on_conflict(self._conflict_found)
        await host.start()
        self._ticking = asyncio.create_task(self._tick(host), name=f"listen as {host.plan.name}")

    async def _take_place(self) -> CustomerHost:
        """The first customer whose ports are free; one that this program has just left is free in a moment."""
        until = asyncio.get_running_loop().time() + _LEAVING_S
        while True:
            busy: TransportError | None = None
            for plan in self._candidates:
                try:
                    return self._seated(plan)
                except TransportError as reason:
                    busy = reason
            if asyncio.get_running_loop().time() > until:
                raise self._nowhere(busy)
            await asyncio.sleep(_LEAVING_S / 10)

    async def close(self) -> None:
        """Close every socket and connection."""
        if self._ticking is not None:
            self._ticking.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticking
            self._ticking = None
        if self._host is not None:
            host, self._host = self._host, None
            await host.stop()
        self._inbox.news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedBatch:
        # However much there is to read, the sockets have their turn.
        await asyncio.sleep(0)
        inbox = self._inbox
        while not inbox:
            if self._failure is not None:
                raise IsocastError(f"listening ended: {self._failure}") from self._failure
            if self._host is None:
                raise StopAsyncIteration
            inbox.news.clear()
            await inbox.news.wait()
        batch = inbox.pop()
        if self._host is not None and self._host.is_behind and inbox.has_room:
            self._host.catch_up()
        return batch

    # Inside -------------------------------------------------------------------------------------

    def _grade(self, plan: NodePlan) -> Grade:
        if self._latest is None:
            return Grade(plan.grade.value)
        return Grade.LATEST if self._latest else Grade.COMPLETE

    def _suitable(self, plans: tuple[NodePlan, ...]) -> tuple[NodePlan, ...]:
        """Those that can begin where they are asked to."""
        if self._join is not JoinPoint.SEQUENCE:
            return plans
        complete = tuple([plan for plan in plans if self._grade(plan) is Grade.COMPLETE])
        if not complete:
            raise ConfigurationError("listen", "start", "grade latest never asks for the past: now or snapshot")
        return complete

    def _seated(self, plan: NodePlan) -> CustomerHost:
        market = self.market
        clock = SystemClock(
            plan.clock_error_ns or market.clock.bound_ns or None,
            watch_kernel=market.clock.source is ClockSource.KERNEL,
            file=market.file,
        )
        keys, loop, log = load_keys(market, plan), asyncio.get_running_loop(), _log(self._told)
        context = Context(market, replace(plan, http_port=0), clock, keys, self.counters, loop, self._alarm, log)
        return CustomerHost(context, Seat(self._grade(plan), self._join, self._first, self._inbox))

    def _nowhere(self, busy: TransportError | None) -> IsocastError:
        if self._named:
            name = self._candidates[0].name
            return TransportError(f"{name} is in use, or this machine does not have its address: {busy}")
        names = ", ".join([plan.name for plan in self._candidates])
        rule = f"every customer is in use ({names}): add one with start = false, for programs that listen"
        return ConfigurationError(self.market.file, "nodes", rule)

    def _alarm(self, code: str, text: str, remedy: str) -> None:
        if self._host is not None and self.alarms.raise_alarm(code, text, remedy, self._host.driver.clock.now()):
            self._told(f"{text} ({remedy})")

    def _conflict_found(self, found: ConflictFound) -> None:
        first, other = self.market.name_of(found.first_line), self.market.name_of(found.other_line)
        self._conflict(Conflict(found.sequence, first, other, found.first_digest.hex(), found.other_digest.hex()))

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._inbox.news.set()

    async def _tick(self, host: CustomerHost) -> None:
        while self._failure is None:
            await asyncio.sleep(_TICK_S)
            try:
                host.tick(host.driver.clock.now())
            except Exception as error:  # noqa: BLE001 - whoever waits for a batch is told, whatever it is
                self._fail(error)


def _candidates(market: Market, name: str | None) -> tuple[NodePlan, ...]:
    """The customer of that name, or all: first those that no `isocast up` starts."""
    customers = market.by_role(NodeRole.CUSTOMER)
    if name is None:
        if not customers:
            raise ConfigurationError(market.file, "nodes", 'nobody may listen: add a table with role = "customer"')
        return tuple(sorted(customers, key=lambda plan: plan.start))
    plan = market.by_name.get(name)
    if plan is None or plan.role is not NodeRole.CUSTOMER:
        names = [customer.name for customer in customers]
        rule = f"is no customer{suggestion(name, names)}; there are {', '.join(names) or 'none'}"
        raise ConfigurationError(market.file, f"nodes.{name}", rule)
    return (plan,)


def _join_point(start: Start | None) -> tuple[JoinPoint | None, int]:
    """Where to begin, and with which sequence if that matters."""
    if start is None:
        return None, 1
    if isinstance(start, str) and start in _POINTS:
        return _POINTS[start], 1
    if isinstance(start, int) and 1 <= start <= MAX_NUMBER:
        return JoinPoint.SEQUENCE, start
    points = ", ".join(_POINTS)
    raise ConfigurationError("listen", "start", f"{start!r} is neither {points} nor a sequence from 1 on")


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
