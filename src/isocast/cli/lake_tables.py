"""`isocast lake run` and `stream` fill the tables; and what the commands of `isocast lake` share."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Flag, duration_of
from isocast.cli.render import figure, line, note, show_json, show_table
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.places import local_path
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from isocast.lake.pipeline import Origin, PipelineReport
    from isocast.lake.tables import LakeSettings
    from isocast.lake.transforms.bars import Calendar

__all__ = ["LakeOptions", "OriginOptions", "chosen_calendar", "insist_on_spark", "lake_session", "run", "stream"]


_MOST_DEPTH = 1_000

# ---- What the commands of `isocast lake` have in common: where events come from, and what tables are made with.


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class OriginOptions:
    """Where events come from."""

    journals: Path | None = None
    """A directory with journals of one market, of one receiver or of many."""
    market: Path | None = None
    """A market's configuration: its retransmit servers are asked instead. Without journals either, that of
    ISOCAST_MARKET, ./market.toml, or the only market that runs here."""
    server: str | None = None
    """Which retransmit server, by its name in the configuration."""
    as_: Annotated[str | None, Parameter(name="--as")] = None
    """As which customer of the configuration; if left out, one with start = false, or else a guest."""
    receiver: str | None = None
    """Whose journals, by name or number; one for each stripe if left out, its gaps filled from another."""
    max_rows: int = 4_000_000
    """Events of one commit at most: more need more memory."""

    @property
    def _market(self) -> Path | None:
        from isocast.runtime.market.finding import known_market

        return self.market if self.market or self.journals else known_market()

    def check(self) -> None:
        """Name what is wrong, before Spark takes its seconds to start."""
        if (self.journals is None) == (self._market is None):
            raise ConfigurationError("command line", "--journals", "give either --journals or --market")
        for key, path in (("--journals", self.journals), ("--market", self.market)):
            if path is not None and not path.exists():
                raise ConfigurationError("command line", key, f"there is no {path}")
        if self.receiver is not None and self.receiver.strip() == "all":
            rule = "a lake has every event once: `isocast lake fairness --journals` and `audit` compare receivers"
            raise ConfigurationError("command line", "--receiver", rule)
        if self.max_rows < 1:
            raise ConfigurationError("command line", "--max-rows", "must be at least 1")

    def origin(self) -> Origin:
        """As the pipeline takes it."""
        from isocast.lake.pipeline import Origin

        named = {"server": self.server, "as": self.as_, "receiver": self.receiver}
        return Origin(self.journals, self._market, {key: value for key, value in named.items() if value is not None})


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class LakeOptions:
    """What a lake is made with; one that exists keeps its own."""

    format: str | None = None
    """parquet, delta or iceberg; the last two tell other engines of the same files."""
    interval: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """Length of bars: 1s, 1m, 5m, 1h, 1d, 1w, 1mo; may be repeated. One minute if left out."""
    zone: str | None = None
    """By whose clock bars begin: UTC, America/New_York."""
    session: str | None = None
    """Hours of trading there, such as 09:30-16:00: bars count from the opening, and nothing else is in them.

    The last moment belongs to them. Hours such as 18:00-17:00 begin on the evening before their trading day."""
    days: str | None = None
    """Days of trading there, such as mon-fri or sun-thu; all of them if left out."""
    calendar: str | None = None
    """An exchange whose days and hours count, with its holidays and half days: XNYS, XLON, XTKS."""
    depth: int | None = None
    """Levels of each side of books in silver/books; 5 if left out."""

    def settings(self, existing: Path) -> LakeSettings | None:
        """Settings for a new lake; None if nothing was said of one that exists."""
        from isocast.lake.tables import Lake, LakeSettings
        from isocast.lake.transforms.bars import read_interval

        base = Lake.open(existing).settings if (existing / "lake.json").is_file() else LakeSettings()
        for text in self.interval:
            read_interval(text)
        if self.depth is not None and not 1 <= self.depth <= _MOST_DEPTH:
            raise ConfigurationError("command line", "--depth", f"must be from 1 to {_MOST_DEPTH}")
        hours = self.zone or base.zone, self.session or base.session, self.days or base.days
        code = self.calendar or base.calendar
        chosen_calendar(code, *(hours if hours != ("UTC", "", "") else ("", "", "")))
        return LakeSettings(
            self.format or base.format,
            self.interval or base.intervals,
            *hours,
            base.window,
            base.horizon,
            self.depth or base.depth,
            code,
        )


def chosen_calendar(code: str, zone: str, session: str, days: str) -> Calendar:
    """An exchange's calendar, or one of a zone, hours and days; ConfigurationError for both."""
    from isocast.lake.transforms.bars import read_calendar
    from isocast.lake.transforms.exchanges import exchange_calendar

    if not code:
        return read_calendar(zone or "UTC", session or None, days=days)
    if zone or session or days:
        rule = f"{code} has a zone, hours and days of its own: leave --zone, --session and --days out"
        raise ConfigurationError("command line", "--calendar", rule)
    return exchange_calendar(code)


