"""`[edge]` as values: the narrow stripes of a market, their groups and the rules of their repairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.wire.limits import MAX_LINE_SCOPES

if TYPE_CHECKING:
    from isocast.runtime.market.model import Market, NodePlan
    from isocast.runtime.market.values import Faults, Values

__all__ = [
    "CoverageTable",
    "EdgeTable",
    "check_coverage",
    "line_listeners",
    "line_receivers",
    "read_coverage",
    "read_edge",
]


_LAST_GROUP = int(IPv4Address("239.255.255.255"))


@dataclass(frozen=True, slots=True)
class EdgeTable:
    """What all processes of the edge agree on."""

    plan: Path
    """The stripe plan to begin with."""
    plans: Path
    """Directory of later ones."""
    groups: str = "239.192.0.0"
    repairs: str = "239.200.0.0"
    span: int = 1_024
    port: int = 26_477
    request_port: int = 26_478
    requests: bool = False
    """Whether strangers off loopback are answered."""
    request_rate: int = 50
    repair_share: float = 0.25
    repair_window_ns: int = 20 * MILLISECOND
    patience: int = 4
    delay_ns: int = 20 * MILLISECOND
    introduce_ns: int = 60 * SECOND
    zone: str = "UTC"
    keep_days: int = 7

    def group(self, site: int, stripe: int) -> str:
        """The group of a narrow stripe, as one receiver sends it."""
        return _nth(self.groups, site, stripe, self.span)

    def repair_group(self, server: int, stripe: int) -> str:
        """The group of its repairs, as one retransmit server sends them."""
        return _nth(self.repairs, server, stripe, self.span)


def _nth(base: str, node: int, stripe: int, span: int) -> str:
    if not 0 < stripe < span:
        rule = f"is {span:,}, and a stripe has the number {stripe:,}: raise it, in every file of the market"
        raise ConfigurationError("market", "edge.span", rule)
    number = int(IPv4Address(base)) + node * span + stripe
    if number > _LAST_GROUP:
        rule = f"{base} has no room for stripe {stripe} of number {node}: choose a lower address, or a smaller span"
        raise ConfigurationError("market", "edge.groups", rule)
    return str(IPv4Address(number))


def read_edge(values: Values, here: Path) -> EdgeTable | None:
    """The table, faults noted with its values; None where there is no plan."""
    if not values.text("plan"):
        return None
    for name in ("groups", "repairs"):
        if not IPv4Address(values.text(name)).is_multicast:
            values.fault(name, f"{values.text(name)} is no multicast group: from 224.0.1.0 to 239.255.255.255")
    from isocast.feeds.days import check_zone  # noqa: PLC0415 - numpy comes with it, which most nodes do without

    zone = values.text("zone")
    try:
        check_zone(zone)
    except ConfigurationError as reason:
        values.fault("zone", reason.rule)
    return EdgeTable(
        plan=here / values.text("plan"),
        plans=here / values.text("plans"),
        groups=values.text("groups"),
        repairs=values.text("repairs"),
        span=values.count("span"),
        port=values.count("port"),
        request_port=values.count("request_port"),
        requests=values.flag("requests"),
        request_rate=values.count("request_rate"),
        repair_share=values.number("repair_share"),
        repair_window_ns=values.count("repair_window"),
        patience=values.count("patience"),
        delay_ns=values.count("delay"),
        introduce_ns=values.count("introduce"),
        zone=zone,
        keep_days=values.count("keep_days"),
    )


# ---- `[coverage]` as values: the rules of the plan of lines, and its pool of groups.


_MULTICAST = IPv4Network("224.0.0.0/4")
_LINK_LOCAL = IPv4Network("224.0.0.0/24")
_TTL_MAX = 255
_METRES = 1000


@dataclass(frozen=True, slots=True)
class CoverageTable:
    """What servers, receivers and customers agree on."""

    enabled: bool = False
    lines: int = 2
    delay_max_ns: int = 150 * MILLISECOND
    groups: str = "239.224.1.0"
    addresses: int = 256
    drain_ns: int = 30 * SECOND
    drain_everywhere: bool = False
    notices: str = "239.224.0.0"
    km_per_hop: int = 250

    def first_group(self, stripe: int) -> IPv4Address:
        """Where the pool of a stripe begins."""
        return IPv4Address(self.groups) + stripe * self.addresses

    def notice_group(self, stripe: int) -> str:
        """Where a stripe's receivers say where the lines are."""
        return str(IPv4Address(self.notices) + stripe)

    def ttl(self, radius_m: int) -> int:
        """Of a scope: its routers, and one more."""
        return min(1 + ceil(radius_m / _METRES / self.km_per_hop), _TTL_MAX)


def read_coverage(values: Values) -> CoverageTable:
    """The table as the file has it."""
    return CoverageTable(
        enabled=values.flag("enabled"),
        lines=values.count("lines"),
        delay_max_ns=values.count("delay_max"),
        groups=values.text("groups"),
        addresses=values.count("addresses"),
        drain_ns=values.count("drain"),
        drain_everywhere=values.flag("drain_everywhere"),
        notices=values.text("notices"),
        km_per_hop=values.count("km_per_hop"),
    )


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
