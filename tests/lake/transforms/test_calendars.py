"""Which bar a moment belongs to: bars partition time, in every zone, whatever the zone of Spark's session."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from isocast.cli.lake_tables import chosen_calendar
from isocast.lake.transforms.bars import Calendar, Interval, read_calendar, read_interval
from isocast.lake.transforms.exchanges import exchange_calendar
from isocast.terms.errors import ConfigurationError
from isocast.terms.zones import zone_of

SECOND, MINUTE, HOUR = 10**9, 60 * 10**9, 3_600 * 10**9
DAY = 24 * HOUR
CHANGES = [
    ("America/New_York", date(2024, 3, 10)),
    ("America/New_York", date(2024, 11, 3)),
    ("Europe/London", date(2024, 3, 31)),
    ("Europe/London", date(2024, 10, 27)),
    ("Australia/Lord_Howe", date(2024, 4, 7)),
    ("America/Havana", date(2024, 11, 3)),
    ("Africa/Cairo", date(2024, 4, 26)),
]
INTERVALS = ["1s", "5m", "7m", "1h", "2h", "4h", "12h", "1d", "2d", "7d", "1w", "2w", "1mo", "3mo", "12mo"]


def moments_around(zone: str, day: date) -> list[int]:
    """Every five minutes of the day of a change and the days beside it, and the nanosecond before each."""
    begins = zone_of(zone).begins(day)
    return [at for step in range(-DAY, 2 * DAY, 5 * MINUTE) for at in (begins + step - 1, begins + step)]


@pytest.mark.parametrize("zone, day", CHANGES)
@pytest.mark.parametrize("text", INTERVALS)
@pytest.mark.parametrize("session", [None, "09:30-16:00"])
def test_bars_partition_time_on_days_of_change(zone: str, day: date, text: str, session: str | None) -> None:
    calendar, interval = read_calendar(zone, session), read_interval(text)
    moments = [at for at in moments_around(zone, day) if session is None or is_open(calendar, at)]
    starts = [calendar.start_at(moment, interval) for moment in moments]
    for moment, start in zip(moments, starts, strict=True):
        assert start <= moment
        assert calendar.start_at(start, interval) == start, "a bar begins with itself"
    assert all(one <= two for one, two in pairwise(starts))
    longest = interval.ns + (HOUR if interval.is_whole_days else 0)
    assert all(moment - start <= longest for moment, start in zip(moments, starts, strict=True))


def is_open(calendar: Calendar, moment: int) -> bool:
    return calendar.opens_ns <= zone_of(calendar.zone).wall_at(moment) % DAY <= calendar.closes_ns


@pytest.mark.parametrize(
    "day, expected",
    [
        (date(2024, 3, 10), ["00:00", "03:00", "04:00", "08:00"]),
        (date(2024, 11, 3), ["00:00", "01:00", "04:00", "08:00"]),
    ],
)
def test_a_bar_of_hours_ends_where_clocks_change(day: date, expected: list[str]) -> None:
    """Bars of four hours: 00:00 to 02:00 before the change, then to 04:00; none reaches into another."""
    zone = ZoneInfo("America/New_York")
    calendar, interval = read_calendar("America/New_York"), read_interval("4h")
    begins = zone_of("America/New_York").begins(day)
    starts = sorted({calendar.start_at(begins + at, interval) for at in range(0, 10 * HOUR, MINUTE)})
    assert [datetime.fromtimestamp(start // SECOND, zone).strftime("%H:%M") for start in starts] == expected


def test_the_hour_that_comes_twice_is_two_hours() -> None:
    calendar = read_calendar("America/New_York")
    five = round(datetime(2024, 11, 3, 5, 30, tzinfo=UTC).timestamp()) * SECOND
    assert calendar.start_at(five, read_interval("1h")) == five - 30 * MINUTE
    assert calendar.start_at(five + HOUR, read_interval("1h")) == five + 30 * MINUTE


def test_weeks_begin_on_monday_and_months_on_the_first() -> None:
    zone = ZoneInfo("Europe/London")
    calendar = read_calendar("Europe/London")
    for moment in range(zone_of("Europe/London").begins(date(2024, 1, 1)), 1_735_000_000 * SECOND, 61 * HOUR):
        starts = {
            text: datetime.fromtimestamp(calendar.start_at(moment, read_interval(text)) // SECOND, zone)
            for text in ("7d", "1w", "1mo", "3mo", "12mo")
        }
        here = datetime.fromtimestamp(moment // SECOND, zone)
        assert all((start.hour, start.minute) == (0, 0) for start in starts.values())
        assert starts["7d"] == starts["1w"]
        assert starts["1w"].isocalendar()[:3] == (*here.isocalendar()[:2], 1)
        assert (starts["1mo"].year, starts["1mo"].month, starts["1mo"].day) == (here.year, here.month, 1)
        assert (starts["3mo"].month, starts["3mo"].day) == ((here.month - 1) // 3 * 3 + 1, 1)
        assert (starts["12mo"].month, starts["12mo"].day) == (1, 1)


def test_the_closing_print_is_in_the_last_bar() -> None:
    calendar = read_calendar("America/New_York", "09:30-16:00")
    close = round(datetime(2024, 7, 1, 16, tzinfo=ZoneInfo("America/New_York")).timestamp()) * SECOND
    for text, before in (("1m", MINUTE), ("30m", 30 * MINUTE), ("1h", 30 * MINUTE), ("1d", 6 * HOUR + 30 * MINUTE)):
        assert calendar.start_at(close, read_interval(text)) == close - before


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/New_York"])
def session_zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def assert_same_starts(spark: SparkSession, calendar: Calendar, texts: list[str]) -> None:
    """Spark's starts are those of `start_at`."""
    far = [400 * DAY, 4_000_000_000 * SECOND, (1 << 63) - 1]
    moments = sorted({*far, *(at for zone, day in CHANGES for at in moments_around(zone, day)[::7])})
    frame = spark.createDataFrame([(moment,) for moment in moments], "at BIGINT")
    intervals = [read_interval(text) for text in texts]
    made = frame.select("at", *(calendar.start_of(F.col("at"), each).alias(each.text) for each in intervals))
    for row in made.collect():
        assert [row[each.text] for each in intervals] == [calendar.start_at(row["at"], each) for each in intervals]


