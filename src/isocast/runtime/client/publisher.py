"""A client that publishes at a source's door, exactly once whatever dies on the way.

Every message carries a key. A message whose answer did not come is sent again under the same key, and the source takes
a key once. So `publish` returns when all of a batch is in the source's outbox, on disk, and a caller that gives its own
keys may even repeat itself after its own crash.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from time import time_ns
from typing import Self, TypeAlias, TypeVar

import numpy as np

from isocast.runtime.client.message_cutter import FULL, MessageCutter
from isocast.runtime.market.file import load_market
from isocast.runtime.market.key_files import load_floor_keys
from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.market.routes import core_routes
from isocast.runtime.net.door import DoorError, DoorRefusedError, Visit, visit_node
from isocast.runtime.net.door_keys import door_hand, publish_door_key, publish_visitor
from isocast.terms.errors import ConfigurationError, IsocastError, LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Label
from isocast.terms.quantities import suggestion
from isocast.wire.door import MAX_BATCH, MAX_KEY, Accepted, Publish, Refused
from isocast.wire.events import EVENT_DTYPE, EventArray, events_view
from isocast.wire.opaque import OpaqueMessage, cut_opaque

__all__ = ["DOOR_BYTES", "Batch", "PublishRefusedError", "Publisher", "SourceDoor", "source_plans"]

Batch: TypeAlias = "EventArray | bytes | bytearray | memoryview"
"""Events: an array of EVENT_DTYPE, or the bytes of one."""

ResultT = TypeVar("ResultT")

DOOR_BYTES = 2 << 20
"""What a door reads ahead of what it has answered."""
_NO_MATCH = "the answer does not match the request"
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_KEY_BYTES = 16
_PLACE_BYTES = 4
"""Behind the caller's key: which message of the batch it is."""
_CALLERS_KEY_BYTES = MAX_KEY - _PLACE_BYTES


class PublishRefusedError(IsocastError):
    """The source refuses a batch, or whoever brings it, for good, and says why."""


class Publisher:
    """One floor's connection to its source; to be used in an `async with` block.

    async with Publisher("market.toml", "nyse") as source:
        await source.publish(events)

    In a market of several stripes the source has a process, and an outbox, in each: events go where their symbols
    belong, events of no symbol everywhere.
    """

    def __init__(self, market: Market | Path | str, source: str, *, patience_s: float = 60.0) -> None:
        """`patience_s` is how long a source may be down before `publish` gives up.

        `source` may also be the name of its process in one stripe, such as nyse.s1: then others' symbols are refused.
        """
        self._market = market if isinstance(market, Market) else load_market(Path(market))
        plans = source_plans(self._market, source)
        self.name = source
        """The source."""
        self.routes = core_routes(self._market)
        """Which symbol travels in which stripe."""
        self.lanes = {plan.stripe: SourceDoor(self._market, plan, patience_s) for plan in plans}
        """Its door in each stripe."""
        self._prefix = token_bytes(_KEY_BYTES - 8)
        self._count = 0

    @property
    def address(self) -> str:
        """Where its doors are."""
        return ", ".join([lane.address for lane in self.lanes.values()])

    @property
    def repeated(self) -> int:
        """Messages that the source had already, under the same keys."""
        return sum([lane.repeated for lane in self.lanes.values()])

    @property
    def events_per_message(self) -> int:
        """How many events travel together."""
        return self._market.events_per_payload

    @property
    def block_bytes(self) -> int:
        """What one message of the market has room for: opaque messages that fit travel together."""
        return self.events_per_message * EVENT_DTYPE.itemsize

    async def __aenter__(self) -> Self:
        try:
            await _all([lane.open() for lane in self.lanes.values()])
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave; everything that `publish` returned for is safe."""
        for lane in self.lanes.values():
            await lane.close()

    async def publish(self, batch: Batch, key: bytes | None = None) -> tuple[Label, ...]:
        """Put events into the sequence, in this order; the labels of their messages, once all are in the outbox.

        An event without a time (0) happened now. With a `key` of the caller's (at most 60 bytes) the same call may be
        repeated at any time: it publishes once.
        A call that was cancelled may have published some of its messages, or none. Of several stripes, each keeps the
        order, and labels are those of the first stripe, then of the next.
        """
        parts = {}
        for stripe, part in self._split(as_bytes(batch, time_ns())).items():
            cutter = MessageCutter(self.events_per_message, FULL)
            cutter.put(np.frombuffer(part, EVENT_DTYPE))
            parts[stripe] = [records for _, records in cutter.cut(None)]
        return await self._publish_keyed(parts, key)

    async def send(self, messages: Iterable[OpaqueMessage], key: bytes | None = None) -> tuple[Label, ...]:
        """Put opaque messages into the sequence, in this order; a topic's messages are all in one stripe.

        Messages share a place in the sequence where they fit one packet. A message without a time was sent now.
        LocalProtocolError names the first message that is too large and the limit, and nothing was sent. `key` is as
        in `publish`, and has nothing to do with the messages' own keys.
        """
        now = time_ns()
        whole = [message if message.sent else message._replace(sent=now) for message in messages]
        split = self.routes.split_topics(whole, self.lanes)
        parts = {stripe: cut_opaque(some, self.block_bytes) for stripe, some in split.items()}
        return await self._publish_keyed(parts, key)

    async def _publish_keyed(self, parts: Mapping[int, Sequence[bytes]], key: bytes | None) -> tuple[Label, ...]:
        """Payloads by stripe; each has the caller's key and its place behind it."""
        if key is None:
            key = self._new_key()
        elif not 0 < len(key) <= _CALLERS_KEY_BYTES:
            raise LocalProtocolError(f"a key of {len(key)} bytes: 1 to {_CALLERS_KEY_BYTES} are possible")
        return await self.publish_parts(
            {
                stripe: [(key + place.to_bytes(_PLACE_BYTES), payload) for place, payload in enumerate(payloads)]
                for stripe, payloads in parts.items()
            }
        )

    async def publish_messages(self, messages: Sequence[tuple[bytes, bytes]]) -> tuple[Label, ...]:
        """The same for messages that the caller has cut, each with a key of its own: (key, records of events).

        A message with symbols of several stripes becomes one in each, under the same key.
        """
        parts: dict[int, list[tuple[bytes, bytes]]] = {}
        for key, whole in messages:
            for stripe, part in self._split(whole).items():
                parts.setdefault(stripe, []).append((key, part))
        return await self.publish_parts(parts)

    def _split(self, whole: bytes) -> dict[int, bytes]:
        """The records of each stripe; LocalProtocolError for a symbol of a stripe in which it does not publish."""
        if len(self.routes.stripes) == 1:
            return dict.fromkeys(self.lanes, whole)
        if len(whole) % EVENT_DTYPE.itemsize:
            raise LocalProtocolError(f"{len(whole)} bytes are not event records: their stripe is unknown")
        parts = self.routes.split(np.frombuffer(whole, EVENT_DTYPE), self.lanes)
        return {stripe: part.tobytes() for stripe, part in parts.items()}

    async def publish_parts(self, parts: Mapping[int, Sequence[tuple[bytes, bytes]]]) -> tuple[Label, ...]:
        """The same for messages that the caller has split by stripe, with `routes`: {stripe: [(key, records)]}."""
        done = await _all([self.lanes[stripe].publish_messages(some) for stripe, some in sorted(parts.items())])
        return tuple([label for labels in done for label in labels])

    def _new_key(self) -> bytes:
        self._count += 1
        return self._prefix + self._count.to_bytes(8)


