"""Sealing: a payload that nobody can read before its release, and nobody can change (§6).

Every message has a key of its own, so that one key says nothing of another message, and can be shown to everybody once
the message is out:

    base key          `derive(source key, SEAL, source number, stripe)`; where a roster brought a core key, of that
                      BLAKE2b-256 keyed with `derive(core key, SEAL_GENERATION, source number, stripe)`
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

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from isocast.security.keys import KEY_BYTES, Purpose, SecretKey
from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError, StrangerError
from isocast.terms.ids import Label, NodeId, source_id
from isocast.wire.packets import Data

__all__ = [
    "CHANGES_HEARD",
    "CHANGES_REPAIRED",
    "CHANGES_SENT",
    "COMMITMENT_BYTES",
    "SALT_BYTES",
    "SEAL_TAG_BYTES",
    "Generations",
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
"""The name of a generation, and 12 that are drawn at each start: two starts of one source share a salt once in 2^48 of
them."""
_NAME_BYTES = 4
_FIRST = bytes(_NAME_BYTES)
"""The name of the generation that the market began with."""
COMMITMENT_BYTES: Final = 32
"""Two keys with one commitment are a collision of BLAKE2b-256: 2^128 attempts."""
SEAL_TAG_BYTES: Final = 16

CHANGES_SENT: Final = 4
"""Core keys that followed the one of a payload, at most, when its source begins to send it again."""
CHANGES_HEARD: Final = 5
"""The same when a receiver hears it from its source: one more, since the source may not know the newest roster yet."""
CHANGES_REPAIRED: Final = 6
"""The same when a receiver hears it from another: that one may not have known the newest roster when it heard it."""

_SALTS_KEPT = 4_096
"""Of which an opener remembers the keys: a source could draw a salt for each message."""

_ASSOCIATED = Struct(">HQQ")
_LABEL = Struct(">QQ")
_LABEL_AT = 2
_NONCE_AT = 6
"""Associated data ends with the label, and that with the nonce: incarnation and number."""
_COMMITTING = blake2b(digest_size=COMMITMENT_BYTES, person=b"isocast commit")
_CIPHER_AT = SALT_BYTES + COMMITMENT_BYTES
_LEAST_BYTES = _CIPHER_AT + SEAL_TAG_BYTES
_INCARNATION_BITS = 32


class Opened(NamedTuple):
    """A payload in the clear, and what proves that it is what was sealed."""

    payload: bytes
    salt: bytes
    key: bytes
    """Of this message alone: it may be published once the message is."""


_NOTHING = Opened(b"", b"", b"")


def base_key(secret: SecretKey, number: int, stripe: int, generation: SecretKey | None = None) -> bytes:
    """Of a source's seals in one stripe and generation: two sources given the same file, or two stripes, share none."""
    source = source_id(number, 0)
    base = secret.derive(Purpose.SEAL, source, stripe)
    if generation is None:
        return base
    added = generation.derive(Purpose.SEAL_GENERATION, source, stripe)
    return blake2b(base, digest_size=KEY_BYTES, key=added, person=Purpose.SEAL_GENERATION.value).digest()


