"""S7 and S9: what a site has promised, and what a majority therefore remembers."""

import pytest
from tests.checks.traces import (
    E1,
    E2,
    E3,
    MS,
    SECOND,
    SITES,
    TIMING,
    broken,
    changed,
    completed,
    crashed,
    digest,
    in_order,
    installed,
    instant,
    judge,
    law,
    quiet_run,
    release_at,
    released,
    restarted,
    ring,
    sent,
    until,
    without,
)

from isocast.checks.facts import Completed, Fact, Installed, Promised, ReceiptSent, Restarted
from isocast.terms.ids import NO_EPOCH, server_id
from isocast.terms.timing import Gate, Timing

GOOD = quiet_run()
AT = instant(2) + 50 * MS
BEFORE = until(GOOD, AT)
"""Two tokens are complete everywhere."""
SECOND_RING = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=2)


def test_s7_a_promise_goes_back() -> None:
    """S7: "prom and e_acc never go back"."""
    good = [*BEFORE, Promised(AT, 1, E2), Promised(AT, 1, E3)]
    assert broken(good) == []
    assert broken([*good, Promised(AT, 1, E2)]) == ["S7"]
    assert judge([*good, Promised(AT, 1, E2)]).violations[0].text == "site1 promised 2.1 after 3.1"


def test_s7_a_ring_below_a_promise_is_entered() -> None:
    good = [*BEFORE, Promised(AT, 1, E2), installed(1, SECOND_RING, at=AT)]
    assert broken(good) == []
    assert broken([*BEFORE, Promised(AT, 1, E3), installed(1, SECOND_RING, at=AT)]) == ["S7"]


def test_s7_a_ring_is_entered_twice() -> None:
    """Entering an epoch again would cut the log back to its beginning."""
    assert broken([*BEFORE, installed(1, at=AT)]) == ["S7"]


@pytest.mark.parametrize(
    "forgotten",
    [Restarted(AT + MS, 1, disk_kept=True, promised=E1, accepted=E1, held=2), None],
    ids=["promise", "epoch"],
)
def test_s7_a_restart_forgets(forgotten: Restarted | None) -> None:
    """S7: "restarts included"."""
    before: list[Fact] = [*BEFORE, Promised(AT, 1, E2)]
    if forgotten is None:
        before.append(installed(1, SECOND_RING, at=AT))
        forgotten = Restarted(AT + MS, 1, disk_kept=True, promised=E2, accepted=E1, held=2)
    before.append(crashed(1, AT))
    accepted = E2 if before[-2] == installed(1, SECOND_RING, at=AT) else E1
    assert broken([*before, forgotten._replace(promised=E2, accepted=accepted)]) == []
    assert broken([*before, forgotten]) == ["S7"]


@pytest.mark.parametrize("vote", [sent(3), ReceiptSent(instant(3), 3, E1, 2)], ids=["token", "receipt"])
def test_s7_a_site_votes_for_an_epoch_that_it_promised_to_leave(vote: Fact) -> None:
    """S7: "no TOKEN or RECEIPT(e) after prom > e"."""
    before = [*until(GOOD, instant(3) - MS), completed(3, 3, at=instant(3))]
    assert broken([*before, vote]) == []
    facts = [*before, Promised(instant(3), 3, E2), vote]
    assert broken(facts) == ["S7"]
    assert "after it had promised 2.1" in judge(facts).violations[0].text


@pytest.mark.parametrize(
    "vote",
    [
        Promised(AT + 2, 1, E2),
        installed(1, SECOND_RING, at=AT + 2),
        ReceiptSent(AT + 2, 1, E1, 2),
    ],
    ids=["promise", "install", "receipt"],
)
def test_s7_a_site_that_lost_its_disk_votes_again(vote: Fact) -> None:
    """Protocol §5: "A site that lost its disk ... comes back under a new site id"."""
    good = [*BEFORE, crashed(1, AT), restarted(1, AT + 1, 0, NO_EPOCH, disk_kept=False)]
    assert broken(good) == []
    assert broken([*good, vote]) == ["S7"]
    assert "lost its disk" in judge([*good, vote]).violations[0].text
    assert broken([*good, crashed(1, AT + 1), restarted(1, AT + 1, 0, NO_EPOCH), vote]) == ["S7"]


def test_s7_a_token_of_a_site_that_lost_its_disk() -> None:
    at = instant(3) - 50 * MS
    facts = [
        *until(GOOD, at),
        crashed(3, at),
        restarted(3, at, 2, disk_kept=False),
        completed(3, 3, at=instant(3)),
        sent(3),
    ]
    assert broken(facts) == ["S7"]


