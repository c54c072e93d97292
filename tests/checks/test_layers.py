"""S6, S7, S8 and S10 below the ring: secondary receivers are relied on until their head gives them up and says so."""

from dataclasses import replace

import pytest
from tests.checks.traces import (
    E1,
    E2,
    LAW,
    MS,
    R1,
    SITES,
    TOKENS,
    broken,
    changed,
    completed,
    in_order,
    installed,
    instant,
    judge,
    message,
    quiet_end,
    quiet_run,
    release_at,
    released,
    restarted,
    ring,
    texts,
    unsafe,
    until,
)

from isocast.checks.facts import (
    Collected,
    Fact,
    GroupHeaded,
    HandedBack,
    Law,
    Promised,
    ReceiptSent,
    Returned,
    SecondaryTokenPassed,
    StabilityClaimed,
    Stalled,
    Unanswered,
)
from isocast.checks.suite import ReceiverTree
from isocast.checks.view import EpochView
from isocast.terms.ids import Epoch
from isocast.terms.instants import SECOND
from isocast.wire.packets import NO_LIMIT

PARENTS = {4: 1, 5: 1, 6: 2, 7: 4, 8: 4}
"""Three layers below site 1, two below site 2, one below site 3."""
LAYERED = replace(LAW, parents=PARENTS)
AT = instant(4) + 30 * MS
"""Everybody holds token 4, the secondary receivers too."""


def headed(epoch: Epoch = E1, *, anew: bool = True, **heads: int) -> list[Fact]:
    """Everybody heads its own group, unless another does: `of1=2`."""
    groups = dict.fromkeys(PARENTS.values())
    at = instant(1) - MS
    return [GroupHeaded(at, heads.get(f"of{group}", group), epoch, group, anew) for group in groups]


def layered_run(*, until_token: int = 4, but: dict[int, int] | None = None) -> list[Fact]:
    """The quiet run with secondary receivers that complete a token 5 ms later; `but` says who holds less."""
    facts: list[Fact] = list(until(quiet_run(), AT))
    facts.extend(headed())
    for site in PARENTS:
        facts.append(installed(site))
        last = (but or {}).get(site, until_token)
        facts.extend([completed(site, number, at=instant(number) + 25 * MS) for number in range(1, last + 1)])
    return in_order(facts)


def judged(*more: Fact, but: dict[int, int] | None = None, law: Law = LAYERED) -> list[str]:
    return unsafe([*layered_run(but=but), *more], law)


def claim(stable: int = 0, secstable: int = 0, site: int = 1, at: int = AT) -> StabilityClaimed:
    return StabilityClaimed(at, site, E1, 4, stable, secstable)


def passed(site: int, number: int, group: int) -> SecondaryTokenPassed:
    return SecondaryTokenPassed(AT, site, E1, group, number)


# Who is relied on


def coverage(*stalled: int) -> ReceiverTree:
    found = ReceiverTree(PARENTS)
    for fact in headed():
        assert isinstance(fact, GroupHeaded)
        found.on_headed(fact)
    for member in stalled:
        found.on_stalled(Stalled(AT, PARENTS[member], member, 1))
    return found


def test_everybody_below_the_ring_is_relied_on() -> None:
    assert coverage().of(EpochView(R1, 1)) == [4, 5, 6, 7, 8]
    assert coverage().below(1, E1) == [4, 5, 7, 8]
    assert coverage().below(4, E1) == [7, 8]
    assert coverage().below(3, E1) == []
    assert coverage().uncounted(EpochView(R1, 1)) == []


def test_one_that_stalled_takes_everybody_below_it_along() -> None:
    assert coverage(4).of(EpochView(R1, 1)) == [5, 6]
    assert coverage(4).below(1, E1) == [5]
    assert coverage(4).below(4, E1) == [7, 8]
    assert coverage(7).below(1, E1) == [4, 5, 8]
    assert coverage(4).uncounted(EpochView(R1, 1)) == [4, 7, 8]


