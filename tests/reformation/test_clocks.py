"""Whose clock is right, as far as votes tell: neither the server's nor any one voter's decides alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.reformation.ballots import join
from tests.ring.makers import MS, NEXT_EPOCH

from isocast.reformation.votes import VotedClocks
from isocast.terms.instants import SECOND

ERROR = MS
INVITED = 100 * SECOND


def voted(*votes: tuple[int, int, int], error: int = ERROR) -> VotedClocks:
    """Votes of sites 1, 2, …: (how far the clock is ahead of the server's, the way there, the way back)."""
    clocks = VotedClocks(NEXT_EPOCH, INVITED, error)
    for site, (ahead, there, back) in enumerate(votes, 1):
        clocks.hear(join(site, 5, now=INVITED + there + ahead), INVITED + there + back)
    return clocks


def test_a_server_whose_clock_agrees_keeps_its_own_time() -> None:
    clocks = voted((0, 5 * MS, 5 * MS), (MS, 9 * MS, MS), (-MS, 2 * MS, 15 * MS))
    assert (clocks.ahead_ns(), clocks.wrong()) == (0, ())


def test_a_server_that_is_behind_takes_the_voters_time_within_their_way() -> None:
    hour = 3_600 * SECOND
    clocks = voted((hour, 5 * MS, 5 * MS), (hour, 9 * MS, MS), (hour + MS, 2 * MS, 15 * MS))
    assert hour - 15 * MS - 2 * ERROR <= clocks.ahead_ns() <= hour
    assert clocks.wrong() == ()


def test_a_server_that_is_ahead_takes_the_voters_time_within_their_way() -> None:
    clocks = voted(*[(-3 * SECOND, 5 * MS, 5 * MS)] * 3)
    assert clocks.ahead_ns() == -3 * SECOND + 5 * MS + 2 * ERROR


def test_a_voter_against_most_is_wrong_be_it_ahead_or_behind() -> None:
    clocks = voted((0, MS, MS), (SECOND, MS, MS), (0, MS, MS), (-SECOND, MS, MS), (0, MS, MS))
    assert (clocks.ahead_ns(), clocks.wrong()) == (0, (2, 4))


def test_of_two_that_disagree_nobody_is_proven_wrong() -> None:
    clocks = voted((0, MS, MS), (SECOND, MS, MS))
    assert (clocks.ahead_ns(), clocks.wrong()) == (0, ())


def test_a_server_that_slept_over_the_votes_proves_nothing() -> None:
    """Votes that waited in its socket are old: they were cast some time between the invitation and now."""
    clocks = voted(*[(0, MS, 5 * SECOND)] * 3)
    assert clocks.ahead_ns() == 0


def test_the_quickest_of_a_voters_votes_counts() -> None:
    clocks = voted((SECOND, MS, 5 * SECOND))
    clocks.hear(join(1, 5, now=INVITED + 6 * SECOND), INVITED + 5 * SECOND + MS)
    assert clocks.most() == (SECOND - MS - 2 * ERROR, SECOND + MS + 2 * ERROR)


def test_a_server_whose_clock_is_set_back_meanwhile_is_behind_by_so_much_more() -> None:
    clocks = voted(*[(0, MS, MS)] * 3)
    clocks.set_back(SECOND)
    assert clocks.ahead_ns() == SECOND - MS - 2 * ERROR


spans = st.integers(0, 50 * MS)


@given(
    st.integers(-(10**13), 10**13),
    st.lists(st.tuples(st.integers(-ERROR, ERROR), spans, spans), min_size=1, max_size=9),
    st.lists(st.tuples(st.integers(-(10**13), 10**13), spans, spans), max_size=8),
)
def test_while_most_clocks_are_right_the_estimate_is_and_none_of_them_is_called_wrong(
    theirs: int, right: list[tuple[int, int, int]], others: list[tuple[int, int, int]]
) -> None:
    """Whatever the delays, whatever the others' clocks show, and however wrong the server's own is."""
    others = others[: len(right) - 1]
    clocks = voted(*[(theirs + error, there, back) for error, there, back in right], *others)
    assert not set(clocks.wrong()) & set(range(1, len(right) + 1))
    most = clocks.most()
    assert most.low <= theirs <= most.high
    way = max([max(there, back) for _, there, back in right])
    assert abs(clocks.ahead_ns() - theirs) <= way + 3 * ERROR
