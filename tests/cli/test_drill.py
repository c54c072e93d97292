"""`isocast drill` as a user meets it, without the processes: what it lists, refuses and draws."""

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from isocast.cli import drill_run
from isocast.cli.drill import drill as command
from isocast.cli.drill_run import bound_lines, outcome_lines, picture_lines, show_outcomes
from isocast.cli.main import main
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.trials.drill.cast import TIMINGS, DrillSettings
from isocast.trials.drill.run import DRILLS
from isocast.trials.drill.safety import Outcome, Picture, Safety

SOUND = Safety(lost=0, repeated=0, divergent=0, gaps=0, early=0)
PICTURE = Picture(0, SECOND, {"london": [4, 4, 0, 4], "tokyo": [4, 0, 0, 16]}, SECOND, 3 * SECOND)
GOOD = Outcome(
    drill="token-site",
    recovered=True,
    is_excused=False,
    safety=SOUND,
    messages=100,
    victims=1,
    detected_ns=120 * MILLISECOND,
    outage_ns=300 * MILLISECOND,
    ballot_to_token_ns=280 * MILLISECOND,
    bound_ns=360 * MILLISECOND,
    bound="4δ_N+grace+τ_t+2ε",
    ballots_ns=(280 * MILLISECOND,),
    why="",
    picture=PICTURE,
)


def answering(monkeypatch: pytest.MonkeyPatch, **outcomes: Outcome) -> None:
    """Drills that are over before they begin."""

    async def run(drill: object, *_: object) -> Outcome:
        name = getattr(drill, "name", "")
        return outcomes.get(name.replace("-", "_"), replace(GOOD, drill=name))

    monkeypatch.setattr(drill_run, "run_drill", run)


def test_the_list_says_what_each_drill_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "--list"]) == 0
    said = capsys.readouterr().out
    assert all(drill.name in said and drill.what in said for drill in DRILLS)
    assert main(["drill", "--list", "--json"]) == 0
    assert [one["drill"] for one in json.loads(capsys.readouterr().out)] == [drill.name for drill in DRILLS]


def test_a_drill_that_does_not_exist_is_refused_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "token-sit"]) == 2
    assert "there is no drill token-sit" in (said := capsys.readouterr().err)
    assert "token-site" in said
    assert "Traceback" not in said


def test_a_directory_that_is_not_empty_is_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "something").touch()
    assert main(["drill", "token-site", "--keep", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_the_profiles_of_the_command_are_those_of_the_drills() -> None:
    (profile,) = [one for one in command.assemble_argument_collection() if "--profile" in one.names]
    assert set(get_args(profile.hint)) == set(TIMINGS)


def test_drills_come_in_the_order_of_the_list_whatever_the_order_of_the_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(monkeypatch)
    assert main(["drill", "restart", "token-site", "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert [one["drill"] for one in found] == ["token-site", "restart"]
    assert shown.err == ""
    assert found[0] | {"why": None} == {
        "drill": "token-site",
        "passed": True,
        "detected_in": 0.12,
        "outage": 0.3,
        "lost": 0,
        "repeated": 0,
        "divergent": 0,
        "ballot_to_token": 0.28,
        "bound": 0.36,
        "within_bound": True,
        "bound_formula": "4δ_N+grace+τ_t+2ε",
        "gaps": 0,
        "early": 0,
        "messages": 100,
        "recovered": True,
        "ballots": [0.28],
        "why": None,
    }


def test_one_drill_that_fails_fails_the_run_and_the_table_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(monkeypatch, pause=replace(GOOD, drill="pause", safety=replace(SOUND, lost=3), why="3 lost"))
    assert main(["drill", "token-site", "pause"]) == 1
    said = capsys.readouterr().out
    assert "3 lost" in said
    (row,) = [line for line in said.splitlines() if line.startswith("pause ")]
    assert row.split() == [
        "pause",
        "FAILED",
        "0.120",
        "s",
        "0.300",
        "s",
        "3",
        "0",
        "0",
        "0.280",
        "s",
        "0.360",
        "s",
        "✓",
    ]


@pytest.mark.parametrize("spoilt", ["lost", "repeated", "divergent", "gaps", "early"])
def test_everything_that_must_be_zero_decides(spoilt: str) -> None:
    outcome = replace(GOOD, safety=replace(SOUND, **{spoilt: 1}))
    assert GOOD.passed
    assert not outcome.passed
    assert replace(outcome, is_excused=True).passed
    assert not replace(outcome, is_excused=True, recovered=False).passed
    assert not replace(GOOD, recovered=False).passed


def test_a_bound_that_was_missed_is_shown_and_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    late = replace(GOOD, ballot_to_token_ns=400 * MILLISECOND)
    assert late.passed
    show_outcomes([late, replace(GOOD, ballot_to_token_ns=None, detected_ns=None)])
    rows = capsys.readouterr().out.splitlines()
    assert rows[2].endswith("0.400 s          0.360 s  ✗")
    assert "–" in rows[3]
    assert late.as_json()["within_bound"] is False


def test_the_picture_has_a_row_for_each_site_and_marks_fault_and_end() -> None:
    assert picture_lines(PICTURE) == [
        "           ▼ △",
        "  london  ▅▅·▅",
        "  tokyo   ▅··█",
        "          ▼ fault  △ whole again; 1 s for each sign, · nothing",
    ]


def test_a_drill_that_never_came_to_its_fault_has_no_mark() -> None:
    assert picture_lines(replace(PICTURE, fault_at=0, whole_at=0))[0] == ""
    assert picture_lines(replace(PICTURE, rows={})) == []


def test_the_end_says_what_a_lost_site_cost_and_the_bound_in_symbols() -> None:
    longer = replace(GOOD, drill="pause", outage_ns=700 * MILLISECOND)
    several = replace(GOOD, drill="majority", outage_ns=4 * SECOND, victims=3, bound="all+τ_r", bound_ns=SECOND)
    said = bound_lines([GOOD, longer, several], DrillSettings())
    assert "  0.360 s = 4δ_N+grace+τ_t+2ε: token-site, pause" in said
    assert "  1.000 s = all+τ_r: majority" in said
    assert said[-1] == "A market of 5 sites that lost one went on after at most 0.700 s."
    assert "went on" not in bound_lines([several], DrillSettings())[-1]


def test_a_drill_says_why_it_failed() -> None:
    failed = replace(GOOD, recovered=False, why="not within 60 s: a ring without tokyo")
    assert outcome_lines(DRILLS[0], failed)[:3] == [
        "token-site: kill the token site just after it acknowledged",
        "  FAILED; detected in 0.120 s, outage 0.300 s",
        "  not within 60 s: a ring without tokyo",
    ]
