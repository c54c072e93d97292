"""One pass over new events that finds what a tape must know: ids, days, and what corrections make of a trade.

Ids of trades, by line: where they rise nothing can have come twice. Corrections, cancels, and marks that open a floor's
day: few, and collected. Beside them, where the events lie in files, how each slice ends (`transforms.slices`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from isocast.lake.transforms.slices import (
    QuoteCarry,
    Sliced,
    SliceEnds,
    coded,
    file_slices,
    insist_on_order,
    is_of_market,
    ordered_blocks,
)
from isocast.lake.transforms.standing import code_pairs
from isocast.terms.market import EventFlag, EventKind
from isocast.ticker.records import PRICE_LIMIT, TradeState

__all__ = [
    "DAY_LEAST_NS",
    "TRADES",
    "Amendment",
    "EventPlace",
    "FloorDays",
    "Reference",
    "Survey",
    "SurveyedTrade",
    "SymbolLine",
    "amend",
    "survey_files",
    "survey_frame",
]


# What corrections and cancels make of a trade, as the ticker has it (`isocast.ticker.trades`).
#
# They are a thousandth of the trades: they are collected, with the trades that they mean, and applied one by one.


DAY_LEAST_NS = 12 * 3_600 * 1_000_000_000
"""A mark for the start of messages begins another day if it comes so long after the one before."""


class SymbolLine(NamedTuple):
    """A symbol on a floor, in a stripe."""

    stripe: int
    symbol: str
    floor: str


class EventPlace(NamedTuple):
    """Of an event in its stripe's sequence."""

    sequence: int
    at: int
    """Its index in the message."""


class SurveyedTrade(NamedTuple):
    """A trade as it stands."""

    line: SymbolLine
    id: int
    place: EventPlace
    price: int
    quantity: int
    state: int


class Reference(NamedTuple):
    """A correction or a cancel."""

    line: SymbolLine
    id: int
    place: EventPlace
    kind: int
    flags: int
    price: int
    quantity: int


class Amendment(NamedTuple):
    """A trade as it stands now, and the last event that changed it."""

    stripe: int
    place: EventPlace
    price: int
    quantity: int
    state: int
    amended: int


@dataclass
class FloorDays:
    """Where days of floors begin, by their own marks (`isocast.ticker.tape`)."""

    opened: dict[tuple[int, str], int] = field(default_factory=dict)
    begun: dict[tuple[int, str], list[EventPlace]] = field(default_factory=dict)

    def mark(self, stripe: int, floor: str, place: EventPlace, moment: int) -> None:
        """A floor says that it starts; marks come in the order of the sequence."""
        opened = self.opened.get((stripe, floor), 0)
        if opened and moment < opened + DAY_LEAST_NS:
            return
        if opened:
            self.begun.setdefault((stripe, floor), []).append(place)
        self.opened[stripe, floor] = moment

    def lie_apart(self, line: SymbolLine, one: EventPlace, two: EventPlace) -> bool:
        """Whether a day began after one place and not after the other."""
        return any(one < begin <= two for begin in self.begun.get((line.stripe, line.floor), ()))

    def as_json(self) -> list[list[object]]:
        """For a file."""
        return [
            [stripe, floor, moment, [list(place) for place in self.begun.get((stripe, floor), [])]]
            for (stripe, floor), moment in sorted(self.opened.items())
        ]

    @classmethod
    def from_json(cls, rows: Iterable[Sequence[object]]) -> FloorDays:
        """As they were."""
        days = cls()
        for stripe, floor, moment, places in rows:
            days.opened[stripe, floor] = moment  # type: ignore[index, assignment]
            days.begun[stripe, floor] = [EventPlace(*place) for place in places]  # type: ignore[index, attr-defined]
        return days


