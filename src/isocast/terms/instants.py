"""Time as integer nanoseconds: an instant is since the epoch of its clock, a span is a difference."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

__all__ = ["MICROSECOND", "MILLISECOND", "NEVER", "SECOND", "from_seconds", "to_seconds"]

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

NEVER = 1 << 62
"""Later than any instant that a 64-bit clock shows: the deadline of a machine that waits for nothing."""


def from_seconds(seconds: float | str) -> int:
    """Seconds as people write them, to nanoseconds without binary rounding: 0.375 is 375,000,000."""
    nanoseconds = Decimal(str(seconds)) * SECOND
    return int(nanoseconds.to_integral_value(rounding=ROUND_HALF_EVEN))


def to_seconds(nanoseconds: int) -> float:
    """Nanoseconds to seconds, for people and for JSON."""
    return nanoseconds / SECOND
