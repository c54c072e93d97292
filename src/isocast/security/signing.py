"""The core's signatures in a market: Ed25519, with the keys that the roster lists (§6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, Protocol

from isocast.security.identities import is_signed, statement
from isocast.terms.ids import NO_EPOCH, OPERATOR, Epoch, NodeId
from isocast.wire.limits import SIGNATURE_BYTES
from isocast.wire.signing import SignedKind

__all__ = ["Hand", "IdentitySigner", "Listing", "RosterVerifier"]

_SERIAL: Final = Struct("<Q")
_NUMBER: Final = Struct("<Q")
_NUMBER_AT: Final = {SignedKind.TOKEN: 16, SignedKind.RECEIPT: 0}
"""Where the body of a statement has its token's number."""
_ANY_TOKEN: Final = 0
"""A source signs for the past too, and hears of a roster later than the sites: any that is known here counts."""


class Hand(Protocol):
    """A private key: an `Identity`, or what stands for one in a simulator."""

    @property
    def public(self) -> bytes:
        """What others know it by."""

    def sign(self, statement: bytes) -> bytes:
        """The signature of a statement: 64 bytes."""


class Listing(Protocol):
    """Whose key is whose, as of a roster's serial, and at a token where the packet names one (`RosterBook`)."""

    def key_of(
        self,
        node: NodeId,
        serial: int,
        token_number: int | None = None,
        stripe: int | None = None,
        *,
        settled: bool = False,
    ) -> bytes | None:
        """The public key; None for a stranger, a revoked key, and a serial that is not known or too old.

        `settled`: a key that was revoked later counts for what was signed before.
        """

    def serial_of(self, public: bytes, token_number: int | None = None) -> int:
        """Under which serial the owner of a key signs."""

    def is_revoked(self, public: bytes) -> bool:
        """Whether a key was taken away."""


def _token_number(kind: SignedKind, body: bytes) -> int | None:
    at = _NUMBER_AT.get(kind)
    return None if at is None else int(_NUMBER.unpack_from(body, at)[0])


class IdentitySigner:
    """Signs as one node of a market, under the roster that counts."""

    def __init__(self, identity: Hand, market: bytes, listing: Listing, followers: Sequence[Hand] = ()) -> None:
        """`market` as `market_of` gives it; `followers` are keys that follow the first, each from its roster on."""
        self._identity = identity
        self._followers = followers
        self._market = market
        self._listing = listing
        self._last: dict[SignedKind, tuple[Hand, bytes, bytes]] = {}
        """Of each kind: who signed what last, and the result. A receipt is said again and again, in the same words."""

    def sign(self, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes) -> bytes:
        """Serial and signature. Ed25519 is deterministic: equal words get equal bytes, after a restart too."""
        token_number = _token_number(kind, body)
        keys = [key for key in (self._identity, *self._followers) if not self._listing.is_revoked(key.public)]
        # Nobody believes a revoked key: the next one counts as soon as others have a roster that lists it.
        identity, *followers = keys or (self._identity,)
        serial = self._listing.serial_of(identity.public, token_number)
        for follower in followers:
            other = self._listing.serial_of(follower.public, token_number)
            # At a token the key that counts there; without one the newest.
            if other >= serial if token_number is None else other <= serial:
                identity, serial = follower, other
        said = statement(kind, self._market, body, stripe=stripe, epoch=epoch, serial=serial)
        last = self._last.get(kind)
        if last is not None and last[0] is identity and last[1] == said:
            return last[2]
        signature = _SERIAL.pack(serial) + identity.sign(said)
        self._last[kind] = identity, said, signature
        return signature


class RosterVerifier:
    """Knows the public keys that are listed, and refuses what names a roster that it does not hold."""

    def __init__(
        self, market: bytes, listing: Listing, signed: Callable[[bytes, bytes, bytes], bool] = is_signed
    ) -> None:
        """`market` as `market_of` gives it; `signed` judges key, signature and statement: a simulator's is cheaper."""
        self._market = market
        self._listing = listing
        self._signed = signed

    def is_from(self, node: NodeId, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes, signature: bytes) -> bool:
        """Whether a node signed this body for this purpose, market, stripe and epoch."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        (serial,) = _SERIAL.unpack_from(signature)
        at = _ANY_TOKEN if kind is SignedKind.SOURCE_CHAIN else _token_number(kind, body)
        public = self._listing.key_of(node, serial, at, stripe)
        if public is None:
            return False
        said = statement(kind, self._market, body, stripe=stripe, epoch=epoch, serial=serial)
        return self._signed(public, signature[_SERIAL.size :], said)

    def is_order(self, stripe: int, body: bytes, signature: bytes, token_number: int, *, settled: bool) -> bool:
        """Whether the operator signed an order for a stripe, by the roster that counts at a token."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        (serial,) = _SERIAL.unpack_from(signature)
        # The operator has no process in any stripe, and orders for each.
        public = self._listing.key_of(OPERATOR, serial, token_number, settled=settled)
        if public is None:
            return False
        said = statement(SignedKind.CONTROL, self._market, body, stripe=stripe, epoch=NO_EPOCH, serial=serial)
        return self._signed(public, signature[_SERIAL.size :], said)
