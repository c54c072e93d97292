"""Which journals a folder holds, of whom and of which stripe; and the blocks of their segments, in chunks.

Nothing in a journal names its market; a trusted receiver's folder does, in the log beside its journal. What tells
markets apart besides is what they did: two receivers of one market agree, for every sequence, on the token that
assigned it, its epoch and its instant. So journals of a stripe are compared at the ends of what they have in common,
and one receiver has one journal of a stripe.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from isocast.lake.source_faults import SourceFault, SourceFaults
from isocast.runtime.disk.journal_segments import Segment, SegmentFile, segment_files
from isocast.terms.errors import ConfigurationError, JournalError, RemoteProtocolError
from isocast.terms.ids import NodeId, describe, is_site
from isocast.terms.places import local_path
from isocast.terms.quantities import suggestion
from isocast.wire.journal import (
    ALIGNMENT,
    BLOCK_HEADER_BYTES,
    BLOCK_MARKER,
    DIRECTORY_BYTES,
    FETCHED,
    PROVABLE,
    SEGMENT_HEADER_BYTES,
    UNCERTIFIED,
    read_block_header,
    segment_of_name,
)
from isocast.wire.limits import EVENT_BYTES, MAX_MESSAGES_PER_TOKEN

__all__ = [
    "CHUNK_BYTES",
    "HEADER_DTYPE",
    "Headers",
    "JournalFolder",
    "Lane",
    "Marks",
    "SegmentChunk",
    "Words",
    "files_from",
    "find_journals",
    "lanes_of",
    "market_of",
    "of_other_markets",
    "walk_segment",
]


_IDENTITY = Path("log") / "identity.json"
"""Beside a site's journal: what `runtime.disk.store_marker` writes."""


@dataclass(frozen=True, slots=True)
class JournalFolder:
    """One receiver's journal of one stripe: a directory, or one segment that was named itself."""

    stripe: int
    receiver: NodeId
    path: str

    @property
    def name(self) -> str:
        """What its node is called: data/NAME/journal."""
        here = Path(self.path)
        here = here.parent if here.is_file() else here
        return here.parent.name if here.name == "journal" else here.name

    @property
    def rank(self) -> tuple[bool, NodeId]:
        """Trusted receivers first, as they know the sources; then by number."""
        return not is_site(self.receiver), self.receiver

    def files(self) -> list[SegmentFile]:
        """Its segments in order of sequence; empty if it is gone."""
        try:
            return segment_files(Path(self.path))
        except JournalError:
            if Path(self.path).exists():
                raise
            return []

    def newest(self) -> int:
        """The first sequence of the segment in which blocks may be unfinished."""
        here = Path(self.path)
        files = segment_files(here.parent if here.is_file() else here) if here.exists() else []
        return files[-1].first_sequence if files else 0


@dataclass(frozen=True, slots=True)
class Lane:
    """What is read as one sequence: the journals of a stripe in the order in which they are asked."""

    key: str
    """Of offsets: the stripe, or stripe@receiver where every receiver is read for itself."""
    stripe: int
    journals: tuple[JournalFolder, ...]
    may_miss: bool = False
    """Whether a gap is no fault: what one receiver lacks is what an audit looks for."""


def find_journals(*places: str) -> list[JournalFolder]:
    """Every journal below some folders, and those that are named; ConfigurationError for a place without any.

    A journal that lies below two of the places is one.
    """
    found = {str(Path(one.path).resolve()): one for where in reversed(places) for one in reversed(_journals(where))}
    return sorted(found.values(), key=lambda journal: (journal.stripe, *journal.rank, journal.path))


