"""Several stripes: lines tell which token was released whole, and customers hand it on once they have all before it."""

from tests.hierarchy.edge_makers import MS, NOW, arrive, beat, customer, of, rel, release, rels

from isocast.hierarchy.edge import Deliver, MessagesReleased, TokensPassed
from isocast.hierarchy.line_sender import LineSender
from isocast.ring.inputs import TimerFired
from isocast.wire.codec import decode, encode
from isocast.wire.packets import ReleasedPacket

INSTANT = NOW - 700 * MS


def told(following: int, instant: int, line: int = 1) -> ReleasedPacket:
    return beat(following, line)._replace(payload=instant.to_bytes(8, "little", signed=True))


def test_a_heartbeat_tells_the_token_soon_and_travels() -> None:
    machine = LineSender(1, 0, 80 * MS)
    (sent,) = machine.step(TimerFired(), NOW)
    assert sent.packets[0].payload == b"", "nothing was released since the start"
    machine.passed(INSTANT, NOW)
    assert machine.next_deadline() == NOW + 10 * MS
    (sent,) = machine.step(TimerFired(), NOW + 10 * MS)
    (packet,) = sent.packets
    assert (
        decode(encode(packet))
        == packet
        == told(1, INSTANT)._replace(
            sender=1, instant=NOW + 10 * MS, epoch=packet.epoch, token_number=0, sequence=1, number=1
        )
    )
    before = machine.next_deadline()
    machine.passed(INSTANT, NOW + 10 * MS)
    assert machine.next_deadline() == before, "no news"


def test_a_busy_line_tells_it_too() -> None:
    machine = LineSender(1, 0, 80 * MS)
    machine.step(TimerFired(), NOW)
    machine.step(MessagesReleased(release(1, [b"a"]), (b"a",)), NOW)
    machine.passed(INSTANT, NOW)
    (sent,) = machine.step(TimerFired(), machine.next_deadline())
    assert sent.packets[0].payload == told(2, INSTANT).payload


def test_it_is_handed_on_behind_the_messages_that_it_speaks_of() -> None:
    machine = customer()
    assert of(machine.step(arrive(told(3, INSTANT)), NOW), TokensPassed) == []
    effects = machine.step(arrive(*rels(1, 2)), NOW)
    assert effects == (Deliver(tuple(rels(1, 2))), TokensPassed(INSTANT, 3))


def test_it_is_handed_on_once_and_an_older_one_never() -> None:
    machine = customer()
    assert of(machine.step(arrive(told(1, INSTANT)), NOW), TokensPassed) == [TokensPassed(INSTANT, 1)]
    assert of(machine.step(arrive(told(1, INSTANT, 2)), NOW), TokensPassed) == []
    assert of(machine.step(arrive(told(1, INSTANT - 1, 2)), NOW), TokensPassed) == []


def test_who_is_behind_hears_of_the_first_and_the_newest() -> None:
    """However many tokens pass meanwhile, what is remembered is bounded, and something comes when it can."""
    machine = customer()
    for more in range(1, 9):
        machine.step(arrive(told(more + 1, INSTANT + more)), NOW)
    assert of(machine.step(arrive(rel(1)), NOW), TokensPassed) == [TokensPassed(INSTANT + 1, 2)]
    assert of(machine.step(arrive(*rels(2, 8)), NOW), TokensPassed) == [TokensPassed(INSTANT + 8, 9)]


def test_a_heartbeat_with_another_payload_says_nothing_of_tokens() -> None:
    machine = customer()
    strange = beat(1)._replace(payload=b"12345")
    assert of(machine.step(arrive(strange), NOW), TokensPassed) == []
