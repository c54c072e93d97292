"""Asking retransmit servers: whom, when, for how much, and when a message is lost for good."""

from __future__ import annotations

from typing import Any

from tests.hierarchy.edge_makers import (
    FIRE,
    GAP,
    MS,
    NOW,
    RETRY,
    X1,
    X2,
    arrive,
    asked,
    beat,
    customer,
    of,
    rel,
    rels,
)

from isocast.hierarchy.customer import Customer
from isocast.hierarchy.edge import (
    ClaimRefuted,
    Deliver,
    FetchFailed,
    FetchRange,
    GapAbandoned,
    GapClosed,
    GapOpened,
    RangeArrived,
    RangeContinued,
    RepairUnanswered,
)
from isocast.terms.ids import NO_EPOCH
from isocast.wire.packets import Range, RangeReply

ASK = NOW + GAP
"""When a gap of NOW is asked for."""


def gappy(**changes: Any) -> Customer:  # noqa: ANN401 (any field)
    """A customer that lacks 2 and 3."""
    machine = customer(**changes)
    machine.step(arrive(rel(1), rel(4)), NOW)
    return machine


def fetching(**changes: Any) -> Customer:  # noqa: ANN401 (any field)
    """The same, where everything is fetched at doors: X1 was asked."""
    machine = gappy(by_datagram=False, **changes)
    assert of(machine.step(FIRE, ASK), FetchRange) == [FetchRange(X1, 2, 3)]
    return machine


def reply(server: int, low_water: int) -> RangeReply:
    return RangeReply(0, NO_EPOCH, server, Range.SEQUENCES, low_water, 100, low_water)


def test_a_gap_is_asked_of_the_first_server_then_of_the_next_then_fetched() -> None:
    """Protocol §7: "a gap that outlives the lines' skew goes to R_x"."""
    machine = gappy()
    assert machine.step(FIRE, ASK - 1) == ()
    assert asked(machine.step(FIRE, ASK)) == [(X1, 2, 3)]
    assert machine.next_deadline() == ASK + RETRY
    assert asked(machine.step(FIRE, ASK + RETRY)) == [(X1, 2, 3)]
    assert asked(machine.step(FIRE, ASK + 2 * RETRY)) == [(X2, 2, 3)]
    assert asked(machine.step(FIRE, ASK + 3 * RETRY)) == [(X2, 2, 3)]
    effects = machine.step(FIRE, ASK + 4 * RETRY)
    assert (asked(effects), of(effects, FetchRange)) == ([], [FetchRange(X1, 2, 3)])
    assert machine.snapshot().counters.requests == 4


def test_a_repaired_gap_is_not_asked_for_again() -> None:
    machine = gappy()
    machine.step(FIRE, ASK)
    machine.step(arrive(*rels(2, 3, X1)), ASK + MS)
    assert machine.step(FIRE, ASK + RETRY) == ()


def test_only_what_is_still_missing_is_asked_for() -> None:
    machine = gappy()
    machine.step(FIRE, ASK)
    machine.step(arrive(rel(2, X1)), ASK + MS)
    assert asked(machine.step(FIRE, ASK + RETRY)) == [(X1, 3, 3)]


def test_gaps_are_asked_for_together_as_ranges() -> None:
    machine = customer()
    machine.step(arrive(rel(1), rel(3), rel(5), *rels(7, 9), *rels(20, 22), rel(40)), NOW)
    assert asked(machine.step(FIRE, ASK)) == [(X1, 2, 6), (X1, 10, 19), (X1, 23, 39)]


def test_requests_are_short_and_few() -> None:
    machine = customer(range_max=10, requests_max=3)
    machine.step(arrive(rel(101)), NOW)
    assert asked(machine.step(FIRE, ASK)) == [(X1, 1, 10), (X1, 11, 20), (X1, 21, 30)]


def test_who_lacks_much_was_away_and_fetches() -> None:
    machine = customer(ask_max=50, fetch_max=40)
    machine.step(arrive(rel(101)), NOW)
    effects = machine.step(FIRE, ASK)
    assert (asked(effects), of(effects, FetchRange)) == ([], [FetchRange(X1, 1, 40)])
    effects = machine.step(RangeArrived(X1, rels(1, 40, X1), 1, 200), ASK + MS)
    assert of(effects, Deliver)[0].last == 40
    assert of(effects, FetchRange) == [FetchRange(X1, 41, 80)]


def test_a_server_that_does_not_keep_so_much_is_not_waited_for() -> None:
    machine = gappy()
    machine.step(FIRE, ASK)
    assert asked(machine.step(arrive(reply(X1, 50)), ASK + MS)) == [(X2, 2, 3)]


