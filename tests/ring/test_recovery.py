"""Asking for what is missing, and giving up (§5.1; protocol §3)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ring.makers import LATE, PERIOD, RETRY, TIMING, T, founding

from isocast.ring.recovery import RANGE_FROM, RANGE_TOKENS, AskForRange, AskForToken, GiveUp, Recovery, nack_sets, turn
from isocast.ring.settings import Schedule
from isocast.terms.timing import Timing


def recovery(site: int = 3, *ring: int, timing: Timing = TIMING) -> Recovery:
    return Recovery(site, Schedule(founding(*ring), PERIOD), timing)


def history(machine: Recovery, held: int, until: int) -> list[tuple[int, object]]:
    """Everything that is done up to an instant by a machine that is woken exactly at its deadlines."""
    done: list[tuple[int, object]] = []
    while (now := machine.next_deadline(held)) <= until:
        done.extend([(now, action) for action in machine.due(held, now)])
    return done


def asked_for_1(machine: Recovery) -> list[int]:
    """Whom a machine asks for token 1 in two rounds."""
    done = [action for _, action in history(machine, 0, T(1) + LATE + 3 * RETRY)]
    return [action.to for action in done if isinstance(action, AskForToken) and action.token_number == 1]


def test_attempts_are_made_at_exact_instants_and_then_the_ring_is_suspected() -> None:
    """§5.1; protocol §3: at T_t+δ_N+2ε, k_r attempts τ_r apart; still unfinished after the last: SUSPECT."""
    assert history(recovery(), 0, T(1) + LATE + 2 * RETRY) == [
        (T(1) + LATE, AskForToken(1, 1)),
        (T(1) + LATE + RETRY, AskForToken(1, 1)),
        (T(1) + LATE + 2 * RETRY, GiveUp(1, 1)),
        (T(1) + LATE + 2 * RETRY, AskForToken(1, 2)),
    ]


def test_giving_up_comes_no_later_than_the_next_token() -> None:
    """Protocol §1: τ_t ≥ δ_N+2ε+k_r·τ_r, so at most one token is ever in recovery."""
    given_up = [at for at, action in history(recovery(), 0, T(2)) if isinstance(action, GiveUp)]
    assert given_up == [T(2)]


def test_nothing_is_asked_for_before_it_is_late() -> None:
    """Protocol §3: messages are not requested earlier."""
    machine = recovery()
    assert machine.next_deadline(0) == T(1) + LATE
    assert machine.due(0, T(1) + LATE - 1) == []


def test_a_token_that_is_here_is_not_asked_for() -> None:
    machine = recovery()
    assert machine.due(1, T(1) + LATE) == []
    assert machine.next_deadline(1) == T(2) + LATE


def test_a_token_that_comes_ends_its_attempts() -> None:
    machine = recovery()
    machine.due(0, T(1) + LATE)
    assert machine.due(1, T(1) + LATE + RETRY) == []
    assert machine.due(1, T(2) + LATE) == [AskForToken(2, 2)]


def test_after_the_owner_other_members_are_asked() -> None:
    """The owner holds all of its token; once it stayed silent, any member may."""
    assert asked_for_1(recovery(3)) == [1, 1, 2, 2]


def test_nobody_asks_itself() -> None:
    assert asked_for_1(recovery(2)) == [1, 1]


# Ranges


def test_a_receiver_several_tokens_behind_asks_for_ranges() -> None:
    machine = recovery()
    now = T(RANGE_FROM) + LATE
    assert machine.due(0, now) == [AskForRange(1, RANGE_FROM, 1)]
    assert machine.catching_up
    assert machine.next_deadline(0) == now + RETRY


def test_one_range_is_bounded_and_the_next_follows_at_once() -> None:
    machine = recovery()
    now = T(100) + LATE
    assert machine.due(0, now) == [AskForRange(1, RANGE_TOKENS, 1)]
    machine.progressed(RANGE_TOKENS - 1, now + 1)
    assert machine.due(RANGE_TOKENS - 1, now + 1) == []
    machine.progressed(RANGE_TOKENS, now + 2)
    [action] = machine.due(RANGE_TOKENS, now + 2)
    assert isinstance(action, AskForRange)
    assert (action.first, action.last) == (RANGE_TOKENS + 1, 2 * RANGE_TOKENS)


def test_ranges_are_asked_of_one_member_after_the_other_and_given_up_on() -> None:
    machine = recovery(3)
    now = T(9) + LATE
    done = [machine.due(0, now + attempt * RETRY) for attempt in range(3)]
    assert done == [[AskForRange(1, 9, 1)], [AskForRange(1, 9, 2)], [GiveUp(1, 1)]]


def test_a_receiver_that_caught_up_asks_for_single_tokens_again() -> None:
    machine = recovery(2)
    machine.due(0, T(9) + LATE)
    assert machine.due(8, T(9) + LATE + 1) == [AskForToken(9, 3)]
    assert not machine.catching_up


def test_a_receiver_behind_its_sources_asks_for_a_range_even_for_one_token() -> None:
    """Protocol §3: base > nextM means that the site is behind `stable`: it goes to CATCHUP."""
    machine = recovery()
    machine.behind = True
    assert machine.due(0, T(1) + LATE) == [AskForRange(1, 1, 1)]


def test_a_clock_that_was_set_back_starts_the_attempts_anew() -> None:
    machine = recovery()
    machine.due(0, T(1) + LATE + PERIOD // 2)
    machine.restart()
    assert machine.next_deadline(0) == T(1) + LATE
    assert machine.due(0, T(1) + LATE) == [AskForToken(1, 1)]


# NACK sets (§5.2)


def test_the_sets_of_ten_receivers_in_four() -> None:
    """Protocol §11: m=10, k_p=4, r=0: {1,5,9},{2,6},{3,7},{4,8}."""
    assert nack_sets(10, 4) == [[1, 5, 9], [2, 6], [3, 7], [4, 8]]


@pytest.mark.parametrize("size, sets", [(size, sets) for size in range(2, 12) for sets in range(1, size)])
def test_the_sets_divide_all_but_the_sender(size: int, sets: int) -> None:
    """Protocol §0, correction 9: the paper's sets contain the sender."""
    for owner in range(size):
        found = nack_sets(size, sets, owner)
        places = sorted([place for members in found for place in members])
        assert places == [place for place in range(size) if place != owner]
        for number, members in enumerate(found):
            assert all(turn(size, sets, owner, place) == number for place in members)


def test_set_i_asks_from_the_ith_token_after_on() -> None:
    """Protocol §8: S_{i,t} may request from T_{t+i}+δ_N+2ε, time-triggered even if token t+i is lost."""
    timing = replace(TIMING, nack_sets=2, release_delay_ns=0)
    first = {site: recovery(site, 1, 2, 3, 4, timing=timing).ask_from(1) for site in (2, 3, 4)}
    assert first == {2: T(1) + LATE, 3: T(2) + LATE, 4: T(1) + LATE}


def test_without_sets_everybody_may_ask_at_once() -> None:
    """§5.2 advises no reduction."""
    assert {recovery(site).ask_from(1) for site in (2, 3, 9)} == {T(1) + LATE}
