"""The clear edge feed, ITCH 5.0 as a function of the sequence; what a gateway has sent, and its checkpoints, on disk.

Every gateway that saw a session from its first message on gives the same bytes the same number: nothing here looks at a
clock, and each message of the sequence is written by itself, however messages came together. A session is one edge
stripe on one day, by the instants at which messages are released. A gateway that does not know how a session began, or
misses a message of it, has nothing right to say: it waits for the next one.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple, TypeAlias
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from isocast.feeds.days import DayClock, day_at, midnight_ns
from isocast.feeds.itch_writer import TRADE_BYTES, ItchWriter, plain_trades
from isocast.feeds.mold import MoldRequest, SessionEnd, message_places, packetise, session_name
from isocast.feeds.outcomes import FeedLog
from isocast.feeds.release_stamps import stamp_release
from isocast.floor.printing import FirstPrints
from isocast.terms.errors import FeedError
from isocast.terms.market import EventKind
from isocast.terms.zones import zone_of
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.limits import EVENT_BYTES

__all__ = [
    "ROOM",
    "CoreMessage",
    "DayArchive",
    "EdgeBlock",
    "EdgeCheckpoint",
    "EdgeFeed",
    "FeedSession",
    "SessionArchive",
    "Split",
    "read_checkpoint",
    "write_checkpoint",
]


# What a gateway has sent, on disk: for requests, and so that it goes on with the same numbers after a restart.
#
# A day has a folder. In it, of the sequence: `core.events`, the records as they were received, and `core.index`; of
# each session: `SESSION.itch`, an ITCH 5.0 file like any other, and `SESSION.index`. Sessions are written before the
# core's index, so that after a crash the core's last record says what counts; what sessions have beyond it is cut off.


_CORE = np.dtype([("sequence", "<u8"), ("release", "<i8"), ("at", "<u8"), ("count", "<u4"), ("stripe", "<u4")])
_BLOCK = np.dtype(
    [("sequence", "<u8"), ("release", "<i8"), ("first", "<u8"), ("at", "<u8"), ("count", "<u4"), ("size", "<u4")]
)


_READ_EVENTS = 1 << 16


class CoreMessage(NamedTuple):
    """A message of the sequence, as it was received."""

    sequence: int
    release: int
    events: EventArray


class _Growing:
    """A file that is only appended to."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._fd).st_size

    def append(self, raw: bytes) -> int:
        """Behind everything; where it begins."""
        at, view = self.size, memoryview(raw)
        while view:
            written = os.pwrite(self._fd, view, self.size)
            self.size += written
            view = view[written:]
        return at

    def read(self, at: int, count: int) -> bytes:
        return os.pread(self._fd, count, at)

    def cut(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def close(self) -> None:
        os.close(self._fd)


class SessionArchive:
    """The messages of one session, by their numbers."""

    def __init__(self, directory: Path, session: str) -> None:
        """Open or create it."""
        self.session = session
        self._messages = _Growing(directory / f"{session}.itch")
        self._index = _Growing(directory / f"{session}.index")
        self._firsts: list[int] = []
        self.next_number = 1

    def load(self, before: int) -> None:
        """Take over the blocks of core messages before a sequence, and forget the others."""
        raw = self._index.read(0, self._index.size // _BLOCK.itemsize * _BLOCK.itemsize)
        rows = np.frombuffer(raw, _BLOCK)
        keep = int(np.searchsorted(rows["sequence"], before, side="left"))
        rows = rows[:keep]
        self._index.cut(keep * _BLOCK.itemsize)
        end = int(rows["at"][-1] + rows["size"][-1]) if keep else 0
        if end > self._messages.size:
            raise FeedError(f"{self.session}.itch", f"is cut: its index counts {end} bytes, there are less")
        self._messages.cut(end)
        self._firsts = rows["first"].tolist()
        self.next_number = int(rows["first"][-1] + rows["count"][-1]) if keep else 1

    def append(self, sequence: int, release: int, framed: bytes, count: int) -> int:
        """One block: the messages of one core message. The number of the first."""
        first = self.next_number
        at = self._messages.append(framed)
        row = np.array([(sequence, release, first, at, count, len(framed))], _BLOCK)
        self._index.append(row.tobytes())
        self._firsts.append(first)
        self.next_number = first + count
        return first

    def block_with(self, number: int, most: int) -> bytes:
        """Messages of one block from this number on, at most so many; none if there is no such number."""
        if not 0 < number < self.next_number:
            return b""
        place = bisect_right(self._firsts, number) - 1
        row = np.frombuffer(self._index.read(place * _BLOCK.itemsize, _BLOCK.itemsize), _BLOCK)[0]
        framed = self._messages.read(int(row["at"]), int(row["size"]))
        ends = message_places(framed)
        skip = number - int(row["first"])
        return framed[int(ends[skip]) : int(ends[min(skip + most, len(ends) - 1)])]

    @property
    def size(self) -> int:
        """Bytes of the file of messages."""
        return self._messages.size

    def begins(self, number: int, offset: int) -> bool:
        """Whether a block with this number begins at this place, or everything ends there."""
        if number == self.next_number:
            return offset == self._messages.size
        place = bisect_right(self._firsts, number) - 1
        if place < 0 or self._firsts[place] != number:
            return False
        row = np.frombuffer(self._index.read(place * _BLOCK.itemsize, _BLOCK.itemsize), _BLOCK)[0]
        return int(row["at"]) == offset

    def at(self, offset: int, size: int) -> bytes:
        """Bytes of the file of messages."""
        return self._messages.read(offset, size)

    def close(self) -> None:
        """Give the files back."""
        self._messages.close()
        self._index.close()


class DayArchive:
    """One day of a gateway."""

    def __init__(self, root: Path, day: date) -> None:
        """Open or create its folder."""
        self.day = day
        self.directory = root / day.isoformat()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._events = _Growing(self.directory / "core.events")
        self._index = _Growing(self.directory / "core.index")
        self.sessions: dict[int, SessionArchive] = {}
        """By edge stripe."""
        whole = self._index.size // _CORE.itemsize
        self._index.cut(whole * _CORE.itemsize)
        self.next_sequence = 0
        """Behind the last message of the sequence that counts; 0 if there is none."""
        if whole:
            last = np.frombuffer(self._index.read((whole - 1) * _CORE.itemsize, _CORE.itemsize), _CORE)[0]
            self._events.cut(int(last["at"]) + int(last["count"]) * EVENT_BYTES)
            self.next_sequence = int(last["sequence"]) + 1
        else:
            self._events.cut(0)

    def open_session(self, stripe: int, session: str) -> SessionArchive:
        """A session of this day, as far as the sequence counts."""
        archive = self.sessions[stripe] = SessionArchive(self.directory, session)
        archive.load(self.next_sequence)
        return archive

    def append(self, message: CoreMessage) -> None:
        """A message whose blocks are written: from now on it counts."""
        at = self._events.append(message.events.tobytes())
        row = np.array([(message.sequence, message.release, at, len(message.events), 0)], _CORE)
        self._index.append(row.tobytes())
        self.next_sequence = message.sequence + 1

    @property
    def count(self) -> int:
        """Messages of the sequence that count."""
        return self._index.size // _CORE.itemsize

    def follows(self, count: int, next_sequence: int) -> bool:
        """Whether so many messages are here, and this sequence comes behind them."""
        if not 0 < count <= self.count:
            return False
        last = np.frombuffer(self._index.read((count - 1) * _CORE.itemsize, _CORE.itemsize), _CORE)[0]
        return int(last["sequence"]) + 1 == next_sequence

    def messages(self, skip: int = 0) -> Iterator[CoreMessage]:
        """All that counts, from the first of the day on or behind so many."""
        start = skip * _CORE.itemsize
        for row in np.frombuffer(self._index.read(start, self._index.size - start), _CORE):
            raw = self._events.read(int(row["at"]), int(row["count"]) * EVENT_BYTES)
            yield CoreMessage(int(row["sequence"]), int(row["release"]), np.frombuffer(raw, EVENT_DTYPE))

    def records(self) -> Iterator[EventArray]:
        """All events that count, some thousands at a time."""
        for at in range(0, self._events.size, _READ_EVENTS * EVENT_BYTES):
            yield np.frombuffer(self._events.read(at, _READ_EVENTS * EVENT_BYTES), EVENT_DTYPE)

    def close(self) -> None:
        """Give the files back."""
        for session in self.sessions.values():
            session.close()
        self._events.close()
        self._index.close()


# A gateway's checkpoints: from which message on a restart has to write its sessions again, and with what state.
#
# A checkpoint is one file of a day, replaced as a whole: a digest, then arrays of numpy, none of them objects. It is
# behind what the archive counts, never before it. One that is damaged, or of another day's archive, is none: then the
# whole day is written again, which takes longer and gives the same.


_MAGIC = b"ISOEDGE1"
_DIGEST_BYTES = 16


class FeedSession(NamedTuple):
    """Where a session stands, and what its next messages depend on."""

    at: int
    """Bytes of its file."""
    next_number: int
    skipped: Mapping[str, int]
    writer: Mapping[str, npt.NDArray[Any]]
    lacking: Mapping[str, int]


class EdgeCheckpoint(NamedTuple):
    """The state of a day behind so many messages of the sequence."""

    messages: int
    next_sequence: int
    sessions: Mapping[int, FeedSession]
    """By edge stripe."""


def write_checkpoint(path: Path, checkpoint: EdgeCheckpoint) -> None:
    """All of it or nothing."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    rows: dict[str, object] = {}
    for stripe, state in checkpoint.sessions.items():
        rows[str(stripe)] = [state.at, state.next_number, dict(state.skipped), dict(state.lacking)]
        arrays |= {f"{stripe}.{name}": array for name, array in state.writer.items()}
    head = {"messages": checkpoint.messages, "next_sequence": checkpoint.next_sequence, "sessions": rows}
    arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    packed = BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]  # its stub takes the names for its own options
    content = packed.getvalue()
    draft = path.with_suffix(".new")
    draft.write_bytes(_MAGIC + blake2b(content, digest_size=_DIGEST_BYTES).digest() + content)
    draft.replace(path)


def read_checkpoint(path: Path) -> EdgeCheckpoint | None:
    """What was written there; None if there is nothing, FeedError if it is damaged."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    start = len(_MAGIC) + _DIGEST_BYTES
    content = raw[start:]
    if raw[:start] != _MAGIC + blake2b(content, digest_size=_DIGEST_BYTES).digest():
        raise FeedError(str(path), "is damaged")
    try:
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            return _checkpoint({name: arrays[name] for name in arrays.files})
    except (BadZipFile, ValueError, KeyError, TypeError) as reason:
        raise FeedError(str(path), f"cannot be understood: {reason}") from None


def _checkpoint(arrays: Mapping[str, npt.NDArray[Any]]) -> EdgeCheckpoint:
    head = json.loads(arrays["head"].tobytes())
    sessions = {}
    for text, (at, next_number, skipped, *counts) in head["sessions"].items():
        own = f"{text}."
        writer = {name.removeprefix(own): array for name, array in arrays.items() if name.startswith(own)}
        lacking = counts[0] if counts else {}  # Older programs did not count it.
        sessions[int(text)] = FeedSession(at, next_number, skipped, writer, lacking)
    return EdgeCheckpoint(head["messages"], head["next_sequence"], sessions)


Split: TypeAlias = Callable[[npt.NDArray[np.bytes_]], npt.NDArray[np.uint32]]
"""From symbols to the edge stripe of each."""

ROOM = 1_400
"""Bytes of a packet: below every Ethernet's."""
CHECKPOINT = "core.checkpoint"
"""In the folder of a day."""
CHECKPOINT_EVERY = 4_096
"""Messages of the sequence between two checkpoints: what a restart writes again takes about a second."""
_ROWS_A_MESSAGE = 32
"""Rows of a checkpoint that cost about as much as writing one message again."""
_STEP = 256
"""Messages between two steps of a restart."""
NO_QUOTES = "ITCH has no quotes"


class EdgeBlock(NamedTuple):
    """Messages that are sent together, released at one instant."""

    stripe: int
    session: str
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    framed: bytes
    release: int

    def packets(self) -> list[bytes]:
        """In MoldUDP64."""
        return list(packetise(self.session, self.first, self.framed, room=ROOM))


class _Session:
    """One edge stripe on one day."""

    def __init__(self, archive: SessionArchive, day: DayClock) -> None:
        self.archive = archive
        self.log = FeedLog(archive.session)
        self._writer = ItchWriter(day, self.log, name_floors=True, keep_hour=True)

        self.place = 0, 1
        """(bytes of its file, next number) from which on it is written again after a restart."""

    def state(self) -> FeedSession:
        """For a checkpoint."""
        archive = self.archive
        log = self.log
        return FeedSession(archive.size, archive.next_number, log.skipped, self._writer.state(), log.lacking)

    def fits(self, state: FeedSession) -> bool:
        """Whether a checkpoint's state is one of this archive."""
        return self.archive.begins(state.next_number, state.at)

    def restore(self, state: FeedSession) -> None:
        """Go on from a checkpoint."""
        self.place = state.at, state.next_number
        self.log.skipped.update(state.skipped)
        self.log.lacking.update(state.lacking)
        self._writer.restore(state.writer)

    def write(self, events: EventArray, first: int, release: int) -> tuple[bytes, int]:
        """The messages of these events, and how many they are."""
        framed = plain_trades(self._writer, events)
        if framed is not None:
            return stamp_release(framed, first, release, size=TRADE_BYTES), len(events)
        framed = self._writer.write(events)
        return stamp_release(framed, first, release), len(message_places(framed)) - 1


class EdgeFeed:
    """All sessions of one gateway. Messages of the sequence go in, blocks to send come out."""

    def __init__(
        self,
        directory: Path,
        stripes: Sequence[int] = (0,),
        split: Split | None = None,
        *,
        zone: str = "UTC",
        keep_days: int = 7,
        floors: Sequence[str] = (),
    ) -> None:
        """`split` says the stripe of each symbol; without it everything is of the first one.

        `floors` are the market's own, whose trades may be in the sequence twice: the first counts, within a day.
        """
        zone_of(zone)
        self.stripes = tuple(stripes)
        self._split = split
        self._root = directory
        self._zone = zone
        self._keep = timedelta(days=keep_days)
        self._open: list[DayArchive] = []
        self._day: DayArchive | None = None
        self._sessions: dict[int, _Session] = {}
        self._floors = tuple(floors)
        self._prints = FirstPrints(floors)
        self._by_name: dict[bytes, SessionArchive] = {}
        self._bounds = (0, 0)
        self._waits_on: date | None = None
        self.next_sequence = 0
        """Of the sequence; 0 before the first."""
        self.missed = 0
        """Messages of sessions whose beginning is not known."""
        self.quotes = 0
        """Left out since it was started."""
        self.notes: list[str] = []
        """What was odd about a restart, a line each."""
        self._checkpoint_every = CHECKPOINT_EVERY
        self._since_checkpoint = 0
        for stripe in self.stripes:
            session_name(date.min.replace(year=2000), stripe)

    # ---- what can be asked

    @property
    def is_waiting(self) -> bool:
        """Whether a session goes on without us."""
        return self._waits_on is not None

    @property
    def running(self) -> list[tuple[int, str, int]]:
        """(stripe, session, next number) of what is being sent."""
        return [(stripe, one.archive.session, one.archive.next_number) for stripe, one in self._sessions.items()]

    @property
    def left_out(self) -> dict[str, int]:
        """Events that ITCH has no message for, by reason, in the sessions of today."""
        quotes = {NO_QUOTES: self.quotes} if self.quotes else {}
        return _together([quotes, *(session.log.skipped for session in self._sessions.values())])

    @property
    def written_without(self) -> dict[str, int]:
        """Events that are sent without something of theirs, by what that is, in the sessions of today."""
        return _together(session.log.lacking for session in self._sessions.values())

    def answer(self, request: MoldRequest) -> bytes:
        """A packet with what was asked for, as much as one packet has; nothing if we do not have it."""
        archive = self._by_name.get(request.session)
        framed = b"" if archive is None else archive.block_with(request.sequence, request.count)
        return next(packetise(request.session, request.sequence, framed, room=ROOM)) if framed else b""

    # ---- the sequence

    def restore(self) -> None:
        """Go on where the last run ended."""
        for _ in self.restoring():
            pass

    def restoring(self) -> Iterator[tuple[int, int]]:
        """The same in steps, with (done, total) after each.

        What was sent of the last day since its checkpoint is written again, and must be the same.
        """
        days = sorted(date.fromisoformat(folder.name) for folder in self._folders())
        if not days:
            return
        for day in days[:-1]:
            self._serve(DayArchive(self._root, day))
        self._enter(days[-1])
        if self._day is None or not self._day.next_sequence:
            return
        for events in self._day.records() if self._floors else ():
            self._prints.first(events)
        done = self._load_checkpoint(self._day)
        total = self._day.count - done
        places = {stripe: session.place for stripe, session in self._sessions.items()}
        for count, message in enumerate(self._day.messages(done), 1):
            for stripe, events in self._parts(message.events):
                session, (at, first) = self._sessions[stripe], places[stripe]
                framed, made = session.write(events, first, message.release)
                if session.archive.at(at, len(framed)) != framed:
                    rule = f"differs from what message {message.sequence} of the sequence gives: was the plan changed?"
                    raise FeedError(str(self._day.directory / f"{session.archive.session}.itch"), rule, at)
                places[stripe] = at + len(framed), first + made
            if count % _STEP == 0 or count == total:
                yield count, total
        self.next_sequence = self._day.next_sequence
        self._since_checkpoint = total

    def _load_checkpoint(self, day: DayArchive) -> int:
        """Take the day's checkpoint over; how many messages of the day are in it."""
        path = day.directory / CHECKPOINT
        try:
            found = read_checkpoint(path)
        except FeedError as reason:
            self.notes.append(f"{reason}: the whole day was written again instead")
            return 0
        if found is None:
            return 0
        fits = set(found.sessions) == set(self.stripes) and day.follows(found.messages, found.next_sequence)
        if not fits or not all(self._sessions[stripe].fits(state) for stripe, state in found.sessions.items()):
            self.notes.append(f"{path} does not belong to this archive: the whole day was written again instead")
            return 0
        for stripe, state in found.sessions.items():
            self._insist_on_plan(path, stripe, state.writer["symbols"])
            self._sessions[stripe].restore(state)
        return found.messages

    def _insist_on_plan(self, path: Path, stripe: int, symbols: npt.NDArray[np.bytes_]) -> None:
        """Every symbol of a session is still one of its stripe."""
        named = symbols[symbols != b""]
        if self._split is None or not len(named):
            return
        strange = named[self._split(named) != stripe]
        if len(strange):
            symbol = strange[0].decode("ascii", "replace")
            raise FeedError(str(path), f"{symbol} was in stripe {stripe} and is not any more: was the plan changed?")

    def _keep_checkpoint(self, day: DayArchive) -> None:
        """Now and then, less often the more there is to write."""
        self._since_checkpoint += 1
        if self._since_checkpoint < self._checkpoint_every:
            return
        states = {stripe: session.state() for stripe, session in self._sessions.items()}
        write_checkpoint(day.directory / CHECKPOINT, EdgeCheckpoint(day.count, day.next_sequence, states))
        rows = sum(len(array) for state in states.values() for array in state.writer.values())
        self._checkpoint_every = max(CHECKPOINT_EVERY, rows // _ROWS_A_MESSAGE)
        self._since_checkpoint = 0

    def pass_over(self, sequence: int) -> None:
        """A message without events has its place in the sequence and none in a session."""
        if sequence == max(self.next_sequence, 1):
            self.next_sequence = sequence + 1

    def take(self, sequence: int, release: int, events: EventArray) -> Iterator[EdgeBlock | SessionEnd]:
        """The next message; what it makes us send. It is on disk before it is given out."""
        if sequence < self.next_sequence:
            return
        day = self._day_of(release)
        if sequence != max(self.next_sequence, 1):
            self._leave()
            self._waits_on = day
        self.next_sequence = sequence + 1
        if self._waits_on == day:
            self.missed += 1
            return
        self._waits_on = None
        events = self._sayable(events)
        if not len(events):
            return
        if self._day is None or self._day.day != day:
            yield from self._ends()
            self._enter(day)
        events = self._prints.first(events)
        if len(events):
            yield from self._blocks(CoreMessage(sequence, release, events))

    def _sayable(self, events: EventArray) -> EventArray:
        """Without quotes, which are most of what there is: no need to keep or to write them."""
        quotes = events["kind"] == EventKind.QUOTE
        self.quotes += int(np.count_nonzero(quotes))
        return events[~quotes] if quotes.any() else events

    def _blocks(self, message: CoreMessage) -> list[EdgeBlock]:
        blocks = []
        for stripe, events in self._parts(message.events):
            session = self._sessions[stripe]
            archive = session.archive
            framed, count = session.write(events, archive.next_number, message.release)
            if count:
                first = archive.append(message.sequence, message.release, framed, count)
                blocks.append(EdgeBlock(stripe, archive.session, first, count, framed, message.release))
        if self._day is not None:
            self._day.append(message)
            self._keep_checkpoint(self._day)
        return blocks

    def _parts(self, events: EventArray) -> Iterator[tuple[int, EventArray]]:
        """The events of each stripe; what is of a whole floor is of every stripe."""
        if self._split is None:
            yield self.stripes[0], events
            return
        whole = events["symbol"] == b""
        numbers = self._split(events["symbol"])
        for stripe in self.stripes:
            own = (numbers == stripe) | whole
            if own.any():
                yield stripe, events[own]

    # ---- days

    def _day_of(self, release: int) -> date:
        first, last = self._bounds
        if self._day is not None and first <= release < last:
            return self._day.day
        return day_at(release, self._zone)

    def _enter(self, day: date) -> None:
        self._since_checkpoint = 0
        self._prints = FirstPrints(self._floors)
        self._bounds = midnight_ns(day, self._zone), midnight_ns(day + timedelta(days=1), self._zone)
        self._forget_before(day - self._keep)
        self._day = archive = DayArchive(self._root, day)
        self._serve(archive)
        clock = DayClock.at(day, self._zone)
        self._sessions = {stripe: _Session(archive.sessions[stripe], clock) for stripe in self.stripes}

    def _serve(self, archive: DayArchive) -> None:
        for stripe in self.stripes:
            name = session_name(archive.day, stripe)
            self._by_name[name.encode("ascii")] = archive.open_session(stripe, name)
        self._open.append(archive)

    def _ends(self) -> list[SessionEnd]:
        """The sessions of the day before are complete."""
        ends = [SessionEnd(*running) for running in self.running]
        self._leave()
        return ends

    def _leave(self) -> None:
        self._sessions, self._day = {}, None

    def _folders(self) -> list[Path]:
        if not self._root.exists():
            return []
        return [folder for folder in self._root.iterdir() if folder.is_dir() and _is_day(folder.name)]

    def _forget_before(self, day: date) -> None:
        for archive in [archive for archive in self._open if archive.day < day]:
            self._open.remove(archive)
            for session in archive.sessions.values():
                self._by_name.pop(session.session.encode("ascii"), None)
            archive.close()
        for folder in self._folders():
            if date.fromisoformat(folder.name) < day:
                rmtree(folder)

    def close(self) -> None:
        """Give the files back."""
        for archive in self._open:
            archive.close()
        self._open.clear()


def _together(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for own in counts:
        for reason, count in own.items():
            total[reason] = total.get(reason, 0) + count
    return total


def _is_day(name: str) -> bool:
    try:
        date.fromisoformat(name)
    except ValueError:
        return False
    return True
