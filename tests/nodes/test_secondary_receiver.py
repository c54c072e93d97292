"""A secondary receiver, R_S (§4.1): a follower, its way from ring to ring, and its groups in one site."""

from __future__ import annotations

import pytest
from tests.hierarchy.layer_makers import LAYERED, RETRY_S, due, passed, said
from tests.ring.makers import (
    EPOCH,
    MS,
    NEXT_EPOCH,
    Chain,
    T,
    arrive,
    blank,
    completed,
    following,
    founding,
    message,
    packets,
    receipt,
    secret,
)

from isocast.hierarchy.headship import GroupPlan
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.ring.effects import Multicast, Persist, PromiseMade, Release, RingInstalled, SupportSilent, Unicast
from isocast.ring.inputs import JournalRead, TimerFired
from isocast.ring.receiver import Mode
from isocast.ring.storage import SiteState
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.wire.packets import Invite, Nack, NewRing, Pending, Range, RangeReply, RangeRequest, Repair, SecondaryToken


def site(
    chain: Chain | None = None,
    *,
    number: NodeId = 4,
    state: SiteState | None = None,
    children: tuple[NodeId, ...] = (),
) -> SecondaryReceiver:
    """One of the two secondary receivers of site 1; its backup is site 2."""
    return SecondaryReceiver(
        number,
        LAYERED,
        groups=GroupPlan.below({4: 1, 5: 1} | dict.fromkeys(children, 4), {4: 2, 5: 2} | dict.fromkeys(children, 1)),
        state=state or (chain or Chain()).state(),
        secret=secret(number),
    )


# The contract


def test_a_site_must_know_its_place_in_its_group() -> None:
    with pytest.raises(LocalProtocolError, match="site 6 must be a member of a secondary group"):
        site(number=6)


def test_a_fresh_site_asks_its_parent_for_the_ring_until_it_comes() -> None:
    machine = site(state=blank())
    assert machine.next_deadline() == 0
    ask = Unicast(1, Nack(0, NO_EPOCH, 4, 1, has_token=False, parts_held=0, listed=()))
    assert machine.step(TimerFired(), MS) == (ask,)
    assert machine.next_deadline() == MS + RETRY_S
    assert machine.step(TimerFired(), MS + RETRY_S) == (ask,)
    assert machine.step(TimerFired(), MS + 2 * RETRY_S) == (SupportSilent(1, 1), Unicast(2, ask.packet))
    effects = machine.step(arrive(founding()), 3 * RETRY_S)
    assert Persist(RingInstalled(founding(), 0, ())) in effects
    assert machine.snapshot().receiver.accepted == EPOCH


def test_a_burst_of_messages_is_stored_in_silence() -> None:
    machine = site()
    assert machine.step(arrive(message(1), message(2)), T(1) - MS) == ()
    assert machine.snapshot().receiver.waiting == 2


def test_a_token_is_taken_and_nobody_is_told() -> None:
    entry = Chain().add(message(1))
    assert site().step(arrive(entry.token, message(1)), T(1) + MS) == completed(entry)


def test_it_releases_what_a_majority_of_the_ring_holds() -> None:
    chain = Chain()
    entry = chain.add(message(1))
    machine = site()
    machine.step(arrive(message(1), entry.token, receipt(2, chain), receipt(3, chain)), T(1) + MS)
    assert machine.next_deadline() <= due(1)
    [release] = [effect for effect in machine.step(TimerFired(), due(1)) if isinstance(effect, Release)]
    assert (release.messages, release.due) == ((message(1),), due(1))


def test_an_invitation_is_not_for_it() -> None:
    """Protocol §5: R_P votes. A secondary receiver promises nothing and joins nothing."""
    machine = site()
    assert machine.step(arrive(Invite(0, EPOCH, 65537, NEXT_EPOCH)), T(1)) == ()
    assert machine.snapshot().receiver.promised == EPOCH


