"""A gateway that runs: its desk between a market and the ways in.

It publishes at a source's door and hears the released sequence like any complete customer. A customer learns that a
token is over from the next one, and that it is stable from one a round of the ring later; where none comes, the gateway
publishes a tick, a message that means nothing, and the token that orders it says so. Nothing is guessed from a clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from secrets import token_bytes
from typing import Final, Protocol, TypeAlias

from isocast.floor.codec import floor_topic
from isocast.floor.corrections import correction_topic
from isocast.floor.following import FloorMessage
from isocast.floor.reporting import report_topic
from isocast.orders.desk import Desk
from isocast.runtime.accounts.desk import DeskPace, GatewayDesk
from isocast.runtime.accounts.floor_view import tick_topic
from isocast.runtime.accounts.order_store import Position
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.accounts.trading import DeskSettings, TradingBooks
from isocast.runtime.client.listener import Listener
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.client.received import ReceivedMessage
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.watch.logs import get_log
from isocast.terms.errors import ConfigurationError, IsocastError
from isocast.wire.opaque import OpaqueMessage

__all__ = ["GatewayPlan", "MessageBatch", "WayIn", "follow", "follow_always", "serve_gateway"]

WayIn: TypeAlias = Callable[[Desk], Awaitable[None]]
"""Serves a desk until it is cancelled: FIX, HTTPS."""
_AGAIN_S: Final = (0.5, 300.0)
"""Before the sequence is heard again: at first, and at most."""
_TICK_S: Final = 0.05
"""A token's period and a release: who waits longer for the next token is told by a tick."""


class MessageBatch(Protocol):
    """What a listener hands over."""

    def messages(self) -> list[ReceivedMessage]:
        """The opaque messages, in sequence."""


NextBatch: TypeAlias = Callable[[], Awaitable[MessageBatch]]
Listening: TypeAlias = Callable[[Position, Callable[[], None]], AbstractAsyncContextManager[NextBatch]]
"""Hears the sequence from a position on, and says when what it handed over is not what others have."""


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """What a gateway runs with."""

    market: Market
    source: str
    """At whose door it publishes."""
    database: str
    customer: str | None = None
    """As whom it hears the sequence; None: wherever there is room."""
    settings: DeskSettings = field(default_factory=DeskSettings)
    accepts_unknown: bool = False
    """Trade although the sequence has orders of this gateway that the books do not have."""
    pace: DeskPace = field(default_factory=DeskPace)


async def serve_gateway(
    plan: GatewayPlan, ways: Sequence[WayIn] = (), ready: Callable[[], None] = lambda: None
) -> None:
    """Run a gateway until it is cancelled, or cannot go on: then IsocastError says why."""
    code = plan.settings.floor
    topics = (floor_topic(code), report_topic(code), tick_topic(code), correction_topic(code))
    database = AccountsDatabase(plan.database)
    async with AsyncExitStack() as stack:
        stack.callback(database.close)
        publisher = await stack.enter_async_context(Publisher(plan.market, plan.source))
        _one_stripe(publisher, topics)
        members = sum(node.role is NodeRole.PRIMARY_RECEIVER for node in plan.market.nodes)
        settings = replace(plan.settings, stable_tokens=plan.settings.stable_tokens or members)
        books = TradingBooks(database, settings)
        books.refuses_unknown = not plan.accepts_unknown
        desk = await stack.enter_async_context(GatewayDesk(database, books, publisher.send, pace=plan.pace))

        @asynccontextmanager
        async def listening(start: Position, lost: Callable[[], None]) -> AsyncIterator[NextBatch]:
            first = start.sequence + 1 if start.sequence else "beginning"
            async with Listener(
                plan.market, plan.customer, latest=False, start=first, topics=topics, conflict=lambda _: lost()
            ) as listener:
                yield _marking(listener.__anext__, own, here)

        async def tick(mark: bytes = b"tick") -> None:
            await publisher.send([OpaqueMessage(tick_topic(code), mark)], token_bytes(16))

        own = token_bytes(16)
        here: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_until_failed(desk))
                group.create_task(follow_always(desk, listening, tick))
                await tick(own)
                # Whoever came earlier would trade on a floor of the past. The token of the mark counts, too: what was
                # published just before may be in it.
                await desk.until_applied(await here)
                books.refuses_unknown = False
                ready()
                for way in ways:
                    group.create_task(_served(way, desk))
        except ExceptionGroup as several:
            first = several.exceptions[0]
            raise first if isinstance(first, IsocastError) else several from None


