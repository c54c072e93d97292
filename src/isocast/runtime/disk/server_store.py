"""What a reformation server must not forget: the highest ballot it used, the newest ring it decided (protocol §5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from isocast.reformation.ballot import ServerState
from isocast.ring.effects import BallotChosen, Record, RingDecided
from isocast.runtime.disk.node_store import NodeStore, nothing_loose
from isocast.runtime.disk.records import Kind, read_ballot, read_decided, record_frames
from isocast.runtime.disk.snapshots import read_server_snapshot, server_snapshot
from isocast.runtime.disk.store import Store
from isocast.runtime.disk.store_marker import Past, Role, StoreIdentity, boot_id
from isocast.runtime.disk.store_segments import Frame, Location
from isocast.runtime.disk.store_settings import StoreSettings
from isocast.runtime.market.model import Durability
from isocast.terms.errors import LocalProtocolError, StoreError

__all__ = ["ServerStore", "open_server_store"]


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
    store = Store(directory, Role.SERVER, identity, settings, boot_id() if boot is None else boot)
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
            case Kind.SERVER:
                found = read_server_snapshot(checked)
                self.state.ballot, self.state.ring = found.ballot, found.ring
            case Kind.BALLOT:
                self.state.apply(read_ballot(checked))
            case Kind.DECIDED:
                self.state.apply(read_decided(checked))
            case _:
                raise ValueError(f"a record of kind {kind}, which is no server's")

    def append_many(self, records: Sequence[Record]) -> None:
        """Make records durable together: one write, and one fdatasync where power failures count."""
        if self.forgot:
            rule = f"this server has forgotten its ballots: {Role.SERVER.advice}"
            raise StoreError(str(self._store.directory), rule)
        for record in records:
            if not isinstance(record, BallotChosen | RingDecided):
                raise LocalProtocolError(f"{type(record).__name__} is no record of a server")
        self._store.write([frame for record in records for frame in record_frames(record)])
        for record in records:
            self.state.apply(record)
        self._store.remove_before(self._store.newest)

    def snapshot(self) -> Frame:
        """What a segment begins with now."""
        return server_snapshot(self.state)
