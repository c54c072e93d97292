"""Read a range of one lane: from its first journal, and what that lacks from the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from isocast.lake.source_catalog import JournalFolder, Lane, files_from
from isocast.lake.source_columns import EventRows, symbol_words
from isocast.lake.source_faults import Fault, Faults
from isocast.lake.source_walk import Chunk, Marks, Words, walk_segment
from isocast.terms.errors import RemoteProtocolError

__all__ = ["Part", "read_batches", "read_parts"]

_MOST_ROWS = 1 << 18
"""Of one Arrow batch: a block may be larger than a chunk."""


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks of one journal whose sequences follow one another, as far as they lie in a range."""

    chunk: Chunk
    receiver: int
    first: int
    stop: int


def read_parts(
    lane: Lane,
    first: int,
    stop: int,
    faults: Faults,
    *,
    check: bool = True,
    marks: Marks | None = None,
    level: int = 0,
) -> Iterator[Part]:
    """Every sequence from `first` on and before `stop`, once and in order; a part is valid until the next is asked for.

    A lane that may miss some gives what its journal holds, twice what it holds twice. `check=False` leaves the
    checksums of bodies alone; `marks` say where to begin, and learn.
    """
    if level == len(lane.journals):
        if lane.may_miss:
            faults.insist()
        else:
            faults.lost(_gap(lane, first, stop))
        return
    journal = lane.journals[level]
    at = first
    for chunk in _runs(journal, first, stop, faults, marks or Marks(), check=check):
        begin, end = int(chunk.firsts[0]), int(chunk.nexts[-1])
        if lane.may_miss:
            yield Part(chunk, journal.receiver, first, stop)
            continue
        if begin > at:
            yield from read_parts(lane, at, begin, faults, check=check, marks=marks, level=level + 1)
            at = begin
        elif begin < at and at > first:
            faults.lost(_overlap(chunk, begin, min(at, end)))
        if end > at:
            yield Part(chunk, journal.receiver, at, min(end, stop))
            at = end
    if at < stop:
        yield from read_parts(lane, at, stop, faults, check=check, marks=marks, level=level + 1)


def _runs(
    journal: JournalFolder, first: int, stop: int, faults: Faults, marks: Marks, *, check: bool
) -> Iterator[Chunk]:
    """What a journal has of a range: blocks that follow one another, sound ones only."""
    files, newest = journal.files(), journal.newest()
    for file in files_from(files, first):
        if file.first_sequence >= stop:
            return
        is_newest = file.first_sequence == newest
        for chunk in walk_segment(file, faults, is_newest=is_newest, start=marks.start(file, first)):
            marks.learn(chunk)
            places = np.flatnonzero((chunk.nexts > first) & (chunk.firsts < stop))
            if not len(places):
                if chunk.firsts[0] >= stop:
                    break
                continue
            follows = (np.diff(places) == 1) & (chunk.firsts[places[1:]] == chunk.nexts[places[:-1]])
            for group in np.split(places, np.flatnonzero(~follows) + 1):
                yield from _sound(chunk.part(int(group[0]), int(group[-1]) + 1), faults, check=check)


def _sound(chunk: Chunk, faults: Faults, *, check: bool) -> Iterator[Chunk]:
    """The blocks whose bodies are as they were written; the others are noted."""
    while check and len(chunk.starts):
        bad = chunk.damaged()
        if bad is None:
            break
        if bad:
            yield chunk.part(0, bad)
        faults.note(_damage(chunk, bad, "the checksum of the block's body is wrong"))
        chunk = chunk.part(bad + 1, len(chunk.starts))
    if len(chunk.starts):
        yield chunk


def read_batches(
    parts: Iterator[Part], schema: pa.Schema, faults: Faults, symbols: tuple[str, ...] = ()
) -> Iterator[pa.RecordBatch]:
    """The events of some parts as Arrow batches."""
    wanted = symbol_words(symbols) if symbols else None
    for part in parts:
        for batch in _batches(part, schema, faults, wanted):
            for at in range(0, batch.num_rows, _MOST_ROWS):
                yield batch.slice(at, _MOST_ROWS)


def _batches(part: Part, schema: pa.Schema, faults: Faults, wanted: Words | None) -> Iterator[pa.RecordBatch]:
    """One batch; block by block where one of them is not what it says."""
    try:
        yield EventRows(part.chunk, part.first, part.stop, part.receiver, wanted).batch(schema)
    except RemoteProtocolError as reason:
        blocks = len(part.chunk.starts)
        if blocks == 1:
            # Its checksum is right, so whoever wrote it meant it: no other journal is asked.
            faults.lost(_damage(part.chunk, 0, str(reason)))
            return
        for place in range(blocks):
            yield from _batches(replace(part, chunk=part.chunk.part(place, place + 1)), schema, faults, wanted)


# ---- how faults are told


def _gap(lane: Lane, first: int, stop: int) -> Fault:
    where = lane.journals[0].path
    readers = ", ".join(str(journal.receiver) for journal in lane.journals)
    rule = (
        f"sequences {first} to {stop - 1} of stripe {lane.stripe} are in no journal that was asked (receivers"
        f" {readers}); add a journal that has them, begin behind them with fromSequence, or set onError to quarantine"
    )
    return Fault(where, "gap", rule, stop - first, lane.stripe, None, None, first, stop - 1)


def _overlap(chunk: Chunk, first: int, stop: int) -> Fault:
    file = chunk.file
    rule = f"sequences {first} to {stop - 1} occur twice in one journal"
    return Fault(
        str(file.path), "overlap", rule, stop - first, file.stripe, file.site, chunk.offset_of(0), first, stop - 1
    )


def _damage(chunk: Chunk, block: int, rule: str) -> Fault:
    file, header = chunk.file, chunk.headers[block]
    first = int(header["first_sequence"])
    last = first + int(header["messages"]) - 1
    size = int(header["block_bytes"])
    return Fault(str(file.path), "damage", rule, size, file.stripe, file.site, chunk.offset_of(block), first, last)
