"""Bars, VWAP and spreads: to the last tick what DuckDB answers, on generated days and on real ones.

ISOCAST_DATA=/path/to/data pytest tests/lake/transforms/test_bars.py
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.lake.transforms.days import asked, plain, released, synthetic_day

from isocast.lake.transforms.asof import LEFT_OUT, NOTED, asof_join, spreads, trade_spreads
from isocast.lake.transforms.bars import (
    bar_parts,
    bars,
    grown_bars,
    last_sales,
    left_out,
    read_calendar,
    read_interval,
    rolling_trade_vwap,
    rolling_vwap,
    vwap,
    whole_bars,
)
from isocast.lake.transforms.quotes import quotes_across_floors, trades_with_quotes
from isocast.lake.transforms.tape import consolidated_tape, reported_trades
from isocast.runtime.client.feed_files import FeedFile
from isocast.terms.conditions import TAPE_CONDITIONS
from isocast.terms.errors import LocalProtocolError
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray

DATA = os.environ.get("ISOCAST_DATA", "")
real = pytest.mark.skipif(not DATA, reason="ISOCAST_DATA does not say where the real files are")

BARS = """
    select symbol, event_ns - event_ns % {ns} start_ns,
      arg_min(price, sequence * 65536 + index) filter (state & 192 = 0) open,
      max(price) filter (state & 128 = 0) high, min(price) filter (state & 128 = 0) low,
      arg_max(price, sequence * 65536 + index) filter (state & 192 = 0) as close,
      sum(quantity)::bigint volume, count(*) trades, sum(price::hugeint * quantity) turnover
    from tape where state & 31 = 0 group by all order by symbol, start_ns
"""
ROLLING = """
    with bars as ({bars})
    select symbol, start_ns, sum(volume) over w rolling_volume, sum(turnover) over w rolling_turnover
    from bars window w as (partition by symbol order by start_ns range between {before} preceding and current row)
    order by symbol, start_ns
