"""The consolidated tape: trades of all floors as they stand, repetitions left out, corrections and cancels applied.

The rules are the ticker's (`isocast.ticker`), and so are the answers. A trade is found by its line, a symbol on
a floor, and its id. Ids that rise on their line cannot repeat, so trades are compared with each other only on lines
where they do not; corrections and cancels are a thousandth of the trades, and are collected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isocast.lake.transforms.survey import (
    TRADES,
    Amendment,
    EventPlace,
    FloorDays,
    Reference,
    Survey,
    SurveyedTrade,
    SymbolLine,
    amend,
    survey_frame,
)
from isocast.terms.market import EventFlag, EventKind
from isocast.ticker.records import PRICE_LIMIT, TradeState

__all__ = [
    "TAPE_COLUMNS",
    "TapeMemory",
    "TapeStep",
    "amended",
    "consolidated_tape",
    "next_tape",
    "reported_trades",
]

TAPE_COLUMNS = (
    "stripe",
    "sequence",
    "index",
    "floor",
    "symbol",
    "price",
    "quantity",
    "flags",
    "trade_id",
    "event_ns",
    "due_ns",
    "state",
    "reported_price",
    "reported_quantity",
    "amended_sequence",
)
"""A trade as it stands, how it was reported, and the sequence of the last event that changed it."""

_LINE = ("stripe", "symbol", "floor")
_KEY = ("stripe", "sequence", "index")
_AMENDMENT_DDL = (
    "stripe INT, sequence BIGINT, index INT, new_price BIGINT, new_quantity BIGINT, new_state INT, amended BIGINT"
)
_MOST_BROADCAST = 2_000_000

_Range = tuple[int, int]
Earlier = Callable[[], DataFrame | None]
"""Makes the frame of a tape when somebody needs it: to name thousands of files takes its time."""


@dataclass
class TapeMemory:
    """What a tape that goes on must know of what came before, besides its rows."""

    days: FloorDays = field(default_factory=FloorDays)
    ids: dict[SymbolLine, _Range] = field(default_factory=dict)
    """The least and the greatest id of each line."""


@dataclass(frozen=True)
class TapeStep:
    """New rows of a tape, and rows of before that have changed."""

    trades: DataFrame
    amendments: list[Amendment]
    """Of trades of before."""
    memory: TapeMemory


def reported_trades(released: DataFrame) -> DataFrame:
    """Every report of a trade as it came, with its id and what is true of it; further columns stay."""
    is_execution = F.col("kind") == int(EventKind.EXECUTION)
    price, quantity = F.col("price"), F.col("quantity")
    is_flawed = (price == 0) | (price > PRICE_LIMIT) | (price < -PRICE_LIMIT) | (quantity == 0)
    state = (
        _when_flag(EventFlag.UNPRINTED, TradeState.UNPRINTED)
        + _when_flag(EventFlag.TENTATIVE, TradeState.TENTATIVE)
        + _when_flag(EventFlag.NOT_LAST, TradeState.NOT_LAST)
        + _when_flag(EventFlag.NOT_HIGH_LOW, TradeState.NOT_HIGH_LOW)
        + F.when(is_flawed, int(TradeState.FLAWED)).otherwise(0)
    )
    trades = released.where(F.col("kind").isin(list(TRADES)) & (F.col("symbol") != ""))
    trades = trades.select(
        "*",
        F.when(is_execution, F.col("reference")).otherwise(F.col("id")).alias("trade_id"),
        state.cast("int").alias("state"),
        price.alias("reported_price"),
        quantity.alias("reported_quantity"),
        F.lit(None).cast("bigint").alias("amended_sequence"),
    )
    gone = ("kind", "side", "reference", "id")
    return trades.drop(*gone)


def consolidated_tape(released: DataFrame) -> DataFrame:
    """The tape of a whole frame."""
    return next_tape(released, lambda: None, TapeMemory()).trades.select(*TAPE_COLUMNS)


def next_tape(
    released: DataFrame,
    earlier: Earlier,
    memory: TapeMemory,
    trades: DataFrame | None = None,
    survey: Survey | None = None,
) -> TapeStep:
    """The tape goes on with new events; `earlier` gives the tape until now, if it is asked for.

    `trades` are the reports of the new events with whatever columns the tape shall have besides; `survey` is what is
    known of these events already.
    """
    plain = reported_trades(released)
    found = survey or survey_frame(released)
    references, days = _references(found.notices, memory.days)
    ranges, doubtful = _compare_ids(found.ids, memory.ids)
    fresh, reports = plain, plain if trades is None else trades
    if doubtful:
        repeated = _repetitions(plain, earlier(), doubtful)
        fresh = plain.join(repeated, list(_KEY), "left_anti")
        reports = reports.join(repeated, list(_KEY), "left_anti")
    new = _meant(fresh, references)
    before = earlier() if references else None
    old = _meant(before, references) if before is not None else []
    is_old = {(trade.line.stripe, trade.place) for trade in old}
    changes = amend([*new, *old], references, days)
    return TapeStep(
        amended(reports, [each for each in changes if (each.stripe, each.place) not in is_old]),
        [each for each in changes if (each.stripe, each.place) in is_old],
        TapeMemory(days, ranges),
    )


def amended(trades: DataFrame, amendments: Sequence[Amendment]) -> DataFrame:
    """Trades with what corrections and cancels make of them."""
    if not amendments:
        return trades
    rows = [(each.stripe, *each.place, each.price, each.quantity, int(each.state), each.amended) for each in amendments]
    changes = trades.sparkSession.createDataFrame(rows, _AMENDMENT_DDL)
    joined = trades.join(F.broadcast(changes), list(_KEY), "left")
    for name, change in (
        ("price", "new_price"),
        ("quantity", "new_quantity"),
        ("state", "new_state"),
        ("amended_sequence", "amended"),
    ):
        joined = joined.withColumn(name, F.coalesce(F.col(change), F.col(name)))
    return joined.select(*trades.columns)


def _when_flag(flag: EventFlag, state: TradeState) -> Column:
    return F.when(F.col("flags").bitwiseAND(F.lit(int(flag))) != 0, int(state)).otherwise(0)


def _compare_ids(
    found: pa.Table, before: dict[SymbolLine, _Range]
) -> tuple[dict[SymbolLine, _Range], list[SymbolLine]]:
    """The ids of each line, and the lines on which some may have come twice."""
    parts: dict[SymbolLine, list[_Range]] = {line: [span] for line, span in before.items()}
    doubtful: dict[SymbolLine, None] = {}
    for row in found.to_pylist():
        line = SymbolLine(row["stripe"], row["symbol"], row["floor"])
        parts.setdefault(line, []).append((row["least"], row["most"]))
        if not row["rises"]:
            doubtful[line] = None
    for line, spans in parts.items():
        spans.sort()
        if any(one[1] >= two[0] for one, two in pairwise(spans)):
            doubtful[line] = None
    return {line: (spans[0][0], max(span[1] for span in spans)) for line, spans in parts.items()}, list(doubtful)


def _repetitions(trades: DataFrame, earlier: DataFrame | None, doubtful: Sequence[SymbolLine]) -> DataFrame:
    """Places of trades that repeat the report before them on their line under the same id."""
    spark = trades.sparkSession
    lines = F.broadcast(spark.createDataFrame(list(doubtful), "stripe INT, symbol STRING, floor STRING"))
    columns = (*_KEY, "symbol", "floor", "trade_id", "reported_price", "reported_quantity", "event_ns")
    frames = [frame.select(*columns) for frame in (trades, earlier) if frame is not None]
    named = reduce(DataFrame.unionByName, frames).where("trade_id != 0").join(lines, list(_LINE), "left_semi")
    before = Window.partitionBy(*_LINE, "trade_id").orderBy("sequence", "index")
    contents = F.struct("reported_price", "reported_quantity", "event_ns")
    return named.withColumn("repeats", F.lag(contents).over(before) == contents).where("repeats").select(*_KEY)


def _references(notices: pa.Table, before: FloorDays) -> tuple[list[Reference], FloorDays]:
    """Corrections and cancels in the order of the sequence, and where days of floors begin."""
    days = FloorDays(dict(before.opened), {key: list(places) for key, places in before.begun.items()})
    references = []
    rows = zip(*(notices[name].to_pylist() for name in notices.column_names), strict=True)
    for stripe, symbol, floor, number, sequence, index, kind, *rest in sorted(rows, key=lambda row: row[4:6]):
        place = EventPlace(sequence, index)
        if kind == EventKind.MARK:
            days.mark(stripe, floor, place, rest[-1])
        elif symbol:
            references.append(Reference(SymbolLine(stripe, symbol, floor), number, place, kind, *rest[:-1]))
    return references, days


def _meant(trades: DataFrame, references: Sequence[Reference]) -> list[SurveyedTrade]:
    """The trades that corrections and cancels refer to."""
    keys = sorted({(*each.line, each.id) for each in references})
    if not keys:
        return []
    wanted = trades.sparkSession.createDataFrame(keys, "stripe INT, symbol STRING, floor STRING, trade_id BIGINT")
    wanted = F.broadcast(wanted) if len(keys) <= _MOST_BROADCAST else wanted
    rows = trades.join(wanted, [*_LINE, "trade_id"], "left_semi")
    chosen = rows.select(*_LINE, "trade_id", "sequence", "index", "price", "quantity", "state").collect()
    return [SurveyedTrade(SymbolLine(*row[:3]), row[3], EventPlace(row[4], row[5]), *row[6:]) for row in chosen]
