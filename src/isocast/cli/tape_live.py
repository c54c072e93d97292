"""`isocast tape` of a running market, of journals and of feeds: where events come from, and how stripes are merged."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import merge
from json import dumps
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.cli.listen import tell_silence, until_first
from isocast.cli.live_view import can_draw, live_screen
from isocast.cli.render import line, note
from isocast.cli.tape_view import depth_frame, live_frame, view_as_json
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.listener import Listener, Start
from isocast.runtime.client.live_tape import depth_fields, take_batch, take_messages
from isocast.runtime.client.received import ReceivedBatch
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.disk.journal_segments import segment_files
from isocast.runtime.operate import shutdown
from isocast.striping.routing import heard_once
from isocast.terms.errors import ConfigurationError, JournalError, LocalProtocolError, RemoteProtocolError
from isocast.terms.instants import read_instant
from isocast.terms.instruments import check_name
from isocast.terms.market import SYMBOL_BYTES, Mic, Symbol
from isocast.terms.quantities import counted
from isocast.ticker.tape import Tape
from isocast.ticker.views import codes_of, depth_views, symbol_views
from isocast.wire.events import EventArray
from isocast.wire.journal_blocks import BlockView

__all__ = [
    "Moment",
    "Sequences",
    "TapeChoice",
    "load_snapshot",
    "messages_of",
    "read_feeds",
    "read_journal",
    "read_journals",
    "save_snapshot",
    "tell_gap",
    "watch",
]


# ---- Where `isocast tape` gets its events from when no market runs: journals and feeds; and snapshots of tapes.


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
class TapeChoice:
    """What is to be shown, and how many events are read."""

    symbols: list[str] | None = None
    floors: list[str] | None = None
    count: int | None = None
    depth: int | None = None
    """Levels of each side of a book; None if books are not wanted."""

    @classmethod
    def read(cls, symbols: str | None, floors: str | None, count: int | None, depth: int | None = None) -> Self:
        """As a user writes it."""
        return cls(_names("--symbols", symbols, _called), _names("--floors", floors, Mic), count, depth)

    @property
    def plain_symbols(self) -> list[str] | None:
        """Symbols by which to choose what is heard; None if all of it is: a full name says no symbol by itself."""
        is_plain = self.symbols is not None and all(isinstance(name, Symbol) for name in self.symbols)
        return self.symbols if is_plain else None

    def part(self, sequences: Sequences, read: int) -> int:
        """How many events of a block are wanted after so many were read: those of whole messages, at least `count`."""
        if self.count is None or read + len(sequences) <= self.count:
            return len(sequences)
        last = max(self.count - read, 0)
        return int(np.searchsorted(sequences, sequences[last - 1], side="right")) if last else 0

    def is_enough(self, read: int) -> bool:
        """Whether so many events are all that is wanted."""
        return self.count is not None and read >= self.count


def _called(text: str) -> str:
    """A symbol, or the full name of an instrument."""
    if text.isascii() and len(text) <= SYMBOL_BYTES:
        return Symbol(text)
    return check_name(text)


def _names(option: str, text: str | None, form: Callable[[str], str]) -> list[str] | None:
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


def read_journal(where: Path, tape: Tape, moment: Moment, wanted: TapeChoice, digest: TapeDigest | None) -> None:
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


def _tell(text: str) -> None:
    note(f"isocast: {text}")


def tell_gap(tape: Tape, first_sequence: int) -> None:
    """Say which messages a tape does not get: it is not complete then."""
    expected = tape.sequence + 1
    if first_sequence > expected:
        (tape.gap if tape.sequence else tape.books.gap)()
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
    wanted: TapeChoice,
    digest: TapeDigest | None,
    *,
    day: str | None,
    quiet: bool,
) -> None:
    """What feeds have behind the tape's events, up to a moment; a time is that of the floors."""
    from isocast.cli.feed_text import with_progress
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


# ---- several stripes


def read_journals(where: list[Path], tape: Tape, moment: Moment, wanted: TapeChoice, digest: TapeDigest | None) -> None:
    """What journals of several stripes have behind the tape's positions, merged, up to a time of release."""
    if moment.sequence is not None:
        raise ConfigurationError("command line", "--at", "several stripes have no common sequence: give a time")
    stripes: dict[int, Path] = {}
    for path in where:
        files = segment_files(path)
        if not files:
            raise JournalError(str(path), "there is no segment of a journal here")
        other = stripes.setdefault(files[0].stripe, path)
        if other is not path:
            rule = f"{other} and {path} are both of stripe {files[0].stripe}: give one journal of each stripe"
            raise ConfigurationError("command line", "--journal", rule)
    began = tape.events
    streams = [_blocks(stripe, path, tape.positions.get(stripe, 0) + 1) for stripe, path in stripes.items()]
    for stripe, block in merge(*streams, key=lambda one: (one[1].header.instant, one[0], one[1].header.first_sequence)):
        if moment.time_ns is not None and block.header.due > moment.time_ns:
            continue
        behind = tape.positions.get(stripe, 0) + 1
        events, sequences, last = messages_of(block, behind, None)
        first = max(block.header.first_sequence, behind)
        kept = heard_once(events, stripe, stripes.keys())
        if kept is not None:
            events, sequences = events[kept], sequences[kept]
        part = wanted.part(sequences, tape.events - began)
        if part < len(events):
            last = int(sequences[part - 1]) if part else 0
        if last:
            take_messages(tape, stripe, events[:part], sequences[:part], first, last, _tell)
        if digest is not None:
            digest.update(events[:part])
        if wanted.is_enough(tape.events - began):
            return


