"""Release skew: how far apart receivers released the same message, against the bound of their clocks (§5)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isocast.checks.skew import ReleaseSkew
from isocast.lake.transforms.copies import is_copy
from isocast.terms.ids import FIRST_SERVER

__all__ = [
    "MESSAGE_COLUMNS",
    "SHARES",
    "message_releases",
    "release_skew",
    "site_curves",
    "site_skew",
    "skew_totals",
    "with_opaque",
    "worst_messages",
]

SHARES = (0.5, 0.99, 0.999)
MESSAGE_COLUMNS = (
    "stripe",
    "sequence",
    "index",
    "token",
    "receiver",
    "source",
    "floor",
    "symbol",
    "flags",
    "event_ns",
    "instant_ns",
    "due_ns",
    "released_ns",
    "clock_bound_ns",
    "fetched",
)
"""The columns of `released` that these steps need: reading no others is faster."""
_ACCURACY = 100_000
"""An error of one in so many ranks."""
_CURVE_STEPS = 200


def with_opaque(released: DataFrame, messages: DataFrame) -> DataFrame:
    """What was released, with a row for each opaque message as well: it has no floor and no symbol."""
    nothing = {"floor": F.lit(""), "symbol": F.lit(""), "flags": F.lit(0), "event_ns": F.col("sent_ns")}
    columns = [
        nothing.get(field.name, F.col(field.name)).cast(field.dataType).alias(field.name)
        for field in released.select(*MESSAGE_COLUMNS).schema
    ]
    return released.select(*MESSAGE_COLUMNS).unionByName(messages.select(*columns))


def message_releases(released: DataFrame) -> DataFrame:
    """One row for each message and trusted receiver that released it itself; what it fetched later, others released.

    `copied` says that its first event is one that another stripe counts: each stripe has a skew of its own, but only
    one of them has the entry.
    """
    site = F.col("receiver").between(1, FIRST_SERVER - 1)
    needed = released.select(*MESSAGE_COLUMNS)
    own = needed.where((F.col("index") == 0) & ~F.col("fetched") & site)
    own = own.withColumn("copied", is_copy()).drop("index", "fetched", "symbol", "flags")
    message = Window.partitionBy("stripe", "sequence")
    return (
        own.withColumn("late_ns", F.col("released_ns") - F.col("due_ns"))
        .withColumn("behind_ns", F.col("released_ns") - F.min("released_ns").over(message))
        # Two clocks within ±ε show one instant at most 2ε apart; of several bounds the widest counts.
        .withColumn("bound_ns", 2 * F.max("clock_bound_ns").over(message))
        .withColumn("first_due_ns", F.min("due_ns").over(message))
        .withColumn("receivers", F.count("*").over(message))
    )


def release_skew(messages: DataFrame, late_after_ns: int) -> DataFrame:
    """Each message's skew, who was first and last, and whether a fault explains it (F1).

    What some receiver released late, or from an earlier ring's backlog, is a fairness fault and held to no bound. The
    definition, with its reasons, is that of `isocast.checks.skew`.
    """
    return _each(messages, late_after_ns).where(F.col("receivers") > 1)


def skew_totals(messages: DataFrame, late_after_ns: int, receivers: int) -> ReleaseSkew:
    """The skew of all messages, and what is left out of it; `receivers` should have released each."""
    several, fair = F.col("receivers") > 1, (F.col("receivers") > 1) & ~F.col("faulted")
    figures = F.percentile_approx(F.when(fair, F.col("skew_ns")), [0.5, 0.99], _ACCURACY)
    found = _each(messages, late_after_ns).agg(
        F.count_if(fair).alias("count"),
        F.coalesce(figures[0], F.lit(0)).alias("p50_ns"),
        F.coalesce(figures[1], F.lit(0)).alias("p99_ns"),
        F.coalesce(F.max(F.when(fair, F.col("skew_ns"))), F.lit(0)).alias("max_ns"),
        F.coalesce(F.max("bound_ns"), F.lit(0)).alias("bound_ns"),
        F.count_if("exceeds").alias("exceeding"),
        F.count_if(fair & (F.col("receivers") < receivers)).alias("partly"),
        F.count_if(several & F.col("faulted")).alias("faulted"),
        F.count_if(several & F.col("late")).alias("late"),
        F.count_if(several & F.col("backlog")).alias("backlog"),
        F.count_if(~several).alias("alone"),
    )
    return ReleaseSkew(**found.collect()[0].asDict())


def _each(messages: DataFrame, late_after_ns: int) -> DataFrame:
    return (
        messages.groupBy("stripe", "sequence")
        .agg(
            F.first("token").alias("token"),
            F.count("*").alias("receivers"),
            F.max("behind_ns").alias("skew_ns"),
            F.first("bound_ns").alias("bound_ns"),
            F.min_by("receiver", "released_ns").alias("first_receiver"),
            F.max_by("receiver", "released_ns").alias("last_receiver"),
            F.min("due_ns").alias("due_ns"),
            F.max(F.col("late_ns") > late_after_ns).alias("late"),
            F.max(F.col("due_ns") > F.col("first_due_ns")).alias("backlog"),
        )
        .withColumn("faulted", F.col("late") | F.col("backlog"))
        .withColumn("exceeds", (F.col("receivers") > 1) & (F.col("skew_ns") > F.col("bound_ns")) & ~F.col("faulted"))
    )


def site_skew(messages: DataFrame, late_after_ns: int) -> DataFrame:
    """For each receiver: how far behind the first it released, over the messages that nobody released late."""
    fair = _fair(messages, late_after_ns)
    return (
        fair.groupBy("receiver")
        .agg(
            F.count("*").alias("messages"),
            F.max("bound_ns").alias("bound_ns"),
            *_quantiles("behind_ns"),
            F.max("behind_ns").alias("max_ns"),
            F.sum((F.col("behind_ns") > F.col("bound_ns")).cast("bigint")).alias("exceeding"),
            F.sum((F.col("behind_ns") == 0).cast("bigint")).alias("first"),
        )
        .orderBy("receiver")
    )


def site_curves(messages: DataFrame, late_after_ns: int) -> DataFrame:
    """For a picture: of each receiver the quantiles 0, 1/200, … 1 of how far behind the first it released."""
    shares = [step / _CURVE_STEPS for step in range(_CURVE_STEPS + 1)]
    curve = F.percentile_approx("behind_ns", shares, _ACCURACY).alias("curve")
    return _fair(messages, late_after_ns).groupBy("receiver").agg(curve).orderBy("receiver")


def worst_messages(skew: DataFrame, count: int) -> DataFrame:
    """Of each token the message with the largest skew; the largest of these, those without a fault first."""
    token = Window.partitionBy("stripe", "token").orderBy("faulted", F.desc("skew_ns"), "sequence")
    most = skew.withColumn("place", F.row_number().over(token)).where(F.col("place") == 1).drop("place")
    return most.orderBy("faulted", F.desc("skew_ns"), "stripe", "sequence").limit(count)


def _fair(messages: DataFrame, late_after_ns: int) -> DataFrame:
    message = Window.partitionBy("stripe", "sequence")
    late = F.max(F.greatest(F.col("late_ns") - late_after_ns, F.col("due_ns") - F.col("first_due_ns"))).over(message)
    return messages.where(F.col("receivers") > 1).withColumn("fault_ns", late).where(F.col("fault_ns") <= 0)


def _quantiles(column: str) -> list[Column]:
    found = F.percentile_approx(column, list(SHARES), _ACCURACY)
    return [found[place].alias(f"p{str(share)[2:].ljust(2, '0')}_ns") for place, share in enumerate(SHARES)]
