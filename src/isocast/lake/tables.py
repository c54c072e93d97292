"""Tables on disk: Parquet files, and a log that says which of them count; both survive a loss of power.

    lake/lake.json                                      format, version, what the gold tables are made with
    lake/silver/tape/date=2026-03-02/stripe=0/*.parquet
    lake/silver/tape/_log/00000000000000000007.json     what the seventh commit added and removed, and up to where
    lake/files/silver/tape/date=2026-03-02/…            a second name of each file, by which frames read it

A commit writes its files aside, moves them into place, syncs files and folders to the disk, and then makes one log
entry, which is there or not there. Files without an entry are swept by the next writer. So a job that is killed, or a
machine that loses power, leaves the table as it was before or after.

A frame reads the files that it was made with, whatever becomes of the table. So a file that a commit replaces loses
its place in the table at once, for whoever reads the folder, and keeps its second name for a while (`keep_s`); a later
commit, or the next job, removes that too. A lake has one writer at a time; a lock says so.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Self
from uuid import uuid4

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from isocast.lake.schemas import SCHEMA_VERSION
from isocast.lake.table_formats import mirror_of
from isocast.lake.table_states import DataFile, FileChange, ReplacedFile, TableState
from isocast.terms.errors import ConfigurationError
from isocast.terms.places import local_path

__all__ = [
    "KEEP_S",
    "DataFile",
    "Lake",
    "LakeSettings",
    "LakeTable",
    "ReplacedFile",
    "TableVersion",
    "create_json",
    "make_folder",
    "sync_file",
    "sync_folder",
]


# ---- Files and folders that are still there after a loss of power: bytes first, then names, then whatever names
# them.


def sync_file(path: Path) -> None:
    """What was written to a file, by whichever process, is on the disk when this returns."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """The names in a folder are on the disk when this returns."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    opened = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(path: Path) -> None:
    """A folder, and those above it that are missing; their names are on the disk when this returns."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def create_json(path: Path, content: Mapping[str, Any]) -> None:
    """A file that is there whole, or not at all, and on the disk when this returns; an older one is never replaced."""
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
    sync_folder(path.parent)


KEEP_S = 3_600.0
"""Seconds that a replaced file stays: a query that has begun may take so long."""

_SNAPSHOT_EVERY = 32
"""Commits between two log entries that list all files: a reader opens at most so many."""
_DIGITS = 20
_KEPT_ENTRIES = 1_024
"""Log entries that stay when nobody needs them any more."""


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """What a lake was made with; jobs that come later must want the same."""

    format: str = "parquet"
    intervals: tuple[str, ...] = ("1m",)
    zone: str = "UTC"
    session: str = ""
    days: str = ""
    """Days of trading, mon-fri; all of them if empty."""
    window: str = "30m"
    horizon: str = "5s"
    depth: int = 5
    """Levels of each side in silver/books."""
    calendar: str = ""
    """An exchange whose days and hours count, such as XNYS; zone, session and days are its own then."""

    def as_json(self) -> dict[str, Any]:
        """As they are written: what older programs do not know is left out where it says nothing."""
        return {name: value for name, value in asdict(self).items() if name != "calendar" or value}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """As they were written."""
        return cls(**{**found, "intervals": tuple(found["intervals"])})


@dataclass(frozen=True)
class TableVersion:
    """A table at one version."""

    version: int = 0
    files: tuple[DataFile, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)
    """What the newest commit says besides: offsets, memory, batches."""
    replaced: tuple[ReplacedFile, ...] = ()
    """Files that are no part of it, and stay for frames that were made before."""

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def kept_files(self) -> int:
        """Replaced files that stay."""
        return len(self.replaced)

    @property
    def kept_bytes(self) -> int:
        """Of the replaced files that stay."""
        return sum(file.bytes for file in self.replaced)


class LakeTable:
    """One table of a lake."""

    def __init__(
        self,
        root: Path,
        name: str,
        keys: Sequence[str],
        mirror: str = "parquet",
        *,
        keep_s: float = KEEP_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`keys` are the columns by which it is partitioned; `keep_s` is how long replaced files stay."""
        self.name = name
        self._keep_s = keep_s
        self._clock = clock
        self.path = root / name
        self._second = root / "files" / name
        self.keys = tuple(keys)
        self._log = self.path / "_log"
        self._known = TableVersion()
        self._lock = Lock()
        self._committing = Lock()
        self._mirror = mirror_of(mirror)
        self._is_listed = mirror != "parquet"
        """Whether readers go by another format's log, and not by the folder: replaced files stay where they are."""

    def snapshot(self) -> TableVersion:
        """The newest version; version 0 is an empty table."""
        with self._lock:
            known = self._known
            newest = self._newest(known.version)
            if newest != known.version:
                self._known = self._followed(known, newest)
            return self._known

    def _followed(self, known: TableVersion, newest: int) -> TableVersion:
        """From a version that is known, or from the last entry that lists all files."""
        files = {file.path: file for file in known.files}
        replaced = {file.path: file for file in known.replaced}
        later: list[dict[str, Any]] = []
        for version in range(newest, known.version, -1):
            entry = self._entry(version)
            if "files" in entry:
                files = {file["path"]: DataFile(**file) for file in entry["files"]}
                replaced = {file["path"]: ReplacedFile(**file) for file in entry.get("replaced", [])}
                break
            later.append(entry)
        for entry in reversed(later):
            for path in entry["removed"]:
                gone = files.pop(path, None)
                if gone is not None and "at" in entry:
                    replaced[path] = ReplacedFile(path, gone.bytes, entry["at"])
            for path in entry.get("expired", ()):
                replaced.pop(path, None)
            files.update({file["path"]: DataFile(**file) for file in entry["added"]})
        return TableVersion(newest, tuple(files.values()), self._entry(newest)["notes"], tuple(replaced.values()))

    def _newest(self, known: int) -> int:
        """The greatest version; a log has no gaps."""
        if not self._place(known).is_file():
            # Nothing is known, or what is known was forgotten meanwhile.
            return max((int(path.stem) for path in self._log.glob("*.json")), default=0)
        while self._place(known + 1).is_file():
            known += 1
        return known

    def notes_since(self, version: int) -> list[dict[str, Any]]:
        """What each commit after a version says that changed rows."""
        if self._has_forgotten(version):
            rule = f"what came after version {version} is forgotten: remove this table and those that follow from it"
            raise ConfigurationError(str(self._log), "version", f"{rule}, and run again")
        return [entry["notes"] for entry in self._since(version, self.snapshot().version)]

    def added_since(self, version: int, last: int | None = None) -> list[DataFile]:
        """Files with rows that came after a version, up to a last one, in the order of their commits."""
        newest = self.snapshot().version if last is None else last
        if version == 0 and self._has_forgotten(version):
            return [file for file in self.snapshot().files if file.version <= newest]
        return [DataFile(**file) for entry in self._since(version, newest) for file in entry["added"]]

    def _has_forgotten(self, version: int) -> bool:
        return version < self.snapshot().version and not self._place(version + 1).is_file()

    def _since(self, version: int, last: int) -> list[dict[str, Any]]:
        entries = map(self._entry, range(version + 1, last + 1))
        return [entry for entry in entries if not entry["compacts"]]

    def forget(self, known: int) -> None:
        """Remove old log entries that every follower of this table has read."""
        newest = self.snapshot().version
        whole = newest - newest % _SNAPSHOT_EVERY
        for version in range(min(newest - _KEPT_ENTRIES, whole - 1, known), 0, -1):
            try:
                self._place(version).unlink()
            except FileNotFoundError:
                return

    def read(self, spark: SparkSession, files: Sequence[DataFile] | None = None) -> DataFrame | None:
        """All rows, or those of some files; None for a table without any."""
        chosen = self.snapshot().files if files is None else files
        if not chosen:
            return None
        base = self.frames_base(chosen)
        paths = [str(base / file.path) for file in chosen]
        # Known columns spare Spark a job that looks at the files.
        schema = StructType.fromJson(self._entry(self.snapshot().version)["schema"])
        return spark.read.schema(schema).option("basePath", str(base)).parquet(*paths)

    def frames_base(self, files: Sequence[DataFile]) -> Path:
        """Below which folder frames read files: that of the second names, unless an older job has made none."""
        return self._second if all((self._second / file.path).exists() for file in files) else self.path

    def commit(
        self,
        frame: DataFrame | None,
        notes: Callable[[list[DataFile]], Mapping[str, Any]],
        removed: Sequence[DataFile] = (),
        *,
        only_rows: bool = False,
    ) -> TableVersion:
        """One more version: rows are added, files go. The frame may read files that go.

        `notes` are made from the files that were added. With `only_rows`, a frame without rows makes no version.
        """
        return self._commit(frame, removed, lambda added, _: notes(added), compacts=False, only_rows=only_rows)

    def compact(self, frame: DataFrame, removed: Sequence[DataFile]) -> TableVersion:
        """Rows of some files in others, which take their place; others may commit meanwhile."""

        def said(added: list[DataFile], before: TableVersion) -> Mapping[str, Any]:
            were, are = (sum(file.rows for file in files) for files in (removed, added))
            if were != are:
                raise AssertionError(f"{self.name}: {were} rows became {are}")
            return before.notes

        return self._commit(frame, removed, said, compacts=True)

    def _commit(
        self,
        frame: DataFrame | None,
        removed: Sequence[DataFile],
        notes: Callable[[list[DataFile], TableVersion], Mapping[str, Any]],
        *,
        compacts: bool,
        only_rows: bool = False,
    ) -> TableVersion:
        staging = self._write(frame) if frame is not None else None
        with self._committing:
            before = self.snapshot()
            version = before.version + 1
            added = self._moved(staging, version) if staging is not None else []
            if only_rows and not added:
                return before
            said = dict(notes(added, before))
            schema = self._entry(before.version)["schema"] if before.version else None
            if frame is not None and schema is None:
                schema = frame.schema.jsonValue()
            now, gone = self._clock(), {file.path for file in removed}
            files = [*(file for file in before.files if file.path not in gone), *added]
            kept = [*before.replaced, *(ReplacedFile(file.path, file.bytes, now) for file in removed)]
            expired = self._expired(kept)
            replaced = tuple(file for file in kept if file.path not in expired)
            entry: dict[str, Any] = {
                "version": version,
                "schema_version": SCHEMA_VERSION,
                "at": now,
                "added": [asdict(file) for file in added],
                "removed": sorted(gone),
                "expired": sorted(expired),
                "compacts": compacts,
                "schema": schema,
                "notes": said,
            }
            if version % _SNAPSHOT_EVERY == 0:
                entry["files"] = [asdict(file) for file in files]
                entry["replaced"] = [asdict(file) for file in replaced]
            self._append(version, entry)
            state = TableState(self.path, self.keys, version, tuple(files), schema)
            self._mirror.publish(state, FileChange(added, removed, compacts))
            # Files are removed last: readers of another format's log still find what it lists.
            for path in expired if self._is_listed else gone:
                (self.path / path).unlink(missing_ok=True)
            for path in expired:
                (self._second / path).unlink(missing_ok=True)
        return TableVersion(version, tuple(files), said, replaced)

    def _expired(self, kept: Iterable[ReplacedFile]) -> set[str]:
        """Replaced files whose time is over. A clock that was wrong keeps none for longer than the right one."""
        now = self._clock()
        return {file.path for file in kept if abs(now - file.at) >= self._keep_s}

    def sweep(self) -> None:
        """Remove what a killed job left behind, and what is kept no longer; the caller holds the lock."""
        shutil.rmtree(self.path / "_staging", ignore_errors=True)
        now = self.snapshot()
        schema = self._entry(now.version)["schema"] if now.version else None
        self._mirror.catch_up(TableState(self.path, self.keys, now.version, now.files, schema))
        listed = {file.path for file in now.files}
        kept = listed | ({file.path for file in now.replaced} - self._expired(now.replaced))
        for folder, known in ((self.path, kept if self._is_listed else listed), (self._second, kept)):
            for path in folder.rglob("*.parquet"):
                if str(path.relative_to(folder)) not in known:
                    path.unlink()
        for name in listed:
            self._name_again(name)

    def _write(self, frame: DataFrame) -> Path:
        """Rows into files that do not count yet."""
        make_folder(self.path)
        staging = self.path / "_staging" / uuid4().hex
        frame.write.partitionBy(*self.keys).parquet(str(staging))
        return staging

    def _moved(self, staging: Path, version: int) -> list[DataFile]:
        """Files of a commit, at their place: on the disk, whichever task has written them, and their names too."""
        added = []
        for number, path in enumerate(sorted(staging.rglob("*.parquet"))):
            rows = pq.read_metadata(path).num_rows
            if not rows:
                continue
            place = path.relative_to(staging).parent / f"{version:08}-{number:05}.parquet"
            make_folder((self.path / place).parent)
            size = path.stat().st_size
            sync_file(path)
            path.replace(self.path / place)
            (self._second / place).unlink(missing_ok=True)
            self._name_again(str(place))
            added.append(DataFile(str(place), rows, size))
        for folder in sorted({(self.path / file.path).parent for file in added}):
            sync_folder(folder)
        shutil.rmtree(staging, ignore_errors=True)
        return added

    def _name_again(self, path: str) -> None:
        """The second name of a file that counts: no byte is written twice. One that is lost is made anew by a sweep."""
        second = self._second / path
        if not second.exists():
            second.parent.mkdir(parents=True, exist_ok=True)
            os.link(self.path / path, second)

    def _place(self, version: int) -> Path:
        return self._log / f"{version:0{_DIGITS}}.json"

    def _entry(self, version: int) -> dict[str, Any]:
        path = self._place(version)
        entry: dict[str, Any] = _load(path)
        if entry.get("schema_version", 0) > SCHEMA_VERSION:
            raise ConfigurationError(str(path), "schema_version", _newer(entry["schema_version"]))
        return entry

    def _append(self, version: int, entry: Mapping[str, Any]) -> None:
        make_folder(self._log)
        create_json(self._place(version), entry)


