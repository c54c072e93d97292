"""Packets to bytes and back: `encode` and `decode`.

The law of the reader: whatever the bytes, it returns a packet that keeps every rule, or raises
RemoteProtocolError and nothing else. It refuses what it does not know (another magic, version or kind,
unknown flags, bytes left over) and believes no count further than there are bytes. The tag is checked before
the body is looked at.

The law of the writer: what it returns, the reader accepts; otherwise it raises LocalProtocolError.

DATA outnumbers everything else by far, so it has a way of its own through both functions.
"""

from __future__ import annotations

from hashlib import blake2b, sha256
from hmac import compare_digest
from struct import Struct, error
from typing import Any, cast

from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError, StrangerError
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.ballots import BALLOTS
from isocast.wire.frame import (
    NO_KEYS,
    VERSION,
    Header,
    Keys,
    Kind,
    Layout,
    header_bytes,
    key_of,
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
    JUMBO_DATAGRAM,
    MAX_PAYLOAD,
    MAX_WHOLE_TOKEN,
    TAG_BYTES,
)
from isocast.wire.line_plans import LINE_PLANS
from isocast.wire.nacks import NACKS
from isocast.wire.packets import DIGEST_BYTES, Data, Packet, Repair, Repairable, Token, TokenPart
from isocast.wire.token_body import decode_token_body, token_body
from isocast.wire.traffic import TRAFFIC

__all__ = ["NO_KEYS", "VERSION", "Keys", "Kind", "decode", "encode", "peek_kind"]

_DATA = Struct("<4sHHIIQQQ")
_DATA_PREFIX = prefix(Kind.DATA)
_PAYLOAD_AT = HEADER_BYTES + DATA_BYTES
_SHORTEST_DATA = FRAME_BYTES + DATA_BYTES
_LONGEST_DATA = _SHORTEST_DATA + MAX_PAYLOAD

_REPAIRABLE = (Kind.DATA, Kind.TOKEN, Kind.TOKENPART)
_MALFORMED = (error, ValueError)
"""What struct and the enumerations raise for values that are out of their range."""


def encode(packet: Packet, keys: Keys = NO_KEYS) -> bytes:
    """The frame of a packet, authenticated with its sender's key."""
    if type(packet) is Data:
        return _encode_data(packet, keys)
    if type(packet) is Repair:
        return _encode_repair(packet, keys)
    layout = _LAYOUTS.get(type(packet))
    if layout is None:
        raise LocalProtocolError(f"{type(packet).__name__} is not a packet")
    fault = layout.fault(packet)
    if fault is not None:
        raise LocalProtocolError(fault)
    try:
        signed = header_bytes(layout.kind, packet, layout.flags) + layout.write(packet)
    except _MALFORMED as reason:
        raise LocalProtocolError(f"{layout.kind.name}: {reason}") from reason
    return _sealed(signed, layout.kind, layout.limit, _own_key(packet.sender, keys))


def decode(frame: bytes | memoryview, keys: Keys = NO_KEYS) -> Packet:
    """The packet in a frame; RemoteProtocolError for anything that is not one."""
    if type(frame) is not bytes:
        frame = bytes(frame)
    if frame[:4] == _DATA_PREFIX:
        return _decode_data(frame, keys)
    kind = peek_kind(frame)
    layout = _READERS.get(kind)
    limit = JUMBO_DATAGRAM if layout is None else layout.limit
    if len(frame) > limit:
        raise RemoteProtocolError(f"{kind.name} of {len(frame)} bytes, at most {limit}")
    header, flags = read_header(frame, () if layout is None else layout.flags)
    signed = unsealed(frame, key_of(header.sender, keys))
    body = signed[HEADER_BYTES:]
    if layout is None:
        return _read_repair(header, body, keys)
    try:
        packet = layout.read(header, body)
    except _MALFORMED as reason:
        raise RemoteProtocolError(f"{kind.name}: {reason}") from reason
    if flags:
        packet = packet._replace(**flags)
    fault = layout.fault(packet)
    if fault is not None:
        raise RemoteProtocolError(fault)
    return cast("Packet", packet)


