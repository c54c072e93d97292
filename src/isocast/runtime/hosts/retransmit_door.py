"""The door of a retransmit server: every request goes through the machine, which gives each customer its share.

A customer has one request under way, its newest: whoever asks again has given up the visit before, or died and came
back. It waits alone: for its turn, for its share, and for its own socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from isocast.hierarchy.archive_effects import (
    GiveRange,
    GiveSnapshot,
    RangeAsked,
    RangeWithdrawn,
    SnapshotAsked,
    TurnAway,
)
from isocast.runtime.disk.released_blocks import block_bodies
from isocast.runtime.hosts.context import Context
from isocast.runtime.net.door import Door, DoorError, Visit
from isocast.runtime.net.door_keys import edge_visited
from isocast.terms.ids import NodeId
from isocast.wire.door import Block, End, RangeWanted, Refused, Snapshot, SnapshotWanted

__all__ = ["RetransmitDoor"]

Answer: TypeAlias = GiveRange | GiveSnapshot | TurnAway

_PATIENCE_S = 2.0
"""A request that the machine let lapse, because its turn never came, is refused after this."""
_BUSY = "this server is busy, or you ask for more than your share: ask again later"


@dataclass(slots=True, eq=False)
class _Request:
    """What a visitor waits for."""

    first: int | None
    """The first sequence of a range; None for a snapshot."""
    answered: asyncio.Future[Answer]

    def fits(self, answer: Answer) -> bool:
        """Whether it is answered by this, and not an earlier request of the same customer."""
        match answer:
            case GiveRange(_, packets):
                return self.first is not None and (not packets or packets[0].sequence == self.first)
            case GiveSnapshot():
                return self.first is None
            case TurnAway():
                return True

    def end(self, answer: Answer) -> None:
        """Answer it, unless that has been done."""
        if not self.answered.done():
            self.answered.set_result(answer)


class RetransmitDoor:
    """Asks the machine on behalf of visitors; nothing at all where the node has no TCP port."""

    def __init__(self, context: Context, feed: Callable[[object], None]) -> None:
        """`feed` gives the machine an input; the host hands its answers to `answer`."""
        self._context = context
        self._feed = feed
        self._waiting: dict[NodeId, _Request] = {}
        self._door = Door(context.edge_door_key, self._serve, self._complain)

    @property
    def visitors(self) -> int:
        """Connections that are open."""
        return self._door.visitors

    async def open(self) -> None:
        """Listen."""
        plan = self._context.plan
        if plan.tcp_port:
            await self._door.open(plan.address, plan.tcp_port)

    async def close(self) -> None:
        """Send everybody away."""
        await self._door.close()

    def answer(self, answer: Answer) -> None:
        """What the machine says to a customer; one that has given up is not there any more."""
        waiting = self._waiting.get(answer.customer)
        if waiting is not None and waiting.fits(answer):
            waiting.end(answer)

    async def _serve(self, guest: Visit) -> None:
        plan = edge_visited(self._context.market, guest.name)
        if plan is None:
            raise DoorError("not a node of the edge")
        while (message := await guest.receive()) is not None:
            match message:
                case RangeWanted(first, last):
                    answer = await self._ask(plan.node, RangeAsked(plan.node, first, last))
                case SnapshotWanted():
                    answer = await self._ask(plan.node, SnapshotAsked(plan.node))
                case _:
                    await guest.send(Refused("this door gives ranges and snapshots; publish at a source"))
                    continue
            await self._give(guest, answer)

    async def _ask(self, customer: NodeId, event: RangeAsked | SnapshotAsked) -> Answer:
        earlier = self._waiting.get(customer)
        if earlier is not None:
            earlier.end(TurnAway(customer))
        first = event.first if isinstance(event, RangeAsked) else None
        request = self._waiting[customer] = _Request(first, self._context.loop.create_future())
        self._feed(event)
        try:
            await asyncio.wait([request.answered], timeout=_PATIENCE_S)
            if request.answered.done():
                return request.answered.result()
            self._feed(RangeWithdrawn(customer))
            return TurnAway(customer)
        finally:
            if self._waiting.get(customer) is request:
                del self._waiting[customer]

    async def _give(self, guest: Visit, answer: Answer) -> None:
        match answer:
            case GiveRange(_, packets, low_water, newest):
                for body in block_bodies(packets, self._context.clock.now()):
                    await guest.send(Block(body))
                    # Between two blocks everybody else has a turn.
                    await asyncio.sleep(0)
                await guest.send(End(low_water, newest + 1))
                self._context.counters.ranges_served += 1
            case GiveSnapshot(_, snapshot):
                await guest.send(Snapshot(snapshot.next_sequence, snapshot.payload))
                self._context.counters.ranges_served += 1
            case TurnAway():
                self._context.counters.ranges_refused += 1
                await guest.send(Refused(_BUSY))

    def _complain(self, name: str, text: str) -> None:
        self._context.counters.ranges_refused += 1
        self._context.alarm(f"visitor-{name}", f"{name}: {text}", "a slow or foreign visitor; others are not affected")
