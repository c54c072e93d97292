"""Land and sea: as much land as there is, cities on it, oceans not, and places drawn from it alike."""

from __future__ import annotations

import numpy as np
import pytest

from isocast.studies.coverage.land import land_area_km2, land_raster, on_land, random_places
from isocast.terms.topology import CITIES

EARTH_KM2 = 510_065_622

CITIES_BESIDES = {
    "Moscow": (55.75, 37.6), "Cairo": (30.05, 31.25), "Nairobi": (-1.29, 36.8), "Lima": (-12.05, -77.04),
    "Delhi": (28.6, 77.2), "Beijing": (39.9, 116.4), "Perth": (-31.95, 115.86), "Anchorage": (61.2, -149.9),
    "Reykjavík": (64.15, -21.94), "Nuuk": (64.18, -51.7), "Honolulu": (21.4, -157.95), "Cape Town": (-33.92, 18.42),
    "Madrid": (40.4, -3.7), "Rome": (41.9, 12.5), "Athens": (37.98, 23.73), "Istanbul": (41.01, 28.98),
    "Karachi": (24.86, 67.0), "Bangkok": (13.75, 100.5), "Jakarta": (-6.2, 106.85), "Manila": (14.6, 121.0),
    "Darwin": (-12.46, 130.84), "Wellington": (-41.29, 174.78), "Santiago": (-33.45, -70.67), "Havana": (23.11, -82.37),
    "Miami": (25.76, -80.2), "Vancouver": (49.28, -123.12), "Oslo": (59.91, 10.75), "Helsinki": (60.17, 24.94),
    "Copenhagen": (55.68, 12.57), "Dublin": (53.35, -6.26), "Lisbon": (38.72, -9.14), "Dakar": (14.72, -17.47),
    "Antananarivo": (-18.88, 47.5), "Riyadh": (24.7, 46.7), "Novosibirsk": (55.0, 82.9), "Colombo": (6.93, 79.86),
    "Port Moresby": (-9.44, 147.18), "Suva": (-18.14, 178.44), "Recife": (-8.05, -34.9), "Ushuaia": (-54.8, -68.3),
    "Murmansk": (68.97, 33.08), "the South Pole": (-90.0, 0.0), "Seattle": (47.6, -122.33), "Osaka": (34.69, 135.5),
    "Chukotka, beyond 180°": (66.5, -176.0),
}  # fmt: skip
AT_SEA = {
    "the North Atlantic": (35, -40), "the South Atlantic": (-30, -15), "the North Pacific": (35, -160),
    "the South Pacific": (-30, -120), "the Indian Ocean": (-25, 80), "the North Pole": (90, 0),
    "the Southern Ocean": (-60, 60), "Hudson Bay": (58, -85), "the Black Sea": (43, 34), "the Mediterranean": (34, 18),
    "the Caspian Sea": (42, 50.5), "the Baltic": (57, 19.5), "the North Sea": (56, 3), "the Red Sea": (20, 38.5),
    "the Bay of Bengal": (13, 88), "the Sea of Japan": (40, 135), "the Tasman Sea": (-38, 160),
    "the Gulf of Mexico": (25, -90), "the Caribbean": (15, -75), "Lake Superior": (47.7, -87.5),
    "the date line at the equator": (0, 180), "the Weddell Sea": (-70, -40),
}  # fmt: skip


def land(latitude: float, longitude: float) -> bool:
    return bool(on_land(np.array([[latitude, longitude]]))[0])


def test_land_is_29_percent_of_the_earth() -> None:
    """§4.1 has 57 million square miles, 147.6 million km²."""
    assert land_area_km2() / EARTH_KM2 == pytest.approx(0.292, abs=0.004)
    assert land_area_km2() == pytest.approx(57e6 * 1.609344**2, rel=0.02)
    assert land_area_km2(-60, 90) == pytest.approx(135e6, rel=0.03), "without Antarctica"


@pytest.mark.parametrize("city", CITIES, ids=lambda city: city.code)
def test_the_cities_of_the_project_are_on_land(city: object) -> None:
    assert land(city.latitude, city.longitude)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CITIES_BESIDES)
def test_other_cities_are_on_land(name: str) -> None:
    assert land(*CITIES_BESIDES[name])


@pytest.mark.parametrize("name", AT_SEA)
def test_seas_and_lakes_are_not(name: str) -> None:
    assert not land(*AT_SEA[name])


def test_drawn_places_are_on_land_between_the_latitudes_and_follow_the_seed() -> None:
    places = random_places(np.random.default_rng(4), 3_000, -35.0, 12.5)
    assert on_land(places).all()
    assert (places[:, 0] >= -35.0).all()
    assert (places[:, 0] <= 12.5).all()
    assert np.array_equal(places, random_places(np.random.default_rng(4), 3_000, -35.0, 12.5))


def test_every_square_km_is_drawn_alike() -> None:
    places = random_places(np.random.default_rng(5), 40_000)
    for south, north in ((-90, -60), (-60, 0), (0, 30), (30, 60), (60, 90)):
        share = ((places[:, 0] >= south) & (places[:, 0] < north)).mean()
        assert share == pytest.approx(land_area_km2(south, north) / land_area_km2(), abs=0.01)


def test_the_raster_cannot_be_changed_by_accident() -> None:
    with pytest.raises(ValueError, match="read-only"):
        land_raster()[0, 0] = True