def test_one_that_returned_is_relied_on_again() -> None:
    found = coverage(4)
    found.on_returned(Returned(AT, 1, 4, 3))
    assert found.below(1, E1) == [4, 5, 7, 8]


def test_a_group_is_relied_on_before_anybody_on_a_new_ring_heads_it() -> None:
    """Nothing of the new epoch can be dropped before its head has spoken: whoever drops it all the same is wrong."""
    second = EpochView(ring(E2, (2, 3)), 1)
    assert coverage().of(second) == [4, 5, 6, 7, 8]
    assert coverage().below(2, E2) == []
    assert coverage().uncounted(second) == [4, 5, 6, 7, 8]


def test_a_head_that_takes_a_group_over_counts_everybody_anew() -> None:
    found = coverage(5)
    second = EpochView(ring(E2, (2, 3)), 1)
    found.on_headed(GroupHeaded(AT, 2, E2, 1, anew=True))
    found.on_headed(GroupHeaded(AT, 2, E2, 2, anew=False))
    assert found.below(2, E2) == [4, 5, 6, 7, 8]
    assert found.of(second) == [4, 5, 6, 7, 8]
    assert found.below(1, E1) == [4, 7, 8], "what its old head says in the old epoch is judged by what it said there"
    found.on_stalled(Stalled(AT, 2, 4, 1))
    assert found.of(second) == [5, 6]


def test_a_head_that_goes_on_keeps_whom_it_gave_up() -> None:
    found = coverage(5)
    found.on_headed(GroupHeaded(AT, 1, E2, 1, anew=False))
    assert found.below(1, E2) == [4, 7, 8]
    found.on_headed(GroupHeaded(AT, 1, E2, 1, anew=True))
    assert found.below(1, E2) == [4, 5, 7, 8]


def test_one_that_another_site_counts_is_relied_on_until_it_is_handed_back_or_given_up() -> None:
    for ends in ("handed back", "given up", "restarted", "taken over"):
        found = coverage(4)
        found.on_returned(Returned(AT, 2, 7, 3))
        assert (found.below(2, E1), found.of(EpochView(R1, 1))) == ([6, 7], [5, 6, 7])
        assert found.uncounted(EpochView(R1, 1)) == [4, 8]
        match ends:
            case "handed back":
                found.on_handed_back(HandedBack(AT, 2, 7))
            case "given up":
                found.on_stalled(Stalled(AT, 2, 7, 3))
            case "restarted":
                found.forget_adopted(2)
            case _:
                found.on_headed(GroupHeaded(AT, 2, E1, 4, anew=True))
        assert found.of(EpochView(R1, 1)) == [5, 6], ends


def test_one_that_was_given_up_by_an_adopter_is_still_its_own_heads() -> None:
    found = coverage()
    found.on_returned(Returned(AT, 2, 7, 3))
    found.on_stalled(Stalled(AT, 2, 7, 3))
    assert found.of(EpochView(R1, 1)) == [4, 5, 6, 7, 8]


# S10


def test_s10_a_secondary_receiver_lacks_what_is_collected() -> None:
    assert judged(Collected(AT, 1, 4)) == []
    assert judged(Collected(AT, 1, 4), but={7: 3}) == ["S10"]
    text = "site1 collected token 4 in epoch 1.1, but site7 holds 3"
    assert texts([*layered_run(but={7: 3}), Collected(AT, 1, 4)], "S10", LAYERED) == [text]


def test_s10_one_that_was_given_up_may_lack_it() -> None:
    assert judged(Stalled(AT, 4, 7, 3), Collected(AT, 1, 4), but={7: 3}) == []
    assert judged(Stalled(AT, 4, 7, 3), Returned(AT, 4, 7, 3), Collected(AT, 1, 4), but={7: 3}) == ["S10"]


def test_s10_a_secondary_receiver_that_collects_is_held_to_it_too() -> None:
    assert judged(Collected(AT, 5, 4)) == []
    assert judged(Collected(AT, 5, 4), but={6: 3}) == ["S10"]


