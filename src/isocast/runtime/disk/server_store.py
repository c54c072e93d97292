"""What a reformation server must not forget: its highest ballot, its newest ring (protocol §5), and plans of lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from struct import Struct

from isocast.reformation.forming import ServerState
from isocast.reformation.scopes.line_keeper import LineState
from isocast.ring.effects import BallotChosen, Record, RingDecided
from isocast.runtime.disk.outbox_store import NodeStore, nothing_loose
from isocast.runtime.disk.records import RecordKind, read_ballot, read_decided, record_frames
from isocast.runtime.disk.snapshots import read_server_snapshot, server_snapshot
from isocast.runtime.disk.store import Store
from isocast.runtime.disk.store_marker import Past, StoreIdentity, StoreRole, boot_id
from isocast.runtime.disk.store_segments import Frame, Location
from isocast.runtime.market.model import Durability, StoreSettings
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError, StoreError
from isocast.terms.ids import NO_EPOCH
from isocast.wire.codec import decode, encode
from isocast.wire.packets import NO_VERSION, LineAck, Lines

__all__ = ["LineStore", "ServerStore", "open_server_store"]


def open_server_store(
    directory: Path,
    identity: StoreIdentity,
    blank: Callable[[], ServerState] = ServerState,
    settings: StoreSettings | None = None,
    *,
    fresh: bool = False,
    boot: str | None = None,
) -> ServerStore:
    """Open a reformation server's store, or make it.

    `fresh` says that the server may be new: without it an empty directory is a lost one, and the server has forgotten.
    Without settings each record is brought to the disk: ballots are rare, and a new id for a server is a nuisance.
    """
    settings = settings or StoreSettings(Durability.POWER)
    store = Store(directory, StoreRole.SERVER, identity, settings, boot_id() if boot is None else boot)
    try:
        marker, past = store.marker, store.past
        lost = past is Past.NONE and not fresh
        if lost or past in (Past.DOUBTFUL, Past.SHORT) or (marker is not None and marker.forgot):
            store.mark(forgot=True, why=store.loss)
            return ServerStore(store, blank(), forgot=True)
        opened = ServerStore(store, blank())
        if marker is not None and marker.begun:
            opened.replay()
            store.resume(opened.snapshot)
        else:
            store.begin(opened.snapshot)
    except BaseException:
        store.abandon()
        raise
    return opened


class ServerStore(NodeStore):
    """A reformation server's state on disk; made by `open_server_store`."""

    def __init__(self, store: Store, state: ServerState, *, forgot: bool = False) -> None:
        """On top of an open directory."""
        self.forgot = forgot
        """The disk was lost, or may have lost its end: this server may have used ballots that it does not know of."""
        self.state = state
        """What the disk says, now."""
        super().__init__(store)

    def replay(self) -> None:
        """Read everything."""
        for segment, record in self._store.replay(nothing_loose):
            kind, offset, checked, _ = record[-1]
            try:
                self._take(kind, checked)
            except ValueError as reason:
                self._store.fail_at(Location(segment, offset), str(reason))

    def _take(self, kind: int, checked: bytes) -> None:
        match kind:
            case RecordKind.SERVER:
                found = read_server_snapshot(checked)
                self.state.ballot, self.state.ring = found.ballot, found.ring
            case RecordKind.BALLOT:
                self.state.apply(read_ballot(checked))
            case RecordKind.DECIDED:
                self.state.apply(read_decided(checked))
            case _:
                raise ValueError(f"a record of kind {kind}, which a server does not write")

    def append_many(self, records: Sequence[Record]) -> None:
        """Make records durable together: one write, and one fdatasync where power failures count."""
        if self.forgot:
            rule = f"this server has forgotten its ballots: {StoreRole.SERVER.advice}"
            raise StoreError(str(self._store.directory), rule)
        for record in records:
            if not isinstance(record, BallotChosen | RingDecided):
                raise LocalProtocolError(f"{type(record).__name__} is not a record of a server")
        self._store.write([frame for record in records for frame in record_frames(record)])
        for record in records:
            self.state.apply(record)
        self._store.remove_before(self._store.newest)

    def snapshot(self) -> Frame:
        """What a segment begins with now."""
        return server_snapshot(self.state)