# ---- What several commands of `isocast lake` share: a session that ends, and errors of Spark in one line.


_OURS = re.compile(r"isocast\.terms\.errors\.(?:\w+): (.+)")


def insist_on_spark() -> None:
    """ConfigurationError that says what to install, where Spark is not."""
    try:
        import isocast.lake.session  # noqa: F401 - whether it can be
    except ImportError as reason:
        package = (reason.name or "pyspark").partition(".")[0]
        rule = f"Spark is missing ({package}): pip install 'isocast[spark]'"
        raise ConfigurationError("isocast lake", "spark", rule) from None


@contextmanager
def lake_session(app: str, master: str | None) -> Iterator[SparkSession]:
    """A session for one command, or the one that runs; what goes wrong in a worker is said as it would be said here."""
    insist_on_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from isocast.lake.session import kill_java, spark_session

    def interrupt() -> NoReturn:
        kill_java()  # Else it tells in pages what it was interrupted in.
        raise KeyboardInterrupt

    running = SparkSession.getActiveSession()
    spark = running or spark_session(app, master=master)
    try:
        with nullcontext() if running else shutdown.stopping(interrupt):
            yield spark
    except PySparkException as error:
        found = _OURS.search(str(error))
        said = found[1] if found else str(error).partition("\n")[0]
        raise ConfigurationError("isocast lake", app, said) from error
    finally:
        if running is None and not shutdown.cause():  # Else Java ends with this process, without last words.
            spark.stop()


_ORIGIN = OriginOptions()
_LAKE = LakeOptions()
_STOP_S = 60.0
"""From a signal to a forced end, for a batch that is being written."""

_RUN_EXAMPLES = """Examples:

Everything that the receivers of a market have journalled, into tables, with bars of one minute:

    isocast lake run --journals data --lake lake

Again, after more was released: only what is new is read.

    isocast lake run --journals data --lake lake

Bars by New York's clock, within its hours, in a new lake; on a cluster:

    isocast lake run --journals data --lake ny --interval 5m --interval 1d --zone America/New_York --session 09:30-16:00

    isocast lake run --journals /shared/data --lake /shared/lake --master spark://10.0.0.1:7077

Days and hours of the New York Stock Exchange, without its holidays and with its half days:

    isocast lake run --journals data --lake ny --interval 1d --calendar XNYS

Exit code: 0 fine, 2 bad input, such as a torn segment, two markets in one directory, or a lake of a newer version.
"""

_STREAM_EXAMPLES = """Examples:

Follow a market until Ctrl-C; started again it goes on where it was:

    isocast lake stream --journals data --lake lake

For one minute, from a retransmit server of the network itself:

    isocast lake stream --market market.toml --lake lake --seconds 60

What is there now, in small steps, and no more:

    isocast lake stream --journals data --lake lake --available-now --max-rows 100000

`isocast lake run` closes the day: it makes the spreads, and few large files of many small ones.
"""


run = App(name="run", help_epilogue=_RUN_EXAMPLES)
stream = App(name="stream", help_epilogue=_STREAM_EXAMPLES)


@run.default
def _run(
    *,
    lake: Path,
    origin: OriginOptions = _ORIGIN,
    options: LakeOptions = _LAKE,
    keep: str = "1h",
    master: str | None = None,
    json: Flag = False,
) -> int:
    """Bring all tables up to date: released events and messages, tape, quotes, bars, VWAP, spreads.

    Parameters
    ----------
    lake
        The directory of the tables; made if it is new.
    keep
        How long files that were replaced stay for queries that have begun: 1h, 30min, 0s.
    master
        Spark's master: local[2], spark://HOST:7077. All cores of this machine if left out.
    json
        Print one JSON object instead of a table.
    """
    origin.check()
    keep_s, lake = duration_of(keep, "--keep", "1h, 30min or 0s") / SECOND, _place(lake)
    with lake_session("isocast lake run", master) as spark:
        from isocast.lake import pipeline
        from isocast.lake.tables import Lake

        come_from = origin.origin()
        made = Lake.create(lake, options.settings(lake), keep_s)
        report = pipeline.run(spark, made, come_from, max_rows=origin.max_rows, tell=_teller(quiet=json))
    _show(report, json=json)
    return 0


