"""Benches write a bounded share of what is free, and leave nothing behind, however they end."""

import importlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCH = Path(__file__).parents[2] / "bench"
GB = 10**9


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.syspath_prepend(str(BENCH))
    module = importlib.import_module("scratch")
    yield SimpleNamespace(**vars(module), module=module)
    sys.modules.pop("scratch", None)


def test_a_run_that_writes_more_than_was_foreseen_is_stopped(
    scratch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_disk(monkeypatch, 10 * GB)
    room = scratch.room_at(tmp_path)
    fake_disk(monkeypatch, 6 * GB)
    room.insist_left()
    fake_disk(monkeypatch, 4 * GB)
    with pytest.raises(SystemExit):
        room.insist_left()
    assert "stopped: of 10.0 GB that were free" in capsys.readouterr().err


def fake_disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free // 4_096, f_frsize=4_096))


def test_a_run_that_would_fill_memory_is_refused_before_a_byte_is_written(
    scratch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """25 seconds at 4 receivers: 25 GB, on a machine that has 24."""
    fake_disk(monkeypatch, 24 * GB)
    monkeypatch.setattr(scratch.Room, "warm", lambda *_: pytest.fail("it would write"))
    with pytest.raises(SystemExit) as ended, scratch.folder(None, 25 * GB, within=tmp_path, warm=True):
        pytest.fail("it began")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "writes some 25.0 GB" in said
    assert "24.0 GB free, of which a bench takes at most 50%" in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_in_memory_has_no_more_than_the_memory_that_is_available(
    scratch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_disk(monkeypatch, 24 * GB)
    monkeypatch.setattr(scratch.module, "MEMORY", tmp_path)
    monkeypatch.setattr(scratch.module, "_available_memory", lambda: 3 * GB)
    assert scratch.room_at(tmp_path).free == 3 * GB
    assert scratch.room_at(tmp_path.parent).free == pytest.approx(24 * GB, abs=4_096)


@pytest.mark.parametrize("wanted, free, touched", [(25e9, 24 * GB, 12 * GB), (1e9, 24 * GB, GB), (1e9, 0, 0)])
def test_warming_touches_at_most_what_may_be_written(
    scratch: SimpleNamespace, tmp_path: Path, wanted: float, free: int, touched: int
) -> None:
    assert scratch.Room(tmp_path, free).warm(wanted) == touched


def test_a_folder_is_removed_with_all_it_holds_after_an_exception(scratch: SimpleNamespace, tmp_path: Path) -> None:
    def fail() -> None:
        with scratch.folder(None, 1_000, within=tmp_path, warm=True) as place:
            (place / "journal").mkdir()
            (place / "journal" / "data").write_bytes(bytes(100))
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_is_kept_stays(scratch: SimpleNamespace, tmp_path: Path) -> None:
    with scratch.folder(tmp_path / "kept", 1_000, warm=True) as place:
        (place / "data").write_bytes(b"x")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["data"]


def test_what_a_killed_bench_left_is_removed_by_the_next_and_a_running_one_s_is_not(
    scratch: SimpleNamespace, tmp_path: Path
) -> None:
    dead = tmp_path / "isocast-bench-dead"
    dead.mkdir()
    (dead / ".lock").touch()
    (dead / "warm").write_bytes(bytes(1_000))
    old = tmp_path / "isocast-bench-old"
    old.mkdir()
    os.utime(old, (0, 0))
    made_now = tmp_path / "isocast-bench-new"
    made_now.mkdir()
    others = tmp_path / "somebody-else"
    others.mkdir()
    with scratch.folder(None, within=tmp_path) as running:
        assert not dead.exists()
        assert not old.exists()
        assert scratch.sweep(tmp_path) == []
        assert running.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["isocast-bench-new", "somebody-else"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    """A process of its own, whose signals are those of a terminal whatever started the tests."""
    program = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from scratch import folder\n"
        "with folder(None, 1_000, within=pathlib.Path(sys.argv[1]), warm=True) as place:\n"
        "    print(place, flush=True)\n"
        "    time.sleep(30)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=BENCH) as child:
        assert child.stdout is not None
        place = Path(child.stdout.readline().decode().strip())
        assert place.is_dir()
        child.send_signal(number)
        child.communicate(timeout=20)
    assert list(tmp_path.iterdir()) == []
    assert child.returncode != 0


def test_a_signal_that_was_ignored_before_stays_ignored(tmp_path: Path) -> None:
    """As under nohup: closing the terminal does not end a bench."""
    program = (
        "import pathlib, signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from scratch import folder\n"
        "with folder(None, 1_000, within=pathlib.Path(sys.argv[1])):\n"
        "    signal.raise_signal(signal.SIGHUP)\n"
        "    print('goes on')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False, cwd=BENCH, encoding="utf-8")
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", sorted(BENCH.glob("*.py")), ids=lambda path: path.name)
def test_no_bench_makes_folders_of_its_own(path: Path) -> None:
    """One that does is not bounded, and not cleaned up after a signal."""
    text = path.read_text(encoding="utf-8")
    assert "TemporaryDirectory" not in text
    assert path.name == "scratch.py" or not re.search(r"mkdtemp|dev/shm", text)
