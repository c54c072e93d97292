"""Reports of exchanges as bytes: one spelling, and nothing else is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.orders.delivery import Place
from isocast.orders.desk import OrderStatus, ReportKind
from isocast.orders.exchange import ANSWER_BYTES_MAX, ExchangeAnswer, decode_answer, encode_answer
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError

PLACES = st.builds(Place, st.integers(1, 1 << 46), st.integers(0, 65_535))
NUMBERS = st.integers(0, (1 << 63) - 1)
TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=200)
ANSWERS = st.builds(
    ExchangeAnswer,
    PLACES,
    st.sampled_from(ReportKind),
    st.sampled_from(OrderStatus),
    st.none() | PLACES,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    TEXTS,
    TEXTS,
    st.booleans(),
)
TRADE = ExchangeAnswer(Place(1042, 3), ReportKind.TRADED, OrderStatus.PART_FILLED, None, 60, 40, 60, 100_200, "x-77")


@given(ANSWERS)
def test_a_report_is_read_as_it_was_written(answer: ExchangeAnswer) -> None:
    """Texts that JSON makes longer may not fit: then nothing is written."""
    try:
        raw = encode_answer(answer)
    except LocalProtocolError:
        assert (answer.text + answer.execution).count('"') + (answer.text + answer.execution).count("\\") > 100
        return
    assert len(raw) <= ANSWER_BYTES_MAX
    assert decode_answer(raw) == answer


def test_the_example_of_the_page() -> None:
    assert encode_answer(TRADE) == (
        b'{"order":"1042.3","kind":"traded","status":"part filled","filled":60,"left":40,"last_quantity":60,'
        b'"last_price":100200,"execution":"x-77"}'
    )


FIELDS = json.loads(encode_answer(TRADE))


@pytest.mark.parametrize(
    "changed",
    [
        {"order": "1042.0"},
        {"order": 1042},
        {"order": None},
        {"kind": "sold"},
        {"status": ["filled"]},
        {"filled": 0},
        {"filled": -1},
        {"filled": True},
        {"filled": 1.0},
        {"filled": 1 << 63},
        {"execution": ""},
        {"execution": "x" * 201},
        {"execution": "\n"},
        {"execution": "é"},
        {"declined": False},
        {"declined": 1},
        {"more": 1},
        {"original": "x"},
    ],
)
def test_anything_else_is_refused(changed: dict[str, object]) -> None:
    raw = json.dumps(FIELDS | changed, separators=(",", ":")).encode()
    with pytest.raises(RemoteProtocolError):
        decode_answer(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"7",
        b"null",
        b"\xff",
        b"[" * ANSWER_BYTES_MAX,
        b" " + encode_answer(TRADE),
        encode_answer(TRADE).replace(b'"filled":60', b'"filled":60,"filled":60'),
        encode_answer(TRADE).replace(
            b'"kind":"traded","status":"part filled"', b'"status":"part filled","kind":"traded"'
        ),
        encode_answer(TRADE).replace(b"60", b"6e1"),
        encode_answer(TRADE).replace(b"60", b"NaN"),
        encode_answer(TRADE).replace(b"{", b'{"text":"' + b"x" * ANSWER_BYTES_MAX + b'",'),
    ],
)
def test_a_report_has_one_spelling(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_answer(raw)


@given(st.binary(max_size=300))
def test_hostile_bytes_raise_nothing_else(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_answer(raw)


def test_what_does_not_fit_is_refused_before_it_is_sent() -> None:
    for wrong in ({"text": "é"}, {"execution": "x" * 201}, {"filled": -1}, {"filled": 1 << 63}):
        with pytest.raises(LocalProtocolError):
            encode_answer(TRADE._replace(**wrong))
