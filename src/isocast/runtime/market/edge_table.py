"""`[edge]` as values: the narrow stripes of a market, their groups and the rules of their repairs."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, SECOND

if TYPE_CHECKING:
    from isocast.runtime.market.values import Values

__all__ = ["EdgeTable", "read_edge"]

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
