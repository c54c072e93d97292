"""`write` and `writeStream.format("isocast")`: a frame is published as a floor, exactly once, by a ledger on disk.

    query = frame.writeStream.format("isocast").option("market", "market.toml").option("source", "nyse")
    query.option("checkpointLocation", "checkpoint").start()

Tasks turn rows into records; the driver puts those of a batch in order, writes them down and publishes them. A batch is
known by its number within the checkpoint, or for a batch write by the option `batch`.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from isocast.lake.schemas import EVENT_SCHEMA, RELEASED_SCHEMA
from isocast.lake.source.options import insist_on_known
from isocast.runtime.client.arrow import from_arrow
from isocast.runtime.client.message_cutter import cut_messages
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.file import load_market
from isocast.terms.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from isocast.terms.places import local_path, scheme_of
from isocast.terms.quantities import counted, suggestion
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events, events_view
from isocast.wire.limits import EVENT_BYTES

__all__ = [
    "BatchPublisher",
    "PublishLog",
    "SinkCommit",
    "SinkProgress",
    "StreamPublisher",
    "StripeMessage",
    "ordered",
    "stripe_messages",
]


# ---- What a sink has published, on disk: a batch is written down before its first message goes out.
#
# So a batch that is repeated after a crash is the batch that was written down, message for message and key for key,
# whatever the query computes the second time; and a source takes a key once. A source remembers a bounded number of
# keys: the count of messages that are certainly in its outbox says from where on a repeat has to ask.


_MARK = "isocast-publish"
_STATE = "published.json"
_AT_ONCE = 256
"""Messages handed over together."""
_SAVE_EVERY = 4_096
"""Messages between two savings: a sixteenth of what a source remembers."""
_NONE = -1


@dataclass(slots=True)
class SinkProgress:
    """How far a sink is; the content of its file."""

    identity: str
    """Of this sink's keys; made with the directory."""
    query: str = ""
    """Whose batches they are, if that is known."""
    batch: int = _NONE
    """The newest batch of which all is in the outbox."""
    under_way: int = _NONE
    """The batch that is being published."""
    messages: int = 0
    """Of it, those that are certainly in the outbox."""
    per_message: int = 0
    """Events that travel together, by which it was cut."""
    total_messages: int = 0
    total_events: int = 0
    repeated: int = 0
    """Messages that the source had already."""


class PublishLog:
    """The directory of one sink."""

    def __init__(self, directory: Path) -> None:
        """Nothing is read or written yet."""
        self._directory = directory

    @contextmanager
    def opened(self, query: str = "") -> Iterator[SinkProgress]:
        """The state, under a lock; ConfigurationError if another process publishes from here, or did."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as reason:
            raise ConfigurationError(str(self._directory), "progress", f"cannot be used: {reason.strerror}") from reason
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            state = self._load()
            if query and state.query not in {"", query}:
                rule = "belongs to another checkpoint with the same batch numbers; give each checkpoint its own"
                raise ConfigurationError(str(self._directory), "progress", rule)
            state.query = query or state.query
            yield state
        except BlockingIOError as reason:
            rule = "another query publishes from here; give each a directory of its own"
            raise ConfigurationError(str(self._directory), "progress", rule) from reason
        finally:
            os.close(lock)

    def begin(self, state: SinkProgress, batch: int, events: EventArray, door: Publisher) -> EventArray:
        """The events of a batch: those that were written down for it before, or these, written down now.

        ConfigurationError for a symbol of a stripe in which the source does not publish.
        """
        file = self._file(batch)
        if state.under_way == batch and file.exists():
            return np.frombuffer(file.read_bytes(), EVENT_DTYPE)
        if state.under_way not in {_NONE, batch}:
            rule = (
                f"batch {state.under_way} was begun here and never finished, and the query goes on with {batch}: give"
                " it the checkpoint that it was begun with"
            )
            raise ConfigurationError(str(self._directory), "progress", rule)
        try:
            door.routes.split(events, door.lanes)
        except LocalProtocolError as reason:
            raise ConfigurationError("format isocast", "source", f"{door.name}: {reason}") from None
        self._sweep()
        _write(file, events.tobytes())
        state.under_way, state.messages, state.per_message = batch, 0, door.events_per_message
        self.save(state)
        return events

    async def publish(self, state: SinkProgress, door: Publisher, events: EventArray) -> None:
        """Every message of the batch under way that is not certainly in the outbox."""
        prefix = bytes.fromhex(state.identity) + state.under_way.to_bytes(8)
        cut = stripe_messages(events, door, state.per_message)
        saved = state.messages
        while state.messages < len(cut):
            some = cut[state.messages : state.messages + _AT_ONCE]
            parts: dict[int, list[tuple[bytes, bytes]]] = {}
            for message in some:
                key = prefix + message.place.to_bytes(8)
                parts.setdefault(message.stripe, []).append((key, message.events.tobytes()))
            before = door.repeated
            await door.publish_parts(parts)
            state.messages += len(some)
            state.repeated += door.repeated - before
            if state.messages - saved >= _SAVE_EVERY:
                self.save(state)
                saved = state.messages

    def end(self, state: SinkProgress, events: EventArray) -> None:
        """All of the batch is in the outbox."""
        done = state.under_way
        state.batch, state.under_way = done, _NONE
        state.total_messages += state.messages
        state.total_events += len(events)
        state.messages = 0
        self.save(state)
        self._file(done).unlink(missing_ok=True)

    def save(self, state: SinkProgress) -> None:
        """Write the state down in one step."""
        _write(self._directory / _STATE, json.dumps({"what": _MARK, **asdict(state)}).encode() + b"\n")

    def _load(self) -> SinkProgress:
        file = self._directory / _STATE
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if content.pop("what") != _MARK:
                raise ValueError("it is another file")  # noqa: TRY301 - told like every other reason
            return SinkProgress(**content)
        except FileNotFoundError:
            state = SinkProgress(token_hex(16))
            self.save(state)
            return state
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as reason:
            rule = f"cannot be read ({reason}); mend it: without it what was published may be published again"
            raise ConfigurationError(str(file), "progress", rule) from reason

    def _sweep(self) -> None:
        """Remove batches of a process that finished them and died before it removed them."""
        for file in self._directory.glob("batch-*.events"):
            file.unlink(missing_ok=True)

    def _file(self, batch: int) -> Path:
        return self._directory / f"batch-{batch:020}.events"


class StripeMessage(NamedTuple):
    """Events that are published together."""

    due: int
    """Time of the last of them."""
    stripe: int
    place: int
    """Among the messages of the batch in its stripe, from 0."""
    events: EventArray


def stripe_messages(events: EventArray, door: Publisher, per_message: int) -> list[StripeMessage]:
    """A batch as messages, each stripe's cut on its own, in the order of time: always the same for the same events."""
    found = [
        StripeMessage(due, stripe, place, part)
        for stripe, own in door.routes.split(events, door.lanes).items()
        for place, (due, part) in enumerate(cut_messages([own], per_message))
    ]
    return sorted(found, key=lambda message: message[:3])


