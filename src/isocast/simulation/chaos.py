"""A random world from a seed: size, timing, traffic and a plan of faults that ends before the run does, or stays.

What comes out is the content of a scenario file, so that a seed that fails can be written down and run again.
Beside independent faults there are a few plots: sequences that a person would think of to break the protocol.
"""

from __future__ import annotations

from random import Random

from isocast.simulation.chaos_additions import (
    USUAL_MOST,
    ring_size,
    sites_of,
    with_changes,
    with_clocks,
    with_customers,
    with_edges,
    with_layers,
    with_narrow_stripes,
    with_retention,
    with_secondary_sources,
)
from isocast.simulation.network import stream
from isocast.simulation.scenario_keys import EDGE_KEYS

__all__ = ["chaos", "floors", "liars"]


_SMALLEST = 2
_DETECT = 0.02
_PROCESS = 0.004

# Shares of worlds, and of faults in a plan.
_TAKE_TURNS = 0.15
_SLOW_TOKENS = 0.2
_CALM = 0.15
_BYZANTINE = 0.04
_SIGNED = 0.25
_PLOTS = 0.5
_LOST_DISKS = 0.3


def chaos(seed: int) -> dict[str, object]:
    """The scenario of a seed, as keys of a scenario file."""
    world = _honest(seed)
    random = stream(seed, "chaos", "chaos byzantine")
    if random.random() < _BYZANTINE:
        return with_liar(random, world)
    if random.random() < _SIGNED:
        world["signatures"] = random.choice(["on", "receipts"])
    return world


_KEPT_AMONG_LIARS = (
    *("title", "seed", "detect", "process", "one_way_delay", "jitter", "loss", "clock_error", "drift_ppm"),
    *("order_in_token", "sources", "burst", "window", "messages_per_token"),
    *("loss_model", "duplicate", "wake_lateness", "release_rate"),
)


def liars(seed: int) -> dict[str, object]:
    """The scenario of a seed with an attacker that lies, forges, replays or has stolen a key."""
    lying = with_liar(stream(seed, "chaos", "liars"), _honest(seed))
    random = stream(seed, "chaos", "intruders")
    return _with_intruder(random, lying) if random.random() < _INTRUDERS else lying


def with_liar(random: Random, world: dict[str, object]) -> dict[str, object]:
    """A world in which one member lies, and nothing else goes wrong but lost packets.

    A majority outvotes one liar as long as the honest ones hear each other: with a partition as well, it could show
    each side another sequence.
    """
    lying: dict[str, object] = {key: world[key] for key in _KEPT_AMONG_LIARS if key in world}
    # Of three, the liar and one site that believes it are a majority: there it can do most.
    receivers = random.choice([3, max(3, min(int(str(world["receivers"])), USUAL_MOST))])
    per_token = int(str(lying["messages_per_token"]))
    lying |= {
        "receivers": receivers,
        "gate": "majority",
        "retries_max": 3,
        "servers": 2,
        "signatures": random.choice(["on", "receipts"]),
        "messages": 16 * per_token,
    }
    period = _period(lying)
    at = round(0.3 + random.uniform(2, 6) * period, 6)
    until = round(at + random.uniform(2, 3) * receivers * period, 6)
    site = random.randint(1, receivers)
    match random.choice(["equivocate", "equivocate", "forge", "ring", "usurp"]):
        case "ring":
            other = site % receivers + 1
            lying["faults"] = [
                {"kind": "forge", "at": at, "until": until, "sites": [random.choice(["server1", "server2"])]},
                {"kind": "crash", "at": round(at + period, 6), "until": until, "sites": [other]},
            ]
        case kind:
            lying["faults"] = [{"kind": kind, "at": at, "until": until, "sites": [site]}]
    return lying


_LEFT_ON_FLOORS = (
    *(key.name for key in EDGE_KEYS),
    *("policy", "start_wait", "window", "batch_max", "release_rate", "order_in_token"),
)
"""Keys of worlds that a floor does without: its messages are orders, and none is refused for want of room."""
_FLOOR_TOKENS = 24
_FLOOR_LOAD = 6


def floors(seed: int) -> dict[str, object]:
    """The scenario of a seed whose receivers are a trading floor: who is at the edge is left out.

    Sites crash, part and come back as they do elsewhere; every other time some crash about when they should report.
    """
    honest, random = _honest(seed), stream(seed, "chaos", "floors")
    world = {name: value for name, value in honest.items() if name not in _LEFT_ON_FLOORS}
    per_token = min(int(str(world["messages_per_token"])), _FLOOR_LOAD)
    sources = min(int(str(world["sources"])), 4)
    world |= {
        "floor": True,
        "sources": sources,
        "messages_per_token": per_token,
        "messages": _FLOOR_TOKENS * per_token,
        "burst": min(int(str(world["burst"])), per_token),
        "order_in_token": random.choice(["arrival", "shuffle"]),
        "release_rate": random.choice([0, 0, 2]),
    }
    known = [f"source{number}" for number in range(1, sources + 1)]
    faults = [fault for fault in _faults(world) if isinstance(fault, dict) and _is_of_core(fault, known)]
    if random.random() < 0.5:  # noqa: PLR2004 (every other time)
        faults += _arbiters_crash(random, world)
    return world | {"faults": faults}


