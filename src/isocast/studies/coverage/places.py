"""Places that are drawn instead of listed: on land, around cities, or in a grid on the plane; one seed decides all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.nearest import nearest
from isocast.reformation.scopes.world import Floats, Surface
from isocast.studies.coverage.land import land_area_km2, on_land, random_places
from isocast.terms.topology import EARTH_RADIUS_KM, City

__all__ = ["Rectangle", "around_cities", "even_on_land", "hexagonal", "random_on_land", "random_on_plane", "square"]

_GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))
_SAMPLES = 12
"""Land places for each receiver, from which its region is judged."""
_TRIES = 40
"""For a place near a city that is not at sea; then it is in the city."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Of a plane, from the origin, in km."""

    width: float
    height: float
    inset: float = 0.0
    """Customers keep so far from the edges."""

    def inner(self) -> tuple[float, float, float, float]:
        """West, south, east and north of what customers may use."""
        return self.inset, self.inset, self.width - self.inset, self.height - self.inset


def random_on_land(random: np.random.Generator, count: int, south: float, north: float) -> Floats:
    """Every square km of land alike."""
    return random_places(random, count, south, north)


def even_on_land(random: np.random.Generator, count: int, south: float, north: float, rounds: int) -> Floats:
    """As far from one another as a spiral over the globe puts them; then each moves to the middle of its region.

    `rounds` of such moves come near to the hexagonal pattern, whatever the coasts.
    """
    if not count:
        return np.zeros((0, 2))
    share = land_area_km2(south, north) / (4 * np.pi * EARTH_RADIUS_KM**2)
    total = max(round(count / share), count)
    places = _spiral_on_land(total, south, north)
    while len(places) < count:
        total += max((count - len(places)) // 2, 1)
        places = _spiral_on_land(total, south, north)
    # Too many by a few: leave some out, evenly.
    places = places[np.arange(count) * len(places) // count]
    if rounds:
        places = _relaxed(places, random_places(random, _SAMPLES * count, south, north), rounds)
    return places


def _spiral_on_land(total: int, south: float, north: float) -> Floats:
    number = np.arange(total)
    latitude = np.degrees(np.arcsin(1 - (2 * number + 1) / total))
    longitude = np.degrees(number * _GOLDEN_ANGLE) % 360 - 180
    places = np.column_stack((latitude, longitude))
    return places[on_land(places) & (latitude >= south) & (latitude <= north)]


def _relaxed(places: Floats, samples: Floats, rounds: int) -> Floats:
    earth = Surface.EARTH
    points, land = earth.to_space(places), earth.to_space(samples)
    for _ in range(rounds):
        mine = nearest(earth, points, land, 1, np.inf)[0][:, 0]
        size = np.bincount(mine, minlength=len(points))
        middle = np.column_stack([np.bincount(mine, land[:, axis], len(points)) for axis in range(3)])
        moved = np.where((size > 0)[:, None], middle / np.maximum(size, 1)[:, None], points)
        moved *= EARTH_RADIUS_KM / np.maximum(np.linalg.norm(moved, axis=1), 1e-9)[:, None]
        # The middle of a bay is at sea: the nearest land is as good.
        wet = ~on_land(earth.from_space(moved))
        moved[wet] = land[nearest(earth, land, moved[wet], 1, np.inf)[0][:, 0]]
        points = moved
    return earth.from_space(points)


def around_cities(random: np.random.Generator, count: int, cities: Sequence[City], spread_km: float) -> Floats:
    """Each near a city, as often as not within 1.2 times the spread of it, and on land."""
    chosen = random.integers(len(cities), size=count)
    centres = np.array([(city.latitude, city.longitude) for city in cities]).reshape(-1, 2)[chosen]
    places = centres.copy()
    wet = np.arange(count)
    for _ in range(_TRIES):
        if not len(wet):
            break
        tried = _moved(centres[wet], spread_km * random.rayleigh(size=len(wet)), 2 * np.pi * random.random(len(wet)))
        dry = on_land(tried)
        places[wet[dry]] = tried[dry]
        wet = wet[~dry]
    return places


def _moved(places: Floats, km: Floats, bearing: Floats) -> Floats:
    """So far along the great circle that starts in this direction."""
    latitude, longitude = np.radians(places[:, 0]), np.radians(places[:, 1])
    arc = km / EARTH_RADIUS_KM
    sine = np.sin(latitude) * np.cos(arc) + np.cos(latitude) * np.sin(arc) * np.cos(bearing)
    east = np.sin(bearing) * np.sin(arc) * np.cos(latitude)
    turned = longitude + np.arctan2(east, np.cos(arc) - np.sin(latitude) * sine)
    there: Floats = np.degrees(np.column_stack((np.arcsin(np.clip(sine, -1, 1)), turned)))
    there[:, 1] = (there[:, 1] + 180) % 360 - 180
    return there


def random_on_plane(random: np.random.Generator, count: int, bounds: tuple[float, float, float, float]) -> Floats:
    """Anywhere between west, south, east and north."""
    west, south, east, north = bounds
    drawn = random.random((count, 2))
    places: Floats = np.array([west, south]) + drawn * np.array([east - west, north - south])
    return places


def hexagonal(spacing: float, bounds: tuple[float, float, float, float]) -> Floats:
    """Rows of a triangular grid through the origin; every place has six neighbours at `spacing`."""
    west, south, east, north = bounds
    rise = spacing * np.sqrt(3) / 2
    rows = np.arange(int(np.ceil(south / rise - 1e-9)), int(np.floor(north / rise + 1e-9)) + 1)
    parts = [np.zeros((0, 2))]
    for row in rows.tolist():
        shift = spacing / 2 * (row % 2)
        first = int(np.ceil((west - shift) / spacing - 1e-9))
        last = int(np.floor((east - shift) / spacing + 1e-9))
        x = shift + spacing * np.arange(first, last + 1)
        parts.append(np.column_stack((x, np.full(len(x), row * rise))))
    return np.vstack(parts)


def square(spacing: float, bounds: tuple[float, float, float, float]) -> Floats:
    """A square grid through the origin."""
    west, south, east, north = bounds
    x = spacing * np.arange(int(np.ceil(west / spacing - 1e-9)), int(np.floor(east / spacing + 1e-9)) + 1)
    y = spacing * np.arange(int(np.ceil(south / spacing - 1e-9)), int(np.floor(north / spacing + 1e-9)) + 1)
    return np.column_stack([part.ravel() for part in np.meshgrid(x, y)])
