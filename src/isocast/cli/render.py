"""What commands print: tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = [
    "EVENT_COLUMNS",
    "Progress",
    "entry",
    "figure",
    "in_columns",
    "line",
    "note",
    "show_json",
    "show_table",
    "showed_whole",
    "working",
]

_PLAIN_EVERY_S = 10.0
"""Between two lines of progress where there is no terminal to redraw."""

EVENT_COLUMNS = {
    "kind": 12,
    "side": 4,
    "floor": 5,
    "symbol": 8,
    "price": 14,
    "quantity": 10,
    "id": 12,
    "reference": 10,
    "flags": 0,
}
"""The columns of an event in a row of text, and the width of each; the last is as long as it likes."""
_LABEL = 12
"""The width of a name in a summary."""
_NUMBERS = frozenset({"stripe", "sequence", "token", "late_us", "number", "price", "quantity", "id"})
"""Columns that are set to the right."""


def line(text: str = "") -> None:
    """One line on standard output."""
    sys.stdout.write(f"{text}\n")


def entry(name: str, *texts: str) -> Iterator[str]:
    """Lines of a summary: the name in front of the first, the texts below each other."""
    for place, text in enumerate(texts):
        yield f"  {'' if place else name:<{_LABEL}}{text}"


def note(text: str) -> None:
    """One line beside the output, on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def show_json(value: object) -> None:
    """One JSON value, indented, in the order in which it was made."""
    import json

    line(json.dumps(value, indent=2, ensure_ascii=False))


def in_columns(cells: Mapping[str, object], columns: Mapping[str, int]) -> str:
    """A row of text in columns of fixed width; a cell that is missing is empty."""
    parts = []
    for name, width in columns.items():
        text = str(cells.get(name, ""))
        parts.append(text.rjust(width) if name in _NUMBERS else text.ljust(width))
    return "  ".join(parts).rstrip()


def showed_whole(as_json: Callable[[], object] | None, as_page: Callable[[], str] | None) -> bool:
    """Print a reference as one JSON value or as its page, whichever is given; False if it is to be shown in tables."""
    if as_json is not None:
        show_json(as_json())
    elif as_page is not None:
        line(as_page().rstrip("\n"))
    return as_json is not None or as_page is not None


def figure(value: object) -> str:
    """A value of a report as people write it."""
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.6g}"
        case None:
            return "–"
        case Mapping():
            return ", ".join(f"{name} {figure(part)}" for name, part in value.items()) or "–"
        case list() | tuple():
            return ", ".join(figure(part) for part in value) or "none"
        case _:
            return str(value)


def show_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table: drawn on a terminal, plain columns elsewhere."""
    if sys.stdout.isatty():
        _draw(title, headers, rows)
    else:
        _columns(title, headers, rows)


def _draw(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, header in enumerate(headers):
        table.add_column(header, style="bold" if place == 0 else "", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _columns(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Two blanks between columns; the last one is as long as it likes."""
    table = [list(headers), *map(list, rows)]
    widths = [max(len(row[place]) for row in table) for place in range(len(headers))]
    if title:
        line(title)
    for row in table:
        line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    line()


@contextmanager
def working(text: str, *, quiet: bool) -> Iterator[None]:
    """A spinner on a terminal while something takes its time."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


class Progress:
    """How far a count has come: a bar on a terminal, now and then a line elsewhere, nothing when quiet."""

    def __init__(self, what: str, total: int, *, quiet: bool) -> None:
        """Shows itself inside a `with` block."""
        self._what = what
        self._total = total
        self._quiet = quiet
        self._bar: Bar | None = None
        self._told = 0.0

    def __enter__(self) -> Self:
        self._told = time.monotonic()
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(*Bar.get_default_columns(), console=Console(stderr=True), transient=True)
            self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def reach(self, done: int) -> None:
        """So many of the total are done."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)
        elif not self._quiet and time.monotonic() - self._told >= _PLAIN_EVERY_S:
            self._told = time.monotonic()
            note(f"{done:,} of {self._total:,} {self._what}")
