"""Write a journal: what a site released, block after block, before anybody is told; and drop its oldest segments.

One process writes a directory, and a lock says so. A block is written at once and never changed. When `append`
returns, the block is in the kernel's hands (`process`) or on the disk (`power`). A crash can leave the beginning of
one block at the end of the newest segment: `open` cuts it off and says so. Damage anywhere else is never cut off: it
is an error that names the place. A disk that takes no more raises `JournalFull`, after what it took of the block has
been cut off again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from isocast.ring.effects import Release
from isocast.runtime.disk.disk_watch import OpenFile, first_trouble
from isocast.runtime.disk.journal_record import Beginning, JournalRecord, read_record, write_record
from isocast.runtime.disk.journal_segments import Segment, SegmentFile, TornEnd, mend, segment_files
from isocast.runtime.market.model import Durability, JournalSettings
from isocast.terms.errors import JournalError, JournalFull, LocalProtocolError, StoreGone
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.terms.instants import SECOND
from isocast.wire.journal import (
    SEGMENT_HEADER_BYTES,
    SEGMENT_SUFFIX,
    BlockHeader,
    SegmentHeader,
    pack_segment_header,
    segment_name,
)
from isocast.wire.journal_blocks import ReleasedBlock, encode_block
from isocast.wire.journal_proofs import BlockProof

__all__ = ["Journal", "JournalCounters", "ReleasedPosition", "prune", "released_block"]


# How long a journal is kept: whole segments go, oldest first, by size and by age; the newest never goes.


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
    """Written before segments go: after a kill in between the journal begins before its record, which is sound."""
    try:
        record = read_record(directory, first.stripe, first.site) or JournalRecord()
    except JournalError:
        record = JournalRecord()  # Readers report the damage; disks must not fill up for it.
    record = record.beginning(first.first_sequence, Beginning.RETENTION)
    write_record(directory, first.stripe, first.site, record, sync=sync)


def _created(file: SegmentFile) -> int:
    with Segment(file) as segment:
        return segment.header.created


_NEW_SUFFIX = ".new"
"""A segment gets its own name once its header is in it, so that no reader meets half a header."""
_MODE = 0o640


class ReleasedPosition(NamedTuple):
    """How far a site has released, as its journal's last whole block says."""

    released: int = 0
    """Everything up to this token is out."""
    offset: int = 0
    """Messages of the next token that are out."""
    next_sequence: int = 1
    token_number: int = 0
    """The token of the last block."""
    epoch: Epoch = NO_EPOCH
    instant: int = 0
    released_at: int = 0
    fetched: bool = False
    """Whether the last block came from another archive: it says nothing of this site's log."""

    @classmethod
    def after(cls, header: BlockHeader) -> Self:
        """Behind a block."""
        out = header.place + header.messages
        ends = header.ends_token
        return cls(
            header.token_number if ends else header.token_number - 1,
            0 if ends else out,
            header.next_sequence,
            header.token_number,
            header.epoch,
            header.instant,
            header.released_at,
            header.fetched,
        )


@dataclass(slots=True)
class JournalCounters:
    """Since the journal was opened."""

    blocks: int = 0
    messages: int = 0
    events: int = 0
    bytes: int = 0
    segments: int = 0
    """Segments begun."""
    pruned: int = 0
    """Segments removed by retention."""
    prune_failures: int = 0
    """Times that retention could not remove old segments; the metric `journal_prune_failures_total`."""
    gaps: int = 0
    """Blocks that begin beyond the sequence after the block before."""
    overlaps: int = 0
    """Blocks that begin before it: another content may have been released there already."""


def released_block(
    release: Release,
    released_at: int,
    clock_bound_ns: int,
    payloads: Sequence[bytes] | None = None,
    proof: BlockProof | None = None,
) -> ReleasedBlock:
    """A release as a block; `payloads` are the opened ones, if the messages carry sealed ones."""
    token = release.entry.token
    messages = release.messages
    opened = [message.payload for message in messages] if payloads is None else payloads
    return ReleasedBlock(
        epoch=token.epoch,
        token_number=token.token_number,
        token_count=len(release.entry.messages),
        place=release.first_sequence - token.first_sequence,
        first_sequence=release.first_sequence,
        instant=token.instant,
        due=release.due,
        released_at=released_at,
        clock_bound_ns=clock_bound_ns,
        shuffle_key=release.entry.shuffle_key,
        messages=[
            (message.sender, message.number, message.digest, payload)
            for message, payload in zip(messages, opened, strict=True)
        ],
        uncertified=release.uncertified,
        proof=proof,
    )


