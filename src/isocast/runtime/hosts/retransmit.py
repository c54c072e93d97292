"""A retransmit server as a process: a journal for archive, repairs on a line, ranges at a door, narrow stripes.

What it gets is in the archive before anybody is answered from it. Beside the archive lie two small files: the last
snapshot, so that the table of latest events need not be made from all of the past, and the low-water mark, where the
archive has a hole that nobody can fill.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from isocast.hierarchy.archive import (
    Archive,
    ArchiveRead,
    ArchiveTrimmed,
    GiveRange,
    GiveSnapshot,
    KeepSnapshot,
    RangeAsked,
    RangeWithdrawn,
    ReadArchive,
    ServerHostEffect,
    ServerInput,
    SnapshotAsked,
    TurnAway,
)
from isocast.hierarchy.customer_settings import Grade, JoinPoint
from isocast.hierarchy.edge import DeliverLatest, FetchRange, FetchSnapshot, GapAbandoned, SendLine, TokensPassed
from isocast.hierarchy.latest import LatestSnapshot, read_snapshot, write_snapshot
from isocast.nodes.retransmit_server import ArchiveState, RetransmitServer, RetransmitSettings
from isocast.ring.effects import Record
from isocast.ring.ledger import Checkpoint
from isocast.runtime.disk.journal import Journal
from isocast.runtime.disk.journal_reader import JournalReader, block_bodies, blocks_of, packets_of
from isocast.runtime.disk.journal_segments import segment_files
from isocast.runtime.disk.records import checkpoint_bytes
from isocast.runtime.edge.narrow.repairer import Repairer
from isocast.runtime.hosts.customer import EdgeReport, Fetcher, customer_settings
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.hosts.line_following import LineFollowing
from isocast.runtime.hosts.line_keys import door_sealer, line_prover, node_keys, proof_terms
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.founding import begun
from isocast.runtime.market.key_files import load_repair_key
from isocast.runtime.net.door import Door, Visit
from isocast.runtime.net.door_keys import core_door_key, edge_visited, guest_key
from isocast.runtime.net.guest_shares import IDLE_S, GuestShare, GuestShares
from isocast.runtime.watch.counters import NodeGauges
from isocast.terms.errors import JournalError, RemoteProtocolError
from isocast.terms.ids import NodeId, guest_id
from isocast.terms.instants import NEVER
from isocast.wire.door import (
    Block,
    CheckpointGiven,
    CheckpointWanted,
    DoorMessage,
    End,
    RangeWanted,
    Refused,
    Snapshot,
    SnapshotWanted,
)
from isocast.wire.events import EVENTS_PER_PAYLOAD
from isocast.wire.journal_blocks import BlockView, encode_block
from isocast.wire.limits import EVENT_BYTES

__all__ = ["ArchiveDoor", "RetransmitDoor", "RetransmitHost", "StripeRepairs", "stripe_repairs"]


# ---- The door of a retransmit server: every request goes through the machine, which gives each customer its share.
#
# A customer has one request under way, its newest: whoever asks again has given up the visit before, or died and came
# back. It waits alone: for its turn, for its share, and for its own socket.


ServerAnswer: TypeAlias = GiveRange | GiveSnapshot | TurnAway

_PATIENCE_S = 2.0
"""A request that the machine let lapse, because its turn never came, is refused after this."""
_NOT_HERE = "this door gives ranges and snapshots; publish at a source"
_BUSY = "this server is busy, or you ask for more than your share: ask again later"


@dataclass(slots=True, eq=False)
class _Request:
    """What a visitor waits for."""

    first: int | None
    """The first sequence of a range; None for a snapshot."""
    answered: asyncio.Future[ServerAnswer]

    def fits(self, answer: ServerAnswer) -> bool:
        """Whether it is answered by this, and not an earlier request of the same customer."""
        match answer:
            case GiveRange(_, packets):
                return self.first is not None and (not packets or packets[0].sequence == self.first)
            case GiveSnapshot():
                return self.first is None
            case TurnAway():
                return True

    def end(self, answer: ServerAnswer) -> None:
        """Answer it, unless that has been done."""
        if not self.answered.done():
            self.answered.set_result(answer)


_CROWDED = "this door has no place for another guest now: ask again later, or at another"
_SPENT = "the guests of your address have used up their share: ask again later, or ask for a seat in the market's file"


class _RangeDoor(ABC):
    """A door for ranges at a node's TCP port; nothing at all where the node has none."""

    def __init__(self, context: Context, key_of: Callable[[str], bytes | None]) -> None:
        self._context = context
        self._door = Door(key_of, self._serve, self._complain, context.tls, context.doorway)
        self.guests = GuestShares(context.market.guests, self._throttled)

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

    @abstractmethod
    async def _reply(self, visitor: Visit, message: DoorMessage, customer: NodeId) -> int:
        """Answer one request; how many messages were given."""

    async def _serve(self, visitor: Visit) -> None:
        visitor.outgoing = door_sealer(self._context, visitor.name)
        key = guest_key(visitor.name)
        if key is not None:
            await self._serve_guest(visitor, key)
            return
        plan = edge_visited(self._context.market, visitor.name)
        while (message := await visitor.receive()) is not None:
            await self._reply(visitor, message, 0 if plan is None else plan.node)

    async def _serve_guest(self, visitor: Visit, key: str) -> None:
        """As much as its share allows; `customer` is its place at this door."""
        with self.guests.visiting(visitor.address, key) as guest:
            if guest is None:
                await self._refuse(visitor, _CROWDED)
                return
            while (message := await _next_of(visitor)) is not None:
                wanted = max(message.last - message.first + 1, 1) if isinstance(message, RangeWanted) else 1
                granted = await self.guests.grant(guest.share, wanted)
                if not granted:
                    await self._refuse(visitor, _SPENT)
                    continue
                if isinstance(message, RangeWanted):
                    message = RangeWanted(message.first, min(message.last, message.first + granted - 1))
                given = await self._reply(visitor, message, guest_id(guest.number))
                self.guests.settle(guest.share, granted, given)

    async def _refuse(self, visitor: Visit, reason: str) -> None:
        self._context.counters.ranges_refused += 1
        await visitor.send(Refused(reason))

    def fill(self, gauges: NodeGauges) -> None:
        """Who is here, and whose share is used up."""
        gauges.clients = self.visitors
        gauges.guests = self.guests.present
        loudest = self.guests.loudest()
        gauges.guests_throttled = tuple([str(share) for share in loudest])
        self._context.counters.guest_throttles = {(share.address, share.key): share.throttled for share in loudest}

    def _throttled(self, share: GuestShare) -> None:
        figures = f"{share.asked} messages asked, {share.served} served, {share.refused} requests refused"
        self._context.alarm(
            f"throttled-{share.address}-{share.key}",
            f"{share} has used up its share: {figures}",
            "it is far behind and catches up slowly, or it is hostile; others are not affected. A seat in the file, or"
            " guests.share, gives it more",
        )
        self._context.log.warning("guest is throttled", who=str(share), what=figures)

    def _complain(self, name: str, text: str) -> None:
        self._context.counters.ranges_refused += 1
        self._context.alarm(f"visitor-{name}", f"{name}: {text}", "a slow or foreign visitor; others are not affected")


