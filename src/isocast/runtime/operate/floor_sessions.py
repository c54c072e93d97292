"""The sessions of a floor's days: by the calendar of an exchange, or by hours of the market file.

A floor never reads a calendar: an operator works out the instants of a day and publishes them in the sequence. A day
has a pre-open call, the opening auction, trading, a closing call, the closing auction, and is closed; holidays have
nothing, and half days close early.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

from isocast.feeds.days import day_at, exchange_calendars
from isocast.floor.events import Phase, Schedule
from isocast.runtime.market.floors import FloorHours, FloorTable
from isocast.terms.errors import ConfigurationError
from isocast.terms.zones import DAY_NS, day_number, zone_of

__all__ = ["SessionDay", "session_day", "today"]


class SessionDay(NamedTuple):
    """A day of a floor; without changes it is a holiday."""

    day: date
    schedule: Schedule


def today(floor: FloorTable, now_ns: int) -> date:
    """The day at the floor's place."""
    return day_at(now_ns, _zone(floor))


def session_day(floor: FloorTable, day: date) -> SessionDay:
    """The instants of a day; ConfigurationError for a floor without sessions, or a day that its calendar lacks."""
    hours = floor.hours
    span = _by_calendar(floor.code, hours.calendar, day) if hours.calendar else _by_hours(floor, day)
    if span is None:
        return SessionDay(day, Schedule(()))
    opens, closes = span
    changes = [(opens, Phase.OPEN), (closes, Phase.CLOSED)]
    if hours.pre_open_ns:
        changes.append((opens - hours.pre_open_ns, Phase.PRE_OPEN))
    if hours.closing_ns:
        changes.append((max(closes - hours.closing_ns, opens + 1), Phase.CLOSING))
    return SessionDay(day, Schedule(tuple(sorted(changes))))


def _zone(floor: FloorTable) -> str:
    if not floor.hours.calendar:
        return floor.hours.zone
    return str(_calendar(floor.code, floor.hours.calendar).tz)


def _by_hours(floor: FloorTable, day: date) -> tuple[int, int] | None:
    hours: FloorHours = floor.hours
    if hours.opens_ns is None or hours.closes_ns is None:
        rule = "this floor has no sessions: give it a calendar, such as XNYS, or opens and closes"
        raise ConfigurationError("market", f"floor.{floor.code}", rule)
    if day.weekday() not in hours.weekdays:
        return None
    # Behind midnight is the next day's: a session may end there.
    closing_day = day if hours.closes_ns > hours.opens_ns else day + timedelta(days=1)
    return _at(day, hours.opens_ns, hours.zone), _at(closing_day, hours.closes_ns, hours.zone)


def _at(day: date, clock_ns: int, zone: str) -> int:
    """The first instant at which a clock on the wall shows this, or has skipped it."""
    return zone_of(zone).reached(day_number(day) * DAY_NS + clock_ns)


def _by_calendar(code: str, name: str, day: date) -> tuple[int, int] | None:
    found = _calendar(code, name)
    first, last = found.first_session.date(), found.last_session.date()
    if not first <= day <= last:
        rule = f"the calendar {name} knows days from {first} to {last}, not {day}: is the package up to date?"
        raise ConfigurationError("command line", "DATE", rule)
    if not found.is_session(day.isoformat()):
        return None
    opens, closes = found.session_open_close(day.isoformat())
    return int(opens.value), int(closes.value)


def _calendar(code: str, name: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - of a package without types
    return exchange_calendars(name, "market", f"floor.{code}.calendar").get_calendar(name)
