"""A secondary source as a process: a door for the floors of its region, an outbox, and visits to its parent's door.

Floors are answered when their batch is in this outbox, on disk. The parent may be down for as long as it likes; what
waits for it is offered again, for ever, and leaves the disk when the parent has it on its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import assert_never

from isocast.hierarchy.forwarding import (
    Forward,
    ForwardAccepted,
    ForwardFailed,
    ForwardHostEffect,
    ForwardSettings,
    ParentBack,
    ParentSilent,
    SecondarySource,
    SecondarySourceInput,
)
from isocast.ring.effects import PublishAccepted, PublishRejected, Record
from isocast.ring.inputs import PublishRequested
from isocast.runtime.disk.outbox_store import open_outbox_store
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.hosts.process import Context
from isocast.runtime.hosts.publish_door import OutboxGuard, PublishDoor, PublishError, tell_outbox
from isocast.runtime.market.founding import begun
from isocast.runtime.market.routes import insist_on_routes
from isocast.runtime.net.channels import NodeKeys
from isocast.runtime.net.door import DoorError, Visit
from isocast.runtime.net.door_keys import publish_visitor
from isocast.runtime.watch.counters import NodeGauges
from isocast.terms.errors import ConfigurationError, RemoteProtocolError
from isocast.terms.ids import Label, source_id
from isocast.terms.instants import NEVER
from isocast.terms.quantities import counted
from isocast.wire.door import Accepted, Publish
from isocast.wire.limits import EVENT_BYTES

__all__ = ["SecondarySourceHost"]

_ANSWER_S = 30.0
"""A parent whose window is full answers late. After this the same is said again, in case the connection is dead."""
_GREETING_S = 1.0
"""Between two attempts to find the parent before there is anything to send."""


class SecondarySourceHost:
    """What surrounds the machine of one secondary source."""

    def __init__(self, context: Context) -> None:
        """Open outbox and sockets."""
        self._context = context
        market, plan = context.market, context.plan
        self._parent = market.node(plan.parent)
        if not self._parent.tcp_port:
            rule = f"must not be 0: {plan.name} publishes at this door"
            raise ConfigurationError(market.file, f"nodes.{plan.parent}.tcp_port", rule)
        self._counters = context.counters
        routes = insist_on_routes(market, context.directory)
        self.store = open_outbox_store(
            context.directory / "outbox", context.store_identity(), settings=context.market.log
        )
        own = source_id(plan.number, self.store.incarnation)
        self._payload_max = market.events_per_payload * EVENT_BYTES
        try:
            # It hears no packets; the socket holds its address, so that no second process runs under its name.
            self._channels = context.channels(own, NodeKeys())
        except BaseException:
            self.store.close()
            raise
        self.machine = SecondarySource(own, ForwardSettings(self._payload_max), self.store.state)
        self.driver: Driver[SecondarySourceInput, ForwardHostEffect] = context.driver(
            self.machine, self, self._channels
        )
        self.door = PublishDoor(context, self.publish, lambda: self.machine.snapshot().next_number, routes=routes)
        self._guard = OutboxGuard(context, self.store, lambda: self.machine.snapshot().held)
        self._room = asyncio.Event()
        self._visit: Visit | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._parent_answers = False
        self._stopped = False

    # Floors -------------------------------------------------------------------------------------

    async def publish(self, batches: Sequence[tuple[bytes, bytes]]) -> tuple[Label, ...]:
        """Take (key, payload) batches, in this order; returns when all are in the outbox.

        Waits while too much waits for the parent. PublishError for a payload that fits no packet.
        """
        for _, payload in batches:
            if len(payload) > self._payload_max:
                rule = f"at most {self._payload_max} fit a message of this market"
                raise PublishError(f"a batch of {len(payload)} bytes: {rule}")
        labels: list[Label] = []
        while True:
            self._guard.insist()
            left = batches[len(labels) :]
            self._room.clear()
            self.door.answers.clear()
            self.driver.feed(*[PublishRequested(key, payload) for key, payload in left])
            for key, _ in left:
                answer = self.door.answers.get(key)
                if not isinstance(answer, PublishAccepted):
                    break
                labels.append(answer.label)
            if len(labels) == len(batches):
                return tuple(labels)
            await self._room.wait()

    # The driver's side --------------------------------------------------------------------------

    def persist(self, records: list[Record]) -> None:
        """Write to the outbox before anything is promised; nothing once the store is gone."""
        if self._guard.gone is None:
            self.store.append_many(records)

    def perform(self, effect: ForwardHostEffect, now: int) -> None:  # noqa: ARG002
        """Do one effect of a secondary source."""
        match effect:
            case PublishAccepted() | PublishRejected():
                self.door.note(effect)
            case Forward():
                self._start(self._forward(effect))
            case ParentSilent(failures, held, reason):
                self._context.alarm(
                    f"parent-{self._parent.name}",
                    f"{self._parent.name} took nothing in {failures} attempts of {counted(held, 'message')}: {reason}",
                    "look at that node; what waits is on disk and is offered again",
                )
            case ParentBack(failures):
                self._context.log.info("parent is back", parent=self._parent.name, failures=failures)
            case _:
                assert_never(effect)

    def next_deadline(self) -> int:
        """None of its own."""
        return NEVER

    def wake(self, now: int) -> None:
        """Nothing to do."""

    # The parent ---------------------------------------------------------------------------------

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._context.loop.create_task(work, name=f"to {self._parent.name}")
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _forward(self, offer: Forward) -> None:
        answer: ForwardAccepted | ForwardFailed
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self._offer(offer)
            answer = ForwardAccepted(offer.last)
        except (DoorError, RemoteProtocolError, OSError, TimeoutError) as reason:
            answer = ForwardFailed(str(reason) or "no answer in time")
            await self._leave()
        if not self._stopped:
            self.driver.feed(answer)
            self._room.set()

    async def _offer(self, offer: Forward) -> None:
        here = self._visit or await self._enter()
        await here.send(Publish(offer.batches))
        labels = (await here.expect(Accepted)).labels
        if len(labels) != len(offer.batches):
            raise DoorError(f"{len(labels)} labels for {len(offer.batches)} batches")

    async def _greet(self) -> None:
        """Find the parent before there is anything to send: a wrong key or address shows at once."""
        while self._visit is None and not self._parent_answers:
            try:
                await self._enter()
            except (DoorError, RemoteProtocolError, OSError) as reason:
                self._context.log.info("parent does not answer yet", parent=self._parent.name, what=str(reason))
                await asyncio.sleep(_GREETING_S)

    async def _enter(self) -> Visit:
        parent, name = self._parent, publish_visitor(self._context.plan)
        key = self._context.publish_door_key(name)
        if key is None:
            raise DoorError(f"the key of {self._context.plan.name} is required")
        try:
            here = await self._context.visit(parent, name, key)
        except DoorError:
            self._parent_answers = False
            raise
        if self._visit is not None:
            # The greeting and the first offer came at the same time.
            await here.close()
            return self._visit
        self._visit, self._parent_answers = here, True
        return here

    async def _leave(self) -> None:
        self._parent_answers = False
        if self._visit is not None:
            here, self._visit = self._visit, None
            await here.close()

    # Life ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the door and begin."""
        plan = self._context.plan
        begun(self._context.directory)
        tell_outbox(self._context, self.store)
        if plan.tcp_port:
            await self.door.open(plan.address, plan.tcp_port)
        self.driver.start()
        self._start(self._greet())

    def tick(self, now: int) -> None:
        """Bring counts up to date, and look after the outbox."""
        self._context.clock.check()
        self._channels.collect()
        self._counters.store_bytes = self.store.counters.bytes
        if self._guard.tick(now):
            self._room.set()

    def gauges(self) -> NodeGauges:
        """The machine's state, and what only the host knows."""
        snapshot = self.machine.snapshot()
        gauges = NodeGauges(
            outbox_unacknowledged=snapshot.held,
            outbox_unstable=snapshot.held,
            outbox_window=snapshot.held_max,
            clients=self.door.visitors,
            parent_answers=self._parent_answers,
        )
        gauges.read_clock(self._context.clock.status)
        return gauges

    async def stop(self) -> None:
        """Stop, then close; what waits is on disk."""
        self._stopped = True
        self.driver.stop()
        await self.door.close()
        for task in list(self._work):
            task.cancel()
        if self._work:
            await asyncio.wait(self._work)
        await self._leave()
        self._channels.close()
        self.store.close()
