"""§2 and §2.1 of the paper, sentence by sentence, against the machines of the original protocol."""

from __future__ import annotations

import pytest
from tests.ring.original.group import SOURCE, T_A, Group, R_n, R_s, R_t, ack, arrive, data, receiver

from isocast.ring.original.packets import (
    Ack,
    AckItem,
    AckOfItem,
    MessageItem,
    OriginalData,
    OriginalMulticast,
    OriginalNack,
    OriginalPacket,
    OriginalRepair,
    OriginalRingSuspected,
    OriginalSuspicion,
    OriginalUnicast,
    Placed,
    TimerFired,
    TokenAck,
)
from isocast.ring.original.receiver import possession_floor
from isocast.simulation.original import OriginalParameters, OriginalResult, run_original
from isocast.terms.ids import Label, NodeId, source_id
from isocast.terms.instants import MILLISECOND, SECOND

A, B, C = (data(1, source_id(number)) for number in (1, 2, 3))


def lossy(loss: float, messages: int = 300, *, sources: int = 0) -> OriginalResult:
    """A ring of five under loss; its watcher checks order, turns and possession from outside."""
    return run_original(
        OriginalParameters(
            seed=21,
            receivers=5,
            messages=messages,
            loss=loss,
            tree=False,
            one_way_delay_ns=50 * MILLISECOND,
            jitter_ns=20 * MILLISECOND,
            arrival_rate=1.0,
            token_ack_ns=SECOND,
            token_resend_ns=1_500 * MILLISECOND,
            source_resend_ns=SECOND,
            nack_resend_ns=400 * MILLISECOND,
            retries_max=20,
            sources=sources,
        )
    )


def only_the_successor_hears(group: Group) -> None:
    """The worst luck: a multicast reaches nobody but the site whose turn is next."""

    def hears(packet: OriginalPacket, to: NodeId) -> bool:
        if isinstance(packet, Ack):
            return to in (packet.next, packet.label.source)
        return to == group.ring[len(group.acknowledgers()) % len(group.ring)]

    group.hears = hears


# ---- §2: the three characteristics


@pytest.mark.parametrize("sources", [0, 4], ids=["one message each", "four sources"])
def test_every_receiver_places_the_messages_in_the_same_sequence(sources: int) -> None:
    """§2: "it guarantees that every receiver places the messages in the same sequence"."""
    result = lossy(0.1, sources=sources)
    assert result.nacks > 0
    assert result.violations == []


def test_every_receiver_eventually_knows_that_every_other_has_the_data() -> None:
    """§2: "every receiver eventually knows that every other receiver has the data"."""
    group = Group(4)
    for _ in range(10):
        group.submit()
    assert {site: machine.snapshot().all_have for site, machine in group.receivers.items()} == dict.fromkeys(
        group.ring, possession_floor(10, 4)
    )


@pytest.mark.parametrize("size", [2, 3, 10, 50])
def test_one_control_message_per_data_message_without_losses(size: int) -> None:
    """§2: "only one control message per data message, independent of the number of receivers"."""
    group = Group(size)
    for _ in range(120):
        group.submit()
    assert len(group.packets(OriginalData)) == 120
    assert len(group.sent) == 120 + len(group.packets(Ack))
    assert len(group.packets(Ack)) == 120


# ---- §2.1: acknowledgements and the token


def test_a_single_receiver_acknowledges_at_a_time() -> None:
    """§2.1: "This is accomplished by having a single receiver acknowledge messages"."""
    group = Group(4)
    seen: list[int] = []
    group.when_sent = lambda _node, _packet: seen.append(
        sum(machine.snapshot().holds for machine in group.receivers.values())
    )
    for _ in range(12):
        group.submit()
    assert max(seen) == 1


def test_all_receivers_place_the_messages_in_the_order_of_the_acknowledgements() -> None:
    """§2.1: "all of the receivers place the messages in the order indicated by the sequence number"."""
    group = Group(3)
    for number in (2, 1, 3, 3, 1):
        group.submit(number)
    expected = [Label(source_id(s), m) for s, m in ((2, 1), (1, 1), (3, 1), (3, 2), (1, 2))]
    assert group.placed == dict.fromkeys(group.ring, expected)


