"""Reading one segment, or a part of one, for an audit: what a worker does, wherever it runs.

Every byte is checked by `runtime.journal_verify`, whose rules are the journal's own. The same pass makes the digests of
the blocks of messages that begin in the part, and holds each payload against the digest that the ring ordered.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isocast.lake.audit_digests import BlockDigest, StretchDigest
from isocast.lake.audit_journals import SegmentTask
from isocast.runtime.disk.journal_record import JournalRecord
from isocast.runtime.disk.journal_segments import Segment, segment_files
from isocast.runtime.disk.journal_verify import Fault, FaultKind, VerifyReport, verify
from isocast.terms.errors import JournalError, RemoteProtocolError
from isocast.wire.journal import (
    BLOCK_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    BlockHeader,
    pack_block_header,
    read_block_header,
)
from isocast.wire.journal_blocks import BlockView
from isocast.wire.packets import payload_digest

__all__ = ["SegmentRecord", "read_segment"]

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
    faults: list[tuple[str, int, str, int | None, int | None, str]] = field(default_factory=list)
    """Kind, offset, text, first and last sequence, field."""
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
            record.faults.append((fault.kind.value, fault.offset, fault.text, *_span(fault), fault.field))


def _span(fault: Fault) -> tuple[int | None, int | None]:
    """The sequences that a fault is about, as far as the header at its place can be read."""
    if fault.kind in (FaultKind.OVERLAP, FaultKind.SOURCE):
        return fault.sequence, fault.sequence
    try:
        with Path(fault.file).open("rb") as file:
            file.seek(fault.offset)
            header = read_block_header(file.read(BLOCK_HEADER_BYTES))
    except (OSError, RemoteProtocolError):
        return fault.sequence, None
    if fault.kind is FaultKind.GAP:
        return fault.sequence, header.first_sequence - 1
    return header.first_sequence, header.next_sequence - 1


def _is_sound(block: BlockView) -> bool:
    try:
        block.check()
    except RemoteProtocolError:
        return False
    return True


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

    def visit(self, offset: int, block: BlockView) -> None:
        """Take one sound block of the part itself."""
        record, header = self._record, block.header
        if self._last is not None and header.first_sequence != self._last.header.next_sequence:
            self._forget()
        self._last = block
        if not record.first_header:
            record.first_header = pack_block_header(header).hex()
        rows = block.directory
        record.opaque += int(np.count_nonzero(rows["flags"] == 0))
        record.uncertified += header.messages * header.uncertified
        self._sources(offset, block)
        if not header.fetched and self._delays_known.delay_at(header.first_sequence) is None:
            self._delay(offset, header)
        if not rows["source"].all():
            record.unlabelled += header.messages
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
