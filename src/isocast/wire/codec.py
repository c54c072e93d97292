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
from isocast.wire.limits import (
    DATA_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    MAX_DATAGRAM,
    MAX_PAYLOAD,
    MAX_WHOLE_TOKEN,
    TAG_BYTES,
)
from isocast.wire.nacks import NACKS
from isocast.wire.packets import Data, Packet, Repair, Repairable, Token, TokenPart
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
    try:
        signed = header_bytes(layout.kind, packet) + layout.write(packet)
    except _MALFORMED as reason:
        raise LocalProtocolError(f"{layout.kind.name}: {reason}") from reason
    return _sealed(signed, layout.kind, layout.limit, key)


def decode(frame: bytes | memoryview, key: bytes = NO_KEY) -> Packet:
    """The packet in a frame; RemoteProtocolError for anything that is not one."""
    if type(frame) is not bytes:
        frame = bytes(frame)
    if frame[:4] == _DATA_PREFIX:
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


def _sealed(signed: bytes, kind: Kind, limit: int, key: bytes) -> bytes:
    """The frame, if it is short enough for its kind."""
    if len(signed) + TAG_BYTES > limit:
        raise LocalProtocolError(f"{kind.name} of {len(signed) + TAG_BYTES} bytes, at most {limit}")
    return signed + tag_of(signed, key)


# ---- DATA, by the short way: one struct for header and fields, no calls


def _encode_data(packet: Data, key: bytes) -> bytes:
    payload = packet.payload
    if len(payload) > MAX_PAYLOAD:
        raise LocalProtocolError(f"a payload of {len(payload)} bytes, more than {MAX_PAYLOAD}")
    number, server = packet.epoch
    try:
        fields = _DATA.pack(_DATA_PREFIX, packet.stripe, 0, number, server, packet.sender, packet.number, packet.base)
    except error as reason:
        raise LocalProtocolError(f"DATA: {reason}") from reason
    signed = fields + payload
    return signed + blake2b(signed, digest_size=TAG_BYTES, key=key).digest()


def _decode_data(frame: bytes, key: bytes) -> Data:
    if not _SHORTEST_DATA <= len(frame) <= _LONGEST_DATA:
        raise RemoteProtocolError(f"DATA of {len(frame)} bytes, from {_SHORTEST_DATA} to {_LONGEST_DATA} expected")
    signed = frame[:-TAG_BYTES]
    if not compare_digest(blake2b(signed, digest_size=TAG_BYTES, key=key).digest(), frame[-TAG_BYTES:]):
        raise RemoteProtocolError("the authentication tag is wrong")
    _, stripe, reserved, epoch_number, server, sender, number, base = _DATA.unpack_from(signed)
    if reserved:
        raise RemoteProtocolError(f"reserved bits {reserved:#x} are set")
    return Data(stripe, Epoch(epoch_number, server), sender, number, base, signed[_PAYLOAD_AT:])


# ---- TOKEN: its body says again who sent it, and when


def _read_token(header: Header, body: bytes) -> Token:
    token = decode_token_body(header.stripe, body)
    if token.epoch != header.epoch or token.sender != header.sender:
        raise RemoteProtocolError("TOKEN: the frame and the body name different senders or epochs")
    return token


def _token_fault(token: Token) -> str | None:
    length = len(token_body(token))
    return f"TOKEN: a body of {length} bytes must travel in parts" if length > MAX_WHOLE_TOKEN else None


# ---- REPAIR: the complete frame of its item, one level deep


def _encode_repair(packet: Repair, key: bytes) -> bytes:
    item = packet.item
    if not isinstance(item, Data | Token | TokenPart) or item.stripe != packet.stripe:
        raise LocalProtocolError("REPAIR: the item is of another stripe, or nothing that is repaired")
    try:
        signed = header_bytes(Kind.REPAIR, packet) + encode(item, key)
    except error as reason:
        raise LocalProtocolError(f"REPAIR: {reason}") from reason
    return _sealed(signed, Kind.REPAIR, MAX_DATAGRAM, key)


def _read_repair(header: Header, body: bytes, key: bytes) -> Repair:
    kind = peek_kind(body)
    if kind not in _REPAIRABLE:
        raise RemoteProtocolError(f"REPAIR: {kind.name} is not repaired")
    item = cast("Repairable", decode(body, key))
    if item.stripe != header.stripe:
        raise RemoteProtocolError("REPAIR: the item is of another stripe")
    return Repair(*header, item)


_LAYOUTS: dict[type, Layout[Any]] = {
    **TRAFFIC,
    **NACKS,
    **BALLOTS,
    Token: Layout(Kind.TOKEN, token_body, _read_token, _token_fault),
}
_READERS: dict[Kind, Layout[Any]] = {layout.kind: layout for layout in _LAYOUTS.values()}
