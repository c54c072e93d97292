"""Instruments of a lake: full names from the directory's records, and ticks as exact decimals in units.

Columns of the lake are whole numbers, whose scale the symbol says (`terms.instruments`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isocast.terms.instruments import CODE_MARK, MAX_PRICE_DECIMALS, MAX_QUANTITY_DECIMALS, PLAIN
from isocast.terms.market import EventKind, Side
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.names import InstrumentNames

__all__ = ["in_units", "instrument_names", "with_names"]

_DIGITS = "0123456789ABCDEFGHI"
_CODE = f"^{CODE_MARK}[{_DIGITS}][0-9][0-9A-Za-z]{{5}}$"
_COLUMNS = ("side", "floor", "symbol", "price", "quantity", "reference", "id")
_TICK_DIGITS = 19


def instrument_names(released: DataFrame) -> DataFrame:
    """(floor, symbol, name, price_decimals, quantity_decimals) of every instrument whose full name was released."""
    spelled = released.where((F.col("kind") == int(EventKind.DIRECTORY)) & (F.col("side") != int(Side.NONE)))
    rows = spelled.select(*_COLUMNS).distinct().collect()
    events = np.zeros(len(rows), EVENT_DTYPE)
    events["kind"] = EventKind.DIRECTORY
    for name in _COLUMNS:
        values = [row[name] for row in rows]
        # Spark has no unsigned numbers: 64 bits keep their bits.
        events[name] = np.array(values, np.int64).view(np.uint64) if name == "id" else values
    names = InstrumentNames()
    names.take(events)
    found = [(one.floor, str(one.symbol), one.name, one.price_decimals, one.quantity_decimals) for one in names]
    kinds = "floor STRING, symbol STRING, name STRING, price_decimals INT, quantity_decimals INT"
    return released.sparkSession.createDataFrame(found, kinds)


def with_names(frame: DataFrame, names: DataFrame) -> DataFrame:
    """The frame with a column `name`: the full name, or the symbol where none is known."""
    known = F.broadcast(names.select("floor", "symbol", F.col("name").alias("_full")))
    joined = frame.join(known, ["floor", "symbol"], "left")
    return joined.withColumn("name", F.coalesce("_full", "symbol")).drop("_full")


def in_units(
    frame: DataFrame, prices: Sequence[str] = ("price",), quantities: Sequence[str] = ("quantity",)
) -> DataFrame:
    """For each of these columns another with _units behind its name: DECIMAL(38, 18) and DECIMAL(38, 9), exactly."""
    is_code = F.col("symbol").rlike(_CODE)
    digit = F.expr(f"instr('{_DIGITS}', substring(symbol, 2, 1)) - 1")
    price = F.when(is_code, digit).otherwise(PLAIN.price)
    quantity = F.when(is_code, F.expr("cast(substring(symbol, 3, 1) as int)")).otherwise(PLAIN.quantity)
    for name in prices:
        frame = frame.withColumn(f"{name}_units", _scaled(name, price, MAX_PRICE_DECIMALS))
    for name in quantities:
        frame = frame.withColumn(f"{name}_units", _scaled(name, quantity, MAX_QUANTITY_DECIMALS))
    return frame


def _scaled(name: str, decimals: Column, most: int) -> Column:
    """A product of decimals whose digits together are at most 38, which Spark multiplies exactly."""
    whole = F.col(name).cast(f"decimal({_TICK_DIGITS},0)")
    found = F.when(decimals == 0, whole.cast(f"decimal(38,{most})"))
    for places in range(1, most + 1):
        unit = F.lit(f"0.{'0' * (places - 1)}1").cast(f"decimal({most},{most})")
        found = found.when(decimals == places, (whole * unit).cast(f"decimal(38,{most})"))
    return found
