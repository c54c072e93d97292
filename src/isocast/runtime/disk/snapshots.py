"""What a segment begins with: the whole state in one frame, but for what still lies in older segments.

A site's log above the snapshot's checkpoint, and an outbox's messages, stay where they are; a segment goes only when
nothing in it is needed any more.
"""

from __future__ import annotations

from struct import Struct, error
from struct import pack as pack_values
from struct import unpack_from as unpack_values
from typing import NamedTuple

from isocast.reformation.forming import ServerState
from isocast.ring.ledger import Checkpoint
from isocast.runtime.disk.records import RecordKind, read_ring, ring_bytes
from isocast.runtime.disk.store_segments import Frame
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Epoch
from isocast.wire.packets import NewRing

__all__ = [
    "OutboxSnapshot",
    "SiteSnapshot",
    "outbox_snapshot",
    "read_outbox_snapshot",
    "read_server_snapshot",
    "read_site_snapshot",
    "server_snapshot",
    "site_snapshot",
]

_SITE = Struct("<QII32sqQ16sQIIQHII")
"""Checkpoint (token, epoch, digest, instant, next sequence, reveal, last order), promised, held; three sizes: of U, of
the table of sources, of the ring."""
_OUTBOX = Struct("<IQQ32sI")
"""Incarnation, next number, base, chain, how many keys."""
_SERVER = Struct("<III")
"""Ballot, length of the ring."""


class SiteSnapshot(NamedTuple):
    """A site: the log's state at a token that is stable, and everything else as of now."""

    checkpoint: Checkpoint
    promised: Epoch
    ring: NewRing | None
    held: int
    """The newest token of the log."""


class OutboxSnapshot(NamedTuple):
    """An outbox without its messages, which are the numbers from `base` up to the next."""

    incarnation: int
    next_number: int
    base: int
    chain: bytes
    """Of a source that signs, behind the last message below `base`."""
    keys: dict[bytes, int]


def site_snapshot(snapshot: SiteSnapshot) -> Frame:
    """A site's snapshot as a frame."""
    point, promised, ring, held = snapshot
    packed = b"" if ring is None else ring_bytes(ring)
    universe, numbers = point.universe, point.next_number
    try:
        parts = (
            _SITE.pack(
                point.token_number,
                *point.epoch,
                point.digest,
                point.instant,
                point.next_sequence,
                point.reveal,
                point.order,
                *promised,
                held,
                len(universe),
                len(numbers),
                len(packed),
            ),
            pack_values(f"<{len(universe)}Q", *universe),
            pack_values(f"<{len(numbers)}Q", *numbers.keys()),
            pack_values(f"<{len(numbers)}Q", *numbers.values()),
            packed,
        )
    except error as reason:
        raise LocalProtocolError(f"a checkpoint that cannot be written: {reason}") from reason
    return Frame(RecordKind.SITE, b"".join(parts))


def read_site_snapshot(checked: bytes) -> SiteSnapshot:
    """A site's snapshot from a frame."""
    try:
        fields = _SITE.unpack_from(checked)
        token_number, epoch, server, digest, instant, next_sequence, reveal, order = fields[:8]
        promised, promised_server, held, members, sources, ring_length = fields[8:]
        at = _SITE.size
        universe = unpack_values(f"<{members}Q", checked, at)
        at += 8 * members
        flat = unpack_values(f"<{2 * sources}Q", checked, at)
        at += 16 * sources
    except error as reason:
        raise ValueError(f"a snapshot that cannot be understood: {reason}") from reason
    if at + ring_length != len(checked):
        raise ValueError("inconsistent lengths in a snapshot")
    numbers = dict(zip(flat[:sources], flat[sources:], strict=True))
    reached = token_number, Epoch(epoch, server), digest, instant, next_sequence, reveal
    point = Checkpoint(*reached, universe, numbers, order)
    ring = read_ring(checked[at:]) if ring_length else None
    return SiteSnapshot(point, Epoch(promised, promised_server), ring, held)


def outbox_snapshot(snapshot: OutboxSnapshot) -> Frame:
    """An outbox's snapshot as a frame: column by column, since it remembers tens of thousands of keys."""
    incarnation, next_number, base, chain, keys = snapshot
    try:
        parts = (
            _OUTBOX.pack(incarnation, next_number, base, chain, len(keys)),
            pack_values(f"<{len(keys)}Q", *keys.values()),
            pack_values(f"<{len(keys)}H", *map(len, keys)),
            *keys,
        )
    except error as reason:
        raise LocalProtocolError(f"an outbox that cannot be written: {reason}") from reason
    return Frame(RecordKind.OUTBOX, b"".join(parts))


def read_outbox_snapshot(checked: bytes) -> OutboxSnapshot:
    """An outbox's snapshot from a frame."""
    try:
        incarnation, next_number, base, chain, count = _OUTBOX.unpack_from(checked)
        numbers = unpack_values(f"<{count}Q", checked, _OUTBOX.size)
        lengths = unpack_values(f"<{count}H", checked, _OUTBOX.size + 8 * count)
    except error as reason:
        raise ValueError(f"a snapshot that cannot be understood: {reason}") from reason
    at = _OUTBOX.size + 10 * count
    if at + sum(lengths) != len(checked):
        raise ValueError("inconsistent lengths in a snapshot")
    keys: dict[bytes, int] = {}
    for number, length in zip(numbers, lengths, strict=True):
        keys[checked[at : at + length]] = number
        at += length
    return OutboxSnapshot(incarnation, next_number, base, chain, keys)


def server_snapshot(state: ServerState) -> Frame:
    """A reformation server's state as a frame."""
    packed = b"" if state.ring is None else ring_bytes(state.ring)
    return Frame(RecordKind.SERVER, _SERVER.pack(*state.ballot, len(packed)) + packed)


def read_server_snapshot(checked: bytes) -> ServerState:
    """A reformation server's state from a frame."""
    try:
        number, server, length = _SERVER.unpack_from(checked)
    except error as reason:
        raise ValueError(f"a snapshot that cannot be understood: {reason}") from reason
    if _SERVER.size + length != len(checked):
        raise ValueError("inconsistent lengths in a snapshot")
    return ServerState(Epoch(number, server), read_ring(checked[_SERVER.size :]) if length else None)
