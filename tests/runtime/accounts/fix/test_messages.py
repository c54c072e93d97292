"""Frames and messages: whole ones in any pieces, and bytes that are none."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.accounts.fix.transcripts import framed, summed

from isocast.runtime.accounts.fix.messages import (
    FIELDS_MAX,
    MESSAGE_BYTES_MAX,
    Framer,
    Message,
    decode,
    encode,
    instant_of,
    sanitized,
    utc_text,
)

LINES = [
    "35=A|34=1|98=0|108=30",
    "35=D|34=2|11=ID|21=3|38=100|40=2|44=10.05|54=1|55=XISO|60=20231114-22:13:20",
    "35=D|34=3|11=ID|40=1|54=1|55=XISO|60=20231114-22:13:20|354=10|355=a~10=123~b",
    "35=0|34=4",
]
FRAMES = [framed(line) for line in LINES]
ALMOST = st.lists(
    st.sampled_from(
        [
            *FRAMES,
            b"8=",
            b"8=FIX.4.4\x01",
            b"9=5\x01",
            b"9=16384\x01",
            b"\x0110=",
            b"10=123\x01",
            b"35=D\x01",
            b"\x01",
            b"=",
        ]
    )
    | st.binary(max_size=20),
    max_size=60,
).map(b"".join)
"""Bytes that begin like messages."""


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(st.lists(st.sampled_from(FRAMES)), st.lists(st.integers(0, 10_000), max_size=30))
def test_frames_are_the_same_however_they_arrive(frames: list[bytes], cuts: list[int]) -> None:
    framer = Framer()
    got = [frame for piece in pieces(b"".join(frames), cuts) for frame in framer.feed(piece)]
    assert got == frames
    assert framer.held == 0


@given(ALMOST, st.lists(st.integers(0, 10_000), max_size=30))
def test_what_is_found_in_hostile_bytes_does_not_depend_on_the_pieces(data: bytes, cuts: list[int]) -> None:
    whole = [frame for frame in Framer().feed(data) if frame]
    framer = Framer()
    cut = [frame for piece in pieces(data, cuts) for frame in framer.feed(piece) if frame]
    assert cut == whole
    for frame in whole:
        decode(frame)


@given(ALMOST)
def test_a_sound_message_after_hostile_bytes_is_found_unless_they_claim_it_as_their_own(data: bytes) -> None:
    framer = Framer()
    framer.feed(data)
    # Whatever began there is full after so many bytes, and what follows is read again.
    filler = FRAMES[3] * (3 * MESSAGE_BYTES_MAX // len(FRAMES[3]))
    framer.feed(filler)
    assert framer.feed(FRAMES[1])[-1] == FRAMES[1]


@given(st.binary(max_size=400), st.integers(1, 200))
def test_memory_is_bounded_whatever_comes(data: bytes, times: int) -> None:
    framer = Framer()
    for piece in (b"8=FIX.4.4\x019=16384\x01", *([data] * times)):
        framer.feed(piece)
        assert framer.held <= 2 * MESSAGE_BYTES_MAX + 1_000


def test_a_frame_without_an_end_is_dropped_when_it_is_full() -> None:
    framer = Framer()
    framer.feed(b"8=FIX.4.4\x019=5\x01" + b"x" * (2 * MESSAGE_BYTES_MAX))
    assert framer.held == 0
    assert framer.feed(FRAMES[3]) == [FRAMES[3]]


@pytest.mark.parametrize("frame", FRAMES, ids=LINES)
def test_one_changed_byte_is_never_another_message(frame: bytes) -> None:
    good = decode(frame)
    for index in range(len(frame)):
        for change in (0x01, 0x80):
            damaged = bytearray(frame)
            damaged[index] ^= change
            assert decode(bytes(damaged)) in (None, good)


@pytest.mark.parametrize(
    "text",
    [
        "8=FIX.4.4|9=#|35=0|34|10=#",
        "8=FIX.4.4|9=#|35=0|=1|10=#",
        "8=FIX.4.4|9=#|35=0|034=1|10=#",
        "8=FIX.4.4|9=#|35=0|+34=1|10=#",
        "8=FIX.4.4|9=#|35=0| 34=1|10=#",
        "8=FIX.4.4|9=#|35=0|3_4=1|10=#",
        "8=FIX.4.4|9=#|35=0|٣٤=1|10=#",
        "8=FIX.4.4|9=#|35=0|1234567890=1|10=#",
        "8=FIX.4.4|9=#|34=0|35=1|10=#",
        "8=FIX.4.4|9=#|35=0||34=1|10=#",
        "8=FIX.4.4|9=5|35=0|34=1|10=#",
        "8=FIX.4.4|9=#|35=0|34=1|10=1",
        "8=FIX.4.4|9=#|35=0|34=1|10=abc",
        "8=FIX.4.4|9=#|35=D|34=1|354=4|355=ab|10=#",
        "8=FIX.4.4|9=#|35=D|34=1|354=1|355=ab|10=#",
        "8=FIX.4.4|9=#|35=D|34=1|354=999999|355=ab|10=#",
        "8=FIX.4.4|9=#|35=0|" + "112=x|" * FIELDS_MAX + "10=#",
    ],
)
def test_garbled(text: str) -> None:
    assert decode(summed(text.encode("utf-8").decode("latin-1"))) is None


def test_data_may_have_any_bytes() -> None:
    message = decode(FRAMES[2])
    assert message is not None
    assert message.first[355] == "a\x0110=123\x01b"


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=2),
    st.lists(
        st.tuples(st.integers(1, 9_999).filter(lambda tag: tag not in (8, 9, 10, 35)), st.text("abc =0", max_size=9))
    ),
)
def test_what_is_encoded_is_decoded(kind: str, body: list[tuple[int, str]]) -> None:
    lengths = {90, 93, 95, 212, 348, 350, 352, 354, 356, 358, 360, 362, 364, 445, 618, 621}
    body = [field for field in body if field[0] not in lengths]
    frame = encode(kind, [(56, "B"), (34, "2"), (49, "A")], body)
    message = decode(frame)
    assert isinstance(message, Message)
    assert Framer().feed(frame) == [frame]
    assert message.kind == kind
    assert message.fields[3:-1] == [(34, "2"), (49, "A"), (56, "B"), *body]


@given(st.integers(0, 4_000_000_000_000))
def test_instants_to_the_millisecond(milliseconds: int) -> None:
    text = utc_text(milliseconds * 1_000_000)
    assert re.fullmatch(r"\d{8}-\d\d:\d\d:\d\d\.\d{3}", text)
    assert instant_of(text) == milliseconds * 1_000_000


def test_instants_as_others_write_them() -> None:
    assert instant_of("20231114-22:13:20") == 1_700_000_000_000_000_000
    assert instant_of("20231114-22:13:20.123456789") == 1_700_000_000_123_456_789
    assert instant_of("20161231-23:59:60") == instant_of("20170101-00:00:00")
    for wrong in ("", "20231114", "20231114-22:13", "20230230-00:00:00", "20231114-24:00:00", "20231114-22:13:61"):
        assert instant_of(wrong) is None
    assert instant_of("20231114-22:13:20.1") is None
    assert instant_of("٢٠٢٣١١١٤-22:13:20") is None


def test_text_for_a_message_has_no_soh() -> None:
    assert sanitized("a\x01b\nü" + "x" * 500) == "a?b??" + "x" * 195
