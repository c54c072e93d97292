"""`isocast sim` around the simulator: what is passed, what is printed, which code is returned.

Mostly the simulator itself is replaced: its own tests are elsewhere.
"""

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from isocast.checks.facts import Crashed
from isocast.cli.main import main
from isocast.cli.sim import keys_page
from isocast.simulation.mutants import MUTANTS
from isocast.simulation.scenario import Scenario
from isocast.simulation.scenario_keys import FAULT_KEYS, FAULT_KINDS, KEYS
from isocast.simulation.swarm import SeedResult, Shrunk, SwarmProgress, SwarmReport
from isocast.simulation.transcript import describe_fact

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

REPORTED = {
    "seed",
    "trace_digest",
    "protocol",
    "receivers",
    "messages",
    "tokens",
    "control_per_message",
    "nacks_per_token",
    "repairs_per_token",
    "receipts_per_token",
    "nacks_per_loss_p99",
    "false_reformations_per_token",
    "false_reformations_weighed_per_token",
    "last_requests",
    "latency_s_mean",
    "release_skew_ns_max",
    "fairness_faults",
    "first_wins",
    "violations",
}
"""What a program may rely on."""


@dataclass
class Report:
    figures: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return self.figures


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

    def swarm(
        self,
        seeds: range,
        jobs: int,
        mutant: str | None,
        progress: Callable[[SwarmProgress], None],
        *,
        lying: bool,
        floor: bool,
    ) -> SwarmReport:
        worlds = [name for name, chosen in (("liars", lying), ("floor", floor)) if chosen]
        self.asked.append((seeds, jobs, mutant, *worlds))
        progress(SwarmProgress(len(seeds), len(seeds), len(self.violations)))
        failures = [SeedResult(3, "abc", 1, 1, 1, 1, self.violations)] if self.violations else []
        world = {"receivers": 4, "title": "Zürich", "faults": [{"kind": "crash", "at": 1, "sites": [2]}]}
        shrunk = Shrunk(3, world, self.violations, ["1.000 crashed site2"]) if failures else None
        return SwarmReport(seeds.start, len(seeds), mutant, 9, 8, 7, 6, failures, "S1" if failures else None, shrunk)


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Simulator:
    simulator = Simulator()
    monkeypatch.setattr("isocast.simulation.run.run_scenario", simulator.run)
    monkeypatch.setattr("isocast.simulation.swarm.run_swarm", simulator.swarm)
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
    assert file.read_text(encoding="utf-8") == f"{describe_fact(Crashed(1_500_000_000, 3))}\n"


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


