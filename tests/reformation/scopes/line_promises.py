"""What must be true of plans of lines, one after the other, judged without the planner's own code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from isocast.terms.topology import City, great_circle_km
from isocast.wire.packets import NO_ADDRESS, LineRest, Lines, LineScope

__all__ = ["check_plans", "heard_by", "overlap"]


def overlap(a: LineScope | LineRest, b: LineScope | LineRest) -> bool:
    """Whether two scopes share ground."""
    return _away_m(a, City("", "", b.latitude, b.longitude)) <= a.radius_m + b.radius_m - 2


def heard_by(lines: Lines, place: City) -> list[int]:
    """Whose scopes a place is in."""
    return [one.site for one in lines.scopes if one.radius_m and _away_m(one, place) <= one.radius_m + 1]


def _away_m(one: LineScope | LineRest, place: City) -> float:
    return great_circle_km(City("", "", one.latitude, one.longitude), place) * 1000


def check_plans(plans: Iterable[Lines], places: Sequence[City], drain_ns: int) -> None:
    """Everybody hears two; who overlaps shares no address; and none is used again before it has drained."""
    ordered = sorted(plans, key=lambda lines: lines.version)
    for lines in ordered:
        for a, b in combinations([scope for scope in lines.scopes if scope.address != NO_ADDRESS], 2):
            assert a.address != b.address or not overlap(a, b), (a, b)
        for place in places:
            assert len(heard_by(lines, place)) >= 2, (place.name, str(lines.version))
    for number, before in enumerate(ordered[:-1]):
        # When a plan ceased to be followed is not earlier than when the next one was made.
        free_at = ordered[number + 1].made_at + drain_ns
        for after in [lines for lines in ordered[number + 1 :] if lines.made_at < free_at]:
            for left in [scope for scope in before.scopes if scope.address != NO_ADDRESS]:
                for scope in after.scopes:
                    again = scope.site != left.site and scope.address == left.address and overlap(scope, left)
                    assert not again or scope in before.scopes, (left, scope)