class Generations:
    """The core keys that rosters brought, as far as seals go: which are known, and by which one seals now.

    What was heard opens for as long as it waits for its release, whatever rosters come meanwhile: nothing that was
    known is forgotten. What is heard of old generations is bounded, so that every site can open it.
    """

    def __init__(
        self, known: Iterable[SecretKey] = (), current: SecretKey | None = None, past: Iterable[SecretKey] = ()
    ) -> None:
        """`current`: None is the generation to which no roster brought anything; it is always known.

        `known`: the newest first. `past`: what is not heard any more, and opens what is here already.
        """
        self.known: Mapping[bytes, SecretKey | None] = {_FIRST: None, **{_name(key): key for key in past}}
        """By name: another mapping after each change."""
        self.current = _FIRST
        """The name of the one by which one seals."""
        self._changes: dict[bytes, int] = {}
        """By name: how many core keys followed it."""
        self.turn(known, current)

    def turn(self, known: Iterable[SecretKey], current: SecretKey | None) -> None:
        """Know these from now on, the newest first, and seal by this one."""
        keys = {_name(key): key for key in (*known, *(() if current is None else (current,)))}
        self.known = {**self.known, **keys}
        self.current = _FIRST if current is None else _name(current)
        self._changes = {**{name: place for place, name in enumerate(keys)}, _FIRST: 0}

    def names(self, sealed: bytes, changes: int = CHANGES_REPAIRED) -> bool:
        """Whether a sealed payload names one that is heard, so many changes of the core key later at the most."""
        return self._changes.get(sealed[:_NAME_BYTES], changes + 1) <= changes

    def lacks(self, sealed: bytes) -> bool:
        """Whether a sealed payload names one that was never known here."""
        return sealed[:_NAME_BYTES] not in self.known

    def base_key(self, secret: SecretKey, number: int, stripe: int, salt: bytes) -> bytes:
        """Of a source's seals in one stripe, of the generation that a salt names: the first, where it names none."""
        return base_key(secret, number, stripe, self.known.get(salt[:_NAME_BYTES]))

    def salt(self, drawn: bytes) -> bytes:
        """The salt of what is sealed now, by a start that drew these bytes."""
        return self.current + drawn[_NAME_BYTES:]

    def __repr__(self) -> str:
        return f"Generations({len(self.known)}, sealing by {self.current.hex()})"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("generations are not pickled or copied")


def _name(generation: SecretKey) -> bytes:
    """What its salts begin with; it says nothing of the key."""
    return generation.derive(Purpose.SEAL_GENERATION, 0)[:_NAME_BYTES]


def _keyed(base: bytes, salt: bytes) -> blake2b:
    """What makes the seal keys of a base key and a salt: a hash that knows both already is copied, not made."""
    return blake2b(salt, digest_size=KEY_BYTES, key=base)


def commitment(key: bytes) -> bytes:
    """What a sealed payload says of its key, without betraying it."""
    committing = _COMMITTING.copy()
    committing.update(key)
    return committing.digest()


def seal_with(key: bytes, salt: bytes, stripe: int, label: tuple[NodeId, int], payload: bytes) -> bytes:
    """The sealed payload, as whoever has been shown the seal key of one message makes it again."""
    known = _ASSOCIATED.pack(stripe, *label)
    return b"".join((salt, commitment(key), AESGCM(key).encrypt(known[_NONCE_AT:], payload, known)))


def is_committed(key: bytes, sealed: bytes) -> bool:
    """Whether a sealed payload commits to this seal key."""
    return len(sealed) >= _LEAST_BYTES and compare_digest(commitment(key), sealed[SALT_BYTES:_CIPHER_AT])


def open_with(key: bytes, stripe: int, label: tuple[NodeId, int], sealed: bytes) -> Opened:
    """What was sealed under this label and seal key; ForgeryError for anything else."""
    known = _ASSOCIATED.pack(stripe, *label)
    # What `is_committed` says, without the calls: this is done for every message at every receiver.
    committing = _COMMITTING.copy()
    committing.update(key)
    try:
        if len(sealed) < _LEAST_BYTES or not compare_digest(committing.digest(), sealed[SALT_BYTES:_CIPHER_AT]):
            raise InvalidTag  # noqa: TRY301 - whatever is wrong with a seal is told in the same words
        # A view, because a payload is long and a copy of it would be made for nothing.
        payload = AESGCM(key).decrypt(known[_NONCE_AT:], memoryview(sealed)[_CIPHER_AT:], known)
    except InvalidTag:
        raise ForgeryError(f"message {label[1]} of source {label[0]}: the seal is broken") from None
    return Opened(payload, sealed[:SALT_BYTES], key)


