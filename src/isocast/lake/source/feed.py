"""`format("isocast-feed")`: events of other people's files, as a batch or as a stream of files put into a folder.

    spark.read.format("isocast-feed").option("floor", "XNAS").load("feeds/*.zip")

    spark.readStream.format("isocast-feed").load("arriving")       # files as they come

What a file is shows in its bytes and its name; options say what it does not. A task reads a file, in its own order,
and the columns `path` and `place` keep that order for whoever names them among the `columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import glob, has_magic
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from isocast.feeds.days import NEW_YORK, read_day
from isocast.lake.schemas import EVENT_SCHEMA
from isocast.lake.source.columns import event_batch, symbol_words
from isocast.lake.source.options import (
    Offsets,
    arrow_schema,
    columns_of,
    insist_on_known,
    number_of,
    paths_of,
    struct_of,
)
from isocast.lake.source_faults import SourceFault, write_faults
from isocast.runtime.client.feed_files import FeedFile, FeedFormat, FeedOptions, load_mapping
from isocast.terms.errors import ConfigurationError, FeedError, LocalProtocolError
from isocast.terms.market import Mic, Symbol
from isocast.terms.places import local_path
from isocast.terms.quantities import suggestion
from isocast.terms.zones import zone_of
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["FEED_SCHEMA", "FeedPartition", "FeedStreamReader", "IsocastFeedSource"]


# `readStream.format("isocast-feed")`: feed files as they are put into a folder, each of them once.
#
# spark.readStream.format("isocast-feed").option("maxFilesPerTrigger", 4).load("arriving")
#
# An offset names the files that were read, as `{path: 1}`: it does not matter in which order they come, or what they
# are called. A file must be whole when it gets its name: write it elsewhere, or under a name that begins with a dot,
# and rename it. What was read may be removed once its batch is finished.


_FILES_MAX = 100_000
"""Names in one offset, which a checkpoint writes down for every batch."""


class FeedPartition(InputPartition):
    """One file."""

    def __init__(self, path: str) -> None:
        """Where it is."""
        super().__init__(None)
        self.path = path


class FeedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads files that are new."""

    def __init__(
        self,
        files: Callable[[], Sequence[str]],
        read: Callable[[InputPartition], Iterator[pa.RecordBatch]],
        max_files: int = 0,
    ) -> None:
        """`files` are those that are there now; `read` reads one; at most `max_files` make a batch, 0: all."""
        self._files = files
        self._read = read
        self._max_files = max_files
        self._target: frozenset[str] | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's names
        """Nothing was read."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the option `maxFilesPerTrigger` says."""
        return ReadMaxFiles(self._max_files) if self._max_files else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes later is for the next query."""
        self._target = frozenset(self._files())

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """What was read, and what the next batch reads."""
        new = [path for path in self._files() if path not in start and self._is_wanted(path)]
        new = new[: limit.max_files] if isinstance(limit, ReadMaxFiles) else new
        if len(start) + len(new) > _FILES_MAX:
            rule = f"more than {_FILES_MAX:,} files: begin another query, with a folder or a pattern for what is new"
            raise ConfigurationError("format isocast-feed", "path", rule)
        return {**start, **dict.fromkeys(new, 1)}

    def _is_wanted(self, path: str) -> bool:
        return self._target is None or path in self._target

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """A task for each file."""
        return [FeedPartition(path) for path in sorted(set(end) - set(start))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One file."""
        return self._read(partition)


FEED_SCHEMA = pa.schema(
    [*EVENT_SCHEMA, pa.field("path", pa.string(), nullable=False), pa.field("place", pa.int64(), nullable=False)]
)
"""What `columns` may name: an event's columns, the file, and the event's place in it from 0."""

