"""Books in the lake: in steps and at once, the same as the ticker's own."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from isocast.lake.pipeline_stages import BronzeNews, advance_books, date_of
from isocast.lake.schemas import RELEASED_SCHEMA
from isocast.lake.source.options import struct_of
from isocast.lake.tables import Lake, LakeSettings
from isocast.lake.transforms.books import book_changes, book_columns, level_columns
from isocast.ticker.books import BookChange, OrderBooks
from isocast.wire.events import EVENT_DTYPE, EventArray

HOUR = 3_600 * 10**9
START = 1_767_623_400_000_000_000
MARKETS = ("normal", "locked", "crossed")


def flow(count: int) -> EventArray:
    """Random orders of three symbols on two floors; one floor begins another day in the middle."""
    random = np.random.default_rng(3)
    events = np.zeros(count, EVENT_DTYPE)
    events["kind"] = random.choice([3, 4, 5, 6], count, p=[0.55, 0.2, 0.05, 0.2])
    events["side"] = random.integers(1, 3, count)
    events["floor"] = random.choice(np.array([b"XNYS", b"XLON"]), count)
    events["symbol"] = random.choice(np.array([b"A", b"B", b"C"]), count)
    events["price"] = np.where(events["side"] == 1, random.integers(90, 101, count), random.integers(100, 110, count))
    events["quantity"] = random.integers(1, 9, count)
    events["id"] = random.integers(1, 40, count).astype(np.uint64) + np.uint64(1 << 63)
    events["time"] = START + np.arange(count, dtype=np.uint64)
    for place, moment in ((0, START), (count // 2, START + 24 * HOUR)):
        events[place] = (11, 0, 0, b"XNYS", b"", 0, 0, ord("O"), moment, 0)
    return events


def released(spark: SparkSession, events: EventArray, first: int) -> DataFrame:
    """Messages of two events each."""
    columns: dict[str, object] = {name: np.zeros(len(events), np.int64) for name in RELEASED_SCHEMA.names}
    places = np.arange(first, first + len(events))
    columns |= {"sequence": places // 2 + 1, "index": places % 2, "event_ns": events["time"].astype(np.int64)}
    columns |= {"due_ns": START + places, "id": events["id"].view(np.int64)}
    for name in ("kind", "side", "flags", "price", "quantity", "reference"):
        columns[name] = events[name].astype(np.int64)
    for name in ("floor", "symbol"):
        columns[name] = [text.decode() for text in events[name].tolist()]
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in RELEASED_SCHEMA]
    frame = spark.createDataFrame(pa.Table.from_arrays(arrays, schema=RELEASED_SCHEMA))
    return frame.select(struct_of(RELEASED_SCHEMA).fieldNames())


def expected(events: EventArray, depth: int) -> dict[tuple[int, int], tuple[object, ...]]:
    changes: list[BookChange] = []
    OrderBooks().follow(events, changes, depth)
    return {
        (change.place // 2 + 1, change.place % 2): (
            events["floor"][change.place].decode(),
            events["symbol"][change.place].decode(),
            change.bids,
            change.bid_sizes,
            change.asks,
            change.ask_sizes,
            MARKETS[change.market],
            change.is_sound,
        )
        for change in changes
    }


def found(frame: DataFrame) -> dict[tuple[int, int], tuple[object, ...]]:
    """Without the rows that say that a day is over: several books have one at the same place."""
    rows = {}
    for row in frame.collect():
        levels = [[row[level_columns(level)[side]] for level in (1, 2, 3)] for side in range(4)]
        sides = [[value for value in side if value is not None] for side in levels]
        if sides[0] or sides[2] or not row["sound"]:
            rows[row["sequence"], row["index"]] = (row["floor"], row["symbol"], *sides, row["market"], row["sound"])
    return rows


def test_books_in_steps_are_the_books_at_once_and_those_of_the_ticker(spark: SparkSession, tmp_path: Path) -> None:
    events = flow(300)
    wanted = {place: row for place, row in expected(events, 3).items() if row[2] or row[4] or not row[7]}
    whole = book_changes(released(spark, events, 0), 3)
    assert whole.columns == list(book_columns(3))
    assert found(whole) == wanted

    lake = Lake.create(tmp_path / "lake", LakeSettings(depth=3))
    for begin, stop in ((0, 190), (190, 300)):
        rows = released(spark, events[begin:stop], begin)
        lake.released.commit(rows.withColumn("date", date_of(rows.due_ns)), lambda _: {})
        advance_books(spark, lake, BronzeNews(lake.released.snapshot().version))
    made = lake.books.read(spark)
    assert made is not None
    assert found(made) == wanted
    over = list(lake.books.path.rglob("*.parquet"))
    empty = [
        row
        for file in over
        for row in pq.read_table(file, partitioning=None).to_pylist()
        if row["event_ns"] > START + HOUR
    ]
    assert {row["floor"] for row in empty} == {"XNYS"}, "the books of the day before are empty"
    assert all(row["bid"] is None and row["trading_day"] == date(2026, 1, 6) for row in empty)
    faults = lake.books.snapshot().notes["faults"]
    mine = OrderBooks().follow(events)
    assert faults == {fault.value: len(places) for fault, places in mine.items()}
    assert advance_books(spark, lake, BronzeNews(lake.released.snapshot().version)) == 0, "nothing is new"