"""
MINUTE = 60 * 10**9

BAR_COLUMNS = ("symbol", "start_ns", "open", "high", "low", "close", "volume", "trades", "turnover", "vwap")


def tape_of(spark: SparkSession, events: EventArray) -> pa.Table:
    return consolidated_tape(spark.createDataFrame(released(events))).toArrow()


@pytest.fixture(scope="module")
def tape(spark: SparkSession) -> pa.Table:
    return tape_of(spark, synthetic_day())


def compare_bars(spark: SparkSession, tape: pa.Table, text: str) -> int:
    interval = read_interval(text)
    made = bars(spark.createDataFrame(tape), interval).orderBy("symbol", "start_ns")
    rows = [{name: plain(row[name]) for name in BAR_COLUMNS} for row in made.collect()]
    vwaps = [row.pop("vwap") for row in rows]
    expected = asked(BARS.format(ns=interval.ns), tape=tape)
    assert rows == expected
    for found, row in zip(vwaps, expected, strict=True):
        assert round(float(found), 6) == round(row["turnover"] / row["volume"], 6)  # type: ignore[arg-type]
    return len(rows)


@pytest.mark.parametrize("interval", [pytest.param("1s", marks=pytest.mark.long), "1m", "1d"])
def test_bars_are_duckdbs_to_the_last_tick(spark: SparkSession, tape: pa.Table, interval: str) -> None:
    assert compare_bars(spark, tape, interval) >= 20


def test_open_and_close_follow_the_sequence_and_not_the_clock(spark: SparkSession) -> None:
    events = synthetic_day(trades=400, symbols=2, corrections=0.0)
    events["time"] = events["time"] // np.uint64(MINUTE) * np.uint64(MINUTE)
    assert compare_bars(spark, tape_of(spark, events), "1m") > 50


def test_turnover_beyond_64_bits_is_exact(spark: SparkSession) -> None:
    events = synthetic_day(trades=200, symbols=2, corrections=0.0)
    events["price"][events["kind"] == 1] += 1 << 43
    events["quantity"][events["kind"] == 1] = (1 << 32) - 1
    assert compare_bars(spark, tape_of(spark, events), "1d") == 2


def test_a_symbol_that_moved_to_another_stripe_has_one_bar(spark: SparkSession) -> None:
    day = synthetic_day(trades=300, symbols=3, corrections=0.0)
    half = len(day) // 14 * 7
    moved = pa.concat_tables([released(day[:half]), released(day[half:], stripe=1)])
    one = bars(consolidated_tape(spark.createDataFrame(released(day))), read_interval("1d"))
    two = bars(consolidated_tape(spark.createDataFrame(moved)), read_interval("1d"))
    # Repetitions are known within a stripe: everything else is as if nothing had moved.
    columns = ("symbol", "open", "close", "high", "low")
    assert one.select(*columns).orderBy("symbol").collect() == two.select(*columns).orderBy("symbol").collect()


def test_days_of_a_zone_and_hours_of_a_session(spark: SparkSession) -> None:
    moments = ["2026-03-08T14:29:59", "2026-03-09T13:29:59", "2026-03-09T13:30:00", "2026-03-09T14:10:00",
               "2026-03-09T14:30:00", "2026-03-09T19:59:59", "2026-03-09T20:00:00", "2026-11-01T05:30:00",
               "2026-11-01T06:30:00", "2026-11-02T14:30:00"]  # fmt: skip
    rows = [
        (
            0,
            at,
            0,
            "AAA",
            "XNYS",
            100 + at,
            1,
            int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 10**9,
        )
        for at, text in enumerate(moments)
    ]
    names = "stripe INT, sequence BIGINT, index INT, symbol STRING, floor STRING, price BIGINT, quantity BIGINT"
    frame = spark.createDataFrame(rows, f"{names}, event_ns BIGINT")
    frame = frame.withColumn("due_ns", F.col("event_ns")).withColumn("state", F.lit(0))

    def starts(interval: str, session: str | None, holidays: tuple[str, ...] = ()) -> list[tuple[str, int]]:
        calendar = read_calendar("America/New_York", session, holidays)
        made = bars(frame, read_interval(interval), calendar).orderBy("start_ns").collect()
        return [(datetime.fromtimestamp(r["start_ns"] / 1e9, UTC).strftime("%m-%dT%H:%M"), r["trades"]) for r in made]

    assert starts("1d", None) == [("03-08T05:00", 1), ("03-09T04:00", 6), ("11-01T04:00", 2), ("11-02T05:00", 1)]
    # A Sunday on which somebody trades is a day like any other, and the print at 16:00 is in the last bar.
    assert starts("1h", "09:30-16:00") == [
        ("03-08T13:30", 1),
        ("03-09T13:30", 2),
        ("03-09T14:30", 1),
        ("03-09T19:30", 2),
        ("11-02T14:30", 1),
    ]
    assert starts("1d", "09:30-16:00", ("2026-03-09",)) == [("03-08T13:30", 1), ("11-02T14:30", 1)]
    # The hour that comes twice when clocks go back is two hours.
    assert ("11-01T05:00", 1) in starts("1h", None)
    assert ("11-01T06:00", 1) in starts("1h", None)


@pytest.mark.parametrize(
    "zone, noon",
    [("America/New_York", "2024-11-03T12"), pytest.param("Europe/London", "2024-03-31T12", marks=pytest.mark.long)],
)
def test_bars_of_days_of_change_are_those_of_polars_and_duckdb_in_any_session(
    spark: SparkSession, tape: pa.Table, zone: str, noon: str
) -> None:
    """Trades of three days around a change of clocks, in a session whose own zone is another."""
    middle = int(datetime.fromisoformat(noon + ":00Z").timestamp()) * 10**9
    moments = middle + np.linspace(-36 * 60 * MINUTE, 36 * 60 * MINUTE, len(tape)).astype(np.int64)
    moved = tape.set_column(tape.column_names.index("event_ns"), "event_ns", pa.array(moments))
    local = pl.Series(moments).cast(pl.Datetime("ns", "UTC")).dt.convert_time_zone(zone)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for text in ("1h", "1d", "1w", "1mo"):
            starts = local.dt.truncate(text).dt.epoch("ns").to_numpy()
            made = bars(spark.createDataFrame(moved), read_interval(text), read_calendar(zone))
            rows = [
                {name: plain(row[name]) for name in BAR_COLUMNS if name != "vwap"}
                for row in made.orderBy("symbol", "start_ns").collect()
            ]
            query = BARS.replace("event_ns - event_ns % {ns} start_ns", "start_ns")
            assert rows == asked(query, tape=moved.append_column("start_ns", pa.array(starts))), text
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_sale_conditions_decide_which_trades_make_prices(spark: SparkSession) -> None:
    """Volume has them all but the official close; a bar that goes on is the bar that is made at once."""
    late, odd, close = (int(TAPE_CONDITIONS[letter].flags) for letter in "ZIM")
    first = [(900, odd), (95, late), (100, 0), (110, 0)]
    rest = [(120, late), (1, odd), (105, 0), (105, close), (2, odd)]
    day = np.zeros(len(first) + len(rest), EVENT_DTYPE)
    day["kind"], day["floor"], day["symbol"], day["quantity"] = EventKind.TRADE, b"XNYS", b"AAA", 10
    day["id"], day["time"] = np.arange(1, len(day) + 1), MINUTE
    day["price"], day["flags"] = zip(*first, *rest, strict=True)
    tape = consolidated_tape(spark.createDataFrame(released(day))).cache()
    interval = read_interval("1m")
    (bar,) = bars(tape, interval).collect()
    assert [bar[name] for name in BAR_COLUMNS[2:8]] == [100, 120, 95, 105, 80, 8]
    cut = F.col("trade_id") <= len(first)
    before, after = (whole_bars(bar_parts(tape.where(part), interval)) for part in (cut, ~cut))
    assert grown_bars(before, after).select(*BAR_COLUMNS).collect() == [bar]
    (only,) = bars(tape.where("price < 50"), interval).collect()
    assert [only[name] for name in BAR_COLUMNS[2:8]] == [None, None, None, None, 20, 2]
    assert last_sales(tape).collect()[0]["price"] == 105
    reasons = {row["reason"]: (row["trades"], row["shares"]) for row in left_out(tape).collect()}
    assert reasons == {"odd lot": (3, 30), "late or out of sequence": (2, 20), "official close": (1, 10)}


def test_vwap_of_a_window_is_duckdbs(spark: SparkSession, tape: pa.Table) -> None:
    made = rolling_vwap(vwap(spark.createDataFrame(tape), read_interval("1m")), read_interval("30m"))
    found = {(row["symbol"], row["start_ns"]): row for row in made.collect()}
    query = ROLLING.format(bars=BARS.format(ns=MINUTE).split("order by")[0], before=30 * MINUTE - 1)
    expected = asked(query, tape=tape)
    assert len(found) == len(expected) > 250
    for row in expected:
        own = found[row["symbol"], row["start_ns"]]
        assert own["rolling_volume"] == row["rolling_volume"]
        assert abs(float(own["rolling_vwap"]) - row["rolling_turnover"] / row["rolling_volume"]) < 1e-5


def test_vwap_before_each_trade_is_duckdbs(spark: SparkSession, tape: pa.Table) -> None:
    made = rolling_trade_vwap(spark.createDataFrame(tape), read_interval("1m")).orderBy("sequence", "index")
    query = f"""select sum(quantity) over w volume, sum(price::hugeint * quantity) over w turnover from tape
        where state & 31 = 0 window w as (partition by symbol order by event_ns
        range between {MINUTE - 1} preceding and current row) order by sequence, index"""  # noqa: S608
    expected = asked(query, tape=tape)
    for row, want in zip(made.collect(), expected, strict=True):
        assert row["rolling_volume"] == want["volume"]
        assert abs(float(row["rolling_vwap"]) - want["turnover"] / want["volume"]) < 1e-5


def test_spreads_are_duckdbs(spark: SparkSession) -> None:
    frame = spark.createDataFrame(released(synthetic_day()))
    trades = reported_trades(trades_with_quotes(frame)).toArrow()
    quotes = quotes_across_floors(frame).toArrow()
    made = trade_spreads(spark.createDataFrame(trades), spark.createDataFrame(quotes), read_interval("5s"))
    query = """
        with t as (select *, 2 * price - best_bid - best_ask over_mid from trades
                   where state & 31 = 0 and best_bid <= best_ask)
        select t.sequence, t.index, t.best_ask - t.best_bid quoted, abs(over_mid) effective,
          sign(over_mid) * (2 * t.price - q.best_bid - q.best_ask) realised
        from t asof left join (select *, row_number() over (order by event_ns, sequence, index) place from quotes) q
          on q.symbol = t.symbol and q.event_ns <= t.event_ns + 5000000000
        order by t.sequence, t.index"""
    # DuckDB breaks ties of equal times as it likes: the last of each time is chosen beforehand.
    unique = asked(
        "select arg_max(best_bid, sequence * 65536 + index) best_bid, arg_max(best_ask, sequence * 65536 + index)"
        " best_ask, symbol, event_ns, max(sequence) as sequence, max(index) as index from"
        " (select symbol, event_ns, sequence, index, coalesce(best_bid, -1) best_bid, coalesce(best_ask, -1) best_ask"
        " from quotes) group by symbol, event_ns",
        quotes=quotes,
    )
    last = pa.Table.from_pylist([{k: None if v == -1 else v for k, v in row.items()} for row in unique])
    columns = ("sequence", "index", "quoted", "effective", "realised")
    found = made.where("quoted IS NOT NULL").orderBy("sequence", "index").select(*columns).collect()
    assert [row.asDict() for row in found] == asked(query, trades=trades, quotes=last)
    means = spreads(made, read_interval("1h")).collect()
    total = sum(row["quoted"] * row["volume"] for row in means if row["trades"])
    assert abs(float(total) - sum(r["quoted"] * r["quantity"] for r in made.collect() if r["quoted"])) < 1
    reasons = """
        select count(*) filter (best_bid <= best_ask) trades, count(*) filter (best_bid > best_ask) crossed,
          count(*) filter (best_bid = best_ask) locked, count(*) filter ((best_bid is null) <> (best_ask is null))
          one_sided, count(*) filter (best_bid is null and best_ask is null) unquoted
        from trades where state & 31 = 0"""
    (expected,) = asked(reasons, trades=trades)
    assert {name: sum(row[name] for row in means) for name in expected} == expected
    assert expected["one_sided"] + expected["unquoted"] > 0


def test_trades_without_a_spread_are_counted_by_reason(spark: SparkSession) -> None:
    """Markets of every kind; the figures are of those that have a spread."""
    markets = {
        "normal": (100, 110),
        "locked": (100, 100),
        "crossed": (110, 100),
        "one_sided": (None, 100),
        "unquoted": (None, None),
    }
    rows = [
        (0, place, 0, "A", "XNYS", 105, 10, 0, at * MINUTE, *sides)
        for place, (at, sides) in enumerate([(10, each) for each in markets.values()] + [(11, (100, 104))] * 2)
    ]
    names = "stripe INT, sequence BIGINT, index INT, symbol STRING, floor STRING, price BIGINT, quantity BIGINT"
    tape = spark.createDataFrame(rows, f"{names}, state INT, event_ns BIGINT, best_bid BIGINT, best_ask BIGINT")
    # The only quotes are of 10:30 and later, and the last ones have no bid: nothing is realised behind 11:00.
    quotes = spark.createDataFrame(
        [(0, 50, 0, "A", 8 * MINUTE, 100, 110), (0, 51, 0, "A", 10 * MINUTE + 10**9 * 30, None, 110)],
        "stripe INT, sequence BIGINT, index INT, symbol STRING, event_ns BIGINT, best_bid BIGINT, best_ask BIGINT",
    )
    (made,) = spreads(trade_spreads(tape, quotes), read_interval("1d")).collect()
    counts = {name: made[name] for name in ("trades", *LEFT_OUT, *NOTED)}
    assert counts == {
        "trades": 4,
        "crossed": 1,
        "one_sided": 1,
        "unquoted": 1,
        "locked": 1,
        "stale": 2,
        "unrealised": 2,
    }
    assert (made["volume"], float(made["quoted"])) == (40, (10 + 0 + 4 + 4) / 4)
    (nothing,) = spreads(trade_spreads(tape.where("best_bid > best_ask")), read_interval("1d")).collect()
    assert (nothing["trades"], nothing["volume"], nothing["crossed"], nothing["quoted"]) == (0, 0, 1, None)


def test_an_asof_join_takes_the_newest_by_time_and_then_by_sequence(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(5)
    left = pa.table({"t": random.integers(0, 400, 3_000), "k": random.integers(0, 5, 3_000), "n": np.arange(3_000)})
    right = pa.table(
        {"u": random.integers(0, 400, 2_000), "s": random.permutation(2_000), "k": random.integers(0, 6, 2_000)}
    )
    frames = spark.createDataFrame(left), spark.createDataFrame(right)
    keys = {"left_on": "t", "right_on": ("u", "s"), "by": ("k",), "take": ("s",)}
    whole = asof_join(*frames, **keys).orderBy("n").toArrow()  # type: ignore[arg-type]
    monkeypatch.setattr("isocast.lake.transforms.asof._SLICE_ROWS", 300)
    cut = asof_join(*frames, **keys).orderBy("n").toArrow()  # type: ignore[arg-type]
    query = """select n, (select arg_max(s, u * 10000 + s) from r where r.k = l.k and u <= t) s from l order by n"""
    expected = asked(query, l=left, r=right)
    assert whole.select(["n", "s"]).to_pylist() == expected
    assert cut.equals(whole)
    with pytest.raises(LocalProtocolError, match="prefix"):
        asof_join(*frames, left_on="t", right_on="u", by=(), take=("k",))


@real
def test_real_days_are_duckdbs(spark: SparkSession) -> None:
    days = sorted((Path(DATA) / "lean_us_tick").glob("*.zip"))
    assert days
    events = np.concatenate([block for day in days for block in FeedFile(day).blocks()])
    events = events[np.argsort(events["time"], kind="stable")]
    made = tape_of(spark, events)
    assert compare_bars(spark, made, "1m") > 2_000
    frame = spark.createDataFrame(released(events))
    joined = trades_with_quotes(frame, ["sequence", "index"]).orderBy("sequence", "index")
    from tests.lake.transforms.test_quotes import ASOF  # noqa: PLC0415

    names = ("sequence", "index", "bid", "bid_size", "ask", "ask_size")
    assert joined.select(*names).toArrow().to_pylist() == asked(ASOF, events=released(events))
