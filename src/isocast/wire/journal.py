"""Journals as bytes: the headers of a segment and of its blocks, and the names of segment files.

    segment   | header 64 | block | block | …
    block     | header 112 | directory 72 × messages | payloads | zeros to a multiple of 8 | proof, if flagged |

A block is what one site released of one token at one instant; it is written at once and never changed. The
header's checksum covers its length, so that a block whose end is missing (a writer was killed) and a block with
a damaged byte are told apart. `journal_blocks` owns what follows a block's header, `journal_proofs` the proof. Integers
are little-endian.
"""

from __future__ import annotations

import re
from struct import Struct, error
from typing import NamedTuple
from zlib import crc32

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.limits import EVENT_BYTES, MAX_MESSAGES_PER_TOKEN, MAX_NUMBER

__all__ = [
    "ALIGNMENT",
    "BLOCK_HEADER_BYTES",
    "BLOCK_MARKER",
    "DIRECTORY_BYTES",
    "FETCHED",
    "JOURNAL_VERSION",
    "MAX_BLOCK_BYTES",
    "PROVABLE",
    "READABLE_VERSIONS",
    "SEGMENT_HEADER_BYTES",
    "SEGMENT_MAGIC",
    "SEGMENT_SUFFIX",
    "UNCERTIFIED",
    "BlockHeader",
    "SegmentHeader",
    "block_length",
    "pack_block_header",
    "pack_segment_header",
    "read_block_header",
    "read_segment_header",
    "segment_name",
    "segment_of_name",
]

SEGMENT_MAGIC = b"ISOCASTJ"
JOURNAL_VERSION = 3
"""Raised whenever the meaning of any byte changes."""
READABLE_VERSIONS = (2, 3)
"""Version 2 has no proofs; all else is the same. A reader refuses other versions."""
BLOCK_MARKER = b"ISOB"
SEGMENT_SUFFIX = ".isoj"

ALIGNMENT = 8
"""Every block, directory and event begins at a multiple of it, so that numpy views them where they lie."""
DIRECTORY_BYTES = 72
"""One message in a block's directory (`journal_blocks.DIRECTORY_DTYPE`)."""
MAX_BLOCK_BYTES = (1 << 32) - 1
"""A block's length is four bytes. 65,535 messages of 9,000 bytes take 593 million."""

FETCHED = 1
"""Flag of a block that the site did not release: it fetched it later, as another had released it."""
UNCERTIFIED = 2
"""Flag of a block that was released in an epoch without a majority of U (policy `availability`)."""
PROVABLE = 4
"""Flag of a block that keeps what proves it (`journal_proofs`)."""

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
    """FETCHED, UNCERTIFIED and PROVABLE, or zero."""
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
    def proof_bytes(self) -> int:
        """Of the proof at the end of the block; 0 without one."""
        return self.block_bytes - block_length(self.messages, self.payload_bytes)

    @property
    def ends_token(self) -> bool:
        """Whether nothing of the token is left to release."""
        return self.place + self.messages == self.token_count


def block_length(messages: int, payload_bytes: int) -> int:
    """Bytes of a whole block, up to its proof."""
    length = BLOCK_HEADER_BYTES + messages * DIRECTORY_BYTES + payload_bytes
    return length + -length % ALIGNMENT


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


def pack_segment_header(header: SegmentHeader, version: int = JOURNAL_VERSION) -> bytes:
    """The bytes at the start of a file."""
    stripe, site, created, first = header
    try:
        raw = _SEGMENT.pack(SEGMENT_MAGIC, version, stripe, 0, site, created, first, 0)
    except error as reason:
        raise LocalProtocolError(f"a segment header's value does not fit its field: {reason}") from reason
    return _with_checksum(raw)


def read_segment_header(raw: bytes) -> SegmentHeader:
    """What a file begins with; RemoteProtocolError unless it is of a version that is read."""
    if len(raw) < SEGMENT_HEADER_BYTES:
        raise RemoteProtocolError(f"a segment header of {len(raw)} bytes")
    raw = raw[:SEGMENT_HEADER_BYTES]
    magic, version, stripe, flags, site, created, first, _ = _SEGMENT.unpack(raw)
    if magic != SEGMENT_MAGIC:
        raise RemoteProtocolError(f"magic {magic.hex()} is not that of a journal")
    if version not in READABLE_VERSIONS:
        known = " and ".join(map(str, READABLE_VERSIONS))
        raise RemoteProtocolError(
            f"journal version {version}; this program reads versions {known}: use the isocast that wrote it"
        )
    header = SegmentHeader(stripe, site, created, first)
    if flags or raw != pack_segment_header(header, version):
        raise RemoteProtocolError("the checksum of the segment header is wrong, or reserved bytes are set")
    return header


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
    if header.flags & ~(FETCHED | UNCERTIFIED | PROVABLE):
        return f"unknown flags {header.flags:#x}"
    if not 1 <= header.messages <= header.token_count <= MAX_MESSAGES_PER_TOKEN:
        return f"a block of {header.messages} messages of a token of {header.token_count}"
    if not 0 <= header.place <= header.token_count - header.messages:
        return f"messages {header.place}+{header.messages} of a token of {header.token_count}"
    if header.events * EVENT_BYTES > header.payload_bytes:
        return f"{header.events} events in {header.payload_bytes} bytes"
    proof = header.proof_bytes
    if proof < 0 or proof % ALIGNMENT or (proof > 0) != bool(header.flags & PROVABLE):
        return f"a block of {header.messages} messages and {header.payload_bytes} bytes that takes {header.block_bytes}"
    if header.next_sequence - 1 > MAX_NUMBER:
        return f"sequences from {header.first_sequence} on pass 2^64-1"
    return None


def _with_checksum(raw: bytes) -> bytes:
    signed = raw[:-_CHECKSUM_BYTES]
    return signed + crc32(signed).to_bytes(_CHECKSUM_BYTES, "little")
