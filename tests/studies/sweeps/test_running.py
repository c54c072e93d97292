"""The runs of a sweep, their means, and their table."""

from __future__ import annotations

import csv
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from isocast.simulation.run import run_scenario
from isocast.simulation.scenario import scenario_from_mapping
from isocast.studies.spreading import Spreading
from isocast.studies.sweeps import sweep as running
from isocast.studies.sweeps.summary import interval, summarise
from isocast.studies.sweeps.sweep import (
    FIGURES,
    RunStatus,
    Sweep,
    SweepResult,
    check_table,
    columns,
    run_sweep,
    write_table,
)
from isocast.terms.errors import ConfigurationError

SMALL = Sweep(
    "small.toml",
    "Small",
    {"receivers": 3, "messages": 60, "servers": 1, "loss": 0.1, "retries_max": 6},
    {"loss": (0, 0.1, 1.5)},
    (1, 2),
)


@pytest.fixture(scope="module")
def result() -> SweepResult:
    return run_sweep(SMALL, Spreading(jobs=1))


def test_a_row_is_what_the_simulator_says(result: SweepResult) -> None:
    row = result.rows[3]
    assert (row.point, row.seed, row.status) == ((0.1,), 2, RunStatus.SAFE)
    report = run_scenario(scenario_from_mapping(SMALL.mapping((0.1,))), 2)
    assert row.digest == report.trace_digest
    assert row.figures == {name: getattr(report, name) for name in FIGURES}


def test_a_point_that_no_scenario_can_have_is_a_row_with_its_reason(result: SweepResult) -> None:
    for row in result.rows[4:]:
        assert row.status is RunStatus.FAILED
        assert row.reason.startswith("loss: must be a probability")
        assert row.figures == {}
    assert (result.count(RunStatus.SAFE), result.count(RunStatus.FAILED)) == (4, 2)


def test_a_machine_that_raises_is_a_row_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(running, "run_scenario", broken)
    rows = run_sweep(SMALL, Spreading(jobs=1)).rows
    assert rows[0].reason == "ZeroDivisionError: of all things"
    assert {row.status for row in rows} == {RunStatus.FAILED}


def test_a_violation_is_told_and_its_figures_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    real = run_scenario

    def unsafe(*arguments: object) -> object:
        report = real(*arguments)  # type: ignore[arg-type]
        report.violations.append("S1: two messages at one place")
        return report

    monkeypatch.setattr(running, "run_scenario", unsafe)
    row = run_sweep(SMALL, Spreading(jobs=1)).rows[0]
    assert (row.status, row.reason) == (RunStatus.VIOLATED, "S1: two messages at one place")
    assert row.figures["tokens"] > 0


def test_processes_change_nothing(result: SweepResult) -> None:
    assert run_sweep(SMALL, Spreading(jobs=2)).rows == result.rows


def test_means_over_seeds_leave_failures_out(result: SweepResult) -> None:
    quiet, lossy, impossible = summarise(result)
    assert quiet.figures["nacks_per_token"].mean == quiet.figures["nacks_per_token"].high == 0
    values = [row.figures["nacks_per_token"] for row in result.rows[2:4]]
    found = lossy.figures["nacks_per_token"]
    assert found.mean == pytest.approx(np.mean(values))
    assert found.high - found.mean == pytest.approx(12.706 * np.std(values, ddof=1) / sqrt(2))
    assert (impossible.failed, impossible.figures) == (2, {})
    assert impossible.reason.startswith("loss:")


@pytest.mark.parametrize("count", [3, 10, 31, 60])
def test_an_interval_holds_the_mean_95_times_of_100(count: int) -> None:
    random = np.random.default_rng(1)
    hits = 0
    for _ in range(2_000):
        found = interval(random.normal(5.0, 2.0, count).tolist())
        hits += found.low <= 5.0 <= found.high
    assert hits / 2_000 == pytest.approx(0.95, abs=4 * sqrt(0.95 * 0.05 / 2_000))


def test_one_run_has_no_interval() -> None:
    assert interval([3.0]) == interval([3.0, 3.0][:1])
    assert (interval([3.0]).low, interval([3.0]).high) == (3.0, 3.0)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_table_has_a_row_for_each_run(kind: str, result: SweepResult, tmp_path: Path) -> None:
    path = tmp_path / f"table.{kind}"
    check_table(path)
    write_table(result, path)
    if kind == "csv":
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        pq = pytest.importorskip("pyarrow.parquet")
        rows = pq.read_table(path).to_pylist()
    assert len(rows) == 6
    assert [str(row["status"]) for row in rows] == ["safe"] * 4 + ["failed"] * 2
    assert float(rows[2]["nacks_per_token"]) == result.rows[2].figures["nacks_per_token"]
    assert float(rows[2]["loss"]) == 0.1
    assert not rows[5]["nacks_per_token"]


def test_a_key_that_is_also_a_figure_keeps_its_name() -> None:
    sweep = Sweep("x", "", {"receivers": 2, "servers": 1}, {"messages": (10,)}, (1,))
    table = columns(run_sweep(sweep, Spreading(jobs=1)))
    assert table["messages"] == [10]
    assert table["messages_measured"] == [10.0]


@pytest.mark.parametrize("name, rule", [("table.xls", "must end in"), ("nowhere/table.csv", "no directory")])
def test_a_table_that_cannot_be_is_refused_beforehand(name: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        check_table(tmp_path / name)
