"""T8: every trader's order is kept.

An account numbers what it enters, and the numbers rise. So an entry that stands in the sequence behind a later one of
its own account has been overtaken; one that comes twice has not, and is T5's. That nearness is worth no
more than it must be cannot be said from one token: `studies.entry` counts it over many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from isocast.checks.floor_acts import FloorTranscript, FloorWrong

__all__ = ["KeptOrder"]

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
