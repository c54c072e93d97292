"""A customer's stripe: each message once, in order; who wants the newest never asks."""

from __future__ import annotations

import random

from isocast.feeds.mold import MoldPacket, end_of_session, heartbeat, packet_of, parse_packet
from isocast.striping.sequencer import Ask, GapRules, StripeSequencer
from isocast.terms.instants import MILLISECOND, NEVER, SECOND

SESSION = b"2410040001"
WAIT = 50 * MILLISECOND
RETRY = 200 * MILLISECOND
NEXT = b"2410050001"


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


def ended(*, complete: bool, retries_max: int = 3) -> StripeSequencer:
    """A session that is over, with a gap."""
    sequencer = StripeSequencer(1, rules(complete=complete, retries_max=retries_max))
    sequencer.receive(packet(1, 2), 0)
    sequencer.receive(packet(5, 1), 0)
    sequencer.receive(parse_packet(end_of_session(SESSION, 6)), 0)
    assert sequencer.ended
    return sequencer


def test_a_new_session_begins_with_one() -> None:
    sequencer = ended(complete=False)
    sequencer.receive(packet(3, 1, NEXT), 1)
    assert taken(sequencer) == [1, 2, 5]
    assert sequencer.counts.lost == 2
    assert sequencer.poll(1 + WAIT) == []
    sequencer.receive(packet(3, 1), 2)
    assert sequencer.session == NEXT, "an old session does not come back"


def test_a_gap_that_is_open_at_midnight_is_asked_for_and_the_new_session_waits_for_it() -> None:
    sequencer = ended(complete=True)
    sequencer.receive(packet(1, 1, NEXT), 1)
    sequencer.receive(packet(3, 1, NEXT), 1)
    assert taken(sequencer) == [1, 2]
    assert not sequencer.is_whole
    assert sequencer.poll(1 + WAIT) == [Ask(SESSION, 3, 2), Ask(NEXT, 2, 1)]
    sequencer.receive(packet(2, 1, NEXT), 2 + WAIT, repair=True)
    assert taken(sequencer) == [], "days come one behind the other"
    sequencer.receive(packet(3, 2), 3 + WAIT, repair=True)
    assert [(one.session, one.number) for one in sequencer.take()] == [
        *[(SESSION, number) for number in (3, 4, 5)],
        *[(NEXT, number) for number in (1, 2, 3)],
    ]
    assert (sequencer.counts.lost, sequencer.counts.repaired, sequencer.counts.messages) == (0, 3, 8)
    assert sequencer.is_whole
    assert sequencer.next_deadline() == NEVER


def test_what_nobody_has_of_the_day_before_is_given_up_by_the_same_rule() -> None:
    sequencer = ended(complete=True, retries_max=2)
    sequencer.receive(packet(1, 1, NEXT), 1)
    asked = []
    while sequencer.next_deadline() < NEVER:
        asked += sequencer.poll(sequencer.next_deadline())
    assert asked == [Ask(SESSION, 3, 2)] * 2
    assert taken(sequencer) == [1, 2, 5, 1]
    assert (sequencer.counts.lost, sequencer.counts.asked) == (2, 2)


def test_the_end_of_the_day_before_may_come_behind_midnight_and_tells_what_is_missing() -> None:
    sequencer = StripeSequencer(1, rules(complete=True))
    sequencer.receive(packet(1, 2), 0)
    sequencer.receive(packet(1, 1, NEXT), 1)
    sequencer.receive(parse_packet(end_of_session(SESSION, 4)), SECOND)
    assert sequencer.poll(SECOND + WAIT) == [Ask(SESSION, 3, 1)]
    sequencer.receive(packet(3, 1), SECOND + WAIT, repair=True)
    assert taken(sequencer) == [1, 2, 3, 1]


def test_an_end_that_never_comes_and_a_third_day_hold_nothing_up() -> None:
    sequencer = StripeSequencer(1, rules(complete=True))
    sequencer.receive(packet(1, 2), 0)
    sequencer.receive(packet(1, 1, NEXT), 1)
    assert sequencer.next_deadline() == 1 + 3 * SECOND
    assert sequencer.poll(1 + 3 * SECOND) == []
    assert taken(sequencer) == [1, 2, 1]
    assert sequencer.next_deadline() == NEVER
    sequencer = ended(complete=True)
    for day in (NEXT, b"2410060001"):
        sequencer.receive(packet(1, 1, day), 1)
    assert sequencer.counts.lost == 2
    assert taken(sequencer) == [1, 2, 5, 1], "only two days are followed"
    sequencer.receive(parse_packet(end_of_session(NEXT, 2)), 2)
    assert taken(sequencer) == [1]


def test_what_waits_is_bounded() -> None:
    sequencer = StripeSequencer(1, rules(complete=True))
    sequencer.receive(packet(1, 1), 0)
    for place in range(200):
        sequencer.receive(packet(3 + 1_000 * place, 1_000), 0)
    assert len(sequencer._waiting) <= 65_536  # noqa: SLF001 - what is bounded is not shown
