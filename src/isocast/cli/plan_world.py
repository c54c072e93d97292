"""The run behind `isocast plan world`: a planet's file in, tables, JSON and pictures out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isocast.cli.render import Progress, line, note, show_json, show_table, working
from isocast.cli.sheet import (
    ACCENT,
    BACKGROUND,
    BAD,
    LAND,
    OTHER,
    SEA,
    STYLE,
    TEXT,
    check_pictures,
    heat,
    plot_frame,
    saved,
)
from isocast.cli.shipped import shipped
from isocast.cli.world_options import WorldOptions
from isocast.reformation.scopes.world import Floats
from isocast.studies.coverage.land import land_raster
from isocast.studies.planet.report import Beside, PlanetReport, page_figures, report
from isocast.studies.planet.settings import DELAYS, OFFSETS, CountColumn, load_planet, with_counts
from isocast.studies.planet.study import run_planet
from isocast.terms.instants import MILLISECOND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["WorldRun", "run_world", "show_world", "world_picture", "write_pictures"]


_PAGE_TOKENS = 4_000


@dataclass(frozen=True, eq=False)
class WorldRun:
    """A judged run, and the design's own figures if they were asked for."""

    report: PlanetReport
    page: tuple[Beside, ...]

    @property
    def sound(self) -> bool:
        """Whether every figure is what its formula says."""
        return not self.report.disagreeing and all(row.agrees is not False for row in self.page)


def run_world(file: Path | None, options: WorldOptions) -> WorldRun:
    """Read, run and judge."""
    path, how = options.file(file), options.spreading
    check_pictures(options.svg, options.png)
    world = with_counts(
        load_planet(shipped(path)),
        receivers=options.receivers,
        customers=options.customers,
        tokens=options.tokens,
        seed=options.seed,
    )
    with ExitStack() as stack:

        def stage(what: str, parts: int) -> Callable[[int], None]:
            stack.pop_all().close()
            if parts == 1:
                stack.enter_context(working("Placing receivers and customers", quiet=options.json))
                return lambda _: None
            return stack.enter_context(Progress(f"parts of the {what}", parts, quiet=options.json)).reach

        run = run_planet(world, how, stage)
    with working("The design's figures", quiet=options.json):
        page = page_figures(world.seed, how, _PAGE_TOKENS) if options.figures else []
    return WorldRun(report(run), tuple(page))


def write_pictures(run: WorldRun, options: WorldOptions) -> None:
    """Maps and plots, where they were asked for."""
    for path in (options.svg, options.png):
        if path is not None:
            from isocast.cli.plan_world import world_picture

            path.write_bytes(world_picture(run.report, "svg" if path is options.svg else "png", options.width))
            note(f"Written: {path}")


def show_world(run: WorldRun, options: WorldOptions) -> None:
    """Tables for people, or one JSON object."""
    judged = run.report
    if options.json:
        value = judged.as_json()
        if run.page:
            value["page"] = [{"figure": row.figure, "of": row.formula, "expected": row.expected, "got": row.got,
                              "agrees": row.agrees} for row in run.page]  # fmt: skip
        show_json(value)
        return
    world, edge = judged.run.world, judged.run.edge
    if world.title:
        line(world.title)
        line()
    _show_rows("The receivers, beside the formulas", judged.core)
    sets = world.core.reduction_sets
    reduction = [
        (name, f"{plain:.4g}", "–" if less is None else f"{less:.4g}") for name, plain, less in judged.reduction
    ]
    show_table(f"NACK reduction on the ring (§5.2), k_p = {sets}", ("", "all at once", "in sets"), reduction)
    _show_rows("Coverage", judged.coverage)
    _show_rows("The customers, beside the formulas", judged.edge)
    delays = [(share, f"{delay:.1f}") for share, delay in judged.delays_ms.items()]
    show_table("Delivery after the common instant", ("share", "ms"), delays)
    loads = [(name, *[f"{load[key]:,.4g}" for key in ("mean", "p99", "max")]) for name, load in judged.loads.items()]
    show_table("Load", ("", "mean", "99th percentile", "most"), loads)
    if run.page:
        _show_rows("The design's figures, by the same arrays", run.page)
    line(
        f"{world.receivers.count:,} receivers, {len(judged.run.ground.ring):,} of them on the ring; "
        f"{edge.total(CountColumn.CUSTOMERS):,} customers; {judged.run.core.tokens:,} tokens, {world.edge.messages} "
        f"messages followed to every customer; seed {world.seed}."
    )
    if not run.sound:
        rows = [*judged.disagreeing, *[row for row in run.page if row.agrees is False]]
        line(f"NOT as the formulas say: {', '.join([row.figure for row in rows])}.")


