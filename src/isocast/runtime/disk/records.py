"""Records of the protocol as frames of a store, and back (`ring.effects.Persist`); a log's checkpoint as bytes.

An entry of the log is a token with its messages. Its frame holds, checked, the token's canonical body and a directory
of the messages, column by column (sources, numbers, bases, lengths), and, loose, the payloads: the same objects
that arrived go to the kernel. Nothing is computed per message but the directory's four columns. The payloads'
integrity is the token's own: each of its runs carries a digest over the digests of its payloads, which every
receiver compares before it takes an entry into its log, and which `read_entry` compares again.

A ring that is installed is several frames: one for each entry of its suffix, and at last the ring itself, without
which the others mean nothing. So it is one record, whole or not there, and an entry lies on the disk in one way only.
A checkpoint that is taken over is the same, with or without a ring.

Readers raise ValueError for bytes that no writer of this module made.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from struct import Struct, error
from struct import pack as pack_values
from struct import unpack_from as unpack_values
from typing import Any

from isocast.ring.effects import (
    BallotChosen,
    EntryAppended,
    LogReplaced,
    OutboxAppended,
    OutboxFreed,
    PromiseMade,
    Record,
    RingDecided,
    RingInstalled,
)
from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.ring.token import run_digest
from isocast.runtime.disk.store_segments import Frame
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.codec import decode, encode
from isocast.wire.packets import SHORT_DIGEST_BYTES, Data, NewRing
from isocast.wire.token_body import decode_token_body, token_bytes

__all__ = [
    "RecordKind",
    "checkpoint_bytes",
    "entry_number",
    "outgoing_frame",
    "read_ballot",
    "read_checkpoint",
    "read_decided",
    "read_entry",
    "read_freed",
    "read_installed",
    "read_outgoing",
    "read_promise",
    "read_replaced",
    "read_ring",
    "record_frames",
    "ring_bytes",
    "verify_entry",
]


# A checkpoint of a log as bytes: in a site's store, and on its way from one site's door to another.


_POINT = Struct("<QII32sqQ16sQHI")
"""Token, epoch, digest, instant, next sequence, reveal, last order; sizes of U and of the table of sources."""


def checkpoint_bytes(point: Checkpoint) -> bytes:
    """The bytes of a checkpoint."""
    universe, numbers = point.universe, point.next_number
    try:
        fixed = _POINT.pack(
            point.token_number,
            *point.epoch,
            point.digest,
            point.instant,
            point.next_sequence,
            point.reveal,
            point.order,
            len(universe),
            len(numbers),
        )
        members = pack_values(f"<{len(universe)}Q", *universe)
        table = pack_values(f"<{2 * len(numbers)}Q", *numbers.keys(), *numbers.values())
    except error as reason:
        raise LocalProtocolError(f"a checkpoint that cannot be written: {reason}") from reason
    return fixed + members + table


def read_checkpoint(packed: bytes) -> Checkpoint:
    """The checkpoint in these bytes, all of them; ValueError for bytes that no writer made."""
    try:
        fields = _POINT.unpack_from(packed)
        token_number, epoch, server, digest, instant, next_sequence, reveal, order, members, sources = fields
        universe = unpack_values(f"<{members}Q", packed, _POINT.size)
        flat = unpack_values(f"<{2 * sources}Q", packed, _POINT.size + 8 * members)
    except error as reason:
        raise ValueError(f"a checkpoint that cannot be understood: {reason}") from reason
    if _POINT.size + 8 * members + 16 * sources != len(packed):
        raise ValueError("inconsistent lengths in a checkpoint")
    numbers = dict(zip(flat[:sources], flat[sources:], strict=True))
    if len(numbers) != sources or next_sequence < 1 or list(universe) != sorted(set(universe)):
        raise ValueError("a checkpoint that contradicts itself")
    reached = token_number, Epoch(epoch, server), digest, instant, next_sequence, reveal
    return Checkpoint(*reached, universe, numbers, order)


class RecordKind(IntEnum):
    """The number of each kind of frame on disk. Numbers are never used again for something else."""

    PROMISE = 1
    ENTRY = 2
    SUFFIX = 3
    """An entry that a ring brings with it."""
    RING = 4
    SITE = 5
    """A snapshot of a site."""
    REPLACED = 6
    """A checkpoint that was taken over, behind the entries that follow it."""
    OUTGOING = 16
    FREED = 17
    OUTBOX = 18
    """A snapshot of an outbox."""
    BALLOT = 32
    DECIDED = 33
    SERVER = 34
    """A snapshot of a reformation server."""


_ENTRY = Struct("<QHHIIII16s")
"""Token number, its stripe, flags, messages, length of the body, epoch of the messages, shuffle key."""
_MIXED = 1
"""Flag: messages of other stripes or epochs than the first; two columns more say which."""
_EPOCH = Struct("<II")
_RING = Struct("<QI")
_REPLACED = Struct("<II")
"""Entries of the suffix, length of the checkpoint."""
_OUTGOING = Struct("<QI")
"""The first number, and how many messages."""
_FREED = Struct("<Q32s")


def record_frames(record: Record) -> list[Frame]:
    """The frames of one record; LocalProtocolError for one that no reader would take."""
    try:
        return _frames(record)
    except error as reason:
        raise LocalProtocolError(f"{type(record).__name__}: {reason}") from reason


def _frames(record: Record) -> list[Frame]:
    match record:
        case EntryAppended(entry):
            return [_entry_frame(entry, RecordKind.ENTRY)]
        case RingInstalled(ring, keep, suffix):
            frames = [_entry_frame(entry, RecordKind.SUFFIX) for entry in suffix]
            return [*frames, Frame(RecordKind.RING, _RING.pack(keep, len(suffix)) + ring_bytes(ring))]
        case LogReplaced(point, ring, suffix):
            frames = [_entry_frame(entry, RecordKind.SUFFIX) for entry in suffix]
            packed = checkpoint_bytes(point)
            tail = b"" if ring is None else ring_bytes(ring)
            return [*frames, Frame(RecordKind.REPLACED, _REPLACED.pack(len(suffix), len(packed)) + packed + tail)]
        case PromiseMade(ballot):
            return [Frame(RecordKind.PROMISE, _EPOCH.pack(*ballot))]
        case OutboxAppended():
            return [outgoing_frame((record,))]
        case OutboxFreed(base, chain):
            return [Frame(RecordKind.FREED, _FREED.pack(base, chain))]
        case BallotChosen(ballot):
            return [Frame(RecordKind.BALLOT, _EPOCH.pack(*ballot))]
        case RingDecided(ring):
            return [Frame(RecordKind.DECIDED, ring_bytes(ring))]


def _entry_frame(entry: LogEntry, kind: RecordKind) -> Frame:
    """The fast way: one pass over the messages for each column, and no payload is touched."""
    token, messages = entry.token, entry.messages
    count = len(messages)
    if count != token.count or len(entry.shuffle_key) != SHORT_DIGEST_BYTES:
        raise LocalProtocolError(f"token {token.token_number} with {count} messages of {token.count}")
    body = token_bytes(token)
    payloads = [message.payload for message in messages]
    lengths = list(map(len, payloads))
    epochs = [message.epoch for message in messages]
    epoch = epochs[0] if epochs else token.epoch
    stripes = [message.stripe for message in messages]
    mixed = epochs.count(epoch) != count or stripes.count(token.stripe) != count
    key = entry.shuffle_key
    parts = [
        _ENTRY.pack(token.token_number, token.stripe, mixed * _MIXED, count, len(body), *epoch, key),
        body,
        pack_values(f"<{count}Q", *[message.sender for message in messages]),
        pack_values(f"<{count}Q", *[message.number for message in messages]),
        pack_values(f"<{count}Q", *[message.base for message in messages]),
        pack_values(f"<{count}I", *lengths),
    ]
    if mixed:
        parts.append(pack_values(f"<{count}H", *stripes))
        parts.append(pack_values(f"<{2 * count}I", *[part for pair in epochs for part in pair]))
    return Frame(kind, b"".join(parts), payloads, sum(lengths), more=kind is RecordKind.SUFFIX)


def entry_number(checked: bytes) -> int:
    """The token number of an entry's frame."""
    if len(checked) < _ENTRY.size:
        raise ValueError("an entry that is shorter than its fixed fields")
    number: int = _ENTRY.unpack_from(checked)[0]
    return number


