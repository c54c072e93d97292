"""`isocast sim show` as a user meets it: it runs, says what it saw, and draws on any terminal."""

import io
import os
import pty
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from isocast.cli.main import main
from isocast.cli.shipped import shipped
from isocast.cli.sim_scene import Scene
from isocast.cli.sim_show import beats, frame, next_steps, ten_cities, watch
from isocast.cli.world_map import MapLine, Mark, draw_map, height_for
from isocast.simulation.run import run_scenario
from isocast.simulation.scenario import Scenario, load_scenario, scenario_from_mapping
from isocast.simulation.timed import TimedRun
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.topology import CITIES

ROOT = Path(__file__).parents[2]
STORY = ROOT / "scenarios" / "ten-cities.toml"
INSTANTS = (0.1, 3.0, 9.0, 11.6, 18.3, 40.0)
FIRST = "first       London before Sydney in "


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(command.split()) == 0
    return capsys.readouterr().out


def story(sites: int | None = None) -> Scenario:
    """The story, perhaps in other cities."""
    if sites is None:
        return ten_cities()
    mapping = tomllib.loads(STORY.read_text(encoding="utf-8"))
    return scenario_from_mapping(mapping | {"ring": [place.name for place in CITIES[:sites]]})


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A scenario of some seconds."""
    file = tmp_path / "small.toml"
    cities = '["London", "Paris", "Frankfurt"]'
    file.write_text(f"ring = {cities}\nduration = 4.0\narrival_rate = 20.0\nloss = 0.02\n", encoding="utf-8")
    return file


def played(*seconds: float, sites: int | None = None) -> Iterator[tuple[Scene, TimedRun]]:
    """The story at some instants, the last of them perhaps beyond its end."""
    scene, run = watch(story(sites), seed=7)
    life = beats(scene, run)
    for instant in seconds:
        while scene.now < instant * SECOND and next(life, True) is None:
            pass
        yield scene, run


def drawn(scene: Scene, run: TimedRun, width: int, height: int) -> list[str]:
    out = io.StringIO()
    console = Console(
        file=out, width=width, height=height, color_system=None, force_terminal=True, legacy_windows=False
    )
    console.print(frame(scene, run, width, height))
    return out.getvalue().splitlines()


# ---- without a terminal


@pytest.mark.long
def test_the_story_keeps_its_promises(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("sim show", capsys)  # Not a terminal: lines.
    skew = re.search(r"skew +([\d.]+) ms at most between cities, bound 2ε = ([\d.]+) ms", out)
    latency = re.search(r"latency +([\d.]+) s on an unbroken ring, formula ([\d.]+) s", out)
    share = re.search(FIRST + r"([\d.]+) % of [\d,]+ pairs", out)
    assert skew
    assert 0 < float(skew[1]) <= float(skew[2])
    assert latency
    assert float(latency[1]) == pytest.approx(float(latency[2]), rel=0.05)
    assert share
    assert 44 < float(share[1]) < 57, "four standard deviations of a thousand pairs round 50.8 %"
    for said in (
        "seed 7",
        "London crashes, and token 10 is due from it",
        "The ring re-forms",
        "London is back",
        "Next:",
    ):
        assert said in out, said
    losses = re.search(r"losses +(\d+) packets lost, (\d+) repaired, none missing,(?: (\d+) still awaited,)?", out)
    assert losses
    assert int(losses[1]) == int(losses[2]) + int(losses[3] or 0)
    assert re.search(r"gaps +none", out)
    assert "no violation of safety" in out
    assert max(map(len, out.splitlines())) <= 110
    report = run_scenario(load_scenario(STORY), 7)
    assert f"digest of the trace {report.trace_digest}\n" in out, "watching changes nothing"


def test_any_scenario_of_the_timed_protocol_is_shown(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(f"sim show {small} --headless --seed 3", capsys)
    assert f"sim run {small} --seed 3" in out
    assert "a market in 3 cities" in out


def test_another_protocol_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    files = (ROOT / "scenarios" / "paper").glob("*.toml")
    original = next(file for file in files if load_scenario(file).protocol != "timed")
    assert main(["sim", "show", str(original)]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert "only the timed protocol is shown" in got.err
    assert got.err.count("\n") == 1


@pytest.mark.parametrize("option", ["--speed 0", "--seed -1", "--sites 3"])
def test_a_bad_option_is_one_line_and_exit_2(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "show", *option.split()]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1


def test_an_interrupted_run_still_sums_up(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    assert main(["sim", "show", str(small), "--headless", "--speed", "0.001"]) == 0
    out = capsys.readouterr().out
    assert "interrupted" in out
    assert "no violation so far" in out


def test_the_story_comes_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert replace(ten_cities(), file="") == replace(load_scenario(STORY), file="")
    monkeypatch.chdir(tmp_path)
    named = re.findall(r"scenarios/\S+", "".join(next_steps(None, 7)))
    assert len(named) == 2
    assert [name for name in named if not shipped(Path(name)).is_file()] == [], "no command that would not work here"


def test_a_file_of_ones_own_is_never_one_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for missing in ("quiet.toml", "scenarios/none.toml", "scenarios/../pyproject.toml", "src/isocast/__init__.py", ""):
        assert shipped(Path(missing)) == Path(missing)
    with pytest.raises(ConfigurationError, match=r'no such file; did you mean "owner-crash"\?'):
        shipped(Path("scenarios/owner-crsh.toml"))
    own = Path("scenarios/quiet.toml")
    assert shipped(own) != own
    own.parent.mkdir()
    own.write_text("", encoding="utf-8")
    assert shipped(own) == own


# ---- on a terminal


def test_a_frame_shows_every_city_the_token_and_the_verdict() -> None:
    wide: dict[float, str] = {}
    for instant, (scene, run) in zip(INSTANTS, played(*INSTANTS), strict=True):
        for width, height in ((100, 40), (80, 24)):
            lines = drawn(scene, run, width, height)
            assert len(lines) <= height
            assert max(map(len, lines)) <= width
            text = "\n".join(lines)
            for place in CITIES[:10]:
                assert f" {place.name} " in text
                assert place.code in text
            assert re.search(r"token +\d+, epoch ", text)
            assert re.search(r"violations +0", text)
            assert re.search(r"gaps +none", text)
            assert not [line for line in lines[:-2] if "…" in line], "nothing but the log may be cut"
            wide.setdefault(instant, text)
    assert "token 10 is missing, London down: the ring re-forms" in wide[11.6]
    assert "✖ down" in wide[11.6]
    assert "London outside the ring, catching up" in wide[18.3]
    assert "epoch 2.1" in wide[18.3]


@pytest.mark.parametrize("sites", [3, pytest.param(24, marks=pytest.mark.long)])
def test_any_size_of_terminal_and_ring_is_drawn(sites: int) -> None:
    for scene, run in played(0.1, 11.6, 18.3, sites=sites):
        for width, height in ((150, 50), (96, 34), (60, 15), (20, 5), (8, 2)):
            lines = drawn(scene, run, width, height)
            assert len(lines) <= height
            assert max(map(len, lines)) <= width


def test_a_terminal_gets_frames_and_then_the_summary(small: Path) -> None:
    command = "import sys; from isocast.cli.main import main; sys.exit(main(sys.argv[1:]))"
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", "PYTHONIOENCODING": "utf-8"}
    arguments = ["sim", "show", str(small), "--speed", "20"]
    with subprocess.Popen([sys.executable, "-c", command, *arguments], stdout=theirs, env=environment) as process:
        os.close(theirs)
        chunks = []
        with suppress(OSError):  # Linux says so when the other end has closed.
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)
    os.close(ours)
    text = b"".join(chunks).decode()
    shown, _, after = text.partition("\x1b[?1049l")
    assert process.returncode == 0
    assert "\x1b[?1049h" in shown, "the other screen, so that nothing of the user's is lost"
    assert "The world" in shown
    assert "no violation of safety" in after


def test_the_map_has_land_where_there_is_land() -> None:
    text = draw_map(72, height_for(72), [Mark(CITIES[0], "◆", "bold")], [MapLine(CITIES[0], CITIES[2], "green")]).plain
    rows = text.split("\n")
    assert (len(rows), {len(row) for row in rows}) == (14, {72})

    def at(latitude: float, longitude: float) -> str:
        return rows[int((78 - latitude) / 135 * 14)][int((longitude + 180) / 5)]

    for latitude, longitude in ((60, 100), (-10, -55), (10, 20), (-25, 135), (40, -100)):
        assert at(latitude, longitude) == "⣿"
    for latitude, longitude in ((0, -140), (-40, -20), (-30, 80)):
        assert at(latitude, longitude) == " "
    assert "◆NYC" in text
