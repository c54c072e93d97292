"""What the commands of `isocast feed` share: options of files, progress, and writing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from isocast.cli.render import Progress
from isocast.feeds.days import check_zone, read_day
from isocast.feeds.outcomes import FeedLog
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.feed_files import FeedFile, FeedFormat, FeedOptions, load_mapping
from isocast.runtime.client.feed_out import open_sink, out_format
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.market import Mic, Symbol
from isocast.terms.suggestion import suggestion
from isocast.wire.events import EventArray

__all__ = ["check_target", "feed_options", "of_floor", "told", "with_progress", "write_feed"]


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