def _blocks(stripe: int, path: Path, first: int) -> Iterator[tuple[int, BlockView]]:
    for block in read_blocks(path, first, None):
        yield stripe, block


_FRAME_S = 0.25
"""Without a line for so long, something is wrong."""


def watch(  # noqa: PLR0913 - what, as whom, from where, until when, how
    tape: Tape,
    wanted: TapeChoice,
    config: Path,
    name: str | None,
    start: Start,
    seconds: float | None,
    *,
    as_json: bool,
    stripes: tuple[int, ...] | None = None,
    merged: bool = True,
    digest: TapeDigest | None = None,
) -> None:
    """Listen until the end that was asked for, or a signal; the tape has everything that was heard."""
    # A tape of newest prices alone would have no volume: every message is wanted, whatever the seat's grade.
    complete = None if start == "snapshot" else False
    listener = Listener(
        config,
        name,
        latest=complete,
        start=start,
        told=_tell,
        stripes=stripes,
        symbols=wanted.plain_symbols if stripes is None else None,
        merged=merged,
    )
    if start == "beginning" and digest is None:  # A digest is of what floors published.
        listener.show_books()
    shutdown.run(_watch(listener, tape, wanted, seconds, digest, as_json=as_json))
    note(f"isocast: {counted(tape.events, 'event')}, up to sequence {tape.sequence:,}")


async def _watch(
    listener: Listener,
    tape: Tape,
    wanted: TapeChoice,
    seconds: float | None,
    digest: TapeDigest | None,
    *,
    as_json: bool,
) -> None:
    stop = asyncio.Event()
    with shutdown.stopping(stop.set, seconds=shutdown.LAST_WORDS_S, waits_for="its lines are closed"):
        async with listener:
            lines = ", ".join(listener.plan.lines)
            if len(listener.stripes) > 1:
                lines += f" in stripes {', '.join(map(str, listener.stripes))}"
            note(f"isocast: the tape as {listener.plan.origin} hears it from {lines}; Ctrl-C ends it")
            hearing = _hear(listener, tape, wanted, digest, as_json=as_json)
            beside = [tell_silence(listener)]
            if not as_json and can_draw():
                beside.append(_draw(listener, tape, wanted))
            await until_first([hearing, stop.wait()], beside, seconds)


async def _hear(
    listener: Listener, tape: Tape, wanted: TapeChoice, digest: TapeDigest | None, *, as_json: bool
) -> None:
    heard, is_striped = 0, len(listener.stripes) > 1
    async for batch in listener:
        part = wanted.part(batch.sequences, heard)
        take_batch(tape, batch, part, several=is_striped, told=_tell)
        if digest is not None:
            digest.update(batch.events[:part])
        heard += part
        if as_json:
            _write_changes(tape, wanted, batch, part)
        if wanted.is_enough(heard):
            return


def _write_changes(tape: Tape, wanted: TapeChoice, batch: ReceivedBatch, number: int) -> None:
    """A row for each symbol that the batch speaks of."""
    names = [name.decode("ascii") for name in np.unique(batch.events["symbol"][:number]).tolist() if name]
    if wanted.symbols is not None:
        chosen = codes_of(tape, wanted.symbols)
        names = [name for name in names if name in chosen]
    if wanted.depth is not None:
        for depth in depth_views(tape, wanted.depth, names, wanted.floors):
            line(dumps({"sequence": tape.sequence, **depth_fields(depth)}))
    else:
        for view in symbol_views(tape, names, wanted.floors):
            line(dumps(view_as_json(view, tape.sequence)))
    sys.stdout.flush()


async def _draw(listener: Listener, tape: Tape, wanted: TapeChoice) -> None:
    with live_screen() as draw:
        while True:
            frame = live_frame if wanted.depth is None else partial(depth_frame, wanted.depth)
            draw(partial(frame, listener.market.name, tape, wanted.symbols, wanted.floors))
            await asyncio.sleep(_FRAME_S)
