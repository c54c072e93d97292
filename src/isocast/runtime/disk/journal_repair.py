"""What a journal looks like after a crash: where its last whole block ends, and what lies behind it.

A process that is killed leaves the beginning of a block. A machine that loses power may leave zeros, where the file
was made longer before it was filled. Both are cut off. Everything else that is wrong is damage, and stays.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from isocast.runtime.disk.journal_segments import Segment, SegmentFile
from isocast.terms.errors import JournalError, RemoteProtocolError
from isocast.wire.journal import SEGMENT_HEADER_BYTES, BlockHeader

__all__ = ["Cut", "Mended", "mend"]

_SECTOR_BYTES = 512
"""What a disk writes at once: unwritten zeros begin at a multiple of it."""


class Cut(NamedTuple):
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
    cut: Cut | None


def mend(file: SegmentFile) -> Mended:
    """Cut an unfinished block off the newest segment; JournalError when anything in it is damaged."""
    size = file.path.stat().st_size
    if _has_no_header(file.path):
        file.path.unlink()
        return Mended(None, 0, Cut(file.path, 0, size))
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
    return Mended(last, end, Cut(file.path, end, size - end))


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