def _journals(where: str) -> list[JournalFolder]:
    top = local_path(where, "format isocast", "path")
    if not top.exists():
        raise ConfigurationError("format isocast", "path", f"{where}: no such folder")
    if top.is_file():
        file = segment_files(top)[0]
        return [JournalFolder(file.stripe, file.site, str(top))]
    found: list[JournalFolder] = []
    for directory, folders, names in os.walk(top):
        folders.sort()
        if any(segment_of_name(name) for name in names):
            file = segment_files(Path(directory))[0]
            found.append(JournalFolder(file.stripe, file.site, directory))
    if not found:
        rule = f"{where}: holds no journal; give the data directory of a market, or one journal"
        raise ConfigurationError("format isocast", "path", rule)
    return found


def lanes_of(
    journals: Sequence[JournalFolder], receiver: str, stripes: frozenset[int], faults: SourceFaults
) -> tuple[Lane, ...]:
    """The lanes of a choice of receiver: `one`, `all`, a number or a name."""
    known = sorted({journal.stripe for journal in journals})
    strangers = sorted(stripes - set(known))
    if strangers:
        rule = f"{strangers[0]}: there is no journal of it; there are {_listed(known)}"
        raise ConfigurationError("format isocast", "stripe", rule)
    lanes: list[Lane] = []
    for stripe in known:
        if stripes and stripe not in stripes:
            continue
        mine = _without_doubles([journal for journal in journals if journal.stripe == stripe], faults)
        if receiver == "one":
            lanes.append(Lane(str(stripe), stripe, tuple(mine)))
        elif receiver == "all":
            lanes += [Lane(f"{stripe}@{one.receiver}", stripe, (one,), may_miss=True) for one in mine]
        else:
            lanes.append(Lane(str(stripe), stripe, (_named(mine, receiver, stripe),)))
    return tuple(lanes)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _named(journals: Sequence[JournalFolder], receiver: str, stripe: int) -> JournalFolder:
    for journal in journals:
        # A node's process in a further stripe is called NAME.s1.
        if receiver in {str(journal.receiver), journal.name, journal.name.removesuffix(f".s{stripe}")}:
            return journal
    names = [journal.name for journal in journals]
    there = ", ".join(f"{journal.receiver} ({journal.name})" for journal in journals)
    rule = f"{receiver!r} has no journal of stripe {stripe}{suggestion(receiver, names)}; there are {there}"
    raise ConfigurationError("format isocast", "receiver", rule)


def _without_doubles(journals: Sequence[JournalFolder], faults: SourceFaults) -> list[JournalFolder]:
    """One journal of each receiver."""
    kept: dict[NodeId, JournalFolder] = {}
    for journal in journals:
        first = kept.setdefault(journal.receiver, journal)
        if first is journal:
            continue
        rule = (
            f"a second journal of {describe(journal.receiver)} for stripe {journal.stripe}, beside {first.path}: two"
            " markets are mixed, or one is a copy; give the folder of one market"
        )
        fault = SourceFault(journal.path, "foreign", rule, 1, journal.stripe, journal.receiver)
        faults.lost(fault)
    return list(kept.values())


