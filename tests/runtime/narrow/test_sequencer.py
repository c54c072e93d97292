"""A customer's stripe: each message once, in order; who wants the newest never asks."""

from __future__ import annotations

import random

import pytest

from isocast.feeds.mold import MoldPacket, end_of_session, heartbeat, packet_of, parse_packet
from isocast.runtime.narrow.sequencer import Ask, GapRules, StripeSequencer
from isocast.terms.instants import MILLISECOND, NEVER

SESSION = b"2410040001"
WAIT = 50 * MILLISECOND
RETRY = 200 * MILLISECOND


def rules(*, complete: bool, retries_max: int = 3) -> GapRules:
    return GapRules(complete, WAIT, RETRY, retries_max)


def packet(first: int, count: int, session: bytes = SESSION) -> MoldPacket:
    body = b"".join((4).to_bytes(2) + number.to_bytes(4) for number in range(first, first + count))
    return parse_packet(packet_of(session, first, count, body))


def taken(sequencer: StripeSequencer) -> list[int]:
    return [int.from_bytes(message.framed[2:]) for message in sequencer.take()]


def test_two_lines_in_any_order_give_every_message_once() -> None:
    for seed in range(20):
        shuffled = random.Random(seed)
        packets = [packet(1 + 5 * place, 5) for place in range(30)] * 2
        packets = sorted(packets, key=lambda one: one.sequence + shuffled.randrange(40))
        sequencer = StripeSequencer(1, rules(complete=True))
        sequencer.receive(parse_packet(heartbeat(SESSION, 1)), 0)
        for one in packets:
            sequencer.receive(one, 0)
        assert taken(sequencer) == list(range(1, 151))
        assert sequencer.counts.repeated == 150
        assert sequencer.next_deadline() == NEVER


def test_who_wants_the_newest_never_asks_and_counts_what_is_lost() -> None:
    sequencer = StripeSequencer(1, rules(complete=False))
    sequencer.receive(packet(1, 5), 0)
    sequencer.receive(packet(9, 2), 10)
    assert taken(sequencer) == [1, 2, 3, 4, 5]
    assert sequencer.next_deadline() == 10 + WAIT
    assert sequencer.poll(9 + WAIT) == []
    assert taken(sequencer) == []
    assert sequencer.poll(10 + WAIT) == []
    assert taken(sequencer) == [9, 10]
    assert (sequencer.counts.lost, sequencer.counts.asked) == (3, 0)
    sequencer.receive(packet(6, 3), 20 + WAIT)
    assert taken(sequencer) == [], "a stale price is not shown behind a newer one"


def test_who_wants_everything_asks_for_each_hole_until_it_is_there() -> None:
    sequencer = StripeSequencer(1, rules(complete=True))
    for first in (1, 4, 8):
        sequencer.receive(packet(first, 2), 0)
    assert sequencer.poll(WAIT) == [Ask(SESSION, 3, 1), Ask(SESSION, 6, 2)]
    assert sequencer.poll(WAIT + 1) == []
    sequencer.receive(packet(6, 2), WAIT + 2, repair=True)
    assert sequencer.poll(WAIT + RETRY) == [Ask(SESSION, 3, 1)]
    sequencer.receive(packet(3, 1), WAIT + RETRY, repair=True)
    assert taken(sequencer) == list(range(1, 10))
    assert (sequencer.counts.repaired, sequencer.counts.lost) == (3, 0)
    assert sequencer.next_deadline() == NEVER


def test_what_nobody_has_is_given_up_in_the_end() -> None:
    sequencer = StripeSequencer(1, rules(complete=True, retries_max=2))
    sequencer.receive(packet(1, 1), 0)
    sequencer.receive(packet(4, 1), 0)
    now, asked = 0, 0
    while sequencer.next_deadline() < NEVER:
        now = sequencer.next_deadline()
        asked += len(sequencer.poll(now))
    assert asked == 2
    assert taken(sequencer) == [1, 4]
    assert sequencer.counts.lost == 2


def test_a_heartbeat_shows_that_the_last_packets_were_lost() -> None:
    sequencer = StripeSequencer(1, rules(complete=True))
    sequencer.receive(packet(1, 2), 0)
    sequencer.receive(parse_packet(heartbeat(SESSION, 6)), 5)
    assert sequencer.poll(5 + WAIT) == [Ask(SESSION, 3, 3)]


def test_a_late_joiner_begins_with_what_it_hears() -> None:
    sequencer = StripeSequencer(1, rules(complete=True))
    sequencer.receive(parse_packet(heartbeat(SESSION, 100)), 0)
    sequencer.receive(packet(100, 2), 0)
    assert taken(sequencer) == [100, 101]
    assert sequencer.next_deadline() == NEVER


def test_who_comes_late_and_wants_all_of_it_asks_from_the_first() -> None:
    sequencer = StripeSequencer(1, GapRules(complete=True, wait_ns=WAIT, retry_ns=RETRY, from_first=True))
    sequencer.receive(packet(2_500, 2), 0)
    now = 0
    while sequencer.next_deadline() < NEVER:
        now = sequencer.next_deadline()
        for ask in sequencer.poll(now):
            sequencer.receive(packet(ask.first, min(ask.count, 100)), now + 1, repair=True)
    assert taken(sequencer) == list(range(1, 2_502))
    assert sequencer.counts.lost == 0


@pytest.mark.parametrize("complete", [True, False])
def test_a_new_session_begins_with_one(complete: bool) -> None:  # noqa: FBT001
    sequencer = StripeSequencer(1, rules(complete=complete))
    sequencer.receive(packet(1, 2), 0)
    sequencer.receive(packet(5, 1), 0)
    sequencer.receive(parse_packet(end_of_session(SESSION, 6)), 0)
    assert sequencer.ended
    sequencer.receive(packet(3, 1, b"2410050001"), 1)
    assert taken(sequencer) == [1, 2, 5]
    assert sequencer.counts.lost == 2
    assert sequencer.poll(1 + WAIT) == ([Ask(b"2410050001", 1, 2)] if complete else [])
    sequencer.receive(packet(3, 1), 2)
    assert sequencer.session == b"2410050001", "an old session does not come back"


def test_what_waits_is_bounded() -> None:
    sequencer = StripeSequencer(1, rules(complete=True))
    sequencer.receive(packet(1, 1), 0)
    for place in range(200):
        sequencer.receive(packet(3 + 1_000 * place, 1_000), 0)
    assert len(sequencer._waiting) <= 65_536  # noqa: SLF001 - what is bounded is not shown
