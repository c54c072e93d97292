"""Silver to gold: bars and VWAP go on with new trades; spreads are made anew for the days that have changed.

A bar that has begun goes on without the trades that it has already: a batch costs what is new, whatever came before it
in that hour. Where a trade of before was corrected or cancelled, the bars of its hours are made anew from the tape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import reduce

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from isocast.lake.pipeline_silver import DAY_NS, HOUR_NS, date_of
from isocast.lake.tables import DataFile, Lake, Table
from isocast.lake.transforms.bars import bar_parts, grown_bars, whole_bars
from isocast.lake.transforms.calendars import Calendar, Interval, read_calendar, read_interval
from isocast.lake.transforms.spreads import LEFT_OUT, NOTED, spreads, trade_spreads
from isocast.lake.transforms.vwap import rolling_vwap

__all__ = ["advance_bars", "advance_spreads", "advance_vwap", "calendar_of", "spread_counts"]

_HOURS = 24
_Span = tuple[str, int]
"""An interval, and an hour since 1970 in which bars begin: one partition of bars and VWAP."""


def calendar_of(lake: Lake) -> Calendar:
    """Zone and hours of a lake's gold tables."""
    return read_calendar(lake.settings.zone, lake.settings.session or None, days=lake.settings.days)


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
    """Spreads of every day on which bars begin whose trades came or changed."""
    version, hours = _changed(lake, lake.spreads)
    tape, quotes = lake.tape.read(spark), lake.quotes.read(spark)
    if not hours or tape is None or quotes is None:
        return 0
    calendar, horizon = calendar_of(lake), read_interval(lake.settings.horizon)
    intervals = [read_interval(text) for text in lake.settings.intervals]
    days = {
        interval.text: sorted({_day(hour // _HOURS) for hour in _hours_of_bars(hours, interval, calendar)})
        for interval in intervals
    }
    # A bar may go on behind the day on which it begins, for as long as it is; its quotes may be older than its trades.
    low = min(_midnight(own[0]) for own in days.values())
    high = max(_midnight(days[interval.text][-1]) + interval.ns for interval in intervals) + 2 * DAY_NS
    near = tape.where(F.col("event_ns").between(low, high))
    each = trade_spreads(near, quotes.where(F.col("event_ns").between(low - DAY_NS, high)), horizon)
    frames = []
    for interval in intervals:
        made = _placed(spreads(each, interval, calendar), interval.text)
        frames.append(made.where(F.col("date").isin(days[interval.text])).drop("hour"))
    files = lake.spreads.snapshot().files
    gone = [file for file in files if file.partition["date"] in days.get(file.partition["interval"], ())]
    return _replace(lake.spreads, frames, gone, {"tape_version": version})


def spread_counts(lake: Lake) -> dict[str, int]:
    """Trades with a spread and without one, by reason, in all of gold/spreads; nothing before it is made."""
    names = ("trades", *LEFT_OUT, *NOTED)
    # Every interval has the same trades: one of them counts.
    own = [file for file in lake.spreads.snapshot().files if file.partition["interval"] == lake.settings.intervals[0]]
    totals = dict.fromkeys(names, 0)
    for file in own:
        table = pq.read_table(lake.spreads.path / file.path, columns=list(names), partitioning=None)
        for name in names:
            totals[name] += pc.sum(table[name]).as_py() or 0
    return totals if own else {}


def _changed(lake: Lake, table: Table) -> tuple[int, list[int]]:
    """The tape's version, and the hours that changed since a table was made from it."""
    known = table.snapshot().notes.get("tape_version", 0)
    notes = lake.tape.notes_since(known)
    return lake.tape.snapshot().version, sorted({hour for note in notes for hour in note.get("hours", [])})


def _within(tape: DataFrame, hours: Sequence[int], interval: Interval) -> DataFrame:
    """Trades that can belong to bars of some hours: a bar may begin before its hour and end behind it."""
    slack = interval.ns + (DAY_NS if interval.is_whole_days else HOUR_NS)
    low, high = hours[0] * HOUR_NS - slack, (hours[-1] + 1) * HOUR_NS + slack
    return tape.where(F.col("event_ns").between(low, high))


def _hours_of_bars(hours: Iterable[int], interval: Interval, calendar: Calendar) -> set[int]:
    """Hours in which bars begin that trades of some hours belong to."""
    ends = ((hour * HOUR_NS, (hour + 1) * HOUR_NS - 1) for hour in hours)
    return {
        hour
        for first, last in ends
        for hour in (calendar.start_at(first, interval) // HOUR_NS, calendar.start_at(last, interval) // HOUR_NS)
    } | (set() if interval.is_whole_days else set(hours))


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


def _day(number: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=number)).isoformat()


def _midnight(day: str) -> int:
    return (date.fromisoformat(day) - date(1970, 1, 1)).days * DAY_NS
