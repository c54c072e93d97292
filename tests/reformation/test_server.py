"""A reformation server, X_R (§4.3; protocol §5): probes suspects, runs ballots, forms rings."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.reformation.ballots import cast, join, refuse, suspect
from tests.ring.makers import (
    EPOCH,
    MS,
    NEXT_EPOCH,
    PERIOD,
    RETRY,
    SERVER,
    Chain,
    T,
    arrive,
    following,
    founding,
    receiver,
    settings,
)

from isocast.reformation.server import CLOCK_BAR_CYCLES, PLANNED_CYCLES, ReformationServer, ServerState
from isocast.ring.effects import BallotChosen, Effect, Multicast, Persist, RingDecided, Unicast
from isocast.ring.inputs import TimerFired
from isocast.terms.ids import NO_EPOCH, Epoch, server_id
from isocast.terms.instants import NEVER, SECOND
from isocast.wire.codec import decode, encode
from isocast.wire.packets import ControlEntry, ControlKind, Invite, Join, Nack, NewRing, Packet, Suspicion
from isocast.wire.token_body import split_token

TIMING = settings().timing
GRACE = TIMING.grace_ns
PROBE = Invite(0, EPOCH, SERVER, EPOCH)
CALL = Invite(0, EPOCH, SERVER, NEXT_EPOCH)
RIVAL = server_id(2)
IDLE, WAITING, INVITING = "idle", "waiting", "inviting"


class Server:
    """A server that knows the first ring, woken exactly at its deadlines."""

    def __init__(self, rank: int = 0, state: ServerState | None = None, *, server: int = SERVER) -> None:
        state = ServerState(EPOCH, founding()) if state is None else state
        self.machine = ReformationServer(server, settings(), rank, {}, state)
        self.now = T(6)

    def hear(self, *burst: Packet) -> list[Effect]:
        return list(self.machine.step(arrive(*cast(burst, self.now)), self.now))

    def wake(self) -> list[Effect]:
        """Let time pass to the deadline."""
        self.now = max(self.now, self.machine.next_deadline())
        return list(self.machine.step(TimerFired(), self.now))

    def call(self) -> list[Effect]:
        """Go to a ballot, as after a crash of the owner."""
        self.hear(suspect(Suspicion.BEHIND))
        return self.wake()

    @property
    def stage(self) -> str:
        return str(self.machine.snapshot().stage)


def ring_in(effects: list[Effect]) -> NewRing:
    [ring] = [
        effect.packet for effect in effects if isinstance(effect, Multicast) and isinstance(effect.packet, NewRing)
    ]
    return ring


# Suspicion and probes


@pytest.mark.parametrize("reason", [Suspicion.UNRECOVERED, Suspicion.NO_RECEIPTS])
def test_a_suspect_is_probed_k_r_times_before_a_ballot(reason: Suspicion) -> None:
    """Protocol §5, step 1: X_R probes the suspect k_r times, then picks b."""
    server = Server()
    assert server.hear(suspect(reason)) == [Unicast(1, PROBE)]
    assert server.machine.next_deadline() == server.now + RETRY
    assert server.wake() == [Unicast(1, PROBE)]
    assert server.wake() == []
    assert (server.stage, server.wake()) == (WAITING, [Persist(BallotChosen(NEXT_EPOCH)), Multicast(CALL)])


def test_a_suspect_that_is_alive_and_ahead_is_excused() -> None:
    server = Server()
    server.hear(suspect(Suspicion.UNRECOVERED, token=5))
    assert server.hear(refuse(1, EPOCH, EPOCH, held=5)) == []
    assert (server.stage, server.machine.next_deadline()) == (IDLE, NEVER)


def test_a_token_of_the_suspects_own_excuses_it_too() -> None:
    server = Server()
    server.hear(suspect(Suspicion.UNRECOVERED, token=4))
    server.hear(Chain().grow(3).add().token)
    assert server.stage == IDLE


def test_a_token_in_parts_is_a_token() -> None:
    server = Server()
    server.hear(suspect(Suspicion.UNRECOVERED, token=4))
    server.hear(split_token(Chain().grow(3).add(control=(ControlEntry(ControlKind.MARK, 1, bytes(3_000)),)).token)[0])
    assert server.stage == IDLE


def test_a_server_that_missed_the_ring_asks_whoever_is_on_it() -> None:
    """Started late, or its packet lost: without the ring it cannot tell who is outside of it."""
    server = Server(state=ServerState())
    chain = Chain()
    request = Nack(0, NO_EPOCH, SERVER, 0, has_token=False, parts_held=0, listed=())
    assert decode(encode(request)) == request
    assert server.hear(chain.add().token) == [Unicast(1, request)]
    assert server.hear(chain.add().token) == [], "once in a retry"
    member = receiver(1, chain)
    member.on_nack(request, server.now)
    assert member.take(server.now)[0] == Unicast(SERVER, founding())
    server.hear(founding())
    server.now += RETRY
    assert server.hear(chain.add().token) == []


def test_a_suspect_that_is_alive_and_stuck_leads_to_a_ballot() -> None:
    server = Server()
    server.hear(suspect(Suspicion.UNRECOVERED, token=5))
    server.hear(refuse(1, EPOCH, EPOCH, held=4))
    assert server.stage == WAITING


def test_the_same_complaint_about_a_live_site_again_leads_to_a_ballot() -> None:
    """Some pair of sites does not hear each other: only a new ring can part them."""
    server = Server()
    server.hear(suspect(Suspicion.UNRECOVERED, token=5))
    server.hear(refuse(1, EPOCH, EPOCH, held=5))
    server.hear(suspect(Suspicion.UNRECOVERED, token=5, by=3))
    assert server.stage == IDLE, "a second complainer at the same time says nothing new"
    server.now += RETRY
    server.hear(suspect(Suspicion.UNRECOVERED, token=6))
    assert server.stage == WAITING


def test_the_very_same_complaint_again_counts_while_its_sender_still_lacks_the_token() -> None:
    """Whoever recorded a SUSPECT can send it again: only its sender knows whether it is still true."""
    server = Server()
    server.hear(suspect(Suspicion.UNRECOVERED, token=5))
    server.hear(refuse(1, EPOCH, EPOCH, held=5))
    server.now += RETRY
    assert server.hear(suspect(Suspicion.UNRECOVERED, token=5)) == [Unicast(2, PROBE)]
    server.hear(refuse(2, EPOCH, EPOCH, held=4))
    assert server.stage == WAITING


@pytest.mark.parametrize("reason", [Suspicion.UNRECOVERED, Suspicion.NO_RECEIPTS])
def test_a_recorded_complaint_leads_to_nothing_however_often_it_is_repeated(reason: Suspicion) -> None:
    server = Server()
    server.hear(suspect(reason, token=5))
    server.hear(refuse(1, EPOCH, EPOCH, held=5))
    for _ in range(20):
        server.now += RETRY
        server.hear(suspect(reason, token=5))
        server.hear(refuse(2, EPOCH, EPOCH, held=6))
        assert server.stage == IDLE


@pytest.mark.parametrize("reason, step", [(Suspicion.NO_RECEIPTS, 1), (Suspicion.UNRECOVERED, 3)])
def test_a_pair_that_does_not_hear_each_other_is_parted(reason: Suspicion, step: int) -> None:
    """Protocol §5, step 3. Of one site's receipts another hears nothing, nor of its tokens: a complaint per token."""
    server = Server()
    for token in range(5, 5 + 8 * step, step):
        server.hear(suspect(reason, token=token))
        server.hear(refuse(1, EPOCH, EPOCH, held=token))
        server.now += step * PERIOD
    assert server.stage != IDLE


