"""Journals as bytes: the headers of a segment and of its blocks, and the names of segment files.

    segment   | header 64 | block | block | …
    block     | header 112 | directory 56 × messages | payloads | zeros to a multiple of 8 |

A block is what one site released of one token at one instant; it is written at once and never changed. The
header's checksum covers its length, so that a block whose end is missing (a writer was killed) and a block with
a damaged byte are told apart. `journal_blocks` owns what follows a block's header. Integers are little-endian.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from struct import Struct, error
from typing import NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events
from isocast.wire.limits import EVENT_BYTES, MAX_MESSAGES_PER_TOKEN, MAX_NUMBER
from isocast.wire.packets import DIGEST_BYTES

__all__ = [
    "ALIGNMENT",
    "BLOCK_HEADER_BYTES",
    "BLOCK_MARKER",
    "DIRECTORY_BYTES",
    "DIRECTORY_DTYPE",
    "FETCHED",
    "IS_EVENTS",
    "JOURNAL_VERSION",
    "MAX_BLOCK_BYTES",
    "SEGMENT_HEADER_BYTES",
    "SEGMENT_MAGIC",
    "SEGMENT_SUFFIX",
    "UNCERTIFIED",
    "BlockHeader",
    "BlockView",
    "DirectoryArray",
    "EncodedBlock",
    "Message",
    "ReleasedBlock",
    "SegmentHeader",
    "block_length",
    "encode_block",
    "pack_block_header",
    "pack_segment_header",
    "read_block_header",
    "read_segment_header",
    "segment_name",
    "segment_of_name",
    "view_block",
]


SEGMENT_MAGIC = b"ISOCASTJ"
JOURNAL_VERSION = 1
"""Raised whenever the meaning of any byte changes; a reader knows one version and refuses all others."""
BLOCK_MARKER = b"ISOB"
SEGMENT_SUFFIX = ".isoj"

ALIGNMENT = 8
"""Every block, directory and event begins at a multiple of it, so that numpy views them where they lie."""
DIRECTORY_BYTES = 56
"""One message in a block's directory (`journal_blocks.DIRECTORY_DTYPE`)."""
MAX_BLOCK_BYTES = (1 << 32) - 1
"""A block's length is four bytes. 65,535 messages of 9,000 bytes take 593 million."""

FETCHED = 1
"""Flag of a block that the site did not release: it fetched it later, as another had released it."""
UNCERTIFIED = 2
"""Flag of a block that was released in an epoch without a majority of U (policy `availability`)."""

_SEGMENT = Struct("<8sHHIQqQ20xI")
_BLOCK = Struct("<4sIIIIIIIIIQQqqqQ16sII")
_CHECKSUM_BYTES = 4

SEGMENT_HEADER_BYTES = _SEGMENT.size
"""magic 8, version 2, stripe 2, flags 4, site 8, created 8, first sequence 8, zeros 20, checksum 4: 64."""
BLOCK_HEADER_BYTES = _BLOCK.size
"""marker 4, nine lengths, counts and ids of 4, six numbers and instants of 8, key 16, two checksums of 4: 112."""

_NAME = re.compile(r"s([0-9]{4,5})-site([0-9]{5,20})-([0-9]{20})" + re.escape(SEGMENT_SUFFIX))


class SegmentHeader(NamedTuple):
    """Whose journal it is, and where in the sequence the segment begins."""

    stripe: int
    site: NodeId
    created: int
    """When its first block was released, by the site's clock."""
    first_sequence: int


