"""Intervals and trading hours: which bar a moment belongs to.

Bars partition time, by the clock of a time zone:

    below a day     from midnight on, or from the opening of a session, anew each day: whatever the length, a day begins
                    with a bar. A bar ends where clocks change, and the next begins there.
    days            from midnight to midnight, 23 or 25 hours where clocks change. Several of them count from Monday,
                    29 December 1969, on: 7d and 1w are weeks from Monday to Sunday.
    months          from the first of a month on; 3mo are quarters, 12mo years

Without a session every moment belongs to a bar. With one, its last moment does too: a closing print at exactly 16:00:00
is in the last bar of 09:30-16:00. No weekend is assumed: a day on which nobody trades has no bar.

Days are counted from nanoseconds since 1970. Spark's casts to timestamps and dates go through the zone of its session:
none is used here, so that bars are the same in every session.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

from isocast.terms.errors import ConfigurationError
from isocast.terms.zones import DAY_NS, Zone, day_number, zone_of

__all__ = ["ALWAYS", "Calendar", "Interval", "read_calendar", "read_interval"]

_SECOND = 1_000_000_000
_MICRO = 1_000
_UNITS = {
    "ms": _SECOND // 1_000,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3_600 * _SECOND,
    "d": DAY_NS,
    "w": 7 * DAY_NS,
    "mo": 31 * DAY_NS,
}
_INTERVAL = re.compile(r"([1-9][0-9]{0,5})(ms|s|mo|m|h|d|w)")
_CLOCK = r"([0-2][0-9]):([0-5][0-9])(?::([0-5][0-9]))?"
_HOURS = re.compile(f"{_CLOCK}-{_CLOCK}")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EPOCH = date(1970, 1, 1)
_FROM_MONDAY = 3
"""1 January 1970 was a Thursday."""
_MONTHS = {1: "month", 3: "quarter", 12: "year"}
_LAST = (1 << 63) - 1 - 2 * DAY_NS
"""Moments that no clock shows, before 1970 and behind this, count as these: no sum goes beyond 64 bits."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The length of a bar."""

    text: str
    ns: int
    """Of a month, that of the longest."""
    months: int = 0

    @property
    def days(self) -> int:
        """Whole days, or 0."""
        return self.ns // DAY_NS if self.ns % DAY_NS == 0 and not self.months else 0

    @property
    def is_whole_days(self) -> bool:
        """Whether its bars begin with a day."""
        return self.ns % DAY_NS == 0


@dataclass(frozen=True, slots=True)
class Calendar:
    """When a market trades, by the clock of its zone."""

    zone: str = "UTC"
    opens_ns: int = 0
    """Since midnight, by the clock; bars count from here."""
    closes_ns: int = DAY_NS
    """The last moment of the session."""
    weekdays: tuple[int, ...] | None = None
    """Monday is 0; all days if left out."""
    holidays: tuple[date, ...] = ()

    @property
    def has_session(self) -> bool:
        """Whether some moments are outside."""
        return (self.opens_ns, self.closes_ns, self.weekdays, self.holidays) != (0, DAY_NS, None, ())

    # ---- in Spark

    def start_of(self, moment_ns: Column, interval: Interval) -> Column:
        """When the bar of a moment begins, in nanoseconds since 1970."""
        zone = zone_of(self.zone)
        moment = _of_a_clock(moment_ns)
        if interval.is_whole_days:
            day = _first_day(_day_of(_wall(moment, zone)), interval)
            return _reached(day * F.lit(DAY_NS) + F.lit(self.opens_ns), zone)
        since = F.pmod(_wall(moment, zone), F.lit(DAY_NS)) - F.lit(self.opens_ns)
        into = F.pmod(since, F.lit(interval.ns))
        if self._has_last_moment(interval):
            into = F.when(since == F.lit(self.closes_ns - self.opens_ns), F.lit(interval.ns)).otherwise(into)
        if self._begins_where_clocks_change(interval):
            return moment - into
        change = _last_change(moment, zone)
        return F.greatest(moment - into, F.when(moment >= change, change))

    def _has_last_moment(self, interval: Interval) -> bool:
        """Whether the last moment of a session would begin a bar: it belongs to the last one."""
        return (self.closes_ns - self.opens_ns) % interval.ns == 0 and self.closes_ns < DAY_NS

    def _begins_where_clocks_change(self, interval: Interval) -> bool:
        """Whether a bar begins there anyway, by the clock before the change and by the clock after it."""
        zone = zone_of(self.zone)
        walls = np.concatenate([zone.changes + zone.offsets[:-1], zone.changes + zone.offsets[1:]])
        return bool(((walls % DAY_NS - self.opens_ns) % interval.ns == 0).all())

    def is_open(self, moment_ns: Column) -> Column:
        """Whether a moment belongs to a session, whose last moment does."""
        wall = _wall(_of_a_clock(moment_ns), zone_of(self.zone))
        held = F.pmod(wall, F.lit(DAY_NS)).between(self.opens_ns, self.closes_ns)
        if self.weekdays is not None:
            held &= F.pmod(_day_of(wall) + F.lit(_FROM_MONDAY), F.lit(len(_DAYS))).isin(list(self.weekdays))
        if self.holidays:
            held &= ~_day_of(wall).isin([day_number(holiday) for holiday in self.holidays])
        return held

    # ---- the same, of one moment, without Spark

    def start_at(self, moment_ns: int, interval: Interval) -> int:
        """When the bar of a moment begins."""
        zone = zone_of(self.zone)
        moment = min(max(moment_ns, 0), _LAST)
        offset = zone.offset_at(moment)
        clock = (moment + offset) % DAY_NS
        midnight = moment + offset - clock
        if interval.is_whole_days:
            first = _first_day_at(midnight // DAY_NS, interval)
            return zone.reached(first * DAY_NS + self.opens_ns)
        since = clock - self.opens_ns
        into = interval.ns if self._has_last_moment(interval) and clock == self.closes_ns else since % interval.ns
        return max(moment - into, zone.changed_at(moment))


ALWAYS = Calendar()
"""UTC, day and night."""


def _of_a_clock(moment_ns: Column) -> Column:
    return F.least(F.greatest(moment_ns, F.lit(0)), F.lit(_LAST))


# Spark's functions with a zone of their own count in microseconds since 1970, and leave the session's zone alone.


def _wall(moment: Column, zone: Zone) -> Column:
    """What a clock of the zone shows at an instant."""
    if zone.is_fixed:
        return moment + F.lit(int(zone.offsets[0]))
    micros = F.call_function("div", moment, F.lit(_MICRO))
    there = F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(micros), zone.name))
    return there * F.lit(_MICRO) + F.pmod(moment, F.lit(_MICRO))


