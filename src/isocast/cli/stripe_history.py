"""Histories for `isocast plan stripes`: feeds, journals and tables of counts, with progress."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from isocast.cli.feed_parts import feed_options
from isocast.cli.render import Progress, note
from isocast.feeds.days import NEW_YORK
from isocast.runtime.client.feed_files import FeedFile
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.striping.history import History, HistoryMaker
from isocast.striping.history_rows import COUNT_COLUMNS, SIZE_COLUMNS, add_count_rows, is_count_header, read_sectors
from isocast.terms.errors import ConfigurationError

__all__ = ["load_history", "load_sectors"]

_HEAD = 1_024


def load_history(
    paths: Sequence[Path], token_period_ns: int, mapping: str | None, day: str | None, *, quiet: bool
) -> History:
    """Everything in some files and directories."""
    options = feed_options(None, day, None, mapping, None, None, NEW_YORK, strict=False)
    maker = HistoryMaker(token_period_ns)
    for path in paths:
        before = maker.events
        if path.is_dir():
            with Progress("messages of the journal", 0, quiet=quiet) as progress:
                for block in read_blocks(path):
                    maker.add(block.events)
                    progress.reach(maker.events - before)
        elif _has_counts(path):
            with _text(path) as lines:
                add_count_rows(maker, lines, str(path))
        elif _has_sizes(path):
            _add_sizes(maker, path)
        else:
            feed = FeedFile(path, options)
            with Progress("bytes", feed.size, quiet=quiet) as progress:
                for events in feed.blocks():
                    maker.add(events)
                    progress.reach(feed.position)
            if feed.log.faults:
                note(f"isocast: {path}: {feed.log.total_faults:,} faults; isocast feed show {path} names them")
        if maker.events == before:
            raise ConfigurationError(str(path), "events", "there are none in it")
    return maker.make()


def _has_counts(path: Path) -> bool:
    if path.name.lower().removesuffix(".gz").endswith((".csv", ".txt")):
        with _text(path) as lines:
            return is_count_header(lines.readline(_HEAD))
    return False


def _has_sizes(path: Path) -> bool:
    """Whether it is a Parquet table as `isocast lake stripes` writes it."""
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return False
    from pyarrow import ArrowInvalid, parquet

    try:
        return {*COUNT_COLUMNS, *SIZE_COLUMNS} <= set(parquet.read_schema(path).names)
    except (ArrowInvalid, OSError):
        return False  # Whoever reads feeds says what is wrong with it.


def _add_sizes(maker: HistoryMaker, path: Path) -> None:
    import numpy as np
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=[*COUNT_COLUMNS, *SIZE_COLUMNS]):
            names = np.array(batch.column("symbol").to_pylist(), "S8")
            numbers = [batch.column(name).to_numpy() for name in ("time", "count", *SIZE_COLUMNS)]
            maker.add_sizes(names, *numbers)


@contextmanager
def _text(path: Path) -> Iterator[IO[str]]:
    try:
        with path.open("rb") as raw:
            opened = gzip.open if raw.read(2) == b"\x1f\x8b" else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except (OSError, EOFError, UnicodeDecodeError) as reason:
        why = reason.strerror if isinstance(reason, OSError) and reason.strerror else "it is not UTF-8 text, or damaged"
        raise ConfigurationError(str(path), "file", f"cannot be read: {why}") from None


def load_sectors(path: Path | None) -> dict[str, str]:
    """The sectors of symbols; none without a file."""
    if path is None:
        return {}
    with _text(path) as lines:
        return read_sectors(lines, str(path))
