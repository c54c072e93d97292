"""The books of a market's own floors, among the events of whoever hears the whole sequence.

The events of `floor.market_data` are put before the first message behind their token, under that message's sequence:
the same place for everybody, however messages come together in batches. Whoever did not hear the sequence from its
first message on, or misses one, cannot compute a floor: from then on there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from isocast.feeds.days import day_at
from isocast.floor.following import FloorMessage
from isocast.floor.market_data import FloorMarketData
from isocast.runtime.client.received import BatchKind, ReceivedBatch, ReceivedMessage
from isocast.wire.events import EventArray

__all__ = ["FloorBooks"]


class _Heard(NamedTuple):
    """A message of a batch: opaque, or the events between two places."""

    sequence: int
    instant: int
    start: int
    """Of its events; of an opaque message, before which events it comes."""
    message: ReceivedMessage | None


class FloorBooks:
    """Market data of some floors, from batches."""

    def __init__(self, floors: Sequence[str], release_delay_ns: int, zone: str = "UTC") -> None:
        """Of floors of which nothing was heard; their days are those of releases at a place."""
        self._data = [FloorMarketData(code, partial(_day, release_delay_ns, zone)) for code in floors]
        self._instants = [0] * len(self._data)
        """Of each floor, T_t of the token that is not over; 0: none is."""
        self._next = 1
        self.is_lost = False
        """Whether messages are missing, so that nothing can be told."""

    def add(self, batch: ReceivedBatch) -> ReceivedBatch:
        """The batch with what floors show."""
        if self.is_lost or batch.kind is not BatchKind.MESSAGES or batch.first_sequence != self._next:
            self.is_lost = True
            return batch
        self._next = batch.last_sequence + 1
        topics = {data.follower.topic for data in self._data}
        if not any(self._instants) and not any(message.topic in topics for message in batch.opaque):
            return batch
        pieces: list[tuple[int, _Heard, EventArray]] = []
        for heard in _messages(batch):
            pieces += [(heard.start, heard, told) for told in self._told(heard) if len(told)]
        return _merged(batch, pieces) if pieces else batch

    def _told(self, heard: _Heard) -> Iterator[EventArray]:
        """What this message ends, floor by floor; then it is the floor's own."""
        for place, data in enumerate(self._data):
            if self._instants[place] and heard.instant > self._instants[place]:
                self._instants[place] = 0
                yield data.finish()
            message = heard.message
            if message is not None and message.topic == data.follower.topic:
                self._instants[place] = message.instant_ns
                data.hear(
                    message.token, message.instant_ns, FloorMessage(heard.sequence, message.topic, message.payload)
                )


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
