"""Read a whole journal and find everything that is wrong with it; set damage aside so that a node can fill it again."""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from isocast.checks.journals import Breach, FaultKind, JournalWalk
from isocast.checks.shuffles import Shuffles, ShuffleWalk
from isocast.checks.vouchers import Vouched, VoucherWalk
from isocast.runtime.disk.journal_record import JournalRecord, missing_beginning, read_record
from isocast.runtime.disk.journal_segments import Segment, SegmentFile, segment_files
from isocast.terms.errors import JournalError, RemoteProtocolError
from isocast.terms.ids import is_site
from isocast.wire.journal import (
    BLOCK_HEADER_BYTES,
    DIRECTORY_BYTES,
    SEGMENT_HEADER_BYTES,
    SEGMENT_SUFFIX,
    BlockHeader,
    segment_of_name,
)
from isocast.wire.journal_blocks import DIRECTORY_OFFSETS, BlockView
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.packets import DIGEST_BYTES

__all__ = [
    "BlockVisitor",
    "JournalFault",
    "Prover",
    "SetAside",
    "VerifyReport",
    "set_aside_blocks",
    "set_aside_end",
    "set_damage_aside",
    "verify",
]


_FAULTS_KEPT = 1_000
"""Of each report; all are counted."""
_LABEL_BYTES = DIRECTORY_OFFSETS["first_event"]
"""The first three columns of a directory: source, number and digest."""
_PROGRESS_BYTES = 4 << 20

Prover: TypeAlias = Callable[[int], VoucherWalk]
"""Makes the judge of S17 for the journal of a stripe."""
BlockVisitor: TypeAlias = Callable[[int, BlockView], None]
"""Told the offset and the view of every sound block, in order."""


class JournalFault(NamedTuple):
    """One thing that is wrong, and where."""

    kind: FaultKind
    file: str
    offset: int
    text: str
    sequence: int | None = None
    """The first message that it concerns, where that is known."""
    field: str = ""
    """Of the block, if it is about one."""
    last_sequence: int | None = None
    law: str = ""
    """The property that it breaks; none where bytes are damaged."""

    def __str__(self) -> str:
        """One line."""
        law = f" ({self.law})" if self.law else ""
        return f"{self.kind}{law}: {self.file}: byte {self.offset}: {self.text}"


