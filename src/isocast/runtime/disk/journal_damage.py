"""A journal in which something is damaged: the damage is set aside, and the node fills its journal again.

The segment with the damage, and all later ones, get another name, `….isoj.damaged`; nothing of them is thrown away. The
whole blocks before the damage stay in the journal, which now ends there. When the node starts, it takes the whole
blocks that follow from the files set aside, and what is damaged in them from other archives (`roles.rejoining`).

It may be interrupted at any moment and done again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from isocast.runtime.disk.journal_segments import Segment, SegmentFile, segment_files
from isocast.terms.errors import JournalError, RemoteProtocolError
from isocast.wire.journal import SEGMENT_HEADER_BYTES, SEGMENT_SUFFIX, segment_of_name
from isocast.wire.journal_blocks import BlockView

__all__ = ["SetAside", "set_aside_blocks", "set_aside_end", "set_damage_aside"]

_DAMAGED = ".damaged"
_NEW = ".new"


class SetAside(NamedTuple):
    """What was done about a journal's damage."""

    damage: JournalError
    """The first."""
    files: tuple[Path, ...]
    """What is out of the journal now, under its new names, oldest first."""


def set_damage_aside(directory: Path) -> SetAside | None:
    """Let a journal end before its first damaged byte; None if nothing is damaged.

    JournalError if somebody writes the journal.
    """
    with _locked(directory):
        files = segment_files(directory)
        for place, file in enumerate(files):
            damage, end = _first_damage(file, is_newest=place == len(files) - 1)
            if damage is not None:
                return SetAside(damage, _set_aside(files[place:], end))
    return None


def set_aside_blocks(directory: Path, first_sequence: int) -> Iterator[BlockView]:
    """The whole blocks of files set aside that end at or behind a sequence, in order."""
    for file in _files_set_aside(directory):
        for block in _whole_blocks(file):
            if block.header.next_sequence > first_sequence:
                yield block


def set_aside_end(directory: Path) -> int:
    """The sequence after the last whole block that was set aside; 0 if there is none."""
    ends = [block.header.next_sequence for file in _files_set_aside(directory) for block in _whole_blocks(file)]
    return max(ends, default=0)


def _first_damage(file: SegmentFile, *, is_newest: bool) -> tuple[JournalError | None, int]:
    """What is wrong first, if anything is, and where the whole blocks before it end."""
    end = SEGMENT_HEADER_BYTES
    try:
        with Segment(file) as segment:
            for offset, block in segment.blocks():
                try:
                    block.check()
                except RemoteProtocolError as reason:
                    return segment.error(str(reason), offset), end
                end = offset + block.header.block_bytes
            if not is_newest:
                segment.insist_on_end()
    except JournalError as damage:
        return damage, end
    return None, end


def _set_aside(files: list[SegmentFile], end: int) -> tuple[Path, ...]:
    """Newest first, so that whoever is interrupted finds the damage again; what is whole comes back last."""
    damaged = files[0].path
    kept = damaged.with_name(damaged.name + _NEW)
    if end > SEGMENT_HEADER_BYTES:
        with damaged.open("rb") as source, kept.open("wb") as target:
            target.write(source.read(end))
            target.flush()
            os.fsync(target.fileno())
    moved: list[Path] = []
    for file in reversed(files):
        other = _free_name(file.path)
        file.path.rename(other)
        moved.append(other)
    if end > SEGMENT_HEADER_BYTES:
        kept.rename(damaged)
    return tuple(reversed(moved))


def _free_name(path: Path) -> Path:
    found, count = path.with_name(path.name + _DAMAGED), 1
    while found.exists():
        count += 1
        found = path.with_name(f"{path.name}{_DAMAGED}-{count}")
    return found


def _files_set_aside(directory: Path) -> list[SegmentFile]:
    found: list[SegmentFile] = []
    for path in directory.glob(f"*{SEGMENT_SUFFIX}{_DAMAGED}*"):
        parsed = segment_of_name(path.name.partition(_DAMAGED)[0])
        if parsed is not None:
            stripe, site, first = parsed
            found.append(SegmentFile(first, path, stripe, site))
    return sorted(found)


def _whole_blocks(file: SegmentFile) -> Iterator[BlockView]:
    """All that are whole, those behind damage too; none of a file whose first bytes are damaged."""
    try:
        segment = Segment(file)
    except JournalError:
        return
    with segment:
        start: int | None = SEGMENT_HEADER_BYTES
        while start is not None:
            try:
                for _, block in segment.blocks(start):
                    try:
                        block.check()
                    except RemoteProtocolError:
                        continue
                    yield block
                start = None
            except JournalError as damage:
                start = segment.next_header(damage.offset or 0)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as reason:
        raise JournalError(str(directory), "another process writes this journal; stop it first") from reason
    finally:
        os.close(lock)
