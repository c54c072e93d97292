"""What a source must not forget: incarnation, messages still owed, clients' keys; and what stores have in common.

A label is (incarnation, number) and must name one message, so no number may be used twice in one incarnation. As
long as everything that was acknowledged is still there, a source that starts again goes on in its incarnation, and
the numbers continue. Where the end may be missing, because the machine went down under the durability `process`, or
is missing, because the store is shorter than what it acknowledged or than what the ring has of it, it begins a new one:
what is left of the old one is in doubt, since each of its messages may be in the sequence or not.

A new incarnation is the number of seconds since 2020, or one more than the last if that is higher. A source that has
lost its directory knows no last one; but it has lived for longer than a second, so the clock gives a number that was
never used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from time import time
from typing import NamedTuple, Self

from isocast.ring.effects import OutboxAppended, OutboxFreed, Record
from isocast.ring.source import OutboxState
from isocast.runtime.disk.records import RecordKind, outgoing_frame, read_freed, read_outgoing, record_frames
from isocast.runtime.disk.snapshots import OutboxSnapshot, outbox_snapshot, read_outbox_snapshot
from isocast.runtime.disk.store import Store
from isocast.runtime.disk.store_marker import Past, StoreCounters, StoreIdentity, StoreRole, boot_id
from isocast.runtime.disk.store_segments import Frame, Location
from isocast.runtime.market.model import StoreSettings
from isocast.terms.errors import LocalProtocolError, StoreError
from isocast.terms.ids import Label, NodeId

__all__ = ["InDoubt", "NodeStore", "OutboxStore", "nothing_loose", "open_outbox_store"]


# What the stores of sites, sources and servers have in common.


class NodeStore(ABC):
    """A node's state on disk. When `append` returns, the record is as durable as the settings say."""

    def __init__(self, store: Store) -> None:
        """On top of an open directory."""
        self._store = store

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    @property
    def counters(self) -> StoreCounters:
        """What the store did."""
        return self._store.counters

    @property
    def loss(self) -> str:
        """What was missing, when the store was opened, of what it had acknowledged; empty if nothing was."""
        return self._store.loss

    def append(self, record: Record) -> None:
        """Make one record durable."""
        self.append_many((record,))

    @abstractmethod
    def append_many(self, records: Sequence[Record]) -> None:
        """Make records durable together: one write, and one fdatasync where power failures count."""

    @abstractmethod
    def snapshot(self) -> Frame:
        """What a segment begins with now."""

    def check(self) -> None:
        """StoreGone if its files were removed, replaced or cut while it was open; about once a second."""
        self._store.check()

    def close(self) -> None:
        """Bring everything to the disk, note where it ends, and let go of the directory."""
        self._store.close()

    def abandon(self) -> None:
        """Let go of the directory as the end of the process would."""
        self._store.abandon()


def nothing_loose(_kind: int, _checked: bytes, loose: bytes) -> None:
    """For stores whose frames are checked whole."""
    if loose:
        raise ValueError("bytes without a checksum")


_YEAR_2020 = 1_577_836_800
"""In seconds since 1970: 32 bits of seconds last from there until 2156."""
_INCARNATIONS = 1 << 32


class InDoubt(NamedTuple):
    """A message of an incarnation that has ended: nobody here knows whether it is in the sequence."""

    label: Label
    key: bytes
    payload: bytes
    """As it was sent: sealed, if the market seals."""


def open_outbox_store(
    directory: Path,
    identity: StoreIdentity,
    blank: Callable[[], OutboxState] = OutboxState,
    settings: StoreSettings | None = None,
    *,
    boot: str | None = None,
    clock: Callable[[], float] = time,
) -> OutboxStore:
    """Open a source's store, or make it. `identity.node` is the source's id of incarnation 0.

    `clock` gives seconds since 1970; it is asked only when a new incarnation begins.
    """
    if identity.node % _INCARNATIONS or not identity.node:
        raise LocalProtocolError(f"node {identity.node} is not a source without an incarnation")
    settings = settings or StoreSettings()
    store = Store(directory, StoreRole.OUTBOX, identity, settings, boot_id() if boot is None else boot)
    try:
        marker = store.marker
        if marker is not None and marker.begun and not marker.forgot and store.past is Past.WHOLE:
            outbox = Outbox(blank())
            outbox.replay(store)
            outbox.check(store, marker.incarnation)
            opened = OutboxStore(store, outbox)
            store.resume(opened.snapshot)
            return opened
        old = Outbox(blank())
        if marker is not None:
            old.salvage(store)
        outbox = Outbox(blank(), _next_incarnation(store, marker.incarnation if marker else 0, clock))
        opened = OutboxStore(store, outbox, old.in_doubt(identity.node))
        store.begin(opened.snapshot, incarnation=outbox.incarnation)
    except BaseException:
        store.abandon()
        raise
    return opened


def _next_incarnation(store: Store, last: int, clock: Callable[[], float]) -> int:
    seconds = int(clock()) - _YEAR_2020
    incarnation = max(last + 1, seconds)
    if not (last or seconds > 0) or incarnation >= _INCARNATIONS:
        rule = "the clock is before 2020 or after 2156, and a source's new incarnation is made from it: set the clock"
        raise StoreError(str(store.directory), rule)
    return incarnation


