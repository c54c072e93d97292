"""Small planets for tests."""

from __future__ import annotations

from typing import Any

from isocast.studies.planet.settings import PlanetWorld, planet_from_mapping

__all__ = ["small"]


def small(**parts: dict[str, Any]) -> PlanetWorld:
    """Sixty receivers, three thousand customers, trees everywhere; `parts` goes over it, table by table."""
    usual: dict[str, dict[str, Any]] = {
        "receivers": {"count": 60, "primaries": 6, "relax": 2},
        "customers": {"count": 3_000, "pattern": "cities", "spread": 400},
        "times": {"clock_error": "5ms", "secondary_detect": "50ms"},
        "core": {"batch": 10, "loss": 0.02, "loss_model": "tree", "branches": 3, "tokens": 12, "nack_sets": 2},
        "edge": {"loss": 0.1, "loss_model": "tree", "messages": 3},
    }
    merged = {name: {**usual.get(name, {}), **parts.get(name, {})} for name in {**usual, **parts}}
    return planet_from_mapping(merged, "small.toml")
