"""What live views are made of: panels, bars, states, a log, a world map in braille dots, and a frame as SVG."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from rich import box
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.align import Align
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from isocast.terms.instants import to_seconds
from isocast.terms.topology import City
from isocast.trials.demo.cast import Note, Tone

__all__ = [
    "COASTS",
    "FAINT",
    "LAKES",
    "MOTTO",
    "STATES",
    "Corner",
    "Line",
    "Mark",
    "bars",
    "can_draw",
    "draw_map",
    "figures",
    "fitted_map",
    "header",
    "height_for",
    "log",
    "panel",
    "picture",
    "quit_on_q",
]


# ---- The coasts of the map, drawn by hand: a few dozen corners to a continent, enough to know where London is.


Corner: TypeAlias = tuple[float, float]
"""Longitude and latitude in degrees, east and north positive."""

# A closed line each; what is indented goes on.
_LAND = """
-168,66 -162,60 -158,57 -152,59 -146,61 -139,59 -134,57 -130,53 -124,48 -124,40 -120,34 -117,32 -113,27 -110,23
  -112,29 -109,26 -105,20 -97,16 -92,14 -87,12 -83,8 -78,8 -77,9 -82,10 -83,15 -88,16 -87,21 -90,21 -92,18
  -96,19 -97,25 -95,29 -90,29 -84,30 -82,27 -80,25 -80,31 -76,35 -74,40 -70,42 -67,45 -60,46 -65,49 -60,50
  -56,52 -61,57 -65,60 -70,61 -77,62 -78,58 -79,54 -81,52 -83,55 -90,57 -94,59 -94,62 -88,64 -83,68 -88,69
  -95,70 -108,68 -116,69 -126,70 -136,69 -145,70 -156,71 -163,68
-65,62 -72,64 -74,67 -85,70 -88,73 -80,73 -72,71 -63,67
-117,69 -105,69 -102,72 -112,73 -118,72
-95,75 -80,75 -65,82 -95,82
-54,66 -50,62 -44,60 -41,64 -33,68 -22,70 -20,75 -18,80 -60,80 -70,77 -60,75 -54,71
-24,65 -22,63 -18,63 -13,65 -16,67 -22,66
-85,22 -80,24 -74,20 -78,20
-74,20 -68,19 -71,17
-77,8 -75,11 -72,12 -68,11 -62,10 -57,6 -51,4 -50,0 -44,-3 -38,-4 -35,-7 -37,-12 -39,-17 -41,-22 -47,-25 -49,-28
  -53,-33 -57,-36 -58,-38 -62,-39 -65,-42 -66,-47 -69,-51 -68,-55 -73,-53 -75,-48 -73,-40 -71,-30 -70,-20
  -76,-14 -80,-6 -81,-4 -80,0 -78,3
-6,36 0,36 10,37 11,33 20,31 23,33 32,31 34,28 37,21 39,16 43,12 51,12 48,5 41,-2 39,-7 40,-14 35,-20 35,-24
  32,-28 27,-34 19,-35 17,-29 12,-18 13,-9 9,-1 9,4 4,6 -4,5 -8,4 -13,8 -17,13 -17,21 -13,27 -9,31
44,-16 49,-12 50,-16 47,-25 44,-24
-9,37 -9,43 -2,43 -1,46 -4,48 1,50 4,52 8,54 8,57 10,57 10,55 14,54 19,54 21,57 24,57 24,59 30,60 22,60 21,63
  25,65 22,66 17,61 18,60 16,57 13,55 11,59 5,58 5,62 12,66 18,69 26,71 33,69 41,67 34,66 35,64 40,64 44,66
  46,68 55,68 61,69 68,68 67,72 73,72 80,73 87,75 100,76 106,77 113,74 127,73 140,72 152,71 160,70 170,70 180,69
  180,65 177,62 170,60 163,58 162,55 157,51 156,57 163,61 155,59 143,59 135,54 141,52 140,48 135,43 130,42
  127,39 129,37 129,35 126,34 126,37 125,39 121,39 121,41 118,39 119,37 122,37 119,35 122,31 120,26 116,23
  110,21 108,21 106,19 109,13 107,10 105,9 103,11 100,13 100,9 103,4 104,1 101,3 98,8 98,16 95,16 94,19 91,22
  87,21 82,16 80,13 80,10 77,8 76,11 73,17 72,21 70,21 67,25 61,25 57,26 51,28 48,30 50,27 51,25 54,24 56,26
  59,22 55,17 45,13 43,13 39,21 35,28 34,31 36,36 30,36 27,37 26,40 30,41 36,41 41,41 37,45 39,47 35,46 33,44
  31,46 28,44 28,41 24,41 22,37 19,40 19,42 14,45 12,44 16,41 18,40 16,38 15,40 12,42 8,44 3,43 0,40 0,38 -2,37
  -5,36
