"""A frame of a terminal as SVG that stands alone: it asks no other server for fonts."""

from __future__ import annotations

import io
import re

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme

__all__ = ["picture"]

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
