"""A world map in braille dots: land, cities with labels, and lines between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from rich.align import Align
from rich.console import RenderableType
from rich.text import Text

from isocast.studies.coverage.land import on_land
from isocast.terms.topology import City

__all__ = ["MapLine", "Mark", "draw_map", "fitted_map", "height_for"]

_Cell: TypeAlias = tuple[int, int]

_NORTH, _SOUTH = 78.0, -57.0
_DOTS_ACROSS, _DOTS_DOWN = 2, 4
_BRAILLE = 0x2800
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Of the dot in a row and column of a braille character."""

_SEA = "default"
_LAND = "color(240)"
_STRETCH = 1.3


@dataclass(frozen=True, slots=True)
class Mark:
    """A city on the map."""

    place: City
    symbol: str
    style: str


@dataclass(frozen=True, slots=True)
class MapLine:
    """A line from one city towards another; `share` of the way is drawn."""

    start: City
    end: City
    style: str
    share: float = 1.0


def height_for(columns: int) -> int:
    """Rows that keep the world's shape: a character is about twice as high as wide."""
    return max(round(columns * (_NORTH - _SOUTH) / 360 / 2), 1)


def fitted_map(columns: int, rows: int, marks: Sequence[Mark], lines: Iterable[MapLine]) -> RenderableType:
    """As wide as its height allows, and a little wider: better a stretched world than an empty sea."""
    wide = min(columns, round(_STRETCH * rows * columns / height_for(columns)))
    return Align.center(draw_map(max(wide, 20), rows, marks, lines))


def draw_map(columns: int, rows: int, marks: Sequence[Mark], lines: Iterable[MapLine] = ()) -> Text:
    """Land first, then lines, then labels and markers."""
    dots = dict(_land(columns, rows))
    styles: dict[_Cell, str] = {}
    for line in lines:
        for cell, bits in _dots_of(line, columns, rows).items():
            dots[cell] = bits if cell not in styles else dots[cell] | bits
            styles[cell] = line.style
    letters = _letters(tuple([mark.place for mark in marks]), columns, rows)
    shown: dict[_Cell, tuple[str, str]] = {}
    for mark, (cell, label) in zip(marks, letters, strict=True):
        shown.update({place: (letter, mark.style) for place, letter in label.items()})
        shown[cell] = (mark.symbol, mark.style)
    text = Text(no_wrap=True, overflow="crop")
    for row in range(rows):
        cells = [_character((column, row), dots, styles, shown) for column in range(columns)]
        for style, run in groupby(cells, key=itemgetter(1)):
            text.append("".join([letter for letter, _ in run]), style)
        if row < rows - 1:
            text.append("\n")
    return text


def _character(
    cell: _Cell, dots: Mapping[_Cell, int], styles: Mapping[_Cell, str], shown: Mapping[_Cell, tuple[str, str]]
) -> tuple[str, str]:
    if cell in shown:
        return shown[cell]
    bits = dots.get(cell, 0)
    return (chr(_BRAILLE + bits), styles.get(cell, _LAND)) if bits else (" ", _SEA)


@lru_cache(maxsize=8)
def _land(columns: int, rows: int) -> dict[_Cell, int]:
    """The braille bits of every cell with land, from points in the middle of each dot."""
    wide, high = columns * _DOTS_ACROSS, rows * _DOTS_DOWN
    latitudes = _NORTH - (np.arange(high) + 0.5) * (_NORTH - _SOUTH) / high
    longitudes = (np.arange(wide) + 0.5) * 360 / wide - 180
    dots = np.stack(np.meshgrid(latitudes, longitudes, indexing="ij"), axis=-1).reshape(-1, 2)
    cells: dict[_Cell, int] = {}
    for dot in np.flatnonzero(on_land(dots)).tolist():
        y, x = divmod(dot, wide)
        cell = (x // _DOTS_ACROSS, y // _DOTS_DOWN)
        cells[cell] = cells.get(cell, 0) | _BITS[y % _DOTS_DOWN][x % _DOTS_ACROSS]
    return cells


# Lines --------------------------------------------------------------------------------------------


def _dot(place: City, columns: int, rows: int) -> tuple[float, float]:
    x = (place.longitude + 180) / 360 * columns * _DOTS_ACROSS
    y = (_NORTH - place.latitude) / (_NORTH - _SOUTH) * rows * _DOTS_DOWN
    return x, y


def _dots_of(line: MapLine, columns: int, rows: int) -> dict[_Cell, int]:
    """Every second dot of a straight line, so that it looks like a track."""
    (x1, y1), (x2, y2) = _dot(line.start, columns, rows), _dot(line.end, columns, rows)
    steps = max(round(max(abs(x2 - x1), abs(y2 - y1))), 1)
    cells: dict[_Cell, int] = {}
    for step in range(0, round(steps * min(max(line.share, 0.0), 1.0)) + 1, 2):
        x, y = int(x1 + (x2 - x1) * step / steps), int(y1 + (y2 - y1) * step / steps)
        cell = (x // _DOTS_ACROSS, y // _DOTS_DOWN)
        cells[cell] = cells.get(cell, 0) | _BITS[y % _DOTS_DOWN][x % _DOTS_ACROSS]
    return cells


# Labels -------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _letters(places: tuple[City, ...], columns: int, rows: int) -> list[tuple[_Cell, dict[_Cell, str]]]:
    """A cell for each marker, no two alike, and cells for its label where there is room."""
    taken: dict[_Cell, None] = {}
    cells: list[_Cell] = []
    for place in places:
        x, y = _dot(place, columns, rows)
        cell = _free_cell((int(x) // _DOTS_ACROSS, int(y) // _DOTS_DOWN), taken, columns, rows)
        taken[cell] = None
        cells.append(cell)
    labelled = []
    for place, cell in zip(places, cells, strict=True):
        label = _label(place.code, cell, taken, columns, rows)
        taken.update(dict.fromkeys(label))
        labelled.append((cell, label))
    return labelled


def _free_cell(cell: _Cell, taken: Mapping[_Cell, None], columns: int, rows: int) -> _Cell:
    """The cell itself, or the nearest one that no other city has."""
    near = sorted(
        [(dx, dy) for dx in range(-3, 4) for dy in range(-1, 2)],
        key=lambda step: (abs(step[0]) + 2 * abs(step[1]), step),
    )
    for dx, dy in near:
        column, row = min(max(cell[0] + dx, 0), columns - 1), min(max(cell[1] + dy, 0), rows - 1)
        if (column, row) not in taken:
            return column, row
    return cell


def _label(code: str, cell: _Cell, taken: Mapping[_Cell, None], columns: int, rows: int) -> dict[_Cell, str]:
    """Right of the marker, left, below or above; nowhere if all of that is taken."""
    column, row = cell
    size = len(code)
    for first, line in (
        (column + 1, row),
        (column - size, row),
        (column, row + 1),
        (column, row - 1),
        (column - size + 1, row + 1),
        (column - size + 1, row - 1),
    ):
        wanted = {(first + place, line): letter for place, letter in enumerate(code)}
        if all(0 <= x < columns and 0 <= y < rows and (x, y) not in taken for x, y in wanted):
            return wanted
    return {}
