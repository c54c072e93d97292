"""The questions of bench/lake.py, asked of each engine; one that is not installed is left out."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from lake_market import say
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as Spark is written

from isocast.lake.transforms.bars import read_interval, rolling_vwap, vwap

__all__ = [
    "MINUTE",
    "PLACE",
    "asof_query",
    "asof_sums",
    "duck",
    "has",
    "polars_asof",
    "polars_bars",
    "polars_vwap",
    "spark_vwap",
    "tempo_asof",
    "tempo_bars",
    "union_and_last",
    "vwap_query",
    "whole",
]

MINUTE = read_interval("1m")
WINDOW = read_interval("30m")
MILLION = 1_000_000
PLACE = "sequence * 65536 + index"


def has(package: str) -> bool:
    """Whether an engine is installed, with all that it needs."""
    try:
        importlib.import_module(package)
    except ImportError as reason:
        if reason.name != package:
            say(f"{package} is left out: it needs {reason.name}")
        return False
    return True


def whole(row: Any) -> tuple[int, ...]:  # noqa: ANN401 - a row of any engine
    """The row's numbers as whole ones, however an engine types them."""
    return tuple(int(value) for value in row)


def asof_sums(joined: DataFrame) -> tuple[int, ...]:
    """Rows, and sums that an error would change."""
    names = ("bid", "bid_size", "ask", "ask_size")
    return whole(joined.agg(F.count("*"), *map(F.sum, names)).collect()[0])


def duck(query: str) -> Any:  # noqa: ANN401 - a row
    """One row from DuckDB, on as many threads as Spark has."""
    import duckdb  # noqa: PLC0415 - may be missing

    with duckdb.connect(config={"threads": len(os.sched_getaffinity(0))}) as other:
        return other.execute(query).fetchone()


def asof_query(parquet: Path) -> str:
    """Two ASOF joins by the sequence."""
    side = "select {place} place, symbol, floor, price, quantity from '{files}' where kind = 2 and side = {side}"
    files = f"{parquet}/*.parquet"
    bid, ask = (side.format(place=PLACE, files=files, side=number) for number in (1, 2))
    return f"""select count(*), sum(case when b.quantity > 0 then b.price end), sum(b.quantity),
        sum(case when a.quantity > 0 then a.price end), sum(a.quantity)
        from (select {PLACE} place, symbol, floor, price from '{files}' where kind = 1) t
        asof left join ({bid}) b on t.symbol = b.symbol and t.floor = b.floor and t.place >= b.place
        asof left join ({ask}) a on t.symbol = a.symbol and t.floor = a.floor and t.place >= a.place"""  # noqa: S608


def union_and_last(released: DataFrame) -> DataFrame:
    """What everybody writes first: a window over each line, and the last value that is there."""
    is_bid, is_ask = F.expr("kind = 2 and side = 1"), F.expr("kind = 2 and side = 2")
    window = Window.partitionBy("symbol", "floor").orderBy("sequence", "index")
    pair = F.struct("price", "quantity")
    bid = F.last(F.when(is_bid, pair), ignorenulls=True).over(window)
    ask = F.last(F.when(is_ask, pair), ignorenulls=True).over(window)
    columns = ("sequence", "index", "symbol", "floor", "price", "quantity", "kind", "side")
    joined = released.select(*columns).withColumn("b", bid).withColumn("a", ask).where("kind = 1")
    return joined.select(
        F.expr("case when b.quantity > 0 then b.price end").alias("bid"),
        F.expr("b.quantity").alias("bid_size"),
        F.expr("case when a.quantity > 0 then a.price end").alias("ask"),
        F.expr("a.quantity").alias("ask_size"),
    )


def spark_vwap(tape: DataFrame) -> Any:  # noqa: ANN401 - a row
    """Rows, and sums that an error would change: whole numbers all, the rolling VWAP in millionths of a tick."""
    made = rolling_vwap(vwap(tape, MINUTE), WINDOW)
    millionths = (F.col("rolling_vwap") * MILLION).cast("DECIMAL(38,0)")
    return made.agg(F.count("*"), F.sum("rolling_volume"), F.sum("turnover"), F.sum(millionths)).collect()[0]


def vwap_query(parquet: Path) -> str:
    """The same by DuckDB; a quotient is rounded as Spark rounds it, half up at the sixth digit."""
    return f"""with bars as (select symbol, event_ns // {MINUTE.ns} m, sum(quantity) volume, sum(price * quantity)
        turnover from '{parquet}/*.parquet' where kind = 1 group by all)
        select count(*), sum(rv), sum(turnover),
        sum(rt // rv * {MILLION} + (2 * {MILLION} * (rt % rv) + rv) // (2 * rv))
        from (select turnover, sum(volume) over w rv, sum(turnover) over w rt from bars window w as
        (partition by symbol order by m range between 29 preceding and current row))"""  # noqa: S608 - our own files