def test_the_responsibility_to_acknowledge_is_passed_sequentially() -> None:
    """§2.1: "by sequentially passing the responsibility to acknowledge messages to each receiver"."""
    group = Group(3)
    for _ in range(7):
        group.submit()
    assert group.acknowledgers() == [1, 2, 3, 1, 2, 3, 1]


def test_a_receiver_acquires_all_preceding_messages_before_it_acknowledges() -> None:
    """§2.1: "requiring a receiver to acquire all of the preceding messages before acknowledging a new message"."""
    group = Group(5)
    only_the_successor_hears(group)

    def complete(node: NodeId, packet: OriginalPacket) -> None:
        if isinstance(packet, Ack):
            assert group.receivers[node].snapshot().next_token > packet.token_number

    group.when_sent = complete
    for _ in range(15):
        group.submit()
    assert len(group.acknowledgers()) == 15
    assert group.packets(OriginalRepair)


def test_a_message_carries_its_label() -> None:
    """§2.1: "A message from source s contains the label (s, M_s)"."""
    group = Group(2)
    group.submit()
    group.submit()
    assert group.packets(OriginalData) == [data(1), data(2)]


def test_a_source_repeats_its_message_at_regular_intervals_until_acknowledged() -> None:
    """§2.1: "transmits message M_s at regular intervals until it receives an acknowledgement"."""
    group = Group(2, hears=lambda _packet, _to: False)
    group.submit()
    group.wait(2 * R_s)
    assert group.packets(OriginalData) == [data(1)] * 3
    group.hears = lambda _packet, _to: True
    group.wait(10 * R_s)
    assert group.packets(OriginalData) == [data(1)] * 4


def test_a_source_that_is_never_answered_decides_that_the_token_site_is_not_operating() -> None:
    """§2.1: "or decides that the token site is not operating ... it initiates the reformation process"."""
    group = Group(2, hears=lambda _packet, _to: False)
    group.submit()
    group.wait(3 * R_s)
    assert (SOURCE, OriginalRingSuspected(OriginalSuspicion.SOURCE)) in group.effects


def test_an_acknowledgement_assigns_the_global_sequence_number() -> None:
    """§2.1: "1. The message acknowledges (s, M_s) and assigns it global sequence number t"."""
    assert receiver(3, A).step(arrive(ack(1, A)), 0) == (Placed(1, A.label),)


def test_an_acknowledgement_confirms_the_previous_transfer() -> None:
    """§2.1: "2. ... an acknowledgement to the previous token site ... that the token was successfully transferred"."""
    first = receiver(1, A, B)
    assert first.snapshot().pending == 1
    first.step(arrive(ack(2, B)), 0)
    assert first.snapshot().pending is None


def test_an_acknowledgement_transfers_the_token_to_the_next_site() -> None:
    """§2.1: "3. The message transfers the token to the next token site, receiver r+1 mod m"."""
    assert receiver(2, A, ack(1, A)).snapshot().holds
    assert not receiver(3, A, ack(1, A)).snapshot().holds
    assert receiver(1, A, B, C, ack(2, B), ack(3, C)).snapshot().holds


def test_a_token_site_repeats_acknowledgement_t_until_it_receives_t_plus_1() -> None:
    """§2.1: "Token site r periodically sends acknowledgement t until it receives acknowledgement t+1"."""
    group = Group(3, hears=lambda packet, to: isinstance(packet, OriginalData) or to == SOURCE)
    group.submit()
    group.wait(2 * R_t)
    assert group.packets(Ack) == [ack(1, data(1))] * 3
    group.hears = lambda _packet, _to: True
    group.submit(2)
    group.wait(10 * R_t)
    assert group.packets(Ack) == [ack(1, A)] * 4 + [ack(2, B)]


