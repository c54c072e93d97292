"""Append-only files of checksummed frames: how the protocol's state lies on a disk.

A segment begins with 36 bytes, and frames follow without gaps. All integers are little-endian:

file:   "ISOSTORE" 8 | version 2 | role 2 | salt 4 | node 8 | segment 8 | crc 4
frame:  "IF" 2 | kind 1 | flags 1 | checked 4 | loose 8 | body crc 4 | header crc 4 | checked bytes | loose bytes

The header's CRC-32 covers the 20 bytes before it, the body's covers the checked bytes, and both start from the
file's salt, so that nothing that a payload contains passes for a frame. Loose bytes have no checksum here: they
are payloads, and the token in the checked bytes holds digests of them, which the ring has compared before it let
the entry into the log. A CRC of 1.3 kB would cost more than everything else that is done to a message.

A record is one frame, or several of which all but the last carry MORE. What is written together, and made durable
together, is a group, whose first frame carries FIRST.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import NamedTuple, TypeAlias
from zlib import crc32

__all__ = [
    "FILE_BYTES",
    "FILE_MAGIC",
    "FRAME_BYTES",
    "OTHER_VERSION",
    "VERSION",
    "Frame",
    "Location",
    "StoreSegment",
    "StoredFrame",
    "TornSegment",
    "Verify",
    "WrongBytesError",
    "frame_buffers",
    "write_all",
]

FILE_MAGIC = b"ISOSTORE"
VERSION = 2
"""Raised whenever the meaning of any byte changes."""
OTHER_VERSION = "finish with the isocast that wrote it, or begin in an empty directory"
"""What to do about a file of another version."""
_FRAME_MAGIC = b"IF"
_FIRST = 1
_MORE = 2

_FILE = Struct("<8sHHIQQ")
_FRAME = Struct("<2sBBIQI")
_CRC = Struct("<I")
FILE_BYTES = _FILE.size + _CRC.size
FRAME_BYTES = _FRAME.size + _CRC.size

_IOV_MAX = os.sysconf("SC_IOV_MAX")
"""Buffers that one writev takes."""


class WrongBytesError(ValueError):
    """Bytes that are all there and that nobody wrote like this."""


Verify: TypeAlias = Callable[[int, bytes, bytes], object]
"""Takes kind, checked and loose bytes; raises ValueError when they do not belong together."""


class Frame(NamedTuple):
    """What is to be written: `loose` buffers go to the kernel as they are, without being joined."""

    kind: int
    checked: bytes
    loose: Sequence[bytes] = ()
    loose_bytes: int = 0
    more: bool = False
    """Whether the record goes on in the next frame."""


class Location(NamedTuple):
    """Where a frame lies."""

    segment: int
    offset: int


class StoredFrame(NamedTuple):
    """A frame as it was found; its loose bytes are read by `StoreSegment.read` only."""

    kind: int
    offset: int
    checked: bytes
    first: bool
    """Whether a group begins with it."""


@dataclass(frozen=True, slots=True)
class TornSegment:
    """Where the whole records of a segment end before the file does."""

    offset: int
    """Of the first frame that is not right."""
    whole: int
    """Where the last whole record ends: not behind a frame whose record goes on."""
    rule: str
    torn: bool
    """The file ends within the frame: a write that never came to its end. Otherwise bytes are wrong."""
    acknowledged: bool
    """A group begins behind the fault: what is wrong was complete once."""


def frame_buffers(frames: Sequence[Frame], salt: int) -> tuple[list[bytes], list[int], int]:
    """One group as buffers for writev, each frame's offset from the first byte, and the length of all."""
    buffers: list[bytes] = []
    offsets: list[int] = []
    at = 0
    flags = _FIRST
    for kind, checked, loose, loose_bytes, more in frames:
        header = _FRAME.pack(_FRAME_MAGIC, kind, flags | more * _MORE, len(checked), loose_bytes, crc32(checked, salt))
        buffers.append(b"".join((header, _CRC.pack(crc32(header, salt)), checked)))
        buffers.extend(loose)
        offsets.append(at)
        at += FRAME_BYTES + len(checked) + loose_bytes
        flags = 0
    return buffers, offsets, at


def write_all(fd: int, buffers: Sequence[bytes]) -> None:
    """Write every byte, at most IOV_MAX buffers at a time; OSError when the kernel takes no more."""
    for at in range(0, len(buffers), _IOV_MAX):
        chunk = buffers[at : at + _IOV_MAX]
        left = sum(map(len, chunk)) - os.writev(fd, chunk)
        if left:
            # A short write is rare: a full disk, a limit or a signal. The next one says which.
            rest = memoryview(b"".join(chunk))[-left:]
            while rest:
                rest = rest[os.write(fd, rest) :]


class _Header(NamedTuple):
    kind: int
    flags: int
    checked: int
    loose: int
    crc: int


