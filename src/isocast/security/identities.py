"""Identities: an Ed25519 key pair for each node and person, and what exactly a signature covers (§6).

A signature covers a *statement*: the purpose, the market, the stripe, the epoch, the roster's serial and the full
body. So nothing that was signed for one market, stripe, epoch or purpose counts in another.

    "isocast3" | kind 1 | market 32 | stripe 2 | epoch number 4 | epoch server 4 | serial 8 | body

Integers are big-endian. A private key is made on its owner's machine and never leaves it. The same seed makes a second
key pair (X25519), by which others send its owner a secret that nobody else can open.
"""

from __future__ import annotations

from hashlib import blake2b, sha256
from struct import Struct
from typing import Final, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NO_EPOCH, Epoch
from isocast.wire.signing import SignedKind

__all__ = [
    "ED25519_BYTES",
    "IDENTITY_BYTES",
    "Identity",
    "fingerprint_of",
    "is_signed",
    "market_of",
    "statement",
]

IDENTITY_BYTES: Final = 32
"""Of a private key's seed, and of a public key."""
ED25519_BYTES: Final = 64
"""Of a signature alone; as it travels in a packet, the roster's serial stands before it."""

_CONTEXT = b"isocast3"
_STATEMENT = Struct(">8sB32sHIIQ")
_FINGERPRINT_BYTES = 8
_EXCHANGE = b"isocast exchange"


def market_of(name: str, root: bytes) -> bytes:
    """What a signature names as its market: the hash of its name and of its root's public key."""
    if len(root) != IDENTITY_BYTES:
        raise LocalProtocolError(f"a public key has {IDENTITY_BYTES} bytes, not {len(root)}")
    return sha256(_CONTEXT + root + name.encode()).digest()


def statement(
    kind: SignedKind, market: bytes, body: bytes, *, stripe: int = 0, epoch: Epoch = NO_EPOCH, serial: int = 0
) -> bytes:
    """The bytes that are signed."""
    return _STATEMENT.pack(_CONTEXT, kind, market, stripe, epoch.number, epoch.server, serial) + body


def fingerprint_of(public: bytes) -> str:
    """What people compare: sixteen digits of a public key's hash."""
    return sha256(public).digest()[:_FINGERPRINT_BYTES].hex()


class Identity:
    """A private key. Shows itself by the fingerprint of its public key; is neither copied nor pickled."""

    __slots__ = ("_exchange", "_private", "exchange", "public")

    def __init__(self, seed: bytes) -> None:
        """`seed`: 32 random bytes, as its file holds them; LocalProtocolError for another length."""
        if len(seed) != IDENTITY_BYTES:
            raise LocalProtocolError(f"an identity has {IDENTITY_BYTES} bytes, not {len(seed)}")
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._private.public_key().public_bytes_raw()
        own = blake2b(seed, digest_size=IDENTITY_BYTES, person=_EXCHANGE).digest()
        self._exchange = X25519PrivateKey.from_private_bytes(own)
        self.exchange = self._exchange.public_key().public_bytes_raw()
        """The public key by which others send this owner a secret."""

    def sign(self, statement: bytes) -> bytes:
        """The signature of a statement: 64 bytes."""
        return self._private.sign(statement)

    def agree(self, public: bytes) -> bytes:
        """The secret that only this owner and that of a public exchange key share; ValueError for no such key."""
        return self._exchange.exchange(X25519PublicKey.from_public_bytes(public))

    @property
    def fingerprint(self) -> str:
        """What people compare: of the public key."""
        return fingerprint_of(self.public)

    def __repr__(self) -> str:
        return f"Identity({self.fingerprint})"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("an identity is not pickled or copied")


def is_signed(public: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether the owner of a public key signed a statement; never raises, whatever the bytes are."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True