def test_s9_a_release_that_only_a_minority_holds() -> None:
    """S9: "a majority-gate release of t in e implies that a majority held its prefix in e"."""
    release = released(1, 2)
    holders = [completed(2, 2), completed(3, 2)]
    assert broken(until(without(GOOD, lambda fact: fact == holders[1]), release.at)) == []
    facts = until(without(GOOD, lambda fact: fact in holders), release.at)
    facts = without(facts, lambda fact: fact == sent(2))
    assert "S9" in broken(facts)
    text = "site1 released token 2 in epoch 1.1, which only site1 held there, 2 being needed"
    assert text in [violation.text for violation in judge(facts).violations]


def test_s9_a_token_without_its_messages_is_not_held() -> None:
    facts = until(GOOD, released(1, 1).at)
    for site in (1, 2):
        done = completed(site, 1)
        facts = changed(facts, done, done._replace(messages=0))
    facts = without(facts, lambda fact: fact == sent(2))
    assert "S9" in broken(facts)


def test_s9_holding_after_a_promise_does_not_count() -> None:
    """S9: "before promising more"."""
    first = installed_only()
    token: list[Fact] = [completed(1, 1), sent(1)]
    promises: list[Fact] = [Promised(instant(1) + MS, site, E2) for site in (2, 3)]
    late: list[Fact] = [completed(site, 1) for site in (2, 3)]
    release = released(1, 1)
    assert broken([*first, *token, *late, *promises, release]) == []
    assert broken([*first, *token, *promises, *late, release]) == ["S9"]


def installed_only() -> list[Fact]:
    """All three are in the first epoch, and nothing has happened."""
    return [fact for fact in GOOD if isinstance(fact, Installed)] + [
        fact for fact in GOOD if type(fact).__name__ == "Submitted"
    ]


def test_s9_a_cut_that_a_majority_entered_is_held() -> None:
    """Backlog up to the cut is released in the new epoch, once a majority has entered that."""
    base = [*until(GOOD, AT), *[Promised(AT, site, E2) for site in SITES]]
    second = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=3)
    own: list[Fact] = []
    for site in (1, 2):
        own.append(installed(site, second, at=AT, keep=2))
        own.append(Completed(AT, site, E2, 3, digest(E1, 3), 2, 2))
    before = [released(1, 1), released(1, 2)]
    backlog = released(1, 3)._replace(epoch=E2)
    extra = [fact for fact in GOOD if type(fact).__name__ == "Submitted" and fact.at > AT]
    assert broken([*base, *own, *extra, *before, backlog]) == []
    assert broken([*base, *own[:2], *extra, *before, backlog]) == ["S9"]


def test_s9_what_an_older_epoch_certified_stays_certified() -> None:
    """Even when so many epochs have followed that their holdings are no longer remembered."""
    facts: list[Fact] = list(BEFORE)
    for number in range(2, 80):
        ballot = E1._replace(number=number, server=server_id(1))
        facts.append(installed(1, ring(ballot, start=100 * SECOND, cut_epoch=E1, cut_token=2), at=AT))
    newest = E1._replace(number=79)
    assert broken([*facts, *[released(1, number)._replace(epoch=newest) for number in (1, 2)]]) == []


def test_s9_a_majority_of_a_later_epoch_does_not_vouch_for_an_earlier_one() -> None:
    """A stale site releases its own token 3, while the others have another one under that number."""
    second = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=2)
    facts = [*BEFORE, completed(3, 3, at=AT)]
    for site in (1, 2):
        facts.extend([installed(site, second, at=AT), Completed(AT, site, E2, 3, digest(E2, 3), 2, 2)])
    facts.extend([fact for fact in GOOD if type(fact).__name__ == "Submitted" and fact.at > AT])
    facts.extend([released(3, 1), released(3, 2), released(3, 3)])
    assert broken(facts) == ["S9"]


def test_s9_is_about_the_majority_gate() -> None:
    timed = Timing(
        100 * MS,
        process_ns=10 * MS,
        retries_max=2,
        clock_error_ns=MS,
        gate=Gate.TIMED,
        token_period_ns=TIMING.token_period_ns,
        release_delay_ns=TIMING.release_delay_ns,
    )
    release = released(1, 1)
    facts = without(until(GOOD, release.at), lambda fact: fact in (completed(2, 1), completed(3, 1)))
    assert "S9" in broken(facts)
    assert "S9" not in broken(facts, law(timing=timed))


def test_s9_a_restart_holds_less_than_was_receipted() -> None:
    assert broken([*BEFORE, crashed(1, AT), restarted(1, AT, held=2)]) == []
    facts = [*BEFORE, crashed(1, AT), restarted(1, AT, held=1)]
    assert broken(facts) == ["S9"]
    assert judge(facts).violations[0].text == "site1 restarted with token 1, but had receipted 2 in epoch 1.1"
    assert in_order(facts)
    assert release_at(2) > AT
