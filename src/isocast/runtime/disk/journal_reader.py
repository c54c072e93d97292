"""Read a journal by sequence or as it grows, its segments' index, and blocks as REL packets and back.

    for block in read_blocks(directory, first_sequence=1_000_000):
        prices = block.events["price"]          # no copy: the file itself, mapped

Segments are found by their names, blocks by skipping from header to header. A block whose end is missing ends the
reading: a writer is at work there, or was killed; `JournalCursor` goes on from there later.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Self

from isocast.runtime.disk.journal import ReleasedPosition
from isocast.runtime.disk.journal_segments import Segment, SegmentFile, open_segment, segment_files
from isocast.terms.errors import JournalError, RemoteProtocolError
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.journal import SEGMENT_HEADER_BYTES, BlockHeader
from isocast.wire.journal_blocks import BlockView, JournalMessage, ReleasedBlock, encode_block
from isocast.wire.limits import MAX_MESSAGES_PER_TOKEN, MAX_NUMBER
from isocast.wire.opaque import OpaqueMessage, is_opaque, read_opaque_or_none
from isocast.wire.packets import ReleasedPacket, payload_digest

__all__ = [
    "UNKNOWN_SOURCE",
    "JournalCursor",
    "JournalReader",
    "PlacedMessage",
    "SegmentSummary",
    "block_bodies",
    "blocks_of",
    "packets_of",
    "read_blocks",
    "summarise",
]


_READ_BYTES = 16 << 20
"""What one `read` of a cursor gives at most, give or take a block."""
_MARK_BYTES = 1 << 16
"""Between two marks of an index: at most some 400 headers are skipped to find a block."""


class _Index:
    """Where some blocks of a segment begin; grows as the segment is read."""

    __slots__ = ("_firsts", "_offsets", "_scanned")

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._offsets = array("Q")
        self._scanned = 0

    def near(self, sequence: int) -> int:
        """An offset, not behind the block that holds the sequence."""
        at = bisect_right(self._firsts, sequence) - 1
        return self._offsets[at] if at >= 0 else SEGMENT_HEADER_BYTES

    def find(self, segment: Segment, sequence: int) -> int:
        """Where the first block begins that does not end before the sequence."""
        for offset, header in segment.headers(self.near(sequence)):
            self.learn(offset, header)
            if header.next_sequence > sequence:
                return offset
        return segment.reached

    def learn(self, offset: int, header: BlockHeader) -> None:
        """A block was seen."""
        if offset < self._scanned:
            return
        self._scanned = offset + header.block_bytes
        in_order = not self._firsts or header.first_sequence > self._firsts[-1]
        if in_order and (not self._offsets or offset - self._offsets[-1] >= _MARK_BYTES):
            self._firsts.append(header.first_sequence)
            self._offsets.append(offset)


class PlacedMessage(NamedTuple):
    """An opaque message where a journal has it."""

    header: BlockHeader
    """Of its token."""
    source: NodeId
    sequence: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    """Of the messages that share a sequence, which one it is."""
    message: OpaqueMessage


class JournalReader:
    """A journal that is asked for ranges of sequences; it remembers where blocks begin."""

    def __init__(self, where: Path) -> None:
        """`where` is a journal's directory, or one segment."""
        self._where = where
        self._indexes: dict[SegmentFile, _Index] = {}

    def blocks(
        self, first_sequence: int | None = None, last_sequence: int | None = None, *, check: bool = True
    ) -> Iterator[BlockView]:
        """Every whole block that has a message of the range, both ends included.

        `check=False` leaves checksums of bodies and the rules of directories alone; headers are always checked.
        """
        first = 0 if first_sequence is None else first_sequence
        last = MAX_NUMBER if last_sequence is None else last_sequence
        files = self._files() if first <= last else []
        start = max(bisect_right([file.first_sequence for file in files], first) - 1, 0)
        for file in files[start:]:
            if file.first_sequence > last:
                return
            index = self._indexes.setdefault(file, _Index())
            segment = open_segment(file)
            if segment is None:
                continue
            with segment:
                is_over = yield from _range(segment, index, first, last, check=check)
                if is_over:
                    return
                if file != files[-1]:
                    segment.insist_on_end()

    def opaque_messages(self, first_sequence: int = 0) -> Iterator[PlacedMessage]:
        """All opaque messages from a sequence on, in its order."""
        for block in self.blocks(first_sequence):
            first = block.header.first_sequence
            for place, (source, _, _, payload) in enumerate(block.messages()):
                if first + place >= first_sequence and is_opaque(payload):
                    for index, message in enumerate(read_opaque_or_none(payload) or ()):
                        yield PlacedMessage(block.header, source, first + place, index, message)

    def span(self) -> tuple[int, int] | None:
        """The first sequence that is kept, and the one after the last whole block; None for an empty journal."""
        files = self._files()
        for file in reversed(files):
            index = self._indexes.setdefault(file, _Index())
            after = 0
            with Segment(file) as segment:
                for offset, header in segment.headers(index.near(MAX_NUMBER)):
                    index.learn(offset, header)
                    after = header.next_sequence
            if after:
                return files[0].first_sequence, after
        return None

    def _files(self) -> list[SegmentFile]:
        """What is there now; what was learned about files that are gone is forgotten."""
        files = segment_files(self._where)
        self._indexes = {file: index for file in files if (index := self._indexes.get(file)) is not None}
        return files


def _range(segment: Segment, index: _Index, first: int, last: int, *, check: bool) -> Generator[BlockView, None, bool]:
    """The blocks of one segment that have a message of the range; whether the range ended here."""
    for offset, block in segment.blocks(index.find(segment, first)):
        header = block.header
        index.learn(offset, header)
        if header.next_sequence <= first:
            continue
        if header.first_sequence > last:
            return True
        if check:
            _check(segment, offset, block)
        yield block
    return False


