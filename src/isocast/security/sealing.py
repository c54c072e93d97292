"""Sealing: a payload that nobody can read before its release, and nobody can change (§6).

Every message has a key of its own, so that one key says nothing of another message, and can be shown to everybody once
the message is out:

    base key          `derive(source key, SEAL, source number, stripe)`
    seal key          BLAKE2b-256 keyed with the base key: salt 16 | source id 8 | number 8
    commitment        BLAKE2b-256 of the seal key
    sealed payload    salt 16 | commitment 32 | ciphertext | tag 16

The ciphertext is AES-256-GCM under the seal key; nonce: incarnation 4 | number 8; associated data: stripe 2 | source
id 8 | number 8. Integers are big-endian.

The salt is drawn at each start of a source. A source that was set back to an earlier moment, and so gives a number
again, seals it under another key: no key ever meets two payloads. What a source keeps and sends again is the sealed
payload, and the salt is part of it.

The commitment ties the sealed payload to one key. GCM alone does not: whoever makes a payload can choose its bytes so
that two keys open it, to two contents. With the commitment anybody who is shown the seal key can check that the sealed
bytes, which a token's digest covers, are this content and no other (`seal_with`).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from isocast.security.keys import KEY_BYTES, Purpose, SecretKey
from isocast.terms.errors import ForgeryError, LocalProtocolError, StrangerError
from isocast.terms.ids import Label, NodeId, source_id

__all__ = [
    "COMMITMENT_BYTES",
    "SALT_BYTES",
    "SEAL_TAG_BYTES",
    "Opened",
    "Opener",
    "Sealer",
    "base_key",
    "commitment",
    "is_committed",
    "open_with",
    "seal_with",
]

SALT_BYTES: Final = 16
"""Drawn at each start: two starts of one source share a salt once in 2^64 of them."""
COMMITMENT_BYTES: Final = 32
"""Two keys with one commitment are a collision of BLAKE2b-256: 2^128 attempts."""
SEAL_TAG_BYTES: Final = 16

_NONCE = Struct(">IQ")
_ASSOCIATED = Struct(">HQQ")
_KEYED = Struct(">16sQQ")
_COMMITTING = blake2b(digest_size=COMMITMENT_BYTES, person=b"isocast commit")
_CIPHER_AT = SALT_BYTES + COMMITMENT_BYTES
_LEAST_BYTES = _CIPHER_AT + SEAL_TAG_BYTES
_INCARNATION_BITS = 32
_INCARNATION_MASK = (1 << _INCARNATION_BITS) - 1


class Opened(NamedTuple):
    """A payload in the clear, and what proves that it is what was sealed."""

    payload: bytes
    salt: bytes
    key: bytes
    """Of this message alone: it may be published once the message is."""


def base_key(secret: SecretKey, number: int, stripe: int) -> bytes:
    """Of a source's seals in one stripe: two sources given the same file, or two stripes, share none."""
    return secret.derive(Purpose.SEAL, source_id(number, 0), stripe)


def _keyed(secret: SecretKey, number: int, stripe: int) -> blake2b:
    """What makes the seal keys of one source and stripe: a hash that knows its key already is copied, not made."""
    return blake2b(digest_size=KEY_BYTES, key=base_key(secret, number, stripe))


def _seal_key(keyed: blake2b, salt: bytes, source: NodeId, number: int) -> bytes:
    """The key of one message."""
    made = keyed.copy()
    made.update(_KEYED.pack(salt, source, number))
    return made.digest()


def commitment(key: bytes) -> bytes:
    """What a sealed payload says of its key, without betraying it."""
    committing = _COMMITTING.copy()
    committing.update(key)
    return committing.digest()


def seal_with(key: bytes, salt: bytes, stripe: int, label: tuple[NodeId, int], payload: bytes) -> bytes:
    """The sealed payload, as whoever has been shown the seal key of one message makes it again."""
    source, number = label
    nonce, known = _NONCE.pack(source & _INCARNATION_MASK, number), _ASSOCIATED.pack(stripe, source, number)
    return b"".join((salt, commitment(key), AESGCM(key).encrypt(nonce, payload, known)))


