"""Where `isocast tape` gets its events from when no market runs: journals and feeds; and snapshots of tapes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.cli.render import note
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.disk.journal_segments import segment_files
from isocast.terms.errors import ConfigurationError, JournalError, LocalProtocolError, RemoteProtocolError
from isocast.terms.instants import read_instant
from isocast.terms.market import Mic, Symbol
from isocast.ticker.tape import Tape
from isocast.wire.events import EventArray
from isocast.wire.journal_blocks import BlockView

__all__ = [
    "Moment",
    "Sequences",
    "Wanted",
    "load_snapshot",
    "messages_of",
    "read_feeds",
    "read_journal",
    "save_snapshot",
    "tell_gap",
]

Sequences: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Moment:
    """Up to where a tape is wanted: a sequence, a time, or everything."""

    sequence: int | None = None
    time_ns: int | None = None

    @classmethod
    def read(cls, text: str | None) -> Self:
        """As a user writes it; a time without a zone is UTC."""
        if text is None:
            return cls()
        if text.isascii() and text.isdigit():
            return cls(sequence=int(text))
        try:
            return cls(time_ns=read_instant(text))
        except ValueError:
            rule = f'"{text}" is neither a sequence nor a time such as 2026-03-02T14:30:00Z'
            raise ConfigurationError("command line", "--at", rule) from None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be shown, and how many events are read."""

    symbols: list[str] | None = None
    floors: list[str] | None = None
    count: int | None = None

    @classmethod
    def read(cls, symbols: str | None, floors: str | None, count: int | None) -> Self:
        """As a user writes it."""
        return cls(_names("--symbols", symbols, Symbol), _names("--floors", floors, Mic), count)

    def part(self, sequences: Sequences, read: int) -> int:
        """How many events of a block are wanted after so many were read: those of whole messages, at least `count`."""
        if self.count is None or read + len(sequences) <= self.count:
            return len(sequences)
        last = max(self.count - read, 0)
        return int(np.searchsorted(sequences, sequences[last - 1], side="right")) if last else 0

    def is_enough(self, read: int) -> bool:
        """Whether so many events are all that is wanted."""
        return self.count is not None and read >= self.count


def _names(option: str, text: str | None, form: type[Symbol | Mic]) -> list[str] | None:
    if text is None:
        return None
    try:
        return [form(name.strip()) for name in text.split(",") if name.strip()]
    except LocalProtocolError as reason:
        raise ConfigurationError("command line", option, str(reason)) from None


# ---- snapshots


def load_snapshot(path: Path | None) -> tuple[Tape, bool]:
    """The tape of a file, or a new one; and whether it is new."""
    if path is None:
        return Tape(), True
    try:
        return Tape.restore(path.read_bytes()), False
    except FileNotFoundError:
        return Tape(), True
    except RemoteProtocolError as reason:
        raise ConfigurationError(str(path), "--snapshot", str(reason)) from None


def save_snapshot(path: Path | None, tape: Tape) -> None:
    """Write the tape; the file is whole at any time."""
    if path is None:
        return
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(tape.snapshot())
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


# ---- journals


def read_journal(where: Path, tape: Tape, moment: Moment, wanted: Wanted, digest: TapeDigest | None) -> None:
    """What a journal has behind the tape's sequence, up to a moment; a time is that of the release."""
    if not segment_files(where):
        raise JournalError(str(where), "there is no segment of a journal here")
    first, began = tape.sequence + 1 if tape.sequence else None, tape.events
    for block in read_blocks(where, first, moment.sequence):
        if moment.time_ns is not None and block.header.due > moment.time_ns:
            return
        tell_gap(tape, block.header.first_sequence)
        events, sequences, last = messages_of(block, first, moment.sequence)
        part = wanted.part(sequences, tape.events - began)
        is_whole = part == len(events)
        tape.take(events[:part], sequences[:part], last if is_whole else None)
        if digest is not None:
            digest.update(events[:part])
        if wanted.is_enough(tape.events - began):
            return


def tell_gap(tape: Tape, first_sequence: int) -> None:
    """Say which messages a tape does not get: it is not complete then."""
    expected = tape.sequence + 1
    if first_sequence > expected:
        note(f"isocast: sequences {expected:,} to {first_sequence - 1:,} are not here: the tape lacks what they say")


def messages_of(block: BlockView, first: int | None, last: int | None) -> tuple[EventArray, Sequences, int]:
    """The events of a range of messages, the sequence of each, and that of the last message."""
    start, stop = block.places(first, last)
    rows = block.directory[start:stop]
    counts = rows["events"].astype(np.int64)
    begin = int(rows["first_event"][0]) if len(rows) else 0
    begins = block.header.first_sequence + start
    sequences = np.repeat(np.arange(begins, begins + len(rows), dtype=np.uint64), counts)
    return block.events[begin : begin + len(sequences)], sequences, begins + len(rows) - 1


# ---- feeds


def read_feeds(
    paths: list[Path],
    tape: Tape,
    moment: Moment,
    wanted: Wanted,
    digest: TapeDigest | None,
    *,
    day: str | None,
    quiet: bool,
) -> None:
    """What feeds have behind the tape's events, up to a moment; a time is that of the floors."""
    from isocast.cli.feed_parts import with_progress
    from isocast.feeds.days import read_day
    from isocast.feeds.merge import merge_feeds
    from isocast.runtime.client.feed_files import FeedFile, FeedOptions

    options = FeedOptions(day=None if day is None else read_day(day))
    feeds = [FeedFile(path, options) for path in paths]
    merged = feeds[0].blocks() if len(feeds) == 1 else merge_feeds([feed.blocks() for feed in feeds])
    ends = (moment.sequence, None if wanted.count is None else tape.events + wanted.count)
    limit = min((number for number in ends if number is not None), default=None)
    for block in _behind(with_progress(feeds, merged, limit, quiet=quiet), tape.events):
        events, is_over = block, False
        if moment.time_ns is not None:
            later = np.flatnonzero(block["time"] > moment.time_ns)
            is_over = len(later) > 0
            events = block[: int(later[0])] if is_over else block
        tape.take(events)
        if digest is not None:
            digest.update(events)
        if is_over:
            break
    for feed in feeds:
        if feed.log.faults:
            faults = ", ".join(f"{record['count']:,} {kind}" for kind, record in feed.log.faults.items())
            note(f"isocast: {feed.path} is malformed in places ({faults}): isocast feed show says where")


def _behind(blocks: Iterator[EventArray], number: int) -> Iterator[EventArray]:
    """Without the first so many events."""
    for block in blocks:
        skipped = min(number, len(block))
        number -= skipped
        if skipped < len(block):
            yield block[skipped:]
