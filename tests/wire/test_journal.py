"""Headers and names of segments: one spelling, and a refusal for everything else."""

from struct import pack
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.journal_samples import block

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.wire.journal import (
    ALIGNMENT,
    BLOCK_HEADER_BYTES,
    DIRECTORY_BYTES,
    SEGMENT_HEADER_BYTES,
    BlockHeader,
    SegmentHeader,
    block_length,
    pack_block_header,
    pack_segment_header,
    read_block_header,
    read_segment_header,
    segment_name,
    segment_of_name,
)
from isocast.wire.journal_blocks import encode_block

U16 = st.integers(0, (1 << 16) - 1)
U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)

LAYOUT = "<4sIIIIIIIIIQQqqqQ16sII"
"""Spelled out once more: the reader must not trust the checks of the writer."""
HEADER = encode_block(block(5, 9, (None, None), count=3)).header


def resummed(raw: bytes) -> bytes:
    """With the checksum that the bytes should have."""
    return raw[:-4] + crc32(raw[:-4]).to_bytes(4, "little")


@given(stripe=U16, site=U64, created=I64, first=U64)
def test_a_segment_header_survives(stripe: int, site: int, created: int, first: int) -> None:
    header = SegmentHeader(stripe, site, created, first)
    raw = pack_segment_header(header)
    assert len(raw) == SEGMENT_HEADER_BYTES
    assert read_segment_header(raw + b"what follows") == header


@given(stripe=U16, site=U64, first=U64)
def test_a_name_says_whose_segment_it_is(stripe: int, site: int, first: int) -> None:
    assert segment_of_name(segment_name(stripe, site, first)) == (stripe, site, first)


@given(firsts=st.lists(U64, unique=True, max_size=8))
def test_names_of_one_journal_sort_by_sequence(firsts: list[int]) -> None:
    names = sorted(segment_name(0, 1, first) for first in firsts)
    assert names == [segment_name(0, 1, first) for first in sorted(firsts)]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "journal.isoj",
        segment_name(0, 1, 1) + ".new",
        "x" + segment_name(0, 1, 1),
        segment_name(0, 1, 1).replace("isoj", "ISOJ"),
        segment_name(0, 1, 1).replace("s0000", "s00000"),
        segment_name(0, 1, 1).replace("site00001", "site000001"),
        segment_name(0, 1, 1).replace("0001.", "001."),
    ],
)
def test_other_names_are_left_alone(name: str) -> None:
    assert segment_of_name(name) is None


@pytest.mark.parametrize(
    "at, value, rule",
    [
        (0, b"X", "magic"),
        (8, b"\4", "version 4"),
        (8, b"\1", "version 1"),
        (12, b"\1", "reserved"),
        (40, b"\1", "reserved"),
        (59, b"\1", "reserved"),
    ],
)
def test_a_segment_of_another_make_is_refused_even_with_a_right_checksum(at: int, value: bytes, rule: str) -> None:
    raw = pack_segment_header(SegmentHeader(1, 2, 3, 4))
    with pytest.raises(RemoteProtocolError, match=rule):
        read_segment_header(resummed(raw[:at] + value + raw[at + 1 :]))


@pytest.mark.parametrize("length", [0, 1, SEGMENT_HEADER_BYTES - 1])
def test_half_a_segment_header_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"{length} bytes"):
        read_segment_header(pack_segment_header(SegmentHeader(1, 2, 3, 4))[:length])


def test_values_that_do_not_fit_are_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="segment header"):
        pack_segment_header(SegmentHeader(1 << 16, 2, 3, 4))
    with pytest.raises(LocalProtocolError, match="block header"):
        pack_block_header(HEADER._replace(token_number=1 << 64))


def test_a_block_header_survives_at_any_offset() -> None:
    raw = pack_block_header(HEADER)
    assert len(raw) == BLOCK_HEADER_BYTES
    assert read_block_header(raw) == HEADER
    assert read_block_header(b"before" + raw + b"behind", 6) == HEADER


@pytest.mark.parametrize("at", range(BLOCK_HEADER_BYTES))
def test_a_flipped_bit_of_a_block_header_is_seen(at: int) -> None:
    raw = bytearray(pack_block_header(HEADER))
    raw[at] ^= 1 << at % 8
    with pytest.raises(RemoteProtocolError, match=r"marker|checksum"):
        read_block_header(bytes(raw))


@pytest.mark.parametrize("length", [0, 4, BLOCK_HEADER_BYTES - 1])
def test_half_a_block_header_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"{length} bytes"):
        read_block_header(pack_block_header(HEADER)[:length])


@pytest.mark.parametrize(
    "change, rule",
    [
        ({"flags": 8}, "flags"),
        ({"flags": 4}, "that takes"),
        ({"messages": 0}, "0 messages"),
        ({"messages": 4}, "4 messages"),
        ({"token_count": 65_536}, "65536"),
        ({"place": 2}, r"2\+2"),
        ({"events": 5}, "5 events"),
        ({"block_bytes": HEADER.block_bytes + 8}, "takes"),
        ({"payload_bytes": HEADER.payload_bytes + 8}, "takes"),
        ({"first_sequence": (1 << 64) - 1}, "2\\^64"),
    ],
)
def test_a_header_that_contradicts_itself_is_neither_written_nor_read(change: dict[str, int], rule: str) -> None:
    wrong = HEADER._replace(**change)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match=rule):
        pack_block_header(wrong)
    with pytest.raises(RemoteProtocolError, match=rule):
        read_block_header(resummed(pack(LAYOUT, b"ISOB", *wrong, 0)))


@given(messages=st.integers(1, 65_535), payload_bytes=st.integers(0, 1 << 24))
def test_blocks_and_what_is_in_them_are_aligned(messages: int, payload_bytes: int) -> None:
    length = block_length(messages, payload_bytes)
    assert length % ALIGNMENT == 0
    assert 0 <= length - BLOCK_HEADER_BYTES - messages * DIRECTORY_BYTES - payload_bytes < ALIGNMENT
    assert SEGMENT_HEADER_BYTES % ALIGNMENT == BLOCK_HEADER_BYTES % ALIGNMENT == DIRECTORY_BYTES % ALIGNMENT == 0


def test_what_follows_from_a_header() -> None:
    header = HEADER
    assert isinstance(header, BlockHeader)
    assert header.epoch == (2, 65_537)
    assert (header.next_sequence, header.ends_token) == (11, False)
    assert header._replace(token_count=2).ends_token
    assert header.lateness_ns == 41_005
