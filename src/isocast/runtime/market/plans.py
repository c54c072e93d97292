"""What a market's file plans: the lines to customers by place (§4.3), and which stripe a symbol travels in (§4.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import numpy as np

from isocast.reformation.scopes.world import AddressPool, Paths, Places, ScopeRules, Surface, World
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.striping.plan import PLAN_BYTES_MAX, StripePlan, read_plan
from isocast.striping.routing import CoreRoutes
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import NodeId
from isocast.terms.toml_files import Faults
from isocast.wire.limits import MAX_LINE_SCOPES

__all__ = ["check_coverage", "core_routes", "coverage_world", "line_listeners", "line_receivers", "load_plan"]

_MULTICAST = IPv4Network("224.0.0.0/4")
_LINK_LOCAL = IPv4Network("224.0.0.0/24")


def line_receivers(market: Market) -> tuple[NodePlan, ...]:
    """Those who remulticast."""
    return tuple([plan for plan in market.receivers if plan.line])


def line_listeners(market: Market) -> tuple[NodePlan, ...]:
    """Those who must hear enough of them: customers and retransmit servers."""
    return tuple([plan for plan in market.nodes if plan.lines])


def check_coverage(market: Market, faults: Faults, taken: Iterable[tuple[str, int]]) -> None:
    """What a plan needs: places, enough receivers, and groups that are nobody else's; `taken` are those of others."""
    table = market.coverage
    if not table.enabled:
        return
    receivers, listeners = line_receivers(market), line_listeners(market)
    for plan in (*receivers, *listeners):
        if plan.place is None:
            faults.add(f"nodes.{plan.origin}.city", "must be given, since coverage.enabled plans lines by place")
    for stripe in market.stripes:
        count = sum(plan.stripe == stripe for plan in receivers)
        if count < table.lines:
            faults.add("coverage.lines", f"everybody is to hear {table.lines} receivers, and {count} have a line")
        if count > MAX_LINE_SCOPES:
            faults.add("coverage.enabled", f"a plan has at most {MAX_LINE_SCOPES} receivers with a line, not {count:,}")
    _check_groups(market, faults, taken)


def _check_groups(market: Market, faults: Faults, taken: Iterable[tuple[str, int]]) -> None:
    """The pool and the notices lie apart from each other, and from all groups of the market."""
    table = market.coverage
    most = max(market.stripes) + 1
    pool = range(int(IPv4Address(table.groups)), int(IPv4Address(table.groups)) + most * table.addresses)
    notices = range(int(IPv4Address(table.notices)), int(IPv4Address(table.notices)) + most)
    for key, numbers in (("groups", pool), ("notices", notices)):
        ends = [IPv4Address(min(number, (1 << 32) - 1)) for number in (numbers[0], numbers[-1])]
        wrong = [end for end in ends if end not in _MULTICAST or end in _LINK_LOCAL]
        if wrong:
            rule = f"{ends[0]} to {ends[1]} are not all groups, which are from 224.0.1.0 to 239.255.255.255"
            faults.add(f"coverage.{key}", rule)
            continue
        other = next((what for what, number in taken if number in numbers), None)
        if other is not None:
            faults.add(f"coverage.{key}", f"{ends[0]} to {ends[1]} has the group of {other}: move one of the ranges")
    if pool.start < notices.stop and notices.start < pool.stop:
        faults.add("coverage.notices", f"{table.notices} is a group of the pool: move one of them")


# ---- The world that a plan of lines is made for: a market's receivers and customers by place (§4.3).


def coverage_world(market: Market, stripe: int, sites: tuple[NodeId, ...]) -> World:
    """As it is with these sites on the ring. Receivers are called by their ids, customers by their names.

    Secondary receivers count as long as the file has them: no ballot tells which of them are up.
    """
    table = market.coverage
    receivers = [
        plan for plan in line_receivers(market) if plan.node in sites or plan.role is NodeRole.SECONDARY_RECEIVER
    ]
    return World(
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


# ---- Which stripe of its core a market's symbols travel in, by its file.


def core_routes(market: Market) -> CoreRoutes:
    """For the whole market, of which this may be one stripe's share; ConfigurationError for a plan that is wrong."""
    path = market.stripe_plan or (market.edge.plan if market.edge is not None else None)
    if len(market.all_stripes) == 1:
        path = None  # It has everything, whatever a plan says.
    return CoreRoutes(market.all_stripes, None if path is None else load_plan(path))


def load_plan(path: Path) -> StripePlan:
    """The stripe plan of a file; ConfigurationError for one that cannot be read or breaks a rule."""
    try:
        if path.stat().st_size > PLAN_BYTES_MAX:
            raise ConfigurationError(str(path), "file", f"is larger than {PLAN_BYTES_MAX:,} bytes: no stripe plan")
        text = path.read_bytes().decode()
    except OSError as reason:
        raise ConfigurationError(str(path), "file", f"cannot be read: {reason.strerror}") from reason
    except UnicodeDecodeError as reason:
        raise ConfigurationError(str(path), "file", "is no UTF-8 text: no stripe plan") from reason
    return read_plan(text, str(path))
