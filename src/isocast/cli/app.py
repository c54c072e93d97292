"""The parser of all commands; each is imported when it is called."""

from __future__ import annotations

from cyclopts import App

from isocast import __version__
from isocast.cli.overview import COMMANDS, EXAMPLES, HELP

__all__ = ["app"]

app = App(
    name="isocast",
    version=f"isocast {__version__}",
    help=HELP,
    help_epilogue=EXAMPLES,
    help_format="markdown",
    suppress_keyboard_interrupt=False,
)
for _name, (_place, _) in COMMANDS.items():
    # By name: a process of a market, of which there are dozens on one machine, imports its own command alone.
    app.command(f"isocast.cli.{_place}", name=_name)
