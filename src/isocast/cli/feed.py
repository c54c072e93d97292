"""`isocast feed`: look into files of other people's formats, convert them, and make synthetic days."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.event_rows import fields_of
from isocast.cli.render import Progress, figure, line, note, show_json, show_table
from isocast.feeds.days import check_zone, read_day
from isocast.feeds.itch_layout import NAMES
from isocast.feeds.mold import MoldSession
from isocast.feeds.outcomes import FeedLog
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.feed_files import FeedFile, FeedFormat, FeedOptions, load_mapping, open_sink, out_format
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.market import EventKind, Mic, Symbol
from isocast.terms.quantities import counted, suggestion
from isocast.wire.events import EventArray

__all__ = [
    "FAULT_HEADERS",
    "FeedSummary",
    "app",
    "check_target",
    "convert_as_json",
    "event_rows",
    "facts_of",
    "fault_rows",
    "feed_options",
    "floor_rows",
    "kind_rows",
    "message_rows",
    "of_floor",
    "session_rows",
    "summary_as_json",
    "told",
    "with_progress",
    "write_feed",
]


app = App(
    name="feed",
    help="Feeds of other people's formats: ITCH, MoldUDP64 captures, tables, LOBSTER; and synthetic days.",
    help_epilogue="Start with:\n\n    isocast feed generate day.parquet\n\n    isocast feed show day.parquet\n",
)

_Flag: TypeAlias = Annotated[bool, Parameter(negative="")]
_Seed: TypeAlias = Annotated[int, Parameter(validator=Number(gte=0, lt=2**63))]
_Count: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1))]
_Floor: TypeAlias = Annotated[str | None, Parameter(name="--as")]
_Port: TypeAlias = Annotated[int | None, Parameter(validator=Number(gte=1, lt=65_536))]


@app.command(
    help_epilogue="""Examples:

    isocast feed show 01302019.NASDAQ_ITCH50.gz

    isocast feed show capture.pcap --as XNAS --json

    isocast feed show 20131007_aig_Trade_Tick.csv --limit 1000 --rows 5

    isocast feed show trades.csv --mapping columns.toml --day 2024-05-03

