"""Points of a sweep over their seeds: means with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from isocast.studies.sweeps.sweep import ParameterValue, RunStatus, SweepResult, SweepRow

__all__ = ["ConfidenceInterval", "PointSummary", "interval", "summarise"]

_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
         2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
         2.042)  # fmt: skip
"""Student's t for 95 %, by degrees of freedom from 1."""
_Z_95, _Z_TERM = 1.95996, 2.40
"""Beyond the table: z+(z³+z)/(4·df), to three digits."""


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A mean over seeds, and where it lies with 95 % confidence; a single run has no interval."""

    mean: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, slots=True)
class PointSummary:
    """One point over its seeds."""

    point: tuple[ParameterValue, ...]
    runs: int
    failed: int
    violated: int
    reason: str
    """The first, if any."""
    figures: dict[str, ConfidenceInterval]


def interval(values: list[float]) -> ConfidenceInterval:
    """By Student's t."""
    count = len(values)
    # In one order, and in pairs: the same bits from any number of processes.
    mean = float(np.mean(np.array(values)))
    if count < 2:  # noqa: PLR2004
        return ConfidenceInterval(mean, mean, mean, count)
    free = count - 1
    t = _T_95[free - 1] if free <= len(_T_95) else _Z_95 + _Z_TERM / free
    half = t * float(np.std(np.array(values), ddof=1)) / sqrt(count)
    return ConfidenceInterval(mean, mean - half, mean + half, count)


def summarise(result: SweepResult) -> list[PointSummary]:
    """Every point, in the order of the sweep; runs that failed are counted, and are in no mean."""
    by_point: dict[tuple[ParameterValue, ...], list[SweepRow]] = {point: [] for point in result.sweep.points}
    for row in result.rows:
        by_point[row.point].append(row)
    return [_summary(point, rows) for point, rows in by_point.items()]


def _summary(point: tuple[ParameterValue, ...], rows: list[SweepRow]) -> PointSummary:
    good = [row for row in rows if row.status is not RunStatus.FAILED]
    names = dict.fromkeys([name for row in good for name in row.figures])
    figures = {name: interval([row.figures[name] for row in good if name in row.figures]) for name in names}
    failed = len(rows) - len(good)
    violated = sum([row.status is RunStatus.VIOLATED for row in rows])
    reason = next((row.reason for row in rows if row.reason), "")
    return PointSummary(point, len(rows), failed, violated, reason, figures)
