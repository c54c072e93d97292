"""A market's file as a lab: a site for each city, and a process for each node."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace

from isocast.runtime.lab.nodes import LabNode
from isocast.runtime.lab.world import World, WorldSettings, make_world
from isocast.runtime.market import Market
from isocast.terms.errors import ConfigurationError
from isocast.terms.topology import City

__all__ = ["market_world", "site_name"]

_NOWHERE = "nowhere"
"""The site of nodes without a place: at no distance from anybody."""


def market_world(
    market: Market, settings: WorldSettings, command_of: Callable[[str], tuple[str, ...]]
) -> tuple[World, tuple[LabNode, ...]]:
    """The world of a market, with its addresses and its MTU; `command_of` says how a node of that name is run.

    Addresses on loopback are fine: each is as far away in the lab as its city.
    """
    if market.impairment.enabled:
        rule = "must be off in a lab, which delays and loses packets itself"
        raise ConfigurationError(market.file, "impairment.enabled", rule)
    cities: dict[str, City | None] = {}
    addresses: dict[str, list[str]] = {}
    nodes = []
    for plan in market.nodes:
        site = _free_name(plan.place, cities)
        cities[site] = plan.place
        if plan.address not in addresses.setdefault(site, []):
            addresses[site].append(plan.address)
        nodes.append(LabNode(plan.name, site, command_of(plan.name)))
    world = make_world(cities, replace(settings, mtu=market.network.mtu), addresses, file=market.file)
    return world, tuple(nodes)


def site_name(place: City | None) -> str:
    """A city's name as one types it: "são paulo" is sao-paulo."""
    if place is None:
        return _NOWHERE
    plain = unicodedata.normalize("NFKD", place.name).encode("ascii", "ignore").decode().casefold()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "site"


def _free_name(place: City | None, cities: dict[str, City | None]) -> str:
    """The site of this very place, or a name that no other place has."""
    name = base = site_name(place)
    number = 1
    while name in cities and cities[name] != place:
        number += 1
        name = f"{base}-{number}"
    return name
