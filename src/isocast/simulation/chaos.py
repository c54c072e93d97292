"""A random world from a seed: size, timing, traffic and a plan of faults that ends before the run does, or stays.

What comes out is the content of a scenario file, so that a seed that fails can be written down and run again.
Beside independent faults there are a few plots: sequences that a person would think of to break the protocol.
"""

from __future__ import annotations

from random import Random

from isocast.ring.settings import OrderRule
from isocast.simulation.layers import Edge, Layers
from isocast.simulation.network import stream
from isocast.simulation.scenario_keys import EDGE_KEYS

__all__ = [
    "USUAL_MOST",
    "chaos",
    "floors",
    "liars",
    "ring_size",
    "with_changes",
    "with_clocks",
    "with_customers",
    "with_edges",
    "with_layers",
    "with_narrow_stripes",
    "with_retention",
    "with_secondary_sources",
]


# Worlds at the edges of what is allowed, and faults that fall into the cracks.
#
# Rings of two and of twenty, windows of one message and of thousands, tokens that are full and tokens in parts; crashes
# between two effects of one step, packets that arrive epochs later, sources without their outbox, owners that lie, and
# an owner whose clock is ahead while a ring is formed.
#
# Drawn from streams of their own: a world without them is what it was before there were any.


USUAL_MOST = 7
"""Receivers of a usual ring. Larger ones are slow: they have nobody below them, no operator, and short runs."""

_PAIRS = 0.06
_LARGE = 0.04
_WINDOWS = 0.25
_FULL_TOKENS = 0.4
_PARTS = 0.05
_FLOODS = 0.015
_TORN = 0.4
_LATE = 0.4
_OUTBOXES = 0.12
_LIES = 0.25
_AHEAD = 0.1
_LARGE_TOKENS = 12


def ring_size(seed: int, usual: int) -> int:
    """How many receivers: the usual number, or two, or up to twenty."""
    random = stream(seed, "chaos sizes")
    drawn = random.random()
    if drawn < _PAIRS:
        return 2
    return random.randint(8, 20) if drawn < _PAIRS + _LARGE else usual


def with_edges(seed: int, world: dict[str, object], span: tuple[float, float], period: float) -> dict[str, object]:
    """The world, with what the seed says; faults begin within `span`."""
    world |= _sizes(stream(seed, "chaos edges"), world)
    faults = world["faults"]
    if not isinstance(faults, list):
        return world
    calm = not faults
    if world["order_in_token"] == OrderRule.SHUFFLE and "policy" not in world:
        faults.extend(_lies(stream(seed, "chaos lies"), world, span, period))
    if calm:
        return world
    for name, share, plan in (
        ("torn", _TORN, _torn_steps),
        ("late", _LATE, _late_packets),
        ("outboxes", _OUTBOXES, _lost_outbox),
        ("ahead", _AHEAD, _owner_ahead),
    ):
        random = stream(seed, "chaos", name)
        if random.random() < share:
            faults.extend(plan(random, world, span, period))
    return world


def _sizes(random: Random, world: dict[str, object]) -> dict[str, object]:
    """Windows, full tokens, tokens in parts, floods; and little traffic where the ring is large."""
    changed: dict[str, object] = {}
    per_token = int(str(world["messages_per_token"]))
    tokens = int(str(world["messages"])) // per_token
    large = int(str(world["receivers"])) > USUAL_MOST
    if random.random() < _WINDOWS:
        changed["window"] = random.choice([1, 1, 2, 5, 17, 300, 4096])
    if random.random() < _FULL_TOKENS:
        changed["batch_max"] = max(1, round(per_token * random.choice([0.7, 1, 1.3])))
    drawn = random.random()
    if large:
        changed["messages"] = _LARGE_TOKENS * per_token
    elif drawn < _PARTS:
        # Each source's run takes 52 bytes of a token, of which 1,384 fit a datagram.
        sources = random.randint(40, 80)
        per_token = round(sources * random.choice([1, 1.5]))
        changed |= {"sources": sources, "messages_per_token": per_token, "messages": per_token * min(tokens, 16)}
        changed.pop("batch_max", None)
    elif drawn < _PARTS + _FLOODS:
        burst = random.choice([700, 1500])
        changed |= {"window": 4096, "burst": burst, "messages_per_token": burst, "messages": 3 * burst}
        # A release rate below the peak would let the batches of one token run into those of the next.
        changed |= {"batch_max": random.choice([500, 2000]), "release_rate": random.choice([0, 50])}
    return changed


