"""Sending on time and within the rate, by the clock that really runs: virtual here."""

from __future__ import annotations

import random

from isocast.feeds.mold import SessionEnd, packet_of, parse_packet
from isocast.striping.engine import StripePacket
from isocast.striping.pacing import END_TIMES, LATE_NS, PacedSender
from isocast.striping.rates import RateMeter
from isocast.terms.instants import MILLISECOND, SECOND

PERIOD = 200 * MILLISECOND
BUDGET = 1_400
SESSION = b"2410040001"
T0 = 10**18


class Stage:
    """A clock, a sender, and what it sent when."""

    def __init__(self) -> None:
        self.now = T0
        self.sent: list[tuple[int, bytes]] = []
        self.cost_ns = 0
        self.refuses = False
        self.sender = PacedSender(PERIOD, self.now)
        self.sender.follow([(1, BUDGET, SESSION, 1)], self.now)

    def _send(self, stripe: int, raw: bytes) -> bool:
        assert stripe == 1
        self.now += self.cost_ns
        if self.refuses:
            return False
        self.sent.append((self.now - self.cost_ns, raw))
        return True

    def _poll(self) -> None:
        effects = self.sender.poll(self.now)
        while effects:
            (effect,) = effects
            taken = self._send(effect.stripe, effect.raw)
            effects = self.sender.sent(effect.stripe, self.now, taken=taken)

    def until(self, end: int, late: random.Random | None = None) -> None:
        """Poll at every deadline up to an instant; with `late`, some time behind it."""
        while self.sender.next_deadline() <= end:
            self.now = max(self.now, self.sender.next_deadline())
            if late is not None:
                self.now += late.randrange(PERIOD)
            self._poll()
        self.now = max(self.now, end)

    def peak(self) -> int:
        meter = RateMeter(PERIOD)
        for at, raw in self.sent:
            meter.note(at, 28 + len(raw))
        return meter.peak

    def numbers(self) -> list[int]:
        parsed = [parse_packet(raw) for _, raw in self.sent]
        return [packet.sequence for packet in parsed if packet.messages]


def packet(number: int, due: int, size: int = 600, session: bytes = SESSION) -> StripePacket:
    message = (size - 30).to_bytes(2) + bytes(size - 30)
    return StripePacket(1, session, number, 1, due, BUDGET, packet_of(session, number, 1, message))


def test_a_packet_leaves_at_its_instant_and_not_before() -> None:
    stage = Stage()
    dues = [T0 + SECOND + place * PERIOD for place in range(5)]
    for number, due in enumerate(dues, 1):
        stage.sender.take(packet(number, due))
    stage.until(T0 + 3 * SECOND)
    assert [at for at, raw in stage.sent if parse_packet(raw).messages] == dues
    assert stage.sender.counts.latest_ns == 0


