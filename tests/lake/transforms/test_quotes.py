"""Quotes that stand: against the ticker, against DuckDB's ASOF JOIN, and however the frame is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.lake.transforms.days import asked, released, synthetic_day

from isocast.lake.transforms import slices
from isocast.lake.transforms.quotes import STANDING_COLUMNS, quotes_across_floors, trades_with_quotes
from isocast.lake.transforms.slices import QuoteCarry, in_slices, sliced, sliced_files
from isocast.lake.transforms.standing import StandingQuotes
from isocast.terms.errors import LocalProtocolError
from isocast.terms.market import EventFlag, EventKind, Side
from isocast.ticker.tape import Tape
from isocast.ticker.views import symbol_views
from isocast.wire.events import EventArray

ASOF = """
    with trades as (select * from events where kind in (1, 6)),
    quotes as (select *, sequence * 65536 + index as place from events
               where kind = 2 and side > 0 and (quantity = 0 or price <> 0))
    select t.sequence, t.index,
      case when b.quantity > 0 then b.price end bid, case when b.quantity > 0 then b.quantity end bid_size,
      case when a.quantity > 0 then a.price end ask, case when a.quantity > 0 then a.quantity end ask_size
    from trades t
    asof left join (select * from quotes where side = 1) b
      on t.symbol = b.symbol and t.floor = b.floor and t.sequence * 65536 + t.index >= b.place
    asof left join (select * from quotes where side = 2) a
      on t.symbol = a.symbol and t.floor = a.floor and t.sequence * 65536 + t.index >= a.place
    order by t.sequence, t.index
"""
BEST = """
    with quotes as (select *, sequence * 65536 + index as place from events
                    where kind = 2 and side > 0 and (quantity = 0 or price <> 0)),
    asks as (select distinct sequence * 65536 + index as place, symbol from events
             where kind = 2 and flags & 1 = 0 and symbol <> ''),
    standing as (select a.place, q.symbol, q.side, q.floor, arg_max(q.price, q.place) price,
                        arg_max(q.quantity, q.place) quantity
                 from asks a join quotes q on q.symbol = a.symbol and q.place <= a.place group by all),
    best as (select place, side, case when side = 1 then max(price) else min(price) end price from standing
             where quantity > 0 group by place, side)
    select b.place, b.side, b.price, sum(s.quantity)::bigint quantity
    from best b join standing s on s.place = b.place and s.side = b.side and s.price = b.price and s.quantity > 0
    group by all order by b.place, b.side