def _own_key(sender: NodeId, keys: Keys) -> bytes:
    """A key that the writer must have."""
    try:
        return keys[sender]
    except KeyError:
        raise LocalProtocolError(f"no key to send as {sender}") from None


def _sealed(signed: bytes, kind: Kind, limit: int, key: bytes) -> bytes:
    """The frame, if it is short enough for its kind."""
    if len(signed) + TAG_BYTES > limit:
        raise LocalProtocolError(f"{kind.name} of {len(signed) + TAG_BYTES} bytes, at most {limit}")
    return signed + tag_of(signed, key)


# ---- DATA, by the short way: one struct for header and fields, no calls


def _encode_data(packet: Data, keys: Keys) -> bytes:
    payload = packet.payload
    if len(payload) > MAX_PAYLOAD:
        raise LocalProtocolError(f"a payload of {len(payload)} bytes, more than {MAX_PAYLOAD}")
    number, server = packet.epoch
    try:
        fields = _DATA.pack(_DATA_PREFIX, packet.stripe, 0, number, server, packet.sender, packet.number, packet.base)
    except error as reason:
        raise LocalProtocolError(f"DATA: {reason}") from reason
    key = _own_key(packet.sender, keys)
    return fields + payload + blake2b(fields + packet.digest, digest_size=TAG_BYTES, key=key).digest()


def _decode_data(frame: bytes, keys: Keys) -> Data:
    if not _SHORTEST_DATA <= len(frame) <= _LONGEST_DATA:
        raise RemoteProtocolError(f"DATA of {len(frame)} bytes, from {_SHORTEST_DATA} to {_LONGEST_DATA} expected")
    _, stripe, flags, epoch_number, server, sender, number, base = _DATA.unpack_from(frame)
    try:
        key = keys[sender]
    except KeyError:
        raise StrangerError(f"no key of sender {sender}") from None
    payload = frame[_PAYLOAD_AT:-TAG_BYTES]
    digest = sha256(payload).digest()[:DIGEST_BYTES]
    tag = blake2b(frame[:_PAYLOAD_AT] + digest, digest_size=TAG_BYTES, key=key).digest()
    if not compare_digest(tag, frame[-TAG_BYTES:]):
        raise ForgeryError("the authentication tag is wrong")
    if flags:
        raise RemoteProtocolError(f"unknown flags {flags:#x} are set")
    return Data(stripe, Epoch(epoch_number, server), sender, number, base, payload, digest)


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


def _encode_repair(packet: Repair, keys: Keys) -> bytes:
    item = packet.item
    if not isinstance(item, Data | Token | TokenPart) or item.stripe != packet.stripe:
        raise LocalProtocolError("REPAIR: the item is of another stripe, or nothing that is repaired")
    try:
        signed = header_bytes(Kind.REPAIR, packet) + encode(item, keys)
    except error as reason:
        raise LocalProtocolError(f"REPAIR: {reason}") from reason
    return _sealed(signed, Kind.REPAIR, JUMBO_DATAGRAM, _own_key(packet.sender, keys))


def _read_repair(header: Header, body: bytes, keys: Keys) -> Repair:
    kind = peek_kind(body)
    if kind not in _REPAIRABLE:
        raise RemoteProtocolError(f"REPAIR: {kind.name} is not repaired")
    item = cast("Repairable", decode(body, keys))
    if item.stripe != header.stripe:
        raise RemoteProtocolError("REPAIR: the item is of another stripe")
    return Repair(*header, item)


_LAYOUTS: dict[type, Layout[Any]] = {
    **TRAFFIC,
    **NACKS,
    **BALLOTS,
    **LINE_PLANS,
    Token: Layout(Kind.TOKEN, token_body, _read_token, _token_fault),
}
_READERS: dict[Kind, Layout[Any]] = {layout.kind: layout for layout in _LAYOUTS.values()}
