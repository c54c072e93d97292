"""A stripe plan as a picture: every stripe's peak against its rate, who moves with whom, and what a listener joins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from isocast.cli.sheet import ACCENT, BACKGROUND, BAD, GREY, GRID, OTHER, STYLE, TEXT, heat, plot_frame, saved
from isocast.striping.comparing import Comparison
from isocast.striping.history import SLICES, History
from isocast.striping.judging import Judgement, StripeLoad
from isocast.striping.kinship import Kinship
from isocast.striping.plan import StripePlan
from isocast.striping.rates import rate_text
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted, duration_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["stripe_picture"]

_INCHES = (15.0, 10.2)
_NARROW = 1_000
"""Pixels below which panels stand under each other, so that letters stay readable."""
_NARROW_INCHES = (7.0, 19.0)
_HEAD_INCHES = 1.05
_SYMBOLS_MAX = 240
"""Of the matrix: more cannot be told apart."""
_NAMED = 40
"""Stripes whose names fit below their bars."""
_KILO, _HOUR = 1_000, 3_600


def stripe_picture(
    plan: StripePlan, own: Judgement, against: Comparison, history: History, kind: str, width: int
) -> bytes:
    """One sheet, as SVG or PNG; the same plan and history give the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    narrow = width < _NARROW
    inches = _NARROW_INCHES if narrow else _INCHES
    with mpl.rc_context(dict[Any, Any](STYLE)):
        sheet = Figure(figsize=inches, dpi=width / inches[0], facecolor=BACKGROUND)
        # What heads the sheet keeps its height, however tall that is.
        top = 1 - _HEAD_INCHES / inches[1]
        sheet.set_layout_engine("constrained", rect=(0.012, 0.01, 0.976, top - 0.01), hspace=0.04, wspace=0.03)
        panels = [sheet.add_subplot(4 if narrow else 2, 1 if narrow else 2, place) for place in (1, 2, 3, 4)]
        _heading(sheet, plan, history, narrow=narrow)
        _peaks(panels[0], own, against)
        _fullest(panels[1], plan, own, history)
        _kin(panels[2], plan, history)
        _listeners(panels[3], against)
        return saved(sheet, kind)


def _heading(sheet: Figure, plan: StripePlan, history: History, *, narrow: bool) -> None:
    stripes = sum(not stripe.spare for stripe in plan.stripes)
    first = datetime.fromtimestamp(int(history.start_times[0]) / SECOND, UTC)
    height = float(sheet.get_figheight())
    sheet.text(0.02, 1 - 0.42 / height, f"Stripe plan {plan.version}", fontsize=16, fontweight="bold")
    told = (
        f"{counted(plan.symbols, 'symbol')} on {counted(stripes, 'stripe')} of {rate_text(plan.stripes[0].rate)}",
        f"token period {duration_text(plan.token_period_ns)}, history from {first:%Y-%m-%d %H:%M} UTC",
        f"digest {plan.digest.hex()[:8]}",
    )
    sheet.text(0.02, 1 - 0.52 / height, ("\n" if narrow else " · ").join(told), fontsize=10, va="top")


def _shown(judgement: Judgement) -> list[StripeLoad]:
    loads = [load for load in judgement.loads if not load.stripe.spare]
    return sorted(loads, key=lambda load: (-load.peak, load.stripe.number))


def _peaks(axes: Axes, own: Judgement, against: Comparison) -> None:
    loads, hashed = _shown(own), _shown(against.hashed_judgement)
    over = sum(load.peak > load.stripe.rate and not load.stripe.conflated for load in loads)
    title = (
        "Every stripe's busiest token period is under its rate"
        if not over
        else f"{counted(over, 'stripe')} above the rate"
    )
    plot_frame(axes, title, "", "kb/s")
    at = np.arange(len(loads))
    axes.bar(at, [load.peak / _KILO for load in loads], width=0.8, color=ACCENT, label="peak, this plan")
    axes.bar(at, [load.mean / _KILO for load in loads], width=0.8, color=TEXT, label="mean while awake")
    axes.plot(at, [load.peak / _KILO for load in hashed], color=OTHER, marker="o", ms=4, lw=1.2,
              label="peak by a hash, busiest first")  # fmt: skip
    axes.step(np.append(at - 0.5, len(at) - 0.5), [load.stripe.rate / _KILO for load in [*loads, loads[-1]]],
              where="post", color=BAD, lw=1.4, ls="--", label="rate")  # fmt: skip
    axes.set_xlim(-0.6, len(loads) - 0.4)
    axes.set_ylim(bottom=0, top=1.3 * axes.get_ylim()[1])
    if len(loads) <= _NAMED:
        axes.set_xticks(at, [load.stripe.name for load in loads], rotation=35, ha="right", rotation_mode="anchor")
    else:
        axes.set_xlabel("stripes, the busiest first")
    axes.grid(visible=False, axis="x")
    axes.legend(frameon=False, labelcolor=TEXT, ncols=2, loc="upper right")


