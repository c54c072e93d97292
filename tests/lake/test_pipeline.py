"""Journals into tables: in one go, in steps, as a stream; rerun, interrupted, damaged, and read by others.

What is done in one go and in steps is done by the commands, as somebody types them.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StructType
from tests.lake.markets import START, Market, write_market
from tests.lake.transforms.days import asked, plain
from tests.runtime.worlds import trades

from isocast.cli.main import main
from isocast.lake import pipeline, tables
from isocast.lake.pipeline import Origin, compact, run
from isocast.lake.schemas import SCHEMA_VERSION
from isocast.lake.tables import Lake, LakeSettings, LakeTable
from isocast.runtime.disk.journal import Journal
from isocast.terms.errors import ConfigurationError, IsocastError
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.terms.market import EventKind
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.opaque import OpaqueMessage, cut_opaque
from isocast.wire.packets import payload_digest

BARS = """
    select symbol, event_ns - event_ns % 60000000000 start_ns, arg_min(price, sequence * 65536 + index) open,
      max(price) high, min(price) low, arg_max(price, sequence * 65536 + index) as close,
      sum(quantity)::bigint volume, count(*) trades, sum(price::hugeint * quantity) turnover
    from read_parquet('{released}/**/*.parquet', hive_partitioning = true)
    where kind = 1 group by all order by symbol, start_ns
"""


def rows(lake: Lake) -> dict[str, list[str]]:
    """Every table, rows in an order of their own; read without Spark, which has enough to do."""
    found = {}
    for table in lake.tables:
        if table.snapshot().rows:
            whole = ds.dataset(table.path, format="parquet", partitioning="hive").to_table()
            assert len(whole) == table.snapshot().rows, table.name
            found[table.name] = sorted(map(repr, whole.select(sorted(whole.column_names)).to_pylist()))
    return found


def told(*words: object, code: int = 0) -> Any:  # noqa: ANN401 - JSON
    """What a command of `isocast lake` says to a program."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["lake", *map(str, words), "--json"]) == code
    return json.loads(out.getvalue())


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Market:
    return write_market(tmp_path_factory.mktemp("market"), receivers=2, events=600, symbols=4, span_s=5_000)


