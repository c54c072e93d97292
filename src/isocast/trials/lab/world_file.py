"""A world as a file, or from a market's: sites, what lies between them, and the nodes that run in it."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from pathlib import Path

from isocast.runtime.market.model import Impairment, Market
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import parse_duration, suggestion
from isocast.terms.topology import City
from isocast.trials.lab.nodes import LabNode
from isocast.trials.lab.world import NAME, LinkChange, World, WorldSettings, make_world

__all__ = ["load_world", "market_settings", "market_world", "site_name"]


_TOP = ("seed", "loss", "jitter", "scale", "mtu", "sites", "links", "nodes")
_LINK = ("between", "delay", "jitter", "loss", "one_way")
_NODE = ("name", "site", "command")
_MAX_BYTES = 1 << 20
"""Bounds: a world of 64 sites with every link given has some 300 kB."""
_MAX_NODES = 512
"""Bounds: more processes than one machine runs in real time."""


def load_world(path: Path) -> tuple[World, tuple[LabNode, ...]]:
    """The world of a TOML file and its nodes; ConfigurationError names file, key and rule."""
    file = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(file, "file", f"cannot be read: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise ConfigurationError(file, "file", f"is longer than {_MAX_BYTES:,} bytes")
    try:
        table = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(file, "file", f"not valid TOML: {error}") from error
    reader = _Reader(table, _TOP, file, "")
    settings = WorldSettings(
        loss=reader.number("loss") or 0.0,
        jitter_ns=reader.duration("jitter") or 0,
        scale=1.0 if (scale := reader.number("scale")) is None else scale,
        seed=reader.count("seed", 1),
        mtu=reader.count("mtu", 1500),
    )
    cities = {name: _text(file, f"sites {name}", where) for name, where in reader.table("sites").items()}
    world = make_world(cities, settings, file=file)
    sites = [site.name for site in world.sites]
    changes = [_link(_Reader(part, _LINK, file, prefix), sites) for prefix, part in reader.tables("links", "links")]
    nodes = tuple(_node(_Reader(part, _NODE, file, prefix), sites) for prefix, part in reader.tables("nodes", "nodes"))
    if len(nodes) > _MAX_NODES:
        raise ConfigurationError(file, "nodes", f"at most {_MAX_NODES}, not {len(nodes)}")
    twice = {node.name for node in nodes if [other.name for other in nodes].count(node.name) > 1}
    if twice:
        raise ConfigurationError(file, "nodes", f'the name "{min(twice)}" stands there twice')
    return world.with_changes(changes, file), nodes


def _link(reader: _Reader, sites: list[str]) -> LinkChange:
    ends = reader.texts("between")
    if len(ends) != 2 or ends[0] == ends[1]:  # noqa: PLR2004  # a link has two ends
        raise reader.error("between", "must be two different sites")
    for name in ends:
        reader.known("between", name, sites)
    return LinkChange(
        ends[0],
        ends[1],
        delay_ns=reader.duration("delay"),
        jitter_ns=reader.duration("jitter"),
        loss=reader.number("loss"),
        one_way=reader.flag("one_way"),
    )


def _node(reader: _Reader, sites: list[str]) -> LabNode:
    name, site, command = reader.text("name"), reader.text("site"), reader.texts("command")
    if not NAME.fullmatch(name):
        raise reader.error("name", "begins with a letter or digit; letters, digits, '.', '_' and '-' follow")
    reader.known("site", site, sites)
    if not command:
        raise reader.error("command", "must not be empty")
    return LabNode(name, site, tuple(command))


def _shown(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case dict():
            return "a table"
        case list():
            return "a list"
        case _:
            return str(value)


def _text(file: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(file, key, f"must be a text in quotes, not {_shown(value)}")
    return value


class _Reader:
    """One table of the file: unknown keys are refused at once, values when they are asked for."""

    def __init__(self, table: Mapping[str, object], keys: Iterable[str], file: str, prefix: str) -> None:
        self._table = table
        self._file = file
        self._prefix = prefix
        for name in table:
            if name not in keys:
                raise self.error(name, f"unknown key{suggestion(name, keys)}")

    def error(self, key: str, rule: str) -> ConfigurationError:
        return ConfigurationError(self._file, f"{self._prefix}{key}", rule)

    def known(self, key: str, name: str, sites: Iterable[str]) -> None:
        if name not in sites:
            raise self.error(key, f'unknown site "{name}"{suggestion(name, sites)}')

    def text(self, key: str) -> str:
        return _text(self._file, f"{self._prefix}{key}", self._table.get(key, ""))

    def texts(self, key: str) -> list[str]:
        value = self._table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise self.error(key, f"must be a list of texts, not {_shown(value)}")
        return value

    def flag(self, key: str) -> bool:
        value = self._table.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {_shown(value)}")
        return value

    def count(self, key: str, default: int) -> int:
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise self.error(key, f"must be a whole number, 0 or more, not {_shown(value)}")
        return value

    def number(self, key: str) -> float | None:
        value = self._table.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise self.error(key, f"must be a number, not {_shown(value)}")
        return float(value)

    def duration(self, key: str) -> int | None:
        value = self._table.get(key)
        if value is None:
            return None
        try:
            return parse_duration(value if isinstance(value, str) else "")
        except ValueError as error:
            rule = f'must be a time with its unit in quotes, such as "2ms", not {_shown(value)}'
            raise self.error(key, rule) from error

    def table(self, key: str) -> Mapping[str, object]:
        value = self._table.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, f"must be a table, not {_shown(value)}")
        return value

    def tables(self, key: str, title: str) -> list[tuple[str, Mapping[str, object]]]:
        """A list of tables, each with the prefix of its keys in errors."""
        value = self._table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            raise self.error(key, f"must be written as [[{title}]]")
        return [(f"{title} {number} ", part) for number, part in enumerate(value, 1)]


# ---- A market's file as a lab: a site for each city, and a process for each node.


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
