"""The groups that a primary receiver speaks for: its own, those of sites off the ring, and orphans."""

from __future__ import annotations

from tests.hierarchy.layer_makers import DELAY, LAYERED, due, give, said
from tests.ring.makers import EPOCH, MS, NEXT_EPOCH, Chain, T, blank, following, founding, secret

from isocast.hierarchy.headship import GroupPlan, Headship
from isocast.ring.effects import (
    Effect,
    GroupLeft,
    HeadshipAssumed,
    SecondaryHandedBack,
    SecondaryReturned,
    SecondaryStalled,
    Unicast,
)
from isocast.ring.receiver import Receiver
from isocast.terms.ids import NodeId
from isocast.wire.packets import NO_LIMIT, NewRing, SecondaryToken

PLAN = GroupPlan.below({4: 1, 5: 1, 6: 2, 40: 4, 41: 4}, {4: 2, 5: 2, 6: 3, 40: 1, 41: 1})
"""Sites 4 and 5 below 1, 6 below 2, and 40 and 41 below 4."""
LAG = -(-(DELAY + LAYERED.timing.late_ns) // LAYERED.timing.token_period_ns)


def site(number: NodeId, chain: Chain) -> tuple[Receiver, Headship]:
    machine = Receiver(number, LAYERED, secret(number), blank(founding().universe))
    now = chain.entries[-1].token.instant if chain.entries else T(1) - MS
    machine.install(chain.ring, 0, tuple(chain.entries), now)
    machine.take(now)
    return machine, Headship(machine, PLAN, LAYERED.stall_tokens)


def settle(machine: Receiver, headship: Headship, now: int) -> list[Effect]:
    headship.settle(now)
    effects: list[Effect] = [effect for effect in machine.flush() if not isinstance(effect, Unicast)]
    return effects


def without(chain: Chain, *gone: NodeId) -> NewRing:
    """The ring that follows without some sites."""
    new = following(chain)
    kept = [place for place, member in enumerate(new.ring) if member not in gone]
    return new._replace(
        ring=tuple([new.ring[place] for place in kept]), commits=tuple([new.commits[place] for place in kept])
    )


def enter(machine: Receiver, ring: NewRing, now: int) -> None:
    machine.install(ring, machine.held, (), now)
    machine.flush()


# Assigned


def test_a_site_heads_its_own_group_on_a_whole_ring_and_nothing_without_a_ring() -> None:
    machine, headship = site(1, Chain().grow(3))
    assert settle(machine, headship, due(1)) == [HeadshipAssumed(EPOCH, 1, anew=True)]
    assert [group.members for group in headship.snapshot()] == [(1, 4, 5)]
    fresh = Headship(Receiver(1, LAYERED, secret(1), blank()), PLAN, 4)
    fresh.settle(T(1))
    assert (fresh.snapshot(), fresh.floor, fresh.next_deadline() > T(99)) == ((), NO_LIMIT, True)


def test_the_backup_heads_the_group_of_a_site_that_is_off_the_ring_beside_its_own() -> None:
    chain = Chain().grow(3)
    machine, headship = site(2, chain)
    settle(machine, headship, due(1))
    enter(machine, without(chain, 1), T(4))
    effects = settle(machine, headship, T(4))
    assert effects == [HeadshipAssumed(NEXT_EPOCH, 2, anew=False), HeadshipAssumed(NEXT_EPOCH, 1, anew=True)]
    assert [(group.group, group.members) for group in headship.snapshot()] == [(2, (2, 6)), (1, (2, 4, 5))]


def test_what_it_reports_is_the_least_of_all_its_groups() -> None:
    chain = Chain().grow(3)
    machine, headship = site(2, chain)
    new = without(chain, 1)
    enter(machine, new, T(4))
    chain = chain.enter(new).grow(8)
    give(machine, chain)
    now = chain.entries[-1].token.instant + DELAY
    for sender, number, group in ((6, 11, 2), (4, 10, 1)):
        headship.on_token(said(sender, number, chain, group), now)
    settle(machine, headship, now)
    assert headship.floor == 0, "site 5 of the adopted group has said nothing in this epoch"
    headship.on_token(said(5, 8, chain, 1), now)
    settle(machine, headship, now)
    assert headship.floor == 8


def test_the_group_is_handed_back_when_its_head_is_on_the_ring_again() -> None:
    chain = Chain().grow(3)
    machine, headship = site(2, chain)
    enter(machine, without(chain, 1), T(4))
    settle(machine, headship, T(4))
    newest = NEXT_EPOCH._replace(number=9)
    back = following(chain, epoch=newest)._replace(cut_epoch=NEXT_EPOCH)
    enter(machine, back, T(4))
    effects = settle(machine, headship, T(4))
    assert effects == [GroupLeft(newest, 1, 1), HeadshipAssumed(newest, 2, anew=False)]
    assert [group.group for group in headship.snapshot()] == [2]


def test_a_site_off_the_ring_heads_nothing() -> None:
    chain = Chain().grow(3)
    machine, headship = site(1, chain)
    settle(machine, headship, due(1))
    enter(machine, without(chain, 1), T(4))
    assert settle(machine, headship, T(4)) == [GroupLeft(NEXT_EPOCH, 1, 2)]
    assert headship.floor == NO_LIMIT


# Orphans


def orphaned(tokens: int = 40) -> tuple[Receiver, Headship, Chain]:
    """Site 3, which heads nothing, after so many tokens."""
    chain = Chain()
    machine, headship = site(3, chain)
    settle(machine, headship, T(1))
    chain.grow(tokens)
    give(machine, chain)
    settle(machine, headship, due(tokens))
    return machine, headship, chain


def farewell(sender: NodeId, group: NodeId) -> SecondaryToken:
    return SecondaryToken(0, EPOCH, sender, group, 0)


def test_whoever_asks_is_counted_at_once_and_named_when_nothing_may_be_dropped_that_it_lacks() -> None:
    """This site set no limit up to its next token: only one that holds so much can be relied on."""
    machine, headship, chain = orphaned()
    assert headship.floor == NO_LIMIT
    headship.on_token(said(40, 37, chain, 4), due(40))
    assert settle(machine, headship, due(40)) == []
    assert (headship.floor, headship.orphans.counted) == (37, (40,))
    headship.on_token(said(40, 41, chain, 4), due(41))
    assert settle(machine, headship, due(41)) == [SecondaryReturned(4, 40, 41)]
    assert headship.floor == 41


def test_one_that_is_far_behind_holds_nobody_up() -> None:
    machine, headship, chain = orphaned()
    headship.on_token(said(40, 10, chain, 4), due(40))
    settle(machine, headship, due(40))
    assert (headship.floor, headship.orphans.counted) == (NO_LIMIT, ())


def test_two_orphans_of_two_groups_are_both_waited_for() -> None:
    machine, headship, chain = orphaned()
    headship.on_token(said(40, 39, chain, 4), due(40))
    headship.on_token(said(6, 38, chain, 2), due(40))
    settle(machine, headship, due(40))
    assert headship.floor == 38


def test_an_orphan_that_falls_silent_is_named_and_waited_for_no_longer() -> None:
    machine, headship, chain = orphaned()
    headship.on_token(said(40, 40, chain, 4), due(40))
    settle(machine, headship, due(40))
    limit = 40 + LAG + 3 + 6
    give(machine, Chain().grow(limit - 1))
    assert settle(machine, headship, due(limit - 1)) == []
    give(machine, Chain().grow(limit))
    assert settle(machine, headship, due(limit)) == [SecondaryStalled(4, 40, 40)]
    assert headship.floor == NO_LIMIT


def test_one_that_says_farewell_is_handed_back() -> None:
    machine, headship, chain = orphaned()
    headship.on_token(said(40, 40, chain, 4), due(40))
    headship.on_token(farewell(40, 4), due(41))
    headship.on_token(farewell(40, 4), due(41))
    assert settle(machine, headship, due(41)) == [SecondaryHandedBack(4, 40)]
    assert headship.floor == NO_LIMIT


def test_strangers_are_nobodys_orphans() -> None:
    machine, headship, chain = orphaned()
    for token in (said(99, 40, chain, 4), said(40, 40, chain, 99), said(5, 40, chain, 4)):
        headship.on_token(token, due(40))
    assert settle(machine, headship, due(40)) == []
    assert headship.floor == NO_LIMIT


def test_an_orphan_of_another_epoch_is_told_of_the_ring_and_not_counted() -> None:
    chain = Chain().grow(3)
    machine, headship = site(3, chain.enter(following(chain)))
    headship.on_token(said(40, 3, chain, 4), T(4))
    [told] = [effect for effect in machine.flush() if isinstance(effect, Unicast)]
    assert (told.to, type(told.packet)) == (40, NewRing)
    assert headship.orphans.groups == {}


def test_orphans_stay_counted_in_an_epoch_that_goes_on_and_must_speak_there() -> None:
    machine, headship, chain = orphaned()
    headship.on_token(said(40, 41, chain, 4), due(40))
    settle(machine, headship, due(40))
    enter(machine, following(chain), T(41))
    settle(machine, headship, T(41))
    assert (headship.orphans.counted, headship.floor) == ((40,), 0)


def test_orphans_come_anew_where_another_epoch_lies_between() -> None:
    machine, headship, chain = orphaned()
    headship.on_token(said(40, 41, chain, 4), due(40))
    newest = NEXT_EPOCH._replace(number=9)
    enter(machine, following(chain, epoch=newest)._replace(cut_epoch=NEXT_EPOCH), T(41))
    settle(machine, headship, T(41))
    assert (headship.orphans.counted, headship.floor) == ((), NO_LIMIT)


def test_a_ring_that_gives_the_group_to_its_adopter_makes_it_its_head() -> None:
    machine, headship, chain = orphaned()
    headship.on_token(said(6, 41, chain, 2), due(40))
    settle(machine, headship, due(40))
    enter(machine, without(chain, 2), T(41))
    assert settle(machine, headship, T(41)) == [HeadshipAssumed(NEXT_EPOCH, 2, anew=True)]
    assert headship.orphans.groups == {}
    assert headship.floor == 0
