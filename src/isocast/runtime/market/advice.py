"""What a sound market file may still be warned of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network

from isocast.runtime.market.model import Durability, Grade, Market, NetworkMode, NodeRole
from isocast.runtime.market.rules import slowest_pair
from isocast.terms.quantities import duration_text
from isocast.terms.timing import Gate
from isocast.wire.limits import STANDARD_MTU

__all__ = ["advice"]

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
        yield f"nodes: a majority of {size} primary receivers is all of them: with 3 the market survives one failure"
    if min(len(market.of_stripe(stripe).servers) for stripe in market.stripes) < _SERVERS_ADVISED:
        yield "nodes: without its only reformation server a broken ring stays broken: add a second one"
    if not market.by_role(NodeRole.PRIMARY_SOURCE):
        yield "nodes: nobody publishes: add a primary-source"
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
        yield f"nodes.{nowhere[0]}.city: without a place its delays{others} count as 0"


def _rounded(delay_ns: int) -> str:
    return duration_text(round(delay_ns, -5))


def _network(market: Market) -> Iterator[str]:
    network = market.network
    if market.on_loopback:
        return
    places = {plan.place for plan in market.nodes}
    if network.mode is NetworkMode.MULTICAST and network.ttl == 1 and len(places) > 1:
        yield "network.ttl: 1 keeps packets within one network, and the nodes are in several places"
    if network.mtu > STANDARD_MTU:
        yield f"network.mtu: every link between the nodes must carry {network.mtu} bytes: isocast doctor finds out"
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
            yield f"nodes.{plan.origin}.backup: when {parent} fails nobody answers it: name a second receiver"
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
            yield f"nodes.{plan.origin}.retransmit: a complete service needs somebody to ask for what all lines lost"
    for plan in market.by_role(NodeRole.RETRANSMIT_SERVER):
        if len(plan.lines) < _LINES_ADVISED:
            yield f"nodes.{plan.origin}.lines: with a second line the loss of one goes unnoticed"


def _safety(market: Market) -> Iterator[str]:
    if not market.seal:
        yield "seal: payloads travel open, and every node reads them before their release"
    if market.timing.gate is Gate.TIMED:
        yield "timing.gate: under timed a partition can make two sites release different messages"
    if market.durability is Durability.PROCESS and not market.on_loopback:
        yield f"durability: process {market.durability.meaning}; power survives both"
