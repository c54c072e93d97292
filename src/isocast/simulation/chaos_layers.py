"""Secondary receivers for some of the random worlds, and faults that hit them, their parents and their links.

Drawn from a stream of its own: a world without them is what it was before there were any. Faults of heads come from
another: heads and their backups, heads below the ring, and the links between a head and its group.
"""

from __future__ import annotations

from random import Random

from isocast.simulation.chaos_edges import USUAL_MOST
from isocast.simulation.layers import Layers
from isocast.simulation.randomness import stream

__all__ = ["with_layers"]

_LAYERED = 0.25
_THREE_LAYERS = 0.3
_WITH_PARENT = 0.7
"""Share of secondary receivers that a partition leaves on their parent's side."""
_SITES_MAX = 21
"""Receivers of one world: a seed should take about a second."""


def with_layers(seed: int, world: dict[str, object], begin: float, end: float, period: float) -> dict[str, object]:
    """The world, with secondary receivers if the seed says so; new faults begin between two instants."""
    random = stream(seed, "chaos layers")
    receivers = int(str(world["receivers"]))
    if random.random() >= _LAYERED or receivers > USUAL_MOST:
        return world
    secondaries = random.choice([1, 2, 2, 3])
    tree = Layers(receivers, secondaries, 2)
    if random.random() < _THREE_LAYERS and receivers * (1 + secondaries + secondaries**2) <= _SITES_MAX:
        tree = Layers(receivers, secondaries, 3)
    world |= {
        "secondaries": secondaries,
        "layers": tree.layers,
        "secondary_delay": random.choice([0.0005, 0.001, 0.003]),
        "secondary_detect": random.choice([0.005, 0.01]),
        "stall_tokens": random.choice([2, 4, 8, 64]),
    }
    faults = world["faults"]
    if not isinstance(faults, list) or not faults:
        return world
    for fault in faults:
        if fault["kind"] == "partition":
            _take_sides(random, fault["groups"], tree)
    for _ in range(random.randint(1, 3)):
        at = round(random.uniform(begin, end), 6)
        until = round(at + random.choice([0.3, 1, 3, 6, 12, 20]) * period, 6)
        faults.append({"at": at, "until": until} | _fault(random, tree))
    _lose_heads(stream(seed, "chaos heads"), faults, tree, (begin, end), period)
    return world


def _lose_heads(
    random: Random, faults: list[dict[str, object]], tree: Layers, span: tuple[float, float], period: float
) -> None:
    """One or two faults, long enough for others to take the groups over, and not always to the end."""
    for _ in range(random.choice([0, 1, 1, 2])):
        at = round(random.uniform(*span), 6)
        until = round(at + random.choice([4, 10, 16, 24]) * period, 6)
        faults.extend([{"at": at, "until": until} | fault for fault in _head_fault(random, tree)])


def _head_fault(random: Random, tree: Layers) -> list[dict[str, object]]:
    one = random.choice(list(tree.secondary_sites))
    head = tree.parent(one)
    group = list(tree.children(head))
    match random.choice(["head", "both", "between", "between", "deaf group", "whole group but one", "successor"]):
        case "head":
            return [{"kind": "crash", "sites": [head]}]
        case "both":
            return [{"kind": "crash", "sites": sorted({head, tree.backup(one)})}]
        case "between":
            # Up and on the ring, or heard by its own head: and silent to those below it.
            return [{"kind": "partition", "groups": [[head], group]}]
        case "deaf group":
            return [{"kind": "one-way", "groups": [[head], group]}]
        case "whole group but one":
            return [{"kind": "crash", "sites": [head, *group[1:]]}]
        case _:
            # Whoever takes the group over is cut off from it.
            return [{"kind": "crash", "sites": [head]}, {"kind": "partition", "groups": [[tree.backup(one)], group]}]


def _take_sides(random: Random, groups: list[list[object]], tree: Layers) -> None:
    """Whoever is in no group bridges a partition: most stay with their parent, some change sides, some bridge."""
    for site in tree.secondary_sites:
        own = [group for group in groups if tree.parent(site) in group]
        if own and random.random() < _WITH_PARENT:
            own[0].append(site)
        elif random.random() < _WITH_PARENT:
            random.choice(groups).append(site)


def _fault(random: Random, tree: Layers) -> dict[str, object]:
    sites = list(tree.secondary_sites)
    one = random.choice(sites)
    parent = tree.parent(one)
    match random.choice(["crash", "crash", "family", "parent", "pause", "isolate", "deaf", "dumb", "island", "clock"]):
        case "crash":
            return {"kind": "crash", "sites": sorted(random.sample(sites, random.randint(1, min(3, len(sites)))))}
        case "family":
            return {"kind": "crash", "sites": [parent, *tree.children(parent)]}
        case "parent":
            return {"kind": "crash", "sites": [parent]}
        case "pause":
            return {"kind": "pause", "sites": [one]}
        case "isolate":
            return {"kind": "isolate", "sites": [one]}
        case "deaf":
            return {"kind": "one-way", "groups": [[parent], [one]]}
        case "dumb":
            return {"kind": "one-way", "groups": [[one], [parent]]}
        case "island":
            # Cut off from everybody but its parent and its own: what is lost on the way must come from there.
            near = {one, parent, *tree.children(one)}
            others = [site for site in range(1, sites[-1] + 1) if site not in near]
            return {"kind": "partition", "groups": [[one], others]}
        case _:
            return {"kind": "clock-step", "sites": [one], "step": random.choice([-0.3, -0.05, 0.005, 0.05, 0.3])}