def _write(file: Path, content: bytes) -> None:
    """All of it or nothing, and on the disk when this returns."""
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as target:
            target.write(content)
            target.flush()
            os.fsync(target.fileno())
        part.replace(file)
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as reason:
        raise ConfigurationError(str(file), "progress", f"cannot be written: {reason.strerror}") from reason


def ordered(rows: Sequence[tuple[bytes, bytes]], keys: int) -> EventArray:
    """Events of all tasks in one order: by their keys, then by what they say; how tasks were cut makes no difference.

    Each task gives records, and for each record `keys` numbers of 64 bits.
    """
    events = np.frombuffer(b"".join([record for record, _ in rows]), EVENT_DTYPE)
    order = np.frombuffer(b"".join([order for _, order in rows]), np.int64).reshape(-1, keys)
    words = events.view(np.uint64).reshape(-1, EVENT_BYTES // 8)
    columns: list[npt.NDArray[Any]] = [words[:, place] for place in reversed(range(words.shape[1]))]
    columns += [order[:, place] for place in reversed(range(keys))]
    return events[np.lexsort(columns)] if len(events) else events


_FORM = "format isocast"
_KNOWN = ("market", "source", "order", "batch", "progress", "checkpointLocation", "patience", "path", "queryName")
_NEEDED = ("kind", "floor")
_BITS = ("id", "event_ns")
"""Numbers without a sign whose bits a BIGINT carries."""
_WHOLE = frozenset({"long", "integer", "short", "byte"})
_PATIENCE_S = "60"


@dataclass
class SinkCommit(WriterCommitMessage):
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

    def records(self, batches: Iterator[pa.RecordBatch]) -> SinkCommit:
        """The rows of one task."""
        events: list[bytes] = []
        order: list[bytes] = []
        for batch in batches:
            events.append(_events(batch.select(self._plan.columns)).tobytes())
            keys = [_numbers(batch.column(name), name) for name in self._plan.order]
            order.append(np.stack(keys, axis=1).astype("<i8").tobytes())
        return SinkCommit(b"".join(events), b"".join(order))

    def publish(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> SinkProgress:
        """Publish a batch, unless it was; what was published is known when this returns."""
        plan = self._plan
        log = PublishLog(Path(plan.progress))
        with log.opened(_query(plan.checkpoint)) as state:
            if batch <= state.batch:
                return state
            rows = [(one.events, one.order) for one in messages if isinstance(one, SinkCommit)]
            events = ordered(rows, len(plan.order))
            if len(events) or state.under_way == batch:
                asyncio.run(self._publish(log, state, batch, events))
            return state

    async def _publish(self, log: PublishLog, state: SinkProgress, batch: int, events: EventArray) -> None:
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

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
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
            rule = "name the batch, such as 2026-01-05: a repeated write of the same batch is then idempotent"
            raise ConfigurationError(_FORM, "batch", rule)
        _insist_on_place(given)
        progress = _folder(given, "progress")
        if not progress:
            progress = str(load_market(Path(_folder(given, "market"))).data_directory / ".lake")
        digest = blake2b(f"{given.get('source', '')} {name}".encode(), digest_size=16).hexdigest()
        self._writer = _Writer(_plan(given, schema, str(Path(progress) / f"publish-{digest}")))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
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
            hint = "" if name in names else suggestion(name, names)
            rule = f"{name!r} is not a column of whole numbers of this frame{hint}"
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
        raise ConfigurationError(_FORM, "order", f"{name} is missing in {counted(column.null_count, 'row')}")
    return np.asarray(column).astype(np.int64)
