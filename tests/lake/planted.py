"""Journals in which something is planted: written again as a forger would, checksums and all, or damaged in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.disk.journal_segments import segment_files
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.journal import BLOCK_HEADER_BYTES, DIRECTORY_BYTES, SegmentHeader, pack_segment_header, segment_name
from isocast.wire.journal_blocks import JournalMessage, ReleasedBlock, encode_block

__all__ = ["block_with", "flip_in_place", "flipped", "offset_of", "released", "rewrite", "with_message"]

Blocks = list[ReleasedBlock]


def released(where: Path) -> Blocks:
    """All blocks of a journal or a segment, as they were handed to the writer."""
    return [block.released() for block in read_blocks(where)]


def rewrite(where: Path, change: Callable[[Blocks], Blocks]) -> Path:
    """One segment in place of a journal, or of the segment that is named: changed, and no writer to refuse it."""
    old = segment_files(where)
    blocks = change(released(where))
    for file in old:
        file.path.unlink()
    stripe, site = old[0].stripe, old[0].site
    first = blocks[0].first_sequence
    path = old[0].path.with_name(segment_name(stripe, site, first))
    header = pack_segment_header(SegmentHeader(stripe, site, blocks[0].released_at, first))
    path.write_bytes(header + b"".join(b"".join(encode_block(block).pieces) for block in blocks))
    return path


def block_with(blocks: Blocks, sequence: int) -> int:
    """The place of the block that holds a sequence."""
    return next(at for at, block in enumerate(blocks) if sequence < block.first_sequence + len(block.messages))


def with_message(blocks: Blocks, sequence: int, change: Callable[[JournalMessage], JournalMessage]) -> Blocks:
    """The same blocks with one message changed."""
    at = block_with(blocks, sequence)
    messages: list[JournalMessage] = list(blocks[at].messages)
    place = sequence - blocks[at].first_sequence
    messages[place] = change(messages[place])
    return [*blocks[:at], replace(blocks[at], messages=messages), *blocks[at + 1 :]]


def flipped(message: JournalMessage, index: int, field: str) -> JournalMessage:
    """The lowest bit of one field of one event, turned over."""
    source, number, digest, payload = message
    events = np.frombuffer(payload, EVENT_DTYPE).copy()
    events[field][index] ^= 1
    return source, number, digest, events.tobytes()


def offset_of(blocks: Sequence[ReleasedBlock], at: int) -> int:
    """Where a block begins when all lie in one segment."""
    return 64 + sum(encode_block(block).header.block_bytes for block in blocks[:at])


def flip_in_place(journal: Path, sequence: int, index: int, field: str) -> tuple[Path, int]:
    """One bit of the file itself: the checksum is wrong now. Gives the segment and where the block begins."""
    file = max(file for file in segment_files(journal) if file.first_sequence <= sequence)
    offset = 64
    for block in read_blocks(file.path):
        if sequence < block.header.next_sequence:
            row = block.directory[sequence - block.header.first_sequence]
            place = (
                offset
                + BLOCK_HEADER_BYTES
                + block.header.messages * DIRECTORY_BYTES
                + int(row["offset"])
                + index * EVENT_DTYPE.itemsize
                + EVENT_DTYPE.fields[field][1]  # type: ignore[index]
            )
            raw = bytearray(file.path.read_bytes())
            raw[place] ^= 1
            file.path.write_bytes(raw)
            return file.path, offset
        offset += block.header.block_bytes
    raise AssertionError(sequence)
