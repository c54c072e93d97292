"""An Iceberg table in a catalogue of the lake (SQLite), by the package pyiceberg, which is an extra.

lake/_iceberg/catalogue.db
lake/_iceberg/silver/tape/metadata/...          the table's metadata; its files stay where they are
lake/_iceberg/silver/tape/metadata/version-hint.text

Columns that are in paths only are partition fields with the transform identity: by the specification a reader takes
the value of a column that a file does not have from the manifest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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

from isocast.lake.table_states import DataFile, FileChange, TableState, arrow_schema, partition_days

__all__ = ["IcebergLog"]


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
