"""Reading journals for an audit: which there are, tasks for their segments, and digests of canonical blocks.

Every byte is checked by `journal_verify`, every block by the rules of `isocast.checks.journals`. The same pass makes
the digests of the blocks of messages that begin in the part, and holds each payload against the digest that the ring
ordered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from isocast.checks.journals import FaultKind
from isocast.lake.source.catalog import market_of
from isocast.runtime.disk.journal_record import JournalRecord, read_record
from isocast.runtime.disk.journal_segments import Segment, SegmentFile, segment_files
from isocast.runtime.disk.journal_verify import JournalFault, VerifyReport, verify
from isocast.security.witness import resealed
from isocast.terms.errors import ConfigurationError, JournalError, RemoteProtocolError
from isocast.terms.ids import describe
from isocast.terms.places import local_path
from isocast.wire.journal import (
    BLOCK_HEADER_BYTES,
    DIRECTORY_BYTES,
    SEGMENT_HEADER_BYTES,
    SEGMENT_SUFFIX,
    BlockHeader,
    pack_block_header,
    read_block_header,
    segment_of_name,
)
from isocast.wire.journal_blocks import DIRECTORY_OFFSETS, IS_EVENTS, BlockView
from isocast.wire.journal_proofs import NO_SEAL, MessageSeal
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.opaque import read_opaque_or_none
from isocast.wire.packets import payload_digest

__all__ = [
    "PART_BYTES",
    "BlockDigest",
    "HeldJournal",
    "PartStart",
    "SegmentRecord",
    "SegmentTask",
    "StretchDigest",
    "find_journals",
    "plan_tasks",
    "read_segment",
]


# The digest of a block of messages: of their canonical content, however a site cut it into tokens and segments.
#
# A block of N messages is a stretch of the sequence that begins at a multiple of N, so that receivers are compared
# without any of them knowing the others. Five streams are hashed apart, since a journal keeps events and other payloads
# apart: labels (source, number, the ring's digest, the shuffle key), lengths, events, opaque payloads, and the schedule
# (epoch, token, T_t). What is a site's own, its release time and clock, is in none of them.


_BYTES = 16
_LABEL = slice(0, DIRECTORY_OFFSETS["first_event"])
"""Columns of a directory's row: source, number, digest."""
_LENGTH = slice(DIRECTORY_OFFSETS["length"], DIRECTORY_OFFSETS["reserved"])
"""Length and flags."""
_SCHEDULE = Struct("<IIQq")


class BlockDigest(NamedTuple):
    """What one receiver holds of one block of messages."""

    block: int
    first_sequence: int
    last_sequence: int
    messages: int
    labels: str
    """Empty where a message's source is not known: lines do not tell it."""
    contents: str
    schedule: str


class StretchDigest:
    """Grows message by message, in the order of the journal."""

    def __init__(self, block: int) -> None:
        """Of an empty block."""
        self.block = block
        self.messages = 0
        self._first = self._last = 0
        self._labelled = True
        self._labels, self._lengths, self._events, self._opaque, self._schedule = (
            blake2b(digest_size=_BYTES) for _ in range(5)
        )

    def add(self, block: BlockView, start: int, stop: int) -> None:
        """Take the messages at some places of a journal's block."""
        header, raw = block.header, block.raw
        rows = block.directory[start:stop]
        count = stop - start
        table = np.frombuffer(raw, np.uint8, header.messages * DIRECTORY_BYTES, BLOCK_HEADER_BYTES)
        table = table.reshape(-1, DIRECTORY_BYTES)[start:stop]
        if self.messages == 0:
            self._first = header.first_sequence + start
        self._last = header.first_sequence + stop - 1
        self.messages += count
        self._labelled = self._labelled and bool(rows["source"].all())
        # One stream has one row for each message: what follows must not depend on where a journal cut its blocks.
        labels = np.empty((count, _LABEL.stop + len(header.shuffle_key)), np.uint8)
        labels[:, _LABEL] = table[:, _LABEL]
        labels[:, _LABEL.stop :] = np.frombuffer(header.shuffle_key, np.uint8)
        self._labels.update(labels.tobytes())
        self._lengths.update(table[:, _LENGTH].tobytes())
        self._schedule.update(
            _SCHEDULE.pack(header.epoch_number, header.epoch_server, header.token_number, header.instant) * count
        )
        payloads = BLOCK_HEADER_BYTES + header.messages * DIRECTORY_BYTES
        first, last = int(rows["first_event"][0]), int(rows["first_event"][-1]) + int(rows["events"][-1])
        self._events.update(raw[payloads + first * EVENT_BYTES : payloads + last * EVENT_BYTES])
        opaque = rows[rows["flags"] != IS_EVENTS]
        if len(opaque):
            begin, end = int(opaque["offset"][0]), int(opaque["offset"][-1]) + int(opaque["length"][-1])
            self._opaque.update(raw[payloads + begin : payloads + end])

    def finish(self) -> BlockDigest:
        """What it came to."""
        contents = blake2b(digest_size=_BYTES)
        for stream in (self._lengths, self._events, self._opaque):
            contents.update(stream.digest())
        return BlockDigest(
            self.block,
            self._first,
            self._last,
            self.messages,
            self._labels.hexdigest() if self._labelled else "",
            contents.hexdigest(),
            self._schedule.hexdigest(),
        )


