"""The plan of lines as one node's status shows it (§4.3)."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.reformation.scopes.line_keeper import group_of, scope_of, sources
from isocast.runtime.market.model import Market, NodePlan
from isocast.terms.instants import SECOND
from isocast.wire.packets import NO_ADDRESS, Lines

__all__ = ["DrainingGroup", "LineGauges", "line_gauges"]

_METRES = 1000


@dataclass(frozen=True, slots=True)
class DrainingGroup:
    """A group that rests, who left it, and for how long yet."""

    group: str
    receiver: str
    free_in_s: float


@dataclass(frozen=True, slots=True)
class LineGauges:
    """What a node knows of the plan, and its own part in it."""

    version: str
    """The epoch of the ring that it was made for, and which plan of that ring it is."""
    ballot: int
    group: str | None = None
    """A receiver's own; None if it is silent, or not in the plan."""
    radius_km: float | None = None
    ttl: int | None = None
    sources: tuple[str, ...] = ()
    """Of a listener: the receivers that it hears by the plan, the nearest first."""
    wanted: int = 0
    """How many it should hear."""
    draining: tuple[DrainingGroup, ...] = ()
    short: tuple[str, ...] = ()
    """Of a server: customers who hear too few by the plan."""


def line_gauges(market: Market, plan: NodePlan, lines: Lines, now: int, short: tuple[str, ...] = ()) -> LineGauges:
    """The plan as this node sees it."""
    scope = scope_of(lines, plan.node) if plan.role.is_receiver else None
    speaks = scope is not None and scope.address != NO_ADDRESS
    heard = sources(lines, plan.place) if plan.lines and plan.place is not None else ()
    return LineGauges(
        version=str(lines.version),
        ballot=lines.version.ballot.number,
        group=group_of(lines, scope.address) if scope is not None and speaks else None,
        radius_km=scope.radius_m / _METRES if scope is not None else None,
        ttl=market.coverage.ttl(scope.radius_m) if scope is not None and speaks else None,
        sources=tuple([market.name_of(site) for site in heard]),
        wanted=market.coverage.lines,
        draining=tuple(
            [
                DrainingGroup(
                    group_of(lines, rest.address), market.name_of(rest.site), round((rest.free_at - now) / SECOND, 1)
                )
                for rest in lines.rests
                if rest.free_at > now
            ]
        ),
        short=short,
    )
