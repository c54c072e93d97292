"""Seconds as people write them become nanoseconds without binary rounding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.terms.instants import MICROSECOND, MILLISECOND, NEVER, SECOND, from_seconds, read_instant, to_seconds


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