def _torn_steps(
    random: Random, world: dict[str, object], span: tuple[float, float], period: float
) -> list[dict[str, object]]:
    """Crashes between two effects of a step: of sites above all, and of servers when they hold ballots."""
    receivers = int(str(world["receivers"]))
    faults: list[dict[str, object]] = []
    for _ in range(random.choice([1, 2, 3])):
        node: object = random.randint(1, receivers)
        at = random.uniform(*span)
        match random.choice(["site", "site", "source", "server"]):
            case "source":
                node = "source1"
            case "server":
                node = "server1"
                at = random.choice([0.0, at])
            case _:
                pass
        down = random.choice([0.001, 0.003, 0.3 * period, period, 4 * period])
        inside = random.choice([1, 1, 2, 3, 4])
        fault = {"kind": "crash", "at": round(at, 6), "duration": round(down, 6), "sites": [node], "inside": inside}
        faults.append(fault)
    return faults


def _late_packets(
    random: Random,
    _: dict[str, object],
    span: tuple[float, float],
    period: float,
) -> list[dict[str, object]]:
    """For some time, packets that arrive when nobody waits for them any more."""
    at = random.uniform(*span) if random.random() < 0.5 else 0.01  # noqa: PLR2004 (every other time from the start)
    until = max(random.uniform(*span), at + 2 * period)
    late, by = random.choice([0.02, 0.05, 0.1]), random.choice([1, 3, 8]) * period
    return [{"kind": "late", "at": round(at, 6), "until": round(until, 6), "late": late, "by": round(by, 6)}]


def _lost_outbox(
    random: Random, world: dict[str, object], span: tuple[float, float], period: float
) -> list[dict[str, object]]:
    """A source comes back without its outbox, once or twice."""
    source = f"source{random.randint(1, int(str(world['sources'])))}"
    faults: list[dict[str, object]] = []
    for _ in range(random.choice([1, 1, 2])):
        at = random.uniform(*span)
        until = round(at + random.choice([0.01, 0.5, 2]) * period, 6)
        faults.append({"kind": "crash", "at": round(at, 6), "until": until, "sites": [source], "disk": "lost"})
    return faults


def _lies(
    random: Random, world: dict[str, object], span: tuple[float, float], period: float
) -> list[dict[str, object]]:
    """An owner reveals other nonces than it committed to, for a token or for a few cycles."""
    receivers = int(str(world["receivers"]))
    if random.random() >= _LIES or receivers < 3:  # noqa: PLR2004 (two cannot do without one of them)
        return []
    at = random.uniform(*span)
    until = at + random.choice([1, 2.5]) * receivers * period
    site = random.randint(1, receivers)
    return [{"kind": "lie", "at": round(at, 6), "until": round(until, 6), "sites": [site]}]


def _owner_ahead(
    random: Random, world: dict[str, object], span: tuple[float, float], period: float
) -> list[dict[str, object]]:
    """The next owner's clock is ahead by most of a period: its token is out early, and a ring is formed before T_t."""
    receivers = int(str(world["receivers"]))
    start = 2 * float(str(world["one_way_delay"])) + period
    slot = int((span[0] - start) / period) + random.randint(1, 4)
    at = start + slot * period + 0.025
    owner = (slot + 1) % receivers + 1
    other = (owner + random.randint(0, receivers - 2)) % receivers + 1
    ahead = round(period - 0.035, 6)
    return [
        {"kind": "clock-step", "at": round(at, 6), "until": round(at + period, 6), "sites": [owner], "step": ahead},
        {"kind": "drain", "at": round(at + 0.02, 6), "until": round(at + 4 * period, 6), "sites": [other]},
    ]


# Planned changes in some of the random worlds: sites drain, come and go, lose their disks, and majorities get
# lost.
#
# Drawn from a stream of its own: a world without them is what it was before there were any.


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


# Wrong clocks in some of the random worlds, and faults that stay for ever, within what the rest must bear (L7).
#
# Servers' clocks jump and run away, for a while or for good; a receiver's clock is wrong for a moment; and in a share
# of the worlds wrong clocks and dead nodes stay. A majority of sound receivers is left, and one server, whose clock may
# be as wrong as any. Drawn from a stream of its own: a world without them is what it was before there were any.