def _show_rows(title: str, rows: Sequence[Beside]) -> None:
    table = [
        (
            row.figure,
            row.formula,
            "–" if row.expected is None else f"{row.expected:.4g}",
            "–" if row.got is None else f"{row.got:.4g}",
            "" if row.agrees is None else ("yes" if row.agrees else "NO"),
        )
        for row in rows
    ]
    show_table(title, ("", "formula", "expected", "here", "agrees"), table)


# ---- The planet's picture: maps of coverage, delivery and repair load, and the distributions behind them.


_INCHES = (15.0, 12.6)
_NARROW = 1_000
"""Pixels below which panels stand under each other, so that letters stay readable."""
_NARROW_INCHES = (7.0, 31.0)
_BARS = 20
"""Of releases, up to a bound of the clocks."""
_WEST = -169.0
"""Where maps are cut: Bering Strait, where nobody lives, and not at 180 degrees through Siberia."""


def world_picture(report: PlanetReport, kind: str, width: int) -> bytes:
    """One sheet, as SVG or PNG; the same report gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    narrow = width < _NARROW
    inches = _NARROW_INCHES if narrow else _INCHES
    maps, plots = (_coverage, _delivery, _repairs, _ring), (_skew, _arrivals, _nacks)
    with mpl.rc_context(dict[Any, Any](STYLE)):
        sheet = Figure(figsize=inches, dpi=width / inches[0], facecolor=BACKGROUND)
        _heading(sheet, report, narrow=narrow)
        if narrow:
            grid = sheet.add_gridspec(7, 1, hspace=0.24, left=0.11, right=0.9, top=0.956, bottom=0.018)
            places = [grid[row] for row in range(7)]
        else:
            grid = sheet.add_gridspec(3, 6, height_ratios=(1.0, 1.0, 0.72), hspace=0.17, wspace=0.85,
                                      left=0.045, right=0.95, top=0.918, bottom=0.05)  # fmt: skip
            spans = ((0, 0, 3), (0, 3, 6), (1, 0, 3), (1, 3, 6), (2, 0, 2), (2, 2, 4), (2, 4, 6))
            places = [grid[row, begin:end] for row, begin, end in spans]
        for draw, place in zip((*maps, *plots), places, strict=True):
            draw(sheet.add_subplot(place), report)
        return saved(sheet, kind)


def _heading(sheet: Figure, report: PlanetReport, *, narrow: bool) -> None:
    world = report.run.world
    model = "tree" if world.core.tree else "independent"
    height = float(sheet.get_figheight())
    left = 0.11 if narrow else 0.045
    customers = f"{report.run.edge.total(CountColumn.CUSTOMERS):,} customers, up to {world.edge.lines} lines each"
    told = (
        f"{world.receivers.count:,} receivers, {len(report.run.ground.ring):,} on the ring · {customers}",
        f"loss {world.core.loss:.2g} in the core ({model}), {world.edge.loss:.2g} at the edge · seed {world.seed}",
    )
    sheet.text(left, 1 - 0.36 / height, world.title or "The planet", fontsize=16, fontweight="bold")
    sheet.text(left, 1 - 0.5 / height, ("\n" if narrow else " · ").join(told), fontsize=10, va="top")


# ---- maps


def _east(longitudes: Floats) -> Floats:
    """Longitudes from the cut on, so that no land is torn."""
    return np.where(longitudes < _WEST, longitudes + 360, longitudes)


def _map(axes: Axes, title: str) -> None:
    sea, land = np.array(SEA) / 255, np.array(LAND) / 255
    raster = land_raster()
    cut = round((_WEST + 180) / 360 * raster.shape[1])
    picture = np.where(np.roll(raster, -cut, axis=1)[:, :, None], land, sea)
    axes.imshow(picture, extent=(_WEST, _WEST + 360, -90, 90), interpolation="bilinear", aspect="auto", zorder=0)
    axes.set(xlim=(_WEST, _WEST + 360), ylim=(-60, 85), xticks=[], yticks=[], facecolor=BACKGROUND)
    axes.set_title(title, loc="left")
    for side in axes.spines.values():
        side.set_visible(False)


def _dots(axes: Axes, report: PlanetReport, values: Floats, label: str, *, low: float, high: float) -> None:
    """Receivers where something was counted, the highest on top; a scale that leaves some out ends in an arrow."""
    places = report.run.ground.receivers
    shown = np.flatnonzero(np.isfinite(values))
    shown = shown[np.argsort(values[shown], kind="stable")]
    size = float(np.clip(26_000 / max(len(places), 1), 2.2, 40.0))
    dots = axes.scatter(
        _east(places[shown, 1]),
        places[shown, 0],
        c=values[shown],
        s=size,
        cmap=heat(),
        vmin=low,
        vmax=max(high, low + 1e-9),
        linewidths=0,
        zorder=2,
        rasterized=True,
    )
    figure = axes.get_figure()
    assert figure is not None  # noqa: S101 (these axes were made in one)
    below, above = bool((values[shown] < low).any()), bool((values[shown] > high).any())
    extend = "both" if below and above else "max" if above else "min" if below else "neither"
    bar = figure.colorbar(dots, ax=axes, fraction=0.022, pad=0.015, extend=extend)
    bar.set_label(label)
    bar.outline.set_visible(False)


def _by_server(report: PlanetReport, column: CountColumn, over: CountColumn) -> Floats:
    table = report.run.edge.table
    share = np.full(len(report.run.ground.points), np.nan)
    some = table[:, over] > 0
    share[report.run.edge.servers[some]] = table[some, column] / table[some, over]
    return share


def _coverage(axes: Axes, report: PlanetReport) -> None:
    two = 100 * _by_server(report, CountColumn.HEAR_TWO, CountColumn.CUSTOMERS)
    edge = report.run.edge
    total = 100 * edge.total(CountColumn.HEAR_TWO) / max(edge.total(CountColumn.CUSTOMERS), 1)
    _map(axes, f"Hear two lines within {report.run.world.edge.reach_km:.0f} km: {total:.2f} % of the customers")
    # The worst on top: where somebody is short is what a planner looks for.
    _dots(axes, report, -two, "% of the region", low=-100, high=-50)
    bar = axes.get_figure().axes[-1]  # type: ignore[union-attr]
    bar.set_yticks([-100, -90, -80, -70, -60, -50], ["100", "90", "80", "70", "60", "≤50"])


def _delivery(axes: Axes, report: PlanetReport) -> None:
    table, messages = report.run.edge.table, report.run.world.edge.messages
    there = table[:, CountColumn.EXPECTED] - table[:, CountColumn.NEVER]
    mean = np.full(len(report.run.ground.points), np.nan)
    some = there > 0
    mean[report.run.edge.servers[some]] = table[some, CountColumn.DELAY_SUM] / there[some] / MILLISECOND
    known = mean[np.isfinite(mean)]
    low, high = (float(np.quantile(known, share)) for share in (0.01, 0.99)) if len(known) else (0.0, 1.0)
    _map(axes, f"Delivery after the common instant, mean of {messages} messages")
    _dots(axes, report, mean, "ms", low=low, high=high)


def _repairs(axes: Axes, report: PlanetReport) -> None:
    edge = report.run.edge
    load = np.full(len(report.run.ground.points), np.nan)
    load[edge.servers] = edge.table[:, CountColumn.REQUESTS] / report.run.world.edge.messages
    load[load == 0] = np.nan
    known = load[np.isfinite(load)]
    high = float(np.quantile(known, 0.995)) if len(known) else 1.0
    silent = int((edge.table[:, CountColumn.REQUESTS] == 0).sum())
    _map(axes, f"Requests at a retransmit server for one message ({silent:,} had none)")
    _dots(axes, report, load, "requests", low=0.0, high=high)


def _ring(axes: Axes, report: PlanetReport) -> None:
    """The ring with its groups, and what each of it is asked by those below and as owner."""
    ground, core = report.run.ground, report.run.core
    asked = np.full(len(ground.points), np.nan)
    asked[ground.ring] = core.asked[ground.ring] / core.tokens
    _map(axes, "NACKs that a primary receiver is sent, per token; lines are its group")
    places = ground.receivers
    spokes = np.full((3 * len(places), 2), np.nan)
    spokes[0::3], spokes[1::3] = places, places[ground.parent]
    spokes[:, 1] = _east(spokes[:, 1])
    far = np.abs(spokes[0::3, 1] - spokes[1::3, 1]) > 180  # noqa: PLR2004 (over the cut)
    spokes[0::3][far] = np.nan
    axes.plot(spokes[:, 1], spokes[:, 0], color="#9fb3d1", lw=0.35, alpha=0.55, zorder=1, rasterized=True)
    known = asked[np.isfinite(asked)]
    heads = report.run.ground.ring
    figure = axes.get_figure()
    assert figure is not None  # noqa: S101
    size = float(np.clip(4_000 / len(heads), 14, 70))
    dots = axes.scatter(_east(places[heads, 1]), places[heads, 0], c=asked[heads], s=size, cmap=heat(), vmin=0,
                        vmax=float(known.max(initial=1.0)), edgecolors="white", linewidths=0.5, zorder=3)  # fmt: skip
    bar = figure.colorbar(dots, ax=axes, fraction=0.022, pad=0.015)
    bar.set_label("NACKs")
    bar.outline.set_visible(False)


# ---- plots


def _skew(axes: Axes, report: PlanetReport) -> None:
    bound = report.run.world.core.timing.clock_error_ns / MILLISECOND
    counts = report.run.core.offsets
    wide = max(1.4 * bound, 1.0)
    worst = float(report.run.core.skews.max()) / MILLISECOND
    plot_frame(axes, f"Releases: at most {worst:.2f} ms apart", "ms from the common instant", "% of the releases")
    # Bars begin at the common instant and at ±ε, so that none straddles a bound and seems to exceed it.
    step = OFFSETS.step / MILLISECOND
    steps = round(bound / step)
    each = max([size for size in range(1, steps // _BARS + 1) if steps % size == 0], default=1) if steps else 5
    zero = round(-OFFSETS.low / OFFSETS.step)
    reach = min(-(-int(wide / step) // each) * each, zero // each * each)
    near = counts[zero - reach : zero + reach].reshape(-1, each).sum(axis=1)
    edges = np.arange(-reach, reach + 1, each) * step
    axes.stairs(100 * near / max(int(counts.sum()), 1), edges, fill=True, color=ACCENT)
    for edge, name in ((-bound, "-ε"), (bound, "+ε")):
        axes.axvline(edge, color=BAD, lw=1.2, ls="--")
        axes.text(edge, 0.97, f" {name}", color=BAD, transform=axes.get_xaxis_transform(), va="top")
    axes.set_xlim(-wide, wide)
    axes.set_ylim(bottom=0, top=1.15 * axes.get_ylim()[1])


def _arrivals(axes: Axes, report: PlanetReport) -> None:
    counts, deadline = report.run.edge.delays, report.run.world.edge.deadline_ns / MILLISECOND
    total = max(report.run.edge.total(CountColumn.EXPECTED), 1)
    missing = 1 - np.cumsum(counts) / total
    ends = (DELAYS.low + (np.arange(DELAYS.count) + 1) * DELAYS.step) / MILLISECOND
    last = float(np.clip(report.delays_ms["last"] * 1.05, 2 * deadline, DELAYS.low + DELAYS.count * DELAYS.step))
    plot_frame(axes, "Customers who do not have a message yet", "ms after the common instant", "share of deliveries")
    first = float(ends[int(np.argmax(counts > 0))]) - 1
    shown = (first <= ends) & (ends <= last)
    axes.semilogy(ends[shown], np.maximum(missing[shown], 0.3 / total), color=ACCENT, lw=1.6)
    axes.axvline(deadline, color=OTHER, lw=1.2, ls="--")
    axes.text(deadline, 0.97, " deadline", color=OTHER, transform=axes.get_xaxis_transform(), va="top")
    axes.set_ylim(0.5 / total, 1.5)


def _nacks(axes: Axes, report: PlanetReport) -> None:
    core = report.run.core
    plot_frame(
        axes, "Requests that one lost packet causes", "at least so many NACKs of the ring", "share of lost packets"
    )
    rows = [(core.ring.per_lost, "all at once", ACCENT)]
    if core.reduced is not None:
        rows.append((core.reduced.per_lost, f"in {report.run.world.core.reduction_sets} sets", OTHER))
    share: Callable[[Floats], Floats] = lambda counts: 1 - np.cumsum(counts) / max(counts.sum(), 1)  # noqa: E731
    for counts, name, colour in rows:
        left = np.concatenate(([1.0], share(counts.astype(np.float64))))
        floor = 0.5 / max(counts.sum(), 1)
        axes.step(np.arange(len(left)), np.maximum(left, floor), where="post", color=colour, lw=1.8, label=name)
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.legend(frameon=False, labelcolor=TEXT)
