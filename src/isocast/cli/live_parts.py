"""What live views are made of: panels, bars, states, a header, a log, a map that fits its room."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.align import Align
from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from isocast.cli.live_map import Line, Mark, draw_map, height_for
from isocast.terms.instants import to_seconds
from isocast.trials.demo.notes import Note, Tone

__all__ = [
    "FAINT",
    "MOTTO",
    "STATES",
    "bars",
    "can_draw",
    "figures",
    "fitted_map",
    "header",
    "log",
    "panel",
    "quit_on_q",
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
