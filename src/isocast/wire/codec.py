"""Packets to bytes and back: `encode` and `decode`.

The law of the reader: whatever the bytes, it returns a packet that keeps every rule, or raises
RemoteProtocolError and nothing else. It refuses what it does not know (another magic, version or kind,
reserved bits, bytes left over) and believes no count further than there are bytes. The tag is checked before
the body is looked at.

The law of the writer: what it returns, the reader accepts; otherwise it raises LocalProtocolError.

DATA outnumbers everything else by far, so it has a way of its own through both functions.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from struct import Struct, error
from typing import Any, cast

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Epoch
from isocast.wire.ballots import BALLOTS
from isocast.wire.frame import (
    NO_KEY,
    VERSION,
    Header,
    Kind,
    Layout,
    header_bytes,
    peek_kind,
    prefix,
    read_header,
    tag_of,
    unsealed,
)
from isocast.wire.limits import DATA_BYTES, FRAME_BYTES, HEADER_BYTES, MAX_DATAGRAM, MAX_PAYLOAD, TAG_BYTES
from isocast.wire.nacks import NACKS
from isocast.wire.packets import Data, Packet, Repair, Token, TokenPart
from isocast.wire.token_body import decode_token_body, token_body
from isocast.wire.traffic import TRAFFIC

__all__ = ["NO_KEY", "VERSION", "Kind", "decode", "encode", "peek_kind"]

_DATA = Struct("<4sHHIIQQQ")
_DATA_PREFIX = prefix(Kind.DATA)
_PAYLOAD_AT = HEADER_BYTES + DATA_BYTES
_SHORTEST_DATA = FRAME_BYTES + DATA_BYTES
_LONGEST_DATA = _SHORTEST_DATA + MAX_PAYLOAD

_REPAIRABLE = (Kind.DATA, Kind.TOKEN, Kind.TOKENPART)
_MALFORMED = (error, ValueError)
"""What struct and the enumerations raise for values that are out of their range."""


def encode(packet: Packet, key: bytes = NO_KEY) -> bytes:
    """The frame of a packet, authenticated with `key` (at most 64 bytes)."""
    if type(packet) is Data:
        return _encode_data(packet, key)
    if type(packet) is Repair:
        return _encode_repair(packet, key)
    layout = _LAYOUTS.get(type(packet))
    if layout is None:
        raise LocalProtocolError(f"{type(packet).__name__} is not a packet")
    fault = layout.fault(packet)
    if fault is not None:
        raise LocalProtocolError(fault)
    return _framed(layout.kind, packet, layout.write, layout.limit, key)


def decode(frame: bytes | memoryview, key: bytes = NO_KEY) -> Packet:
    """The packet in a frame; RemoteProtocolError for anything that is not one."""
    if type(frame) is not bytes:
        frame = bytes(frame)
    if frame[:4] == _DATA_PREFIX and _SHORTEST_DATA <= len(frame) <= _LONGEST_DATA:
        return _decode_data(frame, key)
    kind = peek_kind(frame)
    layout = _READERS.get(kind)
    limit = MAX_DATAGRAM if layout is None else layout.limit
    if len(frame) > limit:
        raise RemoteProtocolError(f"{kind.name} of {len(frame)} bytes, at most {limit}")
    signed = unsealed(frame, key)
    header = read_header(signed)
    body = signed[HEADER_BYTES:]
    if layout is None:
        return _read_repair(header, body, key)
    try:
        packet = layout.read(header, body)
    except _MALFORMED as reason:
        raise RemoteProtocolError(f"{kind.name}: {reason}") from reason
    fault = layout.fault(packet)
    if fault is not None:
        raise RemoteProtocolError(fault)
    return cast("Packet", packet)
