"""A secondary ring (§4.1; protocol §7): who passes which token when, and what follows from hearing it."""

from __future__ import annotations

from tests.hierarchy.layer_makers import DELAY, FAMILY, LAYERED, due, follower, give, head, passed, said
from tests.ring.makers import EPOCH, MS, NEXT_EPOCH, Chain, T, following

from isocast.hierarchy.secondary_ring import SecondaryRing
from isocast.ring.effects import Effect, HeadshipAssumed, SecondaryReturned, SecondaryStalled, Unicast
from isocast.ring.receiver import Mode, Receiver
from isocast.terms.instants import NEVER
from isocast.wire.packets import NO_LIMIT, Nack, NewRing

LAG = -(-(DELAY + LAYERED.timing.late_ns) // LAYERED.timing.token_period_ns)
"""Tokens until a secondary token should have arrived: two."""
G = 2 * len(FAMILY)
"""Twice the group, since the setting is less."""


def ring_of(machine: Receiver, below: int = NO_LIMIT) -> SecondaryRing:
    return SecondaryRing(machine, 1, FAMILY, LAYERED.stall_tokens, lambda: below)


def settle(ring: SecondaryRing, machine: Receiver, now: int) -> list[Effect]:
    ring.settle(now)
    return list(machine.flush())


def headed(tokens: int) -> tuple[Receiver, SecondaryRing, Chain]:
    """Site 1 that holds so many tokens, and its group."""
    chain = Chain().grow(tokens)
    machine = head(chain)
    machine.flush()
    return machine, ring_of(machine), chain


def hear(ring: SecondaryRing, chain: Chain, *tokens: int) -> None:
    """Let the owners of these secondary tokens pass them."""
    for number in tokens:
        ring.on_token(said(FAMILY[number % 3], number, chain), due(number))


# Passing


def test_a_token_passes_at_its_release_from_its_owner_to_all_others() -> None:
    """Protocol §7: SECTOKEN v, due at T_v+Δ_A; (1, 4, 5)[1 mod 3] is site 4."""
    machine = follower()
    ring = ring_of(machine)
    give(machine, Chain().grow(2))
    assert passed(settle(ring, machine, due(1) - 1)) == []
    assert ring.next_deadline() == due(1)
    assert passed(settle(ring, machine, due(1))) == [(1, 1), (5, 1)]
    assert passed(settle(ring, machine, due(1))) == []


def test_each_member_passes_every_bth_token() -> None:
    machine = follower()
    ring = ring_of(machine)
    give(machine, Chain().grow(8))
    seen = [number for step in range(1, 9) for _, number in passed(settle(ring, machine, due(step)))]
    assert seen == [1, 1, 4, 4, 7, 7]


def test_a_token_does_not_pass_until_the_site_holds_as_much() -> None:
    """§4.1: "an R_S does not pass the token until it has the acknowledgements and source messages up to that token
    number"."""
    machine = follower()
    ring = ring_of(machine)
    assert passed(settle(ring, machine, due(1))) == []
    assert ring.next_deadline() == NEVER
    give(machine, Chain().grow(1))
    assert passed(settle(ring, machine, due(1) + 5 * MS)) == [(1, 1), (5, 1)]


def test_one_that_is_late_passes_the_newest_that_it_may() -> None:
    machine = follower()
    ring = ring_of(machine)
    give(machine, Chain().grow(5))
    assert passed(settle(ring, machine, due(9))) == [(1, 4), (5, 4)]


def test_what_is_below_must_hold_it_too() -> None:
    """Three layers: a token speaks for everybody below its sender."""
    machine = follower()
    give(machine, Chain().grow(8))
    below = {"floor": 3}
    ring = SecondaryRing(machine, 1, FAMILY, 4, lambda: below["floor"])
    assert passed(settle(ring, machine, due(8))) == [(1, 1), (5, 1)]
    below["floor"] = 6
    assert passed(settle(ring, machine, due(8))) == [(1, 4), (5, 4)]


def test_before_a_ring_nothing_passes() -> None:
    machine = follower()
    machine.schedule = None
    ring = ring_of(machine)
    assert settle(ring, machine, due(1)) == []
    assert ring.next_deadline() == NEVER


def test_a_site_that_follows_a_newer_ring_passes_nothing_of_the_old() -> None:
    machine = follower()
    ring = ring_of(machine)
    give(machine, Chain().grow(1))
    machine.follow(NEXT_EPOCH)
    assert settle(ring, machine, due(1)) == []
    assert ring.next_deadline() == NEVER


# Inference


def test_a_site_that_hears_v_knows_that_all_hold_v_less_b_plus_1() -> None:
    """§4.1: "A site that receives a secondary token can make the same inferences ..."; protocol §7: ≤ v-b+1."""
    machine, ring, chain = headed(9)
    for number in range(1, 10):
        hear(ring, chain, *([] if number % 3 == 0 else [number]))
        settle(ring, machine, due(number))
        assert ring.floor == (number - 3 + 1 if number >= 3 else 0)


def test_every_member_can_infer_and_not_the_head_alone() -> None:
    machine = follower()
    ring = ring_of(machine)
    chain = Chain().grow(5)
    give(machine, chain)
    hear(ring, chain, 2, 3)
    settle(ring, machine, due(4))
    assert ring.floor == 2


def test_a_lost_token_delays_the_inference_by_a_cycle_and_no_longer() -> None:
    machine, ring, chain = headed(9)
    hear(ring, chain, 1, 2, 5)
    settle(ring, machine, due(6))
    assert ring.floor == 1
    hear(ring, chain, 7)
    settle(ring, machine, due(7))
    assert ring.floor == 5


def test_tokens_that_overtake_each_other_do_not_turn_the_inference_back() -> None:
    machine, ring, chain = headed(9)
    hear(ring, chain, 4, 5, 1, 2)
    settle(ring, machine, due(6))
    assert ring.floor == 4


def test_nobody_speaks_for_another() -> None:
    machine, ring, chain = headed(6)
    ring.on_token(said(5, 1, chain), due(1))
    ring.on_token(said(9, 2, chain), due(2))
    settle(ring, machine, due(3))
    assert (ring.conflicts, ring.floor) == (1, 0)
    assert ring.snapshot().passed == ((1, 3), (5, 1))


# Epochs


def test_a_new_epoch_starts_the_count_anew() -> None:
    machine, ring, chain = headed(6)
    hear(ring, chain, 4, 5)
    settle(ring, machine, due(6))
    assert ring.floor == 4
    new = following(chain)
    machine.install(new, 6, (), T(7))
    machine.flush()
    settle(ring, machine, T(7))
    assert ring.floor == 0
    ring.on_token(said(4, 7, chain.enter(new)), due(9))
    ring.on_token(said(5, 8, chain.enter(new)), due(9))
    settle(ring, machine, due(9))
    assert ring.floor == 0, "the head itself has not passed a token of the new epoch"


def test_a_stale_member_is_told_of_the_ring_and_counts_for_nothing() -> None:
    chain = Chain().grow(3)
    new = following(chain)
    machine = head(chain.enter(new))
    machine.flush()
    ring = ring_of(machine)
    ring.on_token(said(4, 4, chain), T(4))
    [effect] = machine.flush()
    assert isinstance(effect, Unicast)
    assert (effect.to, type(effect.packet)) == (4, NewRing)
    assert ring.snapshot().passed == ()


def test_a_member_that_is_ahead_is_asked_for_its_ring() -> None:
    machine, ring, chain = headed(3)
    ring.on_token(said(4, 4, chain.enter(following(chain))), T(4))
    [effect] = machine.flush()
    assert isinstance(effect, Unicast)
    assert (effect.to, type(effect.packet)) == (4, Nack)


# Stalls


def stalled_at(tokens: int, *heard: int) -> list[Effect]:
    machine, ring, chain = headed(tokens)
    hear(ring, chain, *heard)
    effects = settle(ring, machine, due(tokens))
    return [effect for effect in effects if isinstance(effect, SecondaryStalled)]


def grown(tokens: int) -> tuple[Receiver, SecondaryRing, Chain]:
    """A head that was there from the first token on."""
    chain = Chain().grow(tokens)
    machine = head()
    machine.flush()
    ring = ring_of(machine)
    settle(ring, machine, T(1))
    give(machine, chain)
    return machine, ring, chain


def test_a_member_that_is_overdue_by_g_tokens_is_named_and_waited_for_no_longer() -> None:
    """Protocol §6: "a secondary group stalled for G tokens leaves the minimum"."""
    limit = LAG + 3 + G
    machine, ring, chain = grown(limit + 2)
    hear(ring, chain, *[number for number in range(1, limit) if number % 3 == 1], 2)
    effects = settle(ring, machine, due(limit + 1))
    assert [effect for effect in effects if isinstance(effect, SecondaryStalled)] == [SecondaryStalled(1, 5, 2)]
    assert ring.snapshot().stalled == (5,)
    assert ring.floor == 10
    assert settle(ring, machine, due(limit + 1)) == []


def test_it_is_not_named_a_token_earlier() -> None:
    limit = LAG + 3 + G
    machine, ring, chain = grown(limit + 1)
    hear(ring, chain, *[number for number in range(1, limit) if number % 3 == 1], 2)
    settle(ring, machine, due(limit + 1))
    assert ring.snapshot().stalled == ()
    assert ring.floor == 2


def test_a_restarted_head_waits_for_everybody_anew() -> None:
    assert stalled_at(100) == []


def test_a_head_that_was_away_blames_nobody_for_it() -> None:
    """It catches up by ranges, and its children passed their tokens while it did not hear."""
    machine = head()
    ring = ring_of(machine)
    settle(ring, machine, T(1))
    machine.take(T(40))
    assert machine.mode is Mode.CATCHUP
    give(machine, Chain().grow(40))
    assert not [effect for effect in settle(ring, machine, T(40)) if isinstance(effect, SecondaryStalled)]
    assert ring.floor == 0


def test_a_site_that_gets_all_it_missed_in_one_step_blames_nobody_either() -> None:
    machine = head()
    ring = ring_of(machine)
    settle(ring, machine, T(1))
    machine.take(T(40))
    settle(ring, machine, T(40))
    assert machine.mode is Mode.CATCHUP
    give(machine, Chain().grow(40))
    machine.take(T(40) + MS)
    assert (machine.mode, machine.held) == (Mode.NORMAL, 40)
    assert not [effect for effect in settle(ring, machine, T(40) + MS) if isinstance(effect, SecondaryStalled)]


def test_a_group_that_stalls_altogether_sets_no_limit() -> None:
    machine, ring, _ = grown(40)
    effects = settle(ring, machine, due(40))
    assert [effect.member for effect in effects if isinstance(effect, SecondaryStalled)] == [4, 5]
    assert ring.floor == NO_LIMIT


def test_a_member_below_names_nobody() -> None:
    machine = follower()
    ring = ring_of(machine)
    settle(ring, machine, T(1))
    give(machine, Chain().grow(40))
    assert not [effect for effect in settle(ring, machine, due(40)) if isinstance(effect, SecondaryStalled)]


def returned(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, SecondaryReturned)]


