"""A frame published as a floor, exactly once, whatever is interrupted and repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, WriterCommitMessage
from pyspark.sql.types import ByteType, DoubleType, LongType, StringType, StructField, StructType
from tests.lake.markets import write_market
from tests.runtime.worlds import Nodes, World, market_file, running, trades, wait_until

from isocast.lake.schemas import EVENT_SCHEMA
from isocast.lake.source import sink as publish_sink_log
from isocast.lake.source.columns import event_batch
from isocast.lake.source.journal import IsocastSource
from isocast.lake.source.options import struct_of
from isocast.lake.source.sink import StreamPublisher
from isocast.runtime.client.publisher import Publisher
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import Label
from isocast.wire.events import EventArray

PAIR: Nodes = {
    "a": {"role": "primary-receiver"},
    "b": {"role": "primary-receiver"},
    "floor": {"role": "primary-source"},
    "x": {"role": "reformation-server"},
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with running(market_file(tmp_path, PAIR)) as alive:
        yield alive


def sink(world: World, place: Path, schema: StructType | None = None, **more: str) -> StreamPublisher:
    """A streaming query's writer, as each of Spark's processes makes one."""
    given = {"market": str(world.path), "source": "floor", "checkpointLocation": str(place / "checkpoint"), **more}
    return StreamPublisher(CaseInsensitiveDict(given), schema or struct_of(EVENT_SCHEMA))


def tasks(writer: StreamPublisher, events: EventArray, cuts: Sequence[int] = ()) -> list[WriterCommitMessage | None]:
    """What the tasks of a batch hand over."""
    parts = np.split(events, cuts)
    return [writer.write(iter([event_batch(part, EVENT_SCHEMA)])) for part in parts]


def timed(count: int, first_id: int = 1) -> EventArray:
    events = trades(count, first_id)
    events["time"] = 1_000_000_000 + events["id"] * 1_000
    return events


def settled(world: World, ids: Sequence[int]) -> None:
    """The journal has these events and no others, in this order."""
    wait_until(lambda: world.count("a") >= len(ids))
    assert world.ids("a") == list(ids)


def test_a_batch_is_published_in_the_order_of_its_column_however_it_was_cut(world: World, tmp_path: Path) -> None:
    writer = sink(world, tmp_path)
    events = timed(300)
    shuffled = events[np.random.default_rng(1).permutation(300)]
    writer.commit(tasks(writer, shuffled, [100, 101]), 0)
    settled(world, range(1, 301))


def test_a_batch_that_is_repeated_publishes_nothing_twice(world: World, tmp_path: Path) -> None:
    writer = sink(world, tmp_path)
    writer.commit(tasks(writer, timed(100)), 0)
    sink(world, tmp_path).commit(tasks(writer, timed(100)), 0)
    # Even if the query computes more the second time: what was finished is finished.
    sink(world, tmp_path).commit(tasks(writer, timed(900, 5_000)), 0)
    writer.commit(tasks(writer, timed(50, 101)), 1)
    writer.commit([None, *tasks(writer, timed(0))], 2)
    writer.commit(tasks(writer, timed(1, 151)), 3)
    settled(world, range(1, 152))


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, after: int) -> Iterator[None]:
    """Whoever publishes dies when the source has taken so many portions, before he can note the last of them."""
    plain, calls = Publisher.publish_parts, 0

    async def dies(self: Publisher, parts: Mapping[int, Sequence[tuple[bytes, bytes]]]) -> tuple[Label, ...]:
        nonlocal calls
        calls += 1
        labels = await plain(self, parts)
        if calls == after:
            raise KeyboardInterrupt
        return labels

    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "publish_parts", dies)
        yield


def test_a_batch_that_was_interrupted_goes_on_as_it_began(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repeat computes other rows, as a careless query may; what counts is what was written down."""
    monkeypatch.setattr(publish_sink_log, "_AT_ONCE", 2)
    writer = sink(world, tmp_path)
    with dying(monkeypatch, 3), pytest.raises(KeyboardInterrupt):
        writer.commit(tasks(writer, timed(500)), 4)
    with pytest.raises(ConfigurationError, match="batch 4 was begun here and never finished"):
        sink(world, tmp_path).commit(tasks(writer, timed(3, 501)), 5)
    again = sink(world, tmp_path)
    again.commit(tasks(again, timed(700, 9_000), [13]), 4)
    again.commit(tasks(again, timed(3, 501)), 5)
    settled(world, range(1, 504))
    assert not list((tmp_path / "checkpoint" / "isocast-publish").glob("batch-*"))


