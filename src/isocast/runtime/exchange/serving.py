"""An exchange that is served: a complete customer of a market on one side, a FIX session on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from isocast.floor.codec import floor_topic
from isocast.orders.delivery import Place
from isocast.orders.exchange import answers_topic
from isocast.runtime.accounts.fix.initiator import Acceptor, FixInitiator
from isocast.runtime.accounts.fix.store import SessionName, SessionStore
from isocast.runtime.client.listener import Listener
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.client.received import ReceivedBatch
from isocast.runtime.exchange.delivery import Alarm, DeliveryPace, ExchangeDelivery, stay_connected
from isocast.runtime.exchange.fix_orders import TAKES
from isocast.runtime.exchange.spool import HeardMessage, Spool
from isocast.runtime.market.model import Market
from isocast.terms.errors import ConfigurationError, StoreError
from isocast.wire.opaque import OpaqueMessage, cut_opaque

__all__ = ["ExchangePlan", "open_stores", "serve_exchange", "spool_path"]

_SPOOL: Final = "spool.db"
_SESSION: Final = "fix.db"
_MADE: Final = "made"
_POSITION_S: Final = 1.0
"""Between two notes of how far the sequence was heard, while none of it was the exchange's."""


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """What an exchange is served with."""

    market: Market
    code: str
    """Of the exchange: orders of its topic are directed to it."""
    source: str
    """At whose door its reports are published."""
    acceptor: Acceptor
    folder: Path
    """Where the spool and the numbers of the FIX session are."""
    customer: str | None = None
    """As whom it hears the sequence; None: wherever there is room."""
    resets: bool = False
    """Both sides of the FIX session begin again at 1."""
    pace: DeliveryPace = field(default_factory=DeliveryPace)


def spool_path(folder: Path) -> Path:
    """The file that says where an exchange stands."""
    return folder / _SPOOL


def open_stores(folder: Path, code: str, stripe: int) -> tuple[Spool, SessionStore]:
    """Spool and session; made the first time, and never again: a new one would deliver every order again."""
    mark = folder / _MADE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_new = not mark.exists()
        spool = Spool(spool_path(folder), code, stripe=stripe, is_new=is_new and not spool_path(folder).exists())
        try:
            store = SessionStore(folder / _SESSION, is_new=is_new and not (folder / _SESSION).exists())
        except BaseException:
            spool.close()
            raise
        mark.touch(mode=0o600)
    except OSError as error:
        raise StoreError(str(folder), f"cannot be written: {error.strerror}") from None
    return spool, store


async def serve_exchange(plan: ExchangePlan, alarm: Alarm, ready: Callable[[], None] = lambda: None) -> None:
    """Serve an exchange until it is cancelled, or the market cannot be heard: then IsocastError says why."""
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(Publisher(plan.market, plan.source))
        stripe = _stripe_of(publisher, plan.code)
        spool, store = await asyncio.to_thread(open_stores, plan.folder, plan.code, stripe)
        stack.callback(spool.close)
        stack.push_async_callback(store.close)
        kept = await store.load(SessionName(ExchangeDelivery.account, plan.acceptor.theirs, plan.acceptor.ours))
        if kept is None:
            raise StoreError(str(plan.folder), "has too many FIX sessions: give each exchange a folder of its own")

        async def find_sent(number: int) -> bytes | None:
            found = await store.read(kept.id, number, number, 1)
            return found[0][1] if found else None

        async def publish(messages: Sequence[tuple[bytes, OpaqueMessage]]) -> None:
            room = publisher.block_bytes
            await publisher.publish_parts(
                {stripe: [(key, block) for key, message in messages for block in cut_opaque([message], room)]}
            )

        delivery = ExchangeDelivery(spool, publish, find_sent=find_sent, pace=plan.pace, alarm=alarm)
        state = await delivery.open()
        stack.push_async_callback(delivery.close)
        start = state.sequence + 1 if state.sequence else "beginning"
        listener = await stack.enter_async_context(
            Listener(plan.market, plan.customer, latest=False, start=start, stripes=[stripe])
        )
        initiator = FixInitiator(plan.acceptor, delivery, store, TAKES)
        ready()
        work = [
            asyncio.create_task(_follow(delivery, listener, floor_topic(plan.code))),
            asyncio.create_task(stay_connected(delivery, initiator, plan.pace, alarm, resets=plan.resets)),
            asyncio.create_task(delivery.until_failed()),
        ]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await initiator.log_out("the delivery stops")
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)


def _stripe_of(publisher: Publisher, code: str) -> int:
    """Where the exchange's topics travel; ConfigurationError where their order would be nobody's."""
    topics = floor_topic(code), answers_topic(code)
    stripes = publisher.routes.split_topics([OpaqueMessage(topic, b"") for topic in topics], publisher.lanes)
    if len(stripes) > 1:
        rule = f"must be in one stripe: {', '.join(topics)} are in {', '.join(map(str, sorted(stripes)))}"
        raise ConfigurationError("market", "topics of the exchange", rule)
    return next(iter(stripes))


async def _follow(delivery: ExchangeDelivery, listener: Listener, topic: str) -> None:
    noted = monotonic()
    async for batch in listener:
        messages = _directed(batch, topic)
        if messages or monotonic() - noted > _POSITION_S:
            await delivery.take(messages, batch.last_sequence)
            noted = monotonic()


def _directed(batch: ReceivedBatch, topic: str) -> list[HeardMessage]:
    return [
        HeardMessage(Place(one.sequence, one.index), one.instant_ns, one.payload)
        for one in batch.messages()
        if one.topic == topic
    ]
