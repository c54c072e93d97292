"""The receiver of §2.1: which effects each packet and each timer has, exactly."""

from __future__ import annotations

import pytest
from tests.ring.original.group import RING, SOURCE, T_A, TIMERS, R_n, R_t, ack, arrive, data, receiver

from isocast.ring.original.packets import (
    Ack,
    AckItem,
    AckOfItem,
    MessageItem,
    OriginalMulticast,
    OriginalNack,
    OriginalRepair,
    OriginalRingSuspected,
    OriginalSuspicion,
    OriginalUnicast,
    Placed,
    TimerFired,
    TokenAck,
)
from isocast.ring.original.receiver import OriginalReceiver
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import source_id
from isocast.terms.instants import NEVER

A, B, C, D = (data(1, source_id(number)) for number in range(1, 5))
"""First messages of four sources."""


# ---- acknowledging


def test_the_token_site_places_acknowledges_and_passes_on_in_one_step() -> None:
    """§2.1: the acknowledgement "assigns it global sequence number t" and "transfers the token"."""
    first = OriginalReceiver(1, RING, TIMERS)
    assert first.step(arrive(A), 0) == (Placed(1, A.label), OriginalMulticast(Ack(1, A.label, receiver=1, next=2)))
    state = first.snapshot()
    assert (state.next_token, state.holds, state.pending) == (2, False, 1)


def test_without_the_token_a_message_waits() -> None:
    """§2.1: "it is placed in the store waiting for acknowledgement"."""
    other = OriginalReceiver(2, RING, TIMERS)
    assert other.step(arrive(A), 0) == ()
    assert other.snapshot().waiting == (A.label,)


def test_after_its_acknowledgement_a_site_acknowledges_no_more() -> None:
    """§2.1: "As soon as r sends acknowledgement t it gives up the right"."""
    first = receiver(1, A)
    assert first.step(arrive(B), 0) == ()
    assert first.snapshot().waiting == (B.label,)


def test_the_token_comes_with_the_acknowledgement_and_is_used_at_once() -> None:
    """§2.1: "The message transfers the token to the next token site"; the oldest waiting message goes first."""
    second = receiver(2, A, B, C)
    assert second.step(arrive(ack(1, A)), 0) == (
        Placed(1, A.label),
        Placed(2, B.label),
        OriginalMulticast(Ack(2, B.label, receiver=2, next=3)),
    )


def test_a_site_that_is_not_named_next_only_places() -> None:
    third = receiver(3, A)
    assert third.step(arrive(ack(1, A)), 0) == (Placed(1, A.label),)
    assert not third.snapshot().holds


def test_an_idle_site_acknowledges_the_next_message_that_comes() -> None:
    second = receiver(2, A, ack(1, A))
    assert second.snapshot().holds
    assert second.step(arrive(B), T_A - 1) == (Placed(2, B.label), OriginalMulticast(ack(2, B)))


def test_the_token_is_not_accepted_before_everything_is_there() -> None:
    """§2.1: not "until it has all of the acknowledgements and source messages ... up to and including t"."""
    third = receiver(3, A, C)
    assert third.step(arrive(ack(2, B)), 0) == (OriginalUnicast(2, OriginalNack(3, AckItem(1))),)
    assert third.step(arrive(OriginalRepair(ack(1, A))), 0) == (
        Placed(1, A.label),
        OriginalUnicast(2, OriginalNack(3, MessageItem(2, B.label))),
    )
    assert not third.snapshot().holds
    assert third.step(arrive(OriginalRepair(B)), 0) == (
        Placed(2, B.label),
        Placed(3, C.label),
        OriginalMulticast(ack(3, C)),
    )
    assert third.next_deadline() == R_t


def test_a_source_that_skips_a_number_gets_no_position() -> None:
    first = receiver(1, data(2))
    assert first.snapshot().holds
    assert first.step(arrive(B), 0) == (Placed(1, B.label), OriginalMulticast(ack(1, B)))


# ---- source messages


def test_a_message_below_the_expected_one_is_a_duplicate() -> None:
    """§2.1: "if M_s < M_{s,r}, (s, M_s) is a duplicate"."""
    third = receiver(3, A, ack(1, A))
    assert third.step(arrive(A), 0) == ()


