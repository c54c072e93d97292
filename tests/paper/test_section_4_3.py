"""§4.3 of the paper, reformation: the primary ring's, against its machines. Scopes and addresses are to come."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.paper.timed_ring import PAPER, START, TimedRing
from tests.paper.worlds import world

from isocast.checks.facts import Crashed, Installed, Released, Suspected, TokenSent
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.forming import form
from isocast.reformation.server import ReformationServer
from isocast.ring.effects import Multicast, Persist, PromiseMade, RingSuspected
from isocast.ring.inputs import PacketsArrived, TimerFired
from isocast.ring.ledger import Checkpoint
from isocast.ring.settings import RingSettings
from isocast.ring.storage import SiteState
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, server_id
from isocast.terms.instants import SECOND
from isocast.terms.timing import Gate
from isocast.wire.packets import NO_DIGEST, NO_NONCE, Invite, Join, NewRing, Suspect, Suspicion

SITES: tuple[NodeId, ...] = (1, 2, 3, 4, 5)
SERVER = server_id(1)
SETTINGS = RingSettings(PAPER)
E1, E2 = Epoch(1, SERVER), Epoch(2, SERVER)
RETRY = PAPER.retry_ns


def vote(site: NodeId, held: int, epoch: Epoch = E1, ballot: Epoch = E2, digest: bytes = NO_DIGEST) -> Join:
    """A member's answer to an invitation, from one that hears everybody."""
    return Join(0, epoch, site, ballot, held, digest, START, 10 * held + 1, 0, SITES, NO_NONCE, SITES, ())


def inviting_server() -> tuple[ReformationServer, Epoch, int]:
    """A server that has sent its first invitation; its ballot, and the instant."""
    server = ReformationServer(SERVER, SETTINGS, 0, {})
    at = server.next_deadline()
    (ballot,) = [
        effect.packet.ballot
        for effect in (*server.step(TimerFired(), at), *server.step(TimerFired(), at))
        if isinstance(effect, Multicast) and isinstance(effect.packet, Invite)
    ]
    return server, ballot, at


def ring_from(held: dict[NodeId, int]) -> NewRing:
    """The ring that a server forms when these members join, each with the last token it holds."""
    server, ballot, at = inviting_server()
    effects = server.step(PacketsArrived([vote(site, h, ballot=ballot) for site, h in held.items()]), at)
    for _ in range(20):
        rings = [
            effect.packet for effect in effects if isinstance(effect, Multicast) and isinstance(effect.packet, NewRing)
        ]
        if rings:
            return rings[0]
        at = server.next_deadline()
        effects = server.step(TimerFired(), at)
    raise AssertionError("no ring")


def invited(ballot: Epoch = E2) -> tuple[PrimaryReceiver, tuple[object, ...]]:
    """A member without a ring, and what it does when it is invited at instant zero."""
    site = PrimaryReceiver(1, SETTINGS, bytes(16), SiteState(Checkpoint(universe=SITES)))
    return site, site.step(PacketsArrived([Invite(0, NO_EPOCH, SERVER, ballot)]), 0)


# ---- suspicion


def test_a_token_that_is_not_passed_is_a_failure_and_the_servers_are_told() -> None:
    """§4.3: "a token site fails to pass a token ... it notifies a reformation server, X_R"."""
    ring = TimedRing(3)
    ring.crash(2)
    ring.run(ring.instant(2) + PAPER.recovery_ns)
    told = {(s.node, s.packet.suspect, s.packet.reason) for s in ring.sent if isinstance(s.packet, Suspect)}
    assert told >= {(site, 2, Suspicion.UNRECOVERED) for site in (1, 3)}


def test_a_message_that_cannot_be_recovered_is_a_failure() -> None:
    """§4.3: "or a receiver cannot recover a missing message or acknowledgement"."""
    ring = TimedRing(3, hears=lambda _sent, to: to != 3)
    ring.run(START + PAPER.recovery_ns)
    assert (3, Suspicion.UNRECOVERED) in {(site, effect.reason) for _, site, effect in ring.suspicions()}


