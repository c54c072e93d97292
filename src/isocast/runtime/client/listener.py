"""Listen to a market from a program: a customer that lives in this event loop and hands its batches over.

    async for batch in isocast.listen("market.toml"):
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
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from isocast.hierarchy.customer import CustomerSnapshot
from isocast.hierarchy.customer_settings import Grade, JoinPoint
from isocast.runtime.client.heard_stripes import HeardStripes
from isocast.runtime.client.received import Inbox, ReceivedBatch
from isocast.runtime.client.stripe_seat import Conflict, StripeSeat, Wish
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.watch.counters import NodeCounters
from isocast.runtime.watch.status import Alarms, wrong_key_reason
from isocast.striping.cut import Cut
from isocast.terms.errors import ConfigurationError, IsocastError, TransportError
from isocast.terms.suggestion import suggestion
from isocast.wire.limits import MAX_NUMBER

__all__ = ["INBOX_MESSAGES", "Conflict", "Listener", "Start", "listen"]

Start: TypeAlias = "str | int | Mapping[int, int]"
"""now, beginning, snapshot, or the first sequence that is wanted: of several stripes one for each."""

INBOX_MESSAGES = 16_384
"""Messages that wait for a program that does not keep up: 22 MB, and four fetches of a customer that is behind."""
_LEAVING_S = 0.5
_POINTS = {"now": JoinPoint.NOW, "beginning": JoinPoint.SEQUENCE, "snapshot": JoinPoint.SNAPSHOT}


def listen(
    market: Market | Path | str,
    customer: str | None = None,
    *,
    latest: bool | None = None,
    start: Start | None = None,
    inbox_messages: int = INBOX_MESSAGES,
    stripes: Iterable[int] | None = None,
    symbols: Iterable[str] | None = None,
    merged: bool = True,
) -> AsyncGenerator[ReceivedBatch]:
    """Batches of a market as they are released, for ever; leaving the loop closes everything.

    `customer` is a customer of the market's file: without a name the first whose ports nobody uses. Its grade may be
    changed by `latest`. `start` is now, beginning, snapshot or a sequence; left out, it is now, and for the grade
    latest a snapshot where a retransmit server gives one. `stripes`, or those of `symbols`, are heard instead of all;
    with `merged` false, or the grade latest, each as it comes.
    """
    listener = Listener(
        market,
        customer,
        latest=latest,
        start=start,
        inbox_messages=inbox_messages,
        stripes=stripes,
        symbols=symbols,
        merged=merged,
    )
    return _batches(listener)


async def _batches(listener: Listener) -> AsyncGenerator[ReceivedBatch]:
    async with listener:
        async for batch in listener:
            yield batch


class Listener:
    """The same as an object, to be used in an `async with` block: for whoever wants counters and alarms too."""

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
        merged: bool = True,
    ) -> None:
        """`told` hears of what goes wrong, a line each; left out, the logger `isocast` does.

        `conflict` hears of every message of which two lines carry different contents; of the first of two lines,
        `told` hears too.
        """
        self.market = market if isinstance(market, Market) else load_market(Path(market))
        self.alarms = Alarms()
        self._named = customer is not None
        self._latest = latest
        self._start = start
        self._room = inbox_messages
        wanted = wanted_stripes(self.market, stripes, symbols)
        self._candidates = self._suitable(_candidates(self.market, customer, wanted))
        self._told = told or logging.getLogger("isocast").warning
        self._conflict = conflict or (lambda _: None)
        self._merged = merged
        self._news = asyncio.Event()
        self._seats: tuple[StripeSeat, ...] = ()
        self._heard: HeardStripes | None = None
        self._is_open = False

    # What it is ---------------------------------------------------------------------------------

    @property
    def plan(self) -> NodePlan:
        """The customer of the market's file that it is: its place in the first stripe that it hears."""
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
            return f"no line is heard yet: {wrong_key_reason(forged, 'edge.key')}"
        where = f" of stripe {silent[0].plan.stripe}" if len(self._seats) > 1 else ""
        return f"no line{where} is heard yet: is the market up? isocast up --config … starts it, isocast doctor looks"

    def cut(self, instant: int) -> Cut | None:
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
                seat = StripeSeat(self.market, plan, wish, inbox, self.alarms, self._told, self._conflict)
                opened.push_async_callback(seat.close)
                seats.append(seat)
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
                return batch
            failure = next((seat.failure for seat in self._seats if seat.failure is not None), None)
            if failure is not None:
                raise IsocastError(f"listening ended: {failure}") from failure
            if self._heard is None or not self._is_open:
                raise StopAsyncIteration
            self._news.clear()
            await self._heard.wait(self._news)

    # Inside -------------------------------------------------------------------------------------

    def _grade(self, plan: NodePlan) -> Grade:
        if self._latest is None:
            return Grade(plan.grade.value)
        return Grade.LATEST if self._latest else Grade.COMPLETE

    def _suitable(self, candidates: list[tuple[NodePlan, ...]]) -> list[tuple[NodePlan, ...]]:
        """Those that can begin where they are asked to."""
        plans = candidates[0]
        points = {_join_point(self._start, plan.stripe, alone=len(plans) == 1)[0] for plan in plans}
        if points != {JoinPoint.SEQUENCE}:
            return candidates
        complete = [plans for plans in candidates if self._grade(plans[0]) is Grade.COMPLETE]
        if not complete:
            raise ConfigurationError("listen", "start", "grade latest never asks for the past: now or snapshot")
        return complete

    def _nowhere(self, busy: TransportError | None) -> IsocastError:
        if self._named:
            name = self._candidates[0][0].origin
            return TransportError(f"{name} is in use, or this machine does not have its address: {busy}")
        names = ", ".join([plans[0].origin for plans in self._candidates])
        rule = f"every customer is in use ({names}): add one with start = false, for programs that listen"
        return ConfigurationError(self.market.file, "nodes", rule)


