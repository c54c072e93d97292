"""Hostile bytes for the reader of segments: shared by the fuzz target and by the tests that run without one.

A checksum is no secret: most ways in put right ones around the bytes, so that what lies behind them is reached.
"""

from __future__ import annotations

from struct import pack, unpack_from
from zlib import crc32

from tests.wire.journal_samples import segment
from tests.wire.journal_vector import PROOF, RELEASED
from tests.wire.mutations import accepts

from isocast.wire.journal import (
    BLOCK_HEADER_BYTES,
    DIRECTORY_BYTES,
    SEGMENT_HEADER_BYTES,
    pack_segment_header,
    read_segment_header,
)
from isocast.wire.journal_blocks import encode_block, view_block
from isocast.wire.journal_proofs import decode_proof, encode_proof

__all__ = ["WAYS_IN", "examine", "seeds"]


def examine(data: bytes) -> bool:
    """Read the bytes by the way that the first one chooses; True when they were accepted.

    What is accepted must be what the writer writes: every segment has one spelling.
    """
    return accepts(WAYS_IN, data)


def _raw(data: bytes) -> None:
    """A whole segment, as it comes."""
    header = read_segment_header(data)
    assert pack_segment_header(header) == data[:SEGMENT_HEADER_BYTES]
    at = SEGMENT_HEADER_BYTES
    while at < len(data):
        at += _block(data, at)


def _block(data: bytes, at: int = 0) -> int:
    view = view_block(data, at)
    for place in range(view.header.messages):
        view.payload(place)
    assert len(view.events) == view.header.events
    assert b"".join(encode_block(view.released()).pieces) == view.raw
    return view.header.block_bytes


def _summed(data: bytes) -> None:
    """One block with right checksums."""
    header, body = data[:BLOCK_HEADER_BYTES].ljust(BLOCK_HEADER_BYTES, b"\0"), data[BLOCK_HEADER_BYTES:]
    header = header[:-8] + pack("<I", crc32(body))
    _block(header + pack("<I", crc32(header)) + body)


def _measured(data: bytes) -> None:
    """One block with right checksums and a right length."""
    header, body = data[:BLOCK_HEADER_BYTES].ljust(BLOCK_HEADER_BYTES, b"\0"), data[BLOCK_HEADER_BYTES:]
    body += bytes(-len(body) % 8)
    (messages,) = unpack_from("<I", header, 12)
    payload_bytes = max(len(body) - messages * DIRECTORY_BYTES, 0)
    header = (
        header[:4] + pack("<I", BLOCK_HEADER_BYTES + len(body)) + header[8:20] + pack("<I", payload_bytes) + header[24:]
    )
    _summed(header + body)


def _unchecked(data: bytes) -> None:
    """What a reader in a hurry does not check may be wrong, and nothing worse."""
    header, body = data[:BLOCK_HEADER_BYTES].ljust(BLOCK_HEADER_BYTES, b"\0"), data[BLOCK_HEADER_BYTES:]
    header = header[:-4] + pack("<I", crc32(header[:-4]))
    view = view_block(header + body, check=False)
    for place in range(view.header.messages):
        assert len(view.payload(place)) <= len(body)
    assert len(view.events) == view.header.events
    assert len(view.messages()) == view.header.messages


def _proof(data: bytes) -> None:
    """What proves a block of four messages, of two sources."""
    labels = [(1, 7), (2, 1), (1, 8), (2, 2)]
    raw = data + bytes(-len(data) % 8)
    assert encode_proof(decode_proof(raw, labels), labels) == raw


WAYS_IN = (_raw, _block, _summed, _measured, _unchecked, _proof)


def seeds() -> list[bytes]:
    """Inputs that are accepted, for a fuzzer to start from."""
    blocks = [b"".join(encode_block(one).pieces) for one in RELEASED]
    found = [b"\0" + segment(RELEASED), b"\0" + segment(RELEASED[:1])]
    found.append(b"\5" + encode_proof(PROOF, [(1, 7), (2, 1), (1, 8), (2, 2)]))
    return found + [bytes((way,)) + raw for way in (1, 2, 4) for raw in blocks]
