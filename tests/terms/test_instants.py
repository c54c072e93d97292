"""Seconds as people write them become nanoseconds without binary rounding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.terms.instants import MICROSECOND, MILLISECOND, NEVER, SECOND, from_seconds, to_seconds


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
