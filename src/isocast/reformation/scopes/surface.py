"""The earth or a plane: places as points of space, so that neither the date line nor a pole is special."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.terms.topology import EARTH_RADIUS_KM

__all__ = ["Floats", "Ints", "Surface"]

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
