"""A site's log on disk: where each entry lies, and what the records say when they are read again."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import NamedTuple

from isocast.ring.entries import LogEntry
from isocast.ring.storage import SiteState
from isocast.runtime.disk.records import (
    Kind,
    entry_number,
    read_entry,
    read_installed,
    read_promise,
    read_replaced,
    verify_entry,
)
from isocast.runtime.disk.snapshots import read_site_snapshot
from isocast.runtime.disk.store import Store
from isocast.runtime.disk.store_segments import Location, Stored
from isocast.terms.ids import NO_EPOCH, Epoch
from isocast.wire.packets import NewRing
from isocast.wire.token_body import token_digest

__all__ = ["SiteLog"]

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

    def _take(self, segment: int, record: tuple[Stored, ...]) -> None:
        kind, offset, checked, _ = record[-1]
        match kind:
            case Kind.ENTRY:
                self._follow(segment, record)
            case Kind.PROMISE:
                self.promised = read_promise(checked).ballot
            case Kind.RING:
                ring, keep, entries = read_installed(checked)
                if entries != len(record) - 1 or keep > self.held:
                    raise ValueError(f"a ring with {len(record) - 1} entries of {entries} on top of token {keep}")
                self.cut(keep)
                self._follow(segment, record[:-1])
                self.ring, self.promised = ring, ring.ballot
            case Kind.SITE:
                point, promised, ring_now, held = read_site_snapshot(checked)
                if self.snapshots and held != self.held:
                    raise ValueError(f"a snapshot of a log up to token {held}, and the log ends at {self.held}")
                self.held, self.promised, self.ring = held, promised, ring_now
                self.snapshots.append(_Noted(point.next_sequence, point.token_number, Location(segment, offset)))
            case Kind.REPLACED:
                point, entered, entries = read_replaced(checked)
                if entries != len(record) - 1:
                    raise ValueError(f"a checkpoint with {len(record) - 1} entries of {entries}")
                self.begin_at(point.token_number)
                self._follow(segment, record[:-1])
                if entered is not None:
                    self.ring, self.promised = entered, entered.ballot
                self.snapshots = [_Noted(point.next_sequence, point.token_number, Location(segment, offset))]
            case _:
                raise ValueError(f"a record of kind {kind}, which is no site's")

    def _follow(self, segment: int, entries: tuple[Stored, ...]) -> None:
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
            read_replaced(checked)[0] if kind == Kind.REPLACED else read_site_snapshot(checked).checkpoint
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
            store.fail_at(place, f"token {entry.token.token_number} stands where token {number} belongs")
        return entry