@pytest.mark.usefixtures("session_zone")
def test_spark_gives_the_same_starts_whatever_the_zone_of_its_session(spark: SparkSession) -> None:
    assert_same_starts(spark, read_calendar("America/New_York", "09:30-16:00"), ["30m", "4h", "1d", "1w", "1mo"])


EVENING = read_calendar("America/Chicago", "17:00-16:00", ("2024-12-25",), "mon-fri")
"""A session that begins on the evening before its trading day."""


def chicago(text: str) -> int:
    zone = ZoneInfo("America/Chicago")
    return round(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()) * SECOND


@pytest.mark.parametrize(
    "at, day, start",
    [
        ("2024-03-08T16:00:00", "2024-03-08", "2024-03-07T17:00:00"),
        ("2024-03-10T17:00:00", "2024-03-11", "2024-03-10T17:00:00"),  # Sunday evening, behind a change of clocks.
        ("2024-03-11T03:00:00", "2024-03-11", "2024-03-10T17:00:00"),
        ("2024-11-03T16:59:59", "2024-11-03", "2024-11-02T17:00:00"),  # A session of 24 hours, by the clock 23.
    ],
)
def test_a_trading_day_begins_on_the_evening_before(at: str, day: str, start: str) -> None:
    assert EVENING.trading_day_at(chicago(at)) == date.fromisoformat(day)
    assert EVENING.start_at(chicago(at), read_interval("1d")) == chicago(start)


def test_bars_of_a_session_count_from_its_opening_across_midnight() -> None:
    assert EVENING.start_at(chicago("2024-03-06T01:30:00"), read_interval("4h")) == chicago("2024-03-06T01:00:00")
    assert EVENING.start_at(chicago("2024-03-06T16:00:00"), read_interval("1h")) == chicago("2024-03-06T15:00:00")
    assert EVENING.start_at(chicago("2024-03-10T18:00:00"), read_interval("1w")) == chicago("2024-03-10T17:00:00")


def test_spark_gives_the_same_trading_days_across_midnight_and_changes_of_clocks(spark: SparkSession) -> None:
    assert_same_starts(spark, EVENING, ["30m", "4h", "1d", "1w", "1mo"])
    moments = [*moments_around("America/Chicago", date(2024, 3, 10)), chicago("2024-12-24T18:00:00")]
    frame = spark.createDataFrame([(moment,) for moment in moments], "at BIGINT")
    made = frame.select(
        "at", EVENING.trading_day_of(F.col("at")).alias("day"), EVENING.is_open(F.col("at")).alias("held")
    )
    for row in made.collect():
        day, clock = EVENING.trading_day_at(row["at"]), zone_of("America/Chicago").wall_at(row["at"]) % DAY
        assert row["day"] == day
        in_hours = clock >= 17 * HOUR or clock <= 16 * HOUR
        assert day is not None
        assert (
            row["held"]
            == EVENING.is_open_at(row["at"])
            == (in_hours and day.weekday() < 5 and day != date(2024, 12, 25))
        )


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", *dict(CHANGES)])
def test_spark_gives_the_same_starts_in_every_zone(spark: SparkSession, zone: str) -> None:
    assert_same_starts(spark, read_calendar(zone), ["5m", "7m", "4h", "1d", "2w", "3mo"])


