"""`isocast sim sweep` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isocast.cli.main import main


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "small.toml"
    file.write_text('title = "Small"\nreceivers = 3\nmessages = 60\nservers = 1\nretries_max = 6\n', encoding="utf-8")
    return str(file)


def test_a_table_of_means(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--vary", "loss=0,0.1", "--vary", "receivers=2,3", "--seeds", "1-3", "--jobs", "1"]
    assert main(["sim", "sweep", scenario, *words]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Small: 3 seeds, mean ± 95 %\nloss  receivers  ")
    assert "12 runs: safe 12, violated 0, failed 0." in out


def test_one_that_fails_is_a_row_and_exit_1(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "sweep", scenario, "--vary", "loss=0,2", "--seeds", "1", "--jobs", "1", "--json"]) == 1
    value = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in value["rows"]] == ["safe", "failed"]
    assert value["points"][1]["failed"] == 1
    assert value["points"][0]["figures"]["nacks_per_token"]["mean"] == 0


def test_tables_and_pictures_are_written(scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    files = [tmp_path / name for name in ("table.csv", "plot.png", "plot.svg")]
    options = [
        word for name, file in zip(("--out", "--png", "--svg"), files, strict=True) for word in (name, str(file))
    ]
    vary = ["--vary", "loss=0,0.05,0.1", "--vary", "gate=timed,majority", "--seeds", "1-2", "--jobs", "1"]
    assert main(["sim", "sweep", scenario, *vary, *options, "--figure", "nacks_per_token"]) == 0
    assert all(file.stat().st_size > 100 for file in files)
    assert "nacks/token" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, rule",
    [
        (["--vary", "los=1"], 'did you mean "loss"'),
        (["--seeds", "x"], "--seeds: must be like"),
        (["--figure", "nacks"], "unknown figure"),
        (["--out", "table.txt"], "--out: must end in"),
        (["--jobs", "0"], "--jobs: must be at least 1"),
        (["--master", "local[2]"], "--master: is for --engine spark"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    scenario: str, words: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "sweep", scenario, *words]) == 2
    got = capsys.readouterr()
    assert (got.out, got.err.count("\n")) == ("", 1)
    assert rule in got.err