def is_committed(key: bytes, sealed: bytes) -> bool:
    """Whether a sealed payload commits to this seal key."""
    return len(sealed) >= _LEAST_BYTES and compare_digest(commitment(key), sealed[SALT_BYTES:_CIPHER_AT])


def open_with(key: bytes, stripe: int, label: tuple[NodeId, int], sealed: bytes) -> Opened:
    """What was sealed under this label and seal key; ForgeryError for anything else."""
    source, number = label
    nonce, known = _NONCE.pack(source & _INCARNATION_MASK, number), _ASSOCIATED.pack(stripe, source, number)
    # What `is_committed` says, without the calls: this is done for every message at every receiver.
    committing = _COMMITTING.copy()
    committing.update(key)
    try:
        if len(sealed) < _LEAST_BYTES or not compare_digest(committing.digest(), sealed[SALT_BYTES:_CIPHER_AT]):
            raise InvalidTag  # noqa: TRY301 - whatever is wrong with a seal is told in the same words
        # A view, because a payload is long and a copy of it would be made for nothing.
        payload = AESGCM(key).decrypt(nonce, memoryview(sealed)[_CIPHER_AT:], known)
    except InvalidTag:
        raise ForgeryError(f"message {number} of source {source}: the seal is broken") from None
    return Opened(payload, sealed[:SALT_BYTES], key)


class Sealer:
    """Seals the payloads of one source from one start on, each number once, in rising order."""

    def __init__(self, secret: SecretKey, number: int, salt: bytes) -> None:
        """`secret` of the source's own file; `number` of the source; `salt`: random, new at each start."""
        if len(salt) != SALT_BYTES:
            raise LocalProtocolError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
        self._secret = secret
        self._number = number
        self._salt = salt
        self._keyed: dict[int, blake2b] = {}
        self._last: dict[tuple[int, int], int] = {}

    def seal(self, stripe: int, label: Label, payload: bytes) -> bytes:
        """The sealed payload of this label; LocalProtocolError for another source's, or one already sealed."""
        source, number = label
        if source >> _INCARNATION_BITS != self._number:
            raise LocalProtocolError(f"source {self._number} does not seal for source {source >> _INCARNATION_BITS}")
        if number <= self._last.get((stripe, source), -1):
            raise LocalProtocolError(f"message {number} comes after {self._last[stripe, source]}: a seal is made once")
        self._last[stripe, source] = number
        keyed = self._keyed.get(stripe)
        if keyed is None:
            keyed = self._keyed[stripe] = _keyed(self._secret, self._number, stripe)
        return seal_with(_seal_key(keyed, self._salt, source, number), self._salt, stripe, label, payload)

    def __repr__(self) -> str:
        return f"Sealer(source {self._number})"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a sealer is not pickled or copied: its copy would seal a number again")


class Opener:
    """Opens payloads of all sources; only a trusted receiver has one, and uses it at release."""

    def __init__(self, sources: Mapping[int, SecretKey]) -> None:
        """Keys by source number."""
        self._sources = dict(sources)
        self._keyed: dict[tuple[int, int], blake2b] = {}

    def open(self, stripe: int, label: tuple[NodeId, int], sealed: bytes) -> Opened:
        """What was sealed under this label; ForgeryError for anything else, StrangerError without its source's key."""
        source, number = label
        keyed = self._keyed.get((source >> _INCARNATION_BITS, stripe))
        if keyed is None:
            keyed = self._new_keyed(source >> _INCARNATION_BITS, stripe)
        return open_with(_seal_key(keyed, sealed[:SALT_BYTES], source, number), stripe, label, sealed)

    def _new_keyed(self, number: int, stripe: int) -> blake2b:
        secret = self._sources.get(number)
        if secret is None:
            raise StrangerError(f"no key of source {number}")
        keyed = self._keyed[number, stripe] = _keyed(secret, number, stripe)
        return keyed

    def __repr__(self) -> str:
        return f"Opener({len(self._sources)} sources)"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("an opener is not pickled or copied")