Exit code: 0 sound, 1 something in it is wrong and counted, 2 it cannot be read, or --strict and a fault.
"""
)
def show(  # noqa: PLR0913 - what a file does not say itself
    file: Path,
    /,
    *,
    floor: _Floor = None,
    day: str | None = None,
    symbol: str | None = None,
    mapping: str | None = None,
    format: str | None = None,  # noqa: A002 - the option's name
    port: _Port = None,
    zone: str = "America/New_York",
    limit: _Count | None = None,
    rows: Annotated[int, Parameter(validator=Number(gte=0, lte=1_000))] = 0,
    strict: _Flag = False,
    json: _Flag = False,
) -> int:
    """Say what is in a feed: messages by type, events by kind, symbols, time span, faults and what was skipped.

    Parameters
    ----------
    file
        ITCH 5.0, pcap, pcapng, a table of text, Parquet, LOBSTER or event records; in gzip, bzip2, xz, zstd or zip too.
    floor
        The floor of a feed that names none (XNAS if left out); of a feed that names its floors, the only one wanted.
    day
        The day of the feed, such as 2019-01-30, if its name does not say.
    symbol
        The symbol of a table that has no column for it.
    mapping
        The columns of a table: us-tape-trades, us-tape-quotes, taq-trades, taq-quotes, or a TOML file.
    format
        itch, capture, table, parquet, lobster or events, if the file does not show it.
    port
        Of a capture: only datagrams to this UDP port.
    zone
        Where it is midnight when the clock of an ITCH feed starts.
    limit
        Look at no more than so many events.
    rows
        Print so many of the first events.
    strict
        Stop at the first fault, with its place and what to do.
    json
        Print one JSON object instead of tables.
    """
    from isocast.cli.feed import FeedSummary, feed_options, summary_as_json, with_progress
    from isocast.runtime.client.feed_files import FeedFile

    options = feed_options(floor, day, symbol, mapping, format, port, zone, strict=strict)
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
of 48 bytes), .itch, .itch.gz, .pcap. Exit code: 0 sound, 1 something was wrong and counted, 2 bad input.
"""
)
def convert(  # noqa: PLR0913 - what files do not say themselves
    files: Annotated[list[Path], Parameter(consume_multiple=True)],
    /,
    *,
    floor: _Floor = None,
    day: str | None = None,
    symbol: str | None = None,
    mapping: str | None = None,
    format: str | None = None,  # noqa: A002 - the option's name
    port: _Port = None,
    limit: _Count | None = None,
    zone: str = "America/New_York",
    strict: _Flag = False,
    json: _Flag = False,
) -> int:
    """Convert feeds to one file of events, or to ITCH 5.0, and print the digest of the events.

    Parameters
    ----------
    files
        One file or several, then the file to write.
    floor
        The floor of a feed that names none (XNAS if left out); of a feed that names its floors, the only one wanted.
    day
        The day of the feeds, such as 2019-01-30, if their names do not say.
    symbol
        The symbol of tables that have no column for it.
    mapping
        The columns of tables: us-tape-trades, us-tape-quotes, taq-trades, taq-quotes, or a TOML file.
    format
        itch, capture, table, parquet, lobster or events, if the files do not show it.
    port
        Of captures: only datagrams to this UDP port.
    limit
        Convert no more than so many events.
    zone
        Where it is midnight when the clock of an ITCH feed starts, read or written.
    strict
        Stop at the first fault; nothing is written then.
    json
        Print one JSON object instead of tables.
    """
    from isocast.cli.feed import check_target, convert_as_json, feed_options, with_progress, write_feed
    from isocast.feeds.merge import merge_feeds
    from isocast.runtime.client.feed_files import FeedFile
    from isocast.terms.errors import ConfigurationError

    if len(files) < 2:  # noqa: PLR2004 - one to read, one to write
        raise ConfigurationError("command line", "files", "one file to read and one to write are wanted, at least")
    *sources, target = files
    check_target(target, sources)
    options = feed_options(floor, day, symbol, mapping, format, port, zone, strict=strict)
    feeds = [FeedFile(file, options) for file in sources]
    merged = feeds[0].blocks() if len(feeds) == 1 else merge_feeds([feed.blocks() for feed in feeds])
    digest, log = write_feed(target, zone, with_progress(feeds, merged, limit, quiet=json))
    if json:
        show_json(convert_as_json(feeds, target, digest, log))
    else:
        for feed in feeds:
            _show_troubles(feed)
        _show_left_out(target, log)
        line(f"{figure(digest.events)} events to {target}, digest {digest.hex}.")
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
    seed: _Seed = 1,
    floors: _Count = 12,
    symbols: _Count = 500,
    trades: Annotated[int, Parameter(validator=Number(gte=0, lte=10**10))] = 100_000,
    quotes: Annotated[float, Parameter(validator=Number(gte=0, lte=1000))] = 2.0,
    day: str = "2026-03-02",
    floor: _Floor = None,
    json: _Flag = False,
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
    from isocast.cli.feed import check_target, of_floor, told, write_feed
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
        raise ConfigurationError("command line", "--as", f"{floor} is none of the day's floors: {shown}")
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
        count = len(digest.floors)
        whose = f"{figure(count)} floor{'s' * (count != 1)}"
        line(f"{figure(digest.events)} events of {whose} to {out}, digest {digest.hex}.")
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
    from isocast.cli.feed import (
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
    _show_troubles(feed)
    if not feed.log.faults:
        line("Sound: nothing in it is wrong.")


def _show_troubles(feed: FeedFile) -> None:
    from isocast.cli.feed import FAULT_HEADERS, fault_rows

    if feed.log.skipped:
        show_table(f"Skipped in {feed.path}", ("messages", "reason"), _counted(feed.log.skipped))
    if feed.log.faults:
        show_table(f"WRONG in {feed.path}", FAULT_HEADERS, fault_rows(feed))
    for text in feed.log.notes:
        line(f"Note: {text}.")


# ---- What the commands of `isocast feed` share: options of files, progress, and writing.


def feed_options(
    floor: str | None,
    day: str | None,
    symbol: str | None,
    mapping: str | None,
    form: str | None,
    port: int | None,
    zone: str,
    *,
    strict: bool,
) -> FeedOptions:
    """What the command line says, checked."""
    if form is not None and form not in list(FeedFormat):
        rule = f'"{form}" is none of {", ".join(FeedFormat)}{suggestion(form, list(FeedFormat))}'
        raise ConfigurationError("command line", "--format", rule)
    named_floor = named_symbol = None
    key = "--as"
    try:
        named_floor = None if floor is None else Mic(floor)
        key = "--symbol"
        named_symbol = None if symbol is None else Symbol(symbol)
    except LocalProtocolError as reason:
        raise ConfigurationError("command line", key, str(reason)) from None
    check_zone(zone)
    return FeedOptions(
        floor=named_floor,
        day=None if day is None else read_day(day),
        symbol=named_symbol,
        mapping=None if mapping is None else load_mapping(mapping),
        format=None if form is None else FeedFormat(form),
        port=port,
        zone=zone,
        strict=strict,
    )


def check_target(target: Path, sources: list[Path]) -> None:
    """A name that says a format, in a folder that exists, and none of the sources."""
    out_format(target)
    if not target.absolute().parent.is_dir():
        raise ConfigurationError("command line", str(target), "its folder does not exist")
    if any(target.exists() and source.exists() and target.samefile(source) for source in sources):
        raise ConfigurationError("command line", str(target), "would overwrite a file that is read")


def with_progress(
    feeds: list[FeedFile], blocks: Iterable[EventArray], limit: int | None, *, quiet: bool
) -> Iterator[EventArray]:
    """Blocks up to a limit of events, with how far the files were read."""
    left = limit
    with Progress("bytes", sum(feed.size for feed in feeds), quiet=quiet) as progress:
        for block in blocks:
            progress.reach(sum(feed.position for feed in feeds))
            if left is None:
                yield block
                continue
            yield block[:left]
            left -= len(block[:left])
            if not left:
                return


def told(blocks: Iterable[EventArray], tell: Callable[[int], None]) -> Iterator[EventArray]:
    """The blocks, with their events counted aloud."""
    done = 0
    for block in blocks:
        done += len(block)
        tell(done)
        yield block


def of_floor(blocks: Iterable[EventArray], floor: str | None) -> Iterator[EventArray]:
    """The events of one floor, or all."""
    for block in blocks:
        own = block if floor is None else block[block["floor"] == floor.encode("ascii")]
        if len(own):
            yield own


def write_feed(target: Path, zone: str, blocks: Iterable[EventArray]) -> tuple[TapeDigest, FeedLog]:
    """Everything to the file; the digest of the events, and what the file's format could not carry."""
    digest, log = TapeDigest(), FeedLog(str(target))
    with open_sink(target, log, zone) as sink:
        for block in blocks:
            digest.update(block)
            sink.write(block)
        sink.finish(digest.hex)
    return digest, log


# ---- What `isocast feed` prints about a feed.


FAULT_HEADERS = ("fault", "count", "first at byte", "row", "what")
"""Of `fault_rows`."""
_GAPS_SHOWN = 100


class FeedSummary:
    """Counts over the blocks of a feed."""

    def __init__(self, rows: int) -> None:
        """Keep so many of the first events."""
        self.digest = TapeDigest()
        self.kinds = np.zeros(max(EventKind) + 1, np.int64)
        self.first_ns = 0
        self.last_ns = 0
        self.first_rows: list[dict[str, object]] = []
        self._wanted = rows

    def add(self, block: EventArray) -> None:
        """One block more."""
        if not len(block):
            return
        earliest, latest = int(block["time"].min()), int(block["time"].max())
        self.first_ns = min(self.first_ns or earliest, earliest)
        self.last_ns = max(self.last_ns, latest)
        self.kinds += np.bincount(block["kind"], minlength=len(self.kinds))
        self.digest.update(block)
        wanted = self._wanted - len(self.first_rows)
        self.first_rows += [fields_of(event) for event in block[: max(wanted, 0)].tolist()]


def _moment(nanoseconds: int) -> str:
    if not nanoseconds:
        return "–"
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _type_name(feed: FeedFile, name: str) -> str:
    return NAMES.get(name, "") if feed.format in ("itch", "capture") else ""


def facts_of(feed: FeedFile, summary: FeedSummary) -> list[tuple[str, str]]:
    """The feed in a few lines."""
    return [
        ("format", str(feed.format)),
        ("bytes on disk", figure(feed.size)),
        ("bytes decoded", figure(feed.log.bytes_read)),
        ("messages", figure(feed.log.total_messages)),
        ("events", figure(summary.digest.events)),
        ("symbols", figure(symbols_of(feed))),
        ("listings", figure(len(feed.directory))),
        ("first", _moment(summary.first_ns)),
        ("last", _moment(summary.last_ns)),
        ("faults", figure(feed.log.total_faults)),
        ("digest", summary.digest.hex),
    ]


def symbols_of(feed: FeedFile) -> int:
    """Symbols, each once: a directory lists a symbol for every floor on which it trades."""
    return len({listing.symbol for listing in feed.directory})


def message_rows(feed: FeedFile) -> list[tuple[str, str, str]]:
    """Messages by type."""
    return [(name, _type_name(feed, name), figure(count)) for name, count in sorted(feed.log.messages.items())]


def kind_rows(summary: FeedSummary) -> list[tuple[str, str]]:
    """Events by kind."""
    return [(kind.name.lower(), figure(int(summary.kinds[kind]))) for kind in EventKind if summary.kinds[kind]]


def floor_rows(summary: FeedSummary) -> list[tuple[str, str, str]]:
    """Events by floor."""
    return [(name, figure(count), digest) for name, (count, digest) in summary.digest.floors.items()]


def event_rows(summary: FeedSummary) -> list[tuple[str, ...]]:
    """The first events."""
    return [
        (
            _moment(int(str(row["time_ns"]))),
            *(str(row[name]) for name in ("floor", "symbol", "kind", "side", "price", "quantity", "reference", "id")),
            " ".join(map(str, row["flags"] if isinstance(row["flags"], list) else [])),
        )
        for row in summary.first_rows
    ]


def fault_rows(feed: FeedFile) -> list[tuple[str, str, str, str, str]]:
    """Faults by kind and reason."""
    return [
        (
            str(kind),
            figure(reason["count"]),
            figure(reason["first_offset"]),
            figure(reason["first_row"]) if reason["first_row"] else "–",
            what + (f", it is {reason['example']!r}" if reason["example"] else ""),
        )
        for kind, reasons in feed.log.reasons.items()
        for what, reason in reasons.items()
    ]


def session_rows(feed: FeedFile) -> list[tuple[str, ...]]:
    """Sessions of a capture: where they came, what of them, and what not."""
    return [
        (
            session.counts.session or "–",
            " ".join(_line_names(lines)),
            figure(session.counts.first),
            figure(session.counts.last),
            figure(session.counts.messages),
            figure(session.counts.missing),
            figure(session.counts.gaps),
            figure(session.counts.ended),
        )
        for lines, session in feed.streams
    ]


def _line_names(lines: list[tuple[str, int]]) -> list[str]:
    return [f"{target}:{port}" for target, port in lines]


def _session_as_json(lines: list[tuple[str, int]], session: MoldSession) -> dict[str, object]:
    gaps = [{"first": first, "last": last, "messages": last - first + 1} for first, last in session.gaps[:_GAPS_SHOWN]]
    return {**asdict(session.counts), "lines": _line_names(lines), "first_gaps": gaps}


def _log_as_json(log: FeedLog) -> dict[str, object]:
    return {
        "messages": dict(sorted(log.messages.items())),
        "skipped": dict(log.skipped),
        "faults": {
            str(kind): {**record, "reasons": {what: dict(reason) for what, reason in log.reasons[kind].items()}}
            for kind, record in log.faults.items()
        },
        "conditions": dict(log.conditions),
        "notes": list(log.notes),
    }


def _digest_as_json(digest: TapeDigest) -> dict[str, object]:
    floors = {name: {"events": count, "digest": text} for name, (count, text) in digest.floors.items()}
    return {"events": digest.events, "digest": digest.hex, "floors": floors}


def summary_as_json(feed: FeedFile, summary: FeedSummary) -> dict[str, object]:
    """Everything that `feed show` knows."""
    directory = feed.directory
    return {
        "file": str(feed.path),
        "format": str(feed.format),
        "bytes": feed.size,
        "bytes_decoded": feed.log.bytes_read,
        **_digest_as_json(summary.digest),
        "kinds": {kind.name.lower(): int(summary.kinds[kind]) for kind in EventKind if summary.kinds[kind]},
        "first_ns": summary.first_ns,
        "last_ns": summary.last_ns,
        "symbols": symbols_of(feed),
        "listings": len(directory),
        "directory": [
            {
                "floor": listing.floor,
                "symbol": listing.symbol,
                "number": listing.number,
                "round_lot": listing.round_lot,
                "category": listing.category,
            }
            for listing in directory
        ],
        "sessions": [_session_as_json(lines, session) for lines, session in feed.streams],
        **_log_as_json(feed.log),
        "rows": summary.first_rows,
    }


def convert_as_json(feeds: list[FeedFile], target: Path, digest: TapeDigest, log: FeedLog) -> dict[str, object]:
    """What `feed convert` read and wrote."""
    return {
        "file": str(target),
        **_digest_as_json(digest),
        "not_written": dict(log.skipped),
        "written_without": dict(log.lacking),
        "sources": [{"file": str(feed.path), "format": str(feed.format), **_log_as_json(feed.log)} for feed in feeds],
    }
