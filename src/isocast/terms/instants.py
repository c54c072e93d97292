"""Time as integer nanoseconds: an instant is since the epoch of its clock, a span is a difference.

>>> instant_text(1_700_000_000_123_456_789)
'2023-11-14T22:13:20.123456789Z'
>>> second_text(1_700_000_000_123_456_789)
'2023-11-14 22:13:20 UTC'
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from functools import lru_cache

__all__ = [
    "MICROSECOND",
    "MILLISECOND",
    "NEVER",
    "SECOND",
    "from_seconds",
    "instant_text",
    "minute_text",
    "read_instant",
    "second_text",
    "to_seconds",
]

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


def instant_text(instant: int) -> str:
    """An instant with all its nanoseconds, in UTC. What 64 bits can say, from 1677 to 2262, the calendar has."""
    seconds, rest = divmod(instant, SECOND)
    return f"{_calendar_text(seconds)}.{rest:09}Z"


@lru_cache(64)
def _calendar_text(seconds: int) -> str:
    """What all instants of a second have in common."""
    return f"{_moment(seconds):%Y-%m-%dT%H:%M:%S}"


def second_text(instant: int) -> str:
    """An instant for people, to the second before it."""
    return f"{_moment(instant // SECOND):%Y-%m-%d %H:%M:%S} UTC"


def minute_text(instant: int) -> str:
    """An instant for people, to the minute before it."""
    return f"{_moment(instant // SECOND):%Y-%m-%d %H:%M} UTC"


def _moment(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


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