def test_a_token_that_is_never_confirmed_initiates_a_reformation() -> None:
    """§2.1: "If an acknowledgement isn't received in a specified number of attempts ..."."""
    first = receiver(1, A)
    suspected = [
        OriginalRingSuspected(OriginalSuspicion.PASS) in first.step(TimerFired(), attempt * R_t)
        for attempt in (1, 2, 3)
    ]
    assert suspected == [False, False, True]


def test_an_idle_site_sends_a_special_token_acknowledgement() -> None:
    """§2.1: "to prevent unnecessary reformations, receiver r+1 transmits a special token acknowledgement"."""
    group = Group(3)
    group.submit()
    group.wait(100 * R_t)
    assert group.sent[2:] == [(2, OriginalUnicast(1, TokenAck(1)))]
    assert group.now > T_A


def test_a_site_gives_up_its_right_before_it_knows_that_its_successor_has_the_token() -> None:
    """§2.1: "gives up the right ..., even though it is not certain that r+1 mod m has received the token"."""
    first = receiver(1, A)
    assert first.snapshot().pending == 1
    assert first.step(arrive(B), 0) == ()


def test_at_most_one_receiver_acknowledges() -> None:
    """§2.1: "This guarantees that at most one receiver acknowledges source messages"."""
    group = Group(4)
    group.hears = lambda packet, to: isinstance(packet, OriginalData) or (len(group.sent) + to) % 3 > 0
    for _ in range(20):
        group.submit()
        group.wait(3 * R_t)
    positions = {packet.token_number: packet for packet in group.packets(Ack) if isinstance(packet, Ack)}
    assert sorted(positions) == list(range(1, 21))
    assert set(group.packets(Ack)) == set(positions.values())


def test_the_token_is_not_accepted_before_all_acknowledgements_and_messages_are_there() -> None:
    """§2.1: "does not accept the token ... until it has all ... up to and including t"."""
    third = receiver(3, A, ack(2, B))
    assert not third.snapshot().holds
    third.step(arrive(OriginalRepair(ack(1, A))), 0)
    assert not third.snapshot().holds
    third.step(arrive(OriginalRepair(B)), 0)
    assert third.snapshot().holds


# ---- retransmissions


def test_the_token_site_services_requests_for_messages() -> None:
    """§2.1: "acknowledged source messages that other receivers failed to receive"."""
    holder = receiver(2, A, ack(1, A))
    assert holder.step(arrive(OriginalNack(3, MessageItem(1, A.label))), 0) == (OriginalUnicast(3, OriginalRepair(A)),)


def test_the_token_site_services_requests_for_acknowledgements() -> None:
    """§2.1: "acknowledgements for the source messages that either the source or one of the other receivers ..."."""
    holder = receiver(2, A, ack(1, A))
    assert holder.step(arrive(OriginalNack(3, AckItem(1))), 0) == (OriginalUnicast(3, OriginalRepair(ack(1, A))),)
    assert holder.step(arrive(A), 0) == (OriginalUnicast(SOURCE, ack(1, A)),)


def test_the_token_site_services_previous_token_sites() -> None:
    """§2.1: "acknowledgements for token passing messages that a previous token site failed to receive"."""
    assert receiver(2, A, ack(1, A)).step(arrive(ack(1, A)), 0) == (OriginalUnicast(1, TokenAck(1)),)
    assert receiver(2, A, B, ack(1, A)).step(arrive(ack(1, A)), 0) == (OriginalUnicast(1, OriginalRepair(ack(2, B))),)


def test_a_missing_message_is_requested_when_its_acknowledgement_comes() -> None:
    """§2.1: "when it receives an acknowledgement for a source message (s, M_s) that has not been received"."""
    assert receiver(3).step(arrive(ack(1, A)), 0) == (OriginalUnicast(1, OriginalNack(3, MessageItem(1, A.label))),)


def test_a_missing_acknowledgement_is_requested_when_a_later_one_comes() -> None:
    """§2.1: "an acknowledgement with a larger sequence number t than expected"."""
    assert receiver(1, A, B, C).step(arrive(ack(3, C)), 0) == (OriginalUnicast(3, OriginalNack(1, AckItem(2))),)


