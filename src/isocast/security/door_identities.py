"""Who stands at a door, by identity (§6, "who may transmit"): both sides sign the handshake, and agree on a fresh key.

    IDENTITY    15 | ephemeral key 32 | serial 8 | signature 64     of whoever the roster lists
    IDENTITY    15 | ephemeral key 32                               of a visitor whom it does not: customers and guests

The key of a door is shared: whoever has a copy can prove it, and could make the keys of every connection from it. So in
a market with a roster both sides say IDENTITY besides, the visitor behind LOGIN, the door behind WELCOME. A signature
covers the side, the door's id, both nonces, the hash of the certificate that the door presents, the ephemeral keys that
were said so far, and the visitor's name: it counts on this connection, at this door, and nowhere else. The tags of
what follows come from the key of the door and from what the two ephemeral keys (X25519) agree on, which nobody in
between knows.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, NoReturn

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from isocast.security.identities import is_signed, statement
from isocast.security.keys import KEY_BYTES
from isocast.security.signing import Listing
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.wire.limits import SIGNATURE_BYTES
from isocast.wire.signing import UNSIGNED, SignedKind, Signer

__all__ = ["IDENTITY", "DoorHand", "DoorWord", "EphemeralKey", "Handshake", "encode_word", "read_word"]

IDENTITY: Final = 15
"""The kind of this message, behind those of `wire.door`."""
_EPHEMERAL_BYTES: Final = 32
_PLACE: Final = Struct(">6sQ")
_SERIAL: Final = Struct("<Q")
_VISITOR, _DOOR = b"client", b"server"
_AGREED = b"isocast doorway"


class DoorWord(NamedTuple):
    """What one side says of itself."""

    ephemeral: bytes
    """The public half of a key that was made for this connection."""
    signature: bytes = UNSIGNED
    """Serial and signature; none of a visitor whom the roster does not list."""


def encode_word(word: DoorWord) -> bytes:
    """Kind and body."""
    return bytes((IDENTITY,)) + word.ephemeral + word.signature


def read_word(message: bytes) -> DoorWord:
    """RemoteProtocolError for anything that `encode_word` does not write."""
    body = message[1:]
    if not message or message[0] != IDENTITY:
        raise RemoteProtocolError("no IDENTITY, which every visitor and door of a market with a roster says")
    if len(body) not in (_EPHEMERAL_BYTES, _EPHEMERAL_BYTES + SIGNATURE_BYTES):
        raise RemoteProtocolError(f"IDENTITY of {len(body)} bytes")
    return DoorWord(body[:_EPHEMERAL_BYTES], body[_EPHEMERAL_BYTES:])


class Handshake(NamedTuple):
    """What both sides of a connection know, before either has said who it is."""

    door: NodeId
    stripe: int
    """Of the process that the door belongs to."""
    visitor: str
    """The name under which it comes in."""
    nonces: tuple[bytes, ...]
    """The door's, the visitor's, and the hash of the certificate that the door presents, or zeros."""

    def said(self, side: bytes, *ephemerals: bytes) -> bytes:
        """What a side signs."""
        return _PLACE.pack(side, self.door) + b"".join((*self.nonces, *ephemerals)) + self.visitor.encode()


class EphemeralKey:
    """A key pair of one connection; is neither copied nor pickled, and shows nothing."""

    __slots__ = ("_private", "public")

    def __init__(self, seed: bytes) -> None:
        """`seed`: 32 random bytes, for this connection alone."""
        self._private = X25519PrivateKey.from_private_bytes(seed)
        self.public = self._private.public_key().public_bytes_raw()

    def agree(self, other: bytes, key: bytes) -> bytes:
        """What the connection's keys are made of; RemoteProtocolError for a key on which nobody can agree."""
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            raise RemoteProtocolError("IDENTITY with an ephemeral key that is none") from None
        return blake2b(shared, digest_size=KEY_BYTES, key=key, person=_AGREED).digest()

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a key is not pickled or copied")


class DoorHand:
    """Signs handshakes as one node, where it is listed, and judges those of others."""

    def __init__(
        self,
        market: bytes,
        listing: Listing,
        signer: Signer | None = None,
        refused: dict[SignedKind, int] | None = None,
    ) -> None:
        """`market` as `market_of` gives it; without a `signer` it only judges. `refused` counts what it refuses."""
        self._market = market
        self._listing = listing
        self._signer = signer
        self._refused: dict[SignedKind, int] = {} if refused is None else refused

    def visitor_word(self, handshake: Handshake, ephemeral: bytes) -> DoorWord:
        """What a visitor says; nothing but its ephemeral key if the roster does not list it."""
        return self._word(handshake, ephemeral, handshake.said(_VISITOR, ephemeral))

    def door_word(self, handshake: Handshake, visitor: bytes, ephemeral: bytes) -> DoorWord:
        """What the door says to a visitor with an ephemeral key."""
        return self._word(handshake, ephemeral, handshake.said(_DOOR, visitor, ephemeral))

    def is_visitor(self, handshake: Handshake, node: NodeId, word: DoorWord) -> bool:
        """Whether a visitor is this node; counted, if not."""
        return self._judge(handshake, node, word, handshake.said(_VISITOR, word.ephemeral))

    def is_door(self, handshake: Handshake, visitor: bytes, word: DoorWord) -> bool:
        """Whether the door is its node's, as it answers a visitor's ephemeral key; counted, if not."""
        return self._judge(handshake, handshake.door, word, handshake.said(_DOOR, visitor, word.ephemeral))

    def _word(self, handshake: Handshake, ephemeral: bytes, said: bytes) -> DoorWord:
        if self._signer is None:
            return DoorWord(ephemeral)
        return DoorWord(ephemeral, self._signer.sign(SignedKind.DOOR, handshake.stripe, NO_EPOCH, said))

    def _judge(self, handshake: Handshake, node: NodeId, word: DoorWord, said: bytes) -> bool:
        if self._is_signed(handshake, node, word.signature, said):
            return True
        self._refused[SignedKind.DOOR] = self._refused.get(SignedKind.DOOR, 0) + 1
        return False

    def _is_signed(self, handshake: Handshake, node: NodeId, signature: bytes, said: bytes) -> bool:
        if len(signature) != SIGNATURE_BYTES:
            return False
        (serial,) = _SERIAL.unpack_from(signature)
        public = self._listing.key_of(node, serial)
        if public is None:
            return False
        whole = statement(SignedKind.DOOR, self._market, said, stripe=handshake.stripe, serial=serial)
        return is_signed(public, signature[_SERIAL.size :], whole)
