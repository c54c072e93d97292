"""Opaque messages as bytes: what goes in comes out, limits are named, and nothing else is taken for them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.wire.events import are_events
from isocast.wire.opaque import (
    MAX_MESSAGE_KEY,
    MAX_TOPIC,
    OpaqueMessage,
    count_events,
    cut_opaque,
    is_opaque,
    read_opaque,
    read_opaque_or_none,
)

MOST = 1_296
TOPICS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=MAX_TOPIC)
MESSAGES = st.lists(
    st.builds(
        OpaqueMessage,
        TOPICS,
        st.binary(max_size=600),
        st.binary(max_size=MAX_MESSAGE_KEY),
        st.integers(0, (1 << 64) - 1),
    ),
    max_size=12,
)


def test_golden_bytes() -> None:
    [raw] = cut_opaque([OpaqueMessage("quiz", b"pressed", b"t7", 0x0102), OpaqueMessage("x", b"")], MOST)
    assert raw.hex() == (
        "f0010200" + "04020700" + "0201000000000000" + b"quizt7pressed".hex() + "01000000" + "0000000000000000" + "78"
    )
    assert read_opaque(raw) == (OpaqueMessage("quiz", b"pressed", b"t7", 0x0102), OpaqueMessage("x", b""))


@given(MESSAGES)
def test_blocks_carry_every_message_in_order_and_are_no_events(messages: list[OpaqueMessage]) -> None:
    blocks = cut_opaque(messages, MOST)
    assert [message for block in blocks for message in read_opaque(block)] == messages
    assert all(len(block) <= MOST and is_opaque(block) and not are_events(block) for block in blocks)
    # Two neighbours would not have fitted one block.
    assert all(len(one) + len(two) - 4 > MOST or len(read_opaque(two)) > 1 for one, two in pairwise(blocks))
    assert count_events([*blocks, bytes(96)]) == 2


@given(MESSAGES.filter(bool), st.data())
def test_a_block_that_was_cut_or_lengthened_is_refused(messages: list[OpaqueMessage], data: st.DataObject) -> None:
    block = cut_opaque(messages, MOST)[0]
    kept = data.draw(st.integers(0, len(block) - 1))
    for wrong in (block[:kept], block + b"\0"):
        assert read_opaque_or_none(wrong) is None


@given(st.binary(max_size=200))
def test_hostile_bytes_are_read_back_as_they_are_or_refused(raw: bytes) -> None:
    block = b"\xf0\x01" + raw
    found = read_opaque_or_none(block)
    assert found is None or cut_opaque(found, 1 << 20) == [block]


@pytest.mark.parametrize(
    "message, rule",
    [
        (OpaqueMessage("", b"x"), "1 to 64 printable ASCII characters"),
        (OpaqueMessage("t" * 65, b"x"), "1 to 64 printable ASCII characters"),
        (OpaqueMessage("a b", b"x"), "no spaces"),
        (OpaqueMessage("prix é", b"x"), "printable ASCII"),
        (OpaqueMessage("a\n", b"x"), "printable ASCII"),
        (OpaqueMessage("t", b"x", b"k" * 65), "a key of 65 bytes: at most 64"),
        (OpaqueMessage("t", bytes(1_280), b""), "a payload of 1,280 bytes: at most 1,279 fit"),
        (OpaqueMessage("t", b"", b"", -1), "nanoseconds since 1970"),
    ],
)
def test_what_breaks_a_limit_is_refused_with_its_name(message: OpaqueMessage, rule: str) -> None:
    with pytest.raises(LocalProtocolError, match=rule):
        cut_opaque([OpaqueMessage("fine", b""), message], MOST)


def test_the_largest_payload_fits() -> None:
    largest = OpaqueMessage("topic", bytes(MOST - 4 - 12 - 5 - 3), b"key")
    assert [len(block) for block in cut_opaque([largest, OpaqueMessage("t", b"")], MOST)] == [MOST, 17]


@pytest.mark.parametrize(
    "raw, rule",
    [
        ("", "0 bytes"),
        ("f0010000", "0 messages"),
        ("f0020100", "version 2"),
        ("01010100", "tag 1"),
        ("f0010100" + "01410000" + "00" * 8 + "78" + "6b" * 65, "a key of 65 bytes"),
        ("f0010100" + "01000000" + "00" * 8 + "20", "topic"),
        ("f0010100" + "01000000" + "00" * 8 + "e9", "topic"),
        ("f0010100" + "00000000" + "00" * 8, "topic"),
        ("f0010100" + "01000000" + "00" * 8 + "7878", "1 bytes behind"),
    ],
)
def test_what_nobody_packs_is_refused(raw: str, rule: str) -> None:
    with pytest.raises(RemoteProtocolError, match=rule):
        read_opaque(bytes.fromhex(raw))