class Outbox:
    """What the records say."""

    def __init__(self, state: OutboxState, incarnation: int = 0) -> None:
        """Nothing yet."""
        self.state = state
        self.incarnation = incarnation
        self.base = state.next_number
        """Everything below is stable."""
        self.newest: dict[int, int] = {}
        """The highest number given when a record was last written to a segment."""

    def replay(self, store: Store, *, lenient: bool = False) -> None:
        """Read everything."""
        begun = False
        for segment, record in store.replay(nothing_loose, lenient=lenient):
            kind, offset, checked, _ = record[-1]
            try:
                if kind == RecordKind.OUTBOX:
                    self._begin(read_outbox_snapshot(checked), again=begun)
                    begun = True
                else:
                    found = _read(kind, checked)
                    self.examine(found)
                    self.take(found, segment)
            except (ValueError, LocalProtocolError) as reason:
                store.fail_at(Location(segment, offset), str(reason))

    def _begin(self, snapshot: OutboxSnapshot, *, again: bool) -> None:
        state = self.state
        if again:
            if (snapshot.incarnation, snapshot.next_number) != (self.incarnation, state.next_number):
                raise ValueError(f"a snapshot at number {snapshot.next_number}, and the next is {state.next_number}")
            return
        self.incarnation, self.base = snapshot.incarnation, snapshot.base
        state.next_number, state.chain = snapshot.next_number, snapshot.chain
        state.keys.update(snapshot.keys)
        while len(state.keys) > state.keys_max:
            state.keys.popitem(last=False)

    def examine(self, records: Sequence[Record]) -> None:
        """Raise LocalProtocolError for records that do not continue this outbox."""
        following, base = self.state.next_number, self.base
        for record in records:
            if type(record) is OutboxAppended:
                if record.number != following:
                    raise LocalProtocolError(f"message {record.number} does not follow message {following - 1}")
                following += 1
            elif type(record) is OutboxFreed:
                if not base <= record.base <= following:
                    raise LocalProtocolError(f"messages below {record.base} of {base} to {following - 1} are freed")
                base = record.base
            else:
                raise LocalProtocolError(f"{type(record).__name__} is not a record of a source")

    def take(self, records: Sequence[Record], segment: int) -> None:
        """Records that continue this outbox and lie in this segment."""
        apply = self.state.apply
        for record in records:
            apply(record)
            if type(record) is OutboxFreed:
                self.base = record.base
        self.newest[segment] = self.state.next_number - 1

    def check(self, store: Store, incarnation: int) -> None:
        """Every message that is owed is there."""
        expected = range(self.base, self.state.next_number)
        if list(self.state.messages) != list(expected) or self.incarnation != incarnation:
            rule = f"of the messages {expected.start} to {expected.stop - 1} some are missing"
            raise StoreError(str(store.directory), f"{rule}: {StoreRole.OUTBOX.advice}")

    def salvage(self, store: Store) -> None:
        """Read what can be read."""
        try:
            self.replay(store, lenient=True)
        except StoreError:
            # Its segments are set aside, and what was read up to there is reported.
            return

    def in_doubt(self, source: NodeId) -> tuple[InDoubt, ...]:
        """The messages that are still owed, by an incarnation that has ended."""
        node = source | self.incarnation
        return tuple([InDoubt(Label(node, n), *held) for n, held in self.state.messages.items() if n >= self.base])


def _frames(records: Sequence[Record]) -> list[Frame]:
    """Messages that follow one another share a frame."""
    frames: list[Frame] = []
    run: list[OutboxAppended] = []
    for record in records:
        if type(record) is OutboxAppended:
            run.append(record)
            continue
        if run:
            frames.append(outgoing_frame(run))
            run = []
        frames += record_frames(record)
    if run:
        frames.append(outgoing_frame(run))
    return frames


def _read(kind: int, checked: bytes) -> Sequence[Record]:
    match kind:
        case RecordKind.OUTGOING:
            return read_outgoing(checked)
        case RecordKind.FREED:
            return (read_freed(checked),)
        case _:
            raise ValueError(f"a record of kind {kind}, which a source does not write")


class OutboxStore(NodeStore):
    """A source's state on disk; made by `open_outbox_store`."""

    def __init__(self, store: Store, outbox: Outbox, in_doubt: tuple[InDoubt, ...] = ()) -> None:
        """On top of an open directory, from what was read of it."""
        self.in_doubt = in_doubt
        """What is left of the incarnation before, if this is a new one: for somebody to look into."""
        super().__init__(store)
        self._outbox = outbox

    @property
    def state(self) -> OutboxState:
        """What the disk says, now."""
        return self._outbox.state

    @property
    def incarnation(self) -> int:
        """Under which this source's messages are numbered and sealed."""
        return self._outbox.incarnation

    @property
    def source(self) -> NodeId:
        """The source's id in this incarnation."""
        return self._store.identity.node | self._outbox.incarnation

    def renounce(self, why: str) -> None:
        """Receivers have numbers that are not in this outbox: the next start begins a new incarnation."""
        self._store.mark(forgot=True, why=why)

    def append_many(self, records: Sequence[Record]) -> None:
        """Make records durable together: one write, and one fdatasync where power failures count."""
        if not records:
            return
        outbox = self._outbox
        outbox.examine(records)
        places = self._store.write(_frames(records))
        base = outbox.base
        outbox.take(records, places[0].segment)
        if outbox.base > base:
            self._retire()

    def _retire(self) -> None:
        """Remove segments whose messages are all stable. They are freed in order, so the oldest is the first to go."""
        store, outbox = self._store, self._outbox
        oldest = store.oldest
        while oldest < store.newest and outbox.newest.get(oldest, 0) < outbox.base:
            outbox.newest.pop(oldest, None)
            oldest += 1
        store.remove_before(oldest)

    def snapshot(self) -> Frame:
        """What a segment begins with now."""
        outbox = self._outbox
        return outbox_snapshot(
            OutboxSnapshot(
                outbox.incarnation, outbox.state.next_number, outbox.base, outbox.state.chain, outbox.state.keys
            )
        )