@dataclass(slots=True)
class VerifyReport:
    """What a journal holds and what is wrong with it."""

    segments: int = 0
    blocks: int = 0
    messages: int = 0
    events: int = 0
    bytes: int = 0
    first_sequence: int | None = None
    next_sequence: int | None = None
    fetched_messages: int = 0
    """Of all messages: those that the site did not release, but fetched from another's archive."""
    unfinished_bytes: int = 0
    """At the end of the newest segment: a writer is at work there, or was killed. No fault."""
    labels_digest: str = ""
    """Over source, number and digest of every message in order: equal where two sites released the same."""
    events_digest: str = ""
    """Over the records of all events in order."""
    counts: Counter[FaultKind] = field(default_factory=Counter)
    """How many faults of each kind."""
    faults: list[JournalFault] = field(default_factory=list)
    """The first thousand."""
    record: JournalRecord | None = None
    """What the journal says of itself: where it begins and why, and what Δ_A was."""
    unjudged_delays: int = 0
    """Blocks of a site's own of which nobody says what Δ_A was: they are held to their own instant alone."""
    shuffles: Shuffles = field(default_factory=Shuffles)
    """Tokens that stand in the order of their keys."""
    vouched: Vouched | None = None
    """What a majority vouched for; None if nobody asked."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.counts


def verify(
    where: Path,
    progress: Callable[[int, int], None] | None = None,
    visit: BlockVisitor | None = None,
    *,
    start: int = SEGMENT_HEADER_BYTES,
    stop: int | None = None,
    record: JournalRecord | None = None,
    prover: Prover | None = None,
) -> VerifyReport:
    """Check every byte of a directory or a segment; `progress` is told bytes done and bytes in all.

    Of one segment, `start` and `stop` choose the blocks that begin at or behind the one, and before the other. The
    journal's own record says where it begins and what Δ_A was, unless another `record` is given. With a `prover` what a
    majority vouched for is proven, too (S17).
    """
    found = _Verifier(segment_files(where), progress, visit, start, stop)
    found.prove_with(prover)
    found.take_record(where if where.is_dir() else where.parent, record)
    if where.is_dir():
        found.judge_beginning()
    return found.run()


class _Verifier:
    """One walk over all blocks."""

    def __init__(
        self,
        files: list[SegmentFile],
        progress: Callable[[int, int], None] | None,
        visit: BlockVisitor | None,
        start: int,
        stop: int | None,
    ) -> None:
        self.report = VerifyReport()
        self._files = files
        self._start = start
        self._stop = stop
        self._progress = progress
        self._visit = visit
        self._walk = JournalWalk()
        self._shuffles = ShuffleWalk()
        self.report.shuffles = self._shuffles.report
        self._vouchers: VoucherWalk | None = None
        self._is_site = True
        self._labels = blake2b(digest_size=DIGEST_BYTES)
        self._events = blake2b(digest_size=DIGEST_BYTES)
        self._path = ""
        self._offset = 0

    def prove_with(self, prover: Prover | None) -> None:
        """Hold every block against what its journal keeps to be proven by."""
        if prover is not None and self._files:
            self._vouchers = prover(self._files[0].stripe)
            self.report.vouched = self._vouchers.report

    def take_record(self, directory: Path, given: JournalRecord | None) -> None:
        """The journal's own record, or a given one in its place."""
        self.report.record = given
        if given is None and self._files:
            first = self._files[0]
            try:
                self.report.record = read_record(directory, first.stripe, first.site)
            except JournalError as damage:
                self._path = damage.file
                self._damage(damage.rule)

    def judge_beginning(self) -> None:
        """A journal begins with sequence 1, or where its record says: else its first segments are gone (S2)."""
        record, is_damaged = self.report.record, bool(self.report.counts)
        fault = missing_beginning(record, self._files[0].first_sequence) if self._files else None
        if fault is not None and not is_damaged:
            self._path = str(self._files[0].path)
            begins, found = (record or JournalRecord()).first_sequence, self._files[0].first_sequence
            self._breach(Breach(FaultKind.GAP, "S2", fault, begins, found - 1), SEGMENT_HEADER_BYTES)

    def run(self) -> VerifyReport:
        report = self.report
        sizes = [file.path.stat().st_size for file in self._files]
        total, done = sum(sizes), 0
        for file, size in zip(self._files, sizes, strict=True):
            report.segments += 1
            report.bytes += size
            self._path = str(file.path)
            try:
                with Segment(file) as segment:
                    if self._start == SEGMENT_HEADER_BYTES and self._walk.next_sequence is None:
                        # The first block is the one that the file's name and header say, or it is gone.
                        self._walk.next_sequence = file.first_sequence
                    self._is_site = is_site(file.site)
                    self._read(segment, done, total)
            except JournalError as damage:
                self._damage(damage.rule, damage.offset or 0)
            done += size
        if self._progress is not None:
            self._progress(total, total)
        self._shuffles.end()
        if self._vouchers is not None:
            self._vouchers.end()
        report.labels_digest = self._labels.hexdigest()
        report.events_digest = self._events.hexdigest()
        return report

    def _read(self, segment: Segment, done: int, total: int) -> None:
        """All blocks of a segment, those behind damage too."""
        start: int | None = self._start
        told = 0
        while start is not None:
            try:
                for offset, block in segment.blocks(start):
                    if self._stop is not None and offset >= self._stop:
                        return
                    self._offset = offset
                    self._block(block)
                    if self._progress is not None and offset - told >= _PROGRESS_BYTES:
                        told = offset
                        self._progress(done + offset, total)
                start = None
            except JournalError as damage:
                place = damage.offset or 0
                if self._stop is not None and place >= self._stop:
                    return
                self._damage(damage.rule, place)
                start = segment.next_header(place)
                if start is None:
                    return
        unfinished = segment.size() - segment.reached
        if unfinished and segment.file == self._files[-1]:
            self.report.unfinished_bytes = unfinished
        elif unfinished:
            self._damage("the segment ends within a block, although a later one exists", segment.reached)

    def _block(self, block: BlockView) -> None:
        header = block.header
        self.report.blocks += 1
        try:
            block.check()
        except RemoteProtocolError as reason:
            self._damage(str(reason), self._offset, header.first_sequence)
            return
        report = self.report
        if report.first_sequence is None or header.first_sequence != self._walk.next_sequence:
            self._labels.update(header.first_sequence.to_bytes(8, "little"))
        if report.first_sequence is None:
            report.first_sequence = header.first_sequence
        for breach in self._walk.take(block, self._delay_ns(header)):
            self._breach(breach)
        for breach in [] if self._vouchers is None else self._vouchers.take(block):
            self._breach(breach)
        self._shuffles.take(block)
        report.messages += header.messages
        report.fetched_messages += header.messages * header.fetched
        report.events += header.events
        report.next_sequence = header.next_sequence
        table = np.frombuffer(block.raw, np.uint8, header.messages * DIRECTORY_BYTES, BLOCK_HEADER_BYTES)
        self._labels.update(table.reshape(-1, DIRECTORY_BYTES)[:, :_LABEL_BYTES].tobytes())
        events_at = BLOCK_HEADER_BYTES + header.messages * DIRECTORY_BYTES
        self._events.update(block.raw[events_at : events_at + header.events * EVENT_BYTES])
        if self._visit is not None:
            self._visit(self._offset, block)

    def _delay_ns(self, header: BlockHeader) -> int | None:
        """Δ_A of a block that the site released itself, if anybody knows it."""
        if not self._is_site or header.fetched:
            return None
        record = self.report.record
        delay_ns = None if record is None else record.delay_at(header.first_sequence)
        self.report.unjudged_delays += delay_ns is None
        return delay_ns

    def _breach(self, breach: Breach, offset: int | None = None) -> None:
        kind, law, text, sequence, last, field = breach
        place = self._offset if offset is None else offset
        self._keep(JournalFault(kind, self._path, place, text, sequence, field, last, law))

    def _damage(self, text: str, offset: int = 0, sequence: int | None = None) -> None:
        self._keep(JournalFault(FaultKind.DAMAGE, self._path, offset, text, sequence))

    def _keep(self, fault: JournalFault) -> None:
        self.report.counts[fault.kind] += 1
        if len(self.report.faults) < _FAULTS_KEPT:
            self.report.faults.append(fault)


# A journal in which something is damaged: the damage is set aside, and the node fills its journal again.
#
# The segment with the damage, and all later ones, get another name, `….isoj.damaged`; nothing of them is thrown away.
# The whole blocks before the damage stay in the journal, which now ends there. When the node starts, it takes the whole
# blocks that follow from the files set aside, and what is damaged in them from other archives (`roles.rejoining`).
#
# It may be interrupted at any moment and done again.


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
    """Set files aside, newest first: after an interruption the damage is found again. What is whole comes back last."""
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
