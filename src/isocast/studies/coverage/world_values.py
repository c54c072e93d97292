"""One table of a world file at a time: unknown keys are refused at once, values when they are asked for."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from ipaddress import AddressValueError, IPv4Address
from math import isfinite
from pathlib import Path

from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import parse_duration
from isocast.terms.suggestion import suggestion
from isocast.terms.topology import CITIES, City, city

__all__ = ["Table", "read_toml", "shown"]

_NAME_MAX = 100


def read_toml(path: str | Path, bytes_max: int) -> dict[str, object]:
    """What a file of at most so many bytes says; ConfigurationError for one that cannot be read or is no TOML."""
    file = str(path)
    try:
        with Path(path).open("rb") as source:
            data = source.read(bytes_max + 1)
    except OSError as error:
        raise ConfigurationError(file, "file", f"cannot be read: {error.strerror}") from error
    if len(data) > bytes_max:
        raise ConfigurationError(file, "file", f"is longer than {bytes_max:,} bytes")
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigurationError(file, "file", "TOML is UTF-8 text, and this is not") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(file, "file", f"not valid TOML: {error}") from error


def shown(value: object) -> str:
    """The value as the file has it, near enough."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case dict():
            return "a table"
        case list():
            return "a list"
        case _:
            return str(value)


class Table:
    """The values of one table; ConfigurationError names file, key and rule."""

    def __init__(self, table: Mapping[str, object], keys: Iterable[str], file: str, prefix: str = "") -> None:
        """`prefix` stands before a key in errors."""
        self._table = table
        self.file = file
        self._prefix = prefix
        known = tuple(keys)
        for name in table:
            if name not in known:
                raise self.error(name, f"unknown key{suggestion(name, known)}")

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def error(self, key: str, rule: str) -> ConfigurationError:
        """The error that names file, key and rule, in one line."""
        printable = "".join([letter if letter.isprintable() else "?" for letter in key])
        return ConfigurationError(self.file, f"{self._prefix}{printable}", rule)

    def text(self, key: str, default: str = "") -> str:
        """A text in quotes."""
        value = self._table.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"must be a text in quotes, not {shown(value)}")
        return value

    def name(self, key: str) -> str:
        """A name: one line, not empty."""
        value = self.text(key)
        if not value.strip() or len(value) > _NAME_MAX or not value.isprintable():
            raise self.error(key, f"must be a name of 1 to {_NAME_MAX} letters in one line")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        """One of a few words."""
        value = self._table.get(key, default)
        if not isinstance(value, str) or value not in choices:
            hint = suggestion(value, choices) if isinstance(value, str) else ""
            raise self.error(key, f"must be one of {', '.join(choices)}, not {shown(value)}{hint}")
        return value

    def flag(self, key: str) -> bool:
        """True or false, false if left out."""
        value = self._table.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {shown(value)}")
        return value

    def count(self, key: str, default: int, least: int, most: int) -> int:
        """A whole number."""
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(key, f"must be a whole number from {least:,} to {most:,}, not {shown(value)}")
        return value

    def number(self, key: str, default: float, least: float, most: float) -> float:
        """A number within bounds."""
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.error(key, f"must be a number from {least:g} to {most:g}, not {shown(value)}")
        return float(value)

    def length(self, key: str, default: float) -> float:
        """A number of km, more than 0."""
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or not value > 0:
            if value == default:
                return default
            raise self.error(key, f"must be a number of km, more than 0, not {shown(value)}")
        return float(value)

    def probability(self, key: str, default: float) -> float:
        """From 0 to less than 1."""
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.error(key, f"must be a probability, 0 or more and less than 1, not {shown(value)}")
        return float(value)

    def duration(self, key: str, default: int) -> int:
        """Nanoseconds of a time with its unit."""
        if key not in self._table:
            return default
        value = self._table[key]
        try:
            return parse_duration(value if isinstance(value, str) else "")
        except ValueError as error:
            rule = f'must be a time with its unit in quotes, such as "20ms", not {shown(value)}'
            raise self.error(key, rule) from error

    def address(self, key: str, default: IPv4Address) -> IPv4Address:
        """A multicast group."""
        value = self.text(key, str(default))
        try:
            group = IPv4Address(value)
        except AddressValueError as error:
            raise self.error(key, f'must be an IPv4 address, not "{value}"') from error
        if not group.is_multicast:
            raise self.error(key, f"must be a multicast group, 224.0.0.0 to 239.255.255.255, not {value}")
        return group

    def span(self, key: str, default: tuple[float, float], least: float, most: float) -> tuple[float, float]:
        """Two numbers, the lower first."""
        if key not in self._table:
            return default
        value = self._table[key]
        good = isinstance(value, list) and all(
            isinstance(part, int | float) and not isinstance(part, bool) and least <= part <= most for part in value
        )
        if not isinstance(value, list) or not good or len(value) != 2 or not value[0] < value[1]:  # noqa: PLR2004
            raise self.error(key, f"must be two numbers from {least:g} to {most:g}, the lower first")
        return float(value[0]), float(value[1])

    def city(self, key: str) -> City:
        """A city by name or code."""
        return self._city(key, self.text(key))

    def cities(self, key: str) -> tuple[City, ...]:
        """A list of cities; all that are known, if left out."""
        value = self._table.get(key)
        if value is None:
            return CITIES
        if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
            raise self.error(key, f"must be a list of cities, not {shown(value)}")
        return tuple([self._city(key, part) for part in value])

    def _city(self, key: str, name: str) -> City:
        found = city(name)
        if found is None:
            known = [place.name for place in CITIES] + [place.code for place in CITIES]
            rule = f'unknown city "{name}"{suggestion(name, known)}'
            raise self.error(key, rule if suggestion(name, known) else f"{rule}; give latitude and longitude instead")
        return found

    def part(self, key: str) -> Mapping[str, object]:
        """A table, empty if left out."""
        value = self._table.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, f"must be a table, written as [{key}], not {shown(value)}")
        return value

    def parts(self, key: str) -> list[tuple[str, Mapping[str, object]]]:
        """A list of tables, each with what stands before its keys in errors."""
        value = self._table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            raise self.error(key, f"must be a list of tables, each written as [[{key}]]")
        return [(f"{key} {number} ", part) for number, part in enumerate(value, 1)]