def test_it_goes_on_where_its_disk_left_off() -> None:
    chain = Chain().grow(3)
    machine = site(chain, state=chain.state(released=2))
    snapshot = machine.snapshot()
    assert (snapshot.receiver.held, snapshot.receiver.released, snapshot.receiver.accepted) == (3, 2, EPOCH)


def test_the_journals_answer_goes_to_whoever_asked() -> None:
    entry = Chain().add()
    [repair] = packets(site().step(JournalRead(9, (entry,)), T(1)))
    assert repair == Repair(0, EPOCH, 4, entry.token)


def test_answers_of_the_parent_are_heard() -> None:
    """It is alive, whatever it lacks: it is not called silent, and the backup gets its turn."""
    machine = site(Chain())
    asked = []
    for step in range(3):
        now = due(1) + step * RETRY_S
        asked.extend([effect.to for effect in machine.step(TimerFired(), now) if isinstance(effect, Unicast)])
        answers = arrive(Pending(0, EPOCH, 1, 1), RangeReply(0, EPOCH, 1, Range.TOKENS, 1, 0, 1))
        assert machine.step(answers, now + MS) == ()
    assert asked[0] == 1
    assert 2 in asked
    assert machine.snapshot().unanswered == 0


# Rings


def test_a_new_ring_is_installed_at_once_when_nothing_lies_between() -> None:
    chain = Chain().grow(2)
    ring = following(chain)
    machine = site(chain)
    effects = machine.step(arrive(ring), T(3))
    assert Persist(RingInstalled(ring, 2, ())) in effects
    assert not [effect for effect in effects if isinstance(effect, Persist) and isinstance(effect.record, PromiseMade)]
    snapshot = machine.snapshot()
    assert (snapshot.receiver.mode, snapshot.receiver.accepted, snapshot.following) == (Mode.NORMAL, NEXT_EPOCH, None)


def test_what_lies_between_is_fetched_from_the_parent() -> None:
    chain = Chain().grow(2)
    machine = site(chain)
    alive = chain.fork()
    entry = alive.add(message(1))
    ring = following(alive, holders=(2, 3))
    [ask] = machine.step(arrive(ring), T(2))
    assert ask == Unicast(1, RangeRequest(0, NEXT_EPOCH, 4, Range.HEADS, 3, 3))
    assert machine.snapshot().following == NEXT_EPOCH
    [again] = machine.step(arrive(Repair(0, NEXT_EPOCH, 1, entry.token)), T(2) + MS)
    assert isinstance(again, Unicast)
    assert isinstance(again.packet, Nack)
    effects = machine.step(arrive(Repair(0, NEXT_EPOCH, 1, message(1))), T(2) + 2 * MS)
    assert Persist(RingInstalled(ring, 2, (entry,))) in effects


def test_its_log_is_cut_back_to_the_ring_like_everybodys() -> None:
    """Protocol §7: R_S obey NEWRING truncation."""
    chain = Chain().grow(2)
    stale = chain.fork()
    stale.add(message(1))
    machine = site(stale)
    ring = following(chain)
    effects = machine.step(arrive(ring), T(4))
    assert Persist(RingInstalled(ring, 2, ())) in effects
    assert machine.snapshot().receiver.held == 2
    assert machine.snapshot().receiver.waiting == 1


def test_while_it_fetches_it_takes_nothing_of_the_old_ring() -> None:
    chain = Chain().grow(1)
    machine = site(chain)
    alive = chain.fork()
    alive.add(message(1))
    machine.step(arrive(following(alive, holders=(2, 3))), T(2))
    old = chain.fork().grow(1)
    machine.step(arrive(old.entries[-1].token), T(2) + MS)
    assert (machine.snapshot().receiver.held, machine.snapshot().receiver.mode) == (1, Mode.SEALED)


def test_a_silent_parent_is_given_up_for_the_backup_and_then_for_a_holder() -> None:
    chain = Chain().grow(1)
    machine = site(chain)
    ring = following(chain.fork().grow(1), holders=(3,))
    asked = [effect.to for effect in machine.step(arrive(ring), T(2)) if isinstance(effect, Unicast)]
    for step in range(1, 5):
        effects = machine.step(TimerFired(), T(2) + step * RETRY_S)
        asked.extend([effect.to for effect in effects if isinstance(effect, Unicast)])
    assert asked == [1, 1, 2, 2, 3]


