"""Distances and delays between cities, against figures from elsewhere."""

import pytest

from isocast.terms.instants import MILLISECOND
from isocast.terms.topology import CITIES, PAPER_RING, city, delay_ns, great_circle_km


def distance(a: str, b: str) -> float:
    here, there = city(a), city(b)
    assert here
    assert there
    return great_circle_km(here, there)


@pytest.mark.parametrize(
    "a, b, kilometres",
    [("New York", "London", 5_570), ("London", "Sydney", 16_994), ("Tokyo", "Singapore", 5_316), ("NYC", "CHI", 1_145)],
)
def test_great_circles(a: str, b: str, kilometres: float) -> None:
    assert distance(a, b) == pytest.approx(kilometres, rel=0.005)
    assert distance(b, a) == distance(a, b)


def test_a_city_is_nowhere_but_at_home() -> None:
    for place in CITIES:
        assert great_circle_km(place, place) == 0


def test_light_in_fibre_needs_about_100_ms_half_way_round() -> None:
    """The paper's 75 ms would be 0.9 c."""
    longest = max(delay_ns(a, b) for a in CITIES for b in CITIES)
    assert 90 * MILLISECOND < longest < 101 * MILLISECOND


def test_cities_are_found_by_name_and_code_in_any_case() -> None:
    assert city(" new york ") is city("nyc") is CITIES[0]
    assert city("Sao Paulo") is city("São Paulo") is city("SAO")
    assert city("Atlantis") is None


def test_names_and_codes_are_unique() -> None:
    assert len({place.name for place in CITIES}) == len({place.code for place in CITIES}) == len(CITIES)
    assert len(PAPER_RING) == 10