@pytest.mark.parametrize("zone, day", CHANGES[:4])
def test_days_weeks_months_and_hours_are_those_of_polars(zone: str, day: date) -> None:
    moments = moments_around(zone, day)
    calendar = read_calendar(zone)
    local = pl.Series(np.array(moments)).cast(pl.Datetime("ns", "UTC")).dt.convert_time_zone(zone)
    for text in ("1m", "1h", "1d", "1w", "1mo"):
        expected = local.dt.truncate(text).dt.convert_time_zone("UTC").dt.epoch("ns").to_list()
        assert [calendar.start_at(moment, read_interval(text)) for moment in moments] == expected, text


def test_a_session_has_its_hours_and_days_and_no_others(spark: SparkSession) -> None:
    texts = ["2024-03-08T09:30:00", "2024-03-08T09:29:59", "2024-03-08T16:00:00", "2024-03-08T16:00:01",
             "2024-03-09T12:00:00", "2024-03-10T09:30:00", "2024-03-10T16:00:00", "2024-03-11T12:00:00"]  # fmt: skip
    zone = ZoneInfo("America/New_York")
    rows = [(text, round(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()) * SECOND) for text in texts]
    frame = spark.createDataFrame(rows, "text STRING, at BIGINT")

    def held(days: str, holidays: tuple[str, ...] = ()) -> list[str]:
        calendar = read_calendar("America/New_York", "09:30-16:00", holidays, days)
        return [row["text"][8:16] for row in frame.where(calendar.is_open(F.col("at"))).orderBy("at").collect()]

    always = ["08T09:30", "08T16:00", "09T12:00", "10T09:30", "10T16:00", "11T12:00"]
    assert held("") == always, "no weekend is assumed, and the closing print is inside"
    assert held("mon-fri") == ["08T09:30", "08T16:00", "11T12:00"]
    assert held("sun-thu", ("2024-03-11",)) == ["10T09:30", "10T16:00"]
    assert held("sat") == ["09T12:00"]


