"""What tasks read: ranges of sequences, cut where segments begin, and within long segments by proportion."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from isocast.lake.source_catalog import JournalFolder, Lane
from isocast.lake.source_faults import Fault, Faults
from isocast.lake.source_options import Offsets
from isocast.lake.source_read import read_parts
from isocast.lake.source_tails import Span, Tails
from isocast.lake.source_walk import Marks
from isocast.terms.ids import describe
from isocast.wire.journal import UNCERTIFIED

__all__ = ["Piece", "advance", "compare_journals", "cut_lane", "cut_segments"]

_LEAST_BYTES = 1 << 20
"""Less is not worth a task."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a lane: what one task reads."""

    lane: Lane
    first: int
    stop: int
    marks: Marks
    """Where in the segments to begin."""


def cut_lane(lane: Lane, wanted: Span, tails: Tails, marks: Marks, split_bytes: int, least: int) -> list[Piece]:
    """A range in pieces of about `split_bytes`, smaller ones if they would be fewer than `least`."""
    bounds = list(_bounds(lane, wanted, tails))
    total = sum(size for _, _, size in bounds)
    size = max(min(split_bytes, -(-total // least)), _LEAST_BYTES)
    cuts = [wanted.first]
    gathered = 0
    for first, stop, weight in bounds:
        # Small segments share a piece; a large one is cut where its sequences, and so about its bytes, are.
        parts = max(round(weight / size), 1)
        if gathered and gathered + weight > size:
            cuts.append(first)
            gathered = 0
        cuts += [first + (stop - first) * place // parts for place in range(1, parts)]
        gathered = weight if parts == 1 and not gathered else gathered + weight // parts
    cuts = sorted({cut for cut in cuts if wanted.first <= cut < wanted.stop})
    return [Piece(lane, first, stop, marks.near(first)) for first, stop in pairwise([*cuts, wanted.stop])]


def _bounds(lane: Lane, wanted: Span, tails: Tails, level: int = 0) -> Iterator[tuple[int, int, int]]:
    """First, stop and bytes of the segments that cover a range: the first journal's, and others' outside it."""
    if wanted.first >= wanted.stop:
        return
    if level == len(lane.journals):
        yield wanted.first, wanted.stop, 0
        return
    journal = lane.journals[level]
    span = tails.of_journal(journal)
    first, stop = max(span.first, wanted.first), min(span.stop, wanted.stop)
    if first >= stop:
        yield from _bounds(lane, wanted, tails, level + 1)
        return
    yield from _bounds(lane, Span(wanted.first, first), tails, level + 1)
    files = journal.files()
    ends = [file.first_sequence for file in files[1:]] + [span.stop]
    for file, end in zip(files, ends, strict=True):
        low, high = max(file.first_sequence, first), min(end, stop)
        if low < high:
            whole = max(end - file.first_sequence, 1)
            yield low, high, _size(file.path) * (high - low) // whole
    yield from _bounds(lane, Span(stop, wanted.stop), tails, level + 1)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # Retention took it just now: the task will say what is missing.


def cut_segments(lane: Lane, wanted: Span) -> list[Piece]:
    """A piece for each segment of a lane that gives what its journal holds, in whatever order it holds it."""
    pieces = []
    for journal in lane.journals:
        for file in journal.files():
            alone = JournalFolder(journal.stripe, journal.receiver, str(file.path))
            pieces.append(Piece(replace(lane, journals=(alone,)), wanted.first, wanted.stop, Marks()))
    return pieces


# ---- admission


def advance(lanes: Mapping[str, Lane], start: Offsets, end: Offsets, rows: int, marks: Marks) -> Offsets:
    """How far to read for about so many rows: whole blocks, at least one, stripes together in the order of time."""
    reached = {key: min(start[key], end[key]) for key in end}
    walks = {key: _blocks(lanes[key], reached[key], end[key], marks) for key in end if reached[key] < end[key]}
    heap = [(instant, key, stop, events) for key, walk in walks.items() for instant, stop, events in _one(walk)]
    heapq.heapify(heap)
    taken = 0
    while heap:
        _, key, stop, events = heap[0]
        if taken and taken + events > rows:
            break
        taken += events
        reached[key] = min(stop, end[key])
        following = next(walks[key], None)
        if following is None:
            heapq.heappop(heap)
            reached[key] = end[key]
        else:
            heapq.heapreplace(heap, (following[0], key, following[1], following[2]))
    return reached


def _one(walk: Iterator[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return [found] if (found := next(walk, None)) is not None else []


def _blocks(lane: Lane, first: int, stop: int, marks: Marks) -> Iterator[tuple[int, int, int]]:
    """Instant, next sequence and events of each block; what nobody has is left to the task, which says so."""
    for part in read_parts(lane, first, stop, Faults(is_strict=False), check=False, marks=marks):
        headers = part.chunk.headers
        yield from zip(headers["instant"].tolist(), part.chunk.nexts.tolist(), headers["events"].tolist(), strict=True)


# ---- one market or two


def compare_journals(
    journals: Sequence[JournalFolder], tails: Tails, marks: Marks, faults: Faults
) -> set[JournalFolder]:
    """The journals of a stripe that are not of the first one's market; strict faults raise instead.

    Two receivers agree on token, epoch and instant of every sequence. Both ends of what they share are compared.
    """
    strangers: set[JournalFolder] = set()
    for other in journals[1:]:
        first = journals[0]
        one, two = tails.of_journal(first), tails.of_journal(other)
        low, high = max(one.first, two.first), min(one.stop, two.stop) - 1
        for sequence in sorted({low, high}) if low <= high else ():
            mine, theirs = _identity(first, sequence, marks), _identity(other, sequence, marks)
            if mine is not None and theirs is not None and mine != theirs:
                rule = (
                    f"{describe(other.receiver)} has sequence {sequence} of stripe {other.stripe} from {theirs}, and"
                    f" {first.path} from {mine}: two markets are mixed; give the folder of one"
                )
                faults.lost(Fault(other.path, "foreign", rule, 1, other.stripe, other.receiver, None, low, high))
                strangers.add(other)
                break
    return strangers


def _identity(journal: JournalFolder, sequence: int, marks: Marks) -> str | None:
    """What assigned a sequence; None where that may differ between receivers of one market, or is not known."""
    lane = Lane("", journal.stripe, (journal,), may_miss=True)
    for part in read_parts(lane, sequence, sequence + 1, Faults(is_strict=False), check=False, marks=marks):
        header = part.chunk.headers[0]
        if header["flags"] & UNCERTIFIED:
            return None
        epoch = f"epoch {header['epoch_number']}.{header['epoch_server']}"
        return f"token {header['token_number']} of {epoch} at {header['instant']}"
    return None
