"""What a plan is made from: places as points of space, the paths between them, and the rules that a plan must keep."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import IPv4Address
from math import ceil, floor, inf, log1p
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.topology import EARTH_RADIUS_KM, FIBRE_KM_PER_MS

__all__ = ["AddressPool", "CoverageWorld", "Floats", "Ints", "MeasuredPath", "Paths", "Places", "ScopeRules", "Surface"]


# The earth or a plane: places as points of space, so that neither the date line nor a pole is special.


Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


class Surface(Enum):
    """Where receivers and customers stand.

    A place is a pair: latitude and longitude in degrees on the earth, x and y in km on the plane. Distances are km
    along the surface; a *chord* is the straight line between two points of space.
    """

    EARTH = "earth"
    PLANE = "plane"

    def to_space(self, places: Floats) -> Floats:
        """Each place as a point of space, in km."""
        if self is Surface.PLANE:
            return np.column_stack((places, np.zeros(len(places))))
        latitude, longitude = np.radians(places[:, 0]), np.radians(places[:, 1])
        unit = (np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude))
        return EARTH_RADIUS_KM * np.column_stack(unit)

    def from_space(self, points: Floats) -> Floats:
        """The places below or above points of space."""
        if self is Surface.PLANE:
            return points[:, :2].copy()
        flat = np.hypot(points[:, 0], points[:, 1])
        latitude, longitude = np.arctan2(points[:, 2], flat), np.arctan2(points[:, 1], points[:, 0])
        places: Floats = np.degrees(np.column_stack((latitude, longitude)))
        return places

    def to_arc(self, chord: Floats) -> Floats:
        """Distances along the surface, from chords."""
        if self is Surface.PLANE:
            return chord
        return 2 * EARTH_RADIUS_KM * np.arcsin(np.minimum(chord / (2 * EARTH_RADIUS_KM), 1.0))

    def to_chord(self, arc: Floats) -> Floats:
        """Chords, from distances along the surface; half-way round is as far as anything can be."""
        if self is Surface.PLANE:
            return arc
        return 2 * EARTH_RADIUS_KM * np.sin(np.minimum(arc / (2 * EARTH_RADIUS_KM), np.pi / 2))

    def area(self, radius: Floats) -> Floats:
        """The area in km² within so many km of a place."""
        if self is Surface.PLANE:
            return np.pi * radius**2
        return 2 * np.pi * EARTH_RADIUS_KM**2 * (1 - np.cos(np.minimum(radius / EARTH_RADIUS_KM, np.pi)))


_METRES = 1000


@dataclass(frozen=True, eq=False)
class Places:
    """Names, and where they stand; a place is a row of `where` as `Surface` describes it."""

    names: tuple[str, ...]
    where: Floats

    def __post_init__(self) -> None:
        """A row for each name."""
        if self.where.shape != (len(self.names), 2):
            raise ValueError("a row of two coordinates for each name")

    def __len__(self) -> int:
        return len(self.names)

    def without(self, names: tuple[str, ...]) -> Places:
        """The same, less some."""
        gone = dict.fromkeys(names)
        kept = [place for place, name in enumerate(self.names) if name not in gone]
        return Places(tuple([self.names[place] for place in kept]), self.where[kept])


@dataclass(frozen=True, slots=True)
class Paths:
    """Delay and loss by distance, where nothing was measured."""

    km_per_ms: float = FIBRE_KM_PER_MS
    """The speed of light in fibre."""
    km_per_hop: float = 250.0
    """Between two routers."""
    hop_ns: int = MILLISECOND // 20
    """What a router adds."""
    loss: float = 0.0
    """Of the way into and out of the network, however short."""
    loss_per_1000_km: float = 0.0

    def delay_ns(self, km: float) -> float:
        """Fibre, and the share of a router that so many km cost; the first router counts whole."""
        return self.hop_ns + km * self._ns_per_km

    def loss_at(self, km: float) -> float:
        """Each stretch of the way loses on its own."""
        return float(1 - (1 - self.loss) * (1 - self.loss_per_1000_km) ** (km / 1000))

    def hops(self, km: float) -> int:
        """Routers on the way, which is the TTL of a scope with this radius."""
        return 1 + ceil(km / self.km_per_hop)

    def km_of_delay(self, delay_ns: float) -> float:
        """How far a packet comes in this time; negative if it does not even leave."""
        return (delay_ns - self.hop_ns) / self._ns_per_km

    def km_of_loss(self, loss: float) -> float:
        """How far away so much is lost; negative if that is lost at once."""
        if loss < self.loss:
            return -1.0
        if self.loss_per_1000_km == 0:
            return inf
        return 1000 * (log1p(-loss) - log1p(-self.loss)) / log1p(-self.loss_per_1000_km)

    @property
    def _ns_per_km(self) -> float:
        return MILLISECOND / self.km_per_ms + self.hop_ns / self.km_per_hop


@dataclass(frozen=True, slots=True)
class MeasuredPath:
    """A path that was measured: what is None is as the distance has it."""

    receiver: str
    customer: str
    delay_ns: int | None = None
    loss: float | None = None
    cut: bool = False
    """Nothing comes through."""


@dataclass(frozen=True, slots=True)
class ScopeRules:
    """What every customer must get, and how far a scope may go for it (§4.1, §4.3)."""

    lines: int = 2
    """k: sources that every customer hears."""
    delay_max_ns: int = 20 * MILLISECOND
    loss_max: float = 0.02
    radius_max_km: float = inf
    margin_km: float = 0.0
    """How much wider than its farthest customer a scope is: for customers who are near a place, not at it."""
    uniform: bool = False
    """All scopes alike, as one TTL would have it: the least radius that serves everybody."""


@dataclass(frozen=True, slots=True)
class AddressPool:
    """The groups that scopes may use, and how long one rests before it is used again nearby."""

    first: IPv4Address = field(default=IPv4Address("239.192.0.0"))
    count: int = 256
    stripes: int = 1
    """Consecutive groups that one scope takes: one for each edge stripe."""
    drain_ns: int = 30 * SECOND
    drain_everywhere: bool = False
    """A resting address is given to nobody at all, and not only to nobody whose scope meets the old one."""

    @property
    def usable(self) -> int:
        """Scopes that can have an address each."""
        return self.count // self.stripes

    def group(self, address: int) -> IPv4Address:
        """The first group of an address; addresses count from 0."""
        return self.first + address * self.stripes


@dataclass(frozen=True, eq=False)
class CoverageWorld:
    """Receivers and customers by place, and what lies between them."""

    surface: Surface
    receivers: Places
    customers: Places
    paths: Paths = Paths()
    links: tuple[MeasuredPath, ...] = ()
    rules: ScopeRules = ScopeRules()
    pool: AddressPool = AddressPool()
    area_km2: float = 0.0
    """The ground that the receivers share, if it is known: for densities and bounds."""
    file: str = "<world>"
    """Only appears in errors."""

    @property
    def reach_km(self) -> float:
        """How far from its receiver a customer may be by the rules, to the metre; negative if nowhere."""
        rules, paths = self.rules, self.paths
        radius = min(rules.radius_max_km, paths.km_of_delay(rules.delay_max_ns), paths.km_of_loss(rules.loss_max))
        return radius if radius == inf else (floor(radius * _METRES + 1e-6)) / _METRES - rules.margin_km

    def without(self, receivers: tuple[str, ...]) -> CoverageWorld:
        """The same world after some receivers failed."""
        return replace(self, receivers=self.receivers.without(receivers))

    def distances(self, receivers: Floats, customers: Floats) -> Floats:
        """Along the surface, in km, row by row of two arrays of places."""
        gap = self.surface.to_space(receivers) - self.surface.to_space(customers)
        return self.surface.to_arc(np.sqrt(np.einsum("ij,ij->i", gap, gap)))
