"""A trading floor in simulated worlds: every window in which an arbiter can be lost, and what a mistake would show."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tests.simulation.worlds import facts_of, first_breach, run, scenario

from isocast.checks.facts import (
    AgreedTrade,
    Fact,
    FloorConfirmed,
    FloorReported,
    FloorStepped,
    FloorTold,
    TokenSent,
)
from isocast.simulation.mutants import FLOOR_MUTANTS
from isocast.simulation.mutants.ring import Mutant
from isocast.simulation.swarm import world_of
from isocast.simulation.timed import TimedRun
from isocast.simulation.transcript import describe_fact
from isocast.terms.errors import ConfigurationError
from isocast.ticker.tape import Tape

FLOOR: dict[str, Any] = {"floor": True, "receivers": 4, "messages": 60}
PERIOD = 0.108
"""Of these worlds: token t is due at .024 + t periods, and released .108 later."""
LOST = 6
"""The token whose arbiter is lost, in the middle of trading."""
WINDOWS = 27
"""Thirds of a period from before its release on: release, report, the report's token, stability, confirmation."""
SEEDS = 8
"""Each mutant is caught within so many worlds of the swarm."""


def confirmed(facts: list[Fact]) -> dict[int, AgreedTrade]:
    """All that any site took for confirmed; no two differ."""
    found: dict[int, AgreedTrade] = {}
    for fact in facts:
        for trade in fact.trades if isinstance(fact, FloorConfirmed) else ():
            assert found.setdefault(trade.number, trade) == trade
    return found


def standing(run: TimedRun, *sites: int) -> set[tuple[int, int]]:
    assert run.world.floor is not None
    return {each for site, each in run.world.floor.standing(sites).items() if site in (0, *sites)}


def test_trades_are_confirmed_at_the_release_of_token_r_plus_m_less_1() -> None:
    run, facts = facts_of(**FLOOR)
    assert run.violations() == []
    found = [fact for fact in facts if isinstance(fact, FloorConfirmed)]
    assert len(found) > 20
    assert {fact.token_number - fact.reported for fact in found} == {3}
    made = [fact for fact in facts if isinstance(fact, FloorStepped) and fact.site == 1]
    assert sum(len(fact.trades) for fact in made) == len(confirmed(facts)) > 30
    told = [trade.number for fact in facts if isinstance(fact, FloorTold) for trade in fact.trades]
    assert told == list(range(1, len(confirmed(facts)) + 1))
    assert all(describe_fact(fact) for fact in facts)


def test_the_owner_of_a_token_is_its_arbiter() -> None:
    _, facts = facts_of(**FLOOR)
    owners = {fact.token_number: fact.site for fact in facts if isinstance(fact, TokenSent)}
    reports = [fact for fact in facts if isinstance(fact, FloorReported) and fact.trades]
    assert len(reports) > 5
    assert all(owners[fact.token_number] == fact.site for fact in reports)


@cache
def owner(token: int) -> int:
    """In a calm world."""
    _, facts = facts_of(**FLOOR)
    return next(fact.site for fact in facts if isinstance(fact, TokenSent) and fact.token_number == token)


@pytest.mark.parametrize("window", range(WINDOWS))
def test_an_arbiter_lost_in_any_window_loses_no_confirmed_trade(window: int) -> None:
    lost = owner(LOST)
    at = round((LOST + window / 3) * PERIOD + 0.1, 6)
    run, facts = facts_of({"kind": "crash", "at": at, "sites": [lost]}, **FLOOR)
    assert run.violations() == []
    left = [site for site in range(1, 5) if site != lost]
    trades = len(confirmed(facts))
    assert trades > 30
    assert standing(run, *left) == {(trades, trades)}
    told = [trade.number for fact in facts if isinstance(fact, FloorTold) for trade in fact.trades]
    assert told == list(range(1, trades + 1))


@pytest.mark.parametrize("window", range(0, WINDOWS, 2))
def test_one_survivor_and_a_forced_ring_bring_all_confirmed_trades_back(window: int) -> None:
    """Row 3 of the trading rules: U needs two sites, so that a new one joins the survivor."""
    survivor = owner(LOST) % 4 + 1
    at = round((LOST + window / 3) * PERIOD + 0.1, 6)
    lost = [site for site in range(1, 5) if site != survivor]
    run, facts = facts_of(
        {"kind": "crash", "at": at, "sites": lost},
        {"kind": "add", "at": at + 0.5, "sites": [5]},
        {"kind": "force", "at": at + 1.5, "sites": [survivor, 5]},
        **FLOOR,
    )
    assert run.violations() == []
    trades = len(confirmed(facts))
    before = {
        trade for fact in facts if isinstance(fact, FloorConfirmed) and fact.at < at * 1e9 for trade in fact.trades
    }
    there = [fact for fact in facts if isinstance(fact, FloorStepped) and fact.site == 5]
    assert before <= {trade for fact in there for trade in fact.trades}
    assert standing(run, survivor, 5) == {(trades, trades)}


@pytest.mark.parametrize("window", range(0, WINDOWS, 3))
def test_an_arbiter_that_comes_back_says_the_same(window: int) -> None:
    back = owner(LOST)
    at = round((LOST + window / 3) * PERIOD + 0.1, 6)
    run, facts = facts_of({"kind": "crash", "at": at, "until": at + 0.8, "sites": [back]}, **FLOOR)
    assert run.violations() == []
    trades = len(confirmed(facts))
    assert standing(run, 1, 2, 3, 4) == {(trades, trades)}


@pytest.mark.parametrize("mutant", FLOOR_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_is_caught(mutant: Mutant) -> None:
    for seed in (2, 1, *range(3, SEEDS + 1)):
        broken = first_breach(world_of(seed, floor=True), seed, mutant.build)
        if broken:
            assert broken.startswith("T"), broken
            return
    pytest.fail(mutant.rule)


@pytest.mark.parametrize(
    "keys",
    [
        {"archives": 1},
        {"reveal": "chain"},
        {
            "traders": ["London", "Sydney"],
            "ring": ["London", "Sydney", "Paris"],
            "receivers": None,
            "one_way_delay": None,
        },
    ],
)
def test_a_floor_needs_messages_of_its_own(keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="floor"):
        scenario(floor=True, **keys)


def test_without_the_key_there_is_no_floor() -> None:
    assert run(messages=10).world.floor is None


# ---- the tape


def on_tape(run: TimedRun, site: int) -> dict[int, tuple[int, int]]:
    """What a reader of the tape has of the floor: price and quantity of each trade, by number."""
    assert run.world.floor is not None
    tape = Tape()
    for events in run.world.floor.prints(site):
        tape.take(events)
    rows = tape.trades.all
    assert len(set(rows["id"].tolist())) == len(rows), "a trade counts once"
    return {int(row["id"]): (int(row["price"]), int(row["quantity"])) for row in rows}


@pytest.mark.parametrize("seed", range(6))
def test_every_confirmed_trade_is_on_the_tape_once_whatever_happens(seed: int) -> None:
    """Each receiver has a source of its own here, so that a print which is taken over is in the sequence twice."""
    away = {"kind": "crash", "at": 0.6 + seed / 10, "until": 1.8, "sites": [1 + seed % 4]}
    run, facts = facts_of(away, **FLOOR, seed=seed, loss=0.05)
    assert run.violations() == []
    made = {number: (trade.price, trade.quantity) for number, trade in confirmed(facts).items()}
    assert len(made) > 20
    for site in (1, 2, 3, 4):
        assert on_tape(run, site) == made
