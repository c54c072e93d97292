"""Numbered packets of several lines: each once, and the messages that never came.

A packet says the number of its first message and how many it has. Lines A and B of a feed carry the same bytes to
different groups; two lines on which the same packet was seen are one stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TypeAlias

import numpy as np

from isocast.feeds.directories import MetSymbols
from isocast.feeds.outcomes import FeedFault, FeedLog, ListedSymbol
from isocast.terms.conditions import conditions_of
from isocast.terms.market import EventFlag
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["EventRow", "Line", "PacketLines", "PacketReader"]

_KEPT = 1 << 16
"""Packets that are remembered, to know them again on the other line."""
_GAPS_MAX = 1_000
"""Gaps that can still be filled; those beyond are counted at once."""

Line: TypeAlias = tuple[str, int]
"""Group and port."""
EventRow: TypeAlias = tuple[int, int, int, bytes, bytes, int, int, int, int, int]
"""The fields of an event, in the order of `EVENT_DTYPE`."""


@dataclass(slots=True)
class _Stream:
    """How far one feed was read."""

    next: int
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    """First and last number that is missing, and where that was seen."""


class PacketLines:
    """All lines of one protocol in a capture."""

    def __init__(self, log: FeedLog) -> None:
        """Nothing was seen."""
        self._log = log
        self._seen: dict[bytes, Line] = {}
        self._same: dict[Line, Line] = {}
        self._streams: dict[Line, _Stream] = {}

    def is_fresh(self, raw: bytes, line: Line, first: int, count: int, where: int) -> bool:
        """Whether a packet comes for the first time, on any line."""
        own = self._same.get(line, line)
        before = self._seen.get(raw)
        if before is not None:
            if before != own:
                self._same[line] = before
                self._streams.pop(own, None)
            self._log.skip("messages that came twice", count)
            return False
        if len(self._seen) >= _KEPT:
            del self._seen[next(iter(self._seen))]
        self._seen[raw] = own
        if count:
            self._number(self._streams.setdefault(own, _Stream(first)), first, count, where)
        return True

    def reached(self, line: Line, following: int, where: int) -> None:
        """A packet without messages says which number comes next: everything before it was sent."""
        own = self._same.get(line, line)
        self._number(self._streams.setdefault(own, _Stream(following)), following, 0, where)

    def restart(self, line: Line) -> None:
        """The numbers of a line begin anew."""
        own = self._same.get(line, line)
        stream = self._streams.pop(own, None)
        if stream is not None:
            self._tell(stream)

    def end(self) -> None:
        """Nothing more will come: count what is missing."""
        for stream in self._streams.values():
            self._tell(stream)
        self._streams.clear()

    def _number(self, stream: _Stream, first: int, count: int, where: int) -> None:
        after = first + count
        if first > stream.next:
            if len(stream.gaps) >= _GAPS_MAX:
                self._fault(*stream.gaps.pop(0))
            stream.gaps.append((stream.next, first - 1, where))
        elif first < stream.next:
            stream.gaps = [
                part
                for a, b, place in stream.gaps
                for part in ((a, min(b, first - 1), place), (max(a, after), b, place))
                if part[0] <= part[1]
            ]
        stream.next = max(stream.next, after)

    def _tell(self, stream: _Stream) -> None:
        for gap in stream.gaps:
            self._fault(*gap)

    def _fault(self, first: int, last: int, where: int) -> None:
        which = f"message {first} is" if first == last else f"messages {first} to {last} are"
        self._log.fault(FeedFault.GAP, where, f"{which} missing", last - first + 1)


class PacketReader:
    """Reads packets in the order in which they come; `take` gives the events so far."""

    def __init__(self, log: FeedLog) -> None:
        """Nothing was read."""
        self._log = log
        self._lines = PacketLines(log)
        self._met = MetSymbols()
        self._rows: list[EventRow] = []

    def _sale_flags(self, letters: str) -> EventFlag:
        """What sale conditions say of a trade; each is counted by name."""
        found = conditions_of(letters)
        for name in dict.fromkeys(each.name for each in found):
            self._log.conditions[name] = self._log.conditions.get(name, 0) + 1
        return reduce(or_, (each.flags for each in found), EventFlag(0))

    @property
    def directory(self) -> list[ListedSymbol]:
        """Every floor and symbol that was met."""
        return self._met.directory

    def take(self) -> EventArray:
        """The events since the last time."""
        events = np.array(self._rows, EVENT_DTYPE)
        self._rows = []
        self._met.meet(events)
        return events

    def end(self) -> EventArray:
        """Nothing more will come."""
        self._lines.end()
        return self.take()
