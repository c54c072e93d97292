"""One receiver's journal put together again and judged alone; and a close look at a block in which receivers differ."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from isocast.checks.journals import Breach, FaultKind, order_breaches, place_breach, source_breach
from isocast.lake.audit_terms import AuditReport, Cover, Finding, FindingKind, Note
from isocast.lake.audit_walk import HeldJournal, SegmentRecord
from isocast.runtime.disk.journal_record import JournalRecord, missing_beginning, record_path
from isocast.runtime.disk.journal_segments import Segment, segment_files
from isocast.terms.errors import JournalError, RemoteProtocolError
from isocast.terms.ids import Epoch, describe
from isocast.wire.events import EVENT_DTYPE, are_events
from isocast.wire.journal import SEGMENT_HEADER_BYTES, BlockHeader
from isocast.wire.journal_blocks import BlockView
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.packets import payload_digest

__all__ = ["JournalParts", "ZoomResult", "ZoomTask", "judge", "zoom"]


_KINDS = {
    FaultKind.DAMAGE: FindingKind.DAMAGE,
    FaultKind.GAP: FindingKind.GAP,
    FaultKind.OVERLAP: FindingKind.DUPLICATE,
    FaultKind.ORDER: FindingKind.ORDER,
    FaultKind.EARLY: FindingKind.EARLY,
    FaultKind.SOURCE: FindingKind.SOURCE,
    FaultKind.PROOF: FindingKind.PROOF,
}


_Span: TypeAlias = tuple[int, int]
"""First and last sequence."""


class JournalParts(NamedTuple):
    """A journal and what was read of it, part by part."""

    folder: HeldJournal
    records: Sequence[SegmentRecord]


def judge(journal: JournalParts, report: AuditReport, *, live: bool) -> None:
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
    def __init__(self, journal: JournalParts, report: AuditReport, *, live: bool) -> None:
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
        span: tuple[int | None, int | None],
        count: int = 1,
        field: str = "",
        law: str = "",
    ) -> None:
        stripe, receiver = self._folder.stripe, self._folder.receiver
        self._report.add(
            Finding(kind, stripe, receiver, text, record.path, offset, *span, field=field, count=count, law=law)
        )

    def _breach(self, breach: Breach, record: SegmentRecord, offset: int) -> None:
        kind, law, text, first, last, field = breach
        self._add(_finding_kind(kind, law), text, record, offset, (first, last), field=field, law=law)

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
        self._add(FindingKind.UNREAD, text, record, 0, (files[place].first_sequence, last))

    def _unfinished(self, record: SegmentRecord, *, is_newest: bool) -> None:
        header = record.last
        first = None if header is None else header.next_sequence
        if not is_newest:
            text = f"torn: {record.unfinished:,} bytes of a block without its end, although a later segment exists"
            self._add(FindingKind.UNREAD, text, record, record.reached, (first, None))
        elif not self._live:
            text = (
                f"torn: {record.unfinished:,} bytes of a block without its end; the node cuts them off when it starts"
            )
            self._add(FindingKind.UNREAD, text, record, record.reached, (first, None))

    # Part after part ----------------------------------------------------------------------------

    def _follow(self, reached: _Reached, record: SegmentRecord) -> _Reached:
        """The rules that `verify` has inside a segment, from the last block before a part to its first."""
        first, last, before = record.first, record.last, reached.header
        damaged = reached.damaged + _damaged(record)
        if first is None or last is None:
            return _Reached(before, reached.sources, damaged)
        known = dict(reached.sources)
        if before is not None:
            expected, found = before.next_sequence, first.first_sequence
            if record.offset == SEGMENT_HEADER_BYTES and found > expected:
                # What is missing behind the sequence of a segment's name is missing in it, and said there.
                found = min(found, max(self._named(record), expected))
            place = place_breach(expected, found)
            is_there = place is not None and _is_within(place.sequence, place.last_sequence, damaged)
            if place is not None and not (place.kind is FaultKind.GAP and is_there):
                self._breach(place, record, record.offset)
            if first.first_sequence != expected:
                known = {}
            for breach in order_breaches(before, first):
                self._breach(breach, record, record.offset)
        for source, (number, sequence, offset) in record.first_numbers.items():
            if source in known and number != known[source] + 1:
                self._breach(source_breach(int(source), number, known[source], sequence), record, offset)
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
            kind, offset, text, first, last, name, law = fault
            told[kind] = told.get(kind, 0) + 1
            if kind == FaultKind.GAP and first is not None and last is not None and _is_within(first, last, damaged):
                continue  # The blocks are there, and damaged: that is said already.
            found = _finding_kind(FaultKind(kind), law)
            self._add(found, text, record, offset, (first, last), field=name, law=law)
        for kind, count in record.fault_counts.items():
            more = count - told.get(kind, 0)
            if more > 0:
                text = f"{more:,} more of the same kind: isocast journal verify {self._folder.directory}"
                self._add(_KINDS[FaultKind(kind)], text, record, 0, (None, None), more)

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
            floors=tuple(sorted({code for record in records for code in record.floors})),
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
            ("floors", len(cover.floors), _floors_text(cover.floors)),
            ("set-aside", len(folder.aside), f"files beside the journal were not read: {', '.join(folder.aside)}"),
        ]
        for code, count, text in told:
            if count:
                self._report.notes.append(Note(code, folder.stripe, folder.receiver, count, text))


def _floors_text(codes: tuple[str, ...]) -> str:
    """What to do about trading floors, whose trades this audit does not judge."""
    return f"trading floors ({', '.join(codes)}): judge their trades with isocast floor verify, or floor_audit in Spark"


def _finding_kind(kind: FaultKind, law: str) -> FindingKind:
    """A source's number that occurs twice is a duplicate, as a sequence is."""
    return FindingKind.DUPLICATE if kind is FaultKind.SOURCE and law == "S2" else _KINDS[kind]


