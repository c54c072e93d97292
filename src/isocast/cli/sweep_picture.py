"""The picture of a sweep: a panel for each figure, means over seeds with their confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from isocast.cli.sheet import of_address
from isocast.studies.sweeps.summary import PointSummary
from isocast.studies.sweeps.sweep import ParameterValue, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["sweep_picture"]

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
    series: dict[tuple[ParameterValue, ...], list[PointSummary]] = {}
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


def _span(values: Sequence[ParameterValue], *, numeric: bool) -> float:
    places = [_place(value, values, numeric=numeric) for value in values]
    return max(places) - min(places)


def _place(value: ParameterValue, values: Sequence[ParameterValue], *, numeric: bool) -> float:
    return float(value) if numeric else float(values.index(value))
