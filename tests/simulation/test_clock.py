"""A clock that wanders within its bound, and steps beyond it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isocast.simulation.host import Clock
from isocast.terms.instants import SECOND

AMPLITUDE = 2_000_000

clocks = st.builds(
    Clock, st.integers(1, AMPLITUDE), st.sampled_from([0, 7, 100, 1_000]), st.integers(-AMPLITUDE, AMPLITUDE)
)
instants = st.integers(0, 10**13)


@given(clocks, instants)
def test_the_error_stays_within_its_bound_for_ever(clock: Clock, true: int) -> None:
    assert abs(clock.error_ns(true)) <= clock.amplitude_ns + 1


@given(clocks, instants, st.integers(0, 10**9))
def test_a_clock_never_runs_backwards(clock: Clock, true: int, span: int) -> None:
    assert clock.local(true + span) >= clock.local(true)


@given(clocks, st.integers(-(10**9), 10**9), instants)
def test_a_timer_never_fires_before_its_instant_nor_a_nanosecond_too_late(clock: Clock, step: int, local: int) -> None:
    """`true` inverts `local`."""
    clock.step(step)
    true = clock.true(local)
    assert clock.local(true) >= local
    assert clock.local(true - 2) < local


def test_without_drift_the_error_is_constant_and_cut_to_the_bound() -> None:
    assert [Clock(5, 0, phase).local(100) for phase in (3, -9, 9)] == [103, 95, 105]


def test_drift_is_the_slope_of_the_error() -> None:
    clock = Clock(AMPLITUDE, 100)
    assert clock.error_ns(SECOND) - clock.error_ns(0) == 100_000


def test_a_step_goes_beyond_the_bound_and_back() -> None:
    for clock in (Clock(5, 0, 1), Clock(AMPLITUDE, 100)):
        before = clock.local(SECOND)
        clock.step(SECOND)
        assert clock.local(SECOND) == before + SECOND
        clock.step(-SECOND)
        assert clock.local(SECOND) == before


@given(clocks, st.sampled_from([-50_000, -500, 500, 50_000]), instants, st.integers(0, 10**13))
def test_a_clock_that_runs_away_still_rings_at_its_instant(clock: Clock, rate: int, since: int, span: int) -> None:
    clock.run_away(since, rate)
    local = clock.local(since + span)
    true = clock.true(local)
    assert clock.local(true) >= local > clock.local(true - 1) - 1
    assert abs(clock.error_ns(since + span) - span * rate // 1_000_000) <= clock.amplitude_ns + 1


def test_a_clock_that_is_set_right_keeps_nothing_of_what_it_gained() -> None:
    clock = Clock(0)
    clock.run_away(0, 50_000)
    assert clock.error_ns(SECOND) == SECOND // 20
    clock.run_away(SECOND, 0)
    assert clock.error_ns(2 * SECOND) == 0
