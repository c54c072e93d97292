"""What a table's log says of one version: its files, and what the newest commit changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["DataFile", "FileChange", "ReplacedFile", "TableState"]


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
