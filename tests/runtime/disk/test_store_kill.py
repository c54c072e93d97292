"""kill -9 at any moment: what was acknowledged is there, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

KILLED_WRITERS = Path(__file__).with_name("killed_writers.py")


def killed(role: str, directory: Path, kills: int, seed: int) -> dict[str, int]:
    command = [sys.executable, str(KILLED_WRITERS), role, str(directory), str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("role", ["site", "outbox"])
def test_what_a_killed_writer_told_of_is_there(tmp_path: Path, role: str) -> None:
    found = killed(role, tmp_path / "store", 15, seed=1)
    assert found["kills"] == 15
    assert found["groups"] > 15, "too little was written to be a test"


@pytest.mark.long
@pytest.mark.parametrize("role", ["site", "outbox"])
@pytest.mark.parametrize("seed", range(2, 6))
def test_it_is_there_however_often_they_are_killed(tmp_path: Path, role: str, seed: int) -> None:
    assert killed(role, tmp_path / "store", 60, seed)["groups"] > 60
