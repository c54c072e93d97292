"""One key at a time: the value of a scenario file must be what the table of keys says.

Seconds become integer nanoseconds here, names of cities become cities; rules between keys are `scenario`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from isocast.simulation.scenario_keys import MAX_SECONDS, Key, Kind
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import from_seconds
from isocast.terms.quantities import suggestion
from isocast.terms.topology import CITIES, City, city

__all__ = ["Values", "suggestion"]


class Values:
    """The checked values of one table of a scenario file, by key.

    Each method returns the value of a key of its kind, or None for a key that was left out.
    """

    def __init__(self, table: Mapping[str, object], keys: Mapping[str, Key], file: str, prefix: str = "") -> None:
        """Refuse unknown keys; check every value."""
        self.file = file
        self.prefix = prefix
        for name in table:
            if name not in keys:
                raise self.error(name, f"unknown key{suggestion(name, keys)}")
        self._checked = {name: self._check(keys[name], value) for name, value in table.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._checked

    def error(self, name: str, rule: str) -> ConfigurationError:
        """The error that names file, key and rule."""
        return ConfigurationError(self.file, f"{self.prefix}{name}", rule)

    def count(self, name: str, default: int) -> int:
        """A whole number, or nanoseconds."""
        value = self._checked.get(name, default)
        assert isinstance(value, int)  # noqa: S101  # _check returned it for this kind
        return value

    def number(self, name: str, default: float) -> float:
        """A rate or a probability."""
        value = self._checked.get(name, default)
        assert isinstance(value, int | float)  # noqa: S101  # as above
        return float(value)

    def text(self, name: str, default: str) -> str:
        """A text or a choice."""
        value = self._checked.get(name, default)
        assert isinstance(value, str)  # noqa: S101  # as above
        return value

    def cities(self, name: str) -> tuple[City, ...]:
        """A list of cities; a single city is a list of one."""
        value = self._checked.get(name, ())
        assert isinstance(value, tuple)  # noqa: S101  # as above
        return value

    def items(self, name: str) -> list[object]:
        """A list whose members the caller resolves."""
        value = self._checked.get(name, [])
        assert isinstance(value, list)  # noqa: S101  # as above
        return value

    def _check(self, key: Key, value: object) -> object:
        match key.kind:
            case Kind.TEXT:
                return self._text(key, value)
            case Kind.CHOICE:
                return self._choice(key, value)
            case Kind.COUNT:
                return self._count(key, value)
            case Kind.RATE:
                return self._rate(key, value)
            case Kind.PROBABILITY:
                return self._probability(key, value)
            case Kind.SECONDS | Kind.SIGNED_SECONDS:
                return self._seconds(key, value)
            case Kind.CITY:
                return (self._city(key, self._text(key, value)),)
            case Kind.CITIES:
                return tuple(self._city(key, self._text(key, name)) for name in self._list(key, value))
            case Kind.NODES | Kind.GROUPS:
                return self._list(key, value)

    def _text(self, key: Key, value: object) -> str:
        if not isinstance(value, str):
            raise self.error(key.name, f"must be {_article(key.kind)}, in quotes, not {_shown(value)}")
        return value

    def _choice(self, key: Key, value: object) -> str:
        if not isinstance(value, str) or value not in key.choices:
            hint = suggestion(value, key.choices) if isinstance(value, str) else ""
            raise self.error(key.name, f"must be one of {key.type_text}, not {_shown(value)}{hint}")
        return value

    def _number(self, key: Key, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise self.error(key.name, f"must be {_article(key.kind)}, not {_shown(value)}")
        return value

    def _count(self, key: Key, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key.name, f"must be {_article(key.kind)}, not {_shown(value)}")
        if not key.minimum <= value <= key.maximum:
            raise self.error(key.name, f"must be from {key.minimum:,} to {key.maximum:,}, not {value}")
        return value

    def _rate(self, key: Key, value: object) -> float:
        number = self._number(key, value)
        if number < 0 or (key.minimum and number == 0) or number > key.maximum:
            least = "more than 0" if key.minimum else "0 or more"
            raise self.error(key.name, f"must be {least} and at most {key.maximum:,}, not {_shown(value)}")
        return number

    def _probability(self, key: Key, value: object) -> float:
        number = self._number(key, value)
        if not 0 <= number < 1:
            raise self.error(key.name, f"must be a probability, 0 or more and less than 1, not {_shown(value)}")
        return number

    def _seconds(self, key: Key, value: object) -> int:
        number = self._number(key, value)
        if abs(number) > MAX_SECONDS:
            raise self.error(key.name, f"must be at most {MAX_SECONDS:,} s, not {_shown(value)}")
        nanoseconds = from_seconds(number)
        if key.kind is Kind.SIGNED_SECONDS:
            return nanoseconds
        if number < 0:
            raise self.error(key.name, f"must not be negative: a time in seconds, not {_shown(value)}")
        if key.minimum and nanoseconds == 0:
            raise self.error(
                key.name, f"must be more than 0: a time in seconds, to the nanosecond, not {_shown(value)}"
            )
        return nanoseconds

    def _list(self, key: Key, value: object) -> list[object]:
        if not isinstance(value, list | tuple):
            raise self.error(key.name, f"must be a {key.kind.value}, not {_shown(value)}")
        return list(value)

    def _city(self, key: Key, name: str) -> City:
        found = city(name)
        if found is None:
            known = [place.name for place in CITIES] + [place.code for place in CITIES]
            raise self.error(key.name, f'unknown city "{name}"{suggestion(name, known)}')
        return found


def _article(kind: Kind) -> str:
    match kind:
        case Kind.SECONDS | Kind.SIGNED_SECONDS:
            return "a time in seconds"
        case Kind.CITIES | Kind.CITY:
            return "the name of a city"
        case _:
            return f"a {kind.value}"


def _shown(value: object) -> str:
    """The value as the file has it, near enough."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return "a table"
    return str(value)
