"""A judge that shares nothing with the planner: great circles by haversine, every pair looked at."""

from __future__ import annotations

from math import asin, cos, hypot, inf, radians, sin, sqrt

import numpy as np

from isocast.reformation.scopes.plan import Draining, Plan, Scope
from isocast.reformation.scopes.world import CoverageWorld, MeasuredPath, Places, Surface

__all__ = ["TOLERANCE_KM", "apart", "clashes", "hears", "left_behind", "places", "serving", "shared_while_draining"]

TOLERANCE_KM = 1e-6
EARTH_KM = 6371.0088


def places(prefix: str, where: list[tuple[float, float]]) -> Places:
    return Places(
        tuple([f"{prefix}{number}" for number in range(len(where))]), np.array(where, dtype=np.float64).reshape(-1, 2)
    )


def apart(surface: Surface, a: tuple[float, float], b: tuple[float, float]) -> float:
    if surface is Surface.PLANE:
        return hypot(a[0] - b[0], a[1] - b[1])
    north_a, north_b = radians(a[0]), radians(b[0])
    chord = sin((north_b - north_a) / 2) ** 2
    chord += cos(north_a) * cos(north_b) * sin(radians(b[1] - a[1]) / 2) ** 2
    return 2 * EARTH_KM * asin(min(1.0, sqrt(chord)))


def _where(all_of: Places, name: str) -> tuple[float, float]:
    row = all_of.where[all_of.names.index(name)].tolist()
    return row[0], row[1]


def _link(world: CoverageWorld, receiver: str, customer: str) -> MeasuredPath | None:
    found = [link for link in world.links if (link.receiver, link.customer) == (receiver, customer)]
    return found[0] if found else None


def _km(world: CoverageWorld, receiver: str, customer: str) -> float:
    """The distance that counts."""
    link = _link(world, receiver, customer)
    if link is not None and link.cut:
        return inf
    if link is not None and link.delay_ns is not None:
        return max(world.paths.km_of_delay(link.delay_ns), 0.0)
    return apart(world.surface, _where(world.receivers, receiver), _where(world.customers, customer))


def serving(world: CoverageWorld, receiver: str, customer: str, slack: float = -TOLERANCE_KM) -> bool:
    """Whether the rules allow a customer to rely on a receiver, if its scope were wide enough: surely, or perhaps."""
    km, link, rules = _km(world, receiver, customer), _link(world, receiver, customer), world.rules
    if link is None:
        return km <= world.reach_km + slack
    far = km + rules.margin_km
    if link.cut or far > rules.radius_max_km or world.paths.delay_ns(far) > rules.delay_max_ns:
        return False
    return (world.paths.loss_at(far) if link.loss is None else link.loss) <= rules.loss_max


def hears(world: CoverageWorld, scope: Scope, customer: str, margin: float = 0.0) -> bool:
    """Whether a customer hears a scope that reaches `margin` less than it does."""
    if scope.address is None:
        return False
    return _km(world, scope.receiver, customer) <= scope.radius_km - margin + TOLERANCE_KM


def clashes(world: CoverageWorld, plan: Plan) -> list[tuple[str, str]]:
    """Pairs on one address whose ground meets, or whom some customer hears both."""
    found = []
    speaking = [scope for scope in plan.scopes if scope.address is not None]
    for number, a in enumerate(speaking):
        for b in speaking[number + 1 :]:
            if a.address != b.address:
                continue
            ground = apart(plan.surface, a.place, b.place) <= a.radius_km + b.radius_km - TOLERANCE_KM
            if ground or any(hears(world, a, who) and hears(world, b, who) for who in world.customers.names):
                found.append((a.receiver, b.receiver))
    return found


def left_behind(before: Plan, after: Plan, free_at: int) -> list[Draining]:
    """What addresses left in a step: whole scopes, and rims."""
    now = {scope.receiver: scope for scope in after.scopes}
    left = []
    for old in before.scopes:
        new = now.get(old.receiver)
        stays = new is not None and (new.place, new.address) == (old.place, old.address)
        if old.address is not None and not (stays and new is not None and new.radius_km >= old.radius_km):
            left.append(Draining(old.receiver, old.place, old.radius_km, 0.0, old.address, free_at))
    return left


def shared_while_draining(plan: Plan, resting: list[Draining]) -> list[tuple[str, str]]:
    """Scopes that use an address where another's still drains."""
    return [
        (scope.receiver, rest.receiver)
        for scope in plan.scopes
        for rest in resting
        if scope.address == rest.address
        and scope.receiver != rest.receiver
        and apart(plan.surface, scope.place, rest.place) <= scope.radius_km + rest.radius_km - TOLERANCE_KM
    ]
