"""Which journals lie in a folder, whose they are, and the tasks that read them: one for each segment, or part of one.

A long segment is cut into parts between two of its blocks, which the driver finds by skipping from header to header.
One in which that is not possible, since a header is damaged or sequences are not contiguous, is read by one task.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from isocast.lake.source_catalog import market_of
from isocast.runtime.disk.journal_record import JournalRecord, read_record
from isocast.runtime.disk.journal_segments import Segment, SegmentFile
from isocast.terms.errors import ConfigurationError, JournalError
from isocast.terms.ids import describe
from isocast.terms.places import local_path
from isocast.wire.journal import SEGMENT_HEADER_BYTES, SEGMENT_SUFFIX, segment_of_name

__all__ = ["PART_BYTES", "HeldJournal", "SegmentTask", "Start", "find_journals", "plan_tasks"]

PART_BYTES = 16 << 20
"""Of a segment: what a task reads in about a second."""
_PARTS_ENOUGH = 256


@dataclass(frozen=True, slots=True)
class HeldJournal:
    """One receiver's journal of one stripe."""

    stripe: int
    receiver: int
    directory: str
    name: str
    """The node's name where its folder tells, else its id in words."""
    files: tuple[SegmentFile, ...]
    aside: tuple[str, ...] = ()
    """Files that were set aside, or never finished: not part of the journal."""
    record: JournalRecord | None = None
    """What the journal says of itself."""
    record_fault: str = ""
    """What is wrong with that."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Its segments, oldest first."""
        return tuple(str(file.path) for file in self.files)


class Start(NamedTuple):
    """Where a part of a journal begins."""

    path: str
    offset: int
    """Of its first block."""
    first_sequence: int


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment to read, or a part of it, and where to read on until its last block of messages is whole."""

    stripe: int
    receiver: int
    start: Start
    stop: int | None
    """Where the next part of the same segment begins; None: it is read to its end."""
    following: tuple[Start, ...]
    """Parts behind it that may hold the rest of a block of messages that begins in it."""
    next_sequence: int | None
    """Where what follows begins; None for the newest."""
    is_oldest: bool
    block_messages: int
    delays: tuple[tuple[int, int], ...] = ()
    """From which sequence on which Δ_A, as far as that is known."""

    def to_json(self) -> str:
        """As a row's cell."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> SegmentTask:
        """Back from a cell."""
        fields: dict[str, Any] = json.loads(text)
        following = tuple(Start(*each) for each in fields["following"])
        delays = tuple((first, delay_ns) for first, delay_ns in fields["delays"])
        return cls(**{**fields, "start": Start(*fields["start"]), "following": following, "delays": delays})


def find_journals(where: Path) -> list[HeldJournal]:
    """Every journal below a folder, by stripe and receiver; ConfigurationError if two markets lie there."""
    where = local_path(where, "command line", "--journals")
    if not where.is_dir():
        raise ConfigurationError(str(where), "--journals", "no such folder")
    folders: dict[tuple[int, int, str], list[SegmentFile]] = {}
    aside: dict[str, list[str]] = {}
    for path in sorted(where.rglob(f"*{SEGMENT_SUFFIX}*")):
        parsed = segment_of_name(path.name)
        if parsed is not None and path.is_file():
            stripe, site, first = parsed
            folders.setdefault((stripe, site, str(path.parent)), []).append(SegmentFile(first, path, stripe, site))
        elif segment_of_name(path.name.partition(SEGMENT_SUFFIX)[0] + SEGMENT_SUFFIX) is not None:
            aside.setdefault(str(path.parent), []).append(str(path))
    if not folders:
        raise ConfigurationError(str(where), "--journals", f"holds no segment of a journal (*{SEGMENT_SUFFIX})")
    _insist_on_one_market(where, list(folders))
    return [
        HeldJournal(
            stripe,
            site,
            directory,
            _name(where, site, directory),
            tuple(sorted(files)),
            _aside(aside, directory),
            *_record(stripe, site, directory),
        )
        for (stripe, site, directory), files in sorted(folders.items())
    ]


