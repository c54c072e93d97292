"""Disks that keep little, in some of the random worlds, and sites that are away for longer than that.

Drawn from a stream of its own: a world without them is what it was before there were any.
"""

from __future__ import annotations

from isocast.simulation.randomness import stream

__all__ = ["with_retention"]

_SHORT = 0.25
_SEVERAL = 0.3


def with_retention(seed: int, world: dict[str, object], begin: float, end: float, period: float) -> dict[str, object]:
    """The world, with short logs if the seed says so; absences begin between two instants."""
    random = stream(seed, "chaos retention")
    if random.random() >= _SHORT:
        return world
    world |= {"retain_tokens": random.choice([4, 6, 8, 12])}
    faults = world["faults"]
    if not isinstance(faults, list) or not faults:
        return world
    sites = list(range(1, int(str(world["receivers"])) + 1))
    for _ in range(2 if random.random() < _SEVERAL else 1):
        at = round(random.uniform(begin, end), 6)
        until = round(at + random.choice([8, 12, 16, 24]) * period, 6)
        kind = random.choice(["crash", "crash", "isolate", "pause"])
        faults.append({"kind": kind, "at": at, "until": until, "sites": [random.choice(sites)]})
    return world
