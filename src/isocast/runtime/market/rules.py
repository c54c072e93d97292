"""Rules that hold between the keys of a market file: counts of nodes, groups, and what a demo may inject."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

from isocast.runtime.market.coverage_table import check_coverage
from isocast.runtime.market.model import DelayModel, Market, NetworkMode, NodeRole
from isocast.runtime.market.nodes import Nodes
from isocast.runtime.market.values import Faults
from isocast.terms.quantities import duration_text
from isocast.wire.limits import MAX_NEXT_NUMBERS, MAX_RING

__all__ = ["check_counts", "check_market", "groups_in_use", "slowest_pair"]

_SERVERS_MAX = 16
"""Bounds: more reformation servers than anybody needs for a race of ballots."""
_LIMITS = {
    NodeRole.PRIMARY_RECEIVER: (2, MAX_RING),
    NodeRole.REFORMATION_SERVER: (1, _SERVERS_MAX),
    NodeRole.PRIMARY_SOURCE: (0, MAX_NEXT_NUMBERS),
}
_MULTICAST = IPv4Network("224.0.0.0/4")
_LINK_LOCAL = IPv4Network("224.0.0.0/24")


def check_counts(nodes: Nodes, faults: Faults) -> None:
    """Enough nodes of each role, and not too many; nodes whose role is unknown may be the missing ones."""
    stripes = sorted({stripe for node in nodes.values() for stripe in node.stripes}) or [0]
    for role, (least, most) in _LIMITS.items():
        for stripe in stripes:
            count = sum(node.role is role and stripe in node.stripes for node in nodes.values())
            whose = f"stripe {stripe}" if len(stripes) > 1 else "a market"
            if count < least and not nodes.without_role:
                plural = "s" if least > 1 else ""
                rule = f"{whose} needs at least {least} {role}{plural}, not {count}"
                faults.add("nodes", f'{rule}: add a table with role = "{role}"')
            if count > most:
                where = f" of {whose}" if len(stripes) > 1 else ""
                faults.add("nodes", f"at most {most:,} nodes{where} are a {role}, not {count:,}")
    rings: dict[str, int] = {}
    for node in nodes.values():
        if node.role is NodeRole.SECONDARY_RECEIVER:
            parent = node.values.text("parent")
            rings[parent] = rings.get(parent, 1) + 1
    for parent, size in rings.items():
        if size > MAX_RING:
            faults.add(f"nodes.{parent}", f"its secondary ring has {size:,} members: at most {MAX_RING}")


def check_market(market: Market, faults: Faults) -> None:
    """What can be judged once all values are known."""
    if market.network.mode is NetworkMode.MULTICAST:
        _check_groups(market, faults)
    if market.impairment.enabled:
        _check_impairment(market, faults)
    check_coverage(market, faults, [(what, number) for _, what, number in groups_in_use(market)])


def groups_in_use(market: Market) -> Iterable[tuple[str, str, int]]:
    """(key, whose it is, address as a number) of every group."""
    network = market.network
    first = int(IPv4Address(network.groups))
    for stripe in market.stripes:
        yield "groups", f"data of stripe {stripe}", first + 2 * stripe
        yield "groups", f"control of stripe {stripe}", first + 2 * stripe + 1
    for plan in market.nodes:
        if plan.line:
            key = "lines" if plan.role.is_receiver else "repairs"
            shift = plan.number + network.stripe_groups * plan.stripe
            yield key, f"the line of {plan.name}", int(IPv4Address(getattr(network, key))) + shift


def _check_groups(market: Market, faults: Faults) -> None:
    """Each group is a multicast address of its own."""
    taken: dict[int, str] = {}
    told: set[str] = set()
    for key, what, number in groups_in_use(market):
        if key in told:
            continue
        address = IPv4Address(number & 0xFFFF_FFFF)
        other = taken.setdefault(number, what)
        if address not in _MULTICAST or address in _LINK_LOCAL:
            rule = "groups are from 224.0.1.0 to 239.255.255.255, within an organisation 239.x.x.x"
            faults.add(f"network.{key}", f"{what} would be {address}, which is none: {rule}")
            told.add(key)
        elif other != what:
            faults.add(f"network.{key}", f"{what} would be {address}, which is {other}: move one of the ranges")
            told.add(key)


def slowest_pair(market: Market) -> tuple[int, str, str]:
    """The longest delay between a sender of the core and one of its receivers, and who they are."""
    senders = market.by_role(
        NodeRole.PRIMARY_SOURCE,
        NodeRole.PRIMARY_RECEIVER,
        NodeRole.REFORMATION_SERVER,
    )
    listeners = market.by_role(NodeRole.PRIMARY_RECEIVER)
    pairs = ((market.delay_ns(a.name, b.name), a.name, b.name) for a in senders for b in listeners)
    return max(pairs, default=(0, "", ""), key=lambda pair: pair[0])


def _check_impairment(market: Market, faults: Faults) -> None:
    real = [plan for plan in market.nodes if not IPv4Address(plan.address).is_loopback]
    if real:
        rule = f"{real[0].name} has the address {real[0].address}"
        faults.add("impairment.enabled", f"loss and delay are injected on loopback only, and {rule}: set it to false")
    if market.impairment.delay is not DelayModel.CITIES:
        return
    delay, a, b = slowest_pair(market)
    detect = market.timing.detect_ns
    if delay >= detect:
        where = f"the {duration_text(delay // 1000 * 1000)} that impairment.delay puts between {a} and {b}"
        cure = 'use timing.profile = "world" or impairment.delay = "none"'
        faults.add("timing.detect", f"δ_N = {duration_text(detect)} must be more than {where}: {cure}")