_CLOCKED = 0.5
_LASTING = 0.5
_RIGHT = 0.35
"""Share of the servers that are left whose clock stays right."""
_DEAD = 0.4
"""Share of the lasting faults of receivers that are deaths."""
_STEPS = (0.03, 0.03, 0.2, 0.2, 1.0, 3.0, 5.0, 60.0, 3_600.0)
_RATES = (0.0005, 0.01, 0.05)
_OPERATED = ("drain", "add", "remove", "force")


def with_clocks(seed: int, world: dict[str, object], begin: float, end: float, period: float) -> dict[str, object]:
    """The world, with wrong clocks if the seed says so; they begin between two instants."""
    random = stream(seed, "chaos clocks")
    faults = world["faults"]
    if random.random() >= _CLOCKED or not isinstance(faults, list) or not faults:
        return world
    for _ in range(random.randint(1, 2)):
        at = round(random.uniform(begin, end), 6)
        faults.extend(_clocks_story(random, world, at, period))
    operated = "policy" in world or any(fault["kind"] in _OPERATED for fault in faults)
    if not operated and random.random() < _LASTING:
        faults.extend(_for_ever(random, world, faults, (begin, end)))
    return world


def _clocks_story(random: Random, world: dict[str, object], at: float, period: float) -> list[dict[str, object]]:
    """Clocks that are wrong for a while."""
    receivers = int(str(world["receivers"]))
    site = random.randint(1, receivers)
    until = round(at + random.choice([0.3, 1, 3, 6, 12]) * period, 6)
    ballot = {"kind": "crash", "at": round(at + period / 2, 6), "until": round(at + 4 * period, 6), "sites": [site]}
    match random.choice(["server", "server", "servers", "moment", "moment", "source"]):
        case "server":
            # The first server's clock is wrong when a receiver dies.
            return [{"at": at, "until": until, "sites": ["server1"]} | _wrong(random), ballot]
        case "servers":
            return [{"at": at, "until": until, "sites": _servers(world)} | _wrong(random), ballot]
        case "moment":
            # A receiver's clock is ahead by cycles, for a moment, while no server is there to form another ring.
            span = round(random.choice([0.7, 1.5, 2.5]) * receivers * period, 6)
            down = {"kind": "crash", "at": at, "until": round(at + span, 6), "sites": _servers(world)}
            step = round(random.choice([1, 1.5, 3]) * receivers * period, 6)
            moment = {"kind": "clock-step", "at": round(at + 0.01, 6), "until": round(at + 0.04, 6), "sites": [site]}
            return [down, moment | {"step": step}]
        case _:
            return [{"at": at, "until": until, "sites": ["source1"]} | _wrong(random)]


def _wrong(random: Random) -> dict[str, object]:
    """A clock that jumps, or that runs away."""
    sign = random.choice([-1, 1])
    if random.random() < len(_RATES) / (len(_RATES) + len(_STEPS)):
        return {"kind": "clock-drift", "rate": sign * random.choice(_RATES)}
    return {"kind": "clock-step", "step": sign * random.choice(_STEPS)}


