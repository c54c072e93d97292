"""Times and sizes as a file says them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.terms.quantities import duration_text, parse_duration, parse_size, size_text


@pytest.mark.parametrize(
    "text, nanoseconds",
    [
        ("5ms", 5_000_000),
        ("0.1ms", 100_000),
        ("200us", 200_000),
        ("200µs", 200_000),
        ("200\N{GREEK SMALL LETTER MU}s", 200_000),
        ("1.5 s", 1_500_000_000),
        ("0s", 0),
        ("7ns", 7),
        ("2min", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("1d", 86_400_000_000_000),
    ],
)
def test_a_time_is_a_number_and_a_unit(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "5", "ms", "5 m", "-5ms", "5  ms", "1e3ms", "0.5ns", "5msx", "٥ms", "5ms 3s", "9" * 40]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the text alone
        parse_duration(text)


@pytest.mark.parametrize(
    "text, size", [("4MiB", 4 << 20), ("10GB", 10**10), ("1.5KiB", 1536), ("0B", 0), ("2TiB", 2 << 40), ("3 kB", 3000)]
)
def test_a_size_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["4", "4mib", "4 Mb", "0.3B", "1.0001KiB", "-1B"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the text alone
        parse_size(text)


@given(st.integers(min_value=0, max_value=10**17))
def test_what_is_written_is_read_back(value: int) -> None:
    assert parse_duration(duration_text(value)) == value
    assert parse_size(size_text(value)) == value


@pytest.mark.parametrize(
    "nanoseconds, text",
    [
        (1_554_000_000, "1.554s"),
        (47_200_000, "47.2ms"),
        (100_000, "100us"),
        (3_000_000, "3ms"),
        (0, "0s"),
        (999, "999ns"),
    ],
)
def test_a_time_is_written_in_its_largest_unit(nanoseconds: int, text: str) -> None:
    assert duration_text(nanoseconds) == text
