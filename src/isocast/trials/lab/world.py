"""The world of a lab as values: sites, and the links that delay and lose the frames between each two of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from ipaddress import AddressValueError, IPv4Address
from math import isfinite
from random import Random
from typing import Any

from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import suggestion
from isocast.terms.topology import City, city, delay_ns, unknown_city

__all__ = [
    "ADDRESSES_PER_SITE",
    "CUT",
    "LOST",
    "MAX_SITES",
    "NAME",
    "LabWorld",
    "Link",
    "LinkChange",
    "LinkImpairment",
    "Site",
    "WorldSettings",
    "make_world",
    "site_address",
    "world_from_json",
]


# One direction between two sites: what delay, jitter and loss do to each frame, in order.


LOST = -1
"""Instead of an instant: chance took the frame."""
CUT = -2
"""Instead of an instant: the link is cut."""


@dataclass(frozen=True, slots=True)
class LinkImpairment:
    """What one direction does to frames."""

    delay_ns: int = 0
    jitter_ns: int = 0
    """Mean of an exponential delay on top."""
    loss: float = 0.0
    """Share of the frames that are lost, each by itself."""


class Link:
    """One direction: frames leave in the order in which they came, each no sooner than its delay allows.

    A cut or a change counts for frames that enter from now on; what is on its way arrives.
    """

    __slots__ = ("_last_ns", "_random", "cut", "frames_cut", "frames_lost", "frames_taken", "impairment")

    def __init__(self, impairment: LinkImpairment, random: Random) -> None:
        """Open, with nothing on its way."""
        self.impairment = impairment
        self.cut = False
        self.frames_taken = 0
        self.frames_lost = 0
        self.frames_cut = 0
        self._random = random
        self._last_ns = 0

    def take(self, now: int) -> int:
        """The instant at which a frame that enters now leaves again; LOST or CUT instead if it never does."""
        if self.cut:
            self.frames_cut += 1
            return CUT
        impairment = self.impairment
        if impairment.loss and self._random.random() < impairment.loss:
            self.frames_lost += 1
            return LOST
        leaves = now + impairment.delay_ns
        if impairment.jitter_ns:
            leaves += round(self._random.expovariate(1 / impairment.jitter_ns))
        self._last_ns = leaves = max(leaves, self._last_ns)
        self.frames_taken += 1
        return leaves


MAX_SITES = 64
"""Bounds: one core forwards 115,000 frames a second, so 64 sites hear 1,800 multicasts a second between them."""
ADDRESSES_PER_SITE = 8
"""Where the caller names none: so many nodes can live at one site."""
MAX_ADDRESSES = 2048
"""Bounds: each has a route and a neighbour at every other site, 64 times 2048 requests to the kernel."""
MAX_DELAY_NS = 60_000_000_000
"""A minute each way is further than the moon; more is a mistake in the unit."""
MIN_MTU, MAX_MTU = 576, 9000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""A name of a site or a node: it is also that of a file."""


@dataclass(frozen=True, slots=True)
class Site:
    """A network namespace of its own."""

    name: str
    place: City | None
    """None: at no distance from anybody."""
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """What holds between all sites, where nothing else is said."""

    loss: float = 0.0
    jitter_ns: int = 0
    """Mean of an exponential delay on top."""
    scale: float = 1.0
    """Times the delay of light in fibre: 0.1 is an earth a tenth as large."""
    seed: int = 1
    mtu: int = 1500


@dataclass(frozen=True, slots=True)
class LinkChange:
    """What is different between two sites; None leaves as it is."""

    here: str
    there: str
    delay_ns: int | None = None
    jitter_ns: int | None = None
    loss: float | None = None
    one_way: bool = False

    def apply(self, before: LinkImpairment) -> LinkImpairment:
        """The impairment after it."""
        return LinkImpairment(
            before.delay_ns if self.delay_ns is None else self.delay_ns,
            before.jitter_ns if self.jitter_ns is None else self.jitter_ns,
            before.loss if self.loss is None else self.loss,
        )

    def check(self, file: str, prefix: str = "") -> None:
        """Refuse values that no link can have."""
        _check_impairment(self.apply(LinkImpairment()), file, prefix)


@dataclass(frozen=True, slots=True)
class LabWorld:
    """Everything that the switch must know."""

    sites: tuple[Site, ...]
    impairments: Mapping[tuple[int, int], LinkImpairment]
    """By the places of two sites among `sites`, for each direction."""
    seed: int = 1
    mtu: int = 1500

    def place_of(self, name: str) -> int:
        """The place of a site among `sites`, by its own name or its city's."""
        for place, site in enumerate(self.sites):
            if site.name == name:
                return place
        found = city(name)
        for place, site in enumerate(self.sites):
            if found is not None and site.place == found:
                return place
        known = [site.name for site in self.sites]
        hint = suggestion(name, known) or f"; there are {', '.join(known)}"
        raise ConfigurationError("lab", name, f"unknown site{hint}")

    def pairs(self, here: str, there: str, *, one_way: bool = False) -> list[tuple[int, int]]:
        """The directions between two different sites."""
        a, b = self.place_of(here), self.place_of(there)
        if a == b:
            raise ConfigurationError("lab", f"{here} {there}", "a link needs two different sites")
        return [(a, b)] if one_way else [(a, b), (b, a)]

    def with_changes(self, changes: Sequence[LinkChange], file: str = "lab") -> LabWorld:
        """The same world with some links different."""
        impairments = dict(self.impairments)
        for number, change in enumerate(changes, 1):
            change.check(file, f"links[{number}].")
            for pair in self.pairs(change.here, change.there, one_way=change.one_way):
                impairments[pair] = change.apply(impairments[pair])
        return replace(self, impairments=impairments)

    def as_json(self) -> dict[str, Any]:
        """For the way to the switch's process."""
        return {
            "sites": [asdict(site) for site in self.sites],
            "impairments": [[*pair, asdict(impairment)] for pair, impairment in self.impairments.items()],
            "seed": self.seed,
            "mtu": self.mtu,
        }


