"""The bodies of a ring's ordinary traffic: parts, receipts, answers, releases and ranges."""

from __future__ import annotations

from struct import Struct
from typing import Any

from isocast.terms.errors import RemoteProtocolError
from isocast.wire.frame import Header, Kind, Layout, digest_fault
from isocast.wire.limits import (
    JUMBO_DATAGRAM,
    MAX_PART_BODY,
    MAX_PARTS,
    MAX_PAYLOAD,
    MAX_PROOF,
    PART_BYTES,
    RELEASED_BYTES,
)
from isocast.wire.packets import (
    Pending,
    Range,
    RangeReply,
    RangeRequest,
    Receipt,
    Released,
    SecondaryToken,
    Standing,
    TokenPart,
)

__all__ = ["TRAFFIC"]

_PART = Struct("<QHH")
_RECEIPT = Struct("<Q16s")
_PENDING = Struct("<Q")
_STANDING = Struct("<QQQ")
_SECONDARY = Struct("<IQ")
_RELEASED = Struct("<QQqQIIHH")
_REQUEST = Struct("<HQQ")
_REPLY = Struct("<HQQQ")


# ---- TOKENPART


def _write_part(packet: TokenPart) -> bytes:
    return _PART.pack(packet.token_number, packet.part, packet.parts) + packet.body


def _read_part(header: Header, body: bytes) -> TokenPart:
    token_number, part, parts = _PART.unpack_from(body)
    return TokenPart(*header, token_number, part, parts, body[PART_BYTES:])


def _part_fault(packet: TokenPart) -> str | None:
    if not 0 <= packet.part < packet.parts <= MAX_PARTS:
        return f"part {packet.part} of {packet.parts}, at most {MAX_PARTS}"
    if not 0 < len(packet.body) <= MAX_PART_BODY:
        return f"a part of {len(packet.body)} bytes, at most {MAX_PART_BODY}"
    return None


# ---- RECEIPT, PENDING, STANDING, SECTOKEN


def _receipt_fault(packet: Receipt) -> str | None:
    return digest_fault(packet.digest)


# ---- REL


def _write_released(packet: Released) -> bytes:
    fixed = _RELEASED.pack(
        packet.token_number,
        packet.sequence,
        packet.instant,
        packet.number,
        packet.edge_stripe,
        packet.count,
        len(packet.payload),
        len(packet.proof),
    )
    return fixed + packet.payload + packet.proof


def _read_released(header: Header, body: bytes) -> Released:
    token_number, sequence, instant, number, edge_stripe, count, payload, proof = _RELEASED.unpack_from(body)
    proof_at = RELEASED_BYTES + payload
    if len(body) != proof_at + proof:
        raise RemoteProtocolError(f"REL of {len(body)} bytes, {proof_at + proof} expected")
    return Released(
        *header,
        token_number,
        sequence,
        instant,
        edge_stripe,
        number,
        count,
        body[RELEASED_BYTES:proof_at],
        body[proof_at:],
    )


def _released_fault(packet: Released) -> str | None:
    payload, proof = len(packet.payload), len(packet.proof)
    if payload > MAX_PAYLOAD or proof > MAX_PROOF:
        return f"REL of {payload} and {proof} bytes, at most {MAX_PAYLOAD} and {MAX_PROOF}"
    return None


# ---- RXREQ, RXREP


def _read_request(header: Header, body: bytes) -> RangeRequest:
    kind, first, last = _REQUEST.unpack(body)
    return RangeRequest(*header, Range(kind), first, last)


def _request_fault(packet: RangeRequest) -> str | None:
    return f"a range from {packet.first} to {packet.last}" if packet.first > packet.last else None


def _read_reply(header: Header, body: bytes) -> RangeReply:
    kind, first, last, low_water = _REPLY.unpack(body)
    return RangeReply(*header, Range(kind), first, last, low_water)


TRAFFIC: dict[type, Layout[Any]] = {
    TokenPart: Layout(Kind.TOKENPART, _write_part, _read_part, _part_fault),
    Receipt: Layout(
        Kind.RECEIPT,
        lambda packet: _RECEIPT.pack(*packet[3:]),
        lambda header, body: Receipt(*header, *_RECEIPT.unpack(body)),
        _receipt_fault,
    ),
    Pending: Layout(
        Kind.PENDING,
        lambda packet: _PENDING.pack(packet.token_number),
        lambda header, body: Pending(*header, *_PENDING.unpack(body)),
    ),
    Standing: Layout(
        Kind.STANDING,
        lambda packet: _STANDING.pack(*packet[3:]),
        lambda header, body: Standing(*header, *_STANDING.unpack(body)),
    ),
    SecondaryToken: Layout(
        Kind.SECTOKEN,
        lambda packet: _SECONDARY.pack(*packet[3:]),
        lambda header, body: SecondaryToken(*header, *_SECONDARY.unpack(body)),
    ),
    Released: Layout(Kind.REL, _write_released, _read_released, _released_fault, JUMBO_DATAGRAM, ("uncertified",)),
    RangeRequest: Layout(Kind.RXREQ, lambda packet: _REQUEST.pack(*packet[3:]), _read_request, _request_fault),
    RangeReply: Layout(Kind.RXREP, lambda packet: _REPLY.pack(*packet[3:]), _read_reply),
}
"""How each of these packets is written and read."""