def _reached(wall: Column, zone: Zone) -> Column:
    """The first instant at which a clock shows a wall time of whole seconds, or has skipped it."""
    if zone.is_fixed:
        return wall - F.lit(int(zone.offsets[0]))
    there = F.timestamp_micros(F.call_function("div", wall, F.lit(_MICRO)))
    return F.unix_micros(F.to_utc_timestamp(there, zone.name)) * F.lit(_MICRO)


def _last_change(moment: Column, zone: Zone) -> Column:
    """When clocks changed last, or will change soon: the zone's table is a constant of the query."""
    table = zone.by_period
    changes = F.split(F.lit(",".join(map(str, (table.change // _SECOND).tolist()))), ",").cast("array<bigint>")
    return F.get(changes, F.shiftright(moment, table.shift).cast("int")) * F.lit(_SECOND)


def _day_of(wall: Column) -> Column:
    """Days since 1970. A clock may show the day before it: `div` would round that up."""
    return F.call_function("div", wall + F.lit(DAY_NS), F.lit(DAY_NS)) - F.lit(1)


def _first_day(day: Column, interval: Interval) -> Column:
    """The day, since 1970, on which a bar of whole days or months begins."""
    if interval.months:
        return F.unix_date(F.trunc(F.date_from_unix_date(day.cast("int")), _MONTHS[interval.months])).cast("bigint")
    return day if interval.days == 1 else day - F.pmod(day + F.lit(_FROM_MONDAY), F.lit(interval.days))


def _first_day_at(day: int, interval: Interval) -> int:
    if not interval.months:
        return day - (day + _FROM_MONDAY) % interval.days
    here = _EPOCH + timedelta(days=day)
    return day_number(date(here.year, here.month - (here.month - 1) % interval.months, 1))


def read_interval(text: str, key: str = "--interval") -> Interval:
    """The length of bars as people write it: 1s, 500ms, 5m, 1h, 1d, 1w, 1mo."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ConfigurationError("command line", key, f'"{text}" is no interval such as 1s, 5m, 1h, 1d, 1w or 1mo')
    count, unit = int(found[1]), found[2]
    length = count * _UNITS[unit]
    if unit == "mo":
        if count not in _MONTHS:
            raise ConfigurationError("command line", key, f'"{text}": bars of months are 1mo, 3mo or 12mo')
        return Interval(text, length, count)
    if length > DAY_NS and length % DAY_NS:
        raise ConfigurationError("command line", key, f'"{text}" is longer than a day and no whole number of days')
    return Interval(text, length)


def read_calendar(zone: str, session: str | None = None, holidays: tuple[str, ...] = (), days: str = "") -> Calendar:
    """A time zone, hours and days as people write them: America/New_York, 09:30-16:00, 2026-12-25, mon-fri."""
    zone_of(zone)
    opens, closes = (0, DAY_NS) if session is None else _hours(session)
    try:
        closed = tuple(date.fromisoformat(day) for day in holidays)
    except ValueError:
        rule = f"{', '.join(holidays)}: a holiday is a day such as 2026-12-25"
        raise ConfigurationError("command line", "holidays", rule) from None
    return Calendar(zone, opens, closes, _weekdays(days) if days else None, closed)


def _hours(session: str) -> tuple[int, int]:
    found = _HOURS.fullmatch(session)
    if found is not None:
        parts = [int(part or 0) for part in found.groups()]
        first, last = (((part[0] * 60 + part[1]) * 60 + part[2]) * _SECOND for part in (parts[:3], parts[3:]))
        if first >= last:
            raise ConfigurationError("command line", "--session", f'"{session}" ends before it begins')
        if last <= DAY_NS:
            return first, last
    raise ConfigurationError("command line", "--session", f'"{session}" are no hours such as 09:30-16:00')


def _weekdays(text: str) -> tuple[int, ...]:
    """mon-fri, sun-thu, or mon,wed,fri."""
    chosen: set[int] = set()
    for part in text.lower().split(","):
        first, dash, last = part.strip().partition("-")
        if first not in _DAYS or (dash and last not in _DAYS):
            raise ConfigurationError("command line", "--days", f'"{text}" are no days such as mon-fri or sun-thu')
        start, stop = _DAYS.index(first), _DAYS.index(last or first)
        chosen |= {(start + step) % len(_DAYS) for step in range((stop - start) % len(_DAYS) + 1)}
    return tuple(sorted(chosen))
