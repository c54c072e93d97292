"""The books of a market's own floors, among the events of whoever hears the whole sequence.

The events of `floor.market_data` are put before the first message behind their token, under that message's sequence:
the same place for everybody, however messages come together in batches. Whoever did not hear the sequence from its
first message on, or misses one, cannot compute a floor: from then on there are none.

Whoever has a folder need not hear the first message again: a state is kept there once a report of an arbiter, in the
sequence, names its hash. With it are the numbers that orders have here, so that all goes on as if it had never ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from isocast.feeds.days import day_at
from isocast.floor.following import FloorMessage
from isocast.floor.market_data import FloorMarketData
from isocast.floor.reporting import reported_state
from isocast.floor.snapshot import fold, unfold
from isocast.floor.state import state_hash
from isocast.runtime.client.received import BatchKind, ReceivedBatch, ReceivedMessage
from isocast.runtime.market.secret_files import replace_file
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.wire.events import EventArray

__all__ = ["KEEP_EVERY", "FloorBooks"]

KEEP_EVERY: Final = 65_536
"""Messages of the sequence between two states that are kept: a start computes some seconds' worth of them again."""


class _Heard(NamedTuple):
    """A message of a batch: opaque, or the events between two places."""

    sequence: int
    instant: int
    start: int
    """Of its events; of an opaque message, before which events it comes."""
    message: ReceivedMessage | None


class _Candidate(NamedTuple):
    """A floor's state behind a token that a report is due of: kept once a report in the sequence names its hash."""

    token: int
    state: bytes
    rows: dict[str, Any]


class FloorBooks:
    """Market data of some floors, from batches."""

    def __init__(
        self,
        floors: Sequence[str],
        release_delay_ns: int,
        zone: str = "UTC",
        *,
        folder: Path | None = None,
        before: int = 1,
    ) -> None:
        """Of floors of which nothing was heard; their days are those of releases at a place.

        In a folder the state of each is kept now and then, when whoever takes the batches has dealt with those of it.
        From there it goes on where what was told with it is before the sequence `before`, as whoever asks has it.
        """
        self._day_of = partial(_day, release_delay_ns, zone)
        self._zone = zone
        self._folder = folder
        self._data = [self._kept(code, before) or FloorMarketData(code, self._day_of) for code in floors]
        self._known = [data.follower.sequence for data in self._data]
        """Of each floor, the sequence up to which it is computed already."""
        self.begins_with = min(self._known, default=0) + 1
        """The sequence of the first message that it wants to hear."""
        self._next = self.begins_with
        self._instants = [0] * len(self._data)
        """Of each floor, T_t of the token that is not over; 0: none is."""
        self._candidates: dict[str, _Candidate] = {}
        self._vouched: dict[str, dict[str, Any]] = {}
        """What to keep once the batches so far were dealt with."""
        self._keep_from = [self.begins_with + KEEP_EVERY] * len(self._data)
        self.is_lost = False
        """Whether messages or keys are missing, so that nothing can be told."""

    def add(self, batch: ReceivedBatch) -> ReceivedBatch:
        """The batch with what floors show."""
        self._keep()
        if self.is_lost or batch.kind is not BatchKind.MESSAGES or batch.first_sequence != self._next:
            self.is_lost = True
            return batch
        self._next = batch.last_sequence + 1
        topics = {data.follower.topic for data in self._data}
        if not any(self._instants) and not any(message.topic in topics for message in batch.opaque):
            for message in batch.opaque:
                self._compare(message)
            return batch
        pieces: list[tuple[int, _Heard, EventArray]] = []
        try:
            for heard in _messages(batch):
                pieces += [(heard.start, heard, told) for told in self._told(heard) if len(told)]
        except LocalProtocolError:  # Without a token's key nobody knows what its events make.
            self.is_lost = True
        return _merged(batch, pieces) if pieces else batch

    def _told(self, heard: _Heard) -> Iterator[EventArray]:
        """What this message ends, floor by floor; then it is the floor's own."""
        for place, data in enumerate(self._data):
            if heard.sequence <= self._known[place]:
                continue
            if self._instants[place] and heard.instant > self._instants[place]:
                self._instants[place] = 0
                told = data.finish()
                self._consider(place, heard.sequence, told)
                yield told
            message = heard.message
            if message is not None and message.topic == data.follower.topic:
                self._instants[place] = message.instant_ns
                event = FloorMessage(heard.sequence, message.topic, message.payload, message.shuffle_key)
                data.hear(message.token, message.instant_ns, event)
        if heard.message is not None:
            self._compare(heard.message)

    # What is kept ----------------------------------------------------------------------------------------------

    def _consider(self, place: int, sequence: int, told: EventArray) -> None:
        """The state behind a token, at the sequence under which it is told: worth keeping, if it is time."""
        data = self._data[place]
        if self._folder is None or sequence < self._keep_from[place] or not len(told) or not data.is_reported:
            return
        rows = {"zone": self._zone, "told_at": sequence, "data": data.rows()}
        floor = data.follower.floor
        self._candidates[data.follower.code] = _Candidate(floor.token, state_hash(floor), rows)
        self._keep_from[place] = sequence + KEEP_EVERY

    def _compare(self, message: ReceivedMessage) -> None:
        """A report may name a state that waits."""
        for code, candidate in list(self._candidates.items()):
            said = reported_state(code, candidate.token, message.topic, message.payload)
            if said is not None:
                del self._candidates[code]
                if said == candidate.state:
                    self._vouched[code] = candidate.rows

    def _keep(self) -> None:
        """Write what is vouched for. A disk that refuses costs the next start time, and nothing else."""
        for code, rows in self._vouched.items():
            with suppress(OSError):
                replace_file(self._file(code), fold(rows))
        self._vouched.clear()

    def _kept(self, code: str, before: int) -> FloorMarketData | None:
        """What was kept of a floor, if it is of this place and tells everything that is still wanted."""
        if self._folder is None:
            return None
        try:
            rows = unfold(self._file(code).read_bytes())
            if rows["zone"] != self._zone or rows["told_at"] >= before:
                return None
            data = FloorMarketData.from_rows(rows["data"], self._day_of)
        except (OSError, RemoteProtocolError, KeyError, TypeError):
            return None
        return data if data.follower.code == code else None

    def _file(self, code: str) -> Path:
        assert self._folder is not None  # noqa: S101 - as its callers know
        return self._folder / f"floor-{code}.books"


