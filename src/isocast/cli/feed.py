"""`isocast feed`: look into files of other people's formats, convert them, and make synthetic days."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import AS_THE_FILES_SAY, Count, FeedChoice, Flag, Seed
from isocast.cli.render import Progress, figure, line, note, show_json, show_table
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.cli.feed_text import FeedSummary
    from isocast.feeds.outcomes import FeedLog
    from isocast.runtime.client.feed_files import FeedFile

__all__ = ["app"]

app = App(
    name="feed",
    help="Feeds of other people's formats: ITCH, MoldUDP64 captures, tables, LOBSTER, DBN; and synthetic days.",
    help_epilogue="Start with:\n\n    isocast feed generate day.parquet\n\n    isocast feed show day.parquet\n",
)

_Floor: TypeAlias = Annotated[str | None, Parameter(name="--as")]


@app.command(
    help_epilogue="""Examples:

    isocast feed show 01302019.NASDAQ_ITCH50.gz

    isocast feed show capture.pcap --as XNAS --json

    isocast feed show 20131007_aig_Trade_Tick.csv --limit 1000 --rows 5

    isocast feed show trades.csv --mapping columns.toml --day 2024-05-03

Exit code: 0 sound, 1 something in it is wrong and counted, 2 it cannot be read, or --strict and a fault.
"""
)
def show(
    file: Path,
    /,
    *,
    floor: _Floor = None,
    limit: Count | None = None,
    rows: Annotated[int, Parameter(validator=Number(gte=0, lte=1_000))] = 0,
    choice: FeedChoice = AS_THE_FILES_SAY,
    json: Flag = False,
) -> int:
    """Say what is in a feed: messages by type, events by kind, symbols, time span, faults and what was skipped.

    Parameters
    ----------
    file
        ITCH 5.0, pcap, pcapng, a table, Parquet, LOBSTER, DBN or event records; in gzip, bzip2, xz, zstd or zip too.
    floor
        The floor of a feed that names none (XNAS if left out); of a feed that names its floors, the only one wanted.
    limit
        Look at no more than so many events.
    rows
        Print so many of the first events.
    json
        Print one JSON object instead of tables.
    """
    from isocast.cli.feed_text import FeedSummary, feed_options, summary_as_json, with_progress
    from isocast.runtime.client.feed_files import FeedFile

    options = feed_options(floor, choice)
    feed = FeedFile(file, options)
    summary = FeedSummary(rows)
    for block in with_progress([feed], feed.blocks(), limit, quiet=json):
        summary.add(block)
    if json:
        show_json(summary_as_json(feed, summary))
    else:
        _show(feed, summary)
    return 1 if feed.log.faults else 0


@app.command(
    help_epilogue="""Examples:

    isocast feed convert 01302019.NASDAQ_ITCH50.gz day.parquet

    isocast feed convert aig_20131007_trade.zip bac_20131007_trade.zip tape.parquet

    isocast feed convert day.parquet --as XNAS day.itch.gz

Several files become one in the order of time. The name of the last decides its format: .parquet, .events (records
of 48 bytes), .itch, .itch.gz, .pcap. With --strict a fault ends it, and nothing is written. Exit code: 0 sound,
1 something was wrong and counted, 2 bad input.
"""
)
def convert(
    files: Annotated[list[Path], Parameter(consume_multiple=True)],
    /,
    *,
    floor: _Floor = None,
    limit: Count | None = None,
    choice: FeedChoice = AS_THE_FILES_SAY,
    json: Flag = False,
) -> int:
    """Convert feeds to one file of events, or to ITCH 5.0, and print the digest of the events.

    Parameters
    ----------
    files
        One file or several, then the file to write.
    floor
        The floor of a feed that names none (XNAS if left out); of a feed that names its floors, the only one wanted.
    limit
        Convert no more than so many events.
    json
        Print one JSON object instead of tables.
    """
    from isocast.cli.feed_text import check_target, convert_as_json, feed_options, with_progress, write_feed
    from isocast.feeds.merge import merge_feeds
    from isocast.runtime.client.feed_files import FeedFile
    from isocast.terms.errors import ConfigurationError

    if len(files) < 2:  # noqa: PLR2004 - one to read, one to write
        raise ConfigurationError("command line", "files", "give at least one file to read and one to write")
    *sources, target = files
    check_target(target, sources)
    options = feed_options(floor, choice)
    feeds = [FeedFile(file, options) for file in sources]
    merged = feeds[0].blocks() if len(feeds) == 1 else merge_feeds([feed.blocks() for feed in feeds])
    digest, log = write_feed(target, choice.zone, with_progress(feeds, merged, limit, quiet=json))
    if json:
        show_json(convert_as_json(feeds, target, digest, log))
    else:
        for feed in feeds:
            _show_troubles(feed)
        _show_left_out(target, log)
        line(f"{counted(digest.events, 'event')} to {target}, digest {digest.hex}.")
    _note_left_out(target, log)
    return 1 if any(feed.log.faults for feed in feeds) else 0


@app.command(
    help_epilogue="""Examples:

    isocast feed generate day.parquet

    isocast feed generate --seed 7 --floors 300 --symbols 5000 --trades 1000000 world.parquet

    isocast feed generate --seed 7 --as XNYS new-york.itch.gz