async def _next_of(visitor: Visit) -> DoorMessage | None:
    """What a guest asks next; None when it has gone, or asks for nothing."""
    try:
        async with asyncio.timeout(IDLE_S):
            return await visitor.receive()
    except TimeoutError:
        return None


class RetransmitDoor(_RangeDoor):
    """Asks the machine on behalf of visitors."""

    def __init__(self, context: Context, feed: Callable[[ServerInput], None]) -> None:
        """`feed` gives the machine an input; the host hands its answers to `answer`."""
        super().__init__(context, context.edge_door_key)
        self._feed = feed
        self._waiting: dict[NodeId, _Request] = {}

    def answer(self, answer: ServerAnswer) -> None:
        """What the machine says to a customer; one that has given up is not there any more."""
        waiting = self._waiting.get(answer.customer)
        if waiting is not None and waiting.fits(answer):
            waiting.end(answer)

    async def _reply(self, visitor: Visit, message: DoorMessage, customer: NodeId) -> int:
        match message:
            case RangeWanted(first, last):
                answer = await self._ask(customer, RangeAsked(customer, first, last))
            case SnapshotWanted():
                answer = await self._ask(customer, SnapshotAsked(customer))
            case _:
                await visitor.send(Refused(_NOT_HERE))
                return 0
        return await self._give(visitor, answer)

    async def _ask(self, customer: NodeId, event: RangeAsked | SnapshotAsked) -> ServerAnswer:
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

    async def _give(self, visitor: Visit, answer: ServerAnswer) -> int:
        """How many messages it was, or would have been."""
        match answer:
            case GiveRange(_, packets, low_water, newest):
                for body in block_bodies(packets, self._context.clock.now()):
                    await visitor.send(Block(body))
                    # Between two blocks everybody else has a turn.
                    await asyncio.sleep(0)
                await visitor.send(End(low_water, newest + 1))
                self._context.counters.ranges_served += 1
                return len(packets)
            case GiveSnapshot(_, snapshot):
                await visitor.send(Snapshot(snapshot.next_sequence, snapshot.payload))
                self._context.counters.ranges_served += 1
                return 1 + len(snapshot.payload) // (EVENTS_PER_PAYLOAD * EVENT_BYTES)
            case TurnAway():
                await self._refuse(visitor, _BUSY)
                return 0


