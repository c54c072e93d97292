"""Tables on disk: Parquet files, and a log that says which of them count.

    lake/lake.json                                      format, version, what the gold tables are made with
    lake/silver/tape/date=2026-03-02/stripe=0/*.parquet
    lake/silver/tape/_log/00000000000000000007.json     what the seventh commit added and removed, and up to where

A commit writes its files aside, moves them into place, and then makes one log entry, which is there or not there. Files
without an entry are swept by the next writer. So a job that is killed leaves the table as it was before or after.
A lake has one writer at a time; a lock says so.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from isocast.lake.schemas import SCHEMA_VERSION
from isocast.lake.table_formats import mirror_of
from isocast.terms.errors import ConfigurationError

__all__ = ["DataFile", "Lake", "LakeSettings", "Snapshot", "Table"]

_SNAPSHOT_EVERY = 32
"""Commits between two log entries that list all files: a reader opens at most so many."""
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """What a lake was made with; jobs that come later must want the same."""

    format: str = "parquet"
    intervals: tuple[str, ...] = ("1m",)
    zone: str = "UTC"
    session: str = ""
    window: str = "30m"
    horizon: str = "5s"

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """As they were written."""
        return cls(**{**found, "intervals": tuple(found["intervals"])})


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table, below the table's directory; its partition is in its path."""

    path: str
    rows: int
    bytes: int

    @property
    def partition(self) -> dict[str, str]:
        """date=2026-03-02/stripe=0 as names and values."""
        return dict(part.split("=", 1) for part in Path(self.path).parts[:-1])


@dataclass(frozen=True)
class Snapshot:
    """A table at one version."""

    version: int = 0
    files: tuple[DataFile, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)
    """What the newest commit says besides: offsets, memory, batches."""

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(file.rows for file in self.files)


class Table:
    """One table of a lake."""

    def __init__(self, root: Path, name: str, keys: Sequence[str], mirror: str = "parquet") -> None:
        """`keys` are the columns by which it is partitioned."""
        self.name = name
        self.path = root / name
        self.keys = tuple(keys)
        self._log = self.path / "_log"
        self._mirror = mirror_of(mirror)

    def snapshot(self) -> Snapshot:
        """The newest version; version 0 is an empty table."""
        versions = self._versions()
        later: list[dict[str, Any]] = []
        files: dict[str, DataFile] = {}
        for version in reversed(versions):
            entry = self._entry(version)
            later.append(entry)
            if "files" in entry:
                files = {file["path"]: DataFile(**file) for file in entry["files"]}
                later.pop()
                break
        for entry in reversed(later):
            for path in entry["removed"]:
                files.pop(path, None)
            files.update({file["path"]: DataFile(**file) for file in entry["added"]})
        notes = self._entry(versions[-1])["notes"] if versions else {}
        return Snapshot(versions[-1] if versions else 0, tuple(files.values()), notes)

    def notes_since(self, version: int) -> list[dict[str, Any]]:
        """What each commit after a version says."""
        return [self._entry(each)["notes"] for each in self._versions() if each > version]

    def added_since(self, version: int) -> list[DataFile]:
        """Files with rows that came after a version, in the order of their commits."""
        entries = [self._entry(each) for each in self._versions() if each > version]
        return [DataFile(**file) for entry in entries if not entry["compacts"] for file in entry["added"]]

    def read(self, spark: SparkSession, files: Sequence[DataFile] | None = None) -> DataFrame | None:
        """All rows, or those of some files; None for a table without any."""
        chosen = self.snapshot().files if files is None else files
        if not chosen:
            return None
        paths = [str(self.path / file.path) for file in chosen]
        # Known columns spare Spark a job that looks at the files.
        schema = StructType.fromJson(self._entry(self._versions()[-1])["schema"])
        return spark.read.schema(schema).option("basePath", str(self.path)).parquet(*paths)

    def commit(
        self,
        frame: DataFrame | None,
        notes: Callable[[list[DataFile]], Mapping[str, Any]],
        removed: Sequence[DataFile] = (),
        *,
        compacts: bool = False,
    ) -> Snapshot:
        """One more version: rows are added, files go. The frame may read files that go.

        `notes` are made from the files that were added. A commit that `compacts` changes no rows.
        """
        before = self.snapshot()
        version = before.version + 1
        added = self._write(frame, version) if frame is not None else []
        said = dict(notes(added))
        schema = self._entry(before.version)["schema"] if before.version else None
        if frame is not None and schema is None:
            schema = frame.schema.jsonValue()
        gone = {file.path for file in removed}
        files = [*(file for file in before.files if file.path not in gone), *added]
        entry: dict[str, Any] = {
            "version": version,
            "schema_version": SCHEMA_VERSION,
            "added": [asdict(file) for file in added],
            "removed": sorted(gone),
            "compacts": compacts,
            "schema": schema,
            "notes": said,
        }
        if version % _SNAPSHOT_EVERY == 0:
            entry["files"] = [asdict(file) for file in files]
        self._append(version, entry)
        for path in gone:
            (self.path / path).unlink(missing_ok=True)
        self._mirror.publish(self.path, [file.path for file in files], self.keys)
        return Snapshot(version, tuple(files), said)

    def sweep(self) -> None:
        """Remove what a killed job left behind; only whoever has the lock may do so."""
        shutil.rmtree(self.path / "_staging", ignore_errors=True)
        known = {file.path for file in self.snapshot().files}
        for path in self.path.rglob("*.parquet"):
            if str(path.relative_to(self.path)) not in known:
                path.unlink()

    def _write(self, frame: DataFrame, version: int) -> list[DataFile]:
        staging = self.path / "_staging" / str(version)
        shutil.rmtree(staging, ignore_errors=True)
        frame.write.partitionBy(*self.keys).parquet(str(staging))
        added = []
        for number, path in enumerate(sorted(staging.rglob("*.parquet"))):
            rows = pq.read_metadata(path).num_rows
            if not rows:
                continue
            place = path.relative_to(staging).parent / f"{version:08}-{number:05}.parquet"
            (self.path / place).parent.mkdir(parents=True, exist_ok=True)
            size = path.stat().st_size
            path.replace(self.path / place)
            added.append(DataFile(str(place), rows, size))
        shutil.rmtree(staging, ignore_errors=True)
        return added

    def _versions(self) -> list[int]:
        if not self._log.is_dir():
            return []
        return sorted(int(path.stem) for path in self._log.glob("*.json"))

    def _entry(self, version: int) -> dict[str, Any]:
        path = self._log / f"{version:0{_DIGITS}}.json"
        entry: dict[str, Any] = _load(path)
        if entry.get("schema_version", 0) > SCHEMA_VERSION:
            raise ConfigurationError(str(path), "schema_version", _newer(entry["schema_version"]))
        return entry

    def _append(self, version: int, entry: Mapping[str, Any]) -> None:
        self._log.mkdir(parents=True, exist_ok=True)
        path = self._log / f"{version:0{_DIGITS}}.json"
        _create(path, entry)


