"""Ranges and snapshots from other nodes' doors, for whoever follows lines: customers and retransmit servers.

One request at a time for each door, over a connection that is kept. While a door is still busy with an earlier request
a new one is left alone: the earlier answer is welcome too, and a machine that gets none asks again. Nothing here waits
for anybody: answers come back to the machine as inputs, and long ones in parts, so that what came is not lost with a
connection that breaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from isocast.hierarchy.edge import FetchFailed, FetchRange, FetchSnapshot, RangeArrived, RangeContinued, SnapshotArrived
from isocast.hierarchy.latest import LatestSnapshot
from isocast.runtime.disk.released_blocks import packets_of
from isocast.runtime.hosts.context import Context
from isocast.runtime.net.door import DoorError, Visit, visit
from isocast.runtime.net.door_keys import edge_visitor
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import NodeId
from isocast.wire.door import Block, End, RangeWanted, Refused, Snapshot, SnapshotWanted
from isocast.wire.events import events_view
from isocast.wire.journal_blocks import view_block
from isocast.wire.packets import Released

__all__ = ["Fetcher"]


class _TurnedAwayError(DoorError):
    """The door refused one request; the connection is as good as before."""


_SILENCE_S = 5.0
"""A door that says nothing for so long is left; it refuses by itself what it cannot answer within two seconds."""
_PART = 512
"""Messages of an answer that are handed on before the rest has come."""
_BYTES_MAX = 256 << 20
"""Bounds: a range comes in whole blocks, and a receiver's may hold a whole token, 16,384 messages of 8,824 bytes."""


class Fetcher:
    """The visits of one node to the doors of others."""

    def __init__(self, context: Context, feed: Callable[[object], None]) -> None:
        """`feed` gives the machine an input."""
        self._context = context
        self._feed = feed
        self._visits: dict[NodeId, Visit] = {}
        self._asking: dict[NodeId, asyncio.Task[None]] = {}
        self.trouble: dict[NodeId, str] = {}
        """Why a door did not answer last."""

    def fetch(self, wanted: FetchRange | FetchSnapshot) -> None:
        """Ask, unless that door is being asked."""
        if wanted.server not in self._asking:
            task = self._context.loop.create_task(self._ask(wanted), name=f"ask {wanted.server}")
            self._asking[wanted.server] = task

    async def close(self) -> None:
        """Leave every door."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking, timeout=_SILENCE_S)
        for here in self._visits.values():
            await here.close()
        self._visits.clear()

    async def _ask(self, wanted: FetchRange | FetchSnapshot) -> None:
        server = wanted.server
        answer: object = FetchFailed(server)
        try:
            answer = await self._answer(wanted)
            self._tell(server, "")
        except _TurnedAwayError as reason:
            self._tell(server, str(reason))
        except (DoorError, RemoteProtocolError, OSError, TimeoutError) as reason:
            self._tell(server, str(reason) or f"no answer within {_SILENCE_S:.0f} s")
            await self._leave(server)
        finally:
            del self._asking[server]
        self._feed(answer)

    def _tell(self, server: NodeId, trouble: str) -> None:
        """Each change is logged: an alarm is, only the first time."""
        if trouble == self.trouble.get(server, ""):
            return
        name, log = self._context.market.name_of(server), self._context.log
        if trouble:
            self.trouble[server] = trouble
            log.info("door does not answer", server=name, why=trouble)
        else:
            del self.trouble[server]
            log.info("door answers again", server=name)

    async def _answer(self, wanted: FetchRange | FetchSnapshot) -> RangeArrived | SnapshotArrived:
        here = self._visits.get(wanted.server) or await self._visit(wanted.server)
        if isinstance(wanted, FetchSnapshot):
            await here.send(SnapshotWanted())
            async with asyncio.timeout(_SILENCE_S):
                found = await here.expect(Snapshot)
            events_view(found.events)
            stripe, following = self._context.stripe, found.next_sequence
            return SnapshotArrived(wanted.server, LatestSnapshot(stripe, following, following, 0, found.events))
        await here.send(RangeWanted(wanted.first, wanted.last))
        packets: list[Released] = []
        size = 0
        while size <= _BYTES_MAX:
            async with asyncio.timeout(_SILENCE_S):
                message = await here.receive()
            match message:
                case Block(body):
                    # What a block holds beyond the range is welcome too: it would be asked for next.
                    size += len(body)
                    packets += packets_of([view_block(body)], self._context.stripe, wanted.server, wanted.first)
                    if len(packets) >= _PART:
                        self._feed(RangeContinued(wanted.server, packets))
                        packets = []
                case End(low_water, next_sequence):
                    return RangeArrived(wanted.server, packets, low_water, next_sequence - 1)
                case Refused(reason):
                    raise _TurnedAwayError(reason)
                case None:
                    raise DoorError("the connection ended")
                case other:
                    raise DoorError(f"an unexpected {type(other).__name__}")
        raise DoorError(f"more than {_BYTES_MAX} bytes for one range")

    async def _visit(self, server: NodeId) -> Visit:
        context = self._context
        there = context.market.find(server)
        name = edge_visitor(context.plan)
        key = context.edge_door_key(name)
        if there is None or not there.tcp_port or key is None:
            raise DoorError(f"{context.market.name_of(server)} has no door")
        here = self._visits[server] = await visit(there.address, there.tcp_port, name, key)
        return here

    async def _leave(self, server: NodeId) -> None:
        here = self._visits.pop(server, None)
        if here is not None:
            await here.close()