def test_one_that_returns_counts_when_it_holds_all_that_may_have_been_dropped() -> None:
    machine, ring, chain = grown(40)
    hear(ring, chain, *[number for number in range(1, 40) if number % 3 == 1])
    settle(ring, machine, due(40))
    assert (ring.snapshot().stalled, ring.floor) == ((5,), 37)
    hear(ring, chain, 20)
    assert not returned(settle(ring, machine, due(40)))
    assert (ring.snapshot().stalled, ring.floor) == ((5,), 37), "it is still catching up"
    hear(ring, chain, 38)
    assert returned(settle(ring, machine, due(40))) == [SecondaryReturned(1, 5, 38)]
    assert (ring.snapshot().stalled, ring.floor) == ((), 37)


def test_after_no_limit_one_that_is_in_time_again_limits_at_once_and_is_back_later() -> None:
    """Others may drop up to the head's newest token on its word, until its next token takes the word back."""
    machine, ring, chain = grown(40)
    settle(ring, machine, due(40))
    assert ring.floor == NO_LIMIT
    hear(ring, chain, 37)
    assert not returned(settle(ring, machine, due(40)))
    assert (ring.snapshot().stalled, ring.floor) == ((4, 5), 37)
    give(machine, Chain().grow(46))
    hear(ring, chain, 40)
    assert not [effect for effect in settle(ring, machine, due(44)) if isinstance(effect, SecondaryReturned)]
    hear(ring, chain, 43)
    assert SecondaryReturned(1, 4, 43) in settle(ring, machine, due(44))


