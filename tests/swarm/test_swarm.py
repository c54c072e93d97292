"""Random worlds under faults, judged by every checker; and each past failure, kept as one line of `seeds.txt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocast.simulation.swarm import run_seed

QUICK = 60
LONG = 500
STRIDE = 20
KEPT = [
    line.split(maxsplit=1)
    for line in Path(__file__).with_name("seeds.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def failures(seeds: range) -> dict[int, list[str]]:
    results = [run_seed(seed) for seed in seeds]
    return {result.seed: result.violations for result in results if result.violations}


SLOW = ("1292", "847")
"""Worlds of a quarter of a minute."""


@pytest.mark.parametrize(
    "seed, what",
    [pytest.param(seed, what, id=seed, marks=[pytest.mark.long] * (seed in SLOW)) for seed, what in KEPT],
)
def test_what_failed_once_holds(seed: str, what: str) -> None:
    assert run_seed(int(seed)).violations == [], what


def test_every_kept_seed_says_what_it_was() -> None:
    assert len({seed for seed, _ in KEPT}) == len(KEPT)
    assert all(len(what.split()) > 3 for _, what in KEPT)


@pytest.mark.parametrize("first", range(1, QUICK + 1, STRIDE))
def test_no_world_breaks_a_promise(first: int) -> None:
    assert failures(range(first, first + STRIDE)) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(QUICK + 1, LONG + 1, STRIDE))
def test_no_world_of_many_breaks_a_promise(first: int) -> None:
    assert failures(range(first, first + STRIDE)) == {}