def test_a_complaint_of_long_ago_says_nothing_about_the_next() -> None:
    """Lossy networks make such complaints now and then: the accused is asked again before everybody is sealed."""
    server = Server()
    server.hear(suspect(Suspicion.UNRECOVERED, token=5))
    server.hear(refuse(1, EPOCH, EPOCH, held=5))
    server.now += 10_000 * PERIOD
    assert server.hear(suspect(Suspicion.UNRECOVERED, token=10_005)) == [Unicast(1, PROBE)]


def test_an_owner_that_cannot_go_on_ends_a_probe() -> None:
    """Protocol §5: after a crash the next owner says BEHIND at T_t+P; waiting k_r·τ_r for the dead costs a token."""
    server = Server()
    server.hear(suspect(Suspicion.UNRECOVERED, token=5))
    server.hear(suspect(Suspicion.BEHIND, 2, token=6))
    assert server.stage == WAITING


@pytest.mark.parametrize("reason", [Suspicion.BEHIND, Suspicion.LATE, Suspicion.SEALED, Suspicion.LOST])
def test_who_says_that_it_cannot_go_on_needs_no_probe(reason: Suspicion) -> None:
    server = Server()
    server.hear(suspect(reason))
    assert server.wake()[-1] == Multicast(CALL)


def test_whoever_is_stale_gets_the_ring_and_no_ballot() -> None:
    server = Server()
    assert server.hear(suspect(Suspicion.UNRECOVERED, epoch=NO_EPOCH)) == [Unicast(2, founding())]
    assert server.stage == IDLE