@pytest.fixture(scope="module")
def made(spark: SparkSession, market: Market, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """All tables of the market, in one go."""
    assert spark is not None, "the command takes the session that runs"
    place = tmp_path_factory.mktemp("made") / "lake"
    report = told("run", "--journals", market.path, "--lake", place)
    lake = Lake.open(place)
    assert report["events"] == sum(len(market.events(stripe)) for stripe in market.stripes)
    assert {name: of["rows"] for name, of in report["tables"].items()} == {
        table.name: table.snapshot().rows for table in lake.tables
    }
    return lake


def test_bronze_holds_every_event_once_and_gold_is_duckdbs(spark: SparkSession, market: Market, made: Lake) -> None:
    events = np.concatenate([market.events(stripe) for stripe in market.stripes])
    frame = made.released.read(spark)
    assert frame is not None
    assert frame.select("stripe", "sequence", "index").distinct().count() == frame.count() == len(events)
    bars = made.bars.read(spark)
    assert bars is not None
    ordered = bars.orderBy("symbol", "start_ns").collect()
    names = ("symbol", "start_ns", "open", "high", "low", "close", "volume", "trades", "turnover")
    expected = asked(BARS.format(released=made.released.path))
    assert [{name: plain(row[name]) for name in names} for row in ordered] == expected
    assert sum(row["trades"] for row in ordered) == int((events["kind"] == EventKind.TRADE).sum())


def test_other_engines_read_the_tables_by_their_directories(made: Lake) -> None:
    with duckdb.connect() as other:
        for table in [table for table in made.tables if table.snapshot().files]:
            query = f"select count(*) from read_parquet('{table.path}/**/*.parquet', hive_partitioning = true)"  # noqa: S608
            found = other.execute(query).fetchone()
            assert found == (table.snapshot().rows,), table.name


def test_a_rerun_changes_nothing(spark: SparkSession, market: Market, made: Lake) -> None:
    before = {table.name: table.snapshot().version for table in made.tables}
    assert run(spark, made, Origin(market.path)).events == 0
    assert {table.name: table.snapshot().version for table in made.tables} == before


@pytest.mark.long
def test_a_stream_in_steps_ends_with_the_same_tables(
    spark: SparkSession, market: Market, made: Lake, tmp_path: Path
) -> None:
    place = tmp_path / "lake"
    report = told("stream", "--journals", market.path, "--lake", place, "--available-now", "--max-rows", 700)
    assert report["batches"] == 2
    # The batch job closes the day, and finds nothing that is new.
    lake = Lake.open(place)
    assert run(spark, lake, Origin(market.path)).events == 0
    assert rows(lake) == rows(made)


def journal_of_messages(path: Path, first: int, payloads: list[bytes]) -> None:
    """One token's messages behind what a journal has, which is `first - 1` messages."""
    with Journal.open(path / "tokyo-0" / "journal", 0, 1) as journal:
        messages = [(source_id(7, 1), first + at, payload_digest(raw), raw) for at, raw in enumerate(payloads)]
        epoch = Epoch(2, server_id(1))
        journal.append(
            ReleasedBlock(epoch, first, len(messages), 0, first, START, START + 1, START + 2, 50, bytes(16), messages)
        )


@pytest.mark.long
def test_opaque_messages_are_a_table_of_bronze_each_once(spark: SparkSession, tmp_path: Path) -> None:
    buzzer = [OpaqueMessage("quiz", b"\x00\xff", b"table 7", 17), OpaqueMessage("quiz", b"late", b"", 18)]
    journals = tmp_path / "data"
    journal_of_messages(journals, 1, [trades(2).tobytes(), *cut_opaque(buzzer, 1_296)])
    lake = Lake.create(tmp_path / "lake")
    report = run(spark, lake, Origin(journals))
    assert (report.events, report.messages) == (2, 2)
    assert run(spark, lake, Origin(journals)).messages == 0
    assert lake.messages.snapshot().version == 1, "nothing came, and nothing was committed"
    shutil.rmtree(lake.checkpoint(lake.messages))
    journal_of_messages(journals, 3, list(cut_opaque([OpaqueMessage("auction", b"", b"lot", 19)], 1_296)))
    assert told("stream", "--journals", journals, "--lake", lake.root, "--available-now")["messages"] == 1
    found = pq.read_table(lake.messages.path, partitioning="hive").sort_by(
        [("sequence", "ascending"), ("index", "ascending")]
    )
    names = ("sequence", "index", "instant_ns", "due_ns", "topic", "key", "payload", "sent_ns")
    assert [tuple(row[name] for name in names) for row in found.to_pylist()] == [
        (2, 0, START, START + 1, "quiz", b"table 7", b"\x00\xff", 17),
        (2, 1, START, START + 1, "quiz", b"", b"late", 18),
        (3, 0, START, START + 1, "auction", b"lot", b"", 19),
    ]


def test_bars_of_another_interval_are_made_from_the_tape(
    made: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told("bars", "--lake", made.root, "--interval", "1h", "--symbols", "S0N001,S1N002", "--rows", 500)
    query = BARS.format(released=made.released.path).replace("60000000000", "3600000000000")
    expected = [row for row in asked(query) if row["symbol"] in {"S0N001", "S1N002"}]
    by_time = sorted(expected, key=lambda row: (row["start_ns"], row["symbol"]))
    names = ("symbol", "start_ns", "open", "high", "low", "close", "volume", "trades")
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in by_time]
    assert main(["lake", "bars", "--lake", str(made.root), "--interval", "1d", "--rows", "1"]) == 0
    assert "and more: --rows 10" in capsys.readouterr().out
    out = tmp_path / "days.csv"
    assert main(["lake", "bars", "--lake", str(made.root), "--interval", "1d", "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8").count("\n") == 1 + 8, "four symbols of two stripes"


@pytest.mark.parametrize(
    "words, rule",
    [
        (["run", "--lake", "x"], "--journals or --market"),
        (["run", "--lake", "x", "--journals", "/nowhere/at/all"], "there is no /nowhere/at/all"),
        (["stream", "--lake", "x", "--journals", "y", "--market", "z"], "--journals or --market"),
        (["run", "--lake", "x", "--journals", ".", "--keep", "soon"], "--keep: must be a time with its unit"),
        (["bars", "--lake", "/nowhere/at/all"], "`isocast lake run` makes a lake"),
        (["bars", "--lake", "x", "--out", "bars.json"], "neither .parquet nor .csv"),
        (["bars", "--lake", "x", "--rows", "0"], "must be at least 1"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_bad_input_is_one_line_and_exit_2(
    words: list[str], rule: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lake", *words]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1
    assert rule in got.err
    assert not (tmp_path / "x").exists()


@pytest.mark.long
def test_a_job_that_dies_between_tables_goes_on(
    spark: SparkSession, market: Market, made: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.create(tmp_path / "lake")

    def die(*_: object) -> int:
        raise KeyError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "advance_tape", die)
        with pytest.raises(KeyError, match="killed here"):
            run(spark, lake, Origin(market.path))
    assert lake.quotes.snapshot().version == 1
    assert lake.tape.snapshot().version == 0
    left = lake.tape.path / "_staging" / "1"
    left.mkdir(parents=True)
    orphan = lake.bars.path / "interval=1m" / "date=2026-01-05" / "hour=1" / "00000001-00000.parquet"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"half a file")
    run(spark, lake, Origin(market.path))
    assert not left.exists()
    assert not orphan.exists()
    assert rows(lake) == rows(made)


class NoWorker(DataSourceStreamReader):
    """What a stream sees whose Python process did not start in time."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        raise RuntimeError("Python worker failed to connect back.")

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        raise NotImplementedError


class NoWorkerSource(DataSource):
    """Never starts."""

    def schema(self) -> str:
        return "kind int"

    def streamReader(self, schema: StructType) -> NoWorker:  # noqa: N802, ARG002 - Spark's name
        return NoWorker()


@pytest.mark.long
@pytest.mark.parametrize("failures", [2, 3])
def test_a_worker_that_a_busy_machine_did_not_start_in_time_is_started_again(
    spark: SparkSession, market: Market, made: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    spark.dataSource.register(NoWorkerSource)
    sound, asked = Origin.frame, 0

    def frame(self: Origin, spark: SparkSession, offsets: Any, most: int, rows: str = "released") -> DataFrame:  # noqa: ANN401
        nonlocal asked
        if rows != "released":
            return sound(self, spark, offsets, most, rows)
        asked += 1
        if asked <= failures:
            return spark.readStream.format("NoWorkerSource").load()
        return sound(self, spark, offsets, most)

    monkeypatch.setattr(Origin, "frame", frame)
    monkeypatch.setattr(pipeline, "_WORKER_TRIES", 3)
    lake = Lake.create(tmp_path / "lake")
    if failures == 3:
        with pytest.raises(IsocastError, match="too busy"):
            run(spark, lake, Origin(market.path))
        return
    run(spark, lake, Origin(market.path))
    assert rows(lake) == rows(made)


@pytest.mark.long
def test_a_lost_checkpoint_costs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    market = write_market(tmp_path / "market", receivers=1, stripes=(0,), events=300, symbols=3)
    lake = Lake.create(tmp_path / "lake")
    before = run(spark, lake, Origin(market.path)).events
    shutil.rmtree(lake.checkpoint(lake.released))
    market.append(stripe=0, events=60)
    report = run(spark, lake, Origin(market.path))
    frame = lake.released.read(spark)
    assert frame is not None
    assert before >= 300
    assert 60 <= report.events < 100
    assert frame.count() == frame.select("stripe", "sequence", "index").distinct().count() == before + report.events


def test_a_lake_of_a_newer_version_is_refused(made: Lake, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    shutil.copytree(made.root, root)
    path = root / "lake.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "schema_version": SCHEMA_VERSION + 1}), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="newer than"):
        Lake.open(root)
    path.write_text(json.dumps(content), encoding="utf-8")
    entry = next((root / "silver" / "tape" / "_log").iterdir())
    entry.write_text(
        json.dumps({**json.loads(entry.read_text(encoding="utf-8")), "schema_version": 99}), encoding="utf-8"
    )
    with pytest.raises(ConfigurationError, match="newer than"):
        Lake.open(root).tape.snapshot()
    entry.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="not JSON"):
        Lake.open(root).tape.snapshot()


def test_a_lake_has_one_writer_and_keeps_its_settings(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake", LakeSettings(intervals=("5m",)))
    with lake.writing(), pytest.raises(ConfigurationError, match="another job"), lake.writing():
        pass
    assert Lake.create(tmp_path / "lake").settings.intervals == ("5m",)
    with pytest.raises(ConfigurationError, match="intervals"):
        Lake.create(tmp_path / "lake", LakeSettings(intervals=("1m",)))
    with pytest.raises(ConfigurationError, match="is no lake"):
        Lake.open(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("Dear", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="neither empty"):
        Lake.create(tmp_path / "full")


class Rows:
    """What `LakeTable.commit` needs of a frame, without Spark."""

    def __init__(self, first: int, count: int) -> None:
        self._table = pa.table({"stripe": [0] * count, "sequence": range(first, first + count), "index": [0] * count})

    @property
    def write(self) -> Rows:
        return self

    def partitionBy(self, *keys: str) -> Rows:  # noqa: N802 - Spark's name
        self._keys = keys
        return self

    @property
    def schema(self) -> StructType:
        return StructType().add("sequence", LongType()).add("index", LongType()).add("stripe", IntegerType())

    def parquet(self, path: str) -> None:
        place = Path(path) / "/".join(f"{key}=0" for key in self._keys)
        place.mkdir(parents=True)
        pq.write_table(self._table.drop_columns(list(self._keys)), place / "part.parquet")


def test_many_commits_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    table = LakeTable(tmp_path, "t", ("stripe",))
    for number in range(35):
        gone = table.snapshot().files[:1] if number % 5 == 4 else ()
        frame = None if number == 7 else cast("DataFrame", Rows(number * 2, 2))
        table.commit(frame, partial(lambda at, _: {"n": at}, number), gone)
    snapshot = table.snapshot()
    assert (snapshot.version, snapshot.notes) == (35, {"n": 34})
    assert len(snapshot.files) == 34 - 7
    assert len(list(table.path.rglob("*.parquet"))) == 27
    assert len(table.added_since(30)) == 5


def test_a_long_log_is_forgotten_when_those_behind_it_know_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_KEPT_ENTRIES", 40)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    table, reader = LakeTable(tmp_path, "t", ("stripe",)), LakeTable(tmp_path, "t", ("stripe",))
    for number in range(100):
        gone = table.snapshot().files[:1] if number % 5 == 4 else ()
        table.commit(cast("DataFrame", Rows(number * 2, 2)), partial(lambda at, _: {"n": at}, number), gone)
        if number == 9:
            assert reader.snapshot().version == 10
    before = table.snapshot()
    table.forget(known=30)
    assert [int(path.stem) for path in sorted(table.path.glob("_log/*.json"))] == list(range(31, 101))
    table.forget(known=100)
    assert [int(path.stem) for path in sorted(table.path.glob("_log/*.json"))] == list(range(61, 101))
    for known in (table, reader, LakeTable(tmp_path, "t", ("stripe",))):
        assert set(known.snapshot().files) == set(before.files)
        assert known.snapshot().notes == {"n": 99}
        assert len(known.added_since(90)) == 10
        assert set(known.added_since(0)) == set(before.files), "whoever begins anew reads what there is"
        with pytest.raises(ConfigurationError, match="forgotten"):
            known.notes_since(0)


def test_small_files_are_put_together_in_the_order_of_the_sequence(spark: SparkSession, tmp_path: Path) -> None:
    table = LakeTable(tmp_path, "t", ("stripe",))
    for number in range(10):
        table.commit(cast("DataFrame", Rows(number * 5, 5)), lambda _: {"offsets": {"0": 50}})
    assert compact(spark, table, 0) == 0, "whoever goes on behind it has not read them"
    frame = table.read(spark)
    assert frame is not None
    assert compact(spark, table, 10) == 50
    table.commit(None, lambda _: {"offsets": {"0": 50}}, [])
    assert sorted(row.sequence for row in frame.collect()) == list(range(50)), "made before, collected behind it"
    assert {row.stripe for row in frame.select("stripe").distinct().collect()} == {0}, "its partition too"
    snapshot = table.snapshot()
    assert len(snapshot.files) == 1
    assert snapshot.notes == {"offsets": {"0": 50}}
    assert pq.read_table(table.path / snapshot.files[0].path)["sequence"].to_pylist() == list(range(50))
    assert table.added_since(11) == []
    assert compact(spark, table, 12) == 0


def test_a_lake_tells_the_fairness_of_entry_and_says_what_needs_all_journals(made: Lake, market: Market) -> None:
    """Bronze keeps one receiver of each stripe: what does not depend on who released is the same."""
    of_lake = told("fairness", "--lake", made.root, "--strict", code=1)
    of_journals = told("fairness", "--journals", market.path)
    assert of_lake["entry"] == of_journals["entry"]
    assert of_lake["order"] == of_journals["order"]
    assert (of_journals["messages"], of_lake["messages"], of_lake["sites"]) == (of_lake["basis"]["releases"], 0, [])
    assert "(site1 alone)" in of_lake["sentence"]
    assert "read the journals of all receivers" in of_lake["sentence"]
    assert "there is no skew to judge" in of_lake["sentence"], "hence the exit code"