def market_of(journal: Path) -> str | None:
    """The market whose node keeps a journal, as its own log says; None where there is none to read."""
    try:
        found = json.loads((journal.parent / _IDENTITY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    market = found.get("market") if isinstance(found, dict) else None
    return market if isinstance(market, str) else None


def of_other_markets(journals: Sequence[JournalFolder], faults: SourceFaults) -> set[JournalFolder]:
    """The journals whose nodes belong to another market than the first of which that is known; strict faults raise."""
    first: tuple[str, JournalFolder] | None = None
    strangers = set()
    for journal in journals:
        here = Path(journal.path)
        market = market_of(here.parent if here.is_file() else here)
        first = first or (None if market is None else (market, journal))
        if market is None or first is None or market == first[0]:
            continue
        known, other = first
        rule = f'is of market "{market}", and {other.path} of "{known}": two markets are mixed; give the folder of one'
        faults.lost(SourceFault(journal.path, "foreign", rule, 1, journal.stripe, journal.receiver))
        strangers.add(journal)
    return strangers


def files_from(files: Sequence[SegmentFile], sequence: int) -> Iterator[SegmentFile]:
    """The segments that can hold a sequence or a later one."""
    start = bisect_right([file.first_sequence for file in files], sequence) - 1
    yield from files[max(start, 0) :]


# The blocks of a segment in chunks of some megabytes, found by their headers and never parsed one by one.
#
# A chunk is read with one system call into memory of our own, so that a file that is being written, or mended, cannot
# vanish under a reader. Headers form a chain, each with a checksum over its length; all else is done for a whole chunk
# at once.


HEADER_DTYPE = np.dtype(
    [
        ("marker", "S4"),
        ("block_bytes", "<u4"),
        ("flags", "<u4"),
        ("messages", "<u4"),
        ("events", "<u4"),
        ("payload_bytes", "<u4"),
        ("token_count", "<u4"),
        ("place", "<u4"),
        ("epoch_number", "<u4"),
        ("epoch_server", "<u4"),
        ("token_number", "<u8"),
        ("first_sequence", "<u8"),
        ("instant", "<i8"),
        ("due", "<i8"),
        ("released_at", "<i8"),
        ("clock_bound_ns", "<u8"),
        ("shuffle_key", "V16"),
        ("body_checksum", "<u4"),
        ("checksum", "<u4"),
    ]
)
"""`wire.journal.BlockHeader`, for many at once."""

CHUNK_BYTES = 4 << 20
"""Some 85,000 events: one Arrow batch, and it stays in the processor's cache."""

Headers: TypeAlias = npt.NDArray[np.void]
"""An array of HEADER_DTYPE."""
Words: TypeAlias = npt.NDArray[np.uint64]

_MARK_BYTES = 1 << 20
_WORD = 8
_HEADER_WORDS = BLOCK_HEADER_BYTES // _WORD
_LINK = Struct("<4sI")
_CHECK = Struct("<I")
_SIGNED = BLOCK_HEADER_BYTES - _CHECK.size
_MOST_BLOCK = BLOCK_HEADER_BYTES + MAX_MESSAGES_PER_TOKEN * DIRECTORY_BYTES + (1 << 30)
"""A header that says more is damaged, whatever its checksum."""
_FIRST_TOO_LARGE = 1 << 62
"""Sequences fit Spark's signed numbers: at a billion a second for 146 years."""


@dataclass(frozen=True, slots=True)
class SegmentChunk:
    """Consecutive whole blocks of a segment; valid until the next one is asked for."""

    file: SegmentFile
    offset: int
    """In the file, of the first word."""
    words: Words
    starts: npt.NDArray[np.int64]
    """Where each block begins, in words."""
    headers: Headers

    @property
    def firsts(self) -> npt.NDArray[np.int64]:
        """The first sequence of each block."""
        firsts: npt.NDArray[np.int64] = self.headers["first_sequence"].view(np.int64)
        return firsts

    @property
    def nexts(self) -> npt.NDArray[np.int64]:
        """The sequence after each block."""
        nexts: npt.NDArray[np.int64] = self.firsts + self.headers["messages"]
        return nexts

    def part(self, start: int, stop: int) -> SegmentChunk:
        """Some of the blocks."""
        return SegmentChunk(self.file, self.offset, self.words, self.starts[start:stop], self.headers[start:stop])

    def offset_of(self, block: int) -> int:
        """Where a block begins in the file."""
        return self.offset + int(self.starts[block]) * _WORD

    @property
    def end(self) -> int:
        """Behind the last block, in the file."""
        return self.offset_of(-1) + int(self.headers["block_bytes"][-1])

    def damaged(self) -> int | None:
        """The first block whose body is not as it was written."""
        raw = self.words.data.cast("B")
        sizes = self.headers["block_bytes"].tolist()
        sums = self.headers["body_checksum"].tolist()
        for place, (start, size, checksum) in enumerate(zip((self.starts * _WORD).tolist(), sizes, sums, strict=True)):
            if crc32(raw[start + BLOCK_HEADER_BYTES : start + size]) != checksum:
                return place
        return None


class Marks:
    """Where some blocks begin, by segment and sequence, so that a walk need not begin with the file."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: dict[str, tuple[list[int], list[int]]] = {}

    def learn(self, chunk: SegmentChunk) -> None:
        """A chunk was walked over: remember its beginning, if that is far enough from the last."""
        firsts, offsets = self._known.setdefault(str(chunk.file.path), ([], []))
        first, offset = int(chunk.firsts[0]), chunk.offset_of(0)
        if not firsts or (first > firsts[-1] and offset >= offsets[-1] + _MARK_BYTES):
            firsts.append(first)
            offsets.append(offset)

    def start(self, file: SegmentFile, sequence: int) -> int:
        """The offset of a block that is not behind a sequence."""
        firsts, offsets = self._known.get(str(file.path), ([], []))
        place = bisect_right(firsts, sequence) - 1
        return offsets[place] if place >= 0 else SEGMENT_HEADER_BYTES

    def near(self, sequence: int) -> Marks:
        """For a task that begins at a sequence: the nearest mark of each journal."""
        nearest: dict[str, tuple[int, int, str]] = {}
        for path, (firsts, offsets) in self._known.items():
            place = bisect_right(firsts, sequence) - 1
            if place >= 0:
                mark = firsts[place], offsets[place], path
                journal = path.rpartition("/")[0]
                nearest[journal] = max(nearest.get(journal, mark), mark)
        chosen = Marks()
        chosen._known = {path: ([first], [offset]) for first, offset, path in nearest.values()}
        return chosen


def walk_segment(
    file: SegmentFile, faults: SourceFaults, *, is_newest: bool, start: int = SEGMENT_HEADER_BYTES
) -> Iterator[SegmentChunk]:
    """Every whole block of a segment whose header is sound, in chunks; what is skipped is noted.

    An unfinished block at the end is no fault of the newest segment: somebody writes there, or was killed.
    """
    try:
        segment = Segment(file)
    except JournalError as reason:
        if file.path.exists():
            faults.note(_refused(file, reason))
        return
    with segment:
        try:
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # Retention took it just now.
        try:
            yield from _SegmentWalk(segment, fd, faults, is_newest=is_newest).chunks(start)
        finally:
            os.close(fd)


def _refused(file: SegmentFile, reason: JournalError) -> SourceFault:
    """A segment that says at once that it is not for us."""
    is_newer = "journal version" in reason.rule
    advice = "read it with the version that wrote it, or a newer one" if is_newer else "leave it out, or repair it"
    return SourceFault(
        str(file.path),
        "version" if is_newer else "damage",
        f"{reason.rule}; {advice}",
        1,
        file.stripe,
        file.site,
        reason.offset,
        file.first_sequence,
    )


class _SegmentWalk:
    """One way through a segment."""

    def __init__(self, segment: Segment, fd: int, faults: SourceFaults, *, is_newest: bool) -> None:
        self._segment = segment
        self._fd = fd
        self._faults = faults
        self._is_newest = is_newest
        self._buffer: Words = np.empty(CHUNK_BYTES // _WORD, np.uint64)

    def chunks(self, offset: int) -> Iterator[SegmentChunk]:
        while True:
            raw = self._buffer.data.cast("B")
            size = os.preadv(self._fd, [raw], offset)
            starts, end, wanted = _links(raw, size)
            found = self._sound(offset, starts) if starts else None
            if found is not None and len(found.starts):
                yield found
                offset += end if len(found.starts) == len(starts) else starts[len(found.starts)]
            elif found is None and len(raw) < wanted <= self._segment.size() - offset:
                self._buffer = np.empty(-(-wanted // _WORD), np.uint64)
            else:
                following = self._at_end(offset)
                if following is None:
                    return
                offset = following

    def _sound(self, offset: int, starts: list[int]) -> SegmentChunk:
        """The blocks up to the first header that breaks a rule."""
        places = np.array(starts, np.int64) // _WORD
        table = self._buffer[places[:, None] + np.arange(_HEADER_WORDS)].view(HEADER_DTYPE).reshape(-1)
        whole = SegmentChunk(self._segment.file, offset, self._buffer, places, table)
        bad = np.flatnonzero(_breaks_a_rule(table))
        if not len(bad):
            return whole
        return whole.part(0, int(bad[0]))

    def _at_end(self, offset: int) -> int | None:
        """Nothing whole begins here: where to go on, or None at the end of the segment."""
        segment, file = self._segment, self._segment.file
        total = segment.size()
        if offset >= total:
            return None
        found = _judge(os.pread(self._fd, BLOCK_HEADER_BYTES, offset))
        if isinstance(found, int) and offset + found <= total:
            return offset  # It was finished in this moment.
        if not isinstance(found, str) or segment.is_unwritten(offset):
            rest = total - offset
            said = f"{rest} bytes of a truncated block"
            reason = "torn" if self._is_newest else "damage"
            if not self._is_newest:
                said = f"the segment ends within a block, although a later one exists: {said}"
            self._faults.note(SourceFault(str(file.path), reason, said, rest, file.stripe, file.site, offset))
            return None
        following = segment.next_header(offset)
        stop = total if following is None else following
        self._faults.note(SourceFault(str(file.path), "damage", found, stop - offset, file.stripe, file.site, offset))
        return following


def _links(raw: memoryview, size: int) -> tuple[list[int], int, int]:
    """Where whole blocks with sound checksums begin, where the last of them ends, and bytes wanted for the next."""
    starts: list[int] = []
    at = 0
    unpack, check, marker = _LINK.unpack_from, _CHECK.unpack_from, BLOCK_MARKER
    while at + BLOCK_HEADER_BYTES <= size:
        mark, length = unpack(raw, at)
        if mark != marker or crc32(raw[at : at + _SIGNED]) != check(raw, at + _SIGNED)[0]:
            break
        if length % ALIGNMENT or not BLOCK_HEADER_BYTES < length <= _MOST_BLOCK:
            break
        if at + length > size:
            return starts, at, length if size == len(raw) else 0
        starts.append(at)
        at += length
    return starts, at, 0


def _breaks_a_rule(table: Headers) -> npt.NDArray[np.bool_]:
    """`read_block_header`'s rules, for a whole column of headers."""
    messages, tokens = table["messages"].astype(np.int64), table["token_count"].astype(np.int64)
    body = table["payload_bytes"].astype(np.int64)
    length = BLOCK_HEADER_BYTES + messages * DIRECTORY_BYTES + body
    length += -length % ALIGNMENT
    bad = (messages < 1) | (messages > tokens) | (tokens > MAX_MESSAGES_PER_TOKEN)
    bad |= table["place"].astype(np.int64) + messages > tokens
    bad |= table["events"].astype(np.int64) * EVENT_BYTES > body
    proof = table["block_bytes"].astype(np.int64) - length
    bad |= (proof < 0) | (proof % ALIGNMENT != 0) | ((proof > 0) != ((table["flags"] & PROVABLE) != 0))
    bad |= (table["flags"] & ~np.uint32(FETCHED | UNCERTIFIED | PROVABLE)) != 0
    bad |= table["first_sequence"] >= np.uint64(_FIRST_TOO_LARGE)
    return bad


def _judge(raw: bytes) -> str | int | None:
    """What is wrong with a header, or the length of its block; None if not all of it is there."""
    if len(raw) < BLOCK_HEADER_BYTES:
        return None
    try:
        header = read_block_header(raw)
    except RemoteProtocolError as reason:
        return str(reason)
    if header.block_bytes > _MOST_BLOCK or header.first_sequence >= _FIRST_TOO_LARGE:
        return f"a block of {header.block_bytes} bytes from sequence {header.first_sequence} on"
    return header.block_bytes
