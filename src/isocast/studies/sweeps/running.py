"""The runs of a sweep: one simulator run for each point and seed; one that fails is a row with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from isocast.simulation.run import RunReport, run_scenario
from isocast.simulation.scenario import scenario_from_mapping
from isocast.studies.spreading import Spreading, spread
from isocast.studies.sweeps.points import Sweep, Value
from isocast.terms.errors import ConfigurationError

__all__ = ["FIGURES", "Row", "Status", "SweepResult", "run_sweep"]

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


class Status(StrEnum):
    """How a run ended."""

    SAFE = "safe"
    VIOLATED = "violated"
    """A property of the protocol was: the figures are there, and the reason is the first of them."""
    FAILED = "failed"
    """There are no figures: no scenario can be so, or a machine raised."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    point: tuple[Value, ...]
    seed: int
    status: Status
    reason: str
    digest: str
    """Of the run's trace; empty for one that failed."""
    figures: dict[str, float]


@dataclass(frozen=True, slots=True)
class SweepResult:
    """All runs, points in their order and seeds ascending."""

    sweep: Sweep
    rows: tuple[Row, ...]

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of all figures that some run has."""
        found = dict.fromkeys(FIGURES)
        for row in self.rows:
            found.update(dict.fromkeys(row.figures))
        return tuple(found)

    def count(self, status: Status) -> int:
        """Runs that ended so."""
        return sum([row.status is status for row in self.rows])


def run_sweep(sweep: Sweep, how: Spreading, reached: Callable[[int], None] = lambda _: None) -> SweepResult:
    """Run all; the result does not depend on how they are spread."""
    return SweepResult(sweep, tuple(spread(_run, sweep, sweep.runs, how, reached)))


def _run(sweep: Sweep, task: tuple[tuple[Value, ...], int]) -> Row:
    point, seed = task
    try:
        report = run_scenario(scenario_from_mapping(sweep.mapping(point), sweep.file), seed)
    except ConfigurationError as error:
        return Row(point, seed, Status.FAILED, f"{error.key}: {error.rule}", "", {})
    except Exception as error:  # noqa: BLE001 (a machine that raises has failed, whatever it raises)
        return Row(point, seed, Status.FAILED, f"{type(error).__name__}: {error}", "", {})
    violations = report.violations
    status = Status.VIOLATED if violations else Status.SAFE
    return Row(point, seed, status, violations[0] if violations else "", report.trace_digest, _figures(report))


def _figures(report: RunReport) -> dict[str, float]:
    figures = {name: float(getattr(report, name)) for name in FIGURES}
    return figures | {f"first_wins {city}": share for city, share in report.first_wins.items()}