def moment_of(zone: str, text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * SECOND


def closed_weekdays(calendar: Calendar, year: int) -> list[str]:
    """The weekdays of a year on which an exchange does not trade."""
    days = [date(year, 1, 1) + timedelta(days=day) for day in range(366)]
    noons = [(day, moment_of(calendar.zone, f"{day}T12:00:00")) for day in days if day.year == year]
    traded = {day for day, noon in noons if calendar.trading_day_at(noon) == day}
    assert not [day for day in traded if day.weekday() > 4]
    return [day.isoformat()[5:] for day, _ in noons if day.weekday() < 5 and day not in traded]


def test_new_york_has_its_holidays_and_days_of_mourning() -> None:
    """As the exchange has published them; 29 March 2024 was Good Friday, 9 January 2025 a day of mourning."""
    calendar = exchange_calendar("XNYS")
    fixed = ["01-01", "01-15", "02-19", "03-29", "05-27", "06-19", "07-04", "09-02", "11-28", "12-25"]
    assert closed_weekdays(calendar, 2024) == fixed
    assert "01-09" in closed_weekdays(calendar, 2025)
    assert [day for day in closed_weekdays(calendar, 2012) if day.startswith("10")] == ["10-29", "10-30"], "a hurricane"
    assert [day for day in closed_weekdays(calendar, 2001) if day.startswith("09-1")] == [
        f"09-1{day}" for day in range(1, 5)
    ]


@pytest.mark.parametrize(
    "code, day, opens, closes",
    [
        ("XNYS", "2024-07-01", "09:30", "16:00"),
        ("XNYS", "2024-07-03", "09:30", "13:00"),
        ("XNYS", "2024-11-29", "09:30", "13:00"),
        ("XNYS", "2024-12-24", "09:30", "13:00"),
        ("XLON", "2024-12-24", "08:00", "12:30"),
        ("XTKS", "2024-11-01", "09:00", "15:00"),
        ("XTKS", "2024-11-05", "09:00", "15:30"),
        ("XNYS", "2090-03-01", "09:30", "16:00"),
    ],
)
def test_a_day_has_its_own_hours_and_its_closing_print_is_in_the_last_bar(
    code: str, day: str, opens: str, closes: str
) -> None:
    calendar = exchange_calendar(code)
    first, last = (moment_of(calendar.zone, f"{day}T{clock}:00") for clock in (opens, closes))
    held = [calendar.is_open_at(at) for at in (first - 1, first, last - 1, last, last + 1)]
    assert held == [False, True, True, True, False]
    assert calendar.trading_day_at(last + HOUR) == date.fromisoformat(day), "of its afternoon too"
    for text in ("5m", "30m"):
        interval = read_interval(text)
        assert calendar.start_at(last, interval) == calendar.start_at(last - 1, interval) == last - interval.ns
    assert calendar.start_at(last, read_interval("1d")) == first


def test_weekends_have_no_hours_on_days_that_the_exchange_does_not_know() -> None:
    calendar = exchange_calendar("XNYS")
    assert not calendar.is_open_at(moment_of(calendar.zone, "2090-03-04T12:00:00")), "a Saturday"


def test_an_exchange_that_opens_on_the_evening_before_has_half_days_too() -> None:
    """Futures of Chicago: the session of 3 July 2024 began on the 2nd; the 4th ended at noon."""
    calendar = exchange_calendar("CMES")
    for at, day, is_open in (
        ("2024-07-02T16:59:59", "2024-07-02", True),
        ("2024-07-02T17:00:00", "2024-07-03", True),
        ("2024-07-04T11:00:00", "2024-07-04", True),
        ("2024-07-04T12:00:01", "2024-07-04", False),
        ("2024-07-04T17:00:00", "2024-07-05", True),
        ("2024-03-29T10:00:00", None, False),
    ):
        moment = moment_of(calendar.zone, at)
        found = calendar.trading_day_at(moment)
        assert (found and found.isoformat(), calendar.is_open_at(moment)) == (day, is_open), at


@pytest.mark.parametrize("code", [pytest.param("XNYS", marks=pytest.mark.long), "CMES"])
def test_spark_gives_the_same_days_hours_and_bars_of_an_exchange(spark: SparkSession, code: str) -> None:
    calendar, texts = exchange_calendar(code), ["30m", "4h", "1d", "1mo"]
    assert_same_starts(spark, calendar, texts)
    days = ("2024-03-09", "2024-03-29", "2024-07-03", "2024-07-04", "2024-11-29", "2090-03-04")
    moments = [at for day in days for at in moments_around(calendar.zone, date.fromisoformat(day))]
    at = F.col("at")
    starts = [calendar.start_of(at, read_interval(text)).alias(text) for text in texts]
    frame = spark.createDataFrame([(moment,) for moment in moments], "at BIGINT")
    made = frame.select("at", calendar.trading_day_of(at).alias("day"), calendar.is_open(at).alias("held"), *starts)
    for row in made.collect():
        moment = row["at"]
        assert (row["day"], row["held"]) == (calendar.trading_day_at(moment), calendar.is_open_at(moment)), moment
        assert [row[text] for text in texts] == [calendar.start_at(moment, read_interval(text)) for text in texts]


def test_an_exchange_that_nobody_knows_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r'"XNYZ" is no exchange that is known, .*XNYS'):
        exchange_calendar("XNYZ")
    with pytest.raises(ConfigurationError, match="XNYS has a zone, hours and days of its own"):
        chosen_calendar("XNYS", "UTC", "", "")


@pytest.mark.parametrize("text", ["", "0m", "36h", "-1m", "1.5s", "5mo", "1y", "1M"])
def test_intervals_that_are_none(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--interval"):
        read_interval(text)


@pytest.mark.parametrize(
    "zone, session, days",
    [
        ("Mars/Olympus", None, ""),
        ("UTC", "9-16", ""),
        ("UTC", "09:30-09:30", ""),
        ("UTC", "24:00-09:30", ""),
        ("UTC", "29:00-30:00", ""),
        ("UTC", "09:30-24:01", ""),
        ("UTC", None, "weekdays"),
        ("UTC", None, "mon-"),
    ],
)
def test_calendars_that_are_none(zone: str, session: str | None, days: str) -> None:
    with pytest.raises(ConfigurationError):
        read_calendar(zone, session, days=days)


def test_hours_may_have_seconds_and_end_with_the_day() -> None:
    calendar = read_calendar("UTC", "09:30:15-24:00", days="fri-mon,wed")
    assert (calendar.opens_ns, calendar.closes_ns) == (9 * HOUR + 30 * MINUTE + 15 * SECOND, DAY)
    assert calendar.weekdays == (0, 2, 4, 5, 6)
    assert Interval("1mo", 31 * DAY, 1).days == 0
