"""`isocast sim` around the simulator: what is passed, what is printed, which code is returned.

The simulator itself is replaced: its own tests are elsewhere.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isocast.checks.facts import Crashed
from isocast.cli.keys_page import keys_page
from isocast.cli.main import main
from isocast.simulation.fault_keys import FAULT_KEYS, FAULT_KINDS
from isocast.simulation.scenario import Scenario
from isocast.simulation.scenario_keys import KEYS

ROOT = Path(__file__).parents[2]
FIGURES = {
    "seed": 7,
    "trace_digest": "abc",
    "protocol": "timed",
    "receivers": 10,
    "messages": 12345,
    "control_per_message": 0.0360123,
    "first_wins": {"London": 0.6, "Sydney": 0.4},
}


@dataclass
class Report:
    figures: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return self.figures


@dataclass
class State:
    done: int


@dataclass
class Mutant:
    name: str
    rule: str
    mistake: str


@dataclass
class Simulator:
    """Stands in for the simulator, and remembers what it was asked."""

    violations: list[str] = field(default_factory=list)
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def run(self, scenario: Scenario, seed: int, transcript: Callable[[Crashed], None] | None = None) -> Report:
        self.asked.append((scenario, seed))
        if transcript is not None:
            transcript(Crashed(1_500_000_000, 3))
        return Report(FIGURES | {"seed": seed, "violations": self.violations})

    def swarm(self, seeds: range, jobs: int, mutant: str | None, progress: Callable[[State], None]) -> Report:
        self.asked.append((seeds, jobs, mutant))
        progress(State(len(seeds)))
        return Report({"seeds": len(seeds), "violations": self.violations})


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Simulator:
    simulator = Simulator()
    modules: dict[str, dict[str, object]] = {
        "run": {"run_scenario": simulator.run},
        "swarm": {"run_swarm": simulator.swarm},
        "mutants": {"MUTANTS": {"free-early": Mutant("free-early", "keep until stable", "frees at the ack")}},
    }
    for name, contents in modules.items():
        module = ModuleType(f"isocast.simulation.{name}")
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return simulator


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "small.toml"
    file.write_text('title = "A small world"\nseed = 5\nreceivers = 4\n', encoding="utf-8")
    return str(file)


# ---- run


def test_run_takes_the_scenarios_seed_unless_told_otherwise(simulator: Simulator, scenario: str) -> None:
    assert main(["sim", "run", scenario]) == 0
    assert main(["sim", "run", scenario, "--seed", "0"]) == 0
    assert [seed for _, seed in simulator.asked] == [5, 0]
    assert simulator.asked[0][0].receivers == 4


@pytest.mark.usefixtures("simulator")
def test_run_prints_title_seed_and_figures(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sim", "run", scenario, "--seed", "12345"])
    out = capsys.readouterr().out
    assert out.startswith("A small world\n")
    assert "seed                         12345\n" in out
    assert "12,345" in out
    assert "London 0.6, Sydney 0.4" in out
    assert "Safe: no property was violated." in out


@pytest.mark.usefixtures("simulator")
def test_run_json_is_one_object_and_nothing_else(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sim", "run", scenario, "--json"])
    got = capsys.readouterr()
    assert json.loads(got.out) == FIGURES | {"seed": 5, "violations": []}
    assert got.err == ""


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["table", "json"])
def test_a_violation_is_exit_1_and_shown(
    form: list[str], simulator: Simulator, scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    simulator.violations = ["S1: sites 1 and 2 differ at sequence 9", *["S2"] * 30]
    assert main(["sim", "run", scenario, *form]) == 1
    assert "S1: sites 1 and 2 differ at sequence 9" in capsys.readouterr().out


@pytest.mark.usefixtures("simulator")
def test_a_transcript_goes_to_its_file(scenario: str, tmp_path: Path) -> None:
    file = tmp_path / "run.txt"
    assert main(["sim", "run", scenario, "--transcript", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == "      1.500000  crashed       site3\n"


def test_a_transcript_that_cannot_be_written_is_refused_before_the_run(
    simulator: Simulator, scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "run", scenario, "--transcript", str(tmp_path)]) == 2
    assert "--transcript: cannot write" in capsys.readouterr().err
    assert not simulator.asked


@pytest.mark.parametrize("text", ['protocol = "original"', 'exchange = "London"\ntraders = ["London", "Paris"]'])
def test_only_the_timed_protocol_writes_a_transcript(
    text: str, simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.toml"
    file.write_text(text, encoding="utf-8")
    assert main(["sim", "run", str(file), "--transcript", str(tmp_path / "run.txt")]) == 2
    assert "timed protocol only" in capsys.readouterr().err
    assert not simulator.asked


# ---- swarm and mutants


def test_swarm_passes_its_seeds_on(simulator: Simulator) -> None:
    assert main(["sim", "swarm", "--seeds", "3", "--first-seed", "10", "--jobs", "2"]) == 0
    assert simulator.asked == [(range(10, 13), 2, None)]


def test_swarm_with_a_failing_seed_is_exit_1(simulator: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    simulator.violations = ["seed 3: S1"]
    assert main(["sim", "swarm", "--seeds", "3", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["violations"] == ["seed 3: S1"]


def test_a_mutant_must_be_caught(simulator: Simulator) -> None:
    command = ["sim", "swarm", "--seeds", "3", "--mutant", "free-early"]
    assert main(command) == 1
    simulator.violations = ["seed 2: L1"]
    assert main(command) == 0


def test_an_unknown_mutant_is_refused(simulator: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "swarm", "--mutant", "free-erly"]) == 2
    assert 'did you mean "free-early"?' in capsys.readouterr().err
    assert not simulator.asked


@pytest.mark.usefixtures("simulator")
def test_mutants_are_listed_with_rule_and_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "mutants"]) == 0
    assert "free-early  keep until stable  frees at the ack" in capsys.readouterr().out
    assert main(["sim", "mutants", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "free-early"


# ---- keys


def test_keys_lists_and_explains_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "keys"]) == 0
    out = capsys.readouterr().out
    for key in (*KEYS, *FAULT_KEYS):
        assert f"\n{key.name} " in out
        assert key.explanation in out
    for kind in FAULT_KINDS:
        assert f"\n{kind} " in out


def test_keys_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "keys", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [key["name"] for key in listed["keys"]] == [key.name for key in KEYS]
    assert set(listed["fault_kinds"]) == set(FAULT_KINDS)


def test_the_reference_page_is_the_table_of_keys() -> None:
    """After a change of keys: isocast sim keys --markdown > docs/reference/scenarios.md."""
    page = ROOT / "docs" / "reference" / "scenarios.md"
    assert page.read_text(encoding="utf-8") == keys_page()


def test_the_page_lists_every_key_and_kind() -> None:
    page = keys_page()
    for key in (*KEYS, *FAULT_KEYS):
        assert f"| `{key.name}` |" in page
    for kind in FAULT_KINDS:
        assert f'| `"{kind}"` |' in page
