"""What is missing, and as which requests it is asked for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from isocast.hierarchy.gaps import Gaps, missing_runs, split_runs
from isocast.terms.instants import NEVER


@given(st.integers(1, 50), st.integers(0, 60), st.frozensets(st.integers(1, 120)))
def test_runs_are_exactly_what_is_missing(first: int, length: int, has: frozenset[int]) -> None:
    runs = missing_runs(first, first + length - 1, has)
    named = [sequence for start, end in runs for sequence in range(start, end + 1)]
    assert named == [sequence for sequence in range(first, first + length) if sequence not in has]
    assert all(end + 1 < start for (_, end), (start, _) in pairwise(runs))


@given(st.frozensets(st.integers(1, 400)), st.integers(1, 20), st.integers(1, 4))
def test_requests_cover_all_runs_and_are_short(has: frozenset[int], longest: int, near: int) -> None:
    runs = missing_runs(1, 400, has)
    requests = split_runs(runs, longest, near)
    covered = {sequence for first, last in requests for sequence in range(first, last + 1)}
    missing = {sequence for first, last in runs for sequence in range(first, last + 1)}
    assert missing <= covered
    assert all(1 <= last - first + 1 <= longest for first, last in requests)
    assert all(last < first for (_, last), (first, _) in pairwise(requests))
    # What is asked for needlessly lies between two runs that are near each other.
    for sequence in covered - missing:
        lower, upper = max(m for m in missing if m < sequence), min(m for m in missing if m > sequence)
        assert upper - lower <= near


def test_neighbours_are_asked_for_as_one() -> None:
    assert split_runs([(1, 1), (4, 5), (9, 9)], longest=10, near=3) == [(1, 5), (9, 9)]
    assert split_runs([(1, 25)], longest=10, near=3) == [(1, 10), (11, 20), (21, 25)]


def test_gaps_that_mature_a_moment_apart_are_looked_at_together() -> None:
    gaps = Gaps(patience_ns=80)
    gaps.add(1, 2, now=0)
    gaps.add(5, 6, now=10)
    gaps.add(9, 9, now=11)
    assert gaps.wake_at == 80
    assert [gap.first for gap in gaps.due(80)] == [1, 5]


def test_delivery_takes_gaps_away_from_below_and_a_server_from_above() -> None:
    gaps = Gaps(patience_ns=80)
    for first in (1, 5, 9):
        gaps.add(first, first + 1, now=first)
    assert [gap.first for gap in gaps.passed(3)] == [1]
    assert gaps.lowest is not None
    assert gaps.lowest.first == 5
    assert [gap.first for gap in gaps.retract(5)] == [9]
    assert [(gap.first, gap.last) for gap in gaps] == [(5, 5)]
    gaps.passed(6)
    assert (len(gaps), gaps.wake_at) == (0, NEVER)


def test_a_widened_gap_is_looked_at_again() -> None:
    gaps = Gaps(patience_ns=80)
    gap = gaps.add(1, 2, now=0)
    gap.next_at = NEVER
    gaps.rearm()
    gaps.widen(9, now=100)
    assert (gap.last, gaps.wake_at) == (9, 180)
    gap.spent, gap.next_at = True, NEVER
    gaps.rearm()
    gaps.widen(12, now=200)
    assert (gap.last, gaps.wake_at) == (12, NEVER)


def test_a_clock_that_is_set_back_does_not_make_a_gap_wait() -> None:
    gaps = Gaps(patience_ns=80)
    gaps.add(1, 1, now=1_000)
    gaps.set_back(10, 20)
    assert gaps.wake_at == 30
