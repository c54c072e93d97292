"""Whether the stripes of a customer's lines are heard: each beats every second, so that silence means something."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from isocast.terms.instants import SECOND

__all__ = ["HeardStripe", "SilenceWatch"]

_NAMED = 5
"""Stripes that a sentence names before it counts."""


class HeardStripe(NamedTuple):
    """A narrow stripe as one line brings it."""

    line: str
    stripe: int


class SilenceWatch:
    """Says once what has fallen silent, and once that it is back. Pure: the caller says what time it is."""

    def __init__(self, patience_ns: int) -> None:
        """Nothing is expected yet."""
        self._patience_ns = patience_ns
        self._last: dict[HeardStripe, int] = {}
        self._silent: set[HeardStripe] = set()

    def expect(self, stripes: Iterable[HeardStripe], now: int) -> None:
        """These from now on, and no others."""
        self._last = {each: self._last.get(each, now) for each in stripes}
        self._silent &= self._last.keys()

    def heard(self, line: str, stripe: int, at: int) -> None:
        """Something of a stripe came."""
        each = HeardStripe(line, stripe)
        if each in self._last:
            self._last[each] = max(at, self._last[each])

    def poll(self, now: int) -> list[str]:
        """What there is to say."""
        silent = {each for each, at in self._last.items() if now - at > self._patience_ns}
        fallen, back = silent - self._silent, self._silent - silent
        self._silent = silent
        seconds = f"{self._patience_ns / SECOND:g} s"
        texts = [
            f"{name} sends nothing on {which} for {seconds}: look at its edge, and at the network between"
            for name, which in _by_line(fallen)
        ]
        return texts + [f"{name} is heard again on {which}" for name, which in _by_line(back)]


def _by_line(stripes: Iterable[HeardStripe]) -> list[tuple[str, str]]:
    found: dict[str, list[int]] = {}
    for each in sorted(stripes):
        found.setdefault(each.line, []).append(each.stripe)
    return [(line, _numbers(numbers)) for line, numbers in found.items()]


def _numbers(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_NAMED]))
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"stripe{'s' * (len(numbers) > 1)} {shown}{more}"
