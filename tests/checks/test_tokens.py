"""S5, S6, S8 and S11: who may send which token, and what that proves."""

import pytest
from tests.checks.traces import (
    E1,
    E2,
    E3,
    MS,
    R1,
    changed,
    completed,
    digest,
    in_order,
    installed,
    instant,
    owner,
    quiet_run,
    ring,
    sent,
    texts,
    unsafe,
    until,
    without,
)

from isocast.checks.facts import Collected, Completed, Fact, Promised, RingFormed
from isocast.terms.instants import SECOND

GOOD = quiet_run()


def of_site(site: int, from_token: int) -> list[Fact]:
    """The completions of one site from a token on."""
    own = [fact for fact in GOOD if isinstance(fact, Completed) and fact.site == site]
    return [fact for fact in own if fact.token_number >= from_token]


def test_s5_an_owner_sends_two_contents() -> None:
    """S5: "at most one content per (e,t)"."""
    assert unsafe(in_order([*GOOD, sent(4)])) == []
    facts = in_order([*GOOD, sent(4, content="another")])
    assert unsafe(facts) == ["S5"]
    assert "token 4 of epoch 1.1 is " in texts(facts, "S5")[0]


def test_s5_a_site_completes_another_content_than_was_sent() -> None:
    was = completed(3, 4)
    assert unsafe(changed(GOOD, was, was._replace(digest=digest(E1, 4, "another")))) == ["S5"]


def test_s5_somebody_else_sends_it() -> None:
    """S5: "from its owner"."""
    assert (owner(4), owner(5)) == (1, 2)
    at = completed(2, 4).at
    facts = [*until(without(GOOD, lambda fact: fact == sent(4)), at), sent(4)._replace(site=2, at=at)]
    assert unsafe(facts) == ["S5"]
    assert texts(facts, "S5") == ["site2 sent token 4 of epoch 1.1, whose owner is site1"]


def test_s5_a_token_of_a_ring_that_nobody_installed() -> None:
    facts = until(without(GOOD, lambda fact: fact.at == SECOND), instant(1))
    assert unsafe(facts) == ["S5"]
    assert "nobody installed" in texts(facts, "S5")[0]


def test_s5_a_token_before_the_first_of_its_epoch() -> None:
    late_start = ring(E2, cut_epoch=E1, cut_token=2)
    facts: list[Fact] = [installed(site, late_start, keep=0) for site in (1, 2, 3)]
    assert unsafe([*facts, sent(3, late_start)]) == []
    facts.append(sent(2, late_start))
    assert unsafe(facts) == ["S5"]
    assert "a site of an earlier epoch" in texts(facts, "S5")[0]


def test_s5_an_epoch_has_one_ring() -> None:
    assert unsafe(changed(GOOD, installed(3), installed(3, ring(start=R1.start + MS)))) == ["S5"]


def test_s5_a_site_enters_an_epoch_with_another_token_than_its_cut() -> None:
    second = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=4)
    at = instant(4) + 10 * MS
    facts = [*until(GOOD, at), installed(2, second, at=at, keep=3)]
    fetched = Completed(at, 2, E2, 4, digest(E1, 4), 2, 2)
    assert unsafe([*facts, fetched]) == []
    assert unsafe([*facts, fetched._replace(digest=digest(E1, 4, "stale"))]) == ["S5"]


def test_s6_the_owner_lacks_a_token() -> None:
    """S6: "TOKEN(e,t) sent implies the sender had h = t-1"."""
    lacking = of_site(owner(5), 4)
    facts = until(without(GOOD, lambda fact: fact in lacking), instant(5))
    assert unsafe(until(GOOD, instant(5))) == []
    assert unsafe(facts) == ["S6"]
    assert texts(facts, "S6") == ["site2 sent token 5 of epoch 1.1, but it held 3"]


def test_s6_the_owner_jumped_over_a_token() -> None:
    facts = until(without(GOOD, lambda fact: fact == completed(owner(5), 4)), instant(5))
    assert unsafe(facts) == ["S6"]


def test_s6_the_owner_lacks_a_message() -> None:
    """Protocol §12.2: "the next owner lacks one DATA and must stay silent"."""
    whole = completed(owner(5), 4)
    facts = until(changed(GOOD, whole, whole._replace(messages=1)), instant(5))
    assert unsafe(facts) == ["S6"]
    assert "token 4 of that is not whole" in texts(facts, "S6")[0]


def test_s6_the_owner_fetched_a_log_with_a_hole() -> None:
    """The ring's cut is token 4, and the owner kept 4 of a log that ended at 3."""
    second = ring(E2, (2, 1, 3), start=instant(5), cut_epoch=E1, cut_token=4)
    at = instant(4) + 10 * MS
    facts = [*until(GOOD, at), installed(2, second, at=at, keep=3)]
    token: list[Fact] = [completed(2, 5, second), sent(5, second)]
    assert unsafe([*facts, *token]) == []
    assert unsafe([*facts[:-1], installed(2, second, at=at, keep=4), *token]) == ["S6"]