class Sealer:
    """Seals the payloads of one source from one start on, each number once, in rising order."""

    def __init__(self, secret: SecretKey, number: int, salt: bytes, generations: Generations | None = None) -> None:
        """`secret` of the source's own file; `number` of the source; `salt`: random, new at each start.

        `generations`: what is sealed is of the one that is current then; None: there are none, and none is named.
        """
        if len(salt) != SALT_BYTES:
            raise LocalProtocolError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
        self._secret = secret
        self._number = number
        self._salt = self._drawn = salt
        self._generations = generations
        self._generation = _FIRST
        self._keyed: dict[int, blake2b] = {}
        self._last: dict[tuple[int, int], int] = {}
        self._turn()

    def seal(self, stripe: int, label: Label, payload: bytes) -> bytes:
        """The sealed payload of this label; LocalProtocolError for another source's, or one already sealed."""
        source, number = label
        if source >> _INCARNATION_BITS != self._number:
            raise LocalProtocolError(f"source {self._number} does not seal for source {source >> _INCARNATION_BITS}")
        if number <= self._last.get((stripe, source), -1):
            raise LocalProtocolError(f"message {number} comes after {self._last[stripe, source]}: a seal is made once")
        self._last[stripe, source] = number
        if self._generations is not None and self._generation != self._generations.current:
            self._turn()
        keyed = self._keyed.get(stripe)
        if keyed is None:
            keyed = self._keyed[stripe] = _keyed(self._base(stripe), self._salt)
        made = keyed.copy()
        made.update(_LABEL.pack(source, number))
        return seal_with(made.digest(), self._salt, stripe, label, payload)

    def _base(self, stripe: int) -> bytes:
        if self._generations is None:
            return base_key(self._secret, self._number, stripe)
        return self._generations.base_key(self._secret, self._number, stripe, self._salt)

    def _turn(self) -> None:
        """A roster brought another core key."""
        if self._generations is not None:
            self._generation = self._generations.current
            self._salt = self._generations.salt(self._drawn)
            self._keyed.clear()

    def __repr__(self) -> str:
        return f"Sealer(source {self._number})"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a sealer is not pickled or copied: its copy would seal a number again")


