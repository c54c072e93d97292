"""Numbers of stocks: each pair of floor and symbol gets one when it is met."""

from __future__ import annotations

import numpy as np

from isocast.feeds.directories import pairs_of
from isocast.feeds.itch_layout import Indices
from isocast.terms.errors import LocalProtocolError
from isocast.terms.market import EventKind
from isocast.wire.events import EventArray

__all__ = ["Locates"]

_MOST = (1 << 16) - 1


class Locates:
    """From (floor, symbol) to a number: the one that its directory says if it is free, otherwise the least free one.

    Whole floors are numbered from the top. Without numbers of their own they have 0, as in a feed of one floor.
    """

    def __init__(self) -> None:
        """Nothing was met."""
        self.numbers: dict[tuple[bytes, bytes], int] = {}
        self._taken: set[int] = set()
        self._least = 1
        self._highest = _MOST

    def restore(self, numbers: dict[tuple[bytes, bytes], int]) -> None:
        """Begin with these."""
        self.numbers = numbers
        self._taken = set(numbers.values())
        # Numbers are never given back: the least and the highest free ones are found again when they are wanted.
        self._least, self._highest = 1, _MOST

    def whole_floor(self, floor: bytes) -> int:
        """The number of a whole floor, its own."""
        return self._number((floor, b""), 0)

    def of(self, events: EventArray, *, floors: bool) -> tuple[Indices, Indices]:
        """The number of each event, and the first events of pairs that are new, in order.

        With `floors` a whole floor has a number of its own too.
        """
        pairs, first, pair_of = pairs_of(events)
        directory = events["kind"][first] == EventKind.DIRECTORY
        wanted = np.where(directory, np.minimum(events["id"][first], _MOST), 0).tolist()
        numbers = np.zeros(len(pairs), np.int64)
        fresh = []
        for place in np.argsort(first, kind="stable").tolist():
            pair = pairs[place]
            if not pair[1] and not floors:
                continue
            if pair not in self.numbers:
                fresh.append(int(first[place]))
            numbers[place] = self._number(pair, int(wanted[place]))
        return numbers[pair_of], np.array(fresh, np.int64)

    def _number(self, pair: tuple[bytes, bytes], wanted: int) -> int:
        if pair not in self.numbers:
            if len(self.numbers) >= _MOST:
                raise LocalProtocolError(f"more than {_MOST:,} symbols do not fit one ITCH feed")
            self.numbers[pair] = self._free(wanted) if pair[1] else self._top()
            self._taken.add(self.numbers[pair])
        return self.numbers[pair]

    def _free(self, wanted: int) -> int:
        if wanted and wanted not in self._taken:
            return wanted
        while self._least in self._taken:
            self._least += 1
        return self._least

    def _top(self) -> int:
        while self._highest in self._taken:
            self._highest -= 1
        return self._highest