def _damaged(record: SegmentRecord) -> list[_Span]:
    """Sequences of blocks that are there and damaged, as far as their headers can be read."""
    return [
        (first, last)
        for kind, _, _, first, last, _, _ in record.faults
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


# Looking into one block of messages in which receivers differ: which message, which event, which field, and
# whose.
#
# What most receivers hold counts as what was released; with as many on each side, a payload that is what its digest
# says counts, then the lowest receiver. Blocks whose checksum is wrong are read too where their header can be: a
# flipped bit then has a name, and not only a place.


_FINDINGS_MAX = 8
"""Of one receiver in one block; all are counted."""


@dataclass(frozen=True, slots=True)
class ZoomTask:
    """A stretch of a stripe's sequence, and the segments in which each receiver may hold it."""

    stripe: int
    first_sequence: int
    last_sequence: int
    paths: Mapping[str, tuple[str, ...]]
    """By receiver."""

    def to_json(self) -> str:
        """As a row's cell."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> ZoomTask:
        """Back from a cell."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class ZoomResult:
    """What came of it."""

    stripe: int
    first_sequence: int
    findings: list[Finding]
    compared: dict[str, int]
    """By receiver: messages that somebody else holds too."""
    different: dict[str, int]

    def to_json(self) -> str:
        """As a row's cell."""
        findings = [finding.as_json() for finding in self.findings]
        return json.dumps([self.stripe, self.first_sequence, findings, self.compared, self.different])

    @classmethod
    def from_json(cls, text: str) -> ZoomResult:
        """Back from a cell."""
        stripe, first, rows, compared, different = json.loads(text)
        return cls(stripe, first, [_finding(row) for row in rows], compared, different)


def _finding(row: dict[str, Any]) -> Finding:
    changes = {"kind": FindingKind(row["kind"]), "others": tuple(row["others"]), "law": row["law"] or ""}
    return Finding(**{**row, **changes})


class _Held(NamedTuple):
    """One message as one receiver holds it."""

    source: int
    number: int
    digest: bytes
    payload: bytes
    epoch: Epoch
    token: int
    instant: int
    shuffle_key: bytes
    labelled: bool
    uncertified: bool
    damaged: bool
    file: str
    offset: int

    @property
    def content(self) -> tuple[object, ...]:
        """What journals and lines must agree on."""
        return self.payload, self.epoch, self.token, self.instant

    @property
    def label(self) -> tuple[object, ...]:
        """What receivers must agree on besides; lines do not tell it."""
        return self.source, self.number, self.digest, self.shuffle_key

    @property
    def proves_itself(self) -> bool:
        """Whether the payload is what its digest says: never, where the market seals."""
        return self.labelled and payload_digest(self.payload) == self.digest


def zoom(task: ZoomTask) -> ZoomResult:
    """Compare a stretch message by message."""
    held: dict[int, dict[int, _Held]] = defaultdict(dict)
    for name, paths in sorted(task.paths.items(), key=lambda item: int(item[0])):
        for sequence, message in _messages(task, paths):
            held[sequence].setdefault(int(name), message)
    findings: list[Finding] = []
    compared = dict.fromkeys(task.paths, 0)
    different = dict.fromkeys(task.paths, 0)
    for sequence in sorted(held):
        copies = held[sequence]
        if len(copies) > 1:
            for receiver in copies:
                compared[str(receiver)] += 1
            for finding in _compared(task.stripe, sequence, copies):
                different[str(finding.receiver)] += 1
                if different[str(finding.receiver)] <= _FINDINGS_MAX:
                    findings.append(finding)
    return ZoomResult(task.stripe, task.first_sequence, findings, compared, different)


def _messages(task: ZoomTask, paths: tuple[str, ...]) -> Iterator[tuple[int, _Held]]:
    for path in paths:
        try:
            with Segment(segment_files(Path(path))[0]) as segment:
                for offset, block, damaged in _blocks(segment):
                    header = block.header
                    if header.next_sequence <= task.first_sequence or header.first_sequence > task.last_sequence:
                        continue
                    yield from _held(task, block, damaged=damaged, file=path, offset=offset)
        except JournalError:
            continue  # Its own task has named it.


def _blocks(segment: Segment) -> Iterator[tuple[int, BlockView, bool]]:
    """Every block whose header can be read, and whether its body is damaged."""
    start: int | None = SEGMENT_HEADER_BYTES
    while start is not None:
        try:
            for offset, block in segment.blocks(start):
                try:
                    block.check()
                except RemoteProtocolError:
                    yield offset, block, True
                else:
                    yield offset, block, False
        except JournalError as damage:
            start = segment.next_header(damage.offset or 0)
        else:
            return


def _held(task: ZoomTask, block: BlockView, *, damaged: bool, file: str, offset: int) -> Iterator[tuple[int, _Held]]:
    header = block.header
    start, _ = block.places(task.first_sequence, task.last_sequence)
    sequence = header.first_sequence + start
    for source, number, digest, payload in block.messages(task.first_sequence, task.last_sequence):
        yield (
            sequence,
            _Held(
                source,
                number,
                digest,
                payload,
                header.epoch,
                header.token_number,
                header.instant,
                header.shuffle_key,
                source != 0,
                header.uncertified,
                damaged,
                file,
                offset,
            ),
        )
        sequence += 1


# One message ------------------------------------------------------------------------------------------


def _compared(stripe: int, sequence: int, copies: dict[int, _Held]) -> Iterator[Finding]:
    """What each receiver has that the others have not, at one sequence."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for receiver, message in copies.items():
        groups[message.content].append(receiver)
    labels: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for receiver, message in copies.items():
        if message.labelled:
            labels[message.label].append(receiver)
    if len(groups) <= 1 and len(labels) <= 1:
        return
    right = _right(copies, groups)
    known = _right(copies, labels) if labels else None
    for receiver, message in copies.items():
        reference = right
        if message.content == copies[right].content:
            if known is None or not message.labelled or message.label == copies[known].label:
                continue
            reference = known
        others = tuple(
            each
            for each, other in copies.items()
            if other.content == copies[reference].content
            and (not other.labelled or other.label == copies[reference].label)
        )
        yield _difference(stripe, sequence, receiver, message, copies[reference], others)


def _right(copies: dict[int, _Held], groups: dict[tuple[object, ...], list[int]]) -> int:
    """A receiver of the group that counts."""
    best = max(
        groups.values(),
        key=lambda group: (
            not copies[group[0]].damaged,
            len(group),
            copies[group[0]].proves_itself,
            -min(group),
        ),
    )
    return best[0]


def _difference(
    stripe: int, sequence: int, receiver: int, mine: _Held, theirs: _Held, others: tuple[int, ...]
) -> Finding:
    kind, index, field, text = _named(mine, theirs)
    if mine.damaged:
        kind = FindingKind.DAMAGE
    elif mine.uncertified or theirs.uncertified:
        kind = FindingKind.DIVERGED
    elif (
        kind is FindingKind.DIFFERENT
        and theirs.proves_itself
        and not mine.proves_itself
        and mine.digest == theirs.digest
    ):
        text += "; its own digest says that the others are right"
    who = ", ".join(describe(other) for other in others)
    return Finding(
        kind,
        stripe,
        receiver,
        f"{text}; {who} {'agree' if len(others) > 1 else 'differs'}",
        mine.file,
        mine.offset,
        sequence,
        sequence,
        index,
        field,
        others,
    )


def _named(mine: _Held, theirs: _Held) -> tuple[FindingKind, int | None, str, str]:
    """The first field that differs, and how."""
    if mine.labelled and theirs.labelled:
        if (mine.source, mine.number) != (theirs.source, theirs.number):
            field = "source" if mine.source != theirs.source else "number"
            here, there = f"{describe(mine.source)}/{mine.number}", f"{describe(theirs.source)}/{theirs.number}"
            return FindingKind.FORGED, None, field, f"is message {here} here and {there} elsewhere"
        if mine.digest != theirs.digest:
            text = f"has digest {mine.digest.hex()[:8]} here and {theirs.digest.hex()[:8]} elsewhere"
            return FindingKind.FORGED, None, "digest", text
    if mine.payload != theirs.payload:
        return FindingKind.DIFFERENT, *_payload_difference(mine.payload, theirs.payload)
    for field in ("epoch", "token", "instant", "shuffle_key"):
        here, there = getattr(mine, field), getattr(theirs, field)
        if here != there:
            said = (here.hex()[:8], there.hex()[:8]) if isinstance(here, bytes) else (str(here), str(there))
            return FindingKind.DIFFERENT, None, field, f"{field} is {said[0]} here and {said[1]} elsewhere"
    return FindingKind.DIFFERENT, None, "label", "differs"


def _payload_difference(mine: bytes, theirs: bytes) -> tuple[int | None, str, str]:
    """Event, field and values, if both are events; else the first byte."""
    if len(mine) != len(theirs):
        return None, "length", f"has {len(mine)} bytes here and {len(theirs)} elsewhere"
    place = int(np.flatnonzero(np.frombuffer(mine, np.uint8) != np.frombuffer(theirs, np.uint8))[0])
    bits = (mine[place] ^ theirs[place]).bit_count()
    flipped = f"{bits} bit{'s' * (bits != 1)} of byte {place} of the payload"
    if len(theirs) % EVENT_BYTES or not are_events(theirs):
        return None, f"byte {place}", f"{flipped} differ: {mine[place]:#04x} here and {theirs[place]:#04x} elsewhere"
    index, inside = divmod(place, EVENT_BYTES)
    offsets = {name: EVENT_DTYPE.fields[name][1] for name in EVENT_DTYPE.names or ()}  # type: ignore[index]
    field = max((name for name, offset in offsets.items() if offset <= inside), key=lambda name: offsets[name])
    here, there = (np.frombuffer(raw, EVENT_DTYPE)[index][field] for raw in (mine, theirs))
    return index, field, f"{field} is {_shown(here)} here and {_shown(there)} elsewhere ({flipped})"


def _shown(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