def read_entry(checked: bytes, loose: bytes) -> LogEntry:
    """The entry in a frame, its payloads compared with the token's digests."""
    try:
        return _read_entry(checked, loose)
    except (error, RemoteProtocolError) as reason:
        raise ValueError(f"an entry that cannot be understood: {reason}") from reason


def _read_entry(checked: bytes, loose: bytes) -> LogEntry:
    number, stripe, flags, count, body_bytes, epoch_number, server, key = _ENTRY.unpack_from(checked)
    at = _ENTRY.size + body_bytes
    token = decode_token_body(stripe, checked[_ENTRY.size : at])
    sources = unpack_values(f"<{count}Q", checked, at)
    numbers = unpack_values(f"<{count}Q", checked, at + 8 * count)
    bases = unpack_values(f"<{count}Q", checked, at + 16 * count)
    lengths = unpack_values(f"<{count}I", checked, at + 24 * count)
    at += 28 * count
    stripes: Sequence[int] = (stripe,) * count
    epochs: Sequence[Epoch] = (Epoch(epoch_number, server),) * count
    if flags & _MIXED:
        stripes = unpack_values(f"<{count}H", checked, at)
        flat = unpack_values(f"<{2 * count}I", checked, at + 2 * count)
        epochs = [Epoch(*pair) for pair in zip(flat[::2], flat[1::2], strict=True)]
        at += 10 * count
    if flags & ~_MIXED or at != len(checked) or sum(lengths) != len(loose) or number != token.token_number:
        raise ValueError("inconsistent lengths in an entry")
    payloads = _pieces(loose, 0, lengths)
    entry = LogEntry(token, tuple(map(Data, stripes, epochs, sources, numbers, bases, payloads)), key)
    _check_payloads(entry)
    return entry


