"""Regions: who hears whom, who lacks what, and what the server does about it."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from tests.studies.planet.worlds import small

from isocast.reformation.scopes.nearest import nearest
from isocast.reformation.scopes.world import Floats, Surface
from isocast.studies.planet import edge as edge_module
from isocast.studies.planet.edge import CustomerGaps, EdgeInputs, Ground, lay_out, repair, run_servers
from isocast.studies.planet.settings import DELAYS, DISTANCES, Bins, CountColumn, EdgeTally, PlanetEdgeSettings
from isocast.terms.instants import MILLISECOND

EARTH = Surface.EARTH
ALL = np.arange(60)


@pytest.fixture(scope="module")
def ground() -> Ground:
    return lay_out(small())


def world_of(ground: Ground, releases: Floats | None = None, **keys: object) -> EdgeInputs:
    settings = replace(PlanetEdgeSettings(reach_km=2_000, messages=3), **keys)  # type: ignore[arg-type]
    if releases is None:
        releases = np.zeros((settings.messages, len(ground.points)))
    return EdgeInputs(ground, settings, 1, releases, 5_000.0, 50_000.0)


def test_every_customer_is_counted_once(ground: Ground) -> None:
    tally = run_servers(world_of(ground), ALL)
    assert tally.total(CountColumn.CUSTOMERS) == 3_000
    assert (
        sum(tally.total(column) for column in (CountColumn.HEAR_NONE, CountColumn.HEAR_ONE, CountColumn.HEAR_TWO))
        == 3_000
    )
    assert int(tally.nearest.sum()) == int(tally.second.sum()) == 3_000
    heard = tally.total(CountColumn.HEAR_ONE) + 2 * tally.total(CountColumn.HEAR_TWO)
    assert int(tally.listeners.sum()) == heard
    delivered = tally.total(CountColumn.EXPECTED) - tally.total(CountColumn.NEVER)
    assert int(tally.delays.sum()) == delivered
    assert tally.total(CountColumn.LOST_ALL) == tally.total(CountColumn.REPAIRED) + tally.total(CountColumn.NEVER)


def test_the_lines_are_the_nearest_receivers_even_where_the_server_has_none_around(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few neighbours to look at first, every customer is unsure, and compared with everybody."""
    found: dict[str, EdgeTally] = {}
    for name, around in (("wide", ground.neighbours), ("narrow", ground.neighbours[:, :2])):
        km = EARTH.to_arc(np.linalg.norm(ground.points[around[:, -1]] - ground.points[around[:, 0]], axis=1))
        found[name] = run_servers(world_of(replace(ground, neighbours=around, neighbour_km=km)), ALL)
    assert np.array_equal(found["wide"].nearest, found["narrow"].nearest)
    assert np.array_equal(found["wide"].listeners, found["narrow"].listeners)
    seen: list[tuple[Floats, Floats]] = []
    real = edge_module._Region._nearest  # noqa: SLF001

    def watched(self: edge_module._Region, points: Floats):  # type: ignore[no-untyped-def]  # noqa: ANN202
        result = real(self, points)
        seen.append((points, result[1]))
        return result

    monkeypatch.setattr(edge_module._Region, "_nearest", watched)  # noqa: SLF001
    run_servers(world_of(ground), ALL)
    for points, km in seen:
        if len(points):
            assert km == pytest.approx(nearest(EARTH, ground.points, points, 2, np.inf)[1], abs=1e-6)


def test_the_greatest_of_all_servers_is_no_sum(ground: Ground) -> None:
    tally = run_servers(world_of(ground, loss=0.3), ALL)
    waves = [run_servers(world_of(ground, loss=0.3), ALL[[one]]).total(CountColumn.WAVE_MAX) for one in range(60)]
    assert tally.total(CountColumn.WAVE_MAX) == max(waves) < sum(waves)
    assert tally.total(CountColumn.DELAY_MAX) < 1_000 * MILLISECOND


def test_nobody_hears_a_line_beyond_its_reach(ground: Ground) -> None:
    wide, narrow = (run_servers(world_of(ground, reach_km=reach), ALL) for reach in (2_000, 150))
    assert narrow.total(CountColumn.HEAR_TWO) < wide.total(CountColumn.HEAR_TWO)
    within = int(narrow.nearest[:150].sum())
    assert 3_000 - narrow.total(CountColumn.HEAR_NONE) == pytest.approx(within, abs=1)


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("lines", [1, 2, 3])
def test_what_all_lines_lose_is_lost(ground: Ground, lines: int, tree: bool) -> None:  # noqa: FBT001
    """p on one line and p² on two, whether neighbourhoods lose together or not: lines are different trees."""
    tally = run_servers(world_of(ground, lines=lines, loss=0.2, tree=tree, messages=40, reach_km=20_000), ALL)
    expected = tally.total(CountColumn.EXPECTED)
    crowd = 4 if tree else 1
    for column, share in ((CountColumn.LOST_NEAREST, 0.2), (CountColumn.LOST_ALL, 0.2**lines)):
        tolerance = 4 * sqrt(crowd * expected * share)
        assert tally.total(column) == pytest.approx(expected * share, abs=tolerance)


def test_a_neighbourhood_loses_together() -> None:
    """Customers of one cell lack the same message more often than strangers: more requests for one at once."""
    crowded = lay_out(small(customers={"cities": ["London"], "spread": 10, "rural": 0.001}))
    keys: dict[str, Any] = {"loss": 0.1, "messages": 40, "lines": 1, "reach_km": 20_000}
    alone, together = (run_servers(world_of(crowded, tree=tree, **keys), ALL) for tree in (False, True))
    assert together.total(CountColumn.WAVE_MAX) > 1.5 * alone.total(CountColumn.WAVE_MAX)