def test_a_datagram_alone_makes_nothing_lost() -> None:
    """Whoever holds the edge key can send it; only doors are believed."""
    machine = gappy()
    machine.step(FIRE, ASK)
    machine.step(arrive(reply(X1, 50)), ASK + MS)
    effects = machine.step(arrive(reply(X2, 50)), ASK + 2 * MS)
    assert of(effects, GapAbandoned) == []
    assert of(effects, FetchRange) == [FetchRange(X1, 2, 3)]


def test_a_reply_about_what_was_not_asked_changes_nothing() -> None:
    machine = gappy()
    assert machine.step(arrive(reply(X1, 50)), NOW) == ()
    machine.step(FIRE, ASK)
    assert machine.step(arrive(reply(X2, 50), reply(X1, 2)), ASK + MS) == ()
    strange = [reply(9, 50), reply(X1, 50)._replace(kind=Range.TOKENS), reply(X1, 50)._replace(stripe=1)]
    assert machine.step(arrive(*strange), ASK + MS) == ()
    assert machine.snapshot().counters.strange == 3


def test_what_no_server_keeps_is_abandoned_by_name_and_delivery_goes_on() -> None:
    machine = fetching()
    effects = machine.step(RangeArrived(X1, (), 3, 100), ASK + MS)
    assert of(effects, FetchRange) == [FetchRange(X2, 2, 3)]
    effects = machine.step(RangeArrived(X2, (), 4, 100), ASK + 2 * MS)
    assert effects == (GapAbandoned(2, 2, 1), FetchRange(X2, 3, 3))
    effects = machine.step(RangeArrived(X2, (), 4, 100), ASK + 3 * MS)
    assert of(effects, RepairUnanswered)
    machine.step(FIRE, machine.next_deadline())
    effects = machine.step(RangeArrived(X1, rels(3, 3, X1), 3, 100), ASK + 100 * MS)
    assert of(effects, Deliver) == [Deliver((rel(3, X1), rel(4)))]
    assert machine.snapshot().counters.abandoned == 1


def test_what_is_held_below_the_low_water_mark_is_delivered_all_the_same() -> None:
    machine = customer(by_datagram=False, servers=(X1,))
    machine.step(arrive(rel(3), rel(4), rel(8), rel(12)), NOW)
    machine.step(FIRE, ASK)
    effects = machine.step(RangeArrived(X1, (), 10, 100), ASK + MS)
    assert effects == (
        GapAbandoned(1, 2, 2),
        Deliver((rel(3), rel(4))),
        GapAbandoned(5, 7, 3),
        Deliver((rel(8),)),
        GapAbandoned(9, 9, 1),
        FetchRange(X1, 10, 11),
    )


def test_a_start_far_below_the_low_water_mark_is_one_step() -> None:
    machine = customer(by_datagram=False, servers=(X1,))
    machine.step(arrive(beat(10**12)), NOW)
    effects = machine.step(RangeArrived(X1, (), 10**12 - 5, 10**12 - 1), NOW + MS)
    assert GapAbandoned(1, 10**12 - 6, 10**12 - 6) in effects
    assert machine.snapshot().next_sequence == 10**12 - 5


def test_doors_that_do_not_answer_are_tried_in_turn_ever_less_often() -> None:
    machine = fetching()
    assert of(machine.step(FetchFailed(X1), ASK + MS), FetchRange) == [FetchRange(X2, 2, 3)]
    effects = machine.step(FetchFailed(X2), ASK + 2 * MS)
    assert effects == (RepairUnanswered(2, 3, 1),)
    again = machine.next_deadline()
    assert again == ASK + 2 * MS + 2 * RETRY
    assert of(machine.step(FIRE, again), FetchRange) == [FetchRange(X1, 2, 3)]
    machine.step(FetchFailed(X1), again)
    machine.step(FetchFailed(X2), again)
    assert of(machine.step(FIRE, again + 4 * RETRY - 1), FetchRange) == []
    assert of(machine.step(FIRE, again + 4 * RETRY), FetchRange) == [FetchRange(X1, 2, 3)]


def test_a_door_that_stays_silent_is_given_up() -> None:
    machine = fetching()
    assert machine.next_deadline() == ASK + 2 * RETRY
    assert of(machine.step(FIRE, ASK + 2 * RETRY), FetchRange) == [FetchRange(X2, 2, 3)]
    # Its answer is welcome when it comes after all.
    effects = machine.step(RangeArrived(X1, rels(2, 3, X1), 1, 100), ASK + 3 * RETRY)
    assert of(effects, Deliver) == [Deliver((*rels(2, 3, X1), rel(4)))]