def _fullest(axes: Axes, plan: StripePlan, own: Judgement, history: History) -> None:
    """The stripe of most symbols through the history, token period by token period."""
    load = max(_shown(own), key=lambda each: (each.symbols, each.peak))
    mine = np.repeat(plan.stripes_of(history.names), np.diff(history.begins)) == load.stripe.number
    name = load.stripe.name
    plot_frame(axes, f"{name}, with most symbols ({load.symbols:,}), hour by hour",
               "hours, silences left out", "kb/s in a token period, without headers")  # fmt: skip
    per_second = 8 / (plan.token_period_ns / SECOND) / _KILO
    hours = np.arange(history.length // SLICES + 1) * plan.token_period_ns / SECOND / _HOUR
    highest = load.stripe.rate / _KILO
    for sums, colour, label in (
        (history.everything, GREY, "with announcements, which may wait"),
        (history.prices, ACCENT, "what may not wait"),
    ):
        rates = per_second * np.bincount(history.slices[mine] // SLICES, sums[mine], len(hours))
        some = rates > 0
        axes.vlines(hours[some], 0, rates[some], color=colour, lw=0.6, label=label, rasterized=True)
        highest = max(highest, float(rates.max()))
    axes.axhline(load.stripe.rate / _KILO, color=BAD, lw=1.4, ls="--", label="rate")
    axes.set_xlim(0, float(hours[-1]))
    axes.set_ylim(bottom=0, top=1.35 * highest)
    axes.legend(frameon=False, labelcolor=TEXT, loc="upper right")


def _kin(axes: Axes, plan: StripePlan, history: History) -> None:
    """The busiest symbols, stripe by stripe: how alike any two are."""
    busiest = np.sort(np.argsort(-history.totals, kind="stable")[:_SYMBOLS_MAX])
    numbers = plan.stripes_of(history.names[busiest])
    order = np.argsort(numbers, kind="stable")
    symbols, numbers = busiest[order], numbers[order]
    kinship = Kinship(history)
    matrix = np.stack([kinship.to(np.array([symbol]), symbols) for symbol in symbols.tolist()])
    np.fill_diagonal(matrix, np.nan)
    high = float(np.nanquantile(matrix, 0.99)) if len(symbols) > 1 else 1.0
    plot_frame(axes, f"Who moves with whom: {len(symbols):,} symbols, by stripe", "", "")
    axes.grid(visible=False)
    picture = axes.imshow(matrix, cmap=heat(), vmin=0.0, vmax=max(high, 0.1), interpolation="nearest", aspect="auto")
    cuts = np.flatnonzero(np.diff(numbers.astype(np.int64))) + 1
    begins, ends = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(symbols)]))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        axes.plot([begin - 0.5, end - 0.5, end - 0.5, begin - 0.5, begin - 0.5],
                  [begin - 0.5, begin - 0.5, end - 0.5, end - 0.5, begin - 0.5], color="white", lw=1.1)  # fmt: skip
    wide = [place for place in range(len(begins)) if ends[place] - begins[place] >= len(symbols) / 24]
    middles = [(begins[place] + ends[place] - 1) / 2 for place in wide]
    names = [plan.by_number[int(numbers[begins[place]])].name for place in wide]
    axes.set_xticks([])
    axes.set_yticks(middles, names)
    figure = axes.get_figure()
    assert figure is not None  # noqa: S101 (these axes were made in one)
    bar = figure.colorbar(picture, ax=axes, fraction=0.04, pad=0.015, extend="both")
    bar.set_label("correlation of activity, less the market's")
    bar.outline.set_visible(False)


def _listeners(axes: Axes, against: Comparison) -> None:
    """What somebody joins, with this plan and by a hash."""
    from matplotlib.ticker import MaxNLocator

    rows: list[tuple[str, float, float]] = [
        (f"all of {row.sector}", row.stripes, row.hashed_stripes)
        for row in sorted(against.sectors, key=lambda row: (-row.symbols, row.sector))[:12]
    ]
    if against.planned.kin_stripes:
        rows = [
            ("ten that move together", against.planned.kin_stripes, against.hashed.kin_stripes),
            ("any ten", against.planned.any_stripes, against.hashed.any_stripes),
            *rows,
        ]
    plot_frame(axes, "Stripes that a listener joins, fewer is better", "stripes", "")
    axes.grid(visible=False, axis="y")
    if not rows:
        axes.text(0.5, 0.5, "fewer than ten symbols: nothing to compare", ha="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    at = np.arange(len(rows))[::-1]
    planned, hashed = [row[1] for row in rows], [row[2] for row in rows]
    axes.barh(at + 0.19, planned, height=0.36, color=ACCENT, label="this plan")
    axes.barh(at - 0.19, hashed, height=0.36, color=OTHER, label="by a hash")
    for place, values in zip(at.tolist(), zip(planned, hashed, strict=True), strict=True):
        for value, up in zip(values, (0.19, -0.19), strict=True):
            axes.text(value, place + up, f" {value:.3g}", va="center", fontsize=8)
    axes.set_yticks(at, [row[0] for row in rows])
    axes.set_xlim(right=1.12 * max(*planned, *hashed))
    axes.set_ylim(-0.6, len(rows) + 0.2)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_color(GRID)
    axes.legend(frameon=False, labelcolor=TEXT, loc="upper right", ncols=2)
