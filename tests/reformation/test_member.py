"""A member's part in a reformation: promise, join, reconcile, install (protocol §5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.reformation.ballots import invite
from tests.ring.makers import (
    EPOCH,
    MS,
    NEXT_EPOCH,
    RETRY,
    SERVER,
    START,
    Chain,
    T,
    blank,
    following,
    founding,
    message,
    receiver,
    secret,
    settings,
)

from isocast.reformation.member import Member
from isocast.ring.effects import (
    EntryAppended,
    Multicast,
    Persist,
    PromiseMade,
    ReceiverEffect,
    RingInstalled,
    RingSuspected,
    Unicast,
)
from isocast.ring.ledger import LogEntry
from isocast.ring.receiver import Mode, Receiver
from isocast.ring.settings import OrderRule
from isocast.terms.ids import NO_EPOCH, Epoch, server_id
from isocast.terms.instants import NEVER, SECOND
from isocast.wire.packets import (
    Invite,
    Join,
    NewRing,
    RangeRequest,
    Refuse,
    Repair,
    Repairable,
    Suspicion,
    short_digest_of,
)

LATER = Epoch(3, server_id(2))
GRACE = settings().timing.grace_ns
OTHERS_REPEATS = 2
"""k_r."""


class Site:
    """A member with its receiver; effects come in the order in which a driver performs them."""

    def __init__(self, chain: Chain | None = None, site: int = 2, machine: Receiver | None = None) -> None:
        self.receiver = machine or receiver(site, chain)
        self.member = Member(self.receiver)
        self.now = (chain.entries[-1].token.instant if chain and chain.entries else START) + MS

    def hear(self, packet: Invite | NewRing | Repair) -> list[ReceiverEffect]:
        match packet:
            case Invite():
                return self._all(self.member.on_invite(packet, self.now))
            case NewRing():
                return self._all(self.member.on_new_ring(packet, self.now))
            case Repair():
                return self._all(self.member.on_repair(packet, self.now))

    def offer(self, *items: Repairable) -> list[ReceiverEffect]:
        return [effect for item in items for effect in self.hear(Repair(0, NEXT_EPOCH, 1, item))]

    def wait(self, span_ns: int) -> list[ReceiverEffect]:
        self.now += span_ns
        return self._all(self.member.on_timer(self.now))

    def _all(self, found: list[ReceiverEffect]) -> list[ReceiverEffect]:
        before = list(self.receiver.flush())
        return before + found


def join_in(effects: list[ReceiverEffect]) -> Join:
    [packet] = [
        effect.packet for effect in effects if isinstance(effect, Multicast) and isinstance(effect.packet, Join)
    ]
    return packet


# Promises


def test_an_invitation_is_promised_on_disk_before_the_vote() -> None:
    """Protocol §5, step 2: b > prom: persist prom = b and SEAL. JOIN."""
    chain = Chain().grow(3)
    site = Site(chain)
    promise, vote = site.hear(invite())
    assert promise == Persist(PromiseMade(NEXT_EPOCH))
    assert isinstance(vote, Multicast)
    assert site.receiver.mode is Mode.SEALED


def test_a_vote_brings_epoch_log_and_nonce() -> None:
    chain = Chain()
    chain.add(message(1))
    site = Site(chain.grow(2))
    vote = join_in(site.hear(invite()))
    assert (vote.epoch, vote.held, vote.digest, vote.instant) == (EPOCH, 3, chain.head.digest, T(3))
    assert (vote.next_sequence, vote.universe, vote.ballot) == (2, (1, 2, 3), NEXT_EPOCH)
    assert [(entry.source, entry.number) for entry in vote.next_numbers] == [(message(1).sender, 2)]
    assert vote.commit == site.receiver.issuer.commit_for(NEXT_EPOCH)


def test_a_vote_names_who_was_heard_of_late() -> None:
    """Protocol §5, step 3: heard[]."""
    site = Site(Chain().grow(1))
    site.member.heard(1, site.now)
    site.member.heard(3, site.now - OTHERS_REPEATS * RETRY - 1)
    site.member.heard(SERVER, site.now)
    assert join_in(site.hear(invite())).heard == (1,)


def test_a_lower_ballot_is_refused_with_the_promise() -> None:
    """Protocol §2: REFUSE{prom} to an INVITE below prom."""
    site = Site(Chain().grow(2))
    site.hear(invite(LATER))
    assert site.hear(invite()) == [Unicast(SERVER, Refuse(0, EPOCH, 2, NEXT_EPOCH, LATER, 2))]
    assert site.receiver.promised == LATER


def test_a_probe_is_answered_with_how_far_the_site_is() -> None:
    site = Site(Chain().grow(2))
    assert site.hear(invite(EPOCH)) == [Unicast(SERVER, Refuse(0, EPOCH, 2, EPOCH, EPOCH, 2))]
    assert site.receiver.mode is Mode.NORMAL


def test_a_higher_ballot_overrides_a_promise() -> None:
    site = Site()
    site.hear(invite())
    assert site.hear(invite(LATER))[0] == Persist(PromiseMade(LATER))


def test_the_first_vote_goes_out_twice_within_the_grace() -> None:
    """A lost packet should not cost a healthy site its place on the ring."""
    site = Site()
    site.hear(invite())
    assert site.wait(GRACE // 2 - 1) == []
    assert join_in(site.wait(1)).ballot == NEXT_EPOCH


def test_a_vote_is_repeated_every_tau_r() -> None:
    """Protocol §5, step 2: JOIN every τ_r."""
    site = Site()
    site.hear(invite())
    site.wait(GRACE // 2)
    assert site.wait(RETRY - 1) == []
    assert join_in(site.wait(1)).ballot == NEXT_EPOCH


def test_k_r_silences_ask_for_another_server() -> None:
    """Protocol §5, step 2: k_r silences: another X_R, a higher ballot."""
    site = Site()
    site.hear(invite())
    site.wait(GRACE // 2)
    found = [site.wait(RETRY) for _ in range(2)]
    suspicions = [[effect for effect in step if isinstance(effect, RingSuspected)] for step in found]
    assert suspicions == [[], [RingSuspected(0, SERVER, Suspicion.SEALED)]]


def test_a_server_that_repeats_its_invitation_is_not_silent() -> None:
    """Protocol §5, step 2: silences count; an INVITE heard again is the opposite of one."""
    site = Site()
    found = [site.hear(invite()) for _ in range(4)]
    assert not [effect for step in found for effect in step if isinstance(effect, RingSuspected)]


def test_a_promise_survives_a_restart_and_the_vote_goes_on() -> None:
    """S7 prom never goes back, restarts included."""
    chain = Chain().grow(2)
    state = chain.state()
    state.apply(PromiseMade(NEXT_EPOCH))
    site = Site(machine=Receiver(2, settings(), secret(2), state))
    vote = join_in(site.wait(0))
    assert (vote.ballot, vote.epoch, vote.held) == (NEXT_EPOCH, EPOCH, 2)
    assert site.hear(invite(EPOCH))[-1] == Unicast(SERVER, Refuse(0, EPOCH, 2, EPOCH, NEXT_EPOCH, 2))


def test_a_site_that_just_came_up_asks_for_a_ring() -> None:
    site = Site(machine=Receiver(2, settings(), secret(2), blank()))
    assert site.wait(0) == [RingSuspected(0, 2, Suspicion.LOST)]
    assert site.wait(RETRY - 1) == []


def test_a_member_in_its_ring_waits_for_nothing() -> None:
    assert Site().member.next_deadline() == NEVER


def test_a_site_that_lost_its_disk_never_votes() -> None:
    """Protocol §5: it has forgotten promises: it comes back under a new site id."""
    site = Site(machine=Receiver(2, settings(), secret(2), blank()))
    site.member = Member(site.receiver, forgot=True)
    assert site.hear(invite()) == []
    assert site.hear(founding()) == []
    assert (site.wait(9 * RETRY), site.member.next_deadline(), site.receiver.promised) == ([], NEVER, NO_EPOCH)


# Reconciling


def test_a_ring_whose_cut_is_here_is_installed_at_once() -> None:
    chain = Chain().grow(2)
    site = Site(chain)
    ring = following(chain)
    assert site.hear(ring)[:2] == [Persist(PromiseMade(NEXT_EPOCH)), Persist(RingInstalled(ring, 2, ()))]
    assert site.receiver.mode is Mode.NORMAL


def test_a_ring_below_the_promise_is_ignored() -> None:
    """Protocol §5, step 4: b ≥ prom and b > e_acc."""
    chain = Chain().grow(2)
    site = Site(chain)
    site.hear(invite(LATER))
    assert site.hear(following(chain)) == []
    assert site.receiver.accepted == EPOCH


def test_the_present_ring_again_changes_nothing() -> None:
    site = Site(Chain().grow(1))
    assert site.hear(founding()) == []


def lagging() -> tuple[Site, Chain, NewRing]:
    """Site 2 holds token 1 of three; the ring of the next epoch comes, and sites 1 and 3 hold its cut."""
    chain = Chain()
    chain.add(message(1))
    site = Site(chain.fork())
    chain.add(message(2))
    chain.add(message(3))
    ring = following(chain, holders=(1, 3))
    site.hear(invite())
    return site, chain, ring


def test_what_is_missing_is_fetched_from_a_holder() -> None:
    site, _, ring = lagging()
    [ask] = site.hear(ring)
    assert isinstance(ask, Unicast)
    assert ask.to in ring.holders
    assert isinstance(ask.packet, RangeRequest)
    assert (ask.packet.first, ask.packet.last) == (2, 3)


def test_requests_go_from_holder_to_holder_every_tau_r() -> None:
    site, _, ring = lagging()
    asks = [*site.hear(ring), *site.wait(RETRY), *site.wait(RETRY)]
    assert {ask.to for ask in asks if isinstance(ask, Unicast)} == {1, 3}


def test_a_ring_is_never_installed_half() -> None:
    """Protocol §5, step 4: until then its JOINs report the old (e_acc, h)."""
    site, chain, ring = lagging()
    site.hear(ring)
    effects = site.offer(chain.entries[2].token, chain.entries[1].token, message(2))
    assert not [effect for effect in effects if isinstance(effect, Persist)]
    assert (site.receiver.held, site.receiver.accepted, site.receiver.mode) == (1, EPOCH, Mode.SEALED)
    assert Persist(RingInstalled(ring, 1, tuple(chain.entries[1:]))) in site.offer(message(3))
    assert (site.receiver.held, site.receiver.accepted) == (3, NEXT_EPOCH)


def test_a_vote_in_the_middle_of_a_reconciliation_reports_the_old_log() -> None:
    site, chain, ring = lagging()
    site.hear(ring)
    site.offer(chain.entries[2].token, chain.entries[1].token)
    vote = join_in(site.hear(invite(LATER)))
    assert (vote.epoch, vote.held, vote.ballot) == (EPOCH, 1, LATER)
    assert site.member.snapshot().reconciling is None


def test_divergent_tokens_below_the_cut_are_replaced() -> None:
    """Protocol §5, step 4: by chained digest."""
    common = Chain().grow(1)
    stale, alive = common.fork().grow(3), common.fork()
    for number in (1, 2):
        alive.add(message(number))
    site = Site(stale)
    ring = following(alive, holders=(1, 3))
    site.hear(ring)
    effects = site.offer(alive.entries[2].token, alive.entries[1].token, message(1), message(2))
    assert Persist(RingInstalled(ring, 1, tuple(alive.entries[1:]))) in effects
    assert site.receiver.ledger.digest == alive.head.digest
    assert not [
        effect for effect in effects if isinstance(effect, Persist) and isinstance(effect.record, EntryAppended)
    ]


def test_a_cut_that_no_holder_gives_strands_the_member() -> None:
    site, _, ring = lagging()
    found = site.hear(ring)
    for _ in range(OTHERS_REPEATS * len(ring.holders)):
        found.extend(site.wait(RETRY))
    assert [effect.reason for effect in found if isinstance(effect, RingSuspected)] == [Suspicion.STRANDED]


def test_a_member_that_makes_progress_is_not_stranded() -> None:
    """L2, L6: a site 300 tokens behind needs ten ranges; a ballot each time would throw its progress away."""
    chain = Chain().grow(300)
    site = Site(Chain().grow(1))
    found = site.hear(following(chain, holders=(1, 3)))
    for _ in range(12):
        requests = [e.packet for e in found if isinstance(e, Unicast) and isinstance(e.packet, RangeRequest)]
        answers = [chain.entries[number - 1].token for number in range(requests[-1].first, requests[-1].last + 1)]
        found.extend(site.offer(*reversed(answers)))
        if site.receiver.accepted == NEXT_EPOCH:
            break
        found.extend(site.wait(RETRY))
    assert site.receiver.accepted == NEXT_EPOCH
    assert not [effect for effect in found if isinstance(effect, RingSuspected)]


def test_a_higher_ring_replaces_the_one_that_is_worked_on() -> None:
    site, chain, ring = lagging()
    site.hear(ring)
    higher = following(chain, epoch=LATER)
    assert Persist(PromiseMade(LATER)) in site.hear(higher)
    assert site.member.snapshot().reconciling == LATER
    assert site.hear(ring) == []


def test_the_nonce_of_a_vote_is_committed_before_it_is_known() -> None:
    site = Site()
    commit = join_in(site.hear(invite())).commit
    assert commit != site.receiver.issuer.commit_for(LATER)
    assert len(commit) == len(short_digest_of())


# Rings that cannot begin when they say


def test_a_ring_that_began_before_the_site_voted_for_it_is_refused() -> None:
    """Its tokens have gone by: its server's clock is behind, or this one's is ahead. Another ballot helps."""
    chain = Chain().grow(2)
    site = Site(chain)
    site.hear(invite())
    ring = following(chain)._replace(start=site.now - 1)
    assert RingSuspected(2, SERVER, Suspicion.STRANDED) in site.hear(ring)
    assert (site.receiver.accepted, site.member.snapshot().joining) == (EPOCH, NEXT_EPOCH)


@pytest.mark.parametrize("start", [-3_600 * SECOND, -200 * MS, -1, 3_600 * SECOND])
def test_a_ring_that_begins_before_its_votes_or_far_ahead_is_refused(start: int) -> None:
    """A ring of the past has missed its tokens: a clock is wrong, the server's or this one."""
    chain = Chain().grow(2)
    site = Site(chain)
    site.hear(invite())
    ring = following(chain)._replace(start=site.now + start)
    assert RingSuspected(2, SERVER, Suspicion.STRANDED) in site.hear(ring)


