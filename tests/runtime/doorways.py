"""Coming in at a real node's door by hand, with the key and the identity that somebody holds."""

from __future__ import annotations

from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market
from isocast.runtime.net.door import Doorway, Visit, visit
from isocast.runtime.net.door_keys import door_hand, listed_visitor
from isocast.runtime.net.tls import client_tls

__all__ = ["doorway", "enter"]


def doorway(market: Market, there: str, by: str) -> Doorway | None:
    """What a node or customer knows of the door of another, or of its own."""
    hand = door_hand(market, load_keys(market, market.node(by)))
    plan = market.node(there)
    if hand is None:
        return None
    return Doorway(hand, plan.node, plan.stripe, lambda visitor: listed_visitor(market, visitor))


async def enter(market: Market, there: str, name: str, key: bytes | None, *, by: str, own: str | None = None) -> Visit:
    """Under a visitor's name, with what the node `by` holds."""
    plan = market.node(there)
    assert key is not None
    tls = client_tls(market, plan.address)
    way = doorway(market, there, by)
    return await visit(plan.address, plan.tcp_port, name, key, own=own, tls=tls, doorway=way)
