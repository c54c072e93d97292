"""The planet's picture: maps of coverage, delivery and repair load, and the distributions behind them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from isocast.cli import coverage_colours as colours
from isocast.reformation.scopes.surface import Floats
from isocast.studies.coverage.land import land_raster
from isocast.studies.planet.report import PlanetReport
from isocast.studies.planet.tallies import DELAYS, OFFSETS, Column
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["need_matplotlib", "world_picture"]

_INCHES = 15.0
_TEXT = "#dfe4ee"
_GRID = "#3a4354"
_HEAT = ("#3f7f9f", "#7fb069", "#f0e442", "#f28e2b", "#ff4040")
"""From nothing to worry about to worst: both ends stand out from land and sea."""
_ACCENT, _OTHER, _BAD = "#56b4e9", "#e69f00", "#ff5050"
_STYLE = {
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.edgecolor": _GRID,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "font.size": 9,
    "svg.hashsalt": "isocast",
}


def need_matplotlib() -> None:
    """ConfigurationError where there is nothing to draw with, before anything is computed."""
    if find_spec("matplotlib") is None:
        rule = "needs matplotlib: pip install 'isocast[spark]'"
        raise ConfigurationError("command line", "--png, --svg", rule)


def world_picture(report: PlanetReport, kind: str, width: int) -> bytes:
    """One sheet, as SVG or PNG; the same report gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(dict[Any, Any](_STYLE)):
        sheet = Figure(figsize=(_INCHES, _INCHES * 0.84), dpi=width / _INCHES, facecolor=_hex(colours.SEA))
        grid = sheet.add_gridspec(3, 6, height_ratios=(1.0, 1.0, 0.72), hspace=0.17, wspace=0.85,
                                  left=0.045, right=0.95, top=0.918, bottom=0.05)  # fmt: skip
        _heading(sheet, report)
        _coverage(sheet.add_subplot(grid[0, :3]), report)
        _delivery(sheet.add_subplot(grid[0, 3:]), report)
        _repairs(sheet.add_subplot(grid[1, :3]), report)
        _ring(sheet.add_subplot(grid[1, 3:]), report)
        _skew(sheet.add_subplot(grid[2, :2]), report)
        _arrivals(sheet.add_subplot(grid[2, 2:4]), report)
        _nacks(sheet.add_subplot(grid[2, 4:]), report)
        out = BytesIO()
        # Without a date, so that the same run gives the same file.
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        sheet.savefig(out, format=kind, facecolor=_hex(colours.SEA), metadata=metadata)
    return out.getvalue()


def _hex(colour: colours.Colour) -> str:
    return f"#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"


def _heading(sheet: Figure, report: PlanetReport) -> None:
    world = report.run.world
    model = "tree" if world.core.tree else "independent"
    sheet.text(0.045, 0.972, world.title or "The planet", fontsize=16, fontweight="bold")
    sheet.text(
        0.045,
        0.953,
        f"{world.receivers.count:,} receivers, {len(report.run.ground.ring):,} on the ring · "
        f"{report.run.edge.total(Column.CUSTOMERS):,} customers, up to {world.edge.lines} lines each · loss "
        f"{world.core.loss:.2g} in the core ({model}), {world.edge.loss:.2g} at the edge · seed {world.seed}",
        fontsize=10,
    )


# ---- maps


def _map(axes: Axes, title: str) -> None:
    sea, land = np.array(colours.SEA) / 255, np.array(colours.LAND) / 255
    picture = np.where(land_raster()[:, :, None], land, sea)
    axes.imshow(picture, extent=(-180, 180, -90, 90), interpolation="bilinear", aspect="auto", zorder=0)
    axes.set(xlim=(-180, 180), ylim=(-60, 85), xticks=[], yticks=[])
    axes.set_title(title, loc="left")
    for side in axes.spines.values():
        side.set_visible(False)


