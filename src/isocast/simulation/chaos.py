"""A random world from a seed: size, timing, traffic and a plan of faults that ends before the run does, or stays.

What comes out is the content of a scenario file, so that a seed that fails can be written down and run again.
Beside independent faults there are a few plots: sequences that a person would think of to break the protocol.
"""

from __future__ import annotations

from random import Random

from isocast.simulation.chaos_changes import with_changes
from isocast.simulation.chaos_clocks import with_clocks
from isocast.simulation.chaos_edges import USUAL_MOST, ring_size, with_edges
from isocast.simulation.chaos_layers import with_layers
from isocast.simulation.chaos_retention import with_retention
from isocast.simulation.randomness import stream

__all__ = ["chaos"]

_SMALLEST = 2
_DETECT = 0.02
_PROCESS = 0.004

# Shares of worlds, and of faults in a plan.
_TAKE_TURNS = 0.15
_SLOW_TOKENS = 0.2
_CALM = 0.15
_PLOTS = 0.5
_LOST_DISKS = 0.3


def chaos(seed: int) -> dict[str, object]:
    """The scenario of a seed, as keys of a scenario file."""
    random = stream(seed, "chaos")
    receivers = ring_size(seed, random.choice([3, 3, 4, 5, 5, 6, 7]))
    world: dict[str, object] = {
        "title": f"chaos {seed}",
        "seed": seed,
        "receivers": receivers,
        "detect": _DETECT,
        "process": _PROCESS,
        "one_way_delay": random.choice([0.002, 0.005, 0.015]),
        "jitter": random.choice([0, 0, 0.001, 0.004]),
        "loss": random.choice([0, 0.01]),
        "loss_model": random.choice(["independent", "independent", "tree"]),
        "duplicate": random.choice([0, 0, 0.05]),
        "retries_max": random.choice([1, 2, 3, 4]),
        "clock_error": random.choice([0, 0.0005, 0.002]),
        "drift_ppm": random.choice([0, 100]),
        "wake_lateness": random.choice([0, 0.00001]),
        "order_in_token": random.choice(["arrival", "shuffle"]),
        "release_rate": random.choice([0, 0, 2]),
        "sources": random.randint(2, 4),
        "burst": random.choice([1, 1, 4]),
        "window": 64,
        "messages_per_token": random.randint(3, 10),
        "servers": random.choice([1, 2, 2, 3]),
    }
    world |= _gate(random, receivers)
    if random.random() < _TAKE_TURNS and receivers > _SMALLEST:
        world["nack_sets"] = random.randint(2, receivers - 1)
    if random.random() < _SLOW_TOKENS:
        world["token_period"] = _period(world) * 1.5
    tokens = random.randint(20, 30)
    world["messages"] = tokens * int(str(world["messages_per_token"]))
    calm = random.random() < _CALM
    world["faults"] = [] if calm else _plan(random, world, tokens)
    heavy = random.choice([0, 0, 0.05, 0.1, 0.2])
    if heavy and not calm:
        # Heavy loss is a fault like others: it stops before everything must come right.
        end = round(0.3 + (tokens + 2) * float(str(world.get("token_period", _period(world)))), 6)
        world["faults"] = [{"kind": "loss", "at": 0.01, "until": end, "loss": heavy}, *_faults(world)]
    period = float(str(world.get("token_period", _period(world))))
    begin = 0.3 + 2 * period
    end = begin + tokens * period
    world = with_layers(seed, world, begin, end, period)
    world = with_retention(seed, world, begin, end, period)
    world = with_changes(seed, world, begin, end, period)
    world = with_edges(seed, world, (begin, end), period)
    # Last: what stays for ever must leave enough of whatever else happens.
    return with_clocks(seed, world, begin, end, period)


def _faults(world: dict[str, object]) -> list[object]:
    faults = world["faults"]
    return faults if isinstance(faults, list) else []


