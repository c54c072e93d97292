"""What is said at a node's door, by TCP: who comes in, what is published, which ranges are asked for.

    | length 4 | kind 1 | body … | tag 16 |

`length` counts kind, body and tag. The first messages, HELLO, LOGIN and WELCOME, have no tag: they exchange two nonces
and prove on both sides that the key of the door is known. A proof covers both nonces and the hash of the certificate
that the door presents (zeros without TLS). All that follow are tagged by a key of this connection and
direction, with a counter, so that nothing can be put in, left out or repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct, error
from typing import NamedTuple, TypeAlias

from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Label
from isocast.wire.limits import MAX_PAYLOAD, TAG_BYTES

__all__ = [
    "LENGTH",
    "MAX_BATCH",
    "MAX_KEY",
    "MAX_MESSAGE",
    "NONCE_BYTES",
    "NO_CHANNEL",
    "Accepted",
    "Block",
    "CheckpointGiven",
    "CheckpointWanted",
    "DoorKind",
    "DoorMessage",
    "End",
    "Hello",
    "Login",
    "Publish",
    "RangeWanted",
    "Refused",
    "Sealed",
    "Session",
    "Snapshot",
    "SnapshotWanted",
    "Welcome",
    "decode_message",
    "encode_message",
    "proof",
    "sealed_head",
]

LENGTH = Struct("<I")
NONCE_BYTES = 32
NO_CHANNEL = bytes(32)
"""In place of a certificate's hash, where there is no TLS."""
MAX_BATCH = 1_024
"""Batches in one PUBLISH. Bounds: 1,024 of 8,824 bytes are 9 MB, which a connection may hold in memory."""
MAX_KEY = 64
"""Bytes of a client's own key for one batch."""
MAX_TEXT = 1_024
"""Bytes of a name or a reason."""
MAX_MESSAGE = (16 << 20) + 256
"""Bounds: one journal block, or one snapshot of 349,000 events, sealed."""
_MAGIC = b"ISOCDOOR"
_VERSION = 3


class DoorKind(IntEnum):
    """The number of each message."""

    HELLO = 1
    LOGIN = 2
    WELCOME = 3
    REFUSED = 4
    PUBLISH = 5
    ACCEPTED = 6
    RANGE = 7
    BLOCK = 8
    END = 9
    SNAPSHOT_WANTED = 10
    SNAPSHOT = 11
    CHECKPOINT_WANTED = 12
    CHECKPOINT = 13
    SEALED = 14


class Hello(NamedTuple):
    """The door speaks first: its nonce."""

    nonce: bytes


class Login(NamedTuple):
    """Who comes in (`source/NAME`, `edge/NAME`, `core/NAME`), a nonce, and the proof that the key is known."""

    name: str
    nonce: bytes
    proof: bytes


class Welcome(NamedTuple):
    """The door's own proof."""

    proof: bytes


class Refused(NamedTuple):
    """Why something was not done, and what to do."""

    reason: str


class Publish(NamedTuple):
    """Batches for a source: (client's key, payload) each; the same key twice is one batch."""

    batches: tuple[tuple[bytes, bytes], ...]


class Accepted(NamedTuple):
    """The labels of the batches of one PUBLISH, in its order: they are in the outbox, on disk."""

    labels: tuple[Label, ...]
    repeated: int = 0
    """How many of them were there before, under the same keys."""


class RangeWanted(NamedTuple):
    """All released messages of these sequences, both included."""

    first: int
    last: int


class Block(NamedTuple):
    """One block of the journal, as it lies there."""

    body: bytes


class End(NamedTuple):
    """No more: the oldest and the next sequence that the archive has."""

    low_water: int
    next_sequence: int


class SnapshotWanted(NamedTuple):
    """The latest of everything."""


class Snapshot(NamedTuple):
    """The latest event of every key, as of everything before `next_sequence`."""

    next_sequence: int
    events: bytes


class CheckpointWanted(NamedTuple):
    """A receiver's log at a stable token, for a node of the network that lacks what was before it."""


class CheckpointGiven(NamedTuple):
    """The log's state, in the bytes of a store."""

    packed: bytes


class Sealed(NamedTuple):
    """A block or snapshot for buyers of its period: sequences `first` to `last` (`security.door_seals`)."""

    period: int
    first: int
    last: int
    box: bytes


