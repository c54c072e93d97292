"""Blocks as Arrow columns, a whole chunk at once; and ranges of one lane, read from its journals in turn.

Journals keep everything on multiples of eight bytes, so a chunk is an array of 64-bit words. A message's row has seven
of them and an event six; a column is the words at one place of every event.

    event    | kind side flags floor | symbol | price | quantity reference | time | id |

Arrow's arrays are made of buffers, never by `pa.array`: that imports pandas, a second of CPU time for every worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from isocast.lake.source.catalog import JournalFolder, Lane, Marks, SegmentChunk, Words, files_from, walk_segment
from isocast.lake.source_faults import SourceFault, SourceFaults
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import SYMBOL_BYTES
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.journal import BLOCK_HEADER_BYTES, DIRECTORY_BYTES, FETCHED, UNCERTIFIED
from isocast.wire.journal_blocks import DIRECTORY_OFFSETS
from isocast.wire.limits import EVENT_BYTES

__all__ = ["EventRows", "Part", "event_batch", "read_batches", "read_parts", "symbol_words"]


Integers: TypeAlias = npt.NDArray[np.int64]
ColumnArray: TypeAlias = npt.NDArray[Any]

_WORD = 8
_HEADER_WORDS = BLOCK_HEADER_BYTES // _WORD
_ROW_WORDS = DIRECTORY_BYTES // _WORD
_EVENT_WORDS = EVENT_BYTES // _WORD
_COUNTS_AT = DIRECTORY_OFFSETS["first_event"] // _WORD
"""first_event and events: one word of a directory's row."""
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)
_NOT_ASCII = np.uint64(0x8080_8080_8080_8080)


def symbol_words(symbols: Sequence[str]) -> Words:
    """Symbols as an event's record holds them."""
    fixed = [symbol.encode("ascii").ljust(SYMBOL_BYTES, b"\0") for symbol in symbols]
    return np.frombuffer(b"".join(fixed), "<u8").astype(np.uint64)


