"""What surrounds every packet: the header before its body, the tag behind it; and which roles hear a multicast kind.

    0       2         3      4        8        10         12             16             20       28
    | magic | version | kind | market | stripe | flags    | epoch number | epoch server | sender | body … | tag 16 |

All integers are little-endian. Magic, version, market and stripe stand at fixed places, so that a filter in the kernel
can judge them; a packet of another market is refused before its tag is looked at. The tag is BLAKE2b with the sender's
key over everything before it (DATA and REL: over the digest of the payload in place of the payload, since tokens and
proofs need that digest anyway); without a key it is a checksum only, which is enough for a simulated network and for a
disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b, sha256
from hmac import compare_digest
from struct import Struct
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from isocast.terms.errors import AnotherMarketError, ForgeryError, RemoteProtocolError, StrangerError
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.limits import FRAME_BYTES, HEADER_BYTES, MARKET_ID_BYTES, MAX_DATAGRAM, TAG_BYTES
from isocast.wire.packets import (
    DIGEST_BYTES,
    SHORT_DIGEST_BYTES,
    Data,
    Disclose,
    Invite,
    Join,
    LineAck,
    LineAsk,
    Lines,
    NewRing,
    Packet,
    Receipt,
    Repair,
    SourceChain,
    Suspect,
    Token,
    TokenPart,
)

__all__ = [
    "AUDIENCE",
    "FLAGS_AT",
    "KIND_AT",
    "MAGIC",
    "MARKET_AT",
    "NO_KEY",
    "NO_KEYS",
    "NO_MARKET",
    "SENDER_AT",
    "STRIPE_AT",
    "VERSION",
    "Header",
    "Keys",
    "Layout",
    "PacketKind",
    "Role",
    "check_market",
    "digest_fault",
    "header_bytes",
    "key_of",
    "market_id",
    "no_fault",
    "nonce_fault",
    "peek_kind",
    "prefix",
    "read_header",
    "tag_of",
    "unsealed",
]


MAGIC = b"IC"
VERSION = 6
"""Raised whenever the meaning of any byte changes; a reader knows one version and refuses all others."""
NO_KEY = b""

Keys: TypeAlias = Mapping[NodeId, bytes]
"""From a sender to the key (at most 64 bytes) of its tags; whoever is not in it is a stranger."""


class _SameForEverybody(dict[NodeId, bytes]):
    def __missing__(self, _: NodeId) -> bytes:
        return NO_KEY


NO_KEYS: Keys = _SameForEverybody()

NO_MARKET = bytes(MARKET_ID_BYTES)
"""On disk and in a simulated network, where no other market is heard."""

_HEADER = Struct("<4s4sHHIIQ")
_PREFIX_BYTES = 4

KIND_AT, MARKET_AT, STRIPE_AT, FLAGS_AT = 3, 4, 8, 10
SENDER_AT = slice(20, 28)
"""Where a filter finds these fields in a frame."""


def market_id(name: str) -> bytes:
    """What every packet of the market of this name carries: the first bytes of the name's hash."""
    return sha256(b"isocast3" + name.encode()).digest()[:MARKET_ID_BYTES]


class PacketKind(IntEnum):
    """The number of each packet on the wire. Numbers are never used again for something else."""

    DATA = 1
    TOKEN = 2
    TOKENPART = 3
    RECEIPT = 4
    NACK = 5
    REPAIR = 6
    PENDING = 7
    STANDING = 8
    SUSPECT = 9
    INVITE = 10
    REFUSE = 11
    JOIN = 12
    NEWRING = 13
    SECTOKEN = 14
    REL = 15
    RXREQ = 16
    RXREP = 17
    LINEASK = 18
    LINEACK = 19
    LINES = 20
    PROOF = 21
    DISCLOSE = 22
    SRCCHAIN = 24


class Header(NamedTuple):
    """The first three fields of every packet value."""

    stripe: int
    epoch: Epoch
    sender: NodeId


PacketT = TypeVar("PacketT")


def no_fault(_: object) -> str | None:
    """For packets whose every value is sound."""
    return None


@dataclass(frozen=True, slots=True)
class Layout(Generic[PacketT]):
    """How one kind of packet becomes a body and comes back.

    `fault` names the rule that a packet value breaks; the writer and the reader both ask it, so that nobody
    can send what others would refuse.
    """

    kind: PacketKind
    write: Callable[[PacketT], bytes]
    read: Callable[[Header, bytes], PacketT]
    fault: Callable[[PacketT], str | None] = no_fault
    limit: int = MAX_DATAGRAM
    flags: tuple[str, ...] = ()
    """Fields of the packet that are bits of the header's flags, the lowest first; all other bits are zero."""


