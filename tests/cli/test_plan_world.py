"""`isocast plan world` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isocast.cli import plan_world, sheet
from isocast.cli.main import main
from isocast.cli.plan_world import run_world
from isocast.cli.world_options import WorldOptions

PLANET = """
title = "Test"
[receivers]
count = 60
primaries = 6
relax = 0
[customers]
count = 3_000
[times]
clock_error = "5ms"
[core]
batch = 5
loss_model = "tree"
branches = 3
tokens = 16
nack_sets = 2
[edge]
loss = 0.05
messages = 2
"""


@pytest.fixture
def planet(tmp_path: Path) -> str:
    file = tmp_path / "planet.toml"
    file.write_text(PLANET, encoding="utf-8")
    return str(file)


def test_tables_stand_beside_formulas(planet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "world", planet, "--jobs", "1", "--strict"]) == 0
    out = capsys.readouterr().out
    for text in ("NACKs of the ring per token", "NACK reduction", "largest skew, ms", "customers who hear two lines"):
        assert text in out
    assert "60 receivers, 6 of them on the ring; 3,000 customers; 16 tokens, 2 messages followed" in out


def test_one_json_object_whatever_the_processes(planet: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for jobs in ("1", "2"):
        assert main(["plan", "world", planet, "--jobs", jobs, "--json"]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]
    value = json.loads(found[0])
    assert value["counts"]["customers"] == 3_000


def test_counts_and_seed_from_the_command_line(planet: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--receivers", "30", "--customers", "500", "--tokens", "4", "--seed", "9", "--jobs", "1", "--json"]
    assert main(["plan", "world", planet, *words]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["receivers"], value["primaries"], value["customers"]) == (30, 3, 500)
    assert (value["tokens"], value["seed"]) == (4, 9)


def test_the_example_is_a_planet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "world", "--example"]) == 0
    file = tmp_path / "example.toml"
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["plan", "world", str(file), "--customers", "100", "--tokens", "4", "--jobs", "1", "--json"]) == 0


def test_pictures(planet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    png, svg = tmp_path / "world.png", tmp_path / "world.svg"
    words = ["plan", "world", planet, "--jobs", "1", "--png", str(png), "--svg", str(svg), "--width", "700"]
    assert main(words) == 0
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(png.read_bytes()[16:20]) == 700
    text = svg.read_text(encoding="utf-8")
    assert text.rstrip().endswith("</svg>")
    assert "dc:date" not in text, "the same run draws the same bytes, whatever the day"
    assert "Written:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, rule",
    [
        ([], "WORLD: is missing"),
        (["nowhere.toml"], "nowhere.toml: file: cannot be read"),
        (["x", "--customers", "0"], "--customers: must be from 1"),
        (["x", "--receivers", "1"], "--receivers: must be from 2"),
        (["x", "--jobs", "0"], "--jobs: must be at least 1"),
        (["x", "--jobs", "1000"], "--jobs: must be from 1 to 256"),
        (["x", "--width", "10"], "--width: must be from 600"),
        (["x", "--png", "nowhere/x.png"], "--png: there is no directory nowhere"),
        (["x", "--svg", "worlds"], "--svg: worlds is a directory"),
        (["x", "--partitions", "3"], "--partitions: is for --engine spark"),
        (["x", "--engine", "hadoop"], "Choose from"),
        (["worlds/land-10000.toml"], "is a world of `isocast plan coverage`"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(words: list[str], rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "world", *words]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1
    assert rule in got.err


def test_without_matplotlib_the_extra_is_named_before_anything_runs(
    planet: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sheet, "find_spec", lambda _: None)
    assert main(["plan", "world", planet, "--png", "x.png"]) == 2
    assert "isocast[plots]" in capsys.readouterr().err


def test_what_only_a_formula_says_was_not_drawn(planet: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A formula beside itself would always agree."""
    assert main(["plan", "world", planet, "--jobs", "1", "--json"]) == 0
    rows = {row["figure"]: row for row in json.loads(capsys.readouterr().out)["core"]}
    for name in ("NACKs per token, were all on one ring", "passes until all are certified"):
        assert rows[name]["expected"] > 0
        assert (rows[name]["got"], rows[name]["agrees"]) == (None, None)


@pytest.mark.parametrize("error", ["2ms", "3.35ms", "50ms"])
def test_no_bar_of_releases_reaches_beyond_the_clocks(error: str, planet: str, tmp_path: Path) -> None:
    """Bars end at ±ε, whatever ε is: one across the bound would show releases that never were."""
    figure = pytest.importorskip("matplotlib.figure")
    text = Path(planet).read_text(encoding="utf-8").replace('clock_error = "5ms"', f'clock_error = "{error}"')
    file = tmp_path / "clocks.toml"
    file.write_text(text, encoding="utf-8")
    run = run_world(file, WorldOptions(jobs=1, json=True))
    bound = run.report.run.world.core.timing.clock_error_ns / 1e6
    assert f"{bound:g}ms" == error
    axes = figure.Figure().add_subplot()
    plan_world._skew(axes, run.report)  # noqa: SLF001 - one panel of the sheet
    (bars,) = axes.patches
    heights, edges, _ = bars.get_data()
    assert heights.sum() == pytest.approx(100)
    shown = edges[:-1][heights > 0].min(), edges[1:][heights > 0].max()
    assert -bound - 1e-9 <= shown[0] < shown[1] <= bound + 1e-9
    spread = next(row for row in run.report.core if row.figure.startswith("spread of 98 %"))
    assert spread.got == pytest.approx(spread.expected, rel=0.05)


def test_a_figure_that_does_not_agree_is_exit_1_with_strict(
    planet: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from isocast.studies.planet import closed_forms  # noqa: PLC0415

    monkeypatch.setattr(closed_forms, "expected_skew_ns", lambda *_: 1e6)
    assert main(["plan", "world", planet, "--jobs", "1"]) == 0
    assert "NOT as the formulas say: mean skew" in capsys.readouterr().out
    assert main(["plan", "world", planet, "--jobs", "1", "--strict"]) == 1
