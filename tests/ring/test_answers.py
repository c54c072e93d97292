"""One aggregated request, and what answers it (protocol §2 and §3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.ring.makers import EPOCH, RETRY, S1, S2, Chain, message

from isocast.ring.answers import ANSWERS_MAX, AnswersGiven, answers_to, as_packets, holdings
from isocast.ring.ledger import LogEntry
from isocast.wire.codec import decode, encode
from isocast.wire.limits import MAX_HOLDING_BITS
from isocast.wire.packets import ControlEntry, ControlKind, Holding, Nack, TokenPart

ENTRY = Chain().add(message(1), message(2), message(3), message(1, S2))


def nack(*, has_token: bool, listed: tuple[Holding, ...] = (), parts_held: int = 0) -> Nack:
    return Nack(0, EPOCH, 2, 1, has_token, parts_held, listed)


def test_a_site_with_the_token_gets_what_it_names() -> None:
    wanted = nack(has_token=True, listed=holdings([(S1, 3), (S2, 1)]))
    assert answers_to(wanted, ENTRY) == [message(3), message(1, S2)]


def test_a_site_without_the_token_gets_it_with_everything_that_it_does_not_name() -> None:
    """Protocol §2: it says what it holds, and the owner sends the token and the difference: one phase."""
    held = nack(has_token=False, listed=holdings([(S1, 1), (S1, 3), (S1, 9)]))
    assert answers_to(held, ENTRY) == [ENTRY.token, message(2), message(1, S2)]


def test_a_site_that_holds_nothing_gets_all() -> None:
    assert answers_to(nack(has_token=False), ENTRY) == [ENTRY.token, *ENTRY.messages]


def test_of_a_token_in_parts_only_the_missing_parts_are_sent_again() -> None:
    entry = Chain().add(control=(ControlEntry(ControlKind.MARK, 1, bytes(3_000)),))
    sent = answers_to(nack(has_token=False, parts_held=0b010), entry)
    assert [part.part for part in sent if isinstance(part, TokenPart)] == [0, 2]


def test_a_small_token_travels_whole() -> None:
    assert as_packets(ENTRY.token) == (ENTRY.token,)


def test_one_request_is_answered_within_bounds() -> None:
    many = tuple([message(1)] * (ANSWERS_MAX + 7))
    entry = LogEntry(ENTRY.token, many, b"")
    assert len(answers_to(nack(has_token=False), entry)) == ANSWERS_MAX
    assert len(answers_to(nack(has_token=True, listed=holdings([(S1, 1)])), entry)) == ANSWERS_MAX


def test_numbers_that_lie_far_apart_make_two_bitmaps() -> None:
    far = 1 + MAX_HOLDING_BITS
    assert holdings([(S1, far), (S1, 1)]) == (Holding(S1, 1, 1), Holding(S1, far, 1))


@given(st.sets(st.tuples(st.sampled_from([S1, S2]), st.integers(1, 300))))
def test_holdings_name_each_label_once(labels: set[tuple[int, int]]) -> None:
    named = holdings(sorted(labels))
    found = [(held.source, held.first + bit) for held in named for bit in range(4_096) if held.bitmap >> bit & 1]
    assert sorted(found) == sorted(labels)


def test_what_does_not_fit_one_request_waits_for_the_next_attempt() -> None:
    labels = [(source << 32 | 1, 1) for source in range(1, 9_000)]
    request = nack(has_token=True, listed=holdings(labels))
    assert 1_000 < len(request.listed) < 9_000
    assert decode(encode(request)) == request


# Copies


def test_the_same_request_is_answered_once_until_its_sender_may_ask_again() -> None:
    answered = AnswersGiven(RETRY)
    assert answered.admits(3, (0, 7, 7), now=0)
    assert not answered.admits(3, (0, 7, 7), now=RETRY // 2 - 1)
    assert answered.admits(3, (0, 7, 7), now=RETRY)


@given(st.integers(0, 10**12), st.integers(RETRY // 2, RETRY))
def test_whoever_asks_again_in_his_time_is_answered(first: int, span: int) -> None:
    answered = AnswersGiven(RETRY)
    assert answered.admits(3, (0, 7, 7), now=first)
    assert answered.admits(3, (0, 7, 7), now=first + span)


def test_another_request_or_another_site_is_no_copy() -> None:
    answered = AnswersGiven(RETRY)
    requests = [(3, (0, 7, 7)), (2, (0, 7, 7)), (3, (1, 7, 7)), (3, (0, 8, 8))]
    assert all(answered.admits(site, request, now=0) for site, request in requests)


def test_many_different_requests_of_one_site_do_not_get_answers_without_end() -> None:
    answered = AnswersGiven(RETRY)
    for number in range(ANSWERS_MAX // 100 + 1):
        assert answered.admits(3, (0, number, number), now=0)
        answered.count(3, 100)
    assert not answered.admits(3, (0, 9_999, 9_999), now=0)
    assert answered.admits(2, (0, 9_999, 9_999), now=0), "others do not pay for it"
    assert answered.admits(3, (0, 9_999, 9_999), now=RETRY)


def test_a_clock_that_was_set_back_makes_nobody_wait() -> None:
    answered = AnswersGiven(RETRY)
    assert answered.admits(3, (0, 7, 7), now=10 * RETRY)
    assert answered.admits(3, (0, 7, 7), now=0)