# Which journals lie in a folder, whose they are, and the tasks that read them: one for each segment, or part of
# one.
#
# A long segment is cut into parts between two of its blocks, which the driver finds by skipping from header to header.
# One in which that is not possible, since a header is damaged or sequences are not contiguous, is read by one task.


PART_BYTES = 16 << 20
"""Of a segment: what a task reads in about a second."""
_PARTS_ENOUGH = 256


@dataclass(frozen=True, slots=True)
class HeldJournal:
    """One receiver's journal of one stripe."""

    stripe: int
    receiver: int
    directory: str
    name: str
    """The node's name where its folder tells, else its id in words."""
    files: tuple[SegmentFile, ...]
    aside: tuple[str, ...] = ()
    """Files that were set aside, or never finished: not part of the journal."""
    record: JournalRecord | None = None
    """What the journal says of itself."""
    record_fault: str = ""
    """What is wrong with that."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Its segments, oldest first."""
        return tuple(str(file.path) for file in self.files)


class PartStart(NamedTuple):
    """Where a part of a journal begins."""

    path: str
    offset: int
    """Of its first block."""
    first_sequence: int


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment to read, or a part of it, and where to read on until its last block of messages is whole."""

    stripe: int
    receiver: int
    start: PartStart
    stop: int | None
    """Where the next part of the same segment begins; None: it is read to its end."""
    following: tuple[PartStart, ...]
    """Parts behind it that may hold the rest of a block of messages that begins in it."""
    next_sequence: int | None
    """Where what follows begins; None for the newest."""
    is_oldest: bool
    block_messages: int
    delays: tuple[tuple[int, int], ...] = ()
    """From which sequence on which Δ_A, as far as that is known."""

    def to_json(self) -> str:
        """As a row's cell."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> SegmentTask:
        """Back from a cell."""
        fields: dict[str, Any] = json.loads(text)
        following = tuple(PartStart(*each) for each in fields["following"])
        delays = tuple((first, delay_ns) for first, delay_ns in fields["delays"])
        return cls(**{**fields, "start": PartStart(*fields["start"]), "following": following, "delays": delays})


def find_journals(where: Path) -> list[HeldJournal]:
    """Every journal below a folder, by stripe and receiver; ConfigurationError if two markets lie there."""
    where = local_path(where, "command line", "--journals")
    if not where.is_dir():
        raise ConfigurationError(str(where), "--journals", "no such folder")
    folders: dict[tuple[int, int, str], list[SegmentFile]] = {}
    aside: dict[str, list[str]] = {}
    for path in sorted(where.rglob(f"*{SEGMENT_SUFFIX}*")):
        parsed = segment_of_name(path.name)
        if parsed is not None and path.is_file():
            stripe, site, first = parsed
            folders.setdefault((stripe, site, str(path.parent)), []).append(SegmentFile(first, path, stripe, site))
        elif segment_of_name(path.name.partition(SEGMENT_SUFFIX)[0] + SEGMENT_SUFFIX) is not None:
            aside.setdefault(str(path.parent), []).append(str(path))
    if not folders:
        raise ConfigurationError(str(where), "--journals", f"holds no segment of a journal (*{SEGMENT_SUFFIX})")
    _insist_on_one_market(where, list(folders))
    return [
        HeldJournal(
            stripe,
            site,
            directory,
            _name(where, site, directory),
            tuple(sorted(files)),
            _aside(aside, directory),
            *_record(stripe, site, directory),
        )
        for (stripe, site, directory), files in sorted(folders.items())
    ]


