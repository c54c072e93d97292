"""Other table formats over the same files: a Delta log, or an Iceberg catalogue, beside the lake's own.

The lake's own log decides what counts. After each commit the files that came and went are told there, so that engines
that read those formats see the same rows; no row is written twice. A mirror remembers which version of the lake it
shows: one that missed a commit is brought to the newest by the next commit, or by the next job before its first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from threading import Lock
from typing import Protocol

from isocast.lake.table_states import DataFile, FileChange, TableState
from isocast.terms.errors import ConfigurationError, IsocastError

__all__ = ["FORMATS", "ForeignLog", "Mirror", "mirror_of"]


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
    """By its name; ConfigurationError for an unknown one."""
    if name not in FORMATS:
        raise ConfigurationError("lake", "format", f'"{name}" is not one of {", ".join(FORMATS)}')
    return Mirror(name)


def _open(name: str, now: TableState) -> ForeignLog:
    # The packages are optional, and take a second or more to load.
    if name == "delta":
        from isocast.lake.table_format_delta import DeltaLog  # noqa: PLC0415

        return DeltaLog(now)
    from isocast.lake.table_format_iceberg import IcebergLog  # noqa: PLC0415

    return IcebergLog(now)


def _mend(log: ForeignLog, now: TableState) -> None:
    """Bring a log from the files that it lists to the files that there are."""
    if now.schema is None:
        if log.version is not None:
            log.forget()
        return
    listed = {file.path: file for file in log.files()}
    wanted = {file.path: file for file in now.files}
    added = [file for path, file in wanted.items() if path not in listed]
    removed = [file for path, file in listed.items() if path not in wanted]
    log.write(FileChange(added, removed))
