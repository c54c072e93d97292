"""Segment files of a journal: which there are, the whole blocks in each, and where the last one ends after a crash.

What is being written is read safely: a header is fetched with pread, and memory is mapped only over blocks whose
end is in the file. Nothing ever cuts those off, so a mapped page cannot vanish under a reader.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from isocast.terms.errors import JournalError, RemoteProtocolError
from isocast.terms.ids import NodeId
from isocast.wire.journal import (
    ALIGNMENT,
    BLOCK_HEADER_BYTES,
    BLOCK_MARKER,
    SEGMENT_HEADER_BYTES,
    BlockHeader,
    SegmentHeader,
    read_block_header,
    read_segment_header,
    segment_name,
    segment_of_name,
)
from isocast.wire.journal_blocks import BlockView

__all__ = ["Mended", "Segment", "SegmentFile", "TornEnd", "mend", "open_segment", "segment_files"]


_FETCH_BYTES = 4_096
"""One page: the headers of some dozen small blocks, or of one large block, for the price of a system call."""
_FIRST_GROUP_BYTES = 1 << 16
_GROUP_BYTES = 16 << 20
"""Blocks are mapped in groups: small at first, since somebody may want one block only, then large."""
_ZEROS = bytes(1 << 16)


@dataclass(frozen=True, slots=True, order=True)
class SegmentFile:
    """A file, and what its name says."""

    first_sequence: int
    path: Path
    stripe: int
    site: NodeId


def segment_files(where: Path) -> list[SegmentFile]:
    """The segments of a journal's directory in order of sequence, or the one segment that is named itself."""
    if not where.exists():
        raise JournalError(str(where), "no such directory or segment")
    if not where.is_dir():
        file = _named(where)
        if file is None:
            raise JournalError(str(where), f"a segment has a name such as {segment_name(0, 1, 1)}")
        return [file]
    try:
        found = [file for path in where.iterdir() if (file := _named(path)) is not None]
    except OSError as reason:
        raise JournalError(str(where), f"cannot be listed: {reason.strerror}") from reason
    owners = sorted({(file.stripe, file.site) for file in found})
    if len(owners) > 1:
        listed = ", ".join(f"stripe {stripe} of site {site}" for stripe, site in owners)
        raise JournalError(str(where), f"holds segments of several journals: {listed}; each needs a directory")
    return sorted(found)


def _named(path: Path) -> SegmentFile | None:
    parsed = segment_of_name(path.name)
    if parsed is None:
        return None
    stripe, site, first = parsed
    return SegmentFile(first, path, stripe, site)


def open_segment(file: SegmentFile) -> Segment | None:
    """A segment of a list, unless retention has removed it since."""
    try:
        return Segment(file)
    except JournalError:
        if file.path.exists():
            raise
        return None


class Segment:
    """One segment, open for reading."""

    def __init__(self, file: SegmentFile) -> None:
        """Open the file and read its header, which must say what the name says."""
        self.file = file
        self.reached = SEGMENT_HEADER_BYTES
        """Where the last walk over the headers has come to."""
        try:
            self._fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as reason:
            raise JournalError(str(file.path), f"cannot be opened: {reason.strerror}") from reason
        try:
            self.header = self._read_header()
        except JournalError:
            self.close()
            raise

    def _read_header(self) -> SegmentHeader:
        try:
            header = read_segment_header(os.pread(self._fd, SEGMENT_HEADER_BYTES, 0))
        except RemoteProtocolError as reason:
            raise self.error(str(reason), 0) from reason
        except OSError as reason:
            raise self.error(f"cannot be read: {reason.strerror}", 0) from reason
        if (header.first_sequence, header.stripe, header.site) != (
            self.file.first_sequence,
            self.file.stripe,
            self.file.site,
        ):
            raise self.error("the file's name and its header disagree; was it renamed?", 0)
        return header

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; what was mapped lives on."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def size(self) -> int:
        """Bytes in the file now."""
        return os.fstat(self._fd).st_size

    def error(self, rule: str, offset: int) -> JournalError:
        """An error that names this file."""
        return JournalError(str(self.file.path), rule, offset)

    def headers(self, start: int = SEGMENT_HEADER_BYTES) -> Iterator[tuple[int, BlockHeader]]:
        """Offset and header of every whole block from `start` on; ends before a block whose end is missing.

        Raises JournalError at a header that is damaged.
        """
        size = self.size()
        offset = fetched_at = start
        fetched = b""
        while True:
            self.reached = offset
            inside = offset - fetched_at
            if inside + BLOCK_HEADER_BYTES > len(fetched):
                fetched, fetched_at, inside = self._fetch(offset), offset, 0
                if len(fetched) < BLOCK_HEADER_BYTES:
                    return
            try:
                header = read_block_header(fetched, inside)
            except RemoteProtocolError as reason:
                if self.is_unwritten(offset):
                    return
                raise self.error(str(reason), offset) from reason
            end = offset + header.block_bytes
            if end > size:
                size = self.size()
                if end > size:
                    return
            yield offset, header
            offset = end

    def blocks(self, start: int = SEGMENT_HEADER_BYTES) -> Iterator[tuple[int, BlockView]]:
        """Offset and view of every whole block from `start` on; only their headers have been checked."""
        walk = self.headers(start)
        limit = _FIRST_GROUP_BYTES
        while True:
            group, damage = _group(walk, limit)
            if group:
                begin = group[0][0]
                area = self.mapped(begin, group[-1][0] + group[-1][1].block_bytes)
                for offset, header in group:
                    yield offset, BlockView(header, area[offset - begin : offset - begin + header.block_bytes])
            if damage is not None:
                raise damage
            if not group:
                return
            limit = min(2 * limit, _GROUP_BYTES)

    def insist_on_end(self) -> None:
        """After a walk to the end: only the newest segment may end in the middle of a block."""
        if self.reached != self.size():
            raise self.error("the segment ends within a block, although a later one exists", self.reached)

    def _fetch(self, offset: int) -> bytes:
        try:
            return os.pread(self._fd, _FETCH_BYTES, offset)
        except OSError as reason:
            raise self.error(f"cannot be read: {reason.strerror}", offset) from reason

    def is_unwritten(self, offset: int) -> bool:
        """Whether only zeros follow: a file system that lost power can lengthen a file before it fills it."""
        size = self.size()
        for at in range(offset, size, len(_ZEROS)):
            piece = os.pread(self._fd, len(_ZEROS), at)
            if piece != _ZEROS[: len(piece)]:
                return False
        return True

    def next_header(self, offset: int) -> int | None:
        """Where the first block behind a damaged place begins, if there is one."""
        offset += ALIGNMENT - offset % ALIGNMENT
        while fetched := os.pread(self._fd, len(_ZEROS), offset):
            at = fetched.find(BLOCK_MARKER)
            while at >= 0:
                if at % ALIGNMENT == 0 and self._is_header(offset + at):
                    return offset + at
                at = fetched.find(BLOCK_MARKER, at + 1)
            offset += len(fetched)
        return None

    def _is_header(self, offset: int) -> bool:
        try:
            read_block_header(os.pread(self._fd, BLOCK_HEADER_BYTES, offset))
        except RemoteProtocolError:
            return False
        return True

    def mapped(self, start: int, stop: int) -> memoryview:
        """The bytes of whole blocks, where the kernel keeps them. Valid after the segment is closed, or deleted."""
        base = start - start % mmap.ALLOCATIONGRANULARITY
        try:
            area = mmap.mmap(self._fd, stop - base, access=mmap.ACCESS_READ, offset=base)
        except OSError as reason:
            raise self.error(f"cannot be mapped: {reason.strerror}", start) from reason
        return memoryview(area)[start - base :]