DoorMessage: TypeAlias = (
    Hello
    | Login
    | Welcome
    | Refused
    | Publish
    | Accepted
    | RangeWanted
    | Block
    | End
    | SnapshotWanted
    | Snapshot
    | CheckpointWanted
    | CheckpointGiven
    | Sealed
)

_HELLO = Struct(f"<8sI{NONCE_BYTES}s")
_LOGIN = Struct(f"<H{NONCE_BYTES}s{TAG_BYTES}s")
_TWO = Struct("<QQ")
_ONE = Struct("<Q")
_COUNT = Struct("<H")
_BATCH = Struct("<BH")
_LABEL = Struct("<QQ")
_SEALED = Struct("<IQQ")


def proof(key: bytes, side: bytes, *nonces: bytes) -> bytes:
    """What only a holder of the key can say to these nonces; `side` keeps a proof from being thrown back."""
    return blake2b(side + b"".join(nonces), digest_size=TAG_BYTES, key=key).digest()


class Session:
    """Tags of one direction of one connection."""

    def __init__(self, key: bytes, side: bytes, *nonces: bytes) -> None:
        """Both ends derive the same key from the door's and both nonces."""
        self._key = blake2b(b"session " + side + b"".join(nonces), digest_size=32, key=key).digest()
        self._count = 0

    def sealed(self, message: bytes) -> bytes:
        """A message with its tag."""
        return message + self._tag(message)

    def unsealed(self, message: bytes) -> bytes:
        """A message without its tag, which has been found right; the connection is of no more use otherwise."""
        body, tag = message[:-TAG_BYTES], message[-TAG_BYTES:]
        if not compare_digest(self._tag(body), tag):
            raise ForgeryError("a message at the door has a wrong tag")
        return body

    def _tag(self, message: bytes) -> bytes:
        self._count += 1
        return blake2b(_ONE.pack(self._count) + message, digest_size=TAG_BYTES, key=self._key).digest()


# Writing ------------------------------------------------------------------------------------------


def encode_message(message: DoorMessage) -> bytes:
    """Kind and body."""
    try:
        kind, body = _body(message)
    except error as reason:
        raise LocalProtocolError(f"{type(message).__name__}: {reason}") from reason
    if len(body) >= MAX_MESSAGE:
        raise LocalProtocolError(f"{type(message).__name__} of {len(body)} bytes, at most {MAX_MESSAGE}")
    return bytes((kind,)) + body


def sealed_head(period: int, first: int, last: int) -> bytes:
    """What SEALED says in the clear."""
    return _SEALED.pack(period, first, last)


def _body(message: DoorMessage) -> tuple[DoorKind, bytes]:
    match message:
        case Hello(nonce):
            return DoorKind.HELLO, _HELLO.pack(_MAGIC, _VERSION, nonce)
        case Login(name, nonce, evidence):
            text = name.encode()
            return DoorKind.LOGIN, _LOGIN.pack(len(text), nonce, evidence) + text
        case Welcome(evidence):
            return DoorKind.WELCOME, evidence
        case Refused(reason):
            return DoorKind.REFUSED, reason.encode()[:MAX_TEXT]
        case Publish(batches):
            return DoorKind.PUBLISH, _publish_body(batches)
        case Accepted(labels, repeated):
            return DoorKind.ACCEPTED, _COUNT.pack(repeated) + b"".join([_LABEL.pack(*label) for label in labels])
        case RangeWanted(first, last):
            return DoorKind.RANGE, _TWO.pack(first, last)
        case Block(body):
            return DoorKind.BLOCK, body
        case End(low_water, next_sequence):
            return DoorKind.END, _TWO.pack(low_water, next_sequence)
        case SnapshotWanted():
            return DoorKind.SNAPSHOT_WANTED, b""
        case Snapshot(next_sequence, events):
            return DoorKind.SNAPSHOT, _ONE.pack(next_sequence) + events
        case CheckpointWanted():
            return DoorKind.CHECKPOINT_WANTED, b""
        case CheckpointGiven(packed):
            return DoorKind.CHECKPOINT, packed
        case Sealed(period, first, last, box):
            return DoorKind.SEALED, sealed_head(period, first, last) + box


