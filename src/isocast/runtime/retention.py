"""How long a journal is kept: whole segments go, oldest first, by size and by age; the newest never goes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from isocast.runtime.journal_segments import Segment, SegmentFile, segment_files
from isocast.terms.instants import SECOND

__all__ = ["prune"]


def prune(directory: Path, *, keep_bytes: int, keep_seconds: int, now: int) -> list[Path]:
    """Remove segments until the rest is within both limits (0: no limit), and say which.

    A segment is as old as its newest block, which is older than the first of the next segment. Readers that have a
    removed segment open keep what they see.
    """
    files = segment_files(directory)
    sizes = [file.path.stat().st_size for file in files]
    total = sum(sizes)
    removed = []
    for file, size, following in zip(files, sizes, files[1:], strict=False):
        too_much = 0 < keep_bytes < total
        too_old = keep_seconds > 0 and _created(following) < now - keep_seconds * SECOND
        if not too_much and not too_old:
            break
        with suppress(FileNotFoundError):
            file.path.unlink()
        total -= size
        removed.append(file.path)
    return removed


def _created(file: SegmentFile) -> int:
    with Segment(file) as segment:
        return segment.header.created