The same options give the same day. ITCH has no quotes: what a format cannot carry is listed.
"""
)
def generate(  # noqa: PLR0913 - a plan of a day
    out: Path,
    /,
    *,
    seed: Seed = 1,
    floors: Count = 12,
    symbols: Count = 500,
    trades: Annotated[int, Parameter(validator=Number(gte=0, lte=10**10))] = 100_000,
    quotes: Annotated[float, Parameter(validator=Number(gte=0, lte=1000))] = 2.0,
    day: str = "2026-03-02",
    floor: _Floor = None,
    json: Flag = False,
) -> int:
    """Make a synthetic day: floors around the world, bursts, openings and closes, sectors that move together.

    Parameters
    ----------
    out
        The file to write: .parquet, .events, .itch, .itch.gz or .pcap.
    seed
        The same seed gives the same day.
    floors
        How many floors, 1 to 1,000, spread over Asia, Europe and America.
    symbols
        How many symbols, up to 60,000; each trades on up to four floors.
    trades
        About how many trades.
    quotes
        Changes of quotes for each trade, in the mean.
    day
        Which day.
    floor
        Write the events of this floor alone.
    json
        Print one JSON object instead of a line.
    """
    from isocast.cli.feed_text import check_target, of_floor, told, write_feed
    from isocast.feeds.days import read_day
    from isocast.feeds.synthetic import SyntheticDay, SyntheticPlan
    from isocast.terms.errors import ConfigurationError

    check_target(out, [])
    plan = SyntheticPlan(
        seed=seed, floors=floors, symbols=symbols, trades=trades, quotes_per_trade=quotes, day=read_day(day)
    )
    made = SyntheticDay(plan)
    names = [name.decode("ascii") for name in made.world.floor_names.tolist()]
    if floor is not None and floor not in names:
        shown = ", ".join(names[:24])
        raise ConfigurationError("command line", "--as", f"{floor} is not one of the day's floors: {shown}")
    blocks = of_floor(made.blocks(), floor)
    total = int(trades * (1 + 2 * quotes))
    with Progress("events", total, quiet=json) as progress:
        digest, log = write_feed(out, "UTC", told(blocks, progress.reach))
    if json:
        floor_rows = {name: {"events": count, "digest": text} for name, (count, text) in digest.floors.items()}
        skipped = dict(log.skipped)
        show_json(
            {"file": str(out), "seed": seed, "events": digest.events, "digest": digest.hex, "not_written": skipped}
            | {"written_without": dict(log.lacking), "symbols": symbols, "floors": floor_rows}
        )
    else:
        _show_left_out(out, log)
        whose = counted(len(digest.floors), "floor")
        line(f"{counted(digest.events, 'event')} of {whose} to {out}, digest {digest.hex}.")
    return 0


def _counted(counts: dict[str, int]) -> list[tuple[str, str]]:
    return [(figure(count), reason) for reason, count in counts.items()]


def _show_left_out(target: Path, log: FeedLog) -> None:
    if log.skipped:
        show_table(f"Not written to {target}", ("events", "reason"), _counted(log.skipped))
    if log.lacking:
        show_table(f"Written to {target} without", ("events", "what"), _counted(log.lacking))


def _note_left_out(target: Path, log: FeedLog) -> None:
    """One line beside the output, so that a program that drops the figures does not drop the warning."""
    parts = []
    if log.skipped:
        parts.append(f"{counted(sum(log.skipped.values()), 'event')} not written")
    if log.lacking:
        parts.append(f"{counted(max(log.lacking.values()), 'event')} or more written without something")
    if parts:
        note(f"{target}: {', '.join(parts)}; the format cannot carry it.")


def _show(feed: FeedFile, summary: FeedSummary) -> None:
    from isocast.cli.feed_text import (
        event_rows,
        facts_of,
        floor_rows,
        kind_rows,
        message_rows,
        session_rows,
    )

    show_table(f"{feed.path}", ("", "value"), facts_of(feed, summary))
    show_table("Messages", ("type", "", "count"), message_rows(feed))
    show_table("Events", ("kind", "count"), kind_rows(summary))
    show_table("Floors", ("floor", "events", "digest"), floor_rows(summary))
    if feed.streams:
        columns = ("session", "lines", "first", "last", "messages", "missing", "gaps", "ended")
        show_table("Sessions", columns, session_rows(feed))
    if summary.first_rows:
        headers = ("time", "floor", "symbol", "kind", "side", "price", "quantity", "reference", "id", "flags")
        show_table("First events", headers, event_rows(summary))
    if feed.log.conditions:
        rows = [(figure(count), name) for name, count in sorted(feed.log.conditions.items())]
        show_table("Sale conditions", ("trades", "condition"), rows)
    if feed.log.quote_conditions:
        rows = [(figure(count), name) for name, count in sorted(feed.log.quote_conditions.items())]
        show_table("Quote conditions", ("quotes", "condition"), rows)
    _show_troubles(feed)
    if not feed.log.faults:
        line("Sound: nothing in it is wrong.")


def _show_troubles(feed: FeedFile) -> None:
    from isocast.cli.feed_text import FAULT_HEADERS, fault_rows

    if feed.log.skipped:
        show_table(f"Skipped in {feed.path}", ("messages", "reason"), _counted(feed.log.skipped))
    if feed.log.faults:
        show_table(f"WRONG in {feed.path}", FAULT_HEADERS, fault_rows(feed))
    for text in feed.log.notes:
        line(f"Note: {text}.")