def _record(stripe: int, site: int, directory: str) -> tuple[JournalRecord | None, str]:
    try:
        return read_record(Path(directory), stripe, site), ""
    except JournalError as damage:
        return None, damage.rule


def _aside(aside: dict[str, list[str]], directory: str) -> tuple[str, ...]:
    return tuple(aside.get(directory, ()))


def _insist_on_one_market(where: Path, owners: Sequence[tuple[int, int, str]]) -> None:
    """A site has one journal of a stripe, and all nodes belong to one market."""
    known: dict[tuple[int, int], str] = {}
    for stripe, site, directory in owners:
        other = known.setdefault((stripe, site), directory)
        if other != directory:
            rule = (
                f"{describe(site)} has two journals of stripe {stripe}, {other} and {directory}: "
                "two markets are mixed here, or a copy lies beside its original; give each a folder of its own"
            )
            raise ConfigurationError(str(where), "--journals", rule)
    markets: dict[str, str] = {}
    for _, _, directory in owners:
        market = market_of(Path(directory))
        if market is not None:
            markets.setdefault(market, directory)
    if len(markets) > 1:
        listed = ", ".join(f'"{market}" ({directory})' for market, directory in sorted(markets.items()))
        raise ConfigurationError(str(where), "--journals", f"journals of two markets are mixed here: {listed}")


def _name(where: Path, site: int, directory: str) -> str:
    folder = Path(directory)
    folder = folder.parent if folder.name == "journal" else folder
    return describe(site) if folder == where else folder.name


def plan_tasks(
    journals: Sequence[HeldJournal],
    block_messages: int,
    part_bytes: int = PART_BYTES,
    release_delay_ns: int | None = None,
) -> list[SegmentTask]:
    """A task for each segment, or part of one. A block of messages belongs to the part in which it begins.

    Δ_A is what the market's file says, if it was given, else what each journal records.
    """
    total = sum(_size(file.path) for journal in journals for file in journal.files)
    # Parts are for balance: where there are many segments anyway, none has to be looked through for places to cut.
    part_bytes = max(part_bytes, total // _PARTS_ENOUGH)
    tasks = []
    for journal in journals:
        recorded = journal.record.delays if journal.record is not None else ()
        delays = recorded if release_delay_ns is None else ((0, release_delay_ns),)
        starts = [start for file in journal.files for start in _starts(file, part_bytes)]
        for place, start in enumerate(starts):
            following = starts[place + 1 :]
            in_segment = bool(following) and following[0].path == start.path
            tasks.append(
                SegmentTask(
                    journal.stripe,
                    journal.receiver,
                    start,
                    following[0].offset if in_segment else None,
                    tuple(_reached(following, block_messages)),
                    following[0].first_sequence if following else None,
                    place == 0,
                    block_messages,
                    delays,
                )
            )
    return tasks


def _starts(file: SegmentFile, part_bytes: int) -> list[Start]:
    """Where the parts of a segment begin: one, unless it is long and its blocks follow one another."""
    starts = [Start(str(file.path), SEGMENT_HEADER_BYTES, file.first_sequence)]
    if _size(file.path) < 2 * part_bytes:
        return starts
    expected, begin = file.first_sequence, SEGMENT_HEADER_BYTES
    cuts: list[Start] = []
    try:
        with Segment(file) as segment:
            for offset, header in segment.headers():
                if header.first_sequence != expected:
                    return starts
                expected = header.next_sequence
                if offset - begin >= part_bytes:
                    cuts.append(Start(str(file.path), offset, header.first_sequence))
                    begin = offset
    except JournalError:
        return starts  # The task that reads it says what is wrong.
    return starts + cuts


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _reached(following: Sequence[Start], block_messages: int) -> list[Start]:
    """Parts that may hold the rest of the block in which the first of them begins."""
    if not following:
        return []
    end = -(-following[0].first_sequence // block_messages) * block_messages
    return [start for start in following if start.first_sequence < end]
