"""Volume-weighted average prices: of an interval, and of the time before each bar or trade."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isocast.lake.transforms.bars import VWAP_TYPE, bars, counted
from isocast.lake.transforms.calendars import ALWAYS, Calendar, Interval

__all__ = ["rolling_trade_vwap", "rolling_vwap", "vwap"]


def vwap(tape: DataFrame, interval: Interval, calendar: Calendar = ALWAYS) -> DataFrame:
    """Turnover by volume of each symbol and interval."""
    return bars(tape, interval, calendar).select("symbol", "start_ns", "volume", "turnover", "vwap")


def rolling_vwap(intervals: DataFrame, window: Interval) -> DataFrame:
    """Adds the VWAP of the `window` that ends with each interval, its own included.

    The frame has one row for each symbol and `start_ns`, as `bars` and `vwap` make it. Sums are exact.
    """
    frame = Window.partitionBy("symbol").orderBy("start_ns").rangeBetween(1 - window.ns, 0)
    volume, turnover = F.sum("volume").over(frame), F.sum("turnover").over(frame)
    return intervals.select("*", volume.alias("rolling_volume"), _quotient(turnover, volume).alias("rolling_vwap"))


def rolling_trade_vwap(tape: DataFrame, window: Interval) -> DataFrame:
    """Every trade that stands, with the VWAP of the `window` that ends with it, by the floors' clocks.

    All trades of the same nanosecond count for each other, whatever their sequence.
    """
    frame = Window.partitionBy("symbol").orderBy("event_ns").rangeBetween(1 - window.ns, 0)
    trades = counted(tape).withColumn(
        "amount", F.col("price").cast("DECIMAL(19,0)") * F.col("quantity").cast("DECIMAL(10,0)")
    )
    volume, turnover = F.sum("quantity").over(frame), F.sum("amount").over(frame)
    return trades.select("*", volume.alias("rolling_volume"), _quotient(turnover, volume).alias("rolling_vwap")).drop(
        "amount"
    )


def _quotient(turnover: Column, volume: Column) -> Column:
    return (turnover.cast("DECIMAL(38,0)") / volume).cast(VWAP_TYPE)
