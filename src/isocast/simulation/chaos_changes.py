"""Planned changes in some of the random worlds: sites drain, come and go, lose their disks, and majorities get lost.

Drawn from a stream of its own: a world without them is what it was before there were any.
"""

from __future__ import annotations

from random import Random

from isocast.simulation.chaos_edges import USUAL_MOST
from isocast.simulation.layers import Layers
from isocast.simulation.randomness import stream

__all__ = ["with_changes"]

_CHANGED = 0.3
_AVAILABLE = 0.08
_ONE_SIDE = 0.3
_LEAST = 4
"""Receivers from which one may be taken out for good and another still be lost."""


def with_changes(seed: int, world: dict[str, object], begin: float, end: float, period: float) -> dict[str, object]:
    """The world, with an operator if the seed says so; what he does begins between two instants."""
    random = stream(seed, "chaos changes")
    faults = world["faults"]
    if not isinstance(faults, list) or int(str(world["receivers"])) > USUAL_MOST:
        return world
    if random.random() < _AVAILABLE and world["gate"] == "majority":
        _be_available(random, world, faults, round(random.uniform(begin, end), 6), period)
    if random.random() >= _CHANGED:
        return world
    for _ in range(random.randint(1, 2)):
        at = round(random.uniform(begin, end), 6)
        faults.extend(_story(random, world, faults, at, period))
    return world


def _be_available(
    random: Random, world: dict[str, object], faults: list[dict[str, object]], at: float, period: float
) -> None:
    """Go on without a majority, and often be parted so that both sides do."""
    world["policy"] = "availability"
    world["start_wait"] = round(random.choice([1, 3]) * period, 6)
    if not faults or random.random() < _ONE_SIDE:
        return
    world["servers"] = max(int(str(world["servers"])), 2)
    sites = list(range(1, int(str(world["receivers"])) + 1))
    some = sorted(random.sample(sites, random.randint(1, len(sites) // 2)))
    groups: list[list[object]] = [[*some, "server1"], [*[site for site in sites if site not in some], "server2"]]
    for number in range(1, int(str(world["sources"])) + 1):
        groups[random.randint(0, 1)].append(f"source{number}")
    tree = _tree(world)
    for site in tree.secondary_sites:
        groups[tree.root(site) not in some].append(site)
    until = round(at + random.choice([8, 12, 16]) * period, 6)
    faults.append({"kind": "partition", "at": at, "until": until, "groups": groups})


def _story(
    random: Random, world: dict[str, object], faults: list[dict[str, object]], at: float, period: float
) -> list[dict[str, object]]:
    receivers = int(str(world["receivers"]))
    sites = list(range(1, receivers + 1))
    victim = random.choice(sites)
    new = _new_number(world, faults)
    cycle = receivers * period
    taken_out = any(fault["kind"] in ("remove", "force") or fault.get("disk") == "lost" for fault in faults)
    few = receivers < _LEAST or taken_out
    match random.choice(["drain", "drain", "rolling", "add", "add", "remove", "replace", "swap", "force"]):
        case "drain":
            until = round(at + random.choice([0.5, 2, 4]) * cycle, 6)
            return [{"kind": "drain", "at": at, "until": until, "sites": [victim]}]
        case "rolling":
            # An upgrade: one after the other leaves the ring, restarts, and comes back.
            return [
                fault
                for place, site in enumerate(sites)
                for start in [at + 3 * place * cycle]
                for fault in [
                    {"kind": "drain", "at": round(start, 6), "sites": [site]},
                    {"kind": "crash", "at": round(start + 1.5 * cycle, 6), "until": round(start + 2 * cycle, 6),
                     "sites": [site]},
                ]
            ][: 2 * receivers]  # fmt: skip
        case "remove" if not few:
            return [{"kind": "remove", "at": at, "sites": [victim]}]
        case "swap" if not few:
            # Both at once: one change waits for the other.
            return [{"kind": "add", "at": at, "sites": [new]}, {"kind": "remove", "at": at, "sites": [victim]}]
        case "replace" if not few:
            # A lost disk: the site comes back under a new number, and the old one leaves U.
            later = round(at + 2 * cycle, 6)
            return [
                {"kind": "crash", "at": at, "sites": [victim]},
                {"kind": "remove", "at": later, "sites": [victim]},
                {"kind": "add", "at": later, "sites": [new]},
            ]
        case "force" if not few:
            # More than half never come back.
            lost = sorted(random.sample(sites, receivers // 2 + receivers % 2))
            left = [site for site in sites if site not in lost]
            later = round(at + 3 * cycle, 6)
            return [
                {"kind": "crash", "at": at, "sites": lost},
                {"kind": "force", "at": later, "sites": left},
            ]
        case _:
            return [{"kind": "add", "at": at, "sites": [new]}]


def _new_number(world: dict[str, object], faults: list[dict[str, object]]) -> int:
    """A number that nobody has."""
    tree = _tree(world)
    taken = [tree.receivers + len(tree.secondary_sites)]
    for fault in faults:
        named = fault.get("sites")
        taken += [site for site in named if isinstance(site, int)] if isinstance(named, list) else []
    return max(taken) + 1


def _tree(world: dict[str, object]) -> Layers:
    return Layers(int(str(world["receivers"])), int(str(world.get("secondaries", 0))), int(str(world.get("layers", 1))))
