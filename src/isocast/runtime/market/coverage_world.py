"""The world that a plan of lines is made for: a market's receivers and customers by place (§4.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isocast.reformation.scopes.world import AddressPool, CoverageWorld, Paths, Places, ScopeRules, Surface
from isocast.runtime.market.model import Market, NodePlan, NodeRole, line_listeners, line_receivers
from isocast.terms.ids import NodeId

__all__ = ["coverage_world"]


def coverage_world(market: Market, stripe: int, sites: tuple[NodeId, ...]) -> CoverageWorld:
    """As it is with these sites on the ring. Receivers are called by their ids, customers by their names.

    Secondary receivers count as long as the file has them: no ballot tells which of them are up.
    """
    table = market.coverage
    receivers = [
        plan for plan in line_receivers(market) if plan.node in sites or plan.role is NodeRole.SECONDARY_RECEIVER
    ]
    return CoverageWorld(
        Surface.EARTH,
        _places(receivers, [str(plan.node) for plan in receivers]),
        _places(line_listeners(market), [plan.name for plan in line_listeners(market)]),
        Paths(km_per_hop=float(table.km_per_hop)),
        rules=ScopeRules(lines=table.lines, delay_max_ns=table.delay_max_ns),
        pool=AddressPool(
            table.first_group(stripe),
            table.addresses,
            drain_ns=table.drain_ns,
            drain_everywhere=table.drain_everywhere,
        ),
        file=market.file,
    )


def _places(plans: Sequence[NodePlan], names: list[str]) -> Places:
    where = [(plan.place.latitude, plan.place.longitude) if plan.place else (0.0, 0.0) for plan in plans]
    return Places(tuple(names), np.array(where, dtype=np.float64).reshape(len(names), 2))
