"""Land and sea, as a raster of quarter degrees: whether a place is on land, and places drawn from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.reformation.scopes.surface import Floats
from isocast.studies.coverage.land_outlines import LAKES, LAND, Corner
from isocast.terms.topology import EARTH_RADIUS_KM

__all__ = ["CELL_DEGREES", "Raster", "land_area_km2", "land_raster", "on_land", "random_places"]

Raster: TypeAlias = npt.NDArray[np.bool_]
"""Rows from north to south, columns from west to east; true is land."""

CELL_DEGREES = 0.25
_ROWS, _COLUMNS = 720, 1440


@cache
def land_raster() -> Raster:
    """A cell is land if its middle is."""
    land = _filled(LAND) & ~_filled(LAKES)
    land.flags.writeable = False
    return land


def _filled(outlines: tuple[tuple[Corner, ...], ...]) -> Raster:
    """Inside a line is whoever crosses it an odd number of times on the way east."""
    raster = np.zeros((_ROWS, _COLUMNS), dtype=np.bool_)
    latitudes = 90 - (np.arange(_ROWS) + 0.5) * CELL_DEGREES
    longitudes = (np.arange(_COLUMNS) + 0.5) * CELL_DEGREES - 180
    for outline in outlines:
        corners = np.array(outline)
        x, y = corners[:, 0], corners[:, 1]
        next_x, next_y = np.roll(x, -1), np.roll(y, -1)
        for row in np.flatnonzero((latitudes <= y.max()) & (latitudes >= y.min())).tolist():
            latitude = latitudes[row]
            crossed = (y > latitude) != (next_y > latitude)
            share = (latitude - y[crossed]) / (next_y[crossed] - y[crossed])
            cuts = np.sort(x[crossed] + share * (next_x[crossed] - x[crossed]))
            raster[row] |= np.searchsorted(cuts, longitudes) % 2 == 1
    return raster


def on_land(places: Floats) -> Raster:
    """For each latitude and longitude in degrees, whether it is land."""
    rows = np.clip(np.floor((90 - places[:, 0]) / CELL_DEGREES), 0, _ROWS - 1).astype(np.int64)
    columns = np.floor(((places[:, 1] + 180) % 360) / CELL_DEGREES).astype(np.int64) % _COLUMNS
    return land_raster()[rows, columns]


@dataclass(frozen=True, slots=True)
class _Band:
    """The cells between two latitudes, with the area of each that is land."""

    south: float
    north: float

    def areas(self) -> Floats:
        edges = np.radians(np.clip(90 - np.arange(_ROWS + 1) * CELL_DEGREES, self.south, self.north))
        rows = EARTH_RADIUS_KM**2 * np.radians(CELL_DEGREES) * (np.sin(edges[:-1]) - np.sin(edges[1:]))
        return np.where(land_raster(), rows[:, None], 0.0)


def land_area_km2(south: float = -90.0, north: float = 90.0) -> float:
    """Of the land between two latitudes."""
    return float(_Band(south, north).areas().sum())


def random_places(random: np.random.Generator, count: int, south: float = -90.0, north: float = 90.0) -> Floats:
    """Places on land, every square km alike."""
    ends = np.cumsum(_Band(south, north).areas().ravel())
    cells = np.searchsorted(ends, random.random(count) * ends[-1], side="right")
    rows, columns = np.divmod(np.minimum(cells, _ROWS * _COLUMNS - 1), _COLUMNS)
    upper = np.sin(np.radians(np.clip(90 - rows * CELL_DEGREES, south, north)))
    lower = np.sin(np.radians(np.clip(90 - (rows + 1) * CELL_DEGREES, south, north)))
    latitude = np.degrees(np.arcsin(lower + (upper - lower) * random.random(count)))
    longitude = (columns + random.random(count)) * CELL_DEGREES - 180
    return np.column_stack((latitude, longitude))
