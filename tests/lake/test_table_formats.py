"""Delta and Iceberg show the lake's rows: after every commit, after a kill between two logs, and after a move."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any, cast

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, IntegerType, LongType, ShortType, StringType, StructType, TimestampType
from tests.lake.markets import write_market

from isocast.lake.pipeline import Origin, run, stream
from isocast.lake.table_format_delta import DeltaLog
from isocast.lake.table_format_iceberg import IcebergLog
from isocast.lake.table_formats import Mirror, mirror_of
from isocast.lake.table_states import DataFile, FileChange, TableState
from isocast.lake.tables import Lake, LakeSettings, LakeTable
from isocast.terms.errors import ConfigurationError, IsocastError

FORMATS = ("delta", "iceberg")
Row = dict[str, Any]


def shown(name: str, table: LakeTable) -> list[Row]:
    """The rows that another format's reader finds."""
    if name == "delta":
        return ordered(DeltaTable(str(table.path)).to_pyarrow_table())
    root = table.path.parents[1]
    catalogue = SqlCatalog("lake", uri=f"sqlite:///{root}/_iceberg/catalogue.db")
    try:
        return ordered(catalogue.load_table(f"{table.path.parent.name}.{table.path.name}").scan().to_arrow())
    finally:
        catalogue.close()


def ordered(rows: pa.Table) -> list[Row]:
    names = [
        name for name in ("interval", "stripe", "symbol", "sequence", "index", "start_ns") if name in rows.schema.names
    ]
    return cast("list[Row]", rows.sort_by([(name, "ascending") for name in names]).to_pylist())


# ---- a table without Spark

SCHEMA = (
    StructType()
    .add("sequence", LongType())
    .add("kind", ShortType())
    .add("symbol", StringType())
    .add("start", TimestampType())
    .add("date", DateType())
    .add("stripe", IntegerType())
)
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def some_rows(first: int, count: int) -> list[Row]:
    """Of two days and two stripes."""
    return [
        {
            "sequence": number,
            "kind": number % 3,
            "symbol": None if number % 7 == 0 else f"S{number % 5}",
            "start": NOON + timedelta(microseconds=number),
            "date": date(2026, 3, 2 + number % 2),
            "stripe": number // 2 % 2,
        }
        for number in range(first, first + count)
    ]


class Frame:
    """What `LakeTable.commit` needs of Spark's."""

    schema = SCHEMA

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    @property
    def write(self) -> Frame:
        return self

    def partitionBy(self, *keys: str) -> Frame:  # noqa: N802 - Spark's name
        self._keys = keys
        return self

    def parquet(self, path: str) -> None:
        schema = pa.schema(
            [
                ("sequence", pa.int64()),
                ("kind", pa.int16()),
                ("symbol", pa.string()),
                ("start", pa.timestamp("us", "UTC")),
            ]
        )
        together: dict[Path, list[Row]] = {}
        for row in self._rows:
            place = Path(path).joinpath(*(f"{key}={row[key]}" for key in self._keys))
            together.setdefault(place, []).append(row)
        for place, rows in together.items():
            place.mkdir(parents=True)
            pq.write_table(pa.Table.from_pylist(rows, schema), place / "part.parquet")


def commit(table: LakeTable, rows: Sequence[Row], removed: Sequence[DataFile] = ()) -> None:
    table.commit(cast("DataFrame", Frame(rows)), lambda _: {}, removed)


def content(table: LakeTable) -> list[Row]:
    """Rows of the files that count, by their own bytes and paths."""
    return by_number([row for file in table.snapshot().files for row in rows_of(table, file)])


def rows_of(table: LakeTable, file: DataFile) -> list[Row]:
    day, stripe = date.fromisoformat(file.partition["date"]), int(file.partition["stripe"])
    with pq.ParquetFile(table.path / file.path) as opened:
        return [{**row, "date": day, "stripe": stripe} for row in opened.read().to_pylist()]


def by_number(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: int(row["sequence"]))


def new_table(root: Path, name: str) -> LakeTable:
    return LakeTable(root, "silver/tape", ("date", "stripe"), name)


def breaking(*_: object) -> None:
    raise OSError("killed here")


@pytest.mark.parametrize("name", FORMATS)
def test_every_commit_is_shown(name: str, tmp_path: Path) -> None:
    table = new_table(tmp_path / "a lake", name)
    for number in range(6):
        gone = table.snapshot().files[:3] if number % 3 == 2 else ()
        # A batch without rows is a commit too.
        commit(table, some_rows(number * 10, 10 if number != 4 else 0), gone)
        assert by_number(shown(name, table)) == content(table)
    table.commit(None, lambda _: {"says": "nothing of rows"})
    small = [file for file in table.snapshot().files if file.partition == table.snapshot().files[0].partition]
    rows = [row for file in small for row in rows_of(table, file)]
    before = content(table)
    table.compact(cast("DataFrame", Frame(rows)), small)
    assert len(small) > 1
    assert by_number(shown(name, table)) == content(table) == before
    assert {row["date"] for row in before} == {date(2026, 3, 2), date(2026, 3, 3)}


