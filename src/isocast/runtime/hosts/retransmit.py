"""A retransmit server as a process: its archive is a journal, its answers are repairs on a line and ranges at a door.

What it gets is in the archive before anybody is answered from it. Beside the archive lie two small files: the last
snapshot, so that the table of latest events need not be made from all of the past, and the low-water mark, where the
archive has a hole that nobody can fill.
"""

from __future__ import annotations

import os

from isocast.hierarchy.archive_effects import (
    Archive,
    ArchiveRead,
    ArchiveTrimmed,
    GiveRange,
    GiveSnapshot,
    KeepSnapshot,
    ReadArchive,
    TurnAway,
)
from isocast.hierarchy.customer_settings import Grade, JoinPoint
from isocast.hierarchy.edge import FetchRange, FetchSnapshot, GapAbandoned, SendLine
from isocast.hierarchy.latest import LatestSnapshot, read_snapshot, write_snapshot
from isocast.nodes.retransmit_server import ArchiveState, RetransmitServer, RetransmitSettings
from isocast.ring.effects import Record
from isocast.runtime.disk.journal import Journal
from isocast.runtime.disk.journal_reader import JournalReader
from isocast.runtime.disk.journal_segments import segment_files
from isocast.runtime.disk.released_blocks import blocks_of, packets_of
from isocast.runtime.hosts.context import Context
from isocast.runtime.hosts.edge_report import EdgeReport
from isocast.runtime.hosts.edge_settings import customer_settings
from isocast.runtime.hosts.fetching import Fetcher
from isocast.runtime.hosts.line_following import LineFollowing
from isocast.runtime.hosts.retransmit_door import RetransmitDoor
from isocast.runtime.hosts.stripe_repairs import stripe_repairs
from isocast.runtime.market.founding import begun
from isocast.runtime.net.channels import NodeKeys
from isocast.runtime.watch.counters import NodeGauges
from isocast.terms.errors import JournalError, RemoteProtocolError
from isocast.terms.instants import NEVER

__all__ = ["RetransmitHost"]

_SNAPSHOT = "snapshot"
_LOW_WATER = "low-water"


