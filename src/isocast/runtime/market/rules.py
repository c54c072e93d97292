"""Rules that hold between the keys of a market file: counts of nodes, groups, and what a demo may inject."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network

from isocast.ring.settings import StartPolicy
from isocast.runtime.market.model import (
    DelayModel,
    Durability,
    Market,
    NetworkMode,
    NodeRole,
    Reveal,
    line_listeners,
    line_receivers,
)
from isocast.runtime.market.nodes import Nodes
from isocast.terms.market import Grade
from isocast.terms.quantities import duration_text
from isocast.terms.timing import Gate
from isocast.terms.toml_files import Faults
from isocast.wire.limits import MAX_LINE_SCOPES, MAX_NEXT_NUMBERS, MAX_RING, STANDARD_MTU

__all__ = ["advice", "check_counts", "check_market", "groups_in_use", "slowest_pair"]


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
    if market.floors and (market.timing.gate is not Gate.MAJORITY or market.policy is not StartPolicy.MAJORITY):
        rule = 'needs timing.gate = "majority" and ring.policy = "majority": else a ring may take trades back'
        faults.add("floor", rule)
    _check_coverage(market, faults, [(what, number) for _, what, number in groups_in_use(market)])


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
            faults.add(f"network.{key}", f"{what} would be {address}, which is not a usable group: {rule}")
            told.add(key)
        elif other != what:
            faults.add(f"network.{key}", f"{what} would be {address}, which is already {other}: move one of the ranges")
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


def _check_coverage(market: Market, faults: Faults, taken: Iterable[tuple[str, int]]) -> None:
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
            faults.add(
                "coverage.lines", f"must be at most {count}, the number of receivers with a line, not {table.lines}"
            )
        if count > MAX_LINE_SCOPES:
            faults.add("coverage.enabled", f"a plan has at most {MAX_LINE_SCOPES} receivers with a line, not {count:,}")
    _check_planned_groups(market, faults, taken)


def _check_planned_groups(market: Market, faults: Faults, taken: Iterable[tuple[str, int]]) -> None:
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


# What a sound market file may still be warned of.


_SURVIVES_ONE = 3
_SERVERS_ADVISED = 2
_LINES_ADVISED = 2
_SOURCES_PER_GROUP = 10
"""Linux's default for a source-specific group, net.ipv4.igmp_max_msf."""
_SOURCE_SPECIFIC = IPv4Network("232.0.0.0/8")


def advice(market: Market, unnumbered: Sequence[str] = ()) -> tuple[str, ...]:
    """Warnings, each with its key and what to do about it.

    `unnumbered` are the nodes whose number depends on their place in the file.
    """
    found = (_ring(market), _places(market), _network(market), _layers(market), _customers(market), _safety(market))
    # A node is one table, and a process in each stripe: what is wrong with it is said once.
    texts = list(dict.fromkeys([text for part in found for text in part]))
    if unnumbered and not market.on_loopback:
        rest = f" and {len(unnumbered) - 1} others" if len(unnumbered) > 1 else ""
        rule = f"{unnumbered[0]}{rest} take the lowest free number, which changes with the file: write it down"
        texts.append(f"nodes.{unnumbered[0]}.number: {rule}")
    return tuple(texts)


def _ring(market: Market) -> Iterator[str]:
    size = min(len(market.of_stripe(stripe).universe) for stripe in market.stripes)
    if size < _SURVIVES_ONE:
        yield f"nodes: with {size} primary receivers a majority is all of them: with 3 the market survives one failure"
    if min(len(market.of_stripe(stripe).servers) for stripe in market.stripes) < _SERVERS_ADVISED:
        yield "nodes: without its only reformation server a broken ring stays broken: add a second one"
    if not market.by_role(NodeRole.PRIMARY_SOURCE):
        yield "nodes: there is no source: add a primary-source"
    for stripe in market.stripes:
        if len(market.stripes) > 1 and not market.data_senders(stripe):
            yield f"ring.stripes: no source publishes in stripe {stripe}"


