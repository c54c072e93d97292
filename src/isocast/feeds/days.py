"""Which day a feed is of: its name says so, or somebody does; and when midnight was there."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from isocast.terms.errors import ConfigurationError

__all__ = ["NEW_YORK", "check_zone", "day_at", "day_in_name", "midnight_ns", "read_day"]

NEW_YORK = "America/New_York"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DASHED = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_YEAR_FIRST = re.compile(r"(?<!\d)((?:19|20)\d{2})(\d{2})(\d{2})(?!\d)")
_MONTH_FIRST = re.compile(r"(?<!\d)(\d{2})(\d{2})((?:19|20)\d{2})(?!\d)")
_SHORT = re.compile(r"S(\d{2})(\d{2})(\d{2})(?!\d)")


def read_day(text: str, key: str = "--day") -> date:
    """A day as people write it, 2019-01-30."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigurationError("command line", key, f"{text!r} is not a day such as 2019-01-30") from None


def day_in_name(name: str) -> date | None:
    """The day in a file's name: 2012-06-21, 20131007, 01302019 or S013019; None if there is none."""
    for pattern, order in (
        (_DASHED, (0, 1, 2)),
        (_YEAR_FIRST, (0, 1, 2)),
        (_MONTH_FIRST, (2, 0, 1)),
        (_SHORT, (2, 0, 1)),
    ):
        for found in pattern.finditer(name):
            year, month, day = (int(found.groups()[place]) for place in order)
            try:
                return date(year + 2000 if year < 100 else year, month, day)  # noqa: PLR2004
            except ValueError:
                continue
    return None


def check_zone(zone: str) -> ZoneInfo:
    """The rules of a time zone by its name; ConfigurationError if there is none."""
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError("feed", "zone", f"{zone!r} is no time zone such as {NEW_YORK}") from None


def midnight_ns(day: date, zone: str) -> int:
    """When that day began there, in nanoseconds since 1970."""
    return (datetime.combine(day, clock(), check_zone(zone)) - _EPOCH) // timedelta(microseconds=1) * 1_000


def day_at(time_ns: int, zone: str) -> date:
    """The day of an instant at a place."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).astimezone(check_zone(zone)).date()
