"""A time cut: all stripes and all receivers agree on what existed at T."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.striping.merging import StripeClocks
from isocast.terms.errors import LocalProtocolError

PERIOD = 100
TOKENS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=20)
"""For each token how many messages, and how much later than a period it comes."""


def tokens(steps: list[tuple[int, int]], start: int) -> list[tuple[int, int]]:
    """(instant, last sequence) of each token."""
    found, instant, last = [], start, 0
    for count, late in steps:
        last += count
        found.append((instant, last))
        instant += PERIOD + late
    return found


@given(TOKENS, TOKENS, st.integers(0, 60), st.integers(-50, 4_000), st.data())
def test_a_cut_is_the_same_whenever_it_is_known(
    first: list[tuple[int, int]], second: list[tuple[int, int]], start: int, at: int, data: st.DataObject
) -> None:
    streams = {0: tokens(first, 0), 7: tokens(second, start)}
    ended = StripeClocks([7, 0], PERIOD)
    for stripe, stream in streams.items():
        for instant, last in stream:
            ended.passed(stripe, instant, last)
    early = StripeClocks([0, 7], PERIOD)
    seen = {stripe: data.draw(st.integers(0, len(stream))) for stripe, stream in streams.items()}
    for stripe, stream in streams.items():
        for instant, last in stream[: seen[stripe]]:
            early.passed(stripe, instant, last)
    got, final = early.at(at), ended.at(at)
    if got is not None:
        assert got == final
        assert final is not None
        assert got.digest == final.digest
    if final is not None:
        for stripe, stream in streams.items():
            assert final.of(stripe) == max([last for instant, last in stream if instant <= at], default=0)
    else:
        assert any(stream[-1][0] + PERIOD <= at for stream in streams.values())


def test_a_stripe_that_has_not_passed_it_keeps_everybody_waiting() -> None:
    clocks = StripeClocks([0, 1], PERIOD)
    clocks.passed(0, 1_000, 5)
    assert clocks.at(900) is None
    clocks.passed(1, 950, 3)
    cut = clocks.at(1_000)
    assert cut is not None
    assert cut.last == ((0, 5), (1, 3))
    # The next token of stripe 1 may come at 1,050, with more.
    assert clocks.at(1_049) is not None
    assert clocks.at(1_050) is None


def test_packets_of_a_narrow_stripe_are_judged_by_the_core_sequence() -> None:
    clocks = StripeClocks([0], PERIOD)
    clocks.passed(0, 1_000, 5)
    cut = clocks.at(1_000)
    assert cut is not None
    assert cut.existed(0, np.array([4, 6, 5], np.uint64)).tolist() == [True, False, True]


def test_what_is_forgotten_is_not_guessed() -> None:
    clocks = StripeClocks([0], PERIOD, marks_max=4)
    for number in range(1, 10):
        clocks.passed(0, number * PERIOD, number)
    assert clocks.at(9 * PERIOD) is not None
    with pytest.raises(LocalProtocolError, match="nothing is remembered"):
        clocks.at(PERIOD)
    late = StripeClocks([0], PERIOD)
    late.begin(0, 8, 700)
    late.passed(0, 800, 9)
    assert late.at(850) is not None
    with pytest.raises(LocalProtocolError):
        late.at(650)


def test_two_truths_are_refused() -> None:
    clocks = StripeClocks([0], PERIOD)
    clocks.passed(0, 1_000, 5)
    clocks.passed(0, 1_000, 5)
    with pytest.raises(LocalProtocolError, match="another sequence"):
        clocks.passed(0, 1_000, 6)
    with pytest.raises(LocalProtocolError, match="sequence 4 after 5"):
        clocks.passed(0, 1_100, 4)
