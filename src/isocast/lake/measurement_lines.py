"""The measurements of nodes as a frame: what `runtime.watch.measurements` writes, and what of it cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from isocast.runtime.watch.measurements import FOLDER, MEASUREMENT_VERSION
from isocast.terms.errors import ConfigurationError

__all__ = ["LINE_DDL", "Lines", "measurement_files", "read_measurements"]

_BROKEN = "broken"
LINE_DDL = (
    "v INT, node STRING, id BIGINT, role STRING, stripe INT, city STRING, at_ns BIGINT, over_ns BIGINT, "
    "counts MAP<STRING, BIGINT>, lateness ARRAY<ARRAY<BIGINT>>, tokens ARRAY<ARRAY<BIGINT>>, tokens_unlisted BIGINT"
)


class Lines(NamedTuple):
    """What could be read, and what could not."""

    lines: DataFrame
    unread: dict[str, int]
    """By reason: lines that are no measurements, lines of a newer version."""


def measurement_files(where: Path) -> list[str]:
    """Every file of measurements below a folder."""
    return sorted(str(path) for path in where.rglob(f"{FOLDER}/m-*.jsonl"))


def read_measurements(spark: SparkSession, where: Path) -> Lines:
    """The measurements of a market's data directory; ConfigurationError if there are none."""
    files = measurement_files(where)
    if not files:
        rule = f"holds no measurements (NODE/{FOLDER}/m-*.jsonl): is measurements.keep_bytes 0B in the market's file?"
        raise ConfigurationError(str(where), "--journals", rule)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
    # Spark parses lazily and may leave columns out: the broken ones are counted from what was parsed once.
    read = spark.read.schema(f"{LINE_DDL}, {_BROKEN} STRING").options(**options).json(files).cache()
    whole = F.col(_BROKEN).isNull() & F.col("v").isNotNull() & F.col("at_ns").isNotNull() & F.col("node").isNotNull()
    reasons = read.select(
        F.sum((~whole).cast("bigint")).alias("broken"),
        F.sum((whole & (F.col("v") != MEASUREMENT_VERSION)).cast("bigint")).alias("newer"),
    ).first()
    unread = {} if reasons is None else {name: count for name, count in reasons.asDict().items() if count}
    return Lines(read.where(whole & (F.col("v") == MEASUREMENT_VERSION)).drop(_BROKEN), unread)