def _check_payloads(entry: LogEntry) -> None:
    """Each run's messages are there, in order, and are those that the token's owner had."""
    by_source: dict[NodeId, list[Data]] = {}
    for message in entry.messages:
        by_source.setdefault(message.sender, []).append(message)
    for run in entry.token.runs:
        messages = by_source.pop(run.source, [])
        if [message.number for message in messages] != list(range(run.first, run.first + run.count)):
            raise ValueError(f"the messages of source {run.source} are not those of token {entry.token.token_number}")
        if run_digest(messages) != run.digest:
            raise ValueError(f"a payload of source {run.source} in token {entry.token.token_number} is damaged")
    if by_source:
        raise ValueError(f"messages that token {entry.token.token_number} does not name")


def verify_entry(kind: int, checked: bytes, loose: bytes) -> None:
    """Raise ValueError for a frame whose loose bytes do not fit its checked ones."""
    if kind in (RecordKind.ENTRY, RecordKind.SUFFIX):
        read_entry(checked, loose)


def ring_bytes(ring: NewRing) -> bytes:
    """A ring as its frame of the wire, without a key: the checksum that counts is the store's."""
    return encode(ring)


def read_ring(frame: bytes) -> NewRing:
    """The ring in a frame of the wire."""
    try:
        ring = decode(frame)
    except RemoteProtocolError as reason:
        raise ValueError(f"a ring that cannot be understood: {reason}") from reason
    if not isinstance(ring, NewRing):
        raise ValueError("a packet that is not a ring")  # noqa: TRY004  Bytes, not a caller's mistake.
    return ring


