"""What the machines of the edge are told before they start, from the market's file."""

from __future__ import annotations

from dataclasses import replace

from isocast.hierarchy.customer_settings import SILENT_HEARTBEATS, CustomerSettings, Grade, JoinPoint, quiet_ring_ns
from isocast.runtime.hosts.context import Context
from isocast.runtime.market.model import Market, NodeRole
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import NodeId

__all__ = ["customer_settings"]

_LAST_RESORTS_MAX = 8
"""Doors: among eight receivers one that lives and is not behind is all but certain."""


def customer_settings(
    context: Context, grade: Grade, join: JoinPoint | None = None, *, first_sequence: int = 1
) -> CustomerSettings:
    """For a customer of this grade, or with grade complete for a retransmit server.

    Who wants everything and has no retransmit server, or none that gives anything, fetches at the doors of the
    receivers whose lines it hears, and then at those of others: whoever it hears may be dead, and its archive behind.
    Receivers take no requests by datagram, and keep no snapshots.
    """
    market, plan = context.market, context.plan
    servers = _doors_of(market, plan.retransmit)
    by_datagram = bool(servers)
    key = f"nodes.{plan.name}.retransmit"
    if join is JoinPoint.SNAPSHOT and not servers:
        rule = "a start from a snapshot needs a retransmit server with a door; there is none"
        raise ConfigurationError(market.file, key, rule)
    if grade is Grade.COMPLETE and not servers:
        servers = _doors_of(market, plan.lines)
        if not servers:
            rule = "nobody whom it may ask has a door: give a retransmit server, or a receiver that it hears, one"
            raise ConfigurationError(market.file, key, rule)
    settings = CustomerSettings.from_timing(
        market.timing,
        tuple([market.node(name).node for name in plan.lines]),
        servers,
        grade,
        join,
        stripe=context.stripe,
        first_sequence=first_sequence,
    )
    # Lines beat as often as the market's receivers make them, whatever the machine would assume.
    silent_ns = SILENT_HEARTBEATS * context.heartbeat_ns
    return replace(
        settings,
        by_datagram=by_datagram,
        last_resorts=_last_resorts(context) if grade is Grade.COMPLETE else (),
        heartbeat_ns=context.heartbeat_ns,
        silent_ns=silent_ns,
        ring_ns=quiet_ring_ns(market.timing, silent_ns),
        slow_ns=silent_ns,
    )


def _last_resorts(context: Context) -> tuple[NodeId, ...]:
    """The doors of the receivers that it hears, then a few of others: not the same few for everybody."""
    market, plan = context.market, context.plan
    roles = (NodeRole.PRIMARY_RECEIVER, NodeRole.SECONDARY_RECEIVER)
    others = [other.name for role in roles for other in market.by_role(role) if other.stripe == plan.stripe]
    start = plan.node % len(others) if others else 0
    names = dict.fromkeys([*plan.lines, *others[start:], *others[:start]])
    return _doors_of(market, tuple(names))[: max(_LAST_RESORTS_MAX, len(plan.lines))]


def _doors_of(market: Market, names: tuple[str, ...]) -> tuple[NodeId, ...]:
    """Those of the nodes that have a door."""
    return tuple([market.node(name).node for name in names if market.node(name).tcp_port])
