"""A whole planet: the same bits however it is spread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.studies.planet.worlds import small

from isocast.studies.planet import study
from isocast.studies.planet.settings import CountColumn
from isocast.studies.planet.study import PlanetRun, run_planet
from isocast.studies.spreading import Spreading

ARRAYS = ("servers", "table", "listeners", "delays", "nearest", "second")
CORE_ARRAYS = ("asked", "skews", "offsets", "completions", "releases_ns")


def assert_same(one: PlanetRun, other: PlanetRun) -> None:
    for name in ARRAYS:
        assert np.array_equal(getattr(one.edge, name), getattr(other.edge, name)), name
    for name in CORE_ARRAYS:
        assert np.array_equal(getattr(one.core, name), getattr(other.core, name)), name
    assert one.core.ring.nacks == other.core.ring.nacks


@pytest.fixture(scope="module")
def whole() -> PlanetRun:
    return run_planet(small(), Spreading(jobs=1))


def test_processes_change_nothing(whole: PlanetRun) -> None:
    assert_same(whole, run_planet(small(), Spreading(jobs=2)))


@pytest.mark.parametrize("customers, servers, tokens", [(1, 1, 1), (700, 7, 5), (10**9, 10**9, 10**9)])
def test_the_size_of_parts_changes_nothing(
    whole: PlanetRun, customers: int, servers: int, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "_CUSTOMERS_OF_PART", customers)
    monkeypatch.setattr(study, "_SERVERS_OF_PART", servers)
    monkeypatch.setattr(study, "_TOKENS_OF_PART", tokens)
    assert_same(whole, run_planet(small(), Spreading(jobs=1)))


def test_another_seed_is_another_run(whole: PlanetRun) -> None:
    other = run_planet(small(customers={"count": 2_999}), Spreading(jobs=1))
    assert other.edge.total(CountColumn.CUSTOMERS) == 2_999
    assert not np.array_equal(whole.edge.delays, other.edge.delays)
    assert np.array_equal(whole.core.skews, other.core.skews), "customers do not change the tokens"


def test_stages_are_told_to_the_last_part() -> None:
    told: list[tuple[str, int, list[int]]] = []

    def stage(what: str, parts: int) -> Callable[[int], None]:
        told.append((what, parts, []))
        return told[-1][2].append

    run_planet(small(), Spreading(jobs=1), stage)
    assert [what for what, _, _ in told] == ["places", "tokens", "regions"]
    for what, parts, reached in told[1:]:
        assert reached == list(range(1, parts + 1)), what


def test_customers_hear_what_receivers_released(whole: PlanetRun) -> None:
    """The releases of the first tokens are those that customers get."""
    assert whole.core.releases_ns.shape == (3, 60)
    assert whole.core.tokens == 12
    bound = whole.world.core.timing.clock_error_ns
    assert float(np.abs(whole.core.releases_ns).max()) <= bound