def _is_of_core(fault: dict[str, object], sources: list[str]) -> bool:
    """Whether a fault names receivers, servers and these sources alone."""
    groups = fault.get("groups")
    named = (
        [*sites_of(fault), *[node for group in groups for node in group]]
        if isinstance(groups, list)
        else sites_of(fault)
    )
    return all(isinstance(node, int) or node in sources or str(node).startswith("server") for node in named)


def _arbiters_crash(random: Random, world: dict[str, object]) -> list[dict[str, object]]:
    """Short crashes of receivers, each about a release: between the release and the report, or just before."""
    period, receivers = float(str(world.get("token_period", _period(world)))), int(str(world["receivers"]))
    start = 2 * float(str(world["one_way_delay"])) + period
    faults: list[dict[str, object]] = []
    for _ in range(random.choice([1, 2, 3])):
        at = start + (random.randint(3, 20) + random.choice([0.0, 0.05, 0.3, 0.7])) * period + random.uniform(0, 0.02)
        until = at + random.choice([0.3, 1, 4, 8]) * period
        site = random.randint(1, receivers)
        faults.append({"kind": "crash", "at": round(at, 6), "until": round(until, 6), "sites": [site]})
    return faults


_INTRUDERS = 0.6
_EFFECTIVE_PERIODS = 30
"""A roster counts two rounds and some tokens after its entry."""


def _with_intruder(random: Random, world: dict[str, object]) -> dict[str, object]:
    """A world with forged receipts, replayed packets, an old roster or a stolen key, and a crash meanwhile."""
    receivers, period = int(str(world["receivers"])), _period(world)
    site = random.randint(1, receivers)
    at = round(0.3 + random.uniform(2, 6) * period, 6)
    others = [other for other in range(1, receivers + 1) if other != site]
    fallen = random.choice(others)

    def later(periods: float) -> float:
        return round(at + periods * period, 6)

    crash = {"kind": "crash", "at": later(random.uniform(1, 4)), "until": later(7), "sites": [fallen]}
    changed = later(_EFFECTIVE_PERIODS + 4 * receivers)
    roster = {"kind": "roster", "at": later(1), "sites": random.sample([*range(1, receivers + 1), "server1"], 2)}
    match random.choice(["receipts", "replay", "stale", "steal", "steal", "alone", "slander"]):
        case "slander":
            world |= {"signatures": "receipts", "loss": 0, "loss_model": "independent"}
            return world | {"faults": [{"kind": "slander", "at": at, "until": later(8), "sites": [site]}]}
        case "alone":
            # No server forms a ring without the liar: sites with proof of the lie must not count it all the same.
            silent = {"kind": "crash", "at": at, "until": later(12), "sites": ["server1", "server2"]}
            lying = {"kind": "equivocate", "at": at, "until": later(9), "sites": [site]}
            return world | {"faults": [lying, silent]}
        case "receipts":
            return _with_forger(random, world, site, at)
        case "replay":
            return world | {
                "faults": [{"kind": "replay", "at": at, "until": later(3 * receivers), "sites": [site]}, crash]
            }
        case "stale":
            # A site, or a server that wants to form the next ring.
            behind = random.choice([site, "server1", "server2"])
            crash |= {"at": changed, "until": later(_EFFECTIVE_PERIODS + 4 * receivers + random.uniform(2, 6))}
            stale = {"kind": "stale", "at": at, "until": round(changed + 12 * period, 6), "sites": [behind]}
            return world | {"faults": [stale, roster, *([crash] if behind != site else [])]}
        case _:
            # Its owner has another key before the thief strikes; or the old one is revoked, roster or not.
            roster |= {"sites": [site]}
            revoke = {"kind": "revoke", "at": later(random.uniform(2, 8)), "sites": [site]}
            faults = random.choice([[roster], [roster, revoke]])
            steal = {"kind": "steal", "at": at, "until": round(changed + 2 * receivers * period, 6), "sites": [site]}
            return world | {"faults": [*faults, steal]}


def _with_forger(random: Random, world: dict[str, object], site: int, at: float) -> dict[str, object]:
    """The liar and one other are left: nothing may be released, whatever it says in others' names."""
    receivers, period = max(int(str(world["receivers"])), 4), _period(world)
    gone = [other for other in range(1, receivers + 1) if other != site]
    gone.remove(random.choice(gone))
    forge, down, remove = (
        {"kind": "forge", "at": at, "until": round(at + 9 * period, 6), "sites": [site]},
        {"kind": "crash", "at": round(at + 2 * period, 6), "until": round(at + 8 * period, 6), "sites": gone},
        # Sites that were down have no proof, and sites with one enter no ring with the liar: an operator must act.
        {"kind": "remove", "at": round(at + 12 * period, 6), "sites": [site]},
    )
    return world | {"receivers": receivers, "signatures": "receipts", "faults": [forge, down, remove]}


def _honest(seed: int) -> dict[str, object]:
    """The scenario of a seed in which nobody lies about what others rely on."""
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
    # Then: what stays for ever must leave enough of whatever else happens.
    world = with_clocks(seed, world, begin, end, period)
    world = with_customers(seed, world, (begin, end), period)
    world = with_secondary_sources(seed, world, (begin, end), period)
    return with_narrow_stripes(seed, world, (begin, end), period)


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
            faults, lost = _one_fault(random, world, at, span, may_lose)
        may_lose -= lost
        plan.extend(faults)
    return plan


def _one_fault(
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
            # Halves that change sides: a site that was ahead is stale a moment later.
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
