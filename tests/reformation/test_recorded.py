"""Packets that somebody recorded and sends again: authentic, and not to be acted on twice (protocol §5)."""

from __future__ import annotations

import pytest
from tests.reformation.ballots import invite, join, suspect
from tests.ring.makers import EPOCH, MS, NEXT_EPOCH, RETRY, SERVER, Chain, T, arrive, founding, receiver, settings

from isocast.reformation.member import Member
from isocast.reformation.server import ReformationServer, ServerState
from isocast.ring.effects import Effect, Multicast, RingSuspected, Unicast
from isocast.ring.inputs import TimerFired
from isocast.terms.ids import NO_EPOCH, Epoch, server_id
from isocast.wire.packets import Invite, NewRing, Packet, Suspicion

TIMING = settings().timing
RIVAL = server_id(2)
CALL_OF_A_DEAD_RIVAL = Invite(0, EPOCH, RIVAL, Epoch(2, RIVAL))


def server_at(now: int) -> ReformationServer:
    machine = ReformationServer(SERVER, settings(), 0, {}, ServerState(EPOCH, founding()))
    machine.step(TimerFired(), now)
    return machine


@pytest.mark.parametrize(
    "words", [suspect(Suspicion.LOST, epoch=NO_EPOCH), join(2, 0, ballot=EPOCH)], ids=["suspect", "join"]
)
def test_whoever_is_behind_gets_the_ring_and_not_for_every_copy_of_his_words(words: Packet) -> None:
    machine = server_at(T(6))
    ring = Unicast(2, founding())
    assert machine.step(arrive(*[words] * 10), T(6)) == (ring,)
    assert machine.step(arrive(words), T(6) + RETRY // 2 - 1) == ()
    assert machine.step(arrive(words), T(6) + RETRY) == (ring,)


def test_a_server_waits_once_for_a_rival_however_often_its_invitation_is_repeated() -> None:
    """Else whoever recorded the last words of a dead server keeps the market from having a ring."""
    machine = server_at(T(6))
    machine.step(arrive(suspect(Suspicion.SEALED, RIVAL, promised=Epoch(2, RIVAL))), T(6))
    machine.step(arrive(CALL_OF_A_DEAD_RIVAL), T(6))
    began_at, now = machine.next_deadline(), T(6)
    while now < began_at:
        machine.step(arrive(CALL_OF_A_DEAD_RIVAL), now)
        now += 10 * MS
    assert machine.next_deadline() == began_at
    effects = machine.step(TimerFired(), began_at)
    assert Multicast(Invite(0, EPOCH, SERVER, Epoch(3, SERVER))) in effects


def test_an_earlier_vote_of_the_same_ballot_does_not_replace_a_later_one() -> None:
    """At a start nobody has heard anybody: copies of first votes would keep the ring from being formed."""
    machine = server_at(T(6))
    machine.step(arrive(suspect(Suspicion.BEHIND)), T(6))
    machine.step(TimerFired(), machine.next_deadline())
    now = T(6) + 30 * MS
    machine.step(arrive(*[join(site, 5, heard=()) for site in (1, 2, 3)]), now)
    machine.step(arrive(join(1, 5), join(2, 5), join(1, 5, heard=()), join(2, 5, heard=())), now)
    effects = machine.step(arrive(join(3, 5)), now)
    assert [len(ring.ring) for ring in rings_in(effects)] == [3]


def rings_in(effects: tuple[Effect, ...]) -> list[NewRing]:
    sent = [effect.packet for effect in effects if isinstance(effect, Multicast)]
    return [packet for packet in sent if isinstance(packet, NewRing)]


def test_repeated_invitations_do_not_hide_that_their_server_is_dead() -> None:
    member = Member(receiver(2, Chain().grow(3)))
    now, joins, suspicions = T(3) + MS, 0, 0
    member.on_invite(invite(), now)
    for _ in range(100):
        now += RETRY // 10
        effects = member.on_invite(invite(), now) + member.on_timer(now)
        joins += len([effect for effect in effects if isinstance(effect, Multicast)])
        suspicions += RingSuspected(3, NEXT_EPOCH.server, Suspicion.SEALED) in effects
    assert suspicions == 4
    assert joins <= 10 + TIMING.retries_max + 3


def test_a_probe_is_not_answered_for_every_copy() -> None:
    member = Member(receiver(2, Chain().grow(3)))
    probe = invite(EPOCH)
    spacing = TIMING.grace_ns // 2
    answers = [member.on_invite(probe, T(3) + step * MS) for step in range(spacing // MS)]
    assert [len(answer) for answer in answers] == [1] + [0] * (len(answers) - 1)
    assert len(member.on_invite(probe, T(3) + spacing)) == 1
    assert all(isinstance(effect, Unicast) for answer in answers for effect in answer)
