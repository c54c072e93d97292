"""Tables on disk: what is committed survives a loss of power, and what is replaced stays for whoever reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isocast.lake.tables import DataFile, Lake, LakeTable
from isocast.terms.errors import ConfigurationError

HOUR = 3_600


class Rows:
    """As much of a Spark frame as a table writes: some numbers, all of one day and stripe."""

    def __init__(self, numbers: Sequence[int]) -> None:
        """Two files, as two tasks would write."""
        self._numbers = list(numbers)

    @property
    def write(self) -> Rows:
        """Spark's writer."""
        return self

    @property
    def schema(self) -> Rows:
        """Spark's schema."""
        return self

    def jsonValue(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Whatever Spark would say."""
        return {"type": "struct", "fields": []}

    def partitionBy(self, *keys: str) -> Rows:  # noqa: N802 - Spark's name
        """Always by day and stripe."""
        assert keys == ("date", "stripe")
        return self

    def parquet(self, where: str) -> None:
        """The work of two tasks."""
        folder = Path(where) / "date=2026-03-02" / "stripe=0"
        folder.mkdir(parents=True)
        half = len(self._numbers) // 2
        for task, part in enumerate((self._numbers[:half], self._numbers[half:])):
            pq.write_table(pa.table({"number": part}), folder / f"part-{task}.parquet")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy disk takes a tenth of a second for each sync: only the tests that look at them need any."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        """A day in 2026."""
        self.now = 1_772_442_000.0

    def __call__(self) -> float:
        """As time.time."""
        return self.now


def table_of(folder: Path, clock: Clock, keep_s: float = HOUR) -> LakeTable:
    return LakeTable(folder, "silver/tape", ("date", "stripe"), keep_s=keep_s, clock=clock)


def put(table: LakeTable, numbers: Sequence[int], removed: Sequence[DataFile] = ()) -> None:
    table.commit(Rows(numbers), lambda _: {}, removed)  # type: ignore[arg-type]


def paths_of(table: LakeTable) -> list[Path]:
    """What a frame that is made now goes on reading, whenever it is collected."""
    files = table.snapshot().files
    return [table.frames_base(files) / file.path for file in files]


def numbers_in(paths: Sequence[Path]) -> list[int]:
    return sorted(number for path in paths for number in pq.ParquetFile(path).read()["number"].to_pylist())


def on_disk(table: LakeTable) -> set[Path]:
    """Second names: what takes room."""
    return set((table.path.parents[1] / "files" / table.name).rglob("*.parquet"))


def in_folder(table: LakeTable) -> list[int]:
    """What an engine reads that takes every file of the table's folder."""
    return numbers_in(list(table.path.rglob("*.parquet")))


# ---- readers


def test_a_frame_made_before_a_compaction_and_an_overwrite_still_reads(tmp_path: Path) -> None:
    table = table_of(tmp_path, Clock())
    put(table, [1, 2, 3, 4])
    frame = paths_of(table)
    table.compact(Rows([1, 2, 3, 4]), table.snapshot().files)  # type: ignore[arg-type]
    put(table, [5, 6], table.snapshot().files)
    assert numbers_in(frame) == [1, 2, 3, 4]
    assert numbers_in(paths_of(table)) == [5, 6]
    assert in_folder(table) == [5, 6], "whoever reads the folder finds nothing twice"
    table.sweep()
    assert numbers_in(frame) == [1, 2, 3, 4], "the next writer leaves them too"
    assert in_folder(table) == [5, 6]


def test_a_file_has_two_names_and_takes_its_room_once(tmp_path: Path) -> None:
    table = table_of(tmp_path, Clock())
    put(table, [1, 2])
    for file in table.snapshot().files:
        assert (table.path / file.path).stat().st_nlink == 2
        assert (table.path / file.path).samefile(table.frames_base([file]) / file.path)


def test_a_table_of_an_older_job_is_read_where_it_is_and_gets_its_second_names(tmp_path: Path) -> None:
    table = table_of(tmp_path, Clock())
    put(table, [1, 2])
    for path in on_disk(table):
        path.unlink()
    assert {path.parents[2] for path in paths_of(table)} == {table.path}
    assert numbers_in(paths_of(table)) == [1, 2]
    table.sweep()
    assert on_disk(table) == set(paths_of(table))
    assert numbers_in(paths_of(table)) == [1, 2]


def test_replaced_files_go_when_their_time_is_over(tmp_path: Path) -> None:
    clock = Clock()
    table = table_of(tmp_path, clock)
    put(table, [1, 2])
    old = paths_of(table)
    put(table, [3, 4], table.snapshot().files)
    assert (table.snapshot().kept_files, table.snapshot().kept_bytes) == (2, sum(path.stat().st_size for path in old))
    assert in_folder(table) == [3, 4]
    clock.now += HOUR - 1
    put(table, [5, 6])
    assert all(path.exists() for path in old)
    clock.now += 1
    put(table, [7, 8])
    assert not any(path.exists() for path in old)
    assert on_disk(table) == set(paths_of(table))
    assert (table.snapshot().kept_files, table.snapshot().kept_bytes) == (0, 0)
    fresh = table_of(tmp_path, clock)
    assert fresh.snapshot() == table.snapshot(), "as the log says it"


def test_a_job_that_finds_nothing_new_sweeps_what_is_over(tmp_path: Path) -> None:
    clock = Clock()
    table = table_of(tmp_path, clock)
    put(table, [1, 2])
    put(table, [3, 4], table.snapshot().files)
    clock.now += 2 * HOUR
    table_of(tmp_path, clock).sweep()
    assert on_disk(table) == set(paths_of(table))


def test_files_of_a_commit_that_never_was_are_swept_at_once(tmp_path: Path) -> None:
    table = table_of(tmp_path, Clock())
    put(table, [1, 2])
    strays = [paths_of(table)[0].with_name("00000002-00000.parquet")]
    strays += [table.path / "date=2026-03-02" / "stripe=0" / strays[0].name]
    for stray in strays:
        stray.write_bytes(b"")
    table.sweep()
    assert not any(stray.exists() for stray in strays)
    assert numbers_in(paths_of(table)) == [1, 2]


def test_nothing_is_kept_where_nobody_wants_it(tmp_path: Path) -> None:
    table = table_of(tmp_path, Clock(), keep_s=0)
    put(table, [1, 2])
    put(table, [3, 4], table.snapshot().files)
    assert on_disk(table) == set(paths_of(table))
    assert table.snapshot().kept_files == 0


def test_a_commit_that_failed_is_made_again(tmp_path: Path) -> None:
    table = table_of(tmp_path, Clock())

    def fails(_: list[DataFile]) -> dict[str, Any]:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - our own
        table.commit(Rows([1, 2]), fails)  # type: ignore[arg-type]
    assert table.snapshot().version == 0
    put(table, [3, 4])
    assert numbers_in(paths_of(table)) == in_folder(table) == [3, 4]


def test_where_another_formats_log_rules_replaced_files_stay_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of Delta or Iceberg have the paths of the table's folder."""
    clock = Clock()
    table = LakeTable(tmp_path, "silver/tape", ("date", "stripe"), "delta", keep_s=HOUR, clock=clock)
    monkeypatch.setattr(table, "_mirror", table_of(tmp_path, clock)._mirror)  # noqa: SLF001 - nobody is told
    put(table, [1, 2])
    put(table, [3, 4], table.snapshot().files)
    table.sweep()
    assert in_folder(table) == [1, 2, 3, 4]
    clock.now += HOUR
    put(table, [5, 6])
    assert in_folder(table) == [3, 4, 5, 6]


@pytest.mark.parametrize("step", [-400 * 24 * HOUR, 400 * 24 * HOUR])
def test_a_clock_that_was_wrong_by_a_year_keeps_no_file_for_a_year(tmp_path: Path, step: int) -> None:
    clock = Clock()
    table = table_of(tmp_path, clock)
    put(table, [1, 2])
    put(table, [3, 4], table.snapshot().files)
    clock.now += step
    put(table, [5, 6])
    assert on_disk(table) == set(paths_of(table))


def test_what_is_kept_is_known_across_whole_entries_and_forgotten_ones(tmp_path: Path) -> None:
    """Every 32nd entry lists all files: what is replaced and still there is listed with them."""
    clock = Clock()
    table = table_of(tmp_path, clock)
    put(table, [1, 2])
    for number in range(36):
        clock.now += 120
        put(table, [number, number + 1], table.snapshot().files)
    now, seen = table.snapshot(), table_of(tmp_path, clock).snapshot()
    assert seen == now
    assert now.kept_files == 2 * 30, "an hour of commits, two minutes apart"
    assert len(on_disk(table)) == len(now.files) + len(now.replaced)
    assert len(list(table.path.rglob("*.parquet"))) == len(now.files)


def test_a_log_of_a_lake_that_kept_nothing_is_read(tmp_path: Path) -> None:
    """Entries without a time of commit: their files went with the commit."""
    table = table_of(tmp_path, Clock())
    put(table, [1, 2])
    put(table, [3, 4], table.snapshot().files)
    for path in sorted((table.path / "_log").glob("*.json")):
        entry = json.loads(path.read_text(encoding="utf-8"))
        for key in ("at", "expired", "replaced"):
            entry.pop(key, None)
        path.write_text(json.dumps(entry), encoding="utf-8")
    assert table_of(tmp_path, Clock()).snapshot().kept_files == 0


# ---- a loss of power


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is synced, moved and linked, in order; a folder's or file's path as it is at that moment."""
    done: list[tuple[str, str]] = []
    fsync, link, replace = os.fsync, os.link, Path.replace

    def syncing(fd: int) -> None:
        done.append(("sync", str(Path(f"/proc/self/fd/{fd}").readlink())))
        fsync(fd)

    def linking(one: Path, other: Path) -> None:
        link(one, other)
        done.append(("name", str(other)))

    def replacing(one: Path, other: Path) -> Path:
        moved = replace(one, other)
        done.append(("move", f"{one} {other}"))
        return moved

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "link", linking)
    monkeypatch.setattr(Path, "replace", replacing)
    return done


def test_files_and_their_folders_are_on_the_disk_before_the_entry_that_names_them(
    tmp_path: Path, recorded: list[tuple[str, str]]
) -> None:
    table = table_of(tmp_path, Clock())
    put(table, [1, 2, 3, 4])
    entry = str(table.path / "_log" / f"{1:020}.json")
    named = recorded.index(("name", entry))
    before = recorded[:named]
    files = [table.path / file.path for file in table.snapshot().files]
    moves = {one.split(" ")[1]: (at, one.split(" ")[0]) for at, (what, one) in enumerate(before) if what == "move"}
    assert sorted(moves) == sorted(map(str, files))
    for at, staged in moves.values():
        assert ("sync", staged) in before[:at], "its bytes, before it gets its name"
    last_move = max(at for at, _ in moves.values())
    assert ("sync", str(files[0].parent)) in before[last_move:], "its name"
    for folder in (table.path / "date=2026-03-02", table.path, table.path.parent, tmp_path):
        assert ("sync", str(folder)) in before, f"the names in {folder}, of which some are new"
    assert any(what == "sync" and ".tmp" in one for what, one in before), "the entry's bytes"
    assert ("sync", str(table.path / "_log")) in recorded[named:], "and its name"


def test_a_lakes_own_file_is_on_the_disk_with_its_name(tmp_path: Path, recorded: list[tuple[str, str]]) -> None:
    Lake.create(tmp_path / "new" / "lake")
    named = recorded.index(("name", str(tmp_path / "new" / "lake" / "lake.json")))
    assert ("sync", str(tmp_path / "new" / "lake")) in recorded[named:]
    assert ("sync", str(tmp_path / "new")) in recorded[:named]


# ---- places


@pytest.mark.parametrize("where", ["s3a://bucket/lake", "hdfs://name/lake", "abfss://box@host/lake", "dbfs:/lake"])
def test_a_lake_that_is_no_folder_is_refused_and_no_folder_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (Lake.create, Lake.open):
        with pytest.raises(ConfigurationError, match=r"--lake: .*mount it and give the folder"):
            use(Path(where))
    assert list(tmp_path.iterdir()) == []


def test_a_lake_by_the_url_of_a_file_is_its_folder(tmp_path: Path) -> None:
    Lake.create(Path(f"file://{tmp_path}/la%20ke"))
    assert (tmp_path / "la ke" / "lake.json").is_file()
