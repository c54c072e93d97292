"""Bars of any interval: open, high, low, close, volume, number of trades and VWAP.

Open and close are the first and the last trade by the sequence, not by the floors' clocks: two trades of the same
nanosecond have an order too, and everybody has the same. The bar of a trade follows from its own time (`event_ns`).
Sums are exact: turnover is DECIMAL(38,0), in ticks times shares.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isocast.lake.transforms.calendars import ALWAYS, Calendar, Interval
from isocast.ticker.records import NOT_COUNTED

__all__ = ["BAR_COLUMNS", "bars", "counted", "last_sales", "place_in_sequence"]

BAR_COLUMNS = ("symbol", "start_ns", "open", "high", "low", "close", "volume", "trades", "turnover", "vwap")

_SMALL_TURNOVER = float(1 << 40)
"""Of one trade, 100 million units: eight million such trades still fit into 64 bits; larger ones are summed apart."""
_PLACES_PER_SEQUENCE = 1 << 16
VWAP_TYPE = "DECIMAL(30,6)"


def counted(tape: DataFrame) -> DataFrame:
    """Trades that stand: not cancelled, unprinted, tentative or flawed."""
    return tape.where(F.col("state").bitwiseAND(F.lit(NOT_COUNTED)) == 0)


def place_in_sequence() -> Column:
    """(sequence, index) as one number that orders the events of a stripe."""
    return F.col("sequence") * F.lit(_PLACES_PER_SEQUENCE) + F.col("index")


def bars(
    tape: DataFrame, interval: Interval, calendar: Calendar = ALWAYS, *, by_floor: bool = False, clock: str = "event_ns"
) -> DataFrame:
    """One row for each symbol, on each floor if so wanted, and interval in which it traded."""
    trades = counted(tape)
    if calendar.has_session:
        trades = trades.where(calendar.is_open(F.col(clock)))
    by = ("symbol", "floor") if by_floor else ("symbol",)
    parts = _parts(trades.withColumn("start_ns", calendar.start_of(F.col(clock), interval)), by)
    return _whole(parts, by)


def _parts(trades: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """Bars of each stripe alone: sequences of different stripes have no order."""
    place, price, quantity = place_in_sequence(), F.col("price"), F.col("quantity")
    is_small = F.abs(price.cast("double") * quantity) < _SMALL_TURNOVER
    return trades.groupBy("stripe", *by, "start_ns").agg(
        F.min_by(price, place).alias("open"),
        F.max(price).alias("high"),
        F.min(price).alias("low"),
        F.max_by(price, place).alias("close"),
        F.sum(quantity).alias("volume"),
        F.count("*").alias("trades"),
        F.sum(F.when(is_small, price * quantity)).alias("small"),
        F.sum(F.when(~is_small, price.cast("DECIMAL(19,0)") * quantity.cast("DECIMAL(10,0)"))).alias("large"),
        F.min("due_ns").alias("first_due"),
        F.max("due_ns").alias("last_due"),
    )


def _whole(parts: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """A symbol that moved from a stripe to another within a bar: the one released first opens it."""
    turnover = F.coalesce(F.col("small"), F.lit(0)).cast("DECIMAL(38,0)") + F.coalesce(
        F.col("large").cast("DECIMAL(38,0)"), F.lit(0).cast("DECIMAL(38,0)")
    )
    whole = parts.groupBy(*by, "start_ns").agg(
        F.min_by("open", F.struct("first_due", "stripe")).alias("open"),
        F.max("high").alias("high"),
        F.min("low").alias("low"),
        F.max_by("close", F.struct("last_due", "stripe")).alias("close"),
        F.sum("volume").alias("volume"),
        F.sum("trades").alias("trades"),
        F.sum(turnover).cast("DECIMAL(38,0)").alias("turnover"),
    )
    return whole.withColumn("vwap", (F.col("turnover") / F.col("volume")).cast(VWAP_TYPE))


def last_sales(tape: DataFrame) -> DataFrame:
    """The newest trade of each symbol that stands, across floors."""
    place = F.struct("due_ns", "stripe", "sequence", "index")
    newest = (
        counted(tape)
        .groupBy("symbol")
        .agg(
            F.max_by(F.struct("price", "quantity", "floor", "event_ns", "sequence", "trade_id"), place).alias("last"),
            F.sum("quantity").alias("volume"),
            F.count("*").alias("trades"),
        )
    )
    return newest.select("symbol", "last.*", "volume", "trades")