def test_a_process_that_comes_late_still_keeps_the_rate() -> None:
    for seed in range(5):
        stage = Stage()
        stage.cost_ns = MILLISECOND
        for number in range(1, 101):
            stage.sender.take(packet(number, T0 + SECOND + (number - 1) // 2 * PERIOD))
        stage.until(T0 + 40 * SECOND, random.Random(seed))
        assert stage.numbers() == list(range(1, 101))
        assert stage.peak() <= BUDGET
        assert stage.sender.counts.latest_ns > 0


def test_the_rate_would_not_hold_without_looking_at_the_clock() -> None:
    """What the test before is worth: two due instants apart, sent together."""
    meter = RateMeter(PERIOD)
    for number in range(1, 101):
        due = T0 + (number - 1) // 2 * PERIOD
        meter.note(due + random.Random(number).randrange(PERIOD), 628)
    assert meter.peak > BUDGET


def test_who_has_just_started_waits_for_a_token_period() -> None:
    stage = Stage()
    stage.sender.take(packet(1, T0 - MILLISECOND))
    stage.until(T0 + SECOND)
    assert [at for at, _ in stage.sent][:1] == [T0 + PERIOD]


def test_what_is_far_too_late_is_left_to_requests() -> None:
    stage = Stage()
    stage.sender.take(packet(1, T0 - LATE_NS - PERIOD))
    stage.sender.take(packet(2, T0 + PERIOD))
    stage.until(T0 + SECOND)
    assert stage.numbers() == [2]
    assert stage.sender.counts.not_sent == 1


def test_what_the_network_does_not_take_is_not_counted_as_sent() -> None:
    """The next heartbeat shows its number, and whoever lacks it asks."""
    stage = Stage()
    stage.refuses = True
    stage.sender.take(packet(1, T0 + PERIOD))
    stage.until(T0 + 2 * PERIOD)
    counts = stage.sender.counts
    assert (counts.packets, counts.messages, counts.not_sent, counts.not_sent_messages) == (0, 0, 1, 1)
    assert stage.sender.lines[1] == (SESSION, 2)


def test_silence_is_broken_by_heartbeats_with_the_next_number() -> None:
    stage = Stage()
    stage.sender.take(packet(1, T0 + 1_500 * MILLISECOND))
    stage.until(T0 + 4 * SECOND)
    said = [(at - T0, parse_packet(raw).sequence, parse_packet(raw).count) for at, raw in stage.sent]
    assert said == [
        (1_000 * MILLISECOND, 1, 0),
        (1_500 * MILLISECOND, 1, 1),
        (2_500 * MILLISECOND, 2, 0),
        (3_500 * MILLISECOND, 2, 0),
    ]


def test_the_end_of_a_session_is_said_behind_its_last_packet_and_often() -> None:
    stage = Stage()
    following = b"2410050001"
    stage.sender.take(packet(1, T0 + SECOND))
    stage.sender.end(SessionEnd(1, SESSION.decode(), 2), following, stage.now)
    for number in range(1, 400):
        stage.sender.take(packet(number, T0 + SECOND + number * PERIOD, session=following))
    stage.until(T0 + 60 * SECOND)
    parsed = [parse_packet(raw) for _, raw in stage.sent]
    ends = [place for place, one in enumerate(parsed) if one.is_end]
    last = max(place for place, one in enumerate(parsed) if one.session == SESSION and one.messages)
    assert len(ends) == END_TIMES
    assert min(ends) > last
    assert {(parsed[place].session, parsed[place].sequence) for place in ends} == {(SESSION, 2)}
    assert stage.peak() <= BUDGET


def test_a_silent_stripe_goes_over_to_the_new_session() -> None:
    stage = Stage()
    stage.sender.end(SessionEnd(1, SESSION.decode(), 1), b"2410050001", stage.now)
    stage.until(T0 + 40 * SECOND)
    assert stage.sender.lines == {1: (b"2410050001", 1)}
    assert parse_packet(stage.sent[-1][1]).session == b"2410050001"


def test_a_stripe_that_never_spoke_has_the_session_of_the_day() -> None:
    stage = Stage()
    stage.until(T0 + 2 * SECOND)
    stage.sender.follow([(1, BUDGET, b"2410050001", 1)], stage.now)
    stage.until(T0 + 4 * SECOND)
    assert {parse_packet(raw).session for _, raw in stage.sent} == {SESSION, b"2410050001"}
    stage.sender.take(packet(1, T0 + 5 * SECOND, session=b"2410050001"))
    stage.until(T0 + 6 * SECOND)
    stage.sender.follow([(1, BUDGET, SESSION, 1)], stage.now)
    assert stage.sender.lines == {1: (b"2410050001", 2)}


def test_a_stripe_that_is_planned_no_more_falls_silent_when_all_is_out() -> None:
    stage = Stage()
    stage.sender.take(packet(1, T0 + SECOND))
    stage.sender.follow([], stage.now)
    stage.until(T0 + 10 * SECOND)
    assert stage.numbers() == [1]
    assert len(stage.sent) == 1


def test_an_edge_that_is_too_far_behind_does_not_beat() -> None:
    stage = Stage()
    stage.sender = PacedSender(PERIOD, stage.now, made_to=0)
    stage.sender.follow([(1, BUDGET, SESSION, 1)], stage.now)
    stage.until(T0 + 5 * SECOND)
    assert stage.sent == [], "nothing is known to have passed"
    stage.sender.made(T0 + 5 * SECOND)
    stage.until(T0 + 60 * SECOND)
    assert stage.sent[-1][0] <= T0 + 5 * SECOND + LATE_NS < stage.sent[-1][0] + 2 * SECOND
    stage.sender.made(stage.now)
    stage.until(stage.now + SECOND)
    assert stage.sent[-1][0] >= T0 + 60 * SECOND
