"""A world file: who receives, who listens, what lies between them, and the rules of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np

from isocast.reformation.scopes.world import (
    AddressPool,
    CoverageWorld,
    Floats,
    MeasuredPath,
    Paths,
    Places,
    ScopeRules,
    Surface,
)
from isocast.studies.coverage import places as drawn
from isocast.studies.coverage.land import land_area_km2
from isocast.terms.quantities import duration_text, suggestion
from isocast.terms.toml_files import Faults, Key, Kind, Table, Values, read_list, read_table, read_tables, read_toml
from isocast.terms.topology import CITIES, City, city, unknown_city

__all__ = ["LATITUDES", "PATH_KEYS", "WorldFile", "check_land", "load_world", "named_cities", "world_from_mapping"]

_BYTES_MAX = 64 << 20
"""Bounds: a listed world of half a million places."""
_RECEIVERS_MAX, _CUSTOMERS_MAX = 200_000, 2_000_000
"""Bounds: the paper speaks of 100,000 receivers; more customers do not fit the memory of a small machine."""
_LINES_MAX = 8
"""Bounds: nobody listens to more, and beyond there are no hexagonal figures."""
_NAME_MAX = 100
_KM_MAX = 1_000_000
_PAST_MULTICAST = IPv4Address("240.0.0.0")

_RULES, _POOL, _PATHS = ScopeRules(), AddressPool(), Paths()


_TOP = Table(
    "",
    "At the top of the file.",
    (
        Key("title", Kind.TEXT, "Shown above the plan.", ""),
        Key("seed", Kind.COUNT, "Of all places that are drawn.", 1),
        Key(
            "surface",
            Kind.CHOICE,
            "The earth, or a plane for comparison with grids.",
            Surface.EARTH.value,
            choices=tuple([kind.value for kind in Surface]),
        ),
    ),
)
_SCOPES = Table(
    "scopes",
    "What every customer must get, and how far a scope may go for it.",
    (
        Key("lines", Kind.COUNT, "k: sources that every customer hears.", _RULES.lines, minimum=1, maximum=_LINES_MAX),
        Key("delay_max", Kind.TIME, "From a receiver to the rim of its scope.", duration_text(_RULES.delay_max_ns)),
        Key("loss_max", Kind.PROBABILITY, "Loss at the rim of a scope.", _RULES.loss_max),
        Key("radius_max", Kind.NUMBER, "Of a scope.", otherwise="no limit", positive=True, unit="km"),
        Key(
            "margin",
            Kind.NUMBER,
            "How much wider a scope is than its farthest customer is away.",
            _RULES.margin_km,
            maximum=10_000,
            unit="km",
        ),
        Key("uniform", Kind.FLAG, "One radius for all: the least that serves everybody.", default=_RULES.uniform),
    ),
)
_ADDRESSES = Table(
    "addresses",
    "The multicast groups that scopes may use.",
    (
        Key("first", Kind.GROUP, "Multicast group of address 0.", str(_POOL.first)),
        Key("count", Kind.COUNT, "Groups in the pool.", _POOL.count, minimum=1, maximum=1 << 20),
        Key("stripes", Kind.COUNT, "Consecutive groups for each scope.", _POOL.stripes, minimum=1, maximum=1 << 16),
        Key("drain", Kind.TIME, "How long an address rests after a scope left it.", duration_text(_POOL.drain_ns)),
        Key(
            "drain_everywhere",
            Kind.FLAG,
            "It rests everywhere, not only where it was heard.",
            default=_POOL.drain_everywhere,
        ),
    ),
)
PATH_KEYS = (
    Key("km_per_ms", Kind.NUMBER, "Speed of light in fibre.", _PATHS.km_per_ms, positive=True, unit="km"),
    Key("km_per_hop", Kind.NUMBER, "Between two routers.", _PATHS.km_per_hop, positive=True, unit="km"),
    Key("hop", Kind.TIME, "Delay of a router.", duration_text(_PATHS.hop_ns)),
)
"""Of delays by distance, in files of planets as well."""
_WAYS = Table(
    "paths",
    "Delay and loss by distance, where nothing was measured.",
    (
        *PATH_KEYS,
        Key("loss", Kind.PROBABILITY, "On the way into and out of the network.", _PATHS.loss),
        Key("loss_per_1000_km", Kind.PROBABILITY, "On top.", _PATHS.loss_per_1000_km),
    ),
)
_AREA = Table(
    "area",
    "The size of a plane.",
    (
        Key("width", Kind.NUMBER, "From west to east.", required=True, positive=True, unit="km"),
        Key("height", Kind.NUMBER, "From south to north.", required=True, positive=True, unit="km"),
        Key("inset", Kind.NUMBER, "How far from the edges customers stay.", 0, maximum=_KM_MAX, unit="km"),
    ),
)
LATITUDES = Key(
    "latitudes", Kind.SPAN, "South and north, in degrees.", (-90, 90), minimum=-90, maximum=90, unit="degrees"
)
_PATTERNS = {
    Surface.EARTH: ("land", "even", "cities"),
    Surface.PLANE: ("random", "hexagonal", "square"),
}
_HEEDED = {
    "land": ("count", "latitudes"),
    "even": ("count", "latitudes", "relax"),
    "cities": ("count", "cities", "spread"),
    "random": ("count",),
    "hexagonal": ("spacing",),
    "square": ("spacing",),
}
"""Keys that mean something to a pattern."""
_NAME = Key("name", Kind.TEXT, "What the place is called.", required=True, minimum=1, maximum=_NAME_MAX)
_PLANE_KEYS = (
    _NAME,
    Key("x", Kind.NUMBER, "East.", required=True, minimum=-_KM_MAX, maximum=_KM_MAX, unit="km"),
    Key("y", Kind.NUMBER, "North.", required=True, minimum=-_KM_MAX, maximum=_KM_MAX, unit="km"),
)
_EARTH_KEYS = (
    Key("name", Kind.TEXT, "What the place is called.", otherwise="the city's", minimum=1, maximum=_NAME_MAX),
    Key("city", Kind.TEXT, "A known city, instead of coordinates."),
    Key("latitude", Kind.NUMBER, "Degrees north.", minimum=-90, maximum=90, unit="degrees"),
    Key("longitude", Kind.NUMBER, "Degrees east.", minimum=-180, maximum=180, unit="degrees"),
)
_LINK = Table(
    "link",
    "What was measured between a receiver and a customer.",
    (
        Key("receiver", Kind.TEXT, "By its name.", required=True),
        Key("customer", Kind.TEXT, "By its name.", required=True),
        Key("delay", Kind.TIME, "One way.", otherwise="by distance"),
        Key("loss", Kind.PROBABILITY, "Of packets.", otherwise="by distance"),
        Key("cut", Kind.FLAG, "Nothing passes.", default=False),
    ),
)


def _drawing(what: str, surface: Surface) -> Table:
    """The keys of places that are drawn."""
    patterns, most = _PATTERNS[surface], _most(what)
    return Table(
        f"{what}s",
        "Places that are drawn.",
        (
            Key("pattern", Kind.CHOICE, "How they lie.", patterns[0], choices=patterns),
            Key("count", Kind.COUNT, "How many.", minimum=1, maximum=most),
            LATITUDES,
            Key("relax", Kind.COUNT, "Rounds in which each moves to the middle of its region.", 0, maximum=100),
            Key("cities", Kind.CITIES, "Around which.", otherwise="all that are known"),
            Key("spread", Kind.NUMBER, "How far around a city.", 200, positive=True, unit="km"),
            Key("spacing", Kind.NUMBER, "Of a grid.", positive=True, unit="km"),
        ),
    )


def _most(what: str) -> int:
    return _RECEIVERS_MAX if what == "receiver" else _CUSTOMERS_MAX


@dataclass(frozen=True, eq=False)
class WorldFile:
    """A world, and what its file says of it."""

    title: str
    seed: int
    world: CoverageWorld


@dataclass(frozen=True, slots=True)
class _Ground:
    """What all places of a file have in common."""

    mapping: Mapping[str, object]
    faults: Faults
    surface: Surface
    seed: int
    area: drawn.Rectangle | None


def load_world(path: str | Path) -> WorldFile:
    """The world of a TOML file; ConfigurationError names file, key and rule."""
    return world_from_mapping(read_toml(path, _BYTES_MAX), str(path))


def world_from_mapping(mapping: Mapping[str, object], file: str = "<world>") -> WorldFile:
    """The world of a parsed file; `file` only appears in errors."""
    faults = Faults(file, collect=False)
    others = ("area", "receivers", "customers", "receiver", "customer", "link")
    tables = read_tables(mapping, (_TOP, _SCOPES, _ADDRESSES, _WAYS), faults, others)
    top = tables[""]
    surface = Surface(top.text("surface"))
    ground = _Ground(mapping, faults, surface, top.count("seed"), _area(mapping, surface, faults))
    receivers, customers = _places(ground, "receiver"), _places(ground, "customer")
    world = CoverageWorld(
        surface,
        receivers,
        customers,
        tables["paths"].into(Paths),
        _links(ground, receivers, customers),
        tables["scopes"].into(ScopeRules),
        _pool(tables["addresses"]),
        _area_km2(ground),
        file,
    )
    if not len(receivers):
        raise faults.error("receivers", "there is none: list them as [[receiver]], or draw them with [receivers]")
    return WorldFile(top.text("title"), ground.seed, world)


def _pool(values: Values) -> AddressPool:
    pool = values.into(AddressPool, first=IPv4Address(values.text("first")))
    if pool.stripes > pool.count:
        raise values.error("stripes", f"must not be more than count, {pool.count}")
    left = int(_PAST_MULTICAST) - int(pool.first)
    if pool.count > left:
        raise values.error("count", f"only {left:,} multicast groups are left from {pool.first} on")
    return pool


def _area(mapping: Mapping[str, object], surface: Surface, faults: Faults) -> drawn.Rectangle | None:
    if "area" not in mapping:
        return None
    if surface is Surface.EARTH:
        raise faults.error("area", 'only for surface = "plane"')
    values = read_table(mapping, _AREA, faults)
    area = values.into(drawn.Rectangle)
    if 2 * area.inset >= min(area.width, area.height):
        raise values.error("inset", "must leave something in the middle")
    return area


def _area_km2(ground: _Ground) -> float:
    """What receivers share: of the plane its rectangle, of the earth the land that customers are drawn from."""
    if ground.surface is Surface.PLANE:
        return ground.area.width * ground.area.height if ground.area else 0.0
    customers = read_table(ground.mapping, _drawing("customer", ground.surface), ground.faults)
    if "customers" not in ground.mapping or customers.text("pattern") == "cities":
        return 0.0
    return land_area_km2(*customers.span("latitudes"))


def check_land(values: Values) -> tuple[float, float]:
    """South and north of a table; there must be land between them."""
    south, north = values.span("latitudes")
    if land_area_km2(south, north) == 0:
        raise values.error("latitudes", f"there is no land between {south:g} and {north:g} degrees")
    return south, north


def named_cities(values: Values) -> tuple[City, ...]:
    """The cities of a table; all that are known, if left out."""
    if "cities" in values and not values.cities("cities"):
        raise values.error("cities", "must name at least one")
    return values.cities("cities") or CITIES


def _places(ground: _Ground, what: str) -> Places:
    """Those that are listed, then those that are drawn."""
    keys = _EARTH_KEYS if ground.surface is Surface.EARTH else _PLANE_KEYS
    entries = read_list(ground.mapping, Table(what, "A place.", keys), ground.faults)
    listed = [_listed(values, ground.surface) for values in entries]
    names = [name for name, _ in listed]
    where = np.array([place for _, place in listed], dtype=np.float64).reshape(-1, 2)
    if f"{what}s" in ground.mapping:
        more = _drawn(ground, what)
        width = max(len(str(len(more))), 3)
        names += [f"{what[0]}{number:0{width}}" for number in range(1, len(more) + 1)]
        where = np.vstack((where, more))
    if len(names) > _most(what):
        raise ground.faults.error(f"{what}s", f"at most {_most(what):,}, not {len(names):,}")
    once: dict[str, None] = {}
    for name in names:
        if name in once:
            raise ground.faults.error(what, f'the name "{name}" occurs twice')
        once[name] = None
    return Places(tuple(names), where)


def _listed(values: Values, surface: Surface) -> tuple[str, tuple[float, float]]:
    if surface is Surface.PLANE:
        return values.text("name"), (values.number("x"), values.number("y"))
    if "city" in values:
        if "latitude" in values or "longitude" in values:
            raise values.error("city", "either a city, or latitude and longitude")
        place = city(values.text("city"))
        if place is None:
            raise values.error("city", unknown_city(values.text("city"), "; give latitude and longitude instead"))
        return values.text("name", place.name), (place.latitude, place.longitude)
    for key in ("name", "latitude", "longitude"):
        if key not in values:
            raise values.error(key, "is missing: a place is a city, or a name with latitude and longitude")
    return values.text("name"), (values.number("latitude"), values.number("longitude"))


def _drawn(ground: _Ground, what: str) -> Floats:
    values = read_table(ground.mapping, _drawing(what, ground.surface), ground.faults)
    pattern, area = values.text("pattern"), ground.area
    _check_keys(values, pattern)
    # A stream of its own: other customers do not move the receivers.
    random = np.random.Generator(np.random.PCG64([ground.seed, len(what)]))
    if ground.surface is Surface.PLANE:
        if area is None:
            raise values.error("pattern", "a plane needs its size: give [area] with width and height, in km")
        bounds = area.inner() if what == "customer" else (0, 0, area.width, area.height)
        return _drawn_on_plane(values, pattern, random, bounds)
    count = values.count("count")
    south, north = check_land(values)
    if pattern == "cities":
        return drawn.around_cities(random, count, named_cities(values), values.number("spread"))
    if pattern == "even":
        return drawn.even_on_land(random, count, south, north, values.count("relax"))
    return drawn.random_on_land(random, count, south, north)


def _check_keys(values: Values, pattern: str) -> None:
    """A key that a pattern does not heed is a mistake."""
    for key in sorted(values.given - {"pattern", *_HEEDED[pattern]}):
        raise values.error(key, f'means nothing with pattern = "{pattern}"')
    for key in ("count", "spacing"):
        if key in _HEEDED[pattern] and key not in values:
            raise values.error(key, f'must be given with pattern = "{pattern}"')


def _drawn_on_plane(
    values: Values, pattern: str, random: np.random.Generator, bounds: tuple[float, float, float, float]
) -> Floats:
    if pattern == "random":
        return drawn.random_on_plane(random, values.count("count"), bounds)
    spacing = values.number("spacing")
    if (bounds[2] - bounds[0]) * (bounds[3] - bounds[1]) / spacing**2 > _CUSTOMERS_MAX:
        raise values.error("spacing", f"gives more than {_CUSTOMERS_MAX:,} places")
    return drawn.hexagonal(spacing, bounds) if pattern == "hexagonal" else drawn.square(spacing, bounds)


def _links(ground: _Ground, receivers: Places, customers: Places) -> tuple[MeasuredPath, ...]:
    links: dict[tuple[str, str], MeasuredPath] = {}
    known = {"receiver": dict.fromkeys(receivers.names), "customer": dict.fromkeys(customers.names)}
    for values in read_list(ground.mapping, _LINK, ground.faults):
        ends = values.text("receiver"), values.text("customer")
        for key, name in zip(("receiver", "customer"), ends, strict=True):
            if name not in known[key]:
                raise values.error(key, f'unknown {key} "{name}"{suggestion(name, list(known[key])[:1000])}')
        if ends in links:
            raise values.error("receiver", f"the link from {ends[0]} to {ends[1]} occurs twice")
        links[ends] = values.into(MeasuredPath)
    return tuple(links.values())
