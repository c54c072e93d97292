"""A market's file as a lab: a site for each city, and a process for each node."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from isocast.runtime.market.model import Impairment, Market
from isocast.terms.topology import City
from isocast.trials.lab.nodes import LabNode
from isocast.trials.lab.world import World, WorldSettings, make_world

__all__ = ["market_settings", "market_world", "site_name"]

_NOWHERE = "nowhere"
"""The site of nodes without a place: at no distance from anybody."""


def market_settings(
    market: Market, *, loss: float | None, jitter_ns: int | None, seed: int | None, scale: float
) -> WorldSettings:
    """What is None comes from the file's impairment, if it has any: the lab then shows the world of the demo."""
    said = market.impairment if market.impairment.enabled else Impairment()
    return WorldSettings(
        loss=said.loss if loss is None else loss,
        jitter_ns=said.jitter_ns if jitter_ns is None else jitter_ns,
        scale=scale,
        seed=said.seed if seed is None else seed,
        mtu=market.network.mtu,
    )


def market_world(
    market: Market, settings: WorldSettings, command_of: Callable[[str], tuple[str, ...]]
) -> tuple[World, tuple[LabNode, ...]]:
    """The world of a market, with its addresses; `command_of` says how a node of that name is run.

    Addresses on loopback are fine: each is as far away in the lab as its city. The nodes must not delay and lose
    packets themselves, whatever the file says for a demo: the lab does.
    """
    cities: dict[str, City | None] = {}
    addresses: dict[str, list[str]] = {}
    nodes = []
    for plan in market.nodes:
        site = _free_name(plan.place, cities)
        cities[site] = plan.place
        if plan.address not in addresses.setdefault(site, []):
            addresses[site].append(plan.address)
        if plan.start:  # A seat that is kept for programs that listen has its address, and nobody in it.
            nodes.append(LabNode(plan.name, site, command_of(plan.name)))
    return make_world(cities, settings, addresses, file=market.file), tuple(nodes)


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