def amend(trades: Iterable[SurveyedTrade], references: Iterable[Reference], days: FloorDays) -> list[Amendment]:
    """Every trade that changed, once, as it stands behind all references."""
    known: dict[tuple[SymbolLine, int], list[SurveyedTrade]] = {}
    for trade in sorted(trades, key=lambda each: each.place):
        known.setdefault((trade.line, trade.id), []).append(trade)
    changed: dict[tuple[int, EventPlace], Amendment] = {}
    for reference in sorted(references, key=lambda each: (each.line.stripe, each.place)):
        found = _newest_before(known, reference)
        if found is None:
            continue
        trades_of_id, at = found
        trade = trades_of_id[at]
        if days.lie_apart(trade.line, trade.place, reference.place):
            continue
        after = _apply(trade, reference)
        if after is not None:
            trades_of_id[at] = after
            changed[trade.line.stripe, trade.place] = Amendment(
                trade.line.stripe, trade.place, after.price, after.quantity, after.state, reference.place.sequence
            )
    return list(changed.values())


def _newest_before(
    known: Mapping[tuple[SymbolLine, int], list[SurveyedTrade]], reference: Reference
) -> tuple[list[SurveyedTrade], int] | None:
    trades = known.get((reference.line, reference.id), [])
    places = [at for at, trade in enumerate(trades) if trade.place < reference.place]
    return (trades, places[-1]) if places and reference.id else None


def _apply(trade: SurveyedTrade, reference: Reference) -> SurveyedTrade | None:
    """The trade behind a reference; None if it changes nothing."""
    if trade.state & TradeState.CANCELLED:
        return None
    if reference.kind == EventKind.TRADE_CANCEL:
        return trade._replace(state=trade.state | TradeState.CANCELLED)
    price, quantity = reference.price, reference.quantity
    if price == 0 or abs(price) > PRICE_LIMIT or quantity == 0:
        return None
    state = (trade.state & ~(TradeState.FLAWED | TradeState.TENTATIVE)) | TradeState.CORRECTED
    if reference.flags & EventFlag.TENTATIVE:
        state |= TradeState.TENTATIVE
    if (price, quantity) == (trade.price, trade.quantity) and state == trade.state | TradeState.CORRECTED:
        return None
    return trade._replace(price=price, quantity=quantity, state=int(state))


TRADES = (int(EventKind.TRADE), int(EventKind.EXECUTION))
_REFERENCES = (int(EventKind.CORRECTION), int(EventKind.TRADE_CANCEL))
_DAY_MARK = ord("O")