def _one_stripe(publisher: Publisher, topics: Sequence[str]) -> None:
    """ConfigurationError where a floor's topics travel in different stripes: their order would be nobody's."""
    stripes = publisher.routes.split_topics([OpaqueMessage(topic, b"") for topic in topics], publisher.lanes)
    if len(stripes) > 1:
        rule = f"must be in one stripe: {', '.join(topics)} are in {', '.join(map(str, sorted(stripes)))}"
        raise ConfigurationError("market", "topics of the floor", rule)


async def _until_failed(desk: GatewayDesk) -> None:
    failure = await desk.until_failed()
    raise IsocastError(f"the gateway trades no more: {failure}") from failure


async def _served(way: WayIn, desk: Desk) -> None:
    await way(desk)


def _marking(following: NextBatch, mark: bytes, here: asyncio.Future[int]) -> NextBatch:
    """The same batches; `here` becomes the token that ordered the mark."""

    async def next_batch() -> MessageBatch:
        batch = await following()
        if not here.done():
            tokens = [message.token for message in batch.messages() if message.payload == mark]
            if tokens:
                here.set_result(tokens[0])
        return batch

    return next_batch


async def follow_always(
    desk: GatewayDesk,
    listening: Listening,
    tick: Callable[[], Awaitable[None]],
    pauses_s: tuple[float, float] = _AGAIN_S,
) -> None:
    """Follow the sequence; where it is not what was heard before, again from what cannot be lost.

    It is not where two lines carry different messages of one place, and where an arbiter names another state of the
    floor: a reformation may have cut tokens off that were released. Somebody who lies makes a gateway listen again in
    ever longer intervals, and no more.
    """
    start, (pause_s, longest_s) = desk.start, pauses_s
    while True:
        lost = asyncio.Event()
        async with listening(start, lost.set) as following:
            await follow(desk, following, tick, lost=lost)
        if not lost.is_set():
            return
        get_log().error("the sequence is not what was heard: it is heard again", floor=desk.books.settings.floor)
        await asyncio.sleep(pause_s)
        pause_s = min(longest_s, 2 * pause_s)
        await desk.until_taken()
        start = await desk.rewind()


async def follow(
    desk: GatewayDesk,
    following: NextBatch,
    tick: Callable[[], Awaitable[None]],
    patience_s: float = _TICK_S,
    *,
    lost: asyncio.Event | None = None,
) -> None:
    """Give a desk the sequence, batch by batch; where a token stays open, ask for the next one by a tick.

    It ends when `lost` is set, and sets it where arbiters do not agree with the desk.
    """
    lost = lost or asyncio.Event()
    doubts = desk.doubts
    ending = asyncio.ensure_future(lost.wait())
    waiting = asyncio.ensure_future(following())
    both = asyncio.FIRST_COMPLETED
    try:
        while True:
            await desk.until_taken()
            if desk.doubts > doubts:
                lost.set()
            if lost.is_set():
                return
            wait_s = patience_s if desk.wants_token else None
            done, _ = await asyncio.wait([waiting, ending], timeout=wait_s, return_when=both)
            if not done:
                await tick()
                await asyncio.wait([waiting, ending], return_when=both)
            if lost.is_set():
                continue
            try:
                batch = waiting.result()
            except StopAsyncIteration:
                return
            for message in batch.messages():
                heard = FloorMessage(message.sequence, message.topic, message.payload, message.shuffle_key)
                await desk.take(message.token, message.instant_ns, heard)
            waiting = asyncio.ensure_future(following())
    finally:
        waiting.cancel()
        ending.cancel()
