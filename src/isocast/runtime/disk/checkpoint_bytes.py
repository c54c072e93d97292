"""A checkpoint of a log as bytes: in a site's store, and on its way from one site's door to another."""

from __future__ import annotations

from struct import Struct, error
from struct import pack as pack_values
from struct import unpack_from as unpack_values

from isocast.ring.ledger import Checkpoint
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Epoch

__all__ = ["checkpoint_bytes", "read_checkpoint"]

_POINT = Struct("<QII16sqQ16sHI")
"""Token, epoch, digest, instant, next sequence, reveal; sizes of U and of the table of sources."""


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
        token_number, epoch, server, digest, instant, next_sequence, reveal, members, sources = _POINT.unpack_from(
            packed
        )
        universe = unpack_values(f"<{members}Q", packed, _POINT.size)
        flat = unpack_values(f"<{2 * sources}Q", packed, _POINT.size + 8 * members)
    except error as reason:
        raise ValueError(f"a checkpoint that cannot be understood: {reason}") from reason
    if _POINT.size + 8 * members + 16 * sources != len(packed):
        raise ValueError("a checkpoint whose lengths do not add up")
    numbers = dict(zip(flat[:sources], flat[sources:], strict=True))
    if len(numbers) != sources or next_sequence < 1 or list(universe) != sorted(set(universe)):
        raise ValueError("a checkpoint that contradicts itself")
    return Checkpoint(token_number, Epoch(epoch, server), digest, instant, next_sequence, reveal, universe, numbers)
