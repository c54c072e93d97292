"""What a receiver must not forget: prom, e_acc with its ring, and the log (protocol §3).

The log's payloads are on the disk only; memory has eight bytes for each entry that is kept. What is stable is folded
into a checkpoint, which is written down now and then: a restart reads the log from the newest one on, and segments
that hold nothing but older entries go when there are more of them than the settings keep.

How far the site has released is not here: its journal of releases knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from isocast.ring.answers import ANSWERS_MAX
from isocast.ring.effects import EntryAppended, LogReplaced, PromiseMade, Record, RingInstalled
from isocast.ring.entries import LogEntry
from isocast.ring.ledger import Checkpoint
from isocast.ring.storage import SiteState
from isocast.runtime.disk.node_store import NodeStore
from isocast.runtime.disk.records import record_frames
from isocast.runtime.disk.site_log import SiteLog
from isocast.runtime.disk.snapshots import SiteSnapshot, site_snapshot
from isocast.runtime.disk.store import Store
from isocast.runtime.disk.store_marker import Past, Role, StoreIdentity, boot_id
from isocast.runtime.disk.store_segments import Frame, Location
from isocast.runtime.disk.store_settings import StoreSettings
from isocast.terms.errors import LocalProtocolError, StoreError
from isocast.wire.packets import Token

__all__ = ["SiteStore", "open_site_store"]

_INCOMPLETE = (Past.DOUBTFUL, Past.SHORT)
_SNAPSHOT_TOKENS = 256
"""Stable tokens after which a snapshot is written: what a restart reads beyond what it needs."""
_KEPT_TOKENS = 16
"""Tokens that stay however large they are: whoever takes a checkpoint over needs what came after it."""
_SNAPSHOT_SHARE = 8
"""Or this part of a segment's bytes, for tokens that are large."""


def open_site_store(  # noqa: PLR0913  # what the disk must agree with
    directory: Path,
    identity: StoreIdentity,
    blank: Callable[[], SiteState],
    settings: StoreSettings | None = None,
    *,
    fresh: bool = False,
    votes: bool = True,
    next_sequence: int | None = None,
    released_token: int = 0,
    boot: str | None = None,
) -> SiteStore:
    """Open a receiver's store, or make it.

    `fresh` says that the site may be new: without it an empty directory is a lost one, and the site has forgotten.
    `votes`: whether it makes promises; a secondary receiver makes none, and goes on from whatever is left.
    `next_sequence` is the first that its journal does not have: the log will begin at or before it, unless the log does
    not reach back so far. Then `refill` says what the journal lacks. (Not a token: the journal knows nothing of tokens
    without messages.) What was released is the caller's to put into `state`.
    `released_token` is the newest that the journal says this site released, where only what a majority holds is: a log
    that does not reach it was cut back, or is an older copy, and its promises are as old.
    """
    settings = settings or StoreSettings()
    store = Store(directory, Role.SITE, identity, settings, boot_id() if boot is None else boot)
    try:
        return _opened(
            store, blank, fresh=fresh, votes=votes, next_sequence=next_sequence, released_token=released_token
        )
    except BaseException:
        store.abandon()
        raise


def _opened(
    store: Store,
    blank: Callable[[], SiteState],
    *,
    fresh: bool,
    votes: bool,
    next_sequence: int | None,
    released_token: int,
) -> SiteStore:
    marker, past = store.marker, store.past
    lost = past is Past.NONE and not fresh
    if votes and (lost or past in _INCOMPLETE or (marker is not None and marker.forgot)):
        store.mark(forgot=True, why=store.loss)
        return SiteStore(store, blank(), SiteLog(), forgot=True)
    if marker is not None and marker.begun:
        try:
            log, state = SiteLog(), blank()
            log.replay(store, lenient=past in _INCOMPLETE)
            if votes and released_token > log.held:
                store.loss = f"the log ends at token {log.held}, and this site had released token {released_token}"
                store.mark(forgot=True, why=store.loss)
                return SiteStore(store, blank(), SiteLog(), forgot=True)
            log.restore(store, state, next_sequence)
        except StoreError:
            if past not in _INCOMPLETE:
                raise
        else:
            opened = SiteStore(store, state, log)
            store.resume(opened.snapshot)
            return opened
    log, state = SiteLog(), blank()
    log.held = state.held
    opened = SiteStore(store, state, log)
    store.begin(opened.snapshot)
    return opened