def _for_ever(
    random: Random, world: dict[str, object], faults: list[dict[str, object]], span: tuple[float, float]
) -> list[dict[str, object]]:
    """Wrong clocks and dead nodes that stay; what is left is a majority of sound receivers, and a server."""
    receivers = int(str(world["receivers"]))
    forgot = {site for fault in faults if fault.get("disk") == "lost" for site in _sites(fault)}
    sites = [site for site in range(1, receivers + 1) if site not in forgot]
    spare = len(sites) - (receivers // 2 + 1)
    chosen = random.sample(sites, random.randint(min(1, spare), spare))
    lasting = [
        {"at": round(random.uniform(*span), 6), "sites": [site]}
        | ({"kind": "crash"} if random.random() < _DEAD else _wrong(random))
        for site in chosen
    ]
    servers = _servers(world)
    kept = random.randint(1, len(servers))
    random.shuffle(servers)
    wrong = [server for server in servers[:kept] if random.random() >= _RIGHT]
    lasting += [{"kind": "crash", "at": round(random.uniform(*span), 6), "sites": [node]} for node in servers[kept:]]
    lasting += [{"at": round(random.uniform(*span), 6), "sites": [node]} | _wrong(random) for node in wrong]
    return lasting


def _sites(fault: dict[str, object]) -> list[object]:
    sites = fault.get("sites")
    return list(sites) if isinstance(sites, list) else []


def _servers(world: dict[str, object]) -> list[object]:
    return [f"server{number}" for number in range(1, int(str(world["servers"])) + 1)]


# Secondary receivers for some of the random worlds, and faults that hit them, their parents and their links.
#
# Drawn from a stream of its own: a world without them is what it was before there were any. Faults of heads come from
# another: heads and their backups, heads below the ring, and the links between a head and its group.


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


# Disks that keep little, in some of the random worlds, and sites that are away for longer than that.
#
# Drawn from a stream of its own: a world without them is what it was before there were any.


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


# Archives, customers and secondary sources for some of the random worlds, and faults that hit them alone.
#
# They come last, and are drawn from streams of their own: the rest of a world is what it was before there were any.


_WATCHED = 1 / 3
_FORWARDED = 1 / 8
_NARROW = 0.2
_USUAL_LOAD = 12
"""Messages in a token: of more, statuses alone would fill the narrowest stripes."""
_FLOOD = 200


def with_customers(seed: int, world: dict[str, object], span: tuple[float, float], period: float) -> dict[str, object]:
    """The world, with archives and customers if the seed says so; their faults begin within `span`."""
    random = stream(seed, "chaos customers")
    if random.random() >= _WATCHED or int(str(world["receivers"])) > USUAL_MOST:
        return world
    archives, customers, latest = random.choice([(1, 1, 0), (1, 1, 1), (1, 2, 1), (2, 1, 0), (2, 2, 0), (2, 3, 1)])
    world |= {"archives": archives, "customers": customers, "latest_customers": latest}
    faults = world["faults"]
    if not isinstance(faults, list) or not faults:
        return world
    tree = _tree(world)
    sites = (*range(1, tree.receivers + 1), *tree.secondary_sites)
    edge = Edge(archives, customers, latest)
    for _ in range(random.randint(1, 4)):
        faults.extend(_edge_fault(random, edge, sites, span, period))
    return world


def _edge_fault(
    random: Random, edge: Edge, sites: tuple[int, ...], span: tuple[float, float], period: float
) -> list[dict[str, object]]:
    """One thing that happens to an archive or to a customer."""
    place = random.randrange(len(edge.customer_nodes))
    customer, archive = f"customer{place + 1}", f"archive{random.randint(1, edge.archives)}"
    node = random.choice([customer, archive])
    lines = list(edge.lines(edge.customer_nodes[place], sites))
    at = round(random.uniform(*span), 6)
    until = round(at + random.choice([0.3, 1, 3, 6, 12]) * period, 6)
    when: dict[str, object] = {"at": at, "until": until}
    match random.choice(["crash", "crash", "late", "disk", "pause", "alone", "lines", "deaf", "no archive", "clock"]):
        case "crash":
            return [{"kind": "crash", "sites": [node]} | when]
        case "late":
            return [{"kind": "crash", "at": 0.0, "until": at, "sites": [node]}]
        case "disk":
            return [{"kind": "crash", "sites": [node], "disk": "lost"} | when]
        case "pause":
            return [{"kind": "pause", "sites": [node]} | when]
        case "alone":
            return [{"kind": "isolate", "sites": [node]} | when]
        case "lines":
            # Every other time the receivers that it hears are silent to it for ever.
            kind = random.choice(["partition", "one-way"])
            return [{"kind": kind, "groups": [lines, [customer]]} | random.choice([when, {"at": at}])]
        case "deaf":
            return [{"kind": "one-way", "groups": [lines[:1], [customer]], "at": at}]
        case "no archive":
            archives = [f"archive{number}" for number in range(1, edge.archives + 1)]
            return [{"kind": "crash", "sites": archives} | random.choice([when, {"at": at}])]
        case _:
            step = random.choice([-3, -0.3, -0.05, 0.05, 0.3, 3])
            return [{"kind": "clock-step", "sites": [node], "step": step} | when]


def with_secondary_sources(
    seed: int, world: dict[str, object], span: tuple[float, float], period: float
) -> dict[str, object]:
    """The world, with secondary sources if the seed says so; their faults, and their parents', begin within `span`."""
    random = stream(seed, "chaos secondary sources")
    sources = int(str(world["sources"]))
    if random.random() >= _FORWARDED or int(str(world["receivers"])) > USUAL_MOST or sources > USUAL_MOST:
        return world
    count = random.choice([1, 1, 2])
    world["secondary_sources"] = count
    faults = world["faults"]
    if not isinstance(faults, list) or not faults:
        return world
    for _ in range(random.randint(1, 3)):
        place = random.randrange(count)
        own, parent = f"source{sources + place + 1}", f"source{Edge.parent(place, sources)}"
        at = round(random.uniform(*span), 6)
        when: dict[str, object] = {"at": at, "until": round(at + random.choice([0.3, 1, 3, 6]) * period, 6)}
        match random.choice(["own", "own", "parent", "parent", "parted", "no answer", "pause"]):
            case "own":
                faults.append({"kind": "crash", "sites": [own]} | when)
            case "parent":
                faults.append({"kind": "crash", "sites": [parent]} | when)
            case "parted":
                faults.append({"kind": "partition", "groups": [[own], [parent]]} | when)
            case "no answer":
                # The parent takes everything, and nobody hears of it.
                faults.append({"kind": "one-way", "groups": [[parent], [own]]} | when)
            case _:
                faults.append({"kind": "pause", "sites": [random.choice([own, parent])]} | when)
    return world


def with_narrow_stripes(
    seed: int, world: dict[str, object], span: tuple[float, float], period: float
) -> dict[str, object]:
    """The world, with senders and customers of narrow stripes if the seed says so, where sites must agree."""
    random = stream(seed, "chaos narrow stripes")
    faults, per_token = world["faults"], int(str(world["messages_per_token"]))
    if random.random() >= _NARROW or int(str(world["receivers"])) > USUAL_MOST or not isinstance(faults, list):
        return world
    diverges = world["gate"] == "timed" or "policy" in world or any(fault["kind"] == "force" for fault in faults)
    if diverges or per_token > _FLOOD:
        return world
    senders, customers = random.choice([(1, 1), (2, 1), (2, 2), (2, 3)])
    size = random.choice([200, 300, 600]) if per_token <= _USUAL_LOAD else 4_000
    world |= {"stripe_senders": senders, "narrow_customers": customers, "stripe_bytes": size}
    if faults:
        for _ in range(random.randint(1, 4)):
            faults.append(_narrow_fault(random, senders, customers, span, period))
    return world


def _narrow_fault(
    random: Random, senders: int, customers: int, span: tuple[float, float], period: float
) -> dict[str, object]:
    """One thing that happens to a sender or to a customer of narrow stripes."""
    sender, customer = f"sender{random.randint(1, senders)}", f"narrow{random.randint(1, customers)}"
    node = random.choice([sender, sender, customer])
    at = round(random.uniform(*span), 6)
    when: dict[str, object] = {"at": at, "until": round(at + random.choice([0.3, 1, 3, 6, 12]) * period, 6)}
    match random.choice(["crash", "crash", "crash", "late", "disk", "pause", "alone", "parted", "deaf"]):
        case "crash":
            return {"kind": "crash", "sites": [node]} | when
        case "late":
            return {"kind": "crash", "at": 0.0, "until": at, "sites": [node]}
        case "disk":
            return {"kind": "crash", "sites": [node], "disk": "lost"} | when
        case "pause":
            return {"kind": "pause", "sites": [node]} | when
        case "alone":
            return {"kind": "isolate", "sites": [node]} | when
        case "parted":
            return {"kind": "partition", "groups": [[sender], [customer]]} | random.choice([when, {"at": at}])
        case _:
            return {"kind": "one-way", "groups": [[sender], [customer]]} | when


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
    """The scenario of a seed, in which somebody lies, forges, replays or has stolen a key."""
    lying = with_liar(stream(seed, "chaos", "liars"), _honest(seed))
    random = stream(seed, "chaos", "intruders")
    return _with_intruder(random, lying) if random.random() < _INTRUDERS else lying


def with_liar(random: Random, world: dict[str, object]) -> dict[str, object]:
    """A world in which one member lies, and nothing else goes wrong but lost packets.

    A majority outvotes one liar as long as the honest ones hear each other: with a partition as well, it could show
    each side another sequence.
    """
    lying: dict[str, object] = {key: world[key] for key in _KEPT_AMONG_LIARS if key in world}
    # Of three the liar and whoever believes it are a majority: there it can do most.
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
        [*_sites(fault), *[node for group in groups for node in group]] if isinstance(groups, list) else _sites(fault)
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
    """A world with forged receipts, words of the past, an old roster, or a stolen key; somebody crashes meanwhile."""
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
            # No server forms a ring without the liar: whoever has proof of the lie must not count it all the same.
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
        # Whoever was down has no proof, and whoever has one enters no ring with the liar: its operator acts on it.
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
