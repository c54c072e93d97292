"""Silver to gold: bars and VWAP go on with new trades; spreads are made anew for the days that have changed.

A bar that has begun goes on without the trades that it has already: a batch costs what is new, whatever came before it
in that hour. Where a trade of before was corrected or cancelled, the bars of its hours are made anew from the tape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from isocast.lake.pipeline_silver import DAY_NS, HOUR_NS, date_of
from isocast.lake.tables import DataFile, Lake, Table
from isocast.lake.transforms.bars import bar_parts, grown_bars, whole_bars
from isocast.lake.transforms.calendars import Calendar, Interval, read_calendar, read_interval
from isocast.lake.transforms.spreads import spreads, trade_spreads
from isocast.lake.transforms.vwap import rolling_vwap

__all__ = ["advance_bars", "advance_spreads", "advance_vwap", "calendar_of"]

_HOURS = 24
_Span = tuple[str, int]
"""An interval, and an hour since 1970 in which bars begin: one partition of bars and VWAP."""


def calendar_of(lake: Lake) -> Calendar:
    """Zone and hours of a lake's gold tables."""
    return read_calendar(lake.settings.zone, lake.settings.session or None)


def advance_bars(spark: SparkSession, lake: Lake) -> int:
    """Bars of every hour in which trades came or changed; how many rows were written."""
    known = lake.bars.snapshot().notes.get("tape_version", 0)
    version, hours = _changed(lake, lake.bars)
    amends = any(note.get("amends") for note in lake.tape.notes_since(known))
    tape = lake.tape.read(spark, None if amends else lake.tape.added_since(known))
    if not hours or tape is None:
        return 0
    calendar = calendar_of(lake)
    frames, gone, spans = [], [], []
    for text in lake.settings.intervals:
        interval = read_interval(text)
        own = {(text, hour) for hour in _hours_of_bars(hours, interval, calendar)}
        files = _files_in(lake.bars, own)
        if amends:
            made = whole_bars(bar_parts(_within(tape, hours, interval), interval, calendar))
            frames.append(_placed(made, text).where(_is_in(own)))
        else:
            parts = bar_parts(tape, interval, calendar)
            before = lake.bars.read(spark, files) if files else None
            frames.append(_placed(whole_bars(parts) if before is None else grown_bars(before, parts), text))
        gone += files
        spans += sorted(own)
    return _replace(lake.bars, frames, gone, {"tape_version": version, "spans": spans})


def advance_vwap(spark: SparkSession, lake: Lake) -> int:
    """VWAP of every bar that has changed, and of those whose window reaches back to one that has."""
    known, now = lake.vwap.snapshot().notes.get("bars_version", 0), lake.bars.snapshot()
    changed = {(text, hour) for note in lake.bars.notes_since(known) for text, hour in note["spans"]}
    if not changed:
        return 0
    window = read_interval(lake.settings.window)
    reach = -(-window.ns // HOUR_NS)
    wanted = {(text, hour + ahead) for text, hour in changed for ahead in range(reach + 1)}
    near = {(text, hour - back) for text, hour in wanted for back in range(reach + 1)}
    frames = []
    for text in lake.settings.intervals:
        bars = lake.bars.read(spark, _files_in(lake.bars, {span for span in near if span[0] == text}))
        if bars is not None:
            columns = ("symbol", "start_ns", "start", "volume", "turnover", "vwap", "interval", "date", "hour")
            own = {span for span in wanted if span[0] == text}
            frames.append(rolling_vwap(bars.select(*columns), window).where(_is_in(own)))
    return _replace(lake.vwap, frames, _files_in(lake.vwap, wanted), {"bars_version": now.version})


def advance_spreads(spark: SparkSession, lake: Lake) -> int:
    """Spreads of every day in which trades came or changed."""
    version, hours = _changed(lake, lake.spreads)
    tape, quotes = lake.tape.read(spark), lake.quotes.read(spark)
    if not hours or tape is None or quotes is None:
        return 0
    calendar, horizon = calendar_of(lake), read_interval(lake.settings.horizon)
    days = _days_around(hours)
    low, high = _midnight(days[0]) - DAY_NS, _midnight(days[-1]) + 2 * DAY_NS
    near = [frame.where(F.col("event_ns").between(low, high)) for frame in (tape, quotes)]
    each = trade_spreads(near[0], near[1], horizon)
    frames = [
        _placed(spreads(each, read_interval(text), calendar), text).where(F.col("date").isin(days)).drop("hour")
        for text in lake.settings.intervals
    ]
    gone = [file for file in lake.spreads.snapshot().files if file.partition["date"] in days]
    return _replace(lake.spreads, frames, gone, {"tape_version": version})


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


def _hours_of_bars(hours: Iterable[int], interval: Interval, calendar: Calendar) -> set[int]:
    """Hours in which bars begin that trades of some hours belong to."""
    ends = ((hour * HOUR_NS, (hour + 1) * HOUR_NS - 1) for hour in hours)
    return {
        hour
        for first, last in ends
        for hour in (calendar.start_at(first, interval) // HOUR_NS, calendar.start_at(last, interval) // HOUR_NS)
    } | (set() if interval.days else set(hours))


def _files_in(table: Table, spans: set[_Span]) -> list[DataFile]:
    return [file for file in table.snapshot().files if _span_of(file) in spans]


def _span_of(file: DataFile) -> _Span:
    partition = file.partition
    hour = _midnight(partition["date"]) // HOUR_NS + int(partition["hour"])
    return partition["interval"], hour


def _is_in(spans: set[_Span]) -> Column:
    """Whether a bar, which has its partition's columns, belongs to some spans of its interval."""
    return F.call_function("div", F.col("start_ns"), F.lit(HOUR_NS)).isin(sorted(hour for _, hour in spans))


def _placed(made: DataFrame, interval: str) -> DataFrame:
    """Rows with the moment as people read it, and the columns by which they are partitioned."""
    hour = F.pmod(F.call_function("div", F.col("start_ns"), F.lit(HOUR_NS)), F.lit(_HOURS)).cast("int")
    return made.select(
        "*",
        F.timestamp_micros(F.call_function("div", F.col("start_ns"), F.lit(1_000))).alias("start"),
        F.lit(interval).alias("interval"),
        date_of(F.col("start_ns")).alias("date"),
        hour.alias("hour"),
    )


def _replace(table: Table, frames: Sequence[DataFrame], gone: Sequence[DataFile], notes: dict[str, object]) -> int:
    came = 0

    def said(added: list[DataFile]) -> dict[str, object]:
        nonlocal came
        came = sum(file.rows for file in added)
        return notes

    # Bars are few: one file for each partition, in the order in which people read them.
    rows = reduce(DataFrame.unionByName, frames).repartition(1) if frames else None
    ordered = None if rows is None else rows.sortWithinPartitions(*table.keys, "symbol", "start_ns")
    table.commit(ordered, said, gone)
    return came


def _days_around(hours: Sequence[int]) -> list[str]:
    """Days of some hours, and those before and behind them."""
    days = {day for hour in hours for day in range(hour // _HOURS - 1, hour // _HOURS + 2)}
    return [_day(number) for number in sorted(days)]


def _day(number: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=number)).isoformat()


def _midnight(day: str) -> int:
    return (date.fromisoformat(day) - date(1970, 1, 1)).days * DAY_NS
