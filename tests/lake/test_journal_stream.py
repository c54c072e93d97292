"""`readStream.format("isocast")`: offsets, limits, triggers; every event exactly once, whatever is killed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.lake.direct import expected_rows, read_stream, read_table, stream_of
from tests.lake.markets import Market, write_market
from tests.runtime.disk.journals import segments

from isocast.runtime.disk.journal_reader import JournalReader
from isocast.terms.errors import ConfigurationError, JournalError

ALL = ReadAllAvailable()


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return write_market(tmp_path / "market", receivers=2, stripes=(0, 1), events=3_000, segment_bytes=60_000)


def ends(market: Market) -> dict[str, int]:
    found = {}
    for stripe in market.stripes:
        span = JournalReader(market.journal(1, stripe)).span()
        assert span is not None
        found[str(stripe)] = span[1]
    return found


def keys(batches: list[pa.RecordBatch]) -> list[tuple[int, int, int]]:
    rows: list[tuple[int, int, int]] = []
    for batch in batches:
        rows += zip(*(batch[name].to_pylist() for name in ("stripe", "sequence", "index")), strict=True)
    return rows


def truth(market: Market) -> list[tuple[int, int, int]]:
    rows = [row for stripe in market.stripes for row in expected_rows(market.journal(1, stripe), 1, stripe)]
    return [(row["stripe"], row["sequence"], row["index"]) for row in rows]  # type: ignore[misc]


# ---- offsets


def test_an_offset_is_the_next_sequence_of_every_stripe(market: Market) -> None:
    reader = stream_of(market.path)
    assert reader.initialOffset() == {"0": 1, "1": 1}
    assert reader.latestOffset({"0": 1, "1": 1}, ALL) == ends(market)
    assert reader.reportLatestOffset() == ends(market)
    assert keys(list(read_stream(reader, {"0": 1, "1": 1}, ends(market)))) == truth(market)


def test_what_is_appended_comes_with_the_next_offset(market: Market) -> None:
    reader = stream_of(market.path)
    before = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.latestOffset(before, ALL) == before
    market.append(1, 400)
    after = reader.latestOffset(before, ALL)
    assert after["0"] == before["0"]
    assert after["1"] > before["1"]
    first, second = (
        list(read_stream(reader, {"0": 1, "1": 1}, before)),
        list(read_stream(reader, before, after)),
    )
    assert sorted(keys(first + second)) == sorted(truth(market))


def test_an_unfinished_block_comes_when_it_is_finished(market: Market) -> None:
    newest = segments(market.journal(1, 0))[-1]
    shutil.rmtree(market.journal(2, 0))
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-8])
    reader = stream_of(market.path, stripe=0)
    before = reader.latestOffset({"0": 1}, ALL)
    newest.write_bytes(whole)
    after = reader.latestOffset(before, ALL)
    assert before["0"] < after["0"] == ends(market)["0"]
    got = keys([*read_stream(reader, {"0": 1}, before), *read_stream(reader, before, after)])
    assert got == [key for key in truth(market) if key[0] == 0]


def test_rows_of_a_trigger_are_limited_and_stripes_stay_together_in_time(market: Market) -> None:
    reader = stream_of(market.path, maxRowsPerTrigger=500)
    assert reader.getDefaultReadLimit() == ReadMaxRows(500)
    at, rows, batches = reader.initialOffset(), [], 0
    while (following := reader.latestOffset(at, ReadMaxRows(500))) != at:
        found = list(read_stream(reader, at, following))
        assert sum(batch.num_rows for batch in found) <= 500
        times = {
            stripe: max(
                (
                    row["instant_ns"]
                    for batch in found
                    for row in batch.select(["stripe", "instant_ns"]).to_pylist()
                    if row["stripe"] == stripe
                ),
                default=0,
            )
            for stripe in (0, 1)
        }
        assert abs(times[0] - times[1]) < 60_000_000_000 or not all(times.values())
        rows += keys(found)
        at, batches = following, batches + 1
    assert sorted(rows) == truth(market)
    assert batches > 10


def test_a_block_that_is_larger_than_the_limit_is_read_alone(market: Market) -> None:
    reader = stream_of(market.path, stripe=0)
    following = reader.latestOffset({"0": 1}, ReadMaxRows(1))
    assert following["0"] == 1 + len(next(market.blocks(0)).messages)


def test_available_now_ends_where_the_journals_ended_when_it_began(market: Market) -> None:
    reader = stream_of(market.path)
    target = ends(market)
    reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
    market.append(0, 300)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == target
    assert reader.latestOffset(target, ALL) == target


@pytest.mark.parametrize(
    "starting, expected",
    [("latest", None), ('{"0": 40}', {"0": 40, "1": 1}), ("earliest", {"0": 1, "1": 1})],
)
def test_where_a_query_without_a_checkpoint_begins(
    market: Market, starting: str, expected: dict[str, int] | None
) -> None:
    assert stream_of(market.path, startingOffsets=starting).initialOffset() == (expected or ends(market))


def test_a_wrong_beginning_is_refused(market: Market) -> None:
    with pytest.raises(ConfigurationError, match="earliest, latest, or JSON"):
        stream_of(market.path, startingOffsets="yesterday")
    with pytest.raises(ConfigurationError, match="there is no stripe '7'"):
        stream_of(market.path, startingOffsets='{"7": 3}').initialOffset()


def test_a_stripe_that_begins_later_is_read_from_its_beginning(market: Market) -> None:
    reader = stream_of(market.path)
    before = reader.latestOffset(reader.initialOffset(), ALL)
    write_market(market.path, receivers=2, stripes=(2,), events=300)
    after = reader.latestOffset(before, ALL)
    assert set(after) == {"0", "1", "2"}
    assert {key[0] for key in keys(list(read_stream(reader, before, after)))} == {2}


def test_all_receivers_have_offsets_of_their_own(market: Market) -> None:
    reader = stream_of(market.path, receiver="all")
    start = reader.initialOffset()
    assert start == {"0@1": 1, "0@2": 1, "1@1": 1, "1@2": 1}
    got = keys(list(read_stream(reader, start, reader.latestOffset(start, ALL))))
    assert sorted(got) == sorted(truth(market) * 2)


# ---- a checkpoint and a folder that do not belong together


def test_a_checkpoint_that_is_ahead_of_the_data_is_an_error(market: Market) -> None:
    end = ends(market)
    ahead = {**end, "0": end["0"] + 5}
    for ask in (
        lambda: stream_of(market.path).latestOffset(ahead, ALL),
        lambda: stream_of(market.path).partitions(end, ahead),
    ):
        with pytest.raises(
            JournalError, match=f"read stripe 0 up to sequence {end['0'] + 4}, and the journals end with"
        ):
            ask()


def test_a_checkpoint_of_other_stripes_is_an_error(market: Market) -> None:
    with pytest.raises(JournalError, match="has read stripe 5, of which there is no journal here"):
        stream_of(market.path).latestOffset({"5": 1}, ALL)


def test_a_reader_that_retention_has_overtaken_says_so(market: Market) -> None:
    reader = stream_of(market.path, stripe=0)
    end = reader.latestOffset({"0": 1}, ALL)
    for receiver in (1, 2):
        segments(market.journal(receiver, 0))[0].unlink()
    with pytest.raises(JournalError, match="sequences 1 to "):
        list(read_stream(reader, {"0": 1}, end))


def test_a_receiver_that_stops_does_not_stop_the_stream(market: Market) -> None:
    reader = stream_of(market.path, stripe=0)
    before = reader.latestOffset({"0": 1}, ALL)
    alone = Market(market.path, (2,), market.stripes, market.count, market.seed, 20, 600, market.segment_bytes)
    alone.append(0, 300)
    after = reader.latestOffset(before, ALL)
    assert after["0"] > before["0"]
    got = list(read_stream(reader, before, after))
    assert {row for batch in got for row in batch["receiver"].to_pylist()} == {2}


# ---- Spark


def test_spark_reads_the_same_rows(spark: SparkSession, market: Market) -> None:
    frame = spark.read.format("isocast").load(str(market.path))
    got = frame.orderBy("stripe", "sequence", "index").toArrow()
    assert got.to_pylist() == read_table(market.path).to_pylist()
    named = spark.read.format("isocast").options(symbol="S0N001", columns="symbol, price").load(str(market.path))
    some = spark.read.format("isocast").schema("symbol STRING, price BIGINT").option("symbol", "S0N001")
    assert some.load(str(market.path)).where("price > 0").count() == frame.where("symbol = 'S0N001'").count() > 0
    assert named.schema == frame.select("symbol", "price").schema  # not null, as the source says
    assert sorted(named.collect()) == sorted(some.load(str(market.path)).collect())
    assert frame.where("stripe = 1").count() + frame.where("stripe = 0").count() == frame.count() == len(truth(market))


def test_sparks_errors_hold_one_sentence_of_ours(spark: SparkSession, market: Market) -> None:
    with pytest.raises(Exception, match="fromSequence") as caught:
        spark.read.format("isocast").option("fromSequenz", 1).load(str(market.path)).count()
    ours = 'format isocast: fromsequenz: there is no such option; did you mean "fromSequence"?'
    assert any(line.endswith(f"Error: {ours}") for line in str(caught.value).splitlines())


def test_a_query_goes_on_from_its_checkpoint(spark: SparkSession, market: Market, tmp_path: Path) -> None:
    def run() -> int:
        query = (
            spark.readStream.format("isocast")
            .option("maxRowsPerTrigger", 2_500)
            .option("columns", "stripe, sequence, index")
            .load(str(market.path))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        return len([progress for progress in query.recentProgress if progress["numInputRows"]])

    assert run() >= 3
    market.append(0, 500)
    run()
    got = sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert got == truth(market)
