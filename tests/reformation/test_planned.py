"""Planned changes travel the same path as failures: leaving, forced and uncertified rings (protocol §5)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.reformation.ballots import cast, invite, join, suspect, votes
from tests.ring.makers import (
    EPOCH,
    MS,
    NEXT_EPOCH,
    PERIOD,
    SERVER,
    Chain,
    T,
    arrive,
    blank,
    following,
    founding,
    receiver,
    secret,
    settings,
)

from isocast.reformation.forming import form, form_forced, form_uncertified
from isocast.reformation.member import Member
from isocast.reformation.server import FORCE_REFORMATIONS, ReformationServer, ServerState
from isocast.ring.effects import Effect, Multicast, RingSuspected, UniverseForced
from isocast.ring.inputs import ForceRequested, TimerFired
from isocast.ring.receiver import Receiver
from isocast.ring.settings import RingSettings, StartPolicy
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NO_EPOCH, Epoch
from isocast.wire.packets import Invite, Join, NewRing, Packet, Suspicion

TIMING = settings().timing
AVAILABLE = replace(settings(), policy=StartPolicy.AVAILABILITY)
FOUR = (1, 2, 3, 4)


def leaving(vote: Join) -> Join:
    return vote._replace(leaving=True)


class Server:
    """A server that knows the first ring, woken at its deadlines."""

    def __init__(self, rules: RingSettings | None = None, ring: NewRing | None = None) -> None:
        state = ServerState(EPOCH, ring or founding())
        self.machine = ReformationServer(SERVER, rules or settings(), 0, {}, state)
        self.now = T(6)

    def hear(self, *burst: Packet) -> list[Effect]:
        return list(self.machine.step(arrive(*cast(burst, self.now)), self.now))

    def wake(self) -> list[Effect]:
        self.now = max(self.now, self.machine.next_deadline())
        return list(self.machine.step(TimerFired(), self.now))

    def rings(self, effects: list[Effect]) -> list[NewRing]:
        sent = [effect.packet for effect in effects if isinstance(effect, Multicast)]
        return [packet for packet in sent if isinstance(packet, NewRing)]

    @property
    def stage(self) -> str:
        return str(self.machine.snapshot().stage)


# Who is on the ring


def test_a_ring_does_without_those_that_leave_if_a_majority_allows_it() -> None:
    found = form(votes(leaving(join(1, 4)), join(2, 4), join(3, 4)), {}, {})
    assert found is not None
    assert (sorted(found.ring), found.whole, found.unanimous) == ([2, 3], True, True)


def test_else_it_takes_them_all_the_same() -> None:
    """A leaving site votes, and its vote is as good as any other's."""
    found = form(votes(leaving(join(1, 4)), join(2, 4)), {}, {})
    assert found is not None
    assert sorted(found.ring) == [1, 2]


def test_of_several_that_leave_as_many_go_as_the_ring_can_do_without() -> None:
    four = (1, 2, 3, 4)
    joins = [join(site, 4, universe=four, heard=four) for site in four]
    found = form(votes(*joins[:2], *map(leaving, joins[2:])), {}, {})
    assert found is not None
    assert sorted(found.ring) == [1, 2, 3]


def test_it_takes_them_too_if_they_alone_hold_the_cut_and_nobody_else_hears() -> None:
    found = form(votes(leaving(join(1, 6)), join(2, 4), join(3, 4)), {}, {})
    assert found is not None
    assert found.ring[0] == 1


def test_whoever_joins_with_no_u_founds_nothing_and_counts_for_nothing() -> None:
    strangers = [join(site, 0, universe=())._replace(heard=(1, 4, 5)) for site in (4, 5)]
    assert form(votes(*strangers), {}, {}) is None
    assert form(votes(join(1, 4), *strangers), {}, {}) is None


def test_whoever_was_added_counts_though_it_does_not_know_it_yet() -> None:
    """U as of the cut: the token that adds site 4 is held by site 1 alone."""
    newer = join(1, 5, universe=FOUR, heard=(2, 4))
    added = join(4, 4, universe=(1, 2, 3), heard=(1, 2))
    found = form(votes(newer, join(2, 4, heard=(1, 4)), added), {}, {})
    assert found is not None
    assert sorted(found.ring) == [1, 2, 4]


def test_whoever_was_removed_does_not_vote_against_its_removal() -> None:
    """Site 3 holds the token that removes it, which sites 1 and 3 may have certified: site 2 cannot know."""
    removed = join(3, 5, universe=(1, 2), heard=(1, 2))
    assert form(votes(removed, join(2, 4, heard=(1, 3))), {}, {}) is None
    found = form(votes(removed, join(1, 4), join(2, 4)), {}, {})
    assert found is not None
    assert (found.best.held, sorted(found.ring)) == (4, [1, 2])


# Leaving


