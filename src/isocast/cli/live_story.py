"""The demo's world and what befalls it: the scenario that comes with the package, fitted to the command line."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from isocast.simulation.scenario import Scenario, scenario_from_mapping
from isocast.terms.topology import CITIES

__all__ = ["STORY_S", "demo_scenario"]

_FILE = "demo.toml"
STORY_S = 30.0
"""How long the story of the file takes, from nothing to the last release."""
_QUIET_END_S = 5.0
"""The first ring forms before messages come, and the last of them are released after."""


def demo_scenario(seconds: float | None = None, loss: float | None = None, sites: int | None = None) -> Scenario:
    """The story, stretched to about `seconds`, losing `loss`, in the first `sites` cities of the list."""
    mapping = tomllib.loads(files("isocast.cli").joinpath(_FILE).read_text(encoding="utf-8"))
    faults = mapping["faults"]
    if seconds is not None:
        mapping["duration"] = max(seconds - _QUIET_END_S, 1.0)
        for fault in faults:
            for key in ("at", "duration"):
                if key in fault:
                    fault[key] *= seconds / STORY_S
    if loss is not None:
        for fault in faults:
            if fault["kind"] == "loss":
                fault["loss"] = loss
    if sites is not None:
        mapping["ring"] = [place.name for place in CITIES[:sites]]
        mapping["title"] = f"A market in {sites} cities"
    return scenario_from_mapping(mapping, _FILE)
