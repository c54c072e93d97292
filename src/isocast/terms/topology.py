"""Places on the earth, and the delay of light in fibre between them."""

from __future__ import annotations

from dataclasses import dataclass
from math import asin, cos, radians, sin, sqrt

from isocast.terms.instants import MILLISECOND
from isocast.terms.quantities import suggestion

__all__ = ["CITIES", "FIBRE_KM_PER_MS", "PAPER_RING", "City", "city", "delay_ns", "great_circle_km", "unknown_city"]

EARTH_RADIUS_KM = 6371.0088
FIBRE_KM_PER_MS = 200.0
"""Two thirds of the speed of light; half-way round the earth is about 100 ms (the paper's 75 ms is 0.9 c)."""


@dataclass(frozen=True, slots=True)
class City:
    """A place with a name, a short code and coordinates in degrees."""

    name: str
    code: str
    latitude: float
    longitude: float


CITIES: tuple[City, ...] = (
    City("New York", "NYC", 40.7128, -74.0060),
    City("Chicago", "CHI", 41.8781, -87.6298),
    City("London", "LDN", 51.5074, -0.1278),
    City("Frankfurt", "FRA", 50.1109, 8.6821),
    City("Tokyo", "TYO", 35.6762, 139.6503),
    City("Hong Kong", "HKG", 22.3193, 114.1694),
    City("Singapore", "SIN", 1.3521, 103.8198),
    City("Sydney", "SYD", -33.8688, 151.2093),
    City("São Paulo", "SAO", -23.5505, -46.6333),
    City("Mumbai", "BOM", 19.0760, 72.8777),
    City("Toronto", "TOR", 43.6532, -79.3832),
    City("San Francisco", "SFO", 37.7749, -122.4194),
    City("Mexico City", "MEX", 19.4326, -99.1332),
    City("Paris", "PAR", 48.8566, 2.3522),
    City("Zurich", "ZRH", 47.3769, 8.5417),
    City("Stockholm", "STO", 59.3293, 18.0686),
    City("Johannesburg", "JNB", -26.2041, 28.0473),
    City("Dubai", "DXB", 25.2048, 55.2708),
    City("Seoul", "SEL", 37.5665, 126.9780),
    City("Shanghai", "SHA", 31.2304, 121.4737),
    City("Taipei", "TPE", 25.0330, 121.5654),
    City("Buenos Aires", "BUE", -34.6037, -58.3816),
    City("Auckland", "AKL", -36.8509, 174.7645),
    City("Lagos", "LOS", 6.5244, 3.3792),
)

PAPER_RING: tuple[str, ...] = tuple(place.name for place in CITIES[:10])
"""The ten cities of the fairness figures."""

_BY_NAME = {place.name.casefold(): place for place in CITIES} | {place.code.casefold(): place for place in CITIES}
_BY_NAME["sao paulo"] = _BY_NAME["são paulo"]


def city(name: str) -> City | None:
    """The city of that name or code, in any case; None for a stranger."""
    return _BY_NAME.get(name.strip().casefold())


def unknown_city(name: str, otherwise: str = "") -> str:
    """The rule that such a name breaks, with the nearest known one, or else what to do instead."""
    known = [place.name for place in CITIES] + [place.code for place in CITIES]
    return f'unknown city "{name}"{suggestion(name, known) or otherwise}'


def great_circle_km(a: City, b: City) -> float:
    """The distance over the earth's surface, by the haversine formula."""
    latitude_a, latitude_b = radians(a.latitude), radians(b.latitude)
    half_latitude = sin((latitude_b - latitude_a) / 2)
    half_longitude = sin(radians(b.longitude - a.longitude) / 2)
    chord = half_latitude**2 + cos(latitude_a) * cos(latitude_b) * half_longitude**2
    return 2 * EARTH_RADIUS_KM * asin(min(1.0, sqrt(chord)))


def delay_ns(a: City, b: City) -> int:
    """One-way delay in fibre along the great circle."""
    return round(great_circle_km(a, b) / FIBRE_KM_PER_MS * MILLISECOND)
