"""The tape by Spark is the ticker's, trade by trade, also when it is made in steps."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.lake.transforms.days import released, synthetic_day

from isocast.lake.transforms.bars import counted, last_sales
from isocast.lake.transforms.survey import EventPlace, FloorDays, Reference, SurveyedTrade, SymbolLine, amend
from isocast.lake.transforms.tape import TAPE_COLUMNS, TapeMemory, amended, consolidated_tape, next_tape
from isocast.striping.routing import CoreRoutes
from isocast.terms.market import EventFlag, EventKind
from isocast.ticker.records import NOT_COUNTED, TradeState
from isocast.ticker.tape import Tape
from isocast.ticker.views import day_rows, symbol_views
from isocast.wire.events import EventArray

COLUMNS = ("sequence", "price", "quantity", "trade_id", "event_ns")


def ticker(events: EventArray) -> Tape:
    table = released(events)
    tape = Tape()
    tape.take(events, table["sequence"].to_numpy().astype(np.uint64))
    return tape


def rows(tape: DataFrame) -> list[tuple[int, ...]]:
    return [tuple(row) for row in counted(tape).orderBy("sequence", "index").select(*COLUMNS).collect()]


def expected(tape: Tape) -> list[tuple[int, ...]]:
    trades = tape.trades.all
    trades = trades[(trades["state"] & NOT_COUNTED) == 0]
    return list(zip(*(trades[name].tolist() for name in ("sequence", "price", "quantity", "id", "time")), strict=True))


@pytest.fixture(scope="module")
def events() -> EventArray:
    return synthetic_day()


def test_trades_that_stand_are_those_of_the_ticker(spark: SparkSession, events: EventArray) -> None:
    own = ticker(events)
    assert own.faults.counts
    made = consolidated_tape(spark.createDataFrame(released(events)))
    assert rows(made) == expected(own)
    states = {row["state"]: row["count"] for row in made.groupBy("state").count().collect()}
    kept = own.trades.all["state"]
    assert states == dict(zip(*(part.tolist() for part in np.unique(kept, return_counts=True)), strict=True))


def test_last_sales_and_volumes_are_those_of_the_ticker(spark: SparkSession, events: EventArray) -> None:
    made = last_sales(consolidated_tape(spark.createDataFrame(released(events))))
    found = {row["symbol"]: (row["price"], row["quantity"], row["floor"], row["volume"]) for row in made.collect()}
    views = symbol_views(ticker(events))
    assert found == {
        view.symbol: (view.last.price, view.last.quantity, view.last.floor, view.volume)
        for view in views
        if view.last is not None
    }


def test_parts_of_a_frame_without_trades_change_nothing(spark: SparkSession, events: EventArray) -> None:
    """No trade and no correction in some, or nothing at all in any."""
    frame = spark.createDataFrame(released(events)).coalesce(1)
    whole, order = consolidated_tape(frame), ("sequence", "index")
    apart = frame.where("kind = 2").unionByName(frame.where("kind != 2")).unionByName(frame.where("kind < 0"))
    assert consolidated_tape(apart).orderBy(*order).toArrow().equals(whole.orderBy(*order).toArrow())
    assert consolidated_tape(frame.where("kind < 0")).count() == 0


def _kept(tape: DataFrame | None) -> DataFrame | None:
    return tape


def test_a_tape_made_in_steps_is_the_same(spark: SparkSession, events: EventArray) -> None:
    table = released(events)
    whole = consolidated_tape(spark.createDataFrame(table))
    memory, before = TapeMemory(), None
    for start in range(0, len(table), 7 * 400):
        step = next_tape(spark.createDataFrame(table.slice(start, 7 * 400)), partial(_kept, before), memory)
        if before is not None:
            before = amended(before, step.amendments)
        new = step.trades.select(*TAPE_COLUMNS)
        # Collected, as a table keeps it: otherwise each step would do the work of all before it again.
        before = spark.createDataFrame((new if before is None else before.unionByName(new)).toArrow())
        memory = step.memory
    assert before is not None
    order = ("sequence", "index")
    assert before.orderBy(*order).toArrow().equals(whole.orderBy(*order).toArrow())


def test_stripes_of_a_core_have_one_tape_together(spark: SparkSession, events: EventArray) -> None:
    """Days begin in each of them, by copies of what concerns whole floors."""
    parts = CoreRoutes((0, 1)).split(events)
    assert (parts[1]["flags"] & EventFlag.COPIED).any()
    table = pa.concat_tables([released(part, stripe) for stripe, part in parts.items()])
    made = counted(consolidated_tape(spark.createDataFrame(table)))
    found = sorted(tuple(row) for row in made.select(*COLUMNS[1:]).collect())
    assert found == sorted(row[1:] for row in expected(ticker(events)))


def test_yesterdays_trades_are_not_corrected_today(spark: SparkSession) -> None:
    day = synthetic_day(trades=300, symbols=3)
    later = day.copy()
    later["time"] += np.uint64(86_400 * 10**9)
    broken = day[day["kind"] == EventKind.TRADE][:20].copy()
    broken["kind"], broken["time"] = EventKind.TRADE_CANCEL, later["time"].max()
    today = later[np.isin(later["kind"], [EventKind.MARK, EventKind.DIRECTORY])]
    events = np.concatenate([day, today, broken])
    made = consolidated_tape(spark.createDataFrame(released(events)))
    of_day = consolidated_tape(spark.createDataFrame(released(day)))
    assert rows(made) == rows(of_day)
    assert day_rows(ticker(events))[0].cancelled == 0


def test_lines_whose_ids_rise_are_not_compared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    events = synthetic_day(corrections=0.0)
    events = events[(events["kind"] != EventKind.TRADE) | (events["id"] < 1 << 40)]
    trades = events["kind"] == EventKind.TRADE
    events["id"][trades] = np.arange(1, trades.sum() + 1)
    frame = spark.createDataFrame(released(events))
    monkeypatch.setattr("isocast.lake.transforms.tape._repetitions", lambda *_: pytest.fail("compared"))
    assert consolidated_tape(frame).count() == trades.sum()


LINE = SymbolLine(0, "AAA", "XLON")


@pytest.mark.parametrize(
    "kind, price, quantity, state, want",
    [
        (EventKind.CORRECTION, 20, 5, 0, (20, 5, TradeState.CORRECTED)),
        (EventKind.CORRECTION, 0, 5, 0, None),
        (EventKind.CORRECTION, 20, 0, 0, None),
        (EventKind.CORRECTION, 1 << 50, 5, 0, None),
        (EventKind.CORRECTION, 10, 1, TradeState.CORRECTED, None),
        (EventKind.CORRECTION, 20, 5, TradeState.CANCELLED, None),
        (EventKind.CORRECTION, 20, 5, TradeState.FLAWED, (20, 5, TradeState.CORRECTED)),
        (EventKind.TRADE_CANCEL, 0, 0, 0, (10, 1, TradeState.CANCELLED)),
        (EventKind.TRADE_CANCEL, 0, 0, TradeState.CANCELLED, None),
    ],
)
def test_what_a_reference_does(
    kind: EventKind, price: int, quantity: int, state: int, want: tuple[int, int, int] | None
) -> None:
    trade = SurveyedTrade(LINE, 7, EventPlace(1, 0), 10, 1, state)
    found = amend([trade], [Reference(LINE, 7, EventPlace(2, 0), kind, 0, price, quantity)], FloorDays())
    assert [each[2:5] for each in found] == ([] if want is None else [want])


def test_a_reference_means_the_newest_trade_before_it() -> None:
    trades = [SurveyedTrade(LINE, 7, EventPlace(at, 0), 10, 1, 0) for at in (1, 4, 9)]
    found = amend(trades, [Reference(LINE, 7, EventPlace(6, 0), EventKind.TRADE_CANCEL, 0, 0, 0)], FloorDays())
    assert [each.place for each in found] == [EventPlace(4, 0)]


def test_days_pass_through_a_file() -> None:
    days = FloorDays()
    for at, moment in enumerate((1, 2, 1 + 13 * 3_600 * 10**9, 2 + 26 * 3_600 * 10**9)):
        days.mark(0, "XLON", EventPlace(at + 1, 0), moment)
    assert days.begun == {(0, "XLON"): [EventPlace(3, 0), EventPlace(4, 0)]}
    assert FloorDays.from_json(days.as_json()) == days


def test_an_empty_frame_has_an_empty_tape(spark: SparkSession) -> None:
    schema = spark.createDataFrame(released(synthetic_day(trades=50, symbols=2))).schema
    made = consolidated_tape(spark.createDataFrame([], schema))
    assert made.agg(F.count("*")).collect()[0][0] == 0
    assert isinstance(made.toArrow(), pa.Table)
