"""Histories for `isocast plan stripes`, made on Spark: bytes of every symbol in slices of an eighth of a token period.

The sums are those of `striping.history`, by the same table of sizes; so a plan from this history is the plan that the
events themselves would give, however many days and machines they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isocast.striping.history import PATIENT, SLICES, WINDOW
from isocast.striping.sizes import ITCH_SIZES, PacketSizes
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND

__all__ = ["check_history_name", "co_movement", "sector_loads", "symbol_peaks", "symbol_slices", "write_history"]

_NANOSECONDS_FROM = 10**14
"""What a reader takes for nanoseconds; smaller whole numbers are seconds."""
_FRAMES = 256
_FRAMES_LEAST = 16
"""Fewer moments say nothing about who is busy together."""


def symbol_slices(events: DataFrame, token_period_ns: int) -> DataFrame:
    """For each symbol and slice: events, bytes that may not wait, bytes of all; no symbol stands for whole floors.

    Of events that several stripes have, one copy belongs here (`transforms.copies`).
    """
    slice_ns = token_period_ns // SLICES
    if slice_ns < 1:
        raise ConfigurationError("command line", "--token-period", f"must be at least {SLICES} ns")
    size = _bytes_of(ITCH_SIZES)
    patient = F.col("kind").isin([int(kind) for kind in PATIENT])
    return (
        events.select(
            "symbol",
            (F.col("event_ns") - F.pmod("event_ns", F.lit(slice_ns))).alias("time"),
            F.when(patient, 0).otherwise(size).alias("price_bytes"),
            size.alias("all_bytes"),
        )
        .groupBy("symbol", "time")
        .agg(
            F.count("*").alias("count"),
            F.sum("price_bytes").cast("bigint").alias("prices"),
            F.sum("all_bytes").cast("bigint").alias("everything"),
        )
    )


def _bytes_of(sizes: PacketSizes) -> Column:
    pairs = [F.lit(part) for kind, size in enumerate(sizes.kind_bytes) for part in (kind, size)]
    return F.coalesce(F.create_map(*pairs)[F.col("kind").cast("int")], F.lit(0))


def symbol_peaks(slices: DataFrame, token_period_ns: int) -> DataFrame:
    """For each symbol: its events, and the bytes of its busiest token period, wherever that begins."""
    slice_ns = token_period_ns // SLICES
    window = Window.partitionBy("symbol").orderBy("time").rangeBetween(-(WINDOW - 1) * slice_ns, 0)
    peaks = slices.where(F.col("symbol") != "").withColumn("window", F.sum("prices").over(window))
    return (
        peaks.groupBy("symbol")
        .agg(
            F.sum("count").alias("events"),
            F.sum("everything").alias("bytes"),
            F.max("window").alias("peak_bytes"),
            F.max_by("time", "window").alias("peak_ns"),
            (F.max("time") - F.min("time") + slice_ns).alias("span_ns"),
        )
        .orderBy(F.desc("peak_bytes"), "symbol")
    )


def co_movement(slices: DataFrame, token_period_ns: int, symbols: int) -> DataFrame:
    """Of the busiest symbols, pair by pair: the correlation of their activity, the market's own taken off.

    Activity is the root of the bytes in each of 256 frames of the history; what a symbol would do if it did its share
    of what everybody does says nothing about kinship.
    """
    ends = slices.agg(F.min("time").alias("first"), F.max("time").alias("last")).collect()[0]
    frame_ns = max(((ends.last or 0) - (ends.first or 0)) // _FRAMES, token_period_ns // SLICES)
    busy = slices.where(F.col("symbol") != "").groupBy("symbol").agg(F.sum("prices").alias("total"))
    busiest = busy.orderBy(F.desc("total"), "symbol").limit(symbols).select("symbol")
    framed = (
        slices.join(F.broadcast(busiest), "symbol")
        .groupBy("symbol", F.floor(F.col("time") / frame_ns).alias("frame"))
        .agg(F.sqrt(F.sum("prices")).alias("activity"))
    )
    # A symbol that is silent in a frame has no row: every symbol needs every frame.
    everywhere = framed.select("frame").distinct().crossJoin(F.broadcast(busiest))
    whole = everywhere.join(framed, ["symbol", "frame"], "left").fillna(0.0, ["activity"])
    by_symbol, by_frame, all_of_it = Window.partitionBy("symbol"), Window.partitionBy("frame"), Window.partitionBy()
    share = F.avg("activity").over(by_symbol) * F.avg("activity").over(by_frame)
    rest = whole.withColumn("own", F.col("activity") - share / F.avg("activity").over(all_of_it))
    one = rest.select(F.col("symbol").alias("one"), "frame", F.col("own").alias("one_own"))
    two = rest.select(F.col("symbol").alias("two"), "frame", F.col("own").alias("two_own"))
    return (
        one.join(two, "frame")
        .where(F.col("one") < F.col("two"))
        .groupBy("one", "two")
        .agg(F.corr("one_own", "two_own").alias("correlation"), F.count("*").alias("frames"))
        .where(F.col("frames") >= _FRAMES_LEAST)
        .orderBy(F.desc_nulls_last("correlation"), "one", "two")
    )


def sector_loads(slices: DataFrame, sectors: Mapping[str, str], token_period_ns: int) -> DataFrame:
    """For each sector: its symbols, and the bytes of its busiest token period."""
    names = slices.sparkSession.createDataFrame(sorted(sectors.items()), "symbol string, sector string")
    known = slices.where(F.col("symbol") != "").join(F.broadcast(names), "symbol", "left")
    named = known.withColumn("sector", F.coalesce("sector", F.lit("–")))
    per_slice = named.groupBy("sector", "time").agg(
        F.sum("prices").alias("prices"), F.sum("everything").alias("everything")
    )
    slice_ns = token_period_ns // SLICES
    window = Window.partitionBy("sector").orderBy("time").rangeBetween(-(WINDOW - 1) * slice_ns, 0)
    peaks = per_slice.withColumn("window", F.sum("prices").over(window)).groupBy("sector")
    counts = named.groupBy("sector").agg(F.countDistinct("symbol").alias("symbols"))
    loads = peaks.agg(F.sum("everything").alias("bytes"), F.max("window").alias("peak_bytes"))
    return loads.join(counts, "sector").orderBy(F.desc("peak_bytes"), "sector")


def check_history_name(path: Path) -> None:
    """ConfigurationError for a file that `write_history` does not write."""
    if path.suffix.lower() not in {".csv", ".parquet"}:
        raise ConfigurationError("command line", "--out", f"must end in .csv or .parquet, not {path.name}")


def write_history(slices: DataFrame, path: Path, aside: Path) -> None:
    """One file, CSV or Parquet by its name, in order of symbol and time: `isocast plan stripes` reads both.

    Spark writes folders: into a new one in `aside`, on the same disk.
    """
    check_history_name(path)
    columns = ("symbol", "time", "count", "prices", "everything")
    ordered = slices.select(*columns).orderBy("symbol", "time").coalesce(1)
    place = aside / "table"
    if path.suffix.lower() == ".csv":
        seconds = F.format_string("%d.%09d", F.floor(F.col("time") / SECOND), F.col("time") % SECOND)
        time = F.when(F.col("time") >= _NANOSECONDS_FROM, F.col("time").cast("string")).otherwise(seconds)
        table = ordered.withColumn("time", time)
        table.write.mode("overwrite").option("header", value=True).option("emptyValue", "").csv(str(place))
    else:
        ordered.write.mode("overwrite").parquet(str(place))
    (written,) = [found for found in place.iterdir() if found.name.startswith("part-")]
    written.replace(path)
