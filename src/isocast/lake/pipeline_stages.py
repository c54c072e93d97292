"""The stages of the pipeline: journals to bronze, to silver (tape, quotes), to gold (bars, VWAP, spreads).

Bronze has a table of events, from which all others follow, and one of opaque messages, which stands for itself.
Each table remembers up to which version of bronze it goes, and what it needs to go on: quotes that stand, ids that were
used, days that began. A correction of a trade of before rewrites the file that holds it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import reduce
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from isocast.lake.schemas import RELEASED_SCHEMA
from isocast.lake.source.options import struct_of
from isocast.lake.tables import DataFile, Lake, LakeTable, make_folder, sync_file, sync_folder
from isocast.lake.transforms.asof import LEFT_OUT, NOTED, spreads, trade_spreads
from isocast.lake.transforms.bars import (
    Calendar,
    Interval,
    bar_parts,
    grown_bars,
    read_calendar,
    read_interval,
    rolling_vwap,
    whole_bars,
)
from isocast.lake.transforms.books import BOOK_STATE_SCHEMA, DAY_COLUMNS, BookDays, book_columns, followed_books
from isocast.lake.transforms.exchanges import exchange_calendar
from isocast.lake.transforms.quotes import STANDING_COLUMNS, quotes_across_floors, trades_with_quotes
from isocast.lake.transforms.slices import QUOTE_STATE_SCHEMA, Sliced, in_slices
from isocast.lake.transforms.survey import Amendment, FloorDays, Survey, SymbolLine, survey_files
from isocast.lake.transforms.tape import TAPE_COLUMNS, TapeMemory, amended, next_tape, reported_trades
from isocast.terms.market import EventKind
from isocast.terms.quantities import counted
from isocast.ticker.books import DAY_MARK

__all__ = [
    "DAY_NS",
    "HOUR_NS",
    "BronzeNews",
    "BronzeSink",
    "PipelineReport",
    "StoppedError",
    "Tell",
    "advance_bars",
    "advance_books",
    "advance_quotes",
    "advance_spreads",
    "advance_tape",
    "advance_vwap",
    "calendar_of",
    "date_of",
    "news_of",
    "spread_counts",
]


HOUR_NS = 3_600 * 1_000_000_000
DAY_NS = 24 * HOUR_NS

_REPORT_COLUMNS = (
    "stripe",
    "sequence",
    "index",
    "kind",
    "side",
    "flags",
    "floor",
    "symbol",
    "price",
    "quantity",
    "reference",
    "id",
    "event_ns",
    "due_ns",
)
_ID_SCHEMA = pa.schema(
    [
        pa.field("stripe", pa.int32()),
        pa.field("symbol", pa.string()),
        pa.field("floor", pa.string()),
        pa.field("least", pa.int64()),
        pa.field("most", pa.int64()),
    ]
)


def date_of(moment_ns: Column) -> Column:
    """The day of a moment, UTC."""
    return F.date_from_unix_date(F.call_function("div", moment_ns, F.lit(DAY_NS)).cast("int"))


def _dated(lake: Lake, rows: DataFrame) -> DataFrame:
    """Rows of silver with the day of their release, by which they are partitioned, and their trading day."""
    day = calendar_of(lake).trading_day_of(F.col("event_ns"))
    return rows.withColumn("date", date_of(F.col("due_ns"))).withColumn("trading_day", day)


_Found = tuple[Sliced, Survey]


@dataclass(frozen=True)
class BronzeNews:
    """Bronze up to a version, as it is when tables begin to catch up: it goes on meanwhile."""

    version: int
    found: _Found | None = None
    """What quotes and tape both do not know; None if that is nothing, or not the same."""


def news_of(spark: SparkSession, lake: Lake) -> BronzeNews:
    """What there is to catch up with now."""
    version = lake.released.snapshot().version
    quotes, tape = (_new_files(lake, table, version) for table in (lake.quotes, lake.tape))
    shared = _look_into(spark, lake, lake.quotes, quotes) if quotes and quotes == tape else None
    return BronzeNews(version, shared)


def advance_quotes(spark: SparkSession, lake: Lake, news: BronzeNews) -> int:
    """Quotes catch up; how many rows came."""
    files = _new_files(lake, lake.quotes, news.version)
    if not files:
        return 0
    slices, _ = news.found or _look_into(spark, lake, lake.quotes, files)
    rows = _dated(lake, quotes_across_floors(slices))
    state = {"quotes": slices.carry.closing()}
    return _commit(lake.quotes, rows, state, {"released_version": news.version})


def advance_tape(spark: SparkSession, lake: Lake, news: BronzeNews) -> int:
    """The tape catches up; how many rows came or changed."""
    files = _new_files(lake, lake.tape, news.version)
    released = lake.released.read(spark, files)
    if released is None:
        return 0
    slices, survey = news.found or _look_into(spark, lake, lake.tape, files)
    trades = reported_trades(trades_with_quotes(slices, _REPORT_COLUMNS))
    step = next_tape(released, lambda: lake.tape.read(spark), _memory(lake), trades, survey)
    columns = (*TAPE_COLUMNS, *STANDING_COLUMNS)
    rows = step.trades.select(*columns)
    changed: list[DataFile] = []
    if step.amendments:
        changed = _files_of(spark, lake.tape, step.amendments)
        old = lake.tape.read(spark, changed)
        if old is not None:
            rows = rows.unionByName(amended(old, step.amendments).select(*columns))
    state = {"quotes": slices.carry.closing(), "ids": _id_table(step.memory)}

    def said(added: list[DataFile]) -> dict[str, Any]:
        return {
            "released_version": news.version,
            "days": step.memory.days.as_json(),
            "hours": _hours(lake.tape, added),
            "amends": bool(changed),
        }

    return _commit(lake.tape, _dated(lake, rows), state, said, changed)


def advance_books(spark: SparkSession, lake: Lake, news: BronzeNews) -> int:
    """Books catch up; how many changes of their best levels came."""
    files = _new_files(lake, lake.books, news.version)
    if not files:
        return 0
    notes = lake.books.snapshot().notes
    days, before = BookDays.from_json(notes.get("days", {})), dict(notes.get("faults", {}))
    said = {"released_version": news.version, "days": days.as_json(), "faults": before}
    if not _has_orders(lake, files):
        # Nothing to follow: what stands goes on standing.
        lake.books.commit(None, lambda _: {**said, **{name: notes[name] for name in ("state",) if name in notes}})
        return 0
    days.late |= _joined_late(lake)
    released = lake.released.read(spark, files)
    if released is None:
        return 0
    marks = released.where((F.col("kind") == int(EventKind.MARK)) & (F.col("reference") == DAY_MARK))
    found = marks.select(*DAY_COLUMNS).collect()
    name = notes.get("state", {}).get("books")
    standing = spark.read.parquet(str(lake.books.path / "_state" / name)) if name else None
    made = followed_books(released, standing, days, found, lake.settings.depth).persist(StorageLevel.DISK_ONLY)
    try:
        noted = made.where("note IS NOT NULL").select(*BOOK_STATE_SCHEMA.names).toArrow()
        is_state = pc.is_in(noted["note"], pa.array(["book", "order"]))
        for row in noted.filter(pc.invert(is_state)).to_pylist():
            before[row["note"]] = before.get(row["note"], 0) + row["quantity"]
        rows = in_slices(made.where("note IS NULL").select(*book_columns(lake.settings.depth)))
        said = {"released_version": news.version, "days": days.as_json(), "faults": before}
        state = {"books": noted.filter(is_state)}
        return _commit(lake.books, _dated(lake, rows), state, said)
    finally:
        made.unpersist()


def _has_orders(lake: Lake, files: Sequence[DataFile]) -> bool:
    """Whether some events are of books, or begin days of floors; by one column of the files."""
    kinds = [int(kind) for kind in (EventKind.ORDER, EventKind.CANCEL, EventKind.REPLACE, EventKind.MARK)]
    return any(
        bool(pc.any(pc.is_in(batch["kind"], pa.array(kinds, pa.int8()))).as_py())
        for file in files
        for batch in pq.ParquetFile(lake.released.path / file.path).iter_batches(1 << 20, columns=["kind"])
    )


def _joined_late(lake: Lake) -> set[int]:
    """Stripes of which the lake may not have the beginning: their first event is not in the first message."""
    first: dict[int, int] = {}
    for file in lake.released.snapshot().files:
        stripe = int(file.partition["stripe"])
        first[stripe] = min(first.get(stripe, 1 << 63), _sequences(lake.released.path / file.path)[0])
    return {stripe for stripe, sequence in first.items() if sequence > 1}


def _new_files(lake: Lake, table: LakeTable, version: int) -> list[DataFile]:
    """Files of bronze, up to a version, that a table does not know."""
    known = table.snapshot().notes.get("released_version", 0)
    return lake.released.added_since(known, version)


def _look_into(spark: SparkSession, lake: Lake, table: LakeTable, files: Sequence[DataFile]) -> _Found:
    """New files of bronze, in slices that begin where a table ends."""
    paths = [(str(lake.released.path / file.path), int(file.partition["stripe"])) for file in files]
    earlier = _state(table, "quotes", QUOTE_STATE_SCHEMA)
    return survey_files(spark, paths, struct_of(RELEASED_SCHEMA), earlier)


def _memory(lake: Lake) -> TapeMemory:
    notes = lake.tape.snapshot().notes
    ids = _state(lake.tape, "ids", _ID_SCHEMA).to_pylist()
    spans = {SymbolLine(row["stripe"], row["symbol"], row["floor"]): (row["least"], row["most"]) for row in ids}
    return TapeMemory(FloorDays.from_json(notes.get("days", [])), spans)


def _id_table(memory: TapeMemory) -> pa.Table:
    rows = [(*line, *span) for line, span in sorted(memory.ids.items())]
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(_ID_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ID_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_ID_SCHEMA)


def _state(table: LakeTable, name: str, schema: pa.Schema) -> pa.Table:
    """What the newest commit of a table kept under a name."""
    file = table.snapshot().notes.get("state", {}).get(name)
    return pq.read_table(table.path / "_state" / file) if file else schema.empty_table()


def _commit(
    table: LakeTable,
    rows: DataFrame,
    state: Mapping[str, pa.Table],
    notes: Any,  # noqa: ANN401 - a mapping, or what makes one from the files that were added
    removed: Sequence[DataFile] = (),
) -> int:
    """Rows and state together: the log entry names the files of both."""
    version = table.snapshot().version + 1
    place = table.path / "_state"
    make_folder(place)
    names = {name: f"{name}-{version:08}" for name in state}
    for name, content in state.items():
        pq.write_table(content, place / names[name])
        sync_file(place / names[name])
    sync_folder(place)
    came = 0

    def said(added: list[DataFile]) -> dict[str, Any]:
        nonlocal came
        came = sum(file.rows for file in added)
        return {**(notes(added) if callable(notes) else notes), "state": names}

    table.commit(rows, said, removed)
    for path in place.iterdir():
        if path.name not in names.values():
            path.unlink()
    return came


def _files_of(spark: SparkSession, table: LakeTable, amendments: Sequence[Amendment]) -> list[DataFile]:
    """The files that hold some trades."""
    earlier = table.read(spark)
    if earlier is None:
        return []
    keys = [(each.stripe, *each.place) for each in amendments]
    wanted = spark.createDataFrame(keys, "stripe INT, sequence BIGINT, index INT")
    found = (
        earlier.select("stripe", "sequence", "index", F.col("_metadata.file_path").alias("file"))
        .join(F.broadcast(wanted), ["stripe", "sequence", "index"], "left_semi")
        .select("file")
        .distinct()
        .collect()
    )
    names = {Path(row["file"].removeprefix("file:")).name for row in found}
    return [file for file in table.snapshot().files if Path(file.path).name in names]


def _hours(table: LakeTable, files: Sequence[DataFile]) -> list[int]:
    """Hours since 1970, by the floors' clocks, of the trades in some files."""
    found: set[int] = set()
    for file in files:
        with pq.ParquetFile(table.path / file.path) as opened:
            for batch in opened.iter_batches(1 << 20, columns=["event_ns"]):
                found.update(np.unique(batch["event_ns"].to_numpy() // HOUR_NS).tolist())
    return sorted(found)


# ---- Journals to bronze: each batch of the stream is one commit, made once however often Spark brings it.


Tell = Callable[[str], None]
"""Progress, a line at a time."""


@dataclass
class PipelineReport:
    """What a job did."""

    events: int = 0
    """That came into bronze."""
    messages: int = 0
    """Opaque ones, that came into bronze."""
    batches: int = 0
    """Of events."""
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of each table behind it: version, rows, files and bytes, and replaced files that stay for readers."""
    spreads: dict[str, int] = field(default_factory=dict)
    """Trades with a spread, and those without one, by reason."""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "events": self.events,
            "messages": self.messages,
            "batches": self.batches,
            "seconds": round(self.seconds, 3),
            "tables": self.tables,
            "spreads": self.spreads,
        }


class StoppedError(Exception):
    """A batch came after the end: the next job does it."""


class BronzeSink:
    """Writes each batch of a stream once, into one table of bronze."""

    def __init__(self, lake: Lake, table: LakeTable, tell: Tell, after: Callable[[], None] = lambda: None) -> None:
        """`after` is called behind each commit."""
        self.error: BaseException | None = None
        self.table = table
        self.rows = 0
        """That came."""
        self.batches = 0
        self._lake = lake
        self._tell = tell
        self._after = after
        self._at_work = Lock()
        self._is_closed = False

    def close(self) -> None:
        """No batch from now on; the one at hand is finished first, for Spark would break it off."""
        with self._at_work:
            self._is_closed = True

    def take(self, batch: DataFrame, number: int) -> None:
        """What Spark calls for each batch, again after a restart if it does not know how it ended."""
        try:
            with self._at_work:
                if self._is_closed:
                    # Not silently: Spark would believe that it was written.
                    raise StoppedError  # noqa: TRY301 - kept as the error of this sink
                self._take(batch, number)
        except BaseException as error:
            self.error = error
            raise

    def _take(self, batch: DataFrame, number: int) -> None:
        table = self.table
        query = json.loads((self._lake.checkpoint(table) / "metadata").read_text(encoding="utf-8"))["id"]
        notes = table.snapshot().notes
        if notes.get("query") == query and notes.get("batch", -1) >= number:
            return
        offsets: dict[str, int] = dict(notes.get("offsets", {}))
        if notes.get("query", query) != query:
            # The checkpoint is another one: what bronze has already must not come twice.
            known = F.create_map(*[F.lit(part) for pair in offsets.items() for part in (int(pair[0]), pair[1])])
            batch = batch.where(F.col("sequence") >= F.coalesce(known[F.col("stripe")], F.lit(0)))
        came = 0

        def said(added: list[DataFile]) -> dict[str, Any]:
            nonlocal came
            came = sum(file.rows for file in added)
            for file in added:
                stripe = file.partition["stripe"]
                offsets[stripe] = max(offsets.get(stripe, 0), _sequences(table.path / file.path)[1] + 1)
            return {"offsets": offsets, "query": query, "batch": number}

        # Many markets have no opaque messages: a stream of them leaves no commits behind.
        is_events = table is self._lake.released
        table.commit(batch.withColumn("date", date_of(F.col("due_ns"))), said, only_rows=not is_events)
        self.rows += came
        self.batches += 1
        if came or is_events:
            noun = "event" if is_events else "message"
            self._tell(f"{table.name}: {counted(came, noun)}, {table.snapshot().rows:,} in all")
        self._after()


def _sequences(path: Path) -> tuple[int, int]:
    """The least and the greatest sequence of a file, from its statistics."""
    metadata = pq.read_metadata(path)
    column = metadata.schema.names.index("sequence")
    groups = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
    return int(min(group.min for group in groups)), int(max(group.max for group in groups))


# ---- Silver to gold: bars and VWAP go on with new trades; spreads are made anew for the days that have changed.
#
# A bar that has begun goes on without the trades that it has already: a batch costs what is new, whatever came before
# it in that hour. Where a trade of before was corrected or cancelled, the bars of its hours are made anew from the
# tape.


_HOURS = 24
_Span = tuple[str, int]
"""An interval, and an hour since 1970 in which bars begin: one partition of bars and VWAP."""


def calendar_of(lake: Lake) -> Calendar:
    """Zone and hours of a lake's gold tables."""
    if lake.settings.calendar:
        return exchange_calendar(lake.settings.calendar)
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
            frames.append(_placed(made, text, calendar).where(_is_in(own)))
        else:
            parts = bar_parts(tape, interval, calendar)
            before = lake.bars.read(spark, files) if files else None
            frames.append(_placed(whole_bars(parts) if before is None else grown_bars(before, parts), text, calendar))
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
        made = _placed(spreads(each, interval, calendar), interval.text, calendar)
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


def _changed(lake: Lake, table: LakeTable) -> tuple[int, list[int]]:
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


def _files_in(table: LakeTable, spans: set[_Span]) -> list[DataFile]:
    return [file for file in table.snapshot().files if _span_of(file) in spans]


def _span_of(file: DataFile) -> _Span:
    partition = file.partition
    hour = _midnight(partition["date"]) // HOUR_NS + int(partition["hour"])
    return partition["interval"], hour


def _is_in(spans: set[_Span]) -> Column:
    """Whether a bar, which has its partition's columns, belongs to some spans of its interval."""
    return F.call_function("div", F.col("start_ns"), F.lit(HOUR_NS)).isin(sorted(hour for _, hour in spans))


def _placed(made: DataFrame, interval: str, calendar: Calendar) -> DataFrame:
    """Rows with the moment as people read it, and the columns by which they are partitioned."""
    hour = F.pmod(F.call_function("div", F.col("start_ns"), F.lit(HOUR_NS)), F.lit(_HOURS)).cast("int")
    return made.select(
        "*",
        F.timestamp_micros(F.call_function("div", F.col("start_ns"), F.lit(1_000))).alias("start"),
        F.lit(interval).alias("interval"),
        calendar.trading_day_of(F.col("start_ns")).alias("trading_day"),
        date_of(F.col("start_ns")).alias("date"),
        hour.alias("hour"),
    )


def _replace(table: LakeTable, frames: Sequence[DataFrame], gone: Sequence[DataFile], notes: dict[str, object]) -> int:
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