def test_one_that_stalls_again_while_it_returns_is_waited_for_no_longer() -> None:
    machine, ring, chain = grown(40)
    settle(ring, machine, due(40))
    hear(ring, chain, 37)
    settle(ring, machine, due(40))
    give(machine, Chain().grow(60))
    assert settle(ring, machine, due(60))
    assert ring.floor == NO_LIMIT


def test_who_had_stalled_comes_back_by_itself_in_a_new_epoch() -> None:
    machine, ring, chain = grown(40)
    settle(ring, machine, due(40))
    new = following(chain)
    machine.install(new, 40, (), T(41))
    machine.flush()
    settle(ring, machine, T(41))
    assert ring.snapshot().stalled == (4, 5)
    assert ring.floor == NO_LIMIT


def test_one_lost_token_is_no_stall_however_small_g_is() -> None:
    machine = head()
    ring = SecondaryRing(machine, 1, FAMILY, 1)
    settle(ring, machine, T(1))
    chain = Chain().grow(10)
    give(machine, chain)
    hear(ring, chain, 4, 2)
    settle(ring, machine, due(7))
    assert ring.snapshot().stalled == ()


# A ring that re-forms on its own


def test_the_round_skips_whoever_has_stalled() -> None:
    """Head and 4 pass every other token when 5 is silent, not every third: the inference loses nothing."""
    machine, ring, chain = grown(40)
    hear(ring, chain, *[number for number in range(1, 40) if number % 3 == 1])
    settle(ring, machine, due(40))
    assert (ring.snapshot().stalled, list(ring.order())) == ((5,), [1, 4])
    give(machine, Chain().grow(44))
    seen = [number for step in range(41, 45) for _, number in passed(settle(ring, machine, due(step)))]
    assert seen == [40, 40, 42, 42, 44, 44], "to both others: the silent one may be coming back"
    ring.on_token(said(4, 43, chain), due(44))
    settle(ring, machine, due(44))
    assert ring.floor == 43


