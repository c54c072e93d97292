"""Read sources as Spark's workers would, without Spark: for the tests that look at rows and errors."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from isocast.lake.source.journal import IsocastSource
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.wire.journal_blocks import IS_EVENTS

__all__ = ["columns_of", "expected_rows", "read_stream", "read_table", "stream_of"]


def columns_of(source: DataSource, columns: Sequence[str] | None) -> StructType:
    """The source's own columns, or some of them."""
    schema = source.schema()
    assert isinstance(schema, StructType)
    return schema if columns is None else StructType([schema[name] for name in columns])


def read_table(
    path: Path | None = None,
    columns: Sequence[str] | None = None,
    kind: type[DataSource] = IsocastSource,
    /,
    **options: object,
) -> pa.Table:
    """Everything that a batch query would get."""
    source = kind(_options(path, options))
    schema = columns_of(source, columns)
    reader: DataSourceReader = pickle.loads(pickle.dumps(source.reader(schema)))  # noqa: S301 - our own
    batches: list[pa.RecordBatch] = []
    for partition in reader.partitions():
        batches += reader.read(pickle.loads(pickle.dumps(partition)))  # noqa: S301
    return _table(batches, schema)


def stream_of(path: Path, **options: object) -> DataSourceStreamReader:
    """The reader of a streaming query."""
    source = IsocastSource(_options(path, options))
    return source.streamReader(columns_of(source, None))


def read_stream(reader: DataSourceStreamReader, start: dict[str, int], end: dict[str, int]) -> Iterator[pa.RecordBatch]:
    """One micro-batch."""
    for partition in reader.partitions(start, end):
        yield from reader.read(pickle.loads(pickle.dumps(partition)))  # noqa: S301 - our own


def _options(path: Path | None, options: Mapping[str, object]) -> CaseInsensitiveDict:
    given = {name: str(value) for name, value in options.items()}
    return CaseInsensitiveDict(given if path is None else {"path": str(path), **given})


def _table(batches: Sequence[pa.RecordBatch], schema: StructType) -> pa.Table:
    if batches:
        return pa.Table.from_batches(batches)
    empty: dict[str, list[object]] = {name: [] for name in schema.fieldNames()}
    return pa.table(empty)


def expected_rows(journal: Path, receiver: int, stripe: int) -> list[dict[str, object]]:
    """What a journal says, event by event and without a clever thought."""
    rows = []
    for block in read_blocks(journal):
        header, events = block.header, block.events
        for place, message in enumerate(block.directory):
            if message["flags"] != IS_EVENTS:
                continue
            first = int(message["first_event"])
            for index, event in enumerate(events[first : first + int(message["events"])]):
                rows.append(
                    {
                        "stripe": stripe,
                        "sequence": header.first_sequence + place,
                        "index": index,
                        "token": header.token_number,
                        "epoch_number": header.epoch_number,
                        "epoch_server": header.epoch_server,
                        "receiver": receiver,
                        "source": int(message["source"].astype("i8")),
                        "number": int(message["number"]),
                        "kind": int(event["kind"]),
                        "side": int(event["side"]),
                        "flags": int(event["flags"]),
                        "floor": event["floor"].decode(),
                        "symbol": event["symbol"].decode(),
                        "price": int(event["price"]),
                        "quantity": int(event["quantity"]),
                        "reference": int(event["reference"]),
                        "id": int(event["id"].astype("i8")),
                        "event_ns": int(event["time"].astype("i8")),
                        "instant_ns": header.instant,
                        "due_ns": header.due,
                        "released_ns": header.released_at,
                        "clock_bound_ns": header.clock_bound_ns,
                        "fetched": header.fetched,
                        "uncertified": header.uncertified,
                    }
                )
    return rows