def read_installed(checked: bytes) -> tuple[NewRing, int, int]:
    """Ring, the token to cut back to, and how many entries of the suffix stand before it."""
    keep, entries = _fixed(_RING, checked)
    return read_ring(checked[_RING.size :]), keep, entries


def read_replaced(checked: bytes) -> tuple[Checkpoint, NewRing | None, int]:
    """A checkpoint taken over, the ring that was entered with it, and how many entries of the suffix stand before."""
    entries, length = _fixed(_REPLACED, checked)
    at = _REPLACED.size + length
    if at > len(checked):
        raise ValueError("a truncated checkpoint")
    ring = read_ring(checked[at:]) if at < len(checked) else None
    return read_checkpoint(checked[_REPLACED.size : at]), ring, entries


def read_promise(checked: bytes) -> PromiseMade:
    """A promise."""
    return PromiseMade(Epoch(*_whole(_EPOCH, checked)))


def outgoing_frame(records: Sequence[OutboxAppended]) -> Frame:
    """Messages of an outbox whose numbers follow one another, in one frame.

    Nothing else has looked at these payloads yet, so the frame's checksum covers them.
    """
    count = len(records)
    keys = [record.key for record in records]
    payloads = [record.payload for record in records]
    try:
        parts = (
            _OUTGOING.pack(records[0].number, count),
            pack_values(f"<{count}H", *map(len, keys)),
            pack_values(f"<{count}I", *map(len, payloads)),
            *keys,
            *payloads,
        )
    except error as reason:
        raise LocalProtocolError(f"message {records[0].number}: {reason}") from reason
    return Frame(RecordKind.OUTGOING, b"".join(parts))


def read_outgoing(checked: bytes) -> list[OutboxAppended]:
    """The messages of an outbox in a frame."""
    try:
        number, count = _OUTGOING.unpack_from(checked)
        key_lengths = unpack_values(f"<{count}H", checked, _OUTGOING.size)
        lengths = unpack_values(f"<{count}I", checked, _OUTGOING.size + 2 * count)
    except error as reason:
        raise ValueError(f"messages that cannot be understood: {reason}") from reason
    keys_at = _OUTGOING.size + 6 * count
    payloads_at = keys_at + sum(key_lengths)
    if payloads_at + sum(lengths) != len(checked):
        raise ValueError("inconsistent lengths of messages")
    keys = _pieces(checked, keys_at, key_lengths)
    payloads = _pieces(checked, payloads_at, lengths)
    return list(map(OutboxAppended, keys, range(number, number + count), payloads))


def _pieces(data: bytes, at: int, lengths: Sequence[int]) -> list[bytes]:
    """Bytes of these lengths, one after another."""
    ends = accumulate(lengths, initial=at)
    return [data[start:end] for start, end in pairwise(ends)]


def read_freed(checked: bytes) -> OutboxFreed:
    """How far an outbox is stable."""
    base, chain = _whole(_FREED, checked)
    return OutboxFreed(base, chain)


def read_ballot(checked: bytes) -> BallotChosen:
    """A ballot."""
    return BallotChosen(Epoch(*_whole(_EPOCH, checked)))


def read_decided(checked: bytes) -> RingDecided:
    """A ring that a server decided."""
    return RingDecided(read_ring(checked))


def _fixed(layout: Struct, checked: bytes) -> tuple[int, ...]:
    try:
        return layout.unpack_from(checked)
    except error as reason:
        raise ValueError(f"a record of {len(checked)} bytes, shorter than its fixed fields") from reason


def _whole(layout: Struct, checked: bytes) -> tuple[Any, ...]:
    if len(checked) != layout.size:
        raise ValueError(f"a record of {len(checked)} bytes, {layout.size} expected")
    return layout.unpack(checked)