class BlockHeader(NamedTuple):
    """Everything that the messages of a block have in common."""

    block_bytes: int
    """Of the whole block, this header and the zeros at its end included."""
    flags: int
    """FETCHED and UNCERTIFIED, or zero; there is room for the control entries of tokens."""
    messages: int
    events: int
    """Those of all messages that are events, one after the other behind the directory."""
    payload_bytes: int
    token_count: int
    """Messages of the whole token."""
    place: int
    """Messages of the token that went out before this block."""
    epoch_number: int
    epoch_server: NodeId
    token_number: int
    first_sequence: int
    instant: int
    """T_t: when the token was scheduled."""
    due: int
    """The instant, shared by all sites, at which this block was to be released."""
    released_at: int
    """When it was, by the site's clock."""
    clock_bound_ns: int
    """How far that clock may have been from true time."""
    shuffle_key: bytes
    body_checksum: int

    @property
    def epoch(self) -> Epoch:
        """The epoch whose token assigned the sequences."""
        return Epoch(self.epoch_number, self.epoch_server)

    @property
    def next_sequence(self) -> int:
        """The sequence after the last message."""
        return self.first_sequence + self.messages

    @property
    def lateness_ns(self) -> int:
        """How long after its instant the block went out."""
        return self.released_at - self.due

    @property
    def uncertified(self) -> bool:
        """Whether it was released in an epoch without a majority of U: another site may have released others."""
        return bool(self.flags & UNCERTIFIED)

    @property
    def fetched(self) -> bool:
        """Whether the site fetched it from another: its instants and its clock's bound are those of the other."""
        return bool(self.flags & FETCHED)

    @property
    def ends_token(self) -> bool:
        """Whether nothing of the token is left to release."""
        return self.place + self.messages == self.token_count


def block_length(messages: int, payload_bytes: int) -> int:
    """Bytes of a whole block."""
    length = BLOCK_HEADER_BYTES + messages * DIRECTORY_BYTES + payload_bytes
    return length + -length % ALIGNMENT


# ---- segments


def segment_name(stripe: int, site: NodeId, first_sequence: int) -> str:
    """The file's name; the names of one journal sort by sequence."""
    return f"s{stripe:04}-site{site:05}-{first_sequence:020}{SEGMENT_SUFFIX}"


def segment_of_name(name: str) -> tuple[int, NodeId, int] | None:
    """Stripe, site and first sequence, if it is the name of a segment."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    stripe, site, first = (int(part) for part in found.groups())
    return (stripe, site, first) if segment_name(stripe, site, first) == name else None


def pack_segment_header(header: SegmentHeader) -> bytes:
    """The bytes at the start of a file."""
    stripe, site, created, first = header
    try:
        raw = _SEGMENT.pack(SEGMENT_MAGIC, JOURNAL_VERSION, stripe, 0, site, created, first, 0)
    except error as reason:
        raise LocalProtocolError(f"a segment header's value does not fit its field: {reason}") from reason
    return _with_checksum(raw)


def read_segment_header(raw: bytes) -> SegmentHeader:
    """What a file begins with; RemoteProtocolError unless this version wrote it."""
    if len(raw) < SEGMENT_HEADER_BYTES:
        raise RemoteProtocolError(f"a segment header of {len(raw)} bytes")
    raw = raw[:SEGMENT_HEADER_BYTES]
    magic, version, stripe, flags, site, created, first, _ = _SEGMENT.unpack(raw)
    if magic != SEGMENT_MAGIC:
        raise RemoteProtocolError(f"magic {magic.hex()} is not that of a journal")
    if version != JOURNAL_VERSION:
        raise RemoteProtocolError(f"journal version {version}; this reader knows {JOURNAL_VERSION}")
    header = SegmentHeader(stripe, site, created, first)
    if flags or raw != pack_segment_header(header):
        raise RemoteProtocolError("the checksum of the segment header is wrong, or reserved bytes are set")
    return header


# ---- blocks


def pack_block_header(header: BlockHeader) -> bytes:
    """The bytes of a header that keeps the rules."""
    fault = _fault(header)
    if fault is not None:
        raise LocalProtocolError(fault)
    try:
        raw = _BLOCK.pack(BLOCK_MARKER, *header, 0)
    except error as reason:
        raise LocalProtocolError(f"a block header's value does not fit its field: {reason}") from reason
    return _with_checksum(raw)


def read_block_header(raw: bytes | memoryview, at: int = 0) -> BlockHeader:
    """The header at an offset of at least 112 bytes; RemoteProtocolError when it is none, or damaged."""
    end = at + BLOCK_HEADER_BYTES
    if len(raw) < end:
        raise RemoteProtocolError(f"a block header of {len(raw) - at} bytes")
    marker, *fields, checksum = _BLOCK.unpack_from(raw, at)
    if marker != BLOCK_MARKER:
        raise RemoteProtocolError(f"marker {marker.hex()} is not that of a block")
    if crc32(raw[at : end - _CHECKSUM_BYTES]) != checksum:
        raise RemoteProtocolError("the checksum of the block header is wrong")
    header = BlockHeader._make(fields)
    fault = _fault(header)
    if fault is not None:
        raise RemoteProtocolError(fault)
    return header


def _fault(header: BlockHeader) -> str | None:
    """The rule that a header breaks; writers and readers ask alike."""
    if header.flags & ~(FETCHED | UNCERTIFIED):
        return f"unknown flags {header.flags:#x}"
    if not 1 <= header.messages <= header.token_count <= MAX_MESSAGES_PER_TOKEN:
        return f"a block of {header.messages} messages of a token of {header.token_count}"
    if not 0 <= header.place <= header.token_count - header.messages:
        return f"messages {header.place}+{header.messages} of a token of {header.token_count}"
    if header.events * EVENT_BYTES > header.payload_bytes:
        return f"{header.events} events in {header.payload_bytes} bytes"
    if header.block_bytes != block_length(header.messages, header.payload_bytes):
        return f"a block of {header.messages} messages and {header.payload_bytes} bytes that takes {header.block_bytes}"
    if header.next_sequence - 1 > MAX_NUMBER:
        return f"sequences from {header.first_sequence} on pass 2^64-1"
    return None


def _with_checksum(raw: bytes) -> bytes:
    signed = raw[:-_CHECKSUM_BYTES]
    return signed + crc32(signed).to_bytes(_CHECKSUM_BYTES, "little")


# ---- The body of a journal block: a directory of messages, then their payloads, all events first.
#
# | directory: one row of 56 bytes for each message, in sequence order |
# | the events of every message that consists of events, 48 bytes each, in sequence order |
# | the payloads of all other messages, in sequence order | zeros to a multiple of 8 |
#
# A reader views directory and events as two numpy arrays and parses nothing. A payload that is a whole number of
# valid event records is kept as events; any other is opaque: the directory says where it lies.


DIRECTORY_DTYPE = np.dtype(
    [
        ("source", "<u8"),
        ("number", "<u8"),
        ("digest", f"V{DIGEST_BYTES}"),
        ("first_event", "<u4"),
        ("events", "<u4"),
        ("offset", "<u4"),
        ("length", "<u4"),
        ("flags", "<u4"),
        ("reserved", "<u4"),
    ]
)
"""`digest` is the ring's, of the payload as it travelled, sealed. `offset` and `length` count bytes of the payloads."""