-6,50 1,51 0,53 -2,56 -3,59 -6,58 -5,54 -3,53 -5,52
-10,52 -6,52 -6,55 -8,55
52,71 57,71 68,77 60,76
130,31 132,34 136,34 140,35 142,39 141,41 140,40 138,37 133,35 130,34
140,42 145,43 142,46
142,46 144,49 143,54
120,23 121,22 122,25
120,18 122,18 122,14 124,13 120,14
122,7 126,6 126,10 123,8
79,9 82,7 80,6
95,6 98,4 103,-1 106,-6 102,-4
105,-6 114,-7 114,-9 106,-8
109,1 113,3 117,7 119,5 117,0 116,-4 110,-3
119,-5 119,-3 120,1 125,1 121,-1 123,-4 121,-4
131,-1 135,-3 141,-3 147,-6 150,-10 144,-8 138,-8 133,-4
114,-22 114,-27 115,-34 118,-35 124,-33 131,-31 135,-35 138,-35 141,-38 147,-39 150,-37 153,-31 153,-25 146,-19
  145,-15 142,-11 141,-16 139,-17 136,-15 137,-12 131,-12 129,-15 125,-14 122,-18
144,-41 148,-41 147,-44
173,-34 179,-37 175,-42 174,-39 175,-37
173,-40 174,-42 170,-46 167,-46 168,-44
"""
_WATER = """
47,45 51,47 53,45 52,41 54,37 49,37 49,40
"""  # The Caspian Sea; the Black Sea is part of the coast.


def _lines(text: str) -> tuple[tuple[Corner, ...], ...]:
    outlines = []
    for words in text.replace("\n  ", " ").strip().splitlines():
        corners = [word.split(",") for word in words.split()]
        outlines.append(tuple([(float(longitude), float(latitude)) for longitude, latitude in corners]))
    return tuple(outlines)


COASTS = _lines(_LAND)
LAKES = _lines(_WATER)


# ---- A small world map in braille dots: land, markers with labels, and lines between cities.


_Cell: TypeAlias = tuple[int, int]

_NORTH, _SOUTH = 78.0, -57.0
_DOTS_ACROSS, _DOTS_DOWN = 2, 4
_BRAILLE = 0x2800
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Of the dot in a row and column of a braille character."""

_SEA = "default"
_LIVE_MAP_LAND = "color(240)"


@dataclass(frozen=True, slots=True)
class Mark:
    """A city on the map."""

    place: City
    symbol: str
    style: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line from one city towards another; `share` of the way is drawn."""

    start: City
    end: City
    style: str
    share: float = 1.0


def height_for(columns: int) -> int:
    """Rows that keep the world's shape: a character is about twice as high as wide."""
    return max(round(columns * (_NORTH - _SOUTH) / 360 / 2), 1)


def draw_map(columns: int, rows: int, marks: Sequence[Mark], lines: Iterable[Line] = ()) -> Text:
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
    return (chr(_BRAILLE + bits), styles.get(cell, _LIVE_MAP_LAND)) if bits else (" ", _SEA)


