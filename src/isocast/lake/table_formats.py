"""Other table formats over the same files: a Delta log, or an Iceberg catalogue, beside the lake's own.

The lake's own log decides what counts. After each commit the files that came and went are told there, so that engines
that read those formats see the same rows; no row is written twice. A mirror remembers which version of the lake it
shows: one that missed a commit is brought to the newest by the next commit, or by the next job before its first.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Protocol
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.manifest import DataFile as Listed
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from isocast.lake.table_states import DataFile, FileChange, TableState
from isocast.terms.errors import ConfigurationError, IsocastError

__all__ = [
    "FORMATS",
    "DeltaLog",
    "ForeignLog",
    "IcebergLog",
    "Mirror",
    "arrow_schema",
    "mirror_of",
    "partition_days",
    "partition_texts",
]


FORMATS = {"parquet": "", "delta": "deltalake", "iceberg": "pyiceberg"}
"""Formats, and the Python package that each needs."""

_ONE_AT_A_TIME = Lock()
"""Tables of a lake commit side by side, and may share a catalogue."""


class ForeignLog(Protocol):
    """The log of another format for one table, opened."""

    @property
    def version(self) -> int | None:
        """The version of the lake's table that it shows; None if there is no such log."""

    @property
    def count(self) -> int:
        """How many files it lists."""

    def files(self) -> list[DataFile]:
        """The files that it lists."""

    def write(self, change: FileChange) -> None:
        """One transaction: files come and go, and the version is that of the table."""

    def forget(self) -> None:
        """Remove it."""

    def close(self) -> None:
        """Nothing more."""


class Mirror:
    """Tells other engines which files a table has."""

    def __init__(self, name: str) -> None:
        """`mirror_of` checks the name."""
        self._name = name

    def insist_on_packages(self) -> None:
        """ConfigurationError if something is not installed."""
        package = FORMATS[self._name]
        if package and find_spec(package) is None:
            rule = f"{self._name} needs the Python package {package}: pip install 'isocast[{self._name}]'"
            raise ConfigurationError("lake", "format", rule)

    def publish(self, now: TableState, change: FileChange) -> None:
        """The newest commit did this; what the mirror missed before is made up for."""
        with self._opened(now) as log:
            if log is None:
                return
            if log.version == now.version - 1:
                log.write(change)
            else:
                _mend(log, now)

    def catch_up(self, now: TableState) -> None:
        """The table has these files, and no others: a mirror that says something else is mended."""
        with self._opened(now) as log:
            if log is None:
                return
            if log.version != now.version or log.count != len(now.files):
                _mend(log, now)

    @contextmanager
    def _opened(self, now: TableState) -> Iterator[ForeignLog | None]:
        """None if there is nothing to tell."""
        if self._name == "parquet":
            yield None
            return
        try:
            with _ONE_AT_A_TIME, closing(_open(self._name, now)) as log:
                yield log
        except IsocastError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise IsocastError(
                f"{now.path}: version {now.version} is committed and could not be told to {self._name}, which the next "
                f"job does: {reason}"
            ) from error


def mirror_of(name: str) -> Mirror:
    """By its name; ConfigurationError for one that nobody knows."""
    if name not in FORMATS:
        raise ConfigurationError("lake", "format", f'"{name}" is not one of {", ".join(FORMATS)}')
    return Mirror(name)


def _open(name: str, now: TableState) -> ForeignLog:
    # The packages are optional, and take a second or more to load.
    if name == "delta":
        from isocast.lake.table_formats import DeltaLog  # noqa: PLC0415

        return DeltaLog(now)
    from isocast.lake.table_formats import IcebergLog  # noqa: PLC0415

    return IcebergLog(now)


def _mend(log: ForeignLog, now: TableState) -> None:
    """Whatever it says: from what it lists to what there is."""
    if now.schema is None:
        if log.version is not None:
            log.forget()
        return
    listed = {file.path: file for file in log.files()}
    wanted = {file.path: file for file in now.files}
    added = [file for path, file in wanted.items() if path not in listed]
    removed = [file for path, file in listed.items() if path not in wanted]
    log.write(FileChange(added, removed))


