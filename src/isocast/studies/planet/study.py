"""The whole planet in one run: places, tokens, customers; the same bits however it is spread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np

from isocast.reformation.scopes.world import Ints
from isocast.studies.planet.core import CoreNet, CorePart, CoreTally, CoreWorld, joined, run_tokens
from isocast.studies.planet.edge import EdgeInputs, Ground, core_net, lay_out, run_servers
from isocast.studies.planet.settings import EdgeTally, PlanetWorld
from isocast.studies.spreading import Spreading, spread

__all__ = ["PlanetRun", "StageProgress", "run_planet"]

_CUSTOMERS_OF_PART = 100_000
"""About so many in one part: seconds of work, and a few MB."""
_PARTS = 400
"""About so many parts at most: each brings back a fraction of a MB."""
_SERVERS_OF_PART = 500
_TOKENS_OF_PART = 8


@dataclass(frozen=True, eq=False)
class PlanetRun:
    """A world, and what came of it."""

    world: PlanetWorld
    ground: Ground
    net: CoreNet
    core: CoreTally
    edge: EdgeTally


class StageProgress(Protocol):
    """Told what is done next, in how many parts; its answer is told how many of them are done."""

    def __call__(self, what: str, parts: int, /) -> Callable[[int], None]:
        """Before each stage."""


def _silent(what: str, parts: int) -> Callable[[int], None]:  # noqa: ARG001
    return lambda _: None


def run_planet(world: PlanetWorld, how: Spreading | None = None, stage: StageProgress = _silent) -> PlanetRun:
    """All of it: a function of the world alone."""
    how = Spreading() if how is None else how
    how.check()
    stage("places", 1)
    ground = lay_out(world)
    net = core_net(ground, world.paths, world.core.branches)
    core_world = CoreWorld(net, world.core, world.seed, kept=world.edge.messages)
    tokens = max(world.core.tokens, world.edge.messages)
    step = max(_TOKENS_OF_PART, tokens // _PARTS)
    parts = [CorePart(first, min(first + step, tokens)) for first in range(0, tokens, step)]
    core = joined(spread(run_tokens, core_world, parts, how, stage("tokens", len(parts))))
    edge_world = EdgeInputs(ground, world.edge, world.seed, core.releases_ns, net.ns_per_km, net.base_ns)
    regions = _regions(ground)
    tallies = spread(run_servers, edge_world, regions, how, stage("regions", len(regions)))
    return PlanetRun(world, ground, net, core, reduce(EdgeTally.add, tallies))


def _regions(ground: Ground) -> list[Ints]:
    """Servers in parts of about as many customers each; who is in a part changes no result."""
    ends = np.cumsum(ground.customers_of)
    numbers = np.arange(len(ends))
    part = ends // max(_CUSTOMERS_OF_PART, int(ends[-1]) // _PARTS) + numbers // _SERVERS_OF_PART
    cuts = np.flatnonzero(np.diff(part)) + 1
    return [chunk for chunk in np.split(numbers, cuts) if len(chunk)]
