"""Many independent parts of one study, done here, by processes of this machine, or by Spark.

A part is a function of what all share and of the part itself, so results do not depend on who does which. They come
back in the order of the parts, whoever was first.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from isocast.terms.errors import ConfigurationError, NodeFailedError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["Engine", "Spreading", "spread"]

Shared = TypeVar("Shared")
Part = TypeVar("Part")
Result = TypeVar("Result")

JOBS_MAX = 256
"""Worker processes at most: each takes some 100 MB."""
PARTITIONS_MAX = 100_000
_POLL_S = 0.2


class Engine(StrEnum):
    """Who does the work."""

    LOCAL = "local"
    """Processes of this machine; nothing else is needed."""
    SPARK = "spark"
    """A Spark session, on this machine or a cluster: the extra `spark`."""


@dataclass(frozen=True, slots=True)
class Spreading:
    """How a study is spread."""

    engine: Engine = Engine.LOCAL
    jobs: int = 0
    """Processes, or cores of a local Spark; 0: one for each core."""
    partitions: int = 0
    """Of Spark; 0: four for each core, or as many as there are parts if that is less."""
    master: str | None = None
    """Of Spark; this machine if left out."""

    def check(self) -> None:
        """ConfigurationError for what cannot work, before anything is computed."""
        if not 0 <= self.jobs <= JOBS_MAX:
            raise ConfigurationError("command line", "--jobs", f"must be from 1 to {JOBS_MAX}, not {self.jobs}")
        if not 0 <= self.partitions <= PARTITIONS_MAX:
            rule = f"must be from 1 to {PARTITIONS_MAX:,}, not {self.partitions}"
            raise ConfigurationError("command line", "--partitions", rule)
        if self.engine is Engine.LOCAL:
            for option, value in (("--master", self.master), ("--partitions", self.partitions)):
                if value:
                    raise ConfigurationError("command line", option, "is for --engine spark")
        elif find_spec("pyspark") is None or find_spec("pyarrow") is None:
            rule = "needs Spark: pip install 'isocast[spark]'; --engine local gives the same results without it"
            raise ConfigurationError("command line", "--engine spark", rule)

    @property
    def workers(self) -> int:
        """Processes of this machine."""
        return self.jobs or len(os.sched_getaffinity(0))


def spread(
    work: Callable[[Shared, Part], Result],
    shared: Shared,
    parts: Sequence[Part],
    how: Spreading,
    reached: Callable[[int], None] = lambda _: None,
) -> list[Result]:
    """Results in the order of the parts; `work` is a function of a module, and everything can be pickled."""
    how.check()
    if not parts:
        return []
    if how.engine is Engine.SPARK:
        return _by_spark(work, shared, parts, how, reached)
    results = []
    for result in _by_processes(work, shared, parts, how.workers):
        results.append(result)
        reached(len(results))
    return results


_held: list[Any] = []
"""In a worker process: the function, and what all parts share."""


def _hold(work: Callable[[Any, Any], Any], shared: object) -> None:
    _held[:] = [work, shared]


def _do(part: object) -> object:
    work, shared = _held
    return work(shared, part)


def _by_processes(
    work: Callable[[Shared, Part], Result], shared: Shared, parts: Sequence[Part], jobs: int
) -> Iterator[Result]:
    jobs = min(jobs, len(parts))
    if jobs <= 1:
        for part in parts:
            yield work(shared, part)
        return
    with ProcessPoolExecutor(jobs, initializer=_hold, initargs=(work, shared)) as pool:
        try:
            results: Iterator[Any] = pool.map(_do, parts)
            yield from results
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _by_spark(
    work: Callable[[Shared, Part], Result],
    shared: Shared,
    parts: Sequence[Part],
    how: Spreading,
    reached: Callable[[int], None],
) -> list[Result]:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 (an extra, and seconds)
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        found = _collected(work, shared, parts, how, reached)
    except (PySparkException, Py4JError) as error:
        # Spark's own text is a page of Java; its last line of substance is the reason.
        lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\tat ")]
        where = f" at {how.master}" if how.master else ""
        raise NodeFailedError(f"Spark{where} gave up: {lines[-1] if lines else type(error).__name__}") from error
    return [pickle.loads(found[number]) for number in range(len(parts))]  # noqa: S301 (our own workers')


def _collected(
    work: Callable[[Shared, Part], Result],
    shared: Shared,
    parts: Sequence[Part],
    how: Spreading,
    reached: Callable[[int], None],
) -> dict[int, bytes]:
    """The pickled result of each part, by its number."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from isocast.lake.session import spark_session  # noqa: PLC0415

    # Where a session runs already, this is one more job of it.
    master = how.master or f"local[{how.workers}]"
    running = SparkSession.getActiveSession()
    spark = running or spark_session("isocast study", master=master)
    context = spark.sparkContext
    partitions = min(how.partitions or 4 * context.defaultParallelism, len(parts))
    job = context.broadcast((work, shared))

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 (an extra)

        do, common = job.value
        for batch in batches:
            for number, part in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                result = pickle.dumps(do(common, pickle.loads(part)))  # noqa: S301 (our own, a moment ago)
                columns = [pa.array([number], pa.int64()), pa.array([result], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, names=["number", "result"])

    # An RDD, cut where we say: a frame of rows would be cut as Spark likes.
    rows = [(number, pickle.dumps(part)) for number, part in enumerate(parts)]
    frame = spark.createDataFrame(context.parallelize(rows, partitions), "number bigint, part binary")
    try:
        done = frame.mapInArrow(each, "number bigint, result binary")
        table = _watched(spark, done.toArrow, reached, len(parts))
    finally:
        job.destroy()
    return dict(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))


def _watched(
    spark: SparkSession, collect: Callable[[], pa.Table], reached: Callable[[int], None], parts: int
) -> pa.Table:
    """Collect, and say meanwhile how many tasks of the running stage are done."""
    done = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not done.wait(_POLL_S):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None and info.numTasks:
                    reached(parts * info.numCompletedTasks // info.numTasks)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        return collect()
    finally:
        done.set()
        watcher.join()
        reached(parts)
