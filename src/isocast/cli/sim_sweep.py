"""`isocast sim sweep`: one scenario at many values and seeds, by processes or by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from cyclopts import Parameter

from isocast.cli.coverage_colours import of_address
from isocast.cli.render import Progress, figure, line, note, show_json, show_table
from isocast.studies.spreading import Engine, Spreading
from isocast.studies.sweeps.sweep import PointSummary, Sweep, Value
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isocast.studies.sweeps.sweep import SweepResult

__all__ = ["SWEEP_EXAMPLES", "sweep", "sweep_picture"]


SWEEP_EXAMPLES = """Examples:

    isocast sim sweep scenarios/quiet.toml --vary loss=0,0.01,0.05 --vary receivers=5,10 --seeds 1-5

    isocast sim sweep scenarios/paper/tree-loss.toml --vary nack_sets=1,2,3 --vary messages=4000 --out sets.csv

    isocast sim sweep scenarios/lossy-world.toml --vary loss=0.01,0.02,0.05 --seeds 1-20 --png loss.png --engine spark

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
    json: Annotated[bool, Parameter(negative="")] = False
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
        A TOML file, such as those in scenarios/.
    """
    from isocast.studies.sweeps.sweep import load_sweep

    wanted = load_sweep(scenario, options.vary, options.seeds)
    how = options.spreading
    _check_outputs(options)
    from isocast.studies.sweeps.sweep import Status, run_sweep, summarise, write_table

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
    return int(result.count(Status.SAFE) < len(result.rows))


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
            from isocast.cli.sim_sweep import sweep_picture

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
    from isocast.studies.sweeps.sweep import Status

    sweep = result.sweep
    title = f"{sweep.title or sweep.file}: {len(sweep.seeds)} seed{'s' if len(sweep.seeds) > 1 else ''}, mean ± 95 %"
    rows = []
    for point in points:
        values = [figure(value) for value in point.point]
        cells = [_cell(point, name) for name in chosen]
        bad = point.failed + point.violated
        rows.append((*values, *cells, f"{bad} of {point.runs}: {point.reason}" if bad else ""))
    show_table(title, (*sweep.vary, *[_short(name) for name in chosen], "not safe"), rows)
    counts: Mapping[str, int] = {status.value: result.count(status) for status in Status}
    line(f"{len(result.rows):,} runs: {figure(counts)}.")


def _short(name: str) -> str:
    return name.replace("_per_", "/").replace("_", " ")


def _cell(point: PointSummary, name: str) -> str:
    found = point.figures.get(name)
    if found is None:
        return "–"
    half = found.high - found.mean
    return f"{found.mean:.4g} ± {half:.2g}" if half else f"{found.mean:.4g}"


# ---- The picture of a sweep: a panel for each figure, means over seeds with their confidence intervals.


_COLUMNS = 3
_PANEL = (4.6, 3.3)
_ASIDE = 0.008
"""Of the width of a panel."""
_MARKERS = "osD^vP"
_UNITS = {"s", "ns"}
_SERIES_MAX = 12
"""More lines than that cannot be told apart; the table has them all."""


def sweep_picture(sweep: Sweep, points: Sequence[PointSummary], figures: Sequence[str], kind: str) -> bytes:
    """One sheet, as SVG or PNG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, max(len(figures), 1))
    rows = -(-max(len(figures), 1) // columns)
    with mpl.rc_context({"svg.hashsalt": "isocast", "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold"}):
        sheet = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.7), dpi=130, layout="constrained")
        seeds = f"{len(sweep.seeds)} seed{'s' if len(sweep.seeds) > 1 else ''}"
        sheet.suptitle(f"{sweep.title or sweep.file}: mean over {seeds}, bars are 95 % confidence", fontsize=12)
        for place, name in enumerate(figures):
            axes = sheet.add_subplot(rows, columns, place + 1)
            _panel(axes, sweep, points, name)
            if place == 0 and axes.get_legend_handles_labels()[0]:
                axes.legend(frameon=False, fontsize=8)
        out = BytesIO()
        sheet.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return out.getvalue()


def _panel(axes: Axes, sweep: Sweep, points: Sequence[PointSummary], name: str) -> None:
    axes.set_title(_title(name), loc="left")
    axes.grid(color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    keys = tuple(sweep.vary)
    axes.set_xlabel(keys[0] if keys else "")
    series: dict[tuple[Value, ...], list[PointSummary]] = {}
    for point in points:
        if name in point.figures:
            series.setdefault(point.point[1:], []).append(point)
    values = sweep.vary[keys[0]] if keys else ("",)
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    for number, (rest, members) in enumerate(list(series.items())[:_SERIES_MAX]):
        places = [_place(point.point[0] if keys else "", values, numeric=numeric) for point in members]
        # A little beside each other, so that intervals of the same value do not hide one another.
        aside = _ASIDE * (number - (min(len(series), _SERIES_MAX) - 1) / 2) * _span(values, numeric=numeric)
        x = [place + aside for place in places]
        found = [point.figures[name] for point in members]
        mean = np.array([part.mean for part in found])
        half = np.array([part.high - part.mean for part in found])
        told = [(key, value) for key, value in zip(keys[1:], rest, strict=True) if len(sweep.vary[key]) > 1]
        label = ", ".join([f"{key} = {value}" for key, value in told])
        colour = tuple(part / 255 for part in of_address(number))
        axes.errorbar(
            x,
            mean,
            yerr=half,
            color=colour,
            marker=_MARKERS[number % len(_MARKERS)],
            ms=4,
            lw=1.6,
            capsize=3,
            label=label or None,
        )
    if not numeric:
        axes.set_xticks(range(len(values)), [str(value) for value in values])
    if series and not any(point.figures[name].high for members in series.values() for point in members):
        axes.set_ylim(-0.05, 1)
    if not series:
        axes.text(0.5, 0.5, "no run has it", ha="center", transform=axes.transAxes)


def _title(name: str) -> str:
    """The figure with its unit at the end: release skew max, ns."""
    words = name.split("_")
    units = [word for word in words if word in _UNITS]
    return " ".join([word for word in words if word not in _UNITS]) + "".join([f", {unit}" for unit in units])


def _span(values: Sequence[Value], *, numeric: bool) -> float:
    places = [_place(value, values, numeric=numeric) for value in values]
    return max(places) - min(places)


def _place(value: Value, values: Sequence[Value], *, numeric: bool) -> float:
    return float(value) if numeric else float(values.index(value))
