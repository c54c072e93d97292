"""What `isocast feed` prints about a feed, and what its commands share: options, progress, writing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from isocast.cli.options import FeedChoice
from isocast.cli.render import Progress, figure
from isocast.feeds.days import read_day
from isocast.feeds.itch_layout import NAMES
from isocast.feeds.mold import MoldSession
from isocast.feeds.outcomes import FeedLog
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.feed_files import FeedFile, FeedFormat, FeedOptions, load_mapping
from isocast.runtime.client.feed_sinks import open_sink, out_format
from isocast.runtime.client.rows import fields_of
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.instants import instant_text
from isocast.terms.market import EventKind, Mic, Symbol
from isocast.terms.quantities import suggestion
from isocast.terms.zones import zone_of
from isocast.wire.events import EventArray

__all__ = [
    "FAULT_HEADERS",
    "FeedSummary",
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


def _moment(instant: int) -> str:
    return instant_text(instant) if instant else "–"


def _type_name(feed: FeedFile, name: str) -> str:
    return NAMES.get(name, "") if feed.format in ("itch", "itch-unframed", "soupbintcp", "capture") else ""


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
        "quote_conditions": dict(log.quote_conditions),
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


# ---- What the commands of `isocast feed` share: options of files, progress, and writing.


def feed_options(floor: str | None, choice: FeedChoice) -> FeedOptions:
    """What the command line says, checked."""
    form = choice.format
    if form is not None and form not in list(FeedFormat):
        rule = f'"{form}" is not one of {", ".join(FeedFormat)}{suggestion(form, list(FeedFormat))}'
        raise ConfigurationError("command line", "--format", rule)
    named_floor = named_symbol = None
    key = "--as"
    try:
        named_floor = None if floor is None else Mic(floor)
        key = "--symbol"
        named_symbol = None if choice.symbol is None else Symbol(choice.symbol)
    except LocalProtocolError as reason:
        raise ConfigurationError("command line", key, str(reason)) from None
    zone_of(choice.zone)
    return FeedOptions(
        floor=named_floor,
        day=None if choice.day is None else read_day(choice.day),
        symbol=named_symbol,
        mapping=None if choice.mapping is None else load_mapping(choice.mapping),
        format=None if form is None else FeedFormat(form),
        port=choice.port,
        zone=choice.zone,
        strict=choice.strict,
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
