"""A plan: every receiver's scope and address, as JSON too; and the hexagonal grid that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import AddressValueError, IPv4Address
from math import isfinite, pi, sqrt

from isocast.reformation.scopes.world import AddressPool, Surface
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import suggestion

__all__ = ["KM_PER_MILE", "Draining", "HexagonalBounds", "Plan", "Scope", "ScopeChange", "What", "changes"]


_VERSION = 1
_ADDRESSES_MAX = 1 << 20
_TEXT_MAX = 200


@dataclass(frozen=True, slots=True)
class Scope:
    """How far a receiver remulticasts, and on which address."""

    receiver: str
    place: tuple[float, float]
    radius_km: float
    """0: it is silent, since its neighbours suffice; it stands in reserve."""
    settled_km: float
    """The radius that it was planned with; what a reformation added beyond is given back when that is possible."""
    address: int | None
    """None for a silent one."""


@dataclass(frozen=True, slots=True)
class Draining:
    """An address that was taken from a scope: until an instant nobody else may use it where it was heard."""

    receiver: str
    place: tuple[float, float]
    radius_km: float
    settled_km: float
    address: int
    free_at_ns: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Scopes in the order of the world's receivers."""

    surface: Surface
    lines: int
    """k: what every customer was to hear."""
    made_at_ns: int
    first: IPv4Address
    stripes: int
    scopes: tuple[Scope, ...]
    draining: tuple[Draining, ...] = ()

    @property
    def addresses(self) -> int:
        """How many different addresses are in use."""
        return len({scope.address for scope in self.scopes if scope.address is not None})

    def group(self, address: int) -> IPv4Address:
        """The first multicast group of an address."""
        return AddressPool(self.first, stripes=self.stripes).group(address)

    def to_json(self) -> dict[str, object]:
        """A value that `json` writes and `from_json` reads."""
        return {
            "version": _VERSION,
            "surface": self.surface.value,
            "lines": self.lines,
            "made_at_ns": self.made_at_ns,
            "first": str(self.first),
            "stripes": self.stripes,
            "scopes": [
                {
                    "receiver": scope.receiver,
                    "place": list(scope.place),
                    "radius_km": scope.radius_km,
                    "settled_km": scope.settled_km,
                    "address": scope.address,
                    "group": None if scope.address is None else str(self.group(scope.address)),
                }
                for scope in self.scopes
            ],
            "draining": [
                {
                    "receiver": rest.receiver,
                    "place": list(rest.place),
                    "radius_km": rest.radius_km,
                    "settled_km": rest.settled_km,
                    "address": rest.address,
                    "group": str(self.group(rest.address)),
                    "free_at_ns": rest.free_at_ns,
                }
                for rest in self.draining
            ],
        }

    @staticmethod
    def from_json(value: object, file: str = "<plan>") -> Plan:
        """The plan of a parsed file; ConfigurationError names file, key and rule."""
        top = _Reader(value, file, "plan")
        if (version := top.whole("version", 0, 1 << 31)) != _VERSION:
            raise top.error("version", f"must be {_VERSION}, not {version}")
        scopes = tuple([_scope(part) for part in top.parts("scopes")])
        names = [scope.receiver for scope in scopes]
        if len(set(names)) < len(names):
            raise top.error("scopes", "a receiver occurs twice")
        return Plan(
            surface=Surface(top.choice("surface", tuple([surface.value for surface in Surface]))),
            lines=top.whole("lines", 1, 1 << 16),
            made_at_ns=top.whole("made_at_ns", 0, 1 << 63),
            first=top.group("first"),
            stripes=top.whole("stripes", 1, 1 << 16),
            scopes=scopes,
            draining=tuple([_draining(part) for part in top.parts("draining")]),
        )


class What(Enum):
    """What became of a scope."""

    KEPT = "kept"
    WIDENED = "widened"
    NARROWED = "narrowed"
    MOVED = "moved"
    """To another address, whatever its radius did."""
    NEW = "new"
    """It was not there, or was silent."""
    LOST = "lost"
    """Its receiver is gone, or it is silent now."""
    SILENT = "silent"
    """In reserve, as before."""


@dataclass(frozen=True, slots=True)
class ScopeChange:
    """One scope in two plans; None where it was not, or is not any more."""

    receiver: str
    what: What
    before: Scope | None
    after: Scope | None


