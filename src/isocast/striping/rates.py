"""Bit-rates as people write them, and how many IP bytes they are in a token period (§4.4)."""

from __future__ import annotations

import re
from decimal import Decimal

from isocast.terms.instants import SECOND

__all__ = ["MODEM", "RATE_MAX", "budget_bytes", "parse_rate", "rate_text", "stripes_that_fit"]

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