# Land ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _land(columns: int, rows: int) -> dict[_Cell, int]:
    """The braille bits of every cell with land, from points in the middle of each dot."""
    wide, high = columns * _DOTS_ACROSS, rows * _DOTS_DOWN
    cells: dict[_Cell, int] = {}
    for y in range(high):
        latitude = _NORTH - (y + 0.5) * (_NORTH - _SOUTH) / high
        crossings = [_crossings(coast, latitude) for coast in COASTS]
        lakes = [_crossings(lake, latitude) for lake in LAKES]
        for x in range(wide):
            longitude = (x + 0.5) * 360 / wide - 180
            if _inside_any(crossings, longitude) and not _inside_any(lakes, longitude):
                cell = (x // _DOTS_ACROSS, y // _DOTS_DOWN)
                cells[cell] = cells.get(cell, 0) | _BITS[y % _DOTS_DOWN][x % _DOTS_ACROSS]
    return cells


def _crossings(coast: tuple[Corner, ...], latitude: float) -> list[float]:
    """Longitudes at which a coast crosses a parallel."""
    cuts = []
    for (x1, y1), (x2, y2) in zip(coast, (*coast[1:], coast[0]), strict=True):
        if (y1 > latitude) != (y2 > latitude):
            cuts.append(x1 + (latitude - y1) * (x2 - x1) / (y2 - y1))
    return cuts


def _inside_any(outlines: list[list[float]], longitude: float) -> bool:
    """Inside a line whoever crosses it an odd number of times on the way east."""
    return any(len([cut for cut in cuts if cut > longitude]) % 2 for cuts in outlines)


# Lines --------------------------------------------------------------------------------------------


def _dot(place: City, columns: int, rows: int) -> tuple[float, float]:
    x = (place.longitude + 180) / 360 * columns * _DOTS_ACROSS
    y = (_NORTH - place.latitude) / (_NORTH - _SOUTH) * rows * _DOTS_DOWN
    return x, y


def _dots_of(line: Line, columns: int, rows: int) -> dict[_Cell, int]:
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


FAINT = "color(245)"
MOTTO = "one sequence, one instant"

STATES = {
    "token": ("◆ token", "bold yellow"),
    "ring": ("● ring", "cyan"),
    "outside": ("○ outside", "magenta"),
    "ballot": ("◌ ballot", "magenta"),
    "start": ("◌ start", FAINT),
    "down": ("✖ down", "bold red"),
}
"""A receiver's state as it is written, and its colour."""

_TONES = {Tone.TOKEN: FAINT, Tone.REPAIR: "green", Tone.TROUBLE: "bold red", Tone.RING: "bold cyan"}
_BARS = "▁▂▃▄▅▆▇█"
_STRETCH = 1.3


def can_draw() -> bool:
    """Whether standard output is a terminal that understands colours and braille."""
    encoding = (sys.stdout.encoding or "").casefold().replace("-", "")
    return sys.stdout.isatty() and encoding == "utf8" and os.environ.get("TERM", "dumb") != "dumb"


@contextmanager
def quit_on_q() -> Iterator[None]:
    """While it lasts, the key q does what Ctrl-C does, if there is a keyboard and this event loop is in front."""
    keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
    if keyboard < 0 or os.tcgetpgrp(keyboard) != os.getpgrp():
        yield
        return

    def pressed() -> None:
        if b"q" in os.read(keyboard, 64).lower():
            signal.raise_signal(signal.SIGINT)

    before = termios.tcgetattr(keyboard)
    loop = asyncio.get_running_loop()
    tty.setcbreak(keyboard, termios.TCSANOW)
    loop.add_reader(keyboard, pressed)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def panel(content: RenderableType, title: str) -> Panel:
    """A part of the screen with a border and its name."""
    return Panel(
        content,
        title=Text(title, style="bold color(252)"),
        title_align="left",
        box=box.ROUNDED,
        border_style="color(239)",
        padding=0,
    )


def header(seconds: float, words: str, style: str, right: Text, width: int) -> Text:
    """The first line: name, time, what is going on, and something at the right if there is room."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(" Isocast ", style="bold black on yellow")
    text.append(f" {seconds:5.1f} s  ", style="bold")
    text.append(words, style=style)
    room = width - text.cell_len - right.cell_len - 1
    if room > 0:
        text.append(" " * room)
        text.append_text(right)
    return text


def fitted_map(columns: int, rows: int, marks: Sequence[Mark], lines: Iterable[Line]) -> RenderableType:
    """As wide as its height allows, and a little wider: better a stretched world than an empty sea."""
    wide = min(columns, round(_STRETCH * rows * columns / height_for(columns)))
    return Align.center(draw_map(max(wide, 20), rows, marks, lines))


def figures(rows: Iterable[tuple[str, str, str]]) -> Table:
    """Names with their values, each in its colour."""
    table = Table.grid(padding=(0, 1), pad_edge=True)
    table.add_column(style=FAINT, no_wrap=True, min_width=10)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, value, style in rows:
        table.add_row(name, Text(value, style=style))
    return table


def bars(values: Sequence[float], top: float, styles: Sequence[str]) -> tuple[Text, Text]:
    """Two rows of eighths of a character; both full stand for `top`."""
    steps = len(_BARS)
    upper, lower = Text(" "), Text(" ")
    for value, style in zip(values, styles, strict=True):
        eighths = min(max(round(value / max(top, 1) * 2 * steps), 1), 2 * steps)
        upper.append(_BARS[eighths - steps - 1] if eighths > steps else " ", style=style)
        lower.append(_BARS[min(eighths, steps) - 1], style=style)
    return upper, lower


def log(notes: Sequence[Note], most: int) -> RenderableType:
    """The newest line comes first: what does not fit is old."""
    lines = [
        Text.assemble((f"{to_seconds(note.at):6.1f} ", FAINT), (note.text, _TONES[note.tone]))
        for note in list(notes)[-most:][::-1]
    ]
    # A blank where there is nothing yet: for an empty text rich draws the name of the layout.
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines) if lines else Text(" ")


# ---- A frame of a terminal as SVG that stands alone: it asks no other server for fonts.


_BLANK = "&#160;"
_DOTS = re.compile("[\u2800-\u28ff]")
_CELL = 12.2
"""Width of a character in the picture."""
_FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_DARK, _LIGHT = (20, 22, 28), (214, 218, 226)
_RED, _GREEN, _YELLOW = (224, 82, 82), (88, 190, 120), (226, 190, 80)
_BLUE, _MAGENTA, _CYAN = (92, 140, 230), (186, 120, 220), (86, 190, 210)
_COLOURS = [_DARK, _RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN, _LIGHT]
_THEME = TerminalTheme(_DARK, _LIGHT, _COLOURS, _COLOURS)


def picture(frame: RenderableType, width: int, height: int, title: str) -> str:
    """One frame of so many characters, with a title above it."""
    console = Console(width=width, height=height, record=True, file=io.StringIO(), force_terminal=True)
    console.print(frame)
    drawn = console.export_svg(title=title, theme=_THEME, code_format=_format(), unique_id="isocast")
    return re.sub(
        r'(<text [^>]*?)x="([^"]+)"([^>]*?)textLength="([^"]+)"([^>]*>)([^<]*)</text>', _without_blanks, drawn
    )


def _format() -> str:
    """Rich's own, without its remote fonts and its comment."""
    text = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;]+;", f"font-family: {_FONTS};", text)
    return re.sub(r"\n\s*\n+", "\n", text)


def _without_blanks(found: re.Match[str]) -> str:
    """Blanks at the ends of a text become its place and length: not every program draws them."""
    before, x, between, length, after, text = found.groups()
    inner = text
    while inner.startswith(_BLANK):
        inner = inner[len(_BLANK) :]
    left = (len(text) - len(inner)) // len(_BLANK)
    shown = inner
    while shown.endswith(_BLANK):
        shown = shown[: -len(_BLANK)]
    right = (len(inner) - len(shown)) // len(_BLANK)
    if not shown.strip():
        return ""
    place, width = float(x) + left * _CELL, float(length) - (left + right) * _CELL
    if _DOTS.search(shown):  # Another font's, perhaps of another width: each at its own place.
        letters = enumerate(shown.replace(_BLANK, " "))
        return "".join(
            [
                f'{before}x="{place + n * _CELL:.1f}"{between}{after.lstrip()}{dots}</text>'
                for n, dots in letters
                if dots != " "
            ]
        )
    return f'{before}x="{place:.1f}"{between}textLength="{width:.1f}"{after}{shown}</text>'
