"""The picture of the README: `python -m isocast.cli.live_picture docs/assets/demo.svg` draws one frame of the demo.

The file stands alone: it asks no other server for fonts.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from isocast.cli.live import beats
from isocast.cli.live_scene import watch
from isocast.cli.live_story import demo_scenario
from isocast.cli.live_view import frame
from isocast.terms.instants import SECOND

__all__ = ["main", "picture"]

_SIZE = (100, 40)
_AT_NS = 23 * SECOND + 350 * SECOND // 1000
"""London is back and catches up; repairs are under way."""
_FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_ANSI = [
    (20, 22, 28), (224, 82, 82), (88, 190, 120), (226, 190, 80), (92, 140, 230), (186, 120, 220), (86, 190, 210), (214, 218, 226),
]  # fmt: skip
_THEME = TerminalTheme((20, 22, 28), (214, 218, 226), _ANSI, _ANSI)


def picture(at_ns: int = _AT_NS) -> str:
    """One frame as SVG; the same every time."""
    scenario = demo_scenario()
    scene, run = watch(scenario, scenario.seed)
    for _ in beats(scene, run):
        if scene.now >= at_ns:
            break
    width, height = _SIZE
    console = Console(width=width, height=height, record=True, file=io.StringIO(), force_terminal=True)
    console.print(frame(scene, run, width, height))
    return console.export_svg(title="isocast demo", theme=_THEME, code_format=_format(), unique_id="isocast")


def _format() -> str:
    """Rich's own, without its remote fonts and its comment."""
    text = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;]+;", f"font-family: {_FONTS};", text)
    return re.sub(r"\n\s*\n+", "\n", text)


def main(path: str) -> None:
    """Write it."""
    Path(path).write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
