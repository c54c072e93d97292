"""S5, S6, S8 and S11: who may send which token, and what that proves."""

from tests.checks.traces import (
    E1,
    E2,
    MS,
    R1,
    SECOND,
    TOKENS,
    broken,
    changed,
    completed,
    digest,
    in_order,
    installed,
    instant,
    judge,
    owner,
    quiet_run,
    ring,
    sent,
    until,
    without,
)

from isocast.checks.facts import Collected, Completed, Fact

GOOD = quiet_run()


def of_site(site: int, from_token: int) -> list[Fact]:
    """The completions of one site from a token on."""
    return [fact for fact in GOOD if isinstance(fact, Completed) and fact.site == site and fact.token_number >= from_token]


def test_s5_an_owner_sends_two_contents() -> None:
    """S5: "at most one content per (e,t)"."""
    again = sent(4)
    assert broken(in_order([*GOOD, again])) == []
    facts = in_order([*GOOD, sent(4, content="another")])
    assert broken(facts) == ["S5"]
    assert "token 4 of epoch 1.1 is " in judge(facts).violations[0].text


def test_s5_a_site_completes_another_content_than_was_sent() -> None:
    was = completed(3, 4)
    assert was in GOOD
    assert broken(changed(GOOD, was, was._replace(digest=digest(E1, 4, "another")))) == ["S5"]


def test_s5_somebody_else_sends_it() -> None:
    """S5: "from its owner"."""
    stranger = owner(5)
    thief = sent(4)._replace(site=stranger, at=instant(4) + 5 * MS)
    facts = in_order([*without(GOOD, lambda fact: fact == sent(4)), completed(stranger, 4, at=thief.at), thief])
    facts = without(facts, lambda fact: fact == completed(stranger, 4))
    assert "S5" in broken(until(facts, thief.at))
    assert "site2 sent token 4 of epoch 1.1, whose owner is site1" in judge(until(facts, thief.at)).violations[0].text


def test_s5_a_token_of_a_ring_that_nobody_installed() -> None:
    facts = without(GOOD, lambda fact: fact.at == SECOND)
    assert "S5" in broken(facts)
    assert "nobody installed" in judge(facts).violations[0].text


def test_s5_a_token_before_the_first_of_its_epoch() -> None:
    late_start = ring(E1, cut_epoch=E2, cut_token=2)
    facts: list[Fact] = [*[installed(site, late_start) for site in (1, 2, 3)], sent(2, late_start)]
    assert broken(facts) == ["S5", "S6"]
    assert "a site of an earlier epoch" in judge(facts).violations[0].text


def test_s5_an_epoch_has_one_ring() -> None:
    other = installed(3, ring(start=R1.start + MS))
    facts = changed(GOOD, installed(3), other)
    assert broken(facts) == ["S5"]


def test_s6_the_owner_lacks_a_token() -> None:
    """S6: "TOKEN(e,t) sent implies the sender had h = t-1"."""
    lacking = [fact for fact in of_site(owner(5), 4) if fact.at <= instant(5)]
    facts = until(without(GOOD, lambda fact: fact in lacking), instant(5))
    assert broken(facts) == ["S6"]
    assert judge(facts).violations[0].text == "site2 sent token 5 of epoch 1.1, but it held 3"


def test_s6_the_owner_jumped_over_a_token() -> None:
    gap = completed(owner(5), 4)
    facts = until(without(GOOD, lambda fact: fact == gap), instant(5))
    assert broken(facts) == ["S6"]


def test_s6_the_owner_lacks_a_message() -> None:
    """Protocol §12.2: "the next owner lacks one DATA and must stay silent"."""
    gap = completed(owner(5), 4)
    facts = until(changed(GOOD, gap, gap._replace(messages=1)), instant(5))
    assert broken(facts) == ["S6"]
    assert "token 4 of that without all its messages" in judge(facts).violations[0].text


def test_s6_the_owner_is_beyond_its_own_token() -> None:
    ahead = [completed(owner(4), 5, at=instant(4) - MS), *[completed(owner(4), 4, at=instant(4) - MS)]]
    facts = until(in_order([*GOOD, *reversed(ahead)]), instant(4))
    assert "S6" in broken(facts)


def test_s6_the_owner_has_not_entered_the_epoch() -> None:
    facts = without(GOOD, lambda fact: fact == installed(owner(1)))
    assert broken(until(facts, instant(1))) == ["S6"]
    assert "its log is that of epoch" in judge(until(facts, instant(1))).violations[0].text


def test_s8_a_member_lacks_what_the_token_proves() -> None:
    """S8: "TOKEN(t) sent and t-m+1 >= t0 implies every member's h >= t-m+1"."""
    # In a ring of three, token 6 proves that site 2 holds token 4.
    assert owner(5) == 2
    facts = without(GOOD, lambda fact: fact in of_site(2, 4) or isinstance(fact, Collected))
    facts = until(without(facts, lambda fact: fact == sent(5)), instant(6))
    assert "S8" in broken(facts)
    assert broken(changed(facts, sent(6), completed(3, 6))) == ["F3"]
    text = "site3 sent token 6 of epoch 1.1 in a ring of 3, but site2 holds 3 and not 4"
    assert text in [violation.text for violation in judge(facts).violations]


def test_s8_equal_numbers_of_another_log_do_not_count() -> None:
    """A member that has not entered the epoch may hold other tokens under the same numbers."""
    second = ring(E2, start=instant(5), cut_epoch=E1, cut_token=4)
    at = instant(4) + 50 * MS
    facts = [*until(GOOD, at), installed(1, second, at=at), installed(2, second, at=at)]
    stray = [completed(3, number, at=at + MS) for number in (5, 6, 7)]
    for number in (5, 6, 7):
        facts.extend([completed(site, number, second, at=at + number * MS) for site in (1, 2)])
        facts.extend([fact for fact in stray if fact.token_number == number])
    token = sent(7, second)._replace(at=at + 20 * MS)
    assert owner(7, second) == 3
    good = [*facts, installed(3, second, at=at + 9 * MS), *[completed(3, n, second, at=at + 9 * MS) for n in (5, 6, 7)]]
    assert "S8" not in broken([*good, token])
    facts.append(token._replace(site=1))
    assert "S8" in broken(facts)


def test_s11_a_token_carries_the_instant_of_its_sending() -> None:
    """Protocol §1: "the scheduled instant, never the actual send time"."""
    facts = changed(GOOD, sent(4), sent(4)._replace(instant=instant(4) + 3))
    assert broken(facts) == ["S11"]
    assert "it is scheduled for" in judge(facts).violations[0].text


def test_s11_a_new_epoch_begins_in_the_past_of_the_cut() -> None:
    """S11: "T increases across epochs"."""
    at = instant(TOKENS)
    good = ring(E2, start=instant(4) + 1, cut_epoch=E1, cut_token=4)
    assert broken([*until(GOOD, at), installed(1, good, at=at)]) == []
    bad = ring(E2, start=instant(4), cut_epoch=E1, cut_token=4)
    assert broken([*until(GOOD, at), installed(1, bad, at=at)]) == ["S11"]
