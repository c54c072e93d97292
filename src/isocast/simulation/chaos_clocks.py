"""Wrong clocks in some of the random worlds, and faults that stay for ever, within what the rest must bear (L7).

Servers' clocks jump and run away, for a while or for good; a receiver's clock is wrong for a moment; and in a share of
the worlds wrong clocks and dead nodes stay. A majority of sound receivers is left, and one server, whose clock may be
as wrong as any. Drawn from a stream of its own: a world without them is what it was before there were any.
"""

from __future__ import annotations

from random import Random

from isocast.simulation.randomness import stream

__all__ = ["with_clocks"]

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
        faults.extend(_story(random, world, at, period))
    operated = "policy" in world or any(fault["kind"] in _OPERATED for fault in faults)
    if not operated and random.random() < _LASTING:
        faults.extend(_for_ever(random, world, faults, (begin, end)))
    return world


def _story(random: Random, world: dict[str, object], at: float, period: float) -> list[dict[str, object]]:
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
