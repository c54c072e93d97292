"""Who may come in at which door, and by which key.

edge/NAME      any node of the edge, for ranges and snapshots; derived from the edge key
core/NAME      a receiver, for checkpoints of the log at another receiver's door; derived from the core key
source/NAME    a floor at its own source, or a secondary source at its parent; derived from that source's key
"""

from __future__ import annotations

from isocast.runtime.market.key_files import MarketKeys
from isocast.runtime.market.model import Market, NodePlan
from isocast.security.keys import Purpose
from isocast.terms.ids import is_site

__all__ = [
    "core_door_key",
    "core_visitor",
    "edge_door_key",
    "edge_visited",
    "edge_visitor",
    "publish_door_key",
    "publish_visitor",
]

_EDGE = "edge/"
_CORE = "core/"
_SOURCE = "source/"


def edge_visitor(plan: NodePlan) -> str:
    """The name under which a node asks for ranges."""
    return _EDGE + plan.name


def edge_visited(market: Market, visitor: str) -> NodePlan | None:
    """The node that asks under this name; None for a stranger."""
    return market.by_name.get(visitor.removeprefix(_EDGE)) if visitor.startswith(_EDGE) else None


def core_visitor(plan: NodePlan) -> str:
    """The name under which a receiver asks for a checkpoint."""
    return _CORE + plan.name


def core_door_key(market: Market, keys: MarketKeys, visitor: str) -> bytes | None:
    """The key of a receiver at another's door; None for a stranger, or without the core key."""
    plan = market.by_name.get(visitor.removeprefix(_CORE)) if visitor.startswith(_CORE) else None
    if plan is None or keys.core is None or plan.node not in keys.core_members or not is_site(plan.node):
        return None
    return keys.core.derive(Purpose.DOOR, plan.node)


def publish_visitor(plan: NodePlan) -> str:
    """The name under which a source's floor publishes."""
    return _SOURCE + plan.name


def edge_door_key(market: Market, keys: MarketKeys, visitor: str) -> bytes | None:
    """The key of an edge visitor; None for a stranger, or without the edge key."""
    plan = edge_visited(market, visitor)
    if plan is None or keys.edge is None or plan.node not in keys.edge_members:
        return None
    return keys.edge.derive(Purpose.DOOR, plan.node)


def publish_door_key(market: Market, keys: MarketKeys, visitor: str) -> bytes | None:
    """The key of a publisher; None for a stranger, or without that source's key."""
    plan = market.by_name.get(visitor.removeprefix(_SOURCE)) if visitor.startswith(_SOURCE) else None
    if plan is None or not plan.role.is_source or plan.number not in keys.sources:
        return None
    return keys.sources[plan.number].derive(Purpose.DOOR, plan.node)
