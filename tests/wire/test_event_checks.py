"""The fast check of events says what `events_view` says."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.samples import EVENT

from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import EventKind, Side
from isocast.wire.events import are_events, build_events, events_view
from isocast.wire.limits import EVENT_BYTES

GOOD = build_events([EVENT] * 3).tobytes()
BYTES = st.sampled_from(
    [0, 1, 2, 3, 11, 12, 0x20, 0x21, 0x30, 0x39, 0x3A, 0x40, 0x41, 0x5A, 0x5B, 0x7E, 0x7F, 0x80, 0xFF]
)


def is_viewed(raw: bytes) -> bool:
    try:
        events_view(raw)
    except RemoteProtocolError:
        return False
    return True


@pytest.mark.parametrize("at", range(16))
def test_any_byte_at_any_place_is_judged_alike(at: int) -> None:
    for value in range(256):
        raw = bytearray(GOOD)
        raw[EVENT_BYTES + at] = value
        assert are_events(bytes(raw)) == is_viewed(bytes(raw)), value


@given(head=st.lists(BYTES, min_size=16, max_size=16), place=st.integers(0, 2))
def test_many_wrong_bytes_do_not_hide_one_another(head: list[int], place: int) -> None:
    raw = bytearray(GOOD)
    raw[place * EVENT_BYTES : place * EVENT_BYTES + 16] = bytes(head)
    assert are_events(bytes(raw)) == is_viewed(bytes(raw))


@given(raw=st.binary(max_size=200))
def test_random_bytes(raw: bytes) -> None:
    assert are_events(raw) == is_viewed(raw)


def test_nothing_is_a_number_of_events() -> None:
    assert are_events(b"")
    assert are_events(memoryview(GOOD))


def test_kinds_and_sides_have_no_holes() -> None:
    """The check compares with the least and the greatest."""
    for names in (EventKind, Side):
        assert sorted(names) == list(range(min(names), max(names) + 1))
    assert all(
        are_events(build_events([EVENT._replace(kind=k, side=s)]).tobytes()) for k, s in product(EventKind, Side)
    )
