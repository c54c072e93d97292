"""`format("isocast")`: released events from a folder of journals, or from a server of the network itself.

    spark.read.format("isocast").load("data")                          # one row for each event, with its provenance
    spark.readStream.format("isocast").option("maxRowsPerTrigger", 100_000).load("data")

Columns that a query does not need are left out by `.option("columns", "symbol, price")`. They are never null and say
so, which spares Spark a look at every value; those of `.schema("symbol STRING, price BIGINT")` may be null. Filters are
not handed down: in Spark 4.1 to 4.3 one that was stays on the frame and spoils the next query. Ranges are options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from isocast.lake.publish_sink import BatchPublisher, StreamPublisher
from isocast.lake.schemas import QUARANTINE_SCHEMA, RELEASED_SCHEMA
from isocast.lake.source_archive import ArchiveLanes, ArchivePiece, read_archive
from isocast.lake.source_faults import Fault, Faults, quarantine_rows, write_faults
from isocast.lake.source_lanes import Lanes
from isocast.lake.source_options import Offsets, Options, arrow_schema, columns_of, read_options, struct_of
from isocast.lake.source_plan import Piece
from isocast.lake.source_read import Part, read_batches, read_parts
from isocast.terms.errors import ConfigurationError

__all__ = ["IsocastSource", "PiecePartition"]


class PiecePartition(InputPartition):
    """What one task reads."""

    def __init__(self, piece: Piece | ArchivePiece | None, planned: tuple[Fault, ...] = ()) -> None:
        """A piece, and the faults that were found while planning; without a piece they are all that it gives."""
        super().__init__(None)
        self.piece = piece
        self.planned = planned


def _read(partition: InputPartition, options: Options, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one task, and a note of what is not among them."""
    if not isinstance(partition, PiecePartition):
        return
    faults = options.faults()
    piece = partition.piece
    if piece is None:
        found = list(partition.planned)
    else:
        parts = _parts(piece, faults)
        if options.frame == "quarantine":
            for _ in read_batches(parts, RELEASED_SCHEMA, faults):
                pass
        else:
            yield from read_batches(parts, schema, faults, options.symbols)
        # An unfinished end is the planner's to tell: in a journal that is being written every task meets one.
        found = [fault for fault in faults.found if fault.reason != "torn" and fault not in partition.planned]
    if options.frame == "quarantine":
        if found:
            yield quarantine_rows(found).select(schema.names).cast(schema)
    elif options.quarantine:
        write_faults(Path(options.quarantine), found)


def _parts(piece: Piece | ArchivePiece, faults: Faults) -> Iterator[Part]:
    if isinstance(piece, ArchivePiece):
        return read_archive(piece, faults)
    return read_parts(piece.lane, piece.first, piece.stop, faults, marks=piece.marks)


class _BatchReader(DataSourceReader):
    """Reads what is there now."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        faults = self._options.faults()
        lanes = _lanes(self._options)
        pieces = lanes.pieces() if isinstance(lanes, ArchiveLanes) else lanes.pieces(faults)
        planned = tuple(faults.found)
        found: list[InputPartition] = [PiecePartition(piece, planned) for piece in pieces]
        if planned and (self._options.quarantine or self._options.frame == "quarantine"):
            found.append(PiecePartition(None, planned))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options, self._schema)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes: an offset is the next sequence of every stripe."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._lanes: Lanes | ArchiveLanes | None = None
        self._target: Offsets | None = None

    @property
    def lanes(self) -> Lanes | ArchiveLanes:
        """Made when it is first needed: a reader that tasks get has none."""
        if self._lanes is None:
            self._lanes = _lanes(self._options)
        return self._lanes

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's names
        return self.lanes.starting()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self.lanes.latest()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        return self.lanes.reach(start, self._target, rows)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        return self.lanes.latest()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return [PiecePartition(piece) for piece in self.lanes.between(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options, self._schema)


class IsocastSource(DataSource):
    """Released events of a market; docs/reference/lake-schema.md lists columns and options."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "isocast"

    def schema(self) -> StructType:
        """All columns, or those of the option `columns`; a reader's own schema goes before."""
        return struct_of(columns_of(self.options, _allowed(self._read_options())))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch."""
        options = self._read_options()
        return _BatchReader(options, arrow_schema(schema, _allowed(options), self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A stream."""
        options = self._read_options()
        return _StreamReader(options, arrow_schema(schema, _allowed(options), self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - as Spark calls it
        """Publish a frame as a floor, once."""
        _refuse(overwrite=overwrite)
        return BatchPublisher(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001
        """Publish the batches of a query as a floor, each once."""
        _refuse(overwrite=overwrite)
        return StreamPublisher(self.options, schema)

    def _read_options(self) -> Options:
        return read_options(self.options)


def _refuse(*, overwrite: bool) -> None:
    if overwrite:
        raise ConfigurationError("format isocast", "mode", "append alone: what was published cannot be taken back")


def _lanes(options: Options) -> Lanes | ArchiveLanes:
    return ArchiveLanes(options) if options.market else Lanes(options)


def _allowed(options: Options) -> pa.Schema:
    return QUARANTINE_SCHEMA if options.frame == "quarantine" else RELEASED_SCHEMA
