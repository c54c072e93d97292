"""Who of a group counts, and what all of them hold."""

from __future__ import annotations

from tests.hierarchy.layer_makers import DELAY, LAYERED, give, head
from tests.ring.makers import Chain

from isocast.hierarchy.secondary_ring import Tally
from isocast.wire.packets import NO_LIMIT

LAG = -(-(DELAY + LAYERED.timing.late_ns) // LAYERED.timing.token_period_ns)
SIZE = 3


def tally(tokens: int = 40) -> Tally:
    """Of a site that holds so many tokens of its first epoch, and was there from the beginning."""
    machine = head()
    found = Tally(machine)
    found.enter(0)
    give(machine, Chain().grow(tokens))
    return found


def test_the_newest_word_of_a_member_counts() -> None:
    found = tally()
    for number in (4, 7, 5):
        found.hear(4, number, SIZE)
    assert (found.said(4), found.said(5), found.passed) == (7, 0, {4: 7})


def test_all_hold_the_least_that_anybody_said_and_nothing_while_one_is_silent() -> None:
    found = tally()
    found.hear(4, 7, SIZE)
    assert found.floor([4, 5], 1) == 0
    found.hear(5, 8, SIZE)
    assert (found.floor([4, 5], 1), found.floor([4, 5], 8), found.floor([], 1)) == (7, 0, NO_LIMIT)


def test_a_member_is_overdue_after_the_tokens_on_their_way_a_round_and_patience() -> None:
    found = tally()
    found.hear(4, 40 - LAG - SIZE - 6, SIZE)
    assert (found.overdue(4, SIZE, 6), found.overdue(4, SIZE, 7)) == (True, False)


def test_a_stalled_one_can_be_relied_on_when_it_holds_what_may_have_been_dropped() -> None:
    found = tally()
    assert (found.stall(4), found.stall(4), found.counts(4)) == (True, False, False)
    found.claim(38)
    assert not found.hear(4, 20, SIZE)
    assert not found.counts(4), "its word comes, and is far behind"
    assert not found.hear(4, 37, SIZE)
    assert found.counts(4), "memory waits for it"
    assert found.hear(4, 38, SIZE)
    assert (found.stalled, found.returning) == ({}, {})


def test_without_a_limit_others_may_drop_up_to_this_sites_next_token() -> None:
    found = tally()
    found.stall(4)
    found.claim(NO_LIMIT)
    assert not found.hear(4, 40, SIZE)
    assert found.hear(4, 41, SIZE)


def test_a_new_epoch_begins_with_nothing_said_and_keeps_who_had_stalled() -> None:
    found = tally()
    found.hear(4, 30, SIZE)
    found.stall(5)
    found.claim(30)
    found.enter(40)
    assert (found.passed, found.said(4), found.stalled) == ({}, 40, {5: None})
    assert not found.overdue(4, SIZE, 0), "whoever is silent is waited for from here on"
    assert found.hear(5, 41, SIZE), "nothing of this epoch may have been dropped yet"
