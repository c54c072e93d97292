"""`format("isocast")`: released events from a folder of journals, or from a server of the network itself.

    spark.read.format("isocast").load("data")                          # one row for each event, with its provenance
    spark.read.format("isocast").option("frame", "messages").load("data")   # one row for each opaque message
    spark.readStream.format("isocast").option("maxRowsPerTrigger", 100_000).load("data")

Columns that a query does not need are left out by `.option("columns", "symbol, price")`. They are never null and say
so, which spares Spark a look at every value; those of `.schema("symbol STRING, price BIGINT")` may be null. Filters are
not handed down: in Spark 4.1 to 4.3 one that was stays on the frame and spoils the next query. Ranges are options.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from isocast.lake.schemas import MESSAGES_SCHEMA, QUARANTINE_SCHEMA, RELEASED_SCHEMA
from isocast.lake.source.archive import ArchiveLanes, ArchivePiece, read_archive
from isocast.lake.source.catalog import (
    JournalFolder,
    Lane,
    Marks,
    SegmentChunk,
    find_journals,
    lanes_of,
    of_other_markets,
    walk_segment,
)
from isocast.lake.source.columns import Part, read_batches, read_parts
from isocast.lake.source.messages import read_messages
from isocast.lake.source.options import END, Offsets, Options, arrow_schema, columns_of, read_options, struct_of
from isocast.lake.source.sink import BatchPublisher, StreamPublisher
from isocast.lake.source_faults import SourceFault, SourceFaults, quarantine_rows, write_faults
from isocast.runtime.disk.journal_segments import SegmentFile
from isocast.terms.errors import ConfigurationError, JournalError
from isocast.terms.ids import describe
from isocast.wire.journal import SEGMENT_HEADER_BYTES, UNCERTIFIED

__all__ = [
    "IsocastSource",
    "LanePiece",
    "Lanes",
    "PiecePartition",
    "SequenceSpan",
    "Tails",
    "advance",
    "compare_journals",
    "cut_lane",
    "cut_segments",
    "insist_on_end",
]


# ---- How far journals reach: asked again and again while they grow, at the price of what is new.


_WHOLE = SEGMENT_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class SequenceSpan:
    """The sequences of a lane or a journal, `stop` behind the last; equal if there are none."""

    first: int
    stop: int


@dataclass(slots=True)
class _Tail:
    """The end of one journal, as far as it was seen."""

    file: SegmentFile | None = None
    offset: int = _WHOLE
    """Behind the last whole block of `file`."""
    stop: int = 0
    trouble: list[SourceFault] = field(default_factory=list)
    """What hides whatever may follow."""
    torn: list[SourceFault] = field(default_factory=list)
    """The beginning of a block at the very end: somebody writes there, or was killed."""


class Tails:
    """The ends of journals; remembers where they were."""

    def __init__(self, marks: Marks) -> None:
        """What is walked over is marked."""
        self._marks = marks
        self._tails: dict[JournalFolder, _Tail] = {}

    def span(self, lane: Lane, faults: SourceFaults) -> SequenceSpan:
        """What the journals of a lane hold together; a fault that hides the lane's end is told."""
        spans = [(journal, self.of_journal(journal)) for journal in lane.journals]
        known = [span for _, span in spans if span.stop]
        if not known:
            for journal, _ in spans:
                self._tell(journal, 0, faults)
            return SequenceSpan(1, 1)
        whole = SequenceSpan(min(span.first for span in known), max(span.stop for span in known))
        for journal, _ in spans:
            self._tell(journal, whole.stop, faults)
        return whole

    def of_journal(self, journal: JournalFolder) -> SequenceSpan:
        """What one journal holds; both 0 if it has nothing whole."""
        files = journal.files()
        tail = self._tails.setdefault(journal, _Tail())
        for file in self._unseen(files, tail):
            is_newest = file is files[-1]
            self._advance(tail, file, is_newest=is_newest)
        if not files or not tail.stop:
            return SequenceSpan(0, 0)
        return SequenceSpan(files[0].first_sequence, tail.stop)

    def _unseen(self, files: list[SegmentFile], tail: _Tail) -> list[SegmentFile]:
        """The segments to walk: from the one that was reached, or the last that has a block."""
        if tail.file is not None:
            return [file for file in files if file.first_sequence >= tail.file.first_sequence]
        for place in range(len(files) - 1, -1, -1):
            trial = _Tail()
            self._advance(trial, files[place], is_newest=place == len(files) - 1)
            if trial.stop:
                return files[place:]
        return files[-1:]

    def _advance(self, tail: _Tail, file: SegmentFile, *, is_newest: bool) -> None:
        seen = SourceFaults(is_strict=False)
        start = tail.offset if tail.file == file else _WHOLE
        last: SegmentChunk | None = None
        for chunk in walk_segment(file, seen, is_newest=is_newest, start=start):
            self._marks.learn(chunk)
            tail.file, tail.stop = file, max(tail.stop, int(chunk.nexts.max()))
            tail.offset = chunk.end
            last = chunk
        behind = 0 if last is None else last.end
        tail.torn = [fault for fault in seen.found if fault.reason == "torn"]
        tail.trouble = [
            fault for fault in seen.found if fault.reason != "torn" and (fault.offset is None or fault.offset >= behind)
        ]

    def _tell(self, journal: JournalFolder, reached: int, faults: SourceFaults) -> None:
        tail = self._tails[journal]
        for fault in tail.torn:
            faults.note(fault)
        for fault in tail.trouble:
            if tail.stop >= reached:
                faults.lost(fault)
            else:
                faults.note(fault)


