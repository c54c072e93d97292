"""`writeStream.format("isocast")` and `write.format("isocast")`: a frame is published as a floor, exactly once.

    query = frame.writeStream.format("isocast").option("market", "market.toml").option("source", "nyse")
    query.option("checkpointLocation", "checkpoint").start()

Tasks turn rows into records; the driver puts those of a batch in order, writes them down and publishes them. A batch is
known by its number within the checkpoint, or for a batch write by the option `batch`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from isocast.lake.publish_sink_log import Published, PublishLog, ordered
from isocast.lake.schemas import EVENT_SCHEMA, RELEASED_SCHEMA
from isocast.lake.source_options import insist_on_known
from isocast.runtime.client.arrow import from_arrow
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.file import load_market
from isocast.terms.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from isocast.terms.places import local_path, scheme_of
from isocast.terms.suggestion import suggestion
from isocast.wire.event_checks import are_events
from isocast.wire.events import EventArray, events_view

__all__ = ["BatchPublisher", "Records", "StreamPublisher"]

_FORM = "format isocast"
_KNOWN = ("market", "source", "order", "batch", "progress", "checkpointLocation", "patience", "path", "queryName")
_NEEDED = ("kind", "floor")
_BITS = ("id", "event_ns")
"""Numbers without a sign whose bits a BIGINT carries."""
_WHOLE = frozenset({"long", "integer", "short", "byte"})
_PATIENCE_S = "60"


@dataclass
class Records(WriterCommitMessage):
    """What one task hands to the driver."""

    events: bytes
    order: bytes


@dataclass(frozen=True, slots=True)
class _Plan:
    """Who publishes what, checked."""

    market: str
    source: str
    columns: tuple[str, ...]
    order: tuple[str, ...]
    progress: str
    checkpoint: str
    """Where batches are numbered; empty for a batch write."""
    patience_s: float


class _Writer:
    """What both kinds of writer do."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    def records(self, batches: Iterator[pa.RecordBatch]) -> Records:
        """The rows of one task."""
        events: list[bytes] = []
        order: list[bytes] = []
        for batch in batches:
            events.append(_events(batch.select(self._plan.columns)).tobytes())
            keys = [_numbers(batch.column(name), name) for name in self._plan.order]
            order.append(np.stack(keys, axis=1).astype("<i8").tobytes())
        return Records(b"".join(events), b"".join(order))

    def publish(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> Published:
        """Publish a batch, unless it was; what was published is known when this returns."""
        plan = self._plan
        log = PublishLog(Path(plan.progress))
        with log.opened(_query(plan.checkpoint)) as state:
            if batch <= state.batch:
                return state
            rows = [(one.events, one.order) for one in messages if isinstance(one, Records)]
            events = ordered(rows, len(plan.order))
            if len(events) or state.under_way == batch:
                asyncio.run(self._publish(log, state, batch, events))
            return state

    async def _publish(self, log: PublishLog, state: Published, batch: int, events: EventArray) -> None:
        plan = self._plan
        async with Publisher(plan.market, plan.source, patience_s=plan.patience_s) as door:
            chosen = log.begin(state, batch, events, door)
            await log.publish(state, door, chosen)
            log.end(state, chosen)


class StreamPublisher(DataSourceStreamArrowWriter):
    """Publishes every batch of a streaming query."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """ConfigurationError names the option or the column that is wrong."""
        self._writer = _Writer(_plan(given, schema, _stream_progress(given)))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Records:
        """In a task."""
        return self._writer.records(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """In the driver, when all tasks are done."""
        self._writer.publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was published: the batch comes again."""


class BatchPublisher(DataSourceArrowWriter):
    """Publishes a frame once, by the name of its batch."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """ConfigurationError names the option or the column that is wrong."""
        name = given.get("batch", "").strip()
        if not name:
            rule = "name the batch, such as 2026-01-05: whoever writes it again publishes nothing twice"
            raise ConfigurationError(_FORM, "batch", rule)
        _insist_on_place(given)
        progress = _folder(given, "progress")
        if not progress:
            progress = str(load_market(Path(_folder(given, "market"))).data_directory / ".lake")
        digest = blake2b(f"{given.get('source', '')} {name}".encode(), digest_size=16).hexdigest()
        self._writer = _Writer(_plan(given, schema, str(Path(progress) / f"publish-{digest}")))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Records:
        """In a task."""
        return self._writer.records(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver, when all tasks are done."""
        self._writer.publish(messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was published."""


def _stream_progress(given: Mapping[str, str]) -> str:
    """Beside the checkpoint: the two belong together, as batches are numbered in it."""
    named = _folder(given, "progress")
    if named:
        return named
    where = _checkpoint(given)
    if not where:
        elsewhere = given.get("checkpointLocation", "").strip()
        rule = "set checkpointLocation to a local folder, or progress to one that lives as long as the checkpoint"
        raise ConfigurationError(_FORM, "progress", f"{elsewhere} is no local folder: {rule}" if elsewhere else rule)
    return str(Path(where) / "isocast-publish")


def _folder(given: Mapping[str, str], option: str) -> str:
    """A path of this machine; empty if it was not given."""
    where = given.get(option, "").strip()
    return str(local_path(where, _FORM, option)) if where else ""


def _checkpoint(given: Mapping[str, str]) -> str:
    """The checkpoint's folder, if it is one of this machine's."""
    where = given.get("checkpointLocation", "").strip()
    # Spark keeps its own checkpoint wherever it likes.
    is_here = scheme_of(where) in {"", "file"}
    return str(local_path(where, _FORM, "checkpointLocation")) if where and is_here else ""


def _query(checkpoint: str) -> str:
    """The query that numbers its batches in a checkpoint; empty where that is not to be seen."""
    try:
        content = json.loads((Path(checkpoint) / "metadata").read_text(encoding="utf-8"))
        return str(content["id"]) if checkpoint else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _plan(given: Mapping[str, str], schema: StructType, progress: str) -> _Plan:
    insist_on_known(given, _KNOWN)
    names = schema.fieldNames()
    _insist_on_place(given)
    for name in names:
        if name not in RELEASED_SCHEMA.names:
            there = ", ".join(EVENT_SCHEMA.names)
            rule = f"there is no column {name!r}{suggestion(name, EVENT_SCHEMA.names)}; an event has {there}"
            raise ConfigurationError(_FORM, "columns", rule)
    for name in _NEEDED:
        if name not in names:
            raise ConfigurationError(_FORM, "columns", f"{name} is missing: every event has one")
    _insist_on_types(schema)
    patience = given.get("patience", _PATIENCE_S)
    if not patience.isdecimal():
        raise ConfigurationError(_FORM, "patience", f"{patience!r} is not a number of seconds")
    columns = tuple(name for name in names if name in EVENT_SCHEMA.names)
    order = _order(given, schema)
    market, checkpoint = _folder(given, "market"), _checkpoint(given)
    return _Plan(market, given["source"], columns, order, progress, checkpoint, float(patience))


def _insist_on_place(given: Mapping[str, str]) -> None:
    for option in ("market", "source"):
        if not given.get(option, "").strip():
            raise ConfigurationError(_FORM, option, "is missing: the market's file, and the source that publishes")
    _folder(given, "market")


def _insist_on_types(schema: StructType) -> None:
    """Text and whole numbers: a price of 72.0 would else be published as 72 ticks."""
    for field in EVENT_SCHEMA:
        if field.name not in schema.fieldNames():
            continue
        wanted = {"string"} if pa.types.is_string(field.type) else _WHOLE
        found = schema[field.name].dataType
        if found.typeName() not in wanted:
            rule = f"{field.name} is {found.simpleString()}, and has to be {'text' if 'string' in wanted else 'whole'}"
            rule += ": ticks of 10^-4, cast(round(price * 10000) as bigint)" if field.name == "price" else ""
            raise ConfigurationError(_FORM, "columns", rule)


def _order(given: Mapping[str, str], schema: StructType) -> tuple[str, ...]:
    """What puts the rows of a batch in order: the option, else the sequence if it is there, else the events' time."""
    names = schema.fieldNames()
    wanted = tuple(part.strip() for part in given.get("order", "").split(",") if part.strip())
    if not wanted:
        known = tuple(name for name in ("stripe", "sequence", "index") if name in names)
        wanted = known if {"sequence", "index"} <= set(known) else ("event_ns",)
    for name in wanted:
        if name not in names or schema[name].dataType.typeName() not in _WHOLE:
            rule = f"{name!r} is no column of whole numbers of this frame{suggestion(name, names)}"
            raise ConfigurationError(_FORM, "order", rule)
    return wanted


def _events(batch: pa.RecordBatch) -> EventArray:
    """Rows as records; ConfigurationError names the column that does not fit."""
    columns = {}
    for name in batch.schema.names:
        column = batch.column(name)
        if name in _BITS and not column.null_count:
            column = pa.array(np.asarray(column).astype(np.int64).view(np.uint64))
        columns["time" if name == "event_ns" else name] = column
    try:
        events = from_arrow(pa.RecordBatch.from_pydict(columns))
    except LocalProtocolError as reason:
        said = str(reason).replace("column time", "column event_ns")
        raise ConfigurationError(_FORM, "rows", f"cannot be published: {said}") from reason
    if not are_events(events.tobytes()):
        raise ConfigurationError(_FORM, "rows", f"cannot be published: {_what_is_no_event(events)}")
    return events


def _what_is_no_event(events: EventArray) -> str:
    """The first row that no reader would take for an event, and why: the network itself would carry it as bytes."""
    for row in events:
        try:
            events_view(row.tobytes())
        except RemoteProtocolError as reason:
            floor, symbol = (row[name].decode("latin-1") for name in ("floor", "symbol"))
            return f"{reason} (kind {row['kind']}, side {row['side']}, flags {row['flags']}, {floor!r}, {symbol!r})"
    return "a row is no event"


def _numbers(column: pa.Array, name: str) -> npt.NDArray[np.int64]:
    if column.null_count:
        raise ConfigurationError(_FORM, "order", f"{column.null_count} rows have no {name}")
    return np.asarray(column).astype(np.int64)
