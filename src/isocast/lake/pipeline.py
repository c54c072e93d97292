"""The pipeline: journals, or the network itself, into tables; as one batch, or as a stream that goes on.

Both fill bronze by the same stream, so that each event is there exactly once whatever is killed, and whichever of the
two ran before. Silver and gold follow from bronze, version by version: each table knows how far it is, and a job that
was killed between two of them goes on where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from isocast.lake.pipeline_close import compact
from isocast.lake.pipeline_gold import advance_bars, advance_spreads, advance_vwap
from isocast.lake.pipeline_silver import advance_silver, date_of
from isocast.lake.tables import DataFile, Lake, Table
from isocast.terms.errors import ConfigurationError, IsocastError

__all__ = ["BATCH_ROWS", "Origin", "Report", "advance", "run", "stream"]

BATCH_ROWS = 4_000_000
"""Events of one commit of bronze, unless somebody says otherwise: what a machine with little memory takes at once."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where events come from: a directory of journals, or a market's retransmit servers."""

    journals: Path | None = None
    market: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of `format("isocast")`, such as receiver or server."""

    def frame(self, spark: SparkSession, offsets: Mapping[str, int] | None, max_rows: int) -> DataFrame:
        """Everything from some offsets on."""
        reader = spark.readStream.format("isocast").options(**self.options).option("maxRowsPerTrigger", max_rows)
        if offsets is not None:
            reader = reader.option("startingOffsets", json.dumps(offsets))
        if self.market is not None:
            return reader.option("market", str(self.market)).load()
        if self.journals is None:
            raise ConfigurationError("command line", "--journals", "say where events come from: --journals or --market")
        return reader.load(str(self.journals))


@dataclass
class Report:
    """What a job did."""

    events: int = 0
    """That came into bronze."""
    batches: int = 0
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    """Version and rows of each table behind it."""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "events": self.events,
            "batches": self.batches,
            "seconds": round(self.seconds, 3),
            "tables": self.tables,
        }


def run(
    spark: SparkSession, lake: Lake, origin: Origin, *, max_rows: int = BATCH_ROWS, tell: Tell = lambda _: None
) -> Report:
    """Everything that is there now into all tables, and the days closed: spreads made, small files put together."""
    report = Report()
    began = time.monotonic()
    with lake.writing():
        sink = _Bronze(lake, report, tell, after=lambda: None)
        _go(spark, lake, origin, sink, max_rows, {"availableNow": True}, lambda _: True)
        advance(spark, lake, tell=tell, close=True)
    return _finished(lake, report, began)


def stream(
    spark: SparkSession,
    lake: Lake,
    origin: Origin,
    *,
    every_s: float = 2.0,
    available_now: bool = False,
    max_rows: int = BATCH_ROWS,
    go_on: Callable[[StreamingQuery], bool] = lambda _: True,
    tell: Tell = lambda _: None,
) -> Report:
    """Bronze, tape, quotes, bars and VWAP follow the market, until `go_on` says no; asked once a second or so.

    `available_now` ends with what is there at the beginning.
    """
    report = Report()
    began = time.monotonic()
    with lake.writing():
        sink = _Bronze(lake, report, tell, after=lambda: advance(spark, lake, tell=tell))
        trigger: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": f"{every_s} seconds"}
        # What a killed job had in bronze and not in the others comes first.
        advance(spark, lake, tell=tell)
        _go(spark, lake, origin, sink, max_rows, trigger, go_on)
    return _finished(lake, report, began)


def advance(spark: SparkSession, lake: Lake, *, tell: Tell = lambda _: None, close: bool = False) -> None:
    """Silver and gold catch up with bronze; `close` does what is done once, and not for each batch of a stream."""
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "64")
    # Files are few and known by name: listing them needs no job of its own.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "100000")
    for table, rows in zip((lake.quotes, lake.tape), advance_silver(spark, lake), strict=True):
        _tell_rows(table, rows, tell)
    _tell_rows(lake.bars, advance_bars(spark, lake), tell)
    _tell_rows(lake.vwap, advance_vwap(spark, lake), tell)
    if close:
        _tell_rows(lake.spreads, advance_spreads(spark, lake), tell)
        for table in (lake.released, lake.tape, lake.quotes):
            rows = compact(spark, table)
            if rows:
                tell(f"{table.name}: {rows:,} rows of small files put together")


def _tell_rows(table: Table, rows: int, tell: Tell) -> None:
    if rows:
        tell(f"{table.name}: {rows:,} rows")


def _finished(lake: Lake, report: Report, began: float) -> Report:
    report.seconds = time.monotonic() - began
    for table in lake.tables:
        now = table.snapshot()
        report.tables[table.name] = {"version": now.version, "rows": now.rows, "files": len(now.files)}
    return report


def _go(
    spark: SparkSession,
    lake: Lake,
    origin: Origin,
    sink: _Bronze,
    max_rows: int,
    trigger: Mapping[str, Any],
    go_on: Callable[[StreamingQuery], bool],
) -> None:
    """Run the stream to its end."""
    # Without it rows are sorted by their partition before they are written, and lose their order.
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "64")
    has_checkpoint = (lake.checkpoint / "metadata").is_file()
    offsets = lake.released.snapshot().notes.get("offsets")
    frame = origin.frame(spark, None if has_checkpoint else offsets, max_rows)
    writer = frame.writeStream.foreachBatch(sink.take).option("checkpointLocation", str(lake.checkpoint))
    query = writer.trigger(**trigger).start()
    try:
        while not query.awaitTermination(1):
            if not go_on(query):
                sink.close()
                query.stop()
                break
        failed = query.exception()
        if failed is not None:
            raise failed
    except StreamingQueryException as error:
        if isinstance(sink.error, _StoppedError):
            return
        if sink.error is not None:
            raise sink.error from None
        raise _named(error) from None
    finally:
        with suppress(Exception):
            query.stop()


def _named(error: StreamingQueryException) -> IsocastError:
    """Our own errors come back as text: the line that names file, key and rule."""
    lines = [line.strip() for line in str(error).splitlines()]
    for line in lines:
        place = line.find("isocast.terms.errors.")
        if place >= 0:
            kind, _, text = line[place + len("isocast.terms.errors.") :].partition(": ")
            return IsocastError(text or kind)
    return IsocastError(next((line for line in lines if line), "the stream has failed"))


class _StoppedError(Exception):
    """A batch came after the end: the next job does it."""


class _Bronze:
    """Writes each batch of the stream once."""

    def __init__(self, lake: Lake, report: Report, tell: Tell, after: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._lake = lake
        self._report = report
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
                    raise _StoppedError  # noqa: TRY301 - kept as the error of this sink
                self._take(batch, number)
        except BaseException as error:
            self.error = error
            raise

    def _take(self, batch: DataFrame, number: int) -> None:
        query = json.loads((self._lake.checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
        table = self._lake.released
        before = table.snapshot()
        notes = before.notes
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
                offsets[stripe] = max(offsets.get(stripe, 0), _last_sequence(table.path / file.path) + 1)
            return {"offsets": offsets, "query": query, "batch": number}

        table.commit(batch.withColumn("date", date_of(F.col("due_ns"))), said)
        self._report.events += came
        self._report.batches += 1
        self._tell(f"{table.name}: {came:,} events, {table.snapshot().rows:,} in all")
        self._after()


def _last_sequence(path: Path) -> int:
    """The greatest sequence of a file, from its statistics."""
    metadata = pq.read_metadata(path)
    column = metadata.schema.names.index("sequence")
    groups = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
    return int(max(group.max for group in groups))