def insist_on_end(lane: Lane, wanted: int, span: SequenceSpan) -> None:
    """JournalError for a checkpoint that has read more than there is."""
    if wanted > span.stop:
        rule = (
            f"the checkpoint has read stripe {lane.stripe} up to sequence {wanted - 1}, and the journals end with"
            f" {span.stop - 1}: they are another market's, or were lost; give the right folder, wait until receivers"
            " have fetched what they lack, or begin with a new checkpoint"
        )
        raise JournalError(lane.journals[0].path, rule)


# ---- What tasks read: ranges of sequences, cut where segments begin, and within long segments by proportion.


_LEAST_BYTES = 1 << 20
"""Less is not worth a task."""


@dataclass(frozen=True, slots=True)
class LanePiece:
    """A range of a lane: what one task reads."""

    lane: Lane
    first: int
    stop: int
    marks: Marks
    """Where in the segments to begin."""


def cut_lane(
    lane: Lane, wanted: SequenceSpan, tails: Tails, marks: Marks, split_bytes: int, least: int
) -> list[LanePiece]:
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
    return [LanePiece(lane, first, stop, marks.near(first)) for first, stop in pairwise([*cuts, wanted.stop])]


def _bounds(lane: Lane, wanted: SequenceSpan, tails: Tails, level: int = 0) -> Iterator[tuple[int, int, int]]:
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
    yield from _bounds(lane, SequenceSpan(wanted.first, first), tails, level + 1)
    files = journal.files()
    ends = [file.first_sequence for file in files[1:]] + [span.stop]
    for file, end in zip(files, ends, strict=True):
        low, high = max(file.first_sequence, first), min(end, stop)
        if low < high:
            whole = max(end - file.first_sequence, 1)
            yield low, high, _size(file.path) * (high - low) // whole
    yield from _bounds(lane, SequenceSpan(stop, wanted.stop), tails, level + 1)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # Retention took it just now: the task will say what is missing.


def cut_segments(lane: Lane, wanted: SequenceSpan) -> list[LanePiece]:
    """A piece for each segment of a lane that gives what its journal holds, in the journal's own order."""
    pieces = []
    for journal in lane.journals:
        for file in journal.files():
            alone = JournalFolder(journal.stripe, journal.receiver, str(file.path))
            pieces.append(LanePiece(replace(lane, journals=(alone,)), wanted.first, wanted.stop, Marks()))
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
    for part in read_parts(lane, first, stop, SourceFaults(is_strict=False), check=False, marks=marks):
        headers = part.chunk.headers
        yield from zip(headers["instant"].tolist(), part.chunk.nexts.tolist(), headers["events"].tolist(), strict=True)


# ---- one market or two


