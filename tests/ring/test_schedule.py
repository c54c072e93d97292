"""When each token of an epoch is due, and who owns it (§5; protocol §1)."""

from __future__ import annotations

import pytest
from tests.ring.makers import PERIOD, START, Chain, following, founding

from isocast.ring.settings import Schedule

FIRST = Schedule(founding(3, 1, 2), PERIOD)
SECOND = Schedule(following(Chain().grow(4), 2, 3, start=9 * START), PERIOD)


@pytest.mark.parametrize("token, place", [(1, 0), (2, 1), (3, 2), (4, 3), (10, 9)])
def test_token_t_is_due_at_its_epochs_start_and_so_many_periods(token: int, place: int) -> None:
    """Protocol §1: T_t = T0_e+(t-t0_e)·τ_t."""
    assert FIRST.instant(token) == START + place * PERIOD


def test_numbers_go_on_in_the_next_epoch_and_instants_start_anew() -> None:
    assert (SECOND.first_token, SECOND.instant(5), SECOND.instant(7)) == (5, 9 * START, 9 * START + 2 * PERIOD)


def test_the_ring_takes_turns_in_its_own_order() -> None:
    """Protocol §1: owner(e,t) = ring_e[(t-t0_e) mod m]."""
    assert [FIRST.owner(token) for token in range(1, 8)] == [3, 1, 2, 3, 1, 2, 3]
    assert [SECOND.owner(token) for token in range(5, 9)] == [2, 3, 2, 3]


def test_the_next_slot_is_the_first_token_that_a_site_owns_from_a_number_on() -> None:
    assert [FIRST.next_slot(1, token) for token in range(1, 6)] == [2, 2, 5, 5, 5]
    assert [FIRST.next_slot(3, token) for token in (1, 2)] == [1, 4]


def test_a_slot_is_never_before_the_epochs_first_token() -> None:
    assert SECOND.next_slot(3, 1) == 6


def test_a_site_outside_the_ring_has_no_slot() -> None:
    assert SECOND.next_slot(1, 5) is None


def test_the_last_due_token_is_the_newest_whose_instant_has_come() -> None:
    instants = [0, START - 1, START, START + PERIOD - 1, START + PERIOD]
    assert [FIRST.last_due(now) for now in instants] == [0, 0, 1, 1, 2]
    assert SECOND.last_due(0) == 4
