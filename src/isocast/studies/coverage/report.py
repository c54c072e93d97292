"""What a plan comes to: customers by lines, ground, addresses, and how that compares with the hexagonal grid."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.addresses import clique, neighbours, overlaps
from isocast.reformation.scopes.coverage import Coverage, cover
from isocast.reformation.scopes.plan import KM_PER_MILE, HexagonalBounds, Plan, What, changes
from isocast.reformation.scopes.world import CoverageWorld
from isocast.terms.instants import MILLISECOND

__all__ = ["CoverageReport", "GridComparison", "change_counts", "report"]


@dataclass(frozen=True, slots=True)
class GridComparison:
    """One figure of the plan beside the grid's."""

    figure: str
    bound: float
    achieved: float

    @property
    def ratio(self) -> float:
        """Achieved over bound."""
        return self.achieved / self.bound


@dataclass(frozen=True, eq=False)
class CoverageReport:
    """A judged plan."""

    world: CoverageWorld
    plan: Plan
    coverage: Coverage
    overlapping: int
    """Pairs of scopes that do."""
    clashes: int
    """Of these, pairs that share an address: 0."""
    clique: int
    """Scopes that all overlap one another: no plan with these scopes has fewer addresses."""
    bounds: HexagonalBounds | None
    """None where the ground is not known."""

    @property
    def radii_km(self) -> tuple[float, ...]:
        """Of the scopes that are not silent, smallest first."""
        return tuple(sorted([scope.radius_km for scope in self.plan.scopes if scope.radius_km > 0]))

    @property
    def ground_km2(self) -> float:
        """Of all scopes together: the cost of the plan."""
        return float(self.world.surface.area(np.array(self.radii_km)).sum())

    def comparisons(self) -> tuple[GridComparison, ...]:
        """The plan beside the hexagonal grid; empty where the ground is not known."""
        radii, bounds = self.radii_km, self.bounds
        if bounds is None or not radii:
            return ()
        density = self.ground_km2 / bounds.area_km2
        usual = self.world.surface.area(np.array(radii[: len(radii) * 99 // 100 + 1])).sum() / bounds.area_km2
        radius = bounds.radius_km(bounds.lines)
        return (
            GridComparison("median radius, km", radius, radii[len(radii) // 2]),
            GridComparison("radius of 99 % of the scopes, km", radius, radii[len(radii) * 99 // 100]),
            GridComparison("greatest radius, km", radius, radii[-1]),
            GridComparison("ground of all scopes / ground", bounds.density, density),
            GridComparison("the same, without the widest 1 %", bounds.density, float(usual)),
            GridComparison(f"the same, grid of {bounds.lines} at each place", bounds.grouped_density, float(usual)),
            GridComparison("addresses", bounds.addresses, self.plan.addresses),
            GridComparison("addresses, least for these scopes", max(self.clique, 1), self.plan.addresses),
        )

    def as_json(self) -> dict[str, object]:
        """Without the plan, which has a form of its own."""
        coverage, radii = self.coverage, self.radii_km
        paths = self.world.paths
        return {
            "receivers": len(self.plan.scopes),
            "silent": len(self.plan.scopes) - len(radii),
            "customers": len(self.world.customers),
            "customers_by_lines": {str(lines): count for lines, count in coverage.by_lines().items()},
            "short": [
                {"customer": short.customer, "lines": short.lines, "reason": short.reason} for short in coverage.short
            ],
            "radius_km": _spread(radii),
            "delay_max_ms": paths.delay_ns(radii[-1]) / MILLISECOND if radii else 0.0,
            "loss_max": paths.loss_at(radii[-1]) if radii else 0.0,
            "ground_km2": self.ground_km2,
            "addresses": self.plan.addresses,
            "overlapping": self.overlapping,
            "clashes": self.clashes,
            "clique": self.clique,
            "draining": len(self.plan.draining),
            "bounds": self._bounds_json(),
            "against_bounds": [
                {"figure": part.figure, "bound": part.bound, "achieved": part.achieved, "ratio": part.ratio}
                for part in self.comparisons()
            ],
        }

    def _bounds_json(self) -> dict[str, object] | None:
        bounds = self.bounds
        if bounds is None:
            return None
        return {
            "area_km2": bounds.area_km2,
            "spacing_km": bounds.spacing_km,
            "one_source_hexagonal_miles": bounds.radius_km(1) / KM_PER_MILE,
            "one_source_square_miles": bounds.square_radius_km / KM_PER_MILE,
            "lines": bounds.lines,
            "hexagonal_miles": bounds.radius_km(bounds.lines) / KM_PER_MILE,
            "grouped_miles": bounds.grouped_radius_km / KM_PER_MILE,
            "density": bounds.density,
            "grouped_density": bounds.grouped_density,
            "addresses": bounds.addresses,
        }


def _spread(radii: tuple[float, ...]) -> dict[str, float]:
    if not radii:
        return {"least": 0.0, "median": 0.0, "mean": 0.0, "p99": 0.0, "greatest": 0.0}
    return {
        "least": radii[0],
        "median": radii[len(radii) // 2],
        "mean": sum(radii) / len(radii),
        "p99": radii[len(radii) * 99 // 100],
        "greatest": radii[-1],
    }


def report(world: CoverageWorld, plan: Plan) -> CoverageReport:
    """Judge a plan from the outside: nothing of how it was made is used."""
    radii = np.array([scope.radius_km for scope in plan.scopes])
    first, second = overlaps(world, radii)
    address = np.array([-1 if scope.address is None else scope.address for scope in plan.scopes], dtype=np.int64)
    near = neighbours(len(radii), first, second)
    rules = world.rules
    known = world.area_km2 > 0 and len(plan.scopes) > 0
    return CoverageReport(
        world,
        plan,
        cover(world, plan),
        len(first),
        int((address[first] == address[second]).sum()),
        len(clique(near, np.flatnonzero(radii).tolist())),
        HexagonalBounds(len(plan.scopes), world.area_km2, rules.lines) if known else None,
    )


def change_counts(before: Plan, after: Plan) -> dict[str, int]:
    """How many scopes were kept, widened, narrowed, moved, and so on."""
    counts = Counter([change.what for change in changes(before, after)])
    return {what.value: counts[what] for what in What}