# Ballots


def test_a_ballot_is_on_disk_before_anybody_hears_of_it() -> None:
    assert Server().call() == [Persist(BallotChosen(NEXT_EPOCH)), Multicast(CALL)]


def test_invitations_are_repeated_and_then_a_higher_ballot_follows() -> None:
    """Protocol §5, step 1: sends INVITE k_r times."""
    server = Server()
    calls = [server.call()]
    while server.stage == INVITING:
        calls.append(server.wake())
    assert len([step for step in calls if Multicast(CALL) in step]) >= TIMING.retries_max
    assert server.wake()[0] == Persist(BallotChosen(Epoch(3, SERVER)))


def test_a_refusal_teaches_what_was_promised() -> None:
    """Protocol §5, step 1: picks b above all it has seen (REFUSE teaches it)."""
    server = Server()
    server.call()
    server.hear(refuse(3, NEXT_EPOCH, Epoch(7, RIVAL)))
    assert server.wake()[0] == Persist(BallotChosen(Epoch(8, SERVER)))


def test_a_restart_never_uses_a_ballot_again() -> None:
    server = Server(state=ServerState(Epoch(6, SERVER), founding()))
    server.hear(suspect(Suspicion.BEHIND))
    assert server.wake()[0] == Persist(BallotChosen(Epoch(7, SERVER)))


def test_the_disk_says_the_highest_ballot_and_the_newest_ring() -> None:
    state, ring = ServerState(), following(Chain())
    state.apply(BallotChosen(NEXT_EPOCH))
    state.apply(RingDecided(ring))
    assert (state.ballot, state.ring) == (NEXT_EPOCH, ring)


def test_a_server_of_higher_rank_waits_longer() -> None:
    waits = []
    for rank in (0, 1, 2):
        server = Server(rank)
        server.hear(suspect(Suspicion.BEHIND))
        waits.append(server.machine.next_deadline() - server.now)
    assert waits[0] < TIMING.detect_ns
    assert [later - waits[0] for later in waits[1:]] == [TIMING.reformation_ns, 2 * TIMING.reformation_ns]


def test_a_server_stands_back_for_a_higher_rival() -> None:
    """L2 ballot races end."""
    server = Server()
    server.call()
    server.hear(Invite(0, EPOCH, RIVAL, Epoch(2, RIVAL)))
    assert server.stage == WAITING
    assert server.machine.next_deadline() >= server.now + 2 * TIMING.reformation_ns
    assert server.hear(*[join(site, 5) for site in (1, 2, 3)]) == []
    assert server.wake()[0] == Persist(BallotChosen(Epoch(3, SERVER)))


def test_a_rival_with_a_lower_ballot_changes_nothing() -> None:
    server = Server(server=RIVAL)
    server.call()
    server.hear(Invite(0, EPOCH, SERVER, Epoch(2, SERVER)))
    assert server.stage == INVITING


