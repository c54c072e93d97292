"""Which scopes overlap: those that share ground, and those that share a customer by a measured link."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from isocast.reformation.scopes.lines import links_of
from isocast.reformation.scopes.nearness import overlapping, within
from isocast.reformation.scopes.surface import Floats, Ints
from isocast.reformation.scopes.world import World

__all__ = ["overlaps"]


def overlaps(world: World, radii: Floats) -> tuple[Ints, Ints]:
    """All pairs of receivers whose scopes some customer could hear both, the lower number first.

    Ground counts whether a customer stands there or not: one may come. A measured link can reach beyond the ground
    of a scope; then the customers who are there decide.
    """
    centres = world.surface.to_space(world.receivers.where)
    first, second = overlapping(world.surface, centres, radii)
    linked = _by_links(world, centres, radii)
    if not linked:
        return first, second
    keys = np.unique(np.concatenate((first * len(centres) + second, [a * len(centres) + b for a, b in linked])))
    return keys // len(centres), keys % len(centres)


def _by_links(world: World, centres: Floats, radii: Floats) -> list[tuple[int, int]]:
    links = links_of(world)
    if not len(links.customer):
        return []
    customers = np.unique(links.customer)
    places = world.surface.to_space(world.customers.where[customers])
    receiver, customer, _ = within(world.surface, centres, radii, places)
    hears: dict[int, set[int]] = {}
    for who, whom in zip(customers[customer].tolist(), receiver.tolist(), strict=True):
        hears.setdefault(who, set()).add(whom)
    for who, whom, km in zip(links.customer.tolist(), links.receiver.tolist(), links.km.tolist(), strict=True):
        # A link that is too lossy to rely on still brings packets.
        if 0 < radii[whom] >= km:
            hears.setdefault(who, set()).add(whom)
    pairs = {pair for heard in hears.values() for pair in combinations(sorted(heard), 2)}
    return sorted(pairs)
