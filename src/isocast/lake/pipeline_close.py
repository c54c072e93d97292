"""Small files of a stream become few large ones, and old log entries go."""

from __future__ import annotations

from pyspark.sql import SparkSession

from isocast.lake.tables import DataFile, Lake, Table
from isocast.lake.transforms.slices import SLICE_ROWS, in_slices

__all__ = ["compact", "compact_lake"]

_SMALL_ROWS = SLICE_ROWS // 4
_MOST_SMALL = 8
"""Small files that a partition may keep."""


def compact_lake(spark: SparkSession, lake: Lake, most: int = _MOST_SMALL) -> dict[str, int]:
    """Bronze and silver, as far as all other tables know them; rows that were moved, by table."""
    tape, quotes = lake.tape.snapshot().notes, lake.quotes.snapshot().notes
    known = {
        lake.released: min(notes.get("released_version", 0) for notes in (tape, quotes)),
        lake.tape: lake.bars.snapshot().notes.get("tape_version", 0),
        lake.quotes: lake.quotes.snapshot().version,
    }
    moved = {table.name: compact(spark, table, version, most) for table, version in known.items()}
    lake.forget()
    return {name: rows for name, rows in moved.items() if rows}


def compact(spark: SparkSession, table: Table, known: int, most: int = _MOST_SMALL) -> int:
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
