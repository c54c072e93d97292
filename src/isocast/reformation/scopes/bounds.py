"""What the hexagonal grid needs: the figures that a plan is compared with (protocol §0, row 10).

In a triangular grid with spacing d every receiver's own ground is a hexagon of √3/2·d². The farthest that anybody is
from the nearest receiver is d/√3, in the corners; from the second nearest it is d, at the receivers themselves. So
10,000 receivers on 57 million square miles are 46.8 miles away at most, and two of them 81.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

__all__ = ["KM_PER_MILE", "HexagonalBounds"]

KM_PER_MILE = 1.609344

_FARTHEST_SQUARED = (1 / 3, 1.0, 1.0, 4 / 3, 7 / 4, 49 / 27, 7 / 3, 3.0)
"""The square of the greatest distance to the k-th nearest place of the grid, k from 1, in spacings."""


@dataclass(frozen=True, slots=True)
class HexagonalBounds:
    """For so many receivers on so much ground, each customer hearing k of them."""

    receivers: int
    area_km2: float
    lines: int

    @property
    def spacing_km(self) -> float:
        """D = √(2A/(√3·n))."""
        return sqrt(2 * self.area_km2 / (sqrt(3) * self.receivers))

    def radius_km(self, lines: int) -> float:
        """Every place is within this of so many receivers of the grid."""
        return self.spacing_km * sqrt(_FARTHEST_SQUARED[lines - 1])

    @property
    def square_radius_km(self) -> float:
        """The same for one receiver and a square grid."""
        return sqrt(self.area_km2 / self.receivers / 2)

    @property
    def grouped_radius_km(self) -> float:
        """With k receivers at each place of a grid that is wider by √k: the thinnest lattice that covers k times."""
        return self.spacing_km * sqrt(self.lines / 3)

    @property
    def density(self) -> float:
        """Ground of all scopes over ground served: 2π/√3 = 3.628 for two lines."""
        return 2 * pi / sqrt(3) * _FARTHEST_SQUARED[self.lines - 1]

    @property
    def grouped_density(self) -> float:
        """The same with k receivers at each place: 2π/(3√3)·k, which is 2.418 for two lines."""
        return 2 * pi / (3 * sqrt(3)) * self.lines

    @property
    def addresses(self) -> int:
        """Addresses on the grid: the least i²+ij+j² whose places are more than two radii apart, 7 for two lines."""
        wanted = 4 * _FARTHEST_SQUARED[self.lines - 1]
        return min([size for i in range(8) for j in range(8) if (size := i * i + i * j + j * j) > wanted + 1e-9])
