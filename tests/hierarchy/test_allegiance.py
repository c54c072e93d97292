"""Whom a secondary receiver belongs to: by the ring at once, and by silence where rings say nothing."""

from __future__ import annotations

import pytest
from tests.hierarchy.layer_makers import LAYERED, due, passed, said
from tests.ring.makers import MS, NEXT_EPOCH, Chain, T, arrive, following, secret

from isocast.hierarchy.headship import GroupPlan
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.ring.effects import Effect, HeadSwitched, Unicast
from isocast.ring.inputs import TimerFired
from isocast.terms.ids import NodeId
from isocast.wire.packets import NewRing, Range, RangeRequest

PLAN = GroupPlan.below({4: 1, 5: 1, 40: 4, 41: 4}, {4: 2, 5: 2, 40: 1, 41: 1})
"""4 and 5 below 1 of the ring (1, 2, 3), and 40 and 41 below 4."""
LEAD = 2 + 3 + 6
"""Tokens until a head is silent in a group of three: two on their way, one cycle, and two cycles of patience."""


def site(number: NodeId, chain: Chain) -> SecondaryReceiver:
    return SecondaryReceiver(number, LAYERED, groups=PLAN, state=chain.state(), secret=secret(number))


def without(chain: Chain, gone: NodeId) -> NewRing:
    new = following(chain)._replace(holders=(2, 3))
    kept = [place for place, member in enumerate(new.ring) if member != gone]
    members = tuple([new.ring[place] for place in kept])
    return new._replace(ring=members, commits=tuple([new.commits[place] for place in kept]))


def changes(effects: tuple[Effect, ...] | list[Effect]) -> list[HeadSwitched]:
    return [effect for effect in effects if isinstance(effect, HeadSwitched)]


def live(machine: SecondaryReceiver, chain: Chain, first: int, last: int, *heard: NodeId) -> list[Effect]:
    """Tokens come and secondary tokens pass; every cycle those who are heard say that they hold everything."""
    effects: list[Effect] = []
    for entry in chain.entries[first - 1 : last]:
        number = entry.token.token_number
        effects.extend(machine.step(arrive(entry.token), entry.token.instant))
        group = machine.group.group
        words = [said(sender, number, chain, group) for sender in heard]
        effects.extend(machine.step(arrive(*words), due(number)))
    return effects


# By a ring


def test_a_new_head_is_asked_at_once_for_what_lies_before_its_ring() -> None:
    """Nobody has to be silent k_r times: NEWRING says that site 1 is off the ring, and site 2 is the backup."""
    chain = Chain().grow(2)
    machine = site(4, chain)
    alive = chain.fork()
    alive.grow(1)
    effects = machine.step(arrive(without(alive, 1)), T(3))
    [ask] = [effect for effect in effects if isinstance(effect, Unicast)]
    assert ask == Unicast(2, RangeRequest(0, NEXT_EPOCH, 4, Range.HEADS, 3, 3))
    assert changes(effects) == [HeadSwitched(1, 2, silent=False)]
    snapshot = machine.snapshot()
    assert (snapshot.head, snapshot.asked, snapshot.group.members, snapshot.group.group) == (2, 2, (2, 4, 5), 1)
    assert snapshot.unanswered == 0


def test_its_tokens_go_to_the_new_head_and_are_heard_from_there() -> None:
    chain = Chain().grow(2)
    machine = site(5, chain)
    new = without(chain, 1)
    machine.step(arrive(new), T(3))
    chain = chain.enter(new).grow(4)
    now = chain.entries[-1].token.instant
    machine.step(arrive(*[entry.token for entry in chain.entries[2:]]), now)
    effects = machine.step(arrive(said(2, 3, chain), said(1, 3, chain)), now + 300 * MS)
    assert passed(effects) == [(2, 5), (4, 5)]
    assert machine.group.conflicts == 1, "site 1 heads nothing on this ring"


