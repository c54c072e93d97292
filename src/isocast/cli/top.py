"""`isocast top`: a running market, live in the terminal."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Flag, MarketFile
from isocast.cli.render import show_json
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.runtime.watch.status import StatusAnswer, Target

__all__ = ["top"]

_PORT_MAX = 65_535
_PLAIN_WIDTH = 200
"""Of a frame that goes into a file or a pipe."""

_EXAMPLES = """Examples:

    isocast top --config market.toml

    isocast top --url 10.0.0.5:7780 --url 10.0.0.6:7780 --authority keys/tls/ca.crt --token-file keys/status.token

    isocast top --config market.toml --once

    isocast top --config market.toml --json

q or Ctrl-C ends it. With --once and --json, exit code 1 means that a node did not answer.
"""

top = App(name="top", help_epilogue=_EXAMPLES)


@top.default
def _top(
    *,
    config: MarketFile = None,
    url: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    authority: Path | None = None,
    token_file: Path | None = None,
    once: Flag = False,
    interval: Annotated[float, Parameter(validator=Number(gte=0.1, lte=3600))] = 1.0,
    json: Flag = False,
) -> int:
    """Show a running market: every node with its state, epoch, token, sequence, rates, lateness, losses and alarms.

    All nodes are asked for their status at once, again and again; one that does not answer is shown as such.

    Parameters
    ----------
    config
        The market's file: its nodes are shown.
    url
        HOST:PORT where a node serves its status; may be given several times, instead of a file.
    authority
        The certificate of the market's authority (tls/ca.crt), for a --url whose page speaks TLS.
    token_file
        The file of the token that such a page asks for (status.token).
    once
        Print one frame and end, as happens anyway where there is no terminal.
    interval
        Seconds between two looks.
    json
        Print all statuses once, as a JSON list.
    """
    title, targets = _targets(config, url or [], authority, token_file)
    if json:
        answers = _look(targets)
        show_json([_as_json(answer) for answer in answers])
        return _code(answers)
    if once or not sys.stdout.isatty():
        return _print_frame(title, targets)
    _watch(title, targets, interval)
    return 0


def _targets(
    config: Path | None, urls: list[str], authority: Path | None, token_file: Path | None
) -> tuple[str, list[Target]]:
    from isocast.runtime.market.tls_files import read_token
    from isocast.runtime.net.tls import trusting
    from isocast.runtime.watch.status import node_target

    if config is not None and urls:
        raise ConfigurationError("command line", "--config", "give either a market's file or --url HOST:PORT")
    if urls:
        tls = None if authority is None else trusting(authority)
        token = "" if token_file is None else read_token(token_file)
        return "", [replace(_target(text), tls=tls, token=token) for text in urls]
    if authority is not None or token_file is not None:
        raise ConfigurationError("command line", "--token-file", "a market's file names its own: give it with --url")
    from isocast.runtime.market.file import open_market
    from isocast.runtime.market.model import NodeRole

    market = open_market(config)
    targets = [
        node_target(market, plan, may_be_away=plan.role is NodeRole.CUSTOMER and not plan.start)
        for plan in market.nodes
        if plan.http_port
    ]
    if not targets:
        raise ConfigurationError(str(config), "http_port", "no node serves its status; give at least one a port")
    return market.name, targets


def _target(text: str) -> Target:
    """HOST:PORT, with or without http:// or https:// before it."""
    from isocast.runtime.watch.status import Target

    host, _, port = text.removeprefix("http://").removeprefix("https://").rstrip("/").rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX):
        raise ConfigurationError("command line", "--url", f'"{text}" is not HOST:PORT')
    return Target(host.strip("[]"), int(port))


def _look(targets: list[Target]) -> list[StatusAnswer]:
    return shutdown.run(_answers(targets))


async def _answers(targets: list[Target]) -> list[StatusAnswer]:
    """Of everybody who should be there, or is."""
    from isocast.runtime.watch.status import poll

    return [answer for answer in await poll(targets) if answer.status is not None or not answer.target.may_be_away]


def _code(answers: list[StatusAnswer]) -> int:
    return int(any(answer.status is None for answer in answers))


def _as_json(answer: StatusAnswer) -> dict[str, object]:
    return {
        "name": answer.status.name if answer.status else answer.target.title,
        "address": f"{answer.target.host}:{answer.target.port}",
        "trouble": answer.trouble or None,
        "status": answer.status.as_json() if answer.status else None,
    }


def _print_frame(title: str, targets: list[Target]) -> int:
    from rich.console import Console

    from isocast.cli.top_view import frame

    answers = _look(targets)
    console = Console() if sys.stdout.isatty() else Console(width=_PLAIN_WIDTH, no_color=True)
    console.print(frame(title, answers, width=console.width))
    return _code(answers)


def _watch(title: str, targets: list[Target], interval: float) -> None:
    from isocast.cli.live_view import live_screen
    from isocast.cli.top_view import frame

    async def look_again() -> None:
        loop = asyncio.get_running_loop()
        with live_screen() as draw:
            while True:
                due = loop.time() + interval
                answers = await _answers(targets)
                draw(partial(frame, title, answers))
                await asyncio.sleep(max(due - loop.time(), 0))

    try:
        shutdown.run(look_again())
    except KeyboardInterrupt:
        return
