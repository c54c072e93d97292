"""What a receiver must not forget: prom, e_acc with its ring, the log, and its secret for nonces (protocol §2, §3).

The log's payloads are on the disk only; memory has eight bytes for each entry that is kept. What is stable is folded
into a checkpoint, which is written down now and then: a restart reads the log from the newest one on, and segments
that hold nothing but older entries go when there are more of them than the settings keep.

How far the site has released is not here: its journal of releases knows.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_bytes
from typing import NamedTuple, assert_never

from isocast.ring.answers import ANSWERS_MAX
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
from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.ring.storage import SiteState
from isocast.runtime.disk.outbox_store import NodeStore
from isocast.runtime.disk.records import (
    RecordKind,
    entry_number,
    read_entry,
    read_installed,
    read_promise,
    read_replaced,
    record_frames,
    verify_entry,
)
from isocast.runtime.disk.snapshots import SiteSnapshot, read_site_snapshot, site_snapshot
from isocast.runtime.disk.store import Store
from isocast.runtime.disk.store_marker import Past, StoreIdentity, StoreRole, boot_id, sync_directory
from isocast.runtime.disk.store_segments import Frame, Location, StoredFrame
from isocast.runtime.market.model import StoreSettings
from isocast.terms.errors import LocalProtocolError, StoreError
from isocast.terms.ids import NO_EPOCH, Epoch
from isocast.wire.packets import NewRing, Token
from isocast.wire.token_body import token_digest

__all__ = ["SiteLog", "SiteStore", "open_site_store", "site_secret"]


# A site's log on disk: where each entry lies, and what the records say when they are read again.


_OFFSET_BITS = 40
"""A location in eight bytes: offsets up to 1 TiB, and 16 million segments."""


class _Noted(NamedTuple):
    """A checkpoint that was written down, and where."""

    next_sequence: int
    token_number: int
    place: Location


class SiteLog:
    """Where each entry lies, and what else the records say."""

    def __init__(self) -> None:
        """Nothing."""
        self.promised: Epoch = NO_EPOCH
        self.ring: NewRing | None = None
        self.held = 0
        self.places = array("Q")
        """The location of each entry that is kept, up to `held`."""
        self.snapshots: list[_Noted] = []
        """While opening: the checkpoints that were written down, oldest first."""
        self.refill = 0
        """The journal lacks what comes before this sequence, and so does the log; 0: it lacks nothing."""

    @property
    def first(self) -> int:
        """The oldest entry that is kept."""
        return self.held - len(self.places) + 1

    def add(self, place: Location) -> None:
        """The next entry lies there."""
        self.places.append(place.segment << _OFFSET_BITS | place.offset)
        self.held += 1

    def cut(self, keep: int) -> None:
        """Forget everything above a token."""
        del self.places[max(keep + 1 - self.first, 0) :]
        self.held = keep

    def begin_at(self, token_number: int) -> None:
        """Forget everything: the log goes on behind this token."""
        self.places = array("Q")
        self.held = token_number

    def place(self, number: int) -> Location:
        """Where an entry lies that is kept."""
        packed = self.places[number - self.first]
        return Location(packed >> _OFFSET_BITS, packed & ((1 << _OFFSET_BITS) - 1))

    def last_in(self, segment: int) -> int:
        """The newest entry that lies in this segment or an older one. Places rise with the numbers."""
        return self.first - 1 + bisect_left(self.places, (segment + 1) << _OFFSET_BITS)

    def forget_before(self, segment: int) -> None:
        """Older segments are gone."""
        del self.places[: bisect_left(self.places, segment << _OFFSET_BITS)]

    # What the disk says -------------------------------------------------------------------------

    def replay(self, store: Store, *, lenient: bool) -> None:
        """Read everything but the payloads."""
        for segment, record in store.replay(verify_entry, lenient=lenient):
            place = Location(segment, record[-1].offset)
            try:
                self._take(segment, record)
            except ValueError as reason:
                store.fail_at(place, str(reason))

    def _take(self, segment: int, record: tuple[StoredFrame, ...]) -> None:
        kind, offset, checked, _ = record[-1]
        match kind:
            case RecordKind.ENTRY:
                self._follow(segment, record)
            case RecordKind.PROMISE:
                self.promised = read_promise(checked).ballot
            case RecordKind.RING:
                ring, keep, entries = read_installed(checked)
                if entries != len(record) - 1 or keep > self.held:
                    raise ValueError(f"a ring with {len(record) - 1} entries of {entries} on top of token {keep}")
                self.cut(keep)
                self._follow(segment, record[:-1])
                self.ring, self.promised = ring, ring.ballot
            case RecordKind.SITE:
                point, promised, ring_now, held = read_site_snapshot(checked)
                if self.snapshots and held != self.held:
                    raise ValueError(f"a snapshot of a log up to token {held}, and the log ends at {self.held}")
                self.held, self.promised, self.ring = held, promised, ring_now
                self.snapshots.append(_Noted(point.next_sequence, point.token_number, Location(segment, offset)))
            case RecordKind.REPLACED:
                point, entered, entries = read_replaced(checked)
                if entries != len(record) - 1:
                    raise ValueError(f"a checkpoint with {len(record) - 1} entries of {entries}")
                self.begin_at(point.token_number)
                self._follow(segment, record[:-1])
                if entered is not None:
                    self.ring, self.promised = entered, entered.ballot
                self.snapshots = [_Noted(point.next_sequence, point.token_number, Location(segment, offset))]
            case _:
                raise ValueError(f"a record of kind {kind}, which a site does not write")

    def _follow(self, segment: int, entries: tuple[StoredFrame, ...]) -> None:
        for stored in entries:
            number = entry_number(stored.checked)
            if number != self.held + 1:
                raise ValueError(f"token {number} follows token {self.held}")
            self.add(Location(segment, stored.offset))

    def restore(self, store: Store, state: SiteState, next_sequence: int | None) -> None:
        """Fill a blank state: from the newest checkpoint that the journal has reached, entry after entry.

        A journal that was cut back further than the log goes is filled up again: it is the log that votes.
        """
        whole = [noted for noted in self.snapshots if noted.token_number + 1 >= self.first]
        if not whole:
            noted = self.snapshots[-1]
            store.fail_at(noted.place, f"the tokens from {noted.token_number + 1} to {self.first - 1} are missing")
        fitting = [noted for noted in whole if next_sequence is None or noted.next_sequence <= next_sequence]
        chosen = fitting[-1] if fitting else whole[0]
        self.refill = 0 if fitting else chosen.next_sequence
        kind, checked, _ = store.read(chosen.place)
        state.checkpoint = (
            read_replaced(checked)[0] if kind == RecordKind.REPLACED else read_site_snapshot(checked).checkpoint
        )
        state.promised, state.ring = self.promised, self.ring
        digest, floor = state.checkpoint.digest, state.checkpoint.token_number
        for number in range(floor + 1, self.held + 1):
            entry = self.read(store, number)
            if entry.token.prev_digest != digest:
                store.fail_at(self.place(number), f"token {number} does not continue the chain")
            digest = token_digest(entry.token)
            state.entries[number] = entry

    def read(self, store: Store, number: int) -> LogEntry:
        """One entry, from the disk."""
        place = self.place(number)
        _, checked, loose = store.read(place)
        try:
            entry = read_entry(checked, loose)
        except ValueError as reason:
            store.fail_at(place, str(reason))
        if entry.token.token_number != number:
            store.fail_at(place, f"found token {entry.token.token_number}, expected token {number}")
        return entry


_INCOMPLETE = (Past.DOUBTFUL, Past.SHORT)
_SNAPSHOT_TOKENS = 256
"""Stable tokens after which a snapshot is written: what a restart reads beyond what it needs."""
_KEPT_TOKENS = 16
"""Tokens that stay however large they are: a site that takes a checkpoint over needs what came after it."""
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
    released_epoch: Epoch | None = None,
    boot: str | None = None,
) -> SiteStore:
    """Open a receiver's store, or make it.

    `fresh` says that the site may be new: without it an empty directory is a lost one, and the site has forgotten.
    `votes`: whether it makes promises; a secondary receiver makes none, and goes on from whatever is left.
    `next_sequence` is the first that its journal does not have: the log will begin at or before it, unless the log does
    not reach back so far. Then `refill` says what the journal lacks. (Not a token: the journal knows nothing of tokens
    without messages.) What was released is the caller's to put into `state`.
    `released_token` is the newest that the journal says this site released, where only what a majority holds is: a log
    that does not reach it was cut back, or is an older copy, and its promises are as old. Not so where it has a ring
    that is newer than `released_epoch`, under which that token went out: an operator's force cut the log, and what it
    says was written after the journal's end.
    """
    settings = settings or StoreSettings()
    store = Store(directory, StoreRole.SITE, identity, settings, boot_id() if boot is None else boot)
    try:
        return _opened(
            store,
            blank,
            fresh=fresh,
            votes=votes,
            next_sequence=next_sequence,
            released_token=released_token,
            released_epoch=released_epoch,
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
    released_epoch: Epoch | None,
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
            ring = log.ring
            is_newer = released_epoch is not None and ring is not None and ring.ballot > released_epoch
            if votes and released_token > log.held and not is_newer:
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
            rule = f"this site has forgotten what it promised: {StoreRole.SITE.advice}"
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
                case OutboxAppended() | OutboxFreed() | BallotChosen() | RingDecided():
                    pass  # `_checked` has refused them.
                case _:
                    assert_never(record)

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
                raise LocalProtocolError(f"{type(record).__name__} is not a record of a site")
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


# A site's own secret, from which the nonces of the keyed shuffle are made (protocol §2).
#
# Nobody else may know it before a nonce is revealed, so it is in no key file; it must outlive the process, since what
# was committed to is revealed a cycle later.


_BYTES = 32


def site_secret(directory: Path, name: str = "nonces.secret") -> bytes:
    """A secret in a node's directory, made at its first start: of a site's nonces, or of a source's key chains."""
    path = directory / name
    try:
        if not path.exists():
            _make(path)
        secret = path.read_bytes()
    except OSError as reason:
        raise StoreError(str(path), f"cannot be used: {reason.strerror}") from reason
    if len(secret) != _BYTES:
        raise StoreError(str(path), f"must have {_BYTES} bytes: remove it and restart the node")
    return secret


def _make(path: Path) -> None:
    """All of it or nothing, on the disk before anybody hears what was made of it."""
    draft = path.with_suffix(".new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, token_bytes(_BYTES))
        os.fsync(handle)
    finally:
        os.close(handle)
    draft.rename(path)
    sync_directory(path.parent)