def test_another_server_takes_over_when_one_fails() -> None:
    """§4.3: "There are redundant reformation servers in case one fails"."""
    crashes = [{"kind": "crash", "sites": ["server1", 3], "at": 20.0}]
    seen = world(receivers=5, duration=60, arrival_rate=2, servers=2, faults=crashes)
    crashed = seen.of(Crashed)[0].at
    last = seen.run.world.rings[-1]
    assert last.sender == server_id(2)
    assert sorted(last.ring) == [1, 2, 4, 5]
    assert any(fact.at > crashed for fact in seen.of(TokenSent))


# ---- invitation and votes


def test_the_server_multicasts_several_invitations() -> None:
    """§4.3: "the X_R multicasts several invitations to join a new group of receivers"."""
    server, ballot, at = inviting_server()
    instants = [at]
    while len(instants) < PAPER.retries_max:
        at = server.next_deadline()
        effects = server.step(TimerFired(), at)
        invites = [e.packet for e in effects if isinstance(e, Multicast) and isinstance(e.packet, Invite)]
        assert [invite.ballot for invite in invites] == [ballot]
        instants.append(at)
    assert all(0 < b - a <= RETRY for a, b in pairwise(instants))


def test_an_operable_receiver_answers_and_repeats_its_answer() -> None:
    """§4.3: "The operable receivers use a positive acknowledgment protocol to send a message to X_R"."""
    site, effects = invited()
    # Its promise is on disk before anybody hears of it.
    kinds = [type(e.record if isinstance(e, Persist) else getattr(e, "packet", e)) for e in effects]
    assert kinds.index(PromiseMade) < kinds.index(Join)
    for attempt in (1, 2):
        again = site.step(TimerFired(), attempt * RETRY)
        assert [e.packet.ballot for e in again if isinstance(e, Multicast) and isinstance(e.packet, Join)] == [E2]


def test_a_receiver_that_gets_no_answer_turns_to_another_server() -> None:
    """§4.3: "If the receiver does not receive the acknowledgement it decides that the X_R failed and tries another"."""
    site, _ = invited()
    answers, at = 1, 0
    suspicions: list[tuple[NodeId, Suspicion]] = []
    while not suspicions:
        at = site.next_deadline()
        effects = site.step(TimerFired(), at)
        suspicions = [(e.suspect, e.reason) for e in effects if isinstance(e, RingSuspected)]
        answers += not suspicions
    assert suspicions == [(SERVER, Suspicion.SEALED)]
    assert answers >= PAPER.retries_max
    assert at <= (PAPER.retries_max + 1) * RETRY


def test_the_answer_says_how_far_the_receiver_is() -> None:
    """§4.3: "The message to X_R includes the number of the receiver's last acknowledged message, t_r".

    Corrected: h, the last token that it holds with everything before, and the epoch in which it accepted it.
    """
    ring = TimedRing(3)
    ring.run(ring.instant(4) + SECOND)
    site = ring.site(2)
    effects = site.step(PacketsArrived([Invite(0, E1, SERVER, Epoch(9, SERVER))]), ring.now)
    (join,) = [e.packet for e in effects if isinstance(e, Multicast) and isinstance(e.packet, Join)]
    assert (join.held, join.epoch, join.ballot) == (4, E1, Epoch(9, SERVER))


def test_a_sealed_receiver_takes_no_token_of_the_old_ring() -> None:
    """§4.3, made safe: from its answer on a member neither sends nor accepts anything of a lower ballot."""
    ring = TimedRing(3)
    ring.run(ring.instant(1) + SECOND)
    ring.site(2).step(PacketsArrived([Invite(0, E1, SERVER, Epoch(9, SERVER))]), ring.now)
    ring.run(ring.instant(3) + SECOND)
    assert ring.site(2).receiver.held == 1
    assert [token.sender for token in ring.tokens()] == [1]


# ---- the new ring


