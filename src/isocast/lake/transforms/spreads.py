"""Spreads in ticks: quoted, effective, and realised some time later.

    quoted     best ask − best bid, as the trade found them
    effective  2·d·(price − mid), d = +1 for a buyer's trade, −1 for a seller's: what trading at once cost
    realised   2·d·(price − mid some time later): what of that the other side could keep

A trade above the middle of the best bid and ask was a buyer's, one below it a seller's; one in the middle has an
effective and a realised spread of 0. Twice the middle is bid + ask, so that all of them are whole ticks.

A trade has a spread where both sides were quoted and the bid was not above the ask. What has none is counted beside the
figures, by reason, and so is what has one of little worth:

    crossed      no spread: the bid was above the ask
    one-sided    no spread: only one side was quoted
    unquoted     no spread: nobody quoted
    locked       a spread of 0: the bid was the ask
    stale        a spread, of quotes that did not change from a minute before the trade until the horizon behind it
    unrealised   a spread, and none realised: later one side or both were not quoted
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isocast.lake.transforms.asof import asof_join
from isocast.lake.transforms.bars import VWAP_TYPE, counted
from isocast.lake.transforms.calendars import ALWAYS, Calendar, Interval, read_interval

__all__ = ["HORIZON", "LEFT_OUT", "NOTED", "STALE", "spreads", "trade_spreads"]

HORIZON = read_interval("5s")
"""After which a realised spread is taken, if nobody says otherwise."""
STALE = read_interval("1m")
"""Before a trade: quotes that are older, and did not change behind it, are stale."""
LEFT_OUT = ("crossed", "one_sided", "unquoted")
"""Why a trade has no spread: columns of `spreads`."""
NOTED = ("locked", "stale", "unrealised")
"""What is said of trades that have one: columns of `spreads` too."""
_LAST_NS = (1 << 63) - 1


def trade_spreads(tape: DataFrame, quotes: DataFrame | None = None, horizon: Interval = HORIZON) -> DataFrame:
    """Every trade that stands, with its spreads, NULL where it has none; realised if `quotes` are given.

    `market` says how the trade found the quotes: normal, locked, crossed, one_sided or unquoted. The later middle is
    that of the last quote, by the floors' clocks and then by the sequence, up to `horizon` after the trade.
    """
    bid, ask = F.col("best_bid"), F.col("best_ask")
    has_spread = bid <= ask
    over_mid = 2 * F.col("price") - bid - ask
    trades = counted(tape).select(
        "stripe",
        "sequence",
        "index",
        "symbol",
        "floor",
        "price",
        "quantity",
        "event_ns",
        _market(bid, ask).alias("market"),
        F.when(has_spread, ask - bid).alias("quoted"),
        F.when(has_spread, F.signum(over_mid.cast("double")).cast("int")).alias("direction"),
        F.when(has_spread, F.abs(over_mid)).alias("effective"),
    )
    if quotes is None:
        return trades
    later = quotes.select(
        "symbol",
        "event_ns",
        "stripe",
        "sequence",
        "index",
        "best_bid",
        "best_ask",
        F.col("event_ns").alias("quoted_ns"),
    )
    # A time so late that the horizon is beyond 64 bits has nothing behind it.
    until = F.least(F.col("event_ns"), F.lit(_LAST_NS - horizon.ns)) + F.lit(horizon.ns)
    joined = asof_join(
        trades.withColumn("until_ns", until),
        later,
        left_on="until_ns",
        right_on=("event_ns", "sequence", "index"),
        by=("stripe", "symbol"),
        take=("best_bid", "best_ask", "quoted_ns"),
    )
    realised = F.col("direction") * (2 * F.col("price") - bid - ask)
    # Both are times since 1970: their difference fits 64 bits.
    is_stale = F.greatest(F.col("event_ns"), F.lit(0)) - F.greatest(F.col("quoted_ns"), F.lit(0)) > F.lit(STALE.ns)
    return joined.select(
        *trades.columns,
        F.when(F.col("quoted").isNotNull(), is_stale).alias("is_stale"),
        realised.alias("realised"),
    )


def _market(bid: Column, ask: Column) -> Column:
    return (
        F.when(bid.isNull() & ask.isNull(), "unquoted")
        .when(bid.isNull() | ask.isNull(), "one_sided")
        .when(bid > ask, "crossed")
        .when(bid == ask, "locked")
        .otherwise("normal")
    )


def spreads(trades: DataFrame, interval: Interval, calendar: Calendar = ALWAYS) -> DataFrame:
    """Means of each symbol and interval, weighted by shares; `trades` as `trade_spreads` makes them.

    `trades` and `volume` are of what has a spread; the others are counted in the columns of LEFT_OUT, and of those that
    have one some in the columns of NOTED. An interval in which no trade has a spread has its counts, and no means.
    """
    if calendar.has_session:
        trades = trades.where(calendar.is_open(F.col("event_ns")))
    names = [name for name in ("quoted", "effective", "realised") if name in trades.columns]
    start = calendar.start_of(F.col("event_ns"), interval)
    quantity = F.col("quantity").cast("DECIMAL(10,0)")
    has_spread = F.col("quoted").isNotNull()
    sums = []
    for name in names:
        weight = F.when(F.col(name).isNotNull(), quantity)
        total = F.sum(F.col(name).cast("DECIMAL(19,0)") * quantity).cast("DECIMAL(38,0)")
        sums.append((total / F.sum(weight)).cast(VWAP_TYPE).alias(name))
    counts = [F.count_if(F.col("market") == reason).alias(reason) for reason in (*LEFT_OUT, "locked")]
    if "realised" in names:
        counts.append(F.count_if(F.col("is_stale")).alias("stale"))
        counts.append(F.count_if(has_spread & F.col("realised").isNull()).alias("unrealised"))
    return trades.groupBy("symbol", start.alias("start_ns")).agg(
        F.count("quoted").alias("trades"),
        F.coalesce(F.sum(F.when(has_spread, F.col("quantity"))), F.lit(0)).alias("volume"),
        *sums,
        *counts,
    )