# ---- The narrow stripes of a retransmit server, beside its archive of the core: kept, and repaired for who asks.


_PAUSE_S = 1.0


def stripe_repairs(context: Context) -> StripeRepairs | None:
    """In a market with narrow stripes; None in any other."""
    return None if context.market.edge is None else StripeRepairs(context)


class StripeRepairs:
    """Runs a repairer in the event loop of its server; what goes wrong with it never ends the archive."""

    def __init__(self, context: Context) -> None:
        """Opens disk and sockets."""
        self._context = context
        self.repairer = self._made()
        self._running: asyncio.Task[None] | None = None
        context.operations["edge"] = self._tell

    def _made(self) -> Repairer:
        context = self._context
        secret = load_repair_key(context.market)
        return Repairer(context.market, context.plan, secret, context.clock.now, context.alarm, context.keys)

    def start(self) -> None:
        """Begin to hear."""
        self._running = self._context.loop.create_task(self._run(), name="stripe repairs")

    async def stop(self) -> None:
        """Give everything back."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        self.repairer.close()

    async def _run(self) -> None:
        while True:
            try:
                await self.repairer.run()
            except Exception as reason:  # noqa: BLE001 - the archive of the core must not end with it
                self._context.alarm("stripe-repairs", f"{type(reason).__name__}: {reason}", "it goes on by itself")
                await asyncio.sleep(_PAUSE_S)

    async def _tell(self, _: Mapping[str, Any]) -> Mapping[str, object]:
        return {"repairs": asdict(self.repairer.counts), "requests": asdict(self.repairer.desk.counts)}


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
        self.journal = Journal.open(self._where, context.stripe, plan.node, context.market.journal)
        try:
            self._reader = JournalReader(self._where)
            state = self._state()
            self._channels = context.channels(plan.node, node_keys(context))
        except BaseException:
            self.journal.close()
            raise
        self.machine = RetransmitServer(plan.node, settings, state, proof_terms(context), line_prover(context))
        self.driver: Driver[ServerInput, ServerHostEffect] = context.driver(self.machine, self, self._channels)
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

    def perform(self, effect: ServerHostEffect, now: int) -> None:
        """Do one effect of a retransmit server."""
        match effect:
            case Archive():
                self._archive(effect, now)
            case SendLine(packets, proofs):
                self._channels.to_line((*proofs, *packets))
            case ReadArchive():
                self._read(effect)
            case GiveRange() | GiveSnapshot() | TurnAway():
                self.door.answer(effect)
            case KeepSnapshot(snapshot):
                self._keep(_SNAPSHOT, write_snapshot(snapshot))
            case FetchRange() | FetchSnapshot():
                self._fetcher.fetch(effect)
            case DeliverLatest() | TokensPassed():
                pass  # For those who deliver: an archive has every message, and tells its newest in heartbeats.
            case GapAbandoned(_, last, _):
                self._keep(_LOW_WATER, str(last + 1).encode())
                self._report.tell(effect)
            case _:
                self._report.tell(effect)

    def next_deadline(self) -> int:
        """None of its own."""
        return NEVER

    def wake(self, now: int) -> None:
        """Nothing to do."""

    def _feed(self, event: ServerInput) -> None:
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
        self._report.collect(self.machine.customer.snapshot())
        if self._context.maintain_journal(self.journal, now):
            self._tell_trimmed()

    def gauges(self) -> NodeGauges:
        """The machine's state, and what only the host knows."""
        snapshot = self.machine.snapshot()
        gauges = self._report.gauges(snapshot.customer)
        self._following.fill(gauges)
        gauges.archive_first_sequence = snapshot.low_water or None
        gauges.archive_next_sequence = snapshot.next_sequence or None
        self.door.fill(gauges)
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


