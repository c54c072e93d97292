"""The one reader of TOML files: market, scenario, world and lab files.

A file is described by tables of keys. A `Key` has a name, a kind with bounds or choices, a default and an explanation,
each written here once: the reader, the pages of the reference and `isocast config keys` all take them from it.
`Values` are the checked values of one table. What is wrong names file, key (as a dotted path) and rule; `Faults` either
collects everything that is wrong, or raises the first.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address
from math import inf, isfinite
from pathlib import Path
from typing import Any, TypeVar

from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND, from_seconds
from isocast.terms.quantities import duration_text, parse_duration, parse_size, size_text, suggestion
from isocast.terms.topology import City, city, unknown_city

__all__ = [
    "SECONDS_MAX",
    "Faults",
    "Key",
    "Kind",
    "Table",
    "Values",
    "read_list",
    "read_table",
    "read_tables",
    "read_toml",
    "shown",
]

SECONDS_MAX = 10_000_000
"""For any one time of kind SECONDS: some four months."""
_UNBOUNDED = 2**63 - 1
_TEXT_MAX = 1_000
"""Bounds: a name or a path that is longer is a mistake."""
_UNITS = ("_ns", "_km", "_bps")
"""What the name of a field has and the name of its key has not."""

_Settings = TypeVar("_Settings")


# What a file may say


class Kind(StrEnum):
    """What a value is; its value is what messages and the pages of the reference call it."""

    TEXT = "text"
    FLAG = "true or false"
    COUNT = "whole number"
    COUNTS = "list of whole numbers"
    NUMBER = "number"
    PROBABILITY = "probability"
    SPAN = "two numbers, the lower first"
    TIME = "time"
    """A text with its unit, such as "5ms"; nanoseconds inside."""
    SECONDS = "seconds"
    """A number; nanoseconds inside."""
    SIGNED_SECONDS = "seconds, either sign"
    SIZE = "size"
    """A text with its unit, such as "4MiB"; bytes inside."""
    CHOICE = "one of"
    ADDRESS = "IPv4 address"
    GROUP = "multicast group"
    NAME = "name of a node"
    NAMES = "list of names of nodes"
    TEXTS = "list of texts"
    CITY = "city"
    CITIES = "list of cities"
    NODES = "list of nodes"
    """Members are numbers or names, which the caller resolves."""
    GROUPS = "list of lists of nodes"


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what it is called, what it may be, what it means, and what happens when it is left out."""

    name: str
    kind: Kind
    explanation: str
    default: object = None
    """What the file would say to the same effect; None where there is no such value."""
    otherwise: str = ""
    """In place of a default: how the value comes about."""
    choices: tuple[str, ...] = ()
    """Members of an enumeration come back as such."""
    minimum: float = 0
    maximum: float = _UNBOUNDED
    """Of numbers; of times in nanoseconds, of sizes in bytes, of texts in letters."""
    positive: bool = False
    """Of a number: 0 is not allowed."""
    unit: str = ""
    """Of a number."""
    required: bool = False
    roles: tuple[str, ...] = ()
    """Of a node's key: the roles that have it; empty: all."""
    symbol: str = ""
    """In the paper or, after it, in our extension of its notation."""
    section: str = ""
    """Where the paper speaks of it."""

    @property
    def type_text(self) -> str:
        """The kind, with choices and limits spelled out."""
        if self.kind is Kind.CHOICE:
            return " | ".join(f'"{choice}"' for choice in self.choices)
        if self.kind is Kind.COUNT and self.maximum < _UNBOUNDED:
            return f"{self.minimum:,} to {self.maximum:,}"
        return self.unit or self.kind.value

    @property
    def default_text(self) -> str:
        """What a file that leaves the key out would have said, or how the value comes about."""
        if self.default is None:
            return self.otherwise or ("must be given" if self.required else "none")
        return json.dumps(self.default, ensure_ascii=False)

    @property
    def meaning(self) -> str:
        """The explanation, with the roles that have the key, or with the paper's section."""
        if self.roles:
            return f"{self.explanation} Of {', '.join(self.roles)}."
        return f"{self.explanation} ({self.section})" if self.section else self.explanation


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a file, or each table of a list."""

    name: str
    """As it stands in brackets; empty for the top of the file."""
    explanation: str
    keys: tuple[Key, ...]


class Faults:
    """Everything that is wrong with one file, in the order in which it was found."""

    def __init__(self, file: str, *, collect: bool = True) -> None:
        """`file` only appears in errors. Without `collect` the first fault is raised as ConfigurationError."""
        self.file = file
        self._collect = collect
        self._found: dict[tuple[str, str], ConfigurationError] = {}

    def error(self, key: str, rule: str) -> ConfigurationError:
        """The error that names file, key and rule, in one line."""
        return ConfigurationError(self.file, _printable(key), _printable(rule))

    def add(self, key: str, rule: str) -> None:
        """Note a fault, or raise it; the same fault counts once."""
        error = self.error(key, rule)
        if not self._collect:
            raise error
        self._found.setdefault((error.key, error.rule), error)

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


def read_toml(path: str | Path, bytes_max: int) -> dict[str, object]:
    """The content of a file of at most so many bytes; ConfigurationError names the file, and the line of bad TOML."""
    file, text = str(path), ""
    try:
        with Path(path).open("rb") as source:
            data = source.read(bytes_max + 1)
        if len(data) > bytes_max:
            raise ConfigurationError(file, "file", f"is longer than {bytes_max:,} bytes")
        text = data.decode()
        return tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(file, "file", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigurationError(file, f"line {line}", "TOML is UTF-8 text, and this is not") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        rule, _, place = str(error).rstrip(")").partition(" (at ")
        if not place.startswith("line"):
            place = f"line {max(len(text.splitlines()), 1)}"
        raise ConfigurationError(file, place, f"not valid TOML: {rule}") from error


def read_tables(
    mapping: Mapping[str, object], tables: Sequence[Table], faults: Faults, also: Iterable[str] = ()
) -> dict[str, Values]:
    """The values of each table, by its name; the top of the file is the table without a name.

    `also` are names at the top that the caller reads.
    """
    names = [table.name for table in tables if table.name] + list(also)
    top = {name: value for name, value in mapping.items() if name not in names}
    for name in [name for name, value in top.items() if isinstance(value, Mapping)]:
        del top[name]
        faults.add(name, f"unknown table{suggestion(name, names)}")
    return {
        table.name: read_table(mapping, table, faults, tables)
        if table.name
        else Values(top, table.keys, faults, others=tables, known=names)
        for table in tables
    }


def read_table(mapping: Mapping[str, object], table: Table, faults: Faults, others: Iterable[Table] = ()) -> Values:
    """The values of one table with a name, which the file may leave out."""
    entry = mapping.get(table.name, {})
    if not isinstance(entry, Mapping):
        faults.add(table.name, f"must be a table, [{table.name}], not {shown(entry)}")
        entry = {}
    return Values(entry, table.keys, faults, f"{table.name}.", others=others)


def read_list(mapping: Mapping[str, object], table: Table, faults: Faults) -> list[Values]:
    """The values of each table of a list, `[[name]]` in the file; its keys are called name[1].key and so on."""
    entries = mapping.get(table.name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        faults.add(table.name, f"must be tables, each of them headed [[{table.name}]]")
        return []
    return [Values(entry, table.keys, faults, f"{table.name}[{number}].") for number, entry in enumerate(entries, 1)]


class _Wrong(Exception):  # noqa: N818  # never leaves this module
    """The value breaks a rule."""


class Values:
    """The checked values of one table, by key: what the file says, or the key's default."""

    def __init__(
        self,
        table: Mapping[str, object],
        keys: Iterable[Key],
        faults: Faults,
        prefix: str = "",
        *,
        defaults: bool = True,
        others: Iterable[Table] = (),
        known: Iterable[str] = (),
    ) -> None:
        """Note unknown keys and check every value.

        `prefix` is the table's name and a dot. An unknown key may be one of `others`, or misspell a name of `known`.
        """
        self._faults = faults
        self._prefix = prefix
        self._checked: dict[str, object] = {}
        by_name = {key.name: key for key in keys}
        for name in table:
            if name not in by_name:
                hint = _elsewhere(name, prefix, others) or suggestion(name, [*by_name, *known])
                self.fault(name, f"unknown key{hint}")
        for name, key in by_name.items():
            if name in table:
                try:
                    self._checked[name] = _check(key, table[name])
                except _Wrong as rule:
                    self.fault(name, str(rule))
            elif key.required and defaults:
                self.fault(name, f"must be given: {_must_be(key)}")
        self.given = frozenset(self._checked)
        """Keys with a sound value in the file."""
        self.broken = frozenset(name for name in table if name not in self._checked)
        """Keys with another."""
        for name, key in by_name.items():
            if defaults and name not in self._checked and key.default is not None:
                self._checked[name] = _check(key, key.default)

    def __contains__(self, name: str) -> bool:
        return name in self.given

    @property
    def file(self) -> str:
        """Where the table stands, for errors."""
        return self._faults.file

    def error(self, name: str, rule: str) -> ConfigurationError:
        """The error that names file, key and rule."""
        return self._faults.error(f"{self._prefix}{name}", rule)

    def fault(self, name: str, rule: str) -> None:
        """Note that something is wrong with this key."""
        self._faults.add(f"{self._prefix}{name}", rule)

    def text(self, name: str, otherwise: str = "") -> str:
        """A text, a choice, an address or the name of a node; empty if there is none."""
        value = self._checked.get(name, otherwise)
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

    def number(self, name: str, otherwise: float = 0.0) -> float:
        """A number or a probability."""
        value = self._checked.get(name, otherwise)
        assert isinstance(value, int | float)  # noqa: S101  # as above
        return float(value)

    def span(self, name: str) -> tuple[float, float]:
        """Two numbers, the lower first."""
        low, high = self._members(name)
        return low, high

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        return self._members(name)

    def names(self, name: str) -> tuple[str, ...]:
        """A list of names or texts."""
        return self._members(name)

    def cities(self, name: str) -> tuple[City, ...]:
        """A list of cities; a single city is a list of one."""
        return self._members(name)

    def items(self, name: str) -> tuple[object, ...]:
        """A list whose members the caller resolves."""
        return self._members(name)

    def _members(self, name: str) -> tuple[Any, ...]:
        value = self._checked.get(name, ())
        assert isinstance(value, tuple)  # noqa: S101  # as above
        return value

    def into(self, settings: type[_Settings], **given: object) -> _Settings:
        """A dataclass whose fields have the values of the keys of their names, less the unit (`drain_ns`: `drain`).

        A field without a value of its own, and not among `given`, keeps its default.
        """
        for field in fields(settings):  # type: ignore[arg-type]  # a dataclass, which type[] cannot say
            unit = next((unit for unit in _UNITS if field.name.endswith(unit)), "")
            value = self._checked.get(field.name, self._checked.get(field.name.removesuffix(unit)))
            if value is not None:
                given.setdefault(field.name, value)
        return settings(**given)