def test_a_rivals_ring_ends_the_race() -> None:
    server = Server()
    server.call()
    server.hear(following(Chain(), epoch=Epoch(2, RIVAL)))
    assert (server.stage, server.machine.next_deadline()) == (IDLE, NEVER)


def test_a_server_without_a_ring_starts_one_by_itself() -> None:
    server = Server(state=ServerState())
    assert server.wake() == [], "its turn is counted from the first look at the clock"
    assert server.wake() == [Persist(BallotChosen(EPOCH)), Multicast(Invite(0, NO_EPOCH, SERVER, EPOCH))]


def test_at_the_start_too_servers_move_by_rank_whatever_the_clock_shows() -> None:
    server = Server(rank=1, state=ServerState())
    server.now = 10**18
    server.machine.step(TimerFired(), server.now)
    assert server.stage == WAITING


# Decisions


def test_with_everybody_on_the_ring_the_decision_is_at_once_and_on_disk_first() -> None:
    server = Server()
    server.call()
    effects = server.hear(*[join(site, 5) for site in (1, 2, 3)])
    ring = ring_in(effects)
    assert effects == [Persist(RingDecided(ring)), Multicast(ring)]
    assert (ring.ballot, ring.first_token, ring.first_sequence) == (NEXT_EPOCH, 6, 6)
    assert (ring.cut_epoch, ring.cut_token, ring.holders) == (EPOCH, 5, (1, 2, 3))
    assert server.stage == IDLE


def test_a_majority_is_given_a_grace() -> None:
    """Protocol §5, step 3: on JOINs from a majority of U, +δ_N grace."""
    server = Server()
    server.call()
    assert server.hear(join(1, 5, heard=(2,)), join(2, 5, heard=(1,))) == []
    asked = server.now
    server.wake()
    assert server.machine.next_deadline() == asked + GRACE
    assert sorted(ring_in(server.wake()).ring) == [1, 2]


def test_a_broken_pair_is_asked_once_more_and_the_new_token_stays_within_its_bound() -> None:
    """Protocol §5: from the start of a ballot to the first new token at most 4δ_N+grace+τ_t+2ε, slow votes included."""
    server = Server()
    server.call()
    began = server.now
    arrive_at = began + 2 * TIMING.detect_ns
    while server.machine.next_deadline() < arrive_at:
        server.wake()
    server.now = arrive_at
    assert server.hear(join(1, 5, heard=(2,)), join(2, 5, heard=(1, 3)), join(3, 5, heard=(2,))) == []
    said: list[Effect] = []
    while server.stage == INVITING:
        said = server.wake()
        if server.now == arrive_at + GRACE:
            assert said == [Multicast(CALL)]
    ring = ring_in(said)
    assert len(ring.ring) == 2
    assert ring.start - began <= TIMING.reformation_ns


def test_a_minority_decides_nothing() -> None:
    server = Server()
    server.call()
    server.hear(join(1, 5))
    while server.stage == INVITING:
        assert not [effect for effect in server.wake() if isinstance(effect, Persist)]


def test_votes_for_another_ballot_do_not_count() -> None:
    server = Server()
    server.call()
    server.hear(*[join(site, 5, ballot=Epoch(2, RIVAL)) for site in (1, 2, 3)])
    assert server.machine.snapshot().votes == 0


def test_one_ring_per_ballot() -> None:
    """Protocol §5, step 3: one NEWRING per b; resend to any JOINer."""
    server = Server()
    server.call()
    ring = ring_in(server.hear(*[join(site, 5) for site in (1, 2, 3)]))
    assert server.hear(join(3, 9)) == [Unicast(3, ring)]


def test_a_restarted_server_sends_its_decision_again_and_no_other() -> None:
    ring = following(Chain().grow(5))
    server = Server(state=ServerState(NEXT_EPOCH, ring))
    assert server.hear(join(3, 5)) == [Unicast(3, ring)]


