"""Each rule of the protocol switched off: the checkers catch every mutant, and by its own doing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.simulation.worlds import first_breach
from tests.swarm.test_swarm import LIARS_LONG as LIARS_JUDGED
from tests.swarm.test_swarm import LONG as JUDGED

from isocast.simulation.chaos import chaos
from isocast.simulation.mutants import (
    CHANGE_MUTANTS,
    CLOCK_MUTANTS,
    EDGE_MUTANTS,
    FLOOR_MUTANTS,
    LAYER_MUTANTS,
    LIAR_MUTANTS,
    MUTANTS,
    REVEAL_MUTANTS,
)
from isocast.simulation.swarm import run_seed, world_of

SEEDS = 500
"""Each mutant is caught within so many seeds, all but the rarest."""
QUICK = 40
"""Seeds that are tried where the known one no longer tells: a change of `chaos` gives each seed another world."""
KNOWN = {
    name: int(seed)
    for name, seed in (line.split() for line in Path(__file__).with_name("caught.txt").read_text("utf-8").splitlines())
}
"""The first seed that catches each mutant; of those that believe liars, a seed of a liars' world."""

RAREST = ("orphans-forgotten", "given-up-for-good")
"""A group loses its head, and a second fault follows within a few tokens: `tests.simulation.test_lost_heads` catches
them in worlds made for it, random ones seldom."""

DISCLOSED = tuple([mutant.name for mutant in REVEAL_MUTANTS])
"""Mutants of disclosed keys: random worlds have none, and `tests.simulation.test_reveals` catches each in its own."""

TRADING = tuple([mutant.name for mutant in FLOOR_MUTANTS])
"""Mutants of trading floors: likewise, and `tests.simulation.test_floor`."""

BELOW = tuple([mutant.name for mutant in LAYER_MUTANTS])
"""Mutants of what lies below the ring: only worlds with secondary receivers can tell."""


OPERATED = tuple([mutant.name for mutant in CHANGE_MUTANTS])
"""Mutants of planned changes: only worlds with an operator, or without a majority, can tell."""


TIMED = tuple([mutant.name for mutant in CLOCK_MUTANTS])
"""Mutants of what is done about wrong clocks: only worlds where one is wrong, for ever or for a moment, can tell."""
_MOMENT = 0.04

LIARS = tuple([mutant.name for mutant in LIAR_MUTANTS])
"""Mutants that believe liars: worlds in which somebody lies can tell."""

EDGE = tuple([mutant.name for mutant in EDGE_MUTANTS])
"""Mutants of customers, archives and secondary sources: only worlds with them can tell."""
_FORWARDING = ("outbox-in-memory", "forwarded-anew", "parent-repeats")
"""Those of secondary sources and their parents."""
_STRIPED = (
    "archived-is-sent-again",
    "rate-by-schedule-alone",
    "conflates-anything",
    "numbers-begin-anew",
    "stripe-gap-given-up",
)
"""Those of narrow stripes."""


def wrong(fault: dict[str, Any]) -> bool:
    """Whether a clock is wrong for ever, or for a moment."""
    lasts = fault["until"] - fault["at"] if "until" in fault else 0
    return fault["kind"].startswith("clock-") and lasts < _MOMENT


INSIDE = ("site-sends-first", "source-sends-first", "server-sends-first")
"""Mutants that only a crash between two effects of a step tells."""


def needed(name: str, fault: dict[str, Any]) -> bool:
    """Whether a fault is of the kind without which nothing tells a mutant from the product."""
    if name in INSIDE:
        return "inside" in fault
    if name in TIMED:
        return wrong(fault)
    match name:
        case "old-receipts":
            return str(fault["kind"]) == "late"
        case "reveal-unchecked" | "lie-by-reformation":
            return str(fault["kind"]) == "lie"
        case "start-ignores-the-cut":
            return str(fault["kind"]) == "clock-step"
        case "outbox-lost-unnoticed":
            return fault.get("disk") == "lost" and "source" in str(fault["sites"])
        case _:
            return True


def _key(name: str) -> str:
    """The key without which a world cannot tell a mutant of the edge."""
    if name in _STRIPED:
        return "stripe_senders"
    return "secondary_sources" if name in _FORWARDING else "archives"


def tells(name: str, seed: int) -> bool:
    """Whether a world can tell a mutant from the product."""
    if name in LIARS:
        return True
    world = chaos(seed)
    if name in EDGE and _key(name) not in world:
        return False
    faults: list[dict[str, Any]] = world["faults"]  # type: ignore[assignment]
    kinds = {fault["kind"] for fault in faults}
    if name in TIMED and not faults:
        return False
    if faults and not any(needed(name, fault) for fault in faults):
        return False
    operated = bool(kinds & {"drain", "add", "remove", "force"}) or "policy" in world
    return ("secondaries" in world or name not in BELOW) and (operated or name not in OPERATED)


def catches(seed: int, name: str) -> bool:
    """Whether the world of a seed under a mutant has violations."""
    return bool(first_breach(world_of(seed, lying=name in LIARS), seed, MUTANTS[name].build))


def caught(name: str, seeds: int) -> int | None:
    """The first seed that catches a mutant."""
    worlds = [seed for seed in range(1, seeds + 1) if tells(name, seed)]
    return next((seed for seed in worlds if catches(seed, name)), None)


SLOW = (
    "start-by-own-clock",
    "fruitless-server-first",
    "wrong-clocks-on-the-ring",
    "repair-asked-once",
    "heads-for-life",
    "install-before-fetching",
)
"""Their worlds take ten seconds or more, or five where `tests.simulation` catches the mutant in a small one, too."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * (name in SLOW))
        for name in MUTANTS
        if name not in (*RAREST, *DISCLOSED, *TRADING)
    ],
)
def test_a_mutant_is_caught_where_the_product_passes(name: str) -> None:
    """The very seed that catches the mutant must be clean without the mutation: else it proves nothing.

    `test_no_world_breaks_a_promise` and the long tests beside it say so of the first seeds, for all mutants at once,
    and the next test of the other known ones.
    """
    seed: int | None = KNOWN.get(name, 0)
    if not (seed and catches(seed, name)):
        seed = caught(name, QUICK)
        again = f"isocast sim swarm --seeds {SEEDS} --mutant {name}{' --liars' * (name in LIARS)}"
        assert seed is not None, f"{MUTANTS[name].rule}: note the seed that {again!r} finds in caught.txt"
        assert seed <= JUDGED
    assert name not in LIARS or seed <= LIARS_JUDGED


_FURTHER = {seed: name for name, seed in KNOWN.items() if seed > JUDGED and name not in LIARS}
"""Known seeds beyond those that the long tests judge, each with a mutant that it catches."""


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] * (name in SLOW)) for seed, name in _FURTHER.items()]
)
def test_the_product_passes_where_a_mutant_is_caught(seed: int) -> None:
    assert seed <= SEEDS
    assert run_seed(seed).violations == []


def test_the_ten_mistakes_to_expect_are_among_them() -> None:
    """Protocol §12."""
    assert {mutant.mistake for mutant in MUTANTS.values()} >= set(range(1, 11))


def test_every_mutant_that_is_named_exists() -> None:
    assert {*KNOWN, *RAREST, *DISCLOSED, *TRADING, *BELOW, *OPERATED, *TIMED, *EDGE, *LIARS} <= set(MUTANTS)


@pytest.mark.soak
@pytest.mark.parametrize("name", RAREST)
def test_a_mutant_of_the_rarest_stories_is_caught_in_random_worlds_too(name: str) -> None:
    assert caught(name, 5_000) is not None, MUTANTS[name].rule