def test_a_missing_acknowledgement_is_requested_when_the_source_sends_its_next_message() -> None:
    """§2.1: "or a message from source s with a larger M_s than expected"."""
    third = receiver(3, A, B, ack(1, A))
    assert third.step(arrive(data(2, B.label.source)), 0) == (OriginalUnicast(1, OriginalNack(3, AckOfItem(B.label))),)


def test_a_repeated_message_is_an_implicit_request_for_its_acknowledgement() -> None:
    """§2.1: "If a source retransmits a message that has been acknowledged, ... failed to receive"."""
    group = Group(3, hears=lambda packet, to: isinstance(packet, OriginalData) or to != SOURCE)
    group.submit()
    assert not group.sources[SOURCE].idle
    group.wait(R_s)
    assert group.sources[SOURCE].idle


def test_a_repeated_pass_is_an_implicit_request_for_its_confirmation() -> None:
    """§2.1: "If a previous token site retransmits a token passing message, ... failed to receive"."""
    group = Group(3, hears=lambda packet, to: not (isinstance(packet, Ack) and packet.token_number == 2 and to == 1))
    group.submit(1)
    group.submit(2)
    assert group.receivers[1].snapshot().pending == 1
    group.wait(R_t)
    assert group.receivers[1].snapshot().pending is None


def test_the_last_token_holder_serves_until_its_pass_is_confirmed() -> None:
    """§2.1: "does not stop servicing retransmission requests until it receives the acknowledgement"."""
    last = receiver(1, A)
    assert last.step(arrive(A, OriginalNack(2, MessageItem(1, A.label))), 0) == (
        OriginalUnicast(SOURCE, ack(1, A)),
        OriginalUnicast(2, OriginalRepair(A)),
    )
    last.step(arrive(TokenAck(1)), 0)
    assert last.step(arrive(A), 0) == ()


def test_a_successor_recovers_what_it_needs_from_the_last_token_holder() -> None:
    """§2.1: "if receiver r+1 does not have all of the requisite messages ..., it can recover them from r"."""
    group = Group(3, hears=lambda packet, to: to != 2 or isinstance(packet, Ack))
    group.submit()
    assert group.sent[2:4] == [
        (2, OriginalUnicast(1, OriginalNack(2, MessageItem(1, data(1).label)))),
        (1, OriginalUnicast(2, OriginalRepair(data(1)))),
    ]
    assert group.receivers[2].snapshot().holds


def test_a_receiver_has_every_acknowledgement_below_t_r_and_every_message_below_M_s_r() -> None:  # noqa: N802
    """§2.1: "Receiver r has all of the acknowledgements below t_r ... for all M_s < M_{s,r}"."""
    group = Group(4)
    only_the_successor_hears(group)
    for turn in range(17):
        group.submit(1 + turn % 3)
    for site, machine in group.receivers.items():
        state, placed = machine.snapshot(), group.placed[site]
        assert len(placed) == state.next_token - 1
        for source, expected in state.next_numbers:
            assert [label.number for label in placed if label.source == source] == list(range(1, expected))


def test_no_control_message_is_sent_unless_something_is_missing() -> None:
    """§2.1: "No control messages are sent unless a missing acknowledgement or source message is detected"."""
    group = Group(5)
    for _ in range(20):
        group.submit()
    assert group.packets(OriginalNack) == []
    assert group.packets(OriginalRepair) == []


def test_a_missing_message_is_requested_periodically_until_it_comes() -> None:
    """§2.1: "it periodically requests the message until it receives the message"."""
    third = receiver(3, ack(1, A))
    again = (OriginalUnicast(1, OriginalNack(3, MessageItem(1, A.label))),)
    assert third.step(TimerFired(), R_n) == again
    assert third.step(TimerFired(), 2 * R_n) == again
    third.step(arrive(OriginalRepair(A)), 2 * R_n)
    assert third.step(TimerFired(), 3 * R_n) == ()


def test_a_request_that_is_never_answered_initiates_a_reformation() -> None:
    """§2.1: "or decides that the retransmit server is inoperable and initiates a reformation process"."""
    third = receiver(3, ack(1, A))
    suspected = [
        OriginalRingSuspected(OriginalSuspicion.REQUEST) in third.step(TimerFired(), attempt * R_n)
        for attempt in (1, 2, 3)
    ]
    assert suspected == [False, False, True]


