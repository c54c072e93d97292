"""The sending end of a line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.hierarchy.edge_makers import EPOCH, FIRE, KEY, MS, NOW, beat, quote, release

from isocast.hierarchy.edge import MessagesReleased, SendLine
from isocast.hierarchy.line_sender import LineSender
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NO_EPOCH
from isocast.wire.codec import decode, encode
from isocast.wire.packets import ReleasedPacket


def sender(next_sequence: int = 1) -> LineSender:
    return LineSender(3, 0, 80 * MS, next_sequence)


def beats(machine: LineSender, until: int) -> list[int]:
    """When heartbeats go out, in milliseconds after NOW, if nothing else happens."""
    at = []
    while machine.next_deadline() <= until:
        now = machine.next_deadline()
        assert machine.step(FIRE, now)
        at.append((now - NOW) // MS)
    return at


def test_a_release_becomes_one_burst_with_the_instant_of_its_token() -> None:
    """Protocol §2: REL{e, t, s, T_t, edge stripe, number, count, payload, proof}, with the token's shuffle key."""
    payloads = (quote(5), quote(6))
    [burst] = sender(5).step(MessagesReleased(release(5, [b"sealed", b"sealed"]), payloads), NOW + MS)
    assert burst == SendLine(
        (
            ReleasedPacket(0, EPOCH, 3, 7, 5, NOW, 0, 5, 1, payloads[0], b"", shuffle_key=KEY),
            ReleasedPacket(0, EPOCH, 3, 7, 6, NOW, 0, 6, 1, payloads[1], b"", shuffle_key=KEY),
        )
    )


def test_what_was_released_without_a_majority_says_so() -> None:
    marked = replace(release(5, [b"a"]), uncertified=True)
    [burst] = sender(5).step(MessagesReleased(marked, (b"a",)), NOW)
    assert [packet.uncertified for packet in burst.packets] == [True]


def test_a_heartbeat_says_what_comes_next_and_when_it_was_sent() -> None:
    machine = sender(5)
    machine.step(MessagesReleased(release(5, [b"a"]), (b"a",)), NOW)
    [burst] = machine.step(FIRE, NOW + 10 * MS)
    assert burst == SendLine((beat(6, 3, NOW + 10 * MS)._replace(token_number=7),))
    assert decode(encode(burst.packets[0])) == burst.packets[0]


def test_a_line_speaks_as_soon_as_it_starts() -> None:
    machine = sender(5)
    assert machine.next_deadline() <= NOW
    [burst] = machine.step(FIRE, NOW)
    assert (burst.packets[0].sequence, burst.packets[0].epoch) == (5, NO_EPOCH)


def test_heartbeats_follow_a_burst_quickly_and_then_ever_less_often() -> None:
    machine = sender()
    machine.step(FIRE, NOW)
    machine.step(MessagesReleased(release(1, [b"a"]), (b"a",)), NOW)
    assert beats(machine, NOW + 400 * MS) == [10, 20, 40, 80, 160, 240, 320, 400]


def test_a_busy_line_has_heartbeats_too() -> None:
    machine = sender()
    machine.step(FIRE, NOW)
    sent = []
    for place in range(1, 200):
        now = NOW + place * MS
        machine.step(MessagesReleased(release(place, [b"a"]), (b"a",)), now)
        if machine.next_deadline() <= now:
            sent.append(place)
            machine.step(FIRE, now)
    assert sent == [80, 160]
    assert machine.snapshot().heartbeats == 3


def test_a_timer_that_fires_early_does_nothing() -> None:
    machine = sender()
    machine.step(FIRE, NOW)
    assert machine.step(FIRE, NOW + MS) == ()


def test_an_empty_release_sends_nothing() -> None:
    machine = sender(5)
    machine.step(FIRE, NOW)
    assert machine.step(MessagesReleased(release(5, []), ()), NOW) == ()
    assert machine.next_deadline() == NOW + 80 * MS


def test_every_message_needs_its_opened_payload() -> None:
    with pytest.raises(LocalProtocolError, match="1 opened payloads for 2"):
        sender().step(MessagesReleased(release(1, [b"a", b"b"]), (b"a",)), NOW)


@pytest.mark.parametrize("heartbeat_ns, next_sequence", [(0, 1), (1, 0)])
def test_a_line_needs_a_rhythm_and_a_place(heartbeat_ns: int, next_sequence: int) -> None:
    with pytest.raises(LocalProtocolError):
        LineSender(3, 0, heartbeat_ns, next_sequence)


def test_a_clock_that_is_set_back_does_not_silence_a_line() -> None:
    machine = sender()
    machine.step(FIRE, NOW)
    machine.step(FIRE, NOW // 2)
    assert machine.next_deadline() <= NOW // 2 + 80 * MS
