"""One key at a time: the value of a market file must be what the table of keys says.

Faults are collected, so that one reading tells all of them. A broken value is replaced by its default, and what
rests on it is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address
from math import isfinite

from isocast.runtime.market.keys import SETTINGS, Key, Kind
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import duration_text, parse_duration, parse_size, size_text, suggestion

__all__ = ["Faults", "Values", "shown"]

_TEXT_MAX = 1_000
"""Bounds: a name or a path that is longer is a mistake."""


class Faults:
    """Everything that is wrong with one file, in the order in which it was found."""

    def __init__(self, file: str) -> None:
        """`file` only appears in errors."""
        self.file = file
        self._found: dict[tuple[str, str], ConfigurationError] = {}

    def add(self, key: str, rule: str) -> None:
        """One more, in one line; the same fault counts once."""
        key, rule = _printable(key), _printable(rule)
        self._found.setdefault((key, rule), ConfigurationError(self.file, key, rule))

    def touch(self, prefix: str) -> bool:
        """Whether a key that begins so has a fault."""
        return any(key.startswith(prefix) for key, _ in self._found)

    def __iter__(self) -> Iterator[ConfigurationError]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)


def _printable(text: str) -> str:
    """A key or value of the file may hold control characters; a terminal is not to obey them."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


class _Wrong(Exception):  # noqa: N818  # never leaves this module
    """The value breaks a rule."""


class Values:
    """The checked values of one table, by key: what the file says, or the key's default."""

    def __init__(
        self,
        table: Mapping[str, object],
        keys: Sequence[Key],
        faults: Faults,
        prefix: str = "",
        *,
        defaults: bool = True,
    ) -> None:
        """Note unknown keys and check every value; `prefix` is the table's name and a dot."""
        self._faults = faults
        self._prefix = prefix
        self._checked: dict[str, object] = {}
        known = {key.name: key for key in keys}
        for name in table:
            if name not in known:
                self.fault(name, f"unknown key{_elsewhere(name, prefix) or suggestion(name, known)}")
        for name, key in known.items():
            if name in table:
                try:
                    self._checked[name] = _check(key, table[name])
                except _Wrong as rule:
                    self.fault(name, str(rule))
        self.given = frozenset(self._checked)
        """Keys with a sound value in the file."""
        self.broken = frozenset(name for name in table if name not in self._checked)
        """Keys with another."""
        for name, key in known.items():
            if defaults and name not in self._checked and key.default is not None:
                self._checked[name] = _check(key, key.default)

    def fault(self, name: str, rule: str) -> None:
        """Something is wrong with this key."""
        self._faults.add(f"{self._prefix}{name}", rule)

    def text(self, name: str) -> str:
        """A text, a choice, an address or the name of a node; empty if there is none."""
        value = self._checked.get(name, "")
        assert isinstance(value, str)  # noqa: S101  # _check returned it for this kind
        return value

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._checked.get(name, False)
        assert isinstance(value, bool)  # noqa: S101  # as above
        return value

    def count(self, name: str, otherwise: int = 0) -> int:
        """A whole number, nanoseconds or bytes."""
        value = self._checked.get(name, otherwise)
        assert isinstance(value, int)  # noqa: S101  # as above
        return value

    def number(self, name: str) -> float:
        """A share, or degrees."""
        value = self._checked.get(name, 0.0)
        assert isinstance(value, float)  # noqa: S101  # as above
        return value

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        value = self._checked.get(name, ())
        assert isinstance(value, tuple)  # noqa: S101  # as above
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """A list of names."""
        value = self._checked.get(name, ())
        assert isinstance(value, tuple)  # noqa: S101  # as above
        return value


def _elsewhere(name: str, prefix: str) -> str:
    """Where a key would be known that stands in the wrong table."""
    for table in SETTINGS:
        if f"{table.name}." != prefix and any(key.name == name for key in table.keys):
            return f": it belongs into [{table.name}]" if table.name else ": it belongs before the first table"
    return ""


