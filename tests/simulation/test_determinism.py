"""Every run is a function of one seed: in this process, in another, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from isocast.simulation.swarm import run_seed

SEEDS = (2, 9, 33)
TWICE = 1
"""So many of them run a second time in this process: what the first run leaves behind must not matter."""
PROGRAM = f"""
from isocast.simulation.swarm import run_seed
for seed in {SEEDS}:
    print(run_seed(seed).trace_digest)
"""


@pytest.fixture(scope="module")
def known() -> list[str]:
    """Of the first run."""
    return [run_seed(seed).trace_digest for seed in SEEDS]


def test_the_same_seed_twice_gives_the_same_trace(known: list[str]) -> None:
    assert [run_seed(seed).trace_digest for seed in SEEDS[:TWICE]] == known[:TWICE]


def test_other_seeds_give_other_traces(known: list[str]) -> None:
    assert len(set(known)) == len(SEEDS)


def test_another_process_with_another_hash_seed_gives_the_same_trace(known: list[str]) -> None:
    hash_seed = "0" if os.environ.get("PYTHONHASHSEED") == "4242" else "4242"
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == known