def compare_journals(
    journals: Sequence[JournalFolder], tails: Tails, marks: Marks, faults: SourceFaults
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
                faults.lost(SourceFault(other.path, "foreign", rule, 1, other.stripe, other.receiver, None, low, high))
                strangers.add(other)
                break
    return strangers


def _identity(journal: JournalFolder, sequence: int, marks: Marks) -> str | None:
    """What assigned a sequence; None where that may differ between receivers of one market, or is not known."""
    lane = Lane("", journal.stripe, (journal,), may_miss=True)
    for part in read_parts(lane, sequence, sequence + 1, SourceFaults(is_strict=False), check=False, marks=marks):
        header = part.chunk.headers[0]
        if header["flags"] & UNCERTIFIED:
            return None
        epoch = f"epoch {header['epoch_number']}.{header['epoch_server']}"
        return f"token {header['token_number']} of {epoch} at {header['instant']}"
    return None


# ---- The state of a reader in the driver: which lanes there are, how far they reach, and what tasks read of them.


class Lanes:
    """The lanes of a folder, looked at again whenever they are asked for: journals come and grow."""

    def __init__(self, options: Options) -> None:
        """Nothing is read yet."""
        self._options = options
        self._marks = Marks()
        self._tails = Tails(self._marks)
        self._compared: tuple[JournalFolder, ...] = ()
        self._strangers: set[JournalFolder] = set()

    def look(self, faults: SourceFaults) -> dict[str, Lane]:
        """By the key of their offsets."""
        options = self._options
        journals = find_journals(*options.paths)
        self._compare(journals, faults)
        kept = [journal for journal in journals if journal not in self._strangers]
        return {lane.key: lane for lane in lanes_of(kept, options.receiver, options.stripes, faults)}

    def _compare(self, journals: list[JournalFolder], faults: SourceFaults) -> None:
        """Once for each set of journals."""
        if tuple(journals) == self._compared:
            return
        self._strangers = of_other_markets(journals, faults)
        for stripe in sorted({journal.stripe for journal in journals}):
            mine = [journal for journal in journals if journal.stripe == stripe]
            self._strangers |= compare_journals(mine, self._tails, self._marks, faults)
        self._compared = tuple(journals)

    def span(self, lane: Lane, faults: SourceFaults) -> SequenceSpan:
        """What there is of a lane, within what was asked for."""
        span = self._tails.span(lane, faults)
        return SequenceSpan(max(span.first, self._options.first), min(span.stop, self._options.stop))

    # ---- batch

    def pieces(self, faults: SourceFaults) -> list[LanePiece]:
        """All that was asked for."""
        options, pieces = self._options, []
        lanes = self.look(faults)
        for lane in lanes.values():
            span = self.span(lane, faults)
            first = options.first or span.first
            if lane.may_miss:
                pieces += cut_segments(lane, SequenceSpan(first, options.stop))
            elif first < span.stop:
                pieces += self._cut(lane, SequenceSpan(first, span.stop), len(lanes))
        return pieces

    def _cut(self, lane: Lane, wanted: SequenceSpan, lanes: int) -> list[LanePiece]:
        options = self._options
        least = -(-options.min_partitions // lanes)
        return cut_lane(lane, wanted, self._tails, self._marks, options.split_bytes, least)

    # ---- stream

    def earliest(self) -> Offsets:
        """The oldest of every lane, or what was asked for."""
        faults = self._options.faults()
        return {
            key: self._options.first or self._tails.span(lane, faults).first for key, lane in self.look(faults).items()
        }

    def latest(self) -> Offsets:
        """Behind the newest of every lane."""
        faults = self._options.faults()
        return {key: self.span(lane, faults).stop for key, lane in self.look(faults).items()}

    def starting(self) -> Offsets:
        """Where a query without a checkpoint begins."""
        chosen = self._options.starting
        if chosen == "earliest":
            return self.earliest()
        if chosen == "latest":
            return self.latest()
        earliest = self.earliest()
        strangers = sorted(set(chosen) - set(earliest))
        if strangers:
            there = ", ".join(earliest)
            rule = f"there is no stripe {strangers[0]!r}; there are {there}"
            raise ConfigurationError("format isocast", "startingOffsets", rule)
        return {**earliest, **{key: max(at, 1) for key, at in chosen.items()}}

    def reach(self, start: Offsets, target: Offsets | None, rows: int) -> Offsets:
        """How far the next batch goes; `rows` 0 is all that there is."""
        faults = self._options.faults()
        lanes = self.look(faults)
        self._insist(lanes, start)
        begin, end = dict(start), dict(start)
        for key, lane in lanes.items():
            span = self._tails.span(lane, faults)
            if key not in begin:
                begin[key] = self._options.first or span.first
            insist_on_end(lane, begin[key], span)
            stop = min(span.stop, self._options.stop, END if target is None else target.get(key, 0))
            end[key] = max(stop, begin[key])
        if not rows:
            return end
        return {**begin, **advance(lanes, begin, end, rows, self._marks)}

    def between(self, start: Offsets, end: Offsets) -> list[LanePiece]:
        """What a batch reads."""
        faults = self._options.faults()
        lanes = self.look(faults)
        self._insist(lanes, end)
        pieces: list[LanePiece] = []
        for key, stop in end.items():
            lane = lanes[key]
            span = self._tails.span(lane, faults)
            insist_on_end(lane, stop, span)
            first = start.get(key) or self._options.first or span.first
            if lane.may_miss and first < stop:
                pieces.append(LanePiece(lane, first, stop, self._marks.near(first)))
            elif first < stop:
                pieces += self._cut(lane, SequenceSpan(first, stop), len(end))
        return pieces

    def _insist(self, lanes: dict[str, Lane], offsets: Offsets) -> None:
        missing = sorted(set(offsets) - set(lanes))
        if missing:
            rule = (
                f"the checkpoint has read stripe {', '.join(missing)}, of which there is no journal here: give the"
                " folder and the options that it was made with, or begin with a new checkpoint"
            )
            raise JournalError(", ".join(self._options.paths), rule)


class PiecePartition(InputPartition):
    """What one task reads."""

    def __init__(self, piece: LanePiece | ArchivePiece | None, planned: tuple[SourceFault, ...] = ()) -> None:
        """A piece, and the faults that were found while planning; without a piece they are all that it gives."""
        super().__init__(None)
        self.piece = piece
        self.planned = planned


def _read(partition: InputPartition, options: Options, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one task, and a note of what is not among them."""
    if not isinstance(partition, PiecePartition):
        return
    faults = options.faults()
    piece = partition.piece
    if piece is None:
        found = list(partition.planned)
    else:
        parts = _parts(piece, faults)
        if options.frame == "quarantine":
            for _ in read_batches(parts, RELEASED_SCHEMA, faults):
                pass
        elif options.frame == "messages":
            yield from read_messages(parts, schema, faults, options.topics)
        else:
            yield from read_batches(parts, schema, faults, options.symbols)
        # An unfinished end is the planner's to tell: in a journal that is being written every task meets one.
        found = [fault for fault in faults.found if fault.reason != "torn" and fault not in partition.planned]
    if options.frame == "quarantine":
        if found:
            yield quarantine_rows(found).select(schema.names).cast(schema)
    elif options.quarantine:
        write_faults(Path(options.quarantine), found)


def _parts(piece: LanePiece | ArchivePiece, faults: SourceFaults) -> Iterator[Part]:
    if isinstance(piece, ArchivePiece):
        return read_archive(piece, faults)
    return read_parts(piece.lane, piece.first, piece.stop, faults, marks=piece.marks)


class _BatchReader(DataSourceReader):
    """Reads what is there now."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        faults = self._options.faults()
        lanes = _lanes(self._options)
        pieces = lanes.pieces() if isinstance(lanes, ArchiveLanes) else lanes.pieces(faults)
        planned = tuple(faults.found)
        found: list[InputPartition] = [PiecePartition(piece, planned) for piece in pieces]
        if planned and (self._options.quarantine or self._options.frame == "quarantine"):
            found.append(PiecePartition(None, planned))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options, self._schema)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes: an offset is the next sequence of every stripe."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._lanes: Lanes | ArchiveLanes | None = None
        self._target: Offsets | None = None

    @property
    def lanes(self) -> Lanes | ArchiveLanes:
        """Made when it is first needed: a reader that tasks get has none."""
        if self._lanes is None:
            self._lanes = _lanes(self._options)
        return self._lanes

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's names
        return self.lanes.starting()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self.lanes.latest()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        return self.lanes.reach(start, self._target, rows)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        return self.lanes.latest()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return [PiecePartition(piece) for piece in self.lanes.between(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options, self._schema)


class IsocastSource(DataSource):
    """Released events of a market; docs/reference/lake-schema.md lists columns and options."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "isocast"

    def schema(self) -> StructType:
        """All columns, or those of the option `columns`; a reader's own schema goes before."""
        return struct_of(columns_of(self.options, _allowed(self._read_options())))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch."""
        options = self._read_options()
        return _BatchReader(options, arrow_schema(schema, _allowed(options), self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A stream."""
        options = self._read_options()
        return _StreamReader(options, arrow_schema(schema, _allowed(options), self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - as Spark calls it
        """Publish a frame as a floor, once."""
        _refuse(overwrite=overwrite)
        return BatchPublisher(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001
        """Publish the batches of a query as a floor, each once."""
        _refuse(overwrite=overwrite)
        return StreamPublisher(self.options, schema)

    def _read_options(self) -> Options:
        return read_options(self.options)


def _refuse(*, overwrite: bool) -> None:
    if overwrite:
        raise ConfigurationError("format isocast", "mode", "append alone: what was published cannot be taken back")


def _lanes(options: Options) -> Lanes | ArchiveLanes:
    return ArchiveLanes(options) if options.market else Lanes(options)


def _allowed(options: Options) -> pa.Schema:
    return {"quarantine": QUARANTINE_SCHEMA, "messages": MESSAGES_SCHEMA, "released": RELEASED_SCHEMA}[options.frame]