def changes(before: Plan, after: Plan) -> tuple[ScopeChange, ...]:
    """What became of every scope: those of the new plan in its order, then those that are gone."""
    old = {scope.receiver: scope for scope in before.scopes}
    new = {scope.receiver: scope for scope in after.scopes}
    kept = [ScopeChange(name, _what(old.get(name), scope), old.get(name), scope) for name, scope in new.items()]
    gone = [ScopeChange(name, _what(scope, None), scope, None) for name, scope in old.items() if name not in new]
    return (*kept, *gone)


def _what(before: Scope | None, after: Scope | None) -> What:
    was = None if before is None or before.address is None else before
    now = None if after is None or after.address is None else after
    if was is None:
        return What.SILENT if now is None else What.NEW
    if now is None:
        return What.LOST
    if was.place != now.place:
        return What.NEW
    if was.address != now.address:
        return What.MOVED
    if was.radius_km == now.radius_km:
        return What.KEPT
    return What.WIDENED if now.radius_km > was.radius_km else What.NARROWED


def _scope(part: _Reader) -> Scope:
    part.known(("receiver", "place", "radius_km", "settled_km", "address", "group", "customers"))
    radius = part.number("radius_km")
    address = None if part.is_null("address") else part.whole("address", 0, _ADDRESSES_MAX)
    if (address is None) != (radius == 0):
        raise part.error("address", "a scope with a radius has one, and a silent one has null")
    return Scope(part.text("receiver"), part.place(), radius, part.number("settled_km"), address)


def _draining(part: _Reader) -> Draining:
    part.known(("receiver", "place", "radius_km", "settled_km", "address", "group", "free_at_ns"))
    return Draining(
        part.text("receiver"),
        part.place(),
        part.number("radius_km"),
        part.number("settled_km"),
        part.whole("address", 0, _ADDRESSES_MAX),
        part.whole("free_at_ns", 0, 1 << 63),
    )


class _Reader:
    """One object of the file."""

    def __init__(self, value: object, file: str, path: str) -> None:
        self._file, self._path = file, path
        if not isinstance(value, Mapping):
            raise ConfigurationError(file, path, "must be an object with keys")
        self._value = value

    def error(self, key: str, rule: str) -> ConfigurationError:
        return ConfigurationError(self._file, f"{self._path} {key}", rule)

    def known(self, keys: tuple[str, ...]) -> None:
        for name in self._value:
            if name not in keys:
                raise self.error(str(name), f"unknown key{suggestion(str(name), keys)}")

    def is_null(self, key: str) -> bool:
        return self._value.get(key) is None

    def whole(self, key: str, least: int, below: int) -> int:
        value = self._value.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < below:
            raise self.error(key, f"must be a whole number from {least} to {below - 1}")
        return value

    def number(self, key: str) -> float:
        value = self._value.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
            raise self.error(key, "must be a number, 0 or more")
        return float(value)

    def text(self, key: str) -> str:
        value = self._value.get(key)
        if not isinstance(value, str) or not 0 < len(value) <= _TEXT_MAX:
            raise self.error(key, "must be a name")
        return value

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self._value.get(key)
        if not isinstance(value, str) or value not in choices:
            raise self.error(key, f"must be one of {', '.join(choices)}")
        return value

    def group(self, key: str) -> IPv4Address:
        try:
            return IPv4Address(self.text(key))
        except AddressValueError as error:
            raise self.error(key, "must be an IPv4 address") from error

    def place(self) -> tuple[float, float]:
        value = self._value.get("place")
        good = isinstance(value, list) and all(
            isinstance(part, int | float) and not isinstance(part, bool) and isfinite(part) for part in value
        )
        if not isinstance(value, list) or not good or len(value) != 2:  # noqa: PLR2004  # a pair
            raise self.error("place", "must be two numbers")
        return float(value[0]), float(value[1])

    def parts(self, key: str) -> list[_Reader]:
        value = self._value.get(key)
        if not isinstance(value, list):
            raise self.error(key, "must be a list")
        return [_Reader(part, self._file, f"{key} {number}") for number, part in enumerate(value, 1)]


# What the hexagonal grid needs: the figures that a plan is compared with (protocol §0, row 10).
#
# In a triangular grid with spacing d every receiver's own ground is a hexagon of √3/2·d². The farthest that anybody is
# from the nearest receiver is d/√3, in the corners; from the second nearest it is d, at the receivers themselves. So
# 10,000 receivers on 57 million square miles are 46.8 miles away at most, and two of them 81.1.


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