def test_a_door_that_answers_slowly_is_not_given_up_and_its_first_messages_count() -> None:
    machine = customer(by_datagram=False)
    machine.step(arrive(rel(1), rel(9)), NOW)
    assert of(machine.step(FIRE, ASK), FetchRange) == [FetchRange(X1, 2, 8)]
    effects = machine.step(RangeContinued(X1, rels(2, 4)), ASK + 2 * RETRY - 1)
    assert [packet.sequence for run in of(effects, Deliver) for packet in run.packets] == [2, 3, 4]
    assert of(machine.step(FIRE, ASK + 3 * RETRY), FetchRange) == [], "it is answering"
    effects = machine.step(RangeArrived(X1, rels(5, 8), 1, 9), ASK + 3 * RETRY)
    assert [packet.sequence for run in of(effects, Deliver) for packet in run.packets] == [5, 6, 7, 8, 9]


def test_an_answer_that_breaks_off_is_asked_for_from_where_it_broke() -> None:
    machine = customer(by_datagram=False)
    machine.step(arrive(rel(1), rel(9)), NOW)
    machine.step(FIRE, ASK)
    machine.step(RangeContinued(X1, rels(2, 4)), ASK + MS)
    assert of(machine.step(FetchFailed(X1), ASK + 2 * MS), FetchRange) == [FetchRange(X2, 5, 8)]


def test_an_answer_whose_parts_brought_everything_is_no_round_in_vain() -> None:
    machine = fetching(servers=(X1,))
    machine.step(RangeContinued(X1, rels(2, 3)), ASK + MS)
    effects = machine.step(RangeArrived(X1, (), 1, 4), ASK + 2 * MS)
    assert of(effects, RepairUnanswered) == []


def vain_rounds(machine: Customer, rounds: int, *servers: int) -> tuple[list[int], int]:
    """Every fetch fails; whom it was asked of, and when that was over."""
    doors, now = list(servers[:1]), ASK
    while len(doors) <= rounds * len(servers):
        effects = machine.step(FetchFailed(doors[-1]), now)
        while not of(effects, FetchRange):
            now = machine.next_deadline()
            effects = machine.step(FIRE, now)
        doors += [fetch.server for fetch in of(effects, FetchRange)]
    return doors, now


def test_receivers_are_asked_when_no_server_gave_anything_in_two_rounds() -> None:
    machine = fetching(servers=(X1, X2), last_resorts=(1, 2))
    doors, now = vain_rounds(machine, 3, X1, X2)
    assert doors == [X1, X2, X1, X2, X1, X2, 1]
    effects = machine.step(RangeArrived(1, rels(2, 3), 1, 4), now)
    assert [packet.sequence for run in of(effects, Deliver) for packet in run.packets] == [2, 3, 4]
    machine.step(arrive(rel(6)), now)
    assert of(machine.step(FIRE, now + GAP), FetchRange) == [FetchRange(X1, 5, 5)], "servers come first again"


def test_what_is_lost_the_servers_decide_whatever_receivers_say() -> None:
    machine = fetching(servers=(X1,), last_resorts=(1,))
    doors, now = vain_rounds(machine, 3, X1)
    assert doors[-1] == 1
    effects = machine.step(RangeArrived(1, (), 4, 4), now)
    assert of(effects, GapAbandoned) == []


def test_failures_of_doors_that_were_not_asked_change_nothing() -> None:
    machine = fetching()
    assert machine.step(FetchFailed(X2), ASK + MS) == ()
    assert machine.step(RangeArrived(9, (), 50, 100), ASK + MS) == ()
    assert customer().step(FetchFailed(X1), NOW) == ()


def test_a_gap_that_waits_behind_another_is_fetched_when_its_turn_comes() -> None:
    machine = customer(retries_max=1, servers=(X1,))
    machine.step(arrive(rel(1), rel(3)), NOW)
    machine.step(arrive(rel(5)), NOW + 5 * MS)
    machine.step(FIRE, ASK)
    machine.step(FIRE, ASK + 5 * MS)
    assert of(machine.step(FIRE, ASK + RETRY), FetchRange) == [FetchRange(X1, 2, 2)]
    assert of(machine.step(FIRE, ASK + 5 * MS + RETRY), FetchRange) == []
    effects = machine.step(RangeArrived(X1, rels(2, 2, X1), 1, 5), ASK + 5 * MS + RETRY)
    assert of(effects, FetchRange) == [FetchRange(X1, 4, 4)]