class Journal:
    """One site's journal of one stripe, open for appending."""

    def __init__(self, directory: Path, stripe: int, site: NodeId, settings: JournalSettings, lock: int) -> None:
        """Use `open`."""
        self.directory = directory
        self.position = ReleasedPosition()
        """How far the site has released."""
        self.cut: TornEnd | None = None
        """What `open` had to cut off."""
        self.counters = JournalCounters()
        self._stripe = stripe
        self._site = site
        self._settings = settings
        self._is_synced = settings.durability is Durability.POWER
        self._lock = lock
        self._fd = -1
        self._file: SegmentFile | None = None
        self._size = 0
        self._is_broken = False
        self._is_behind = False
        """Whether the kernel has blocks that the disk may not have."""
        self._skipped = False

    @classmethod
    def open(cls, directory: Path, stripe: int, site: NodeId, settings: JournalSettings | None = None) -> Self:
        """Open or begin a journal, and look after what a crash may have left at its end."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as reason:
            raise JournalError(str(directory), f"cannot be used: {reason.strerror}") from reason
        journal = cls(directory, stripe, site, settings or JournalSettings(), lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            journal._recover()
            journal._record_delay()
        except BlockingIOError as reason:
            journal.close()
            raise JournalError(str(directory), "another process writes this journal; stop it first") from reason
        except OSError as reason:
            journal.close()
            raise JournalError(str(directory), f"cannot be continued: {reason.strerror}") from reason
        except BaseException:
            journal.close()
            raise
        return journal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of segment and lock, everything as durable as the setting says."""
        with suppress(JournalFull):  # Opening it again repairs what is there.
            self.sync()
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def check(self) -> None:
        """StoreGone if the files were removed, replaced or cut under us; about once a second."""
        if self._lock < 0:
            return
        files = [OpenFile(self.directory, self._lock)]
        if self._fd >= 0 and self._file is not None:
            files.append(OpenFile(self._file.path, self._fd, self._size))
        found = first_trouble(files)
        if found is not None:
            path, trouble = found
            self._is_broken = True
            raise StoreGone(str(path), f"{trouble}: {_GONE}")

    def append(self, block: ReleasedBlock) -> None:
        """Write one block; when this returns it survives the end of the process, and after `sync` that of the power.

        Whoever releases need not wait for the disk: each block can be made again, from the log or from other archives.
        JournalFull: nothing of the block is in the journal, and the same block may be tried again.
        LocalProtocolError: the block was released before, or is not one.
        """
        header, pieces = encode_block(block)
        if self._lock < 0:
            raise LocalProtocolError(f"{self.directory}: the journal is closed")
        self._insist_on_order(header)
        if self._fd < 0 or self._is_too_long_with(header):
            self._begin_segment(header)
        self._write(pieces, header.block_bytes)
        self._count(header)
        self.position = ReleasedPosition.after(header)

    def sync(self) -> None:
        """Bring what was appended to the disk, where the setting asks for it: once for many blocks.

        JournalFull: what the disk has is not known, and nothing more is taken.
        """
        if not self._is_behind or self._fd < 0:
            return
        try:
            os.fdatasync(self._fd)
        except OSError as reason:
            self._is_broken = True
            raise self._full(f"{reason.strerror}: start the process again, and it looks at what is there") from reason
        self._is_behind = False

    def skip_to(self, next_sequence: int) -> None:
        """Leave a gap: what lies before this sequence is nowhere any more. The next block begins a new segment.

        Nothing is written now. Whoever opens the journal before that block has come finds its old end.
        """
        if next_sequence <= self.position.next_sequence:
            raise LocalProtocolError(f"sequence {next_sequence} leaves no gap after {self.position.next_sequence - 1}")
        self.position = self.position._replace(next_sequence=next_sequence)
        self._skipped = True
        self.counters.gaps += 1
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1

    def prune(self, now: int) -> list[Path]:
        """Apply retention now; `append` does it whenever a segment begins. Says which segments went."""
        settings = self._settings
        if not settings.keep_bytes and not settings.keep_seconds:
            return []
        try:
            gone = prune(
                self.directory,
                keep_bytes=settings.keep_bytes,
                keep_seconds=settings.keep_seconds,
                now=now,
                sync=self._is_synced,
            )
        except (OSError, JournalError):
            # Too much history is no reason to stop releasing; a metric shows the failures.
            self.counters.prune_failures += 1
            return []
        self.counters.pruned += len(gone)
        return gone

    # Opening ------------------------------------------------------------------------------------

    def _recover(self) -> None:
        for leftover in self.directory.glob(f"*{SEGMENT_SUFFIX}{_NEW_SUFFIX}"):
            leftover.unlink()
        files = segment_files(self.directory)
        if files and (files[0].stripe, files[0].site) != (self._stripe, self._site):
            owner = f"stripe {files[0].stripe} of site {files[0].site}"
            raise JournalError(str(self.directory), f"holds the journal of {owner}; use another directory")
        last = None
        for file in reversed(files):
            last = self._adopt(file) if self._file is None else _last_header(file)
            if last is not None:
                break
        if last is not None:
            self.position = ReleasedPosition.after(last)

    def _record_delay(self) -> None:
        """Δ_A from here on; a market's file may have changed since."""
        if self._settings.release_delay_ns:
            before = self._record()
            now = before.released_with(self._settings.release_delay_ns, self.position.next_sequence)
            if now != before:
                write_record(self.directory, self._stripe, self._site, now, sync=self._is_synced)

    def _record(self) -> JournalRecord:
        """What the journal says of itself; a record that is damaged is made anew, and what it said is lost."""
        try:
            return read_record(self.directory, self._stripe, self._site) or JournalRecord()
        except JournalError:
            return JournalRecord()

    def _record_beginning(self, first_sequence: int) -> None:
        """Of a journal without a segment: that it begins behind the first sequence, if it does."""
        before = self._record()
        if first_sequence > before.first_sequence and not segment_files(self.directory):
            now = before.beginning(first_sequence, Beginning.ABSENT if self._skipped else Beginning.BEGUN)
            write_record(self.directory, self._stripe, self._site, now, sync=self._is_synced)

    def _adopt(self, file: SegmentFile) -> BlockHeader | None:
        """Go on in the newest segment."""
        mended = mend(file)
        self.cut = self.cut or mended.cut
        if mended.end:
            self._fd = os.open(file.path, os.O_WRONLY | os.O_CLOEXEC)
            self._file, self._size = file, mended.end
            if self._is_synced:
                os.fdatasync(self._fd)
        return mended.last

    # Writing ------------------------------------------------------------------------------------

    def _insist_on_order(self, header: BlockHeader) -> None:
        """Exactly once: what is in the journal is not released again."""
        position = self.position
        released = (header.token_number, header.place)
        if position.epoch < header.epoch and position.next_sequence <= header.first_sequence:
            # A history that was given up for another may have had more tokens, never the same sequence.
            return
        if released < (position.released + 1, position.offset):
            raise LocalProtocolError(
                f"message {header.place} of token {header.token_number} has been released: the journal is at"
                f" message {position.offset} of token {position.released + 1}"
            )

    def _is_too_long_with(self, header: BlockHeader) -> bool:
        """Whether the block belongs into a new segment. Names must grow, so an overlap stays where it is."""
        is_empty = self._size <= SEGMENT_HEADER_BYTES
        is_later = self._file is not None and header.first_sequence > self._file.first_sequence
        return not is_empty and is_later and self._size + header.block_bytes > self._settings.segment_bytes

    def _begin_segment(self, header: BlockHeader) -> None:
        name = segment_name(self._stripe, self._site, header.first_sequence)
        path, new = self.directory / name, self.directory / f"{name}{_NEW_SUFFIX}"
        self.sync()
        start = pack_segment_header(SegmentHeader(self._stripe, self._site, header.released_at, header.first_sequence))
        fd = -1
        try:
            if self._file is None:
                self._record_beginning(header.first_sequence)
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
            _write_all(fd, (start,), len(start), 0)
            if self._is_synced:
                os.fdatasync(fd)
            new.rename(path)
            if self._is_synced:
                os.fsync(self._lock)
        except OSError as reason:
            if fd >= 0:
                os.close(fd)
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise JournalFull(str(path), f"cannot be begun: {reason.strerror}; {_CALM}") from reason
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size, self._is_behind = fd, len(start), False
        self._file = SegmentFile(header.first_sequence, path, self._stripe, self._site)
        self.counters.segments += 1
        self.prune(header.released_at)

    def _write(self, pieces: Sequence[bytes], length: int) -> None:
        if self._is_broken:
            raise self._full("an earlier write failed and could not be undone; start the process again")
        start = self._size
        try:
            _write_all(self._fd, pieces, length, start)
        except OSError as reason:
            try:
                os.ftruncate(self._fd, start)
            except OSError:
                self._is_broken = True
            raise self._full(f"{reason.strerror}; {_CALM}") from reason
        self._size = start + length
        self._is_behind = self._is_synced

    def _full(self, reason: str) -> JournalFull:
        return JournalFull(str(self.directory if self._file is None else self._file.path), reason)

    def _count(self, header: BlockHeader) -> None:
        counters = self.counters
        counters.blocks += 1
        counters.messages += header.messages
        counters.events += header.events
        counters.bytes += header.block_bytes
        if self.position.token_number:
            counters.gaps += header.first_sequence > self.position.next_sequence
            counters.overlaps += header.first_sequence < self.position.next_sequence


_GONE = (
    "this node stops, because what it releases is not on disk any more. Bring the files back, or move what is left"
    " away, and start it again: it fills its journal from its log and from other archives"
)
_CALM = "the journal ends with its last whole block and nothing is damaged; make room, then go on"


def _last_header(file: SegmentFile) -> BlockHeader | None:
    """The last block of a segment that has a successor."""
    last = None
    with Segment(file) as segment:
        for _, header in segment.headers():
            last = header
        segment.insist_on_end()
    return last


def _write_all(fd: int, pieces: Sequence[bytes], length: int, offset: int) -> None:
    """One system call, unless the kernel takes less than all of it."""
    written = os.pwritev(fd, pieces, offset)
    if written < length:
        rest = memoryview(b"".join(pieces))
        while written < length:
            written += os.pwrite(fd, rest[written:], offset + written)