# ---- when r receives source message (s, M_s)


def test_a_message_with_a_smaller_number_is_a_duplicate() -> None:
    """§2.1: "if: M_s < M_{s,r}, (s, M_s) is a duplicate"."""
    third = receiver(3, A, ack(1, A))
    before = third.snapshot()
    assert third.step(arrive(A), 0) == ()
    assert third.snapshot() == before


def test_the_expected_message_is_stored_until_it_is_acknowledged() -> None:
    """§2.1: "if: M_s = M_{s,r} ... it is placed in the store waiting for acknowledgement"."""
    assert receiver(3, A).snapshot().waiting == (A.label,)
    assert receiver(3, A, ack(1, A)).snapshot().waiting == ()


def test_the_expected_message_is_a_duplicate_if_it_is_in_the_store() -> None:
    """§2.1: "otherwise: (s, M_s) is a duplicate"."""
    assert receiver(3, A, A).snapshot() == receiver(3, A).snapshot()


def test_a_message_with_a_larger_number_shows_that_an_acknowledgement_is_missing() -> None:
    """§2.1: "if: M_s > M_{s,r}, The acknowledgement for (s, M_s - 1) is missing, and is requested"."""
    assert receiver(3, data(2)).snapshot().missing == (AckOfItem(data(1).label),)


# ---- when r receives acknowledgement t for (s, M_s)


def test_an_acknowledgement_with_a_smaller_number_is_a_duplicate() -> None:
    """§2.1: "if: t < t_r, acknowledgement t is a duplicate"."""
    third = receiver(3, A, ack(1, A))
    before = third.snapshot()
    assert third.step(arrive(ack(1, A)), 0) == ()
    assert third.snapshot() == before


def test_the_expected_acknowledgement_places_its_message_and_increments_both_counters() -> None:
    """§2.1: "the message is placed in position t in the receive list and t_r and M_{s,r} are incremented"."""
    third = receiver(3, A)
    assert third.step(arrive(ack(1, A)), 0) == (Placed(1, A.label),)
    state = third.snapshot()
    assert (state.next_token, state.next_numbers) == (2, ((SOURCE, 2),))


def test_the_expected_acknowledgement_waits_for_its_message() -> None:
    """§2.1: "(s, M_s) is missing and is requested before processing acknowledgement t"."""
    state = receiver(3, ack(1, A)).snapshot()
    assert (state.next_token, state.missing, state.ahead) == (1, (MessageItem(1, A.label),), (1,))


def test_a_later_acknowledgement_waits_for_those_before_it() -> None:
    """§2.1: "if: t > t_r, acknowledgement t-1 is missing and is requested before processing acknowledgement t"."""
    state = receiver(1, A, B, C, ack(3, C)).snapshot()
    assert (state.next_token, state.missing, state.ahead) == (2, (AckItem(2),), (3,))


# ---- what the passing of the token proves


@pytest.mark.parametrize("size", [2, 3, 10])
def test_each_previous_token_site_has_what_its_own_acknowledgement_required(size: int) -> None:
    """§2.1: "receiver r-1 mod m has all of the acknowledged messages up to and including the (t-1)th", and so on."""
    group = Group(size)
    only_the_successor_hears(group)
    checked: list[int] = []

    def transmitted(_: NodeId, packet: OriginalPacket) -> None:
        if isinstance(packet, Ack):
            for back in range(min(size, packet.token_number)):
                number = packet.token_number - back
                site = group.ring[(number - 1) % size]
                # Worst luck: it has heard nothing since.
                assert group.receivers[site].snapshot().next_token - 1 == number
            checked.append(packet.token_number)

    group.when_sent = transmitted
    for _ in range(3 * size):
        group.submit()
    assert checked == list(range(1, 3 * size + 1))