_FORM = "format isocast-feed"
_MAX_FILES = "maxFilesPerTrigger"
_KNOWN = (
    "path", "paths", "columns", "floor", "day", "zone", "ofSymbol", "symbol", "mapping", "kind", "port", "onError",
    "quarantine", _MAX_FILES,
)  # fmt: skip
_ROWS = 1 << 16
_WORDS = (
    ("without --strict", "with onError=quarantine"),
    ("Without --strict", "With onError=quarantine"),
    ("--format", "option kind"),
    *((f"--{name}", f"option {name}") for name in ("mapping", "port", "day", "zone", "floor")),
    ("--symbol", "option ofSymbol"),
)
"""How a command asks for what an option says here."""
_OTHER_FILES = (".md", ".txt", ".json", ".toml")


class _FeedReader(DataSourceReader):
    """Reads files, each as one partition."""

    def __init__(self, given: Mapping[str, str], schema: pa.Schema) -> None:
        insist_on_known(given, _KNOWN, _FORM)
        # As it came: its names are compared without regard to capitals.
        self._given = given
        self._schema = schema
        self._strict = given.get("onError", "fail") == "fail"
        where = given.get("quarantine", "").strip()
        self._quarantine = str(local_path(where, _FORM, "quarantine")) if where else ""
        self._check()

    def _check(self) -> None:
        """Everything that can be wrong before a file is opened."""
        if self._given.get("onError", "fail") not in {"fail", "quarantine"}:
            raise ConfigurationError(_FORM, "onError", "fail or quarantine")
        if not self._strict and not self._quarantine:
            raise ConfigurationError(_FORM, "quarantine", "onError=quarantine needs a directory for what was left out")
        with _words_of_options():
            self._options()
        self._symbols()

    def partitions(self) -> Sequence[InputPartition]:
        return [FeedPartition(path) for path in self._found(may_be_empty=False)]

    def arrived(self) -> list[str]:
        """The files that are there now, of a folder or a pattern perhaps none."""
        return self._found(may_be_empty=True)

    def _found(self, *, may_be_empty: bool) -> list[str]:
        """The files of all paths, each once, those of the first path first."""
        places = paths_of(self._given, _FORM)
        if not places:
            raise ConfigurationError(_FORM, "path", 'name a file, a folder or a pattern: .load("feeds/*.gz")')
        return list(dict.fromkeys(str(path) for where in places for path in _files(where, may_be_empty=may_be_empty)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FeedPartition):
            return
        found: list[SourceFault] = []
        try:
            with _words_of_options():
                yield from self._rows(partition.path, found)
        except FeedError as reason:
            if self._strict:
                raise
            # A file that is no feed at all, or breaks off in a way that nobody can read on from.
            found.append(SourceFault(partition.path, "unreadable", reason.rule, 1, offset=reason.offset))
        if self._quarantine:
            write_faults(Path(self._quarantine), found)

    def _rows(self, path: str, found: list[SourceFault]) -> Iterator[pa.RecordBatch]:
        """The events of a file; what is wrong with it is found when this has ended."""
        feed = FeedFile(Path(path), self._options())
        place = 0
        wanted = self._symbols()
        for events in _gathered(self._blocks(feed, found)):
            places = np.arange(place, place + len(events))
            place += len(events)
            if wanted:
                keep = np.isin(np.ascontiguousarray(events["symbol"]).view("<u8"), symbol_words(wanted))
                events, places = events[keep], places[keep]  # noqa: PLW2901 - the same events, fewer
            if len(events):
                yield self._batch(events, path, places)

    @staticmethod
    def _blocks(feed: FeedFile, found: list[SourceFault]) -> Iterator[EventArray]:
        try:
            yield from feed.blocks()
        finally:
            found += _faults(feed)

    def _batch(
        self, events: EventArray, path: str, places: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> pa.RecordBatch:
        own = pa.schema([field for field in self._schema if field.name in EVENT_SCHEMA.names])
        columns = dict(zip(own.names, event_batch(events, own).columns, strict=True))
        if "path" in self._schema.names:
            columns["path"] = pa.repeat(pa.scalar(path), len(events))
        if "place" in self._schema.names:
            columns["place"] = pa.array(places)
        return pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)

    def _symbols(self) -> tuple[str, ...]:
        named = [part.strip() for part in self._given.get("symbol", "").split(",") if part.strip()]
        try:
            return tuple(str(Symbol(name)) for name in named)
        except LocalProtocolError as reason:
            raise ConfigurationError(_FORM, "symbol", str(reason)) from reason

    def _options(self) -> FeedOptions:
        given = self._given
        kind = given.get("kind")
        if kind is not None and kind not in list(FeedFormat):
            rule = f'"{kind}" is not one of {", ".join(FeedFormat)}{suggestion(kind, list(FeedFormat))}'
            raise ConfigurationError(_FORM, "kind", rule)
        zone = given.get("zone", NEW_YORK)
        zone_of(zone)
        key = "floor"
        try:
            floor = Mic(given["floor"]) if "floor" in given else None
            key = "ofSymbol"
            symbol = Symbol(given["ofSymbol"]) if "ofSymbol" in given else None
        except LocalProtocolError as reason:
            raise ConfigurationError(_FORM, key, str(reason)) from reason
        return FeedOptions(
            floor=floor,
            day=read_day(given["day"]) if "day" in given else None,
            zone=zone,
            symbol=symbol,
            mapping=load_mapping(given["mapping"]) if "mapping" in given else None,
            format=None if kind is None else FeedFormat(kind),
            port=number_of(given, "port", 0, form=_FORM) or None,
            strict=self._strict,
        )


class IsocastFeedSource(DataSource):
    """Events of feed files, as no network carried them yet."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "isocast-feed"

    def schema(self) -> StructType:
        """The columns of an event, or those of the option `columns`."""
        return struct_of(columns_of(self.options, EVENT_SCHEMA, FEED_SCHEMA, _FORM))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch."""
        return _FeedReader(self.options, arrow_schema(schema, FEED_SCHEMA, self.options, _FORM))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Files as they come, each once."""
        reader = _FeedReader(self.options, arrow_schema(schema, FEED_SCHEMA, self.options, _FORM))
        reader.arrived()
        return FeedStreamReader(reader.arrived, reader.read, number_of(self.options, _MAX_FILES, 0, form=_FORM))


@contextmanager
def _words_of_options() -> Iterator[None]:
    """Errors that name a command's options name those of this format instead."""
    try:
        yield
    except FeedError as reason:
        raise FeedError(reason.file, _as_options(reason.rule), reason.offset) from None
    except ConfigurationError as reason:
        is_ours = reason.file in {"command line", "feed", _FORM}
        key = _as_options(reason.key).removeprefix("option ")
        raise ConfigurationError(_FORM if is_ours else reason.file, key, _as_options(reason.rule)) from None


def _as_options(text: str) -> str:
    for command, option in _WORDS:
        text = text.replace(command, option)
    return text


def _files(where: str, *, may_be_empty: bool = False) -> list[Path]:
    """A file, the files of a folder, or those that a pattern names; of these two perhaps none."""
    top = Path(where)
    if top.is_dir():
        found = [path for path in top.iterdir() if path.is_file() and not path.name.startswith(".")]
        found = [path for path in found if path.suffix.lower() not in _OTHER_FILES]
    else:
        found = [top] if top.is_file() else [Path(name) for name in glob(where)]  # noqa: PTH207 - an absolute pattern
    if not found and not (may_be_empty and (top.is_dir() or has_magic(where))):
        raise ConfigurationError(_FORM, "path", f"{where}: there is no such file")
    return sorted(found)


def _gathered(blocks: Iterable[EventArray]) -> Iterator[EventArray]:
    """Blocks of about _ROWS events: few, and not large."""
    waiting: list[EventArray] = []
    count = 0
    for block in blocks:
        waiting.append(block)
        count += len(block)
        if count >= _ROWS:
            yield np.concatenate(waiting)
            waiting, count = [], 0
    if count:
        yield np.concatenate([np.empty(0, EVENT_DTYPE), *waiting])


def _faults(feed: FeedFile) -> Iterator[SourceFault]:
    for kind, reasons in feed.log.reasons.items():
        for what, reason in reasons.items():
            yield SourceFault(str(feed.path), str(kind), what, reason["count"], offset=reason["first_offset"])
