"""Bit-rates as people write them, as IP bytes in a token period (§4.4), and how those are kept and measured."""

from __future__ import annotations

import re
from collections import deque
from decimal import Decimal
from heapq import heappop, heappush

from isocast.terms.instants import SECOND

__all__ = [
    "MODEM",
    "RATE_MAX",
    "RateGate",
    "RateMeter",
    "budget_bytes",
    "parse_rate",
    "rate_text",
    "stripes_that_fit",
]

MODEM = 56_000
"""The paper's least capable customer."""
RATE_MAX = 10**12
"""Bounds: a terabit a second."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_RATE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([kmg]?)(?:bit/s|bps|b/s|bit)?", re.IGNORECASE)


def parse_rate(text: str) -> int:
    """Bits a second of "56k", "1.5M", "45 Mb/s" or "56000"; ValueError for anything else."""
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    rate = Decimal(found[1]) * _UNITS[found[2].lower()]
    if rate != rate.to_integral_value() or not 0 < rate <= RATE_MAX:
        raise ValueError(text)
    return int(rate)


def rate_text(rate: float) -> str:
    """Bits a second for people: 56 kb/s."""
    for unit, size in (("Gb/s", 10**9), ("Mb/s", 10**6), ("kb/s", 10**3)):
        if rate >= size:
            return f"{rate / size:.4g} {unit}"
    return f"{rate:.4g} b/s"


def budget_bytes(rate: int, token_period_ns: int) -> int:
    """IP bytes that may travel in any token period: rate · τ_t / 8, rounded down."""
    return rate * token_period_ns // (8 * SECOND)


def stripes_that_fit(line_rate: int, stripe_rate: int) -> int:
    """How many stripes of one rate a line can take: 26 of 56 kb/s on 1.5 Mb/s, 803 on 45 Mb/s."""
    return line_rate // stripe_rate


# Bytes in any span of one length, wherever it begins: kept below a budget, or measured.


class RateGate:
    """Lets at most a budget leave in any span. What left is noted when its sending is over."""

    def __init__(self, span_ns: int, begun: int) -> None:
        """Nothing leaves for a span after `begun`: who has just started does not know what left before."""
        self._span_ns = span_ns
        self._first = begun + span_ns
        self._recent: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def room_at(self, size: int, budget: int, now: int) -> int:
        """When so many bytes may leave: now, or some time before it, if at once."""
        while self._recent and self._recent[0][0] + self._span_ns <= now:
            self._bytes -= self._recent.popleft()[1]
        at, left = self._first, self._bytes
        for sent_at, sent in self._recent:
            if left + size <= budget:
                break
            at = max(at, sent_at + self._span_ns)
            left -= sent
        return at

    def note(self, over: int, size: int) -> None:
        """So many bytes left, and the call that sent them returned at this instant."""
        self._recent.append((over, size))
        self._bytes += size


class RateMeter:
    """The most bytes that came in any span. What came is told in any order, as several sockets are read in turn."""

    def __init__(self, span_ns: int, slack_ns: int = 2 * SECOND) -> None:
        """Nothing came; `slack_ns` is how late something may be told of."""
        self.total = 0
        self._span_ns = span_ns
        self._slack_ns = slack_ns
        self._untold: list[tuple[int, int]] = []
        self._newest = 0
        self._recent: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._peak = 0

    def note(self, at: int, size: int) -> None:
        """So many bytes came at an instant."""
        self.total += size
        self._newest = max(self._newest, at)
        heappush(self._untold, (at, size))
        while self._untold[0][0] <= self._newest - self._slack_ns:
            self._count(*heappop(self._untold))

    @property
    def peak(self) -> int:
        """Up to now."""
        copy = RateMeter(self._span_ns)
        copy._recent, copy._bytes, copy._peak = deque(self._recent), self._bytes, self._peak
        for at, size in sorted(self._untold):
            copy._count(at, size)
        return copy._peak

    def _count(self, at: int, size: int) -> None:
        while self._recent and self._recent[0][0] + self._span_ns <= at:
            self._bytes -= self._recent.popleft()[1]
        self._recent.append((at, size))
        self._bytes += size
        self._peak = max(self._peak, self._bytes)
