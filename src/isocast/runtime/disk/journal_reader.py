"""Read a journal: blocks by sequence, or everything that is appended while somebody writes.

    for block in read_blocks(directory, first_sequence=1_000_000):
        prices = block.events["price"]          # no copy: the file itself, mapped

Segments are found by their names, blocks by skipping from header to header. A block whose end is missing ends the
reading: a writer is at work there, or was killed; `JournalCursor` goes on from there later.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from isocast.runtime.disk.journal_segments import Segment, SegmentFile, open_segment, segment_files
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.journal import SEGMENT_HEADER_BYTES, BlockHeader
from isocast.wire.journal_blocks import BlockView
from isocast.wire.limits import MAX_NUMBER

__all__ = ["JournalCursor", "JournalReader", "read_blocks"]

_READ_BYTES = 16 << 20
"""What one `read` of a cursor gives at most, give or take a block."""
_MARK_BYTES = 1 << 16
"""Between two marks of an index: at most some 400 headers are skipped to find a block."""


class _Index:
    """Where some blocks of a segment begin; grows as the segment is read."""

    __slots__ = ("_firsts", "_offsets", "_scanned")

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._offsets = array("Q")
        self._scanned = 0

    def near(self, sequence: int) -> int:
        """An offset, not behind the block that holds the sequence."""
        at = bisect_right(self._firsts, sequence) - 1
        return self._offsets[at] if at >= 0 else SEGMENT_HEADER_BYTES

    def find(self, segment: Segment, sequence: int) -> int:
        """Where the first block begins that does not end before the sequence."""
        for offset, header in segment.headers(self.near(sequence)):
            self.learn(offset, header)
            if header.next_sequence > sequence:
                return offset
        return segment.reached

    def learn(self, offset: int, header: BlockHeader) -> None:
        """A block was seen."""
        if offset < self._scanned:
            return
        self._scanned = offset + header.block_bytes
        in_order = not self._firsts or header.first_sequence > self._firsts[-1]
        if in_order and (not self._offsets or offset - self._offsets[-1] >= _MARK_BYTES):
            self._firsts.append(header.first_sequence)
            self._offsets.append(offset)


class JournalReader:
    """A journal that is asked for ranges of sequences; it remembers where blocks begin."""

    def __init__(self, where: Path) -> None:
        """`where` is a journal's directory, or one segment."""
        self._where = where
        self._indexes: dict[SegmentFile, _Index] = {}

    def blocks(
        self, first_sequence: int | None = None, last_sequence: int | None = None, *, check: bool = True
    ) -> Iterator[BlockView]:
        """Every whole block that has a message of the range, both ends included.

        `check=False` leaves checksums of bodies and the rules of directories alone; headers are always checked.
        """
        first = 0 if first_sequence is None else first_sequence
        last = MAX_NUMBER if last_sequence is None else last_sequence
        files = self._files() if first <= last else []
        start = max(bisect_right([file.first_sequence for file in files], first) - 1, 0)
        for file in files[start:]:
            if file.first_sequence > last:
                return
            index = self._indexes.setdefault(file, _Index())
            segment = open_segment(file)
            if segment is None:
                continue
            with segment:
                is_over = yield from _range(segment, index, first, last, check=check)
                if is_over:
                    return
                if file != files[-1]:
                    segment.insist_on_end()

    def span(self) -> tuple[int, int] | None:
        """The first sequence that is kept, and the one after the last whole block; None for an empty journal."""
        files = self._files()
        for file in reversed(files):
            index = self._indexes.setdefault(file, _Index())
            after = 0
            with Segment(file) as segment:
                for offset, header in segment.headers(index.near(MAX_NUMBER)):
                    index.learn(offset, header)
                    after = header.next_sequence
            if after:
                return files[0].first_sequence, after
        return None

    def _files(self) -> list[SegmentFile]:
        """What is there now; what was learned about files that are gone is forgotten."""
        files = segment_files(self._where)
        self._indexes = {file: index for file in files if (index := self._indexes.get(file)) is not None}
        return files


def _range(segment: Segment, index: _Index, first: int, last: int, *, check: bool) -> Generator[BlockView, None, bool]:
    """The blocks of one segment that have a message of the range; whether the range ended here."""
    for offset, block in segment.blocks(index.find(segment, first)):
        header = block.header
        index.learn(offset, header)
        if header.next_sequence <= first:
            continue
        if header.first_sequence > last:
            return True
        if check:
            _check(segment, offset, block)
        yield block
    return False


def _check(segment: Segment, offset: int, block: BlockView) -> None:
    try:
        block.check()
    except RemoteProtocolError as reason:
        raise segment.error(str(reason), offset) from reason


def read_blocks(
    where: Path, first_sequence: int | None = None, last_sequence: int | None = None, *, check: bool = True
) -> Iterator[BlockView]:
    """Every whole block of a directory or segment that has a message of the range, both ends included."""
    return JournalReader(where).blocks(first_sequence, last_sequence, check=check)


class JournalCursor:
    """A place in a journal that somebody is writing; each `read` gives what has come since the last."""

    def __init__(self, where: Path, first_sequence: int = 0, *, check: bool = True) -> None:
        """Begin with the block that holds a sequence, or with the oldest that is kept."""
        self.next_sequence = first_sequence
        """What the next block should begin with; one that begins later means that retention was faster."""
        self._where = where
        self._check = check
        self._has_begun = False
        self._segment: Segment | None = None
        self._offset = SEGMENT_HEADER_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the segment that was read last."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def read(self) -> list[BlockView]:
        """Whole blocks that have not been read yet, a limited number of them; empty when there are none."""
        while True:
            segment = self._segment
            found = self._take(segment) if segment is not None else []
            if found:
                return found
            following = self._following(segment)
            if following is None:
                return []
            if segment is not None:
                # The writer may have finished this segment after the look above and before it began the next.
                found = self._take(segment)
                if found:
                    return found
                segment.insist_on_end()
                self.close()
            self._segment, self._offset = open_segment(following), SEGMENT_HEADER_BYTES

    def _take(self, segment: Segment) -> list[BlockView]:
        found: list[BlockView] = []
        taken = 0
        for offset, block in segment.blocks(self._offset):
            header = block.header
            if found or self._has_begun or header.next_sequence > self.next_sequence:
                if self._check:
                    _check(segment, offset, block)
                found.append(block)
                taken += header.block_bytes
                self._has_begun = True
                self.next_sequence = header.next_sequence
            self._offset = offset + header.block_bytes
            if taken >= _READ_BYTES:
                break
        return found

    def _following(self, segment: Segment | None) -> SegmentFile | None:
        """The file after a segment, or the one to begin with."""
        files = segment_files(self._where) if self._where.exists() else []
        if segment is not None:
            return next((file for file in files if file.first_sequence > segment.file.first_sequence), None)
        start = bisect_right([file.first_sequence for file in files], self.next_sequence) - 1
        return files[max(start, 0)] if files else None