def _day(release_delay_ns: int, zone: str, instant: int) -> object:
    return day_at(instant + release_delay_ns, zone)


def _messages(batch: ReceivedBatch) -> list[_Heard]:
    """The messages of a batch, in the order of the sequence."""
    bounds = np.flatnonzero(np.diff(batch.sequences)) + 1
    starts = [0, *bounds.tolist()] if len(batch.sequences) else []
    found = [_Heard(int(batch.sequences[at]), int(batch.instants[at]), at, None) for at in starts]
    behind = np.searchsorted(batch.sequences, [message.sequence for message in batch.opaque]).tolist()
    found += [
        _Heard(message.sequence, message.instant_ns, at, message)
        for message, at in zip(batch.opaque, behind, strict=True)
    ]
    return sorted(found, key=lambda heard: (heard.sequence, 0 if heard.message is None else heard.message.index))


def _merged(batch: ReceivedBatch, pieces: Sequence[tuple[int, _Heard, EventArray]]) -> ReceivedBatch:
    """The batch with events before places of its own."""
    places = np.concatenate([np.full(len(told), at, np.intp) for at, _, told in pieces])
    sequences = np.concatenate([np.full(len(told), heard.sequence, np.uint64) for _, heard, told in pieces])
    instants = np.concatenate([np.full(len(told), heard.instant, np.int64) for _, heard, told in pieces])
    return replace(
        batch,
        events=np.insert(batch.events, places, np.concatenate([told for _, _, told in pieces])),
        sequences=np.insert(batch.sequences, places, sequences),
        instants=np.insert(batch.instants, places, instants),
    )
