"""Feeds cut into messages to publish: always at the same places, so that a repeat is recognised by its keys.

Where a message ends depends on the events alone: it is full, or an event is more than 20 ms of market time after its
first. How the files were cut into blocks, and how fast they are replayed, makes no difference. A change of several
events (LINKED) stays in one message where that is possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isocast.feeds.merge import merge_feeds
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.feed_files import FeedFile
from isocast.terms.errors import FeedError
from isocast.terms.market import EventFlag
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["GATHER_NS", "FloorFeed", "ReplayMessage", "cut_messages", "digest_of_file"]

GATHER_NS = 20_000_000
"""Market time that one message may span."""
_DIGEST_BYTES = 16
_CHUNK_BYTES = 1 << 20
_LINKED = int(EventFlag.LINKED)


class ReplayMessage(NamedTuple):
    """Events that are published together, and the time of the last of them."""

    due: int
    floor: int
    """Place of its floor among those of the replay."""
    place: int
    """Place among the messages of its floor, from 0."""
    key: bytes
    events: EventArray


def digest_of_file(path: Path) -> bytes:
    """What a file is, by its bytes."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as reason:
        raise FeedError(str(path), f"cannot be read: {reason.strerror}") from None
    return digest.digest()


@dataclass(frozen=True, slots=True)
class FloorFeed:
    """What one floor publishes: its files, merged in the order of time."""

    source: str
    files: tuple[FeedFile, ...]
    run: str = ""
    """Another name makes the same files another replay."""

    def identity(self) -> bytes:
        """Of this replay: the contents of the files in their order, which floor of each is wanted, and the run."""
        digest = blake2b(self.run.encode(), digest_size=_DIGEST_BYTES)
        for feed in self.files:
            digest.update(digest_of_file(feed.path))
            digest.update(str(feed.options.floor or "").encode().ljust(4))
        return digest.digest()

    def blocks(self) -> Iterator[EventArray]:
        """All its events."""
        streams = [feed.blocks() for feed in self.files]
        return streams[0] if len(streams) == 1 else merge_feeds(streams)

    def messages(
        self, floor: int, per_message: int, identity: bytes, digest: TapeDigest | None = None
    ) -> Iterator[ReplayMessage]:
        """The events as messages with their keys; `digest` is fed with all that were read."""
        position = 0
        blocks = self.blocks() if digest is None else _digested(self.blocks(), digest)
        for place, (due, events) in enumerate(cut_messages(blocks, per_message)):
            content = blake2b(events.tobytes(), digest_size=_DIGEST_BYTES).digest()
            yield ReplayMessage(due, floor, place, identity + position.to_bytes(8) + content, events)
            position += len(events)


def _digested(blocks: Iterable[EventArray], digest: TapeDigest) -> Iterator[EventArray]:
    for block in blocks:
        digest.update(block)
        yield block


def cut_messages(blocks: Iterable[EventArray], per_message: int) -> Iterator[tuple[int, EventArray]]:
    """(time of the last event, events) of each message; a clock that steps back counts as standing still."""
    events: EventArray = np.empty(0, EVENT_DTYPE)
    times: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
    latest = np.uint64(0)
    for block in blocks:
        if not len(block):
            continue
        shown = np.maximum.accumulate(np.maximum(block["time"], latest))
        latest = shown[-1]
        events, times = np.concatenate([events, block]), np.concatenate([times, shown])
        ends = _ends(events, times, per_message, final=False)
        yield from _cut(events, times, ends)
        done = ends[-1] if ends else 0
        events, times = events[done:], times[done:]
    yield from _cut(events, times, _ends(events, times, per_message, final=True))


def _ends(events: EventArray, times: npt.NDArray[np.uint64], per_message: int, *, final: bool) -> list[int]:
    """Where messages end, as far as what is here decides it."""
    linked = (events["flags"] & _LINKED) > 0
    horizon = np.searchsorted(times, times + np.uint64(GATHER_NS), side="right")
    ends: list[int] = []
    at, total = 0, len(events)
    while at < total:
        stop = min(at + per_message, int(horizon[at]))
        if stop == total:
            if final:
                ends.append(total)
                break
            if stop - at < per_message:
                break
        inner = stop
        while inner > at and linked[inner - 1]:
            inner -= 1
        at = inner if inner > at else stop
        ends.append(at)
    return ends


def _cut(events: EventArray, times: npt.NDArray[np.uint64], ends: Sequence[int]) -> Iterator[tuple[int, EventArray]]:
    at = 0
    for stop in ends:
        yield int(times[stop - 1]), events[at:stop]
        at = stop