def _record(stripe: int, site: int, directory: str) -> tuple[JournalRecord | None, str]:
    try:
        return read_record(Path(directory), stripe, site), ""
    except JournalError as damage:
        return None, damage.rule


def _aside(aside: dict[str, list[str]], directory: str) -> tuple[str, ...]:
    return tuple(aside.get(directory, ()))


def _insist_on_one_market(where: Path, owners: Sequence[tuple[int, int, str]]) -> None:
    """A site has one journal of a stripe, and all nodes belong to one market."""
    known: dict[tuple[int, int], str] = {}
    for stripe, site, directory in owners:
        other = known.setdefault((stripe, site), directory)
        if other != directory:
            rule = (
                f"{describe(site)} has two journals of stripe {stripe}, {other} and {directory}: "
                "two markets are mixed here, or a copy lies beside its original; give each a folder of its own"
            )
            raise ConfigurationError(str(where), "--journals", rule)
    markets: dict[str, str] = {}
    for _, _, directory in owners:
        market = market_of(Path(directory))
        if market is not None:
            markets.setdefault(market, directory)
    if len(markets) > 1:
        listed = ", ".join(f'"{market}" ({directory})' for market, directory in sorted(markets.items()))
        raise ConfigurationError(str(where), "--journals", f"journals of two markets are mixed here: {listed}")


def _name(where: Path, site: int, directory: str) -> str:
    folder = Path(directory)
    folder = folder.parent if folder.name == "journal" else folder
    return describe(site) if folder == where else folder.name


