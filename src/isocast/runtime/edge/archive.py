"""What a gateway has sent, on disk: for requests, and so that it goes on with the same numbers after a restart.

A day has a folder. In it, of the sequence: `core.events`, the records as they were received, and `core.index`; of each
session: `SESSION.itch`, an ITCH 5.0 file like any other, and `SESSION.index`. Sessions are written before the core's
index, so that after a crash the core's last record says what counts; what sessions have beyond it is cut off.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isocast.feeds.mold import message_places
from isocast.terms.errors import FeedError
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.limits import EVENT_BYTES

__all__ = ["CoreMessage", "DayArchive", "SessionArchive"]

_CORE = np.dtype([("sequence", "<u8"), ("release", "<i8"), ("at", "<u8"), ("count", "<u4"), ("stripe", "<u4")])
_BLOCK = np.dtype(
    [("sequence", "<u8"), ("release", "<i8"), ("first", "<u8"), ("at", "<u8"), ("count", "<u4"), ("size", "<u4")]
)


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

    def close(self) -> None:
        """Give the files back."""
        for session in self.sessions.values():
            session.close()
        self._events.close()
        self._index.close()