# What a node must not forget of plans of lines: two small files, written in turn and in place (§4.3).
#
# Nothing is renamed or truncated: on many filesystems either waits for the disk, and a receiver keeps a plan at the
# very moment when a new ring's first tokens are due. Whichever file is whole and newer counts.


_HEAD = Struct("<16sQI")
"""Digest of all that follows; which write it was; bytes of the frames."""
_LENGTH = Struct("<I")
_DIGEST_BYTES = 16
_FRAMES_MAX = 3


class LineStore:
    """The files of one node."""

    def __init__(self, directory: Path, durability: Durability = Durability.PROCESS) -> None:
        """Nothing is opened. What is kept survives the end of the process, or that of the power supply."""
        self.paths = (directory / "lines.0", directory / "lines.1")
        self._synced = durability is Durability.POWER
        self._number: int | None = None

    def read(self) -> LineState:
        """What was kept; nothing where there are no files. StoreError if they are damaged: it may have promised more.

        Where power failures count, a file that a failure tore was not yet relied on, and the other one counts.
        """
        found: list[tuple[int, LineState]] = []
        damaged: list[Path] = []
        for path in self.paths:
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as reason:
                raise StoreError(str(path), f"cannot be read: {reason.strerror}") from reason
            if not content:
                continue  # Its first write never came.
            try:
                found.append(_kept(content))
            except (RemoteProtocolError, ValueError):
                damaged.append(path)
        if damaged and not (self._synced and found):
            rule = "is damaged: take this node off the market as if its disk were lost"
            raise StoreError(str(damaged[0]), rule)
        newest = max(found, key=lambda one: one[0], default=(0, LineState()))
        self._number = newest[0]
        return newest[1]

    def keep(self, state: LineState) -> None:
        """All of it or nothing, and as durable as it is to be when this returns."""
        if self._number is None:
            self.read()
        self._number = number = (self._number or 0) + 1
        path = self.paths[number % 2]
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o640)
            try:
                os.pwrite(file, _written(number, state), 0)
                if self._synced:
                    os.fsync(file)
            finally:
                os.close(file)
        except OSError as reason:
            raise StoreError(str(path), f"cannot be written: {reason.strerror}") from reason


def _written(number: int, state: LineState) -> bytes:
    held, settled = state.held, state.settled
    same = held is not None and settled is not None and held.version == settled.version
    packets: list[LineAck | Lines] = [LineAck(0, NO_EPOCH, 0, state.promised, state.version, settled=same)]
    packets += [lines for lines in (held, None if same else settled) if lines is not None]
    body = b"".join([_LENGTH.pack(len(frame)) + frame for frame in map(encode, packets)])
    signed = _HEAD.pack(b"", number, len(body))[_DIGEST_BYTES:] + body
    return blake2b(signed, digest_size=_DIGEST_BYTES).digest() + signed


def _kept(content: bytes) -> tuple[int, LineState]:
    """Which write it was, and what; ValueError or RemoteProtocolError if it is not whole. What lies behind is older."""
    if len(content) < _HEAD.size:
        raise ValueError("ends within its head")
    digest, number, length = _HEAD.unpack_from(content)
    signed = content[_DIGEST_BYTES : _HEAD.size + length]
    if blake2b(signed, digest_size=_DIGEST_BYTES).digest() != digest:
        raise ValueError("has a wrong checksum")
    ack, *plans = [decode(frame) for frame in _frames(content[_HEAD.size : _HEAD.size + length])]
    by_version = {lines.version: lines for lines in plans if isinstance(lines, Lines)}
    if not isinstance(ack, LineAck) or len(plans) > _FRAMES_MAX - 1 or len(by_version) != len(plans):
        raise ValueError("holds something else")
    held = by_version.pop(ack.held, None)
    if held is None and (ack.held != NO_VERSION or plans):
        raise ValueError("lacks the plan that it names")
    return number, LineState(ack.promised, held, held if ack.settled else next(iter(by_version.values()), None))


def _frames(body: bytes) -> list[bytes]:
    frames, at = [], 0
    while at < len(body):
        if at + _LENGTH.size > len(body):
            raise ValueError("ends within a length")
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        frames.append(body[at : at + length])
        at += length
    return frames