def test_the_new_ring_starts_after_everybody_can_know_of_it() -> None:
    """Protocol §5, step 3: T0 ≥ max(T_h+τ_t, now+τ_t+2ε)."""
    server = Server()
    server.call()
    assert ring_in(server.hear(*[join(site, 5) for site in (1, 2, 3)])).start == server.now + PERIOD + 2 * MS


def test_instants_increase_across_epochs_even_if_the_servers_clock_lags() -> None:
    """S11 T increases across epochs."""
    server = Server()
    server.call()
    assert ring_in(server.hear(*[join(site, 50) for site in (1, 2, 3)])).start == T(51)


def test_the_rings_nonces_are_those_of_the_votes() -> None:
    server = Server()
    server.call()
    ring = ring_in(server.hear(*[join(site, 5) for site in (3, 1, 2)]))
    assert ring.commits == tuple([join(site, 5).commit for site in ring.ring])


def test_a_market_that_starts_waits_for_everybody() -> None:
    server = Server(state=ServerState())
    server.wake()
    server.hear(*[join(site, 0, ballot=EPOCH, heard=tuple({1, 2} - {site})) for site in (1, 2)])
    began = server.now
    while server.machine.next_deadline() <= began + GRACE:
        assert [type(effect.packet) for effect in server.wake() if isinstance(effect, Multicast)] == [Invite]


# Planned ballots


def outsider(now: int, server: Server) -> str:
    server.now = now
    server.hear(
        suspect(Suspicion.OUTSIDE, 3, by=3, epoch=server.machine.ring.ballot if server.machine.ring else NO_EPOCH)
    )
    return server.stage


def test_a_healthy_site_off_the_ring_is_let_in_by_a_planned_ballot() -> None:
    """Protocol §5: follow tokens passively, then a planned ballot. L6."""
    assert outsider(T(6), Server()) == WAITING


def test_planned_ballots_that_change_nothing_become_rare() -> None:
    server = Server()
    server.hear(suspect(Suspicion.BEHIND))
    pauses = []
    for _ in range(4):
        server.wake()
        ballot = server.machine.snapshot().ballot
        ring = ring_in(server.hear(*[join(site, 5, ballot=ballot) for site in (1, 2, 3)]))
        cycle = 3 * PERIOD
        pauses.append(next(count for count in range(99) if outsider(ring.start + count * cycle, server) == WAITING))
    assert pauses == [PLANNED_CYCLES << times for times in (1, 2, 3, 4)]


def test_other_servers_wait_with_planned_ballots_too() -> None:
    """Else every server in turn reforms a ring that its rival has just found unable to let the site in."""
    server = Server()
    ring = following(Chain().grow(5), epoch=Epoch(2, RIVAL))
    server.hear(ring)
    assert outsider(ring.start, server) == IDLE


# Clocks


def test_a_clock_that_a_majority_complains_about_keeps_its_site_off_the_ring() -> None:
    server = Server()
    server.hear(suspect(Suspicion.CLOCK, 1, by=2))
    assert server.stage == IDLE
    server.hear(suspect(Suspicion.CLOCK, 1, by=3))
    assert server.stage == WAITING
    server.wake()
    server.hear(*[join(site, 5) for site in (1, 2, 3)])
    effects: list[Effect] = []
    while server.stage == INVITING:
        effects = server.wake()
    assert sorted(ring_in(effects).ring) == [2, 3]


def test_one_site_against_all_others_is_itself_the_one_that_errs() -> None:
    server = Server()
    server.hear(suspect(Suspicion.CLOCK, 1, by=2), suspect(Suspicion.CLOCK, 3, by=2))
    server.wake()
    server.hear(*[join(site, 5) for site in (1, 2, 3)])
    effects: list[Effect] = []
    while server.stage == INVITING:
        effects = server.wake()
    assert sorted(ring_in(effects).ring) == [1, 3]


def test_whoever_finds_a_few_clocks_wrong_may_be_right() -> None:
    server = Server(state=ServerState(EPOCH, founding(1, 2, 3, 4, 5)))
    server.hear(suspect(Suspicion.CLOCK, 1, by=5), suspect(Suspicion.CLOCK, 2, by=5))
    assert server.stage == IDLE
    server.hear(suspect(Suspicion.CLOCK, 3, by=5))
    assert server.stage == WAITING