# S8


def test_s8_what_a_token_calls_stable_is_held_below_the_ring() -> None:
    assert judged(claim(stable=4)) == []
    assert judged(claim(stable=4), but={6: 3}) == ["S8"]
    assert judged(claim(stable=3), but={6: 3}) == []


def test_s8_what_a_head_says_of_its_group_is_true() -> None:
    assert judged(claim(secstable=4)) == []
    assert judged(claim(secstable=4), but={8: 3}) == ["S8"]
    assert judged(claim(secstable=4), but={6: 3}) == [], "another head's group"
    assert judged(claim(secstable=4, site=2), but={6: 3}) == ["S8"]


def test_s8_only_a_head_that_gave_everybody_up_sets_no_limit() -> None:
    assert judged(claim(secstable=NO_LIMIT)) == ["S8"]
    assert judged(claim(secstable=NO_LIMIT, site=3)) == []
    assert judged(Stalled(AT, 1, 4, 4), claim(secstable=NO_LIMIT)) == ["S8"]
    assert judged(Stalled(AT, 1, 4, 4), Stalled(AT, 1, 5, 4), claim(secstable=NO_LIMIT)) == []


def test_s8_what_was_stable_in_an_earlier_epoch_was_judged_there() -> None:
    second = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=4)
    entered = [installed(site, second, at=AT) for site in SITES]
    old = StabilityClaimed(AT, 1, E2, 5, 4, 0)
    assert judged(*entered, old, but={6: 3}) == []
    new = StabilityClaimed(AT, 1, E2, 5, 5, 0)
    assert judged(*entered, new) == ["S8"]


# S6


def test_s6_nobody_passes_a_secondary_token_without_holding_as_much() -> None:
    assert judged(passed(5, 4, 1)) == []
    assert judged(passed(5, 4, 1), but={5: 3}) == ["S6"]
    text = "site5 passed secondary token 4 of epoch 1.1, but site5 holds 3"
    assert texts([*layered_run(but={5: 3}), passed(5, 4, 1)], "S6", LAYERED) == [text]


def test_s6_a_secondary_token_speaks_for_everybody_below_its_sender() -> None:
    assert judged(passed(4, 4, 1), but={7: 3}) == ["S6"]
    assert judged(passed(4, 4, 4), but={7: 3}) == [], "in its own group it speaks for itself"
    assert judged(Stalled(AT, 4, 7, 3), passed(4, 4, 1), but={7: 3}) == []


def test_s6_a_secondary_token_is_of_its_senders_epoch() -> None:
    assert judged(SecondaryTokenPassed(AT, 5, E2, 1, 4)) == ["S6"]


# Orphans, and L8


def test_an_adopted_member_is_held_to_everything() -> None:
    """Site 4 gave 7 up, site 1 counts it: then nothing is dropped that it lacks, and its adopter's word includes it."""
    given_up: list[Fact] = [Stalled(AT, 1, 4, 3)]
    adopted: list[Fact] = [*given_up, Returned(AT, 2, 7, 3)]
    assert judged(*given_up, Collected(AT, 1, 4), but={7: 3}) == []
    assert judged(*adopted, Collected(AT, 1, 4), but={7: 3}) == ["S10"]
    assert judged(*adopted, claim(secstable=4, site=2), but={7: 3}) == ["S8"]
    assert judged(*adopted, HandedBack(AT, 2, 7), claim(secstable=4, site=2), but={7: 3}) == []
    assert judged(*adopted, restarted(2, AT, 4, E1), Collected(AT, 1, 4), but={7: 3}) == []