IS_EVENTS = 1
"""The flag of a message that consists of events."""

DirectoryArray: TypeAlias = npt.NDArray[np.void]
"""An array of DIRECTORY_DTYPE."""
Message: TypeAlias = tuple[NodeId, int, bytes, bytes]
"""Source, number, digest and payload of one message."""


@dataclass(frozen=True, slots=True)
class ReleasedBlock:
    """What a site released of one token at one instant, in sequence order; `BlockHeader` explains the fields."""

    epoch: Epoch
    token_number: int
    token_count: int
    place: int
    first_sequence: int
    instant: int
    due: int
    released_at: int
    clock_bound_ns: int
    shuffle_key: bytes
    messages: Sequence[Message]
    fetched: bool = False
    uncertified: bool = False


class EncodedBlock(NamedTuple):
    """A block's bytes, in pieces that need not be joined to be written."""

    header: BlockHeader
    pieces: tuple[bytes, ...]


def encode_block(block: ReleasedBlock) -> EncodedBlock:
    """The bytes of a block; LocalProtocolError for what a reader would refuse."""
    if not block.messages:
        raise LocalProtocolError("a block without messages is not written")
    sources, numbers, digests, payloads = zip(*block.messages, strict=True)
    directory = np.zeros(len(payloads), DIRECTORY_DTYPE)
    chosen = b"".join(digests)
    if len(chosen) != len(digests) * DIGEST_BYTES:
        raise LocalProtocolError(f"{len(digests)} digests of {len(chosen)} bytes together")
    if len(block.shuffle_key) != DIGEST_BYTES:
        raise LocalProtocolError(f"a shuffle key of {len(block.shuffle_key)} bytes")
    try:
        directory["source"] = np.fromiter(sources, np.uint64, len(sources))
        directory["number"] = np.fromiter(numbers, np.uint64, len(numbers))
    except OverflowError as reason:
        raise LocalProtocolError(f"a label does not fit its field: {reason}") from reason
    directory["digest"] = np.frombuffer(chosen, DIRECTORY_DTYPE["digest"])
    body = _place_payloads(directory, payloads)
    rows = directory.tobytes()
    length = block_length(len(payloads), len(body))
    if length > MAX_BLOCK_BYTES:
        raise LocalProtocolError(f"a block of {length} bytes, more than {MAX_BLOCK_BYTES}")
    padding = bytes(-(len(rows) + len(body)) % ALIGNMENT)
    header = BlockHeader(
        block_bytes=length,
        flags=FETCHED * block.fetched | UNCERTIFIED * block.uncertified,
        messages=len(payloads),
        events=int(directory["events"].sum()),
        payload_bytes=len(body),
        token_count=block.token_count,
        place=block.place,
        epoch_number=block.epoch.number,
        epoch_server=block.epoch.server,
        token_number=block.token_number,
        first_sequence=block.first_sequence,
        instant=block.instant,
        due=block.due,
        released_at=block.released_at,
        clock_bound_ns=block.clock_bound_ns,
        shuffle_key=block.shuffle_key,
        body_checksum=crc32(padding, crc32(body, crc32(rows))),
    )
    return EncodedBlock(header, (pack_block_header(header), rows, body, padding))


