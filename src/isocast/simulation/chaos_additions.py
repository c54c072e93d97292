"""What some of the random worlds of `chaos` have beside a ring and its plain faults.

Edges of what is allowed, operators, wrong clocks, secondary receivers, small disks, customers and their kin: each is
added to a world that exists, and drawn from streams of its own, so that a world without it is what it was before.
"""

from __future__ import annotations

from random import Random

from isocast.ring.settings import OrderRule
from isocast.simulation.layers import Edge, Layers
from isocast.simulation.network import stream

__all__ = [
    "USUAL_MOST",
    "ring_size",
    "sites_of",
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
    forgot = {site for fault in faults if fault.get("disk") == "lost" for site in sites_of(fault)}
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


def sites_of(fault: dict[str, object]) -> list[object]:
    """Whom a fault hits."""
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
            # The site that takes the group over is cut off from it.
            return [{"kind": "crash", "sites": [head]}, {"kind": "partition", "groups": [[tree.backup(one)], group]}]


def _take_sides(random: Random, groups: list[list[object]], tree: Layers) -> None:
    """Sides of a partition for nodes in no group: most stay with their parent, some change sides, some bridge."""
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