def _places(market: Market) -> Iterator[str]:
    delay, a, b = slowest_pair(market)
    detect = market.timing.detect_ns
    if delay >= detect and not market.impairment.enabled:
        yield (
            f"timing.detect: light needs {_rounded(delay)} from {a} to {b}, and δ_N is {duration_text(detect)}: every"
            " token would be late"
        )
    nowhere = list(dict.fromkeys(plan.origin for plan in market.nodes if plan.place is None))
    if nowhere and any(plan.place is not None for plan in market.nodes):
        others = f", and those of {len(nowhere) - 1} others" if len(nowhere) > 1 else ""
        yield f"nodes.{nowhere[0]}.city: without a city its delays{others} count as 0"


def _rounded(delay_ns: int) -> str:
    return duration_text(round(delay_ns, -5))


def _network(market: Market) -> Iterator[str]:
    network = market.network
    if market.on_loopback:
        return
    places = {plan.place for plan in market.nodes}
    if network.mode is NetworkMode.MULTICAST and network.ttl == 1 and len(places) > 1:
        yield "network.ttl: 1 keeps packets within one network, but the nodes are in several places"
    if network.mtu > STANDARD_MTU:
        yield f"network.mtu: every link between the nodes must carry {network.mtu} bytes; `isocast doctor` checks it"
    if network.source_specific:
        yield from _source_specific(market)


def _source_specific(market: Market) -> Iterator[str]:
    if IPv4Network(f"{market.network.groups}/32").subnet_of(_SOURCE_SPECIFIC) is False:
        yield "network.groups: routers treat 232.x.x.x as source-specific; other ranges need their configuration"
    most = max(max(len(market.data_senders(s)), len(market.control_senders(s))) for s in market.stripes)
    if most > _SOURCES_PER_GROUP:
        yield (
            f"network.source_specific: a group has {most} senders, and Linux allows {_SOURCES_PER_GROUP} of them:"
            " raise net.ipv4.igmp_max_msf"
        )


def _layers(market: Market) -> Iterator[str]:
    detect = market.timing.secondary_detect_ns
    for plan in market.by_role(NodeRole.SECONDARY_RECEIVER):
        if not plan.backup:
            parent = market.node(plan.parent).origin
            yield f"nodes.{plan.origin}.backup: when {parent} fails no other receiver answers it: name a second one"
        for above in filter(None, (plan.parent, plan.backup)):
            delay = market.delay_ns(plan.name, above)
            if delay >= detect:
                rule = f"light needs {_rounded(delay)} from {plan.origin} to {market.node(above).origin}"
                yield f"timing.secondary_detect: {rule}, and δ_S is {duration_text(detect)}"


def _customers(market: Market) -> Iterator[str]:
    for plan in market.by_role(NodeRole.CUSTOMER):
        if len(plan.lines) < _LINES_ADVISED:
            yield f"nodes.{plan.origin}.lines: with a second line the loss of one goes unnoticed"
        if plan.grade is Grade.COMPLETE and not plan.retransmit:
            yield f"nodes.{plan.origin}.retransmit: grade complete needs a retransmit server to repair lost messages"
    for plan in market.by_role(NodeRole.RETRANSMIT_SERVER):
        if len(plan.lines) < _LINES_ADVISED:
            yield f"nodes.{plan.origin}.lines: with a second line the loss of one goes unnoticed"


def _safety(market: Market) -> Iterator[str]:
    if not market.seal:
        yield "seal: payloads travel unencrypted: every node can read them before their release"
    if market.reveal is Reveal.CHAIN and not market.security.signatures:
        yield 'reveal: "chain" without security.signatures: a receiver that forges receipts would see the keys early'
    if market.timing.gate is Gate.TIMED:
        yield "timing.gate: under timed a partition can make two sites release different messages"
    if market.durability is Durability.PROCESS and not market.on_loopback:
        yield f"durability: process {market.durability.meaning}; power survives both"
