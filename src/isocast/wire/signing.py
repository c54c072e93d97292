"""What the core's packets are signed with, as far as the wire knows: the kinds, the bytes, and two small interfaces.

A signature as it travels names the roster's serial under which it was made:

    serial 8 | signature 64

A packet without a signature spells none of it. What the 64 bytes are is the signer's affair: Ed25519 in a market,
a keyed hash in the simulator. Neither the ring nor the reformation knows keys; they ask a Signer and a Verifier.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from isocast.terms.ids import Epoch, NodeId
from isocast.wire.limits import SIGNATURE_BYTES

__all__ = [
    "MARKET_BYTES",
    "SERIAL_BYTES",
    "UNSIGNED",
    "OrderVerifier",
    "SignedKind",
    "Signer",
    "Verifier",
    "signature_fault",
]

SERIAL_BYTES = 8
"""Of the roster, in front of a signature."""
MARKET_BYTES = 32
"""Of the hash by which statements, seals and proofs name their market."""
UNSIGNED = b""
"""The signature of a packet in a network without signatures."""


class SignedKind(IntEnum):
    """What a signature is for. Numbers are never used again for something else."""

    ROSTER = 1
    REVOCATION = 2
    TOKEN = 3
    RECEIPT = 4
    INVITE = 5
    JOIN = 6
    NEWRING = 7
    CONTROL = 8
    SOURCE_CHAIN = 9
    """A source's own word, once in a token period, for all that it sent."""
    LINE_PROOF = 10
    STRIPE_PROOF = 11
    DOOR = 12
    """Both nonces of a handshake and the hash of the certificate."""
    PACKAGE = 13
    """The box office's word for what a customer bought."""


class Signer(Protocol):
    """Signs as one node. Equal words get equal signatures, so that a packet is resent unchanged."""

    def sign(self, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes) -> bytes:
        """Serial and signature: 72 bytes."""


class Verifier(Protocol):
    """Knows every node's public key."""

    def is_from(self, node: NodeId, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes, signature: bytes) -> bool:
        """Whether a node signed this body for this purpose, stripe and epoch; never raises."""


class OrderVerifier(Verifier, Protocol):
    """Knows the operator's public key too."""

    def is_order(self, stripe: int, body: bytes, signature: bytes, token_number: int, *, settled: bool) -> bool:
        """Whether the operator signed an order for a stripe, by the roster that counts at a token; never raises.

        `settled`: a key that was revoked since counts.
        """


def signature_fault(signature: bytes) -> str | None:
    """A packet carries a whole signature, or none."""
    return None if len(signature) in (0, SIGNATURE_BYTES) else f"a signature of {len(signature)} bytes"