def test_a_site_that_hears_of_an_old_ring_takes_it() -> None:
    """It was away, and did not vote: the ring began long ago."""
    chain = Chain().grow(2)
    site = Site(chain)
    ring = following(chain)
    site.now = ring.start + 3_600 * SECOND
    site.hear(ring)
    assert site.receiver.accepted == NEXT_EPOCH


@pytest.mark.parametrize("start", [-3_600 * SECOND, 3_600 * SECOND])
def test_a_site_off_the_ring_follows_it_whenever_it_begins(start: int) -> None:
    """L7: its clock may be why it is off; a site that follows needs no ballot of its own."""
    chain = Chain().grow(2)
    site = Site(chain)
    site.hear(invite())
    site.hear(following(chain)._replace(ring=(1, 3), start=site.now + start, commits=following(chain).commits[:2]))
    assert site.receiver.accepted == NEXT_EPOCH


def test_a_site_whose_clock_is_set_back_complains_all_the_same() -> None:
    chain = Chain().grow(2)
    site = Site(chain)
    site.hear(invite())
    absurd = following(chain)._replace(start=site.now + 7_200 * SECOND)
    site.now += 3_600 * SECOND
    assert [effect for effect in site.hear(absurd) if isinstance(effect, RingSuspected)]
    site.now -= 3_600 * SECOND
    assert [effect for effect in site.hear(absurd) if isinstance(effect, RingSuspected)]


