"""Temporary directories are gone with their process, however it ends, and nobody else's are touched."""

import signal
import subprocess
import sys
from pathlib import Path

from isocast.runtime.disk import scratch

HOLD = """
import sys, time
from pathlib import Path
from isocast.runtime.disk import scratch
place = scratch.new_directory("demo", Path(sys.argv[1]))
(place / "inner").mkdir()
print(place.name, flush=True)
{then}
"""


def test_a_directory_is_there_for_its_block(tmp_path: Path) -> None:
    place = scratch.new_directory("test", tmp_path)
    try:
        assert list(tmp_path.iterdir()) == [place]
        (place / "a" / "b").mkdir(parents=True)
    finally:
        scratch.remove(place)
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_a_process_removes_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", HOLD.format(then=""), str(tmp_path)], check=True, capture_output=True)
    assert list(tmp_path.iterdir()) == []


def test_what_kill_9_leaves_is_swept_by_the_next_and_what_lives_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD.format(then="time.sleep(600)"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="ascii") as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        try:
            scratch.sweep(tmp_path)
            assert (tmp_path / name / "inner").is_dir(), "its process lives"
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert (tmp_path / name).is_dir()
    place = scratch.new_directory("test", tmp_path)
    assert list(tmp_path.iterdir()) == [place]
    scratch.remove(place)


def test_only_what_this_module_made_is_swept(tmp_path: Path) -> None:
    names = ["isocast-demo", "isocast-demo-abcdefgh", "isocast-my-market-2024", "isocast-demo-abcdefghi~", "demo~"]
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / "isocast-demo-abcdefg1~").write_text("a file")
    (tmp_path / "isocast-demo-abcdefg2~").symlink_to(tmp_path / "isocast-demo")
    before = sorted(tmp_path.iterdir())
    scratch.sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == before
