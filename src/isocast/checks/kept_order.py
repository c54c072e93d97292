"""T8: every trader's order is kept, and nearness is worth no more at a place in the sequence than it must be.

An account numbers what it enters, and the numbers rise. So an entry that stands in the sequence behind a later one of
its own account has been overtaken; one that comes twice has not, and is T5's. Of the first places nothing can be said
from one token: over many contests each pair of cities shares them as protocol.md §11 computes, within one in a hundred.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from isocast.checks.floor_acts import FloorTranscript, FloorWrong

__all__ = ["FIRST_PLACES_TOLERANCE", "KeptOrder", "PairShare", "first_places"]

FIRST_PLACES_TOLERANCE: Final = 0.01
_ENTERING: Final = ("order", "lot", "commit", "bid", "take")
_SEEN_MAX: Final = 4_096
"""Ids that are remembered of each account, to tell one that comes twice from one that was overtaken."""


class KeptOrder:
    """Follows the numbers of every account of one floor."""

    def __init__(self) -> None:
        """Nobody has entered anything."""
        self._seen: dict[int, dict[int, None]] = {}
        self._highest: dict[int, int] = {}
        self._forgotten: dict[int, int] = {}

    def step(self, transcript: FloorTranscript) -> Iterator[FloorWrong]:
        """The next token."""
        for act in transcript.acts:
            if act.kind in _ENTERING:
                text = self._enter(act.fields["account"], act.fields["id"])
                if text:
                    yield FloorWrong("T8", transcript.token, text)

    def _enter(self, account: int, number: int) -> str:
        seen = self._seen.setdefault(account, {})
        if number in seen:
            return ""
        seen[number] = None
        if len(seen) > _SEEN_MAX:
            oldest = next(iter(seen))
            del seen[oldest]
            self._forgotten[account] = max(oldest, self._forgotten.get(account, -1))
        highest = self._highest.get(account, -1)
        self._highest[account] = max(number, highest)
        if self._forgotten.get(account, -1) < number < highest:
            return f"entry {number} of account {account} stands behind its entry {highest}"
        return ""


class PairShare(NamedTuple):
    """How often the first of two cities was before the second."""

    first: str
    second: str
    share: float
    expected: float
    """By protocol.md §11."""


def first_places(pairs: Iterable[PairShare]) -> list[str]:
    """The pairs whose first places are shared otherwise than they must be."""
    return [
        f"{one.first} is before {one.second} in {one.share:.3f} of the contests, and {one.expected:.3f} are due"
        for one in pairs
        if abs(one.share - one.expected) > FIRST_PLACES_TOLERANCE
    ]