def test_nobody_was_heard_in_the_future() -> None:
    """What was heard by a clock that was ahead grows old from the moment at which the clock is right again."""
    site = Site()
    site.member.heard(3, site.now + 3_600 * SECOND)
    assert join_in(site.hear(invite())).heard == (3,)
    site.now += OTHERS_REPEATS * RETRY + 1
    assert join_in(site.hear(invite(LATER))).heard == ()


# Owners that lie


def lied_to() -> tuple[Site, Chain, NewRing]:
    """Site 2 holds two tokens; in the third, site 3 reveals another nonce than it committed to, and goes on with it."""
    chain = Chain(order=OrderRule.SHUFFLE).grow(2)
    site = Site(machine=receiver(2, chain, settings(order=OrderRule.SHUFFLE)))
    lie = replace(chain.fork().add().token, reveal=b"\x07" * 16)
    chain.head.advance(LogEntry(lie, (), b""))
    chain.entries.append(LogEntry(lie, (), b""))
    site.now = lie.instant
    for other in (1, 3):
        site.member.heard(other, site.now)
    return site, chain, following(chain, holders=(3,))


def test_who_caught_an_owner_lying_does_not_hear_it_for_some_cycles() -> None:
    """So the others have a majority of their own, whose cut is without the lie."""
    site, chain, _ = lied_to()
    site.receiver.on_token(chain.entries[2].token, site.now)
    assert join_in(site.hear(invite())).heard == (1,)
    site.now = site.receiver.distrusted[3]
    site.member.heard(3, site.now)
    assert 3 in join_in(site.hear(invite(LATER))).heard


