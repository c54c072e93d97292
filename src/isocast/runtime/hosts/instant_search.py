"""Which message of the sequence was the first to be released at an instant or later: doors are asked, by halves.

Instants rise with sequences, so some twenty messages of a million tell. A door answers for what it keeps: one that is
behind knows nothing of what was released since, and the next one is asked from there on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isocast.hierarchy.edge import CustomerInput, FetchRange, RangeContinued
from isocast.runtime.hosts.customer import Fetcher
from isocast.runtime.hosts.process import Context
from isocast.runtime.net.door import DoorError
from isocast.terms.errors import IsocastError, RemoteProtocolError
from isocast.terms.ids import NodeId
from isocast.terms.quantities import counted
from isocast.wire.packets import ReleasedPacket

__all__ = ["first_released_at"]


async def first_released_at(context: Context, doors: Iterable[NodeId], instant: int) -> int:
    """The sequence of that message; of what is not released yet, the next one. IsocastError if no door answers."""
    search = _Search(context, instant)
    try:
        for door in dict.fromkeys(doors):
            if await search.asked(door):
                break
    finally:
        await search.close()
    return search.found()


class _Search:
    """What the doors have told so far."""

    def __init__(self, context: Context, instant: int) -> None:
        self._name_of = context.market.name_of
        self._token_instant = instant - context.market.timing.release_delay_ns
        self._heard: list[RangeContinued] = []
        self._fetcher = Fetcher(context, self._take)
        self._low = 1
        """Everything before it was released sooner, or is not kept."""
        self._answers = 0
        self._why: list[str] = []

    def _take(self, part: CustomerInput) -> None:
        if isinstance(part, RangeContinued):
            self._heard.append(part)

    def found(self) -> int:
        """The first message that is late enough, as far as doors know."""
        if not self._answers:
            first, others = self._why[0] if self._why else "there is none", self._why[1:]
            more = f" (and {counted(len(others), 'more door')})" if others else ""
            raise IsocastError(f"no door tells which message was released then: {first}{more}: is the market up?")
        return self._low

    async def close(self) -> None:
        """Leave the doors."""
        await self._fetcher.close()

    async def asked(self, door: NodeId) -> bool:
        """Whether this door has the message."""
        try:
            return await self._halved(door)
        except (DoorError, RemoteProtocolError, OSError, TimeoutError) as reason:
            self._why.append(f"{self._name_of(door)}: {str(reason) or 'no answer'}")
            return False

    async def _halved(self, door: NodeId) -> bool:
        _, low_water, newest = await self._range(door, self._low)
        self._answers += 1
        high = newest + 1
        self._low = max(self._low, min(low_water, high))
        while self._low < high:
            middle = (self._low + high) // 2
            packets, low_water, _ = await self._range(door, middle)
            if not packets and low_water <= middle:
                raise DoorError(f"it has no sequence {middle:,} of {newest:,}")
            early = [one.sequence for one in packets if one.instant < self._token_instant]
            late = [one.sequence for one in packets if one.instant >= self._token_instant]
            high = min([high, *late[:1]])
            # What a door does not keep any more is as good as early.
            self._low = max([self._low, min(low_water, high), *[sequence + 1 for sequence in early[-1:]]])
        return self._low <= newest

    async def _range(self, door: NodeId, sequence: int) -> tuple[Sequence[ReleasedPacket], int, int]:
        """The messages from one on that come with it, the first that the door keeps, and its newest."""
        self._heard.clear()
        answer = await self._fetcher.range_of(FetchRange(door, sequence, sequence))
        packets = [packet for part in self._heard for packet in part.packets]
        packets += answer.packets
        return packets, answer.low_water, answer.newest