def _gate(random: Random, receivers: int) -> dict[str, object]:
    gate = random.choice(["majority"] * 7 + ["total", "next", "timed"])
    if gate == "next":
        return {"gate": gate, "next_tokens": receivers // 2}
    return {"gate": gate}


def _period(world: dict[str, object]) -> float:
    """τ_t as the loader would derive it."""
    retry = 2 * _DETECT + _PROCESS
    return _DETECT + 2 * float(str(world["clock_error"])) + int(str(world["retries_max"])) * retry


def _plan(random: Random, world: dict[str, object], tokens: int) -> list[dict[str, object]]:
    """Up to five faults between the first tokens and the last."""
    period = float(str(world.get("token_period", _period(world))))
    receivers = int(str(world["receivers"]))
    begin = 0.3 + 2 * period
    end = begin + tokens * period
    plan: list[dict[str, object]] = []
    may_lose = (receivers - 1) // 2
    for _ in range(random.randint(1, 4)):
        at = round(random.uniform(begin, end), 6)
        span = random.choice([0.3, 1, 3, 6]) * period
        if random.random() < _PLOTS:
            faults, lost = _plot(random, world, at, period, may_lose)
        else:
            faults, lost = _fault(random, world, at, span, may_lose)
        may_lose -= lost
        plan.extend(faults)
    return plan


def _fault(
    random: Random, world: dict[str, object], at: float, span: float, may_lose: int
) -> tuple[list[dict[str, object]], int]:
    """One fault, and how many disks it costs."""
    receivers = int(str(world["receivers"]))
    sites = list(range(1, receivers + 1))
    some = sorted(random.sample(sites, random.randint(1, max(1, receivers // 2))))
    until = round(at + span, 6)
    kinds = ["crash", "crash", "crash", "partition", "one-way", "isolate", "clock-step", "loss", "pause", "pause"]
    match random.choice(kinds):
        case "crash":
            who: list[object] = random.choice([list[object](some), ["server1"], ["source1"], list[object](sites)])
            if may_lose and random.random() < _LOST_DISKS:
                return [{"kind": "crash", "at": at, "until": until, "sites": [some[0]], "disk": "lost"}], 1
            return [{"kind": "crash", "at": at, "until": until, "sites": who}], 0
        case "partition":
            groups = [some, [site for site in sites if site not in some]]
            extra: list[object] = [f"server{number}" for number in range(1, int(str(world["servers"])) + 1)]
            extra += [f"source{number}" for number in range(1, int(str(world["sources"])) + 1)]
            split: list[list[object]] = [list(groups[0]), list(groups[1])]
            for node in extra:
                split[random.randint(0, 1)].append(node)
            return [{"kind": "partition", "at": at, "until": until, "groups": split}], 0
        case "one-way":
            other = [site for site in sites if site not in some]
            return [{"kind": "one-way", "at": at, "until": until, "groups": [some, other]}], 0
        case "isolate":
            return [{"kind": "isolate", "at": at, "until": until, "sites": [some[0]]}], 0
        case "clock-step":
            step = random.choice([-1, 1]) * random.choice([0.005, 0.05, 0.3])
            return [{"kind": "clock-step", "at": at, "until": until, "sites": [some[0]], "step": step}], 0
        case "loss":
            return [{"kind": "loss", "at": at, "until": until, "loss": random.choice([0.3, 0.6])}], 0
        case _:
            return [{"kind": "pause", "at": at, "until": until, "sites": [some[0]]}], 0


def _plot(
    random: Random, world: dict[str, object], at: float, period: float, may_lose: int
) -> tuple[list[dict[str, object]], int]:
    """A story in several faults, and how many disks it costs."""
    receivers = int(str(world["receivers"]))
    sites = list(range(1, receivers + 1))
    victim = random.choice(sites)
    others = [site for site in sites if site != victim]
    sources: list[object] = [f"source{number}" for number in range(1, int(str(world["sources"])) + 1)]
    servers: list[object] = [f"server{number}" for number in range(1, int(str(world["servers"])) + 1)]
    span = round(random.uniform(0.8, 2) * min(receivers, USUAL_MOST) * period, 6)
    match random.choice([1, 2, 2, 3, 4, 5, 5, 5, 5]):
        case 1 if may_lose:
            # Only the victim hears the sources, acknowledges what they say, and dies with the only copy.
            groups: list[list[object]] = [[victim, *sources], [*others, *servers]]
            return [
                {"kind": "partition", "at": at, "until": round(at + span, 6), "groups": groups},
                {"kind": "crash", "at": round(at + span - 0.001, 6), "until": round(at + span + period, 6),
                 "sites": [victim], "disk": "lost"},
            ], 1  # fmt: skip
        case 2:
            # The victim goes on alone while the others form a ring without it; then everybody meets.
            groups = [[victim, *sources[:1]], [*others, *sources[1:], *servers]]
            return [{"kind": "partition", "at": at, "until": round(at + span, 6), "groups": groups}], 0
        case 3:
            # Halves that change sides: whoever was ahead is stale a moment later.
            half = sorted(random.sample(sites, (receivers + 1) // 2))
            rest = [site for site in sites if site not in half]
            again = sorted(random.sample(sites, (receivers + 1) // 2))
            return [
                {"kind": "partition", "at": at, "until": round(at + span, 6),
                 "groups": [[*half, *servers, *sources], rest]},
                {"kind": "partition", "at": round(at + span + period / 2, 6), "until": round(at + 2 * span + period, 6),
                 "groups": [[*again, *servers], [*[site for site in sites if site not in again], *sources]]},
            ], 0  # fmt: skip
        case 5:
            # Neighbours go on alone and get ahead; the others start again, lose one of theirs before they have
            # overtaken, and need the stale ones to vote.
            first = _next_owner(world, at, period)
            few = [(first + place - 1) % receivers + 1 for place in range((receivers - 1) // 2)]
            many = [site for site in sites if site not in few]
            down = at + random.uniform(3.4, 5.2) * period
            heal = round(down + random.uniform(1, 4) * period, 6)
            return [
                {"kind": "partition", "at": at, "until": heal, "groups": [[*few, *sources[:1]], [*many, *servers]]},
                {
                    "kind": "crash",
                    "at": round(down, 6),
                    "until": round(heal + 8 * period, 6),
                    "sites": [random.choice(many)],
                },
            ], 0
        case _:
            # Everybody restarts, one after the other, while tokens go round.
            return [
                {"kind": "crash", "at": round(at + place * period / 3, 6),
                 "until": round(at + (place + 1.5) * period / 3, 6), "sites": [site]}
                for place, site in enumerate(sites)
            ], 0  # fmt: skip


def _next_owner(world: dict[str, object], at: float, period: float) -> int:
    """Whose token is due next at an instant, if the first ring formed without trouble: two votes, then a period."""
    start = 0.012 + 2 * float(str(world["one_way_delay"])) + period
    return (int((at - start) / period) + 1) % int(str(world["receivers"])) + 1
