"""A stream of orders: who decided when, where, and upon which news. Drawn from a seed, or read from a table."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np

from isocast.reformation.scopes.world import Ints
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import NodeId, describe, without_incarnation
from isocast.terms.topology import PAPER_RING, City, city, unknown_city

__all__ = ["OrderStream", "cities_of", "contests_within", "draw_stream", "read_stream", "source_city"]

_ROWS_MAX = 10_000_000
"""Bounds: a stream is held in memory, some 40 bytes for each order."""
_INSTANT_MAX = 2**62
_SOURCE_BITS = 32
"""Below them a source's id has its incarnation."""


@dataclass(frozen=True, eq=False)
class OrderStream:
    """Orders in the order of their instants; of each an instant, a city, an account and a contest."""

    names: tuple[str, ...]
    """Of cities."""
    places: tuple[City | None, ...]
    """Where they are; None for one that is not known."""
    instants: Ints
    """When the trader decided, in nanoseconds of true time."""
    city: Ints
    """Indices of `names`."""
    account: Ints
    contest: Ints
    """Orders of one number react to the same news: they compete for being first. From 0 on."""

    @property
    def orders(self) -> int:
        """How many there are."""
        return len(self.instants)

    @property
    def contests(self) -> int:
        """How many there are."""
        return int(self.contest.max()) + 1 if self.orders else 0


def cities_of(names: Iterable[str] = PAPER_RING, key: str = "--cities") -> tuple[City, ...]:
    """Cities by name or code; ConfigurationError for a stranger, and for one that comes twice."""
    found = []
    for name in names:
        place = city(name)
        if place is None:
            raise ConfigurationError("command line", key, unknown_city(name))
        if place in found:
            raise ConfigurationError("command line", key, f"{place.name} comes twice")
        found.append(place)
    return tuple(found)


def source_city(source: NodeId, places: Mapping[int, City]) -> tuple[str, City | None]:
    """Where a source is, by its number; under its own name if that is not known."""
    place = places.get(source >> _SOURCE_BITS)
    return (describe(without_incarnation(source) | 1), None) if place is None else (place.name, place)


def draw_stream(
    cities: Sequence[City], contests: int, random: np.random.Generator, *, window_ns: int, reaction_ns: float = 0.0
) -> OrderStream:
    """One trader in each city reacts to every piece of news; all learn of it at one instant, that of its release.

    The n-th piece is released somewhere in the n-th window, every instant of it alike: windows as long as a turn of the
    ring meet every owner and every part of a token period. How long a trader takes to decide is exponential, the same
    everywhere; 0: all decide at the instant itself.
    """
    released = (np.arange(contests) + random.random(contests)) * window_ns
    reactions = random.exponential(reaction_ns, (contests, len(cities)))
    instants = np.rint(released[:, None] + reactions).astype(np.int64).ravel()
    where = np.tile(np.arange(len(cities)), contests)
    contest = np.repeat(np.arange(contests), len(cities))
    names = tuple(place.name for place in cities)
    return _sorted(names, tuple(cities), instants, where, where + 1, contest)


def _sorted(
    names: tuple[str, ...], places: tuple[City | None, ...], instants: Ints, where: Ints, account: Ints, contest: Ints
) -> OrderStream:
    order = np.argsort(instants, kind="stable")
    return OrderStream(names, places, instants[order], where[order], account[order], contest[order])


def contests_within(instants: Ints, within_ns: int) -> Ints:
    """Contests of ascending instants: an order belongs to the newest contest that began less than that before it."""
    contest = np.zeros(len(instants), np.int64)
    began, number = None, -1
    for place, instant in enumerate(instants.tolist()):
        if began is None or instant - began >= within_ns:
            began, number = instant, number + 1
        contest[place] = number
    return contest


def read_stream(path: Path, within_ns: int) -> OrderStream:
    """A table in CSV with the columns `time_ns` and `city`, and if they are there `account` and `release`.

    Orders with the same text under `release` react to the same news; without that column orders do that begin less than
    `within_ns` after the first of them. Without `account` each city is one trader.
    """
    names: dict[str, int] = {}
    accounts: dict[str, int] = {}
    releases: dict[str, int] = {}
    rows: list[tuple[int, int, int, int]] = []
    with _opened(path) as lines:
        table = csv.DictReader(lines)
        columns = set(table.fieldnames or ())
        for column in ("time_ns", "city"):
            if column not in columns:
                raise ConfigurationError(str(path), column, "is missing: the table needs columns time_ns and city")
        for row in table:
            if len(rows) == _ROWS_MAX:
                raise ConfigurationError(str(path), "rows", f"at most {_ROWS_MAX:,}")
            place = _city(row, path, table.line_num)
            where = names.setdefault(place.name, len(names))
            account = accounts.setdefault(row.get("account") or place.name, len(accounts) + 1)
            release = releases.setdefault(row.get("release") or "", len(releases))
            rows.append((_instant(row, path, table.line_num), where, account, release))
    if not rows:
        raise ConfigurationError(str(path), "rows", "there is no order in this table")
    table_of = np.array(rows, np.int64).T
    stream = _sorted(tuple(names), tuple(city(name) for name in names), *table_of)
    if "release" in columns:
        return stream
    return replace(stream, contest=contests_within(stream.instants, within_ns))


def _opened(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise ConfigurationError(str(path), "--orders", f"cannot be read: {error.strerror}") from None


def _city(row: Mapping[str, str | None], path: Path, number: int) -> City:
    name = row["city"] or ""
    place = city(name)
    if place is None:
        raise ConfigurationError(str(path), f"line {number}", unknown_city(name))
    return place


def _instant(row: Mapping[str, str | None], path: Path, number: int) -> int:
    text = row["time_ns"] or ""
    try:
        found = int(text)
    except ValueError:
        found = -1
    if not 0 <= found < _INSTANT_MAX:
        rule = f'time_ns is a whole number of nanoseconds, not "{text[:40]}"'
        raise ConfigurationError(str(path), f"line {number}", rule)
    return found