# ---- Ranges of the past by TCP, from the journal's own segments: for customers, and for servers that fill their
# gaps.
#
# Another receiver may also have the log's state at a stable token, to go on from there (`ring.rejoin`).
#
# A block goes out as it lies in the file. Between two blocks everybody else has a turn, and a visitor that does not
# read waits alone.


_LARGE_BYTES = 8 << 20
"""A block longer than this is sent in slices: a message at the door has a limit."""
_SLICE = 512
"""Messages of a slice: 512 of 8,824 bytes are 4.5 MB."""


class ArchiveDoor(_RangeDoor):
    """Serves one journal."""

    def __init__(self, context: Context, directory: Path, checkpoint: Callable[[], Checkpoint | None]) -> None:
        """Nothing is read before a request comes; `checkpoint` gives the log's state, or None while there is none."""
        super().__init__(context, context.archive_door_key)
        self._checkpoint = checkpoint
        self._reader = JournalReader(directory)

    async def _reply(self, visitor: Visit, message: DoorMessage, customer: NodeId) -> int:  # noqa: ARG002 - no shares
        match message:
            case RangeWanted(first, last):
                return await self._give_range(visitor, first, last)
            case CheckpointWanted():
                await visitor.send(self._log_for(visitor))
            case SnapshotWanted():
                await visitor.send(self._stripes_for(visitor))
            case _:
                await visitor.send(Refused(_NOT_HERE))
        return 0

    def _log_for(self, visitor: Visit) -> CheckpointGiven | Refused:
        if core_door_key(self._context.market, self._context.keys, visitor.name) is None:
            return Refused("a checkpoint of the log is for receivers alone")
        point = self._checkpoint()
        return CheckpointGiven(checkpoint_bytes(point)) if point else Refused("this site has no log to give")

    def _stripes_for(self, visitor: Visit) -> Snapshot | Refused:
        """The state of this site's narrow stripes, for another receiver's; customers ask a retransmit server."""
        path = self._context.directory / "edge" / "state"
        if core_door_key(self._context.market, self._context.keys, visitor.name) is None or not path.exists():
            return Refused("this node keeps no snapshot: ask a retransmit server")
        return Snapshot(0, path.read_bytes())

    async def _give_range(self, visitor: Visit, first: int, last: int) -> int:
        counters = self._context.counters
        given = 0
        try:
            for block in self._reader.blocks(first, last):
                for body in _bodies(block):
                    await visitor.send(Block(body))
                    await asyncio.sleep(0)
                given += block.header.messages
            low_water, next_sequence = self._reader.span() or (1, 1)
        except JournalError as reason:
            counters.journal_alarms += 1
            await visitor.send(Refused(str(reason)))
            return given
        counters.ranges_served += 1
        await visitor.send(End(low_water, next_sequence))
        return given


def _bodies(block: BlockView) -> Iterator[bytes]:
    """The block as it lies, or in slices where it is too long for one message."""
    if len(block.raw) <= _LARGE_BYTES:
        yield bytes(block.raw)
        return
    whole = block.released()
    for start in range(0, len(whole.messages), _SLICE):
        yield b"".join(encode_block(whole.part(start, start + _SLICE)).pieces)