@pytest.mark.parametrize(
    "name",
    [
        "quiet",
        "owner-crash",
        "rolling-restart",
        "lost-disk",
        "clock-step",
        "disclosed-keys",
        *[
            pytest.param(name, marks=pytest.mark.long)
            for name in ("lossy-world", "partition", "secondaries", "lost-head", "ring-of-100")
        ],
    ],
)
def test_a_story_runs_as_written_and_is_safe(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["sim", "run", str(ROOT / "scenarios" / f"{name}.toml"), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["violations"] == []
    assert code == 0
    assert report.keys() >= REPORTED
    assert report["messages"] >= 800


# ---- swarm and mutants


def test_swarm_passes_its_seeds_on(simulator: Simulator) -> None:
    assert main(["sim", "swarm", "--seeds", "3", "--first-seed", "10", "--jobs", "2"]) == 0
    assert main(["sim", "swarm", "--seeds", "3", "--jobs", "2", "--floor"]) == 0
    assert simulator.asked == [(range(10, 13), 2, None), (range(1, 4), 2, None, "floor")]


def test_swarm_with_a_failing_seed_is_exit_1(simulator: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    simulator.violations = ["S1: sites differ"]
    assert main(["sim", "swarm", "--seeds", "3", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failures"][0]["violations"] == ["S1: sites differ"]


def test_a_failing_seed_is_shown_with_its_smallest_world(
    simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    simulator.violations = ["S1: sites differ"]
    assert main(["sim", "swarm", "--seeds", "3"]) == 1
    out = capsys.readouterr().out
    assert "seed 3: S1: sites differ" in out
    assert "1.000 crashed site2" in out
    _, _, rest = out.partition("fails so")
    text = rest.partition(":\n")[2].partition("What happened")[0]
    assert tomllib.loads(text)["faults"] == [{"kind": "crash", "at": 1, "sites": [2]}]


def test_a_failing_world_is_named_with_commands_that_run_it_again(
    simulator: Simulator, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    simulator.violations = ["S1: sites differ"]
    assert main(["sim", "swarm", "--seeds", "3"]) == 1
    out = capsys.readouterr().out
    assert "\nAgain: isocast sim swarm --first-seed 3 --seeds 1\n" in out
    command = out.partition("as FILE.toml, `isocast ")[2].partition("`")[0]
    file = tmp_path / "world.toml"
    file.write_text(out.partition("runs it:\n")[2].partition("What happened")[0], encoding="utf-8")
    assert main([str(file) if part == "FILE.toml" else part for part in command.split()]) == 1
    world, seed = simulator.asked[-1]
    assert (world.receivers, len(world.faults), seed) == (4, 1, 3)


@pytest.mark.long
def test_the_command_that_is_named_catches_the_mutant_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing stands in for the simulator here; `sim run` has no mutants, and is not named."""
    assert main(["sim", "swarm", "--seeds", "20", "--jobs", "1", "--mutant", "collect-one-early"]) == 0
    out = capsys.readouterr().out
    assert "sim run" not in out
    command = out.partition("\nAgain: isocast ")[2].partition("\n")[0]
    assert re.fullmatch(r"sim swarm --first-seed \d+ --seeds 1 --mutant collect-one-early", command)
    assert main(command.split()) == 0
    assert capsys.readouterr().out.partition("Caught by")[2] == out.partition("Caught by")[2]


def test_liars_worlds_are_asked_for_and_named(simulator: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    simulator.violations = ["S1: sites differ"]
    assert main(["sim", "swarm", "--seeds", "3", "--jobs", "1", "--liars"]) == 1
    assert simulator.asked == [(range(1, 4), 1, None, "liars")]
    assert "\nAgain: isocast sim swarm --first-seed 3 --seeds 1 --liars\n" in capsys.readouterr().out


def test_a_mutant_must_be_caught(simulator: Simulator) -> None:
    command = ["sim", "swarm", "--seeds", "3", "--mutant", "free-at-acknowledgement"]
    assert main(command) == 1
    simulator.violations = ["L1: lost"]
    assert main(command) == 0


def test_an_unknown_mutant_is_refused(simulator: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "swarm", "--mutant", "free-at-acknowledgment"]) == 2
    assert 'did you mean "free-at-acknowledgement"?' in capsys.readouterr().err
    assert not simulator.asked


def test_mutants_are_listed_with_their_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "mutants"]) == 0
    out = capsys.readouterr().out
    assert main(["sim", "mutants", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [mutant["name"] for mutant in listed] == list(MUTANTS)
    for mutant in MUTANTS.values():
        assert f"\n{mutant.name} " in out
        assert mutant.rule in out


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


def test_a_transcript_never_overwrites_its_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = tmp_path / "mine.toml"
    scenario.write_text("messages = 20\n", encoding="utf-8")
    assert main(["sim", "run", str(scenario), "--transcript", str(scenario)]) == 2
    assert "overwrite" in capsys.readouterr().err
    assert scenario.read_text(encoding="utf-8") == "messages = 20\n"


def test_a_full_disk_is_said_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scenario = tmp_path / "mine.toml"
    scenario.write_text("messages = 20\n", encoding="utf-8")
    assert main(["sim", "run", str(scenario), "--transcript", "/dev/full"]) == 3
    assert "No space left" in capsys.readouterr().err