def _group(
    walk: Iterator[tuple[int, BlockHeader]], limit: int
) -> tuple[list[tuple[int, BlockHeader]], JournalError | None]:
    """The next blocks, together about `limit` bytes, and what is wrong behind them."""
    group: list[tuple[int, BlockHeader]] = []
    try:
        for offset, header in walk:
            group.append((offset, header))
            if offset + header.block_bytes - group[0][0] >= limit:
                break
    except JournalError as damage:
        return group, damage
    return group, None


# What a journal looks like after a crash: where its last whole block ends, and what lies behind it.
#
# A process that is killed leaves the beginning of a block. A machine that loses power may leave zeros, where the file
# was made longer before it was filled. Both are cut off. Everything else that is wrong is damage, and stays.


_SECTOR_BYTES = 512
"""What a disk writes at once: unwritten zeros begin at a multiple of it."""


class TornEnd(NamedTuple):
    """What was removed from the end of a segment."""

    path: Path
    offset: int
    removed_bytes: int

    def __str__(self) -> str:
        """For the log and for people."""
        return f"{self.path}: cut back to byte {self.offset}: {self.removed_bytes} bytes of an unfinished block"


class Mended(NamedTuple):
    """The newest segment after its end has been looked after."""

    last: BlockHeader | None
    end: int
    """Where to go on; 0 when nothing was worth keeping and the file is gone."""
    cut: TornEnd | None


def mend(file: SegmentFile) -> Mended:
    """Cut an unfinished block off the newest segment; JournalError when anything in it is damaged."""
    size = file.path.stat().st_size
    if _has_no_header(file.path):
        file.path.unlink()
        return Mended(None, 0, TornEnd(file.path, 0, size))
    last = None
    end = SEGMENT_HEADER_BYTES
    with Segment(file) as segment:
        try:
            for offset, block in segment.blocks():
                try:
                    block.check_sum()
                except RemoteProtocolError as reason:
                    if _is_half_written(segment, offset, block.header):
                        break
                    raise segment.error(str(reason), offset) from reason
                last, end = block.header, offset + block.header.block_bytes
        except JournalError as damage:
            raise JournalError(damage.file, f"{damage.rule}; {_advice(file.path, end)}", damage.offset) from damage
        size = segment.size()
    if end == size:
        return Mended(last, end, None)
    os.truncate(file.path, end)
    return Mended(last, end, TornEnd(file.path, end, size - end))


def _has_no_header(path: Path) -> bool:
    with path.open("rb") as file:
        return not any(file.read(SEGMENT_HEADER_BYTES)) or path.stat().st_size < SEGMENT_HEADER_BYTES


def _is_half_written(segment: Segment, offset: int, header: BlockHeader) -> bool:
    """Whether the newest block lacks its last sectors: they read as zeros."""
    end = offset + header.block_bytes
    last_sector = (end - 1) // _SECTOR_BYTES * _SECTOR_BYTES
    return end == segment.size() and last_sector > offset and segment.is_unwritten(last_sector)


def _advice(path: Path, end: int) -> str:
    return (
        f"everything before byte {end} is whole. To set the damage aside and have it filled from other archives, run:"
        f" isocast journal repair {path.parent}"
    )
