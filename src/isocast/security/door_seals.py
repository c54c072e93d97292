"""What doors give, sealed for whoever bought its period: `repair` or `history` (§6, "who may receive").

    SEALED     period 4 | first 8 | last 8 | nonce 12 | key under repair 48 | key under history 48 | message, sealed

A message at the door (a block of the journal, or a snapshot) is sealed with a key drawn for it alone; that key is
sealed twice, so that either service opens it. Each server wraps with keys of its own, which are none of its line's.
Integers are little-endian; everything before the sealed message is associated data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from isocast.security.keys import KEY_BYTES
from isocast.security.line_seals import PeriodKeys, RegionKeys
from isocast.security.subscriptions import HISTORY, REPAIR, line_key, period_of
from isocast.terms.errors import ForgeryError, LocalProtocolError, UnpaidError
from isocast.terms.ids import NodeId
from isocast.wire.door import Block, DoorMessage, Sealed, Snapshot, decode_message, encode_message, sealed_head
from isocast.wire.journal import read_block_header

__all__ = ["DoorOpener", "DoorSealer"]

_SERVICES: Final = (REPAIR, HISTORY)
_NONCE_BYTES: Final = 12
_WRAPPED_BYTES: Final = KEY_BYTES + 16
_BOX_AT: Final = _NONCE_BYTES + len(_SERVICES) * _WRAPPED_BYTES


def _wrapping(keys: PeriodKeys, service: str, period: int, market: bytes, stripe: int, server: NodeId) -> AESGCM | None:
    """Under the key of either service the door's own: named as history, which no line is."""
    key = keys.find(service, period)
    return None if key is None else AESGCM(line_key(key, market, HISTORY, stripe, server))


class DoorSealer:
    """Seals what one server's door gives."""

    def __init__(
        self, keys: RegionKeys, market: bytes, stripe: int, server: NodeId, draw: Callable[[int], bytes]
    ) -> None:
        """`draw` gives so many random bytes."""
        self._keys = keys
        self._place = market, stripe, server
        self._draw = draw

    def seal(self, message: DoorMessage, instant: int) -> DoorMessage:
        """A block or snapshot sealed, everything else as it is; a snapshot is of the period of `instant`."""
        if isinstance(message, Block):
            header = read_block_header(message.body)
            span = header.first_sequence, header.first_sequence + header.messages - 1
            period = period_of(header.instant, self._keys.length_ns)
        elif isinstance(message, Snapshot):
            span = message.next_sequence, message.next_sequence
            period = period_of(instant, self._keys.length_ns)
        else:
            return message
        head = sealed_head(period, *span)
        content, nonce = self._draw(KEY_BYTES), self._draw(_NONCE_BYTES)
        wrapped = b""
        for service in _SERVICES:
            cipher = _wrapping(self._keys, service, period, *self._place)
            if cipher is None:
                raise LocalProtocolError(f"there is no period {period}")
            wrapped += cipher.encrypt(nonce, content, head)
        box = AESGCM(content).encrypt(nonce, encode_message(message), head + nonce + wrapped)
        return Sealed(period, *span, nonce + wrapped + box)

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a sealer is not pickled or copied")


class DoorOpener:
    """Opens what a customer bought of what one server's door gives."""

    def __init__(self, keys: PeriodKeys, market: bytes, stripe: int, server: NodeId) -> None:
        """`keys`: what was bought."""
        self._keys = keys
        self._place = market, stripe, server

    def open(self, message: Sealed) -> DoorMessage:
        """The message inside; UnpaidError for a period that was not bought, ForgeryError for another's seal."""
        head = sealed_head(message.period, message.first, message.last)
        nonce, box = message.box[:_NONCE_BYTES], message.box[_BOX_AT:]
        is_bought = False
        for place, service in enumerate(_SERVICES):
            cipher = _wrapping(self._keys, service, message.period, *self._place)
            if cipher is None:
                continue
            is_bought = True
            at = _NONCE_BYTES + place * _WRAPPED_BYTES
            try:
                content = cipher.decrypt(nonce, message.box[at : at + _WRAPPED_BYTES], head)
                return decode_message(AESGCM(content).decrypt(nonce, box, head + message.box[:_BOX_AT]))
            except (InvalidTag, ValueError):
                continue
        if is_bought:
            raise ForgeryError("what the door gave is sealed under another key")
        raise UnpaidError(f"neither repair nor history of period {message.period} was bought")

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("an opener is not pickled or copied")