class Opener:
    """Opens payloads of all sources; only a trusted receiver has one, and uses it at release."""

    def __init__(self, sources: Mapping[int, SecretKey], generations: Generations | None = None) -> None:
        """Keys by source number, and the generations that are known; None: nobody names any."""
        self._sources = dict(sources)
        self._are_named = generations is not None
        self._generations = generations or Generations()
        self._known = self._generations.known
        self._keyed: dict[tuple[int, int, bytes], blake2b] = {}

    def open(self, stripe: int, label: tuple[NodeId, int], sealed: bytes) -> Opened:
        """What was sealed under this label; ForgeryError for anything else, StrangerError without its source's key."""
        key = self._key(stripe, label, sealed)
        try:
            return open_with(key, stripe, label, sealed)
        except ForgeryError:
            # It may name a generation and be of the first: sites that do not know the name open it by that.
            first = self._first_key(label, stripe, sealed)
            if first == key or not is_committed(first, sealed):
                raise
        return open_with(first, stripe, label, sealed)

    def open_all(
        self, stripe: int, messages: Sequence[Data], failed: Callable[[Data, RemoteProtocolError], None]
    ) -> list[Opened]:
        """What was sealed in these messages, and nothing in the place of those of which `failed` is told.

        As `open` for each, without a call for each: every receiver does this for every message.
        """
        if self._known is not self._generations.known:
            self._known = self._generations.known
            self._keyed.clear()
        kept, pack, committing, made_of = self._keyed, _ASSOCIATED.pack, _COMMITTING.copy, tuple.__new__
        found: list[Opened] = []
        for message in messages:
            source, number = message.label
            sealed = message.payload
            known, salt = pack(stripe, source, number), sealed[:SALT_BYTES]
            keyed = kept.get((source >> _INCARNATION_BITS, stripe, salt))
            try:
                if keyed is None or len(sealed) < _LEAST_BYTES:
                    raise InvalidTag  # noqa: TRY301 - the long way, as for whatever is wrong
                made, committed = keyed.copy(), committing()
                made.update(known[_LABEL_AT:])
                key = made.digest()
                committed.update(key)
                if not compare_digest(committed.digest(), sealed[SALT_BYTES:_CIPHER_AT]):
                    raise InvalidTag  # noqa: TRY301
                payload = AESGCM(key).decrypt(known[_NONCE_AT:], memoryview(sealed)[_CIPHER_AT:], known)
                found.append(made_of(Opened, (payload, salt, key)))
            except InvalidTag:
                found.append(self._opened_singly(stripe, message, failed))
        return found

    def _opened_singly(self, stripe: int, message: Data, failed: Callable[[Data, RemoteProtocolError], None]) -> Opened:
        """The first of a source's start, and whatever is wrong."""
        try:
            return self.open(stripe, message.label, message.payload)
        except RemoteProtocolError as reason:
            failed(message, reason)
            return _NOTHING

    def knows(self, stripe: int, label: tuple[NodeId, int], sealed: bytes, changes: int = CHANGES_REPAIRED) -> bool:
        """Whether a payload is of a generation that is heard here, so many changes of the core key later at the most.

        Else sites that know a roster and sites that do not yet would find different things in it. What commits to a key
        of the first generation is of that, whatever it names: versions before this one named none.
        """
        return not self._are_named or self._generations.names(sealed, changes) or self._is_first(stripe, label, sealed)

    def lacks(self, stripe: int, label: tuple[NodeId, int], sealed: bytes) -> bool:
        """Whether what does not open here may open elsewhere: its generation was never known here.

        What commits to a key of the first generation was heard by all, and opens nowhere: a source made it so.
        """
        return self._are_named and self._generations.lacks(sealed) and not self._is_first(stripe, label, sealed)

    def _is_first(self, stripe: int, label: tuple[NodeId, int], sealed: bytes) -> bool:
        """Whether a payload is of the first generation, whatever it names."""
        try:
            return is_committed(self._first_key(label, stripe, sealed), sealed)
        except StrangerError:
            return False

    def _first_key(self, label: tuple[NodeId, int], stripe: int, sealed: bytes) -> bytes:
        """The seal key of one message, if it is of the first generation."""
        number = label[0] >> _INCARNATION_BITS
        made = _keyed(base_key(self._secret(number), number, stripe), sealed[:SALT_BYTES])
        made.update(_LABEL.pack(*label))
        return made.digest()

    def _secret(self, number: int) -> SecretKey:
        secret = self._sources.get(number)
        if secret is None:
            raise StrangerError(f"no key of source {number}")
        return secret

    def _key(self, stripe: int, label: tuple[NodeId, int], sealed: bytes) -> bytes:
        """The seal key of one message."""
        source, number = label
        if self._known is not self._generations.known:
            self._known = self._generations.known
            self._keyed.clear()
        salt = sealed[:SALT_BYTES]
        keyed = self._keyed.get((source >> _INCARNATION_BITS, stripe, salt))
        if keyed is None:
            keyed = self._new_keyed(source >> _INCARNATION_BITS, stripe, salt)
        made = keyed.copy()
        made.update(_LABEL.pack(source, number))
        return made.digest()

    def _new_keyed(self, number: int, stripe: int, salt: bytes) -> blake2b:
        secret = self._secret(number)
        if len(self._keyed) >= _SALTS_KEPT:
            self._keyed.clear()
        keyed = _keyed(self._generations.base_key(secret, number, stripe, salt), salt)
        self._keyed[number, stripe, salt] = keyed
        return keyed

    def __repr__(self) -> str:
        return f"Opener({len(self._sources)} sources)"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("an opener is not pickled or copied")
