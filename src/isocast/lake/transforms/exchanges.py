"""Days and hours of exchanges: `--calendar XNYS` knows holidays and half days by the package exchange-calendars.

Each day that the package knows has its own hours, by the clock of the exchange. Days before and behind them have the
usual hours, and no holidays but the weekend.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from isocast.feeds.days import exchange_calendars
from isocast.lake.transforms.bars import Calendar, ExchangeDays
from isocast.terms.instants import SECOND
from isocast.terms.zones import DAY_NS

__all__ = ["exchange_calendar"]

_SINCE = "1990-01-01"
"""The first day that is asked for: what is kept of earlier ones is incomplete for some exchanges."""
_NO_HOURS = [[SECOND], [0]]
"""A day that opens behind its close; hours are whole seconds."""
_NEWEST = 101
"""Days, an odd number, whose usual hours are those of days that are not known."""


@lru_cache(maxsize=8)
def exchange_calendar(code: str) -> Calendar:
    """The days and hours of an exchange by its market identifier code; ConfigurationError if it is not known."""
    exchanges = exchange_calendars(code, "command line", "--calendar")
    try:
        found = exchanges.get_calendar(code, start=_SINCE)
    except ValueError:
        found = exchanges.get_calendar(code)  # It begins later.
    schedule, zone = found.schedule, str(found.tz)
    midnights = schedule.index.to_numpy().astype("datetime64[ns]").astype(np.int64)
    opens, closes = (
        schedule[name].dt.tz_convert(zone).dt.tz_localize(None).to_numpy().astype("datetime64[ns]").astype(np.int64)
        - midnights
        for name in ("open", "close")
    )
    first, last = int(midnights[0]) // DAY_NS, int(midnights[-1]) // DAY_NS
    days = np.full((2, last - first + 1), _NO_HOURS, np.int64)
    days[:, midnights // DAY_NS - first] = opens, closes
    usual_open, usual_close = (int(np.median(some[-_NEWEST:])) for some in (opens, closes))
    weekdays = tuple(day for day, is_open in enumerate(found.weekmask) if is_open == "1")
    table = ExchangeDays(first, tuple(days[0].tolist()), tuple(days[1].tolist()))
    return Calendar(zone, usual_open % DAY_NS, usual_close, weekdays, exchange=table)
