"""`format("isocast-feed")`: files of every format as rows; real ones where ISOCAST_DATA says where they are.

ISOCAST_DATA=/path/to/data pytest tests/lake/test_feed_source.py
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType
from tests.feeds import itch_samples as itch
from tests.feeds.itch_samples import frame
from tests.lake.direct import read_table

from isocast.feeds.days import NEW_YORK
from isocast.feeds.outcomes import FeedLog
from isocast.lake.schemas import EVENT_SCHEMA
from isocast.lake.source.columns import event_batch
from isocast.lake.source.feed import FeedPartition, FeedStreamReader, IsocastFeedSource
from isocast.runtime.client.feed_files import FeedFile, FeedOptions
from isocast.runtime.client.feed_sinks import open_sink
from isocast.terms.errors import ConfigurationError, FeedError
from isocast.wire.events import EVENT_DTYPE, EventArray

RAW = frame(*itch.day())
TICKS = "14400688,491800,300,P,2000,0\n14400689,491800,5,Q,0,0\n"


def plain(path: Path, **options: object) -> EventArray:
    feed = FeedFile(path, FeedOptions(**options))  # type: ignore[arg-type]
    return np.concatenate([np.empty(0, EVENT_DTYPE), *feed.blocks()])


def rows(path: Path, columns: list[str] | None = None, **options: object) -> pa.Table:
    return read_table(path, columns, IsocastFeedSource, **options)


@pytest.fixture
def feeds(tmp_path: Path) -> Path:
    folder = tmp_path / "feeds"
    folder.mkdir()
    (folder / "01302019.NASDAQ_ITCH50.gz").write_bytes(gzip.compress(RAW))
    with zipfile.ZipFile(folder / "aig_20131007_trade.zip", "w") as archive:
        archive.writestr("20131007_aig_Trade_Tick.csv", TICKS)
    lobster = folder / "AAPL_2012-06-21_34200000_57600000_message_1.csv"
    lobster.write_text("34200.1,1,7,18,5859400,1\n34200.2,4,7,10,5859400,1\n", encoding="ascii")
    (folder / "README.md").write_text("not a feed", encoding="ascii")
    events = plain(folder / "01302019.NASDAQ_ITCH50.gz")
    with open_sink(folder / "day.pcap", FeedLog("day.pcap"), NEW_YORK) as sink:
        sink.write(events)
    return folder


def test_files_of_every_format_are_rows_of_one_schema(feeds: Path) -> None:
    files = sorted(path for path in feeds.iterdir() if path.suffix != ".md")
    expected = [event_batch(plain(path), EVENT_SCHEMA) for path in files]
    assert len(files) == 4
    assert rows(feeds) == pa.Table.from_batches(expected)


def test_a_file_keeps_its_own_order_in_place(feeds: Path) -> None:
    path = feeds / "01302019.NASDAQ_ITCH50.gz"
    got = read_table(path, None, IsocastFeedSource, columns="place,path,price")
    assert got.column_names == ["place", "path", "price"]
    assert got["place"].to_pylist() == list(range(got.num_rows))
    assert set(got["path"].to_pylist()) == {str(path)}
    assert got["price"].to_pylist() == plain(path)["price"].tolist()


def test_a_pattern_and_a_floor_choose(feeds: Path) -> None:
    got = rows(Path(f"{feeds}/*.zip"), floor="XNAS")
    assert got["floor"].to_pylist() == ["XNAS"]
    assert got["symbol"].to_pylist() == ["AIG"]
    assert rows(feeds, symbol="AIG").num_rows == 2


def test_a_damaged_file_is_an_error_or_a_quarantined_count(tmp_path: Path) -> None:
    path = tmp_path / "01302019.NASDAQ_ITCH50.gz"
    path.write_bytes(gzip.compress(RAW)[:-9])
    with pytest.raises(FeedError, match="truncated"):
        rows(path)
    got = rows(path, onError="quarantine", quarantine=tmp_path / "q")
    assert got.num_rows
    kinds = {name.name.rpartition("-")[0] for name in (tmp_path / "q").iterdir()}
    assert "truncated" in kinds


@pytest.mark.parametrize(
    "options, rule",
    [
        ({"kind": "itsch"}, 'did you mean "itch"'),
        ({"floor": "nyse!"}, "floor"),
        ({"onError": "skip"}, "fail or quarantine"),
        ({"onError": "quarantine"}, "needs a directory"),
        ({"mapping": "us-tape-trade"}, "us-tape-trades"),
        ({"flor": "XNAS"}, 'did you mean "floor"'),
        ({"onError": "quarantine", "quarantine": "s3a://b/q"}, "quarantine: s3a://b/q is in no folder.*mount it"),
        (
            {"columns": "stripe"},
            "isocast-feed: columns: there is no column 'stripe'.*there are kind, .*, place",
        ),
    ],
)
def test_a_wrong_option_is_named(feeds: Path, options: dict[str, str], rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        read_table(feeds, None, IsocastFeedSource, **options)


def test_advice_names_options_of_the_format_and_none_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "01302019.NASDAQ_ITCH50.gz").write_bytes(gzip.compress(RAW)[:-9])
    (tmp_path / "strange.csv").write_text("a,b\n1,2\n", encoding="ascii")
    with pytest.raises(FeedError, match="with onError=quarantine everything before this place is read"):
        rows(tmp_path / "01302019.NASDAQ_ITCH50.gz")
    with pytest.raises(FeedError, match="with option kind, or its columns with option mapping"):
        rows(tmp_path / "strange.csv")
    for options, told in (
        ({"mapping": "nope"}, 'format isocast-feed: mapping: "nope"'),
        ({"day": "x"}, "format isocast-feed: day: 'x'"),
        ({"kind": "table"}, "a table needs option mapping"),
    ):
        with pytest.raises(ConfigurationError, match=told) as caught:
            read_table(tmp_path / "strange.csv", None, IsocastFeedSource, **options)
        assert "--" not in str(caught.value)


def test_a_file_that_is_no_feed_is_quarantined_and_the_others_are_read(feeds: Path, tmp_path: Path) -> None:
    expected = rows(feeds).num_rows
    (feeds / "empty.csv").touch()
    (feeds / "broken.zip").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(FeedError, match=r"broken\.zip"):
        rows(feeds)
    assert rows(feeds, onError="quarantine", quarantine=tmp_path / "q").num_rows == expected
    told = [json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "q").iterdir()]
    assert {(Path(row["path"]).name, row["reason"]) for row in told} == {
        ("empty.csv", "unreadable"),
        ("broken.zip", "unreadable"),
    }


def feed_stream(path: Path, **options: object) -> FeedStreamReader:
    given = CaseInsensitiveDict({"path": str(path), **{name: str(value) for name, value in options.items()}})
    source = IsocastFeedSource(given)
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = pickle.loads(pickle.dumps(source.streamReader(schema)))  # noqa: S301 - our own, as Spark sends it
    assert isinstance(reader, FeedStreamReader)
    return reader


def test_files_that_arrive_are_read_once_in_whatever_order_they_come(feeds: Path, tmp_path: Path) -> None:
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    reader = feed_stream(arriving, maxFilesPerTrigger=2)
    limit = reader.getDefaultReadLimit()
    read: list[str] = []
    offset = reader.initialOffset()
    assert reader.latestOffset(offset, limit) == offset, "a folder may be empty at first"
    names = sorted((path.name for path in feeds.iterdir() if path.suffix != ".md"), reverse=True)
    for name in names:
        shutil.copy(feeds / name, arriving / f".{name}")
        (arriving / f".{name}").rename(arriving / name)
        end = reader.latestOffset(offset, limit)
        for part in reader.partitions(offset, end):
            assert isinstance(part, FeedPartition)
            read.append(Path(part.path).name)
            assert sum(batch.num_rows for batch in reader.read(part)) == rows(feeds / name).num_rows
        # What was read may go; and a query that begins again with its offset reads nothing twice.
        (arriving / name).unlink()
        reader, offset = feed_stream(arriving, maxFilesPerTrigger=2), json.loads(json.dumps(end))
    assert read == names


def test_so_many_files_make_a_batch_and_available_now_ends(feeds: Path) -> None:
    reader = feed_stream(feeds, maxFilesPerTrigger=3)
    reader.prepareForTriggerAvailableNow()
    (feeds / "later.events").touch()
    first = reader.latestOffset({}, reader.getDefaultReadLimit())
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert (len(first), len(second)) == (3, 4)
    assert reader.latestOffset(second, reader.getDefaultReadLimit()) == second
    with pytest.raises(ConfigurationError, match="no such file"):
        feed_stream(feeds / "nowhere")


def test_a_query_follows_a_folder(spark: SparkSession, feeds: Path, tmp_path: Path) -> None:
    def run() -> int:
        frame = spark.readStream.format("isocast-feed").option("maxFilesPerTrigger", 2).load(str(feeds))
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
        return spark.read.parquet(str(tmp_path / "out")).count()

    expected = rows(feeds).num_rows
    assert run() == expected
    shutil.copy(feeds / "day.pcap", feeds / "another.pcap")
    assert run() == rows(feeds).num_rows > expected


def test_several_paths_are_read_each_file_once(feeds: Path) -> None:
    """As `.load(["here", "there"])` hands them over."""
    files = sorted(str(path) for path in feeds.iterdir() if path.is_file() and path.suffix != ".md")
    whole = rows(feeds)
    some = read_table(None, None, IsocastFeedSource, paths=json.dumps([*files, str(feeds), f"{feeds}/*.pcap"]))
    assert some.num_rows == whole.num_rows
    with pytest.raises(ConfigurationError, match="absent: there is no such file"):
        read_table(None, None, IsocastFeedSource, paths=json.dumps([files[0], str(feeds / "absent")]))
    with pytest.raises(ConfigurationError, match="s3a://bucket/x is in no folder"):
        read_table(None, None, IsocastFeedSource, paths=json.dumps([files[0], "s3a://bucket/x"]))


def test_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        rows(tmp_path / "*.gz")


def test_spark_finds_the_format_by_itself(spark: SparkSession, feeds: Path) -> None:
    frame = spark.read.format("isocast-feed").load(str(feeds))
    assert frame.rdd.getNumPartitions() == 4
    files = sorted(str(path) for path in feeds.iterdir() if path.suffix == ".pcap")
    assert spark.read.format("isocast-feed").load([str(feeds), files[0]]).count() == frame.count()
    assert frame.where("symbol = 'AIG'").agg({"quantity": "sum"}).first()[0] == 305  # type: ignore[index]


DATA = os.environ.get("ISOCAST_DATA", "")


@pytest.mark.skipif(not DATA, reason="ISOCAST_DATA does not say where the real files are")
def test_the_real_us_tape(spark: SparkSession) -> None:
    folder = Path(DATA) / "lean_us_tick"
    frame = spark.read.format("isocast-feed").load(f"{folder}/*_trade.zip")
    expected = sum(len(plain(path)) for path in folder.glob("*_trade.zip"))
    assert frame.count() == expected > 100_000