class RetransmitHost:
    """What surrounds the machine of one retransmit server."""

    def __init__(self, context: Context) -> None:
        """Open archive and sockets."""
        self._context = context
        plan = context.plan
        self._clock = context.clock
        self._counters = context.counters
        self._where = context.directory / "journal"
        settings = RetransmitSettings(customer_settings(context, Grade.COMPLETE, JoinPoint.SEQUENCE))
        self.journal = Journal.open(self._where, context.stripe, plan.node, context.journal_settings())
        try:
            self._reader = JournalReader(self._where)
            state = self._state()
            self._channels = context.channels(plan.node, NodeKeys(edge=context.keys.edge_ring()))
        except BaseException:
            self.journal.close()
            raise
        self.machine = RetransmitServer(plan.node, settings, state)
        self.driver = context.driver(self.machine, self, self._channels)
        self._following = LineFollowing(context, self._channels, self.driver, lambda _: None)
        self.door = RetransmitDoor(context, self._feed)
        self._fetcher = Fetcher(context, self._feed)
        self._report = EdgeReport(context, self._fetcher, Grade.COMPLETE)
        self._report.has_position = state.next_sequence > 0
        self._pruned = 0
        self._stopped = False
        self.stripes = stripe_repairs(context)

    # From the disk ------------------------------------------------------------------------------

    def _state(self) -> ArchiveState:
        span = self._reader.span()
        if span is None:
            return ArchiveState()
        first, following = span
        low_water = min(max(first, self._read_low_water()), following)
        return ArchiveState(low_water, following, self._read_snapshot(following))

    def _read_low_water(self) -> int:
        try:
            return int((self._context.directory / _LOW_WATER).read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0
        except ValueError as reason:
            raise JournalError(str(self._context.directory / _LOW_WATER), "is not a sequence") from reason

    def _read_snapshot(self, following: int) -> LatestSnapshot | None:
        """What was kept; without it the table is made from the archive again, which takes longer."""
        path = self._context.directory / _SNAPSHOT
        try:
            snapshot = read_snapshot(path.read_bytes())
        except FileNotFoundError:
            return None
        except RemoteProtocolError as reason:
            self._context.log.warning("snapshot is damaged and left alone", file=path, what=str(reason))
            return None
        return snapshot if snapshot.next_sequence <= following else None

    def _keep(self, name: str, content: bytes) -> None:
        """All of a file or nothing. A snapshot may be lost with the power supply; the low-water mark may not."""
        directory = self._context.directory
        draft = directory / f"{name}.new"
        with draft.open("wb") as file:
            file.write(content)
            if name == _LOW_WATER:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(directory / name)

    # The driver's side --------------------------------------------------------------------------

    def persist(self, records: list[Record]) -> None:
        """It has no records: the archive is written as messages come."""

    def perform(self, effect: object, now: int) -> None:
        """Do one effect of a retransmit server."""
        match effect:
            case Archive():
                self._archive(effect, now)
            case SendLine(packets):
                self._channels.to_line(packets)
            case ReadArchive():
                self._read(effect)
            case GiveRange() | GiveSnapshot() | TurnAway():
                self.door.answer(effect)
            case KeepSnapshot(snapshot):
                self._keep(_SNAPSHOT, write_snapshot(snapshot))
            case FetchRange() | FetchSnapshot():
                self._fetcher.fetch(effect)
            case _:
                self._tell(effect)

    def _tell(self, effect: object) -> None:
        if isinstance(effect, GapAbandoned):
            self._keep(_LOW_WATER, str(effect.last + 1).encode())
        self._report.tell(effect)

    def next_deadline(self) -> int:
        """None of its own."""
        return NEVER

    def wake(self, now: int) -> None:
        """Nothing to do."""

    def _feed(self, event: object) -> None:
        if not self._stopped:
            self.driver.feed(event)

    # The archive --------------------------------------------------------------------------------

    def _archive(self, effect: Archive, now: int) -> None:
        self._report.has_position = True
        bound_ns = self._clock.status.bound_ns or 0
        delay_ns = self._context.market.timing.release_delay_ns
        for block in blocks_of(effect.packets, self.journal.position, now, delay_ns, bound_ns):
            self.journal.append(block)
        self._counters.messages_received += len(effect.packets)
        if self.journal.counters.pruned != self._pruned:
            self._context.loop.call_soon(self._tell_trimmed)

    def _read(self, effect: ReadArchive) -> None:
        to, first, last = effect.to, effect.first, effect.last
        try:
            blocks = self._reader.blocks(first, last)
            packets = list(packets_of(blocks, self._context.stripe, self._context.plan.node, first, last))
        except JournalError as reason:
            # The newest is still received and given from memory; a person must look at the disk.
            self._counters.journal_alarms += 1
            self._context.alarm("archive", str(reason), "isocast journal verify names what is damaged")
            packets = []
        # Not at once: the effects of this step come first.
        self._context.loop.call_soon(self._feed, ArchiveRead(to, first, last, packets))

    def _tell_trimmed(self) -> None:
        """Retention took something: the machine must not offer it any more."""
        self._pruned = self.journal.counters.pruned
        files = segment_files(self._where)
        if files and files[0].first_sequence > self.machine.low_water > 0:
            self._feed(ArchiveTrimmed(files[0].first_sequence))

    # Life ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the door and begin."""
        begun(self._context.directory)
        await self.door.open()
        if self.stripes is not None:
            self.stripes.start()
        self.driver.start()
        self._following.start()

    def tick(self, now: int) -> None:
        """Bring counts up to date, trim the past."""
        self._clock.check()
        self._channels.collect()
        self._following.tick(now)
        self._counters.journal_bytes = self.journal.counters.bytes
        self._report.collect(self.machine.customer.snapshot())
        self.journal.check()
        self.journal.sync()
        if self.journal.prune(now):
            self._tell_trimmed()

    def gauges(self) -> NodeGauges:
        """The machine's state, and what only the host knows."""
        snapshot = self.machine.snapshot()
        gauges = self._report.gauges(snapshot.customer)
        self._following.fill(gauges)
        gauges.archive_first_sequence = snapshot.low_water or None
        gauges.archive_next_sequence = snapshot.next_sequence or None
        gauges.clients = self.door.visitors
        return gauges

    async def stop(self) -> None:
        """Stop hearing, close doors and what is open; the archive is on disk already."""
        self._stopped = True
        self.driver.stop()
        if self.stripes is not None:
            await self.stripes.stop()
        await self.door.close()
        await self._fetcher.close()
        self._channels.close()
        self.journal.close()
