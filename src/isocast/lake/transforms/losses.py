"""Losses and repairs by place, and which places lose together: shared losses point at a shared branch (§5.2)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["loss_correlation", "losses_by_place"]

_SECOND_NS = 10**9


def _count(name: str) -> Column:
    return F.coalesce(F.col("counts")[name], F.lit(0))


def losses_by_place(lines: DataFrame) -> DataFrame:
    """For each receiver: tokens that came by themselves, requests, repairs, drops; and the share of tokens lost."""
    heard = F.size(F.coalesce("tokens", F.array())) + F.coalesce("tokens_unlisted", F.lit(0))
    return (
        lines.where(F.col("role").endswith("receiver"))
        .groupBy("node", "city", "role", "stripe")
        .agg(
            F.count("*").alias("seconds"),
            F.sum(_count("tokens_accepted")).alias("tokens"),
            F.sum(heard).alias("heard"),
            F.sum(_count("data_received")).alias("data"),
            F.sum(_count("nacks_sent")).alias("nacks_sent"),
            F.sum(_count("repairs_received")).alias("repairs_received"),
            F.sum(_count("nacks_received")).alias("nacks_received"),
            F.sum(_count("repairs_sent")).alias("repairs_sent"),
            F.sum(_count("kernel_drops")).alias("kernel_drops"),
            F.sum(_count("fairness_faults")).alias("fairness_faults"),
            F.sum(_count("late_releases")).alias("late_releases"),
        )
        # Restarts and repairs can make a token complete that was never heard, and the other way round.
        .withColumn("token_loss", F.greatest(F.lit(0.0), 1 - F.col("heard") / F.greatest("tokens", F.lit(1))))
        .withColumn("repairs_per_data", F.col("repairs_received") / F.greatest("data", F.lit(1)))
        .orderBy("node", "stripe")
    )


def loss_correlation(lines: DataFrame) -> DataFrame:
    """For each pair of receivers: the correlation of their losses, second by second, and how often both lost.

    All places lose more when there is more to lose, and nothing when there is nothing. So what is correlated is what a
    second had beyond the place's mean share of its data, in the seconds in which both had any. `lift` is how often both
    lost in one of these over how often independent losses would: 1 is independent.
    """
    place = Window.partitionBy("node", "stripe")
    seconds = (
        lines.where(F.col("role").endswith("receiver"))
        .withColumn("second", F.round(F.col("at_ns") / F.lit(_SECOND_NS)).cast("bigint"))
        .groupBy("node", "city", "stripe", "second")
        .agg(
            F.sum(_count("repairs_received") + _count("kernel_drops")).alias("lost"),
            F.sum(_count("data_received")).alias("data"),
        )
        .withColumn("all", F.col("lost") + F.col("data"))
        .where(F.col("all") > 0)
        .withColumn("mean_share", F.sum("lost").over(place) / F.sum("all").over(place))
        .withColumn("excess", F.col("lost") - F.col("mean_share") * F.col("all"))
    )
    one, two = (
        seconds.select(
            "stripe",
            "second",
            F.col("node").alias(side),
            F.col("city").alias(f"{side}_city"),
            (F.col("lost") > 0).cast("int").alias(f"{side}_lost"),
            F.col("excess").alias(f"{side}_excess"),
        )
        for side in ("one", "two")
    )
    both = F.sum(F.col("one_lost") * F.col("two_lost"))
    alone = F.sum("one_lost") * F.sum("two_lost")
    return (
        one.join(two, ["stripe", "second"])
        .where(F.col("one") < F.col("two"))
        .groupBy("stripe", "one", "one_city", "two", "two_city")
        .agg(
            F.count("*").alias("seconds"),
            F.corr("one_excess", "two_excess").alias("correlation"),
            both.alias("both"),
            (both * F.count("*") / F.nullif(alone, F.lit(0))).alias("lift"),
        )
        .orderBy(F.desc_nulls_last("correlation"), "one", "two")
    )