def test_a_message_in_the_store_is_a_duplicate() -> None:
    """§2.1: "otherwise: (s, M_s) is a duplicate"."""
    third = receiver(3, A)
    assert third.step(arrive(A), 0) == ()
    assert third.snapshot().waiting == (A.label,)


def test_pending_site_and_holder_answer_a_source_that_repeats_itself() -> None:
    """§2.1: "the retransmission server assumes that the source failed to receive the acknowledgement"."""
    again = (OriginalUnicast(A.label.source, ack(1, A)),)
    assert receiver(1, A).step(arrive(A), 0) == again
    assert receiver(2, A, ack(1, A)).step(arrive(A), 0) == again


def test_an_acknowledgement_that_all_have_is_still_sent_to_its_source() -> None:
    others = [data(1, source_id(number)) for number in range(2, 9)]
    late = receiver(2, A, *others, ack(1, A))
    for number in range(3, 9):
        late.step(arrive(ack(number, others[number - 2])), 0)
    state = late.snapshot()
    assert 1 not in dict(state.kept)
    assert state.pending == 8
    assert late.step(arrive(A), 0) == (OriginalUnicast(A.label.source, ack(1, A)),)


def test_a_source_that_has_moved_on_needs_no_old_acknowledgement() -> None:
    second = receiver(2, data(1), data(2), ack(1, data(1)))
    assert second.snapshot().pending == 2
    assert second.step(arrive(data(1)), 0) == ()


def test_a_message_above_the_expected_one_asks_for_the_acknowledgement_before() -> None:
    """§2.1: "if M_s > M_{s,r}, the acknowledgement for (s, M_s - 1) is missing, and is requested"."""
    third = receiver(3, A, B, ack(1, A))
    assert third.step(arrive(data(3, B.label.source)), 0) == (
        OriginalUnicast(1, OriginalNack(3, AckOfItem(data(2, B.label.source).label))),
    )


def test_an_acknowledgement_that_waits_for_its_message_is_not_asked_for() -> None:
    third = receiver(3, ack(1, data(1)))
    assert third.snapshot().missing == (MessageItem(1, data(1).label),)
    assert third.step(arrive(data(2)), 0) == ()


# ---- acknowledgements


def test_an_acknowledgement_below_the_expected_one_is_a_duplicate() -> None:
    """§2.1: "if t < t_r, acknowledgement t is a duplicate"."""
    third = receiver(3, A, ack(1, A))
    assert third.step(arrive(ack(1, A)), 0) == ()


def test_an_acknowledgement_without_its_message_asks_for_the_message() -> None:
    """§2.1: "(s, M_s) is missing and is requested before processing acknowledgement t"."""
    third = OriginalReceiver(3, RING, TIMERS)
    assert third.step(arrive(ack(1, A)), 0) == (OriginalUnicast(1, OriginalNack(3, MessageItem(1, A.label))),)
    assert third.snapshot().next_token == 1


def test_a_gap_asks_for_every_missing_acknowledgement_from_the_sender_of_the_highest() -> None:
    """§2.1: "if t > t_r, acknowledgement t - 1 is missing and is requested"; one item in each NACK."""
    first = receiver(1, A, B, C, D)
    assert first.step(arrive(ack(3, C)), 0) == (OriginalUnicast(3, OriginalNack(1, AckItem(2))),)
    fresh = OriginalReceiver(1, (1, 2, 3, 4, 5), TIMERS)
    late = Ack(4, D.label, receiver=4, next=5)
    assert fresh.step(arrive(late), 0) == tuple(
        OriginalUnicast(4, OriginalNack(1, AckItem(number))) for number in (1, 2, 3)
    )


def test_what_came_early_is_placed_when_the_gap_is_filled() -> None:
    first = receiver(1, A, B, C, ack(3, C))
    assert first.step(arrive(OriginalRepair(ack(2, B))), 0) == (Placed(2, B.label), Placed(3, C.label))


def test_an_item_that_comes_by_itself_is_not_asked_for_again() -> None:
    first = receiver(1, A, B, C, ack(3, C))
    first.step(arrive(ack(2, B)), 0)
    assert first.snapshot().missing == ()
    assert first.step(TimerFired(), R_n) == ()


