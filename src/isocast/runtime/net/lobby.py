"""Connections that wait, most of them to say who they are: a bounded number, of which none keeps out a newcomer.

Whoever connects and says nothing, or begins TLS and does not end it, holds a place only while there is room. When there
is none, the oldest connection of the address with the most of them gives way. An honest visitor needs milliseconds, so
that a flood of half-open connections ends its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter

__all__ = ["Lobby"]

_NAMED_MAX = 256
"""Addresses whose count is remembered."""


class Lobby:
    """The waiting connections of one door or page."""

    def __init__(self, most: int) -> None:
        """`most` connections wait at once."""
        self._most = most
        self._waiting: dict[asyncio.Task[None], str] = {}
        """The oldest first, with its address."""
        self.ended: Counter[str] = Counter()
        """Connections that had to give way, by address."""

    @property
    def waiting(self) -> int:
        """Connections that have not said who they are."""
        return len(self._waiting)

    def enter(self, task: asyncio.Task[None], address: str) -> asyncio.Task[None] | None:
        """A new connection, served by this task; if there was no room, another one's task, which is cancelled."""
        ended = self.end_one() if len(self._waiting) >= self._most else None
        self._waiting[task] = address
        return ended

    def leave(self, task: asyncio.Task[None]) -> None:
        """It has said who it is, or is gone."""
        self._waiting.pop(task, None)

    @property
    def loudest(self) -> str:
        """The address whose connections had to give way most often; nothing if none had."""
        return next((address for address, _ in self.ended.most_common(1)), "")

    @property
    def fullest(self) -> str:
        """The address with the most connections that wait; nothing if none does."""
        return next((address for address, _ in Counter(self._waiting.values()).most_common(1)), "")

    def end_one(self) -> asyncio.Task[None] | None:
        """Somebody needs a place: the oldest of the loudest address, which is cancelled; None if nobody waits."""
        if not self._waiting:
            return None
        loudest = self.fullest
        oldest = next(task for task, address in self._waiting.items() if address == loudest)
        self.leave(oldest)
        oldest.cancel()
        if loudest in self.ended or len(self.ended) < _NAMED_MAX:
            self.ended[loudest] += 1
        return oldest
