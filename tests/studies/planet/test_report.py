"""Every figure stands beside its formula, and one that does not agree is seen."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.studies.planet.worlds import small

from isocast.studies.planet.report import Beside, PlanetReport, page_figures, report
from isocast.studies.planet.settings import CountColumn
from isocast.studies.planet.study import PlanetRun, run_planet
from isocast.studies.spreading import Spreading

HERE = Spreading(jobs=1)


@pytest.fixture(scope="module")
def run() -> PlanetRun:
    more = {"core": {"tokens": 150, "nack_sets": 3}, "customers": {"count": 20_000}, "edge": {"reach": 2_000}}
    return run_planet(small(**more), HERE)


@pytest.fixture(scope="module")
def judged(run: PlanetRun) -> PlanetReport:
    return report(run)


def test_a_sound_planet_agrees_with_every_formula(judged: PlanetReport) -> None:
    rows = (*judged.core, *judged.coverage, *judged.edge)
    assert judged.disagreeing == ()
    agreeing = [row.figure for row in rows if row.agrees]
    assert len(agreeing) >= 7, agreeing


def test_reduction_costs_time_and_saves_requests(judged: PlanetReport) -> None:
    rows = {name: (plain, reduced) for name, plain, reduced in judged.reduction}
    for name in ("NACKs per token", "the most NACKs at one instant", "NACKs per lost packet, 99th percentile"):
        plain, reduced = rows[name]
        assert reduced is not None
        assert reduced < plain, name
    plain, reduced = rows["Δ_A, s"]
    assert reduced == pytest.approx(plain + 2 * judged.run.world.core.timing.token_period_ns / 1e9)


def test_a_planet_that_loses_more_than_it_says_is_found_out(run: PlanetRun) -> None:
    table = run.edge.table.copy()
    table[:, CountColumn.LOST_NEAREST] *= 2
    table[:, CountColumn.IN_TIME_DIRECT] -= table[:, CountColumn.EXPECTED] // 50
    core = replace(run.core, skews=run.core.skews * 2, ring=replace(run.core.ring, nacks=3 * run.core.ring.nacks))
    bad = report(replace(run, core=core, edge=replace(run.edge, table=table)))
    found = {row.figure for row in bad.disagreeing}
    assert found >= {
        "lost on the nearest line, %",
        "there by the deadline, by the lines alone, %",
        "largest skew, ms",
        "NACKs of the ring per token",
    }


def test_the_json_is_whole(judged: PlanetReport) -> None:
    value = json.loads(json.dumps(judged.as_json()))
    assert value["customers"] == 20_000
    assert value["counts"]["customers"] == 20_000
    assert {row["figure"] for row in value["core"]} >= {"NACKs of the ring per token", "largest skew, ms"}
    assert value["nack_sets"] == 3


def test_without_loss_nobody_asks() -> None:
    quiet = run_planet(small(core={"loss": 0.0, "nack_sets": 1}, edge={"loss": 0.0}), HERE)
    judged = report(quiet)
    assert quiet.core.ring.nacks == quiet.core.lower_nacks == quiet.edge.total(CountColumn.REQUESTS) == 0
    assert judged.disagreeing == ()
    assert all(reduced is None for _, _, reduced in judged.reduction)


@pytest.mark.parametrize(
    "row, agrees",
    [
        (Beside("", "", None, 3.0), None),
        (Beside("", "", 3.0, 3.1), None),
        (Beside("", "", 3.0, 3.1, 0.2), True),
        (Beside("", "", 3.0, 3.3, 0.2), False),
        (Beside("", "", 3.0, 2.0, bound=True), True),
        (Beside("", "", 3.0, 3.1, bound=True), False),
    ],
)
def test_what_agrees(row: Beside, agrees: bool | None) -> None:  # noqa: FBT001
    assert row.agrees is agrees


@pytest.mark.long
def test_the_figures_of_the_page_in_short() -> None:
    rows = page_figures(1, HERE, 300)
    assert [row.figure for row in rows if not row.agrees] == []
    assert len(rows) == 14
    first = [row.got for row in rows if row.figure == "London before Sydney"]
    assert first == [pytest.approx(share, abs=0.004) for share in (0.993, 0.600, 0.503)]


@pytest.mark.long
def test_the_figures_of_the_page_in_full() -> None:
    """8 million tokens for the false reformations of a ring of a hundred: a tenth is eight deviations."""
    assert [row for row in page_figures(1, Spreading(), 20_000) if not row.agrees] == []
