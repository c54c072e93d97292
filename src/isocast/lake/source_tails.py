"""How far journals reach: asked again and again while they grow, at the price of what is new."""

from __future__ import annotations

from dataclasses import dataclass, field

from isocast.lake.source_catalog import JournalFolder, Lane
from isocast.lake.source_faults import Fault, Faults
from isocast.lake.source_walk import Chunk, Marks, walk_segment
from isocast.runtime.disk.journal_segments import SegmentFile
from isocast.terms.errors import JournalError
from isocast.wire.journal import SEGMENT_HEADER_BYTES

__all__ = ["Span", "Tails", "insist_on_end"]

_WHOLE = SEGMENT_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Span:
    """The sequences of a lane or a journal, `stop` behind the last; equal if there are none."""

    first: int
    stop: int


@dataclass(slots=True)
class _Tail:
    """The end of one journal, as far as it was seen."""

    file: SegmentFile | None = None
    offset: int = _WHOLE
    """Behind the last whole block of `file`."""
    stop: int = 0
    trouble: list[Fault] = field(default_factory=list)
    """What hides whatever may follow."""
    torn: list[Fault] = field(default_factory=list)
    """The beginning of a block at the very end: somebody writes there, or was killed."""


class Tails:
    """The ends of journals; remembers where they were."""

    def __init__(self, marks: Marks) -> None:
        """What is walked over is marked."""
        self._marks = marks
        self._tails: dict[JournalFolder, _Tail] = {}

    def span(self, lane: Lane, faults: Faults) -> Span:
        """What the journals of a lane hold together; a fault that hides the lane's end is made good by nobody."""
        spans = [(journal, self.of_journal(journal)) for journal in lane.journals]
        known = [span for _, span in spans if span.stop]
        if not known:
            for journal, _ in spans:
                self._tell(journal, 0, faults)
            return Span(1, 1)
        whole = Span(min(span.first for span in known), max(span.stop for span in known))
        for journal, _ in spans:
            self._tell(journal, whole.stop, faults)
        return whole

    def of_journal(self, journal: JournalFolder) -> Span:
        """What one journal holds; both 0 if it has nothing whole."""
        files = journal.files()
        tail = self._tails.setdefault(journal, _Tail())
        for file in self._unseen(files, tail):
            is_newest = file is files[-1]
            self._advance(tail, file, is_newest=is_newest)
        if not files or not tail.stop:
            return Span(0, 0)
        return Span(files[0].first_sequence, tail.stop)

    def _unseen(self, files: list[SegmentFile], tail: _Tail) -> list[SegmentFile]:
        """The segments to walk: from the one that was reached, or the last that has a block."""
        if tail.file is not None:
            return [file for file in files if file.first_sequence >= tail.file.first_sequence]
        for place in range(len(files) - 1, -1, -1):
            trial = _Tail()
            self._advance(trial, files[place], is_newest=place == len(files) - 1)
            if trial.stop:
                return files[place:]
        return files[-1:]

    def _advance(self, tail: _Tail, file: SegmentFile, *, is_newest: bool) -> None:
        seen = Faults(is_strict=False)
        start = tail.offset if tail.file == file else _WHOLE
        last: Chunk | None = None
        for chunk in walk_segment(file, seen, is_newest=is_newest, start=start):
            self._marks.learn(chunk)
            tail.file, tail.stop = file, max(tail.stop, int(chunk.nexts.max()))
            tail.offset = chunk.end
            last = chunk
        behind = 0 if last is None else last.end
        tail.torn = [fault for fault in seen.found if fault.reason == "torn"]
        tail.trouble = [
            fault for fault in seen.found if fault.reason != "torn" and (fault.offset is None or fault.offset >= behind)
        ]

    def _tell(self, journal: JournalFolder, reached: int, faults: Faults) -> None:
        tail = self._tails[journal]
        for fault in tail.torn:
            faults.note(fault)
        for fault in tail.trouble:
            if tail.stop >= reached:
                faults.lost(fault)
            else:
                faults.note(fault)


def insist_on_end(lane: Lane, wanted: int, span: Span) -> None:
    """JournalError for a checkpoint that has read more than there is."""
    if wanted > span.stop:
        rule = (
            f"the checkpoint has read stripe {lane.stripe} up to sequence {wanted - 1}, and the journals end with"
            f" {span.stop - 1}: they are another market's, or were lost; give the right folder, wait until receivers"
            " have fetched what they lack, or begin with a new checkpoint"
        )
        raise JournalError(lane.journals[0].path, rule)
