"""Benches explain themselves, and refuse what they cannot do in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / name), *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=60)


@pytest.mark.parametrize(
    "name, wrong", [("store.py", ["/no/such/place"]), ("journal.py", ["--directory", "/no/such/place"])]
)
def test_help_and_bad_input_are_no_tracebacks(name: str, wrong: list[str]) -> None:
    helped = run(name, "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "--json" in helped.stdout
    refused = run(name, *wrong)
    assert refused.returncode == 2
    assert "/no/such/place is no directory" in refused.stderr
    assert "Traceback" not in refused.stderr
