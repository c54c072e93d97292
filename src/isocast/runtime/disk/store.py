"""One node's directory of state that must survive: a lock, a marker, checksummed frames in segments, and a mark.

Everything that is written is acknowledged by returning. Under the durability `process` the kernel has it then, so
that it survives kill -9; under `power` the disk has it. A write that did not come to its end is cut off when the
store is opened again: nobody was told of it. A store that ends before its high-water mark has lost what somebody was
told of (`loss`): its node must not vote, or number messages, as if nothing had happened. Bytes that are there and
wrong are an error that stops the node, since a site that has forgotten a promise must not vote under its old id.

Each segment begins with a snapshot of the state, so that older ones can go. A segment that goes young was never
written to the disk at all: the kernel drops the pages of a removed file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import NoReturn
from zlib import crc32

from isocast.runtime.disk.disk_watch import OpenFile, first_trouble
from isocast.runtime.disk.store_marker import (
    LOCK_NAME,
    MARKER_NAME,
    NO_BOOT,
    Marker,
    Past,
    StoreCounters,
    StoreIdentity,
    StoreRole,
    disk_error,
    locked,
    read_marker,
    sync_directory,
)
from isocast.runtime.disk.store_segments import (
    FILE_BYTES,
    Frame,
    Location,
    StoredFrame,
    StoreSegment,
    TornSegment,
    Verify,
    WrongBytesError,
    frame_buffers,
    write_all,
)
from isocast.runtime.market.model import Durability, StoreSettings
from isocast.terms.errors import LocalProtocolError, StoreError, StoreGone

__all__ = [
    "HIGH_WATER_NAME",
    "HighWater",
    "Store",
    "read_high_water",
]


# How much of a store was acknowledged: a mark beside the segments, moved after each write, before its caller
# goes on.
#
# A process that is killed leaves its last write whole, in part or not at all, and nobody was told of it. Bytes below
# the mark are another matter: somebody was told of them, so a store that ends before its mark has lost what was
# accepted, promised or numbered.
#
# high-water:   slot at byte 0, slot at byte 512, written in turn, so that one of them is always whole
# slot:         "ISOW" 4 | zero 4 | segment 8 | bytes 8 | crc 4, little-endian
#
# The mark is handed to the kernel, not to the disk: after a power failure it may be too low, and never too high,
# because what it speaks of was on the disk first.


HIGH_WATER_NAME = "high-water"
_MAGIC = b"ISOW"
_SLOT = Struct("<4s4xQQ")
_CRC = Struct("<I")


_PLACES = (0, 512)
"""Two sectors: a disk writes each of them whole or not at all."""


class HighWater:
    """The mark of a store that is open."""

    def __init__(self, directory: Path, end: Location) -> None:
        """Write a new mark, or take the old one over; OSError if the disk does not let us."""
        self.path = directory / HIGH_WATER_NAME
        existed = self.path.exists()
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._turn = 0
        self.move(end)
        self.move(end)
        if not existed:
            os.fsync(self._fd)

    def fileno(self) -> int:
        """The descriptor of the file, for those who watch it."""
        return self._fd

    def move(self, end: Location) -> None:
        """Everything before this place has been acknowledged, as soon as this returns."""
        fields = _SLOT.pack(_MAGIC, end.segment, end.offset)
        os.pwrite(self._fd, fields + _CRC.pack(crc32(fields)), _PLACES[self._turn])
        self._turn ^= 1

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_high_water(directory: Path) -> Location | None:
    """Up to where the store was acknowledged; None where nobody can tell any more."""
    try:
        content = (directory / HIGH_WATER_NAME).read_bytes()
    except OSError:
        return None
    found: list[Location] = []
    for place in _PLACES:
        slot = content[place : place + _SLOT.size + _CRC.size]
        if len(slot) < _SLOT.size + _CRC.size:
            continue
        magic, segment, offset = _SLOT.unpack_from(slot)
        if magic == _MAGIC and _CRC.unpack_from(slot, _SLOT.size)[0] == crc32(slot[: _SLOT.size]):
            found.append(Location(segment, offset))
    return max(found, default=None)


_SEGMENT_NAME = "segment-{}.log"
_SEGMENT_RECORDS = 1 << 16
"""Records of one segment: an idle market's empty tokens must not make a restart read for minutes."""