class SiteStore(NodeStore):
    """A receiver's state on disk; made by `open_site_store`."""

    def __init__(self, store: Store, state: SiteState, log: SiteLog, *, forgot: bool = False) -> None:
        """On top of an open directory, from what was read of it."""
        self.forgot = forgot
        """The disk was lost, or may have lost its end: this site must never vote again under its id."""
        super().__init__(store)
        self._log = log
        self._restored: SiteState | None = state
        self._floor = state.checkpoint.copy()
        self._tokens: dict[int, Token] = {number: entry.token for number, entry in state.entries.items()}
        self._noted = state.checkpoint.token_number
        self._noted_at = 0

    @property
    def state(self) -> SiteState:
        """What the disk said when the store was opened: for making the machine, before the first record is appended."""
        if self._restored is None:
            raise LocalProtocolError("the state of a site is read before anything is appended")
        return self._restored

    @property
    def held(self) -> int:
        """The newest token on disk."""
        return self._log.held

    @property
    def refill(self) -> int:
        """The sequence before which the journal must be filled up from elsewhere, before anything is released; 0: none.

        It was cut back, or lost, and what it lacks has left this log.
        """
        return self._log.refill

    @property
    def floor(self) -> Checkpoint:
        """The log at a stable token: what another site may take over."""
        return self._floor.copy()

    @property
    def first(self) -> int:
        """The oldest token that can be read; `held` + 1 when there is none."""
        return self._log.first

    # Writing ------------------------------------------------------------------------------------

    def append_many(self, records: Sequence[Record]) -> None:
        """Make records durable together: one write, and one fdatasync where power failures count."""
        if self.forgot:
            rule = f"this site has forgotten what it promised: {Role.SITE.advice}"
            raise StoreError(str(self._store.directory), rule)
        held = self._log.held
        frames: list[Frame] = []
        for record in records:
            held = self._checked(record, held)
            frames += record_frames(record)
        places = iter(self._store.write(frames))
        self._restored = None
        for record in records:
            match record:
                case EntryAppended(entry):
                    self._add(entry, next(places))
                case RingInstalled(ring, keep, suffix):
                    for number in range(keep + 1, self._log.held + 1):
                        del self._tokens[number]
                    self._log.cut(keep)
                    for entry in suffix:
                        self._add(entry, next(places))
                    next(places)
                    self._log.ring, self._log.promised = ring, ring.ballot
                case LogReplaced(point, entered, suffix):
                    self._begin_at(point)
                    for entry in suffix:
                        self._add(entry, next(places))
                    next(places)
                    if entered is not None:
                        self._log.ring, self._log.promised = entered, entered.ballot
                case PromiseMade(ballot):
                    next(places)
                    self._log.promised = ballot
                case _:
                    pass

    def _checked(self, record: Record, held: int) -> int:
        """The newest token after a record that continues a log up to `held`."""
        match record:
            case EntryAppended(entry):
                entries, keep = (entry,), held
            case RingInstalled(_, keep, entries):
                if not self._floor.token_number <= keep <= held:
                    rule = f"the log from {self._floor.token_number} to {held} cannot be cut back to {keep}"
                    raise LocalProtocolError(rule)
            case LogReplaced(point, ring, entries):
                keep = point.token_number
                if ring is None and keep <= held:
                    raise LocalProtocolError(f"a checkpoint at token {keep}, and the log goes up to {held}")
            case PromiseMade():
                return held
            case _:
                raise LocalProtocolError(f"{type(record).__name__} is no record of a site")
        for number, entry in enumerate(entries, keep + 1):
            if entry.token.token_number != number:
                raise LocalProtocolError(f"token {entry.token.token_number} does not follow {number - 1}")
        return keep + len(entries)

    def _begin_at(self, point: Checkpoint) -> None:
        """The record is as good as a snapshot: a restart begins with it."""
        self._log.begin_at(point.token_number)
        self._tokens.clear()
        self._floor = point.copy()
        self._noted, self._noted_at = point.token_number, self.counters.bytes

    def _add(self, entry: LogEntry, place: Location) -> None:
        self._log.add(place)
        self._tokens[entry.token.token_number] = entry.token

    def snapshot(self) -> Frame:
        """What a segment begins with now."""
        log = self._log
        self._noted, self._noted_at = self._floor.token_number, self.counters.bytes
        return site_snapshot(SiteSnapshot(self._floor, log.promised, log.ring, log.held))

    # The past -----------------------------------------------------------------------------------

    def collected(self, token_number: int) -> None:
        """Everything up to here is stable, released and in the journal (`Collect`): old segments may go."""
        for number in range(self._floor.token_number + 1, min(token_number, self._log.held) + 1):
            self._floor.advance(LogEntry(self._tokens.pop(number), (), b""))
        new = self._floor.token_number - self._noted
        grown = self.counters.bytes - self._noted_at
        if new >= _SNAPSHOT_TOKENS or (new and grown * _SNAPSHOT_SHARE >= self._store.settings.segment_bytes):
            self._store.write([self.snapshot()])
        self._retire()

    def _retire(self) -> None:
        """Remove segments beyond those to be kept in which a restart would not need anything."""
        store = self._store
        oldest = store.oldest
        last = min(self._noted, self._log.held - _KEPT_TOKENS)
        while store.newest - oldest >= store.settings.keep_segments and self._log.last_in(oldest) <= last:
            oldest += 1
        if oldest > store.oldest:
            store.remove_before(oldest)
            self._log.forget_before(oldest)

    def read(self, first: int, last: int) -> tuple[LogEntry, ...]:
        """The entries of a range that the disk still has, from the disk.

        At least one, if there is one, and then no more than a site may send in one answer.
        """
        entries: list[LogEntry] = []
        messages = 0
        for number in range(max(first, self._log.first), min(last, self._log.held) + 1):
            entry = self._log.read(self._store, number)
            messages += 1 + len(entry.messages)
            if entries and messages > ANSWERS_MAX:
                break
            entries.append(entry)
            self.counters.entries_read += 1
        return tuple(entries)