def test_s6_the_owner_kept_a_token_that_is_not_in_its_rings_log() -> None:
    """Protocol §5.4: "a stale site may hold divergent tokens *below*" the cut."""
    second = ring(E2, start=instant(4), cut_epoch=E1, cut_token=2)
    third = ring(E3, (3, 1, 2), start=instant(6), cut_epoch=E2, cut_token=3)._replace(holders=(1,))
    at = instant(4) - 50 * MS
    facts = without(until(GOOD, at), lambda fact: fact in (completed(1, 3), completed(2, 3)))
    facts.extend([installed(1, second, at=at), completed(1, 3, second, at=at), Promised(at, 3, E3)])
    token: list[Fact] = [completed(3, 4, third), sent(4, third)]
    assert unsafe([*facts, installed(3, third, at=at, keep=2), *token]) == []
    assert unsafe([*facts, installed(3, third, at=at, keep=3), *token]) == ["S6"]


def test_s6_the_owner_is_beyond_its_own_token() -> None:
    ahead = [completed(owner(4), number, at=instant(4) - MS) for number in (4, 5)]
    assert unsafe(until(in_order([*GOOD, *ahead]), instant(4))) == ["S6"]


def test_s6_the_owner_has_not_entered_the_epoch() -> None:
    facts = until(without(GOOD, lambda fact: fact == installed(owner(1))), instant(1))
    assert unsafe(facts) == ["S6"]
    assert "its log is that of epoch" in texts(facts, "S6")[0]


def test_s8_a_member_lacks_what_the_token_proves() -> None:
    """S8: "TOKEN(t) sent and t-m+1 >= t0 implies every member's h >= t-m+1"."""
    # In a ring of three, token 6 proves that site 2 holds token 4.
    assert (owner(5), owner(6)) == (2, 3)
    lacking = of_site(2, 4)
    facts = without(GOOD, lambda fact: fact in lacking or isinstance(fact, Collected) or fact == sent(5))
    facts = until(facts, instant(6))
    assert unsafe(without(facts, lambda fact: fact == sent(6))) == []
    assert unsafe(facts) == ["S8"]
    assert texts(facts, "S8") == ["site3 sent token 6 of epoch 1.1 in a ring of 3, but site2 holds 3 and not 4"]


def test_s8_equal_numbers_of_another_log_do_not_count() -> None:
    """A member that has not entered the epoch may hold other tokens under the same numbers."""
    second = ring(E2, start=instant(5), cut_epoch=E1, cut_token=4)
    at = instant(4) + 50 * MS
    facts = until(GOOD, at)
    for site in (1, 2):
        facts.append(installed(site, second, at=at))
        facts.extend([completed(site, number, second, at=at) for number in (5, 6, 7)])
    stale: list[Fact] = [completed(3, number, at=at) for number in (5, 6, 7)]
    entered: list[Fact] = [
        installed(3, second, at=at),
        *[completed(3, number, second, at=at) for number in (5, 6, 7)],
    ]
    token = sent(8, second)
    facts.append(completed(token.site, 8, second, at=at))
    assert token.site == 1
    assert unsafe([*facts, *entered, token]) == []
    assert unsafe([*facts, *stale, token]) == ["S8"]


@pytest.mark.parametrize("uncertified", [True, False])
@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("held", [3, 4])
def test_s8_only_a_ring_that_may_lose_excuses_who_left_it_with_what_the_token_proves(
    uncertified: bool,  # noqa: FBT001
    forced: bool,  # noqa: FBT001
    held: int,
) -> None:
    """Seed 2922: after a cut healed, one member's log was already that of another ring, and the other sent a token."""
    first = ring(E1)._replace(uncertified=uncertified)
    other = ring(E2, (3,), start=instant(1))._replace(uncertified=not forced, forced=forced)
    facts: list[Fact] = [installed(site, first) for site in (1, 2, 3)]
    facts += [
        completed(site, number, first) for number in range(1, 6) for site in (1, 2, 3) if site != 2 or number <= held
    ]
    facts += [installed(2, other, at=instant(6) - 1)._replace(keep=0), completed(3, 6, first), sent(6, first)]
    assert (owner(6), sent(6).site) == (3, 3)
    excused = (uncertified or forced) and held == 4
    assert ("S8" in unsafe(facts)) == (not excused)


def test_s11_a_token_carries_the_instant_of_its_sending() -> None:
    """Protocol §1: "the scheduled instant, never the actual send time"."""
    facts = changed(GOOD, sent(4), sent(4)._replace(instant=instant(4) + 3))
    assert unsafe(facts) == ["S11"]
    assert "it is scheduled for" in texts(facts, "S11")[0]


def test_s11_a_new_epoch_begins_less_than_a_period_after_its_cut() -> None:
    """Protocol §5: T0 ≥ T_h+τ_t."""
    at = instant(4) + 50 * MS
    for start, verdict in ((instant(5), []), (instant(5) - 1, ["S11"])):
        second = ring(E2, start=start, cut_epoch=E1, cut_token=4)
        assert unsafe([*until(GOOD, at), installed(1, second, at=at)]) == verdict
        assert unsafe([*until(GOOD, at), RingFormed(at, E2.server, second)]) == verdict


def test_s5_a_server_forms_two_rings_of_one_ballot() -> None:
    one, other = ring(E2, start=instant(9)), ring(E2, (1, 2), start=instant(9))
    formed = [RingFormed(SECOND, E2.server, one), RingFormed(SECOND, E2.server, one)]
    assert unsafe(formed) == []
    assert unsafe([*formed, RingFormed(SECOND, E2.server, other)]) == ["S5"]
