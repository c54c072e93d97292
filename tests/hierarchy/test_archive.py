"""What a retransmit server answers, to whom, and how much of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hierarchy.edge_makers import MS, NOW

from isocast.hierarchy.archive import AnswerLimits, Answers, Bucket, CustomerThrottled, RangePiece
from isocast.terms.errors import LocalProtocolError
from isocast.terms.instants import NEVER, SECOND

LIMITS = AnswerLimits(
    rate=1_000,
    burst=100,
    customer_rate=100,
    customer_burst=20,
    pending_max=4,
    range_max=50,
    quantum=10,
    quiet_ns=50 * MS,
    stale_ns=SECOND,
    customers_max=8,
)


def sequences(pieces: list[RangePiece], customer: int | None = None) -> list[int]:
    """Everything that goes out, in order."""
    chosen = [piece for piece in pieces if customer in (None, piece.customer)]
    return [sequence for piece in chosen for sequence in range(piece.first, piece.last + 1)]


def test_a_bucket_lets_a_burst_go_and_then_its_rate() -> None:
    bucket = Bucket(rate=10, burst=5)
    assert bucket.room(NOW) == 5
    bucket.take(5, NOW)
    assert (bucket.room(NOW), bucket.ready_at(1)) == (0, NOW + SECOND // 10)
    assert bucket.room(NOW + SECOND // 10) == 1
    assert bucket.room(NOW + 3_600 * SECOND) == 5


def test_a_bucket_in_debt_pays_first() -> None:
    bucket = Bucket(rate=10, burst=5)
    bucket.take(15, NOW)
    assert bucket.room(NOW + SECOND) == 0
    assert bucket.room(NOW + SECOND + SECOND // 10) == 1
    assert bucket.ready_at(1_000) == NOW + SECOND + SECOND // 2


def test_a_request_is_answered_at_once() -> None:
    answers = Answers(LIMITS)
    assert answers.ask(7, 1, 5, NOW) == []
    assert answers.serve(NOW) == ([RangePiece(7, 1, 5)], [])
    assert answers.wake_at == NEVER


def test_a_range_is_answered_once_for_all_who_lost_it() -> None:
    """§7.1: "it is likely that the same messages will be lost by many receivers ... should be multicast"."""
    answers = Answers(LIMITS)
    answers.ask(7, 1, 5, NOW)
    answers.ask(8, 1, 5, NOW)
    answers.ask(9, 4, 8, NOW)
    pieces, _ = answers.serve(NOW)
    assert sorted(sequences(pieces)) == [1, 2, 3, 4, 5, 6, 7, 8]
    answers.ask(7, 1, 8, NOW + 49 * MS)
    assert answers.serve(NOW + 49 * MS) == ([], [])
    assert answers.spared == 15
    answers.ask(7, 1, 8, NOW + 50 * MS)
    assert sequences(answers.serve(NOW + 50 * MS)[0]) == list(range(1, 9))


def test_customers_are_served_in_turn() -> None:
    answers = Answers(LIMITS)
    answers.ask(7, 100, 149, NOW)
    answers.ask(8, 200, 204, NOW)
    pieces, _ = answers.serve(NOW)
    assert [piece.customer for piece in pieces] == [7, 8, 7]


def test_who_asks_for_more_than_its_share_waits_alone_and_is_named() -> None:
    answers = Answers(LIMITS)
    answers.ask(7, 100, 149, NOW)
    pieces, named = answers.serve(NOW)
    assert sequences(pieces) == list(range(100, 120))
    assert named == [CustomerThrottled(7, 50, 20, 0)]
    answers.ask(8, 200, 209, NOW)
    pieces, named = answers.serve(NOW)
    assert (sequences(pieces), named) == (list(range(200, 210)), [])
    assert answers.wake_at == NOW + SECOND // 10
    pieces, _ = answers.serve(answers.wake_at)
    assert sequences(pieces) == list(range(120, 130))


def test_a_name_is_told_once_a_second() -> None:
    answers = Answers(LIMITS)
    told = []
    for place in range(200):
        now = NOW + place * 10 * MS
        told += answers.ask(7, place * 50, place * 50 + 49, now)
        told += answers.serve(now)[1]
    assert len(told) == 2
    assert told[-1].refused > 50


def test_requests_that_pile_up_are_refused() -> None:
    answers = Answers(LIMITS)
    named = [answers.ask(7, place * 100, place * 100 + 49, NOW) for place in range(6)]
    assert [len(told) for told in named] == [0, 0, 0, 0, 1, 0]
    assert (answers.refused, len(answers.accounts[7].pending)) == (2, 4)


def test_a_long_request_is_cut() -> None:
    answers = Answers(replace(LIMITS, customer_burst=1_000))
    answers.ask(7, 1, 1 << 60, NOW)
    assert len(sequences(answers.serve(NOW)[0])) == 50


def test_a_request_that_waited_too_long_is_dropped() -> None:
    answers = Answers(replace(LIMITS, customer_rate=1, customer_burst=1))
    answers.ask(7, 1, 5, NOW)
    assert sequences(answers.serve(NOW)[0]) == [1]
    assert answers.serve(NOW + 2 * SECOND)[0] == []
    assert (answers.refused, answers.wake_at) == (1, NEVER)


def test_all_together_keep_the_servers_own_rate() -> None:
    answers = Answers(replace(LIMITS, customer_burst=50))
    for customer in range(1, 6):
        answers.ask(customer, customer * 1_000, customer * 1_000 + 49, NOW)
    pieces, named = answers.serve(NOW)
    assert (len(sequences(pieces)), named) == (100, [])
    assert {customer: len(sequences(pieces, customer)) for customer in range(1, 6)} == dict.fromkeys(range(1, 6), 20)
    assert answers.wake_at == NOW + 10 * MS
    assert len(sequences(answers.serve(answers.wake_at)[0])) == 10


def test_accounts_are_bounded_and_the_one_longest_idle_goes() -> None:
    answers = Answers(replace(LIMITS, rate=1, burst=1))
    for customer in range(1, 9):
        answers.ask(customer, customer * 10, customer * 10, NOW)
    answers.ask(1, 10, 10, NOW)
    answers.ask(99, 990, 990, NOW)
    assert list(answers.accounts) == [3, 4, 5, 6, 7, 8, 1, 99]
    assert answers.forgotten == 1
    # What the forgotten one waited for is forgotten too, and nobody else's.
    served = [piece.customer for place in range(20) for piece in answers.serve(NOW + place * SECOND)[0]]
    assert 2 not in served


def test_a_share_can_be_charged_for_other_things() -> None:
    answers = Answers(LIMITS)
    assert answers.charge(7, 30, NOW)
    assert not answers.charge(7, 1, NOW)
    assert answers.charge(8, 1, NOW)
    assert answers.refuse(7, NOW) == [CustomerThrottled(7, 0, 0, 1)]


def test_at_a_door_the_rest_is_asked_for_again() -> None:
    answers = Answers(replace(AnswerLimits.at_door(), customer_burst=30, quantum=20, range_max=50))
    answers.ask(7, 1, 50, NOW)
    pieces, _ = answers.serve(NOW)
    assert sequences(pieces) == list(range(1, 21))
    assert not answers.accounts[7].pending
    # And each is answered alone.
    answers.ask(8, 1, 20, NOW)
    assert sequences(answers.serve(NOW)[0]) == list(range(1, 21))


def test_at_a_door_the_newest_request_takes_the_place_of_the_one_that_waits() -> None:
    """A customer that died asks again: what its last life asked for is neither answered nor in its way."""
    answers = Answers(replace(LIMITS, pending_max=1, keeps_rest=False, newest_counts=True, quiet_ns=0))
    answers.charge(7, 20, NOW)
    assert answers.ask(7, 1, 5, NOW) == []
    assert answers.serve(NOW)[0] == []
    assert answers.ask(7, 6, 9, NOW + MS) == []
    assert answers.refused == 0
    pieces, _ = answers.serve(answers.wake_at)
    assert sequences(pieces) == [6, 7, 8, 9]
    assert answers.accounts[7].served == 4


def test_what_is_withdrawn_costs_nothing() -> None:
    answers = Answers(LIMITS)
    answers.withdraw(7)
    answers.ask(7, 1, 5, NOW)
    answers.ask(8, 6, 9, NOW)
    answers.withdraw(7)
    assert sequences(answers.serve(NOW)[0]) == [6, 7, 8, 9]
    assert (answers.accounts[7].served, answers.served) == (0, 4)
    answers.ask(7, 1, 5, NOW)
    assert sequences(answers.serve(NOW)[0]) == [1, 2, 3, 4, 5]


def test_whose_request_lapsed_is_known() -> None:
    answers = Answers(LIMITS)
    answers.charge(7, 200, NOW)
    answers.ask(7, 1, 5, NOW)
    answers.serve(NOW)
    assert answers.lapsed == []
    answers.serve(NOW + 3 * SECOND)
    assert answers.lapsed == [7]


def test_a_clock_that_is_set_back_makes_nobody_wait() -> None:
    answers = Answers(LIMITS)
    answers.ask(7, 1, 50, NOW)
    answers.serve(NOW)
    back = 3_600 * SECOND
    answers.set_back(back)
    assert answers.wake_at == NOW - back + SECOND // 10
    assert len(sequences(answers.serve(answers.wake_at)[0])) == 10
    answers.ask(8, 1, 5, NOW - back + SECOND // 5)
    assert sequences(answers.serve(NOW - back + SECOND // 5)[0], 8) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("changes", [{"rate": 0}, {"quantum": 0}, {"quiet_ns": -1}, {"rate": SECOND + 1}])
def test_limits_that_cannot_work_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        replace(LIMITS, **changes)


requests = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 200), st.integers(0, 60), st.integers(0, 30)), max_size=60
)  # fmt: skip


@given(requests)
def test_whoever_asks_whatever_shares_and_bounds_are_kept(asked: list[tuple[int, int, int, int]]) -> None:
    answers = Answers(LIMITS)
    now, total = NOW, 0
    served: dict[int, int] = {}
    sent_at: dict[int, int] = {}
    for customer, first, length, pause in asked:
        now += pause * MS
        answers.ask(customer, first, first + length, now)
        pieces, _ = answers.serve(now)
        for piece in pieces:
            count = piece.last - piece.first + 1
            served[piece.customer] = served.get(piece.customer, 0) + count
            total += count
            for sequence in range(piece.first, piece.last + 1):
                assert now - sent_at.get(sequence, -NEVER) >= LIMITS.quiet_ns
                sent_at[sequence] = now
        span = (now - NOW) / SECOND
        assert total <= LIMITS.burst + LIMITS.rate * span
        # An account that is forgotten starts afresh: bounded by the total alone.
        if not answers.forgotten:
            assert all(count <= LIMITS.customer_burst + LIMITS.customer_rate * span for count in served.values())
        assert len(answers.accounts) <= LIMITS.customers_max
        assert all(len(account.pending) <= LIMITS.pending_max + 50 for account in answers.accounts.values())
