"""Ordered slices: the total order lets Spark go through a stripe in pieces, each a table that numpy works on.

A frame of released events comes in slices, partitions that hold consecutive parts of a stripe's sequence. Whatever
needs the state at an event, quotes above all, then needs no shuffle by symbol: one pass says how each slice ends, the
driver has from that how each one begins, and a second pass goes through all slices at once. A busy symbol makes no
task longer than the others. A frame that is not in slices is put into them first, by ranges of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, Self
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from isocast.lake.transforms.standing import Coded, EventBlock, StandingQuotes
from isocast.terms.errors import LocalProtocolError
from isocast.terms.market import EventKind, Side

__all__ = [
    "BLOCK_ROWS",
    "QUOTE_STATE_SCHEMA",
    "SLICE_ROWS",
    "QuoteCarry",
    "SliceEnds",
    "Sliced",
    "block_of",
    "coded",
    "end_of",
    "file_slices",
    "in_slices",
    "insist_on_order",
    "is_in_order",
    "is_of_market",
    "ordered_blocks",
    "sliced",
    "sliced_files",
]


# Arrow batches put together to tables that numpy works on: each of one stripe, in the order of the sequence.


BLOCK_ROWS = 1 << 18
"""Rows that are worked on together: enough for numpy, few enough for a worker's memory."""