_KINDS = (*TRADES, *_REFERENCES, int(EventKind.MARK))
_NOTICE_SCHEMA = pa.schema(
    [
        pa.field("stripe", pa.int32()),
        pa.field("symbol", pa.string()),
        pa.field("floor", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("sequence", pa.int64()),
        pa.field("index", pa.int32()),
        pa.field("kind", pa.int8()),
        pa.field("flags", pa.int32()),
        pa.field("price", pa.int64()),
        pa.field("quantity", pa.int64()),
        pa.field("event_ns", pa.int64()),
    ]
)
_COLUMNS = (*_NOTICE_SCHEMA.names, "reference", "side")
_ID_SCHEMA = pa.schema(
    [
        pa.field("stripe", pa.int32()),
        pa.field("symbol", pa.string()),
        pa.field("floor", pa.string()),
        pa.field("least", pa.int64()),
        pa.field("most", pa.int64()),
        pa.field("rises", pa.bool_()),
    ]
)
_FOUND_DDL = "ids BINARY, notices BINARY, ends BINARY"
"""Arrow streams: three tables of each partition in one row."""


@dataclass(frozen=True)
class Survey:
    """What was found."""

    ids: pa.Table
    """For each partition and line: the least and the greatest id, and whether they rise."""
    notices: pa.Table
    """Corrections, cancels and marks of days, as they came."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[bytes]]) -> Survey:
        """From what the partitions said."""
        ids, notices = ([row[place] for row in rows] for place in (0, 1))
        return cls(_together(ids, _ID_SCHEMA), _together(notices, _NOTICE_SCHEMA))


def survey_frame(released: DataFrame) -> Survey:
    """Of the events of any frame."""
    chosen = released.where(F.col("kind").isin(list(_KINDS))).select(*_COLUMNS)
    return Survey.of(chosen.mapInArrow(_survey_tape, _FOUND_DDL).collect())


def survey_files(
    spark: SparkSession, files: Sequence[tuple[str, int]], schema: StructType, earlier: pa.Table
) -> tuple[Sliced, Survey]:
    """Of Parquet files, as `sliced_files` takes them; and their slices."""
    source = file_slices(spark, files, schema)
    rows = source.apply(_survey_all, _COLUMNS, _FOUND_DDL, whole=True).collect()
    carry = QuoteCarry(_together([row["ends"] for row in rows], QuoteCarry.nothing().schema), earlier)
    insist_on_order(carry)
    return Sliced(source, carry), Survey.of(rows)


def _survey_tape(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    ids, notices = _IdSpans(), _Notices()
    for table in ordered_blocks(batches):
        ids.take(table)
        notices.take(table)
    yield _said(ids.table(), notices.table(), QuoteCarry.nothing())


def _survey_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    ids, notices, ends = _IdSpans(), _Notices(), SliceEnds()
    for table in ordered_blocks(batches):
        ids.take(table)
        notices.take(table)
        wanted = is_of_market(table["kind"].to_numpy())
        ends.take(table if wanted.all() else table.filter(pa.array(wanted)))
    yield _said(ids.table(), notices.table(), ends.table())


def _said(*tables: pa.Table) -> pa.RecordBatch:
    values = []
    for table in tables:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        values.append(pa.array([sink.getvalue().to_pybytes()], pa.binary()))
    return pa.RecordBatch.from_arrays(values, ["ids", "notices", "ends"])


def _together(streams: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *(pa.ipc.open_stream(stream).read_all() for stream in streams)])


class _Notices:
    """Corrections, cancels and marks of days."""

    def __init__(self) -> None:
        self._found: list[pa.Table] = []

    def take(self, table: pa.Table) -> None:
        kind = table["kind"].to_numpy()
        is_start = (kind == EventKind.MARK) & (table["reference"].to_numpy() == _DAY_MARK)
        is_reference = np.isin(kind, _REFERENCES) & (table["id"].to_numpy() != 0)
        chosen = is_start | is_reference
        if chosen.any():
            found = table.select(_NOTICE_SCHEMA.names).filter(pa.array(chosen))
            self._found.append(found.cast(_NOTICE_SCHEMA))

    def table(self) -> pa.Table:
        return pa.concat_tables([_NOTICE_SCHEMA.empty_table(), *self._found])


class _IdSpans:
    """Least and greatest id of each line, and whether they rise in the order of events."""

    def __init__(self) -> None:
        self._spans: dict[SymbolLine, tuple[int, int, bool]] = {}

    def take(self, table: pa.Table) -> None:
        kind = table["kind"].to_numpy()
        trades = table.filter(pa.array(np.isin(kind, TRADES)))
        if not len(trades):
            return
        is_execution = trades["kind"].to_numpy() == EventKind.EXECUTION
        ids = np.where(is_execution, trades["reference"].to_numpy(), trades["id"].to_numpy())
        codes, pairs = code_pairs(coded(trades["symbol"]), coded(trades["floor"]))
        named = np.flatnonzero(ids != 0)
        order = named[np.argsort(codes[named], kind="stable")]
        line, number = codes[order], ids[order]
        if not len(order):
            return
        begins = np.concatenate([[True], line[1:] != line[:-1]])
        starts = np.flatnonzero(begins)
        rises = begins.copy()
        rises[1:] |= number[1:] > number[:-1]
        stripe = trades["stripe"][0].as_py()
        for place, least, most, in_order in zip(
            line[starts].tolist(),
            np.minimum.reduceat(number, starts).tolist(),
            np.maximum.reduceat(number, starts).tolist(),
            np.logical_and.reduceat(rises, starts).tolist(),
            strict=True,
        ):
            self._add(SymbolLine(stripe, *pairs[place]), least, most, rises=in_order)

    def _add(self, line: SymbolLine, least: int, most: int, *, rises: bool) -> None:
        before = self._spans.get(line)
        if before is None:
            self._spans[line] = least, most, rises
            return
        in_order = rises and before[2] and least > before[1]
        self._spans[line] = min(least, before[0]), max(most, before[1]), in_order

    def table(self) -> pa.Table:
        named = [(*line, *span) for line, span in self._spans.items() if line.symbol]
        columns = [list(column) for column in zip(*named, strict=True)] or [[]] * len(_ID_SCHEMA)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _ID_SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=_ID_SCHEMA)