@pytest.mark.parametrize("held", [{1: 7, 2: 6, 3: 7, 4: 5, 5: 7}, {1: 4, 2: 9, 3: 4, 4: 4, 5: 4}, {3: 2, 4: 2, 5: 3}])
def test_the_ring_starts_after_the_last_token_that_anybody_holds(held: dict[NodeId, int]) -> None:
    """§4.3: "the token can start at t = t_{r,max}+1" and "appoints a receiver with t_r ≥ t as the token site".

    Corrected: starts at h+1 for the greatest (epoch, h), and the first token site holds h = start-1.
    """
    ring = ring_from(held)
    assert ring.first_token == max(held.values()) + 1
    assert held[ring.ring[0]] == ring.first_token - 1
    assert sorted(ring.ring) == sorted(held)
    assert ring.first_sequence == 10 * max(held.values()) + 1


def test_a_stale_site_with_higher_numbers_does_not_decide() -> None:
    """§4.3, corrected: the greatest epoch first, then h; never the greatest number alone."""
    formed = form({1: vote(1, 9, NO_EPOCH), 2: vote(2, 5, E1), 3: vote(3, 6, E1)}, {}, {})
    assert formed is not None
    assert (formed.best.sender, formed.best.held, formed.ring[0]) == (3, 6, 3)


def test_a_minority_forms_no_ring() -> None:
    """§4.3, made safe: two servers that hear different halves must not both succeed."""
    assert form({1: vote(1, 3), 2: vote(2, 3)}, {}, {}) is None
    assert form({1: vote(1, 3), 2: vote(2, 3), 4: vote(4, 3)}, {}, {}) is not None


def test_the_new_schedule_begins_after_the_old_one() -> None:
    """§4.3, made safe: timestamps increase across rings."""
    seen = world(receivers=5, duration=60, arrival_rate=2, faults=[{"kind": "crash", "sites": [3], "at": 20.0}])
    instants = [fact.instant for fact in seen.of(TokenSent)]
    assert len(seen.run.world.rings) > 1
    assert instants == sorted(set(instants))


def test_only_the_group_with_the_failure_is_without_the_failed_site() -> None:
    """§4.3: "The X_R is responsible for forming new primary and secondary token rings in the groups ..."."""
    seen = world(receivers=5, duration=60, arrival_rate=2, faults=[{"kind": "crash", "sites": [3], "at": 20.0}])
    installed = [fact for fact in seen.of(Installed) if fact.ring.ballot == seen.run.world.rings[-1].ballot]
    assert {fact.site for fact in installed} == {1, 2, 4, 5}


def test_the_conservative_start_loses_no_message_that_anybody_released() -> None:
    """§4.3: "we may want to be more conservative ... to make certain that trades aren't lost when sites fail"."""
    faults = [{"kind": "crash", "sites": [site], "at": 15.0 + 12 * site, "duration": 10} for site in (1, 2, 3, 4)]
    seen = world(receivers=5, duration=80, arrival_rate=5, loss=0.02, gate="majority", faults=faults)
    assert seen.run.timing.gate is Gate.MAJORITY
    at_sequence: dict[int, set[bytes]] = {}
    for fact in seen.of(Released):
        for place, message in enumerate(fact.messages):
            at_sequence.setdefault(fact.first_sequence + place, set()).add(message.digest)
    assert len(seen.run.world.rings) > 2
    assert set(at_sequence) == set(range(1, seen.run.recorder.submitted + 1))
    assert all(len(digests) == 1 for digests in at_sequence.values())


def test_a_suspicion_alone_changes_nothing() -> None:
    """§4.3, made safe: a site that suspects goes on; only an invitation seals it."""
    seen = world(receivers=5, messages=200, arrival_rate=5, jitter=0.15, servers=1)
    assert {fact.reason for fact in seen.of(Suspected)} <= {Suspicion.LOST}
    ring = TimedRing(3, hears=lambda _sent, to: to != 3)
    ring.run(START + PAPER.recovery_ns + SECOND)
    assert ring.suspicions()
    assert ring.site(3).receiver.promised == ring.site(3).receiver.accepted
