"""A gateway that runs: its desk between a market and the ways in.

It publishes at a source's door and hears the released sequence like any complete customer. A customer learns that a
token is over from the next one, and that it is stable from one a round of the ring later; where none comes, the gateway
publishes a tick, a message that means nothing, and the token that orders it says so. Nothing is guessed from a clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from secrets import token_bytes
from typing import Final, Protocol, TypeAlias

from isocast.floor.codec import floor_topic
from isocast.floor.reporting import report_topic
from isocast.orders.desk import Desk
from isocast.runtime.accounts.desk import DeskPace, GatewayDesk
from isocast.runtime.accounts.floor_view import tick_topic
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.accounts.trading import DeskSettings, TradingBooks
from isocast.runtime.client.listener import Listener
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.client.received import ReceivedMessage
from isocast.runtime.market.model import Market, NodeRole
from isocast.terms.errors import ConfigurationError, IsocastError
from isocast.wire.opaque import OpaqueMessage

__all__ = ["GatewayPlan", "MessageBatch", "WayIn", "follow", "serve_gateway"]

WayIn: TypeAlias = Callable[[Desk], Awaitable[None]]
"""Serves a desk until it is cancelled: FIX, HTTPS."""
_TICK_S: Final = 0.05
"""A token's period and a release: who waits longer for the next token is told by a tick."""


class MessageBatch(Protocol):
    """What a listener hands over."""

    def messages(self) -> list[ReceivedMessage]:
        """The opaque messages, in sequence."""


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
    topics = (floor_topic(code), report_topic(code), tick_topic(code))
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
        sequence = desk.start.sequence
        start = sequence + 1 if sequence else "beginning"
        listener = await stack.enter_async_context(
            Listener(plan.market, plan.customer, latest=False, start=start, topics=topics)
        )

        async def tick(mark: bytes = b"tick") -> None:
            await publisher.send([OpaqueMessage(tick_topic(code), mark)], token_bytes(16))

        own = token_bytes(16)
        is_here = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_until_failed(desk))
                following = _marking(listener.__anext__, own, is_here)
                group.create_task(follow(desk, following, tick))
                await tick(own)
                await is_here.wait()  # Whoever came earlier would trade on a floor of the past.
                await desk.until_taken()
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


def _marking(
    following: Callable[[], Awaitable[MessageBatch]], mark: bytes, is_here: asyncio.Event
) -> Callable[[], Awaitable[MessageBatch]]:
    """The same batches; `is_here` is set with the one after that which has the mark: all before it was given away."""
    has_come = False

    async def next_batch() -> MessageBatch:
        nonlocal has_come
        if has_come:
            is_here.set()
        batch = await following()
        has_come = has_come or any(message.payload == mark for message in batch.messages())
        return batch

    return next_batch


async def follow(
    desk: GatewayDesk,
    following: Callable[[], Awaitable[MessageBatch]],
    tick: Callable[[], Awaitable[None]],
    patience_s: float = _TICK_S,
) -> None:
    """Give a desk the sequence, batch by batch; where a token stays open, ask for the next one by a tick."""
    waiting = asyncio.ensure_future(following())
    try:
        while True:
            await desk.until_taken()
            done, _ = await asyncio.wait([waiting], timeout=patience_s if desk.wants_token else None)
            if not done:
                await tick()
                await asyncio.wait([waiting])
            try:
                batch = waiting.result()
            except StopAsyncIteration:
                return
            for message in batch.messages():
                await desk.take(message.token, message.instant_ns, message.sequence, message.topic, message.payload)
            waiting = asyncio.ensure_future(following())
    finally:
        waiting.cancel()
