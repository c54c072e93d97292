"""Delay distributions: when tokens are heard after their instant, at each receiver and from each owner (§5.1)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["delay_curves", "delay_quantiles", "token_delays"]

_ACCURACY = 100_000
_ACCURACY_MAX = 2**31 - 1
_OWNER, _TOKEN, _DELAY = range(3)


def token_delays(lines: DataFrame) -> DataFrame:
    """One row for each token that a receiver heard by itself: clocks, distance, queues and the owner's lateness."""
    return (
        lines.where(F.col("tokens").isNotNull())
        .select("node", "city", "role", "stripe", F.explode("tokens").alias("heard"))
        .select(
            "node",
            "city",
            "role",
            "stripe",
            F.col("heard")[_OWNER].alias("owner"),
            F.col("heard")[_TOKEN].alias("token"),
            F.col("heard")[_DELAY].alias("delay_ns"),
        )
    )


def delay_quantiles(delays: DataFrame, fraction: float, by: Sequence[str] = ("node", "city", "role")) -> DataFrame:
    """Of each group: median, 99 %, the wanted fraction and the largest delay."""
    # An error of 1/accuracy in rank must be small beside the tail that is asked for.
    accuracy = min(max(_ACCURACY, round(100 / (1 - fraction))), _ACCURACY_MAX)
    found = F.percentile_approx("delay_ns", [0.5, 0.99, fraction], accuracy)
    return (
        delays.groupBy(*by)
        .agg(
            F.count("*").alias("tokens"),
            found[0].alias("p50_ns"),
            found[1].alias("p99_ns"),
            found[2].alias("wanted_ns"),
            F.max("delay_ns").alias("max_ns"),
        )
        .orderBy(*by)
    )


def delay_curves(delays: DataFrame, steps: int = 200) -> DataFrame:
    """For a picture: of each receiver the quantiles 0, 1/steps, … 1."""
    shares = [step / steps for step in range(steps + 1)]
    return delays.groupBy("node").agg(F.percentile_approx("delay_ns", shares, _ACCURACY).alias("curve")).orderBy("node")
