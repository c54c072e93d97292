"""The command `isocast`: parse, call, and turn errors into one line and an exit code.

0 fine; 1 the run found something wrong; 2 bad input, named by file, key and rule; 3 the machine refused, and may not
the next time; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from itertools import pairwise

from isocast import __version__
from isocast.cli.node_run import plain_node, start_node
from isocast.cli.overview import overview
from isocast.cli.render import line, note
from isocast.runtime.operate import shutdown
from isocast.terms.errors import (
    ConfigurationError,
    IsocastError,
    JournalFull,
    NodeFailedError,
    StoreFull,
    TransportError,
)
from isocast.terms.places import local_path, scheme_of

__all__ = ["main"]

_BAD_INPUT = 2
_SYSTEM_ERROR = 3
"""A full disk, a port that is taken, a file that went away: neither the input nor the protocol is to blame."""

_HELP_FLAGS = ("--help", "-h")
_NO_PLACES = frozenset({"spark", "k8s", "http", "https", "ws", "wss", "sqlite", "postgresql"})
"""Schemes of what options take besides files and folders."""


def _insist_on_places(words: Sequence[str]) -> None:
    """Refuse URLs of files for any option of any command: Python would make a folder of that name."""
    for before, word in pairwise(["", *words]):
        option, _, value = word.rpartition("=") if word.startswith("--") else (before, "", word)
        if (scheme := scheme_of(value)) and scheme not in _NO_PLACES:
            key = option if option.startswith("-") else "path"
            place = local_path(value, "command line", key)
            raise ConfigurationError("command line", key, f"give the path itself: {place}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what it returns is the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # Closed before we came: what is said there is said to nobody.
            from pathlib import Path

            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # A terminal without Greek letters still gets its numbers.
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        _insist_on_places(words)
    except IsocastError as error:
        note(f"isocast: {error}")
        return _BAD_INPUT
    try:
        code = _called(words)
        sys.stdout.flush()
    except (TransportError, NodeFailedError, JournalFull, StoreFull) as error:
        note(f"isocast: {error}")
        return _SYSTEM_ERROR
    except IsocastError as error:
        note(f"isocast: {error}")
        return _BAD_INPUT
    except KeyboardInterrupt:
        return shutdown.interrupted(note)
    except BrokenPipeError:
        _forget_output()
        return shutdown.NOBODY_READS
    except OSError as error:
        note(f"isocast: cannot go on: {error.strerror or error}")
        try:
            sys.stdout.flush()
        except OSError:
            _forget_output()
        return _SYSTEM_ERROR
    return code if isinstance(code, int) else 0


def _forget_output() -> None:
    """What cannot be written goes nowhere: Python would complain once more when it closes the stream."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _called(words: Sequence[str]) -> object:
    """What a command returns; any exception after an interruption is reported as the interruption."""
    if not words or words[0] in _HELP_FLAGS:
        line(overview())
        return 0
    if words[0] == "--version":
        line(f"isocast {__version__}")
        return 0
    try:
        if words[0] == "node" and (asked := plain_node(words[1:])) is not None:
            return start_node(asked)
        return _parsed(words)
    except Exception as error:
        if shutdown.cause():
            raise KeyboardInterrupt from error
        raise


def _parsed(words: Sequence[str]) -> object:
    from cyclopts import CycloptsError, UnusedCliTokensError

    from isocast.cli.app import app

    try:
        return app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        if shutdown.cause():
            raise
        if isinstance(error, UnusedCliTokensError):
            said = f"{' '.join(error.unused_tokens or ())!r} is more than this command takes."
        else:
            said = " ".join(str(error).split())
        helping = " ".join(["isocast", *(error.command_chain or ()), "--help"])
        note(f"isocast: {said} ({helping} explains it)")
        return _BAD_INPUT
