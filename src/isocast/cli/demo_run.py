"""Runs the demo: its directory and place, signals, frames or lines while it goes on, and the summary at its end."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from isocast.cli.demo_lake import LakeBeside, LakeStage, lake_lines, lake_words
from isocast.cli.demo_trading import floor_words, trading_entries
from isocast.cli.live_view import can_draw, live_screen
from isocast.cli.render import entry, line, show_json
from isocast.cli.skew_text import skew_words
from isocast.runtime.disk import scratch
from isocast.runtime.market.finding import is_running
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.market import Grade
from isocast.terms.quantities import counted
from isocast.trials.demo.cast import LogNote, Tone, own_place, process_count
from isocast.trials.demo.show import Show, ShowPhase, ShowSettings
from isocast.trials.demo.staging import set_stage
from isocast.trials.demo.summary import CustomerLine, Summary
from isocast.trials.demo.trading import GATEWAYS, missing_packages
from isocast.trials.evidence import journal_of

__all__ = ["COMMANDS", "DemoOptions", "kept_directory", "next_steps", "run_demo", "summary_lines"]


# ---- What the demo says at its end: what was promised, what the journals prove, and what to try next.


_FAULTS_SHOWN = 12


def summary_lines(summary: Summary, missing: Sequence[str] = ()) -> Iterator[str]:
    """Lines of at most 100 characters; without the `missing` packages nobody could trade."""
    figures = summary.figures
    yield ""
    yield f"{summary.seconds:.1f} s of a market of {summary.nodes} processes, from the journals of all"
    yield ""
    floors = ", ".join([f"{mic} {count:,}" for mic, count in sorted(summary.by_floor.items())])
    yield from entry(
        "messages",
        f"{summary.messages:,} in one sequence with {counted(summary.events, 'event')}{_published(summary)}",
        f"{floors}; the same in the journals of {summary.places} receivers",
    )
    yield from entry(
        "latency",
        f"{figures.latency_ns / SECOND:.3f} s submit to release, formula {summary.formula.value:.3f} s:"
        f" {summary.ratio:.2f} of it",
        f"{summary.formula.symbols} = {_short(summary.formula.numbers)}",
        *_left_out(summary),
    )
    lateness = figures.lateness
    busy = "there is one clock here: what is beyond 2ε was released by a process that waited for its turn"
    yield from entry(
        "skew",
        *skew_words(figures.skew),
        f"releases were late by {_ms(lateness.p50_ns)} median, {_ms(lateness.p99_ns)} p99;"
        f" too late is more than P = {summary.late_after_ns / 1e6:g} ms",
        *([busy] if figures.skew.exceeding else []),
    )
    yield from entry(
        "losses",
        f"{counted(summary.lost, 'packet')} lost on purpose, {summary.lost_at_receivers:,} of them at receivers;"
        f" {summary.kernel_drops or 'none'} by the kernel",
        f"{counted(summary.nacks, 'NACK')}, {counted(summary.repairs, 'repair')}; nothing is missing"
        if not summary.gaps
        else f"{counted(summary.nacks, 'NACK')}, {counted(summary.repairs, 'repair')};"
        f" {counted(summary.gaps, 'message')} missing",
    )
    yield from entry("rings", *_rings(summary))
    if summary.trading is not None:
        for name, texts in trading_entries(summary.trading, summary.victim, summary.story.victim):
            yield from entry(name, *texts)
    if missing:
        yield from entry("traders", f"none, without {', '.join(missing)}: pip install 'isocast[accounts,websocket]'")
    for place, customer in enumerate(summary.customers):
        yield from entry("" if place else "customers", _customer(customer))
    yield from entry("gaps", f"{summary.gaps:,}" if summary.gaps else "none: every receiver has every sequence, once")
    yield from entry("early", f"{summary.early:,}" if summary.early else "none: nothing was out before its instant")
    if summary.faults:
        more = len(summary.faults) - _FAULTS_SHOWN
        rest = [f"and {more} more"] if more > 0 else []
        yield from entry("WRONG", *summary.faults[:_FAULTS_SHOWN], *rest)
    yield ""


def _published(summary: Summary) -> str:
    """Beside the events of the floors that publish, those of the market's own floor may be in the sequence."""
    if summary.events > summary.published:
        return f", of which floors published {summary.published:,}"
    return f" of {summary.published:,} published"


def _left_out(summary: Summary) -> Iterator[str]:
    """Of the latency: the formula knows no time without a ring."""
    figures = summary.figures
    if figures.disturbed:
        share = f"{figures.disturbed:,} of {figures.measured + figures.disturbed:,} releases"
        yield f"left out: {share}, made while a ring formed or by a city that was away"
    if summary.rings > 1:
        yield f"{figures.latency_all_ns / SECOND:.3f} s including the time without a ring"


def _ms(span_ns: int) -> str:
    return f"{span_ns / 1e6:.1f} ms"


def _short(numbers: str) -> str:
    """The formula's numbers to the millisecond."""
    parts = numbers.replace("+", " + ").split(" ")
    return "".join([f"{float(part):.3f}" if part.replace(".", "", 1).isdigit() else part for part in parts])


def _rings(summary: Summary) -> Iterator[str]:
    story = summary.story
    again = summary.rings - 1
    formed = f"{summary.rings} formed, {again} of them again" if again > 0 else f"{summary.rings} formed"
    held = (
        f"; {counted(summary.fairness_faults, 'time')} a token was held up, and said so"
        if summary.fairness_faults
        else ""
    )
    yield formed + held
    if story.killed_at:
        without = f"ring without it after {_since(summary, story.reformed_at)}"
        back = f"on the ring again after {_since(summary, story.whole_at)}"
        yield f"{summary.victim} killed before its token {story.token_number}: {without}, {back}"