def _dots(axes: Axes, report: PlanetReport, values: Floats, label: str, *, low: float, high: float) -> None:
    """Receivers where something was counted, the highest on top."""
    from matplotlib.colors import LinearSegmentedColormap

    places = report.run.ground.receivers
    shown = np.flatnonzero(np.isfinite(values))
    shown = shown[np.argsort(values[shown], kind="stable")]
    size = float(np.clip(26_000 / max(len(places), 1), 2.2, 40.0))
    palette = LinearSegmentedColormap.from_list("heat", _HEAT)
    dots = axes.scatter(
        places[shown, 1],
        places[shown, 0],
        c=values[shown],
        s=size,
        cmap=palette,
        vmin=low,
        vmax=max(high, low + 1e-9),
        linewidths=0,
        zorder=2,
        rasterized=True,
    )
    figure = axes.get_figure()
    assert figure is not None  # noqa: S101 (these axes were made in one)
    bar = figure.colorbar(dots, ax=axes, fraction=0.022, pad=0.015)
    bar.set_label(label)
    bar.outline.set_visible(False)


def _by_server(report: PlanetReport, column: Column, over: Column) -> Floats:
    table = report.run.edge.table
    share = np.full(len(report.run.ground.points), np.nan)
    some = table[:, over] > 0
    share[report.run.edge.servers[some]] = table[some, column] / table[some, over]
    return share


def _coverage(axes: Axes, report: PlanetReport) -> None:
    two = 100 * _by_server(report, Column.HEAR_TWO, Column.CUSTOMERS)
    edge = report.run.edge
    total = 100 * edge.total(Column.HEAR_TWO) / max(edge.total(Column.CUSTOMERS), 1)
    _map(axes, f"Hear two lines within {report.run.world.edge.reach_km:.0f} km: {total:.2f} % of the customers")
    # The worst on top: where somebody is short is what a planner looks for.
    _dots(axes, report, -two, "% of the region", low=-100, high=-50)
    bar = axes.get_figure().axes[-1]  # type: ignore[union-attr]
    bar.set_yticks([-100, -90, -80, -70, -60, -50], ["100", "90", "80", "70", "60", "≤50"])


def _delivery(axes: Axes, report: PlanetReport) -> None:
    table, messages = report.run.edge.table, report.run.world.edge.messages
    there = table[:, Column.EXPECTED] - table[:, Column.NEVER]
    mean = np.full(len(report.run.ground.points), np.nan)
    some = there > 0
    mean[report.run.edge.servers[some]] = table[some, Column.DELAY_SUM] / there[some] / MILLISECOND
    known = mean[np.isfinite(mean)]
    low, high = (float(np.quantile(known, share)) for share in (0.01, 0.99)) if len(known) else (0.0, 1.0)
    _map(axes, f"Delivery after the common instant, mean of {messages} messages")
    _dots(axes, report, mean, "ms", low=low, high=high)


def _repairs(axes: Axes, report: PlanetReport) -> None:
    edge = report.run.edge
    load = np.full(len(report.run.ground.points), np.nan)
    load[edge.servers] = edge.table[:, Column.REQUESTS] / report.run.world.edge.messages
    load[load == 0] = np.nan
    known = load[np.isfinite(load)]
    high = float(np.quantile(known, 0.995)) if len(known) else 1.0
    silent = int((edge.table[:, Column.REQUESTS] == 0).sum())
    _map(axes, f"Requests at a retransmit server for one message ({silent:,} servers had none)")
    _dots(axes, report, load, "requests", low=0.0, high=high)


def _ring(axes: Axes, report: PlanetReport) -> None:
    """The ring in its order, and what each of it is asked by those below and as owner."""
    ground, core = report.run.ground, report.run.core
    asked = np.full(len(ground.points), np.nan)
    asked[ground.ring] = core.asked[ground.ring] / core.tokens
    _map(axes, "NACKs that a primary receiver is sent, per token; lines are its group")
    places = ground.receivers
    spokes = np.full((3 * len(places), 2), np.nan)
    spokes[0::3], spokes[1::3] = places, places[ground.parent]
    far = np.abs(places[:, 1] - places[ground.parent, 1]) > 180  # noqa: PLR2004 (over the date line)
    spokes[0::3][far] = np.nan
    axes.plot(spokes[:, 1], spokes[:, 0], color="#9fb3d1", lw=0.35, alpha=0.55, zorder=1, rasterized=True)
    known = asked[np.isfinite(asked)]
    heads = report.run.ground.ring
    figure = axes.get_figure()
    assert figure is not None  # noqa: S101
    size = float(np.clip(4_000 / len(heads), 14, 70))
    dots = axes.scatter(places[heads, 1], places[heads, 0], c=asked[heads], s=size, cmap="cividis", vmin=0,
                        vmax=float(known.max(initial=1.0)), edgecolors="white", linewidths=0.5, zorder=3)  # fmt: skip
    bar = figure.colorbar(dots, ax=axes, fraction=0.022, pad=0.015)
    bar.set_label("NACKs")
    bar.outline.set_visible(False)


