"""Where the nodes of a world are, and how long packets take between them."""

from __future__ import annotations

from collections.abc import Callable

from isocast.simulation.scenario import Scenario
from isocast.terms.ids import FIRST_SERVER, NodeId, is_server, is_site, is_source
from isocast.terms.topology import City, delay_ns

__all__ = ["branch_of", "delays", "place_of"]


def place_of(scenario: Scenario, node: NodeId) -> City | None:
    """The city of a node; None in a world without places.

    Site i is in the i-th city of the ring, a secondary receiver near its primary one. Sources take turns between the
    two traders, or among the ring's cities; servers stand in the ring's cities from the first on.
    """
    ring = scenario.ring
    if is_source(node):
        number = (node >> 32) - 1
        if scenario.traders:
            return scenario.traders[number % len(scenario.traders)]
        return ring[number % len(ring)] if ring else None
    if not ring:
        return None
    if is_site(node):
        return ring[(scenario.tree.root(node) - 1) % len(ring)]
    return ring[(node - FIRST_SERVER - 1) % len(ring)] if is_server(node) else None


def delays(scenario: Scenario) -> Callable[[NodeId, NodeId], int]:
    """The one-way delay of a pair: great circle in fibre between places, else the scenario's constant.

    A secondary receiver is reached over its parent's place, each layer adding its own delay.
    """
    tree, step_ns = scenario.tree, scenario.secondary_delay_ns

    def delay(a: NodeId, b: NodeId) -> int:
        if not scenario.secondaries:
            return apart(a, b)
        if is_site(a) and is_site(b):
            steps, over = tree.steps_between(a, b)
            return steps * step_ns + (apart(a, b) if over else 0)
        return apart(a, b) + sum([tree.depth(node) * step_ns for node in (a, b) if is_site(node)])

    def apart(a: NodeId, b: NodeId) -> int:
        place_a, place_b = place_of(scenario, a), place_of(scenario, b)
        if place_a is None or place_b is None:
            return scenario.one_way_delay_ns
        return delay_ns(place_a, place_b)

    return delay


def branch_of(scenario: Scenario) -> Callable[[NodeId], int]:
    """The branch of the multicast tree that feeds a node: sites in contiguous blocks of near equal size.

    A secondary receiver is on its primary one's branch.
    """
    tree = scenario.tree
    branches = {
        site: (tree.root(site) - 1) * scenario.tree_branches // scenario.receivers
        for site in (*range(1, scenario.receivers + 1), *tree.secondary_sites)
    }

    def branch(node: NodeId) -> int:
        return branches.get(node, -node)

    return branch
