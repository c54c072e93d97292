"""What a table's log says of one version: its files, and what the newest commit changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

__all__ = [
    "DataFile",
    "FileChange",
    "ReplacedFile",
    "TableState",
    "arrow_schema",
    "partition_days",
    "partition_texts",
]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table, below the table's directory; its partition is in its path."""

    path: str
    rows: int
    bytes: int

    @property
    def version(self) -> int:
        """Of the commit that added it."""
        return int(Path(self.path).name.partition("-")[0])

    @property
    def partition(self) -> dict[str, str]:
        """date=2026-03-02/stripe=0 as names and values."""
        return dict(part.split("=", 1) for part in Path(self.path).parts[:-1])


@dataclass(frozen=True, slots=True)
class ReplacedFile:
    """A file that is no part of the table any more, and stays a while for frames that were made before."""

    path: str
    bytes: int
    at: float
    """When it was replaced, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one version, as other formats need to know it."""

    path: Path
    keys: tuple[str, ...]
    """Columns by which it is partitioned: they are in the paths and not in the files."""
    version: int
    files: tuple[DataFile, ...]
    schema: Mapping[str, Any] | None
    """All columns, by Spark's JSON; None as long as nobody wrote rows."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """Files that came and went."""

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    compacts: bool = False
    """The rows are the same as before."""


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