def test_a_member_skips_its_siblings_and_its_head_too_and_takes_them_back() -> None:
    machine = follower()
    ring = ring_of(machine)
    settle(ring, machine, T(1))
    chain = Chain().grow(40)
    give(machine, chain)
    settle(ring, machine, due(40))
    assert (list(ring.order()), ring.head_silent) == ([4], True)
    hear(ring, chain, 39)
    settle(ring, machine, due(40))
    assert (list(ring.order()), ring.head_silent) == ([1, 4], False)


def test_a_head_is_missed_before_its_siblings_are() -> None:
    """Patience for the head is G/4 and two cycles at least: its own head still waits for it then."""
    machine = follower()
    ring = SecondaryRing(machine, 1, FAMILY, 64)
    settle(ring, machine, T(1))
    silent = LAG + 3 + 16
    give(machine, Chain().grow(silent - 1))
    settle(ring, machine, due(silent))
    assert not ring.head_silent
    give(machine, Chain().grow(silent))
    settle(ring, machine, due(silent))
    assert (ring.head_silent, ring.snapshot().stalled) == (True, (1,))


def headings(effects: list[Effect]) -> list[HeadshipAssumed]:
    return [effect for effect in effects if isinstance(effect, HeadshipAssumed)]


def test_a_head_says_in_each_epoch_whether_it_counts_everybody_anew() -> None:
    machine, ring, chain = headed(40)
    assert headings(settle(ring, machine, due(40))) == [HeadshipAssumed(EPOCH, 1, anew=True)]
    ring.tally.stall(5)
    new = following(chain)
    machine.install(new, 40, (), T(41))
    machine.flush()
    assert headings(settle(ring, machine, T(41))) == [HeadshipAssumed(NEXT_EPOCH, 1, anew=False)]
    assert ring.snapshot().stalled == (5,)


def test_a_head_that_missed_an_epoch_counts_everybody_anew() -> None:
    """Another headed the group meanwhile, and may have counted whom this one had given up."""
    machine, ring, chain = headed(40)
    settle(ring, machine, due(40))
    ring.tally.stall(5)
    between = NEXT_EPOCH._replace(number=9)
    machine.install(following(chain, epoch=between)._replace(cut_epoch=NEXT_EPOCH), 40, (), T(41))
    machine.flush()
    assert headings(settle(ring, machine, T(41))) == [HeadshipAssumed(between, 1, anew=True)]
    assert ring.snapshot().stalled == ()
    assert ring.floor == 0


def test_a_member_hears_another_head_when_a_ring_gives_it_one() -> None:
    machine = follower()
    ring = ring_of(machine)
    chain = Chain().grow(3)
    give(machine, chain)
    ring.lead_by(2)
    ring.on_token(said(1, 3, chain), due(3))
    ring.on_token(said(2, 3, chain), due(3))
    assert passed(settle(ring, machine, due(3))) == [(2, 1), (5, 1)]
    assert (ring.conflicts, ring.snapshot().passed) == (1, ((2, 3), (4, 1)))
    assert ring.group == 1
