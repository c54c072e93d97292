"""What each segment of a journal holds, by its headers alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isocast.runtime.disk.journal_segments import Segment, SegmentFile, segment_files
from isocast.terms.errors import JournalError
from isocast.terms.ids import Epoch, NodeId

__all__ = ["SegmentSummary", "summarise"]


@dataclass(slots=True)
class SegmentSummary:
    """One segment; numbers and instants are None while it has no whole block."""

    path: Path
    stripe: int
    site: NodeId
    bytes: int
    blocks: int = 0
    messages: int = 0
    events: int = 0
    fetched_messages: int = 0
    """Those that the site did not release, but fetched from another's archive."""
    first_sequence: int | None = None
    last_sequence: int | None = None
    first_token: int | None = None
    last_token: int | None = None
    first_epoch: Epoch | None = None
    last_epoch: Epoch | None = None
    first_release: int | None = None
    last_release: int | None = None
    latest_ns: int | None = None
    """The largest lateness."""
    unfinished_bytes: int = 0
    """Behind the last whole block: a writer is at work there, or was killed."""
    damage: str | None = None
    """What is wrong with a header; bodies are not looked at."""


def summarise(where: Path) -> list[SegmentSummary]:
    """Every segment of a directory, in order, or the one that is named."""
    return [_summary(file) for file in segment_files(where)]


def _summary(file: SegmentFile) -> SegmentSummary:
    summary = SegmentSummary(file.path, file.stripe, file.site, file.path.stat().st_size)
    try:
        with Segment(file) as segment:
            _walk(segment, summary)
    except JournalError as damage:
        summary.damage = str(damage)
    return summary


def _walk(segment: Segment, summary: SegmentSummary) -> None:
    for _, header in segment.headers():
        if summary.blocks == 0:
            summary.first_sequence = header.first_sequence
            summary.first_token = header.token_number
            summary.first_epoch = header.epoch
            summary.first_release = header.released_at
        summary.blocks += 1
        summary.messages += header.messages
        summary.events += header.events
        summary.fetched_messages += header.messages * header.fetched
        summary.last_sequence = header.next_sequence - 1
        summary.last_token = header.token_number
        summary.last_epoch = header.epoch
        summary.last_release = header.released_at
        if summary.latest_ns is None or header.lateness_ns > summary.latest_ns:
            summary.latest_ns = header.lateness_ns
    summary.unfinished_bytes = segment.size() - segment.reached
