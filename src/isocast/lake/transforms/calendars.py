"""Intervals and trading hours: which bar a moment belongs to.

An interval below a day counts from midnight, or from the opening of a session, by the clock of a time zone; a day is
a day there, of 23 or 25 hours where clocks change. Without a session every moment belongs to a bar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from pyspark.sql import Column
from pyspark.sql import functions as F

from isocast.feeds.days import check_zone
from isocast.terms.errors import ConfigurationError

__all__ = ["ALWAYS", "Calendar", "Interval", "read_calendar", "read_interval"]

_SECOND = 1_000_000_000
_UNITS = {"ms": _SECOND // 1_000, "s": _SECOND, "m": 60 * _SECOND, "h": 3_600 * _SECOND, "d": 86_400 * _SECOND}
_DAY = _UNITS["d"]
_INTERVAL = re.compile(r"([1-9][0-9]{0,5})(ms|s|m|h|d)")
_HOURS = re.compile(r"([0-2][0-9]:[0-5][0-9])-([0-2][0-9]:[0-5][0-9])")
_WEEKDAYS = (0, 1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Interval:
    """The length of a bar."""

    text: str
    ns: int

    @property
    def days(self) -> int:
        """Whole days, or 0."""
        return self.ns // _DAY if self.ns % _DAY == 0 else 0


@dataclass(frozen=True, slots=True)
class Calendar:
    """When a market trades, by the clock of its zone."""

    zone: str = "UTC"
    opens_ns: int = 0
    """Since midnight; bars count from here."""
    closes_ns: int = _DAY
    """The first moment that no longer belongs to the session."""
    weekdays: tuple[int, ...] | None = None
    """Monday is 0; all days if left out."""
    holidays: tuple[date, ...] = ()

    @property
    def has_session(self) -> bool:
        """Whether some moments are outside."""
        return (self.opens_ns, self.closes_ns, self.weekdays, self.holidays) != (0, _DAY, None, ())

    def start_of(self, moment_ns: Column, interval: Interval) -> Column:
        """When the bar of a moment begins, in nanoseconds since 1970."""
        if interval.days:
            return self._day_start(moment_ns, interval.days)
        if self.zone == "UTC":
            shift: Column | int = -self.opens_ns
        else:
            shift = self._offset(moment_ns) - self.opens_ns
        local = moment_ns + shift
        return local - F.pmod(local, F.lit(interval.ns)) - shift

    def start_at(self, moment_ns: int, interval: Interval) -> int:
        """The same, of one moment, without Spark."""
        zone = ZoneInfo(self.zone)
        here = datetime.fromtimestamp(moment_ns // _SECOND, zone)
        if interval.days:
            local = here.date().toordinal() - date(1970, 1, 1).toordinal()
            first = date.fromordinal(date(1970, 1, 1).toordinal() + local - local % interval.days)
            midnight = datetime.combine(first, time(), zone)
            return round(midnight.timestamp()) * _SECOND + self.opens_ns
        offset = here.utcoffset() or timedelta()
        shift = round(offset.total_seconds()) * _SECOND - self.opens_ns
        return moment_ns - (moment_ns + shift) % interval.ns

    def is_open(self, moment_ns: Column) -> Column:
        """Whether a moment belongs to a session."""
        local = moment_ns + self._offset(moment_ns)
        clock = F.pmod(local, F.lit(_DAY))
        held = (clock >= self.opens_ns) & (clock < self.closes_ns)
        day = F.call_function("div", local, F.lit(_DAY)).cast("int")
        if self.weekdays is not None:
            # 1 January 1970 was a Thursday.
            held &= F.pmod(day + F.lit(3), F.lit(7)).isin(list(self.weekdays))
        if self.holidays:
            held &= ~day.isin([(holiday - date(1970, 1, 1)).days for holiday in self.holidays])
        return held

    def day_of(self, moment_ns: Column) -> Column:
        """The day there, as a DATE."""
        return F.to_date(F.from_utc_timestamp(_timestamp(moment_ns), self.zone))

    def _offset(self, moment_ns: Column) -> Column:
        """How far the zone's clock is ahead of UTC."""
        if self.zone == "UTC":
            return F.lit(0).cast("bigint")
        utc = _timestamp(moment_ns)
        return (F.unix_micros(F.from_utc_timestamp(utc, self.zone)) - F.unix_micros(utc)) * 1_000

    def _day_start(self, moment_ns: Column, days: int) -> Column:
        local = F.unix_date(self.day_of(moment_ns))
        first = F.date_from_unix_date(local - F.pmod(local, F.lit(days)) if days > 1 else local)
        midnight = F.unix_micros(F.to_utc_timestamp(first.cast("timestamp"), self.zone)) * 1_000
        return midnight + self.opens_ns


ALWAYS = Calendar()
"""UTC, day and night."""


def read_interval(text: str, key: str = "--interval") -> Interval:
    """An interval as people write it: 1s, 500ms, 5m, 1h, 1d."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ConfigurationError("command line", key, f'"{text}" is no interval such as 1s, 5m, 1h or 1d')
    length = int(found[1]) * _UNITS[found[2]]
    if length < _DAY and _DAY % length:
        raise ConfigurationError("command line", key, f'"{text}" does not divide a day: bars would drift')
    if length > _DAY and length % _DAY:
        raise ConfigurationError("command line", key, f'"{text}" is longer than a day and no whole number of days')
    return Interval(text, length)


def read_calendar(zone: str, session: str | None = None, holidays: tuple[str, ...] = ()) -> Calendar:
    """A time zone and hours as people write them: America/New_York, 09:30-16:00, 2026-12-25."""
    check_zone(zone)
    if session is None:
        return Calendar(zone)
    found = _HOURS.fullmatch(session)
    try:
        opens, closes = (time.fromisoformat(part) for part in (found.groups() if found else ("", "")))
        closed = tuple(date.fromisoformat(day) for day in holidays)
    except ValueError:
        rule = f'"{session}" are no hours such as 09:30-16:00, or a holiday is no day such as 2026-12-25'
        raise ConfigurationError("command line", "--session", rule) from None
    first, last = (_UNITS["h"] * clock.hour + _UNITS["m"] * clock.minute for clock in (opens, closes))
    if first >= last:
        raise ConfigurationError("command line", "--session", f'"{session}" ends before it begins')
    return Calendar(zone, first, last, _WEEKDAYS, closed)


def _timestamp(moment_ns: Column) -> Column:
    # Whole numbers all the way: nanoseconds since 1970 are more than a DOUBLE holds.
    return F.timestamp_micros(F.call_function("div", moment_ns, F.lit(1_000)))
