"""`format("isocast-feed")`: the events of other people's files (ITCH, US-tape tables, LOBSTER, captures, Parquet).

    spark.read.format("isocast-feed").option("floor", "XNAS").load("feeds/*.zip")

What a file is shows in its bytes and its name; options say what it does not. A task reads a file, in its own order,
and the columns `path` and `place` keep that order for whoever asks for them in a schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from isocast.feeds.days import NEW_YORK, check_zone, read_day
from isocast.lake.schemas import EVENT_SCHEMA
from isocast.lake.source_columns import event_batch, symbol_words
from isocast.lake.source_faults import Fault, write_faults
from isocast.lake.source_options import arrow_schema, insist_on_known, number_of, struct_of
from isocast.runtime.feed_files import FeedFile, FeedFormat, FeedOptions, load_mapping
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.market import Mic, Symbol
from isocast.terms.suggestion import suggestion
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["FEED_SCHEMA", "FeedPartition", "IsocastFeedSource"]

FEED_SCHEMA = pa.schema(
    [*EVENT_SCHEMA, pa.field("path", pa.string(), nullable=False), pa.field("place", pa.int64(), nullable=False)]
)
"""What a schema may name: an event's columns, the file, and the event's place in it from 0."""

_FORM = "format isocast-feed"
_KNOWN = ("path", "floor", "day", "zone", "ofSymbol", "symbol", "mapping", "kind", "port", "onError", "quarantine")
_ROWS = 1 << 16
_OTHER_FILES = (".md", ".txt", ".json", ".toml")


class FeedPartition(InputPartition):
    """One file."""

    def __init__(self, path: str) -> None:
        """Where it is."""
        super().__init__(None)
        self.path = path


class _FeedReader(DataSourceReader):
    """Reads files, each as one partition."""

    def __init__(self, given: Mapping[str, str], schema: pa.Schema) -> None:
        insist_on_known(given, _KNOWN, _FORM)
        # As it came: its names are compared without regard to capitals.
        self._given = given
        self._schema = schema
        self._strict = given.get("onError", "fail") == "fail"
        self._quarantine = given.get("quarantine", "")
        self._check()

    def _check(self) -> None:
        """Everything that can be wrong before a file is opened."""
        if self._given.get("onError", "fail") not in {"fail", "quarantine"}:
            raise ConfigurationError(_FORM, "onError", "fail or quarantine")
        if not self._strict and not self._quarantine:
            raise ConfigurationError(_FORM, "quarantine", "onError=quarantine needs a directory for what was left out")
        self._options()
        self._symbols()

    def partitions(self) -> Sequence[InputPartition]:
        return [FeedPartition(str(path)) for path in _files(self._given.get("path", ""))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FeedPartition):
            return
        feed = FeedFile(Path(partition.path), self._options())
        place = 0
        wanted = self._symbols()
        for events in _gathered(feed.blocks()):
            places = np.arange(place, place + len(events))
            place += len(events)
            if wanted:
                keep = np.isin(np.ascontiguousarray(events["symbol"]).view("<u8"), symbol_words(wanted))
                events, places = events[keep], places[keep]  # noqa: PLW2901 - the same events, fewer
            if len(events):
                yield self._batch(events, partition.path, places)
        if self._quarantine:
            write_faults(Path(self._quarantine), _faults(feed))

    def _batch(
        self, events: EventArray, path: str, places: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> pa.RecordBatch:
        own = pa.schema([field for field in self._schema if field.name in EVENT_SCHEMA.names])
        columns = dict(zip(own.names, event_batch(events, own).columns, strict=True))
        columns["path"] = pa.repeat(pa.scalar(path), len(events))
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
            rule = f'"{kind}" is none of {", ".join(FeedFormat)}{suggestion(kind, list(FeedFormat))}'
            raise ConfigurationError(_FORM, "kind", rule)
        zone = given.get("zone", NEW_YORK)
        check_zone(zone)
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
        """The columns of an event."""
        return struct_of(EVENT_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch."""
        return _FeedReader(self.options, arrow_schema(schema, FEED_SCHEMA, _FORM))


def _files(where: str) -> list[Path]:
    """A file, the files of a folder, or those that a pattern names."""
    if not where:
        raise ConfigurationError(_FORM, "path", 'name a file, a folder or a pattern: .load("feeds/*.gz")')
    top = Path(where)
    if top.is_dir():
        found = [path for path in top.iterdir() if path.is_file() and not path.name.startswith(".")]
        found = [path for path in found if path.suffix.lower() not in _OTHER_FILES]
    else:
        found = [top] if top.is_file() else [Path(name) for name in glob(where)]  # noqa: PTH207 - an absolute pattern
    if not found:
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


def _faults(feed: FeedFile) -> Iterator[Fault]:
    for kind, record in feed.log.faults.items():
        yield Fault(str(feed.path), str(kind), record["first"], record["count"], offset=record["first_offset"])
