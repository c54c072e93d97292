"""Limits on attempts: so many within a time, for each address and each account."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

__all__ = ["AttemptLimit"]

_REMEMBERED = 4_096
"""Bounds: who floods from more addresses pushes out the oldest, and has spent an attempt for each."""


class AttemptLimit:
    """Allows so many attempts by one name within a time; threads may share it."""

    def __init__(self, attempts: int, seconds: float) -> None:
        """A name has all its attempts back `seconds` after the first of them."""
        self._attempts = attempts
        self._seconds = seconds
        self._made: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Since when, and how many."""
        self._lock = Lock()

    def allows(self, name: str, now: float) -> bool:
        """Count an attempt; False if it is one too many."""
        with self._lock:
            since, made = self._made.pop(name, (now, 0))
            if now - since >= self._seconds:
                since, made = now, 0
            self._made[name] = since, made + 1
            if len(self._made) > _REMEMBERED:
                self._made.popitem(last=False)
            return made < self._attempts

    def forgive(self, name: str) -> None:
        """Forget the attempts of a name: the last one was right."""
        with self._lock:
            self._made.pop(name, None)
