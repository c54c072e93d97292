"""Time cuts of narrow stripes: the same whoever was heard, however it came, and never a guess."""

from __future__ import annotations

import pytest

from isocast.feeds.mold import MoldPacket, end_of_session, heartbeat, packet_of, parse_packet
from isocast.feeds.release_stamps import stamp_milliseconds
from isocast.runtime.edge.narrow.ears import BEAT_NS, StripeInstants
from isocast.striping.merging import StripeCut
from isocast.striping.sequencer import GapRules, StripeSequencer
from isocast.terms.errors import LocalProtocolError
from isocast.terms.instants import MILLISECOND, SECOND

DAY = b"241004"
NOON = 1_728_043_200 * SECOND
MESSAGE = (12).to_bytes(2) + b"S" + bytes(10) + b"O"


def packet(stripe: int, first: int, count: int, release: int, day: bytes = DAY) -> MoldPacket:
    body = stamp_milliseconds(MESSAGE * count, release)
    return parse_packet(packet_of(day + b"%04d" % stripe, first, count, body))


def beat(stripe: int, following: int, day: bytes = DAY) -> MoldPacket:
    return parse_packet(heartbeat(day + b"%04d" % stripe, following))


class Customer:
    """Two stripes in order, with their instants, as a listener has them."""

    def __init__(self, *, complete: bool = True) -> None:
        rules = GapRules(complete, 50 * MILLISECOND, 200 * MILLISECOND)
        self.sequencers = {stripe: StripeSequencer(stripe, rules) for stripe in (1, 2)}
        self.instants = StripeInstants()
        for stripe in (1, 2):
            self.hear(stripe, beat(stripe, 1), NOON - 5 * SECOND)

    def hear(self, stripe: int, one: MoldPacket, at: int, *, repair: bool = False) -> None:
        if not repair:
            self.instants.heard(stripe, one, at)
        sequencer = self.sequencers[stripe]
        sequencer.receive(one, at, repair=repair)
        self.instants.take(stripe, sequencer.take())
        if not one.messages and not one.is_end and sequencer.is_whole and not repair:
            self.instants.beat(stripe, one.session, sequencer.next_number, at)

    def pass_over(self, stripe: int, now: int) -> None:
        self.sequencers[stripe].poll(now)
        self.instants.take(stripe, self.sequencers[stripe].take())

    def cut(self, instant: int, day: bytes = DAY) -> StripeCut | None:
        return self.instants.at(instant, day, (1, 2))


def test_two_customers_agree_whoever_is_late_and_whatever_was_repaired() -> None:
    packets = [
        (stripe, packet(stripe, 1 + 3 * place, 3, NOON + (7 * place + stripe) * 100_000_000 + 654_321))
        for place in range(50)
        for stripe in (1, 2)
    ]
    near, far = Customer(), Customer()
    for place, (stripe, one) in enumerate(packets):
        at = NOON + place * 350 * MILLISECOND
        near.hear(stripe, one, at + MILLISECOND)
        if place % 7 != 3:
            far.hear(stripe, one, at + 900 * MILLISECOND)
    for place, (stripe, one) in enumerate(packets):
        if place % 7 == 3:  # Long afterwards, and message by message.
            for number, start in zip(range(one.sequence, one.sequence + 3), one.places, strict=True):
                size = len(MESSAGE)
                alone = parse_packet(packet_of(one.session, number, 1, one.body[start : start + size]))
                far.hear(stripe, alone, NOON + 3_600 * SECOND, repair=True)
    instants = [NOON + step * 37 * MILLISECOND for step in range(900)]
    assert [near.cut(instant) for instant in instants] == [far.cut(instant) for instant in instants]
    for instant in instants:
        got = near.cut(instant)
        assert got is not None
        for stripe in (1, 2):
            own = [one for which, one in packets if which == stripe]
            due = [NOON + (7 * place + stripe) * 100_000_000 for place in range(50)]
            last = max([0, *[p.sequence + 2 for p, at in zip(own, due, strict=True) if at <= instant]])
            assert got.of(stripe) == last
    assert near.instants.disordered == far.instants.disordered == 0