def _elsewhere(name: str, prefix: str, tables: Iterable[Table]) -> str:
    """Where a key would be known that stands in the wrong table."""
    for table in tables:
        if (f"{table.name}." if table.name else "") != prefix and any(key.name == name for key in table.keys):
            return f": it belongs into [{table.name}]" if table.name else ": it belongs before the first table"
    return ""


def _check(key: Key, value: object) -> object:
    """The value of one key, parsed; raises _Wrong."""
    match key.kind:
        case Kind.TEXT | Kind.NAME:
            return _text(key, value)
        case Kind.FLAG if isinstance(value, bool):
            return value
        case Kind.COUNT:
            return _count(key, value)
        case Kind.NUMBER:
            return _bounded(key, value)
        case Kind.PROBABILITY:
            return _probability(key, value)
        case Kind.SECONDS | Kind.SIGNED_SECONDS:
            return _seconds(key, value)
        case Kind.TIME | Kind.SIZE:
            return _quantity(key, value)
        case Kind.CHOICE:
            return _choice(key, value)
        case Kind.ADDRESS | Kind.GROUP:
            return _address(key, value)
        case Kind.CITY:
            return (_city(value),)
        case _ if isinstance(value, list | tuple):
            return _list(key, value)
        case _:
            raise _Wrong(f"must be {_must_be(key)}, not {shown(value)}")


