"""The latest event of every key: what a customer who only wants the newest prices sees (§7.1).

A key is (floor, symbol, kind, side), and of a trade whether it may be the last price. A batch of any size is taken by
whole columns: sort by key, keep the last of each, compare its sequence with what the table has. Python looks at one
object for each *different* key, never at one for each event.

A table is a function of the sequence: two servers that applied the same messages give snapshots with the same
digest, however the messages were cut into bursts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import EventFlag
from isocast.wire.events import EventArray, events_view
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.packets import SHORT_DIGEST_BYTES, short_digest_of

__all__ = ["KEYS_MAX", "LatestSnapshot", "LatestTable", "News", "last_of_each_key", "read_snapshot", "write_snapshot"]

KEYS_MAX = 262_144
"""Bounds: a thousand floors with sixty symbols of four keys each; with 56 bytes of arrays and some 130 of
dictionary for each key, 49 MB."""

_WORDS = EVENT_BYTES // 8
_KEY_WORDS = 2
"""kind, side, flags, floor | symbol."""
_FLAGS = np.uint64(0xFFFF_FFFF_0000_FFFF | EventFlag.NOT_LAST << 16)
"""Flags are no part of a key, but for one: a trade that may not be the last price does not displace one that is."""
_LINKED = np.uint64(~(EventFlag.LINKED << 16) & (1 << 64) - 1)
_FIRST_ROOM = 256

Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.intp]

_HEAD = Struct("<4sHHQQII")
_MAGIC = b"ICSN"


@dataclass(frozen=True, slots=True)
class LatestSnapshot:
    """The latest event of each key as of the message before `next_sequence`, in the order of the keys."""

    stripe: int
    next_sequence: int
    next_number: int
    """On the edge stripe; the same as `next_sequence` while each core stripe is one edge stripe."""
    plan: int
    """Version of the stripe plan."""
    payload: bytes

    @property
    def events(self) -> EventArray:
        """One event for each key, viewed without a copy."""
        return events_view(self.payload)

    @property
    def digest(self) -> bytes:
        """Equal for all who applied the same messages."""
        return short_digest_of(_head(self), self.payload)


def _head(snapshot: LatestSnapshot) -> bytes:
    numbers = (snapshot.next_sequence, snapshot.next_number, snapshot.plan, len(snapshot.payload) // EVENT_BYTES)
    return _HEAD.pack(_MAGIC, snapshot.stripe, 0, *numbers)


def write_snapshot(snapshot: LatestSnapshot) -> bytes:
    """For a door: head, events, digest."""
    return _head(snapshot) + snapshot.payload + snapshot.digest


def read_snapshot(raw: bytes, keys_max: int = KEYS_MAX) -> LatestSnapshot:
    """What `write_snapshot` wrote; RemoteProtocolError for anything else."""
    try:
        magic, stripe, reserved, next_sequence, next_number, plan, count = _HEAD.unpack_from(raw)
    except error as reason:
        raise RemoteProtocolError(f"a snapshot of {len(raw)} bytes") from reason
    if magic != _MAGIC or reserved:
        raise RemoteProtocolError("not a snapshot of this version")
    if count > keys_max or len(raw) != _HEAD.size + count * EVENT_BYTES + SHORT_DIGEST_BYTES:
        raise RemoteProtocolError(f"a snapshot of {count} keys in {len(raw)} bytes")
    snapshot = LatestSnapshot(stripe, next_sequence, next_number, plan, raw[_HEAD.size : -SHORT_DIGEST_BYTES])
    if snapshot.digest != raw[-SHORT_DIGEST_BYTES:]:
        raise RemoteProtocolError("the digest of a snapshot is wrong")
    events_view(snapshot.payload)
    return snapshot


@dataclass(frozen=True, slots=True)
class News:
    """Events that are the newest of their keys now, in the order in which they happened."""

    payload: bytes = b""
    sequences: tuple[int, ...] = ()
    """For each event that of the message that brought it; of a snapshot's that of its last message."""

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.payload)


def last_of_each_key(payload: bytes) -> Places:
    """Where in a row of events the last one of each key stands, ascending."""
    return np.sort(_grouped(np.frombuffer(payload, "<u8").reshape(-1, _WORDS)).lasts)


class _Groups(NamedTuple):
    """The events of a row sorted by key."""

    heads: Words
    symbols: Words
    order: Places
    groups: Places
    """Where in `order` each key's last event stands."""

    @property
    def lasts(self) -> Places:
        """Where in the row it stands."""
        return self.order[self.groups]

    def keys(self) -> Words:
        keys = np.empty((len(self.groups), _KEY_WORDS), "<u8")
        keys[:, 0], keys[:, 1] = self.heads[self.groups], self.symbols[self.groups]
        return keys


def _grouped(words: Words) -> _Groups:
    heads, symbols = words[:, 0] & _FLAGS, words[:, 1]
    order = np.lexsort((symbols, heads))
    heads, symbols = heads[order], symbols[order]
    ends = np.empty(len(order), bool)
    ends[-1:] = True
    np.not_equal(heads[1:], heads[:-1], out=ends[:-1])
    ends[:-1] |= symbols[1:] != symbols[:-1]
    # Sorting is stable, so the last of each group of equal keys is the newest.
    return _Groups(heads, symbols, order, np.flatnonzero(ends))


