"""Entry fairness: how long messages of each region wait for their token, and which of two comes first (§3, point 6).

A region is the place of a source, or its floor where places are not known. Times of events are those of the floors' own
clocks; what is replayed carries the times of another day, and is counted apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["LIVE_NS", "entry_delays", "messages_by_region", "region_order"]

LIVE_NS = 60 * 10**9
"""An event this much older than its token is replayed."""
_SHARES = (0.5, 0.99)
_ACCURACY = 100_000
"""An error of one in so many ranks."""
_SOURCE_BITS = 32
"""Below them a source's id has its incarnation."""


def messages_by_region(messages: DataFrame, places: Mapping[int, str], lowest: int | None = None) -> DataFrame:
    """One row for each message, whoever released it, with its region; `places` are those of source numbers.

    A message that begins with a copy entered in another stripe, unless its own is the `lowest` that is there.
    """
    counted = ~F.col("copied") if lowest is None else ~F.col("copied") | (F.col("stripe") == lowest)
    once = (
        messages.where(counted)
        .dropDuplicates(["stripe", "sequence"])
        .select("stripe", "sequence", "token", "source", "floor", "event_ns", "instant_ns")
    )
    return once.withColumn("region", _region(places)).withColumn("delay_ns", F.col("instant_ns") - F.col("event_ns"))


def _region(places: Mapping[int, str]) -> Column:
    floor = F.col("floor")
    if not places:
        return floor
    number = F.shiftright("source", _SOURCE_BITS)
    known = F.create_map(*[F.lit(part) for pair in sorted(places.items()) for part in pair])
    return F.coalesce(known[number.cast("int")], floor)


def _is_live() -> Column:
    return F.col("delay_ns").between(0, LIVE_NS)


def entry_delays(messages: DataFrame) -> DataFrame:
    """For each region: from the event to the instant of the token that ordered it."""
    delay = F.when(_is_live(), F.col("delay_ns"))
    found = F.percentile_approx(delay, list(_SHARES), _ACCURACY)
    return (
        messages.groupBy("region")
        .agg(
            F.count("*").alias("messages"),
            F.sum((~_is_live()).cast("bigint")).alias("not_live"),
            F.avg(delay).alias("mean_ns"),
            found[0].alias("p50_ns"),
            found[1].alias("p99_ns"),
            F.max(delay).alias("max_ns"),
        )
        .orderBy("region")
    )


def region_order(messages: DataFrame, within_ns: int) -> DataFrame:
    """For each pair of regions: of two neighbours in time, less than `within_ns` apart, who got the lower sequence.

    `one_first` is the share that the first region won: a half is fair, whatever their distances. An inversion is a
    pair in which the later event got the lower sequence. Neighbours are looked for inside whole minutes.
    """
    minute = F.floor(F.col("event_ns") / F.lit(LIVE_NS))
    order = Window.partitionBy("stripe", "minute").orderBy("event_ns", "sequence")
    pairs = (
        messages.where(_is_live())
        .withColumn("minute", minute)
        .withColumn("other", F.lead("region").over(order))
        .withColumn("other_sequence", F.lead("sequence").over(order))
        .withColumn("apart_ns", F.lead("event_ns").over(order) - F.col("event_ns"))
        .where((F.col("other") != F.col("region")) & (F.col("apart_ns") < within_ns))
    )
    earlier_won = F.col("sequence") < F.col("other_sequence")
    is_one = F.col("region") < F.col("other")
    return (
        pairs.select(
            F.least("region", "other").alias("one"),
            F.greatest("region", "other").alias("two"),
            is_one.cast("int").alias("one_earlier"),
            (is_one == earlier_won).cast("int").alias("one_won"),
            (~earlier_won & (F.col("apart_ns") > 0)).cast("int").alias("inverted"),
        )
        .groupBy("one", "two")
        .agg(
            F.count("*").alias("pairs"),
            F.avg("one_earlier").alias("one_earlier"),
            F.avg("one_won").alias("one_first"),
            F.sum("inverted").alias("inversions"),
        )
        .orderBy("one", "two")
    )
