"""Repairs of the narrow stripes under a key of their own (§7.1): only who has it reads them, or is heard asking.

    repair     "ICRP" | server 8 | stripe 4 | nonce 12 | AES-256-GCM of a MoldUDP64 packet, with its tag of 16
    request    "ICRQ" | customer 8 | session 10 | first number 8 | how many 2 | tag 16

Integers are big-endian. Each server seals with a key derived for it, so that two never share a nonce; a nonce is four
bytes that a server draws when it starts and a counter that begins with its clock.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from isocast.security.keys import Purpose, SecretKey
from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import NodeId

__all__ = [
    "REPAIR_OVERHEAD",
    "REQUEST_BYTES",
    "REQUEST_SESSION",
    "RepairOpener",
    "RepairRequest",
    "RepairSealer",
    "read_repair_request",
    "write_repair_request",
]

_REPAIR = Struct(">4sQI12s")
_REQUEST = Struct(">4sQ10sQH")
_NONCE = Struct(">4sQ")
_REPAIR_MAGIC = b"ICRP"
_REQUEST_MAGIC = b"ICRQ"
_TAG_BYTES = 16
_DRAWN_BYTES = 4
_KEPT = 64
"""Bounds: servers whose keys an opener remembers."""

REPAIR_OVERHEAD = _REPAIR.size + _TAG_BYTES
"""Bytes around the packet: 28 + 16."""
REQUEST_BYTES = _REQUEST.size + _TAG_BYTES
REQUEST_SESSION = slice(12, 22)
"""Where a request names its session."""


class RepairRequest(NamedTuple):
    """A customer lacks messages."""

    customer: NodeId
    session: bytes
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls


class RepairSealer:
    """Seals the repairs of one server."""

    def __init__(self, secret: SecretKey, server: NodeId, drawn: bytes, counter: int) -> None:
        """`drawn`: four random bytes, new at each start; `counter` above every one that was used, such as the time."""
        if len(drawn) != _DRAWN_BYTES:
            raise LocalProtocolError(f"{len(drawn)} bytes are drawn for a nonce, not {_DRAWN_BYTES}")
        self._cipher = AESGCM(secret.derive(Purpose.SEAL, server))
        self._server = server
        self._drawn = drawn
        self._counter = counter

    def seal(self, stripe: int, packet: bytes) -> bytes:
        """A datagram with a packet of MoldUDP64."""
        self._counter += 1
        nonce = _NONCE.pack(self._drawn, self._counter)
        head = _REPAIR.pack(_REPAIR_MAGIC, self._server, stripe, nonce)
        return head + self._cipher.encrypt(nonce, packet, head)


class RepairOpener:
    """Opens repairs of the servers that a customer asks."""

    def __init__(self, secret: SecretKey) -> None:
        """`secret` of the file of repairs."""
        self._secret = secret
        self._ciphers: dict[NodeId, AESGCM] = {}

    def open(self, raw: bytes) -> tuple[NodeId, int, bytes]:
        """(server, stripe, packet); RemoteProtocolError for what is no repair, ForgeryError for another key's."""
        if len(raw) < REPAIR_OVERHEAD or not raw.startswith(_REPAIR_MAGIC):
            raise RemoteProtocolError(f"{len(raw)} bytes that are no repair")
        _, server, stripe, nonce = _REPAIR.unpack_from(raw)
        cipher = self._ciphers.get(server) or AESGCM(self._secret.derive(Purpose.SEAL, server))
        try:
            packet = cipher.decrypt(nonce, raw[_REPAIR.size :], raw[: _REPAIR.size])
        except InvalidTag:
            raise ForgeryError(f"a repair in the name of {server} under another key") from None
        if len(self._ciphers) < _KEPT:
            self._ciphers[server] = cipher
        return server, stripe, packet


def _tag(secret: SecretKey, customer: NodeId, body: bytes) -> bytes:
    return blake2b(body, digest_size=_TAG_BYTES, key=secret.derive(Purpose.TAG, customer)).digest()


def write_repair_request(secret: SecretKey, request: RepairRequest) -> bytes:
    """A datagram for a server."""
    body = _REQUEST.pack(_REQUEST_MAGIC, *request)
    return body + _tag(secret, request.customer, body)


def read_repair_request(secret: SecretKey, raw: bytes) -> RepairRequest:
    """What a customer asks for; RemoteProtocolError for what is no request, ForgeryError for another key's."""
    if len(raw) != REQUEST_BYTES or not raw.startswith(_REQUEST_MAGIC):
        raise RemoteProtocolError(f"{len(raw)} bytes that are no request")
    body, tag = raw[:-_TAG_BYTES], raw[-_TAG_BYTES:]
    _, *fields = _REQUEST.unpack(body)
    request = RepairRequest._make(fields)
    if not compare_digest(tag, _tag(secret, request.customer, body)):
        raise ForgeryError(f"a request in the name of {request.customer} under another key")
    if not request.count:
        raise RemoteProtocolError("a request for nothing")
    return request
