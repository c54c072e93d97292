"""How long a journal is kept: whole segments go, oldest first, by size and by age; the newest never goes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from isocast.runtime.disk.journal_record import Beginning, JournalRecord, read_record, write_record
from isocast.runtime.disk.journal_segments import Segment, SegmentFile, segment_files
from isocast.terms.errors import JournalError
from isocast.terms.instants import SECOND

__all__ = ["prune"]


def prune(directory: Path, *, keep_bytes: int, keep_seconds: int, now: int, sync: bool = False) -> list[Path]:
    """Remove segments until the rest is within both limits (0: no limit), and say which.

    A segment is as old as its newest block, which is older than the first of the next segment. Readers that have a
    removed segment open keep what they see. The journal's record says where it begins before anything goes.
    """
    files = segment_files(directory)
    sizes = [file.path.stat().st_size for file in files]
    total = sum(sizes)
    removed: list[Path] = []
    for file, size, following in zip(files, sizes, files[1:], strict=False):
        too_much = 0 < keep_bytes < total
        too_old = keep_seconds > 0 and _created(following) < now - keep_seconds * SECOND
        if not too_much and not too_old:
            break
        total -= size
        removed.append(file.path)
    if removed:
        _write_down(directory, files[len(removed)], sync=sync)
    for path in removed:
        with suppress(FileNotFoundError):
            path.unlink()
    return removed


def _write_down(directory: Path, first: SegmentFile, *, sync: bool) -> None:
    """Before segments go: whoever is killed in between has a journal that begins before its record, which is sound."""
    try:
        record = read_record(directory, first.stripe, first.site) or JournalRecord()
    except JournalError:
        record = JournalRecord()  # Whoever reads the journal says that it is damaged; disks must not fill up for that.
    record = record.beginning(first.first_sequence, Beginning.RETENTION)
    write_record(directory, first.stripe, first.site, record, sync=sync)


def _created(file: SegmentFile) -> int:
    with Segment(file) as segment:
        return segment.header.created
