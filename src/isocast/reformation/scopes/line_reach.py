"""What a plan of lines means for one node: where a receiver speaks, and what a listener hears, at an instant.

Pure functions of the plan and the time. A receiver that left an address speaks there as well for the first half of the
address's drain time, so that whoever listens comes along without a gap; the second half is silence.
"""

from __future__ import annotations

from ipaddress import IPv4Address

from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.terms.topology import City, great_circle_km
from isocast.wire.line_packets import NO_ADDRESS, LineRest, Lines, LineScope

__all__ = ["group_of", "hearing", "next_change", "radius_of", "reaches", "scope_of", "sources", "speaking"]

_METRES = 1000
_SLACK_M = 1
"""Radii are rounded up to the metre, and two ways of computing a distance differ by less than that."""


def group_of(lines: Lines, address: int) -> str:
    """The first group of an address."""
    return str(IPv4Address(lines.first_group + address * lines.stripes))


def scope_of(lines: Lines | None, site: NodeId) -> LineScope | None:
    """The scope of one receiver; None if the plan does not have it."""
    if lines is None:
        return None
    return next((scope for scope in lines.scopes if scope.site == site), None)


def reaches(one: LineScope | LineRest, place: City) -> bool:
    """Whether who stands there hears it."""
    away_m = great_circle_km(City("", "", one.latitude, one.longitude), place) * _METRES
    return one.radius_m > 0 and away_m <= one.radius_m + _SLACK_M


def sources(lines: Lines, place: City) -> tuple[NodeId, ...]:
    """The receivers that a listener hears by the plan, the nearest first."""
    near = [
        (great_circle_km(City("", "", scope.latitude, scope.longitude), place), scope.site)
        for scope in lines.scopes
        if reaches(scope, place)
    ]
    return tuple([site for _, site in sorted(near)])


def hearing(lines: Lines, place: City, now: int, drain_ns: int) -> dict[str, tuple[NodeId, ...]]:
    """The groups that a listener joins, and of each the receivers that it means: others there are out of reach."""
    found: dict[str, dict[NodeId, None]] = {}
    heard: list[LineScope | LineRest] = [scope for scope in lines.scopes if scope.address != NO_ADDRESS]
    heard += [rest for rest in lines.rests if _still_spoken(rest, now, drain_ns)]
    for one in heard:
        if reaches(one, place):
            found.setdefault(group_of(lines, one.address), {})[one.site] = None
    return {group: tuple(sites) for group, sites in found.items()}


def speaking(lines: Lines, site: NodeId, now: int, drain_ns: int) -> dict[str, int]:
    """The groups on which a receiver speaks now, and how many metres far."""
    found: dict[str, int] = {}
    scope = scope_of(lines, site)
    mine: list[LineScope | LineRest] = [scope] if scope is not None and scope.address != NO_ADDRESS else []
    mine += [rest for rest in lines.rests if rest.site == site and _still_spoken(rest, now, drain_ns)]
    for one in mine:
        group = group_of(lines, one.address)
        found[group] = max(found.get(group, 0), one.radius_m)
    return found


def radius_of(lines: Lines | None, site: NodeId) -> int:
    """In metres; 0 for a silent scope."""
    scope = scope_of(lines, site)
    return 0 if scope is None else scope.radius_m


def next_change(lines: Lines | None, now: int, drain_ns: int) -> int:
    """When `hearing` or `speaking` says something else next; NEVER if the plan only knows what is."""
    if lines is None:
        return NEVER
    ends = [_spoken_until(rest, drain_ns) for rest in lines.rests]
    return min([end for end in ends if end > now], default=NEVER)


def _still_spoken(rest: LineRest, now: int, drain_ns: int) -> bool:
    return now < _spoken_until(rest, drain_ns)


def _spoken_until(rest: LineRest, drain_ns: int) -> int:
    return rest.free_at - drain_ns // 2
