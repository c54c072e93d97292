"""Seconds as people write them become nanoseconds without binary rounding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.terms.instants import (
    MICROSECOND,
    MILLISECOND,
    NEVER,
    SECOND,
    from_seconds,
    instant_text,
    minute_text,
    read_instant,
    second_text,
    to_seconds,
)


@pytest.mark.parametrize(
    "seconds, nanoseconds",
    [(0.375, 375 * MILLISECOND), (2.775, 2_775 * MILLISECOND), ("0.1", 100 * MILLISECOND), (1, SECOND), (5e-6, 5_000)],
)
def test_seconds_become_nanoseconds_exactly(seconds: float | str, nanoseconds: int) -> None:
    assert from_seconds(seconds) == nanoseconds


@given(microseconds=st.integers(-(10**12), 10**12))
def test_microseconds_survive_being_seconds(microseconds: int) -> None:
    assert from_seconds(to_seconds(microseconds * MICROSECOND)) == microseconds * MICROSECOND


def test_never_is_later_than_a_hundred_years_and_fits_the_wire() -> None:
    assert 100 * 365 * 24 * 3_600 * SECOND < NEVER < 1 << 63


@pytest.mark.parametrize(
    "text, nanoseconds",
    [
        ("2024-03-10T09:30:00-04:00", 1_710_077_400 * SECOND),
        ("2024-03-10 13:30:00.123456789Z", 1_710_077_400 * SECOND + 123_456_789),
        ("2024-03-10T13:30:00.1234567", 1_710_077_400 * SECOND + 123_456_700),
        ("2024-03-10", 1_710_028_800 * SECOND),
        ("1969-12-31T23:59:59.999999999Z", -1),
    ],
)
def test_an_instant_is_read_to_the_nanosecond(text: str, nanoseconds: int) -> None:
    assert read_instant(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "noon", "2024-03-10T13:30:00.1234567891Z", "2024-02-30"])
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_instant(text)


@pytest.mark.parametrize(
    "instant, text",
    [
        (0, "1970-01-01T00:00:00.000000000Z"),
        (1_794_726_193_123_456_789, "2026-11-15T07:03:13.123456789Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        ((1 << 63) - 1, "2262-04-11T23:47:16.854775807Z"),
        (-(1 << 63), "1677-09-21T00:12:43.145224192Z"),
    ],
)
def test_instants_keep_their_nanoseconds(instant: int, text: str) -> None:
    assert instant_text(instant) == text


def test_people_read_the_second_or_the_minute_before() -> None:
    instant = 1_794_726_193_999_999_999
    assert (second_text(instant), minute_text(instant)) == ("2026-11-15 07:03:13 UTC", "2026-11-15 07:03 UTC")