@stream.default
def _stream(  # noqa: PLR0913 - options of a command
    *,
    lake: Path,
    origin: OriginOptions = _ORIGIN,
    options: LakeOptions = _LAKE,
    every: Annotated[float, Parameter(validator=Number(gt=0, lte=3_600))] = 2.0,
    seconds: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    available_now: Flag = False,
    keep: str = "1h",
    master: str | None = None,
    json: Flag = False,
) -> int:
    """Follow a market: its tables grow while it runs, and each event is in them exactly once.

    Parameters
    ----------
    lake
        The directory of the tables; made if it is new.
    every
        Seconds between two batches.
    seconds
        End after so long; at Ctrl-C if left out.
    available_now
        End with what is there when it starts.
    keep
        How long files that were replaced stay for queries that have begun: 1h, 30min, 0s.
    master
        Spark's master: local[2], spark://HOST:7077. All cores of this machine if left out.
    json
        Print one JSON object at the end instead of a table.
    """
    origin.check()
    keep_s, lake = duration_of(keep, "--keep", "1h, 30min or 0s") / SECOND, _place(lake)
    with lake_session("isocast lake stream", master) as spark:
        from isocast.lake import pipeline
        from isocast.lake.tables import Lake

        come_from = origin.origin()
        made = Lake.create(lake, options.settings(lake), keep_s)
        stops: list[int] = []
        until = None if seconds is None else time.monotonic() + seconds
        # A batch that is being written is finished first: nothing would be lost, only done again.
        with shutdown.stopping(lambda: stops.append(1), seconds=_STOP_S, waits_for="the batch is finished first"):
            report = pipeline.stream(
                spark,
                made,
                come_from,
                every_s=every,
                available_now=available_now,
                max_rows=origin.max_rows,
                go_on=lambda _: not stops and (until is None or time.monotonic() < until),
                tell=_teller(quiet=json),
            )
    _show(report, json=json)
    return 0


def _place(lake: Path) -> Path:
    """The folder of the tables, made: whether it can be is known before Spark starts."""
    insist_on_spark()
    place = local_path(lake, "command line", "--lake")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise ConfigurationError(str(lake), "--lake", f"cannot be made: {reason.strerror}") from None
    return place


def _teller(*, quiet: bool) -> Callable[[str], None]:
    return (lambda _: None) if quiet else note


def _show(report: PipelineReport, *, json: bool) -> None:
    if json:
        show_json(report.as_json())
        return
    columns = ("rows", "files", "bytes", "version")
    rows = [(name, *(figure(of[column]) for column in columns)) for name, of in report.tables.items()]
    show_table("Tables", ("table", *columns), rows)
    kept, size = (sum(of[column] for of in report.tables.values()) for column in ("kept_files", "kept_bytes"))
    if kept:
        line(f"{counted(kept, 'replaced file')} ({figure(size)} bytes) kept for queries that have begun: --keep.")
    if report.spreads:
        line(_spread_text(report.spreads))
    came = f"{counted(report.events, 'event')} came in {counted(report.batches, 'batch', 'batches')}"
    if report.messages:
        came = f"{counted(report.messages, 'opaque message')} and {came}"
    line(f"{came}, {report.seconds:.1f} s.")


def _spread_text(counts: dict[str, int]) -> str:
    """How many trades the spreads are of, and why not of the others."""
    without = {name: counts[name] for name in ("crossed", "one_sided", "unquoted")}
    all_of_them = counts["trades"] + sum(without.values())
    text = f"Spreads of {figure(counts['trades'])} of {counted(all_of_them, 'trade')}"
    reasons = [f"{figure(count)} {name.replace('_', '-')}" for name, count in without.items() if count]
    noted = [f"{figure(counts[name])} {name}" for name in ("locked", "stale", "unrealised") if counts[name]]
    text += f"; without one: {', '.join(reasons)}" if reasons else ""
    return text + (f"; of those with one: {', '.join(noted)}" if noted else "") + "."
