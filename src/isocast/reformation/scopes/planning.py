"""A plan from nothing: scopes, then addresses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isocast.reformation.scopes.addresses import assign, clique, fewer, neighbours
from isocast.reformation.scopes.choice import choose, choose_one
from isocast.reformation.scopes.lines import possible_lines
from isocast.reformation.scopes.overlaps import overlaps
from isocast.reformation.scopes.plan import Plan, Scope
from isocast.reformation.scopes.surface import Floats
from isocast.reformation.scopes.world import World
from isocast.terms.errors import ConfigurationError

__all__ = ["check_pool", "plan_scopes", "up_to_the_metre"]

_METRES = 1000


def plan_scopes(world: World, now: int = 0) -> Plan:
    """Scopes so that every customer hears k sources where the rules allow it, and addresses so that none overlap.

    A pure function of the world; `now`, in nanoseconds, only stands in the plan. ConfigurationError if the pool has
    too few addresses.
    """
    lines, rules = possible_lines(world), world.rules
    core = choose_one(lines, world.surface) if rules.uniform else choose(lines, world.surface, rules.margin_km)
    radii = np.where(core >= 0, up_to_the_metre(core + rules.margin_km), 0.0)
    near = neighbours(len(world.receivers), *overlaps(world, radii))
    speaking = np.flatnonzero(radii).tolist()
    given = assign(near, speaking, {}, {})
    if len(set(given.values())) > len(clique(near, speaking)):
        given = fewer(near, given)
    check_pool(world, list(given.values()))
    scopes = tuple(
        [
            Scope(name, (place[0], place[1]), radius, radius, given.get(number))
            for number, (name, place, radius) in enumerate(
                zip(world.receivers.names, world.receivers.where.tolist(), radii.tolist(), strict=True)
            )
        ]
    )
    return Plan(world.surface, world.rules.lines, now, world.pool.first, world.pool.stripes, scopes)


def up_to_the_metre(km: Floats) -> Floats:
    """Rounded up, and never 0: a customer may stand where its receiver stands."""
    return np.maximum(np.ceil(km * _METRES - 1e-7), 1.0) / _METRES


def check_pool(world: World, addresses: Sequence[int]) -> None:
    """ConfigurationError unless the pool has all of these."""
    wanted = max(addresses, default=-1) + 1
    if wanted > world.pool.usable:
        each = f" of {world.pool.stripes} groups each" if world.pool.stripes > 1 else ""
        rule = f"the plan needs {wanted} addresses{each}, and the pool has {world.pool.usable}"
        raise ConfigurationError(world.file, "addresses.count", rule)
