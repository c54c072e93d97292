"""Bars of any interval: open, high, low, close, volume, number of trades and VWAP.

Open and close are the first and the last trade by the sequence, not by the floors' clocks: two trades of the same
nanosecond have an order too, and everybody has the same. The bar of a trade follows from its own time (`event_ns`).
Sums are exact: turnover is DECIMAL(38,0), in ticks times shares.

A trade whose sale conditions forbid it sets no price (`eligibility`), and volume has it. A bar without a trade that may
set one has no open and close, or no price at all.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isocast.lake.transforms.calendars import ALWAYS, Calendar, Interval
from isocast.lake.transforms.eligibility import sets_high_low, sets_last
from isocast.ticker.records import NOT_COUNTED

__all__ = [
    "BAR_COLUMNS",
    "BAR_ENDS",
    "bar_parts",
    "bars",
    "counted",
    "grown_bars",
    "last_sales",
    "place_in_sequence",
    "whole_bars",
]

BAR_COLUMNS = ("symbol", "start_ns", "open", "high", "low", "close", "volume", "trades", "turnover", "vwap")
BAR_ENDS = ("first_due_ns", "first_stripe", "last_due_ns", "last_stripe")
"""When, and in which stripe, the trades that opened and closed a bar were released: with these a bar can go on."""

_SMALL_TURNOVER = float(1 << 31)
"""Of one trade, 200,000 units: four billion such trades still fit into 64 bits; larger ones are summed apart."""
_PLACES_PER_SEQUENCE = 1 << 16
_SUMMED = ("open", "high", "low", "close", "volume", "trades")
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
    by = ("symbol", "floor") if by_floor else ("symbol",)
    return whole_bars(bar_parts(tape, interval, calendar, by=by, clock=clock), by).drop(*BAR_ENDS)


def bar_parts(
    tape: DataFrame,
    interval: Interval,
    calendar: Calendar = ALWAYS,
    *,
    by: tuple[str, ...] = ("symbol",),
    clock: str = "event_ns",
) -> DataFrame:
    """Bars of each stripe alone: sequences of different stripes have no order."""
    trades = counted(tape)
    if calendar.has_session:
        trades = trades.where(calendar.is_open(F.col(clock)))
    trades = trades.withColumn("start_ns", calendar.start_of(F.col(clock), interval))
    place, price, quantity = place_in_sequence(), F.col("price"), F.col("quantity")
    is_small = F.abs(price.cast("double") * quantity) < _SMALL_TURNOVER
    parts = trades.groupBy("stripe", *by, "start_ns").agg(
        F.min_by(price, F.when(sets_last(), place)).alias("open"),
        F.max(F.when(sets_high_low(), price)).alias("high"),
        F.min(F.when(sets_high_low(), price)).alias("low"),
        F.max_by(price, F.when(sets_last(), place)).alias("close"),
        F.sum(quantity).alias("volume"),
        F.count("*").alias("trades"),
        F.sum(F.when(is_small, price * quantity)).alias("small"),
        F.sum(F.when(~is_small, price.cast("DECIMAL(19,0)") * quantity.cast("DECIMAL(10,0)"))).alias("large"),
        F.coalesce(F.min(F.when(sets_last(), F.col("due_ns"))), F.min("due_ns")).alias("first_due_ns"),
        F.coalesce(F.max(F.when(sets_last(), F.col("due_ns"))), F.max("due_ns")).alias("last_due_ns"),
    )
    small, large = (F.coalesce(F.col(name), F.lit(0)).cast("DECIMAL(38,0)") for name in ("small", "large"))
    return parts.select(
        *by,
        "start_ns",
        *_SUMMED,
        (small + large).cast("DECIMAL(38,0)").alias("turnover"),
        "first_due_ns",
        F.col("stripe").alias("first_stripe"),
        "last_due_ns",
        F.col("stripe").alias("last_stripe"),
    )


def whole_bars(parts: DataFrame, by: tuple[str, ...] = ("symbol",)) -> DataFrame:
    """A symbol that moved from a stripe to another within a bar: the one released first opens it."""
    return _joined(parts, by, ())


def grown_bars(before: DataFrame, parts: DataFrame) -> DataFrame:
    """Bars of before, which `whole_bars` made, go on with parts of later trades.

    Of one stripe, whatever is in `parts` comes behind what is in `before`.
    """
    columns = ("symbol", "start_ns", *_SUMMED, "turnover", *BAR_ENDS)
    old = before.select(*columns).withColumn("age", F.lit(0))
    return _joined(old.unionByName(parts.select(*columns).withColumn("age", F.lit(1))), ("symbol",), ("age",))


def _joined(parts: DataFrame, by: tuple[str, ...], last: tuple[str, ...]) -> DataFrame:
    first_end = F.struct("first_due_ns", "first_stripe", *last)
    last_end = F.struct("last_due_ns", "last_stripe", *last)
    opens, closes = (F.when(F.col("open").isNotNull(), end) for end in (first_end, last_end))
    whole = parts.groupBy(*by, "start_ns").agg(
        F.min_by("open", opens).alias("open"),
        F.max("high").alias("high"),
        F.min("low").alias("low"),
        F.max_by("close", closes).alias("close"),
        F.sum("volume").alias("volume"),
        F.sum("trades").alias("trades"),
        F.sum("turnover").cast("DECIMAL(38,0)").alias("turnover"),
        F.coalesce(F.min(opens), F.min(first_end)).alias("first_end"),
        F.coalesce(F.max(closes), F.max(last_end)).alias("last_end"),
    )
    ends = [F.col(f"{name.partition('_')[0]}_end.{name}").alias(name) for name in BAR_ENDS]
    vwap = (F.col("turnover") / F.col("volume")).cast(VWAP_TYPE).alias("vwap")
    return whole.select(*by, "start_ns", *_SUMMED, "turnover", vwap, *ends)


def last_sales(tape: DataFrame) -> DataFrame:
    """The newest trade of each symbol that stands, across floors."""
    place = F.struct("due_ns", "stripe", "sequence", "index")
    newest = (
        counted(tape)
        .groupBy("symbol")
        .agg(
            F.max_by(
                F.struct("price", "quantity", "floor", "event_ns", "sequence", "trade_id"), F.when(sets_last(), place)
            ).alias("last"),
            F.sum("quantity").alias("volume"),
            F.count("*").alias("trades"),
        )
    )
    return newest.select("symbol", "last.*", "volume", "trades")
