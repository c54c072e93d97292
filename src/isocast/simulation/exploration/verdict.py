"""One search from its bounds to its verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from isocast.simulation.build import PRODUCT
from isocast.simulation.exploration.bounds import Bounds
from isocast.simulation.exploration.market import Market
from isocast.simulation.exploration.rules import RULES
from isocast.simulation.exploration.search import Found, SearchProgress
from isocast.simulation.exploration.sweep import sweep
from isocast.simulation.exploration.words import told

__all__ = ["Verdict", "explore"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a search says."""

    bounds: Bounds
    mutant: str | None
    found: Found
    trace: tuple[str, ...]
    """A shortest way to the violation, in words; the first line is the beginning."""
    steps: int
    """Steps of a real machine; everything else was looked up."""
    node_states: int
    """States of single nodes that occurred."""

    def as_json(self) -> dict[str, object]:
        """For programs."""
        found = self.found
        broken = [] if found.broken is None else [{"property": found.broken[0], "text": found.broken[1]}]
        return {
            **asdict(self.bounds),
            "mutant": self.mutant,
            "states": found.states,
            "transitions": found.transitions,
            "depth": found.depth,
            "exhausted": found.exhausted,
            "machine_steps": self.steps,
            "node_states": self.node_states,
            "violations": [{**violation, "trace": list(self.trace)} for violation in broken],
        }


def explore(
    bounds: Bounds,
    mutant: str | None = None,
    *,
    states_max: int = 0,
    stories_only: bool = False,
    progress: Callable[[SearchProgress], None] | None = None,
) -> Verdict:
    """Search a market of the product, or of a mutant, until something breaks or everything was visited."""
    market = Market(bounds, PRODUCT if mutant is None else RULES[mutant].build, stories_only=stories_only)
    found = sweep(market, states_max, progress)
    trace = tuple(told(market, found.trace)) if found.broken is not None else ()
    return Verdict(bounds, mutant, found, trace, market.steps, market.local_states)