class LatestTable:
    """The newest event of each key, and the sequence of the message that brought it."""

    def __init__(self, stripe: int = 0, keys_max: int = KEYS_MAX) -> None:
        """An empty table."""
        self.next_sequence = 1
        """One more than the highest sequence that was applied."""
        self.refused = 0
        """New keys for which there was no room, once for each burst that brings one."""
        self._stripe = stripe
        self._keys_max = keys_max
        self._places: dict[bytes, int] = {}
        self._words: Words = np.zeros((_FIRST_ROOM, _WORDS), "<u8")
        self._sequences: npt.NDArray[np.uint64] = np.zeros(_FIRST_ROOM, np.uint64)

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._places)

    def apply(self, sequences: Sequence[int], payloads: Sequence[bytes]) -> News:
        """Take messages, their sequences ascending; return the events that are the newest of their keys now.

        A message may come late, after newer ones: it changes only the keys that nothing newer has touched.
        RemoteProtocolError when a payload is no row of events; the table is then as it was.
        """
        payload = payloads[0] if len(payloads) == 1 else b"".join(payloads)
        events_view(payload)
        if len(payloads) > 1 and any(len(part) % EVENT_BYTES for part in payloads):
            raise RemoteProtocolError("a payload that is not a number of events")
        if sequences:
            self.next_sequence = max(self.next_sequence, sequences[-1] + 1)
        if not payload:
            return News()
        counts = [len(part) // EVENT_BYTES for part in payloads]
        return self._merge(payload, np.repeat(np.array(sequences, np.uint64), counts))

    def apply_readable(self, sequences: Sequence[int], payloads: Sequence[bytes]) -> tuple[News, int]:
        """As `apply`, leaving out messages that are no market events; how many those were comes with it."""
        try:
            return self.apply(sequences, payloads), 0
        except RemoteProtocolError:
            if len(payloads) == 1:
                self.next_sequence = max(self.next_sequence, sequences[0] + 1)
                return News(), 1
        parts = [
            self.apply_readable([sequence], [payload]) for sequence, payload in zip(sequences, payloads, strict=True)
        ]
        news = News(
            b"".join([part.payload for part, _ in parts]),
            tuple([sequence for part, _ in parts for sequence in part.sequences]),
        )
        return news, sum([unreadable for _, unreadable in parts])

    def restore(self, snapshot: LatestSnapshot) -> News:
        """Take a snapshot, keeping what is newer here; return the events that were news."""
        self.next_sequence = max(self.next_sequence, snapshot.next_sequence)
        if not snapshot.payload:
            return News()
        count = len(snapshot.payload) // EVENT_BYTES
        sequences = np.full(count, max(snapshot.next_sequence - 1, 0), np.uint64)
        return self._merge(snapshot.payload, sequences, known_is_news=False)

    def snapshot(self) -> LatestSnapshot:
        """All keys, sorted: the same bytes from every table that applied the same messages."""
        order = [self._places[key] for key in sorted(self._places)]
        payload = self._words[order].tobytes() if order else b""
        return LatestSnapshot(self._stripe, self.next_sequence, self.next_sequence, 0, payload)

    def _merge(self, payload: bytes, sequences: npt.NDArray[np.uint64], *, known_is_news: bool = True) -> News:
        words: Words = np.frombuffer(payload, "<u8").reshape(-1, _WORDS)
        found = _grouped(words)
        places, lasts = self._places_of(found)
        fresh = sequences[lasts] > self._sequences[places]
        places, lasts = places[fresh], lasts[fresh]
        self._sequences[places] = sequences[lasts]
        news = words[lasts]
        # What followed a linked event may be conflated away.
        news[:, 0] &= _LINKED
        if not known_is_news:
            changed = (news != self._words[places]).any(axis=1)
            places, lasts, news = places[changed], lasts[changed], news[changed]
        self._words[places] = news
        order = np.argsort(lasts)
        return News(news[order].tobytes(), tuple(sequences[lasts[order]].tolist()))

    def _places_of(self, row: _Groups) -> tuple[Places, Places]:
        """Where each key stands, new ones added while there is room; the keys without a place are left out."""
        names: list[bytes] = row.keys().view("V16").ravel().tolist()
        known = self._places
        found = [known.get(name, -1) for name in names]
        if -1 in found:
            # In the order of their first events, so that a full table is the same however bursts were cut.
            firsts = row.order[np.append(0, row.groups[:-1] + 1)].tolist()
            unknown = [place for place, at in enumerate(found) if at < 0]
            for place in sorted(unknown, key=firsts.__getitem__):
                found[place] = self._add(names[place])
        places = np.array(found, np.intp)
        if self.refused and (places < 0).any():
            kept = places >= 0
            return places[kept], row.lasts[kept]
        return places, row.lasts

    def _add(self, name: bytes) -> int:
        place = len(self._places)
        if place >= self._keys_max:
            self.refused += 1
            return -1
        if place == len(self._sequences):
            self._words = np.concatenate([self._words, np.zeros_like(self._words)])
            self._sequences = np.concatenate([self._sequences, np.zeros_like(self._sequences)])
        self._places[name] = place
        return place