class Store:
    """The directory of one node; the stores of sites, sources and servers know what is in it."""

    def __init__(
        self, directory: Path, role: StoreRole, identity: StoreIdentity, settings: StoreSettings, boot: str
    ) -> None:
        """Take the directory: nobody else may have it open. Nothing in it is changed yet."""
        self.directory = directory
        self.role = role
        self.identity = identity
        self.settings = settings
        self.counters = StoreCounters()
        self.snapshot: Callable[[], Frame] | None = None
        """What a new segment begins with."""
        self._boot = boot
        self._segments: list[StoreSegment] = []
        self._cut_at: int | None = None
        self._fd = -1
        self._size = 0
        self._records = 0
        self._stopped = ""
        self._sync = settings.durability is Durability.POWER
        self._high: HighWater | None = None
        self._acknowledged: Location | None = None
        self._lock = locked(directory)
        try:
            self.marker = read_marker(directory, role)
            self._paths = self._find_segments()
            self.loss = self._find_loss()
            """What is missing of what was acknowledged; empty if nothing is."""
            if self.marker is not None and self.marker.closed and not self.loss:
                self._check_end(self._paths, self.marker)
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def past(self) -> Past:
        """What there was before."""
        if self.marker is None:
            return Past.NONE
        past = self.marker.past(self._boot)
        return Past.SHORT if past is Past.WHOLE and self.loss else past

    @property
    def segments(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    @property
    def newest(self) -> int:
        """The number of the segment that grows."""
        return self._segments[-1].number

    @property
    def oldest(self) -> int:
        """The number of the first segment that is left."""
        return self._segments[0].number

    # Opening ------------------------------------------------------------------------------------

    def begin(self, snapshot: Callable[[], Frame], *, incarnation: int = 0) -> None:
        """Start with a first segment; older segments in the directory no longer count."""
        self.mark(incarnation=incarnation, begun=False, forgot=False, why="")
        self._set_aside()
        self.snapshot = snapshot
        self._begin_segment(1)
        self.mark(begun=True, high_water=True)

    def replay(self, verify: Verify, *, lenient: bool = False) -> Iterator[tuple[int, tuple[StoredFrame, ...]]]:
        """Every whole record with its segment's number, oldest first. Nothing is changed before `resume`.

        `verify` raises ValueError for loose bytes that do not fit the checked ones. `lenient` ends at the first
        fault, whatever it is: for a store whose end is in doubt anyhow.
        """
        if not self._paths and not lenient:
            self._fail(self.directory, "the segments are missing")
        for path in self._paths:
            records = 0
            fault: TornSegment | None = None
            for found in self._records_of(path, verify):
                if isinstance(found, TornSegment):
                    fault = found
                    break
                records += 1
                yield self._segments[-1].number, found
            if fault is None and records:
                self._records = records
                continue
            fault = fault or TornSegment(0, 0, "the segment has no snapshot", torn=True, acknowledged=False)
            if not lenient and not self._excused(path, fault, records):
                self._fail(path, fault.rule, fault.offset)
            if records:
                self._records = records
                self._cut_at = fault.whole
            elif self._segments and self._segments[-1].path == path:
                self._segments.pop()
            return

    def _records_of(self, path: Path, verify: Verify) -> Iterator[tuple[StoredFrame, ...] | TornSegment]:
        try:
            segment = StoreSegment.find(path, self.role.code, self.identity.node, _number_of(path))
        except WrongBytesError as reason:
            # No power failure leaves half a header behind: zeros at most, where it was not written yet.
            with path.open("rb") as file:
                written = any(file.read(FILE_BYTES))
            yield TornSegment(0, 0, str(reason), torn=False, acknowledged=written)
            return
        if segment is None:
            yield TornSegment(0, 0, "the file ends within its header", torn=True, acknowledged=False)
            return
        self._segments.append(segment)
        if path == self._paths[-1] and not self._kernel_kept:
            yield from segment.verified(verify)
        else:
            yield from segment.records()

    @property
    def _kernel_kept(self) -> bool:
        """Whether the machine has run ever since: then the kernel has lost nothing that a process handed to it."""
        return self.marker is not None and self.marker.boot == self._boot != NO_BOOT

    def _excused(self, path: Path, fault: TornSegment, records: int) -> bool:
        """Whether a fault is only the end of a write that nobody was told of."""
        marker = self.marker
        if marker is None or marker.closed or path != self._paths[-1]:
            return False
        if not records and path == self._paths[0]:
            # The first segment was complete before the store was used.
            return False
        mark = self._acknowledged
        if mark is not None and mark.segment == _number_of(path) and fault.whole < mark.offset:
            return False
        if self._kernel_kept:
            # A killed process leaves too few bytes, never wrong ones.
            return fault.torn
        # After a power failure the last write may be there in part, in whatever order its blocks were written.
        return not fault.acknowledged

    def resume(self, snapshot: Callable[[], Frame]) -> None:
        """Go on behind the last whole record that `replay` found."""
        self.snapshot = snapshot
        try:
            for path in self._paths[len(self._segments) :]:
                self.counters.torn_bytes += path.stat().st_size
                path.unlink()
            newest = self._segments[-1].path
            self._fd = os.open(newest, os.O_RDWR | os.O_APPEND)
            self._size = os.fstat(self._fd).st_size
            if self._cut_at is not None:
                self.counters.torn_bytes += self._size - self._cut_at
                os.ftruncate(self._fd, self._cut_at)
                self._size = self._cut_at
            if self._sync:
                self._sync_all()
            self._high = HighWater(self.directory, Location(self.newest, self._size))
        except OSError as reason:
            raise disk_error(self.directory, "cannot be continued", reason) from reason
        self.mark(high_water=True)

    def mark(self, **changes: object) -> None:
        """Write the marker anew: open, on this boot, under this durability, and with these changes."""
        marker = self.marker or Marker(
            self.role,
            self.identity.market,
            self.identity.name,
            self.identity.node,
            datetime.now(UTC).isoformat(timespec="seconds"),
            self._boot,
            self.settings.durability,
        )
        opened = {"boot": self._boot, "durability": self.settings.durability, "end_segment": 0, "end_bytes": 0}
        self.marker = replace(marker, **{**opened, **changes})  # type: ignore[arg-type]
        self.marker.write(self.directory)

    def _set_aside(self) -> None:
        """Move segments into a directory of their own, for people to look at."""
        moved = [*self._paths, *self.directory.glob(HIGH_WATER_NAME)]
        if not moved:
            return
        number = 1
        while (place := self.directory / f"set-aside-{number}").exists():
            number += 1
        try:
            place.mkdir(mode=0o700)
            for path in moved:
                path.rename(place / path.name)
        except OSError as reason:
            raise disk_error(place, "cannot take what is set aside", reason) from reason
        self._paths = []
        self._segments = []
        self._cut_at = None

    def _find_segments(self) -> list[Path]:
        """The files of the segments in order; their numbers follow one another, and agree with the marker."""
        paths = sorted(self.directory.glob(_SEGMENT_NAME.format("[0-9]" * 8)))
        marker = self.marker
        if marker is None:
            if paths:
                self._fail(paths[0], f"there are segments but no {MARKER_NAME}")
            return paths
        if (marker.role, marker.identity) != (self.role, self.identity):
            rule = (
                f"belongs to the {marker.role} {marker.name}, node {marker.node}, of the market {marker.market}; "
                f"the {self.role} {self.identity.name}, node {self.identity.node}, of the market "
                f"{self.identity.market} needs a directory of its own"
            )
            raise StoreError(str(self.directory / MARKER_NAME), rule)
        for before, path in pairwise(paths):
            if _number_of(path) != _number_of(before) + 1:
                self._fail(path, f"the segment before it is missing, there is {before.name}")
        return paths

    def _find_loss(self) -> str:
        """How the store differs from what it had acknowledged, in words; empty if it does not."""
        marker = self.marker
        if marker is None or not marker.begun:
            return ""
        if marker.forgot and marker.why:
            return marker.why
        if not marker.high_water:
            return ""
        self._acknowledged = mark = read_high_water(self.directory)
        if mark is None:
            return f"{self.directory / HIGH_WATER_NAME}, which says how much was acknowledged, is missing or damaged"
        end = Location(0, 0)
        if self._paths:
            end = Location(_number_of(self._paths[-1]), self._paths[-1].stat().st_size)
        if end >= mark:
            return ""
        return (
            f"{self.directory} ends at byte {end.offset} of segment {end.segment}, and everything up to byte"
            f" {mark.offset} of segment {mark.segment} had been acknowledged"
        )

    def _check_end(self, paths: list[Path], marker: Marker) -> None:
        """A store that was closed in order ends where it ended then."""
        newest = self.directory / _SEGMENT_NAME.format(f"{marker.end_segment:08}")
        if paths and paths[-1] == newest and newest.stat().st_size == marker.end_bytes:
            return
        self._fail(newest, f"the store was closed when this segment was its last and had {marker.end_bytes} bytes")

    # Writing ------------------------------------------------------------------------------------

    def write(self, frames: Sequence[Frame]) -> list[Location]:
        """Write one group: when this returns, it is as durable as the settings say, all of it.

        Raises StoreFull when the disk takes no more, after cutting off what it had taken. Nothing can be written then.
        """
        if self._stopped:
            raise StoreError(str(self.directory), self._stopped)
        if not frames:
            return []
        if self._size >= self.settings.segment_bytes or self._records >= _SEGMENT_RECORDS:
            self._begin_segment(self.newest + 1)
        segment, start = self._segments[-1], self._size
        buffers, offsets, length = frame_buffers(frames, segment.salt)
        try:
            write_all(self._fd, buffers)
            if self._sync:
                os.fdatasync(self._fd)
                self.counters.syncs += 1
            self._acknowledge(segment.number, start + length)
        except BaseException as reason:
            self._stop(segment.path, self._fd, start, reason)
            raise
        self._size = start + length
        self._records += len(frames)
        self.counters.records += len(frames)
        self.counters.bytes += length
        return [Location(segment.number, start + offset) for offset in offsets]

    def _acknowledge(self, segment: int, size: int) -> None:
        """Nothing up to here may be missing any more."""
        end = Location(segment, size)
        if self._high is None:
            self._high = HighWater(self.directory, end)
        else:
            self._high.move(end)

    def _begin_segment(self, number: int) -> None:
        if self.snapshot is None:
            raise LocalProtocolError("a store that was not opened is written to")
        path = self.directory / _SEGMENT_NAME.format(f"{number:08}")
        salt = int.from_bytes(os.urandom(4))
        segment = StoreSegment(path, self.role.code, self.identity.node, number, salt)
        buffers, _, length = frame_buffers([self.snapshot()], salt)
        fd = -1
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            write_all(fd, [segment.file_header(), *buffers])
            if self._sync:
                os.fdatasync(fd)
                sync_directory(self.directory)
            self._acknowledge(number, FILE_BYTES + length)
        except BaseException as reason:
            if fd >= 0:
                os.close(fd)
                path.unlink()
            self._stop(path, -1, 0, reason)
            raise
        self._close_newest()
        self._fd, self._size, self._records = fd, FILE_BYTES + length, 1
        self._segments.append(segment)
        self.counters.segments_begun += 1
        self.counters.bytes += self._size

    def _stop(self, path: Path, fd: int, whole: int, reason: BaseException) -> None:
        """Cut off the unfinished record, and take no more records; its writer gets the error."""
        self._stopped = f"the store stopped at a write that failed ({reason})"
        if fd >= 0:
            with suppress(OSError):
                os.ftruncate(fd, whole)
        if isinstance(reason, OSError):
            raise disk_error(path, "cannot be written", reason) from reason

    def remove_before(self, number: int) -> None:
        """Let older segments go; never the one that grows."""
        while self._segments[0].number < min(number, self.newest):
            path = self._segments.pop(0).path
            try:
                path.unlink(missing_ok=True)
            except OSError as reason:
                raise disk_error(path, "cannot be removed", reason) from reason
            self.counters.segments_removed += 1

    # Reading ------------------------------------------------------------------------------------

    def read(self, location: Location) -> tuple[int, bytes, bytes]:
        """Kind, checked and loose bytes of one frame."""
        segment = self._segments[location.segment - self.oldest]
        try:
            return segment.read(location.offset)
        except WrongBytesError as reason:
            self._fail(segment.path, str(reason), location.offset)
        except OSError as reason:
            self._fail(segment.path, f"cannot be read: {reason.strerror}", location.offset)

    def fail_at(self, location: Location, rule: str) -> NoReturn:
        """Say that what lies there cannot be right."""
        self._fail(self._segments[location.segment - self.oldest].path, rule, location.offset)

    def _fail(self, path: Path, rule: str, offset: int | None = None) -> NoReturn:
        raise StoreError(str(path), f"{rule}: {self.role.advice}", offset)

    # While it is open ---------------------------------------------------------------------------

    def check(self) -> None:
        """StoreGone if the files were removed, replaced or cut under us: from then on nothing is written."""
        if self._stopped or self._lock < 0:
            return
        found = first_trouble(self._files())
        if found is not None:
            path, trouble = found
            self._stopped = f"{path} {trouble}"
            raise StoreGone(str(path), f"{trouble}: {self.role.advice_when_gone}")

    def _files(self) -> Iterator[OpenFile]:
        yield OpenFile(self.directory)
        yield OpenFile(self.directory / LOCK_NAME, self._lock)
        yield OpenFile(self.directory / MARKER_NAME)
        if self._fd < 0:
            return  # It has forgotten, and keeps nothing.
        for segment in self._segments[:-1]:
            yield OpenFile(segment.path)
        yield OpenFile(self._segments[-1].path, self._fd, self._size)
        if self._high is not None:
            yield OpenFile(self._high.path, self._high.fileno())

    # Closing ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Bring everything to the disk and note where it ends, so that the store is whole on any boot."""
        if self._lock < 0:
            return
        try:
            self.check()
            if self._fd >= 0 and not self._stopped:
                self._sync_all()
                self.mark(end_segment=self.newest, end_bytes=self._size)
        except OSError as reason:
            raise disk_error(self.directory, "cannot be closed", reason) from reason
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the directory as it is, as the end of the process would."""
        self._stopped = self._stopped or "the store is closed"
        self._close_newest()
        if self._high is not None:
            self._high.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _close_newest(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _sync_all(self) -> None:
        for segment in self._segments:
            with segment.path.open("rb") as file:
                os.fsync(file.fileno())
        sync_directory(self.directory)


def _number_of(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
