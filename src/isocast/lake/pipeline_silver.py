"""Bronze to silver: the tape and the quotes go on with what was released since.

Each table remembers up to which version of bronze it goes, and what it needs to go on: quotes that stand, ids that were
used, days that began. A correction of a trade of before rewrites the file that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from isocast.lake.durable_files import make_folder, sync_file, sync_folder
from isocast.lake.schemas import RELEASED_SCHEMA
from isocast.lake.source_options import struct_of
from isocast.lake.tables import DataFile, Lake, Table
from isocast.lake.transforms.amendments import Amendment, FloorDays, Line
from isocast.lake.transforms.quotes import STANDING_COLUMNS, quotes_across_floors, trades_with_quotes
from isocast.lake.transforms.slices import QUOTE_STATE_SCHEMA, Sliced
from isocast.lake.transforms.survey import Survey, survey_files
from isocast.lake.transforms.tape import TAPE_COLUMNS, TapeMemory, amended, next_tape, reported_trades

__all__ = ["DAY_NS", "HOUR_NS", "News", "advance_quotes", "advance_tape", "date_of", "news_of"]

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


_Found = tuple[Sliced, Survey]


@dataclass(frozen=True)
class News:
    """Bronze up to a version, as it is when tables begin to catch up: it goes on meanwhile."""

    version: int
    found: _Found | None = None
    """What quotes and tape both do not know; None if that is nothing, or not the same."""


def news_of(spark: SparkSession, lake: Lake) -> News:
    """What there is to catch up with now."""
    version = lake.released.snapshot().version
    quotes, tape = (_new_files(lake, table, version) for table in (lake.quotes, lake.tape))
    shared = _look_into(spark, lake, lake.quotes, quotes) if quotes and quotes == tape else None
    return News(version, shared)


def advance_quotes(spark: SparkSession, lake: Lake, news: News) -> int:
    """Quotes catch up; how many rows came."""
    files = _new_files(lake, lake.quotes, news.version)
    if not files:
        return 0
    slices, _ = news.found or _look_into(spark, lake, lake.quotes, files)
    rows = quotes_across_floors(slices).withColumn("date", date_of(F.col("due_ns")))
    state = {"quotes": slices.carry.closing()}
    return _commit(lake.quotes, rows, state, {"released_version": news.version})


def advance_tape(spark: SparkSession, lake: Lake, news: News) -> int:
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

    return _commit(lake.tape, rows.withColumn("date", date_of(F.col("due_ns"))), state, said, changed)


def _new_files(lake: Lake, table: Table, version: int) -> list[DataFile]:
    """Files of bronze, up to a version, that a table does not know."""
    known = table.snapshot().notes.get("released_version", 0)
    return lake.released.added_since(known, version)


def _look_into(spark: SparkSession, lake: Lake, table: Table, files: Sequence[DataFile]) -> _Found:
    """New files of bronze, in slices that begin where a table ends."""
    paths = [(str(lake.released.path / file.path), int(file.partition["stripe"])) for file in files]
    earlier = _state(table, "quotes", QUOTE_STATE_SCHEMA)
    return survey_files(spark, paths, struct_of(RELEASED_SCHEMA), earlier)


def _memory(lake: Lake) -> TapeMemory:
    notes = lake.tape.snapshot().notes
    ids = _state(lake.tape, "ids", _ID_SCHEMA).to_pylist()
    spans = {Line(row["stripe"], row["symbol"], row["floor"]): (row["least"], row["most"]) for row in ids}
    return TapeMemory(FloorDays.from_json(notes.get("days", [])), spans)


def _id_table(memory: TapeMemory) -> pa.Table:
    rows = [(*line, *span) for line, span in sorted(memory.ids.items())]
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(_ID_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ID_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_ID_SCHEMA)


def _state(table: Table, name: str, schema: pa.Schema) -> pa.Table:
    """What the newest commit of a table kept under a name."""
    file = table.snapshot().notes.get("state", {}).get(name)
    return pq.read_table(table.path / "_state" / file) if file else schema.empty_table()


def _commit(
    table: Table,
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


def _files_of(spark: SparkSession, table: Table, amendments: Sequence[Amendment]) -> list[DataFile]:
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


def _hours(table: Table, files: Sequence[DataFile]) -> list[int]:
    """Hours since 1970, by the floors' clocks, of the trades in some files."""
    found: set[int] = set()
    for file in files:
        with pq.ParquetFile(table.path / file.path) as opened:
            for batch in opened.iter_batches(1 << 20, columns=["event_ns"]):
                found.update(np.unique(batch["event_ns"].to_numpy() // HOUR_NS).tolist())
    return sorted(found)
