"""Feeds cut into messages to publish: always at the same places, so that a repeat is recognised by its keys.

Where a message ends depends on the events and on one number: it is full, or an event is more than so much market time
after its first. How the files were cut into blocks makes no difference. A change of several events (LINKED) stays in
one message where that is possible. In a market of several stripes, each stripe's events are cut on their own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from os import SEEK_END
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.feeds.merge import merge_feeds
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.feed_files import FeedFile
from isocast.striping.routing import CoreRoutes
from isocast.terms.errors import FeedError
from isocast.terms.market import EventFlag
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.limits import EVENT_BYTES

__all__ = [
    "FULL",
    "GATHER_NS",
    "FloorFeed",
    "MessageCutter",
    "ReplayMessage",
    "cut_messages",
    "gathering",
    "sample_of_file",
]

Times: TypeAlias = npt.NDArray[np.uint64]

GATHER_NS = 20_000_000
"""Market time that one message may span in a replay at its own speed."""
FULL: int = 1 << 62
"""Market time without end: every message is full."""
_DIGEST_BYTES = 16
_SAMPLE_BYTES = 1 << 16
_SAMPLES = 64
_TIME_MAX = (1 << 64) - 1
_LINKED = int(EventFlag.LINKED)


class ReplayMessage(NamedTuple):
    """Events that are published together, and the time of the last of them."""

    due: int
    floor: int
    """Place of its floor among those of the replay."""
    place: int
    """Place among the messages of its floor in its stripe, from 0."""
    key: bytes
    payload: bytes
    """The records of its events."""
    stripe: int = 0
    """Of the core, in which they are published."""

    @property
    def events(self) -> int:
        """How many they are."""
        return len(self.payload) // EVENT_BYTES


def gathering(speed: float | None) -> int:
    """Market time that a message may span: 20 ms of the replay's own time, and without end if it goes at full speed."""
    return FULL if speed is None else round(GATHER_NS * max(speed, 1.0))


def sample_of_file(path: Path) -> bytes:
    """Which file this is, by its size and samples from its beginning to its end: no need to read gigabytes first.

    It finds the note of how far a replay is. Whether that is really of the same file, the events say that were read.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES)
    try:
        with path.open("rb") as file:
            size = file.seek(0, SEEK_END)
            digest.update(size.to_bytes(8))
            last = max(size - _SAMPLE_BYTES, 0)
            for at in sorted({last * place // (_SAMPLES - 1) for place in range(_SAMPLES)}):
                file.seek(at)
                digest.update(file.read(_SAMPLE_BYTES))
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
        """Of this replay: the files in their order, which floor of each is wanted, and the run."""
        digest = blake2b(self.run.encode(), digest_size=_DIGEST_BYTES)
        for feed in self.files:
            digest.update(sample_of_file(feed.path))
            digest.update(str(feed.options.floor or "").encode().ljust(4))
        return digest.digest()

    def blocks(self) -> Iterator[EventArray]:
        """All its events."""
        streams = [feed.blocks() for feed in self.files]
        return streams[0] if len(streams) == 1 else merge_feeds(streams)

    def messages(
        self,
        floor: int,
        per_message: int,
        identity: bytes,
        digests: Mapping[int, TapeDigest] | None = None,
        routes: CoreRoutes | None = None,
        gather_ns: Mapping[int, int] | None = None,
    ) -> Generator[ReplayMessage]:
        """The events as messages with their keys, each of one stripe; `digests` are fed with all that were read.

        `gather_ns` says for each stripe how much market time a message may span.
        """
        stripes = list(digests) if digests is not None else [0]
        spans = gather_ns or {}
        lanes = {stripe: _Lane(MessageCutter(per_message, spans.get(stripe, GATHER_NS))) for stripe in stripes}
        for block, times in _with_times(self.blocks()):
            ready: list[ReplayMessage] = []
            for stripe, (events, own) in self._parts(block, times, stripes, routes).items():
                lanes[stripe].cutter.put(events, own)
                if digests is not None:
                    digests[stripe].update(events)
            until = int(times[-1]) if len(times) else None
            for stripe, lane in lanes.items():
                ready += [lane.message(floor, stripe, identity, *cut) for cut in lane.cutter.cut(until)]
            # Lanes are cut one after the other: what they cut from one block is put into the order of time again.
            yield from sorted(ready, key=lambda message: message.due) if len(lanes) > 1 else ready

    def _parts(
        self, block: EventArray, times: Times, stripes: Sequence[int], routes: CoreRoutes | None
    ) -> dict[int, tuple[EventArray, Times]]:
        """The events of each stripe, with their times; FeedError for a stripe in which the source is not."""
        if routes is None or len(routes.stripes) == 1:
            return {stripes[0]: (block, times)}
        masks = routes.masks(block, stripes)
        for stripe, mask in masks.items():
            if stripe not in stripes:
                symbol = block["symbol"][mask][0].decode("ascii", "replace")
                raise FeedError(self.source, f"{symbol} travels in stripe {stripe}, where this source does not publish")
        return {stripe: (routes.part(block, stripe, mask, stripes), times[mask]) for stripe, mask in masks.items()}


@dataclass(slots=True)
class _Lane:
    """One floor's messages in one stripe."""

    cutter: MessageCutter
    place: int = 0
    position: int = 0

    def message(self, floor: int, stripe: int, identity: bytes, due: int, payload: bytes) -> ReplayMessage:
        content = blake2b(payload, digest_size=_DIGEST_BYTES).digest()
        key = identity + self.position.to_bytes(8) + content
        made = ReplayMessage(due, floor, self.place, key, payload, stripe)
        self.place += 1
        self.position += made.events
        return made