def plan_tasks(
    journals: Sequence[HeldJournal],
    block_messages: int,
    part_bytes: int = PART_BYTES,
    release_delay_ns: int | None = None,
) -> list[SegmentTask]:
    """A task for each segment, or part of one. A block of messages belongs to the part in which it begins.

    Δ_A is what the market's file says, if it was given, else what each journal records.
    """
    total = sum(_size(file.path) for journal in journals for file in journal.files)
    # Parts are for balance: where there are many segments anyway, none has to be looked through for places to cut.
    part_bytes = max(part_bytes, total // _PARTS_ENOUGH)
    tasks = []
    for journal in journals:
        recorded = journal.record.delays if journal.record is not None else ()
        delays = recorded if release_delay_ns is None else ((0, release_delay_ns),)
        starts = [start for file in journal.files for start in _starts(file, part_bytes)]
        for place, start in enumerate(starts):
            following = starts[place + 1 :]
            in_segment = bool(following) and following[0].path == start.path
            tasks.append(
                SegmentTask(
                    journal.stripe,
                    journal.receiver,
                    start,
                    following[0].offset if in_segment else None,
                    tuple(_reached(following, block_messages)),
                    following[0].first_sequence if following else None,
                    place == 0,
                    block_messages,
                    delays,
                )
            )
    return tasks


def _starts(file: SegmentFile, part_bytes: int) -> list[PartStart]:
    """Where the parts of a segment begin: one, unless it is long and its blocks follow one another."""
    starts = [PartStart(str(file.path), SEGMENT_HEADER_BYTES, file.first_sequence)]
    if _size(file.path) < 2 * part_bytes:
        return starts
    expected, begin = file.first_sequence, SEGMENT_HEADER_BYTES
    cuts: list[PartStart] = []
    try:
        with Segment(file) as segment:
            for offset, header in segment.headers():
                if header.first_sequence != expected:
                    return starts
                expected = header.next_sequence
                if offset - begin >= part_bytes:
                    cuts.append(PartStart(str(file.path), offset, header.first_sequence))
                    begin = offset
    except JournalError:
        return starts  # The task that reads it says what is wrong.
    return starts + cuts


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _reached(following: Sequence[PartStart], block_messages: int) -> list[PartStart]:
    """Parts that may hold the rest of the block in which the first of them begins."""
    if not following:
        return []
    end = -(-following[0].first_sequence // block_messages) * block_messages
    return [start for start in following if start.first_sequence < end]


_FAULTS_MAX = 200
_DELAYS_MAX = 8
_SEALED_AFTER = 256
"""Payloads whose digest is not their own, and none whose is: the market seals, so nothing can be learned here."""


@dataclass(slots=True)
class SegmentRecord:
    """What is known of one segment, or of a part of it; everything in it is JSON."""

    stripe: int
    receiver: int
    path: str
    offset: int
    """Where its first block begins."""
    bytes: int = 0
    blocks: int = 0
    messages: int = 0
    events: int = 0
    opaque: int = 0
    floors: list[str] = field(default_factory=list)
    """Codes of trading floors among the first opaque messages."""
    fetched: int = 0
    uncertified: int = 0
    unfinished: int = 0
    """Bytes behind the last whole block."""
    reached: int = 0
    """Where these begin."""
    refused: str = ""
    """Why nothing of it could be read."""
    first_header: str = ""
    last_header: str = ""
    faults: list[tuple[str, int, str, int | None, int | None, str, str]] = field(default_factory=list)
    """Kind, offset, text, first and last sequence, field, property."""
    fault_counts: dict[str, int] = field(default_factory=dict)
    first_numbers: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """For each source its first number, with sequence and offset; only of sources met before `forgot`."""
    last_numbers: dict[str, int] = field(default_factory=dict)
    """For each source its last number, since `forgot`."""
    forgot: bool = False
    """Sequences are missing inside, or messages whose sources are not told: numbers need not follow over that."""
    digests: list[BlockDigest] = field(default_factory=list)
    unjudged_delays: int = 0
    """Blocks that the site released itself, and of which nobody says what Δ_A was."""
    delays: dict[str, int] = field(default_factory=dict)
    """Of these: due - T_t of the first block of each token, by how often."""
    least_delay: tuple[int, int, int] | None = None
    """Of these: the smallest due - T_t, with its sequence and offset."""
    unlabelled: int = 0
    """Messages whose source nobody told."""
    sealed: int = 0
    """Messages of known sources whose payload cannot be held against the digest that was ordered."""
    own_digests: int = 0
    """Payloads whose digest is the one that was ordered: only where nothing is sealed."""
    foreign_digests: list[tuple[int, int]] = field(default_factory=list)
    """Sequence and offset of payloads whose digest is another."""
    foreign_more: int = 0
    """Further ones, which are not listed."""
    forged: list[tuple[int, int]] = field(default_factory=list)
    """Sequence and offset of payloads that are not what was ordered, by the seal keys that the journal keeps."""
    forged_more: int = 0

    def to_json(self) -> str:
        """As a row's cell."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> SegmentRecord:
        """Back from a cell."""
        fields: dict[str, Any] = json.loads(text)
        fields["digests"] = [BlockDigest(*row) for row in fields["digests"]]
        return cls(**fields)

    @property
    def first(self) -> BlockHeader | None:
        """The header of its first sound block."""
        return read_block_header(bytes.fromhex(self.first_header)) if self.first_header else None

    @property
    def last(self) -> BlockHeader | None:
        """The header of its last sound block."""
        return read_block_header(bytes.fromhex(self.last_header)) if self.last_header else None


def read_segment(task: SegmentTask) -> SegmentRecord:
    """Check a part, digest what begins in it, and read on where its last block of messages ends elsewhere."""
    start = task.start
    record = SegmentRecord(task.stripe, task.receiver, start.path, start.offset)
    walk = _Walk(task, record)
    try:
        record_of = JournalRecord(delays=task.delays)
        report = verify(Path(start.path), visit=walk.visit, start=start.offset, stop=task.stop, record=record_of)
    except (JournalError, OSError) as reason:
        record.refused = str(reason)
        return record
    _keep(record, report, task)
    walk.end()
    walk.read_on()
    walk.finish()
    return record


def _keep(record: SegmentRecord, report: VerifyReport, task: SegmentTask) -> None:
    end = report.bytes if task.stop is None else task.stop
    record.bytes = end - (task.start.offset if task.start.offset > SEGMENT_HEADER_BYTES else 0)
    record.blocks, record.messages = report.blocks, report.messages
    record.events, record.fetched, record.unfinished = report.events, report.fetched_messages, report.unfinished_bytes
    record.reached = report.bytes - report.unfinished_bytes
    record.unjudged_delays = report.unjudged_delays
    record.fault_counts = {kind.value: count for kind, count in report.counts.items()}
    for fault in report.faults[:_FAULTS_MAX]:
        if fault.kind is FaultKind.DAMAGE and fault.offset == 0:
            # The file's own header: nothing behind it can be trusted, whatever it is.
            record.refused = fault.text
            record.fault_counts.pop(FaultKind.DAMAGE.value)
        else:
            record.faults.append((fault.kind.value, fault.offset, fault.text, *_span(fault), fault.field, fault.law))


def _span(fault: JournalFault) -> tuple[int | None, int | None]:
    """The sequences that a fault is about, as far as the header at its place can be read."""
    if fault.kind is not FaultKind.DAMAGE:
        return fault.sequence, fault.last_sequence
    try:
        with Path(fault.file).open("rb") as file:
            file.seek(fault.offset)
            header = read_block_header(file.read(BLOCK_HEADER_BYTES))
    except (OSError, RemoteProtocolError):
        return fault.sequence, None
    return header.first_sequence, header.next_sequence - 1


def _is_sound(block: BlockView) -> bool:
    try:
        block.check()
    except RemoteProtocolError:
        return False
    return True


_TOPICS_READ = 1_024
"""Opaque messages of a part whose topics are looked at: whether there is a floor, some of them tell."""


class _Walk:
    """One pass over the sound blocks."""

    def __init__(self, task: SegmentTask, record: SegmentRecord) -> None:
        self._task = task
        self._record = record
        size, first = task.block_messages, task.start.first_sequence
        self._first_block = first // size if task.is_oldest else -(-first // size)
        following = task.next_sequence
        self._end_block = None if following is None else -(-following // size)
        """Blocks from here on begin in a later part."""
        self._open: StretchDigest | None = None
        self._last: BlockView | None = None
        self._delays: Counter[int] = Counter()
        self._delays_known = JournalRecord(delays=task.delays)
        self._sealed = False
        self._tried = 0
        self._topics_left = _TOPICS_READ

    def _note_floors(self, block: BlockView, places: list[int]) -> None:
        """Whose orders these messages are: a floor's trades are judged by others, who have to be told of it."""
        self._topics_left -= len(places)
        for place in places:
            for message in read_opaque_or_none(block.payload(place)) or ():
                code = message.topic.removeprefix("floor/")
                if code != message.topic and "/" not in code and code not in self._record.floors:
                    self._record.floors.append(code)

    def visit(self, offset: int, block: BlockView) -> None:
        """Take one sound block of the part itself."""
        record, header = self._record, block.header
        if self._last is not None and header.first_sequence != self._last.header.next_sequence:
            self._forget()
        self._last = block
        if not record.first_header:
            record.first_header = pack_block_header(header).hex()
        rows = block.directory
        opaque = np.flatnonzero(rows["flags"] == 0)
        record.opaque += len(opaque)
        self._note_floors(block, opaque[: self._topics_left].tolist())
        record.uncertified += header.messages * header.uncertified
        self._sources(offset, block)
        if not header.fetched and self._delays_known.delay_at(header.first_sequence) is None:
            self._delay(offset, header)
        if not rows["source"].all():
            record.unlabelled += header.messages
        elif (proof := block.proof()) is not None and proof.seals:
            self._sealed_contents(offset, block, proof.seals)
        elif self._sealed:
            record.sealed += header.messages
        else:
            self._contents(offset, block)
        self._digest(block)

    def _sources(self, offset: int, block: BlockView) -> None:
        """The numbers between which what follows, or went before, must fit; by the rules of `verify`."""
        rows, record = block.directory, self._record
        if block.header.fetched and not rows["source"].all():
            self._forget()
            return
        newest = dict(zip(rows["source"].tolist(), rows["number"].tolist(), strict=True))
        for source, number in newest.items():
            if not source:
                continue
            if not record.forgot and str(source) not in record.first_numbers:
                at = int(np.argmax(rows["source"] == source))
                record.first_numbers[str(source)] = int(rows["number"][at]), block.header.first_sequence + at, offset
            record.last_numbers[str(source)] = number

    def _forget(self) -> None:
        self._record.forgot = True
        self._record.last_numbers.clear()

    def _delay(self, offset: int, header: BlockHeader) -> None:
        delay = header.due - header.instant
        if header.place == 0 and (delay in self._delays or len(self._delays) < 1 << 12):
            self._delays[delay] += 1
        least = self._record.least_delay
        if least is None or delay < least[0]:
            self._record.least_delay = delay, header.first_sequence, offset

    def _contents(self, offset: int, block: BlockView) -> None:
        """Whether each payload is what the ring's digest says: unknowable where payloads were sealed."""
        record = self._record
        for sequence, (_, _, digest, payload) in zip(block.sequences, block.messages(), strict=True):
            if payload_digest(payload) == digest:
                record.own_digests += 1
            elif len(record.foreign_digests) < _FAULTS_MAX + _SEALED_AFTER:
                record.foreign_digests.append((sequence, offset))
            else:
                record.foreign_more += 1
            self._tried += 1
        if not record.own_digests and self._tried >= _SEALED_AFTER:
            self._sealed = True
            record.sealed = self._tried
            record.foreign_digests.clear()

    def _sealed_contents(self, offset: int, block: BlockView, seals: Sequence[MessageSeal]) -> None:
        """The same where the journal keeps the keys: what is sealed again must be what was ordered."""
        record, stripe = self._record, self._task.stripe
        for sequence, seal, message in zip(block.sequences, seals, block.messages(), strict=True):
            source, number, digest, payload = message
            if seal == NO_SEAL:
                record.sealed += 1
            elif payload_digest(resealed(seal, stripe, (source, number), payload)) != digest:
                record.forged_more += len(record.forged) >= _FAULTS_MAX
                record.forged += [(sequence, offset)] * (len(record.forged) < _FAULTS_MAX)

    # Digests ------------------------------------------------------------------------------------

    def _digest(self, block: BlockView) -> None:
        size, header = self._task.block_messages, block.header
        start = 0
        while start < header.messages:
            number = (header.first_sequence + start) // size
            stop = min((number + 1) * size - header.first_sequence, header.messages)
            if number >= self._first_block and (self._end_block is None or number < self._end_block):
                self._take(number, block, start, stop)
            start = stop

    def _take(self, number: int, block: BlockView, start: int, stop: int) -> None:
        if self._open is None or self._open.block != number:
            self.finish()
            self._open = StretchDigest(number)
        self._open.add(block, start, stop)

    def end(self) -> None:
        """The part itself is over."""
        if self._last is not None:
            self._record.last_header = pack_block_header(self._last.header).hex()

    def read_on(self) -> None:
        """The rest of the last block of messages, from later parts; their own tasks say what is wrong with them."""
        size, last = self._task.block_messages, self._end_block
        if last is None or last <= self._first_block:
            return
        end = last * size
        for place, part in enumerate(self._task.following):
            rest = self._task.following[place + 1 :]
            stop = rest[0].offset if rest and rest[0].path == part.path else None
            try:
                with Segment(segment_files(Path(part.path))[0]) as segment:
                    for offset, block in segment.blocks(part.offset):
                        if (stop is not None and offset >= stop) or block.header.first_sequence >= end:
                            break
                        if _is_sound(block):
                            stop_at = min(block.header.messages, end - block.header.first_sequence)
                            self._take(last - 1, block, 0, stop_at)
            except JournalError:
                return

    def finish(self) -> None:
        """Close the block that is open."""
        if self._open is not None:
            self._record.digests.append(self._open.finish())
            self._open = None
        self._record.delays = {str(delay): count for delay, count in self._delays.most_common(_DELAYS_MAX)}