def test_a_burst_is_taken_packet_by_packet() -> None:
    third = OriginalReceiver(3, RING, TIMERS)
    assert third.step(arrive(A, B, ack(1, A), ack(2, B)), 0) == (Placed(1, A.label), Placed(2, B.label))


# ---- passing the token


def test_an_idle_site_confirms_the_token_after_T_a_once() -> None:  # noqa: N802
    """§2.1: "receiver r+1 transmits a special token acknowledgement when there are no source messages"."""
    second = receiver(2, A, ack(1, A))
    assert second.next_deadline() == T_A
    assert second.step(TimerFired(), T_A) == (OriginalUnicast(1, TokenAck(1)),)
    assert second.next_deadline() == NEVER
    assert second.snapshot().holds


def test_the_first_site_has_nobody_to_confirm_to() -> None:
    assert OriginalReceiver(1, RING, TIMERS).next_deadline() == NEVER


def test_a_pass_is_repeated_every_R_t_until_it_is_confirmed() -> None:  # noqa: N802
    """§2.1: "Token site r periodically sends acknowledgement t until it receives acknowledgement t+1"."""
    first = receiver(1, A, B)
    assert first.step(TimerFired(), R_t) == (OriginalMulticast(ack(1, A)),)
    assert first.next_deadline() == 2 * R_t
    assert first.step(arrive(ack(2, B)), 2 * R_t - 1) == (Placed(2, B.label),)
    assert first.snapshot().pending is None
    assert first.next_deadline() == NEVER


@pytest.mark.parametrize("confirmation", [TokenAck(1), ack(2, B), ack(3, C)], ids=["tokack", "next", "later"])
def test_a_pass_is_confirmed_by_its_tokack_or_any_later_acknowledgement(confirmation: TokenAck | Ack) -> None:
    first = receiver(1, A, B, C)
    first.step(arrive(confirmation), 0)
    assert first.snapshot().pending is None


@pytest.mark.parametrize("stranger", [TokenAck(4), ack(1, A)], ids=["tokack of another pass", "own"])
def test_a_pass_is_confirmed_by_nothing_else(stranger: TokenAck | Ack) -> None:
    first = receiver(1, A)
    first.step(arrive(stranger), 0)
    assert first.snapshot().pending == 1


def test_after_k_r_attempts_the_successor_is_suspected() -> None:
    """§2.1: "If an acknowledgement isn't received in a specified number of attempts, receiver r decides ..."."""
    first = receiver(1, A)
    sent = [first.step(TimerFired(), attempt * R_t) for attempt in (1, 2, 3)]
    copy = OriginalMulticast(ack(1, A))
    assert sent == [(copy,), (copy,), (OriginalRingSuspected(OriginalSuspicion.PASS), copy)]


def test_an_idle_holder_confirms_again_when_its_predecessor_repeats() -> None:
    """§2.1: "the retransmit server assumes that it failed to receive the token passing acknowledgement"."""
    second = receiver(2, A, ack(1, A))
    assert second.step(arrive(ack(1, A)), R_t) == (OriginalUnicast(1, TokenAck(1)),)


def test_a_site_that_has_passed_on_answers_with_its_own_acknowledgement() -> None:
    """§2.1: "acknowledgements for token passing messages that a previous token site failed to receive"."""
    second = receiver(2, A, B, ack(1, A))
    assert second.step(arrive(ack(1, A)), R_t) == (OriginalUnicast(1, OriginalRepair(ack(2, B))),)


def test_in_a_ring_of_two_such_an_answer_is_not_answered_again() -> None:
    """Each of two sites is the other's predecessor: answers to answers would never end."""
    pair = (1, 2)
    first = receiver(1, A, B, C, ack(2, B, pair), ring=pair)
    assert first.snapshot().pending == 3
    assert first.step(arrive(OriginalRepair(ack(2, B, pair))), 0) == ()


def test_a_repair_is_no_repetition() -> None:
    second = receiver(2, A, B, ack(1, A))
    assert second.step(arrive(OriginalRepair(ack(1, A))), 0) == ()


# ---- requests and repairs


