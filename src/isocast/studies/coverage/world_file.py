"""A world file: who receives, who listens, what lies between them, and the rules of a plan."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from math import inf, isfinite
from pathlib import Path

import numpy as np

from isocast.reformation.scopes.world import AddressPool, Floats, Link, Paths, Places, ScopeRules, Surface, World
from isocast.studies.coverage import places as drawn
from isocast.studies.coverage.land import land_area_km2
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import parse_duration, suggestion
from isocast.terms.topology import CITIES, City, city

__all__ = ["Table", "WorldFile", "load_world", "read_toml", "shown", "world_from_mapping"]


# ---- One table of a world file at a time: unknown keys are refused at once, values when they are asked for.


_NAME_MAX = 100


def read_toml(path: str | Path, bytes_max: int) -> dict[str, object]:
    """What a file of at most so many bytes says; ConfigurationError for one that cannot be read or is no TOML."""
    file = str(path)
    try:
        with Path(path).open("rb") as source:
            data = source.read(bytes_max + 1)
    except OSError as error:
        raise ConfigurationError(file, "file", f"cannot be read: {error.strerror}") from error
    if len(data) > bytes_max:
        raise ConfigurationError(file, "file", f"is longer than {bytes_max:,} bytes")
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigurationError(file, "file", "TOML is UTF-8 text, and this is not") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(file, "file", f"not valid TOML: {error}") from error


def shown(value: object) -> str:
    """The value as the file has it, near enough."""
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


class Table:
    """The values of one table; ConfigurationError names file, key and rule."""

    def __init__(self, table: Mapping[str, object], keys: Iterable[str], file: str, prefix: str = "") -> None:
        """`prefix` stands before a key in errors."""
        self._table = table
        self.file = file
        self._prefix = prefix
        known = tuple(keys)
        for name in table:
            if name not in known:
                raise self.error(name, f"unknown key{suggestion(name, known)}")

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def error(self, key: str, rule: str) -> ConfigurationError:
        """The error that names file, key and rule, in one line."""
        printable = "".join([letter if letter.isprintable() else "?" for letter in key])
        return ConfigurationError(self.file, f"{self._prefix}{printable}", rule)

    def text(self, key: str, default: str = "") -> str:
        """A text in quotes."""
        value = self._table.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"must be a text in quotes, not {shown(value)}")
        return value

    def name(self, key: str) -> str:
        """A name: one line, not empty."""
        value = self.text(key)
        if not value.strip() or len(value) > _NAME_MAX or not value.isprintable():
            raise self.error(key, f"must be a name of 1 to {_NAME_MAX} letters in one line")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        """One of a few words."""
        value = self._table.get(key, default)
        if not isinstance(value, str) or value not in choices:
            hint = suggestion(value, choices) if isinstance(value, str) else ""
            raise self.error(key, f"must be one of {', '.join(choices)}, not {shown(value)}{hint}")
        return value

    def flag(self, key: str) -> bool:
        """True or false, false if left out."""
        value = self._table.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {shown(value)}")
        return value

    def count(self, key: str, default: int, least: int, most: int) -> int:
        """A whole number."""
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(key, f"must be a whole number from {least:,} to {most:,}, not {shown(value)}")
        return value

    def number(self, key: str, default: float, least: float, most: float) -> float:
        """A number within bounds."""
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.error(key, f"must be a number from {least:g} to {most:g}, not {shown(value)}")
        return float(value)

    def length(self, key: str, default: float) -> float:
        """A number of km, more than 0."""
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or not value > 0:
            if value == default:
                return default
            raise self.error(key, f"must be a number of km, more than 0, not {shown(value)}")
        return float(value)

    def probability(self, key: str, default: float) -> float:
        """From 0 to less than 1."""
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.error(key, f"must be a probability, 0 or more and less than 1, not {shown(value)}")
        return float(value)

    def duration(self, key: str, default: int) -> int:
        """Nanoseconds of a time with its unit."""
        if key not in self._table:
            return default
        value = self._table[key]
        try:
            return parse_duration(value if isinstance(value, str) else "")
        except ValueError as error:
            rule = f'must be a time with its unit in quotes, such as "20ms", not {shown(value)}'
            raise self.error(key, rule) from error

    def address(self, key: str, default: IPv4Address) -> IPv4Address:
        """A multicast group."""
        value = self.text(key, str(default))
        try:
            group = IPv4Address(value)
        except AddressValueError as error:
            raise self.error(key, f'must be an IPv4 address, not "{value}"') from error
        if not group.is_multicast:
            raise self.error(key, f"must be a multicast group, 224.0.0.0 to 239.255.255.255, not {value}")
        return group

    def span(self, key: str, default: tuple[float, float], least: float, most: float) -> tuple[float, float]:
        """Two numbers, the lower first."""
        if key not in self._table:
            return default
        value = self._table[key]
        good = isinstance(value, list) and all(
            isinstance(part, int | float) and not isinstance(part, bool) and least <= part <= most for part in value
        )
        if not isinstance(value, list) or not good or len(value) != 2 or not value[0] < value[1]:  # noqa: PLR2004
            raise self.error(key, f"must be two numbers from {least:g} to {most:g}, the lower first")
        return float(value[0]), float(value[1])

    def city(self, key: str) -> City:
        """A city by name or code."""
        return self._city(key, self.text(key))

    def cities(self, key: str) -> tuple[City, ...]:
        """A list of cities; all that are known, if left out."""
        value = self._table.get(key)
        if value is None:
            return CITIES
        if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
            raise self.error(key, f"must be a list of cities, not {shown(value)}")
        return tuple([self._city(key, part) for part in value])

    def _city(self, key: str, name: str) -> City:
        found = city(name)
        if found is None:
            known = [place.name for place in CITIES] + [place.code for place in CITIES]
            rule = f'unknown city "{name}"{suggestion(name, known)}'
            raise self.error(key, rule if suggestion(name, known) else f"{rule}; give latitude and longitude instead")
        return found

    def part(self, key: str) -> Mapping[str, object]:
        """A table, empty if left out."""
        value = self._table.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, f"must be a table, written as [{key}], not {shown(value)}")
        return value

    def parts(self, key: str) -> list[tuple[str, Mapping[str, object]]]:
        """A list of tables, each with what stands before its keys in errors."""
        value = self._table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            raise self.error(key, f"must be a list of tables, each written as [[{key}]]")
        return [(f"{key} {number} ", part) for number, part in enumerate(value, 1)]


_BYTES_MAX = 64 << 20
"""Bounds: a listed world of half a million places."""
_RECEIVERS_MAX, _CUSTOMERS_MAX = 200_000, 2_000_000
"""Bounds: the paper speaks of 100,000 receivers; more customers do not fit the memory of a small machine."""
_LINES_MAX = 8
"""Bounds: nobody listens to more, and beyond there are no hexagonal figures."""

_PAST_MULTICAST = IPv4Address("240.0.0.0")

_TOP = ("title", "seed", "surface", "area", "scopes", "addresses", "paths", "receivers", "customers", "receiver",
        "customer", "link")  # fmt: skip
_SCOPES = ("lines", "delay_max", "loss_max", "radius_max", "margin", "uniform")
_ADDRESSES = ("first", "count", "stripes", "drain", "drain_everywhere")
_PATHS = ("km_per_ms", "km_per_hop", "hop", "loss", "loss_per_1000_km")
_DRAWN = ("pattern", "count", "latitudes", "relax", "cities", "spread", "spacing")
_LINK = ("receiver", "customer", "delay", "loss", "cut")
_PATTERNS = {
    Surface.EARTH: ("land", "even", "cities"),
    Surface.PLANE: ("random", "hexagonal", "square"),
}


@dataclass(frozen=True, eq=False)
class WorldFile:
    """A world, and what its file says of it."""

    title: str
    seed: int
    world: World


def load_world(path: str | Path) -> WorldFile:
    """The world of a TOML file; ConfigurationError names file, key and rule."""
    return world_from_mapping(read_toml(path, _BYTES_MAX), str(path))


def world_from_mapping(mapping: Mapping[str, object], file: str = "<world>") -> WorldFile:
    """The world of a parsed file; `file` only appears in errors."""
    top = Table(mapping, _TOP, file)
    surface = Surface(top.choice("surface", tuple([kind.value for kind in Surface]), Surface.EARTH.value))
    seed = top.count("seed", 1, 0, 2**63 - 1)
    area = _area(top, surface)
    receivers = _places(top, "receiver", surface, area, seed)
    customers = _places(top, "customer", surface, area, seed)
    world = World(
        surface,
        receivers,
        customers,
        _paths(Table(top.part("paths"), _PATHS, file, "paths.")),
        _links(top, receivers, customers),
        _rules(Table(top.part("scopes"), _SCOPES, file, "scopes.")),
        _pool(Table(top.part("addresses"), _ADDRESSES, file, "addresses.")),
        _ground(top, surface, area),
        file,
    )
    if not len(receivers):
        raise top.error("receivers", "there is none: list them as [[receiver]], or draw them with [receivers]")
    return WorldFile(top.text("title"), seed, world)


def _rules(table: Table) -> ScopeRules:
    usual = ScopeRules()
    return ScopeRules(
        lines=table.count("lines", usual.lines, 1, _LINES_MAX),
        delay_max_ns=table.duration("delay_max", usual.delay_max_ns),
        loss_max=table.probability("loss_max", usual.loss_max),
        radius_max_km=table.length("radius_max", inf),
        margin_km=table.number("margin", 0.0, 0.0, 10_000.0),
        uniform=table.flag("uniform"),
    )


def _pool(table: Table) -> AddressPool:
    usual = AddressPool()
    pool = AddressPool(
        first=table.address("first", usual.first),
        count=table.count("count", usual.count, 1, 1 << 20),
        stripes=table.count("stripes", 1, 1, 1 << 16),
        drain_ns=table.duration("drain", usual.drain_ns),
        drain_everywhere=table.flag("drain_everywhere"),
    )
    if pool.stripes > pool.count:
        raise table.error("stripes", f"must not be more than count, {pool.count}")
    left = int(_PAST_MULTICAST) - int(pool.first)
    if pool.count > left:
        raise table.error("count", f"only {left:,} multicast groups are left from {pool.first} on")
    return pool


def _paths(table: Table) -> Paths:
    usual = Paths()
    return Paths(
        km_per_ms=table.length("km_per_ms", usual.km_per_ms),
        km_per_hop=table.length("km_per_hop", usual.km_per_hop),
        hop_ns=table.duration("hop", usual.hop_ns),
        loss=table.probability("loss", 0.0),
        loss_per_1000_km=table.probability("loss_per_1000_km", 0.0),
    )


def _area(top: Table, surface: Surface) -> drawn.Rectangle | None:
    if "area" not in top:
        return None
    if surface is Surface.EARTH:
        raise top.error("area", 'only for surface = "plane"')
    table = Table(top.part("area"), ("width", "height", "inset"), top.file, "area.")
    for key in ("width", "height"):
        if key not in table:
            raise table.error(key, "is missing")
    area = drawn.Rectangle(
        table.length("width", 1.0), table.length("height", 1.0), table.number("inset", 0.0, 0.0, 1e6)
    )
    if 2 * area.inset >= min(area.width, area.height):
        raise table.error("inset", "must leave something in the middle")
    return area


def _ground(top: Table, surface: Surface, area: drawn.Rectangle | None) -> float:
    """What receivers share, in km²: of the plane its rectangle, of the earth the land that customers are drawn from."""
    if surface is Surface.PLANE:
        return area.width * area.height if area else 0.0
    customers = Table(top.part("customers"), _DRAWN, top.file, "customers.")
    if "customers" not in top or customers.choice("pattern", _PATTERNS[surface], "land") == "cities":
        return 0.0
    return land_area_km2(*customers.span("latitudes", (-90.0, 90.0), -90.0, 90.0))


# ---- places


def _places(top: Table, what: str, surface: Surface, area: drawn.Rectangle | None, seed: int) -> Places:
    """Those that are listed, then those that are drawn."""
    keys = _listed_keys(surface)
    listed = [_listed(Table(part, keys, top.file, prefix), surface) for prefix, part in top.parts(what)]
    names = [name for name, _ in listed]
    where = np.array([place for _, place in listed], dtype=np.float64).reshape(-1, 2)
    most = _RECEIVERS_MAX if what == "receiver" else _CUSTOMERS_MAX
    if f"{what}s" in top:
        table = Table(top.part(f"{what}s"), _DRAWN, top.file, f"{what}s.")
        # A stream of its own: other customers do not move the receivers.
        random = np.random.Generator(np.random.PCG64([seed, len(what)]))
        more = _drawn(table, surface, random, area, customers=what == "customer")
        width = max(len(str(len(more))), 3)
        names += [f"{what[0]}{number:0{width}}" for number in range(1, len(more) + 1)]
        where = np.vstack((where, more))
    if len(names) > most:
        raise top.error(f"{what}s", f"at most {most:,}, not {len(names):,}")
    once: dict[str, None] = {}
    for name in names:
        if name in once:
            raise top.error(what, f'the name "{name}" stands there twice')
        once[name] = None
    return Places(tuple(names), where)


def _listed_keys(surface: Surface) -> tuple[str, ...]:
    return ("name", "city", "latitude", "longitude") if surface is Surface.EARTH else ("name", "x", "y")


def _listed(table: Table, surface: Surface) -> tuple[str, tuple[float, float]]:
    if surface is Surface.PLANE:
        for key in ("name", "x", "y"):
            if key not in table:
                raise table.error(key, "is missing")
        return table.name("name"), (table.number("x", 0, -1e6, 1e6), table.number("y", 0, -1e6, 1e6))
    if "city" in table:
        if "latitude" in table or "longitude" in table:
            raise table.error("city", "either a city, or latitude and longitude")
        city = table.city("city")
        return table.name("name") if "name" in table else city.name, (city.latitude, city.longitude)
    for key in ("name", "latitude", "longitude"):
        if key not in table:
            raise table.error(key, "is missing: a place is a city, or a name with latitude and longitude")
    place = (table.number("latitude", 0, -90, 90), table.number("longitude", 0, -180, 180))
    return table.name("name"), place


def _drawn(
    table: Table, surface: Surface, random: np.random.Generator, area: drawn.Rectangle | None, *, customers: bool
) -> Floats:
    patterns = _PATTERNS[surface]
    pattern = table.choice("pattern", patterns, patterns[0])
    _check_keys(table, pattern)
    most = _CUSTOMERS_MAX if customers else _RECEIVERS_MAX
    if surface is Surface.PLANE:
        if area is None:
            raise table.error("pattern", "a plane needs its size: give [area] with width and height, in km")
        return _drawn_on_plane(table, pattern, random, area.inner() if customers else (0, 0, area.width, area.height))
    count = table.count("count", 0, 1, most)
    south, north = table.span("latitudes", (-90.0, 90.0), -90.0, 90.0)
    if land_area_km2(south, north) == 0:
        raise table.error("latitudes", f"there is no land between {south:g} and {north:g} degrees")
    if pattern == "cities":
        return drawn.around_cities(random, count, table.cities("cities"), table.length("spread", 200.0))
    if pattern == "even":
        return drawn.even_on_land(random, count, south, north, table.count("relax", 0, 0, 100))
    return drawn.random_on_land(random, count, south, north)


def _check_keys(table: Table, pattern: str) -> None:
    """A key that a pattern does not heed is a mistake."""
    heeded = {
        "land": ("count", "latitudes"),
        "even": ("count", "latitudes", "relax"),
        "cities": ("count", "cities", "spread"),
        "random": ("count",),
        "hexagonal": ("spacing",),
        "square": ("spacing",),
    }[pattern]
    for key in _DRAWN[1:]:
        if key in table and key not in heeded:
            raise table.error(key, f'means nothing with pattern = "{pattern}"')
    for key in ("count", "spacing"):
        if key in heeded and key not in table:
            raise table.error(key, "is missing")


def _drawn_on_plane(
    table: Table, pattern: str, random: np.random.Generator, bounds: tuple[float, float, float, float]
) -> Floats:
    if pattern == "random":
        return drawn.random_on_plane(random, table.count("count", 0, 1, _CUSTOMERS_MAX), bounds)
    spacing = table.length("spacing", 1.0)
    if (bounds[2] - bounds[0]) * (bounds[3] - bounds[1]) / spacing**2 > _CUSTOMERS_MAX:
        raise table.error("spacing", f"gives more than {_CUSTOMERS_MAX:,} places")
    return drawn.hexagonal(spacing, bounds) if pattern == "hexagonal" else drawn.square(spacing, bounds)


def _links(top: Table, receivers: Places, customers: Places) -> tuple[Link, ...]:
    links: dict[tuple[str, str], Link] = {}
    known = {"receiver": dict.fromkeys(receivers.names), "customer": dict.fromkeys(customers.names)}
    for prefix, part in top.parts("link"):
        table = Table(part, _LINK, top.file, prefix)
        ends = table.text("receiver"), table.text("customer")
        for key, name in zip(("receiver", "customer"), ends, strict=True):
            if name not in known[key]:
                raise table.error(key, f'unknown {key} "{name}"{suggestion(name, list(known[key])[:1000])}')
        if ends in links:
            raise table.error("receiver", f"the link from {ends[0]} to {ends[1]} stands there twice")
        links[ends] = Link(
            *ends,
            delay_ns=table.duration("delay", 0) if "delay" in table else None,
            loss=table.probability("loss", 0.0) if "loss" in table else None,
            cut=table.flag("cut"),
        )
    return tuple(links.values())
