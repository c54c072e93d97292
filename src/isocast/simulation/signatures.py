"""Signatures of simulated nodes: a keyed hash that stands for Ed25519, fifty times as cheap.

Every node has a key of its own, drawn from the seed. A machine gets the signer of its own node alone, and a liar in
the simulator has no other either: what it says in another's name is refused. The verifier, which knows all keys, is
given to nobody that writes packets.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from struct import Struct

from isocast.terms.ids import NO_EPOCH, OPERATOR, Epoch, NodeId
from isocast.wire.limits import SIGNATURE_BYTES
from isocast.wire.signing import SignedKind

__all__ = ["SERIAL", "KeyedSigner", "KeyedVerifier"]

SERIAL = 1
"""Of the only roster."""
_STATEMENT = Struct("<BHIIQ")
_SERIAL = Struct("<Q")


def _key(seed: object, node: NodeId) -> bytes:
    return blake2b(f"{seed}/{node}/identity".encode(), digest_size=32).digest()


def _signature(key: bytes, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes) -> bytes:
    """As `security.identities.statement`: purpose, stripe, epoch, serial and the whole body."""
    hashed = blake2b(_STATEMENT.pack(kind, stripe, *epoch, SERIAL), key=key)
    hashed.update(body)
    return _SERIAL.pack(SERIAL) + hashed.digest()


class KeyedSigner:
    """Signs as one node."""

    def __init__(self, seed: object, node: NodeId) -> None:
        """The key of a node in the world of a seed."""
        self._key = _key(seed, node)

    def sign(self, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes) -> bytes:
        """Serial and signature."""
        return _signature(self._key, kind, stripe, epoch, body)


class KeyedVerifier:
    """Knows the keys of all nodes."""

    def __init__(self, seed: object) -> None:
        """Those of the world of a seed."""
        self._seed = seed
        self._keys: dict[NodeId, bytes] = {}

    def is_from(self, node: NodeId, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes, signature: bytes) -> bool:
        """Whether a node signed this."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        key = self._keys.get(node)
        if key is None:
            key = self._keys[node] = _key(self._seed, node)
        return compare_digest(_signature(key, kind, stripe, epoch, body), signature)

    def is_order(self, stripe: int, body: bytes, signature: bytes, token_number: int, *, settled: bool) -> bool:  # noqa: ARG002
        """Whether the operator signed this."""
        return self.is_from(OPERATOR, SignedKind.CONTROL, stripe, NO_EPOCH, body, signature)