def _list(key: Key, value: Sequence[object]) -> tuple[object, ...]:
    match key.kind:
        case Kind.COUNTS:
            return _distinct(key, tuple(_count(key, part) for part in value))
        case Kind.NAMES:
            return _distinct(key, tuple(_text(key, part) for part in value))
        case Kind.CITIES:
            return tuple(_city(part) for part in value)
        case Kind.SPAN:
            return _span(key, value)
        case Kind.TEXTS if not all(isinstance(part, str) for part in value):
            raise _Wrong("must be a list of texts")
        case _:
            return tuple(value)


def _must_be(key: Key) -> str:
    """What a value of this key is, with its article."""
    match key.kind:
        case Kind.FLAG:
            return key.kind.value
        case Kind.CHOICE:
            return "one of " + ", ".join(f'"{choice}"' for choice in key.choices)
        case Kind.TEXT | Kind.NAME:
            return f"a {key.kind.value}, in quotes"
        case Kind.CITY | Kind.CITIES:
            return "the name of a city, in quotes" if key.kind is Kind.CITY else "a list of cities"
        case Kind.TIME:
            return 'a time with its unit, such as "5ms" or "1.5s", in quotes'
        case Kind.SIZE:
            return 'a size with its unit, such as "4MiB" or "10GB", in quotes'
        case Kind.SECONDS | Kind.SIGNED_SECONDS:
            return "a time in seconds"
        case Kind.ADDRESS:
            return 'an IPv4 address such as "10.1.2.3"'
        case Kind.GROUP:
            return "a multicast group, from 224.0.1.0 to 239.255.255.255"
        case Kind.PROBABILITY:
            return "a probability, 0 or more and less than 1"
        case Kind.NUMBER | Kind.SPAN:
            return _number_text(key)
        case _:
            return f"a {key.kind.value}"


