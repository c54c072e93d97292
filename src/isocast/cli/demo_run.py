"""Runs the demo: a directory and a place for its market, signals, frames on a terminal and lines elsewhere."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from isocast.cli.demo_lake import LakeBeside, LakeStage, lake_words
from isocast.cli.demo_lake_text import lake_lines
from isocast.cli.demo_summary import next_steps, summary_lines
from isocast.cli.live_parts import can_draw
from isocast.cli.render import line, show_json
from isocast.runtime.disk import scratch
from isocast.runtime.market.model import Market
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted
from isocast.trials.demo.cast import actors
from isocast.trials.demo.notes import Note, Tone
from isocast.trials.demo.place import own_place
from isocast.trials.demo.show import Phase, Show, ShowSettings
from isocast.trials.demo.staging import set_stage
from isocast.trials.demo.summary import Summary

__all__ = ["COMMANDS", "DemoOptions", "kept_directory", "run_demo"]

COMMANDS = ("isocast.cli.main", "isocast.cli.node")
"""What nodes import of the command line."""
_FRAMES_PER_S = 8
_SUMMARY_S = 300.0
"""After Ctrl-C: what is on its way is released, everything stops, journals are read, tables completed."""
_STATUS_EVERY_S = 5.0
_SAID = (Tone.TROUBLE, Tone.RING)
"""What is worth a line where there is no live view."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line says."""

    seconds: float
    seed: int
    loss: float
    keep: Path | None = None
    headless: bool = False
    as_json: bool = False
    lake: bool = True
    """Whether Spark follows."""


def run_demo(options: DemoOptions) -> int:
    """Show it, sum up; 1 if something was wrong."""
    with kept_directory(options.keep, "demo") as directory, own_place() as place:
        market = set_stage(directory, place, loss=options.loss, seed=options.seed)
        summary, lake = shutdown.run(_perform(market, options))
        if options.as_json:
            tables = None if lake is None else lake.as_json()
            show_json(summary.as_json() | {"lake": tables, "directory": str(directory) if options.keep else None})
        else:
            of_tables = () if lake is None else lake_lines(lake)
            steps = next_steps(market if options.keep else None, lake)
            for text in (*summary_lines(summary), *of_tables, *steps):
                line(text)
    return 1 if summary.faults or (lake is not None and lake.faults) else 0


@contextmanager
def kept_directory(keep: Path | None, purpose: str) -> Iterator[Path]:
    """A new directory to stay, or one for this purpose that is gone at the end."""
    if keep is None:
        with scratch.scratch_directory(purpose) as place:
            yield place
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        occupied = any(keep.iterdir())
    except OSError as error:
        raise ConfigurationError("command line", "--keep", f"{keep} cannot be made: {error.strerror}") from error
    if occupied:
        raise ConfigurationError("command line", "--keep", f"{keep} is not empty: name a new directory")
    yield keep


async def _perform(market: Market, options: DemoOptions) -> tuple[Summary, LakeBeside | None]:
    show = Show(market, ShowSettings(options.seconds, options.seed, COMMANDS))
    async with AsyncExitStack() as opened:
        lake = await opened.enter_async_context(LakeBeside(market, options.seconds)) if options.lake else None
        return await _played(show, lake, options), lake


async def _played(show: Show, lake: LakeBeside | None, options: DemoOptions) -> Summary:
    playing = asyncio.create_task(_play(show, lake), name="show")
    whole = asyncio.current_task()

    def interrupted() -> None:
        """Ctrl-C in the middle of the show ends it with its summary; otherwise nobody would read one."""
        if shutdown.cause() != signal.SIGINT or show.phase is Phase.SETTING:
            if whole is not None:
                whole.cancel()
            return
        shutdown.allow(_SUMMARY_S, "the summary follows" if options.as_json else "")
        if lake is not None and lake.expected is not None:
            lake.give_up()
        else:
            show.hurry()

    def again() -> None:
        """The market has stopped and only the tables are missing: they are given up."""
        if whole is not None and (lake is None or lake.expected is None):
            whole.cancel()
            shutdown.allow(0)
        elif lake is not None:
            lake.give_up()

    try:
        with shutdown.stopping(interrupted, again):
            if options.as_json:
                return await playing
            if options.headless or not can_draw():
                await _lines(show, lake, playing)
            else:
                await _frames(show, lake, playing)
            return await playing
    finally:
        show.on_note = None
        playing.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await playing


async def _play(show: Show, lake: LakeBeside | None) -> Summary:
    """The show, when Spark is there or late, and then what remains to be done for the tables."""
    if lake is not None:
        await lake.head_start()
        show.began_at = time.time_ns()
    summary = await show.play()
    if lake is not None:
        if show.is_abandoned:
            lake.give_up()
        await lake.finish(summary.events)
    return summary


async def _lines(show: Show, lake: LakeBeside | None, playing: asyncio.Task[Summary]) -> None:
    """What happens, and now and then how far it is."""
    market = show.market
    line(
        f"{len(actors(market))} processes on loopback addresses of this machine;"
        f" {100 * market.impairment.loss:g} % of all packets get lost; seed {show.settings.seed}"
    )
    sys.stdout.flush()
    show.on_note = _say
    told = time.monotonic()
    while not playing.done():
        await asyncio.wait([playing], timeout=max(told + _STATUS_EVERY_S - time.monotonic(), 0))
        if not playing.done():
            for text in _status(show, lake):
                line(f"{(time.time_ns() - show.began_at) / SECOND:6.1f} s  … {text}")
            sys.stdout.flush()
        told = time.monotonic()


def _say(note: Note) -> None:
    if note.tone in _SAID:
        line(f"{note.at / SECOND:6.1f} s  {note.text}")
        sys.stdout.flush()


def _status(show: Show, lake: LakeBeside | None) -> Iterator[str]:
    """How far the market is while it runs, and the tables while they are made."""
    if show.opened_at and show.phase is not Phase.JUDGING:
        ledger, ring = show.watch.ledger, show.watch.ring
        released = max((chunk.messages + first for first, chunk in show.watch.releases.chunks.items()), default=1) - 1
        yield (
            f"token {max(ring.token_at(time.time_ns()), 0) if ring else 0},"
            f" {counted(sum([feed.events for feed in show.feeds]), 'event')} published,"
            f" {counted(released, 'message')} released,"
            f" {counted(int(ledger.total('injected_losses_total')), 'packet')} lost,"
            f" {ledger.total('repairs_received_total'):,} repaired"
        )
    if lake is not None and (show.opened_at or lake.stage is LakeStage.STARTING):
        yield lake_words(lake, show)


async def _frames(show: Show, lake: LakeBeside | None, playing: asyncio.Task[Summary]) -> None:
    from rich.console import Console
    from rich.live import Live

    from isocast.cli.demo_view import frame

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not playing.done():
            live.update(frame(show, console.width, console.height, time.time_ns(), lake), refresh=True)
            await asyncio.wait([playing], timeout=1 / _FRAMES_PER_S)