def shown(value: object) -> str:
    """The value as the file has it, near enough."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"' if len(value) <= _TEXT_MAX else f"a text of {len(value)} characters"
        case Mapping():
            return "a table"
        case list() | tuple():
            return "a list"
        case _:
            return str(value)


def _check(key: Key, value: object) -> object:
    """The value of one key, parsed; raises _Wrong."""
    match key.kind:
        case Kind.TEXT | Kind.NAME:
            return _text(key, value)
        case Kind.FLAG:
            if not isinstance(value, bool):
                raise _Wrong(f"must be true or false, not {shown(value)}")
            return value
        case Kind.COUNT:
            return _count(key, value)
        case Kind.COUNTS:
            return _distinct(key, tuple(_count(key, part) for part in _list(key, value)))
        case Kind.SHARE:
            return _number(value, "must be a probability, 0 or more and less than 1", below=1)
        case Kind.DEGREES:
            return _degrees(key, value)
        case Kind.TIME:
            return _quantity(key, value, 'a time with its unit, such as "5ms" or "1.5s"')
        case Kind.SIZE:
            return _quantity(key, value, 'a size with its unit, such as "4MiB" or "10GB"')
        case Kind.CHOICE:
            if not isinstance(value, str) or value not in key.choices:
                hint = suggestion(value, key.choices) if isinstance(value, str) else ""
                raise _Wrong(f"must be {key.type_text}, not {shown(value)}{hint}")
            return str(value)
        case Kind.ADDRESS:
            return _address(value)
        case Kind.NAMES:
            return _distinct(key, tuple(_text(key, part) for part in _list(key, value)))


def _text(key: Key, value: object) -> str:
    if not isinstance(value, str) or len(value) > _TEXT_MAX or not value.isprintable():
        raise _Wrong(f"must be a {key.kind.value}, in quotes, not {shown(value)}")
    if key.default and not value:
        raise _Wrong("must not be empty: leave it out for its default")
    return value


def _count(key: Key, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Wrong(f"must be a whole number, not {shown(value)}")
    if not key.minimum <= value <= key.maximum:
        raise _Wrong(f"must be from {key.minimum:,} to {key.maximum:,}, not {value}")
    return value


def _number(value: object, rule: str, below: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < below:
        raise _Wrong(f"{rule}, not {shown(value)}")
    return float(value)


def _degrees(key: Key, value: object) -> float:
    sound = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not sound or abs(value) > key.maximum:  # type: ignore[arg-type]  # a number by now
        raise _Wrong(f"must be degrees from -{key.maximum} to {key.maximum}, not {shown(value)}")
    return float(value)  # type: ignore[arg-type]  # as above


def _quantity(key: Key, value: object, what: str) -> int:
    parse, text = (parse_duration, duration_text) if key.kind is Kind.TIME else (parse_size, size_text)
    try:
        amount = parse(value) if isinstance(value, str) else None
    except ValueError:
        amount = None
    if amount is None:
        raise _Wrong(f"must be {what}, in quotes, not {shown(value)}")
    if not key.minimum <= amount <= key.maximum:
        least = f"at least {text(key.minimum)} and " if key.minimum else ""
        raise _Wrong(f"must be {least}at most {text(key.maximum)}, not {shown(value)}")
    return amount


def _address(value: object) -> str:
    try:
        return str(IPv4Address(value)) if isinstance(value, str) else _no_address(value)
    except AddressValueError:
        return _no_address(value)


def _no_address(value: object) -> str:
    raise _Wrong(f'must be an IPv4 address such as "10.1.2.3", not {shown(value)}')


def _list(key: Key, value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise _Wrong(f"must be a {key.kind.value}, not {shown(value)}")
    return value


def _distinct(key: Key, values: tuple[object, ...]) -> tuple[object, ...]:
    if key.default and not values:
        raise _Wrong("must not be empty")
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise _Wrong(f"{shown(twice[0])} stands in it twice")
    return values
