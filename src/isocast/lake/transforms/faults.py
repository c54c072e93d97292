"""Fairness faults: messages that a receiver released after their instant, or from an earlier ring's backlog (§5)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["fairness_faults", "worst_faults"]


def fairness_faults(messages: DataFrame, late_after_ns: int) -> DataFrame:
    """For each receiver: late by more than P, late beyond its clock's bound, and owed from before a new ring."""
    late, backlog = F.col("late_ns") > late_after_ns, F.col("due_ns") > F.col("first_due_ns")
    return (
        messages.groupBy("receiver")
        .agg(
            F.count("*").alias("messages"),
            F.sum(late.cast("bigint")).alias("late"),
            F.sum((F.col("late_ns") > F.col("bound_ns")).cast("bigint")).alias("beyond_bound"),
            F.sum(backlog.cast("bigint")).alias("backlog"),
            F.countDistinct(F.when(late | backlog, F.col("token"))).alias("tokens"),
            F.max("late_ns").alias("worst_ns"),
            F.max_by("sequence", "late_ns").alias("worst_sequence"),
        )
        .orderBy("receiver")
    )


def worst_faults(messages: DataFrame, late_after_ns: int, count: int) -> DataFrame:
    """The tokens that were latest, each with the receiver and its first late message."""
    return (
        messages.where((F.col("late_ns") > late_after_ns) | (F.col("due_ns") > F.col("first_due_ns")))
        .groupBy("stripe", "token", "receiver")
        .agg(
            F.min("sequence").alias("sequence"),
            F.count("*").alias("messages"),
            F.max("late_ns").alias("late_ns"),
            F.max(F.col("due_ns") - F.col("first_due_ns")).alias("backlog_ns"),
        )
        .orderBy(F.desc(F.col("late_ns") + F.col("backlog_ns")), "stripe", "token", "receiver")
        .limit(count)
    )