def polars_bars(files: list[str]) -> Any:  # noqa: ANN401 - a row
    """The same by Polars."""
    import polars as pl  # noqa: PLC0415 - may be missing

    trades = pl.scan_parquet(files).filter(pl.col("kind") == 1)
    ordered = trades.with_columns(m=pl.col("event_ns") // MINUTE.ns, place=pl.col("sequence") * 65536 + pl.col("index"))
    made = ordered.group_by("symbol", "m").agg(
        open=pl.col("price").get(pl.col("place").arg_min()),
        high=pl.col("price").max(),
        low=pl.col("price").min(),
        close=pl.col("price").get(pl.col("place").arg_max()),
        volume=pl.col("quantity").sum(),
        n=pl.len(),
        v=(pl.col("price") * pl.col("quantity")).sum() / pl.col("quantity").sum(),
    )
    names = ("open", "high", "low", "close", "volume")
    return made.select(pl.len(), *(pl.col(name).sum() for name in names)).collect(engine="streaming").row(0)


def polars_vwap(files: list[str]) -> Any:  # noqa: ANN401 - a row
    """The same by Polars."""
    import polars as pl  # noqa: PLC0415 - may be missing

    trades = pl.scan_parquet(files).filter(pl.col("kind") == 1)
    made = trades.group_by("symbol", m=pl.col("event_ns") // MINUTE.ns).agg(
        volume=pl.col("quantity").sum(), turnover=(pl.col("price") * pl.col("quantity")).sum()
    )
    rolled = (
        made.sort("symbol", "m")
        .rolling("m", period="30i", group_by="symbol")
        .agg(rv=pl.col("volume").sum(), rt=pl.col("turnover").sum(), turnover=pl.col("turnover").last())
    )
    volume, turnover = pl.col("rv"), pl.col("rt")
    millionths = turnover // volume * MILLION + (2 * MILLION * (turnover % volume) + volume) // (2 * volume)
    # Their sum may be longer than 64 bits.
    sums = volume.sum(), pl.col("turnover").sum(), millionths.cast(pl.Int128).sum().alias("millionths")
    return rolled.select(pl.len(), *sums).collect().row(0)


def polars_asof(files: list[str]) -> Any:  # noqa: ANN401 - a row
    """The same by Polars."""
    import polars as pl  # noqa: PLC0415 - may be missing

    events = pl.scan_parquet(files).select(
        "symbol", "floor", "kind", "side", "price", "quantity", place=pl.col("sequence") * 65536 + pl.col("index")
    )
    joined = events.filter(pl.col("kind") == 1).select("symbol", "floor", "place").sort("place")
    for side, name in ((1, "bid"), (2, "ask")):
        quotes = events.filter((pl.col("kind") == 2) & (pl.col("side") == side)).select(  # noqa: PLR2004 - a quote
            "symbol", "floor", "place", pl.col("price").alias(name), pl.col("quantity").alias(f"{name}_size")
        )
        joined = joined.join_asof(
            quotes.sort("place"), on="place", by=["symbol", "floor"], strategy="backward", check_sortedness=False
        )

    def price(name: str) -> pl.Expr:
        return pl.when(pl.col(f"{name}_size") > 0).then(pl.col(name)).sum().alias(name)

    sums = [each for name in ("bid", "ask") for each in (price(name), pl.col(f"{name}_size").sum())]
    return joined.select(pl.len(), *sums).collect().row(0)


def tempo_bars(tape: DataFrame) -> Any:  # noqa: ANN401 - a row
    """The same by dbl-tempo, whose bars have no volume."""
    from tempo import TSDF  # noqa: PLC0415 - may be missing

    frame = tape.select(
        "symbol", "price", "quantity", "sequence", F.expr("timestamp_micros(event_ns div 1000)").alias("ts")
    )
    made = TSDF(frame, ts_col="ts", partition_cols=["symbol"], sequence_col="sequence")
    calc = made.calc_bars(freq="1 minute", metricCols=["price"])
    names = ("open_price", "high_price", "low_price", "close_price")
    return calc.df.agg(F.count("*"), *map(F.sum, names)).collect()[0]


def tempo_asof(released: DataFrame) -> DataFrame:
    """Two as-of joins by dbl-tempo."""
    from tempo import TSDF  # noqa: PLC0415 - may be missing

    base = released.withColumn("ts", F.expr(f"timestamp_micros({PLACE})"))
    made = TSDF(base.where("kind = 1").select("ts", "symbol", "floor"), ts_col="ts", partition_cols=["symbol", "floor"])
    for side, name in ((1, "b"), (2, "a")):
        quotes = base.where(f"kind = 2 and side = {side}").select("ts", "symbol", "floor", "price", "quantity")
        made = made.asofJoin(TSDF(quotes, ts_col="ts", partition_cols=["symbol", "floor"]), right_prefix=name)
    return made.df.select(
        F.expr("case when b_quantity > 0 then b_price end").alias("bid"),
        F.col("b_quantity").alias("bid_size"),
        F.expr("case when a_quantity > 0 then a_price end").alias("ask"),
        F.col("a_quantity").alias("ask_size"),
    )
