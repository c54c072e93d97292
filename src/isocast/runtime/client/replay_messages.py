"""Feeds cut into messages to publish: always at the same places, so that a repeat is recognised by its keys.

In a market of several stripes, each stripe's events are cut on their own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from os import SEEK_END
from pathlib import Path
from typing import NamedTuple

from isocast.feeds.merge import merge_feeds
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.feed_files import FeedFile
from isocast.runtime.client.message_cutter import FULL, GATHER_NS, MessageCutter, Times, with_times
from isocast.striping.routing import CoreRoutes
from isocast.terms.errors import FeedError, LocalProtocolError
from isocast.wire.events import EventArray
from isocast.wire.limits import EVENT_BYTES

__all__ = [
    "FloorFeed",
    "ReplayMessage",
    "gathering",
    "sample_of_file",
]

_DIGEST_BYTES = 16
_SAMPLE_BYTES = 1 << 16
_SAMPLES = 64


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
        for block, times in with_times(self.blocks()):
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
        """The events of each stripe, with their times; FeedError for a symbol of a stripe that the source is not in."""
        if routes is None or len(routes.stripes) == 1:
            return {stripes[0]: (block, times)}
        try:
            masks = routes.masks(block, stripes)
        except LocalProtocolError as reason:
            raise FeedError(self.source, str(reason)) from None
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