def test_a_gap_repaired_by_a_line_lets_the_next_be_fetched() -> None:
    machine = customer(retries_max=1, servers=(X1,), ask_max=5)
    machine.step(arrive(rel(2)), NOW)
    machine.step(arrive(rel(20)), NOW + 5 * MS)
    assert asked(machine.step(FIRE, ASK)) == [(X1, 1, 1)]
    assert machine.step(FIRE, ASK + 5 * MS) == (GapOpened(3, 19, 17),)
    effects = machine.step(arrive(rel(1, 2)), ASK + 6 * MS)
    assert of(effects, FetchRange) == [FetchRange(X1, 3, 19)]


def test_who_is_far_behind_fetches_until_the_buffer_reaches_the_lines() -> None:
    machine = customer(hold_max=20, fetch_max=30, servers=(X1,))
    effects = machine.step(arrive(rel(1), rel(100)), NOW)
    assert of(effects, FetchRange) == [FetchRange(X1, 2, 31)]
    effects = machine.step(RangeArrived(X1, rels(2, 31, X1), 1, 110), NOW + MS)
    assert of(effects, FetchRange) == [FetchRange(X1, 32, 61)]
    effects = machine.step(RangeArrived(X1, rels(32, 61, X1), 1, 110), NOW + 2 * MS)
    effects = machine.step(RangeArrived(X1, rels(62, 91, X1), 1, 110), NOW + 3 * MS)
    assert of(effects, FetchRange) == []
    # The rest is within reach: an ordinary gap, the message that was dropped included.
    assert asked(machine.step(FIRE, NOW + 3 * MS + GAP)) == [(X1, 92, 110)], "up to what the server has"
    effects = machine.step(arrive(*rels(92, 110, X1)), NOW + 4 * MS + GAP)
    assert of(effects, Deliver)[0].last == 110


def test_a_claim_that_a_server_refutes_is_forgotten_and_its_line_distrusted() -> None:
    machine = customer(hold_max=20, servers=(X1,))
    machine.step(arrive(*rels(1, 5), beat(6, 2)), NOW)
    effects = machine.step(arrive(rel(1 << 60)), NOW)
    assert of(effects, FetchRange)
    effects = machine.step(RangeArrived(X1, (), 1, 5), NOW + MS)
    assert ClaimRefuted(1, 1 << 60, 5) in effects
    assert (machine.snapshot().gaps, machine.snapshot().newest) == (0, 5)
    for place in range(30):
        now = NOW + (2 + 10 * place) * MS
        assert of(machine.step(arrive(rel((1 << 60) + place)), now), FetchRange) == []
    assert of(machine.step(arrive(*rels(6, 7, 2)), NOW + 300 * MS), Deliver)
    # After a while it may have become right.
    assert of(machine.step(arrive(rel(1 << 60)), NOW + 330 * MS), FetchRange)


def test_what_two_lines_say_is_not_refuted_by_a_server_that_is_behind() -> None:
    machine = customer(hold_max=20)
    machine.step(arrive(rel(1), rel(100), rel(100, 2)), NOW)
    effects = machine.step(RangeArrived(X1, (), 1, 1), NOW + MS)
    assert of(effects, ClaimRefuted) == []
    assert of(effects, FetchRange) == [FetchRange(X2, 2, 4_097)]


def test_a_gap_that_a_server_knows_nothing_of_is_closed_until_it_is_claimed_again() -> None:
    machine = customer(by_datagram=False, servers=(X1,))
    machine.step(arrive(rel(1), beat(4)), NOW)
    machine.step(FIRE, ASK)
    effects = machine.step(RangeArrived(X1, (), 1, 1), ASK + MS)
    assert of(effects, GapClosed) == [GapClosed(2, 3, GAP + MS)]
    assert machine.snapshot().gaps == 0
    machine.step(arrive(beat(4)), ASK + 2 * MS)
    assert machine.snapshot().gaps == 1


def test_what_is_fetched_says_nothing_about_a_line() -> None:
    """A receiver may be a line and a door."""
    machine = customer(lines=(1, 2), servers=(1,), by_datagram=False)
    machine.step(arrive(rel(3, 2)), NOW)
    machine.step(FIRE, ASK)
    machine.step(RangeArrived(1, rels(1, 2, 1), 1, 3), ASK + MS)
    snapshot = machine.snapshot()
    assert (snapshot.next_sequence, snapshot.counters.repaired) == (4, 2)
    assert [line.wins for line in snapshot.lines] == [0, 1]