class EventRows:
    """The events of some blocks whose sequences lie in a range, as columns."""

    def __init__(self, chunk: SegmentChunk, first: int, stop: int, receiver: int, symbols: Words | None = None) -> None:
        """Events of messages from `first` on and before `stop`; RemoteProtocolError if the directory lies."""
        self._chunk = chunk
        self._receiver = receiver
        messages = chunk.headers["messages"].astype(np.int64)
        self._per_block = chunk.headers["events"].astype(np.int64)
        before = messages.cumsum() - messages
        directories = chunk.starts + _HEADER_WORDS
        total = int(messages.sum())
        self._rows: Integers = np.repeat(directories - _ROW_WORDS * before, messages)
        self._rows += np.arange(0, _ROW_WORDS * total, _ROW_WORDS)
        self._counts = (chunk.words[_COUNTS_AT:].take(self._rows) >> _HALF).view(np.int64)
        if (np.add.reduceat(self._counts, before) != self._per_block).any():
            raise RemoteProtocolError("a block's header and directory count different events")
        self._sequences: Integers = np.repeat(chunk.firsts - before, messages) + np.arange(total)
        self.opaque = int((self._counts == 0).sum())
        self._at = _events_at(directories + _ROW_WORDS * messages, self._per_block)
        self._keep: npt.NDArray[np.bool_] | None = None
        self._words: dict[int, Words] = {}
        self._select(first, stop, symbols)

    def __len__(self) -> int:
        return len(self._at)

    def _select(self, first: int, stop: int, symbols: Words | None) -> None:
        keep: npt.NDArray[np.bool_] | None = None
        if len(self._sequences) and (self._sequences[0] < first or self._sequences[-1] >= stop):
            keep = np.repeat((self._sequences >= first) & (self._sequences < stop), self._counts)
        if symbols is not None:
            wanted = np.isin(self._chunk.words[1:].take(self._at), symbols)
            keep = wanted if keep is None else keep & wanted
        if keep is not None:
            self._keep, self._at = keep, self._at[keep]

    # ---- one value for each event

    def _word(self, place: int) -> Words:
        found = self._words.get(place)
        if found is None:
            found = self._words[place] = self._chunk.words[place:].take(self._at)
        return found

    def _of_blocks(self, values: ColumnArray) -> ColumnArray:
        column = np.repeat(values, self._per_block)
        return column if self._keep is None else column[self._keep]

    def _of_messages(self, values: ColumnArray) -> ColumnArray:
        column = np.repeat(values, self._counts)
        return column if self._keep is None else column[self._keep]

    def _header(self, name: str) -> ColumnArray:
        values = self._chunk.headers[name]
        signed = np.dtype(f"i{values.dtype.itemsize}")
        return self._of_blocks(np.ascontiguousarray(values).view(signed))

    def _index(self) -> ColumnArray:
        ends = self._counts.cumsum()
        starts = (ends - self._counts).astype(np.int32)
        column = np.arange(int(ends[-1]), dtype=np.int32) - np.repeat(starts, self._counts)
        return column if self._keep is None else column[self._keep]

    def _constant(self, value: int) -> ColumnArray:
        return np.full(len(self._at), value, np.int64)

    def _flag(self, flag: int) -> ColumnArray:
        return self._of_blocks((self._chunk.headers["flags"] & flag) != 0)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """One column of `schemas.RELEASED_SCHEMA`."""
        text = _TEXTS.get(name)
        if text is not None:
            return _strings(text(self._word), kind)
        event = _EVENTS.get(name)
        values = _PLACES[name](self) if event is None else event(self._word)
        return _as_arrow(values, kind)

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The columns of a schema."""
        return pa.RecordBatch.from_arrays([self.column(field.name, field.type) for field in schema], schema=schema)


def _events_at(starts: Integers, counts: Integers) -> Integers:
    """Where every event begins, in words."""
    total = int(counts.sum())
    before = counts.cumsum() - counts
    at: Integers = np.repeat(starts - _EVENT_WORDS * before, counts)
    at += np.arange(0, _EVENT_WORDS * total, _EVENT_WORDS)
    return at


_PLACES: Mapping[str, Callable[[EventRows], ColumnArray]] = {
    "stripe": lambda rows: rows._constant(rows._chunk.file.stripe),  # noqa: SLF001 - a table of its own methods
    "sequence": lambda rows: rows._of_messages(rows._sequences),  # noqa: SLF001
    "index": lambda rows: rows._index(),  # noqa: SLF001
    "token": lambda rows: rows._header("token_number"),  # noqa: SLF001
    "epoch_number": lambda rows: rows._header("epoch_number"),  # noqa: SLF001
    "epoch_server": lambda rows: rows._of_blocks(rows._chunk.headers["epoch_server"].astype(np.int64)),  # noqa: SLF001
    "receiver": lambda rows: rows._constant(rows._receiver),  # noqa: SLF001
    "source": lambda rows: rows._of_messages(rows._chunk.words.take(rows._rows)),  # noqa: SLF001
    "number": lambda rows: rows._of_messages(rows._chunk.words[1:].take(rows._rows)),  # noqa: SLF001
    "instant_ns": lambda rows: rows._header("instant"),  # noqa: SLF001
    "due_ns": lambda rows: rows._header("due"),  # noqa: SLF001
    "released_ns": lambda rows: rows._header("released_at"),  # noqa: SLF001
    "clock_bound_ns": lambda rows: rows._header("clock_bound_ns"),  # noqa: SLF001
    "fetched": lambda rows: rows._flag(FETCHED),  # noqa: SLF001
    "uncertified": lambda rows: rows._flag(UNCERTIFIED),  # noqa: SLF001
}
_EVENTS: Mapping[str, Callable[[Callable[[int], Words]], ColumnArray]] = {
    "kind": lambda word: word(0).astype(np.uint8),
    "side": lambda word: (word(0) >> np.uint64(8)).astype(np.uint8),
    "flags": lambda word: (word(0) >> np.uint64(16)).astype(np.uint16),
    "price": lambda word: word(2),
    "quantity": lambda word: word(3) & _LOW,
    "reference": lambda word: word(3) >> _HALF,
    "event_ns": lambda word: word(4),
    "id": lambda word: word(5),
}
_TEXTS: Mapping[str, Callable[[Callable[[int], Words]], Words]] = {
    "floor": lambda word: word(0) >> _HALF,
    "symbol": lambda word: word(1),
}


def event_batch(events: EventArray, schema: pa.Schema) -> pa.RecordBatch:
    """Events of a feed as the columns of a schema, part of `schemas.EVENT_SCHEMA`."""
    words = np.ascontiguousarray(events, EVENT_DTYPE).view(np.uint64).reshape(-1, _EVENT_WORDS)
    columns: list[pa.Array] = []
    for field in schema:
        text = _TEXTS.get(field.name)
        if text is not None:
            columns.append(_strings(text(lambda place: words[:, place]), field.type))
        else:
            columns.append(_as_arrow(_EVENTS[field.name](lambda place: words[:, place]), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_arrow(values: ColumnArray, kind: pa.DataType) -> pa.Array:
    """Numbers of 64 bits keep their bits; all others fit."""
    if values.dtype == np.bool_:
        return _array(kind, len(values), np.packbits(values, bitorder="little"))
    wanted = np.dtype(f"i{kind.bit_width // 8}")
    if values.dtype.itemsize == wanted.itemsize:
        return _array(kind, len(values), np.ascontiguousarray(values).view(wanted))
    return _array(kind, len(values), values.astype(wanted))


def _array(kind: pa.DataType, count: int, *buffers: ColumnArray) -> pa.Array:
    """Nothing in it is null, and it keeps the arrays that it is made of."""
    return pa.Array.from_buffers(kind, count, [None, *map(pa.py_buffer, buffers)])


def _strings(words: Words, kind: pa.DataType) -> pa.Array:
    """Texts of up to eight characters."""
    words = np.ascontiguousarray(words)
    if not len(words):
        return _array(kind, 0, np.zeros(1, np.int32), words)
    if int(np.bitwise_or.reduce(words) & _NOT_ASCII):
        raise RemoteProtocolError("a message is said to be events and is not: its texts are not ASCII")
    shortest, longest = (-(-int(word).bit_length() // 8) for word in (words.min(), words.max()))
    if shortest == longest > 0:
        # As floors are, and the symbols of some markets: their first bytes, four times faster than what follows.
        ends = np.arange(0, longest * len(words) + 1, longest, dtype=np.int32)
        return _array(kind, len(words), ends, np.ndarray(len(words), f"V{longest}", words, strides=(_WORD,)).copy())
    # There are few different ones: each is cut off once.
    coded = _array(pa.uint64(), len(words), words).dictionary_encode()
    distinct = np.frombuffer(coded.dictionary.buffers()[1], f"S{_WORD}", len(coded.dictionary)).tolist()
    ends = np.cumsum([0, *map(len, distinct)], dtype=np.int32)
    texts = _array(kind, len(distinct), ends, np.frombuffer(b"".join(distinct) or b"\0", np.uint8))
    return texts.take(coded.indices)


# Read a range of one lane: from its first journal, and what that lacks from the next.


_MOST_ROWS = 1 << 18
"""Of one Arrow batch: a block may be larger than a chunk."""


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks of one journal whose sequences follow one another, as far as they lie in a range."""

    chunk: SegmentChunk
    receiver: int
    first: int
    stop: int


