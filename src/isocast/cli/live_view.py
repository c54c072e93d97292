"""What live views share: the screen and its keys, panels, bars, states, a log, and a frame as SVG."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeAlias

from rich import box
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from isocast.terms.instants import to_seconds
from isocast.trials.demo.cast import LogNote, Tone

__all__ = [
    "FAINT",
    "MOTTO",
    "STATES",
    "bars",
    "can_draw",
    "figures",
    "header",
    "live_screen",
    "log",
    "panel",
    "picture",
]

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

DrawFrame: TypeAlias = Callable[[int, int], RenderableType]
"""A frame for a terminal of so many columns and rows."""


def can_draw() -> bool:
    """Whether standard output is a terminal that understands colours and braille."""
    encoding = (sys.stdout.encoding or "").casefold().replace("-", "")
    return sys.stdout.isatty() and encoding == "utf8" and os.environ.get("TERM", "dumb") != "dumb"


@contextmanager
def _quit_on_q() -> Iterator[None]:
    """While it lasts, the key q does what Ctrl-C does, if there is a keyboard and this event loop is in front."""
    keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
    in_front = False
    with suppress(OSError):  # A terminal of another session: its keys are not for this process.
        in_front = keyboard >= 0 and os.tcgetpgrp(keyboard) == os.getpgrp()
    if not in_front:
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


@contextmanager
def live_screen() -> Iterator[Callable[[DrawFrame], None]]:
    """The terminal's whole screen while it lasts, and q as Ctrl-C: gives what draws a frame at the terminal's size."""
    from rich.live import Live

    console = Console()
    with _quit_on_q(), Live(console=console, screen=True, auto_refresh=False) as live:
        yield lambda frame: live.update(frame(console.width, console.height), refresh=True)


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


def log(notes: Sequence[LogNote], most: int) -> RenderableType:
    """The newest line comes first: what does not fit is old."""
    lines = [
        Text.assemble((f"{to_seconds(note.at):6.1f} ", FAINT), (note.text, _TONES[note.tone]))
        for note in list(notes)[-most:][::-1]
    ]
    # A blank where there is nothing yet: for an empty text rich draws the name of the layout.
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines) if lines else Text(" ")


# A frame of a terminal as SVG that stands alone: it asks no other server for fonts.


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