def test_a_commit_of_delta_names_only_what_changed(tmp_path: Path) -> None:
    table = new_table(tmp_path, "delta")
    for number in range(40):
        commit(table, some_rows(number * 4, 1), table.snapshot().files[:1] if number % 2 else ())
    log = table.path / "_delta_log"
    lines = (log / f"{39:020}.json").read_text(encoding="utf-8").splitlines()
    actions = [json.loads(line) for line in lines]
    assert [len([each for each in actions if kind in each]) for kind in ("add", "remove", "txn")] == [1, 1, 1]
    assert len(list(log.glob("*.checkpoint.parquet"))) == 1
    # Whole numbers have bounds, by which a reader leaves files out.
    added = next(each["add"] for each in actions if "add" in each)
    assert json.loads(added["stats"])["minValues"] == {"sequence": 156, "kind": 0}


@pytest.mark.long
def test_metadata_of_iceberg_stay_few(tmp_path: Path) -> None:
    table = new_table(tmp_path, "iceberg")
    for number in range(33):
        commit(table, some_rows(number * 4, 1), table.snapshot().files[:1] if number % 2 else ())
    place = tmp_path / "_iceberg" / "silver" / "tape"
    # Readers without a catalogue find the newest by its number.
    found = StaticTable.from_metadata(str(place))
    assert by_number(found.scan().to_arrow().to_pylist()) == content(table)
    newest = found.current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary["added-data-files"] == "1"
    assert len(newest.manifests(found.io)) == 2, "one of before, and that of this commit"
    assert len(found.metadata.snapshots) == 9
    assert len(list((place / "metadata").iterdir())) < 60


@pytest.mark.parametrize("name, log", [("delta", DeltaLog), ("iceberg", IcebergLog)])
@pytest.mark.parametrize("heals_by", ["commit", "job"])
def test_a_kill_between_the_two_logs_heals(
    name: str, log: type, heals_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, name)
    commit(table, some_rows(0, 10))
    commit(table, some_rows(10, 10))
    before = content(table)
    with monkeypatch.context() as patch:
        patch.setattr(log, "write", breaking)
        with pytest.raises(IsocastError, match=r"version 3 is committed and could not be told to .* killed here"):
            commit(table, some_rows(20, 10), table.snapshot().files[:2])
    assert table.snapshot().version == 3
    # Who reads the other log meanwhile finds what was there, whole.
    assert by_number(shown(name, table)) == before != content(table)
    if heals_by == "commit":
        commit(table, some_rows(30, 1))
    else:
        new_table(tmp_path, name).sweep()
        now = table.snapshot()
        kept = {file.path for file in now.files} | {file.path for file in now.replaced}
        assert {str(path.relative_to(table.path)) for path in table.path.rglob("date=*/**/*.parquet")} == kept
        assert now.kept_files == 2, "for whoever began to read by the other log"
    assert by_number(shown(name, table)) == content(table)


@pytest.mark.parametrize("name", FORMATS)
def test_a_log_that_is_lost_or_wrong_is_made_again(name: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, name)
    commit(table, some_rows(0, 10))
    commit(table, some_rows(10, 10))
    shutil.rmtree(table.path / "_delta_log" if name == "delta" else tmp_path / "_iceberg")
    table.sweep()
    assert by_number(shown(name, table)) == content(table)
    # Somebody has taken a file out of the other log, which keeps its version.
    now = table.snapshot()
    state = TableState(table.path, table.keys, now.version, now.files, SCHEMA.jsonValue())
    other = DeltaLog(state) if name == "delta" else IcebergLog(state)
    other.write(FileChange((), now.files[:1]))
    other.close()
    assert len(shown(name, table)) < len(content(table))
    table.sweep()
    assert by_number(shown(name, table)) == content(table)
    # The table itself is gone: the next job finds an empty one, and so does whoever reads.
    shutil.rmtree(table.path / "_log")
    new_table(tmp_path, name).sweep()
    commit(new_table(tmp_path, name), some_rows(50, 3))
    assert [row["sequence"] for row in by_number(shown(name, table))] == [50, 51, 52]


@pytest.mark.parametrize("name", FORMATS)
def test_a_lake_that_was_moved_is_read_at_its_new_place(name: str, tmp_path: Path) -> None:
    commit(new_table(tmp_path / "old", name), some_rows(0, 10))
    shutil.move(tmp_path / "old", tmp_path / "new")
    table = new_table(tmp_path / "new", name)
    table.sweep()
    assert by_number(shown(name, table)) == content(table)
    assert len(content(table)) == 10
    # A copy beside the first, which still stands.
    shutil.copytree(tmp_path / "new", tmp_path / "copy")
    copy = new_table(tmp_path / "copy", name)
    copy.sweep()
    shutil.rmtree(tmp_path / "new")
    assert by_number(shown(name, copy)) == content(copy)


