"""What a sweep visits: every combination of the values of its keys, with every seed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeAlias

from isocast.simulation.scenario import load_scenario
from isocast.simulation.scenario_keys import KEYS_BY_NAME
from isocast.terms.errors import ConfigurationError
from isocast.terms.suggestion import suggestion

__all__ = ["Sweep", "Value", "load_sweep", "parse_seeds", "parse_vary"]

Value: TypeAlias = int | float | str | bool

_RUNS_MAX = 1_000_000
_SEED_MAX = 2**63 - 1
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


@dataclass(frozen=True, slots=True)
class Sweep:
    """A scenario's file, the keys that vary, and the seeds."""

    file: str
    title: str
    base: Mapping[str, object]
    """The file as it stands."""
    vary: Mapping[str, tuple[Value, ...]]
    seeds: tuple[int, ...]

    @property
    def points(self) -> tuple[tuple[Value, ...], ...]:
        """Values of all keys in their order, the last key changing first."""
        return tuple(product(*self.vary.values()))

    @property
    def runs(self) -> tuple[tuple[tuple[Value, ...], int], ...]:
        """Every point with every seed."""
        return tuple([(point, seed) for point in self.points for seed in self.seeds])

    def mapping(self, point: Sequence[Value]) -> dict[str, object]:
        """The scenario at one point."""
        return {**self.base, **dict(zip(self.vary, point, strict=True))}


def load_sweep(path: Path, vary: Sequence[str], seeds: str) -> Sweep:
    """The sweep of a command line; ConfigurationError for what cannot be one. Single points may still fail."""
    loaded = load_scenario(path)
    base = tomllib.loads(path.read_text(encoding="utf-8"))
    sweep = Sweep(str(path), loaded.title, base, parse_vary(vary), parse_seeds(seeds))
    count = len(sweep.seeds)
    for values in sweep.vary.values():
        count *= len(values)
    if count > _RUNS_MAX:
        raise ConfigurationError("command line", "--vary", f"makes {count:,} runs; at most {_RUNS_MAX:,}")
    return sweep


def parse_vary(texts: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """``loss=0,0.01`` and its like: a key of a scenario, and its values."""
    vary: dict[str, tuple[Value, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not values.strip():
            raise ConfigurationError("command line", "--vary", f'must be KEY=VALUE,VALUE,…, not "{text}"')
        if key not in KEYS_BY_NAME or key == "seed":
            hint = "; seeds are given by --seeds" if key == "seed" else suggestion(key, KEYS_BY_NAME)
            raise ConfigurationError("command line", "--vary", f'no key "{key}" of a scenario can vary{hint}')
        if key in vary:
            raise ConfigurationError("command line", "--vary", f'"{key}" varies twice: name all its values at once')
        parsed = tuple([_value(part.strip()) for part in values.split(",") if part.strip()])
        if len(set(map(repr, parsed))) < len(parsed):
            raise ConfigurationError("command line", "--vary", f'"{key}" has a value twice')
        vary[key] = parsed
    return vary


def _value(text: str) -> Value:
    """As a file would have it; what is no number, true or false, or text in quotes is a text."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, int | float | str | bool) else text


def parse_seeds(text: str) -> tuple[int, ...]:
    """``1-20`` or ``1,5,9-12``: every seed once, ascending."""
    seeds: dict[int, None] = {}
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ConfigurationError("command line", "--seeds", f'must be like 1-20 or 1,5,9-12, not "{text}"')
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last > _SEED_MAX or last - first >= _RUNS_MAX:
            raise ConfigurationError("command line", "--seeds", f'"{part.strip()}" is no range of seeds')
        seeds.update(dict.fromkeys(range(first, last + 1)))
    return tuple(sorted(seeds))