def test_who_was_adopted_stays_so_in_an_epoch_that_goes_on() -> None:
    adopted: list[Fact] = [Stalled(AT, 1, 4, 3), Returned(AT, 2, 7, 3)]
    second = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=4)
    other = ring(E2, start=100 * SECOND, cut_epoch=E1._replace(number=9), cut_token=4)
    claim_2 = StabilityClaimed(AT, 2, E2, 5, 0, NO_LIMIT)
    gone: list[Fact] = [Stalled(AT, 2, 6, 3), GroupHeaded(AT, 2, E2, 2, anew=False)]
    assert judged(*adopted, *gone, installed(2, second, at=AT), claim_2) == ["S8"]
    assert "S8" not in judged(*adopted, *gone, installed(2, other, at=AT), claim_2)


def test_a_farewell_to_an_adopter_says_nothing_of_what_is_held() -> None:
    facts = [fact for fact in layered_run(but={5: 0}) if not isinstance(fact, Collected)]
    assert unsafe([*facts, passed(5, 1, 1)], LAYERED) == ["S6"]
    assert unsafe([*facts, passed(5, 0, 1)], LAYERED) == []


def test_l7_somebody_on_the_ring_waits_for_every_correct_secondary_receiver() -> None:
    end = quiet_end()
    everybody = (*SITES, *PARENTS)
    end = end._replace(correct=everybody, epochs=dict.fromkeys(everybody, (E1, E1, False)))
    assert broken(whole_run(), LAYERED, end) == []
    last = whole_run()[-1].at
    assert broken([*whole_run(), Stalled(last, 1, 4, 3)], LAYERED, end) == ["L8"]
    adopted: list[Fact] = [Stalled(last, 1, 4, 3), *[Returned(last, 3, site, 3) for site in (4, 7, 8)]]
    assert broken([*whole_run(), *adopted], LAYERED, end) == []
    headless = [fact for fact in whole_run() if not (isinstance(fact, GroupHeaded) and fact.group == 2)]
    [violation] = judge(headless, LAYERED, end).violations
    assert (violation.property, violation.text) == ("L8", "nobody on the ring waits for site6")


# S7


@pytest.mark.parametrize("fact", [ReceiptSent(AT, 5, E1, 4), Promised(AT, 5, E2)])
def test_s7_a_secondary_receiver_votes_for_nothing(fact: Fact) -> None:
    """Protocol §7: R_S count in no quorum."""
    assert judged(fact) == ["S7"]


# What holds for all receivers


def whole_run(*, lagging: tuple[int, ...] = ()) -> list[Fact]:
    """The quiet run to its end; secondary receivers complete and release everything, those that lag nothing."""
    facts: list[Fact] = [*quiet_run(), *headed()]
    for site in PARENTS:
        facts.append(installed(site))
        if site not in lagging:
            facts.extend([completed(site, number, at=instant(number) + 25 * MS) for number in range(1, TOKENS + 1)])
            facts.extend([released(site, number, at=release_at(number)) for number in range(1, TOKENS + 1)])
    return in_order(facts)


def test_releases_below_the_ring_are_held_to_the_same_properties() -> None:
    good = whole_run()
    assert broken(good, LAYERED) == []
    third = released(6, 3, at=release_at(3))
    assert unsafe([fact for fact in good if fact != third], LAYERED) == ["S2"]
    other = released(6, 3, [message(5), message(6, "another")], at=release_at(3))
    assert unsafe(changed(good, third, other), LAYERED) == ["S1"]
    early = third._replace(at=third.at - 5 * MS)
    assert unsafe(changed(good, third, early), LAYERED) == ["S12"]
    late = third._replace(at=third.at + 5 * MS)
    assert broken(changed(good, third, late), LAYERED) == ["F1"]


def test_a_secondary_receiver_that_lags_breaks_l1_and_not_f2() -> None:
    facts = [fact for fact in whole_run(lagging=(5,)) if not isinstance(fact, Collected)]
    end = quiet_end()
    end = end._replace(correct=(*SITES, 5), epochs={**end.epochs, 5: (E1, E1, False)})
    assert broken([*facts, Unanswered(facts[-1].at, 5, 1, 1)], LAYERED, end) == ["L1"]
