"""Bars and VWAP of any interval: trading hours, which trades count, open, high, low, close and volume.

Open and close are the first and the last trade by the sequence, not by the floors' clocks: two trades of the same
nanosecond have an order too, and everybody has the same. The bar of a trade follows from its own time (`event_ns`).
Sums are exact: turnover is DECIMAL(38,0), in ticks times shares.

A trade whose sale conditions forbid it sets no price (`eligibility`), and volume has it. A bar without a trade that may
set one has no open and close, or no price at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isocast.terms.conditions import LEFT_OUT
from isocast.terms.errors import ConfigurationError
from isocast.terms.zones import DAY_NS, Zone, day_number, zone_of
from isocast.ticker.records import NOT_COUNTED, PRICED, TradeState

__all__ = [
    "ALWAYS",
    "BAR_ENDS",
    "Calendar",
    "ExchangeDays",
    "Interval",
    "bar_parts",
    "bars",
    "counted",
    "grown_bars",
    "last_sales",
    "left_out",
    "place_in_sequence",
    "read_calendar",
    "read_interval",
    "rolling_trade_vwap",
    "rolling_vwap",
    "sets_high_low",
    "sets_last",
    "vwap",
    "whole_bars",
]


# Intervals and trading hours: which bar a moment belongs to.
#
# Bars partition time, by the clock of a time zone:
#
# below a day     from midnight on, or from the opening of a session, anew each day: whatever the length, a day begins
# with a bar. A bar ends where clocks change, and the next begins there.
# days            from midnight to midnight, 23 or 25 hours where clocks change. Several of them count from Monday,
# 29 December 1969, on: 7d and 1w are weeks from Monday to Sunday.
# months          from the first of a month on; 3mo are quarters, 12mo years
#
# A session may begin on the evening before, 18:00-17:00: then days, weeks and months are those of trading days.
#
# Without a session every moment belongs to a bar. With one, its last moment does too: a closing print at exactly
# 16:00:00 is in the last bar of 09:30-16:00. No weekend is assumed: a day on which nobody trades has no bar.
# An exchange's own days (`exchanges`) have holidays, and half days with a close of their own.
#
# Days are counted from nanoseconds since 1970. Spark's casts to timestamps and dates go through the zone of its
# session: none is used here, so that bars are the same in every session.


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


class ExchangeDays(NamedTuple):
    """The hours of each trading day of an exchange, by its clock, in nanoseconds since the midnight of that day.

    A session that opens on the evening before opens below 0; a day without one opens behind its close.
    """

    first: int
    """The first day, since 1970; others follow it without a gap."""
    opens_ns: tuple[int, ...]
    closes_ns: tuple[int, ...]

    def hours(self, day: int) -> tuple[int, int] | None:
        """When a day opens and closes; None for one that nobody knows."""
        place = day - self.first
        return (self.opens_ns[place], self.closes_ns[place]) if 0 <= place < len(self.opens_ns) else None


@dataclass(frozen=True, slots=True)
class Calendar:
    """When a market trades, by the clock of its zone."""

    zone: str = "UTC"
    opens_ns: int = 0
    """Since midnight, by the clock; bars count from here."""
    closes_ns: int = DAY_NS
    """The last moment of the session; before `opens_ns` if it is of the next day."""
    weekdays: tuple[int, ...] | None = None
    """Monday is 0; all days if left out."""
    holidays: tuple[date, ...] = ()
    exchange: ExchangeDays | None = None
    """Hours of single days, holidays and half days among them; the usual ones are for days that it does not know."""

    @property
    def has_session(self) -> bool:
        """Whether some moments are outside."""
        return self.exchange is not None or (
            (self.opens_ns, self.closes_ns, self.weekdays, self.holidays) != (0, DAY_NS, None, ())
        )

    @property
    def crosses_midnight(self) -> bool:
        """Whether a session begins on the evening before its trading day."""
        return self.opens_ns >= self.closes_ns

    @property
    def _ahead_ns(self) -> int:
        """How far the trading day is ahead of the clock's."""
        return DAY_NS - self.opens_ns if self.crosses_midnight else 0

    @property
    def _length_ns(self) -> int:
        return (self.closes_ns - self.opens_ns - 1) % DAY_NS + 1

    # ---- in Spark

    def trading_day_of(self, moment_ns: Column) -> Column:
        """The trading day of a moment, a DATE: where a session crosses midnight, the day on which it ends.

        NULL on a day on which the exchange does not trade.
        """
        wall = _wall(_of_a_clock(moment_ns), zone_of(self.zone))
        day = _day_of(wall + F.lit(self._ahead_ns))
        found = F.date_from_unix_date(day.cast("int"))
        if self.exchange is None:
            return found
        opens, closes = self._hours_of(self.exchange, day)
        return F.when(opens <= closes, found)

    def _hours_of(self, exchange: ExchangeDays, day: Column) -> tuple[Column, Column]:
        """When a day opens and closes: the exchange's tables are constants of the query."""
        place = (day - F.lit(exchange.first)).cast("int")
        usual = self._opens_after_ns, self.closes_ns

        def of(hours: tuple[int, ...], otherwise: int) -> Column:
            table = F.split(F.lit(",".join([str(moment // _SECOND) for moment in hours])), ",").cast("array<bigint>")
            known = F.when((place >= 0) & (place < len(hours)), F.get(table, place) * F.lit(_SECOND))
            return F.coalesce(known, F.lit(otherwise))

        return of(exchange.opens_ns, usual[0]), of(exchange.closes_ns, usual[1])

    def start_of(self, moment_ns: Column, interval: Interval) -> Column:
        """When the bar of a moment begins, in nanoseconds since 1970."""
        zone = zone_of(self.zone)
        moment = _of_a_clock(moment_ns)
        if interval.is_whole_days:
            day = _first_day(_day_of(_wall(moment, zone) + F.lit(self._ahead_ns)), interval)
            return _reached(day * F.lit(DAY_NS) + F.lit(self._opens_after_ns), zone)
        since = F.pmod(_wall(moment, zone), F.lit(DAY_NS)) - F.lit(self.opens_ns)
        if self.crosses_midnight:
            since = F.pmod(since, F.lit(DAY_NS))
        into = F.pmod(since, F.lit(interval.ns))
        if self.exchange is not None:
            day = _day_of(_wall(moment, zone) + F.lit(self._ahead_ns))
            closes = self._hours_of(self.exchange, day)[1]
            is_last = _wall(moment, zone) - day * F.lit(DAY_NS) == closes
            into = F.when(is_last & (into == F.lit(0)), F.lit(interval.ns)).otherwise(into)
        elif self._has_last_moment(interval):
            into = F.when(since == F.lit(self._length_ns), F.lit(interval.ns)).otherwise(into)
        if self._begins_where_clocks_change(interval):
            return moment - into
        change = _last_change(moment, zone)
        return F.greatest(moment - into, F.when(moment >= change, change))

    @property
    def _opens_after_ns(self) -> int:
        """When a session opens, after the midnight with which its trading day begins."""
        return self.opens_ns - (DAY_NS if self.crosses_midnight else 0)

    def _has_last_moment(self, interval: Interval) -> bool:
        """Whether the last moment of a session would begin a bar: it belongs to the last one."""
        return self._length_ns % interval.ns == 0 and self.closes_ns < DAY_NS and self._length_ns < DAY_NS

    def _begins_where_clocks_change(self, interval: Interval) -> bool:
        """Whether a bar begins there anyway, by the clock before the change and by the clock after it."""
        zone = zone_of(self.zone)
        walls = np.concatenate([zone.changes + zone.offsets[:-1], zone.changes + zone.offsets[1:]])
        return bool(((walls % DAY_NS - self.opens_ns) % interval.ns == 0).all())

    def is_open(self, moment_ns: Column) -> Column:
        """Whether a moment belongs to a session, whose last moment does."""
        wall = _wall(_of_a_clock(moment_ns), zone_of(self.zone))
        clock, day = F.pmod(wall, F.lit(DAY_NS)), _day_of(wall + F.lit(self._ahead_ns))
        if self.exchange is not None:
            opens, closes = self._hours_of(self.exchange, day)
            last = self.exchange.first + len(self.exchange.opens_ns) - 1
            is_weekday = F.pmod(day + F.lit(_FROM_MONDAY), F.lit(len(_DAYS))).isin(list(self.weekdays or ()))
            held = (wall - day * F.lit(DAY_NS)).between(opens, closes)
            return held & (day.between(self.exchange.first, last) | is_weekday)
        held = clock.between(self.opens_ns, self.closes_ns)
        if self.crosses_midnight:
            held = (clock >= self.opens_ns) | (clock <= self.closes_ns)
        if self.weekdays is not None:
            held &= F.pmod(day + F.lit(_FROM_MONDAY), F.lit(len(_DAYS))).isin(list(self.weekdays))
        if self.holidays:
            held &= ~day.isin([day_number(holiday) for holiday in self.holidays])
        return held

    # ---- the same, of one moment, without Spark

    def trading_day_at(self, moment_ns: int) -> date | None:
        """The trading day of a moment; None on a day on which the exchange does not trade."""
        day = self._place_at(moment_ns)[0]
        opens, closes = self._hours_at(day)
        is_day = self.exchange is None or opens <= closes
        return _EPOCH + timedelta(days=day) if is_day else None

    def is_open_at(self, moment_ns: int) -> bool:
        """Whether a moment belongs to a session."""
        day, since = self._place_at(moment_ns)
        opens, closes = self._hours_at(day)
        has_hours = self.exchange is not None and self.exchange.hours(day) is not None
        is_weekday = self.weekdays is None or (day + _FROM_MONDAY) % len(_DAYS) in self.weekdays
        is_holiday = _EPOCH + timedelta(days=day) in self.holidays
        return opens <= since <= closes and (has_hours or (is_weekday and not is_holiday))

    def _place_at(self, moment_ns: int) -> tuple[int, int]:
        """The day of a moment, and how far it is from the midnight with which that begins."""
        wall = zone_of(self.zone).wall_at(min(max(moment_ns, 0), _LAST))
        day = (wall + self._ahead_ns) // DAY_NS
        return day, wall - day * DAY_NS

    def _hours_at(self, day: int) -> tuple[int, int]:
        known = None if self.exchange is None else self.exchange.hours(day)
        return known or (self._opens_after_ns, self.closes_ns)

    def start_at(self, moment_ns: int, interval: Interval) -> int:
        """When the bar of a moment begins."""
        zone = zone_of(self.zone)
        moment = min(max(moment_ns, 0), _LAST)
        offset = zone.offset_at(moment)
        clock = (moment + offset) % DAY_NS
        midnight = moment + offset - clock
        if interval.is_whole_days:
            first = _first_day_at((midnight + clock + self._ahead_ns) // DAY_NS, interval)
            return zone.reached(first * DAY_NS + self._opens_after_ns)
        since = (clock - self.opens_ns) % DAY_NS if self.crosses_midnight else clock - self.opens_ns
        if self.exchange is not None:
            day, past = self._place_at(moment)
            is_last = past == self._hours_at(day)[1] and since % interval.ns == 0
        else:
            is_last = self._has_last_moment(interval) and clock == self.closes_ns
        into = interval.ns if is_last else since % interval.ns
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


def read_interval(text: str) -> Interval:
    """The length of bars as people write it: 1s, 500ms, 5m, 1h, 1d, 1w, 1mo."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            "command line", "--interval", f'"{text}" is not an interval such as 1s, 5m, 1h, 1d, 1w or 1mo'
        )
    count, unit = int(found[1]), found[2]
    length = count * _UNITS[unit]
    if unit == "mo":
        if count not in _MONTHS:
            raise ConfigurationError("command line", "--interval", f'"{text}": bars of months are 1mo, 3mo or 12mo')
        return Interval(text, length, count)
    if length > DAY_NS and length % DAY_NS:
        raise ConfigurationError(
            "command line", "--interval", f'"{text}" is longer than a day and no whole number of days'
        )
    return Interval(text, length)


def read_calendar(zone: str, session: str | None = None, holidays: tuple[str, ...] = (), days: str = "") -> Calendar:
    """A time zone, hours and days as people write them: America/New_York, 09:30-16:00, 2026-12-25, mon-fri.

    Hours such as 18:00-17:00 begin on the evening before: days and holidays are then trading days.
    """
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
        if first == last:
            raise ConfigurationError("command line", "--session", f'"{session}" ends when it begins')
        if last <= DAY_NS and first < DAY_NS:
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


# Which figures of a consolidated tape a trade may change: the rules of `terms.conditions` as columns of a tape.
#
# Whether a trade counts at all, in volume, turnover and number, is `bars.counted`.


_GONE = int(TradeState.CANCELLED | TradeState.FLAWED | TradeState.PAST)


def sets_last() -> Column:
    """Whether a trade may open or close a bar, or be a last sale."""
    return F.col("state").bitwiseAND(F.lit(PRICED)) == 0


def sets_high_low() -> Column:
    """Whether a trade may be a high or a low."""
    return F.col("state").bitwiseAND(F.lit(int(TradeState.NOT_HIGH_LOW))) == 0


def left_out(tape: DataFrame) -> DataFrame:
    """Trades that do not change all figures: how many, and how many shares, of each symbol by the reason."""
    standing = tape.where(F.col("state").bitwiseAND(F.lit(_GONE)) == 0).withColumn("reason", _reason())
    named = standing.where(F.col("reason").isNotNull())
    return named.groupBy("symbol", "reason").agg(F.count("*").alias("trades"), F.sum("quantity").alias("shares"))


def _reason() -> Column:
    """Null for a trade that changes all."""
    reason = F.lit(None).cast("string")
    for mask, text in reversed(list(LEFT_OUT.items())):
        reason = F.when(F.col("flags").bitwiseAND(F.lit(int(mask))) == int(mask), F.lit(text)).otherwise(reason)
    return reason


BAR_ENDS = ("first_due_ns", "first_stripe", "last_due_ns", "last_stripe")
"""When, and in which stripe, the trades that opened and closed a bar were released: with these a bar can go on."""

_SMALL_TURNOVER = float(1 << 31)
"""Of one trade, 200,000 units: four billion such trades still fit into 64 bits; larger ones are summed apart."""
_PLACES_PER_SEQUENCE = 1 << 16
_SUMMED = ("open", "high", "low", "close", "volume", "trades")
VWAP_TYPE = "DECIMAL(30,6)"


def counted(tape: DataFrame) -> DataFrame:
    """Trades that stand: not cancelled, unprinted, tentative or flawed."""
    return tape.where(F.col("state").bitwiseAND(F.lit(NOT_COUNTED)) == 0)


def place_in_sequence() -> Column:
    """(sequence, index) as one number that orders the events of a stripe."""
    return F.col("sequence") * F.lit(_PLACES_PER_SEQUENCE) + F.col("index")


def bars(
    tape: DataFrame, interval: Interval, calendar: Calendar = ALWAYS, *, by_floor: bool = False, clock: str = "event_ns"
) -> DataFrame:
    """One row for each symbol, on each floor if so wanted, and interval in which it traded."""
    by = ("symbol", "floor") if by_floor else ("symbol",)
    return whole_bars(bar_parts(tape, interval, calendar, by=by, clock=clock), by).drop(*BAR_ENDS)


def bar_parts(
    tape: DataFrame,
    interval: Interval,
    calendar: Calendar = ALWAYS,
    *,
    by: tuple[str, ...] = ("symbol",),
    clock: str = "event_ns",
) -> DataFrame:
    """Bars of each stripe alone: sequences of different stripes have no order."""
    trades = counted(tape)
    if calendar.has_session:
        trades = trades.where(calendar.is_open(F.col(clock)))
    trades = trades.withColumn("start_ns", calendar.start_of(F.col(clock), interval))
    place, price, quantity = place_in_sequence(), F.col("price"), F.col("quantity")
    is_small = F.abs(price.cast("double") * quantity) < _SMALL_TURNOVER
    parts = trades.groupBy("stripe", *by, "start_ns").agg(
        F.min_by(price, F.when(sets_last(), place)).alias("open"),
        F.max(F.when(sets_high_low(), price)).alias("high"),
        F.min(F.when(sets_high_low(), price)).alias("low"),
        F.max_by(price, F.when(sets_last(), place)).alias("close"),
        F.sum(quantity).alias("volume"),
        F.count("*").alias("trades"),
        F.sum(F.when(is_small, price * quantity)).alias("small"),
        F.sum(F.when(~is_small, price.cast("DECIMAL(19,0)") * quantity.cast("DECIMAL(10,0)"))).alias("large"),
        F.coalesce(F.min(F.when(sets_last(), F.col("due_ns"))), F.min("due_ns")).alias("first_due_ns"),
        F.coalesce(F.max(F.when(sets_last(), F.col("due_ns"))), F.max("due_ns")).alias("last_due_ns"),
    )
    small, large = (F.coalesce(F.col(name), F.lit(0)).cast("DECIMAL(38,0)") for name in ("small", "large"))
    return parts.select(
        *by,
        "start_ns",
        *_SUMMED,
        (small + large).cast("DECIMAL(38,0)").alias("turnover"),
        "first_due_ns",
        F.col("stripe").alias("first_stripe"),
        "last_due_ns",
        F.col("stripe").alias("last_stripe"),
    )


def whole_bars(parts: DataFrame, by: tuple[str, ...] = ("symbol",)) -> DataFrame:
    """A symbol that moved from a stripe to another within a bar: the one released first opens it."""
    return _joined(parts, by, ())


def grown_bars(before: DataFrame, parts: DataFrame) -> DataFrame:
    """Bars of before, which `whole_bars` made, go on with parts of later trades.

    Of one stripe, whatever is in `parts` comes behind what is in `before`.
    """
    columns = ("symbol", "start_ns", *_SUMMED, "turnover", *BAR_ENDS)
    old = before.select(*columns).withColumn("age", F.lit(0))
    return _joined(old.unionByName(parts.select(*columns).withColumn("age", F.lit(1))), ("symbol",), ("age",))


def _joined(parts: DataFrame, by: tuple[str, ...], last: tuple[str, ...]) -> DataFrame:
    first_end = F.struct("first_due_ns", "first_stripe", *last)
    last_end = F.struct("last_due_ns", "last_stripe", *last)
    opens, closes = (F.when(F.col("open").isNotNull(), end) for end in (first_end, last_end))
    whole = parts.groupBy(*by, "start_ns").agg(
        F.min_by("open", opens).alias("open"),
        F.max("high").alias("high"),
        F.min("low").alias("low"),
        F.max_by("close", closes).alias("close"),
        F.sum("volume").alias("volume"),
        F.sum("trades").alias("trades"),
        F.sum("turnover").cast("DECIMAL(38,0)").alias("turnover"),
        F.coalesce(F.min(opens), F.min(first_end)).alias("first_end"),
        F.coalesce(F.max(closes), F.max(last_end)).alias("last_end"),
    )
    ends = [F.col(f"{name.partition('_')[0]}_end.{name}").alias(name) for name in BAR_ENDS]
    vwap = (F.col("turnover") / F.col("volume")).cast(VWAP_TYPE).alias("vwap")
    return whole.select(*by, "start_ns", *_SUMMED, "turnover", vwap, *ends)


def last_sales(tape: DataFrame) -> DataFrame:
    """The newest trade of each symbol that stands, across floors."""
    place = F.struct("due_ns", "stripe", "sequence", "index")
    newest = (
        counted(tape)
        .groupBy("symbol")
        .agg(
            F.max_by(
                F.struct("price", "quantity", "floor", "event_ns", "sequence", "trade_id"), F.when(sets_last(), place)
            ).alias("last"),
            F.sum("quantity").alias("volume"),
            F.count("*").alias("trades"),
        )
    )
    return newest.select("symbol", "last.*", "volume", "trades")


# Volume-weighted average prices: of an interval, and of the time before each bar or trade.


def vwap(tape: DataFrame, interval: Interval, calendar: Calendar = ALWAYS) -> DataFrame:
    """Turnover by volume of each symbol and interval."""
    return bars(tape, interval, calendar).select("symbol", "start_ns", "volume", "turnover", "vwap")


def rolling_vwap(intervals: DataFrame, window: Interval) -> DataFrame:
    """Adds the VWAP of the `window` that ends with each interval, its own included.

    The frame has one row for each symbol and `start_ns`, as `bars` and `vwap` make it. Sums are exact.
    """
    frame = Window.partitionBy("symbol").orderBy("start_ns").rangeBetween(1 - window.ns, 0)
    volume, turnover = F.sum("volume").over(frame), F.sum("turnover").over(frame)
    return intervals.select("*", volume.alias("rolling_volume"), _quotient(turnover, volume).alias("rolling_vwap"))


def rolling_trade_vwap(tape: DataFrame, window: Interval) -> DataFrame:
    """Every trade that stands, with the VWAP of the `window` that ends with it, by the floors' clocks.

    All trades of the same nanosecond count for each other, whatever their sequence.
    """
    frame = Window.partitionBy("symbol").orderBy("event_ns").rangeBetween(1 - window.ns, 0)
    trades = counted(tape).withColumn(
        "amount", F.col("price").cast("DECIMAL(19,0)") * F.col("quantity").cast("DECIMAL(10,0)")
    )
    volume, turnover = F.sum("quantity").over(frame), F.sum("amount").over(frame)
    return trades.select("*", volume.alias("rolling_volume"), _quotient(turnover, volume).alias("rolling_vwap")).drop(
        "amount"
    )


def _quotient(turnover: Column, volume: Column) -> Column:
    return (turnover.cast("DECIMAL(38,0)") / volume).cast(VWAP_TYPE)
