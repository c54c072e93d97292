"""The body of NACK: a token, the map of its parts that arrived, and holdings.

    token 8 | flags 2 | bytes of the map 2 | holdings 2 | map …
    each holding: source 8 | first 8 | bytes of its bitmap 2 | bitmap …

Maps are little-endian integers without zero bytes at their end, so that each has one spelling.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from isocast.terms.errors import RemoteProtocolError
from isocast.wire.frame import Header, Kind, Layout
from isocast.wire.limits import (
    HOLDING_BYTES,
    MAX_HOLDING_BITS,
    MAX_HOLDINGS,
    MAX_NUMBER,
    MAX_PARTS,
    MAX_UDP,
    NACK_BYTES,
)
from isocast.wire.packets import Holding, Nack

__all__ = ["NACKS"]

_NACK = Struct("<QHHH")
_HOLDING = Struct("<QQH")
_HAS_TOKEN = 1


def _bytes_for(bitmap: int) -> int:
    return (bitmap.bit_length() + 7) // 8


def _write(packet: Nack) -> bytes:
    parts = packet.parts_held.to_bytes(_bytes_for(packet.parts_held), "little")
    flags = _HAS_TOKEN if packet.has_token else 0
    pieces = [_NACK.pack(packet.token_number, flags, len(parts), len(packet.listed)), parts]
    for source, first, bitmap in packet.listed:
        length = _bytes_for(bitmap)
        pieces += (_HOLDING.pack(source, first, length), bitmap.to_bytes(length, "little"))
    return b"".join(pieces)


def _read(header: Header, body: bytes) -> Nack:
    token_number, flags, length, count = _NACK.unpack_from(body)
    if flags & ~_HAS_TOKEN:
        raise RemoteProtocolError(f"NACK: unknown flags {flags:#x}")
    at = NACK_BYTES + length
    parts_held = _read_bitmap(body[NACK_BYTES:at])
    listed: list[Holding] = []
    for _ in range(count):
        source, first, length = _HOLDING.unpack_from(body, at)
        at += HOLDING_BYTES
        listed.append(Holding(source, first, _read_bitmap(body[at : at + length])))
        at += length
    # A map that was cut short has moved `at` beyond the end.
    if at != len(body):
        raise RemoteProtocolError(f"NACK of {len(body)} bytes, {at} expected")
    return Nack(*header, token_number, flags == _HAS_TOKEN, parts_held, tuple(listed))


def _read_bitmap(raw: bytes) -> int:
    """The map in `raw`, which must end in a byte that is not zero."""
    if raw and not raw[-1]:
        raise RemoteProtocolError(f"NACK: a map of {len(raw)} bytes is padded")
    return int.from_bytes(raw, "little")


def _fault(packet: Nack) -> str | None:
    if packet.parts_held < 0 or packet.parts_held.bit_length() > MAX_PARTS:
        return f"NACK: parts beyond {MAX_PARTS}"
    if len(packet.listed) > MAX_HOLDINGS:
        return f"NACK: {len(packet.listed)} holdings, at most {MAX_HOLDINGS}"
    for source, first, bitmap in packet.listed:
        bits = bitmap.bit_length()
        if bitmap < 0 or bits > MAX_HOLDING_BITS or first + bits > MAX_NUMBER:
            return f"NACK: {bits} bits of source {source} from {first}"
    return None


NACKS: dict[type, Layout[Any]] = {Nack: Layout(Kind.NACK, _write, _read, _fault, MAX_UDP)}
"""How a NACK is written and read."""