# ---- plots


def _plot(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_facecolor("#141b29")
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=_GRID, lw=0.5)
    axes.set_axisbelow(True)
    for name in ("top", "right"):
        axes.spines[name].set_visible(False)


def _skew(axes: Axes, report: PlanetReport) -> None:
    bound = report.run.world.core.timing.clock_error_ns / MILLISECOND
    counts = report.run.core.offsets
    wide = max(1.4 * bound, 1.0)
    middles = OFFSETS.middles() / MILLISECOND
    near = np.abs(middles) <= wide
    worst = float(report.run.core.skews.max()) / MILLISECOND
    _plot(axes, f"Releases: at most {worst:.2f} ms apart", "ms from the common instant", "% of the releases")
    total = max(int(counts.sum()), 1)
    # Ten bins of the tally make one bar: a few thousand releases fill them evenly.
    heights, at = counts[near], middles[near]
    cut = len(at) // 5 * 5
    axes.bar(at[:cut].reshape(-1, 5).mean(axis=1), 100 * heights[:cut].reshape(-1, 5).sum(axis=1) / total,
             width=5 * OFFSETS.step / MILLISECOND, color=_ACCENT)  # fmt: skip
    for edge, name in ((-bound, "-ε"), (bound, "+ε")):
        axes.axvline(edge, color=_BAD, lw=1.2, ls="--")
        axes.text(edge, 0.97, f" {name}", color=_BAD, transform=axes.get_xaxis_transform(), va="top")
    axes.set_xlim(-wide, wide)
    axes.set_ylim(top=1.15 * axes.get_ylim()[1])


def _arrivals(axes: Axes, report: PlanetReport) -> None:
    counts, deadline = report.run.edge.delays, report.run.world.edge.deadline_ns / MILLISECOND
    total = max(report.run.edge.total(Column.EXPECTED), 1)
    missing = 1 - np.cumsum(counts) / total
    ends = (DELAYS.low + (np.arange(DELAYS.count) + 1) * DELAYS.step) / MILLISECOND
    last = float(np.clip(report.delays_ms["last"] * 1.05, 2 * deadline, DELAYS.low + DELAYS.count * DELAYS.step))
    _plot(axes, "Customers who do not have a message yet", "ms after the common instant", "share of deliveries")
    shown = ends <= last
    axes.semilogy(ends[shown], np.maximum(missing[shown], 0.3 / total), color=_ACCENT, lw=1.6)
    axes.axvline(deadline, color=_OTHER, lw=1.2, ls="--")
    axes.text(deadline, 0.97, " deadline", color=_OTHER, transform=axes.get_xaxis_transform(), va="top")
    axes.set_ylim(0.5 / total, 1.5)


def _nacks(axes: Axes, report: PlanetReport) -> None:
    core = report.run.core
    _plot(axes, "Requests that one lost packet causes", "at least so many NACKs of the ring", "share of lost packets")
    rows = [(core.ring.per_lost, "all at once", _ACCENT)]
    if core.reduced is not None:
        rows.append((core.reduced.per_lost, f"in {report.run.world.core.reduction_sets} sets", _OTHER))
    share: Callable[[Floats], Floats] = lambda counts: 1 - np.cumsum(counts) / max(counts.sum(), 1)  # noqa: E731
    for counts, name, colour in rows:
        left = np.concatenate(([1.0], share(counts.astype(np.float64))))
        floor = 0.5 / max(counts.sum(), 1)
        axes.step(np.arange(len(left)), np.maximum(left, floor), where="post", color=colour, lw=1.8, label=name)
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.legend(frameon=False, labelcolor=_TEXT)
