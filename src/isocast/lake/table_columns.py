"""Columns of a table, as other formats name them, and the values that are in paths only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from isocast.lake.table_states import DataFile

__all__ = ["arrow_schema", "partition_days", "partition_texts"]

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
