"""`isocast lab`: what it says, what it refuses, and a lab that is commanded from outside."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocast.cli.main import main
from isocast.runtime.market.example import example_text
from isocast.trials.lab.readiness import Check, check_machine, missing

PATIENCE_S = 60.0
WORLD = """
[sites]
newyork = "New York"
london = "London"

[[nodes]]
name = "sleeper"
site = "london"
command = ["sleep", "1000"]
"""


@pytest.fixture
def world(tmp_path: Path) -> str:
    file = tmp_path / "world.toml"
    file.write_text(WORLD, encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def machine() -> None:
    refused = missing(check_machine())
    if refused:
        pytest.skip(f"no lab on this machine: {refused}")


def checks(*, passed: bool) -> tuple[Check, ...]:
    return (
        Check("network namespaces", passed=passed, needed=True, found="refused", remedy="" if passed else "be root"),
        Check("real-time priority", passed=False, needed=False, found="not permitted", remedy="be root"),
    )


# ---- check


@pytest.mark.parametrize("passed, code", [(True, 0), (False, 1)])
def test_check_says_what_is_missing_and_what_to_change(
    passed: bool,  # noqa: FBT001
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("isocast.trials.lab.readiness.check_machine", lambda **_: checks(passed=passed))
    assert main(["lab", "check"]) == code
    out = capsys.readouterr().out
    assert ("A lab can run here." in out) == passed
    assert ("NO" in out) != passed
    assert main(["lab", "check", "--json"]) == code
    assert json.loads(capsys.readouterr().out)[0]["passed"] == passed


# ---- mistakes


@pytest.mark.parametrize(
    "command, rule",
    [
        ("heal", "needs two sites, or --all"),
        ("heal london", "needs two sites, or --all"),
        ("heal london tokyo --all", "needs two sites, or --all"),
        ("set london tokyo", "needs --delay, --jitter or --loss"),
        ("set london tokyo --delay 3", 'must be a time with its unit, such as 2ms, not "3"'),
        ("set london tokyo --loss 2", "Must be <= 1"),
        ("exec london", "give the command to run"),
        ("cut london tokyo --run none", "no lab runs in none"),
        ("status --run none", "no lab runs in none"),
        ("down --run none", "no lab runs in none"),
        ("run none.toml", "none.toml: file: cannot be read"),
        ("run none.toml --seconds 0", "Must be > 0"),
        ("up --config none.toml", "none.toml: file: cannot be read"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    command: str, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lab", *command.split()]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1
    assert rule in got.err


def test_a_jitter_without_a_unit_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "market.toml").write_text(example_text(), encoding="utf-8")
    assert main(["lab", "up", "--config", str(tmp_path / "market.toml"), "--jitter", "2"]) == 2
    assert "--jitter: must be a time with its unit" in capsys.readouterr().err


def test_a_bad_world_names_file_key_and_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[sites]\na = "Lundon"\n', encoding="utf-8")
    assert main(["lab", "run", str(file)]) == 2
    assert capsys.readouterr().err == f'isocast: {file}: sites.a: unknown city "Lundon"; did you mean "London"?\n'


def test_an_unknown_site_is_refused_before_anything_is_built(world: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", world, "--site", "londno", "--", "true"]) == 2
    assert 'did you mean "london"' in capsys.readouterr().err


# ---- a real one


@pytest.mark.usefixtures("machine")
def test_a_command_runs_at_its_site_and_gives_its_exit_code(
    world: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["sh", "-c", "cat /proc/net/fib_trie; exit 7"]
    assert main(["lab", "run", world, "--run", str(tmp_path / "run"), "--site", "london", "--", *command]) == 7
    got = capfd.readouterr()
    assert "10.77.2.1" in got.out
    assert "lab: 2 sites, 1 node;" in got.err
    assert "frames forwarded" in got.err


@pytest.mark.usefixtures("machine")
def test_a_command_ended_by_a_signal_gives_a_shells_exit_code(world: str, tmp_path: Path) -> None:
    command = ["sh", "-c", "kill -9 $$"]
    assert main(["lab", "run", world, "--run", str(tmp_path / "run"), "--", *command]) == 137


@pytest.mark.usefixtures("machine")
def test_a_market_runs_with_a_process_for_each_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a node does in there is its own test; here a stand-in says which node it was asked to be."""
    file = tmp_path / "market.toml"
    file.write_text(example_text(), encoding="utf-8")
    stand_in = "import sys; print(*sys.argv[1:])"

    def command(config: Path, name: str, *options: str) -> tuple[str, ...]:
        return (sys.executable, "-I", "-S", "-c", stand_in, str(config), name, *options)

    monkeypatch.setattr("isocast.runtime.operate.supervisor.node_command", command)
    run = tmp_path / "run"
    assert main(["lab", "up", "--config", str(file), "--loss", "0.01", "--run", str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    names = [node["name"] for node in report["nodes"]]
    assert "london" in names
    assert {node["state"] for node in report["nodes"]} == {"ended"}
    assert report["lab"]["forwards"].keys() == {"count", "p50_ns", "p99_ns", "max_ns"}
    for name in names:
        assert (run / f"{name}.log").read_text(encoding="utf-8") == f"{file} {name} --without-impairment\n"


def isocast(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isocast", *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=PATIENCE_S, check=False)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.usefixtures("machine")
def test_a_running_lab_is_commanded_by_others(world: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")

    def tell(*command: str) -> int:
        return main(["lab", *command, "--run", run])

    def told(*command: str) -> Any:  # noqa: ANN401  # JSON
        capsys.readouterr()
        assert tell(*command, "--json") == 0
        return json.loads(capsys.readouterr().out)

    lab = subprocess.Popen(
        [sys.executable, "-m", "isocast", "lab", "run", world, "--run", run],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with lab:
        assert lab.stderr is not None
        assert "control socket and output in" in lab.stderr.readline()
        eventually(lambda: tell("status") == 0)
        assert told("status")["nodes"][0]["state"] == "running"
        assert tell("cut", "london", "New York") == 0
        assert tell("set", "london", "newyork", "--delay", "9ms", "--one-way") == 0
        links = {link["here"]: link for link in told("status", "--links")["links"]}
        assert (links["london"]["cut"], links["london"]["delay_ns"]) == (True, 9_000_000)
        assert tell("heal", "--all") == 0
        for command, state in (("stop", "stopped"), ("continue", "running"), ("kill", "killed"), ("start", "running")):
            assert tell(command, "sleeper") == 0
            assert told("status")["nodes"][0]["state"] == state
        assert tell("kill", "slepper") == 2
        assert 'did you mean "sleeper"' in capsys.readouterr().err
        assert isocast("lab", "exec", "london", "--run", run, "--", "sh", "-c", "exit 5").returncode == 5
        second = isocast("lab", "run", world, "--run", run)
        assert (second.returncode, second.stdout) == (2, "")
        assert "a lab runs in" in second.stderr
        assert told("lateness")["frames_lost"] == 0
        assert tell("status", "--links") == 0
        assert "london → newyork" in capsys.readouterr().out
        assert tell("lateness") == 0
        assert "forwarding late: p50 / p99 / max" in capsys.readouterr().out
        assert tell("down") == 0
        out, _ = lab.communicate(timeout=PATIENCE_S)
    assert lab.returncode == 0
    assert "The lab itself" in out
    assert tell("status") == 2