def _number_text(key: Key) -> str:
    of = f" of {key.unit}" if key.unit else ""
    what = f"two numbers{of}, the lower first," if key.kind is Kind.SPAN else f"a number{of}"
    bounded = key.maximum < _UNBOUNDED
    if key.positive:
        return f"{what}, more than 0" + (f" and at most {key.maximum:,}" if bounded else "")
    if bounded:
        return f"{what} from {key.minimum:,} to {key.maximum:,}"
    return what if key.minimum == -inf else f"{what}, {key.minimum:,} or more"


def _text(key: Key, value: object) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"must be {_must_be(key)}, not {shown(value)}")
    if len(value) > _TEXT_MAX:
        raise _Wrong(f"must have at most {_TEXT_MAX:,} letters, not {len(value):,}")
    if not value.isprintable():
        raise _Wrong(f"must be one line without control characters, not {shown(value)}")
    if key.default and not value:
        raise _Wrong("must not be empty: leave it out for its default")
    if len(value.strip()) < key.minimum or len(value) > key.maximum:
        raise _Wrong(f"must have from {key.minimum:,} to {key.maximum:,} letters, not {len(value.strip()):,}")
    return value


def _count(key: Key, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Wrong(f"must be a whole number, not {shown(value)}")
    if not key.minimum <= value <= key.maximum:
        raise _Wrong(f"must be from {key.minimum:,} to {key.maximum:,}, not {value}")
    return value


def _number(key: Key, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise _Wrong(f"must be {_must_be(key)}, not {shown(value)}")
    return value


def _bounded(key: Key, value: object) -> float:
    number = _number(key, value)
    if not key.minimum <= number <= key.maximum or (key.positive and not number):
        raise _Wrong(f"must be {_must_be(key)}, not {shown(value)}")
    return float(number)


def _probability(key: Key, value: object) -> float:
    number = _number(key, value)
    if not 0 <= number < 1:
        raise _Wrong(f"must be {_must_be(key)}, not {shown(value)}")
    return float(number)


def _span(key: Key, value: Sequence[object]) -> tuple[float, ...]:
    numbers = [part for part in value if isinstance(part, int | float) and not isinstance(part, bool)]
    inside = all(key.minimum <= number <= key.maximum for number in numbers)
    if len(numbers) != len(value) or len(value) != 2 or not inside or not numbers[0] < numbers[1]:  # noqa: PLR2004
        raise _Wrong(f"must be {_must_be(key)}")
    return tuple(float(number) for number in numbers)


def _seconds(key: Key, value: object) -> int:
    number = _number(key, value)
    if abs(number) > SECONDS_MAX:
        raise _Wrong(f"must be at most {SECONDS_MAX:,} s, not {shown(value)}")
    nanoseconds = from_seconds(number)
    if key.kind is Kind.SIGNED_SECONDS:
        return nanoseconds
    if number < 0:
        raise _Wrong(f"must not be negative: a time in seconds, not {shown(value)}")
    if nanoseconds < key.minimum:
        least = "more than 0" if key.minimum == 1 else f"at least {key.minimum / SECOND:g}"
        raise _Wrong(f"must be {least}: a time in seconds, to the nanosecond, not {shown(value)}")
    return nanoseconds


def _quantity(key: Key, value: object) -> int:
    parse, text = (parse_duration, duration_text) if key.kind is Kind.TIME else (parse_size, size_text)
    try:
        amount = parse(value) if isinstance(value, str) else None
    except ValueError:
        amount = None
    if amount is None:
        raise _Wrong(f"must be {_must_be(key)}, not {shown(value)}")
    if not key.minimum <= amount <= key.maximum:
        least = f"at least {text(int(key.minimum))} and " if key.minimum else ""
        raise _Wrong(f"must be {least}at most {text(int(key.maximum))}, not {shown(value)}")
    return amount


def _choice(key: Key, value: object) -> str:
    found = next((choice for choice in key.choices if isinstance(value, str) and choice == value), None)
    if found is None:
        hint = suggestion(value, key.choices) if isinstance(value, str) else ""
        raise _Wrong(f"must be {_must_be(key)}, not {shown(value)}{hint}")
    return found


def _address(key: Key, value: object) -> str:
    try:
        address = IPv4Address(value) if isinstance(value, str) else None
    except AddressValueError:
        address = None
    if address is None or (key.kind is Kind.GROUP and not address.is_multicast):
        raise _Wrong(f"must be {_must_be(key)}, not {shown(value)}")
    return str(address)


def _city(value: object) -> City:
    if not isinstance(value, str):
        raise _Wrong(f"must be the name of a city, in quotes, not {shown(value)}")
    found = city(value)
    if found is None:
        raise _Wrong(unknown_city(value))
    return found


def _distinct(key: Key, values: tuple[object, ...]) -> tuple[object, ...]:
    if key.default and not values:
        raise _Wrong("must not be empty")
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise _Wrong(f"{shown(twice[0])} occurs twice")
    return values