def test_a_request_is_repeated_every_R_n_and_after_k_r_the_server_is_suspected() -> None:  # noqa: N802
    """§2.1: "it periodically requests the message until it receives the message or decides ..."."""
    third = receiver(3, ack(1, A))
    again = OriginalUnicast(1, OriginalNack(3, MessageItem(1, A.label)))
    assert third.next_deadline() == R_n
    sent = [third.step(TimerFired(), attempt * R_n) for attempt in (1, 2, 3)]
    assert sent == [(again,), (again,), (OriginalRingSuspected(OriginalSuspicion.REQUEST), again)]


def test_a_repeated_request_goes_to_the_newest_token_site() -> None:
    third = receiver(3, B, ack(1, A))
    third.step(arrive(ack(2, B)), 1)
    assert third.step(TimerFired(), R_n) == (OriginalUnicast(2, OriginalNack(3, MessageItem(1, A.label))),)


def test_the_last_token_site_asks_its_successor() -> None:
    """Only the successor can have acknowledged beyond the highest acknowledgement, which is one's own."""
    first = receiver(1, A)
    later = data(2, B.label.source)
    assert first.step(arrive(later), 0) == (OriginalUnicast(2, OriginalNack(1, AckOfItem(B.label))),)


def test_each_item_has_its_own_timer() -> None:
    first = receiver(1, A, C, D, ack(3, C))
    first.step(arrive(OriginalRepair(ack(2, B))), R_n - 1)
    assert first.snapshot().missing == (MessageItem(2, B.label),)
    assert first.next_deadline() == 2 * R_n - 1


def test_requests_are_answered_from_the_receive_list() -> None:
    """§2.1: a token site services requests for "acknowledged source messages" and "acknowledgements"."""
    second = receiver(2, A, B, ack(1, A))
    wanted = arrive(
        OriginalNack(3, AckItem(1)), OriginalNack(3, MessageItem(2, B.label)), OriginalNack(3, AckOfItem(B.label))
    )
    assert second.step(wanted, 0) == (
        OriginalUnicast(3, OriginalRepair(ack(1, A))),
        OriginalUnicast(3, OriginalRepair(B)),
        OriginalUnicast(3, OriginalRepair(ack(2, B))),
    )


@pytest.mark.parametrize("item", [AckItem(2), MessageItem(2, B.label), AckOfItem(B.label), MessageItem(1, B.label)])
def test_what_a_site_lacks_it_does_not_answer(item: AckItem | AckOfItem | MessageItem) -> None:
    assert receiver(2, A, ack(1, A)).step(arrive(OriginalNack(3, item)), 0) == ()


def test_repairs_that_came_twice_change_nothing() -> None:
    third = receiver(3, A, ack(1, A))
    before = third.snapshot()
    assert third.step(arrive(OriginalRepair(A), OriginalRepair(ack(1, A))), 0) == ()
    assert third.snapshot() == before


# ---- memory


def test_only_what_another_receiver_may_lack_is_kept() -> None:
    """§2.1: "all of the other receivers have all of the source messages up to and including ... t-m+1"."""
    third = OriginalReceiver(3, RING, TIMERS)
    for number in range(1, 100):
        message = data(number)
        third.step(arrive(message, ack(number, message)), number)
        if number % 3 == 2:
            # Its own turn comes when the next message does.
            third.step(arrive(data(number + 1)), number)
    state = third.snapshot()
    assert state.next_token == 100
    assert [number for number, _ in state.kept] == [98, 99]
    assert state.all_have == 97
    assert state.waiting == ()


def test_the_snapshot_tells_the_expected_numbers() -> None:
    """§2.1: M_{s,r} is "the next message that r expects to process from source s"."""
    third = receiver(3, data(1), B, ack(1, data(1)), ack(2, B))
    assert third.snapshot().next_numbers == ((SOURCE, 2), (B.label.source, 2))


@pytest.mark.parametrize("ring", [(1,), (1, 2, 2), (2, 3)], ids=["one", "twice", "absent"])
def test_a_ring_has_two_different_sites_or_more(ring: tuple[int, ...]) -> None:
    with pytest.raises(LocalProtocolError):
        OriginalReceiver(1, ring, TIMERS)
