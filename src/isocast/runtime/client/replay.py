"""Replays of feeds at the sources of a market, in the time of the feeds, each message once whatever is interrupted.

Keys follow from the files and the place in them, so that a source knows a message that it has had. A source remembers
a bounded number of keys; therefore a file of progress says from where on a repeat has to ask. What that file counts
is in the outbox, and what it does not count yet is far less than a source remembers. It also says how messages are cut,
so that a repeat at another speed cuts them at the same places, and a digest of all that it counts, so that a file that
was changed meanwhile is found out.

At full speed messages are full, and as many of them are under way as the source takes: the ring sets the pace.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import merge
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.publisher import DOOR_BYTES, Publisher, SourceDoor
from isocast.runtime.client.replay_messages import FloorFeed, ReplayMessage, gathering
from isocast.runtime.market.model import Market
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted
from isocast.wire.door import MAX_BATCH
from isocast.wire.limits import MAX_PAYLOAD

__all__ = ["Replay", "ReplayReport", "ReplayedFloor", "progress_directory"]

Told: TypeAlias = "Callable[[ReplayReport], None]"

_UNDER_WAY = 8
"""Batches that are said before the first is answered: the source has them at hand when its window opens."""
_SAID_BYTES = DOOR_BYTES // _UNDER_WAY - MAX_PAYLOAD
"""Bytes of messages that are said together, but for the last of them."""
_AHEAD = 4 * MAX_BATCH
"""Messages that wait for one floor; others wait for it then, so that floors stay together."""
_KNOWN_AT_ONCE = 16
"""Messages that are tried together where a source knew those before."""
_SAVE_EVERY = 4_096
"""Messages between two savings: a sixteenth of what a source remembers."""
_SAVE_EVERY_S = 1.0
_TELL_EVERY_S = 0.1
_TURN = 256
"""Messages that are read before others have their turn."""
_BILLION = 1_000_000_000
_MARK = "isocast-replay"


def progress_directory(market: Market) -> Path:
    """Where replays note how far they are, unless told otherwise."""
    return market.data_directory / ".replays"


@dataclass(slots=True)
class ReplayedFloor:
    """What one floor has published in one stripe, with what it had before."""

    source: str
    """Its process there: NAME, or NAME.s1."""
    stripe: int = 0
    messages: int = 0
    events: int = 0
    known_messages: int = 0
    """Of them those that it had before this run."""
    digest: TapeDigest = field(default_factory=TapeDigest)
    """Of the events that were read: all that it has published, once the replay is complete."""


@dataclass(slots=True, repr=False)
class ReplayReport:
    """How far a replay is."""

    floors: list[ReplayedFloor]
    market_time: int = 0
    """The time of the newest event, in nanoseconds since 1970."""
    behind_s: float = 0.0
    """By how much the last message was later than its pace."""
    worst_s: float = 0.0
    part: float = 0.0
    """How much of the files was read, 0 to 1."""

    def __repr__(self) -> str:
        names = ", ".join([floor.source for floor in self.floors])
        known = f", {self.known_messages:,} of them known before" if self.known_messages else ""
        what = f"{counted(self.events, 'event')} in {counted(self.messages, 'message')}"
        return f"<ReplayReport of {what} at {names}{known}>"

    @property
    def events(self) -> int:
        """Of all floors, published now or before."""
        return sum(floor.events for floor in self.floors)

    @property
    def messages(self) -> int:
        """The same in messages."""
        return sum(floor.messages for floor in self.floors)

    @property
    def known_messages(self) -> int:
        """Of them those that sources had before."""
        return sum(floor.known_messages for floor in self.floors)


class _Floor:
    """One floor in one stripe: its door, the messages that wait for it, and its file of progress."""

    def __init__(
        self, door: SourceDoor, identity: bytes, directory: Path, report: ReplayedFloor, gather_ns: int
    ) -> None:
        """`gather_ns` is how messages are to be cut, unless the file of progress says that they were cut otherwise."""
        self.door = door
        self.gather_ns = gather_ns
        self.report = report
        self.waiting: deque[ReplayMessage] = deque()
        self.news = asyncio.Event()
        self.room = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self.stopped = False
        self.all_known = True
        """Whether the source had all of what was handed over last."""
        self._file = directory / f"{door.name}-{identity.hex()}.json"
        self._counted = blake2b(digest_size=16)
        self._noted = ""
        self.skip = self._load()
        self._saved, self._saved_at = -1 if not self._file.exists() else self.skip, monotonic()

    def _load(self) -> int:
        """How many messages are certainly in the outbox, and how they were cut."""
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as reason:
            rule = f"cannot be read ({reason}); repair it: without it some messages are published twice"
            raise ConfigurationError(str(self._file), "progress", rule) from None
        match content:
            case {"what": str(what), "messages": int(count), "gather_ns": int(gather_ns), "digest": str(noted)} if (
                what == _MARK
            ):
                self.gather_ns, self._noted = gather_ns, noted
                return count
            case _:
                raise ConfigurationError(str(self._file), "progress", "is not a progress file of a replay")

    def check(self, *, ended: bool = False) -> None:
        """What was read and is noted as published must be what was published; ConfigurationError if it is not."""
        done = self.report.messages
        if self.skip and (
            (done == self.skip and self._counted.hexdigest() != self._noted) or (ended and done < self.skip)
        ):
            rule = "the files are not those that were published before: give this replay another name with --run"
            raise ConfigurationError(str(self._file), "progress", rule)

    def save(self, *, now: bool) -> None:
        """Note what the outbox has; a moment later than it is so does no harm."""
        done = self.report.messages
        due = done - self._saved >= _SAVE_EVERY or monotonic() - self._saved_at >= _SAVE_EVERY_S
        if done <= self._saved or not (now or due):
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".part")
        noted = {"what": _MARK, "messages": done, "gather_ns": self.gather_ns, "digest": self._counted.hexdigest()}
        partial.write_text(json.dumps(noted) + "\n", encoding="utf-8")
        partial.replace(self._file)
        self._saved, self._saved_at = done, monotonic()

    async def work(self) -> None:
        """Publish what waits, until it is stopped."""
        if not self.skip:
            # How messages are cut is known before the first of them is anywhere.
            self.save(now=True)
        under_way: deque[list[ReplayMessage]] = deque()
        while not self.stopped:
            while self.waiting and len(under_way) < _UNDER_WAY:
                batch = self._next_batch()
                under_way.append(batch)
                await self.door.say([(message.key, message.payload) for message in batch])
            if not under_way:
                self.idle.set()
                self.news.clear()
                await self.news.wait()
                continue
            known = await self.door.answer()
            batch = under_way.popleft()
            self.all_known = known == len(batch)
            self.report.known_messages += known
            self.count(batch)
            self.save(now=False)

    def _next_batch(self) -> list[ReplayMessage]:
        """Of what waits as much as is said together."""
        batch: list[ReplayMessage] = []
        size = 0
        while self.waiting and len(batch) < MAX_BATCH and size < _SAID_BYTES:
            batch.append(self.waiting.popleft())
            size += len(batch[-1].payload)
        self.room.set()
        return batch

    def count(self, batch: Sequence[ReplayMessage]) -> None:
        """These are in the outbox."""
        self.report.messages += len(batch)
        self.report.events += sum([message.events for message in batch])
        for message in batch:
            self._counted.update(message.key)

    def put(self, message: ReplayMessage) -> None:
        """One more."""
        self.waiting.append(message)
        self.idle.clear()
        self.news.set()


class Replay:
    """One replay of feeds at several floors. `run` goes through all of it; it may be cancelled and repeated."""

    def __init__(
        self,
        market: Market,
        feeds: Sequence[FloorFeed],
        *,
        speed: float | None = None,
        patience_s: float = 60.0,
        progress: Path | None = None,
        told: Told | None = None,
    ) -> None:
        """`speed` is market time to real time; without one everything goes as fast as the floors take it."""
        if len({feed.source for feed in feeds}) != len(feeds):
            raise ConfigurationError("replay", "floors", "a floor occurs twice: give it its files together")
        self._speed = speed
        self._told = told or (lambda _: None)
        self._files = [file for feed in feeds for file in feed.files]
        directory = progress or progress_directory(market)
        self._doors = [Publisher(market, feed.source, patience_s=patience_s) for feed in feeds]
        self._lanes: dict[tuple[int, int], _Floor] = {}
        """By place of the floor, and stripe."""
        self._messages_of: list[Generator[ReplayMessage]] = []
        for place, (feed, door) in enumerate(zip(feeds, self._doors, strict=True)):
            identity = feed.identity()
            for stripe, lane in door.lanes.items():
                report = ReplayedFloor(lane.name, stripe)
                self._lanes[place, stripe] = _Floor(lane, identity, directory, report, gathering(speed))
            digests = {stripe: self._lanes[place, stripe].report.digest for stripe in door.lanes}
            per_message = door.events_per_message
            spans = {stripe: self._lanes[place, stripe].gather_ns for stripe in door.lanes}
            self._messages_of.append(feed.messages(place, per_message, identity, digests, door.routes, spans))
        self._floors = list(self._lanes.values())
        self.report = ReplayReport([floor.report for floor in self._floors])
        self._left = self._messages()
        self._turns = 0

    async def run(self) -> ReplayReport:
        """Publish everything; returns when all of it is in the outboxes."""
        async with AsyncExitStack() as stack:
            for door in self._doors:
                await stack.enter_async_context(door)
            work = [asyncio.create_task(floor.work()) for floor in self._floors]
            work.append(asyncio.create_task(self._tell()))
            reading = asyncio.create_task(self._read())
            try:
                # No other task ends by itself: it fails, or it is not needed any more.
                done, _ = await asyncio.wait([reading, *work], return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                await self._end(reading, *work)
        self._tell_now()
        return self.report

    async def _end(self, *tasks: asyncio.Task[None]) -> None:
        """Stop, and note how far it came."""
        for floor in self._floors:
            # A timeout that ends in the same moment may swallow a cancellation.
            floor.stopped = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # The files are closed with what reads them.
        self._left.close()
        for messages in self._messages_of:
            messages.close()
        for floor in self._floors:
            floor.save(now=True)

    async def _tell(self) -> None:
        """Again and again, however slowly things go."""
        while True:
            self._tell_now()
            await asyncio.sleep(_TELL_EVERY_S)

    def _tell_now(self) -> None:
        size = sum([file.size for file in self._files])
        self.report.part = min(sum([file.position for file in self._files]) / size, 1.0) if size else 1.0
        self._told(self.report)

    # ---- the order of time

    def _messages(self) -> Generator[ReplayMessage | None]:
        """What is not certainly in an outbox yet, of all floors in the order of time; None for each that is."""
        for message in merge(*self._messages_of, key=lambda message: message.due):
            self.report.market_time = max(self.report.market_time, message.due)
            floor = self._lanes[message.floor, message.stripe]
            if message.place < floor.skip:
                floor.count([message])
                floor.report.known_messages += 1
                floor.check()
                yield None
            else:
                yield message
        for floor in self._floors:
            floor.check(ended=True)

    async def _next(self) -> ReplayMessage | None:
        """The next that is to be published, or None at the end; others have their turn between."""
        while True:
            self._turns += 1
            if self._turns % _TURN == 0:
                await asyncio.sleep(0)
            try:
                message = next(self._left)
            except StopIteration:
                return None
            if message is not None:
                return message

    async def _read(self) -> None:
        if self._speed is None:
            while (message := await self._next()) is not None:
                await self._hand_over(message)
        else:
            await self._in_time(self._speed)
        await self._drained()

    async def _in_time(self, speed: float) -> None:
        anchor: tuple[float, int] | None = None
        trial = 1
        while True:
            if anchor is not None and not all(floor.all_known for floor in self._floors):
                message = await self._next()
                if message is None:
                    return
                await self._until(anchor[0] + (message.due - anchor[1]) / _BILLION / speed)
                await self._hand_over(message)
                continue
            # Whoever was here before us has published these: what sources know need not wait for its time.
            batch = [message for _ in range(trial) if (message := await self._next()) is not None]
            trial = min(2 * trial, _KNOWN_AT_ONCE)
            for message in batch:
                await self._hand_over(message)
            await self._drained()
            if not batch:
                return
            anchor = monotonic(), batch[-1].due

    async def _hand_over(self, message: ReplayMessage) -> None:
        floor = self._lanes[message.floor, message.stripe]
        while len(floor.waiting) >= _AHEAD:
            floor.room.clear()
            await floor.room.wait()
        floor.put(message)

    async def _drained(self) -> None:
        for floor in self._floors:
            await floor.idle.wait()

    async def _until(self, due: float) -> None:
        """Wait for a moment that is still to come, or note by how much it is past."""
        left = due - monotonic()
        self.report.behind_s = max(-left, 0.0)
        self.report.worst_s = max(self.report.worst_s, self.report.behind_s)
        if left > 0:
            await asyncio.sleep(left)
