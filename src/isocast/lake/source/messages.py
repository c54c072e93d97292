"""Opaque messages of journals as Arrow columns: `.option("frame", "messages")`.

They are few and of any size, so they are read one by one. Arrow's arrays are made of buffers, as in `columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from isocast.lake.source.catalog import SegmentChunk
from isocast.lake.source.columns import Part
from isocast.lake.source_faults import SourceFault, SourceFaults
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.journal import FETCHED, UNCERTIFIED
from isocast.wire.journal_blocks import IS_EVENTS, BlockView, view_block
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.opaque import OpaqueMessage, read_opaque_or_none

__all__ = ["read_messages"]

_MOST_BYTES = 16 << 20
"""Of one Arrow batch."""


class _Found(NamedTuple):
    """An opaque message where it was found."""

    block: BlockView
    place: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    message: OpaqueMessage
    stripe: int
    receiver: int


def _label(name: str) -> Callable[[_Found], int]:
    return lambda found: int(found.block.directory[found.place][name])


_COLUMNS: Mapping[str, Callable[[_Found], Any]] = {
    "stripe": lambda found: found.stripe,
    "sequence": lambda found: found.block.header.first_sequence + found.place,
    "index": lambda found: found.index,
    "token": lambda found: found.block.header.token_number,
    "epoch_number": lambda found: found.block.header.epoch_number,
    "epoch_server": lambda found: found.block.header.epoch_server,
    "receiver": lambda found: found.receiver,
    "source": _label("source"),
    "number": _label("number"),
    "topic": lambda found: found.message.topic.encode("ascii"),
    "key": lambda found: found.message.key,
    "payload": lambda found: found.message.payload,
    "sent_ns": lambda found: found.message.sent,
    "shuffle_key": lambda found: found.block.header.shuffle_key,
    "ends_token": lambda found: found.block.header.ends_token,
    "instant_ns": lambda found: found.block.header.instant,
    "due_ns": lambda found: found.block.header.due,
    "released_ns": lambda found: found.block.header.released_at,
    "clock_bound_ns": lambda found: found.block.header.clock_bound_ns,
    "fetched": lambda found: bool(found.block.header.flags & FETCHED),
    "uncertified": lambda found: bool(found.block.header.flags & UNCERTIFIED),
}


def read_messages(
    parts: Iterator[Part], schema: pa.Schema, faults: SourceFaults, topics: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The opaque messages of some parts, those of `topics` if any are named; bytes that are none are noted."""
    waiting: list[_Found] = []
    size = 0
    for part in parts:
        for found in _messages(part, faults):
            if topics and found.message.topic not in topics:
                continue
            waiting.append(found)
            size += len(found.message.payload)
            if size >= _MOST_BYTES:
                yield _batch(waiting, schema)
                waiting, size = [], 0
        # What a part has is gone when the next is asked for.
        if waiting:
            yield _batch(waiting, schema)
            waiting, size = [], 0


def _messages(part: Part, faults: SourceFaults) -> Iterator[_Found]:
    chunk = part.chunk
    raw = chunk.words.data.cast("B")
    # Where events are all that a block holds, there is nothing to look for: most journals are nothing else.
    others = chunk.headers["payload_bytes"].astype(np.int64) - chunk.headers["events"].astype(np.int64) * EVENT_BYTES
    for block_at in np.flatnonzero(others).tolist():
        start = int(chunk.starts[block_at]) * chunk.words.itemsize
        try:
            block = view_block(raw, start, check=False)
            rows = block.directory
            places = np.flatnonzero((rows["flags"] & IS_EVENTS) == 0)
            _insist(block, rows[places])
        except RemoteProtocolError as reason:
            faults.lost(_fault(chunk, block_at, "damage", str(reason)))
            continue
        for place in places.tolist():
            sequence = block.header.first_sequence + place
            if not part.first <= sequence < part.stop:
                continue
            payload = block.payload(place)
            messages = read_opaque_or_none(payload)
            if messages is None and payload:
                rule = f"sequence {sequence}: {len(payload)} bytes are neither events nor opaque messages"
                faults.note(_fault(chunk, block_at, "opaque", rule, sequence))
            for index, message in enumerate(messages or ()):
                yield _Found(block, place, index, message, chunk.file.stripe, part.receiver)


def _insist(block: BlockView, rows: Any) -> None:  # noqa: ANN401 - rows of a directory
    """RemoteProtocolError if a directory names bytes that its block does not have."""
    ends = rows["offset"].astype(np.int64) + rows["length"].astype(np.int64)
    if len(ends) and int(ends.max()) > block.header.payload_bytes:
        raise RemoteProtocolError("the lengths of a block's messages are wrong")


def _batch(found: Sequence[_Found], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [_array([_COLUMNS[field.name](one) for one in found], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values) or b"\0")]
        return pa.Array.from_buffers(kind, len(values), buffers)
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(
            kind, len(values), [None, pa.py_buffer(np.packbits(np.array(values, np.bool_), bitorder="little"))]
        )
    # Spark has no unsigned numbers: 64 bits keep their bits.
    wanted = np.dtype(f"i{kind.bit_width // 8}")
    whole = np.array(values, np.uint64).astype(wanted) if min(values) >= 0 else np.array(values, wanted)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(whole)])


def _fault(chunk: SegmentChunk, block: int, reason: str, rule: str, sequence: int | None = None) -> SourceFault:
    file, header = chunk.file, chunk.headers[block]
    first = int(header["first_sequence"])
    low, high = (first, first + int(header["messages"]) - 1) if sequence is None else (sequence, sequence)
    return SourceFault(str(file.path), reason, rule, 1, file.stripe, file.site, chunk.offset_of(block), low, high)