def test_a_site_is_barred_for_some_cycles_only() -> None:
    server = Server()
    server.hear(suspect(Suspicion.CLOCK, 1, by=2), suspect(Suspicion.CLOCK, 1, by=3))
    server.now += CLOCK_BAR_CYCLES * 3 * PERIOD + 1
    server.machine.step(TimerFired(), server.now)
    assert sorted(ring_in(server.hear(*[join(site, 5) for site in (1, 2, 3)])).ring) == [1, 2, 3]


FIVE = (1, 2, 3, 4, 5)


def decided(server: Server, *votes: Join) -> NewRing:
    """The ring of the ballot that is being held, from these votes."""
    effects = server.hear(*votes)
    while server.stage == INVITING:
        effects = server.wake()
    return ring_in(effects)


def five(server: Server, **clocks: int) -> list[Join]:
    """Votes of five sites; `s3=SECOND` puts the clock of site 3 so far ahead of the server's."""
    ballot = server.machine.snapshot().ballot
    return [join(site, 5, ballot=ballot, universe=FIVE, now=server.now + clocks.get(f"s{site}", 0)) for site in FIVE]


@pytest.mark.parametrize("ahead", [-3_600 * SECOND, -SECOND // 5, SECOND // 5, 3_600 * SECOND])
def test_a_ring_begins_by_the_voters_clocks_whatever_the_servers_shows(ahead: int) -> None:
    """L7. Protocol §5, step 3: T0 ≥ now+τ_t+2ε, and the members' now counts."""
    server = Server()
    server.call()
    ring = decided(server, *[join(site, 0, now=server.now + ahead) for site in (1, 2, 3)])
    wanted = server.now + ahead + TIMING.token_period_ns + 2 * TIMING.clock_error_ns
    assert abs(ring.start - wanted) <= 2 * TIMING.clock_error_ns
    assert abs(server.machine.snapshot().clock_ahead_ns + ahead) <= 2 * TIMING.clock_error_ns


def test_a_server_whose_clock_is_right_again_says_so_after_the_next_ballot() -> None:
    server = Server()
    server.call()
    decided(server, *[join(site, 5, now=server.now + SECOND) for site in (1, 2, 3)])
    assert server.machine.snapshot().clock_ahead_ns < 0
    server.now += SECOND
    server.hear(suspect(Suspicion.BEHIND, epoch=NEXT_EPOCH))
    server.wake()
    ballot = server.machine.snapshot().ballot
    decided(server, *[join(site, 5, ballot=ballot) for site in (1, 2, 3)])
    assert server.machine.snapshot().clock_ahead_ns == 0


def test_a_voter_whose_clock_is_wrong_stays_off_the_ring() -> None:
    server = Server()
    server.call()
    assert sorted(decided(server, *five(server, s3=SECOND)).ring) == [1, 2, 4, 5]


def test_what_only_a_wrong_voter_holds_is_not_waited_for() -> None:
    """Any majority is a quorum. Its log may end at an instant that is still to come by everybody else's clock."""
    server = Server()
    server.call()
    hour = 3_600 * SECOND
    ahead = join(3, 6, universe=FIVE, now=server.now + hour)._replace(instant=server.now + hour)
    ring = decided(server, *[vote for vote in five(server) if vote.sender != 3], ahead)
    assert (ring.cut_token, sorted(ring.ring)) == (5, [1, 2, 4, 5])
    assert ring.start < server.now + SECOND


def test_a_wrong_voter_that_a_majority_needs_is_on_the_ring() -> None:
    server = Server()
    server.call()
    votes = [vote for vote in five(server, s3=SECOND) if vote.sender in (1, 2, 3)]
    assert sorted(decided(server, *votes).ring) == [1, 2, 3]


def asks_in(server: Server, site: int) -> bool:
    """Whether a site that asks to come in gets a ballot."""
    server.hear(suspect(Suspicion.OUTSIDE, site, by=site, epoch=server.machine.snapshot().ring or NO_EPOCH))
    return server.stage == WAITING


def test_a_wrong_clock_is_let_in_more_and_more_seldom() -> None:
    """To let it in costs everybody a ballot."""
    server = Server()
    server.call()
    spans = []
    for _ in range(4):
        decided(server, *five(server, s3=SECOND))
        began = server.now
        while not asks_in(server, 3):
            server.now += PERIOD
        spans.append(server.now - began)
        server.wake()
    cycle = 4 * PERIOD
    assert [span // cycle for span in spans] == [CLOCK_BAR_CYCLES << times for times in range(4)]


def test_a_clock_that_is_right_again_by_the_next_vote_is_let_in_at_once() -> None:
    server = Server()
    server.call()
    decided(server, *five(server, s3=SECOND))
    server.hear(suspect(Suspicion.BEHIND, by=4, epoch=server.machine.snapshot().ring or NO_EPOCH))
    server.wake()
    assert sorted(decided(server, *five(server)).ring) == [1, 2, 3, 4, 5]


def test_a_rival_that_hears_the_votes_bars_a_wrong_clock_too() -> None:
    """Else each server in turn would hold a ballot for a site that the others know to be wrong."""
    server, ballot = Server(1), Epoch(2, RIVAL)
    server.hear(Invite(0, EPOCH, RIVAL, ballot))
    votes = [join(site, 5, ballot=ballot, universe=FIVE, now=server.now + (site == 3) * SECOND) for site in FIVE]
    server.hear(*votes)
    ring = following(Chain().grow(5), epoch=ballot)._replace(ring=(1, 2, 4, 5), universe=FIVE)
    server.hear(ring)
    server.now = ring.start + PLANNED_CYCLES * 4 * PERIOD
    assert not asks_in(server, 3)
    assert asks_in(server, 2)


def test_a_bar_is_forgotten_when_as_long_again_has_passed_without_another() -> None:
    server = Server()
    spans = []
    for _ in range(2):
        server.hear(suspect(Suspicion.BEHIND, epoch=server.machine.snapshot().ring or NO_EPOCH))
        server.wake()
        decided(server, *five(server, s3=SECOND))
        began = server.now
        while not asks_in(server, 3):
            server.now += PERIOD
        spans.append((server.now - began) // (4 * PERIOD))
        server.wake()
        decided(server, *five(server))
        server.now += 3 * CLOCK_BAR_CYCLES * 5 * PERIOD
    assert spans == [CLOCK_BAR_CYCLES, CLOCK_BAR_CYCLES]


# Turns

SERVERS = tuple(map(server_id, (1, 2, 3)))


class Turns(Server):
    """One of three servers that know each other."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        state = ServerState(EPOCH, founding())
        self.machine = ReformationServer(SERVERS[rank], settings(), rank, {}, state, SERVERS)

    def rings(self, *ballots: Epoch) -> Turns:
        """Rings that others decide, and that nobody sends a token of."""
        for ballot in ballots:
            self.hear(Invite(0, EPOCH, ballot.server, ballot), following(Chain(), epoch=ballot))
        return self

    def turn(self) -> int:
        """How many others would have had time before it, if the newest ring does not work."""
        self.hear(suspect(Suspicion.LATE, epoch=self.machine.snapshot().ring or NO_EPOCH))
        wait = self.machine.next_deadline() - self.now
        self.machine.step(arrive(following(Chain(), epoch=Epoch(90, SERVERS[0]))), self.now)
        return wait // TIMING.reformation_ns


def test_a_server_whose_ballots_bring_no_token_moves_behind_the_others() -> None:
    """L7: whatever the reason is, a server whose rings do not work must not go first for ever."""
    first, second = Epoch(2, SERVERS[0]), Epoch(3, SERVERS[1])
    assert [Turns(rank).turn() for rank in (1, 2)] == [1, 2]
    assert [Turns(rank).rings(first).turn() for rank in (1, 2)] == [0, 1]
    assert [Turns(rank).rings(first, second).turn() for rank in (1, 2)] == [2, 0]


def test_a_server_knows_that_its_own_ballots_bring_no_token() -> None:
    server = Turns(0)
    for times in (0, 2, 2):
        server.now += SECOND
        server.hear(suspect(Suspicion.LATE, epoch=server.machine.snapshot().ring or NO_EPOCH))
        assert (server.machine.next_deadline() - server.now) // TIMING.reformation_ns == times
        server.wake()
        ballot = server.machine.snapshot().ballot
        decided(server, *[join(site, 5, ballot=ballot) for site in (1, 2, 3)])


def test_where_nobodys_ballots_bring_a_token_rank_decides_again() -> None:
    """A market without a majority wears nobody out: when the majority is back, the first goes first."""
    ballots = [Epoch(number, SERVERS[number % 3]) for number in range(3, 12)]
    assert [Turns(rank).rings(*ballots).turn() for rank in (1, 2)] == [1, 2]


def test_a_token_of_its_ring_gives_a_server_its_turn_back() -> None:
    first, second = Epoch(2, SERVERS[0]), Epoch(3, SERVERS[1])
    server = Turns(1).rings(first, second, Epoch(4, SERVERS[0]))
    server.hear(replace(Chain().add().token, epoch=Epoch(4, SERVERS[0])))
    assert server.rings(Epoch(5, SERVERS[2])).turn() == 1, "the second has one ballot against it, the first none"


def test_a_clock_that_was_set_back_takes_the_deadline_with_it() -> None:
    server = Server()
    server.hear(suspect(Suspicion.UNRECOVERED))
    server.now -= PERIOD
    server.hear()
    assert server.machine.next_deadline() == server.now + RETRY


def _gaps_between_ballots(server: Server, voters: tuple[int, ...], count: int) -> list[int]:
    """How long after one ballot's start the next starts, if only these sites vote."""
    starts: list[int] = []
    while len(starts) <= count:
        for effect in server.wake():
            if isinstance(effect, Persist) and isinstance(effect.record, BallotChosen):
                starts.append(server.now)
                ballot = effect.record.ballot
                server.hear(*[join(site, 5, ballot=ballot, universe=(1, 2, 3, 4, 5)) for site in voters])
    return [after - before for before, after in pairwise(starts)]


def test_ballots_in_vain_become_rare_and_never_rarer_than_the_bound() -> None:
    server = Server()
    server.hear(suspect(Suspicion.BEHIND))
    gaps = _gaps_between_ballots(server, (1, 2), 12)
    attempt = gaps[0]
    most = max(SECOND, 4 * TIMING.reformation_ns)
    assert gaps[-1] > attempt + most // 2
    assert max(gaps) <= attempt + most + TIMING.detect_ns
    assert len(set(gaps[-4:])) == 4, "without jitter servers collide again and again"
    again = Server()
    again.hear(suspect(Suspicion.BEHIND))
    assert _gaps_between_ballots(again, (1, 2), 12) == gaps


def test_somebody_new_is_asked_at_once_and_those_who_voted_in_vain_are_no_news() -> None:
    server = Server()
    server.hear(suspect(Suspicion.BEHIND))
    _gaps_between_ballots(server, (1, 2), 10)
    while server.machine.snapshot().stage != WAITING:
        server.wake()
    late = server.machine.next_deadline()
    server.hear(suspect(Suspicion.SEALED, by=2))
    assert server.machine.next_deadline() == late
    server.hear(suspect(Suspicion.LOST, by=3))
    assert server.machine.next_deadline() <= server.now + TIMING.detect_ns < late


def test_where_other_sites_vote_each_time_nobody_waits_longer() -> None:
    server = Server()
    server.hear(suspect(Suspicion.BEHIND))
    first = _gaps_between_ballots(server, (1, 2), 1)
    changing = [gap for site in (3, 4, 3, 4) for gap in _gaps_between_ballots(server, (1, site), 1)[:1]]
    assert max(changing) <= first[0] + TIMING.detect_ns
