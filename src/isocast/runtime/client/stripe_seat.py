"""One stripe of a market, heard from a program: a customer that lives in this event loop, and its inbox.

A log of the host is given to whoever listens, line by line, and disturbs no program's own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from isocast.hierarchy.customer import CustomerSnapshot
from isocast.hierarchy.customer_settings import Grade, JoinPoint
from isocast.hierarchy.edge import ConflictFound
from isocast.runtime.client.received import Inbox
from isocast.runtime.hosts.context import Context
from isocast.runtime.hosts.customer import CustomerHost, Seat
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import ClockSource, Market, NodePlan
from isocast.runtime.net.clock import SystemClock
from isocast.runtime.watch.counters import NodeCounters
from isocast.runtime.watch.logs import redact
from isocast.runtime.watch.status import Alarms

__all__ = ["Conflict", "StripeSeat", "Wish"]

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
            f" ({self.first_digest[:16]} and {self.other_digest[:16]}); that of {self.first_line} came first and stands"
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
    ) -> None:
        """Take the place; nothing is heard before `start`."""
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
        keys, loop, log = load_keys(market, plan), asyncio.get_running_loop(), _log(self._told)
        context = Context(market, replace(plan, http_port=0), clock, keys, self.counters, loop, self._alarm, log)
        return CustomerHost(context, Seat(wish.grade, wish.join, wish.first_sequence, self.inbox))

    @property
    def plan(self) -> NodePlan:
        """Which customer of the market it is."""
        return self.host.plan

    def snapshot(self) -> CustomerSnapshot:
        """The state of its machine: lines, gaps, counts."""
        return self.host.machine.snapshot()

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
