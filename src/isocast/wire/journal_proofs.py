"""What a journal block keeps so that anybody can prove it: seal keys of its messages, and signed words of the ring.

Behind the payloads, and the zeros after them:

    | seals 2 | salts 2 | statements 4 |
    | keys: 32 bytes for each message, in sequence order; none if `seals` is 0 |
    | salts: source 8, first number 8, salt 16 |
    | statements: kind 2, bytes of signature 2, bytes of body 4, epoch 4+4, sender 8, signature, body |
    | zeros to a multiple of 8 |

Integers are little-endian. A salt counts for the messages of its source from its number on: sources draw one at each
start, so there is one row for each source as a rule. A key of zeros belongs to a message that could not be opened.

A *statement* is what a node signed: a TOKEN of this block or of a later one, which vouches for all before it, a
RECEIPT, a source's chain. Each is kept once in a journal, in the first block that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import NamedTuple

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.limits import MAX_TOKEN_BODY
from isocast.wire.signing import signature_fault

__all__ = ["NO_SEAL", "BlockProof", "MessageSeal", "Statement", "decode_proof", "encode_proof"]

_HEAD = Struct("<HHI")
_SALT = Struct("<QQ16s")
_STATEMENT = Struct("<HHIIIQ")
_KEY_BYTES = 32
_NO_KEY = bytes(_KEY_BYTES)
_SALT_BYTES = 16
_ALIGNMENT = 8


class MessageSeal(NamedTuple):
    """What one message was sealed with."""

    salt: bytes
    key: bytes


NO_SEAL = MessageSeal(b"", b"")
"""Of a message that could not be opened."""


class Statement(NamedTuple):
    """What a node signed for one purpose in one epoch."""

    kind: int
    epoch: Epoch
    sender: NodeId
    signature: bytes
    """The roster's serial and the signature; empty in a market without signatures."""
    body: bytes


@dataclass(frozen=True, slots=True)
class BlockProof:
    """What proves one block, together with the statements of blocks around it."""

    seals: tuple[MessageSeal, ...] = ()
    """Of every message, in sequence order; none where the market does not seal."""
    statements: tuple[Statement, ...] = ()

    def part(self, start: int, stop: int) -> BlockProof:
        """Of some of the messages; the statements go with the first of them."""
        return BlockProof(self.seals[start:stop], () if start else self.statements)


def encode_proof(proof: BlockProof, labels: Sequence[tuple[NodeId, int]]) -> bytes:
    """The bytes behind the payloads of messages with these labels; LocalProtocolError for what no reader takes."""
    seals = proof.seals
    if seals and len(seals) != len(labels):
        raise LocalProtocolError(f"{len(seals)} seals of {len(labels)} messages")
    salts: list[tuple[NodeId, int, bytes]] = []
    known: dict[NodeId, bytes] = {}
    for (source, number), (salt, key) in zip(labels, seals, strict=False):
        if known.get(source) == salt and len(key) == _KEY_BYTES and key != _NO_KEY:
            continue
        if (len(salt), len(key)) not in ((_SALT_BYTES, _KEY_BYTES), (0, 0)) or key == _NO_KEY:
            raise LocalProtocolError(f"message {number} of source {source} has a key of {len(key)} bytes")
        if key:
            known[source] = salt
            salts.append((source, number, salt))
    try:
        pieces = [_HEAD.pack(bool(seals), len(salts), len(proof.statements))]
        pieces += [seal.key or _NO_KEY for seal in seals]
        pieces += [_SALT.pack(*row) for row in salts]
        for statement in proof.statements:
            pieces += _statement_pieces(statement)
    except error as reason:
        raise LocalProtocolError(f"a proof's value does not fit its field: {reason}") from reason
    raw = b"".join(pieces)
    return raw + bytes(-len(raw) % _ALIGNMENT)


def _statement_pieces(statement: Statement) -> tuple[bytes, bytes, bytes]:
    kind, epoch, sender, signature, body = statement
    fault = signature_fault(signature)
    if fault is not None or len(body) > MAX_TOKEN_BODY:
        raise LocalProtocolError(fault or f"a statement of {len(body)} bytes")
    return _STATEMENT.pack(kind, len(signature), len(body), *epoch, sender), signature, body


def decode_proof(raw: bytes | memoryview, labels: Sequence[tuple[NodeId, int]]) -> BlockProof:
    """What the bytes behind the payloads say; RemoteProtocolError unless they are spelled as a writer would."""
    try:
        proof = _read(bytes(raw), labels)
    except error as reason:
        raise RemoteProtocolError(f"the proof of a block: {reason}") from reason
    try:
        again = encode_proof(proof, labels)
    except LocalProtocolError as reason:
        raise RemoteProtocolError(f"the proof of a block: {reason}") from reason
    if again != raw:
        raise RemoteProtocolError("the proof of a block contradicts itself")
    return proof


def _read(raw: bytes, labels: Sequence[tuple[NodeId, int]]) -> BlockProof:
    is_sealed, salts, count = _HEAD.unpack_from(raw)
    at = _HEAD.size
    keys_end = at + len(labels) * _KEY_BYTES * bool(is_sealed)
    keys = [raw[start : start + _KEY_BYTES] for start in range(at, keys_end, _KEY_BYTES)]
    at = keys_end + salts * _SALT.size
    if at > len(raw):
        raise RemoteProtocolError(f"the proof of a block has {len(raw)} bytes, {at} at least are expected")
    seals = _sealed(keys, list(_SALT.iter_unpack(raw[keys_end:at])), labels)
    statements: list[Statement] = []
    for _ in range(count):
        kind, signature_bytes, body_bytes, number, server, sender = _STATEMENT.unpack_from(raw, at)
        at += _STATEMENT.size
        body_at = at + signature_bytes
        end = body_at + body_bytes
        if end > len(raw):
            raise RemoteProtocolError(f"the proof of a block has {len(raw)} bytes, {end} at least are expected")
        statements.append(Statement(kind, Epoch(number, server), sender, raw[at:body_at], raw[body_at:end]))
        at = end
    return BlockProof(seals, tuple(statements))


def _sealed(
    keys: list[bytes], salts: list[tuple[NodeId, int, bytes]], labels: Sequence[tuple[NodeId, int]]
) -> tuple[MessageSeal, ...]:
    """Each message's salt: the newest row of its source at or before its number."""
    begins = {(source, number): salt for source, number, salt in salts}
    current: dict[NodeId, bytes] = {}
    found: list[MessageSeal] = []
    for label, key in zip(labels, keys, strict=False):
        salt = begins.get(label)
        if salt is not None:
            current[label[0]] = salt
        found.append(NO_SEAL if key == _NO_KEY else MessageSeal(current.get(label[0], b""), key))
    return tuple(found)