def world_from_json(value: Mapping[str, Any]) -> LabWorld:
    """What `LabWorld.as_json` made of it."""
    sites = tuple(
        Site(site["name"], City(**site["place"]) if site["place"] else None, tuple(site["addresses"]))
        for site in value["sites"]
    )
    impairments = {(here, there): LinkImpairment(**parts) for here, there, parts in value["impairments"]}
    return LabWorld(sites, impairments, value["seed"], value["mtu"])


def make_world(
    cities: Mapping[str, City | str | None],
    settings: WorldSettings,
    addresses: Mapping[str, Sequence[str]] | None = None,
    *,
    file: str = "lab",
) -> LabWorld:
    """A world of these sites at the delay of light in fibre from each other; ConfigurationError names `file`.

    A city is given by its name, its code or its coordinates; None is at no distance from anybody.
    """
    _check_settings(settings, file)
    if not 1 <= len(cities) <= MAX_SITES:
        raise ConfigurationError(file, "sites", f"a world has from 1 to {MAX_SITES} sites, not {len(cities)}")
    sites = []
    for place, (name, where) in enumerate(cities.items()):
        if not NAME.fullmatch(name):
            rule = "a name begins with a letter or digit; letters, digits, '.', '_' and '-' follow, 63 in all"
            raise ConfigurationError(file, f"sites.{name}", rule)
        own = [site_address(place, number + 1) for number in range(ADDRESSES_PER_SITE)]
        given = own if addresses is None else addresses.get(name, ())
        sites.append(Site(name, _place(where, f"sites.{name}", file), tuple(given)))
    _check_addresses(sites, file)
    impairments = {
        (here, there): LinkImpairment(_distance_ns(a, b, settings.scale), settings.jitter_ns, settings.loss)
        for here, a in enumerate(sites)
        for there, b in enumerate(sites)
        if here != there
    }
    return LabWorld(tuple(sites), impairments, settings.seed, settings.mtu)


def site_address(place: int, number: int) -> str:
    """The lab's own addresses: 10.77.<site>.<number>, both from 1."""
    return f"10.77.{place + 1}.{number}"


def _distance_ns(a: Site, b: Site, scale: float) -> int:
    if a.place is None or b.place is None:
        return 0
    return round(delay_ns(a.place, b.place) * scale)


def _place(where: City | str | None, key: str, file: str) -> City | None:
    if not isinstance(where, str):
        return where
    found = city(where)
    if found is None:
        raise ConfigurationError(file, key, unknown_city(where))
    return found


def _check_settings(settings: WorldSettings, file: str) -> None:
    _check_impairment(LinkImpairment(0, settings.jitter_ns, settings.loss), file)
    if not isfinite(settings.scale) or not 0 <= settings.scale <= 100:  # noqa: PLR2004  # 100 earths: a wrong unit
        raise ConfigurationError(file, "scale", f"must be from 0 to 100, not {settings.scale}")
    if not MIN_MTU <= settings.mtu <= MAX_MTU:
        raise ConfigurationError(file, "mtu", f"must be from {MIN_MTU} to {MAX_MTU} bytes, not {settings.mtu}")


def _check_impairment(impairment: LinkImpairment, file: str, prefix: str = "") -> None:
    if not 0 <= impairment.loss <= 1:
        raise ConfigurationError(file, f"{prefix}loss", f"must be a share from 0 to 1, not {impairment.loss}")
    for key, value in (("delay", impairment.delay_ns), ("jitter", impairment.jitter_ns)):
        if not 0 <= value <= MAX_DELAY_NS:
            raise ConfigurationError(file, f"{prefix}{key}", f"must be from 0 to 60 s, not {value / 1e9} s")


def _check_addresses(sites: Sequence[Site], file: str) -> None:
    """Each address is one that a host can have, and is at one site only."""
    at: dict[str, str] = {}
    for site in sites:
        key = f"addresses of {site.name}"
        if not site.addresses:
            raise ConfigurationError(file, key, "a site needs at least one address")
        for text in site.addresses:
            try:
                address = IPv4Address(text)
            except AddressValueError as error:
                raise ConfigurationError(file, key, f'"{text}" is not an IPv4 address') from error
            if address.is_multicast or address.is_unspecified or address.is_reserved:
                raise ConfigurationError(file, key, f"{text} is no address of a host")
            if text in at:
                raise ConfigurationError(file, key, f"{text} is already at {at[text]}")
            at[text] = site.name
    if len(at) > MAX_ADDRESSES:
        raise ConfigurationError(file, "addresses", f"at most {MAX_ADDRESSES}, not {len(at)}")
