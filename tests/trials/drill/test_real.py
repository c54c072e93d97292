"""Drills against real processes. What must be zero is; how long it took is printed, and judged by nobody.

Two in every run; all of them, and the partition that may diverge, among the long tests.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isocast.trials.drill.run import DRILLS

pytestmark = pytest.mark.xdist_group("drill")
"""Thirteen processes: one market at a time."""

NAMES = (
    "drill",
    "passed",
    "detected_in",
    "outage",
    "lost",
    "repeated",
    "divergent",
    "ballot_to_token",
    "bound",
    "why",
)


def drilled(folder: Path, *options: str, seconds: float) -> tuple[int, list[dict[str, Any]]]:
    """What `isocast drill --json` says; its markets stay in the folder for whoever looks for a reason."""
    command = (sys.executable, "-m", "isocast", "drill", *options, "--json", "--keep", str(folder / "kept"))
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=seconds)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    for one in found:
        print({name: one[name] for name in NAMES})  # noqa: T201 - pytest shows it with a failure
    return done.returncode, found


def check(found: list[dict[str, Any]]) -> None:
    for one in found:
        assert {name: one[name] for name in ("lost", "repeated", "divergent", "gaps", "early")} == {
            "lost": 0,
            "repeated": 0,
            "divergent": 0,
            "gaps": 0,
            "early": 0,
        }, one
        assert one["recovered"], one
        assert one["passed"], one
        assert one["messages"] > 0, one
        assert set(NAMES) <= set(one)


@pytest.mark.long
def test_a_token_site_dies_and_a_ring_is_parted_and_nothing_is_lost_or_told_twice(tmp_path: Path) -> None:
    code, found = drilled(tmp_path, "partition", "token-site", "--seconds", "2", seconds=600)
    assert [one["drill"] for one in found] == ["token-site", "partition"]
    check(found)
    assert code == 0
    for one in found:
        # That it was measured does not depend on the machine.
        assert one["detected_in"] > 0
        assert one["ballot_to_token"] > 0
        assert one["bound"] > 0
    assert (tmp_path / "kept" / "partition" / "ledger.jsonl").exists()


@pytest.mark.long
def test_every_drill_passes(tmp_path: Path) -> None:
    code, found = drilled(tmp_path, seconds=1200)
    assert [one["drill"] for one in found] == [drill.name for drill in DRILLS]
    check(found)
    assert code == 0


@pytest.mark.long
def test_availability_diverges_where_it_may_and_says_so(tmp_path: Path) -> None:
    """Protocol §5: it can diverge, the documentation says so and the drills show it."""
    _, found = drilled(tmp_path, "partition", "even-split", "--policy", "availability", "--seconds", "8", seconds=600)
    for one in found:
        assert one["divergent"] > 0, one
        assert "divergent" in one["why"], one
        assert one["recovered"], one
