"""A sweep: its points, one simulator run for each point and seed, failed ones as rows, and the table on disk."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from io import StringIO
from itertools import product
from pathlib import Path
from typing import TypeAlias

from isocast.simulation.run import RunReport, run_scenario
from isocast.simulation.scenario import load_scenario, scenario_from_mapping
from isocast.simulation.scenario_keys import KEYS_BY_NAME
from isocast.studies.spreading import Spreading, spread
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import suggestion

__all__ = [
    "FIGURES",
    "ParameterValue",
    "RunStatus",
    "Sweep",
    "SweepResult",
    "SweepRow",
    "check_table",
    "columns",
    "load_sweep",
    "parse_seeds",
    "parse_vary",
    "run_sweep",
    "write_table",
]


# What a sweep visits: every combination of the values of its keys, with every seed.


ParameterValue: TypeAlias = int | float | str | bool

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
    vary: Mapping[str, tuple[ParameterValue, ...]]
    seeds: tuple[int, ...]

    @property
    def points(self) -> tuple[tuple[ParameterValue, ...], ...]:
        """Values of all keys in their order, the last key changing first."""
        return tuple(product(*self.vary.values()))

    @property
    def runs(self) -> tuple[tuple[tuple[ParameterValue, ...], int], ...]:
        """Every point with every seed."""
        return tuple([(point, seed) for point in self.points for seed in self.seeds])

    def mapping(self, point: Sequence[ParameterValue]) -> dict[str, object]:
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


def parse_vary(texts: Sequence[str]) -> dict[str, tuple[ParameterValue, ...]]:
    """``loss=0,0.01`` and its like: a key of a scenario, and its values."""
    vary: dict[str, tuple[ParameterValue, ...]] = {}
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


def _value(text: str) -> ParameterValue:
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


FIGURES = (
    "messages",
    "tokens",
    "control_per_message",
    "nacks_per_token",
    "repairs_per_token",
    "receipts_per_token",
    "nacks_per_loss_p99",
    "false_reformations_per_token",
    "latency_s_mean",
    "release_skew_ns_max",
    "fairness_faults",
    "rings",
    "rejected",
    "deliveries",
    "unanswered",
    "stalled",
    "divergent",
)
"""Numbers of a run's report, in this order; shares of pairs won follow, where there are traders."""


class RunStatus(StrEnum):
    """How a run ended."""

    SAFE = "safe"
    VIOLATED = "violated"
    """A property of the protocol was: the figures are there, and the reason is the first of them."""
    FAILED = "failed"
    """There are no figures: no scenario can be so, or a machine raised."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One run."""

    point: tuple[ParameterValue, ...]
    seed: int
    status: RunStatus
    reason: str
    digest: str
    """Of the run's trace; empty for one that failed."""
    figures: dict[str, float]


@dataclass(frozen=True, slots=True)
class SweepResult:
    """All runs, points in their order and seeds ascending."""

    sweep: Sweep
    rows: tuple[SweepRow, ...]

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of all figures that some run has."""
        found = dict.fromkeys(FIGURES)
        for row in self.rows:
            found.update(dict.fromkeys(row.figures))
        return tuple(found)

    def count(self, status: RunStatus) -> int:
        """Runs that ended so."""
        return sum([row.status is status for row in self.rows])


def run_sweep(sweep: Sweep, how: Spreading, reached: Callable[[int], None] = lambda _: None) -> SweepResult:
    """Run all; the result does not depend on how they are spread."""
    return SweepResult(sweep, tuple(spread(_run, sweep, sweep.runs, how, reached)))


def _run(sweep: Sweep, task: tuple[tuple[ParameterValue, ...], int]) -> SweepRow:
    point, seed = task
    try:
        report = run_scenario(scenario_from_mapping(sweep.mapping(point), sweep.file), seed)
    except ConfigurationError as error:
        return SweepRow(point, seed, RunStatus.FAILED, f"{error.key}: {error.rule}", "", {})
    except Exception as error:  # noqa: BLE001 (a machine that raises has failed, whatever it raises)
        return SweepRow(point, seed, RunStatus.FAILED, f"{type(error).__name__}: {error}", "", {})
    violations = report.violations
    status = RunStatus.VIOLATED if violations else RunStatus.SAFE
    return SweepRow(point, seed, status, violations[0] if violations else "", report.trace_digest, _figures(report))


def _figures(report: RunReport) -> dict[str, float]:
    figures = {name: float(getattr(report, name)) for name in FIGURES}
    return figures | {f"first_wins {city}": share for city, share in report.first_wins.items()}


# The rows of a sweep as a table on disk: CSV, or Parquet where pyarrow is.


_KINDS = (".csv", ".parquet")


def check_table(path: Path) -> None:
    """ConfigurationError for a table that could not be written, before anything runs."""
    if path.suffix not in _KINDS:
        raise ConfigurationError("command line", "--out", f"must end in {' or '.join(_KINDS)}, not {path.name}")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ConfigurationError("command line", "--out", "Parquet needs pyarrow: pip install 'isocast[arrow]'")
    if not path.parent.is_dir():
        raise ConfigurationError("command line", "--out", f"there is no directory {path.parent}")


def columns(result: SweepResult) -> dict[str, list[object]]:
    """Names and values: the keys that vary, then seed, status, reason and digest, then every figure."""
    rows = result.rows
    found: dict[str, list[object]] = {
        key: [row.point[place] for row in rows] for place, key in enumerate(result.sweep.vary)
    }
    found["seed"] = [row.seed for row in rows]
    found["status"] = [row.status.value for row in rows]
    found["reason"] = [row.reason for row in rows]
    found["trace_digest"] = [row.digest for row in rows]
    for name in result.figures:
        # "messages" may vary and be measured: what was asked for keeps the name.
        found[name if name not in found else f"{name}_measured"] = [row.figures.get(name) for row in rows]
    return found


def write_table(result: SweepResult, path: Path) -> None:
    """One row for each run."""
    table = columns(result)
    if path.suffix == ".parquet":
        _write_parquet(table, path)
        return
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    path.write_text(text.getvalue(), encoding="utf-8")


def _write_parquet(table: dict[str, list[object]], path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415 (an extra)
    import pyarrow.parquet as pq  # noqa: PLC0415

    mixed = [name for name, values in table.items() if len({type(value) for value in values if value is not None}) > 1]
    # Values of one key may be 0 and 0.5: numbers become floats, anything else text.
    for name in mixed:
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in table[name])
        table[name] = [float(str(value)) if numbers else str(value) for value in table[name]]
    pq.write_table(pa.table(table), path)
