"""Hostile bytes for states that were kept or handed on: snapshots, checkpoints, and the records of a store.

A digest is no secret: most ways in put a right one around the bytes, so that what lies behind it is reached.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from hashlib import sha256
from struct import Struct, pack
from typing import TypeVar

from tests.ring.makers import Chain, message
from tests.striping.edge_streams import PLAN, SETTINGS, random_tokens
from tests.wire.hostile_messages import Way
from tests.wire.samples import EVENT, SAMPLES

from isocast.hierarchy.latest import LatestTable, read_snapshot, write_snapshot
from isocast.reformation.forming import ServerState
from isocast.ring.effects import (
    BallotChosen,
    EntryAppended,
    LogReplaced,
    OutboxAppended,
    OutboxFreed,
    PromiseMade,
    Record,
    RingDecided,
    RingInstalled,
)
from isocast.ring.ledger import Checkpoint
from isocast.runtime.disk.records import (
    RecordKind,
    checkpoint_bytes,
    read_ballot,
    read_checkpoint,
    read_decided,
    read_entry,
    read_freed,
    read_installed,
    read_outgoing,
    read_promise,
    read_replaced,
    record_frames,
)
from isocast.runtime.disk.snapshots import (
    OutboxSnapshot,
    SiteSnapshot,
    outbox_snapshot,
    read_outbox_snapshot,
    read_server_snapshot,
    read_site_snapshot,
    server_snapshot,
    site_snapshot,
)
from isocast.striping.edge import EdgeStriper
from isocast.striping.edge_snapshot import read_striper_snapshot, write_striper_snapshot
from isocast.striping.engine import read_engine_state
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import Epoch
from isocast.terms.instruments import Instrument
from isocast.ticker.tape import Tape, pack_state, unpack_state
from isocast.wire.events import build_events, pack_events
from isocast.wire.frame import PacketKind
from isocast.wire.names import name_events
from isocast.wire.packets import SHORT_DIGEST_BYTES, NewRing, short_digest_of

__all__ = ["STATE_WAYS", "state_seeds"]

Found = TypeVar("Found")

_TAPE_HEAD = Struct("<8sIIQ32s")
_TAPE_TABLES = {1: 5, 2: 7, 3: 8}
_READERS: Mapping[int, Callable[[bytes], object]] = {
    RecordKind.PROMISE: read_promise,
    RecordKind.RING: read_installed,
    RecordKind.SITE: read_site_snapshot,
    RecordKind.REPLACED: read_replaced,
    RecordKind.OUTGOING: read_outgoing,
    RecordKind.FREED: read_freed,
    RecordKind.OUTBOX: read_outbox_snapshot,
    RecordKind.BALLOT: read_ballot,
    RecordKind.DECIDED: read_decided,
    RecordKind.SERVER: read_server_snapshot,
}


def _latest(data: bytes) -> None:
    raw = data + short_digest_of(data)
    assert write_snapshot(read_snapshot(raw)) == raw


def _striper(data: bytes) -> None:
    snapshot = read_striper_snapshot(_sealed_striper(data))
    assert read_striper_snapshot(write_striper_snapshot(snapshot)) == snapshot


def _sealed_striper(body: bytes) -> bytes:
    packed = zlib.compress(body, 1)
    return b"ICES" + packed + short_digest_of(b"ICES", packed)


def _engine(data: bytes) -> None:
    """Sessions, a zero, and the striper."""
    head, _, body = data.partition(b"\0")
    state = read_engine_state(b"ICEE" + len(head).to_bytes(4) + head + _sealed_striper(body))
    assert state.next_sequence == read_striper_snapshot(state.striper).next_sequence


def _tape(data: bytes) -> None:
    """The version, a description, a zero, and the tables: version 2 has two more, of books, and version 3 names."""
    version = data[0] if data else 1
    text, _, tables = data[1:].partition(b"\0")
    digest = sha256(text + tables).digest()
    head = _TAPE_HEAD.pack(b"ISOTAPE\n", version, _TAPE_TABLES.get(version, 5), len(text), digest)
    state = unpack_state(head + text + tables)
    packed = pack_state(state)
    assert pack_state(unpack_state(packed)) == packed


def _checkpoint(data: bytes) -> None:
    assert checkpoint_bytes(_refusing(read_checkpoint, data)) == data


def _record(data: bytes) -> None:
    """Its kind, and its checked bytes; before those of an entry, how many at the end are loose."""
    kind, checked = data[:1], data[1:]
    if kind == bytes((RecordKind.ENTRY,)):
        _refusing(_entry, checked)
    else:
        _refusing(_READERS.get(max(kind or b"\0"), read_promise), checked)


def _entry(data: bytes) -> object:
    length, rest = int.from_bytes(data[:2]), data[2:]
    at = max(len(rest) - length, 0)
    return read_entry(rest[:at], rest[at:])


def _refusing(read: Callable[[bytes], Found], data: bytes) -> Found:
    """What is read; those who read stores say ValueError, to which a store adds its file and its place."""
    try:
        return read(data)
    except ValueError as reason:
        raise RemoteProtocolError(str(reason)) from reason


STATE_WAYS: tuple[Way, ...] = (_latest, _striper, _engine, _tape, _checkpoint, _record)

_EVENTS = pack_events(build_events([EVENT]))
_POINT = Checkpoint(40, Epoch(1, 65_537), b"d" * 16, 7, 81, b"r" * 16, (1, 2, 3), {1 << 32: 5, 2 << 32: 9})


def state_seeds() -> list[tuple[Way, bytes]]:
    """Inputs that are accepted, each with its way in."""
    table = LatestTable(stripe=3)
    table.apply([1, 2], [_EVENTS, _EVENTS])
    striper = EdgeStriper(PLAN, 0, SETTINGS)
    for part in random_tokens(5, 2, 10.0):
        striper.step(part)
    body = zlib.decompress(write_striper_snapshot(striper.snapshot())[4:-SHORT_DIGEST_BYTES])
    announced = b'"announced":{"version":2,"digest":"%s","stripes":3,"symbols":9}' % (b"11" * SHORT_DIGEST_BYTES)
    tapes = [Tape(), Tape(), Tape()]
    tapes[1].take(build_events([EVENT]))
    tapes[2].take(name_events([Instrument("XBIN", "BTC-USDT-PERPETUAL", 8, 3)]))
    return [
        (_latest, write_snapshot(table.snapshot())[:-SHORT_DIGEST_BYTES]),
        (_striper, body),
        (_striper, body.replace(b'"announced":null', announced)),
        (_engine, b'{"delay": 20000000, "sessions": {"1": [739163, 1, 9]}}\0' + body),
        *[(_tape, _without_digest(tape.snapshot())) for tape in tapes],
        (_checkpoint, checkpoint_bytes(_POINT)),
        (_checkpoint, checkpoint_bytes(Checkpoint())),
        *_record_seeds(),
    ]


def _without_digest(snapshot: bytes) -> bytes:
    _, version, _, length, _ = _TAPE_HEAD.unpack_from(snapshot)
    body = snapshot[_TAPE_HEAD.size :]
    return bytes((version,)) + body[:length] + b"\0" + body[length:]


def _record_seeds() -> list[tuple[Way, bytes]]:
    ring = SAMPLES[PacketKind.NEWRING]
    assert isinstance(ring, NewRing)
    (frame,) = record_frames(EntryAppended(Chain().add(message(1), message(2))))
    small: tuple[Record, ...] = (
        PromiseMade(_POINT.epoch),
        RingInstalled(ring, 3, ()),
        LogReplaced(_POINT, ring),
        OutboxAppended(b"key", 7, _EVENTS),
        OutboxFreed(7),
        BallotChosen(_POINT.epoch),
        RingDecided(ring),
    )
    frames = [frame for record in small for frame in record_frames(record)]
    frames += [
        site_snapshot(SiteSnapshot(_POINT, _POINT.epoch, ring, 40)),
        outbox_snapshot(OutboxSnapshot(7, 9, 3, b"c" * 32, {b"key": 8, b"other": 7})),
        server_snapshot(ServerState(_POINT.epoch, ring)),
    ]
    entry = bytes((RecordKind.ENTRY,)) + pack(">H", frame.loose_bytes) + frame.checked + b"".join(frame.loose)
    return [(_record, entry), *[(_record, bytes((one.kind,)) + one.checked) for one in frames]]
