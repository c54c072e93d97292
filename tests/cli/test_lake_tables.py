"""What `isocast lake run` says of the tables it has filled."""

from __future__ import annotations

import json

import pytest

from isocast.cli.lake_tables import _show
from isocast.lake.pipeline_stages import PipelineReport

COUNTS = {
    "trades": 235,
    "crossed": 57_000,
    "one_sided": 400,
    "unquoted": 39,
    "locked": 5,
    "stale": 0,
    "unrealised": 1,
}


def test_spreads_are_told_with_what_they_leave_out(capsys: pytest.CaptureFixture[str]) -> None:
    _show(PipelineReport(events=7, batches=1, spreads=COUNTS), json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "Spreads of 235 of 57,674 trades; without one: 57,000 crossed, 400 one-sided, 39 unquoted" in said
    assert "of those with one: 5 locked, 1 unrealised." in said
    _show(PipelineReport(spreads=COUNTS), json=True)
    assert json.loads(capsys.readouterr().out)["spreads"] == COUNTS


def test_a_lake_without_spreads_says_nothing_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    _show(PipelineReport(events=7, batches=1), json=False)
    assert "Spreads" not in capsys.readouterr().out
