"""Ranges of the past by TCP, from the journal's own segments: for customers, and for servers that fill their gaps.

Another receiver may also have the log's state at a stable token, to go on from there (`ring.rejoin`).

A block goes out as it lies in the file. Between two blocks everybody else has a turn, and a visitor that does not read
waits alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from isocast.ring.ledger import Checkpoint
from isocast.runtime.disk.checkpoint_bytes import checkpoint_bytes
from isocast.runtime.disk.journal_reader import JournalReader
from isocast.runtime.hosts.context import Context
from isocast.runtime.net.door import Door, Visit
from isocast.runtime.net.door_keys import core_door_key
from isocast.terms.errors import JournalError
from isocast.wire.door import (
    Block,
    CheckpointGiven,
    CheckpointWanted,
    End,
    RangeWanted,
    Refused,
    Snapshot,
    SnapshotWanted,
)
from isocast.wire.journal_blocks import BlockView, encode_block

__all__ = ["ArchiveDoor"]

_LARGE_BYTES = 8 << 20
"""A block longer than this is sent in slices: a message at the door has a limit."""
_SLICE = 512
"""Messages of a slice: 512 of 8,824 bytes are 4.5 MB."""


class ArchiveDoor:
    """Serves one journal; nothing at all where the node has no TCP port."""

    def __init__(self, context: Context, directory: Path, checkpoint: Callable[[], Checkpoint | None]) -> None:
        """Nothing is read before somebody asks; `checkpoint` gives the log's state, or None while there is none."""
        self._context = context
        self._checkpoint = checkpoint
        self._reader = JournalReader(directory)
        self._door = Door(context.archive_door_key, self._serve, self._complain)

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

    def _complain(self, name: str, text: str) -> None:
        self._context.counters.ranges_refused += 1
        self._context.alarm(f"visitor-{name}", f"{name}: {text}", "a slow or foreign visitor; others are not affected")

    async def _serve(self, guest: Visit) -> None:
        while (message := await guest.receive()) is not None:
            match message:
                case RangeWanted(first, last):
                    await self._give_range(guest, first, last)
                case CheckpointWanted():
                    await guest.send(self._log_for(guest))
                case SnapshotWanted():
                    await guest.send(self._stripes_for(guest))
                case _:
                    await guest.send(Refused("this door gives ranges and snapshots; publish at a source"))

    def _log_for(self, guest: Visit) -> CheckpointGiven | Refused:
        if core_door_key(self._context.market, self._context.keys, guest.name) is None:
            return Refused("a checkpoint of the log is for receivers alone")
        point = self._checkpoint()
        return CheckpointGiven(checkpoint_bytes(point)) if point else Refused("this site has no log to give")

    def _stripes_for(self, guest: Visit) -> Snapshot | Refused:
        """The state of this site's narrow stripes, for another receiver's; customers ask a retransmit server."""
        path = self._context.directory / "edge" / "state"
        if core_door_key(self._context.market, self._context.keys, guest.name) is None or not path.exists():
            return Refused("this node keeps no snapshot: ask a retransmit server")
        return Snapshot(0, path.read_bytes())

    async def _give_range(self, guest: Visit, first: int, last: int) -> None:
        counters = self._context.counters
        try:
            for block in self._reader.blocks(first, last):
                for body in _bodies(block):
                    await guest.send(Block(body))
                    await asyncio.sleep(0)
            low_water, next_sequence = self._reader.span() or (1, 1)
        except JournalError as reason:
            counters.journal_alarms += 1
            await guest.send(Refused(str(reason)))
            return
        counters.ranges_served += 1
        await guest.send(End(low_water, next_sequence))


def _bodies(block: BlockView) -> Iterator[bytes]:
    """The block as it lies, or in slices where it is too long for one message."""
    if len(block.raw) <= _LARGE_BYTES:
        yield bytes(block.raw)
        return
    whole = block.released()
    for start in range(0, len(whole.messages), _SLICE):
        part = replace(
            whole,
            place=whole.place + start,
            first_sequence=whole.first_sequence + start,
            messages=whole.messages[start : start + _SLICE],
        )
        yield b"".join(encode_block(part).pieces)
