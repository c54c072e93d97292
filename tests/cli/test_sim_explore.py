"""`isocast sim explore`: what is printed, and which code is returned."""

import json
from typing import Any

import pytest

from isocast.cli import sim as sim_explore
from isocast.cli.main import main
from isocast.simulation.exploration import properties as rules
from isocast.simulation.exploration.properties import Bounds

TINY = ("sim", "explore", "--sites", "2", "--servers", "1", "--tokens", "1")


def run(*arguments: str) -> int:
    return main([*arguments])


def test_the_full_rules_are_safe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*TINY) == 0
    text = capsys.readouterr().out
    assert "All interleavings, full rules" in text
    assert "Safe: nothing is broken in all of them." in text


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*TINY, "--json") == 0
    verdict: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert {"sites", "tokens", "states", "transitions", "depth", "exhausted", "violations"} <= set(verdict)
    assert (verdict["sites"], verdict["tokens"], verdict["exhausted"]) == (2, 1, True)
    assert verdict["violations"] == []


def test_a_mutant_is_found_with_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("sim", "explore", "--servers", "1", "--tokens", "1", "--mutant", "epochs-only")
    assert run(*arguments, "--json") == 1
    (violation,) = json.loads(capsys.readouterr().out)["violations"]
    assert violation["property"] == "agreement"
    assert len(violation["trace"]) == 6
    assert run(*arguments) == 1
    text = capsys.readouterr().out
    assert (
        "BROKEN: agreement: sequence 1 is source1/1 at site1 and source2/1 at site2. A shortest trace, 5 steps:" in text
    )
    assert "   1. site1's clock goes on; site1 sends token 1 of epoch 1.1" in text


def test_a_limit_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*TINY, "--states-max", "10") == 0
    assert "so far; not all were visited" in capsys.readouterr().out


def test_an_unknown_mutant_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sim", "explore", "--mutant", "epoch-only") == 2
    assert "epochs-only" in capsys.readouterr().err


def test_unreduced_searches_visit_more(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TINY, "--json")
    few = json.loads(capsys.readouterr().out)["states"]
    run(*TINY, "--json", "--unreduced")
    assert json.loads(capsys.readouterr().out)["states"] > few


def test_all_mutants_make_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("epochs-only", "paper-literal")
    monkeypatch.setattr(rules, "RULES", {name: rules.RULES[name] for name in names})
    monkeypatch.setattr(rules, "FOUND_AT", dict.fromkeys(names, Bounds(servers=1, tokens=1)))
    assert run(*TINY, "--all-mutants") == 0
    text = capsys.readouterr().out
    assert "Every mutant, and the full rules" in text
    for name in (*names, "full rules"):
        assert any(line.startswith(name) for line in text.splitlines())
    assert run(*TINY, "--all-mutants", "--json") == 0
    assert [verdict["mutant"] for verdict in json.loads(capsys.readouterr().out)] == [*names, None]


def test_a_mutant_that_is_not_found_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "RULES", {"greatest-held": rules.RULES["greatest-held"]})
    monkeypatch.setattr(rules, "FOUND_AT", {"greatest-held": Bounds(sites=2, servers=1, tokens=1)})
    assert run(*TINY, "--all-mutants") == 1
    assert "greatest-held" in capsys.readouterr().out


def test_a_long_search_tells_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_explore, "_TOLD_EVERY_S", 0.0)
    run(*TINY)
    assert "states at depth 0" in capsys.readouterr().err
