"""Looking into one block of messages in which receivers differ: which message, which event, which field, and whose.

What most receivers hold counts as what was released; with as many on each side, a payload that is what its digest says
counts, then the lowest receiver. Blocks whose checksum is wrong are read too where their header can be: a flipped bit
then has a name, and not only a place.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isocast.lake.audit_terms import Finding, FindingKind
from isocast.runtime.disk.journal_segments import Segment, segment_files
from isocast.terms.errors import JournalError, RemoteProtocolError
from isocast.terms.ids import Epoch, describe
from isocast.wire.event_checks import are_events
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.journal import SEGMENT_HEADER_BYTES
from isocast.wire.journal_blocks import BlockView
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.packets import payload_digest

__all__ = ["ZoomResult", "ZoomTask", "zoom"]

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
    row.pop("law")
    return Finding(**{**row, "kind": FindingKind(row["kind"]), "others": tuple(row["others"])})


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
        """What all must agree on, whoever tells it."""
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