@pytest.mark.parametrize("size", [2, 3, 10])
def test_when_t_is_sent_all_have_everything_up_to_t_minus_m_plus_1(size: int) -> None:
    """§2.1: "all of the other receivers have all ... up to and including the message acknowledged by t-m+1"."""
    group = Group(size)
    only_the_successor_hears(group)
    all_have: dict[int, int] = {}

    def transmitted(node: NodeId, packet: OriginalPacket) -> None:
        if isinstance(packet, Ack):
            number = packet.token_number
            all_have[number] = min(machine.snapshot().next_token for machine in group.receivers.values()) - 1
            # "Even if none of the other receivers receive the t-th acknowledgement ... receiver r knows".
            assert group.receivers[node].snapshot().all_have == max(possession_floor(number, size), 0)

    group.when_sent = transmitted
    for _ in range(3 * size):
        group.submit()
    assert all_have == {number: max(number - size + 1, 0) for number in range(1, 3 * size + 1)}


@pytest.mark.parametrize("size", [2, 3, 10])
def test_when_t_is_sent_all_know_that_all_have_everything_up_to_t_minus_2m_plus_2(size: int) -> None:
    """§2.1: "receiver r-1 ... knows ... (t-m)th, receiver r-2 ... (t-m-1)th, ..., all of the receivers know".

    The series t-m+1, t-m, t-m-1, … of m receivers ends at t-2m+2; the paper's last line prints t-m+2.
    """
    group = Group(size)
    only_the_successor_hears(group)
    all_know: dict[int, int] = {}

    def transmitted(_: NodeId, packet: OriginalPacket) -> None:
        if isinstance(packet, Ack):
            known = [machine.snapshot().all_have for machine in group.receivers.values()]
            all_know[packet.token_number] = min(known)

    group.when_sent = transmitted
    for _ in range(4 * size):
        group.submit()
    # §2.1 misprints t-m+2.
    assert all_know == {number: max(number - 2 * size + 2, 0) for number in range(1, 4 * size + 1)}


def test_in_a_ring_of_ten_all_have_after_9_passes_and_all_know_after_18() -> None:
    """§2.1: message t is everywhere when t+m-1 is sent, and known to be everywhere when t+2m-2 is."""
    group = Group(10)
    only_the_successor_hears(group)
    have: list[int] = []
    know: list[int] = []

    def transmitted(_: NodeId, packet: OriginalPacket) -> None:
        if isinstance(packet, Ack):
            states = [machine.snapshot() for machine in group.receivers.values()]
            passes = packet.token_number - 1
            if all(state.next_token > 1 for state in states):
                have.append(passes)
            if all(state.all_have >= 1 for state in states):
                know.append(passes)

    group.when_sent = transmitted
    for _ in range(25):
        group.submit()
    assert (have[0], know[0]) == (9, 18)


# ---- silence


def test_a_receiver_that_missed_the_last_acknowledgement_does_not_detect_its_loss() -> None:
    """§2.1: "receivers that missed the last source messages or acknowledgements do not detect their loss"."""
    group = Group(4, hears=lambda _packet, to: to != 4)
    group.submit()
    group.wait(1_000 * SECOND)
    assert group.placed[4] == []
    assert group.packets(OriginalNack) == []


def test_passing_the_token_shows_the_loss() -> None:
    """§2.1: "We can provide reception guarantees in bounded time by periodically passing the token"."""
    group = Group(4, hears=lambda _packet, to: to != 4)
    group.submit()
    group.hears = lambda _packet, _to: True
    group.submit()
    assert group.placed[4] == [data(1).label, data(2).label]


def test_what_is_sent_is_one_of_five_packets() -> None:
    """§2.1: messages, acknowledgements, special token acknowledgements, requests and retransmissions."""
    group = Group(3)
    only_the_successor_hears(group)
    for _ in range(6):
        group.submit()
    group.wait(R_t)
    kinds = {type(effect.packet) for _, effect in group.sent}
    assert kinds == {OriginalData, Ack, TokenAck, OriginalNack, OriginalRepair}
    multicast = {type(effect.packet) for _, effect in group.sent if isinstance(effect, OriginalMulticast)}
    assert multicast == {OriginalData, Ack}
