"""What a line's proofs cover (§6): the digest of a released message, and the bytes that are signed.

    digest of a message   BLAKE2b-16, salted, of
                          market 32 | epoch 4 + 4 | token 8 | sequence 8 | T_t 8 | edge stripe 4 | number 8 | count 4
                          | flags 1 | shuffle key 16 | SHA-256 of the payload 32
    signed of a PROOF     "P" | sender 8 | its body without the signature
    signed of a heartbeat "H" | sender 8 | token 8 | sequence 8 | instant 8 | number 8 | edge stripe 4 | flags 4
                          | payload

The salt is a digest of the nonce that the token reveals and of the token before it: the same on every line, and not
known to whoever chooses payloads, so that nobody looks for two with one digest beforehand. The payload's own digest,
which has no salt, is long enough for that by itself; a REL's tag covers it too, so that a message is hashed once. The
sender is not in a message's digest: a repair is proven by the same digest as the line's own copy. Market, stripe, epoch
and the roster's serial are part of every signed statement (`security.identities`).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct

from isocast.wire.limits import PROOF_DIGEST_BYTES
from isocast.wire.packets import Proof, ReleasedPacket

__all__ = [
    "heartbeat_statement",
    "proof_fields",
    "proof_salt",
    "proof_statement",
    "read_proof_fields",
    "released_digest",
    "released_digests",
]

_RELEASED = Struct("<IIQQqIQIB16s")
_FIELDS = Struct("<QqQIIHH16s")
_HEARTBEAT = Struct("<cQQQqQII")
_SENDER = Struct("<cQ")
_PERSON = b"isocast rel"
_SALT_PERSON = b"isocast salt"


def proof_salt(reveal: bytes, previous: bytes) -> bytes:
    """Of the nonce that a token reveals, and of the digest of the token before."""
    return blake2b(reveal + previous, digest_size=PROOF_DIGEST_BYTES, person=_SALT_PERSON).digest()


def released_digest(market: bytes, salt: bytes, packet: ReleasedPacket) -> bytes:
    """What a PROOF says of one message."""
    return released_digests(market, salt, (packet,))[0]


def released_digests(market: bytes, salt: bytes, packets: Sequence[ReleasedPacket]) -> tuple[bytes, ...]:
    """What a PROOF says of some messages, in their order."""
    copied, pack = blake2b(market, digest_size=PROOF_DIGEST_BYTES, salt=salt, person=_PERSON).copy, _RELEASED.pack
    found: list[bytes] = []
    for packet in packets:
        _, (epoch, server), _, token_number, sequence, instant, stripe, number, count, _, _, uncertified, key = packet
        digest = copied()
        digest.update(
            pack(epoch, server, token_number, sequence, instant, stripe, number, count, uncertified, key)
            + packet.digest
        )
        found.append(digest.digest())
    return tuple(found)


def proof_fields(proof: Proof) -> bytes:
    """The body of a PROOF without its signature; struct.error when a field is out of its range."""
    fixed = _FIELDS.pack(
        proof.token_number,
        proof.instant,
        proof.first,
        proof.edge_stripe,
        proof.version,
        proof.part,
        proof.parts,
        proof.salt,
    )
    return fixed + b"".join(proof.digests)


def read_proof_fields(body: bytes) -> tuple[int, int, int, int, int, int, int, bytes]:
    """Token, instant, first, edge stripe, version, part, parts and salt; struct.error if it is too short."""
    return _FIELDS.unpack_from(body)


def proof_statement(proof: Proof) -> bytes:
    """What its sender signs of a PROOF."""
    return _SENDER.pack(b"P", proof.sender) + proof_fields(proof)


def heartbeat_statement(packet: ReleasedPacket) -> bytes:
    """What its sender signs of a heartbeat."""
    return (
        _HEARTBEAT.pack(
            b"H",
            packet.sender,
            packet.token_number,
            packet.sequence,
            packet.instant,
            packet.number,
            packet.edge_stripe,
            packet.uncertified,
        )
        + packet.payload
    )