def _since(summary: Summary, instant: int) -> str:
    return f"{(instant - summary.story.killed_at) / SECOND:.1f} s" if instant else "… not yet"


def _customer(line: CustomerLine) -> str:
    who = f"{line.name}, {line.city}, {line.grade}: "
    if line.grade is Grade.COMPLETE:
        gaps = f"{line.gaps:,} MISSING" if line.gaps else "gaps: none"
        closed = f"; {line.gaps_repaired} of {line.gaps_seen} closed by the archive" if line.gaps_seen else ""
        return f"{who}{counted(line.messages, 'message')}, {gaps}{closed}"
    return f"{who}{counted(line.messages, 'message')}, {line.skipped:,} skipped"


def next_steps(kept: Market | None, lake: LakeBeside | None = None) -> Iterator[str]:
    """Commands to copy; `kept` is a market that was left where it is, `lake` its tables."""
    here = Path(".venv/bin/isocast")
    command = str(here) if here.exists() else "isocast"
    yield "Next:"
    if kept is None:
        yield f"  {command} demo --keep /tmp/market   # and go on with its market by hand"
        yield f"  {command} demo --seconds 60 --loss 0.1"
        yield f"  {command} sim show                  # ten cities in virtual time"
        return
    journal = journal_of(kept, kept.receivers[0].name)
    floor = kept.by_role(NodeRole.PRIMARY_SOURCE)[0].name
    config = f"--config {kept.file}"
    event = """'{"kind": "trade", "floor": "XNYS", "symbol": "IBM", "price": "120.00", "quantity": 100, "id": 1}'"""
    yield f"  {command} journal verify {journal}"
    yield f"  {command} journal cat {journal} --limit 20"
    if kept.floors:
        books = GATEWAYS[0].database(kept)
        yield f"  {command} floor verify {journal}"
        yield f"  {command} accounts show --database sqlite:///{books}"
    if lake is not None and lake.stage is LakeStage.DONE:
        yield f"  {command} lake bars --lake {lake.root} --interval 5s"
        yield f"  {command} lake fairness {config}"
    yield f"  {command} up {config}   # the same market again"
    yield "and while it runs, in other terminals:"
    yield f"  {command} top {config}"
    yield f"  {command} listen {config}"
    yield f"  echo {event} | {command} publish {config} --source {floor}"


COMMANDS = ("isocast.cli.main",)
"""What nodes import of the command line."""
_FRAMES_PER_S = 8
_SUMMARY_S = 5.0
"""After Ctrl-C, when the market has stopped and only tables are missing: Spark ends, and the summary is written."""
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
    traders: bool = True
    """Whether there is a trading floor, with gateways and traders."""


def run_demo(options: DemoOptions) -> int:
    """Show it, sum up; 1 if something was wrong."""
    missing = missing_packages() if options.traders else ()
    with kept_directory(options.keep, "demo") as directory, own_place() as place:
        traders = options.traders and not missing
        market = set_stage(directory, place, loss=options.loss, seed=options.seed, traders=traders)
        with is_running(market.file) as end:
            shutdown.at_forced_end(end)
            summary, lake = shutdown.run(_perform(market, options))
        if options.as_json:
            tables = None if lake is None else lake.as_json()
            show_json(summary.as_json() | {"lake": tables, "directory": str(directory) if options.keep else None})
        else:
            of_tables = () if lake is None else lake_lines(lake)
            steps = next_steps(market if options.keep else None, lake)
            for text in (*summary_lines(summary, missing), *of_tables, *steps):
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
        """End at once; but by Ctrl-C, when only the tables are missing, with the summary of the market."""
        if shutdown.cause() == signal.SIGINT and lake is not None and lake.expected is not None:
            shutdown.allow(_SUMMARY_S)
            lake.give_up()
        elif whole is not None:
            whole.cancel()

    try:
        with shutdown.stopping(interrupted):
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
        lake.trading = summary.trading
        await lake.finish(summary.events)
    return summary


async def _lines(show: Show, lake: LakeBeside | None, playing: asyncio.Task[Summary]) -> None:
    """What happens, and now and then how far it is."""
    market = show.market
    line(
        f"{process_count(market)} processes on loopback addresses of this machine;"
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


def _say(note: LogNote) -> None:
    if note.tone in _SAID:
        line(f"{note.at / SECOND:6.1f} s  {note.text}")
        sys.stdout.flush()


def _status(show: Show, lake: LakeBeside | None) -> Iterator[str]:
    """How far the market is while it runs, and the tables while they are made."""
    if show.opened_at and show.phase is not ShowPhase.JUDGING:
        ledger, ring = show.watch.ledger, show.watch.ring
        released = max((chunk.messages + first for first, chunk in show.watch.releases.chunks.items()), default=1) - 1
        yield (
            f"token {max(ring.token_at(time.time_ns()), 0) if ring else 0},"
            f" {counted(sum([feed.events for feed in show.feeds]), 'event')} published,"
            f" {counted(released, 'message')} released,"
            f" {counted(int(ledger.total('injected_losses_total')), 'packet')} lost,"
            f" {ledger.total('repairs_received_total'):,} repaired"
        )
        if show.watch.floor is not None:
            yield floor_words(show.watch.floor)
    if lake is not None and (show.opened_at or lake.stage is LakeStage.STARTING):
        yield lake_words(lake, show)


async def _frames(show: Show, lake: LakeBeside | None, playing: asyncio.Task[Summary]) -> None:
    from isocast.cli.demo_view import frame

    with live_screen() as draw:
        while not playing.done():
            draw(lambda width, height: frame(show, width, height, time.time_ns(), lake))
            await asyncio.wait([playing], timeout=1 / _FRAMES_PER_S)