def prefix(kind: PacketKind) -> bytes:
    """Magic, version and kind: the four bytes that decide who reads the rest."""
    return MAGIC + bytes((VERSION, kind))


_PREFIXES = {kind: prefix(kind) for kind in PacketKind}


def header_bytes(kind: PacketKind, packet: Packet, market: bytes, flags: tuple[str, ...] = (), bits: int = 0) -> bytes:
    """The header of a packet, with more `bits` among its flags; struct.error when a field is out of its range."""
    for place, name in enumerate(flags):
        bits |= bool(getattr(packet, name)) << place
    return _HEADER.pack(_PREFIXES[kind], market, packet.stripe, bits, *packet.epoch, packet.sender)


def read_header(frame: bytes, flags: tuple[str, ...] = ()) -> tuple[Header, dict[str, bool]]:
    """The header's fields, and those flags that are set; prefix and market are the caller's business."""
    _, _, stripe, bits, number, server, sender = _HEADER.unpack_from(frame)
    header = Header(stripe, Epoch(number, server), sender)
    if not bits:
        return header, {}
    if bits >> len(flags):
        raise RemoteProtocolError(f"unknown flags {bits:#x} are set")
    return header, {name: True for place, name in enumerate(flags) if bits >> place & 1}


def key_of(sender: NodeId, keys: Keys) -> bytes:
    """The key that a frame of this sender must be tagged with."""
    try:
        return keys[sender]
    except KeyError:
        raise StrangerError(f"no key of sender {sender}") from None


def tag_of(signed: bytes, key: bytes) -> bytes:
    """The authentication tag of header and body. A key has at most 64 bytes."""
    return blake2b(signed, digest_size=TAG_BYTES, key=key).digest()


def unsealed(frame: bytes, key: bytes) -> bytes:
    """Header and body without the tag, which has been found right."""
    signed = frame[:-TAG_BYTES]
    if not compare_digest(blake2b(signed, digest_size=TAG_BYTES, key=key).digest(), frame[-TAG_BYTES:]):
        raise ForgeryError("the authentication tag is wrong")
    return signed


def peek_kind(frame: bytes | memoryview) -> PacketKind:
    """What the frame claims to be, before anything is authenticated: enough to let control outrank data."""
    if len(frame) < FRAME_BYTES:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes, shorter than header {HEADER_BYTES} and tag")
    start = bytes(frame[:_PREFIX_BYTES])
    if start[:2] != MAGIC:
        raise RemoteProtocolError(f"magic {start[:2].hex()} is not ours")
    if start[2] != VERSION:
        raise RemoteProtocolError(f"version {start[2]}; this program reads version {VERSION}")
    try:
        return PacketKind(start[KIND_AT])
    except ValueError as reason:
        raise RemoteProtocolError(f"kind {start[KIND_AT]} is unknown") from reason


def check_market(frame: bytes, market: bytes) -> None:
    """AnotherMarketError for a frame that is not of this market; its length has been found right."""
    found = frame[MARKET_AT:STRIPE_AT]
    if found != market:
        raise AnotherMarketError(f"a packet of another market: {found.hex()}, not {market.hex()}")


def digest_fault(*digests: bytes) -> str | None:
    """Digests have one length."""
    for digest in digests:
        if len(digest) != DIGEST_BYTES:
            return f"a digest of {len(digest)} bytes"
    return None


def nonce_fault(*nonces: bytes) -> str | None:
    """Nonces and commitments to them have one length."""
    for nonce in nonces:
        if len(nonce) != SHORT_DIGEST_BYTES:
            return f"a nonce of {len(nonce)} bytes"
    return None


# Which roles listen to a multicast packet: the groups of the core, for simulator and sockets alike.


class Role(IntEnum):
    """Who listens on the core's groups."""

    RECEIVER = 1
    SOURCE = 2
    SERVER = 3


_EVERYBODY = (Role.RECEIVER, Role.SOURCE, Role.SERVER)
_NETWORK = (Role.RECEIVER, Role.SERVER)

AUDIENCE: dict[type[Packet], tuple[Role, ...]] = {
    Data: (Role.RECEIVER,),
    Disclose: (Role.RECEIVER,),
    SourceChain: (Role.RECEIVER,),
    Token: _EVERYBODY,
    TokenPart: _EVERYBODY,
    Receipt: (Role.RECEIVER,),
    Repair: (Role.RECEIVER,),
    Suspect: _NETWORK,
    Invite: _NETWORK,
    Join: _NETWORK,
    NewRing: _EVERYBODY,
    LineAsk: _NETWORK,
    LineAck: _NETWORK,
    Lines: _NETWORK,
}
"""Who a multicast packet is for; packets not named here travel by unicast."""
