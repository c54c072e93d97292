"""`isocast tape` of a running market: it listens as a customer and shows what it hears."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from json import dumps
from pathlib import Path

import numpy as np

from isocast.cli.listen import tell_silence
from isocast.cli.live_parts import can_draw, quit_on_q
from isocast.cli.render import line, note
from isocast.cli.tape_sources import Wanted, tell_gap
from isocast.cli.tape_stripes import take_batch
from isocast.cli.tape_view import live_frame, view_as_json
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.listener import Listener, Start
from isocast.runtime.client.received import BatchKind, ReceivedBatch
from isocast.runtime.operate import shutdown
from isocast.terms.quantities import counted
from isocast.ticker.tape import Tape
from isocast.ticker.views import symbol_views

__all__ = ["watch"]

_FRAME_S = 0.25
"""Without a line for so long, something is wrong."""


def watch(  # noqa: PLR0913 - what, as whom, from where, until when, how
    tape: Tape,
    wanted: Wanted,
    config: Path,
    name: str | None,
    start: Start,
    seconds: float | None,
    *,
    as_json: bool,
    stripes: tuple[int, ...] | None = None,
    merged: bool = True,
    digest: TapeDigest | None = None,
) -> None:
    """Listen until the end that was asked for, or a signal; the tape has everything that was heard."""

    def told(text: str) -> None:
        note(f"isocast: {text}")

    # A tape of newest prices alone would have no volume: every message is wanted, whatever the seat's grade.
    complete = None if start == "snapshot" else False
    listener = Listener(
        config,
        name,
        latest=complete,
        start=start,
        told=told,
        stripes=stripes,
        symbols=wanted.symbols if stripes is None else None,
        merged=merged,
    )
    shutdown.run(_watch(listener, tape, wanted, seconds, digest, as_json=as_json))
    note(f"isocast: {counted(tape.events, 'event')}, up to sequence {tape.sequence:,}")


async def _watch(
    listener: Listener,
    tape: Tape,
    wanted: Wanted,
    seconds: float | None,
    digest: TapeDigest | None,
    *,
    as_json: bool,
) -> None:
    stop = asyncio.Event()
    with shutdown.stopping(stop.set, seconds=shutdown.LAST_WORDS_S, waits_for="its lines are closed"):
        async with listener:
            lines = ", ".join(listener.plan.lines)
            if len(listener.stripes) > 1:
                lines += f" in stripes {', '.join(map(str, listener.stripes))}"
            note(f"isocast: the tape as {listener.plan.origin} hears it from {lines}; Ctrl-C ends it")
            hearing = _hear(listener, tape, wanted, digest, as_json=as_json)
            work = [asyncio.create_task(hearing), asyncio.create_task(stop.wait())]
            beside = [asyncio.create_task(tell_silence(listener))]
            if not as_json and can_draw():
                beside.append(asyncio.create_task(_draw(listener, tape, wanted)))
            done, _ = await asyncio.wait(work, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in (*work, *beside):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    if task not in done:
                        await task
            for task in done:
                await task


async def _hear(listener: Listener, tape: Tape, wanted: Wanted, digest: TapeDigest | None, *, as_json: bool) -> None:
    heard, is_striped = 0, len(listener.stripes) > 1
    async for batch in listener:
        part = wanted.part(batch.sequences, heard)
        if is_striped:
            take_batch(tape, batch, part)
        else:
            if batch.kind is BatchKind.MESSAGES and tape.sequence:
                tell_gap(tape, batch.first_sequence)
            is_whole = part == len(batch)
            tape.take(batch.events[:part], batch.sequences[:part], batch.last_sequence if is_whole else None)
        if digest is not None:
            digest.update(batch.events[:part])
        heard += part
        if as_json:
            _write_changes(tape, wanted, batch, part)
        if wanted.is_enough(heard):
            return


def _write_changes(tape: Tape, wanted: Wanted, batch: ReceivedBatch, number: int) -> None:
    """A row for each symbol that the batch speaks of."""
    names = [name.decode("ascii") for name in np.unique(batch.events["symbol"][:number]).tolist() if name]
    if wanted.symbols is not None:
        names = [name for name in names if name in wanted.symbols]
    for view in symbol_views(tape, names, wanted.floors):
        line(dumps(view_as_json(view, tape.sequence)))
    sys.stdout.flush()


async def _draw(listener: Listener, tape: Tape, wanted: Wanted) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with quit_on_q(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            frame = live_frame(listener.market.name, tape, wanted.symbols, wanted.floors, console.size)
            live.update(frame, refresh=True)
            await asyncio.sleep(_FRAME_S)
