"""Putting a token together again whose parts come one by one, in any order."""

from __future__ import annotations

from isocast.terms.errors import RemoteProtocolError
from isocast.wire.packets import Token, TokenPart
from isocast.wire.token_body import join_parts

__all__ = ["PartStore"]

TOKENS_MAX = 8
"""Tokens under way at once: one is in recovery, one is new; the rest is room for reordering."""


class PartStore:
    """Parts by token; a complete set becomes the token, a set that contradicts itself is dropped."""

    def __init__(self, *, newest_first: bool = False) -> None:
        """No parts yet. A receiver needs the oldest token first; a source cares for the newest."""
        self._newest_first = newest_first
        self.refused = 0
        """Sets of parts that did not make a token."""
        self._parts: dict[int, dict[int, TokenPart]] = {}

    def add(self, part: TokenPart) -> Token | None:
        """Keep a part; the token once all are here."""
        parts = self._parts.setdefault(part.token_number, {})
        if any(other.parts != part.parts or other.epoch != part.epoch for other in parts.values()):
            parts.clear()
        parts[part.part] = part
        if len(self._parts) > TOKENS_MAX:
            del self._parts[min(self._parts) if self._newest_first else max(self._parts)]
        if len(parts) < part.parts:
            return None
        self._parts.pop(part.token_number, None)
        try:
            return join_parts([parts[place] for place in range(part.parts)])
        except RemoteProtocolError:
            self.refused += 1
            return None

    def held(self, token_number: int) -> int:
        """A bitmap of the parts of a token that are here."""
        bitmap = 0
        for place in self._parts.get(token_number, {}):
            bitmap |= 1 << place
        return bitmap

    def forget(self, token_number: int) -> None:
        """Drop the parts of tokens up to a number."""
        for number in [number for number in self._parts if number <= token_number]:
            del self._parts[number]

    def clear(self) -> None:
        """Drop everything: a new epoch."""
        self._parts.clear()
