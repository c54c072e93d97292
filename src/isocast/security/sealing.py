"""Sealing: a payload that nobody can read before its release, and nobody can change (§6).

AES-256-GCM. The key belongs to one source and one stripe (`keys.derive`), the nonce is the label:

    nonce             incarnation 4 bytes | number 8 bytes, big-endian
    associated data   stripe 2 | source id 8 | number 8, big-endian
    sealed payload    ciphertext | tag 16

A nonce may meet one payload only, or the key's protection is gone. A source seals a number once, when it gives it
to a message; what it keeps and sends again is the sealed payload. `Sealer` refuses to go back, and a source that
lost its outbox, so that it cannot know where it was, starts a new incarnation.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from isocast.security.keys import Purpose, SecretKey
from isocast.terms.errors import ForgeryError, LocalProtocolError, StrangerError
from isocast.terms.ids import Label, source_id

__all__ = ["SEAL_TAG_BYTES", "Opener", "Sealer"]

SEAL_TAG_BYTES: Final = 16
"""A sealed payload is this much longer; the nonce is implied by the label."""

_NONCE = Struct(">IQ")
_ASSOCIATED = Struct(">HQQ")
_INCARNATION_BITS = 32
_INCARNATION_MASK = (1 << _INCARNATION_BITS) - 1


def _cipher(secret: SecretKey, number: int, stripe: int) -> AESGCM:
    """One key for each source and stripe: two sources given the same file, or two stripes, share no nonce."""
    return AESGCM(secret.derive(Purpose.SEAL, source_id(number, 0), stripe))


class Sealer:
    """Seals the payloads of one source, each number once, in rising order."""

    def __init__(self, secret: SecretKey, number: int) -> None:
        """`secret` of the source's own file; `number` of the source."""
        self._secret = secret
        self._number = number
        self._ciphers: dict[int, AESGCM] = {}
        self._last: dict[tuple[int, int], int] = {}

    def seal(self, stripe: int, label: Label, payload: bytes) -> bytes:
        """The sealed payload of this label; LocalProtocolError for another source's, or one already sealed."""
        source, number = label
        if source >> _INCARNATION_BITS != self._number:
            raise LocalProtocolError(f"source {self._number} does not seal for source {source >> _INCARNATION_BITS}")
        if number <= self._last.get((stripe, source), -1):
            raise LocalProtocolError(f"message {number} comes after {self._last[stripe, source]}: a seal is made once")
        self._last[stripe, source] = number
        cipher = self._ciphers.get(stripe)
        if cipher is None:
            cipher = self._ciphers[stripe] = _cipher(self._secret, self._number, stripe)
        nonce = _NONCE.pack(source & _INCARNATION_MASK, number)
        return cipher.encrypt(nonce, payload, _ASSOCIATED.pack(stripe, source, number))

    def __repr__(self) -> str:
        return f"Sealer(source {self._number})"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a sealer is not pickled or copied: its copy would seal a number again")


class Opener:
    """Opens payloads of all sources; only a trusted receiver has one, and uses it at release."""

    def __init__(self, sources: Mapping[int, SecretKey]) -> None:
        """Keys by source number."""
        self._sources = dict(sources)
        self._ciphers: dict[tuple[int, int], AESGCM] = {}

    def open(self, stripe: int, label: Label, sealed: bytes) -> bytes:
        """What was sealed under this label; ForgeryError for anything else, StrangerError without its source's key."""
        source, number = label
        cipher = self._ciphers.get((source >> _INCARNATION_BITS, stripe))
        if cipher is None:
            cipher = self._new_cipher(source >> _INCARNATION_BITS, stripe)
        nonce = _NONCE.pack(source & _INCARNATION_MASK, number)
        try:
            return cipher.decrypt(nonce, sealed, _ASSOCIATED.pack(stripe, source, number))
        except InvalidTag:
            raise ForgeryError(f"message {number} of source {source}: the seal is broken") from None

    def _new_cipher(self, number: int, stripe: int) -> AESGCM:
        secret = self._sources.get(number)
        if secret is None:
            raise StrangerError(f"no key of source {number}")
        cipher = self._ciphers[number, stripe] = _cipher(secret, number, stripe)
        return cipher

    def __repr__(self) -> str:
        return f"Opener({len(self._sources)} sources)"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("an opener is not pickled or copied")
