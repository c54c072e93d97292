"""A Delta log in the directory `_delta_log` of a table, by the package deltalake, which is an extra."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from isocast.lake.table_states import DataFile, FileChange, TableState, arrow_schema, partition_texts

__all__ = ["DeltaLog"]


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
