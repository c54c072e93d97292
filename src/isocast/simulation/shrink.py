"""A failing world made small: fewer faults, fewer messages, a calmer network, as long as it fails the same way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from isocast.checks.facts import Fact, ReceiptSent, Submitted
from isocast.simulation.build import Build
from isocast.simulation.layer_keys import LAYER_KEYS
from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.timed import TimedRun
from isocast.simulation.transcript import describe_fact
from isocast.terms.errors import ConfigurationError

__all__ = ["Shrunk", "shrink"]

RUNS_MAX = 60
"""Worlds tried: at a quarter of a second each, fifteen seconds."""
LAYER_KEY_NAMES = tuple([key.name for key in LAYER_KEYS])
LINES_MAX = 60
"""Of the transcript: a screenful, ending with the violation."""


@dataclass(frozen=True)
class Shrunk:
    """The smallest world that was found, what it breaks, and what led there."""

    seed: int
    scenario: dict[str, Any]
    violations: list[str]
    transcript: list[str] = field(default_factory=list)


def shrink(seed: int, world: dict[str, Any], build: Build) -> Shrunk:
    """Try smaller worlds, the largest steps first, and keep each that breaks the same property."""
    smallest = world
    violations, lines = _try(seed, world, build)
    wanted = _property(violations)
    runs = 1
    progress = True
    while progress and runs < RUNS_MAX:
        progress = False
        for candidate in _smaller(smallest):
            runs += 1
            found, told = _try(seed, candidate, build)
            if wanted in {_property([violation]) for violation in found}:
                smallest, violations, lines, progress = candidate, found, told, True
                break
            if runs >= RUNS_MAX:
                break
    return Shrunk(seed, smallest, violations, lines)


def _property(violations: list[str]) -> str:
    return violations[0].partition(":")[0] if violations else ""


def _smaller(world: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Candidates: one fault less, half the messages, one disturbance less."""
    faults = list(world.get("faults", []))
    for place in range(len(faults)):
        yield world | {"faults": faults[:place] + faults[place + 1 :]}
    if world["messages"] >= 16:  # noqa: PLR2004 (halving ends somewhere)
        yield world | {"messages": world["messages"] // 2}
    for key in ("loss", "duplicate", "jitter", "wake_lateness", "drift_ppm", "clock_error", "release_rate"):
        if world.get(key):
            yield world | {key: 0}
    for key in ("nack_sets", "token_period"):
        if key in world:
            yield {name: value for name, value in world.items() if name != key}
    if "secondaries" in world:
        # A fault that names a secondary receiver keeps its world: the loader refuses the one without.
        yield {name: value for name, value in world.items() if name not in LAYER_KEY_NAMES}
        if world.get("layers", 2) > 2:  # noqa: PLR2004 (fewer are no layers)
            yield world | {"layers": 2}


def _try(seed: int, world: dict[str, Any], build: Build) -> tuple[list[str], list[str]]:
    """One run: violations, and the last lines of its transcript up to the first of them."""
    lines: deque[str] = deque(maxlen=LINES_MAX)

    def tell(fact: Fact) -> None:
        if not run.suite.violations and not isinstance(fact, Submitted | ReceiptSent):
            lines.append(describe_fact(fact))

    try:
        run = TimedRun(scenario_from_mapping(world, f"seed {seed}"), seed, build, transcript=tell)
    except ConfigurationError:
        return [], []
    failed: list[str] = []
    try:
        run.run()
    except Exception as error:  # noqa: BLE001 (a machine that raises has failed, whatever it raises)
        failed.append(f"crash: {type(error).__name__}: {error}")
    violations = failed + run.violations()
    return violations, [*lines, *[f"{'':10}  violated {violation}" for violation in violations[:3]]]
