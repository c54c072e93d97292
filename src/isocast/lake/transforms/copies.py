"""Events of no symbol, which every stripe of the core has: counted once, as `striping.routing.heard_once` counts them.

Bronze keeps every copy, and what is done stripe by stripe needs them: the day of a floor begins in each of its stripes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isocast.terms.market import EventFlag

__all__ = ["is_copy", "without_copies"]


def is_copy(lowest: int | None = None) -> Column:
    """Whether another stripe counts an event; `lowest` is the least stripe that is there, which counts its copies."""
    marked = (F.col("flags").bitwiseAND(F.lit(int(EventFlag.COPIED))) != 0) & (F.col("symbol") == "")
    return marked if lowest is None else marked & (F.col("stripe") != lowest)


def without_copies(released: DataFrame, lowest: int | None = None) -> DataFrame:
    """Each event once, in whichever stripes it was released."""
    return released.where(~is_copy(lowest))