@dataclass(frozen=True, slots=True)
class StoreSegment:
    """One segment of one store."""

    path: Path
    role: int
    node: int
    number: int
    salt: int

    # Writing ------------------------------------------------------------------------------------

    def file_header(self) -> bytes:
        """The first bytes of the file."""
        fields = _FILE.pack(FILE_MAGIC, VERSION, self.role, self.salt, self.node, self.number)
        return fields + _CRC.pack(crc32(fields))

    # Reading ------------------------------------------------------------------------------------

    @classmethod
    def find(cls, path: Path, role: int, node: int, number: int) -> StoreSegment | None:
        """The segment in a file; None when the file ends before its header does.

        Raises WrongBytesError for a file that is something else.
        """
        with path.open("rb") as file:
            start = file.read(FILE_BYTES)
        if len(start) < FILE_BYTES:
            return None
        magic, version, found_role, salt, found_node, found_number = _FILE.unpack_from(start)
        if magic != FILE_MAGIC or _CRC.unpack_from(start, _FILE.size)[0] != crc32(start[: _FILE.size]):
            raise WrongBytesError("the file's first bytes are not those of a store")
        if version != VERSION:
            raise WrongBytesError(f"format version {version}; this program reads version {VERSION}: {OTHER_VERSION}")
        if (found_role, found_node, found_number) != (role, node, number):
            raise WrongBytesError(
                f"segment {found_number} of node {found_node} in role {found_role}: "
                f"segment {number} of node {node} in role {role} is expected"
            )
        return cls(path, role, node, number, salt)

    def records(self) -> Iterator[tuple[StoredFrame, ...] | TornSegment]:
        """The whole records in order; at last a Fault, if the file does not end with one.

        Loose bytes are skipped, not read.
        """
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = whole = FILE_BYTES
            size = len(data)
            record: list[StoredFrame] = []
            while at < size:
                found = self._frame(data, at, whole)
                if isinstance(found, TornSegment):
                    yield found
                    return
                checked_at = at + FRAME_BYTES
                checked = data[checked_at : checked_at + found.checked]
                record.append(StoredFrame(found.kind, at, checked, bool(found.flags & _FIRST)))
                at = checked_at + found.checked + found.loose
                if not found.flags & _MORE:
                    yield tuple(record)
                    record.clear()
                    whole = at
            if record:
                yield TornSegment(at, whole, "the last frame of a record is missing", torn=True, acknowledged=False)

    def verified(self, verify: Verify) -> Iterator[tuple[StoredFrame, ...] | TornSegment]:
        """The same, the loose bytes of the last group looked at too: after a power failure they may be missing."""
        group: list[tuple[StoredFrame, ...]] = []
        fault: TornSegment | None = None
        for found in self.records():
            if isinstance(found, TornSegment):
                fault = found
                break
            if found[0].first:
                yield from group
                group.clear()
            group.append(found)
        for record in group:
            for stored in record:
                try:
                    verify(*self.read(stored.offset))
                except ValueError as reason:
                    yield TornSegment(stored.offset, record[0].offset, str(reason), torn=False, acknowledged=False)
                    return
            yield record
        if fault is not None:
            yield fault

    def _frame(self, data: mmap.mmap, at: int, whole: int) -> _Header | TornSegment:
        header = self._header(data[at : at + FRAME_BYTES])
        if header is None:
            if at + FRAME_BYTES > len(data):
                return TornSegment(at, whole, "the file ends within a frame's header", torn=True, acknowledged=False)
            return self._wrong(data, at, whole, "the frame's header is damaged")
        checked_at = at + FRAME_BYTES
        if checked_at + header.checked + header.loose > len(data):
            return TornSegment(at, whole, "the file ends within a frame", torn=True, acknowledged=False)
        if crc32(data[checked_at : checked_at + header.checked], self.salt) != header.crc:
            return self._wrong(data, at, whole, "the frame's checksum is wrong")
        return header

    def _wrong(self, data: mmap.mmap, at: int, whole: int, rule: str) -> TornSegment:
        """Look whether a later group began: then the one at `at` had been finished."""
        place = data.find(_FRAME_MAGIC, at + 1)
        while place >= 0:
            header = self._header(data[place : place + FRAME_BYTES])
            if header is not None and header.flags & _FIRST:
                return TornSegment(at, whole, rule, torn=False, acknowledged=True)
            place = data.find(_FRAME_MAGIC, place + 1)
        return TornSegment(at, whole, rule, torn=False, acknowledged=False)

    def _header(self, header: bytes) -> _Header | None:
        """The header that these bytes spell; None when they spell none."""
        if len(header) < FRAME_BYTES or _CRC.unpack_from(header, _FRAME.size)[0] != crc32(
            header[: _FRAME.size], self.salt
        ):
            return None
        magic, kind, flags, checked, loose, crc = _FRAME.unpack_from(header)
        return _Header(kind, flags, checked, loose, crc) if magic == _FRAME_MAGIC else None

    def read(self, offset: int) -> tuple[int, bytes, bytes]:
        """Kind, checked and loose bytes of the frame at `offset`; WrongBytesError when it is not right."""
        with self.path.open("rb") as file:
            file.seek(offset)
            header = self._header(file.read(FRAME_BYTES))
            if header is None:
                raise WrongBytesError("the frame's header is damaged")
            checked = file.read(header.checked)
            loose = file.read(header.loose)
        if len(loose) < header.loose or crc32(checked, self.salt) != header.crc:
            raise WrongBytesError("the frame's checksum is wrong, or its end is missing")
        return header.kind, checked, loose
