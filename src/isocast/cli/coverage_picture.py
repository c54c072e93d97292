"""What `isocast config check` shows of `[coverage]`: the plan of lines as it is with every receiver on the ring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isocast.cli.render import line, show_table
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import duration_text

if TYPE_CHECKING:
    from isocast.runtime.market.model import Market

__all__ = ["coverage_as_json", "coverage_text", "show_coverage"]


def coverage_text(market: Market) -> str:
    """In a few words."""
    table = market.coverage
    if not table.enabled:
        return "off: each line has the group of its number"
    pool = f"{table.addresses:,} groups from {table.groups}, drain {duration_text(table.drain_ns)}"
    return f"everybody hears {table.lines} lines; {pool}; notices in {table.notices}"


def coverage_as_json(market: Market) -> dict[str, Any]:
    """The plan of each stripe with everybody on the ring, for programs."""
    if not market.coverage.enabled:
        return {"enabled": False}
    return {"enabled": True, "stripes": [_stripe(market.of_stripe(stripe), stripe) for stripe in market.stripes]}


def _stripe(market: Market, stripe: int) -> dict[str, Any]:
    from isocast.reformation.scopes.coverage import cover
    from isocast.reformation.scopes.planning import plan_scopes
    from isocast.runtime.market.coverage_world import coverage_world

    world = coverage_world(market, stripe, market.universe)
    try:
        plan = plan_scopes(world)
    except ConfigurationError as reason:
        return {"stripe": stripe, "trouble": reason.rule, "lines": [], "short": []}
    seen = cover(world, plan)
    lines = [
        {
            "name": market.name_of(int(scope.receiver)),
            "group": None if scope.address is None else str(plan.group(scope.address)),
            "radius_km": scope.radius_km,
            "ttl": None if scope.address is None else market.coverage.ttl(round(scope.radius_km * 1000)),
            "listeners": int(heard),
        }
        for scope, heard in zip(plan.scopes, seen.customers_of.tolist(), strict=True)
    ]
    short = [{"name": one.customer, "lines": one.lines, "reason": one.reason} for one in seen.short]
    return {"stripe": stripe, "trouble": None, "lines": lines, "short": short}


def show_coverage(market: Market) -> None:
    """The same in tables; nothing where lines are not planned."""
    found = coverage_as_json(market)
    for one in found.get("stripes", ()):
        if one["trouble"]:
            line(f"warning: coverage: {one['trouble']}")
            continue
        of = f" of stripe {one['stripe']}" if len(market.stripes) > 1 else ""
        rows = [
            (
                entry["name"],
                entry["group"] or "silent, in reserve",
                f"{entry['radius_km']:,.0f} km" if entry["radius_km"] else "–",
                str(entry["ttl"] or "–"),
                str(entry["listeners"]),
            )
            for entry in one["lines"]
        ]
        title = f"Lines{of} with every receiver on the ring"
        show_table(title, ("line of", "group", "scope", "TTL", "listeners"), rows)
        for entry in one["short"]:
            line(f"warning: coverage: {entry['name']} hears {entry['lines']}: {entry['reason']}")