class Lake:
    """A directory of tables."""

    def __init__(self, root: Path, settings: LakeSettings) -> None:
        """`Lake.open` and `Lake.create` read and write the file that says what it is."""
        self.root = root
        self.settings = settings
        made = settings.format
        self.released = Table(root, "bronze/released", ("date", "stripe"), made)
        self.tape = Table(root, "silver/tape", ("date", "stripe"), made)
        self.quotes = Table(root, "silver/quotes", ("date", "stripe"), made)
        self.bars = Table(root, "gold/bars", ("interval", "date", "hour"), made)
        self.vwap = Table(root, "gold/vwap", ("interval", "date"), made)
        self.spreads = Table(root, "gold/spreads", ("interval", "date"), made)

    @property
    def tables(self) -> tuple[Table, ...]:
        """All of them, from bronze to gold."""
        return self.released, self.tape, self.quotes, self.bars, self.vwap, self.spreads

    @property
    def checkpoint(self) -> Path:
        """Of the stream that fills bronze."""
        return self.root / "_checkpoint"

    @classmethod
    def open(cls, root: Path) -> Self:
        """A lake that exists; ConfigurationError if it does not, or if a newer version has written it."""
        path = root / "lake.json"
        if not path.is_file():
            raise ConfigurationError(str(root), "--lake", "is no lake: `isocast lake run` makes one")
        found = _load(path)
        if found.get("schema_version", 0) > SCHEMA_VERSION:
            raise ConfigurationError(str(path), "schema_version", _newer(found["schema_version"]))
        settings = LakeSettings.from_json(found["settings"])
        mirror_of(settings.format).insist_on_packages()
        return cls(root, settings)

    @classmethod
    def create(cls, root: Path, settings: LakeSettings | None = None) -> Self:
        """The lake of a directory, made if it is new; settings that are given must be its own."""
        if (root / "lake.json").is_file():
            lake = cls.open(root)
            if settings is not None and settings != lake.settings:
                own, other = asdict(lake.settings), asdict(settings)
                names = sorted(name for name in own if own[name] != other[name])
                rule = f"it was made with {names[0]} = {own[names[0]]!r}, not {other[names[0]]!r}"
                raise ConfigurationError(str(root / "lake.json"), names[0], rule)
            return lake
        wanted = settings or LakeSettings()
        mirror_of(wanted.format).insist_on_packages()
        root.mkdir(parents=True, exist_ok=True)
        if any(path.name not in {"_lock", "_checkpoint"} for path in root.iterdir()):
            raise ConfigurationError(str(root), "--lake", "is neither empty nor a lake")
        _create(root / "lake.json", {"schema_version": SCHEMA_VERSION, "settings": asdict(wanted)})
        return cls(root, wanted)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer; what a killed one left is removed first."""
        with (self.root / "_lock").open("w", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigurationError(str(self.root), "--lake", "another job is writing this lake") from None
            for table in self.tables:
                table.sweep()
            yield


def _newer(version: object) -> str:
    return f"version {version} is newer than {SCHEMA_VERSION}, which this program knows: use a newer one"


def _load(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError):
        raise ConfigurationError(str(path), "file", "is not JSON: it was damaged or is not ours") from None
    if not isinstance(found, dict):
        raise ConfigurationError(str(path), "file", "is not a JSON object")
    return found


def _create(path: Path, content: Mapping[str, Any]) -> None:
    """A file that is there whole, or not at all; an older one is never replaced."""
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    with aside.open("w", encoding="utf-8") as out:
        json.dump(content, out)
        out.flush()
        os.fsync(out.fileno())
    try:
        os.link(aside, path)
    except FileExistsError:
        raise ConfigurationError(str(path), "--lake", "another job has written this version") from None
    finally:
        with suppress(FileNotFoundError):
            aside.unlink()