def _place_payloads(directory: DirectoryArray, payloads: Sequence[bytes]) -> bytes:
    """All payloads in the order of the body; says in the directory which are events and where each lies."""
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    body = b"".join(payloads)
    if len(body) > MAX_BLOCK_BYTES:
        raise LocalProtocolError(f"payloads of {len(body)} bytes, more than {MAX_BLOCK_BYTES}")
    if not (lengths % EVENT_BYTES).any() and are_events(body):
        _lay_out(directory, lengths, None)
        return body
    is_events = np.fromiter(map(are_events, payloads), np.bool_, len(payloads))
    _lay_out(directory, lengths, is_events)
    return b"".join([*compress(payloads, is_events), *compress(payloads, ~is_events)])


def _lay_out(
    directory: DirectoryArray, lengths: npt.NDArray[np.int64], is_events: npt.NDArray[np.bool_] | None
) -> None:
    """Fill in what follows from the lengths and from which payloads are events; None: all of them."""
    event_bytes = lengths if is_events is None else np.where(is_events, lengths, 0)
    events = event_bytes // EVENT_BYTES
    ends = events.cumsum()
    first_events = ends - events
    offsets = first_events * EVENT_BYTES
    if is_events is not None:
        opaque_bytes = lengths - event_bytes
        offsets = np.where(is_events, offsets, ends[-1] * EVENT_BYTES + opaque_bytes.cumsum() - opaque_bytes)
    directory["first_event"] = first_events
    directory["events"] = events
    directory["offset"] = offsets
    directory["length"] = lengths
    directory["flags"] = IS_EVENTS if is_events is None else np.where(is_events, IS_EVENTS, 0)


