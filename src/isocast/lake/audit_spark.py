"""Audits on Spark: parts of segments, and blocks that must be looked into, spread over the executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from isocast.lake.audit import RunWork, Work, work_on

__all__ = ["run_on"]

_PARTITIONS = 64
_FOR_EACH_CORE = 4
"""A Spark task costs a tenth of a second by itself: small segments share one."""


def run_on(spark: SparkSession) -> RunWork:
    """Spread the work over a session's executors, which must see the files."""

    def run(work: Work, cells: Sequence[str]) -> Iterable[str]:
        def batches(incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in incoming:
                for cell in batch.column("task").to_pylist():
                    yield pa.RecordBatch.from_pydict({"result": [work_on(work, cell)]})

        context = spark.sparkContext
        slices = min(max(len(cells), 1), max(_PARTITIONS, _FOR_EACH_CORE * context.defaultParallelism))
        rows = context.parallelize([(cell,) for cell in cells], slices)
        frame = spark.createDataFrame(rows, "task string")
        return [row.result for row in frame.mapInArrow(batches, "result string").collect()]

    return run
