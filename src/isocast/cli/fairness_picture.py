"""The picture of `isocast fairness entry`: for each rule a map of pairs, and who is first by city."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isocast.cli.sheet import ACCENT, BACKGROUND, STYLE, TEXT, plot_frame, saved
from isocast.terms.topology import city

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from isocast.studies.entry.figures import EntryFigures

__all__ = ["entry_picture"]

_COLUMNS = 3
_PANEL = (4.4, 5.4)
_NAMED_MAX = 14
"""More cities than that have no room for figures in their cells."""
_DIVERGING = ("#e69f00", "#141b29", "#56b4e9")
"""Behind, even, ahead: apart for every eye, and dark where nothing is wrong."""


def entry_picture(found: Sequence[EntryFigures], names: Sequence[str], titles: Mapping[str, str], kind: str) -> bytes:
    """One sheet, as SVG or PNG: a cell is how often the city of its row is before the city of its column."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, max(len(found), 1))
    rows = -(-max(len(found), 1) // columns)
    with mpl.rc_context(dict[Any, Any](STYLE)):
        sheet = Figure(figsize=(_PANEL[0] * columns + 0.8, _PANEL[1] * rows + 0.6), dpi=120, layout="constrained")
        sheet.set_facecolor(BACKGROUND)
        contests = found[0].contests if found else 0
        sheet.suptitle(f"Row before column, share of {contests:,} contests; even is 0.50", fontsize=12)
        grid = sheet.add_gridspec(2 * rows, columns, height_ratios=[3, 1] * rows)
        image, maps = None, []
        highest = max([share for one in found for share in one.first.values()], default=1.0)
        for place, one in enumerate(found):
            row, column = divmod(place, columns)
            axes = sheet.add_subplot(grid[2 * row, column])
            image = _pairs(axes, one, names, titles[one.rule])
            maps.append(axes)
            _first(sheet.add_subplot(grid[2 * row + 1, column]), one, names, highest)
        if image is not None:
            _scale(sheet, image, maps)
        return saved(sheet, kind)


def _codes(names: Sequence[str]) -> list[str]:
    return [place.code if (place := city(name)) is not None else name for name in names]


def _pairs(axes: Axes, figures: EntryFigures, names: Sequence[str], title: str) -> AxesImage:
    from matplotlib.colors import LinearSegmentedColormap

    shares = np.full((len(names), len(names)), np.nan)
    for pair in figures.pairs:
        row, column = names.index(pair.first), names.index(pair.second)
        shares[row, column], shares[column, row] = pair.share, 1 - pair.share
    scale = LinearSegmentedColormap.from_list("pairs", _DIVERGING)
    axes.set_facecolor(BACKGROUND)
    image = axes.imshow(shares, cmap=scale, vmin=0, vmax=1)
    codes = _codes(names)
    axes.set_xticks(range(len(names)), codes, rotation=90)
    axes.set_yticks(range(len(names)), codes)
    worst = figures.worst
    off = "" if worst is None else f"\nat most {abs(worst.distance):.3f} from ½"
    axes.set_title(f"{title}{off}", loc="left", fontsize=10)
    if len(names) <= _NAMED_MAX:
        for (row, column), share in np.ndenumerate(shares):
            if not np.isnan(share):
                text = f"{share:.2f}".removeprefix("0")
                axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=TEXT)
    return image


def _first(axes: Axes, figures: EntryFigures, names: Sequence[str], highest: float) -> None:
    plot_frame(axes, "", "", "first place")
    axes.bar(range(len(names)), [figures.first[name] for name in names], color=ACCENT, width=0.7)
    axes.axhline(1 / max(len(names), 1), color=TEXT, lw=0.8, ls="--")
    axes.set_xticks(range(len(names)), _codes(names), rotation=90)
    axes.set_ylim(0, 1.05 * highest)


def _scale(sheet: Figure, image: AxesImage, maps: Sequence[Axes]) -> None:
    bar = sheet.colorbar(image, ax=list(maps), shrink=0.5, pad=0.01)
    bar.set_label("share of contests in which the row is first")