def test_a_ring_that_begins_with_a_lie_is_refused_while_one_without_it_may_come() -> None:
    site, chain, ring = lied_to()
    site.hear(invite())
    site.hear(ring)
    refused = site.offer(chain.entries[2].token)
    assert RingSuspected(2, SERVER, Suspicion.STRANDED) in refused
    assert (site.receiver.held, site.receiver.accepted, site.receiver.conflicts) == (2, EPOCH, 1)
    assert 3 not in join_in(site.hear(invite(LATER))).heard


def test_where_there_is_no_majority_without_the_liar_the_market_goes_on_with_the_lie() -> None:
    site, chain, ring = lied_to()
    site.receiver.distrust(3, site.now)
    site.now = site.receiver.distrusted[3]
    site.hear(invite())
    site.hear(ring._replace(start=site.now + MS))
    site.offer(chain.entries[2].token)
    assert (site.receiver.held, site.receiver.accepted) == (3, NEXT_EPOCH)


def test_what_an_honest_site_holds_is_taken_though_its_owner_lied() -> None:
    """A site that took a checkpoint over knows of no commitments; what it holds may be released."""
    site, chain, _ = lied_to()
    site.hear(invite())
    site.hear(following(chain, holders=(1, 3)))
    site.offer(chain.entries[2].token)
    assert (site.receiver.held, site.receiver.accepted, site.receiver.conflicts) == (3, NEXT_EPOCH, 1)


def test_an_owner_is_not_distrusted_for_ever() -> None:
    site, chain, ring = lied_to()
    site.hear(invite())
    site.hear(ring)
    site.offer(chain.entries[2].token)
    until = site.receiver.distrusted[3]
    site.now += MS
    again = following(chain, holders=(3,), epoch=LATER)
    site.hear(again)
    site.offer(chain.entries[2].token)
    assert site.receiver.distrusted[3] == until
    assert site.receiver.accepted == EPOCH
