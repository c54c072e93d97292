"""The body of a journal block: a directory of messages, then their payloads, all events first.

    | directory: one row of 72 bytes for each message, in sequence order |
    | the events of every message that consists of events, 48 bytes each, in sequence order |
    | the payloads of all other messages, in sequence order | zeros to a multiple of 8 |
    | what proves the block, if its header says so (`journal_proofs`) |

A reader views directory and events as two numpy arrays and parses nothing. A payload that is a whole number of
valid event records is kept as events; any other is opaque: the directory says where it lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events
from isocast.wire.journal import (
    ALIGNMENT,
    BLOCK_HEADER_BYTES,
    DIRECTORY_BYTES,
    FETCHED,
    MAX_BLOCK_BYTES,
    PROVABLE,
    UNCERTIFIED,
    BlockHeader,
    block_length,
    pack_block_header,
    read_block_header,
)
from isocast.wire.journal_proofs import BlockProof, decode_proof, encode_proof
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.packets import DIGEST_BYTES, SHORT_DIGEST_BYTES

__all__ = [
    "DIRECTORY_DTYPE",
    "DIRECTORY_OFFSETS",
    "IS_EVENTS",
    "BlockView",
    "DirectoryArray",
    "EncodedBlock",
    "JournalMessage",
    "ReleasedBlock",
    "encode_block",
    "view_block",
]

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
DIRECTORY_OFFSETS: Mapping[str, int] = {name: field[1] for name, field in (DIRECTORY_DTYPE.fields or {}).items()}
"""Where each field of a row begins."""

IS_EVENTS = 1
"""The flag of a message that consists of events."""

DirectoryArray: TypeAlias = npt.NDArray[np.void]
"""An array of DIRECTORY_DTYPE."""
JournalMessage: TypeAlias = tuple[NodeId, int, bytes, bytes]
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
    messages: Sequence[JournalMessage]
    fetched: bool = False
    uncertified: bool = False
    proof: BlockProof | None = None

    def part(self, start: int, stop: int | None = None) -> ReleasedBlock:
        """Some of its messages, by their places in the block."""
        stop = len(self.messages) if stop is None else stop
        return replace(
            self,
            place=self.place + start,
            first_sequence=self.first_sequence + start,
            messages=self.messages[start:stop],
            proof=None if self.proof is None else self.proof.part(start, stop),
        )


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
    if len(block.shuffle_key) != SHORT_DIGEST_BYTES:
        raise LocalProtocolError(f"a shuffle key of {len(block.shuffle_key)} bytes")
    try:
        directory["source"] = np.fromiter(sources, np.uint64, len(sources))
        directory["number"] = np.fromiter(numbers, np.uint64, len(numbers))
    except OverflowError as reason:
        raise LocalProtocolError(f"a label does not fit its field: {reason}") from reason
    directory["digest"] = np.frombuffer(chosen, DIRECTORY_DTYPE["digest"])
    body = _place_payloads(directory, payloads)
    rows = directory.tobytes()
    proof = b"" if block.proof is None else encode_proof(block.proof, list(zip(sources, numbers, strict=True)))
    length = block_length(len(payloads), len(body)) + len(proof)
    if length > MAX_BLOCK_BYTES:
        raise LocalProtocolError(f"a block of {length} bytes, more than {MAX_BLOCK_BYTES}")
    padding = bytes(-(len(rows) + len(body)) % ALIGNMENT)
    header = BlockHeader(
        block_bytes=length,
        flags=FETCHED * block.fetched | UNCERTIFIED * block.uncertified | PROVABLE * bool(proof),
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
        body_checksum=crc32(proof, crc32(padding, crc32(body, crc32(rows)))),
    )
    return EncodedBlock(header, (pack_block_header(header), rows, body, padding, proof))


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

    def messages(self, first_sequence: int | None = None, last_sequence: int | None = None) -> list[JournalMessage]:
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
            self.proof(),
        )

    def proof(self) -> BlockProof | None:
        """What the block keeps to be proven by; None if it keeps nothing. RemoteProtocolError if it is damaged."""
        length = self.header.proof_bytes
        if not length:
            return None
        rows = self.directory
        labels = list(zip(rows["source"].tolist(), rows["number"].tolist(), strict=True))
        return decode_proof(self.raw[-length:], labels)

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
        proof_at = len(self.raw) - self.header.proof_bytes
        if any(self.raw[payloads_end:proof_at]):
            raise RemoteProtocolError("a block's payloads do not end in zeros")
        if not are_events(self.raw[self._payloads_at : self._payloads_at + self.header.events * EVENT_BYTES]):
            raise RemoteProtocolError("a message is said to be events and is not")
        if is_events is not None:
            self._check_opaque(rows, ~is_events)
        self.proof()

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