def test_a_message_that_the_source_has_is_not_published_again_without_the_count(world: World, tmp_path: Path) -> None:
    """The count is saved now and then; between two savings the keys alone decide."""
    writer = sink(world, tmp_path)
    events = timed(500)
    log = publish_sink_log.PublishLog(tmp_path / "checkpoint" / "isocast-publish")
    with log.opened() as state:
        log.begin(state, 0, events, Publisher(world.path, "floor"))
    saved = (tmp_path / "checkpoint" / "isocast-publish" / "published.json").read_bytes()
    writer.commit(tasks(writer, events), 0)
    (tmp_path / "checkpoint" / "isocast-publish" / "published.json").write_bytes(saved)
    (tmp_path / "checkpoint" / "isocast-publish" / f"batch-{0:020}.events").write_bytes(events.tobytes())
    writer.commit(tasks(writer, events), 0)
    writer.commit(tasks(writer, timed(1, 501)), 1)
    settled(world, range(1, 502))
    with log.opened() as state:
        assert state.repeated == -(-500 // 27)


def has_events(world: World, name: str, count: int) -> bool:
    return world.count(name) >= count


def test_stripes_are_cut_on_their_own_and_each_event_comes_once_in_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event of no symbol goes into both; an interrupted batch leaves nothing out and repeats nothing in either."""
    monkeypatch.setattr(publish_sink_log, "_AT_ONCE", 4)
    with running(market_file(tmp_path, PAIR, settings={"ring": {"stripes": [0, 1]}})) as world:
        events = timed(541)
        events["symbol"] = [b"" if number == 540 else b"S%d" % (number % 20) for number in range(541)]
        writer = sink(world, tmp_path)
        with dying(monkeypatch, 3), pytest.raises(KeyboardInterrupt):
            writer.commit(tasks(writer, events, [99]), 0)
        writer.commit(tasks(writer, events), 0)
        writer.commit(tasks(writer, timed(1, 542)), 1)
        routes = Publisher(world.path, "floor").routes
        expected = {
            stripe: [*part["id"].tolist(), *([542] if routes.stripe_of("ISO") == stripe else [])]
            for stripe, part in routes.split(events).items()
        }
        for name, stripe in (("a", 0), ("a.s1", 1)):
            wait_until(partial(has_events, world, name, len(expected[stripe])))
            assert world.ids(name) == expected[stripe]
            assert 541 in expected[stripe]
            first = next(payload for _, payload in world.released(name))
            assert len(first) == 27 * 48, "a message is as full as it can be, whatever the other stripe has"


def test_a_symbol_of_another_stripe_stops_a_batch_before_it_is_written_down(tmp_path: Path) -> None:
    """And so the query can go on once it leaves the symbol out."""
    floor = {"role": "primary-source", "stripes": [0]}
    nodes = {**PAIR, "floor": floor, "other": {"role": "primary-source"}}
    path = market_file(tmp_path, nodes, settings={"ring": {"stripes": [0, 1]}})
    door = Publisher(path, "floor")
    events = timed(40)
    events["symbol"] = [b"S%d" % (number % 20) for number in range(40)]
    log = publish_sink_log.PublishLog(tmp_path / "progress")
    with log.opened() as state:
        with pytest.raises(ConfigurationError, match="travels in stripe 1, where this source does"):
            log.begin(state, 0, events, door)
        own = door.routes.split(events)[0]
        assert log.begin(state, 0, own, door) is own
        assert [message.place for message in publish_sink_log.stripe_messages(own, door, 5)] == list(
            range(len(own) // 5 + 1)
        )


def test_order_falls_back_on_the_sequence_then_on_time() -> None:
    from isocast.lake.schemas import RELEASED_SCHEMA  # noqa: PLC0415
    from isocast.lake.source.sink import _order  # noqa: PLC0415

    none = CaseInsensitiveDict({})
    assert _order(none, struct_of(RELEASED_SCHEMA)) == ("stripe", "sequence", "index")
    assert _order(none, struct_of(EVENT_SCHEMA)) == ("event_ns",)
    assert _order(CaseInsensitiveDict({"order": "id, price"}), struct_of(EVENT_SCHEMA)) == ("id", "price")


def test_another_checkpoint_with_the_same_progress_is_refused(world: World, tmp_path: Path) -> None:
    """Its batches have the same numbers, and would be taken for repeats."""
    for name in ("one", "two"):
        (tmp_path / name / "checkpoint").mkdir(parents=True)
        (tmp_path / name / "checkpoint" / "metadata").write_text(f'{{"id": "{name}"}}', encoding="ascii")
    progress = str(tmp_path / "progress")
    first = sink(world, tmp_path / "one", progress=progress)
    first.commit(tasks(first, timed(5)), 0)
    second = sink(world, tmp_path / "two", progress=progress)
    with pytest.raises(ConfigurationError, match="belongs to another checkpoint"):
        second.commit(tasks(second, timed(5, 6)), 0)
    settled(world, range(1, 6))


def test_a_damaged_count_is_no_empty_one(world: World, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "isocast-publish").mkdir(parents=True)
    (tmp_path / "checkpoint" / "isocast-publish" / "published.json").write_text("{}", encoding="ascii")
    writer = sink(world, tmp_path)
    with pytest.raises(ConfigurationError, match="may be published again"):
        writer.commit(tasks(writer, timed(1)), 0)


@pytest.mark.parametrize(
    "row, rule",
    [
        ({"kind": 99}, "an event of unknown kind .kind 99"),
        ({"floor": "nyse"}, "market identifier code .*'nyse'"),
        ({"symbol": "A B"}, "printable ASCII .*'A B'"),
        ({"flags": 999}, "unknown flags"),
        ({"event_ns": None}, "column event_ns: 1 values are null"),
    ],
)
def test_a_row_that_no_reader_would_take_for_an_event_is_refused(
    tmp_path: Path, row: dict[str, object], rule: str
) -> None:
    """The network carries any bytes: it would be published, and be in no table."""
    given = {"market": "market.toml", "source": "floor", "checkpointLocation": str(tmp_path)}
    whole = {"kind": 1, "floor": "XNYS", "symbol": "ISO", "flags": 0, "event_ns": 7, **row}
    schema = pa.schema([EVENT_SCHEMA.field(name).with_nullable(nullable=True) for name in whole])
    writer = StreamPublisher(CaseInsensitiveDict(given), struct_of(schema))
    batch = pa.RecordBatch.from_pylist([whole], schema)
    with pytest.raises(ConfigurationError, match=rule):
        writer.write(iter([batch]))


def test_a_price_with_a_point_is_no_number_of_ticks(tmp_path: Path) -> None:
    """72.0 would fit, and be 72 ticks."""
    given = {"market": "market.toml", "source": "floor", "checkpointLocation": str(tmp_path)}
    fields = [("kind", ByteType()), ("floor", StringType()), ("event_ns", LongType()), ("price", DoubleType())]
    schema = StructType([StructField(name, kind) for name, kind in fields])
    with pytest.raises(ConfigurationError, match="price is double, and has to be whole: ticks of 10"):
        StreamPublisher(CaseInsensitiveDict(given), schema)


def test_a_batch_write_without_a_market_says_so() -> None:
    source = IsocastSource(CaseInsensitiveDict({"source": "floor", "batch": "x"}))
    with pytest.raises(ConfigurationError, match="market: is missing"):
        source.writer(struct_of(EVENT_SCHEMA), overwrite=False)


@pytest.mark.parametrize(
    "columns, more, rule",
    [
        (("kind", "floor", "qty"), {"order": "qty"}, "there is no column 'qty'"),
        (("kind", "event_ns"), {}, "floor is missing"),
        (("kind", "floor", "price"), {}, "'event_ns' is not a column of whole numbers"),
        (("kind", "floor", "event_ns"), {"order": "floor"}, "'floor' is not a column of whole numbers of this frame$"),
        (("kind", "floor", "event_ns"), {"sorce": "x"}, 'did you mean "source"'),
        (("kind", "floor", "event_ns"), {"source": ""}, "source: is missing"),
        (("kind", "floor", "event_ns"), {"checkpointLocation": "s3://x/y"}, "s3://x/y is no local folder: set"),
        (("kind", "floor", "event_ns"), {"progress": "s3://x/y"}, "progress: s3://x/y is in no folder.*mount it"),
        (("kind", "floor", "event_ns"), {"market": "s3://x/y"}, "market: s3://x/y is in no folder.*mount it"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, columns: tuple[str, ...], more: dict[str, str], rule: str) -> None:
    fields = [pa.field(name, pa.string() if name == "floor" else pa.int64()) for name in columns]
    given = {"market": "market.toml", "source": "floor", "checkpointLocation": str(tmp_path), **more}
    with pytest.raises(ConfigurationError, match=rule):
        StreamPublisher(CaseInsensitiveDict(given), struct_of(pa.schema(fields)))


def test_rows_that_are_no_events_are_refused_before_anything_is_published(tmp_path: Path) -> None:
    given = {"market": "market.toml", "source": "floor", "checkpointLocation": str(tmp_path)}
    schema = pa.schema([("kind", pa.int64()), ("floor", pa.string()), ("event_ns", pa.int64())])
    writer = StreamPublisher(CaseInsensitiveDict(given), struct_of(schema))
    batch = pa.RecordBatch.from_pydict({"kind": [1, 300], "floor": ["XNYS", "XNYS"], "event_ns": [1, 2]}, schema)
    with pytest.raises(ConfigurationError, match="column kind"):
        writer.write(iter([batch]))


def test_what_was_published_cannot_be_overwritten(tmp_path: Path) -> None:
    source = IsocastSource(CaseInsensitiveDict({"market": str(tmp_path), "source": "floor", "batch": "x"}))
    with pytest.raises(ConfigurationError, match="cannot be taken back"):
        source.writer(struct_of(EVENT_SCHEMA), overwrite=True)


# ---- Spark


def test_a_query_from_journals_to_a_floor(spark: SparkSession, world: World, tmp_path: Path) -> None:
    """One market's tape published in another; a batch whose commit was lost comes again and changes nothing."""
    tape = write_market(tmp_path / "tape", receivers=1, stripes=(0,), events=300)
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        query = (
            spark.readStream.format("isocast")
            .option("maxRowsPerTrigger", 200)
            .load(str(tape.path))
            .writeStream.format("isocast")
            .option("market", str(world.path))
            .option("source", "floor")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), key=lambda p: int(p.name)
    )
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    tape.append(0, 60)
    run()
    expected = [int(row) for row in tape_ids(tape.path)]
    settled(world, expected)


def tape_ids(path: Path) -> list[int]:
    from tests.lake.direct import read_table  # noqa: PLC0415

    return read_table(path, ["id"])["id"].to_pylist()  # type: ignore[no-any-return]


def test_a_frame_is_published_once_by_its_name(spark: SparkSession, world: World) -> None:
    frame = spark.range(1, 41).selectExpr(
        "CAST(1 AS TINYINT) kind", "'XNYS' floor", "'ISO' symbol", "id", "id * 10 event_ns", "id price"
    )
    for _ in range(2):
        frame.write.format("isocast").options(market=str(world.path), source="floor", batch="day 1").mode(
            "append"
        ).save()
    settled(world, range(1, 41))
    with pytest.raises(Exception, match="name the batch"):
        frame.write.format("isocast").options(market=str(world.path), source="floor").mode("append").save()
