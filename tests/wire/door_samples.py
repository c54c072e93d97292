"""One small, readable message of every kind that is said at a door; the proofs are right ones."""

from __future__ import annotations

from tests.wire.samples import EVENT, KEY

from isocast.terms.ids import Label, source_id
from isocast.wire.door import (
    NONCE_BYTES,
    Accepted,
    Block,
    CheckpointGiven,
    CheckpointWanted,
    DoorKind,
    DoorMessage,
    End,
    Hello,
    Login,
    Publish,
    RangeWanted,
    Refused,
    Sealed,
    Session,
    Snapshot,
    SnapshotWanted,
    Welcome,
    encode_message,
    proof,
)
from isocast.wire.events import build_events, pack_events

__all__ = ["DOOR_SAMPLES", "NONCES", "tagged_messages"]

NONCES = b"d" * NONCE_BYTES, b"v" * NONCE_BYTES, b"c" * NONCE_BYTES
"""Of the door and of its visitor, and the hash of the door's certificate."""
_EVENTS = pack_events(build_events([EVENT]))
_SOURCE = source_id(1)

DOOR_SAMPLES: dict[DoorKind, DoorMessage] = {
    DoorKind.HELLO: Hello(NONCES[0]),
    DoorKind.LOGIN: Login("source/nyse", NONCES[1], proof(KEY, b"client", *NONCES)),
    DoorKind.WELCOME: Welcome(proof(KEY, b"server", *NONCES)),
    DoorKind.REFUSED: Refused("nobody here is called \u201cnyse\u201d"),
    DoorKind.PUBLISH: Publish(((b"first key", _EVENTS), (b"second", b""))),
    DoorKind.ACCEPTED: Accepted((Label(_SOURCE, 7), Label(_SOURCE, 8), Label(_SOURCE, 3)), 1),
    DoorKind.RANGE: RangeWanted(1_000, 1_041),
    DoorKind.BLOCK: Block(b"a block of the journal"),
    DoorKind.END: End(17, 1_042),
    DoorKind.SNAPSHOT_WANTED: SnapshotWanted(),
    DoorKind.SNAPSHOT: Snapshot(1_042, _EVENTS),
    DoorKind.CHECKPOINT_WANTED: CheckpointWanted(),
    DoorKind.CHECKPOINT: CheckpointGiven(b"a log at a stable token"),
    DoorKind.SEALED: Sealed(20_000, 1_000, 1_041, b"a block that was sold"),
}


def tagged_messages() -> list[bytes]:
    """Two messages of one visitor with their tags: the second has another counter."""
    visitor = Session(KEY, b"client", *NONCES)
    return [visitor.sealed(encode_message(DOOR_SAMPLES[kind])) for kind in (DoorKind.RANGE, DoorKind.SNAPSHOT_WANTED)]
