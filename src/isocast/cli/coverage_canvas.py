"""Where a place is on the coverage map: the whole earth as degrees, or the plane as it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.surface import Floats, Surface
from isocast.reformation.scopes.world import World

__all__ = ["Canvas", "canvas_for"]


@dataclass(frozen=True, slots=True)
class Canvas:
    """Pixels, and the corner and scale that bring places to them."""

    surface: Surface
    width: int
    height: int
    west: float
    north: float
    per_unit: float
    """Pixels for a degree, or for a km."""

    def x(self, east: Floats) -> Floats:
        """Pixels from the left."""
        return (east - self.west) * self.per_unit

    def y(self, north: Floats) -> Floats:
        """Pixels from the top."""
        return (self.north - north) * self.per_unit

    def points(self, places: Floats) -> Floats:
        """Pixels of places: from the left, and from the top."""
        if self.surface is Surface.EARTH:
            return np.column_stack((self.x(places[:, 1]), self.y(places[:, 0])))
        return np.column_stack((self.x(places[:, 0]), self.y(places[:, 1])))


def canvas_for(world: World, width: int) -> Canvas:
    """The whole earth, or all places of a plane with some room around them."""
    if world.surface is Surface.EARTH:
        return Canvas(world.surface, width, width // 2, -180.0, 90.0, width / 360)
    places = np.vstack((world.receivers.where, world.customers.where))
    low, high = places.min(axis=0), places.max(axis=0)
    size = np.maximum(high - low, 1.0)
    room = 0.05 * float(size.max())
    per_unit = width / float(size[0] + 2 * room)
    height = max(min(round(float(size[1] + 2 * room) * per_unit), 8 * width), 1)
    return Canvas(world.surface, width, height, float(low[0]) - room, float(high[1]) + room, per_unit)