@dataclass(frozen=True, slots=True)
class BlockView:
    """A block where it lies: arrays that are no copies, over memory that may be a mapped file."""

    header: BlockHeader
    raw: memoryview
    """The whole block, exactly as it was written."""

    @property
    def directory(self) -> DirectoryArray:
        """One row for each message, in sequence order."""
        return np.frombuffer(self.raw, DIRECTORY_DTYPE, self.header.messages, BLOCK_HEADER_BYTES)

    @property
    def events(self) -> EventArray:
        """The events of all messages that consist of events, in sequence order."""
        return np.frombuffer(self.raw, EVENT_DTYPE, self.header.events, self._payloads_at)

    @property
    def sequences(self) -> range:
        """The sequence of every message."""
        return range(self.header.first_sequence, self.header.next_sequence)

    def payload(self, place: int) -> bytes:
        """What the message at a place of the block carried."""
        row = self.directory[place]
        start = self._payloads_at + int(row["offset"])
        return bytes(self.raw[start : start + int(row["length"])])

    def messages(self, first_sequence: int | None = None, last_sequence: int | None = None) -> list[Message]:
        """The messages of a range, all if none is given, as they were handed to the writer."""
        start, stop = self.places(first_sequence, last_sequence)
        rows = self.directory[start:stop]
        raw = self.raw
        begins = (rows["offset"].astype(np.int64) + self._payloads_at).tolist()
        return [
            (source, number, digest, bytes(raw[begin : begin + length]))
            for source, number, digest, begin, length in zip(
                rows["source"].tolist(),
                rows["number"].tolist(),
                rows["digest"].tolist(),
                begins,
                rows["length"].tolist(),
                strict=True,
            )
        ]

    def places(self, first_sequence: int | None = None, last_sequence: int | None = None) -> tuple[int, int]:
        """Start and stop of the rows whose sequences lie in a range, both ends included."""
        header = self.header
        start = 0 if first_sequence is None else max(first_sequence - header.first_sequence, 0)
        stop = header.messages if last_sequence is None else last_sequence + 1 - header.first_sequence
        stop = min(max(stop, 0), header.messages)
        return min(start, stop), stop

    def released(self) -> ReleasedBlock:
        """The block as it was handed to the writer."""
        header = self.header
        return ReleasedBlock(
            header.epoch,
            header.token_number,
            header.token_count,
            header.place,
            header.first_sequence,
            header.instant,
            header.due,
            header.released_at,
            header.clock_bound_ns,
            header.shuffle_key,
            self.messages(),
            header.fetched,
            header.uncertified,
        )

    def check_sum(self) -> None:
        """RemoteProtocolError when a byte of the body is not as it was written."""
        if crc32(self.raw[BLOCK_HEADER_BYTES:]) != self.header.body_checksum:
            raise RemoteProtocolError("the checksum of the block's body is wrong")

    def check(self) -> None:
        """RemoteProtocolError when the body is damaged, or is not what a writer would have written."""
        self.check_sum()
        rows = self.directory
        lengths = rows["length"].astype(np.int64)
        flagged = rows["flags"] == IS_EVENTS
        is_events = None if flagged.all() else flagged
        if int(lengths.sum()) != self.header.payload_bytes or (lengths[flagged] % EVENT_BYTES).any():
            raise RemoteProtocolError("the lengths of a block's messages are wrong")
        expected = rows.copy()
        expected["reserved"] = 0
        _lay_out(expected, lengths, is_events)
        if expected.tobytes() != rows.tobytes():
            raise RemoteProtocolError("the directory of a block contradicts itself")
        if int(rows["events"].sum(dtype=np.int64)) != self.header.events:
            raise RemoteProtocolError("a block's header and directory count different events")
        payloads_end = self._payloads_at + self.header.payload_bytes
        if any(self.raw[payloads_end:]):
            raise RemoteProtocolError("a block does not end in zeros")
        if not are_events(self.raw[self._payloads_at : self._payloads_at + self.header.events * EVENT_BYTES]):
            raise RemoteProtocolError("a message is said to be events and is not")
        if is_events is not None:
            self._check_opaque(rows, ~is_events)

    @property
    def _payloads_at(self) -> int:
        return BLOCK_HEADER_BYTES + self.header.messages * DIRECTORY_BYTES

    def _check_opaque(self, rows: DirectoryArray, is_opaque: npt.NDArray[np.bool_]) -> None:
        """Every block has one spelling: what could be events is kept as events."""
        for place in np.flatnonzero(is_opaque & (rows["length"] % EVENT_BYTES == 0)).tolist():
            if are_events(self.payload(place)):
                raise RemoteProtocolError("a message of events is said to be opaque")


def view_block(raw: bytes | memoryview, at: int = 0, *, check: bool = True) -> BlockView:
    """The block at an offset; RemoteProtocolError when it is damaged, or when its end is missing."""
    whole = memoryview(raw)
    header = read_block_header(whole, at)
    if at + header.block_bytes > len(whole):
        raise RemoteProtocolError(f"a block of {header.block_bytes} bytes of which {len(whole) - at} are here")
    view = BlockView(header, whole[at : at + header.block_bytes])
    if check:
        view.check()
    return view
