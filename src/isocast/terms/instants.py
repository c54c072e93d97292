"""Time as integer nanoseconds: an instant is since the epoch of its clock, a span is a difference."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal

__all__ = ["MICROSECOND", "MILLISECOND", "NEVER", "SECOND", "from_seconds", "read_instant", "to_seconds"]

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

NEVER = 1 << 62
"""Later than any instant that a 64-bit clock shows: the deadline of a machine that waits for nothing."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"[.,](\d+)")
_MICRO_DIGITS, _NANO_DIGITS = 6, 9


def from_seconds(seconds: float | str) -> int:
    """Seconds as people write them, to nanoseconds without binary rounding: 0.375 is 375,000,000."""
    nanoseconds = Decimal(str(seconds)) * SECOND
    return int(nanoseconds.to_integral_value(rounding=ROUND_HALF_EVEN))


def to_seconds(nanoseconds: int) -> float:
    """Nanoseconds to seconds, for people and for JSON."""
    return nanoseconds / SECOND


def read_instant(text: str) -> int:
    """A date and a time as ISO 8601 writes them, to the nanosecond since 1970; in UTC without an offset.

    ValueError for anything else, and for what is finer: nothing is cut off.
    """
    moment = datetime.fromisoformat(text)
    since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH
    found = _FRACTION.search(text)
    digits = found[1] if found else ""
    if digits[_NANO_DIGITS:].strip("0"):
        raise ValueError(f"{text} is finer than a nanosecond")
    # Python's times have microseconds: what is finer stands behind them.
    finer = int(digits[_MICRO_DIGITS:_NANO_DIGITS].ljust(_NANO_DIGITS - _MICRO_DIGITS, "0"))
    return since // timedelta(microseconds=1) * MICROSECOND + finer
