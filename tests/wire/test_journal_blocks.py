"""Blocks of a journal: what goes in comes out, events lie together and are viewed where they lie."""

from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.journal_samples import block, events_payload, message
from tests.wire.test_events import EVENTS

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Epoch
from isocast.wire.events import EVENT_DTYPE, build_events
from isocast.wire.journal import (
    ALIGNMENT,
    BLOCK_HEADER_BYTES,
    DIRECTORY_BYTES,
    pack_block_header,
    read_block_header,
)
from isocast.wire.journal_blocks import (
    DIRECTORY_DTYPE,
    IS_EVENTS,
    BlockView,
    JournalMessage,
    ReleasedBlock,
    encode_block,
    view_block,
)
from isocast.wire.limits import EVENT_BYTES

U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
DIGESTS = st.binary(min_size=32, max_size=32)
KEYS = st.binary(min_size=16, max_size=16)
PAYLOADS = st.one_of(
    st.lists(EVENTS, max_size=4).map(lambda rows: build_events(rows).tobytes()),
    st.binary(max_size=120),
    st.binary(min_size=48, max_size=48),
)
MESSAGES: st.SearchStrategy[list[JournalMessage]] = st.lists(
    st.tuples(U64, U64, DIGESTS, PAYLOADS), min_size=1, max_size=8
)


@st.composite
def released(draw: st.DrawFn) -> ReleasedBlock:
    messages = draw(MESSAGES)
    place = draw(st.integers(0, 100))
    return ReleasedBlock(
        epoch=Epoch(draw(U32), draw(U32)),
        token_number=draw(U64),
        token_count=place + len(messages) + draw(st.integers(0, 100)),
        place=place,
        first_sequence=draw(st.integers(0, (1 << 64) - 100)),
        instant=draw(I64),
        due=draw(I64),
        released_at=draw(I64),
        clock_bound_ns=draw(U64),
        shuffle_key=draw(KEYS),
        messages=messages,
    )


def encoded(one: ReleasedBlock) -> bytes:
    return b"".join(encode_block(one).pieces)


def with_body(one: ReleasedBlock, at: int, patch: bytes, **header: int) -> bytes:
    """A block whose body was changed by somebody who knows how checksums are made."""
    raw = bytearray(encoded(one))
    raw[BLOCK_HEADER_BYTES + at : BLOCK_HEADER_BYTES + at + len(patch)] = patch
    changed = read_block_header(bytes(raw))._replace(body_checksum=crc32(raw[BLOCK_HEADER_BYTES:]), **header)  # type: ignore[arg-type]
    return pack_block_header(changed) + bytes(raw[BLOCK_HEADER_BYTES:])


@given(one=released())
def test_what_was_released_is_read_again(one: ReleasedBlock) -> None:
    raw = encoded(one)
    view = view_block(raw)
    assert len(raw) == view.header.block_bytes
    assert view.released() == one
    assert encoded(view.released()) == raw
    assert [view.payload(place) for place in range(len(one.messages))] == [payload for *_, payload in one.messages]
    assert view.sequences == range(one.first_sequence, one.first_sequence + len(one.messages))


@given(one=released())
def test_all_events_lie_together_in_order(one: ReleasedBlock) -> None:
    view = view_block(encoded(one))
    rows = view.directory
    expected = b""
    for row, (*_, payload) in zip(rows, one.messages, strict=True):
        if row["flags"] & IS_EVENTS:
            assert int(row["first_event"]) * EVENT_BYTES == len(expected)
            assert int(row["events"]) * EVENT_BYTES == len(payload)
            expected += payload
        else:
            assert row["events"] == 0
    assert view.events.tobytes() == expected


def test_events_are_viewed_where_they_lie() -> None:
    raw = encoded(block(1, 1, (None, b"opaque", None)))
    view = view_block(raw)
    whole = np.frombuffer(raw, np.uint8)
    for array in (view.events, view.directory):
        assert np.shares_memory(array, whole)
        assert not array.flags.writeable
        assert (array.ctypes.data - whole.ctypes.data) % ALIGNMENT == 0
    assert view.events.dtype == EVENT_DTYPE
    assert view.events["price"].tolist() == [10_001, 10_001, 10_003, 10_003]


def test_a_row_of_the_directory_has_no_gaps() -> None:
    assert DIRECTORY_DTYPE.itemsize == DIRECTORY_BYTES
    at = 0
    for name in DIRECTORY_DTYPE.names or ():
        field, offset = DIRECTORY_DTYPE.fields[name][:2]  # type: ignore[index]
        assert offset == at
        at += field.itemsize
    assert at == DIRECTORY_BYTES


def test_a_payload_of_the_right_length_that_is_no_event_stays_opaque() -> None:
    odd = bytearray(events_payload(1))
    odd[0] = 99
    view = view_block(encoded(block(1, 1, (bytes(odd), None, bytes(48)))))
    assert view.directory["flags"].tolist() == [0, IS_EVENTS, 0]
    assert view.payload(0) == odd
    assert view.events["price"].tolist() == [10_002, 10_002]


