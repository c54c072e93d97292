"""One receiver's journal of one stripe: its segments put together again, and what is wrong with it alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeAlias

from isocast.lake.audit_journals import HeldJournal
from isocast.lake.audit_terms import AuditReport, Cover, Finding, FindingKind, Note
from isocast.lake.audit_walk import SegmentRecord
from isocast.runtime.disk.journal_record import JournalRecord, missing_beginning, record_path
from isocast.runtime.disk.journal_verify import FaultKind, order_faults, source_fault
from isocast.wire.journal import SEGMENT_HEADER_BYTES, BlockHeader

__all__ = ["Journal", "judge"]

_KINDS = {
    FaultKind.DAMAGE: FindingKind.DAMAGE,
    FaultKind.GAP: FindingKind.GAP,
    FaultKind.OVERLAP: FindingKind.DUPLICATE,
    FaultKind.ORDER: FindingKind.ORDER,
    FaultKind.EARLY: FindingKind.EARLY,
    FaultKind.SOURCE: FindingKind.SOURCE,
}


_Span: TypeAlias = tuple[int, int]
"""First and last sequence."""


class Journal(NamedTuple):
    """A journal and what was read of it, part by part."""

    folder: HeldJournal
    records: Sequence[SegmentRecord]


def judge(journal: Journal, report: AuditReport, *, live: bool) -> None:
    """Add what is wrong with a journal, and how far it reaches."""
    _Judge(journal, report, live=live).run()


@dataclass(slots=True)
class _Reached:
    """Where the walk over the parts stands."""

    header: BlockHeader | None = None
    sources: dict[str, int] = field(default_factory=dict)
    """The last number of each source, where that is known."""
    damaged: list[_Span] = field(default_factory=list)
    """Blocks behind the header that are there and damaged."""


class _Judge:
    def __init__(self, journal: Journal, report: AuditReport, *, live: bool) -> None:
        self._folder, self._records = journal
        self._report = report
        self._live = live

    def run(self) -> None:
        self._beginning()
        reached = _Reached()
        for record in self._records:
            is_newest = record is self._records[-1]
            if record.refused:
                self._refused(record)
                reached = _Reached()
                continue
            reached = self._follow(reached, record)
            self._faults(record)
            if record.unfinished:
                self._unfinished(record, is_newest=is_newest)
        self._report.covers.append(self._cover())
        self._notes()

    def _add(
        self,
        kind: FindingKind,
        text: str,
        record: SegmentRecord,
        offset: int,
        first: int | None,
        last: int | None,
        count: int = 1,
        field: str = "",
    ) -> None:
        stripe, receiver = self._folder.stripe, self._folder.receiver
        self._report.add(
            Finding(kind, stripe, receiver, text, record.path, offset, first, last, field=field, count=count)
        )

    # Where it begins ----------------------------------------------------------------------------

    def _beginning(self) -> None:
        """A journal begins with sequence 1, or where its own record says: else its first segments are gone (S2)."""
        folder, known = self._folder, self._folder.record or JournalRecord()
        stripe, receiver, first = folder.stripe, folder.receiver, folder.files[0]
        if folder.record_fault:
            path = record_path(Path(folder.directory), stripe, receiver)
            self._report.add(Finding(FindingKind.DAMAGE, stripe, receiver, folder.record_fault, str(path), 0))
            return
        fault = missing_beginning(folder.record, first.first_sequence)
        if fault is not None:
            span = known.first_sequence, first.first_sequence - 1
            place = str(first.path), SEGMENT_HEADER_BYTES
            self._report.add(Finding(FindingKind.GAP, stripe, receiver, fault, *place, *span))
        elif first.first_sequence > 1:
            text = f"messages before its first {known.why.text}"
            self._report.notes.append(Note("begins-later", stripe, receiver, first.first_sequence - 1, text))

    # What could not be read ---------------------------------------------------------------------

    def _refused(self, record: SegmentRecord) -> None:
        files = self._folder.files
        place = next(at for at, file in enumerate(files) if str(file.path) == record.path)
        last = files[place + 1].first_sequence - 1 if place + 1 < len(files) else None
        text = f"nothing of this segment could be read: {record.refused}"
        self._add(FindingKind.UNREAD, text, record, 0, files[place].first_sequence, last)

    def _unfinished(self, record: SegmentRecord, *, is_newest: bool) -> None:
        header = record.last
        first = None if header is None else header.next_sequence
        if not is_newest:
            text = f"torn: {record.unfinished:,} bytes of a block without its end, although a later segment exists"
            self._add(FindingKind.UNREAD, text, record, record.reached, first, None)
        elif not self._live:
            text = (
                f"torn: {record.unfinished:,} bytes of a block without its end; the node cuts them off when it starts"
            )
            self._add(FindingKind.UNREAD, text, record, record.reached, first, None)

    # Part after part ----------------------------------------------------------------------------

    def _follow(self, reached: _Reached, record: SegmentRecord) -> _Reached:
        """The rules that `verify` has inside a segment, from the last block before a part to its first."""
        first, last, before = record.first, record.last, reached.header
        damaged = reached.damaged + _damaged(record)
        if first is None or last is None:
            return _Reached(before, reached.sources, damaged)
        known = dict(reached.sources)
        if before is not None:
            missing, end = before.next_sequence, first.first_sequence - 1
            if record.offset == SEGMENT_HEADER_BYTES:
                # What is missing behind the sequence of a segment's name is missing in it, and said there.
                end = min(end, max(self._named(record), missing) - 1)
            if missing <= end and not _is_within(missing, end, damaged):
                text = f"sequences {missing} to {end} are missing"
                self._add(FindingKind.GAP, text, record, record.offset, missing, end)
            elif first.first_sequence < missing:
                text = f"sequence {first.first_sequence} follows {before.next_sequence - 1}"
                self._add(
                    FindingKind.DUPLICATE, text, record, record.offset, first.first_sequence, before.next_sequence - 1
                )
            if first.first_sequence != before.next_sequence:
                known = {}
            for text in order_faults(before, first):
                self._add(FindingKind.ORDER, text, record, record.offset, first.first_sequence, None)
        for source, (number, sequence, offset) in record.first_numbers.items():
            if source in known and number != known[source] + 1:
                text = source_fault(int(source), number, known[source])
                kind = FindingKind.DUPLICATE if number <= known[source] else FindingKind.SOURCE
                self._add(kind, text, record, offset, sequence, sequence)
        kept = {} if record.forgot else known
        behind = [span for span in _damaged(record) if span[0] >= last.next_sequence]
        return _Reached(last, {**kept, **record.last_numbers}, behind)

    def _named(self, record: SegmentRecord) -> int:
        """The sequence with which a segment begins, as its name says."""
        return next(file.first_sequence for file in self._folder.files if str(file.path) == record.path)

    def _faults(self, record: SegmentRecord) -> None:
        damaged = _damaged(record)
        told: dict[str, int] = {}
        for fault in sorted(record.faults, key=lambda each: (each[1], each[3] or 0)):
            kind, offset, text, first, last, name = fault
            told[kind] = told.get(kind, 0) + 1
            if kind == FaultKind.GAP and first is not None and last is not None and _is_within(first, last, damaged):
                continue  # The blocks are there, and damaged: that is said already.
            repeated = kind == FaultKind.SOURCE and text.endswith("repeated")
            found = FindingKind.DUPLICATE if repeated else _KINDS[FaultKind(kind)]
            self._add(found, text, record, offset, first, last, field=name)
        for kind, count in record.fault_counts.items():
            more = count - told.get(kind, 0)
            if more > 0:
                text = f"{more:,} more of the same kind: isocast journal verify {self._folder.directory}"
                self._add(_KINDS[FaultKind(kind)], text, record, 0, None, None, more)

    # What there is ------------------------------------------------------------------------------

    def _cover(self) -> Cover:
        folder, records = self._folder, self._records
        headers = [header for record in records for header in (record.first, record.last) if header is not None]
        whole = blake2b(digest_size=16)
        for record in records:
            for digest in record.digests:
                whole.update(f"{digest.first_sequence} {digest.contents} {digest.schedule} ".encode())
        return Cover(
            stripe=folder.stripe,
            receiver=folder.receiver,
            name=folder.name,
            directory=folder.directory,
            segments=len(folder.files),
            bytes=sum(file.path.stat().st_size for file in folder.files if file.path.exists()),
            unread_bytes=sum(_unread(record) for record in records),
            blocks=sum(record.blocks for record in records),
            messages=sum(record.messages for record in records),
            events=sum(record.events for record in records),
            opaque=sum(record.opaque for record in records),
            fetched=sum(record.fetched for record in records),
            uncertified=sum(record.uncertified for record in records),
            first_sequence=min((header.first_sequence for header in headers), default=None),
            last_sequence=max((header.next_sequence - 1 for header in headers), default=None),
            digest=whole.hexdigest(),
        )

    def _notes(self) -> None:
        folder, cover = self._folder, self._report.covers[-1]
        told = [
            ("fetched", cover.fetched, "messages were fetched from another archive: not released here"),
            ("uncertified", cover.uncertified, "messages were released without a majority (policy availability)"),
            ("opaque", cover.opaque, "messages are no market events: compared like the others, in no table"),
            ("set-aside", len(folder.aside), f"files beside the journal were not read: {', '.join(folder.aside)}"),
        ]
        for code, count, text in told:
            if count:
                self._report.notes.append(Note(code, folder.stripe, folder.receiver, count, text))


def _damaged(record: SegmentRecord) -> list[_Span]:
    """Sequences of blocks that are there and damaged, as far as their headers can be read."""
    return [
        (first, last)
        for kind, _, _, first, last, _ in record.faults
        if kind == FaultKind.DAMAGE and first is not None and last is not None
    ]


def _is_within(first: int, last: int, spans: Iterable[_Span]) -> bool:
    """Whether a range is all covered."""
    for begin, end in sorted(spans):
        if begin <= first <= end:
            first = end + 1
    return first > last


def _unread(record: SegmentRecord) -> int:
    return record.bytes if record.refused else record.unfinished