# Columns of a table, as other formats name them, and the values that are in paths only.


_NULL = "__HIVE_DEFAULT_PARTITION__"
_EPOCH = date(1970, 1, 1)


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """From Spark's JSON; any column may be NULL, and timestamps are microseconds, UTC."""
    found = to_arrow_schema(StructType.fromJson(dict(schema)), timezone="UTC")
    return pa.schema([field.with_nullable(True).remove_metadata() for field in found])  # noqa: FBT003 - pyarrow's


def partition_texts(file: DataFile) -> dict[str, str | None]:
    """Values of a file's path as texts."""
    return {name: None if value == _NULL else unquote(value) for name, value in file.partition.items()}


def partition_days(file: DataFile, columns: pa.Schema) -> dict[str, str | int | None]:
    """Values of a file's path; whole numbers as such, and dates as days since 1970."""
    return {name: _value(text, columns.field(name).type) for name, text in partition_texts(file).items()}


def _value(text: str | None, kind: pa.DataType) -> str | int | None:
    if text is None or pa.types.is_string(kind):
        return text
    return (date.fromisoformat(text) - _EPOCH).days if pa.types.is_date(kind) else int(text)


# A Delta log in the directory `_delta_log` of a table, by the package deltalake.


_APPLICATION = "isocast"
_WHOLE = {"INT32", "INT64"}
_PROPERTIES: dict[str, str | None] = {
    # A reader opens a checkpoint and at most so many commits.
    "delta.checkpointInterval": "32",
    # A stream commits every few seconds, and what it replaces stays for an hour (`KEEP_S`): nobody goes back far.
    "delta.logRetentionDuration": "interval 6 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


class DeltaLog:
    """The log of one table; its transaction identifier `isocast` is the version of the lake's table."""

    def __init__(self, now: TableState) -> None:
        """Opened, if there is one."""
        self._now = now
        self._uri = str(now.path)
        self._table = DeltaTable(self._uri) if DeltaTable.is_deltatable(self._uri) else None

    @property
    def version(self) -> int | None:
        """By its own transaction identifier."""
        if self._table is None:
            return None
        known = self._table.transaction_version(_APPLICATION)
        return -1 if known is None else known

    @property
    def count(self) -> int:
        """Files in force."""
        return 0 if self._table is None else len(self._table.file_uris())

    def files(self) -> list[DataFile]:
        """Paths are relative to the table, as ours are."""
        if self._table is None:
            return []
        rows = pa.table(self._table.get_add_actions(flatten=True)).select(["path", "size_bytes", "num_records"])
        return [DataFile(unquote(row["path"]), row["num_records"] or 0, row["size_bytes"]) for row in rows.to_pylist()]

    def write(self, change: FileChange) -> None:
        """One commit of the log."""
        if self._now.schema is None:
            return
        schema = Schema.from_arrow(arrow_schema(self._now.schema))
        moment = int(time.time() * 1_000)
        moves_rows = not change.compacts
        added = [
            AddAction(_encoded(file), file.bytes, partition_texts(file), moment, moves_rows, self._statistics(file))
            for file in change.added
        ]
        told = CommitProperties(app_transactions=[Transaction(_APPLICATION, self._now.version)])
        keys = list(self._now.keys)
        if self._table is None:
            create_table_with_add_actions(
                self._uri, schema, added, "error", keys, configuration=_PROPERTIES, commit_properties=told
            )
            return
        removed = [
            RemoveAction(_encoded(file), moves_rows, moment, file.bytes, partition_texts(file))
            for file in change.removed
        ]
        self._table.create_write_transaction([*added, *removed], "append", schema, keys, commit_properties=told)

    def forget(self) -> None:
        """The log alone: the files are not its own."""
        shutil.rmtree(self._now.path / "_delta_log")

    def close(self) -> None:
        """Nothing is held."""

    def _statistics(self, file: DataFile) -> str:
        """Rows, and the least and greatest of whole numbers, by which readers leave files out."""
        least: dict[str, int] = {}
        most: dict[str, int] = {}
        for name, low, high in _bounds(pq.read_metadata(self._now.path / file.path)):
            least[name] = min(low, least.get(name, low))
            most[name] = max(high, most.get(name, high))
        return json.dumps({"numRecords": file.rows, "minValues": least, "maxValues": most})


def _encoded(file: DataFile) -> str:
    return quote(file.path, safe="/=")


def _bounds(metadata: pq.FileMetaData) -> Iterator[tuple[str, int, int]]:
    """Name, least and greatest value of every column of whole numbers in every group of rows."""
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        for at in range(rows.num_columns):
            column = rows.column(at)
            found = column.statistics
            if (
                found is not None
                and found.has_min_max
                and isinstance(found.min, int)
                and column.physical_type in _WHOLE
            ):
                yield column.path_in_schema, found.min, found.max


# An Iceberg table in a catalogue of the lake (SQLite), by the package pyiceberg.
#
# lake/_iceberg/catalogue.db
# lake/_iceberg/silver/tape/metadata/...          the table's metadata; its files stay where they are
# lake/_iceberg/silver/tape/metadata/version-hint.text
#
# Columns that are in paths only are partition fields with the transform identity: by the specification a reader takes
# the value of a column that a file does not have from the manifest.


_VERSION = "isocast.version"
_KEPT_SNAPSHOTS = 8
"""Readers that began before may take so many commits of time."""
_TIDY_EVERY = 16
_KEPT_HINTS = 4
_ICEBERG_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "16",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "2",
}


