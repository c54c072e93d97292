"""How a receiver comes by a checkpoint, and by everything that was released before it (protocol §5, §7).

The checkpoint comes from another receiver's door. Then the journal is filled, in order, from where it ends up to the
checkpoint: from the doors of receivers, whose blocks know the labels, or of retransmit servers, whose blocks do not.
Such blocks are marked as fetched and keep the instants at which others released them. Only then does the machine get
the checkpoint, so that whatever happens between two writes, the journal is never behind the log without the site's
knowing it.

What no door has any more is a gap. It is left only when every door has said so, or did not open for a while, and it
is told aloud.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from isocast.ring.effects import FetchCheckpoint
from isocast.ring.inputs import CheckpointFetched
from isocast.ring.ledger import Checkpoint
from isocast.runtime.disk.journal import Journal
from isocast.runtime.disk.journal_verify import set_aside_blocks
from isocast.runtime.disk.records import read_checkpoint
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.model import NodePlan, NodeRole
from isocast.runtime.net.door import DoorError, Visit
from isocast.runtime.net.door_keys import core_visitor, edge_visitor
from isocast.terms.errors import IsocastError, JournalError
from isocast.terms.ids import NodeId
from isocast.wire.door import Block, CheckpointGiven, CheckpointWanted, End, RangeWanted, Refused
from isocast.wire.journal_blocks import BlockView, view_block

__all__ = ["CheckpointFetcher"]

_CHUNK = 4_096
"""Sequences of one request: a retransmit server gives each visitor its share, and no more."""
_SILENCE_S = 10.0
"""A door that says nothing for so long is left."""
_PAUSE_S = 0.5
"""Between two rounds over all doors."""
_GAP_PATIENCE_S = 30.0
"""For so long a door that does not open may still have what the others have not: a node restarts in less."""


@dataclass(slots=True)
class _DoorRound:
    """What one round over all doors gave."""

    silent: tuple[str, ...] = ()
    """Doors that did not open, or turned us away."""
    oldest: int = 0
    """The first sequence from which on some door has something; 0 if none has."""


class CheckpointFetcher:
    """Performs `FetchCheckpoint` beside everything else, one at a time."""

    def __init__(self, context: Context, journal: Journal, feed: Callable[[CheckpointFetched], None]) -> None:
        """`feed` gives the machine its answer."""
        self.patience_s = _GAP_PATIENCE_S
        self.filled = 0
        """What lies before this sequence came into the journal otherwise than by a release, or is a gap of it."""
        self.fetched = 0
        """Messages that came into the journal from elsewhere."""
        self.gaps: list[tuple[int, int]] = []
        """Sequences, both ends included, that were nowhere any more."""
        self._context = context
        self._journal = journal
        self._feed = feed
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is being fetched."""
        return self._task is not None

    def want(self, wish: FetchCheckpoint) -> None:
        """Begin, unless an earlier wish is being granted."""
        if self._task is None:
            self._task = self._context.loop.create_task(self._grant(wish))

    def stop(self) -> None:
        """Let go."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # A checkpoint -------------------------------------------------------------------------------

    async def _grant(self, wish: FetchCheckpoint) -> None:
        try:
            for giver in wish.ask:
                checkpoint = await self._checkpoint(giver)
                if checkpoint is not None and checkpoint.token_number > wish.above:
                    await self.fill(checkpoint.next_sequence, giver)
                    self._context.log.info(
                        "takes a checkpoint over",
                        giver=self._context.market.name_of(giver),
                        token=checkpoint.token_number,
                        next_sequence=checkpoint.next_sequence,
                    )
                    # The machine may wish for another at once.
                    self._task = None
                    self._feed(CheckpointFetched(checkpoint, giver))
                    return
        except (IsocastError, OSError) as reason:
            self._context.alarm("rejoin", f"the journal cannot be filled: {reason}", "make room on the disk")
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _checkpoint(self, giver: NodeId) -> Checkpoint | None:
        context = self._context
        there = context.market.find(giver)
        name = core_visitor(context.plan)
        key = context.archive_door_key(name)
        if there is None or not there.tcp_port or key is None:
            return None
        try:
            here = await context.visit(there, name, key)
            try:
                await here.send(CheckpointWanted())
                async with asyncio.timeout(_SILENCE_S):
                    return read_checkpoint((await here.expect(CheckpointGiven)).packed)
            finally:
                await here.close()
        except (IsocastError, OSError, TimeoutError, ValueError) as reason:
            context.log.info("gives no checkpoint", name=there.name, why=str(reason) or "no answer")
            return None

    # What was released before it ----------------------------------------------------------------

    async def fill(self, until: int, first: NodeId | None = None) -> None:
        """Bring the journal up to a sequence; `first` is asked first. What is nowhere any more becomes a gap."""
        journal, loop = self._journal, self._context.loop
        begun = journal.position.next_sequence
        if begun < until:
            self._context.log.info("fills its journal from others", first=begun, last=until - 1)
        patient_until = loop.time() + self.patience_s
        while (wanted := self._take_own(until)) > journal.position.next_sequence:
            before = journal.position.next_sequence
            found = await self._round(wanted, first)
            if journal.position.next_sequence > before:
                patient_until = loop.time() + self.patience_s
            elif not found.silent or loop.time() >= patient_until:
                self._leave_gap(min(found.oldest or wanted, wanted), found.silent)
            else:
                await asyncio.sleep(_PAUSE_S)

    def _leave_gap(self, until: int, silent: tuple[str, ...]) -> None:
        first = self._journal.position.next_sequence
        self.gaps.append((first, until - 1))
        self._journal.skip_to(until)
        self.filled = until
        who = f"; {', '.join(silent)} could not be asked" if silent else ""
        self._context.alarm(
            "journal-gap",
            f"sequences {first} to {until - 1} are in no archive any more: this journal has a gap{who}",
            "keep journals for longer, or copy them away: see the how-to 'operate'",
        )

    async def _round(self, until: int, first: NodeId | None) -> _DoorRound:
        """One door after the other, until one of them has what comes next."""
        found = _DoorRound()
        silent: list[str] = []
        for plan in self._archives(first):
            try:
                low_water, next_sequence = await self._visit(plan, until)
            except (IsocastError, OSError, TimeoutError) as reason:
                if isinstance(reason, JournalError):
                    raise
                self._context.log.info("door gives nothing", name=plan.name, why=str(reason) or "no answer")
                silent.append(plan.name)
                low_water = next_sequence = 0
            here = self._journal.position.next_sequence
            if low_water > here and next_sequence > low_water:
                found.oldest = min(found.oldest or low_water, low_water)
            if here >= until:
                break
        found.silent = tuple(silent)
        return found

    def _archives(self, first: NodeId | None) -> list[NodePlan]:
        """Receivers, then retransmit servers, that have a door."""
        market, own = self._context.market, self._context.plan
        receivers = market.by_role(NodeRole.PRIMARY_RECEIVER, NodeRole.SECONDARY_RECEIVER)
        plans = [*receivers, *market.by_role(NodeRole.RETRANSMIT_SERVER)]
        here = [plan for plan in plans if plan.tcp_port and plan.name != own.name and own.stripes[0] in plan.stripes]
        return sorted(here, key=lambda plan: plan.node != first)

    async def _visit(self, plan: NodePlan, until: int) -> tuple[int, int]:
        """Take what one door has of what comes next; the span of its archive."""
        context = self._context
        name = edge_visitor(context.plan)
        key = context.archive_door_key(name)
        if key is None:
            raise DoorError("this node has no edge key")
        here = await context.visit(plan, name, key)
        try:
            while True:
                before = self._journal.position.next_sequence
                span = await self._take(here, before, min(before + _CHUNK, until) - 1, until)
                after = self._journal.position.next_sequence
                if after >= until or after == before:
                    return span
        finally:
            await here.close()

    async def _take(self, here: Visit, first: int, last: int, until: int) -> tuple[int, int]:
        """One range into the journal."""
        await here.send(RangeWanted(first, last))
        while True:
            async with asyncio.timeout(_SILENCE_S):
                message = await here.receive()
            match message:
                case Block(body):
                    self._append(view_block(body), until)
                case End(low_water, next_sequence):
                    return low_water, next_sequence
                case Refused(reason):
                    raise DoorError(reason)
                case None:
                    raise DoorError("the connection ended")
                case other:
                    raise DoorError(f"unexpected message {type(other).__name__}")

    def _take_own(self, until: int) -> int:
        """What this site released itself, from files that were set aside; up to which sequence others are needed."""
        journal = self._journal
        for block in set_aside_blocks(journal.directory, journal.position.next_sequence):
            if block.header.first_sequence > journal.position.next_sequence:
                return min(block.header.first_sequence, until)
            self._append(block, until, fetched=block.header.fetched)
        return until

    def _append(self, view: BlockView, until: int, *, fetched: bool = True) -> None:
        """What of a block comes next; the machine may have released some of it meanwhile."""
        header = view.header
        here = self._journal.position.next_sequence
        if not header.first_sequence <= here < min(header.next_sequence, until):
            # An archive that begins later gives what it has of a range.
            return
        part = view.released().part(here - header.first_sequence, until - header.first_sequence)
        part = replace(part, fetched=fetched)
        if part.messages:
            self._journal.append(part)
            self.filled = self._journal.position.next_sequence
            self.fetched += len(part.messages) * fetched
