"""What all sheets of maps and plots share: colours, type, and the checks before anything is computed."""

from __future__ import annotations

from colorsys import hsv_to_rgb
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

__all__ = [
    "ACCENT",
    "BACKGROUND",
    "BAD",
    "BORDER",
    "GREY",
    "GRID",
    "LAND",
    "LINE_OPACITY",
    "OTHER",
    "RECEIVER",
    "SCOPE_OPACITY",
    "SEA",
    "SHORT",
    "STYLE",
    "TEXT",
    "Colour",
    "check_pictures",
    "colour_hex",
    "heat",
    "of_address",
    "plot_frame",
    "saved",
]

Colour: TypeAlias = tuple[int, int, int]

SEA: Colour = (16, 22, 34)
LAND: Colour = (52, 60, 72)
BORDER: Colour = (84, 94, 108)
RECEIVER: Colour = (244, 246, 250)
SHORT: Colour = (255, 48, 48)
SCOPE_OPACITY = 0.28
LINE_OPACITY = 0.9

_FIRST: tuple[Colour, ...] = (
    (86, 180, 233), (230, 159, 0), (0, 178, 130), (240, 228, 66), (204, 121, 167), (213, 94, 0), (120, 130, 255),
    (160, 220, 120),
)  # fmt: skip
_TURN = 0.618034
"""Of the colour wheel: successive colours are far apart, however many there are."""

TEXT = "#dfe4ee"
GRID = "#3a4354"
ACCENT, OTHER, BAD = "#56b4e9", "#e69f00", "#ff8a65"
GREY = "#8a93a3"
_PANEL = "#141b29"
_HEAT = ("#35679f", "#5f86a8", "#9aa394", "#cfbf6b", "#ffe04d")
"""From nothing to worry about to worst, ever brighter: no eye mistakes one for the other, nor does a grey printer."""
STYLE: dict[str, Any] = {
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": GRID,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "font.size": 9,
    "svg.hashsalt": "isocast",
}


def of_address(address: int) -> Colour:
    """A colour for each address; the first few are told apart by colour-blind eyes too."""
    if address < len(_FIRST):
        return _FIRST[address]
    red, green, blue = hsv_to_rgb(address * _TURN % 1.0, 0.65, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)


def colour_hex(colour: Colour) -> str:
    """As #rrggbb."""
    return f"#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"


BACKGROUND = colour_hex(SEA)


def check_pictures(svg: Path | None, png: Path | None) -> None:
    """ConfigurationError before anything is computed: nothing to draw with, or nowhere to write."""
    for name, path in (("--svg", svg), ("--png", png)):
        if path is None:
            continue
        if find_spec("matplotlib") is None:
            raise ConfigurationError("command line", name, "needs matplotlib: pip install 'isocast[plots]'")
        if path.is_dir():
            raise ConfigurationError("command line", name, f"{path} is a directory")
        if not path.parent.is_dir():
            raise ConfigurationError("command line", name, f"there is no directory {path.parent}")


def heat() -> Colormap:
    """The scale of maps."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("heat", _HEAT)


def plot_frame(axes: Axes, title: str, x: str, y: str) -> None:
    """Title, labels and a quiet grid."""
    axes.set_facecolor(_PANEL)
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=GRID, lw=0.5)
    axes.set_axisbelow(True)
    for name in ("top", "right"):
        axes.spines[name].set_visible(False)


def saved(sheet: Figure, kind: str) -> bytes:
    """A sheet as SVG or PNG; without a date, so that the same run gives the same file."""
    out = BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    sheet.savefig(out, format=kind, facecolor=BACKGROUND, metadata=metadata)
    return out.getvalue()