def wanted_stripes(
    market: Market, stripes: Iterable[int] | None, symbols: Iterable[str] | None
) -> tuple[int, ...] | None:
    """Which stripes are asked for, by number or by symbol; None: all that a customer has."""
    wanted = set(stripes) if stripes is not None else set()
    strange = sorted(wanted - set(market.stripes))
    if strange:
        listed = ", ".join(map(str, market.stripes))
        raise ConfigurationError("listen", "stripes", f"{market.name} has no stripe {strange[0]}; there are {listed}")
    if symbols is not None:
        from isocast.runtime.market.routes import core_routes  # noqa: PLC0415 - most listeners need no plan

        routes = core_routes(market)
        wanted |= {routes.stripe_of(symbol) for symbol in symbols}
    return tuple(sorted(wanted)) or None


def _candidates(market: Market, name: str | None, wanted: tuple[int, ...] | None) -> list[tuple[NodePlan, ...]]:
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
            rule = f"is no customer{suggestion(name, names)}; there are {', '.join(names) or 'none'}"
            raise ConfigurationError(market.file, f"nodes.{name}", rule)
    if not names:
        raise ConfigurationError(market.file, "nodes", 'nobody may listen: add a table with role = "customer"')
    places = [market.processes_of(origin) for origin in names]
    if wanted is not None:
        places = [tuple([plan for plan in plans if plan.stripe in wanted]) for plans in places]
        places = [plans for plans in places if len(plans) == len(wanted)]
    if not places:
        listed = ", ".join(map(str, wanted or ()))
        raise ConfigurationError(market.file, f"nodes.{names[0]}.stripes", f"no such customer hears stripe {listed}")
    return sorted(places, key=lambda plans: plans[0].start)


def _join_point(start: Start | None, stripe: int, *, alone: bool) -> tuple[JoinPoint | None, int]:
    """Where to begin in a stripe, and with which sequence if that matters."""
    if start is None:
        return None, 1
    if isinstance(start, Mapping):
        first = start.get(stripe, 1)
        if isinstance(first, int) and 1 <= first <= MAX_NUMBER:
            return JoinPoint.SEQUENCE, first
        raise ConfigurationError("listen", "start", f"{first!r} is no sequence from 1 on")
    if isinstance(start, str) and start in _POINTS:
        return _POINTS[start], 1
    if isinstance(start, int) and 1 <= start <= MAX_NUMBER:
        if not alone:
            rule = f"{start} is a sequence of one stripe: choose a stripe, or give one for each, such as 0:{start},1:1"
            raise ConfigurationError("listen", "start", rule)
        return JoinPoint.SEQUENCE, start
    points = ", ".join(_POINTS)
    raise ConfigurationError("listen", "start", f"{start!r} is neither {points} nor a sequence from 1 on")


def _sum(some: Iterable[NodeCounters]) -> NodeCounters:
    """Counts of several stripes as one's; what is no number stays empty."""
    total = NodeCounters()
    for counters in some:
        for name in NodeCounters.__dataclass_fields__:
            value = getattr(counters, name)
            if isinstance(value, int):
                setattr(total, name, getattr(total, name) + value)
    return total
