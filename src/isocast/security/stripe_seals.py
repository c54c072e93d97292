"""Narrow stripes that are sold (§6, "who may receive"): every datagram under the key of its stripe and period.

    | "ICSS" | sender 8 | stripe 4 | period 4 | nonce 12 | AES-256-GCM of a MoldUDP64 packet, or a PROOF | tag 16 |

Integers are big-endian; what stands before the nonce is associated data. Each sender has a key of its own, derived from
that of the service `stripe:N` in the period (`subscriptions.line_key`). A nonce is four bytes that a sender draws when
it starts and a counter that begins with its clock.

The instant that the stripe gave a packet, less Δ_A and `edge.delay`, decides the period: it is a T_t. Repairs have the
period of what they repair; heartbeats and proofs that of the moment at which they are made.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from isocast.security.keys import SecretKey
from isocast.security.line_seals import PeriodKeys, RegionKeys
from isocast.security.subscriptions import line_key, period_of, stripe_service
from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError, UnpaidError
from isocast.terms.ids import NodeId

__all__ = [
    "STRIPE_SEAL_BYTES",
    "STRIPE_SEAL_MAGIC",
    "OpenedStripe",
    "StripeOpener",
    "StripeSealer",
    "stripe_request_key",
]

STRIPE_SEAL_MAGIC = b"ICSS"
_KNOWN = Struct(">4sQII")
_NONCE = Struct(">4sQ")
_BODY_AT = _KNOWN.size + _NONCE.size
_TAG_BYTES = 16
_DRAWN_BYTES = 4
_KEPT = 256
"""Bounds: ciphers that are remembered, of all senders, stripes and periods together."""
STRIPE_SEAL_BYTES = _BODY_AT + _TAG_BYTES
"""Around a packet: 32 + 16."""


class OpenedStripe(NamedTuple):
    """What a sealed datagram says."""

    sender: NodeId
    stripe: int
    period: int
    raw: bytes


class StripeSealer:
    """Seals the narrow stripes of one sender."""

    def __init__(self, keys: RegionKeys, market: bytes, sender: NodeId, drawn: bytes, counter: int) -> None:
        """`drawn`: four random bytes, new at each start; `counter` above every one that was used, such as the time."""
        if len(drawn) != _DRAWN_BYTES:
            raise LocalProtocolError(f"{len(drawn)} bytes are drawn for a nonce, not {_DRAWN_BYTES}")
        self._keys = keys
        self._market = market
        self._sender = sender
        self._drawn = drawn
        self._counter = counter
        self._ciphers: dict[tuple[int, int], AESGCM] = {}

    def seal(self, stripe: int, instant: int, raw: bytes) -> bytes:
        """A datagram of a stripe, for whoever paid for the period of T_t = `instant`."""
        period = period_of(max(instant, 0), self._keys.length_ns)
        cipher = self._ciphers.get((stripe, period)) or self._new_cipher(stripe, period)
        self._counter += 1
        nonce = _NONCE.pack(self._drawn, self._counter)
        known = _KNOWN.pack(STRIPE_SEAL_MAGIC, self._sender, stripe, period)
        return known + nonce + cipher.encrypt(nonce, raw, known)

    def _new_cipher(self, stripe: int, period: int) -> AESGCM:
        service = stripe_service(stripe)
        key = self._keys.find(service, period)
        if key is None:
            raise LocalProtocolError(f"there is no period {period}")
        while len(self._ciphers) >= _KEPT:
            del self._ciphers[next(iter(self._ciphers))]
        cipher = self._ciphers[stripe, period] = AESGCM(line_key(key, self._market, service, stripe, self._sender))
        return cipher

    def __repr__(self) -> str:
        return f"StripeSealer(sender {self._sender})"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a sealer is not pickled or copied: its copy would use a nonce again")


class StripeOpener:
    """Opens the narrow stripes that were paid for."""

    def __init__(self, keys: PeriodKeys, market: bytes, length_ns: int) -> None:
        """`length_ns` of a period."""
        self.length_ns = length_ns
        self._keys = keys
        self._market = market
        self._ciphers: dict[tuple[NodeId, int, int], AESGCM] = {}

    def open(self, raw: bytes) -> OpenedStripe:
        """What is in a sealed datagram.

        RemoteProtocolError for what is none, UnpaidError without the key of its stripe and period, ForgeryError for
        another key's.
        """
        if len(raw) < STRIPE_SEAL_BYTES or not raw.startswith(STRIPE_SEAL_MAGIC):
            raise RemoteProtocolError(f"{len(raw)} bytes that are no sealed packet of a stripe")
        _, sender, stripe, period = _KNOWN.unpack_from(raw)
        cipher = self._ciphers.get((sender, stripe, period)) or self._new_cipher(sender, stripe, period)
        try:
            packet = cipher.decrypt(raw[_KNOWN.size : _BODY_AT], raw[_BODY_AT:], raw[: _KNOWN.size])
        except InvalidTag:
            raise ForgeryError(f"a packet of stripe {stripe} in the name of {sender} under another key") from None
        return OpenedStripe(sender, stripe, period, packet)

    def _new_cipher(self, sender: NodeId, stripe: int, period: int) -> AESGCM:
        service = stripe_service(stripe)
        key = self._keys.find(service, period)
        if key is None:
            raise UnpaidError(f"{service} of period {period} was not bought")
        while len(self._ciphers) >= _KEPT:
            del self._ciphers[next(iter(self._ciphers))]
        cipher = AESGCM(line_key(key, self._market, service, stripe, sender))
        self._ciphers[sender, stripe, period] = cipher
        return cipher

    def __repr__(self) -> str:
        return "StripeOpener()"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("an opener is not pickled or copied")


def stripe_request_key(keys: PeriodKeys, stripe: int, period: int) -> SecretKey | None:
    """What requests for repairs of a stripe are tagged with in a period; None if it was not bought."""
    found = keys.find(stripe_service(stripe), period)
    return None if found is None else SecretKey(found)
