"""A coverage plan as the packet LINES and back, and the plan that follows another at a reformation (§4.3).

Receivers are called by their ids, in digits, so that a plan needs no names; a place is degrees on the earth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address

from isocast.reformation.scopes.adjustment import adjust
from isocast.reformation.scopes.coverage import cover
from isocast.reformation.scopes.line_effects import PlanMade
from isocast.reformation.scopes.plan import Draining, Plan, Scope, What, changes
from isocast.reformation.scopes.planning import plan_scopes
from isocast.reformation.scopes.surface import Surface
from isocast.reformation.scopes.world import AddressPool, World
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import NodeId
from isocast.wire.limits import MAX_LINE_RESTS, MAX_LINE_SCOPES
from isocast.wire.line_packets import NO_ADDRESS, LineRest, Lines, LineScope, PlanVersion

__all__ = ["next_plan", "same_scopes", "to_lines", "to_plan"]

_METRES = 1000
_UNCHANGED = (What.KEPT, What.SILENT)


def to_plan(lines: Lines, wanted: int) -> Plan:
    """The plan of a packet; `wanted` is k, which travels in the market's file."""
    scopes = [
        Scope(
            str(scope.site),
            (scope.latitude, scope.longitude),
            scope.radius_m / _METRES,
            scope.settled_m / _METRES,
            None if scope.address == NO_ADDRESS else scope.address,
        )
        for scope in lines.scopes
    ]
    rests = [
        Draining(
            str(rest.site),
            (rest.latitude, rest.longitude),
            rest.radius_m / _METRES,
            rest.settled_m / _METRES,
            rest.address,
            rest.free_at,
        )
        for rest in lines.rests
    ]
    first = IPv4Address(lines.first_group)
    return Plan(Surface.EARTH, wanted, lines.made_at, first, lines.stripes, tuple(scopes), tuple(rests))


def to_lines(plan: Plan, version: PlanVersion, stripe: int, sender: NodeId) -> Lines:
    """The packet of a plan; ConfigurationError if it is larger than a packet."""
    rests = _compact(plan.draining)
    if len(plan.scopes) > MAX_LINE_SCOPES or len(rests) > MAX_LINE_RESTS:
        rule = f"a plan has at most {MAX_LINE_SCOPES} receivers, and {MAX_LINE_RESTS:,} addresses that rest"
        raise ConfigurationError("<plan>", "coverage", f"{rule}; this one {len(plan.scopes)} and {len(rests):,}")
    return Lines(
        stripe,
        version.ballot,
        sender,
        version,
        plan.made_at_ns,
        int(plan.first),
        plan.stripes,
        tuple(
            [
                LineScope(
                    int(scope.receiver),
                    *scope.place,
                    _metres(scope.radius_km),
                    _metres(scope.settled_km),
                    NO_ADDRESS if scope.address is None else scope.address,
                )
                for scope in plan.scopes
            ]
        ),
        tuple(
            [
                LineRest(
                    int(rest.receiver),
                    *rest.place,
                    _metres(rest.radius_km),
                    _metres(rest.settled_km),
                    rest.address,
                    rest.free_at_ns,
                )
                for rest in rests
            ]
        ),
    )


def next_plan(before: Lines | None, world: World, now: int, version: PlanVersion, stripe: int) -> PlanMade:
    """The plan for this world, with few changes against the one in force; ConfigurationError if there is none.

    A pure function of its arguments. `version.author` made it.
    """
    was = to_plan(before, world.rules.lines) if before is not None else None
    if was is None:
        plan = plan_scopes(world, now)
        difference = changes(replace(plan, scopes=()), plan)
    else:
        plan = adjust(_in_pool(was, world.pool, now), world, now)
        difference = changes(was, plan)
    short = tuple([(one.customer, one.lines, one.reason) for one in cover(world, plan).short])
    return PlanMade(
        to_lines(plan, version, stripe, version.author),
        sum(change.what not in _UNCHANGED for change in difference),
        sum(change.what is What.MOVED for change in difference),
        short,
    )


def same_scopes(a: Lines, b: Lines) -> bool:
    """Whether nobody would have to do anything; what rests only expires."""
    return (a.first_group, a.stripes, a.scopes) == (b.first_group, b.stripes, b.scopes)


def _in_pool(plan: Plan, pool: AddressPool, now: int) -> Plan:
    """A plan whose groups are those of another pool: everybody leaves, and what the pools share rests."""
    if (plan.first, plan.stripes) == (pool.first, pool.stripes):
        return plan
    free_at = now + pool.drain_ns
    left = [
        Draining(scope.receiver, scope.place, scope.radius_km, scope.settled_km, scope.address, free_at)
        for scope in plan.scopes
        if scope.address is not None
    ]
    rests = []
    for rest in (*plan.draining, *left):
        low = int(plan.group(rest.address)) - int(pool.first)
        taken = {group // pool.stripes for group in range(low, low + plan.stripes)}
        rests += [replace(rest, address=address) for address in sorted(taken) if 0 <= address < pool.usable]
    return replace(plan, first=pool.first, stripes=pool.stripes, scopes=(), draining=tuple(rests))


def _compact(rests: Iterable[Draining]) -> list[Draining]:
    """Without those that another one covers: the same address of the same place, as wide and as long."""
    kept: list[Draining] = []
    for rest in sorted(rests, key=lambda one: (-one.free_at_ns, -one.radius_km)):
        same = (rest.receiver, rest.place, rest.address)
        if not any((one.receiver, one.place, one.address) == same and one.radius_km >= rest.radius_km for one in kept):
            kept.append(rest)
    return sorted(kept, key=lambda one: (one.free_at_ns, one.receiver, one.address))


def _metres(km: float) -> int:
    return round(km * _METRES)
