"""PROOF of a narrow stripe (§6, concern 4): what its sender signs of the stripe's packets, as bytes.

    PROOF    "ICSV" | signer 8 | session 10 | instant 8 | following 8 | first 8 | salt 8 | flags 1 | levels 1 | place 2
             | each block: messages 2, digest 16 | path: 16 for each level | serial 8, signature 64

Integers are big-endian. A block is a MoldUDP64 packet as it was packed. Its digest is BLAKE2b-16, salted, of the market
and the whole packet, so session, number and count are part of it. Blocks follow one another from `first` on.
`following` is the number behind what was sent of the session, 0 where that is not said; the lowest flag says that the
session has ended with it.

One signature is for all stripes of a sender. A leaf of the tree is the digest of a PROOF up to its flags, and its
blocks; the tree has 2^levels leaves, the missing ones zero; the path leads from the leaf at `place` to the root.

    signed   "N" | signer 8 | instant 8 | root 16        for the stripe of the core, without an epoch
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import NodeId
from isocast.wire.limits import SIGNATURE_BYTES

__all__ = [
    "BLOCK_BYTES",
    "MAX_LEVELS",
    "SALT_BYTES",
    "STRIPE_PROOF_MAGIC",
    "ProvenBlock",
    "StripeProof",
    "block_digest",
    "paths_of",
    "proof_leaf",
    "proof_root",
    "read_stripe_proof",
    "root_statement",
    "stripe_proof_bytes",
    "write_stripe_proof",
]

STRIPE_PROOF_MAGIC = b"ICSV"
SALT_BYTES = 8
MAX_LEVELS = 16
"""Bounds: 65,536 PROOFs under one signature."""
_DIGEST_BYTES = 16
_LEAF = Struct(">4sQ10sqQQ8sB")
_PLACE = Struct(">BH")
_BLOCK = Struct(">H16s")
BLOCK_BYTES = _BLOCK.size
"""What a PROOF says of one packet: 2 + 16."""
_ROOT = Struct(">cQq16s")
_ENDED = 1
_NO_LEAF = bytes(_DIGEST_BYTES)
_BLOCK_PERSON, _LEAF_PERSON, _NODE_PERSON = b"isocast block", b"isocast leaf", b"isocast node"


class ProvenBlock(NamedTuple):
    """A packet of MoldUDP64, by its digest."""

    messages: int
    digest: bytes


class StripeProof(NamedTuple):
    """What a sender says of one session."""

    signer: NodeId
    session: bytes
    instant: int
    """When it was signed."""
    following: int
    """The number behind what was sent; 0: it says nothing of that."""
    first: int
    """Number of the first block."""
    ended: bool
    salt: bytes
    blocks: tuple[ProvenBlock, ...] = ()
    place: int = 0
    path: tuple[bytes, ...] = ()
    signature: bytes = b""


def stripe_proof_bytes(blocks: int, levels: int) -> int:
    """How long a PROOF is."""
    return _LEAF.size + _PLACE.size + blocks * BLOCK_BYTES + levels * _DIGEST_BYTES + SIGNATURE_BYTES


def block_digest(market: bytes, salt: bytes, raw: bytes) -> bytes:
    """Of a packet as it was packed."""
    return blake2b(market + raw, digest_size=_DIGEST_BYTES, salt=salt, person=_BLOCK_PERSON).digest()


def _leaf_bytes(proof: StripeProof) -> tuple[bytes, bytes]:
    fields = _LEAF.pack(
        STRIPE_PROOF_MAGIC,
        proof.signer,
        proof.session,
        proof.instant,
        proof.following,
        proof.first,
        proof.salt,
        _ENDED * proof.ended,
    )
    return fields, b"".join([_BLOCK.pack(*block) for block in proof.blocks])


def proof_leaf(proof: StripeProof) -> bytes:
    """The leaf of the tree that stands for a PROOF."""
    return blake2b(b"".join(_leaf_bytes(proof)), digest_size=_DIGEST_BYTES, person=_LEAF_PERSON).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return blake2b(left + right, digest_size=_DIGEST_BYTES, person=_NODE_PERSON).digest()


def paths_of(leaves: Sequence[bytes]) -> tuple[bytes, list[tuple[bytes, ...]]]:
    """The root over some leaves, and each one's path to it."""
    levels = (len(leaves) - 1).bit_length()
    row = [*leaves, *[_NO_LEAF] * ((1 << levels) - len(leaves))]
    rows = [row]
    for _ in range(levels):
        row = [_node(row[at], row[at + 1]) for at in range(0, len(row), 2)]
        rows.append(row)
    paths = [tuple([rows[level][(place >> level) ^ 1] for level in range(levels)]) for place, _ in enumerate(leaves)]
    return row[0], paths


def proof_root(proof: StripeProof) -> bytes:
    """The root to which a PROOF's path leads."""
    digest, place = proof_leaf(proof), proof.place
    for other in proof.path:
        digest = _node(other, digest) if place & 1 else _node(digest, other)
        place >>= 1
    return digest


def root_statement(signer: NodeId, instant: int, root: bytes) -> bytes:
    """What is signed."""
    return _ROOT.pack(b"N", signer, instant, root)


def write_stripe_proof(proof: StripeProof) -> bytes:
    """The datagram."""
    fields, blocks = _leaf_bytes(proof)
    place = _PLACE.pack(len(proof.path), proof.place)
    return fields + place + blocks + b"".join(proof.path) + proof.signature


def read_stripe_proof(raw: bytes) -> StripeProof:
    """A PROOF from its bytes; RemoteProtocolError for anything else."""
    if not raw.startswith(STRIPE_PROOF_MAGIC) or len(raw) < stripe_proof_bytes(0, 0):
        raise RemoteProtocolError(f"{len(raw)} bytes that are no PROOF of a stripe")
    _, signer, session, instant, following, first, salt, flags = _LEAF.unpack_from(raw)
    levels, place = _PLACE.unpack_from(raw, _LEAF.size)
    count, rest = divmod(len(raw) - stripe_proof_bytes(0, levels), BLOCK_BYTES)
    if rest or count < 0 or levels > MAX_LEVELS or place >> levels or flags > _ENDED or instant < 0:
        raise RemoteProtocolError("a PROOF of a stripe whose lengths do not fill it")
    at = _LEAF.size + _PLACE.size
    blocks = tuple([ProvenBlock(*_BLOCK.unpack_from(raw, at + number * BLOCK_BYTES)) for number in range(count)])
    if not all(block.messages for block in blocks) or (blocks and not first):
        raise RemoteProtocolError("a PROOF of a block without messages")
    at += count * BLOCK_BYTES
    path = tuple(
        [raw[start : start + _DIGEST_BYTES] for start in range(at, at + levels * _DIGEST_BYTES, _DIGEST_BYTES)]
    )
    signature = raw[-SIGNATURE_BYTES:]
    return StripeProof(signer, session, instant, following, first, bool(flags), salt, blocks, place, path, signature)
