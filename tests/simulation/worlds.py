"""Small worlds for tests of the simulator."""

from __future__ import annotations

from typing import Any

from isocast.checks.facts import Fact
from isocast.simulation.scenario import Scenario, scenario_from_mapping
from isocast.simulation.timed import TimedRun
from isocast.simulation.world import PRODUCT, Build

__all__ = ["facts_of", "run", "scenario"]

SMALL: dict[str, Any] = {
    "receivers": 3,
    "messages": 60,
    "detect": 0.02,
    "process": 0.004,
    "one_way_delay": 0.002,
    "retries_max": 2,
    "gate": "majority",
    "arrival_rate": 50,
    "servers": 1,
    "sources": 2,
}


def scenario(*faults: dict[str, Any], **keys: Any) -> Scenario:  # noqa: ANN401 (values of a scenario file)
    """A world of three sites, changed by some keys."""
    return scenario_from_mapping(SMALL | keys | {"faults": list(faults)}, "test")


def run(*faults: dict[str, Any], seed: int = 1, build: Build = PRODUCT, **keys: Any) -> TimedRun:  # noqa: ANN401
    """Run it to its verdict."""
    found = TimedRun(scenario(*faults, **keys), seed, build)
    found.run()
    return found


def facts_of(*faults: dict[str, Any], seed: int = 1, **keys: Any) -> tuple[TimedRun, list[Fact]]:  # noqa: ANN401
    """Run it, and tell everything that happened."""
    facts: list[Fact] = []
    found = TimedRun(scenario(*faults, **keys), seed, transcript=facts.append)
    found.run()
    return found, facts