def read_parts(
    lane: Lane,
    first: int,
    stop: int,
    faults: SourceFaults,
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
    journal: JournalFolder, first: int, stop: int, faults: SourceFaults, marks: Marks, *, check: bool
) -> Iterator[SegmentChunk]:
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


def _sound(chunk: SegmentChunk, faults: SourceFaults, *, check: bool) -> Iterator[SegmentChunk]:
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
    parts: Iterator[Part], schema: pa.Schema, faults: SourceFaults, symbols: tuple[str, ...] = ()
) -> Iterator[pa.RecordBatch]:
    """The events of some parts as Arrow batches."""
    wanted = symbol_words(symbols) if symbols else None
    for part in parts:
        for batch in _batches(part, schema, faults, wanted):
            for at in range(0, batch.num_rows, _MOST_ROWS):
                yield batch.slice(at, _MOST_ROWS)


def _batches(part: Part, schema: pa.Schema, faults: SourceFaults, wanted: Words | None) -> Iterator[pa.RecordBatch]:
    """One batch; block by block where one of them is not what it says."""
    try:
        yield EventRows(part.chunk, part.first, part.stop, part.receiver, wanted).batch(schema)
    except RemoteProtocolError as reason:
        blocks = len(part.chunk.starts)
        if blocks == 1:
            # Its checksum is right, so its writer meant it: no other journal is asked.
            faults.lost(_damage(part.chunk, 0, str(reason)))
            return
        for place in range(blocks):
            yield from _batches(replace(part, chunk=part.chunk.part(place, place + 1)), schema, faults, wanted)


def _gap(lane: Lane, first: int, stop: int) -> SourceFault:
    where = lane.journals[0].path
    readers = ", ".join(str(journal.receiver) for journal in lane.journals)
    rule = (
        f"sequences {first} to {stop - 1} of stripe {lane.stripe} are in no journal that was asked (receivers"
        f" {readers}); add a journal that has them, begin after them with fromSequence, or set onError to quarantine"
    )
    return SourceFault(where, "gap", rule, stop - first, lane.stripe, None, None, first, stop - 1)


def _overlap(chunk: SegmentChunk, first: int, stop: int) -> SourceFault:
    file = chunk.file
    rule = f"sequences {first} to {stop - 1} occur twice in one journal"
    return SourceFault(
        str(file.path), "overlap", rule, stop - first, file.stripe, file.site, chunk.offset_of(0), first, stop - 1
    )


def _damage(chunk: SegmentChunk, block: int, rule: str) -> SourceFault:
    file, header = chunk.file, chunk.headers[block]
    first = int(header["first_sequence"])
    last = first + int(header["messages"]) - 1
    size = int(header["block_bytes"])
    return SourceFault(
        str(file.path), "damage", rule, size, file.stripe, file.site, chunk.offset_of(block), first, last
    )
