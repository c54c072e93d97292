"""Random worlds under faults, judged by every checker; and each past failure, kept as one line of `seeds.txt`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isocast.simulation.fault_plan import ATTACKS, BYZANTINE, ROSTER_FAULTS
from isocast.simulation.swarm import run_seed, world_of

QUICK = 20
"""Seeds that every run of the tests judges, those among them that failed once included."""
LONG = 240
SOAK = 5_000
STRIDE = 20
LIARS_QUICK = 20
LIARS_LONG = 150
LIARS_SOAK = 1_000
LIES_SEEN = 50
"""Among so many worlds of liars is every kind of lie; each mutant that believes liars is caught in one of them."""
KEPT = [
    line.split(maxsplit=1)
    for line in Path(__file__).with_name("seeds.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def failures(seeds: range, *, lying: bool = False) -> dict[int, list[str]]:
    results = [run_seed(seed, lying=lying) for seed in seeds]
    return {result.seed: result.violations for result in results if result.violations}


SLOW = ("1292", "847")
"""Worlds of a quarter of a minute."""


@pytest.mark.parametrize(
    "seed, what",
    [
        pytest.param(seed, what, id=seed, marks=[pytest.mark.long] * (seed in SLOW))
        for seed, what in KEPT
        if int(seed) > QUICK
    ],
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


@pytest.mark.soak
@pytest.mark.parametrize("first", range(LONG + 1, SOAK + 1, STRIDE))
def test_no_world_of_thousands_breaks_a_promise(first: int) -> None:
    assert failures(range(first, first + STRIDE)) == {}


@pytest.mark.parametrize("first", range(1, LIARS_QUICK + 1, STRIDE // 2))
def test_no_liar_breaks_a_promise(first: int) -> None:
    """Somebody equivocates, forges, replays, slanders, comes with an old roster, or has stolen a key."""
    assert failures(range(first, first + STRIDE // 2), lying=True) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(LIARS_QUICK + 1, LIARS_LONG + 1, STRIDE // 2))
def test_no_liar_of_many_breaks_a_promise(first: int) -> None:
    assert failures(range(first, first + STRIDE // 2), lying=True) == {}


@pytest.mark.soak
@pytest.mark.parametrize("first", range(LIARS_LONG + 1, LIARS_SOAK + 1, STRIDE // 2))
def test_no_liar_of_thousands_breaks_a_promise(first: int) -> None:
    assert failures(range(first, first + STRIDE // 2), lying=True) == {}


def test_liars_worlds_have_every_kind_of_lie() -> None:
    worlds = [world_of(seed, lying=True) for seed in range(1, LIES_SEEN + 1)]
    faults: list[dict[str, Any]] = [fault for world in worlds for fault in world["faults"]]  # type: ignore[attr-defined]
    assert {fault["kind"] for fault in faults} >= {*BYZANTINE, *ATTACKS, *ROSTER_FAULTS}
    assert {world["signatures"] for world in worlds} == {"on", "receipts"}