@pytest.mark.parametrize("name", FORMATS)
def test_tables_of_a_lake_commit_at_the_same_time(name: str, tmp_path: Path) -> None:
    tables = [LakeTable(tmp_path, f"{level}/t", ("date", "stripe"), name) for level in ("bronze", "silver", "gold")]
    together = Barrier(len(tables))

    def fill(table: LakeTable) -> None:
        together.wait()
        for number in range(3):
            commit(table, some_rows(number * 10, 10))

    with ThreadPoolExecutor(len(tables)) as pool:
        list(pool.map(fill, tables))
    for table in tables:
        assert by_number(shown(name, table)) == content(table)
        assert len(content(table)) == 30


@pytest.mark.parametrize("name, package", [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_a_format_whose_package_is_missing_is_named(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lake.create(tmp_path / "made", LakeSettings(format=name))
    monkeypatch.setattr("isocast.lake.table_formats.find_spec", lambda _: None)
    rule = rf"needs the Python package {package}: pip install 'isocast\[{name}\]'"
    with pytest.raises(ConfigurationError, match=rule):
        Lake.create(tmp_path / "lake", LakeSettings(format=name))
    with pytest.raises(ConfigurationError, match=rule):
        Lake.open(tmp_path / "made")
    with pytest.raises(ConfigurationError, match="is not one of parquet, delta, iceberg"):
        Lake.create(tmp_path / "lake", LakeSettings(format="orc"))
    assert not (tmp_path / "lake").exists()


# ---- a market by the pipeline


class Both:
    """One job tells both formats."""

    def publish(self, now: TableState, change: FileChange) -> None:
        for name in FORMATS:
            mirror_of(name).publish(now, change)

    def catch_up(self, now: TableState) -> None:
        for name in FORMATS:
            mirror_of(name).catch_up(now)


def lake_in_both(root: Path) -> Lake:
    lake = Lake.create(root, LakeSettings(format="delta"))
    for table in lake.tables:
        table._mirror = cast("Mirror", Both())  # noqa: SLF001 - one run of Spark for two formats
    return lake


def agree(spark: SparkSession, lake: Lake) -> None:
    """Every table has the same rows and columns by the lake, by Delta and by Iceberg."""
    assert [table.name for table in lake.tables if not table.snapshot().files] == [
        "bronze/messages",
        "silver/books",
    ], "nobody sends messages or orders"
    for table in lake.tables:
        frame = table.read(spark)
        if frame is None:
            continue
        own = ordered(frame.toArrow())
        assert len(own) == table.snapshot().rows
        for name in FORMATS:
            assert shown(name, table) == own, (name, table.name)


@pytest.mark.long
def test_a_market_is_the_same_in_every_format(spark: SparkSession, tmp_path: Path) -> None:
    market = write_market(tmp_path / "market", receivers=1, events=60, symbols=2, span_s=600)
    lake = lake_in_both(tmp_path / "lake")
    run(spark, lake, Origin(market.path))
    agree(spark, lake)
    read_by_others(lake)


@pytest.mark.long
def test_a_market_that_goes_on_is_the_same_in_every_format(spark: SparkSession, tmp_path: Path) -> None:
    market = write_market(tmp_path / "market", receivers=1, events=300, symbols=3, span_s=4_000)
    lake = lake_in_both(tmp_path / "lake")
    stream(spark, lake, Origin(market.path), available_now=True, max_rows=400)
    was = {file.path for file in lake.bars.snapshot().files}
    market.append(stripe=0, events=60)
    run(spark, lake, Origin(market.path))
    assert was - {file.path for file in lake.bars.snapshot().files}, "bars were made again"
    agree(spark, lake)


def read_by_others(lake: Lake) -> None:
    """As the documentation says."""
    bars = pl.read_delta(str(lake.bars.path))
    assert bars.schema["start"] == pl.Datetime("us", "UTC")
    assert bars.height == lake.bars.snapshot().rows
    tape = DeltaTable(str(lake.tape.path)).to_pyarrow_dataset()
    with duckdb.connect() as engine:
        engine.register("tape", tape)
        query = "select stripe, count(*), min(date) from tape where date >= date '2000-01-01' group by 1 order by 1"
        by_delta = engine.execute(query).fetchall()
    catalogue = SqlCatalog("lake", uri=f"sqlite:///{lake.root}/_iceberg/catalogue.db")
    with catalogue.load_table("silver.tape").scan().to_duckdb("tape") as engine:
        assert engine.execute(query).fetchall() == by_delta
    catalogue.close()
    assert [row[0] for row in by_delta] == [0, 1]
    assert pc.sum(tape.to_table(columns=["quantity"])["quantity"]).as_py() > 0