def _publish_body(batches: Sequence[tuple[bytes, bytes]]) -> bytes:
    if len(batches) > MAX_BATCH:
        raise LocalProtocolError(f"{len(batches)} batches at once, at most {MAX_BATCH}")
    parts = [_COUNT.pack(len(batches))]
    for key, payload in batches:
        if not 0 < len(key) <= MAX_KEY or len(payload) > MAX_PAYLOAD:
            raise LocalProtocolError(
                f"a key of {len(key)} and a payload of {len(payload)} bytes; 1 to {MAX_KEY} and at most {MAX_PAYLOAD}"
            )
        parts += (_BATCH.pack(len(key), len(payload)), key, payload)
    return b"".join(parts)


# Reading ------------------------------------------------------------------------------------------


def decode_message(message: bytes) -> DoorMessage:
    """The message in kind and body; RemoteProtocolError for anything that is not one."""
    if not message:
        raise RemoteProtocolError("an empty message")
    try:
        kind = DoorKind(message[0])
        return _read(kind, message[1:])
    except (error, ValueError) as reason:
        raise RemoteProtocolError(f"a message at the door: {reason}") from reason


def _read(kind: DoorKind, body: bytes) -> DoorMessage:  # noqa: C901, PLR0912 (one case per message)
    match kind:
        case DoorKind.HELLO:
            magic, version, nonce = _HELLO.unpack(body)
            if magic != _MAGIC or version != _VERSION:
                raise RemoteProtocolError(f"not a door of version {_VERSION}")
            return Hello(nonce)
        case DoorKind.LOGIN:
            length, nonce, evidence = _LOGIN.unpack_from(body)
            text = body[_LOGIN.size :]
            if len(text) != length or length > MAX_TEXT:
                raise RemoteProtocolError("LOGIN: a name of another length")
            return Login(text.decode(), nonce, evidence)
        case DoorKind.WELCOME:
            if len(body) != TAG_BYTES:
                raise RemoteProtocolError("WELCOME: a proof of another length")
            return Welcome(body)
        case DoorKind.REFUSED:
            return Refused(body[:MAX_TEXT].decode(errors="replace"))
        case DoorKind.PUBLISH:
            return _read_publish(body)
        case DoorKind.ACCEPTED:
            (repeated,) = _COUNT.unpack_from(body)
            labels = tuple([Label(*pair) for pair in _LABEL.iter_unpack(body[_COUNT.size :])])
            if repeated > len(labels):
                raise RemoteProtocolError("ACCEPTED: more repeated than there are")
            return Accepted(labels, repeated)
        case DoorKind.RANGE:
            return RangeWanted(*_TWO.unpack(body))
        case DoorKind.BLOCK:
            return Block(body)
        case DoorKind.END:
            return End(*_TWO.unpack(body))
        case DoorKind.SNAPSHOT_WANTED | DoorKind.CHECKPOINT_WANTED:
            if body:
                raise RemoteProtocolError(f"{kind.name}: bytes where there is nothing to say")
            return SnapshotWanted() if kind is DoorKind.SNAPSHOT_WANTED else CheckpointWanted()
        case DoorKind.SNAPSHOT:
            (next_sequence,) = _ONE.unpack_from(body)
            return Snapshot(next_sequence, body[_ONE.size :])
        case DoorKind.CHECKPOINT:
            return CheckpointGiven(body)
        case DoorKind.SEALED:
            period, first, last = _SEALED.unpack_from(body)
            return Sealed(period, first, last, body[_SEALED.size :])


def _read_publish(body: bytes) -> Publish:
    (count,) = _COUNT.unpack_from(body)
    if count > MAX_BATCH:
        raise RemoteProtocolError(f"PUBLISH of {count} batches, at most {MAX_BATCH}")
    at = _COUNT.size
    batches: list[tuple[bytes, bytes]] = []
    for _ in range(count):
        key_bytes, payload_bytes = _BATCH.unpack_from(body, at)
        at += _BATCH.size
        key, payload = body[at : at + key_bytes], body[at + key_bytes : at + key_bytes + payload_bytes]
        at += key_bytes + payload_bytes
        if not 0 < key_bytes <= MAX_KEY or len(payload) != payload_bytes or payload_bytes > MAX_PAYLOAD:
            raise RemoteProtocolError("PUBLISH: a batch cut short, or without a key")
        batches.append((key, payload))
    if at != len(body):
        raise RemoteProtocolError("PUBLISH: bytes left over")
    return Publish(tuple(batches))