@pytest.mark.parametrize(
    "first, last, sequences",
    [
        (None, None, [5, 6, 7]),
        (6, None, [6, 7]),
        (None, 6, [5, 6]),
        (6, 6, [6]),
        (1, 4, []),
        (8, 9, []),
        (7, 5, []),
        (0, 100, [5, 6, 7]),
    ],
)
def test_the_messages_of_a_range(first: int | None, last: int | None, sequences: list[int]) -> None:
    view = view_block(encoded(block(2, 5, (None,) * 3)))
    assert view.messages(first, last) == [message(sequence) for sequence in sequences]


@settings(max_examples=60)
@given(one=released(), data=st.data())
def test_a_flipped_bit_of_the_body_is_seen(one: ReleasedBlock, data: st.DataObject) -> None:
    raw = bytearray(encoded(one))
    at = data.draw(st.integers(BLOCK_HEADER_BYTES, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(RemoteProtocolError, match="checksum of the block's body"):
        view_block(bytes(raw))
    assert view_block(bytes(raw), check=False).header == read_block_header(bytes(raw))


def test_a_block_whose_end_is_missing_is_refused() -> None:
    raw = encoded(block(1, 1))
    with pytest.raises(RemoteProtocolError, match=f"of which {len(raw) - 1} are here"):
        view_block(raw[:-1])


ROW = {name: DIRECTORY_DTYPE.fields[name][1] for name in DIRECTORY_DTYPE.names or ()}  # type: ignore[index]
MIXED = block(1, 1, (None, b"opaque", None))


@pytest.mark.parametrize(
    "at, patch, rule",
    [
        (ROW["flags"], b"\2", "contradicts"),
        (ROW["flags"], b"\0", "contradicts"),
        (ROW["reserved"], b"\1", "contradicts"),
        (ROW["first_event"], b"\1", "contradicts"),
        (ROW["events"], b"\1", "contradicts"),
        (ROW["offset"], b"\1", "contradicts"),
        (ROW["length"], b"\1", "lengths"),
        (ROW["length"], b"\xff\xff\xff\xff", "lengths"),
        (DIRECTORY_BYTES + ROW["flags"], b"\1", "lengths"),
        (3 * DIRECTORY_BYTES, b"\xff", "said to be events"),
        (3 * DIRECTORY_BYTES + 4 * EVENT_BYTES + len(b"opaque"), b"\1", "zeros"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused_behind_a_right_checksum(at: int, patch: bytes, rule: str) -> None:
    with pytest.raises(RemoteProtocolError, match=rule):
        view_block(with_body(MIXED, at, patch))


def test_header_and_directory_count_the_same_events() -> None:
    with pytest.raises(RemoteProtocolError, match="count different events"):
        view_block(with_body(MIXED, 0, b"", events=3))


def test_events_that_are_said_to_be_opaque_are_refused() -> None:
    """Every block has one spelling."""
    two = block(1, 1, (b"x" * 48, None))
    raw = bytearray(encoded(two))
    start = BLOCK_HEADER_BYTES + 2 * DIRECTORY_BYTES + 2 * EVENT_BYTES
    assert raw[start : start + 48] == b"x" * 48
    with pytest.raises(RemoteProtocolError, match="said to be opaque"):
        view_block(with_body(two, start - BLOCK_HEADER_BYTES, events_payload(1, 1)))


@pytest.mark.parametrize(
    "wrong, rule",
    [
        (replace(MIXED, messages=[]), "without messages"),
        (replace(MIXED, shuffle_key=b"short"), "shuffle key"),
        (replace(MIXED, messages=[(1, 1, b"short", b"")]), "digests"),
        (replace(MIXED, messages=[(1 << 64, 1, bytes(32), b"")]), "label"),
        (replace(MIXED, messages=[(1, -1, bytes(32), b"")]), "label"),
        (replace(MIXED, token_count=2), "token of 2"),
        (replace(MIXED, clock_bound_ns=-1), "does not fit"),
        (replace(MIXED, due=1 << 63), "does not fit"),
    ],
)
def test_what_a_reader_would_refuse_is_not_written(wrong: ReleasedBlock, rule: str) -> None:
    with pytest.raises(LocalProtocolError, match=rule):
        encode_block(wrong)


def test_a_view_can_begin_anywhere_in_a_buffer() -> None:
    first, second = encoded(block(1, 1)), encoded(block(2, 2))
    view = view_block(first + second, len(first))
    assert isinstance(view, BlockView)
    assert (view.header.token_number, bytes(view.raw)) == (2, second)


@pytest.mark.parametrize("fetched, uncertified", [(False, False), (True, False), (False, True), (True, True)])
def test_what_is_read_is_what_was_handed_to_the_writer(*, fetched: bool, uncertified: bool) -> None:
    """Archives pass blocks on in this form: no flag may be lost on the way."""
    written = replace(block(4, 1, (None, b"ten bytes!")), fetched=fetched, uncertified=uncertified)
    assert view_block(b"".join(encode_block(written).pieces)).released() == written
