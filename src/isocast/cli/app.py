"""The parser of all commands; each is imported when it is called."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cyclopts import App, Parameter, convert

from isocast import __version__
from isocast.cli.overview import COMMANDS, EXAMPLES, HELP

__all__ = ["app"]

_WHOLE = re.compile(r"[+-]?[0-9]+")


def _read(hint: type, words: Sequence[str]) -> object:
    """Every value of every command as cyclopts reads it, but for whole numbers: it rounds `10.5`, an order, to 10."""
    return convert(hint, words, converter=_read_one)


def _read_one(hint: type, word: str) -> object:
    if hint is int and not _WHOLE.fullmatch(word):
        raise ValueError
    return convert(hint, (word,))


app = App(
    name="isocast",
    version=f"isocast {__version__}",
    help=HELP,
    help_epilogue=EXAMPLES,
    help_format="markdown",
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(converter=_read),
)
for _name, (_place, _) in COMMANDS.items():
    # By name: a process of a market, of which there are dozens on one machine, imports its own command alone.
    app.command(f"isocast.cli.{_place}", name=_name)