def test_there_is_no_answer_before_every_stripe_has_passed_and_beats_of_a_silent_one_do() -> None:
    one = Customer()
    one.hear(1, packet(1, 1, 2, NOON), NOON)
    one.hear(1, packet(1, 3, 1, NOON + SECOND), NOON + SECOND)
    assert one.cut(NOON) is None, "stripe 2 may have something"
    one.hear(2, beat(2, 1), NOON + BEAT_NS - 1)
    assert one.cut(NOON) is None
    one.hear(2, parse_packet(end_of_session(DAY + b"0002", 1)), NOON + BEAT_NS + SECOND)
    assert one.cut(NOON) is None, "who is behind says this too"
    one.hear(2, beat(2, 1), NOON + BEAT_NS)
    assert one.cut(NOON) == StripeCut(NOON, ((1, 2), (2, 0)))
    assert one.cut(NOON + SECOND) is None, "more may come in this millisecond"


def test_a_beat_does_not_pass_what_is_missing() -> None:
    one = Customer()
    for stripe in (1, 2):
        one.hear(stripe, packet(stripe, 1, 1, NOON), NOON)
    one.hear(1, beat(1, 3), NOON + 20 * SECOND)
    one.hear(2, beat(2, 2), NOON + 20 * SECOND)
    assert one.cut(NOON + 5 * SECOND) is None
    one.hear(1, packet(1, 2, 1, NOON + 2 * SECOND), NOON + 21 * SECOND, repair=True)
    one.hear(1, beat(1, 3), NOON + 22 * SECOND)
    assert one.cut(NOON + SECOND) == StripeCut(NOON + SECOND, ((1, 1), (2, 1)))
    assert one.cut(NOON + 5 * SECOND) == StripeCut(NOON + 5 * SECOND, ((1, 2), (2, 1)))


def test_what_was_lost_or_was_before_is_said_and_not_guessed() -> None:
    one = Customer(complete=False)
    one.hear(1, packet(1, 1, 1, NOON), NOON)
    one.hear(1, packet(1, 3, 1, NOON + 4 * SECOND), NOON + 4 * SECOND)
    one.pass_over(1, NOON + 5 * SECOND)
    one.hear(1, beat(1, 6), NOON + 8 * SECOND)
    one.pass_over(1, NOON + 9 * SECOND)
    for stripe, following in ((1, 6), (2, 1)):
        one.hear(stripe, beat(stripe, following), NOON + 60 * SECOND)
    for lost in (NOON + 2 * SECOND, NOON + 6 * SECOND):
        with pytest.raises(LocalProtocolError, match="were lost"):
            one.cut(lost)
    with pytest.raises(LocalProtocolError, match="nothing is known from before"):
        one.cut(NOON - 60 * SECOND)
    assert one.cut(NOON - SECOND) == StripeCut(NOON - SECOND, ((1, 0), (2, 0)))


def test_a_day_has_numbers_of_its_own() -> None:
    one, later = Customer(), NOON + 43_200 * SECOND
    one.hear(1, packet(1, 1, 5, NOON), NOON)
    one.hear(1, packet(1, 1, 2, later, b"241005"), later)
    one.hear(1, beat(1, 3, b"241005"), later + 60 * SECOND)
    one.hear(2, beat(2, 1), later + 60 * SECOND)
    assert one.cut(later - SECOND) == StripeCut(later - SECOND, ((1, 5), (2, 0)))
    assert one.cut(later + SECOND, b"241005") == StripeCut(later + SECOND, ((1, 2), (2, 0)))


def test_what_is_remembered_is_bounded() -> None:
    instants = StripeInstants(marks_max=10)
    sequencer = StripeSequencer(1, GapRules(complete=True, wait_ns=1, retry_ns=1))
    for number in range(1, 41):
        at = NOON + number * SECOND
        instants.heard(1, packet(1, number, 1, at), at)
        sequencer.receive(packet(1, number, 1, at), at)
        instants.take(1, sequencer.take())
    with pytest.raises(LocalProtocolError, match="nothing is known from before"):
        instants.at(NOON + 20 * SECOND, DAY, [1])
    assert instants.at(NOON + 39 * SECOND, DAY, [1]) == StripeCut(NOON + 39 * SECOND, ((1, 39),))