def test_a_leaving_member_gets_a_ballot_at_once() -> None:
    server = Server()
    server.hear(suspect(Suspicion.LEAVING, 2, by=2))
    assert server.stage == "waiting"
    assert Multicast(Invite(0, EPOCH, SERVER, NEXT_EPOCH)) in server.wake()


@pytest.mark.parametrize(
    "words",
    [suspect(Suspicion.LEAVING, 9, by=2), suspect(Suspicion.LEAVING, 2, by=2, epoch=Epoch(5, SERVER))],
    ids=["off the ring already", "of another ring"],
)
def test_words_about_another_ring_mean_nothing(words: Packet) -> None:
    server = Server()
    server.hear(words)
    assert server.stage == "idle"


def test_recorded_words_cause_one_ballot_and_no_more() -> None:
    server = Server()
    words = suspect(Suspicion.LEAVING, 2, by=2)
    server.hear(words)
    server.wake()
    [ring] = server.rings(server.hear(leaving(join(2, 5)), join(1, 5), join(3, 5)))
    assert sorted(ring.ring) == [1, 3]
    for _ in range(5):
        server.now += 10 * PERIOD
        server.hear(words)
        assert server.stage == "idle"


def test_a_site_that_cannot_be_spared_asks_in_vain_and_less_and_less_often() -> None:
    server = Server(ring=founding(1, 2)._replace(universe=(1, 2, 3)))
    ballots = []
    for _ in range(400):
        epoch = server.machine.snapshot().ring
        assert epoch is not None
        server.hear(suspect(Suspicion.LEAVING, 2, by=2, epoch=epoch))
        if server.stage == "waiting":
            ballots.append(server.now)
            server.wake()
            ballot = server.machine.snapshot().ballot
            server.hear(leaving(join(2, 5, ballot=ballot)), join(1, 5, ballot=ballot))
            while not server.rings(server.wake()):
                pass
        server.now += PERIOD
    waits = [later - earlier for earlier, later in pairwise(ballots)]
    assert 4 < len(ballots) < 12
    assert waits[-1] > 4 * waits[0]


# Forced changes


def test_an_operators_word_makes_the_survivors_u() -> None:
    server = Server(ring=founding(1, 2, 3, 4, 5))
    five = (1, 2, 3, 4, 5)
    invited = server.machine.step(ForceRequested((4, 2)), server.now)
    assert Multicast(Invite(0, EPOCH, SERVER, NEXT_EPOCH)) in invited
    assert server.rings(server.hear(join(2, 5, universe=five, heard=(4,)))) == []
    effects = server.hear(join(4, 6, universe=five, heard=(2,)))
    [ring] = server.rings(effects)
    assert (ring.forced, ring.universe, ring.ring, ring.cut_token) == (True, (2, 4), (4, 2), 6)
    assert UniverseForced(ring.ballot, 7, (2, 4)) in effects
    assert not server.machine.snapshot().forcing


def test_all_who_are_named_must_vote_and_nobody_else_counts() -> None:
    cast = votes(*[join(site, 5, universe=FOUR) for site in (1, 2, 3)])
    assert form_forced(cast, (1, 4), {}) is None
    found = form_forced(cast, (1, 2), {})
    assert found is not None
    assert (sorted(found.ring), found.universe) == ([1, 2], (1, 2))


def test_a_blank_site_may_be_among_them() -> None:
    """The one survivor of three goes on with two new ones."""
    blanks = [join(site, 0, universe=(), heard=tuple({1, 4, 5} - {site})) for site in (4, 5)]
    found = form_forced(votes(join(1, 5, heard=(4, 5)), *blanks), (1, 4, 5), {})
    assert found is not None
    assert (found.best.sender, found.ring[0], found.holders) == (1, 1, (1,))


@pytest.mark.parametrize("universe", [(), (1,), (1, SERVER)])
def test_u_is_not_forced_to_less_than_two_sites(universe: tuple[int, ...]) -> None:
    with pytest.raises(LocalProtocolError):
        Server().machine.step(ForceRequested(universe), T(6))


def test_an_operators_word_does_not_hold_for_ever() -> None:
    server = Server()
    server.machine.step(ForceRequested((1, 2)), server.now)
    end = server.now + FORCE_REFORMATIONS * TIMING.reformation_ns
    while server.now < end:
        assert server.machine.snapshot().forcing
        server.wake()
    while server.machine.snapshot().forcing:
        server.wake()
    assert server.now < end + 2 * TIMING.reformation_ns + (TIMING.retries_max + 2) * TIMING.retry_ns


# Availability


def test_by_default_nothing_starts_without_a_majority() -> None:
    server = Server()
    server.hear(suspect(Suspicion.BEHIND))
    for _ in range(100):
        effects = server.wake()
        effects += server.hear(join(1, 5, ballot=server.machine.snapshot().ballot))
        assert server.rings(effects) == []


