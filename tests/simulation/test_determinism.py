"""Every run is a function of one seed: in this process, in another, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from isocast.simulation.swarm import run_seed

SEEDS = (2, 5, 9, 14, 33)
PROGRAM = f"""
from isocast.simulation.swarm import run_seed
for seed in {SEEDS}:
    print(run_seed(seed).trace_digest)
"""


def digests() -> list[str]:
    return [run_seed(seed).trace_digest for seed in SEEDS]


@pytest.fixture(scope="module")
def known() -> list[str]:
    """Of the first run."""
    return digests()


def test_the_same_seed_twice_gives_the_same_trace(known: list[str]) -> None:
    assert digests() == known


def test_other_seeds_give_other_traces(known: list[str]) -> None:
    assert len(set(known)) == len(SEEDS)


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_another_process_with_another_hash_seed_gives_the_same_trace(hash_seed: str, known: list[str]) -> None:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == known
