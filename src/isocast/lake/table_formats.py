"""Other table formats over the same files: a Delta log or an Iceberg catalogue beside the lake's own.

The lake's own log decides what counts; after each commit the same Parquet files are published there, whole, so that
engines that read those formats see the same rows. Nothing is written twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from isocast.terms.errors import ConfigurationError

__all__ = ["FORMATS", "Mirror", "mirror_of"]


class Mirror(Protocol):
    """Tells other engines which files a table has."""

    def insist_on_packages(self) -> None:
        """ConfigurationError if something is not installed."""

    def publish(self, table: Path, files: Sequence[str], keys: Sequence[str]) -> None:
        """The table has these files now, and no others."""


class _Parquet:
    """Files speak for themselves."""

    def insist_on_packages(self) -> None:
        """Nothing more is needed."""

    def publish(self, table: Path, files: Sequence[str], keys: Sequence[str]) -> None:
        """Nothing more to tell."""


class _Delta:
    """A Delta log in `_delta_log`, by the package deltalake."""

    package: ClassVar[str] = "deltalake"

    def insist_on_packages(self) -> None:
        """Name the package."""
        _insist("delta", self.package)

    def publish(self, table: Path, files: Sequence[str], keys: Sequence[str]) -> None:
        """One transaction that replaces the list of files."""
        from deltalake import DeltaTable, Schema  # noqa: PLC0415 - optional
        from deltalake.transaction import AddAction, create_table_with_add_actions  # noqa: PLC0415

        if not files:
            return
        schema = Schema.from_arrow(_whole_schema(table / files[0], keys))
        now = int(time.time() * 1000)
        actions = [
            AddAction(quote(file, safe="/="), (table / file).stat().st_size, _partition(file), now, True, "{}")  # noqa: FBT003
            for file in files
        ]
        if DeltaTable.is_deltatable(str(table)):
            DeltaTable(str(table)).create_write_transaction(actions, "overwrite", schema, list(keys))
        else:
            create_table_with_add_actions(str(table), schema, actions, "error", list(keys))


class _Iceberg:
    """An Iceberg table in a catalogue of its own (SQLite) beside the tables, by the package pyiceberg."""

    package: ClassVar[str] = "pyiceberg"

    def insist_on_packages(self) -> None:
        """Name the package."""
        _insist("iceberg", self.package)

    def publish(self, table: Path, files: Sequence[str], keys: Sequence[str]) -> None:
        """The table is made anew from the list of files: only its metadata is written."""
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - optional

        if not files:
            return
        root = table.parents[1]
        home = root / "_iceberg"
        home.mkdir(exist_ok=True)
        catalogue = SqlCatalog("lake", uri=f"sqlite:///{home}/catalogue.db", warehouse=f"file://{home}")
        catalogue.create_namespace_if_not_exists(table.parent.name)
        name = f"{table.parent.name}.{table.name}"
        if catalogue.table_exists(name):
            catalogue.drop_table(name)
        # Iceberg reads partition columns from the files, where ours are in the paths: they are left out here.
        del keys
        made = catalogue.create_table(name, pq.read_schema(table / files[0]))
        made.add_files([str(table / file) for file in files])


FORMATS: dict[str, Mirror] = {"parquet": _Parquet(), "delta": _Delta(), "iceberg": _Iceberg()}


def mirror_of(name: str) -> Mirror:
    """By its name; ConfigurationError for one that nobody knows."""
    if name not in FORMATS:
        raise ConfigurationError("lake", "format", f'"{name}" is none of {", ".join(FORMATS)}')
    return FORMATS[name]


def _insist(format_name: str, package: str) -> None:
    if find_spec(package) is None:
        rule = f"{format_name} needs the Python package {package}: pip install {package}"
        raise ConfigurationError("lake", "format", rule)


def _partition(file: str) -> dict[str, str | None]:
    pairs = (part.partition("=") for part in Path(file).parts[:-1])
    return {name: value for name, _, value in pairs}


def _whole_schema(path: Path, keys: Sequence[str]) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Columns of the file, and those of its path."""
    types = {"date": pa.date32(), "interval": pa.string()}
    schema = pq.read_schema(path).remove_metadata()
    for key in keys:
        schema = schema.append(pa.field(key, types.get(key, pa.int32())))
    return schema