async def _all(work: Sequence[Coroutine[object, object, ResultT]]) -> list[ResultT]:
    """Every one to its end, or the first that failed; a single one costs no task."""
    if len(work) == 1:
        return [await work[0]]
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class _Said:
    """Messages that were said together, and how often: what is said twice may be known from the first time."""

    messages: tuple[tuple[bytes, bytes], ...]
    times: int = 0


class SourceDoor:
    """The door of a source's process in one stripe."""

    def __init__(self, market: Market, plan: NodePlan, patience_s: float) -> None:
        """Nobody is visited yet."""
        self._market = market
        self._plan = plan
        load_floor_keys(market, plan)  # What is missing is said at once.
        self._patience_s = patience_s
        self._visit: Visit | None = None
        self.repeated = 0
        """Messages that the process had already, under the same keys."""
        self._turn = asyncio.Lock()
        self._under_way: deque[_Said] = deque()
        """What was said and is not answered, oldest first."""

    @property
    def name(self) -> str:
        """The process."""
        return self._plan.name

    @property
    def address(self) -> str:
        """Where its door is."""
        return f"{self._plan.address}:{self._plan.tcp_port}"

    async def open(self) -> None:
        """Come in."""
        await self._patiently(self._connect)

    async def close(self) -> None:
        """Leave."""
        if self._visit is not None:
            await self._visit.close()
            self._visit = None

    async def publish_messages(self, messages: Sequence[tuple[bytes, bytes]]) -> tuple[Label, ...]:
        """Put messages of this stripe into its sequence, in this order: (key, records of events)."""
        labels: list[Label] = []
        async with self._turn:
            if self._under_way:
                self._leave()
            for at in range(0, len(messages), MAX_BATCH):
                labels += await self._deliver(messages[at : at + MAX_BATCH])
        return tuple(labels)

    async def _deliver(self, messages: Sequence[tuple[bytes, bytes]]) -> tuple[Label, ...]:
        """Until the source has answered; a connection that broke is made again, and the same said again."""
        said = 0

        async def once() -> tuple[Label, ...]:
            nonlocal said
            here = self._visit or await self._connect()
            said += 1
            await here.send(Publish(tuple(messages)))
            labels, repeated = await self._accepted(here)
            if len(labels) != len(messages):
                raise DoorError(_NO_MATCH)
            # What we had to say twice ourselves may well have been taken the first time.
            self.repeated += repeated if said == 1 else 0
            return labels

        try:
            return await self._patiently(once)
        except asyncio.CancelledError:
            self._leave()
            raise

    async def say(self, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """Say some messages without waiting for the answer; `answer` gives it, in the same order.

        So a source has the next ones at hand when its window opens. Whoever has said more than DOOR_BYTES waits until
        the source reads on.
        """
        said = _Said(tuple(messages))
        self._under_way.append(said)
        here = self._visit
        if here is None:
            return  # `answer` comes in, and says all that is under way.
        with self._leaving_if_cancelled():
            try:
                await here.send(Publish(said.messages))
                said.times += 1
            except (DoorError, OSError):
                await self.close()

    async def answer(self) -> int:
        """Wait until the oldest of what was said is in the outbox; how many of its messages the process had before."""
        with self._leaving_if_cancelled():
            said = self._under_way[0]
            labels, repeated = await self._patiently(self._next_answer)
            self._under_way.popleft()
        if len(labels) != len(said.messages):
            raise DoorError(f"{self._plan.name}: {_NO_MATCH}")
        known = repeated if said.times == 1 else 0
        self.repeated += known
        return known

    async def _next_answer(self) -> tuple[tuple[Label, ...], int]:
        here = self._visit
        if here is None:
            here = await self._connect()
            for said in self._under_way:
                await here.send(Publish(said.messages))
                said.times += 1
        return await self._accepted(here)

    async def _accepted(self, here: Visit) -> tuple[tuple[Label, ...], int]:
        """The next answer: labels of messages, and how many of them were taken before."""
        match await here.receive():
            case Accepted(labels, repeated):
                return labels, repeated
            case Refused(text):
                raise PublishRefusedError(f"{self._plan.name}: {text}")
            case None:
                raise DoorError("the connection ended before the answer")
            case _:
                raise DoorError(_NO_MATCH)

    @contextmanager
    def _leaving_if_cancelled(self) -> Iterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            self._leave()
            raise

    def _leave(self) -> None:
        """Answers may still come: the next caller must not take them for its own."""
        self._under_way.clear()
        if self._visit is not None:
            self._visit.leave()
            self._visit = None

    async def _patiently(self, attempt: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Try until it succeeds, or until patience ends; a source that is down comes back."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return await attempt()
            except DoorRefusedError as reason:
                raise PublishRefusedError(f"{self._plan.name}: {reason}") from reason
            except (DoorError, RemoteProtocolError, OSError) as reason:
                await self.close()
                if loop.time() > until:
                    raise DoorError(f"{self._plan.name}: {reason}; gave up after {self._patience_s:.0f} s") from reason
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _connect(self) -> Visit:
        market, plan, name = self._market, self._plan, publish_visitor(self._plan)
        keys = load_floor_keys(market, plan)  # Another identity may have taken the place of the last.
        key = publish_door_key(market, keys, name)
        if key is None:
            raise DoorRefusedError(f"{plan.name} is no source")
        self._visit = await visit_node(market, plan, name, key, door_hand(market, keys))
        return self._visit


def as_bytes(batch: Batch, now: int) -> bytes:
    """The records of a batch, checked as every reader will check them; an event without a time gets `now`."""
    if isinstance(batch, np.ndarray):
        if batch.dtype != EVENT_DTYPE or batch.ndim != 1:
            raise LocalProtocolError(f"not a row of events: {batch.dtype} in {batch.ndim} dimensions")
        whole = np.ascontiguousarray(batch).tobytes()
    elif isinstance(batch, bytes | bytearray | memoryview):
        whole = bytes(batch)
    else:
        raise LocalProtocolError(f"{type(batch).__name__} is neither an array of events nor its bytes")
    try:
        events = events_view(whole)
    except RemoteProtocolError as reason:
        raise LocalProtocolError(f"these events cannot be published: {reason}") from reason
    return stamped(events, now).tobytes() if not events["time"].all() else whole


def stamped(events: EventArray, now: int) -> EventArray:
    """The same events, those without a time at `now`: nothing happened in 1970."""
    events = events.copy()
    events["time"][events["time"] == 0] = now
    return events


def source_plans(market: Market, name: str) -> tuple[NodePlan, ...]:
    """The processes of a source in its stripes, or the one that is named."""
    found = market.processes_of(name) or tuple(filter(None, [market.by_name.get(name)]))
    if not found or not found[0].role.is_source:
        sources = list(dict.fromkeys(node.origin for node in market.nodes if node.role.is_source))
        rule = f"is not a source{suggestion(name, sources)}; there are {', '.join(sources) or 'none'}"
        raise ConfigurationError(market.file, f"nodes.{name}", rule)
    if not all(plan.tcp_port for plan in found):
        raise ConfigurationError(market.file, f"nodes.{name}.tcp_port", "is 0: this source has no door")
    return found
