"""Spreads in ticks: quoted, effective, and realised some time later.

    quoted     best ask − best bid, as the trade found them
    effective  2·d·(price − mid), d = +1 for a buyer's trade, −1 for a seller's: what trading at once cost
    realised   2·d·(price − mid some time later): what of that the other side could keep

A trade above the middle of the best bid and ask was a buyer's, one below it a seller's; one in the middle has an
effective and a realised spread of 0. Twice the middle is bid + ask, so that all of them are whole ticks.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isocast.lake.transforms.asof import asof_join
from isocast.lake.transforms.bars import VWAP_TYPE, counted
from isocast.lake.transforms.calendars import ALWAYS, Calendar, Interval, read_interval

__all__ = ["HORIZON", "spreads", "trade_spreads"]

HORIZON = read_interval("5s")
"""After which a realised spread is taken, if nobody says otherwise."""


def trade_spreads(tape: DataFrame, quotes: DataFrame | None = None, horizon: Interval = HORIZON) -> DataFrame:
    """Every trade that stands between a bid and an ask, with its spreads; realised if `quotes` are given.

    The later middle is that of the last quote, by the floors' clocks and then by the sequence, up to `horizon` after
    the trade. Trades without both sides are left out.
    """
    mid_twice = F.col("best_bid") + F.col("best_ask")
    has_both = F.col("best_bid").isNotNull() & F.col("best_ask").isNotNull()
    trades = (
        counted(tape)
        .where(has_both & (F.col("best_bid") <= F.col("best_ask")))
        .select(
            "stripe",
            "sequence",
            "index",
            "symbol",
            "floor",
            "price",
            "quantity",
            "event_ns",
            (F.col("best_ask") - F.col("best_bid")).alias("quoted"),
            F.signum((2 * F.col("price") - mid_twice).cast("double")).cast("int").alias("direction"),
            F.abs(2 * F.col("price") - mid_twice).alias("effective"),
        )
    )
    if quotes is None:
        return trades
    later = quotes.select("symbol", "event_ns", "stripe", "sequence", "index", "best_bid", "best_ask")
    joined = asof_join(
        trades.withColumn("until_ns", F.col("event_ns") + F.lit(horizon.ns)),
        later,
        left_on="until_ns",
        right_on=("event_ns", "sequence", "index"),
        by=("stripe", "symbol"),
        take=("best_bid", "best_ask"),
    )
    realised = F.col("direction") * (2 * F.col("price") - F.col("best_bid") - F.col("best_ask"))
    return joined.withColumn("realised", realised).drop("until_ns", "best_bid", "best_ask")


def spreads(trades: DataFrame, interval: Interval, calendar: Calendar = ALWAYS) -> DataFrame:
    """Means of each symbol and interval, weighted by shares; `trades` as `trade_spreads` makes them."""
    if calendar.has_session:
        trades = trades.where(calendar.is_open(F.col("event_ns")))
    names = [name for name in ("quoted", "effective", "realised") if name in trades.columns]
    start = calendar.start_of(F.col("event_ns"), interval)
    quantity = F.col("quantity").cast("DECIMAL(10,0)")
    sums = []
    for name in names:
        weight = F.when(F.col(name).isNotNull(), quantity)
        total = F.sum(F.col(name).cast("DECIMAL(19,0)") * quantity).cast("DECIMAL(38,0)")
        sums.append((total / F.sum(weight)).cast(VWAP_TYPE).alias(name))
    return trades.groupBy("symbol", start.alias("start_ns")).agg(
        F.count("*").alias("trades"), F.sum("quantity").alias("volume"), *sums
    )
