"""The pipeline: journals, or the network itself, into tables; as one batch or as a stream, with compaction behind it.

Both fill bronze by the same streams, one of events and one of opaque messages, so that each of them is there exactly
once whatever is killed, and whichever of the two ran before. Silver and gold follow from bronze, version by version:
each table knows how far it is, and a job that was killed between two of them goes on where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Condition, Event, Thread
from types import TracebackType
from typing import Any, Self

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from isocast.lake.pipeline_stages import (
    BronzeSink,
    PipelineReport,
    StoppedError,
    Tell,
    advance_bars,
    advance_books,
    advance_quotes,
    advance_spreads,
    advance_tape,
    advance_vwap,
    news_of,
    spread_counts,
)
from isocast.lake.tables import DataFile, Lake, LakeTable
from isocast.lake.transforms.slices import SLICE_ROWS, in_slices
from isocast.terms.errors import ConfigurationError, IsocastError
from isocast.terms.quantities import counted

__all__ = [
    "BATCH_ROWS",
    "BackgroundWorker",
    "Origin",
    "PipelineReport",
    "advance",
    "compact",
    "compact_lake",
    "run",
    "stream",
]


# ---- Small files of a stream become few large ones, and old log entries go.


_SMALL_ROWS = SLICE_ROWS // 4
_MOST_SMALL = 8
"""Small files that a partition may keep."""


def compact_lake(spark: SparkSession, lake: Lake, most: int = _MOST_SMALL) -> dict[str, int]:
    """Bronze and silver, as far as all other tables know them; rows that were moved, by table."""
    followers = [table.snapshot().notes for table in (lake.tape, lake.quotes, lake.books)]
    known = {
        lake.released: min(notes.get("released_version", 0) for notes in followers),
        lake.messages: lake.messages.snapshot().version,
        lake.tape: lake.bars.snapshot().notes.get("tape_version", 0),
        lake.quotes: lake.quotes.snapshot().version,
        lake.books: lake.books.snapshot().version,
    }
    moved = {table.name: compact(spark, table, version, most) for table, version in known.items()}
    lake.forget()
    return {name: rows for name, rows in moved.items() if rows}


def compact(spark: SparkSession, table: LakeTable, known: int, most: int = _MOST_SMALL) -> int:
    """Put small files of a partition together, in the order of the sequence; how many rows were moved.

    Only files of commits up to `known`: whoever goes on behind this table reads the others.
    """
    together: dict[tuple[str, ...], list[DataFile]] = {}
    for file in table.snapshot().files:
        if file.rows < _SMALL_ROWS and file.version <= known:
            together.setdefault(tuple(file.partition.values()), []).append(file)
    chosen = [file for files in together.values() if len(files) > most for file in files]
    frame = table.read(spark, chosen) if chosen else None
    if frame is None:
        return 0
    table.compact(in_slices(frame), chosen)
    return sum(file.rows for file in chosen)


# ---- Work that goes on behind other work: silver and gold, while bronze takes the next batch.


class BackgroundWorker:
    """Does its work in a thread of its own, once more whenever it was woken; waking it twice may do it once."""

    def __init__(self, work: Callable[[], None]) -> None:
        """The work begins when it is first woken."""
        self._work = work
        self._changed = Condition()
        self._is_due = self._is_over = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._go, name="follower", daemon=True)

    @property
    def is_well(self) -> bool:
        """Whether the work has not failed."""
        return self._error is None

    def wake(self) -> None:
        """There is something to do."""
        with self._changed:
            self._is_due = True
            self._changed.notify()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is due is finished first; its error is raised, unless there is one already."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _go(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_due or self._is_over)
                if not self._is_due:
                    return
                self._is_due = False
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001 - raised where the work was wanted
                self._error = error
                return


BATCH_ROWS = 4_000_000
"""Events of one commit of bronze, unless somebody says otherwise: what a machine with little memory takes at once."""

STREAM_SMALL = 64
"""Small files that a partition may have while a stream goes on."""

_NO_WORKER = "Python worker failed to connect back"
"""Spark gives the process that reads a stream's source ten seconds to start: too few where a machine is very busy."""
_WORKER_TRIES = 6
"""A stream goes on from its checkpoint: trying again loses and doubles nothing."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where events come from: a directory of journals, or a market's retransmit servers."""

    journals: Path | None = None
    market: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of `format("isocast")`, such as receiver or server."""

    def frame(
        self, spark: SparkSession, offsets: Mapping[str, int] | None, max_rows: int, rows: str = "released"
    ) -> DataFrame:
        """Everything from some offsets on: events, or the rows of another frame of the source."""
        if self.options.get("receiver") == "all":
            raise ConfigurationError(
                "isocast lake", "receiver", "a lake holds each event once, not once for each receiver"
            )
        reader = spark.readStream.format("isocast").options(**self.options).option("frame", rows)
        reader = reader.option("maxRowsPerTrigger", max_rows)
        if offsets is not None:
            reader = reader.option("startingOffsets", json.dumps(offsets))
        if self.market is not None:
            return reader.option("market", str(self.market)).load()
        if self.journals is None:
            raise ConfigurationError("command line", "--journals", "say where events come from: --journals or --market")
        return reader.load(str(self.journals))


def run(
    spark: SparkSession, lake: Lake, origin: Origin, *, max_rows: int = BATCH_ROWS, tell: Tell = lambda _: None
) -> PipelineReport:
    """Everything that is there now into all tables, and the days closed: spreads made, small files put together."""
    began = time.monotonic()
    with lake.writing():
        sinks = BronzeSink(lake, lake.released, tell), BronzeSink(lake, lake.messages, tell)
        _fill(spark, lake, origin, sinks, max_rows, {"availableNow": True})
        advance(spark, lake, tell=tell, close=True)
    return _finished(lake, sinks, began)


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
) -> PipelineReport:
    """Bronze, tape, quotes, bars and VWAP follow the market, until `go_on` says no; asked once a second or so.

    `available_now` ends with what is there at the beginning.
    """
    began = time.monotonic()
    trigger: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": f"{every_s} seconds"}
    with lake.writing(), BackgroundWorker(lambda: _follow(spark, lake, tell)) as follower:
        # What a killed job had in bronze and not in the others comes first.
        follower.wake()
        sinks = BronzeSink(lake, lake.released, tell, after=follower.wake), BronzeSink(lake, lake.messages, tell)
        _fill(spark, lake, origin, sinks, max_rows, trigger, lambda query: follower.is_well and go_on(query))
    return _finished(lake, sinks, began)


def advance(spark: SparkSession, lake: Lake, *, tell: Tell = lambda _: None, close: bool = False) -> None:
    """Silver and gold catch up with bronze; `close` does what is done once, and not for each batch of a stream."""
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "64")
    # Files are few and known by name: listing them needs no job of its own.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "100000")
    news = news_of(spark, lake)
    with ThreadPoolExecutor(1) as beside:
        # Jobs of a small batch are mostly waiting: quotes are made beside the others.
        quotes = beside.submit(advance_quotes, spark, lake, news)
        _tell_rows(lake.tape, advance_tape(spark, lake, news), tell)
        _tell_rows(lake.bars, advance_bars(spark, lake), tell)
        _tell_rows(lake.vwap, advance_vwap(spark, lake), tell)
        _tell_rows(lake.quotes, quotes.result(), tell)
        _tell_rows(lake.books, advance_books(spark, lake, news), tell)
    if close:
        _tell_rows(lake.spreads, advance_spreads(spark, lake), tell)
        _tell_compacted(compact_lake(spark, lake), tell)


def _follow(spark: SparkSession, lake: Lake, tell: Tell) -> None:
    """What is done behind each batch of a stream, or behind several at once if they come too fast."""
    advance(spark, lake, tell=tell)
    _tell_compacted(compact_lake(spark, lake, STREAM_SMALL), tell)


def _tell_compacted(moved: Mapping[str, int], tell: Tell) -> None:
    for name, rows in moved.items():
        tell(f"{name}: {counted(rows, 'row')} of small files put together")


def _tell_rows(table: LakeTable, rows: int, tell: Tell) -> None:
    if rows:
        tell(f"{table.name}: {counted(rows, 'row')}")


def _finished(lake: Lake, sinks: _Sinks, began: float) -> PipelineReport:
    events, messages = sinks
    report = PipelineReport(events.rows, messages.rows, events.batches, seconds=time.monotonic() - began)
    for table in lake.tables:
        now = table.snapshot()
        report.tables[table.name] = {
            "version": now.version,
            "rows": now.rows,
            "files": len(now.files),
            "bytes": now.bytes,
            "kept_files": now.kept_files,
            "kept_bytes": now.kept_bytes,
        }
    report.spreads = spread_counts(lake)
    return report


_Sinks = tuple[BronzeSink, BronzeSink]
"""Of events and of opaque messages."""


def _fill(
    spark: SparkSession,
    lake: Lake,
    origin: Origin,
    sinks: _Sinks,
    max_rows: int,
    trigger: Mapping[str, Any],
    go_on: Callable[[StreamingQuery], bool] = lambda _: True,
) -> None:
    """Run both streams to their end: that of opaque messages beside that of events, and no longer."""
    is_over = Event()

    def take_messages() -> None:
        wanted = partial(origin.frame, spark, rows="messages")
        _go(spark, lake, wanted, sinks[1], 0, trigger, lambda _: not is_over.is_set())

    with BackgroundWorker(take_messages) as beside:

        def goes_on(query: StreamingQuery) -> bool:
            if not (beside.is_well and go_on(query)):
                is_over.set()
            return not is_over.is_set()

        beside.wake()
        try:
            _go(spark, lake, partial(origin.frame, spark), sinks[0], max_rows, trigger, goes_on)
        except BaseException:
            is_over.set()
            raise


def _go(
    spark: SparkSession,
    lake: Lake,
    wanted: Callable[[Mapping[str, int] | None, int], DataFrame],
    sink: BronzeSink,
    max_rows: int,
    trigger: Mapping[str, Any],
    go_on: Callable[[StreamingQuery], bool],
) -> None:
    """Run a stream to its end."""
    checkpoint = lake.checkpoint(sink.table)
    # Without it rows are sorted by their partition before they are written, and lose their order.
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "64")
    for tries_left in reversed(range(_WORKER_TRIES)):
        has_checkpoint = (checkpoint / "metadata").is_file()
        offsets = sink.table.snapshot().notes.get("offsets")
        frame = wanted(None if has_checkpoint else offsets, max_rows)
        writer = frame.writeStream.foreachBatch(sink.take).option("checkpointLocation", str(checkpoint))
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
            if isinstance(sink.error, StoppedError):
                return
            if sink.error is not None:
                raise sink.error from None
            if _NO_WORKER in str(error) and tries_left:
                continue
            raise _named(error) from None
        else:
            return
        finally:
            with suppress(Exception):
                query.stop()


def _named(error: StreamingQueryException) -> IsocastError:
    """Our own errors come back as text: the line that names file, key and rule."""
    if _NO_WORKER in str(error):
        return IsocastError(
            f"Spark tried {_WORKER_TRIES} times to start the Python process that reads the source, ten seconds each:"
            " this machine is too busy. Run it again later: it goes on where it stopped"
        )
    lines = [line.strip() for line in str(error).splitlines()]
    for line in lines:
        place = line.find("isocast.terms.errors.")
        if place >= 0:
            kind, _, text = line[place + len("isocast.terms.errors.") :].partition(": ")
            return IsocastError(text or kind)
    return IsocastError(next((line for line in lines if line), "the stream has failed"))