def ordered_blocks(batches: Iterable[pa.RecordBatch], rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
    """Batches put together to larger tables, each of one stripe."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= rows:
            yield from _by_stripe(pa.Table.from_batches(waiting))
            waiting.clear()
    if waiting:
        yield from _by_stripe(pa.Table.from_batches(waiting))


def _by_stripe(table: pa.Table) -> Iterator[pa.Table]:
    stripe = table["stripe"].to_numpy()
    cuts = [0, *(np.flatnonzero(stripe[1:] != stripe[:-1]) + 1).tolist(), len(stripe)]
    for start, stop in pairwise(cuts):
        if stop > start:
            yield table.slice(start, stop - start)


def coded(column: pa.ChunkedArray) -> Coded:
    """A column of text as numbers."""
    is_coded = pa.types.is_dictionary(column.type)
    encoded = (column.unify_dictionaries() if is_coded else column).combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    encoded = encoded if is_coded else encoded.dictionary_encode()
    return Coded(encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist())


def block_of(table: pa.Table) -> EventBlock:
    """The columns that standing quotes need."""
    return EventBlock(
        symbol=coded(table["symbol"]),
        floor=coded(table["floor"]),
        **{name: table[name].to_numpy() for name in ("kind", "side", "price", "quantity")},
    )


def is_in_order(table: pa.Table, last: tuple[int, int]) -> bool:
    """Whether rows of one stripe are in order, and behind what came before."""
    sequence, index = table["sequence"].to_numpy(), table["index"].to_numpy()
    if (int(sequence[0]), int(index[0])) <= last:
        return False
    rises = (sequence[1:] > sequence[:-1]) | ((sequence[1:] == sequence[:-1]) & (index[1:] > index[:-1]))
    return bool(rises.all())


def end_of(table: pa.Table) -> tuple[int, int]:
    """The last row's place in the sequence."""
    return table["sequence"][-1].as_py(), table["index"][-1].as_py()


SLICE_ROWS = 4_000_000
"""Rows of a slice where a frame has to be put into slices."""

_KEY = ("stripe", "sequence", "index")
_MARKET_KINDS = (EventKind.TRADE, EventKind.EXECUTION, EventKind.QUOTE)

QUOTE_STATE_SCHEMA = pa.schema(
    [
        pa.field("stripe", pa.int32()),
        pa.field("symbol", pa.string()),
        pa.field("floor", pa.string()),
        pa.field("side", pa.int8()),
        pa.field("price", pa.int64()),
        pa.field("quantity", pa.int64()),
    ]
)
"""Quotes as they stand: one row for each side of each line that somebody has quoted."""

_SUMMARY_DDL = (
    "slice BIGINT, stripe INT, first_sequence BIGINT, first_index INT, last_sequence BIGINT, last_index INT,"
    " is_ordered BOOLEAN, symbol STRING, floor STRING, side TINYINT, price BIGINT, quantity BIGINT"
)

_SUMMARY_SCHEMA = pa.schema(
    [
        pa.field("slice", pa.int64()),
        pa.field("stripe", pa.int32()),
        pa.field("first_sequence", pa.int64()),
        pa.field("first_index", pa.int32()),
        pa.field("last_sequence", pa.int64()),
        pa.field("last_index", pa.int32()),
        pa.field("is_ordered", pa.bool_()),
        *list(QUOTE_STATE_SCHEMA)[1:],
    ]
)

_Batches = Iterable[pa.RecordBatch]
_Work = Callable[[_Batches], Iterator[pa.RecordBatch]]


class SliceSource(Protocol):
    """Where slices come from."""

    @property
    def schema(self) -> StructType:
        """The columns that there are."""

    def apply(self, work: _Work, columns: Sequence[str], schema: str) -> DataFrame:
        """What `work` makes of each slice, given these columns of its trades and quotes."""


@dataclass(frozen=True)
class FrameSlices:
    """The partitions of any frame."""

    frame: DataFrame

    @property
    def schema(self) -> StructType:
        """The frame's."""
        return self.frame.schema

    def apply(self, work: _Work, columns: Sequence[str], schema: str) -> DataFrame:
        """Rows pass through Spark to Python."""
        return self.frame.select(*columns).mapInArrow(work, schema)


@dataclass(frozen=True)
class FileSlices:
    """Parquet files that each hold consecutive rows in order; Python workers read them without Spark in between."""

    files: DataFrame
    """One row for each slice, in a partition of its own: `path`, `stripe`, row groups from `first` to before `stop`."""
    schema: StructType

    def apply(self, work: _Work, columns: Sequence[str], schema: str, *, whole: bool = False) -> DataFrame:
        """Columns go from the file to numpy, names as numbers; no rows are made, or sent through a socket.

        `whole` gives events of all kinds.
        """
        return self.files.mapInArrow(_reader(work, list(columns), whole=whole), schema)


def _reader(work: _Work, columns: list[str], *, whole: bool) -> _Work:
    def read(specifications: _Batches) -> Iterator[pa.RecordBatch]:
        for batch in specifications:
            for row in batch.to_pylist():
                groups = range(row["first"], row["stop"])
                yield from work(_file_batches(row["path"], row["stripe"], groups, columns, whole=whole))

    return read


def _file_batches(
    path: str, stripe: int, groups: range, columns: list[str], *, whole: bool
) -> Iterator[pa.RecordBatch]:
    """Events of some row groups: trades and quotes, or all of them."""
    names = [name for name in ("symbol", "floor") if name in columns]
    stored = [name for name in columns if name != "stripe"]
    with pq.ParquetFile(path, read_dictionary=names, pre_buffer=False) as file:
        for read in file.iter_batches(BLOCK_ROWS, groups, stored, use_threads=False):
            wanted = is_of_market(read["kind"].to_numpy())
            batch = read if whole or wanted.all() else read.filter(pa.array(wanted))
            if len(batch):
                yield batch.append_column("stripe", pa.array(np.full(len(batch), stripe, np.int32))).select(columns)


def is_of_market(kind: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """Which events are trades and quotes."""
    return np.isin(kind, _MARKET_KINDS)


@dataclass(frozen=True)
class Sliced:
    """Trades and quotes in slices, and what stands at the beginning of each."""

    source: SliceSource
    carry: QuoteCarry


@dataclass(frozen=True)
class QuoteCarry:
    """How every slice ends."""

    summary: pa.Table
    earlier: pa.Table = field(default_factory=QUOTE_STATE_SCHEMA.empty_table)
    """Quotes that stood before all of them."""

    @property
    def is_ordered(self) -> bool:
        """Whether each slice is in order and no two overlap."""
        if not all(self.summary["is_ordered"].to_pylist()):
            return False
        names = ("stripe", "first_sequence", "first_index", "last_sequence", "last_index", "slice")
        rows = sorted(set(zip(*(self.summary[name].to_pylist() for name in names), strict=True)))
        return all(one[0] < two[0] or one[3:5] < two[1:3] for one, two in pairwise(rows))

    def before(self, stripe: int, sequence: int, index: int) -> StandingQuotes:
        """What stood when a slice began."""
        standing = StandingQuotes()
        _set(standing, self.earlier.filter(_equals(self.earlier["stripe"], stripe)))
        mine = self.summary.filter(_equals(self.summary["stripe"], stripe))
        first = np.stack([mine["first_sequence"].to_numpy(), mine["first_index"].to_numpy()])
        last = np.stack([mine["last_sequence"].to_numpy(), mine["last_index"].to_numpy()])
        is_before = _precedes(last, sequence, index)
        if (_precedes(first, sequence, index) & ~is_before).any():
            raise LocalProtocolError(f"stripe {stripe}: a slice begins inside another one, at sequence {sequence}")
        places = np.flatnonzero(is_before)
        places = places[np.argsort(last[0, places], kind="stable")]
        _set(standing, mine.take(pa.array(places)))
        return standing

    def closing(self) -> pa.Table:
        """Quotes behind all slices, to begin with the next time."""
        stripes = sorted({*self.summary["stripe"].to_pylist(), *self.earlier["stripe"].to_pylist()})
        parts = [_as_table(stripe, self.before(stripe, np.iinfo(np.int64).max, 0)) for stripe in stripes]
        return pa.concat_tables([QUOTE_STATE_SCHEMA.empty_table(), *parts])

    @staticmethod
    def nothing() -> pa.Table:
        """A summary of no slice."""
        return SliceEnds().table()

    @classmethod
    def of(cls, source: SliceSource, earlier: pa.Table | None = None) -> Self:
        """One pass over all slices."""
        columns = (*_KEY, "kind", "side", "floor", "symbol", "price", "quantity")
        summary = source.apply(_summarise, columns, _SUMMARY_DDL).toArrow()
        return cls(summary) if earlier is None else cls(summary, earlier)


def sliced(released: DataFrame, earlier: pa.Table | None = None) -> Sliced:
    """Trades and quotes of a frame in slices; `earlier` are quotes that stood before it."""
    source = FrameSlices(released.where(F.col("kind").isin([int(kind) for kind in _MARKET_KINDS])))
    carry = QuoteCarry.of(source, earlier)
    if not carry.is_ordered:
        source = FrameSlices(in_slices(source.frame))
        carry = QuoteCarry.of(source, earlier)
    return Sliced(source, carry)


def sliced_files(
    spark: SparkSession, files: Sequence[tuple[str, int]], schema: StructType, earlier: pa.Table | None = None
) -> Sliced:
    """Trades and quotes of Parquet files, given with the stripe of each, whose column they need not have.

    Each is in order, and no two hold the same part of a stripe.
    """
    source = file_slices(spark, files, schema)
    carry = QuoteCarry.of(source, earlier)
    insist_on_order(carry)
    return Sliced(source, carry)


def file_slices(spark: SparkSession, files: Sequence[tuple[str, int]], schema: StructType) -> FileSlices:
    """The slices of files whose ranges are not known yet: their metadata is read."""
    rows: list[tuple[int, str, int, int, int]] = []
    for path, stripe in files:
        with pq.ParquetFile(path) as file:
            found = enumerate(_group_ranges(file.metadata), len(rows))
            rows += [(number, path, stripe, *groups) for number, groups in found]
    columns = list(zip(*rows, strict=True)) or [()] * 5
    types = (pa.int32(), pa.string(), pa.int32(), pa.int32(), pa.int32())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    slices = spark.createDataFrame(pa.Table.from_arrays(arrays, ["slice", "path", "stripe", "first", "stop"]))
    return FileSlices(slices.repartitionById(max(len(rows), 1), "slice"), schema)


def insist_on_order(carry: QuoteCarry) -> None:
    """LocalProtocolError if slices overlap."""
    if not carry.is_ordered:
        raise LocalProtocolError("the files overlap, or are not in the order of the sequence")


def _group_ranges(metadata: Any) -> Iterator[tuple[int, int]]:  # noqa: ANN401 - pyarrow has no types
    """Row groups put together to slices of at most SLICE_ROWS."""
    first, rows = 0, 0
    for group in range(metadata.num_row_groups):
        count = metadata.row_group(group).num_rows
        if rows and rows + count > SLICE_ROWS:
            yield first, group
            first, rows = group, 0
        rows += count
    if rows:
        yield first, metadata.num_row_groups


def in_slices(frame: DataFrame, rows: int = SLICE_ROWS) -> DataFrame:
    """The same rows in partitions that are consecutive parts of the sequence, each in order."""
    counts = frame.groupBy("stripe").agg(
        F.count("*").alias("rows"), F.min("sequence").alias("least"), F.max("sequence").alias("most")
    )
    slices, column = 0, F.lit(0)
    for stripe, count, least, most in sorted(tuple(row) for row in counts.collect()):
        parts = max(-(-count // rows), 1)
        width = max(-(-(most + 1 - least) // parts), 1)
        place = F.lit(slices) + F.floor((F.col("sequence") - least) / width).cast("int")
        column = F.when(F.col("stripe") == stripe, place).otherwise(column)
        slices += parts
    return frame.repartitionById(max(slices, 1), column).sortWithinPartitions(*_KEY)


def _summarise(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How one slice ends, stripe by stripe."""
    ends = SliceEnds()
    for table in ordered_blocks(batches):
        ends.take(table)
    yield from ends.table().to_batches()


class SliceEnds:
    """How the parts of a slice end, each of one stripe."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._ended: list[pa.RecordBatch] = []
        self._stripe: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._standing, self._is_ordered = StandingQuotes(), True
        self._first, self._last = (0, 0), (-1, -1)

    def take(self, table: pa.Table) -> None:
        """Trades and quotes of one stripe, behind what came before."""
        if not len(table):
            return
        stripe = table["stripe"][0].as_py()
        if stripe != self._stripe:
            self._end()
            self._stripe, self._first = stripe, (table["sequence"][0].as_py(), table["index"][0].as_py())
        self._is_ordered = self._is_ordered and is_in_order(table, self._last)
        self._standing.take(block_of(table))
        self._last = end_of(table)

    def _end(self) -> None:
        if self._stripe is not None:
            self._ended.append(
                _summary(self._stripe, self._first, self._last, self._standing, ordered=self._is_ordered)
            )
        self._stripe = None
        self._begin()

    def table(self) -> pa.Table:
        """All ends; nothing may come behind it."""
        self._end()
        return pa.Table.from_batches(self._ended, _SUMMARY_SCHEMA)


def _summary(
    stripe: int, first: tuple[int, int], last: tuple[int, int], standing: StandingQuotes, *, ordered: bool
) -> pa.RecordBatch:
    """Rows of one slice: all quotes at its end, or one row without a symbol if there are none."""
    quotes = _as_table(stripe, standing)
    rows = max(len(quotes), 1)
    columns: dict[str, Any] = {
        # Two slices that hold the same events are two, and must be seen to be.
        "slice": pa.array(np.full(rows, uuid4().int >> 65, np.int64)),
        "stripe": pa.array(np.full(rows, stripe, np.int32)),
        "first_sequence": pa.array(np.full(rows, first[0], np.int64)),
        "first_index": pa.array(np.full(rows, first[1], np.int32)),
        "last_sequence": pa.array(np.full(rows, last[0], np.int64)),
        "last_index": pa.array(np.full(rows, last[1], np.int32)),
        "is_ordered": pa.array(np.full(rows, ordered)),
    }
    for name in ("symbol", "floor", "side", "price", "quantity"):
        kind = QUOTE_STATE_SCHEMA.field(name).type
        columns[name] = quotes[name].combine_chunks() if len(quotes) else pa.nulls(1, kind)
    return pa.RecordBatch.from_pydict(columns, _SUMMARY_SCHEMA)


def _as_table(stripe: int, standing: StandingQuotes) -> pa.Table:
    """Quotes as rows."""
    parts = []
    for side in (standing.bid, standing.ask):
        lines = np.flatnonzero(side.is_known)
        size = side.size[lines]
        names = [standing.lines[line] for line in lines.tolist()]
        columns = [
            np.full(len(lines), stripe, np.int32),
            [symbol for symbol, _ in names],
            [floor for _, floor in names],
            np.full(len(lines), int(side.number), np.int8),
            np.where(size > 0, side.price[lines], 0),
            size,
        ]
        arrays = [pa.array(column, each.type) for column, each in zip(columns, QUOTE_STATE_SCHEMA, strict=True)]
        parts.append(pa.Table.from_arrays(arrays, schema=QUOTE_STATE_SCHEMA))
    return pa.concat_tables(parts)


def _set(standing: StandingQuotes, quotes: pa.Table) -> None:
    """Quotes take effect in the order of their rows."""
    quotes = quotes.filter(quotes["symbol"].is_valid())
    if not len(quotes):
        return
    pairs = list(zip(quotes["symbol"].to_pylist(), quotes["floor"].to_pylist(), strict=True))
    lines = standing.line_numbers(pairs)
    side, price, quantity = (quotes[name].to_numpy() for name in ("side", "price", "quantity"))
    for number in (Side.BUY, Side.SELL):
        mine = side == number
        standing.set(number, lines[mine], price[mine], quantity[mine])


def _equals(column: pa.ChunkedArray, value: int) -> pa.Array:
    return pa.array(column.to_numpy() == value)


def _precedes(places: npt.NDArray[np.int64], sequence: int, index: int) -> npt.NDArray[np.bool_]:
    is_before: npt.NDArray[np.bool_] = (places[0] < sequence) | ((places[0] == sequence) & (places[1] < index))
    return is_before
