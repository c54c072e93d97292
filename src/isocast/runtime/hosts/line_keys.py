"""How a process seals, opens, signs and judges lines: from the market's file, its keys and its roster."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_bytes
from time import time_ns

from isocast.hierarchy.proving import LineProver, ProofTerms
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.model import NodeRole
from isocast.runtime.market.roster_files import KeysCounting, NewsReader
from isocast.runtime.net.channels import NodeKeys
from isocast.runtime.net.door_keys import edge_visited
from isocast.security.door_seals import DoorSealer
from isocast.security.line_seals import LineOpener, LineSealer, PeriodKeys, RegionKeys
from isocast.security.signing import IdentitySigner, RosterVerifier
from isocast.security.subscriptions import BASE, REPAIR
from isocast.wire.door import DoorMessage

__all__ = ["door_sealer", "line_prover", "node_keys", "proof_terms"]

_DRAWN_BYTES = 4
_SALT_BYTES = 16


def node_keys(context: Context, *, core: bool = False) -> NodeKeys:
    """What a node's sockets read and write with; sealed lines where the market sells them."""
    keys = context.keys
    tags = keys.core_ring() if core else None
    if not context.market.subscriptions.enabled:
        return NodeKeys(tags, keys.edge_ring())
    return NodeKeys(tags, keys.edge_ring(), _sealer(context), _opener(context))


def _period_keys(context: Context) -> PeriodKeys | None:
    keys = context.keys
    if keys.region is not None:
        return RegionKeys(keys.region, context.market.subscriptions.period_ns)
    return None if keys.subscription is None else keys.subscription.keys


def _sealer(context: Context) -> LineSealer | None:
    """Of a node that has a line and the region's key."""
    market, plan, keys, roster = context.market, context.plan, context.keys, context.keys.roster
    if keys.region is None or roster is None:
        return None
    region = RegionKeys(keys.region, market.subscriptions.period_ns)
    service = REPAIR if plan.role is NodeRole.RETRANSMIT_SERVER else BASE
    delay_ns = market.timing.release_delay_ns
    return LineSealer(region, roster.market, plan.node, service, delay_ns, token_bytes(_DRAWN_BYTES), time_ns())


def _opener(context: Context) -> LineOpener | None:
    market, found, roster = context.market, _period_keys(context), context.keys.roster
    if found is None or roster is None:
        return None
    senders = {plan.node: BASE for plan in market.receivers if plan.line}
    senders |= {plan.node: REPAIR for plan in market.by_role(NodeRole.RETRANSMIT_SERVER)}
    return LineOpener(found, roster.market, senders, market.subscriptions.period_ns, market.timing.release_delay_ns)


def door_sealer(context: Context, visitor: str) -> Callable[[DoorMessage], DoorMessage] | None:
    """How what a door gives is sealed for this visitor; None where nothing is sold, and for the network's own nodes."""
    keys, market = context.keys, context.market
    plan = edge_visited(market, visitor)
    is_trusted = visitor.startswith("core/") or (plan is not None and plan.role is not NodeRole.CUSTOMER)
    if not market.subscriptions.enabled or is_trusted or keys.region is None or keys.roster is None:
        return None
    region = RegionKeys(keys.region, market.subscriptions.period_ns)
    sealer = DoorSealer(region, keys.roster.market, context.stripe, context.plan.node, token_bytes)
    delay_ns = market.timing.release_delay_ns
    return lambda message: sealer.seal(message, max(context.clock.now() - delay_ns, 0))


def line_prover(context: Context) -> LineProver | None:
    """Of a node that signs its line; None where nobody signs."""
    identity, book = context.keys.identity, context.keys.book
    if identity is None or book is None:
        return None
    market = book.newest.market
    return LineProver(IdentitySigner(identity, market, book, context.keys.followers), market, token_bytes(_SALT_BYTES))


def proof_terms(context: Context) -> ProofTerms | None:
    """By what a customer judges lines; None where nobody signs."""
    book = context.keys.book
    if book is None:
        return None
    market = book.newest.market
    reader = NewsReader(context.market, book, KeysCounting.TWO_NEWEST, looks_unasked=True)
    return ProofTerms(market, RosterVerifier(market, reader))
