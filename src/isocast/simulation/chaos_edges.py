"""Worlds at the edges of what is allowed, and faults that fall into the cracks.

Rings of two and of twenty, windows of one message and of thousands, tokens that are full and tokens in parts; crashes
between two effects of one step, packets that arrive epochs later, sources without their outbox, owners that lie, and an
owner whose clock is ahead while a ring is formed.

Drawn from streams of their own: a world without them is what it was before there were any.
"""

from __future__ import annotations

from random import Random

from isocast.ring.settings import OrderRule
from isocast.simulation.randomness import stream

__all__ = ["USUAL_MOST", "ring_size", "with_edges"]

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
        # Each source's run takes 36 bytes of a token, of which 1,392 fit a datagram.
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
