"""Silver to gold: bars, VWAP and spreads of the hours that have changed, and of no others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from isocast.lake.pipeline_silver import DAY_NS, HOUR_NS, date_of
from isocast.lake.tables import DataFile, Lake, Table
from isocast.lake.transforms.bars import bars
from isocast.lake.transforms.calendars import Calendar, Interval, read_calendar, read_interval
from isocast.lake.transforms.spreads import spreads, trade_spreads
from isocast.lake.transforms.vwap import rolling_vwap

__all__ = ["advance_bars", "advance_spreads", "advance_vwap", "calendar_of"]

_Span = tuple[str, int]


def calendar_of(lake: Lake) -> Calendar:
    """Zone and hours of a lake's gold tables."""
    return read_calendar(lake.settings.zone, lake.settings.session or None)


def advance_bars(spark: SparkSession, lake: Lake) -> int:
    """Bars of every hour in which trades came or changed; how many rows were written."""
    version, hours = _changed(lake, lake.bars)
    tape = lake.tape.read(spark)
    if not hours or tape is None:
        return 0
    calendar = calendar_of(lake)
    frames, spans = [], set()
    for text in lake.settings.intervals:
        interval = read_interval(text)
        own = _spans(spark, hours, interval, calendar)
        spans |= {(text, *span) for span in own}
        made = bars(_within(tape, hours, interval), interval, calendar)
        frames.append(_placed(made, text).where(F.concat_ws("/", "date", "hour").isin([f"{a}/{b}" for a, b in own])))
    gone = [file for file in lake.bars.snapshot().files if _span_of(file) in spans]
    return _replace(lake.bars, _union(frames), gone, version)


def advance_vwap(spark: SparkSession, lake: Lake) -> int:
    """VWAP of every day whose bars have changed, with that of the window before each bar."""
    version, hours = _changed(lake, lake.vwap)
    made = lake.bars.read(spark)
    if not hours or made is None:
        return 0
    window = read_interval(lake.settings.window)
    days = _days_around(hours, after_ns=window.ns + DAY_NS)
    near = made.where(F.col("date").between(_shift(days[0], -2), days[-1])).select(
        "symbol", "start_ns", "start", "volume", "turnover", "vwap", "interval", "date"
    )
    frames = [
        rolling_vwap(near.where(F.col("interval") == text), window).where(F.col("date").isin(days))
        for text in lake.settings.intervals
    ]
    gone = [file for file in lake.vwap.snapshot().files if file.partition["date"] in days]
    return _replace(lake.vwap, _union(frames), gone, version)


def advance_spreads(spark: SparkSession, lake: Lake) -> int:
    """Spreads of every day in which trades came or changed."""
    version, hours = _changed(lake, lake.spreads)
    tape, quotes = lake.tape.read(spark), lake.quotes.read(spark)
    if not hours or tape is None or quotes is None:
        return 0
    calendar, horizon = calendar_of(lake), read_interval(lake.settings.horizon)
    days = _days_around(hours, after_ns=DAY_NS)
    low, high = _midnight(days[0]) - DAY_NS, _midnight(days[-1]) + 2 * DAY_NS
    near = [frame.where(F.col("event_ns").between(low, high)) for frame in (tape, quotes)]
    each = trade_spreads(near[0], near[1], horizon)
    frames = [
        _placed(spreads(each, read_interval(text), calendar), text).where(F.col("date").isin(days)).drop("hour")
        for text in lake.settings.intervals
    ]
    gone = [file for file in lake.spreads.snapshot().files if file.partition["date"] in days]
    return _replace(lake.spreads, _union(frames), gone, version)


def _changed(lake: Lake, table: Table) -> tuple[int, list[int]]:
    """The tape's version, and the hours that changed since a table was made from it."""
    known = table.snapshot().notes.get("tape_version", 0)
    notes = lake.tape.notes_since(known)
    return lake.tape.snapshot().version, sorted({hour for note in notes for hour in note.get("hours", [])})


def _within(tape: DataFrame, hours: Sequence[int], interval: Interval) -> DataFrame:
    """Trades that can belong to bars of some hours: a bar may begin before its hour and end behind it."""
    slack = interval.ns + (DAY_NS if interval.days else HOUR_NS)
    low, high = hours[0] * HOUR_NS - slack, (hours[-1] + 1) * HOUR_NS + slack
    return tape.where(F.col("event_ns").between(low, high))


def _spans(spark: SparkSession, hours: Sequence[int], interval: Interval, calendar: Calendar) -> list[_Span]:
    """Days and hours in which bars of some hours begin."""
    if calendar.zone == "UTC" and not calendar.has_session and not interval.days:
        starts = {at - at % interval.ns for hour in hours for at in (hour * HOUR_NS, (hour + 1) * HOUR_NS - 1)}
        whole = starts | {hour * HOUR_NS for hour in hours}
        return sorted({(_day(at // DAY_NS), at // HOUR_NS % 24) for at in whole})
    moments = [(at,) for hour in hours for at in (hour * HOUR_NS, (hour + 1) * HOUR_NS - 1)]
    frame = spark.createDataFrame(moments, "at BIGINT")
    begun = frame.select(calendar.start_of(F.col("at"), interval).alias("start_ns"))
    both = begun.unionByName(frame.select(F.col("at").alias("start_ns")))
    rows = both.select(date_of(F.col("start_ns")).cast("string"), _hour_of()).distinct().collect()
    return sorted((row[0], row[1]) for row in rows)


def _hour_of() -> Column:
    return F.pmod(F.call_function("div", F.col("start_ns"), F.lit(HOUR_NS)), F.lit(24)).cast("int").alias("hour")


def _placed(made: DataFrame, interval: str) -> DataFrame:
    """Rows with the moment as people read it, and the columns by which they are partitioned."""
    return made.select(
        "*",
        F.timestamp_micros(F.call_function("div", F.col("start_ns"), F.lit(1_000))).alias("start"),
        F.lit(interval).alias("interval"),
        date_of(F.col("start_ns")).cast("string").alias("date"),
        _hour_of(),
    )


def _span_of(file: DataFile) -> tuple[str, str, int]:
    partition = file.partition
    return partition["interval"], partition["date"], int(partition["hour"])


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def _replace(table: Table, rows: DataFrame, gone: Sequence[DataFile], version: int) -> int:
    came = 0

    def said(added: list[DataFile]) -> dict[str, int]:
        nonlocal came
        came = sum(file.rows for file in added)
        return {"tape_version": version}

    # Bars are few: one file for each partition, in the order in which people read them.
    table.commit(rows.repartition(1).sortWithinPartitions(*table.keys, "symbol", "start_ns"), said, gone)
    return came


def _days_around(hours: Sequence[int], after_ns: int) -> list[str]:
    """Days of some hours, and those that follow within a time."""
    days = {
        day for hour in hours for day in range(hour * HOUR_NS // DAY_NS - 1, (hour * HOUR_NS + after_ns) // DAY_NS + 1)
    }
    return [_day(number) for number in sorted(days)]


def _day(number: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=number)).isoformat()


def _shift(day: str, days: int) -> str:
    return _day(_midnight(day) // DAY_NS + days)


def _midnight(day: str) -> int:
    return (date.fromisoformat(day) - date(1970, 1, 1)).days * DAY_NS
