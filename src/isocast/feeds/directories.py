"""Floors and symbols of blocks of events, and our own records out of bytes from elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from isocast.feeds.outcomes import FeedFault, FeedLog, ListedSymbol
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events
from isocast.wire.limits import EVENT_BYTES

__all__ = ["MetSymbols", "pairs_of", "sound_events"]

Indices = npt.NDArray[np.int64]


def pairs_of(events: EventArray) -> tuple[list[tuple[bytes, bytes]], Indices, Indices]:
    """The floors and symbols that occur, the first event of each pair, and the pair of each event."""
    floors, floor_of = np.unique(_numbers(events["floor"], np.uint32), return_inverse=True)
    symbols, symbol_of = np.unique(_numbers(events["symbol"], np.uint64), return_inverse=True)
    codes, first, pair_of = np.unique(floor_of * len(symbols) + symbol_of, return_index=True, return_inverse=True)
    floor_texts, symbol_texts = floors.view("S4")[codes // len(symbols)], symbols.view("S8")[codes % len(symbols)]
    return list(zip(floor_texts.tolist(), symbol_texts.tolist(), strict=True)), first, pair_of


def _numbers(texts: npt.NDArray[Any], kind: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
    """Fixed text as integers, which numpy sorts many times faster."""
    return np.ascontiguousarray(texts).view(kind)


class MetSymbols:
    """Every floor and symbol of the events that it was shown, in the order of meeting."""

    def __init__(self) -> None:
        """Nothing was met."""
        self._seen: dict[tuple[bytes, bytes], None] = {}

    def meet(self, events: EventArray) -> None:
        """Some events more."""
        if len(events):
            pairs, first, _ = pairs_of(events)
            for place in np.argsort(first, kind="stable").tolist():
                if pairs[place][1]:
                    self._seen.setdefault(pairs[place], None)

    @property
    def directory(self) -> list[ListedSymbol]:
        """One listing for each."""
        return [ListedSymbol(floor.decode("ascii"), symbol.decode("ascii")) for floor, symbol in self._seen]


def sound_events(raw: bytes, log: FeedLog, offset: int, step: int = EVENT_BYTES) -> EventArray:
    """The records that are events; those that are not are faults, at `offset` and `step` from each to the next."""
    events = np.frombuffer(raw, EVENT_DTYPE)
    log.took("event", len(events))
    if are_events(raw):
        return events
    good = np.array([are_events(raw[at : at + EVENT_BYTES]) for at in range(0, len(raw), EVENT_BYTES)], np.bool_)
    bad = np.flatnonzero(~good)
    log.fault(FeedFault.BAD_VALUE, offset + int(bad[0]) * step, "a record that is no event", len(bad))
    return events[good]
