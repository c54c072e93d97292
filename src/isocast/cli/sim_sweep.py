"""`isocast sim sweep`: one scenario at many values and seeds, by processes or by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from isocast.cli.options import Flag
from isocast.cli.render import Progress, figure, line, note, show_json, show_table
from isocast.cli.shipped import shipped
from isocast.studies.spreading import Engine, Spreading
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.studies.sweeps.summary import PointSummary
    from isocast.studies.sweeps.sweep import SweepResult

__all__ = ["SWEEP_EXAMPLES", "sweep"]

SWEEP_EXAMPLES = """Examples:

    isocast sim sweep scenario.toml --vary loss=0,0.01,0.05 --vary receivers=5,10 --seeds 1-5

    isocast sim sweep scenario.toml --vary nack_sets=1,2,3 --vary messages=4000 --out sets.csv

    isocast sim sweep scenario.toml --vary loss=0.01,0.02,0.05 --seeds 1-20 --png loss.png --engine spark

Exit code: 0 every run was safe, 1 one was not, or failed: its row has the reason; 2 bad input.
"""

_SHOWN = ("control_per_message", "nacks_per_token", "repairs_per_token", "latency_s_mean", "release_skew_ns_max",
          "fairness_faults")  # fmt: skip


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Of one sweep."""

    vary: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """KEY=VALUE,VALUE,…: a key of the scenario and its values; may be repeated, for every combination."""
    seeds: str = "1-5"
    """Seeds of every point, such as 1-20 or 1,5,9-12."""
    figure: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """A figure to show and to draw; may be repeated. Six of them if left out; --json and --out have all."""
    engine: Engine = Engine.LOCAL
    """Processes of this machine, or Spark (the extra `spark`); the results are the same."""
    jobs: int | None = None
    """Processes, or cores of a local Spark; one for each core if left out."""
    partitions: int | None = None
    """Partitions of Spark; four for each core if left out."""
    master: str | None = None
    """Spark's master, such as spark://HOST:7077; this machine if left out."""
    out: Path | None = None
    """Write a row for each run to this file, .csv or .parquet."""
    svg: Path | None = None
    """Draw figures with their confidence intervals into this file (needs matplotlib: the extra `spark`)."""
    png: Path | None = None
    """Draw the same in pixels."""
    json: Flag = False
    """Print one JSON object instead of a table."""

    @property
    def spreading(self) -> Spreading:
        """How the runs are spread, judged."""
        for name, value in (("--jobs", self.jobs), ("--partitions", self.partitions)):
            if value is not None and value < 1:
                raise ConfigurationError("command line", name, f"must be at least 1, not {value}")
        how = Spreading(self.engine, self.jobs or 0, self.partitions or 0, self.master)
        how.check()
        return how


_DEFAULTS = SweepOptions()


def sweep(scenario: Path, /, *, options: SweepOptions = _DEFAULTS) -> int:
    """Run a scenario at every combination of some values, with every seed, and give means with their intervals.

    Parameters
    ----------
    scenario
        A TOML file; those of the repository are in scenarios/.
    """
    from isocast.studies.sweeps.sweep import load_sweep

    wanted = load_sweep(shipped(scenario), options.vary, options.seeds)
    how = options.spreading
    _check_outputs(options)
    from isocast.studies.sweeps.summary import summarise
    from isocast.studies.sweeps.sweep import RunStatus, run_sweep, write_table

    with Progress("runs", len(wanted.runs), quiet=options.json) as progress:
        result = run_sweep(wanted, how, progress.reach)
    points = summarise(result)
    if options.out is not None:
        write_table(result, options.out)
        note(f"Written: {options.out}")
    _draw(result, points, options)
    if options.json:
        show_json(_json(result, points))
    else:
        _show(result, points, _chosen(result, options))
    return int(result.count(RunStatus.SAFE) < len(result.rows))


def _check_outputs(options: SweepOptions) -> None:
    from isocast.cli.sheet import check_pictures
    from isocast.studies.sweeps.sweep import FIGURES, check_table
    from isocast.terms.quantities import suggestion

    if options.out is not None:
        check_table(options.out)
    check_pictures(options.svg, options.png)
    for name in options.figure:
        if name not in FIGURES and not name.startswith("first_wins "):
            rule = f'unknown figure "{name}"{suggestion(name, FIGURES)}; there are {", ".join(FIGURES)}'
            raise ConfigurationError("command line", "--figure", rule)


def _chosen(result: SweepResult, options: SweepOptions) -> tuple[str, ...]:
    known = result.figures
    if options.figure:
        return tuple([name for name in options.figure if name in known])
    shares = tuple([name for name in known if name.startswith("first_wins ")])
    return (*_SHOWN, *shares[:1])


def _draw(result: SweepResult, points: Sequence[PointSummary], options: SweepOptions) -> None:
    for path in (options.svg, options.png):
        if path is not None:
            from isocast.cli.sweep_picture import sweep_picture

            kind = "svg" if path is options.svg else "png"
            path.write_bytes(sweep_picture(result.sweep, points, _chosen(result, options), kind))
            note(f"Written: {path}")


def _json(result: SweepResult, points: Sequence[PointSummary]) -> dict[str, object]:
    sweep, keys = result.sweep, tuple(result.sweep.vary)
    return {
        "scenario": sweep.file,
        "vary": {key: list(values) for key, values in sweep.vary.items()},
        "seeds": list(sweep.seeds),
        "points": [
            {
                "point": dict(zip(keys, point.point, strict=True)),
                "runs": point.runs,
                "failed": point.failed,
                "violated": point.violated,
                "reason": point.reason,
                "figures": {name: asdict(interval) for name, interval in point.figures.items()},
            }
            for point in points
        ],
        "rows": [
            {
                "point": dict(zip(keys, row.point, strict=True)),
                "seed": row.seed,
                "status": row.status.value,
                "reason": row.reason,
                "trace_digest": row.digest,
                "figures": row.figures,
            }
            for row in result.rows
        ],
    }


def _show(result: SweepResult, points: Sequence[PointSummary], chosen: Sequence[str]) -> None:
    from isocast.studies.sweeps.sweep import RunStatus

    sweep = result.sweep
    title = f"{sweep.title or sweep.file}: {len(sweep.seeds)} seed{'s' if len(sweep.seeds) > 1 else ''}, mean ± 95 %"
    rows = []
    for point in points:
        values = [figure(value) for value in point.point]
        cells = [_cell(point, name) for name in chosen]
        bad = point.failed + point.violated
        rows.append((*values, *cells, f"{bad} of {point.runs}: {point.reason}" if bad else ""))
    show_table(title, (*sweep.vary, *[_short(name) for name in chosen], "not safe"), rows)
    counts: Mapping[str, int] = {status.value: result.count(status) for status in RunStatus}
    line(f"{counted(len(result.rows), 'run')}: {figure(counts)}.")


def _short(name: str) -> str:
    return name.replace("_per_", "/").replace("_", " ")


def _cell(point: PointSummary, name: str) -> str:
    found = point.figures.get(name)
    if found is None:
        return "–"
    half = found.high - found.mean
    return f"{found.mean:.4g} ± {half:.2g}" if half else f"{found.mean:.4g}"
