"""`isocast replay`: publish what floors have emitted, at their sources, in the feeds' own time."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Self

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import AS_THE_FILES_SAY, Config, FeedChoice, Flag
from isocast.cli.render import figure, line, note, show_json, show_table
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import second_text
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from isocast.runtime.client.feed_files import FeedFile, FeedOptions
    from isocast.runtime.client.replay import ReplayReport
    from isocast.runtime.client.replay_messages import FloorFeed

__all__ = ["progress_text", "replay"]

_EXAMPLES = """Examples:

    isocast replay 01302019.NASDAQ_ITCH50.gz --as new-york-floor --speed 10x --config market.toml

    isocast replay london.csv=london-floor:XLON paris.parquet=paris-floor:XPAR --speed max --config market.toml

A floor is a source of the market's file; behind a colon, the market identifier code that its events carry, or that is
wanted of a file with several. Interrupted, the same command goes on: nothing is published twice. Exit code: 0 all of it
is in the outboxes, 1 a source does not answer or something in a file is wrong and counted, 2 bad input.
"""


_FAILED = 1
_INTERRUPTED = 130
_PLAIN_FIRST_S = 1.0
_PLAIN_EVERY_S = 5.0
_DRAW_EVERY_S = 0.1
_RATE_S = 2.0
"""Over which the rate is told."""
_BILLION = 1_000_000_000

replay = App(name="replay", help_epilogue=_EXAMPLES)


@replay.default
def _command(  # noqa: PLR0913 - what files do not say themselves
    files: Annotated[list[str], Parameter(consume_multiple=True)],
    /,
    *,
    config: Config = None,
    floor: Annotated[str | None, Parameter(name=["--as", "--source"])] = None,
    speed: str = "1x",
    run: str = "",
    progress: Path | None = None,
    patience: Annotated[float, Parameter(validator=Number(gte=0))] = 60.0,
    choice: FeedChoice = AS_THE_FILES_SAY,
    json: Flag = False,
) -> int:
    """Publish files of feeds at the sources of a running market, in their own time or faster.

    Reads whatever `isocast feed show` does. Events of one floor keep their order; files of several floors go on in one
    time. Every message is published once: its key follows from the files and its place, and a file of progress says
    how far a replay is.

    Parameters
    ----------
    files
        Files, each with =FLOOR behind it unless --as says it for all.
    floor
        The source at which files are published that name none.
    speed
        Market time to real time, such as 1x, 10x or 0.5x; max is as fast as the sources take it.
    run
        A name of this replay: the same files under another name are published again.
    progress
        Where to note how far it is; a folder of the market's data directory if left out.
    patience
        Seconds for which a source may be down before this gives up.
    json
        Print one JSON object instead of tables.
    """
    from isocast.cli.feed_text import feed_options
    from isocast.runtime.client.replay import Replay
    from isocast.runtime.market.file import open_market
    from isocast.runtime.net.door import DoorError

    pace = _speed(speed)
    options = feed_options(None, choice)
    feeds = _floors(files, floor, options, run)
    market = open_market(config)
    began = monotonic()
    with _Shown() as shown:
        work = Replay(market, feeds, speed=pace, patience_s=patience, progress=progress, told=shown.tell)
        try:
            shutdown.run(work.run())
        except DoorError as reason:
            note(f"isocast: {reason}; {_so_far(work.report)}")
            return _FAILED
        except KeyboardInterrupt:
            note(f"isocast: interrupted; {_so_far(work.report)}")
            return _INTERRUPTED
    every = [file for feed in feeds for file in feed.files]
    if json:
        show_json(_as_json(work.report, every, monotonic() - began))
    else:
        _show(work.report, every, monotonic() - began)
    return _FAILED if any(file.log.faults for file in every) else 0


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        value = float(text.removesuffix("x"))
    except ValueError:
        value = 0.0
    if not 0 < value < _BILLION:
        raise ConfigurationError("command line", "--speed", f'"{text}" is neither max nor a number such as 10x')
    return value


def _floors(files: list[str], default: str | None, options: FeedOptions, run: str) -> list[FloorFeed]:
    """The files of each floor, in the order in which floors are named."""
    from isocast.runtime.client.replay_messages import FloorFeed

    found: dict[str, list[FeedFile]] = {}
    for text in files:
        path, source, code = _named(text, default)
        found.setdefault(source, []).append(_open(path, code, options))
    if not found:
        raise ConfigurationError("command line", "files", "give at least one")
    return [FloorFeed(source, tuple(some), run) for source, some in found.items()]


def _named(text: str, default: str | None) -> tuple[Path, str, str]:
    """(file, source, market identifier code); a file whose own name has an equals sign is that file."""
    name, equals, floor = text.rpartition("=")
    if not equals or Path(text).exists():
        name, floor = text, default or ""
    source, _, code = floor.partition(":")
    if not source:
        rule = f"{name}: which floor publishes it? Name a source with --as, or {name}=SOURCE"
        raise ConfigurationError("command line", "--as", rule)
    return Path(name), source, code


def _open(path: Path, code: str, options: FeedOptions) -> FeedFile:
    from dataclasses import replace

    from isocast.runtime.client.feed_files import FeedFile
    from isocast.terms.errors import LocalProtocolError
    from isocast.terms.market import Mic

    try:
        return FeedFile(path, replace(options, floor=Mic(code) if code else None))
    except LocalProtocolError as reason:
        raise ConfigurationError("command line", "--as", str(reason)) from None


# ---- while it runs


class _Shown:
    """Events, rate, how much of it is done, and market time: a line that changes on a terminal, plain lines elsewhere.

    Standard error has it, with --json too: the result is what standard output has.
    """

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._began = monotonic()
        self._due = self._began + _PLAIN_FIRST_S
        self._seen: deque[tuple[float, int]] = deque([(self._began, 0)])

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn

            self._bar = Progress(
                SpinnerColumn(), TextColumn("{task.description}"), console=Console(stderr=True), transient=True
            )
            self._bar.add_task("waiting for the sources", total=None)
            self._bar.start()
            self._due = self._began
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tell(self, report: ReplayReport) -> None:
        """How far it is."""
        now = monotonic()
        if now < self._due:
            return
        self._due = now + (_PLAIN_EVERY_S if self._bar is None else _DRAW_EVERY_S)
        text = progress_text(report, self._rate(now, report.events), now - self._began)
        if self._bar is None:
            note(text)
        else:
            self._bar.update(self._bar.task_ids[0], description=text)

    def _rate(self, now: float, events: int) -> float:
        """Events a second, lately."""
        while len(self._seen) > 1 and self._seen[1][0] < now - _RATE_S:
            self._seen.popleft()
        then, before = self._seen[0]
        self._seen.append((now, events))
        return (events - before) / max(now - then, 1e-9)


def progress_text(report: ReplayReport, rate: float, seconds: float) -> str:
    """One line: events, rate, share, time left, market time, and how far behind its pace it is."""
    text = f"{counted(report.events, 'event')}, {rate:,.0f} a second"
    if report.part > 0:
        text += f", {100 * report.part:.0f} % read"
        left = seconds * (1 - report.part) / report.part
        text += f", about {_duration(left)} left" if report.part < 1 else ""
    text += f", market time {_clock(report.market_time)}"
    if report.behind_s > 1:
        text += f", {report.behind_s:.0f} s behind its pace"
    return text


def _duration(seconds: float) -> str:
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _clock(time_ns: int) -> str:
    return second_text(time_ns) if time_ns else "unknown"


# ---- when it ends


def _so_far(report: ReplayReport) -> str:
    done = f"{counted(report.messages, 'message')} in the outboxes, up to market time {_clock(report.market_time)}"
    return f"{done}; the same command goes on from there"


def _as_json(report: ReplayReport, files: list[FeedFile], seconds: float) -> dict[str, object]:
    floors = [
        {
            "source": floor.source,
            "stripe": floor.stripe,
            "events": floor.events,
            "messages": floor.messages,
            "known_messages": floor.known_messages,
            "digest": floor.digest.hex,
            "codes": {code: {"events": count, "digest": text} for code, (count, text) in floor.digest.floors.items()},
        }
        for floor in report.floors
    ]
    return {
        "events": report.events,
        "messages": report.messages,
        "known_messages": report.known_messages,
        "seconds": round(seconds, 6),
        "events_per_second": round(report.events / seconds) if seconds > 0 else 0,
        "market_time_ns": report.market_time,
        "worst_behind_s": round(report.worst_s, 6),
        "floors": floors,
        "files": [
            {
                "file": str(file.path),
                "format": file.format.value,
                "skipped": dict(file.log.skipped),
                "faults": {fault.value: record["count"] for fault, record in file.log.faults.items()},
            }
            for file in files
        ],
    }


def _show(report: ReplayReport, files: list[FeedFile], seconds: float) -> None:
    from isocast.cli.feed_text import FAULT_HEADERS, fault_rows

    rows = [
        (
            floor.source,
            figure(floor.events),
            figure(floor.messages),
            figure(floor.known_messages),
            ", ".join(floor.digest.floors) or "–",
            floor.digest.hex,
        )
        for floor in report.floors
    ]
    show_table("Floors", ("source", "events", "messages", "had before", "codes", "digest"), rows)
    for file in files:
        if file.log.faults:
            show_table(f"WRONG in {file.path}", FAULT_HEADERS, fault_rows(file))
    if report.messages and report.known_messages == report.messages:
        line(f"Nothing new: the sources had all {figure(report.messages)} messages already.")
        return
    fresh = report.messages - report.known_messages
    known = f", {figure(report.known_messages)} they had before" if report.known_messages else ""
    late = f"; at worst {report.worst_s:.1f} s behind its pace" if report.worst_s >= 1 else ""
    what = f"{counted(report.events, 'event')}: {counted(fresh, 'message')} published{known}"
    rate = f"{report.events / max(seconds, 1e-9):,.0f} events a second"
    line(f"Replayed {what}, in {seconds:.1f} s, {rate}{late}. All of it is in the outboxes.")