def test_a_newer_ring_replaces_the_one_that_it_works_towards() -> None:
    chain = Chain().grow(1)
    machine = site(chain)
    machine.step(arrive(following(chain.fork().grow(1), holders=(3,))), T(2))
    newest = NEXT_EPOCH._replace(number=9)
    effects = machine.step(arrive(following(chain, epoch=newest), following(chain)), T(2) + MS)
    [installed] = [effect.record for effect in effects if isinstance(effect, Persist)]
    assert isinstance(installed, RingInstalled)
    assert installed.ring.ballot == newest
    assert machine.snapshot().receiver.accepted == newest


def test_a_ring_that_it_is_on_already_is_nothing_new() -> None:
    assert site().step(arrive(founding()), T(1)) == ()


def test_a_clock_that_was_set_back_does_not_stop_its_questions() -> None:
    machine = site(state=blank())
    machine.step(TimerFired(), T(9))
    [ask] = machine.step(TimerFired(), T(1))
    assert isinstance(ask, Unicast)


# Groups


def test_it_passes_its_secondary_token_when_it_is_due() -> None:
    chain = Chain().grow(1)
    machine = site(chain)
    machine.step(TimerFired(), T(1) + MS)
    assert machine.next_deadline() <= due(1)
    assert passed(machine.step(TimerFired(), due(1))) == [(1, 1), (5, 1)]


def test_it_hears_the_others_of_its_group_and_no_other_group() -> None:
    chain = Chain().grow(3)
    machine = site(chain)
    machine.step(arrive(said(5, 2, chain), said(1, 3, chain), said(9, 3, chain, group=8)), due(3))
    assert machine.snapshot().group.floor == 1
    assert machine.snapshot().group.passed == ((1, 3), (4, 1), (5, 2))
    assert machine.snapshot().below is None


def test_with_three_layers_it_heads_a_group_and_speaks_for_it() -> None:
    chain = Chain().grow(8)
    machine = site(chain, children=(9, 10))
    own = machine.step(TimerFired(), due(8))
    assert passed(own) == [(9, 6), (10, 6)]
    assert not [packet for packet in packets(own) if isinstance(packet, SecondaryToken) and packet.group == 1]
    effects = machine.step(arrive(said(9, 4, chain, group=4), said(10, 5, chain, group=4)), due(8))
    assert passed(effects) == [(1, 4), (5, 4)]
    below = machine.snapshot().below
    assert below is not None
    assert (below.group, below.members, below.floor) == (4, (4, 9, 10), 4)


def test_a_leaf_is_given_up_before_those_above_it_are() -> None:
    machine = site(children=(9, 10))
    assert machine.below is not None
    chain = Chain().grow(LAYERED.stall_tokens * 5)
    for entry in chain.entries:
        machine.step(arrive(entry.token), entry.token.instant)
    assert machine.below.snapshot().stalled == (9, 10)


def test_it_never_multicasts() -> None:
    chain = Chain().grow(3)
    machine = site(children=(9, 10))
    effects = [effect for entry in chain.entries for effect in machine.step(arrive(entry.token), entry.token.instant)]
    while machine.next_deadline() < due(6):
        effects.extend(machine.step(TimerFired(), machine.next_deadline()))
    assert not [effect for effect in effects if isinstance(effect, Multicast)]


def test_it_tells_a_stale_child_of_the_ring() -> None:
    chain = Chain().grow(1)
    machine = site(chain.enter(following(chain)), children=(9,))
    nack = Nack(0, EPOCH, 9, 1, has_token=False, parts_held=0, listed=())
    [answer] = [effect for effect in machine.step(arrive(nack), T(2)) if isinstance(effect, Unicast)]
    assert (answer.to, type(answer.packet)) == (9, NewRing)