def test_it_returns_to_its_own_head_with_the_ring_that_has_it_again() -> None:
    chain = Chain().grow(2)
    machine = site(4, chain)
    machine.step(arrive(without(chain, 1)), T(3))
    newest = NEXT_EPOCH._replace(number=9)
    effects = machine.step(arrive(following(chain, epoch=newest)), T(3) + MS)
    assert changes(effects) == [HeadSwitched(1, 1, silent=False)]
    assert (machine.snapshot().head, machine.snapshot().asked) == (1, 1)


def test_a_restart_knows_the_head_from_the_ring_on_its_disk() -> None:
    chain = Chain().grow(2)
    machine = site(4, chain.enter(without(chain, 1)))
    assert machine.snapshot().head == 2
    assert changes(machine.step(TimerFired(), T(3))) == [HeadSwitched(1, 2, silent=False)]


def test_a_ring_says_nothing_of_a_secondary_head() -> None:
    chain = Chain().grow(2)
    machine = site(40, chain)
    assert changes(machine.step(arrive(without(chain, 1)), T(3))) == []
    assert machine.snapshot().head == 4


# By silence


def test_a_silent_heads_member_turns_to_the_head_above_it() -> None:
    chain = Chain().grow(40)
    machine = site(40, Chain())
    before = live(machine, chain, 1, LEAD - 1, 41)
    assert changes(before) == []
    effects = live(machine, chain, LEAD, LEAD + 3, 41)
    assert changes(effects) == [HeadSwitched(4, 1, silent=True)]
    assert {to for to, _ in passed(effects)} == {1, 4, 41}
    assert (machine.snapshot().head, machine.snapshot().asked) == (1, 1)


def test_below_the_ring_a_silent_head_is_left_for_whoever_would_come_next() -> None:
    chain = Chain().grow(40)
    machine = site(4, Chain())
    machine.below = None
    effects = live(machine, chain, 1, LEAD + 3, 5)
    assert changes(effects) == [HeadSwitched(1, 2, silent=True)]


@pytest.mark.parametrize("gone", [1, 2])
def test_a_new_ring_moves_an_orphan_to_whoever_heads_its_head_there(gone: NodeId) -> None:
    chain = Chain().grow(LEAD + 1)
    machine = site(40, Chain())
    live(machine, chain, 1, LEAD + 1, 41)
    assert machine.snapshot().head == 1
    effects = machine.step(arrive(without(chain, gone)), chain.entries[-1].token.instant + 500 * MS)
    assert changes(effects) == ([HeadSwitched(4, 2, silent=True)] if gone == 1 else [])


def farewells(effects: list[Effect]) -> list[NodeId]:
    return [to for to, number in passed(effects) if number == 0]


def test_a_head_that_is_heard_again_is_asked_at_once_and_its_stand_in_told_after_two_cycles() -> None:
    chain = Chain().grow(40)
    machine = site(40, Chain())
    live(machine, chain, 1, 20, 41)
    effects = live(machine, chain, 21, 26, 4, 41)
    assert changes(effects) == [HeadSwitched(4, 4, silent=False)]
    assert machine.snapshot().asked == 4
    assert 1 in {to for to, _ in passed(effects)}, "both are told for two cycles"
    assert farewells(effects) == []
    effects = live(machine, chain, 27, 40, 4, 41)
    assert farewells(effects) == [1, 1]
    assert {to for to, number in passed(effects) if number > 27} == {4, 41}


def test_a_head_that_falls_silent_again_keeps_the_stand_in() -> None:
    chain = Chain().grow(60)
    machine = site(40, Chain())
    live(machine, chain, 1, 20, 41)
    live(machine, chain, 21, 22, 4, 41)
    effects = live(machine, chain, 23, 50, 41)
    assert changes(effects) == [HeadSwitched(4, 1, silent=True)]
    assert machine.group.adopter == 1