def _with_times(blocks: Iterable[EventArray]) -> Iterator[tuple[EventArray, Times]]:
    """Each block with the times of its events, a clock that steps back standing still; at the end of all, nothing."""
    latest = np.uint64(0)
    for block in blocks:
        if len(block):
            times = np.maximum.accumulate(np.maximum(block["time"], latest))
            latest = times[-1]
            yield block, times
    yield np.empty(0, EVENT_DTYPE), np.empty(0, np.uint64)


def cut_messages(
    blocks: Iterable[EventArray], per_message: int, gather_ns: int = GATHER_NS
) -> Iterator[tuple[int, EventArray]]:
    """(time of the last event, events) of each message; a clock that steps back counts as standing still."""
    cutter = MessageCutter(per_message, gather_ns)
    for block, times in _with_times(blocks):
        cutter.put(block, times)
        for due, payload in cutter.cut(int(times[-1]) if len(times) else None):
            yield due, np.frombuffer(payload, EVENT_DTYPE)


class MessageCutter:
    """Cuts a row of events where the events alone say, however it comes in blocks."""

    def __init__(self, per_message: int, gather_ns: int = GATHER_NS) -> None:
        """At most so many events, and so much market time, in one message."""
        self._per_message = per_message
        self._gather_ns = gather_ns
        self._events: EventArray = np.empty(0, EVENT_DTYPE)
        self._times: Times = np.empty(0, np.uint64)

    def put(self, events: EventArray, times: Times) -> None:
        """Some events more; no time is before the one before."""
        self._events, self._times = np.concatenate([self._events, events]), np.concatenate([self._times, times])

    def cut(self, until: int | None) -> list[tuple[int, bytes]]:
        """(time of the last event, records) of the messages that are certain.

        All that follows is from `until` or later; None: nothing follows.
        """
        ends = _ends(self._events, self._times, self._per_message, until, self._gather_ns)
        if not ends:
            return []
        done = ends[-1]
        whole = self._events[:done].tobytes()
        dues = self._times[np.array(ends) - 1].tolist()
        self._events, self._times = self._events[done:], self._times[done:]
        starts = [0, *ends[:-1]]
        return [
            (due, whole[start * EVENT_BYTES : stop * EVENT_BYTES])
            for due, start, stop in zip(dues, starts, ends, strict=True)
        ]


def _ends(events: EventArray, times: Times, per_message: int, until: int | None, gather_ns: int) -> list[int]:
    """Where messages end, as far as what is here decides it; without `until` nothing follows."""
    # As bytes: one look at an element of an array costs more than all the rest of a turn of the loop.
    linked = ((events["flags"] & _LINKED) > 0).tobytes()
    at, total = 0, len(events)
    horizon: npt.NDArray[np.int64] | None = None
    if gather_ns < FULL:
        # A time of the last moments that 64 bits count must not wrap to the first ones.
        last = np.minimum(times, np.uint64(_TIME_MAX - gather_ns)) + np.uint64(gather_ns)
        horizon = np.searchsorted(times, last, side="right")
    ends: list[int] = []
    while at < total:
        stop = min(at + per_message, total if horizon is None else int(horizon[at]))
        if stop == total:
            if until is None:
                ends.append(total)
                break
            # What follows may still belong to it, unless it is full or the time for it is over.
            if stop - at < per_message and (horizon is None or until <= int(times[at]) + gather_ns):
                break
        inner = stop
        while inner > at and linked[inner - 1]:
            inner -= 1
        at = inner if inner > at else stop
        ends.append(at)
    return ends