"""


@pytest.fixture(scope="module")
def events() -> EventArray:
    return synthetic_day()


def in_order(frame: DataFrame) -> list[tuple[object, ...]]:
    found = frame.orderBy("sequence", "index").select("sequence", "index", *STANDING_COLUMNS)
    return [tuple(row) for row in found.collect()]


def test_trades_meet_the_quotes_of_their_floor_as_duckdb_joins_them(spark: SparkSession, events: EventArray) -> None:
    table = released(events)
    made = trades_with_quotes(spark.createDataFrame(table)).orderBy("sequence", "index")
    names = ("sequence", "index", "bid", "bid_size", "ask", "ask_size")
    found = [row.asDict() for row in made.select(*names).collect()]
    assert len(found) > 900
    assert found == asked(ASOF, events=table)


def test_the_best_of_all_floors_is_duckdbs_behind_every_quote(spark: SparkSession) -> None:
    day = synthetic_day(trades=250, symbols=4)
    # Quotes of no symbol are none, in whichever stripe.
    nameless = np.flatnonzero(day["kind"] == EventKind.QUOTE)[::40]
    day["symbol"][nameless], day["flags"][nameless] = b"", EventFlag.COPIED
    table = released(day)
    made = quotes_across_floors(spark.createDataFrame(table)).orderBy("sequence", "index").collect()
    found = [
        {"place": row["sequence"] * 65536 + row["index"], "side": side, "price": row[name], "quantity": row[size]}
        for row in made
        for side, name, size in ((1, "best_bid", "best_bid_size"), (2, "best_ask", "best_ask_size"))
        if row[name] is not None
    ]
    assert all(row["symbol"] for row in made)
    assert len(found) > 500
    assert found == asked(BEST, events=table)


def test_the_last_quotes_are_those_of_the_ticker(spark: SparkSession, events: EventArray) -> None:
    tape = Tape()
    tape.take(events)
    made = quotes_across_floors(spark.createDataFrame(released(events)))
    newest = made.groupBy("symbol").agg(F.max_by(F.struct(*STANDING_COLUMNS), F.struct("sequence", "index")).alias("q"))
    found = {row["symbol"]: tuple(row["q"])[4:] for row in newest.collect()}
    for view in symbol_views(tape):
        bid = (view.bid.price, view.bid.size) if view.bid else (None, None)
        ask = (view.ask.price, view.ask.size) if view.ask else (None, None)
        assert found[view.symbol] == (*bid, *ask), view.symbol


def test_slices_change_nothing(spark: SparkSession, events: EventArray, monkeypatch: pytest.MonkeyPatch) -> None:
    table = released(events)
    whole = in_order(trades_with_quotes(spark.createDataFrame(table)))
    frame = spark.createDataFrame(table)
    monkeypatch.setattr(slices, "SLICE_ROWS", 2_500)
    assert in_order(trades_with_quotes(in_slices(frame, 2_000))) == whole
    assert in_order(trades_with_quotes(frame.repartition(3, "symbol"))) == whole


def test_blocks_change_nothing(events: EventArray) -> None:
    table = released(events)
    whole = list(blocks_of(table, len(table)))
    small = list(blocks_of(table, 333))
    assert len(small) > 10
    for place in range(8):
        assert (
            np.concatenate([part[place] for part in whole]).tolist()
            == np.concatenate([part[place] for part in small]).tolist()
        )


def blocks_of(table: pa.Table, rows: int) -> Iterator[tuple[npt.NDArray[np.int64], ...]]:
    standing = StandingQuotes()
    for part in slices.ordered_blocks(table.to_batches(max_chunksize=rows), rows):
        bid, ask = standing.follow(slices.block_of(part))
        yield bid.price, bid.size, bid.best, bid.best_size, ask.price, ask.size, ask.best, ask.best_size


def test_files_are_read_without_spark_in_between(
    spark: SparkSession, events: EventArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = released(events)
    frame = spark.createDataFrame(table)
    files = []
    for number, start in enumerate(range(0, len(table), 7 * 250)):
        path = str(tmp_path / f"{number}.parquet")
        pq.write_table(table.slice(start, 7 * 250).drop_columns(["stripe"]), path, row_group_size=500)
        files.append((path, 0))
    monkeypatch.setattr(slices, "SLICE_ROWS", 1_200)
    made = sliced_files(spark, files[::-1], frame.schema)
    assert in_order(trades_with_quotes(made)) == in_order(trades_with_quotes(frame))
    assert in_order(quotes_across_floors(made)) == in_order(quotes_across_floors(frame))
    with pytest.raises(LocalProtocolError, match="overlap"):
        sliced_files(spark, [*files, files[0]], frame.schema)


def test_quotes_go_on_from_where_they_stood(spark: SparkSession, events: EventArray) -> None:
    table = released(events)
    whole = in_order(trades_with_quotes(spark.createDataFrame(table)))
    half = len(table) // 14 * 7
    first = sliced(spark.createDataFrame(table.slice(0, half)))
    second = sliced(spark.createDataFrame(table.slice(half)), first.carry.closing())
    assert in_order(trades_with_quotes(first)) + in_order(trades_with_quotes(second)) == whole


def test_a_slice_inside_another_is_no_answer(spark: SparkSession, events: EventArray) -> None:
    frame = spark.createDataFrame(released(events))
    carry = QuoteCarry.of(sliced(frame).source)
    with pytest.raises(LocalProtocolError, match="inside another"):
        carry.before(0, carry.summary["last_sequence"][0].as_py(), 0)


def test_a_withdrawn_side_is_no_side() -> None:
    standing = StandingQuotes()
    line = standing.line_numbers([("AAA", "XLON")])
    standing.set(Side.BUY, line, np.array([100]), np.array([5]))
    assert standing.bid.price.tolist() == [100]
    standing.set(Side.BUY, line, np.array([100]), np.array([0]))
    assert standing.bid.size.tolist() == [0]
    assert standing.bid.price[0] < -(1 << 60)
