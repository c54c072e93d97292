"""Small files of a stream become few large ones, when nobody waits."""

from __future__ import annotations

from pyspark.sql import SparkSession

from isocast.lake.tables import DataFile, Table
from isocast.lake.transforms.slices import SLICE_ROWS, in_slices

__all__ = ["compact"]

_SMALL_ROWS = SLICE_ROWS // 4
_MOST_SMALL = 8
"""Small files that a partition may keep."""


def compact(spark: SparkSession, table: Table) -> int:
    """Put small files of a partition together, in the order of the sequence; how many rows were moved."""
    now = table.snapshot()
    together: dict[tuple[str, ...], list[DataFile]] = {}
    for file in now.files:
        if file.rows < _SMALL_ROWS:
            together.setdefault(tuple(file.partition.values()), []).append(file)
    chosen = [file for files in together.values() if len(files) > _MOST_SMALL for file in files]
    frame = table.read(spark, chosen) if chosen else None
    if frame is None:
        return 0
    rows = sum(file.rows for file in chosen)
    made = in_slices(frame)
    after = table.commit(made, lambda _: now.notes, chosen, compacts=True)
    if after.rows != now.rows:
        raise AssertionError(f"{table.name}: {now.rows} rows became {after.rows}")
    return rows
