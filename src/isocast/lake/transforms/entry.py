"""Who entered first, of orders that react to the same news: contests by id, and the share of each pair of regions.

The definition, with its reasons and with what is independent in it, is that of `isocast.studies.entry.reactions`, and
so are the names: contests, tokens, share, standard_error, ahead_ns. Two rules are told. `released` is the order of the
sequence; under `batch` the orders of one token enter at one time. A shuffle over events needs the key of each token,
which journals keep and tables do not.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isocast.terms.market import EventKind

__all__ = ["ORDER_COLUMNS", "competing_orders", "entry_shares", "orders_left_out", "region_of"]

ORDER_COLUMNS = (
    "stripe", "sequence", "index", "token", "source", "floor", "kind", "id", "event_ns", "instant_ns",
)  # fmt: skip
"""What these steps need of `released`."""
_SOURCE_BITS = 32
"""Below them a source's id has its incarnation."""
_CLUSTERS_MIN = 2
"""Tokens at each place of a turn: one alone shows no variance."""
_PAIR = ("rule", "first", "second")


def region_of(places: Mapping[int, str]) -> Column:
    """The place of a source, by its number, or its floor where places are not known."""
    floor = F.col("floor")
    if not places:
        return floor
    number = F.shiftright("source", _SOURCE_BITS)
    known = F.create_map(*[F.lit(part) for pair in sorted(places.items()) for part in pair])
    return F.coalesce(known[number.cast("int")], floor)


def competing_orders(released: DataFrame, places: Mapping[int, str], within_ns: int) -> DataFrame:
    """Each order once, with its `region`, when its contest began, the first token from then on, and its `fate`.

    Orders of one id are a contest. Its fate is `kept`, or why it is in no figure: `repeated`, a region has two orders;
    `alone`, there is one region; `apart`, regions decided further apart than `within_ns`.
    """
    events = released.select(*ORDER_COLUMNS)
    contest, own = Window.partitionBy("stripe", "id"), Window.partitionBy("stripe", "id", "region")
    orders = (
        events.where(F.col("kind") == int(EventKind.ORDER))
        .dropDuplicates(["stripe", "sequence", "index"])
        .withColumn("region", region_of(places))
        .withColumn("times", F.count("*").over(own))
        .withColumn("begin_ns", F.min("event_ns").over(contest))
    )
    apart = F.max("event_ns").over(contest) - F.col("begin_ns") > within_ns
    fate = (
        F.when(F.max("times").over(contest) > 1, "repeated")
        .when(F.min("region").over(contest) == F.max("region").over(contest), "alone")
        .when(apart, "apart")
        .otherwise("kept")
    )
    return _with_deciding(orders.withColumn("fate", fate), events)


def _with_deciding(orders: DataFrame, events: DataFrame) -> DataFrame:
    """`deciding`: the first token with events at or after the beginning of the contest.

    Orders and tokens stand in one line, by their instants; one task for each stripe walks along it.
    """
    tokens = events.select("stripe", "token", F.col("instant_ns").alias("at_ns")).distinct()
    begun = orders.select("stripe", F.col("begin_ns").alias("at_ns")).distinct()
    line = tokens.unionByName(begun, allowMissingColumns=True)
    along = Window.partitionBy("stripe").orderBy("at_ns", F.col("token").asc_nulls_first())
    following = along.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    beyond = F.max("token").over(Window.partitionBy("stripe")) + 1
    found = (
        line.withColumn("deciding", F.coalesce(F.first("token", ignorenulls=True).over(following), beyond))
        .where(F.col("token").isNull())
        .select("stripe", F.col("at_ns").alias("begin_ns"), "deciding")
    )
    return orders.join(found, ["stripe", "begin_ns"])


def orders_left_out(orders: DataFrame) -> DataFrame:
    """One row: orders that were `alone` and `repeated`, and contests that were decided `apart`."""
    contest = F.struct("stripe", "id")
    return orders.agg(
        F.count(F.when(F.col("fate") == "alone", 1)).alias("alone"),
        F.count(F.when(F.col("fate") == "repeated", 1)).alias("repeated"),
        F.countDistinct(F.when(F.col("fate") == "apart", contest)).alias("apart"),
    )


def entry_shares(orders: DataFrame, owners: int) -> DataFrame:
    """For each rule and pair of regions: how often the first entered before the second, and the error of that.

    `owners` is how many take turns. The share is the mean over the places of a turn, and its error from whole tokens.
    """
    place = ["stripe", "place"]
    tokens = (
        _contests(orders)
        .withColumn("place", F.col("deciding") % owners)
        .groupBy(*_PAIR, *place, "deciding")
        .agg(F.count("*").alias("n"), F.sum("won").alias("won"), F.sum("ahead_ns").alias("ahead_ns"))
    )
    here = Window.partitionBy(*_PAIR, *place)
    mean = F.sum("won").over(here) / F.sum("n").over(here)
    places = (
        tokens.withColumn("share", mean)
        .withColumn("square", F.pow(F.col("won") - F.col("share") * F.col("n"), 2))
        .groupBy(*_PAIR, *place)
        .agg(
            F.sum("n").alias("n"),
            F.count("*").alias("tokens"),
            F.first("share").alias("share"),
            F.sum("square").alias("squares"),
            F.sum("ahead_ns").alias("ahead_ns"),
        )
    )
    # nullif: at a place with one token there is nothing to divide by, and no variance to tell.
    variance = F.col("tokens") / F.nullif(F.col("tokens") - 1, F.lit(0)) * F.col("squares") / F.pow("n", F.lit(2))
    error = F.sqrt(F.sum(variance)) / F.count("*")
    return (
        places.groupBy(*_PAIR)
        .agg(
            F.sum("n").alias("contests"),
            F.sum("tokens").alias("tokens"),
            F.avg("share").alias("share"),
            F.when(F.min("tokens") >= _CLUSTERS_MIN, error).alias("standard_error"),
            (F.sum("ahead_ns") / F.sum("n")).alias("ahead_ns"),
        )
        .orderBy(F.col("rule").desc(), "first", "second")
    )


def _contests(orders: DataFrame) -> DataFrame:
    """One row for each rule, contest and pair of its regions; `won` is 1, 0, or ½ for both at one time."""
    kept = orders.where(F.col("fate") == "kept")
    sides = [
        kept.select(
            "stripe",
            "id",
            "deciding",
            F.col("region").alias(name),
            F.struct("sequence", "index").alias(f"{name}_place"),
            F.col("token").alias(f"{name}_token"),
            F.col("event_ns").alias(f"{name}_ns"),
        )
        for name in ("first", "second")
    ]
    pairs = sides[0].join(sides[1], ["stripe", "id", "deciding"]).where(F.col("first") < F.col("second"))
    earlier = (F.col("first_place") < F.col("second_place")).cast("double")
    batched = F.when(F.col("first_token") == F.col("second_token"), 0.5).otherwise(earlier)
    rules = F.array(
        F.struct(F.lit("released").alias("rule"), earlier.alias("won")),
        F.struct(F.lit("batch").alias("rule"), batched.alias("won")),
    )
    return pairs.select(
        "stripe",
        "deciding",
        "first",
        "second",
        (F.col("second_ns") - F.col("first_ns")).alias("ahead_ns"),
        F.inline(rules),
    )
