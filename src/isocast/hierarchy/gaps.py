"""What is missing between what was delivered and the newest that was seen.

A gap is remembered as it was first seen, from the sequence after the highest one known to the one before the packet
that jumped ahead. What of it is *still* missing is looked up only when somebody must be asked, so a packet that fills
a hole costs nothing here, and gaps stay in order: new ones are always the highest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from isocast.terms.instants import NEVER

__all__ = ["Gap", "Gaps", "missing_runs", "split_runs"]


@dataclass(slots=True)
class Gap:
    """Sequences `first` to `last`, seen to be missing at `seen_at`."""

    first: int
    last: int
    seen_at: int
    next_at: int
    """When it is looked at next."""
    attempts: int = 0
    """Requests made."""
    alone: bool = False
    """Whether nobody else can lack it: a repair for all would be for nothing, so it is fetched."""
    spent: bool = False
    """Whether asking by datagram is over, and it must be fetched."""
    told: bool = False
    """Whether it outlived the lines' difference, and people know."""


class Gaps:
    """All gaps of a customer, the lowest first."""

    def __init__(self, patience_ns: int) -> None:
        """Nothing is missing; a gap is looked at `patience_ns` after it was seen."""
        self.wake_at = NEVER
        """Not later than the earliest `next_at`."""
        self._patience_ns = patience_ns
        self._gaps: deque[Gap] = deque()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._gaps)

    def __iter__(self) -> Iterator[Gap]:
        """The lowest first."""
        return iter(self._gaps)

    @property
    def lowest(self) -> Gap | None:
        """The gap that delivery waits for."""
        return self._gaps[0] if self._gaps else None

    def add(self, first: int, last: int, now: int, *, alone: bool = False) -> Gap:
        """A gap above all others."""
        gap = Gap(first, last, now, now + self._patience_ns, alone=alone)
        self._gaps.append(gap)
        self.wake_at = min(self.wake_at, gap.next_at)
        return gap

    def widen(self, last: int, now: int) -> None:
        """The table of gaps is full: the highest gap grows up to `last`."""
        gap = self._gaps[-1]
        gap.last = last
        if not gap.spent:
            gap.next_at = min(gap.next_at, now + self._patience_ns)
            self.wake_at = min(self.wake_at, gap.next_at)

    def passed(self, following: int) -> list[Gap]:
        """The gaps that lie below what is delivered next, taken away."""
        gaps, found = self._gaps, []
        while gaps and gaps[0].last < following:
            found.append(gaps.popleft())
        if not gaps:
            self.wake_at = NEVER
        return found

    def retract(self, limit: int) -> list[Gap]:
        """Nothing above `limit` is missing: take away the gaps there."""
        gaps, found = self._gaps, []
        while gaps and gaps[-1].first > limit:
            found.append(gaps.pop())
        if gaps:
            gaps[-1].last = min(gaps[-1].last, limit)
        return found

    def due(self, now: int) -> list[Gap]:
        """Gaps to be looked at, and those that would be a moment later, so that one request names them all."""
        horizon = now + self._patience_ns // 8
        return [gap for gap in self._gaps if gap.next_at <= horizon]

    def rearm(self) -> None:
        """After some were looked at."""
        self.wake_at = min([gap.next_at for gap in self._gaps], default=NEVER)

    def set_back(self, now: int, longest_ns: int) -> None:
        """The clock was set back: nothing waits for the difference."""
        for gap in self._gaps:
            gap.seen_at = min(gap.seen_at, now)
            if gap.next_at < NEVER:
                gap.next_at = min(gap.next_at, now + longest_ns)
        self.rearm()

    def clear(self) -> None:
        """The customer begins anew."""
        self._gaps.clear()
        self.wake_at = NEVER


def missing_runs(first: int, last: int, has: Container[int]) -> list[tuple[int, int]]:
    """The runs of sequences from `first` to `last` that `has` lacks."""
    runs: list[tuple[int, int]] = []
    start = 0
    for sequence in range(first, last + 1):
        if sequence in has:
            if start:
                runs.append((start, sequence - 1))
                start = 0
        elif not start:
            start = sequence
    if start:
        runs.append((start, last))
    return runs


def split_runs(runs: Iterable[tuple[int, int]], longest: int, near: int) -> list[tuple[int, int]]:
    """Runs as requests: neighbours up to `near` apart become one, and none is longer than `longest`."""
    merged: list[tuple[int, int]] = []
    for first, last in runs:
        if merged and first - merged[-1][1] <= near and last - merged[-1][0] < longest:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return [
        (start, min(start + longest - 1, last)) for first, last in merged for start in range(first, last + 1, longest)
    ]
