"""A world as a file, or from a market's: sites, what lies between them, and the nodes that run in it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path

from isocast.runtime.market.model import Impairment, Market
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import duration_text, suggestion
from isocast.terms.toml_files import Faults, Key, Kind, Table, Values, read_list, read_tables, read_toml, shown
from isocast.terms.topology import City
from isocast.trials.lab.nodes import LabNode
from isocast.trials.lab.world import NAME, LabWorld, LinkChange, WorldSettings, make_world

__all__ = ["load_world", "market_settings", "market_world", "site_name"]


_USUAL = WorldSettings()

_TOP = Table(
    "",
    "What holds between all sites, where nothing else is said.",
    (
        Key("seed", Kind.COUNT, "What the draws are a function of.", _USUAL.seed),
        Key("loss", Kind.NUMBER, "Share of packets lost, 0 to 1.", _USUAL.loss, minimum=-inf),
        Key("jitter", Kind.TIME, "Mean of an exponential delay on top.", duration_text(_USUAL.jitter_ns)),
        Key("scale", Kind.NUMBER, "Times the delay of light in fibre.", _USUAL.scale, minimum=-inf),
        Key("mtu", Kind.COUNT, "Bytes of an IP packet that every link carries.", _USUAL.mtu),
    ),
)
_LINK = Table(
    "links",
    "What is different between two sites.",
    (
        Key("between", Kind.TEXTS, "The two sites.", required=True),
        Key("delay", Kind.TIME, "One way.", otherwise="that of light in fibre, times `scale`"),
        Key("jitter", Kind.TIME, "Mean of an exponential delay on top.", otherwise="that of all links"),
        Key("loss", Kind.NUMBER, "Share of packets lost, 0 to 1.", otherwise="that of all links", minimum=-inf),
        Key("one_way", Kind.FLAG, "Only from the first site to the second.", default=False),
    ),
)
_NODE = Table(
    "nodes",
    "A process.",
    (
        Key("name", Kind.TEXT, "What it is called.", required=True),
        Key("site", Kind.TEXT, "Where it runs.", required=True),
        Key("command", Kind.TEXTS, "What is run, with its arguments.", required=True),
    ),
)
_MAX_BYTES = 1 << 20
"""Bounds: a world of 64 sites with every link given has some 300 kB."""
_MAX_NODES = 512
"""Bounds: more processes than one machine runs in real time."""


def load_world(path: Path) -> tuple[LabWorld, tuple[LabNode, ...]]:
    """The world of a TOML file and its nodes; ConfigurationError names file, key and rule."""
    file = str(path)
    mapping = read_toml(path, _MAX_BYTES)
    faults = Faults(file, collect=False)
    top = read_tables(mapping, (_TOP,), faults, ("sites", "links", "nodes"))[""]
    world = make_world(_sites(mapping.get("sites", {}), faults), top.into(WorldSettings), file=file)
    sites = [site.name for site in world.sites]
    changes = [_link(values, sites) for values in read_list(mapping, _LINK, faults)]
    nodes = tuple(_node(values, sites) for values in read_list(mapping, _NODE, faults))
    if len(nodes) > _MAX_NODES:
        raise ConfigurationError(file, "nodes", f"at most {_MAX_NODES}, not {len(nodes)}")
    twice = {node.name for node in nodes if [other.name for other in nodes].count(node.name) > 1}
    if twice:
        raise ConfigurationError(file, "nodes", f'the name "{min(twice)}" occurs twice')
    return world.with_changes(changes, file), nodes


def _sites(table: object, faults: Faults) -> dict[str, str]:
    """The city of each site: every name is a key."""
    if not isinstance(table, Mapping):
        raise faults.error("sites", f"must be a table, [sites], not {shown(table)}")
    values = Values(table, [Key(name, Kind.TEXT, "Its city.") for name in table], faults, "sites.")
    return {name: values.text(name) for name in table}


def _link(values: Values, sites: list[str]) -> LinkChange:
    ends = values.names("between")
    if len(ends) != 2 or ends[0] == ends[1]:  # noqa: PLR2004  # a link has two ends
        raise values.error("between", "must be two different sites")
    for name in ends:
        _check_site(values, "between", name, sites)
    return values.into(LinkChange, here=ends[0], there=ends[1])


def _node(values: Values, sites: list[str]) -> LabNode:
    name, site, command = values.text("name"), values.text("site"), values.names("command")
    if not NAME.fullmatch(name):
        raise values.error("name", "begins with a letter or digit; letters, digits, '.', '_' and '-' follow")
    _check_site(values, "site", site, sites)
    if not command:
        raise values.error("command", "must not be empty")
    return LabNode(name, site, command)


def _check_site(values: Values, key: str, name: str, sites: list[str]) -> None:
    if name not in sites:
        raise values.error(key, f'unknown site "{name}"{suggestion(name, sites)}')


# A market's file as a lab: a site for each city, and a process for each node.


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
) -> tuple[LabWorld, tuple[LabNode, ...]]:
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
