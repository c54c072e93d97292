"""Wrong clocks that stay stop nobody else (L7): the cases that once stopped the market, and each rule switched off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.simulation.worlds import run

from isocast.checks.facts import Suspected, TokenSent
from isocast.simulation.mutants import MUTANTS
from isocast.simulation.scenario import load_scenario
from isocast.simulation.swarm import build_of
from isocast.simulation.timed import TimedRun
from isocast.wire.packets import Suspicion

FOLDER = Path(__file__).parents[2] / "scenarios" / "clocks"
FILES = sorted(FOLDER.glob("*.toml"))
SERVERS = [file for file in FILES if file.name.startswith("server")]
DEAD = {"kind": "crash", "at": 1.0, "sites": [2]}


def ran(file: Path, mutant: str | None = None) -> TimedRun:
    found = TimedRun(load_scenario(file), 1, build_of(mutant))
    found.run()
    return found


def wrong(node: object, step: float, at: float = 0.5, **keys: Any) -> dict[str, Any]:  # noqa: ANN401 (of a fault)
    return {"kind": "clock-step", "at": at, "sites": [node], "step": step} | keys


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_a_kept_case_holds(file: Path) -> None:
    found = ran(file)
    assert found.violations() == []
    assert found.recorder.rings <= 5, "not one ring after the other"


@pytest.mark.parametrize("file", SERVERS, ids=lambda file: str(file.stem))
def test_a_server_with_a_wrong_clock_forms_the_next_ring_at_once(file: Path) -> None:
    """Protocol §5: from the ballot to the first token within its bound, by the clocks of the voters."""
    found = ran(file)
    first, second = found.world.rings
    assert first.ballot.server == second.ballot.server
    assert second.start < 2.0e9 + 3 * found.timing.reformation_ns


@pytest.mark.parametrize("file", [file for file in SERVERS if "hour" in file.name], ids=lambda file: str(file.stem))
def test_by_its_own_clock_a_server_would_stop_the_market_unless_another_takes_over(file: Path) -> None:
    """Two rules, either of which saves this market: T0 by the voters' clocks, and turns that pass on."""
    assert ran(file, "start-by-own-clock").violations() == []
    assert {violation[:2] for violation in ran(file, "fruitless-server-first").violations()} == {"L7"}


@pytest.mark.parametrize("step", [-3600.0, -0.2, 3.0])
def test_where_every_server_is_wrong_the_voters_clocks_suffice(step: float) -> None:
    faults = (wrong("server1", step), DEAD)
    assert run(*faults, messages=100).violations() == []
    stopped = run(*faults, messages=100, build=MUTANTS["start-by-own-clock"].build).violations()
    assert {violation[:2] for violation in stopped} == {"L7"}


@pytest.mark.parametrize("step", [-3600.0, -3.0, -0.2, 0.2, 3.0, 3600.0])
def test_a_receiver_with_a_wrong_clock_stays_off_the_ring_and_stops_nobody(step: float) -> None:
    found = run(wrong(1, step), DEAD, receivers=5, messages=100, one_way_delay=0.005)
    assert found.violations() == []
    assert 1 not in found.world.rings[-1].ring
    assert found.recorder.rings <= 6


def test_two_wrong_receivers_and_a_wrong_server_stop_nobody() -> None:
    found = run(wrong(1, 3600.0), wrong(2, -0.3), wrong("server1", -60.0), receivers=5, messages=100)
    assert found.violations() == []
    assert sorted(found.world.rings[-1].ring) == [3, 4, 5]


def test_whom_the_server_did_not_hear_complain_of_a_clock_complains_again() -> None:
    """Seed 887: two of three found the third's tokens early, and released nothing; the word of one was lost."""
    unheard = {"kind": "one-way", "at": 0.4, "until": 1.2, "groups": [[1], ["server1"]]}
    found = run(wrong(3, 0.015), unheard, messages=100)
    assert found.violations() == []
    assert sorted(found.world.rings[-1].ring) == [1, 2]


def test_a_receiver_whose_clock_is_right_again_comes_back() -> None:
    found = run(wrong(1, 3600.0, until=1.5), receivers=5, messages=600)
    assert found.violations() == []
    assert sorted(found.world.rings[-1].ring) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("rate", [-0.05, 0.05])
def test_a_server_whose_clock_runs_away_stops_nobody(rate: float) -> None:
    drift = {"kind": "clock-drift", "at": 0.0, "sites": ["server1"], "rate": rate}
    assert run(drift, DEAD | {"at": 3.0}, messages=300).violations() == []


def test_a_wrong_clock_is_let_in_again_more_and_more_seldom() -> None:
    """Each time costs everybody a ballot: the spans between rings grow."""
    found = run(wrong(1, 0.06), receivers=5, messages=3_000, one_way_delay=0.005)
    assert found.violations() == []
    assert found.recorder.rings <= 8


def test_an_owner_whose_clock_was_ahead_for_a_moment_answers_for_every_slot() -> None:
    """F3: every token of its own after that moment is sent, or it says why not."""
    facts: list[object] = []
    found = TimedRun(load_scenario(FOLDER / "receiver-ahead-for-a-moment.toml"), 1, transcript=facts.append)
    found.run()
    ring = found.world.rings[0]
    sent = {fact.token_number for fact in facts if isinstance(fact, TokenSent) and fact.site == 2}
    said = {
        fact.token_number
        for fact in facts
        if isinstance(fact, Suspected) and fact.site == 2 and fact.reason in (Suspicion.LATE, Suspicion.BEHIND)
    }
    owned = [number for number in range(1, 30) if ring.ring[(number - 1) % 3] == 2]
    assert set(owned) <= sent | said
    skipped = ran(FOLDER / "receiver-ahead-for-a-moment.toml", "skipped-slots").violations()
    assert skipped[0].startswith("F3")