class IcebergLog:
    """The metadata of one table; its property `isocast.version` is the version of the lake's table."""

    def __init__(self, now: TableState) -> None:
        """Opened, if there is one that speaks of this place: a lake that was moved is told anew."""
        self._now = now
        self._name = (now.path.parent.name, now.path.name)
        home = now.path.resolve().parents[1] / "_iceberg"
        self._place = home.joinpath(*self._name)
        home.mkdir(parents=True, exist_ok=True)
        self._catalogue = SqlCatalog("lake", uri=f"sqlite:///{home}/catalogue.db", warehouse=_location(home))
        self._table = self._found()

    @property
    def version(self) -> int | None:
        """By its own property."""
        return None if self._table is None else int(self._table.properties.get(_VERSION, -1))

    @property
    def count(self) -> int:
        """By the summary of its newest snapshot."""
        newest = None if self._table is None else self._table.current_snapshot()
        return 0 if newest is None or newest.summary is None else int(newest.summary["total-data-files"] or 0)

    def files(self) -> list[DataFile]:
        """From its manifests."""
        found = []
        newest = None if self._table is None else self._table.current_snapshot()
        if self._table is not None and newest is not None:
            for manifest in newest.manifests(self._table.io):
                for entry in manifest.fetch_manifest_entry(self._table.io):
                    listed = entry.data_file
                    path = listed.file_path.removeprefix(_location(self._now.path) + "/")
                    found.append(DataFile(path, listed.record_count, listed.file_size_in_bytes))
        return found

    def write(self, change: FileChange) -> None:
        """One transaction: a snapshot, if files changed, and the version."""
        if self._now.schema is None:
            return
        columns = arrow_schema(self._now.schema)
        table = self._table or self._made(columns)
        self._table = table
        with table.transaction() as transaction:
            transaction.set_properties({_VERSION: str(self._now.version)})
            if change.removed:
                with transaction.update_snapshot().overwrite() as snapshot:
                    for file in change.removed:
                        snapshot.delete_data_file(self._listed(table, file, columns))
                    for file in change.added:
                        snapshot.append_data_file(self._listed(table, file, columns, is_new=True))
            elif change.added:
                with transaction.update_snapshot().fast_append() as appended:
                    for file in change.added:
                        appended.append_data_file(self._listed(table, file, columns, is_new=True))
        if self._now.version % _TIDY_EVERY == 0:
            self._tidy(table)
        self._hint(table)

    def forget(self) -> None:
        """The metadata alone: the files are not its own."""
        with suppress(NoSuchTableError):
            self._catalogue.drop_table(self._name)
        shutil.rmtree(self._place, ignore_errors=True)
        self._table = None

    def close(self) -> None:
        """The connections to SQLite."""
        self._catalogue.close()

    def _found(self) -> Table | None:
        try:
            table = self._catalogue.load_table(self._name)
        except NoSuchTableError:
            return None
        except FileNotFoundError:
            table = None
        if table is None or table.location() != _location(self._place):
            self.forget()
            return None
        return table

    def _made(self, columns: pa.Schema) -> Table:
        numbered = [
            field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in enumerate(columns, start=1)
        ]
        schema = pyarrow_to_schema(pa.schema(numbered))
        fields = [
            PartitionField(schema.find_field(key).field_id, PARTITION_FIELD_ID_START + at, IdentityTransform(), key)
            for at, key in enumerate(self._now.keys)
        ]
        # Spark's files have no numbers of columns: they are found by their names.
        names = {"schema.name-mapping.default": schema.name_mapping.model_dump_json()}
        self._catalogue.create_namespace_if_not_exists(self._name[0])
        return self._catalogue.create_table(
            self._name,
            schema,
            _location(self._place),
            PartitionSpec(*fields),
            properties={**_ICEBERG_PROPERTIES, **names},
        )

    def _listed(self, table: Table, file: DataFile, columns: pa.Schema, *, is_new: bool = False) -> Listed:
        """A file as a manifest has it; one that goes is found by its path and its partition."""
        values = partition_days(file, columns)
        figures = _figures(table, self._now.path / file.path) if is_new else {"record_count": file.rows}
        listed = Listed.from_args(
            content=DataFileContent.DATA,
            file_path=f"{_location(self._now.path)}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(*(values[key] for key in self._now.keys)),
            file_size_in_bytes=file.bytes,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **figures,
        )
        listed.spec_id = table.spec().spec_id
        return listed

    def _tidy(self, table: Table) -> None:
        """Few manifests and few snapshots, so that a commit costs the same after a year; files of others go."""
        with table.transaction() as transaction, transaction.update_snapshot().merge_append():
            pass
        times = sorted(snapshot.timestamp_ms for snapshot in table.metadata.snapshots)[-_KEPT_SNAPSHOTS:]
        table.maintenance.expire_snapshots().older_than(datetime.fromtimestamp(times[0] / 1_000, UTC)).commit()
        needed = set()
        for snapshot in table.metadata.snapshots:
            needed.add(Path(snapshot.manifest_list).name)
            needed.update(Path(manifest.manifest_path).name for manifest in snapshot.manifests(table.io))
        _remove(path for path in (self._place / "metadata").glob("*.avro") if path.name not in needed)

    def _hint(self, table: Table) -> None:
        """Where readers without a catalogue look: a number, and metadata of that name."""
        place = self._place / "metadata"
        number = self._now.version
        name = place / f"v{number}.metadata.json"
        name.unlink(missing_ok=True)
        name.hardlink_to(place / Path(table.metadata_location).name)
        aside = place / "version-hint.tmp"
        aside.write_text(str(number), encoding="utf-8")
        aside.replace(place / "version-hint.text")
        shown = {f"v{near}.metadata.json" for near in range(number - _KEPT_HINTS, number + 1)}
        _remove(path for path in place.glob("v*.metadata.json") if path.name not in shown)


def _figures(table: Table, path: Path) -> dict[str, object]:
    """Rows, sizes and bounds of the columns, from the file's end."""
    schema = table.schema()
    found = data_file_statistics_from_parquet_metadata(
        parquet_metadata=pq.read_metadata(path),
        stats_columns=compute_statistics_plan(schema, table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return found.to_serialized_dict()


def _location(path: Path) -> str:
    return f"file://{path.resolve()}"


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink(missing_ok=True)
