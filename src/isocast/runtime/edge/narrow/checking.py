"""`[edge]` together with the plan that it names: looked at before anything is started."""

from __future__ import annotations

from ipaddress import IPv4Address

from isocast.runtime.edge.narrow.plan_change import check_plan, edges_of
from isocast.runtime.edge.narrow.plans import load_plan
from isocast.runtime.market.model import Market, NodeRole
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import duration_text

__all__ = ["check_edge", "edge_advice"]


def check_edge(market: Market) -> None:
    """ConfigurationError for narrow stripes that could not be sent, or would be sent into each other's groups."""
    edge = market.edge
    if edge is None:
        return
    check_plan(market, load_plan(edge.plan), None)
    sites = [plan.number for plan in edges_of(market)]
    servers = [plan.number for plan in market.by_role(NodeRole.RETRANSMIT_SERVER)]
    if not sites or not servers:
        return
    stripes = _span(edge.groups, sites, edge.span)
    repairs = _span(edge.repairs, servers, edge.span)
    if stripes[0] <= repairs[1] and repairs[0] <= stripes[1]:
        rule = f"{edge.repairs} and what follows are groups of stripes: those are {_text(stripes)}; choose another"
        raise ConfigurationError(market.file, "edge.repairs", rule)


def edge_advice(market: Market) -> tuple[str, ...]:
    """Of a plan that is sound: what was perhaps not meant."""
    if market.edge is None:
        return ()
    planned, period = load_plan(market.edge.plan).token_period_ns, market.timing.token_period_ns
    if planned == period:
        return ()
    wanted = duration_text(period)
    rule = f"was made for a token period of {duration_text(planned)}, and the market's is {wanted}: it has other peaks"
    return (f"edge.plan: {rule}; make it with --token-period {wanted}",)


def _span(base: str, numbers: list[int], span: int) -> tuple[int, int]:
    first = int(IPv4Address(base))
    return first + min(numbers) * span, first + (max(numbers) + 1) * span - 1


def _text(groups: tuple[int, int]) -> str:
    return f"{IPv4Address(groups[0])} to {IPv4Address(groups[1])}"