class Lake:
    """A directory of tables."""

    def __init__(self, root: Path, settings: LakeSettings, keep_s: float = KEEP_S) -> None:
        """`Lake.open` and `Lake.create` read and write the file that says what it is."""
        self.root = root
        self.settings = settings

        def table(name: str, *keys: str) -> LakeTable:
            return LakeTable(root, name, keys, settings.format, keep_s=keep_s)

        self.released = table("bronze/released", "date", "stripe")
        self.messages = table("bronze/messages", "date", "stripe")
        self.tape = table("silver/tape", "date", "stripe")
        self.quotes = table("silver/quotes", "date", "stripe")
        self.books = table("silver/books", "date", "stripe")
        self.bars = table("gold/bars", "interval", "date", "hour")
        self.vwap = table("gold/vwap", "interval", "date", "hour")
        self.spreads = table("gold/spreads", "interval", "date")

    @property
    def tables(self) -> tuple[LakeTable, ...]:
        """All of them, from bronze to gold."""
        silver = self.tape, self.quotes, self.books
        return self.released, self.messages, *silver, self.bars, self.vwap, self.spreads

    def forget(self) -> None:
        """Remove log entries that no table needs any more."""
        notes = {table.name: table.snapshot().notes for table in self.tables}
        followers = {
            self.released: [
                notes[table.name].get("released_version", 0) for table in (self.tape, self.quotes, self.books)
            ],
            self.tape: [notes[table.name].get("tape_version", 0) for table in (self.bars, self.spreads)],
            self.bars: [notes[self.vwap.name].get("bars_version", 0)],
        }
        for table in self.tables:
            table.forget(min(followers.get(table, [table.snapshot().version])))

    def checkpoint(self, table: LakeTable) -> Path:
        """Of the stream that fills a table of bronze."""
        return self.root / ("_checkpoint" if table is self.released else f"_checkpoint_{table.path.name}")

    @classmethod
    def open(cls, root: Path, keep_s: float = KEEP_S) -> Self:
        """A lake that exists; ConfigurationError if it does not, or if a newer version has written it."""
        root = local_path(root, "lake", "--lake")
        path = root / "lake.json"
        if not path.is_file():
            raise ConfigurationError(str(root), "--lake", "is no lake: `isocast lake run` makes one")
        found = _load(path)
        version = found.get("schema_version", 0)
        if version > SCHEMA_VERSION:
            raise ConfigurationError(str(path), "schema_version", _newer(version))
        if version < SCHEMA_VERSION:
            rule = f"version {version} is older than {SCHEMA_VERSION}: build the lake again in another directory"
            raise ConfigurationError(str(path), "schema_version", rule)
        settings = LakeSettings.from_json(found["settings"])
        mirror_of(settings.format).insist_on_packages()
        return cls(root, settings, keep_s)

    @classmethod
    def create(cls, root: Path, settings: LakeSettings | None = None, keep_s: float = KEEP_S) -> Self:
        """The lake of a directory, made if it is new; settings that are given must be its own.

        `keep_s` is how long files that this job replaces stay for frames that were made before.
        """
        root = local_path(root, "lake", "--lake")
        if (root / "lake.json").is_file():
            lake = cls.open(root, keep_s)
            if settings is not None and settings != lake.settings:
                own, other = asdict(lake.settings), asdict(settings)
                names = sorted(name for name in own if own[name] != other[name])
                rule = f"it was made with {names[0]} = {own[names[0]]!r}, not {other[names[0]]!r}"
                raise ConfigurationError(str(root / "lake.json"), names[0], rule)
            return lake
        wanted = settings or LakeSettings()
        mirror_of(wanted.format).insist_on_packages()
        make_folder(root)
        if any(path.name != "_lock" and not path.name.startswith("_checkpoint") for path in root.iterdir()):
            raise ConfigurationError(str(root), "--lake", "is neither empty nor a lake")
        create_json(root / "lake.json", {"schema_version": SCHEMA_VERSION, "settings": wanted.as_json()})
        return cls(root, wanted, keep_s)

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
    return f"version {version} is newer than {SCHEMA_VERSION}, the version of this program: use a newer isocast"


def _load(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError):
        raise ConfigurationError(str(path), "file", "is not JSON: it was damaged or is not ours") from None
    if not isinstance(found, dict):
        raise ConfigurationError(str(path), "file", "is not a JSON object")
    return found
