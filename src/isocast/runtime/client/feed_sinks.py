"""Events to files: Parquet, ITCH 5.0, captures of MoldUDP64, and our own records.

ITCH files and captures name the floor of each stock and the flags of each event, as `feeds.itch_layout` explains. A
file gets its name once it is whole; until then it is called `….partial`.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol, Self, cast

import numpy as np
import numpy.typing as npt

from isocast.feeds.captures import write_capture
from isocast.feeds.days import DayClock, WallClock, day_at, day_clock
from isocast.feeds.itch_writer import ItchWriter
from isocast.feeds.mold import HEADER_BYTES, end_of_session, packetise
from isocast.feeds.outcomes import FeedLog
from isocast.runtime.client.arrow import to_arrow
from isocast.runtime.client.feed_files import import_parquet
from isocast.terms.errors import ConfigurationError, FeedError
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["FeedSink", "OutFormat", "ParquetOut", "open_sink", "out_format"]

_DIGEST_KEY = b"isocast.digest"
_ITCH_SUFFIXES = (".itch", ".itch50")
_GROUP, _PORT, _SESSION = "239.255.80.0", 26_477, "ISOCAST001"
_CAPTURE_END_NS = (1 << 32) * 10**9
"""A capture has seconds of 32 bits."""
_CLOCK_AT = HEADER_BYTES + 2 + 5

OutFormat = str


class FeedSink(Protocol):
    """Where events go."""

    def write(self, events: EventArray) -> None:
        """Some events more."""

    def finish(self, digest: str) -> None:
        """Everything was written; what it was."""


def out_format(path: Path) -> OutFormat:
    """By the name: parquet, itch, pcap or events; ConfigurationError for any other."""
    name = path.name.lower()
    plain = name.removesuffix(".gz")
    if name.endswith(".parquet"):
        return "parquet"
    if plain.endswith(_ITCH_SUFFIXES) or "itch50" in plain:
        return "itch"
    if name.endswith(".pcap"):
        return "pcap"
    if plain.endswith(".events"):
        return "events"
    rule = "its name must end in .parquet, .itch, .itch.gz, .pcap or .events"
    raise ConfigurationError("command line", str(path), rule)


@contextmanager
def open_sink(path: Path, log: FeedLog, zone: str) -> Iterator[FeedSink]:
    """A file that appears when everything was written, and not at all if something goes wrong."""
    form = out_format(path)
    partial = path.with_name(path.name + ".partial")
    try:
        if form == "parquet":
            with ParquetOut(partial) as sink:
                yield sink
        else:
            with partial.open("wb") as plain, _maybe_gzip(path, plain) as file:
                yield _sink(form, file, log, zone)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _maybe_gzip(path: Path, plain: IO[bytes]) -> Iterator[IO[bytes]]:
    if path.name.lower().endswith(".gz"):
        # Without a name and a time inside, the same events give the same bytes.
        with gzip.GzipFile("", "wb", 6, plain, mtime=0) as file:
            yield cast("IO[bytes]", file)
    else:
        yield plain


def _sink(form: OutFormat, file: IO[bytes], log: FeedLog, zone: str) -> FeedSink:
    if form == "events":
        return _Records(file)
    return _Itch(file, log, zone) if form == "itch" else _Packets(file, log, zone)


class _Records:
    """The events as they are."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, events: EventArray) -> None:
        self._file.write(events.tobytes())

    def finish(self, digest: str) -> None:
        """Nothing more: the records are the digest's own bytes."""


class _Itch:
    """ITCH messages, each with its length before it."""

    def __init__(self, file: IO[bytes], log: FeedLog, zone: str) -> None:
        self._file = file
        self._log = log
        self._zone = zone
        self._writer: ItchWriter | None = None
        self.day = day_clock(0)

    def write(self, events: EventArray) -> None:
        messages = self.messages(events)
        self._file.write(messages)

    def messages(self, events: EventArray) -> bytes:
        """The bytes of these events."""
        if self._writer is None:
            self.day = DayClock.at(day_at(int(events["time"][0]), self._zone), self._zone)
            self._writer = ItchWriter(self.day, self._log, name_floors=True, tell_flags=True)
        return self._writer.write(events)

    def finish(self, digest: str) -> None:
        """Nothing more."""


class _Packets(_Itch):
    """The same messages in MoldUDP64 packets, captured at the time of their first message."""

    def __init__(self, file: IO[bytes], log: FeedLog, zone: str) -> None:
        super().__init__(file, log, zone)
        self._sequence = 1
        self._latest = 0
        self._wall: WallClock | None = None
        self._begun = False

    def write(self, events: EventArray) -> None:
        packets = list(packetise(_SESSION, self._sequence, self.messages(events)))
        self._sequence += sum(int.from_bytes(packet[18:20]) for packet in packets)
        clocks = [int.from_bytes(packet[_CLOCK_AT : _CLOCK_AT + 6]) for packet in packets]
        times = self._times(np.array(clocks, np.int64))
        self._put(list(zip(times, packets, strict=True)))
        self._latest = times[-1] if times else self._latest

    def _times(self, clocks: npt.NDArray[np.int64]) -> list[int]:
        """Instants of ITCH's times since midnight."""
        if self._wall is None:
            self._wall = WallClock(self.day.zone, FeedLog("capture"))
        instants, _ = self._wall.instants(clocks + self.day.wall)
        if len(instants) and int(instants.max()) >= _CAPTURE_END_NS:
            rule = "has times after 2106, which a capture cannot hold: write .itch or .parquet instead"
            raise FeedError(self._log.file, rule)
        return [int(instant) for instant in instants]

    def finish(self, digest: str) -> None:  # noqa: ARG002 - a packet has no place for it
        """The end of the session."""
        self._put([(self._latest, end_of_session(_SESSION, self._sequence))])

    def _put(self, packets: list[tuple[int, bytes]]) -> None:
        pieces = write_capture(packets, _GROUP, _PORT)
        if self._begun:
            next(pieces)
        self._begun = True
        self._file.write(b"".join(pieces))


class ParquetOut:
    """Writes events as a Parquet file with the columns of `wire.events.EVENT_DTYPE`."""

    def __init__(self, path: Path) -> None:
        """Nothing is on disk before the first events."""
        self._path = path
        self._writer: Any = None

    def __enter__(self) -> Self:
        parquet = import_parquet()
        schema = to_arrow(np.zeros(0, EVENT_DTYPE)).schema
        self._writer = parquet.ParquetWriter(self._path, schema, compression="zstd")
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, events: EventArray) -> None:
        """Some events more."""
        self._writer.write_batch(to_arrow(events))

    def finish(self, digest: str) -> None:
        """Say in the file's metadata what its events' digest is."""
        self._writer.add_key_value_metadata({_DIGEST_KEY: digest})
