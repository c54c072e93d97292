"""Which figures of a consolidated tape a trade may change: the rules of `terms.conditions` as columns of a tape.

Whether a trade counts at all, in volume, turnover and number, is `bars.counted`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isocast.terms.conditions import LEFT_OUT
from isocast.ticker.records import PRICED, TradeState

__all__ = ["left_out", "sets_high_low", "sets_last"]

_GONE = int(TradeState.CANCELLED | TradeState.FLAWED | TradeState.PAST)


def sets_last() -> Column:
    """Whether a trade may open or close a bar, or be a last sale."""
    return F.col("state").bitwiseAND(F.lit(PRICED)) == 0


def sets_high_low() -> Column:
    """Whether a trade may be a high or a low."""
    return F.col("state").bitwiseAND(F.lit(int(TradeState.NOT_HIGH_LOW))) == 0


def left_out(tape: DataFrame) -> DataFrame:
    """Trades that do not change all figures: how many, and how many shares, of each symbol by the reason."""
    standing = tape.where(F.col("state").bitwiseAND(F.lit(_GONE)) == 0).withColumn("reason", _reason())
    named = standing.where(F.col("reason").isNotNull())
    return named.groupBy("symbol", "reason").agg(F.count("*").alias("trades"), F.sum("quantity").alias("shares"))


def _reason() -> Column:
    """Null for a trade that changes all."""
    reason = F.lit(None).cast("string")
    for mask, text in reversed(list(LEFT_OUT.items())):
        reason = F.when(F.col("flags").bitwiseAND(F.lit(int(mask))) == int(mask), F.lit(text)).otherwise(reason)
    return reason