def _check(segment: Segment, offset: int, block: BlockView) -> None:
    try:
        block.check()
    except RemoteProtocolError as reason:
        raise segment.error(str(reason), offset) from reason


def read_blocks(
    where: Path, first_sequence: int | None = None, last_sequence: int | None = None, *, check: bool = True
) -> Iterator[BlockView]:
    """Every whole block of a directory or segment that has a message of the range, both ends included."""
    return JournalReader(where).blocks(first_sequence, last_sequence, check=check)


class JournalCursor:
    """A place in a journal that is being written; each `read` gives what has come since the last."""

    def __init__(self, where: Path, first_sequence: int = 0, *, check: bool = True) -> None:
        """Begin with the block that holds a sequence, or with the oldest that is kept."""
        self.next_sequence = first_sequence
        """What the next block should begin with; one that begins later means that retention was faster."""
        self._where = where
        self._check = check
        self._has_begun = False
        self._segment: Segment | None = None
        self._offset = SEGMENT_HEADER_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the segment that was read last."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def read(self) -> list[BlockView]:
        """Whole blocks that have not been read yet, a limited number of them; empty when there are none."""
        while True:
            segment = self._segment
            found = self._take(segment) if segment is not None else []
            if found:
                return found
            following = self._following(segment)
            if following is None:
                return []
            if segment is not None:
                # The writer may have finished this segment after the look above and before it began the next.
                found = self._take(segment)
                if found:
                    return found
                segment.insist_on_end()
                self.close()
            self._segment, self._offset = open_segment(following), SEGMENT_HEADER_BYTES

    def _take(self, segment: Segment) -> list[BlockView]:
        found: list[BlockView] = []
        taken = 0
        for offset, block in segment.blocks(self._offset):
            header = block.header
            if found or self._has_begun or header.next_sequence > self.next_sequence:
                if self._check:
                    _check(segment, offset, block)
                found.append(block)
                taken += header.block_bytes
                self._has_begun = True
                self.next_sequence = header.next_sequence
            self._offset = offset + header.block_bytes
            if taken >= _READ_BYTES:
                break
        return found

    def _following(self, segment: Segment | None) -> SegmentFile | None:
        """The file after a segment, or the one to begin with."""
        files = segment_files(self._where) if self._where.exists() else []
        if segment is not None:
            return next((file for file in files if file.first_sequence > segment.file.first_sequence), None)
        start = bisect_right([file.first_sequence for file in files], self.next_sequence) - 1
        return files[max(start, 0)] if files else None


# What each segment of a journal holds, by its headers alone.


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


# Released messages between their two forms: REL packets on a line, blocks of a journal on disk and at doors.
#
# A receiver's block knows the labels, the place of each message in its token and the instant of its release. A line
# carries none of these, so whoever writes down what a line brought leaves them open. The shuffle key is in both forms.
#
# source        0, and as number the edge stripe's own, which has no holes either
# digest        of the payload as it came, opened
# token_count   the most that a token can have, as nobody said how many it had
# place         messages of the token that this journal had before
# due           the token's instant plus Δ_A, but not later than the arrival: clocks of customers are their own affair


UNKNOWN_SOURCE: NodeId = 0
"""Who published is not told to customers."""

_SLICE = 512
"""Messages of one block at a door: 512 of 8,824 bytes are 4.5 MB, and a message there has at most 16."""

_token_of = attrgetter("epoch", "token_number", "instant", "uncertified", "shuffle_key")


def blocks_of(
    packets: Sequence[ReleasedPacket],
    position: ReleasedPosition,
    received_at: int,
    release_delay_ns: int,
    clock_bound_ns: int,
) -> Iterator[ReleasedBlock]:
    """Consecutive messages as blocks, one for each token, to be appended to a journal that stands at `position`."""
    token_number, place = position.token_number, position.offset
    for (epoch, number, instant, uncertified, key), group in groupby(packets, key=_token_of):
        if number != token_number:
            token_number, place = number, 0
        released = list(group)
        yield ReleasedBlock(
            epoch=epoch,
            token_number=number,
            token_count=MAX_MESSAGES_PER_TOKEN,
            place=place,
            first_sequence=released[0].sequence,
            instant=instant,
            due=min(instant + release_delay_ns, received_at),
            released_at=received_at,
            clock_bound_ns=clock_bound_ns,
            shuffle_key=key,
            messages=[_message(packet) for packet in released],
            uncertified=uncertified,
        )
        place += len(released)


def _message(packet: ReleasedPacket) -> JournalMessage:
    return UNKNOWN_SOURCE, packet.number, payload_digest(packet.payload), packet.payload


def packets_of(
    blocks: Iterable[BlockView], stripe: int, sender: NodeId, first: int, last: int | None = None
) -> Iterator[ReleasedPacket]:
    """The messages of a range, both ends included, as `sender` would have sent them on its line."""
    for block in blocks:
        header = block.header
        epoch, token, instant, marked = header.epoch, header.token_number, header.instant, header.uncertified
        key = header.shuffle_key
        sequence = max(first, header.first_sequence)
        for _, _, _, payload in block.messages(first, last):
            yield ReleasedPacket(
                stripe, epoch, sender, token, sequence, instant, stripe, sequence, 1, payload, b"", marked, key
            )
            sequence += 1


def block_bodies(packets: Sequence[ReleasedPacket], received_at: int) -> Iterator[bytes]:
    """Consecutive messages as blocks for a door, none too long for one message there."""
    for start in range(0, len(packets), _SLICE):
        for block in blocks_of(packets[start : start + _SLICE], ReleasedPosition(), received_at, 0, 0):
            yield b"".join(encode_block(block).pieces)