def test_availability_waits_for_a_majority_and_then_does_without() -> None:
    server = Server(AVAILABLE)
    server.hear(suspect(Suspicion.BEHIND))
    began = server.now
    found: list[NewRing] = []
    while not found:
        effects = server.wake()
        effects += server.hear(join(1, 5, ballot=server.machine.snapshot().ballot))
        found = server.rings(effects)
    assert server.now >= began + AVAILABLE.patience_ns
    assert (found[0].uncertified, found[0].ring, found[0].universe) == (True, (1,), (1, 2, 3))


def test_a_server_whose_clock_jumps_ahead_has_not_waited_for_a_majority() -> None:
    """Nor has one that was stopped: in that time it heard nobody, and the others may be about to vote."""
    server = Server(AVAILABLE)
    server.hear(suspect(Suspicion.BEHIND))
    server.wake()
    server.now += 3_600_000 * MS
    effects = server.hear(join(1, 5, ballot=server.machine.snapshot().ballot))
    for _ in range(3):
        assert server.rings(effects) == []
        effects = server.wake()
    [ring] = server.rings(server.hear(*[join(site, 5, ballot=server.machine.snapshot().ballot) for site in (1, 2, 3)]))
    assert not ring.uncertified


def test_a_clock_that_jumps_ahead_does_not_use_an_operators_word_up() -> None:
    server = Server()
    server.machine.step(ForceRequested((1, 2)), server.now)
    server.now += 3_600_000 * MS
    server.wake()
    assert server.machine.snapshot().forcing


def test_a_majority_that_is_there_is_always_preferred() -> None:
    server = Server(AVAILABLE)
    server.hear(suspect(Suspicion.BEHIND))
    server.wake()
    [ring] = server.rings(server.hear(*[join(site, 5) for site in (1, 2, 3)]))
    assert not ring.uncertified


def test_whoever_joins_forms_no_ring_under_availability_either() -> None:
    assert form_uncertified(votes(join(4, 0, universe=())), {}) is None


def test_whoever_was_removed_keeps_nobody_from_going_on() -> None:
    found = form_uncertified(votes(join(3, 5, universe=(1, 2), heard=(1,)), join(1, 4, heard=(3,))), {})
    assert found is not None
    assert (found.ring, found.best.sender) == ((1,), 1)


# A member that is told of a ring without a majority


def uncertified(chain: Chain, *ring: int) -> NewRing:
    return following(chain, *ring, holders=ring)._replace(uncertified=True)


def test_a_site_that_holds_more_does_not_follow_it_and_asks_for_a_ballot() -> None:
    """Both sides must vote: what a majority stands behind is not cut back for what grew without one."""
    machine = receiver(3, Chain().grow(5))
    member = Member(machine)
    effects = member.on_new_ring(uncertified(Chain().grow(2), 1), T(6))
    assert effects == [RingSuspected(5, SERVER, Suspicion.STRANDED)]
    assert not member.reconciling
    # Everybody who is on it tells of it, and so does its server: that changes nothing.
    assert member.on_new_ring(uncertified(Chain().grow(2), 1), T(6) + 1) == []
    assert (machine.accepted, machine.held) == (EPOCH, 5)


def test_one_that_holds_no_more_follows() -> None:
    machine = receiver(3, Chain().grow(2))
    Member(machine).on_new_ring(uncertified(Chain().grow(2), 1), T(6))
    assert machine.accepted == NEXT_EPOCH


def test_one_that_voted_for_it_follows_whatever_it_holds() -> None:
    machine = receiver(3, Chain().grow(5))
    member = Member(machine)
    member.on_invite(invite(), T(6))
    member.on_new_ring(uncertified(Chain().grow(2), 1, 3), T(6))
    assert member.reconciling or machine.accepted == NEXT_EPOCH


def test_a_server_listens_to_whoever_knows_more_than_an_uncertified_ring() -> None:
    ring = founding(1)._replace(universe=(1, 2, 3), uncertified=True)
    server = Server(ring=ring)
    server.hear(suspect(Suspicion.STRANDED, SERVER, by=3, epoch=NO_EPOCH, promised=EPOCH))
    assert server.stage == "waiting"
    other = Server(ring=founding(1, 2)._replace(universe=(1, 2, 3)))
    other.hear(suspect(Suspicion.STRANDED, SERVER, by=3, epoch=NO_EPOCH, promised=EPOCH))
    assert other.stage == "idle"


def test_a_vote_says_that_its_site_is_leaving() -> None:
    machine = Receiver(2, settings(), secret(2), blank())
    machine.membership.leaving = True
    [vote] = [e.packet for e in Member(machine).on_invite(invite(), T(6)) if isinstance(e, Multicast)]
    assert isinstance(vote, Join)
    assert vote.leaving