def test_deliveries_by_the_deadline_follow_the_formula(ground: Ground) -> None:
    releases = np.random.default_rng(1).uniform(-5e6, 5e6, (8, 60))
    keys = {"deadline_ns": 8 * MILLISECOND, "jitter_ns": 3 * MILLISECOND, "messages": 8, "retries_max": 0}
    tally = run_servers(world_of(ground, releases, loss=0.1, **keys), ALL)
    expected = tally.total(CountColumn.EXPECTED_DIRECT) / 1e6
    missing = tally.total(CountColumn.EXPECTED) - expected
    assert tally.total(CountColumn.IN_TIME_DIRECT) == pytest.approx(expected, abs=4 * sqrt(missing))
    assert missing > 1_000
    assert tally.total(CountColumn.IN_TIME) == tally.total(CountColumn.IN_TIME_DIRECT), (
        "nobody asks, so nobody is repaired"
    )
    assert tally.total(CountColumn.NEVER) == tally.total(CountColumn.LOST_ALL)


def test_a_receiver_that_never_releases_is_a_silent_line(ground: Ground) -> None:
    """Its customers have another; those who have none are repaired."""
    releases = np.full((3, 60), np.inf)
    tally = run_servers(world_of(ground, releases, loss=0.0), ALL)
    assert tally.total(CountColumn.LOST_ALL) == tally.total(CountColumn.EXPECTED)
    releases[:, ::2] = 0.0
    half = run_servers(world_of(ground, releases, loss=0.0), ALL)
    assert 0 < half.total(CountColumn.LOST_ALL) < tally.total(CountColumn.LOST_ALL)
    assert half.total(CountColumn.NEVER) == 0


def test_who_is_counted_together_changes_nothing(ground: Ground) -> None:
    world = world_of(ground, loss=0.2, tree=True)
    whole = run_servers(world, ALL)
    parts = run_servers(world, ALL[40:]).add(run_servers(world, ALL[:7]).add(run_servers(world, ALL[7:40])))
    for name in ("servers", "table", "listeners", "delays", "nearest", "second"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name)), name


# ---- repairs


def gaps_of(ask_ms: list[float], way_ms: float = 1.0, cells: list[int] | None = None) -> CustomerGaps:
    count = len(ask_ms)
    return CustomerGaps(np.array(ask_ms) * 1e6, np.full(count, way_ms * 1e6), np.array(cells or [0] * count))


def test_one_request_serves_all_and_spares_those_whose_patience_is_not_over() -> None:
    settings = PlanetEdgeSettings(loss=0.0, jitter_ns=0.0)
    done = repair(np.random.default_rng(1), gaps_of([50, 51, 51.9, 52.1, 60]), settings, 0.0, 1)
    assert (done.requests, done.repairs) == (3, 1), "the answer is there at 52 ms"
    assert done.got_ns.tolist() == [52e6] * 5


def test_requests_are_repeated_until_an_answer_comes_or_k_r_is_reached() -> None:
    settings = PlanetEdgeSettings(loss=0.5, jitter_ns=0.0, retries_max=3)
    got, requests = 0, 0
    for seed in range(2_000):
        done = repair(np.random.default_rng(seed), gaps_of([50]), settings, 0.5, 1)
        got += int(np.isfinite(done.got_ns[0]))
        requests += done.requests
        if np.isfinite(done.got_ns[0]):
            assert (done.got_ns[0] - 52e6) % settings.retry_ns == 0
    # Both ways must pass: a quarter for each attempt.
    assert got / 2_000 == pytest.approx(1 - 0.75**3, abs=4 * 0.5 / sqrt(2_000))
    assert requests / 2_000 == pytest.approx(1 + 0.75 + 0.75**2, abs=0.08)


def test_a_repair_that_is_lost_on_the_way_to_a_neighbourhood_is_lost_for_all_of_it() -> None:
    settings = PlanetEdgeSettings(loss=0.5, tree=True, jitter_ns=0.0, retries_max=1)
    for seed in range(50):
        done = repair(np.random.default_rng(seed), gaps_of([50] * 40, cells=[0] * 20 + [1] * 20), settings, 0.3, 2)
        for part in (done.got_ns[:20], done.got_ns[20:]):
            # Twenty leaves do not all fail by themselves: 0.3^20.
            share = float(np.isfinite(part).mean())
            assert share == 0 or share > 0.2


def test_nobody_lacks_anything() -> None:
    done = repair(np.random.default_rng(1), gaps_of([]), PlanetEdgeSettings(), 0.01, 1)
    assert (done.requests, done.repairs, len(done.got_ns)) == (0, 0, 0)


# ---- distributions


def test_quantiles_of_bins() -> None:
    bins = Bins(0.0, 1.0, 10)
    counts = bins.tally(np.array([0.5, 1.5, 1.6, 8.2, -3.0, 99.0]))
    assert counts.tolist() == [2, 2, 0, 0, 0, 0, 0, 0, 1, 1]
    assert [bins.quantile(counts, share) for share in (0.01, 0.5, 0.51, 1.0)] == [1.0, 2.0, 2.0, 10.0]
    assert np.isnan(bins.quantile(np.zeros(10, dtype=np.int64), 0.5))
    assert DELAYS.tally(np.array([np.inf]))[-1] == DISTANCES.tally(np.array([np.inf]))[-1] == 1
