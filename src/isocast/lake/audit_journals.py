"""Which journals lie in a folder, whose they are, and the tasks that read them: one for each segment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocast.runtime.journal_segments import SegmentFile
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import describe
from isocast.wire.journal import SEGMENT_SUFFIX, segment_of_name

__all__ = ["HeldJournal", "SegmentTask", "find_journals", "plan_tasks"]

_IDENTITY = Path("log") / "identity.json"
"""Beside a node's journal: what `runtime.store_marker` writes."""


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

    @property
    def paths(self) -> tuple[str, ...]:
        """Its segments, oldest first."""
        return tuple(str(file.path) for file in self.files)


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """One segment to read, and where to read on until its last block of messages is whole."""

    stripe: int
    receiver: int
    paths: tuple[str, ...]
    """The segment, then those behind it that may hold the rest of a block that begins in it."""
    first_sequence: int
    next_segment: int | None
    """Where the next segment begins; None for the newest."""
    is_oldest: bool
    block_messages: int

    def to_json(self) -> str:
        """As a row's cell."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> SegmentTask:
        """Back from a cell."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "paths": tuple(fields["paths"])})


def find_journals(where: Path) -> list[HeldJournal]:
    """Every journal below a folder, by stripe and receiver; ConfigurationError if two markets lie there."""
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
            stripe, site, directory, _name(where, site, directory), tuple(sorted(files)), _aside(aside, directory)
        )
        for (stripe, site, directory), files in sorted(folders.items())
    ]


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
        market = _market_of(Path(directory))
        if market is not None:
            markets.setdefault(market, directory)
    if len(markets) > 1:
        listed = ", ".join(f'"{market}" ({directory})' for market, directory in sorted(markets.items()))
        raise ConfigurationError(str(where), "--journals", f"journals of two markets are mixed here: {listed}")


def _market_of(directory: Path) -> str | None:
    """What the node's own identity says; None where there is none to read."""
    try:
        found = json.loads((directory.parent / _IDENTITY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    market = found.get("market") if isinstance(found, dict) else None
    return market if isinstance(market, str) else None


def _name(where: Path, site: int, directory: str) -> str:
    folder = Path(directory)
    folder = folder.parent if folder.name == "journal" else folder
    return describe(site) if folder == where else folder.name


def plan_tasks(journals: Sequence[HeldJournal], block_messages: int) -> list[SegmentTask]:
    """A task for each segment. A block of messages belongs to the segment in which it begins."""
    tasks = []
    for journal in journals:
        files = journal.files
        for place, file in enumerate(files):
            following = files[place + 1].first_sequence if place + 1 < len(files) else None
            tasks.append(
                SegmentTask(
                    journal.stripe,
                    journal.receiver,
                    (str(file.path), *_reached(files[place + 1 :], block_messages)),
                    file.first_sequence,
                    following,
                    place == 0,
                    block_messages,
                )
            )
    return tasks


def _reached(following: Sequence[SegmentFile], block_messages: int) -> list[str]:
    """Segments that may hold the rest of the block in which the first of them begins."""
    if not following:
        return []
    end = -(-following[0].first_sequence // block_messages) * block_messages
    return [str(file.path) for file in following if file.first_sequence < end]
