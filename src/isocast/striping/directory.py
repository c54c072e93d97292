"""Which stocks a narrow stripe has introduced, under which numbers, and when: a function of what was striped.

A stock on a floor is introduced on its stripe before its first event of a day, and again with its first event after
every `repeat_ns`: whoever joins late knows within that time what the numbers of the busy ones mean. Introductions are
events like any other, so that they wait, are counted and never exceed the rate.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import numpy.typing as npt

from isocast.feeds.days import day_at, midnight_ns
from isocast.feeds.directories import pairs_of
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["StripeDirectory"]

_MOST = (1 << 16) - 1
_ROW = np.dtype([("stripe", "<u4"), ("number", "<u4"), ("floor", "S4"), ("symbol", "S8"), ("told", "<i8")])

Sequences = npt.NDArray[np.uint64]


class StripeDirectory:
    """Of all narrow stripes of one core stripe."""

    def __init__(self, repeat_ns: int, zone: str = "UTC") -> None:
        """Nobody was introduced."""
        self._repeat_ns = repeat_ns
        self._zone = zone
        self._numbers: dict[int, dict[tuple[bytes, bytes], int]] = {}
        self._floors: dict[int, int] = {}
        """How many of a stripe's numbers are those of whole floors."""
        self._told: dict[tuple[int, bytes, bytes], int] = {}
        self._day = (0, 0)

    def numbers(self, stripe: int) -> dict[tuple[bytes, bytes], int]:
        """The number of each floor and symbol of a stripe; of a whole floor with an empty symbol."""
        return self._numbers.setdefault(stripe, {})

    def introduce(self, stripe: int, events: EventArray, sequences: Sequences, at: int) -> tuple[EventArray, Sequences]:
        """The events with a DIRECTORY before the first of each stock that must be introduced at this instant."""
        if not len(events):
            return events, sequences
        self._enter_day(at)
        pairs, first, _ = pairs_of(events)
        fresh: list[int] = []
        for place in np.argsort(first, kind="stable").tolist():
            floor, symbol = pairs[place]
            self._number(stripe, (floor, b""))
            if not symbol or not self._number(stripe, (floor, symbol)):
                continue
            told = self._told.get((stripe, floor, symbol))
            if told is None or at - told >= self._repeat_ns:
                self._told[stripe, floor, symbol] = at
                if events["kind"][first[place]] != EventKind.DIRECTORY:
                    fresh.append(int(first[place]))
        if not fresh:
            return events, sequences
        news = np.zeros(len(fresh), EVENT_DTYPE)
        for field in ("floor", "symbol", "time"):
            news[field] = events[field][fresh]
        news["kind"] = EventKind.DIRECTORY
        return np.insert(events, fresh, news), np.insert(sequences, fresh, sequences[fresh])

    def _number(self, stripe: int, pair: tuple[bytes, bytes]) -> int:
        """Stocks from 1 up, floors from the top down; 0, which introduces nobody, when all are taken."""
        numbers = self.numbers(stripe)
        number = numbers.get(pair)
        if number is None:
            floors = self._floors.get(stripe, 0)
            number = 0 if len(numbers) >= _MOST else _MOST - floors if not pair[1] else len(numbers) - floors + 1
            numbers[pair] = number
            self._floors[stripe] = floors + (not pair[1])
        return number

    def _enter_day(self, at: int) -> None:
        """A session is a day: what was said in the one before is not known in this."""
        first, last = self._day
        if not first <= at < last:
            day = day_at(at, self._zone)
            self._day = midnight_ns(day, self._zone), midnight_ns(day + timedelta(days=1), self._zone)
            self._told.clear()

    def forget(self) -> None:
        """All are introduced anew, under their old numbers: their stripes may have changed."""
        self._told.clear()

    # ---- state

    def state(self) -> bytes:
        """Everything, in the order in which it was met."""
        rows = [
            (stripe, number, floor, symbol, self._told.get((stripe, floor, symbol), -1))
            for stripe, numbers in self._numbers.items()
            for (floor, symbol), number in numbers.items()
        ]
        return np.array(rows, _ROW).tobytes()

    def restore(self, raw: bytes, at: int) -> None:
        """As it was at an instant; RemoteProtocolError for what no state is."""
        if len(raw) % _ROW.itemsize:
            raise RemoteProtocolError("the directory of a striper's snapshot is cut")
        self._numbers, self._floors, self._told, self._day = {}, {}, {}, (0, 0)
        if at:
            self._enter_day(at)
        for stripe, number, floor, symbol, told in np.frombuffer(raw, _ROW).tolist():
            self.numbers(stripe)[floor, symbol] = number
            self._floors[stripe] = self._floors.get(stripe, 0) + (not symbol)
            if told >= 0:
                self._told[stripe, floor, symbol] = told
