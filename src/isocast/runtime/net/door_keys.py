"""Who may come in at which door, by which key, and by whose identity.

edge/NAME      any node of the edge, for ranges and snapshots; derived from the edge key
guest/KEY      a listener without a seat, for the same; KEY is the fingerprint of the edge key, which its own is derived
               from. All guests have one key, which says that they may come in; connections have keys of their own
bought/S/N     a listener with a package and no seat, for what it bought: service S, repair or history, in period N;
               derived from that service's key
core/NAME      a receiver, for checkpoints of the log at another receiver's door; derived from the core key
source/NAME    a floor at its own source, or a secondary source at its parent; derived from that source's key

Where doors ask for identities, whoever comes in as a node that the roster lists signs as that node: a floor at its own
source as the source. Customers and guests are not listed; the door proves itself to them all the same.
"""

from __future__ import annotations

from hmac import compare_digest

from isocast.runtime.market.key_files import MarketKeys
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.market.roster_files import KeysCounting, NewsReader
from isocast.security.door_identities import DoorHand
from isocast.security.door_seals import DoorOpener
from isocast.security.keys import Purpose, derive
from isocast.security.line_seals import BoughtKeys
from isocast.security.signing import IdentitySigner
from isocast.security.subscriptions import HISTORY, REPAIR, service_key
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NodeId, guest_id, is_site
from isocast.wire.signing import SignedKind

__all__ = [
    "bought_visitor",
    "core_door_key",
    "core_visitor",
    "door_hand",
    "door_opener",
    "edge_door_key",
    "edge_visited",
    "edge_visitor",
    "guest_key",
    "guest_visitor",
    "listed_visitor",
    "publish_door_key",
    "publish_visitor",
]

_EDGE = "edge/"
_GUEST = "guest/"
_BOUGHT = "bought/"
_CORE = "core/"
_SOURCE = "source/"
_PERIOD_DIGITS = 10


def edge_visitor(plan: NodePlan) -> str:
    """The name under which a node asks for ranges."""
    return _EDGE + plan.name


def guest_visitor(keys: MarketKeys) -> str:
    """The name under which a listener without a seat does."""
    return _GUEST + (keys.edge.fingerprint if keys.edge is not None else "")


def guest_key(visitor: str) -> str | None:
    """The fingerprint of the key by which a guest came in, or what it bought; None for anybody else."""
    if visitor.startswith(_BOUGHT):
        return visitor.removeprefix(_BOUGHT)
    return visitor.removeprefix(_GUEST) if visitor.startswith(_GUEST) else None


def bought_visitor(keys: BoughtKeys) -> tuple[str, bytes] | None:
    """Name and key of a listener with a package; None if it bought nothing that a door gives."""
    found = keys.newest(REPAIR) or keys.newest(HISTORY)
    if found is None:
        return None
    return f"{_BOUGHT}{found.service}/{found.period}", derive(found.key, Purpose.DOOR, 0)


def _bought_door_key(market: Market, keys: MarketKeys, visitor: str) -> bytes | None:
    """The buyer's key; None for what is not sold."""
    service, _, number = visitor.removeprefix(_BOUGHT).partition("/")
    if keys.region is None or not market.guests.allowed or service not in (REPAIR, HISTORY):
        return None
    if not (number.isascii() and number.isdigit() and len(number) <= _PERIOD_DIGITS):
        return None
    try:
        sold = service_key(keys.region, service, int(number), market.subscriptions.period_ns)
    except LocalProtocolError:
        return None
    return derive(sold.key, Purpose.DOOR, 0)


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
    """The key of an edge visitor or guest; None for a stranger, or without the edge key."""
    if visitor.startswith(_BOUGHT):
        return _bought_door_key(market, keys, visitor)
    if keys.edge is None:
        return None
    if visitor.startswith(_GUEST):
        is_known = market.guests.allowed and compare_digest(visitor.encode(), (_GUEST + keys.edge.fingerprint).encode())
        return keys.edge.derive(Purpose.DOOR, guest_id(0)) if is_known else None
    plan = edge_visited(market, visitor)
    if plan is None or plan.node not in keys.edge_members:
        return None
    return keys.edge.derive(Purpose.DOOR, plan.node)


def publish_door_key(market: Market, keys: MarketKeys, visitor: str) -> bytes | None:
    """The key of a publisher; None for a stranger, or without that source's key."""
    plan = market.by_name.get(visitor.removeprefix(_SOURCE)) if visitor.startswith(_SOURCE) else None
    if plan is None or not plan.role.is_source or plan.number not in keys.sources:
        return None
    return keys.sources[plan.number].derive(Purpose.DOOR, plan.node)


def listed_visitor(market: Market, visitor: str) -> NodeId | None:
    """Whose identity a visitor must prove; None for customers and guests, whom the roster does not list."""
    for kind in (_SOURCE, _EDGE, _CORE):
        if visitor.startswith(kind):
            plan = market.by_name.get(visitor.removeprefix(kind))
            return None if plan is None or plan.role is NodeRole.CUSTOMER else plan.node
    return None


def door_hand(market: Market, keys: MarketKeys, refused: dict[SignedKind, int] | None = None) -> DoorHand | None:
    """How a node, or a listener, proves itself at doors and judges them; None where the key is all that counts.

    `refused` counts what it does not believe.
    """
    if not market.doors_identify or keys.book is None:
        return None
    name = keys.book.newest.market
    signer = None if keys.identity is None else IdentitySigner(keys.identity, name, keys.book, keys.followers)
    return DoorHand(name, NewsReader(market, keys.book, KeysCounting.TWO_NEWEST), signer, refused)


def door_opener(market: Market, keys: MarketKeys, stripe: int, server: NodeId) -> DoorOpener | None:
    """How a customer opens what a door gives; None where nothing is sold."""
    if keys.subscription is None or keys.roster is None or not market.subscriptions.enabled:
        return None
    return DoorOpener(keys.subscription.keys, keys.roster.market, stripe, server)
