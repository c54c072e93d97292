"""What `isocast lake run` says of the tables it has filled."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from isocast.cli.lake_tables import LakeOptions, _show
from isocast.cli.main import main
from isocast.lake.pipeline_stages import PipelineReport, calendar_of
from isocast.lake.tables import Lake
from isocast.lake.transforms.exchanges import exchange_calendar
from isocast.terms.errors import ConfigurationError

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


def test_opaque_messages_are_told_where_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    _show(PipelineReport(events=7, messages=2, batches=1), json=False)
    assert "2 opaque messages and 7 events came in 1 batch" in capsys.readouterr().out
    _show(PipelineReport(events=7, batches=1), json=False)
    assert "opaque" not in capsys.readouterr().out


def test_a_lake_keeps_the_calendar_that_it_was_made_with(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    lake = Lake.create(place, LakeOptions(interval=("1d",), calendar="XNYS").settings(place))
    assert calendar_of(lake) == exchange_calendar("XNYS")
    assert Lake.create(place, LakeOptions().settings(place)).settings == lake.settings
    with pytest.raises(ConfigurationError, match="calendar: it was made with calendar = 'XNYS', not 'XLON'"):
        Lake.create(place, LakeOptions(calendar="XLON").settings(place))
    with pytest.raises(ConfigurationError, match="XNYS has a zone, hours and days of its own"):
        LakeOptions(session="09:30-16:00").settings(place)
    Lake.create(tmp_path / "plain", LakeOptions().settings(tmp_path / "plain"))
    kept = json.loads((tmp_path / "plain" / "lake.json").read_text(encoding="utf-8"))
    assert "calendar" not in kept["settings"], "programs that know no calendars read it"


@pytest.mark.parametrize("command", ["run", "stream"])
def test_a_lake_that_cannot_be_made_is_named_before_spark_starts(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("isocast.cli.lake_tables.lake_session", lambda *_: pytest.fail("Spark starts"))
    (tmp_path / "file").touch()
    words = ["lake", command, "--journals", str(tmp_path), "--lake", str(tmp_path / "file" / "lake")]
    assert main(words) == 2
    assert "lake: --lake: cannot be made: Not a directory" in capsys.readouterr().err


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "exchange_calendars", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'isocast\[calendars\]'"):
        exchange_calendar("XPAR")


def test_a_lake_without_spreads_says_nothing_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    _show(PipelineReport(events=7, batches=1), json=False)
    assert "Spreads" not in capsys.readouterr().out
